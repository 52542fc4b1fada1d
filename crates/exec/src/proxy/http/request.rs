//! The head of a request, read strictly: what two readers could take differently is refused.

use thiserror::Error;

use super::body::Body;

/// A request and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// As it was written, without brackets taken off or escapes read.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A tunnel.
    Connect,
    /// A request to send on.
    Plain(Plain),
}

/// What is sent on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    method: Vec<u8>,
    path: Vec<u8>,
    version: Version,
    authority: String,
    /// Without those that are about the connection, the host or the length.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Bad {
    #[error("this is a proxy, and that is no request to one")]
    Line,
    #[error("only http: addresses are sent on; others need CONNECT")]
    Scheme,
    #[error("the address cannot be read")]
    Authority,
    #[error("a header line cannot be read")]
    Field,
    #[error("the length of the request is not clear")]
    Length,
    #[error("only chunked transfer coding is known")]
    Coding,
    #[error("the request is too long")]
    TooLong,
    #[error("the request took too long")]
    Slow,
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    Version,
}

impl Bad {
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Line | Self::Scheme | Self::Authority | Self::Field | Self::Length => 400,
            Self::Coding => 501,
            Self::TooLong => 431,
            Self::Slow => 408,
            Self::Version => 505,
        }
    }
}

impl Request {
    /// Reads a head, its empty line included.
    pub(super) fn parse(head: &[u8]) -> Result<Self, Bad> {
        let text = head.strip_suffix(b"\r\n").ok_or(Bad::Field)?;
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r\n").ok_or(Bad::Field)?;
            line.iter().all(|byte| is_text(*byte)).then_some(line).ok_or(Bad::Field)
        });
        let (method, target, version) = first_line(lines.next().ok_or(Bad::Line)??)?;
        let fields = lines.map(|line| field(line?)).collect::<Result<Vec<_>, Bad>>()?;
        if method == b"CONNECT" {
            let (host, port) = authority(target)?;
            let port = port.ok_or(Bad::Authority)?;
            return Ok(Self { host, port, kind: Kind::Connect });
        }
        let rest = match target.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"http://") => rest,
            _ if target.starts_with(b"/") => return Err(Bad::Line),
            _ => return Err(Bad::Scheme),
        };
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (named, path) = rest.split_at_checked(end).ok_or(Bad::Authority)?;
        let (host, port) = authority(named)?;
        if path.contains(&b'#') {
            return Err(Bad::Authority);
        }
        let path = match path {
            [] if method == b"OPTIONS" => b"*".to_vec(),
            [b'/', ..] => path.to_vec(),
            _ => [b"/", path].concat(),
        };
        let authority = String::from_utf8(named.to_vec()).map_err(|_| Bad::Authority)?;
        let body = length(&fields, version)?;
        let fields = end_to_end(fields);
        let plain = Plain { method: method.to_vec(), path, version, authority, fields, body };
        Ok(Self { host, port: port.unwrap_or(80), kind: Kind::Plain(plain) })
    }
}

impl Plain {
    /// The head that the server gets.
    pub(super) fn head(&self) -> Vec<u8> {
        let version: &[u8] = match self.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        };
        let mut head = [&self.method, &b" "[..], &self.path, b" ", version].concat();
        let mut line = |name: &[u8], value: &[u8]| {
            for part in [b"\r\n", name, b": ", value] {
                head.extend_from_slice(part);
            }
        };
        line(b"Host", self.authority.as_bytes());
        for (name, value) in &self.fields {
            line(name, value);
        }
        match self.body {
            Body::None => {}
            Body::Length(length) => line(b"Content-Length", length.to_string().as_bytes()),
            Body::Chunked => line(b"Transfer-Encoding", b"chunked"),
        }
        line(b"Connection", b"close");
        head.extend_from_slice(b"\r\n\r\n");
        head
    }
}

/// Whether a header is for the next station only and not for the end.
pub(super) fn is_about_the_connection(name: &[u8]) -> bool {
    const NAMES: [&str; 6] = [
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
        "upgrade",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn first_line(line: &[u8]) -> Result<(&[u8], &[u8], Version), Bad> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Bad::Line);
    };
    if !is_token(method) || target.is_empty() || target.contains(&b'\t') {
        return Err(Bad::Line);
    }
    match version {
        b"HTTP/1.1" => Ok((method, target, Version::Http11)),
        b"HTTP/1.0" => Ok((method, target, Version::Http10)),
        _ if version.starts_with(b"HTTP/") => Err(Bad::Version),
        _ => Err(Bad::Line),
    }
}

fn field(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Bad> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Bad::Field)?;
    let (name, value) = line.split_at_checked(colon).ok_or(Bad::Field)?;
    let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii();
    // A line that goes on from the one before begins with a blank, which no name has.
    is_token(name).then(|| (name.to_vec(), value.to_vec())).ok_or(Bad::Field)
}

/// A host and perhaps a port. Who is asking is not part of it.
fn authority(bytes: &[u8]) -> Result<(String, Option<u16>), Bad> {
    let text = std::str::from_utf8(bytes).map_err(|_| Bad::Authority)?;
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, rest)) => {
            let port = rest.strip_prefix(':').or(rest.is_empty().then_some("")).ok_or(Bad::Authority)?;
            (format!("[{inner}]"), port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), port),
            None => (text.to_owned(), ""),
        },
    };
    if host.is_empty() || host.contains(['@', '\\']) {
        return Err(Bad::Authority);
    }
    if port.is_empty() {
        return Ok((host, None));
    }
    let number: Option<u16> =
        port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    Ok((host, Some(number.filter(|number| *number != 0).ok_or(Bad::Authority)?)))
}

/// How much follows. Two ways to say it in one request are a trick.
fn length(fields: &[(Vec<u8>, Vec<u8>)], version: Version) -> Result<Body, Bad> {
    let all = |wanted: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
        found.map(|(_, value)| value.as_slice()).collect()
    };
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Ok(Body::None),
        ([digits], []) => {
            let digits = std::str::from_utf8(digits).map_err(|_| Bad::Length)?;
            // The standard parser takes a plus sign.
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten().map(Body::Length).ok_or(Bad::Length)
        }
        ([], [coding]) if version == Version::Http11 => {
            coding.eq_ignore_ascii_case(b"chunked").then_some(Body::Chunked).ok_or(Bad::Coding)
        }
        _ => Err(Bad::Length),
    }
}

/// Leaves out what is about the connection, by its own name or named by `Connection`, and what is written anew.
fn end_to_end(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    const ANEW: [&str; 4] = ["host", "content-length", "transfer-encoding", "te"];
    let connection = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let mut left_out: Vec<Vec<u8>> = ANEW.map(|name| name.as_bytes().to_vec()).to_vec();
    for (_, names) in connection {
        left_out.extend(names.split(|byte| *byte == b',').map(|name| name.trim_ascii().to_vec()));
    }
    let kept = |name: &[u8]| {
        !is_about_the_connection(name) && !left_out.iter().any(|out| out.eq_ignore_ascii_case(name))
    };
    fields.into_iter().filter(|(name, _)| kept(name)).collect()
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn is_token(bytes: &[u8]) -> bool {
    let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_one)
}
