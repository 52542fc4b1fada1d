//! The head of a request, read strictly: what two readers could take differently is refused.

use thiserror::Error;

use super::body::BodyFraming;

/// A request and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    /// As it was written, without brackets taken off or escapes read.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) kind: RequestKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A tunnel.
    Connect,
    /// A request to send on.
    Forward(ForwardRequest),
}

/// What is sent on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForwardRequest {
    method: Vec<u8>,
    path: Vec<u8>,
    version: HttpVersion,
    authority: String,
    /// Without those that are about the connection, the host or the length.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: BodyFraming,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpVersion {
    Http10,
    Http11,
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RequestError {
    #[error("this is a proxy, and that is no request to one")]
    InvalidRequestLine,
    #[error("only http: addresses are sent on; others need CONNECT")]
    UnsupportedScheme,
    #[error("the address cannot be read")]
    InvalidAuthority,
    #[error("a header line cannot be read")]
    InvalidHeader,
    #[error("the length of the request is not clear")]
    AmbiguousLength,
    #[error("only chunked transfer coding is known")]
    UnsupportedCoding,
    #[error("the request is too long")]
    TooLong,
    #[error("the request took too long")]
    TimedOut,
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    UnsupportedVersion,
}

impl RequestError {
    pub(super) fn status(self) -> u16 {
        match self {
            Self::InvalidRequestLine
            | Self::UnsupportedScheme
            | Self::InvalidAuthority
            | Self::InvalidHeader
            | Self::AmbiguousLength => 400,
            Self::UnsupportedCoding => 501,
            Self::TooLong => 431,
            Self::TimedOut => 408,
            Self::UnsupportedVersion => 505,
        }
    }
}

impl ProxyRequest {
    /// Reads a head, its empty line included.
    pub(super) fn parse(head: &[u8]) -> Result<Self, RequestError> {
        let text = head.strip_suffix(b"\r\n").ok_or(RequestError::InvalidHeader)?;
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r\n").ok_or(RequestError::InvalidHeader)?;
            line.iter().all(|byte| is_text(*byte)).then_some(line).ok_or(RequestError::InvalidHeader)
        });
        let (method, target, version) =
            parse_request_line(lines.next().ok_or(RequestError::InvalidRequestLine)??)?;
        let fields = lines.map(|line| parse_header(line?)).collect::<Result<Vec<_>, RequestError>>()?;
        if method == b"CONNECT" {
            let (host, port) = parse_authority(target)?;
            let port = port.ok_or(RequestError::InvalidAuthority)?;
            return Ok(Self { host, port, kind: RequestKind::Connect });
        }
        let rest = match target.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"http://") => rest,
            _ if target.starts_with(b"/") => return Err(RequestError::InvalidRequestLine),
            _ => return Err(RequestError::UnsupportedScheme),
        };
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (named, path) = rest.split_at_checked(end).ok_or(RequestError::InvalidAuthority)?;
        let (host, port) = parse_authority(named)?;
        if path.contains(&b'#') {
            return Err(RequestError::InvalidAuthority);
        }
        let path = match path {
            [] if method == b"OPTIONS" => b"*".to_vec(),
            [b'/', ..] => path.to_vec(),
            _ => [b"/", path].concat(),
        };
        let authority = String::from_utf8(named.to_vec()).map_err(|_| RequestError::InvalidAuthority)?;
        let body = body_framing(&fields, version)?;
        let fields = end_to_end_headers(fields);
        let plain = ForwardRequest { method: method.to_vec(), path, version, authority, fields, body };
        Ok(Self { host, port: port.unwrap_or(80), kind: RequestKind::Forward(plain) })
    }
}

impl ForwardRequest {
    /// The head that the server gets.
    pub(super) fn head(&self) -> Vec<u8> {
        let version: &[u8] = match self.version {
            HttpVersion::Http10 => b"HTTP/1.0",
            HttpVersion::Http11 => b"HTTP/1.1",
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
            BodyFraming::None => {}
            BodyFraming::Length(length) => line(b"Content-Length", length.to_string().as_bytes()),
            BodyFraming::Chunked => line(b"Transfer-Encoding", b"chunked"),
        }
        line(b"Connection", b"close");
        head.extend_from_slice(b"\r\n\r\n");
        head
    }
}

/// Whether a header is for the next station only and not for the end.
pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
    const NAMES: [&str; 6] = [
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
        "upgrade",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn parse_request_line(line: &[u8]) -> Result<(&[u8], &[u8], HttpVersion), RequestError> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RequestError::InvalidRequestLine);
    };
    if !is_token(method) || target.is_empty() || target.contains(&b'\t') {
        return Err(RequestError::InvalidRequestLine);
    }
    match version {
        b"HTTP/1.1" => Ok((method, target, HttpVersion::Http11)),
        b"HTTP/1.0" => Ok((method, target, HttpVersion::Http10)),
        _ if version.starts_with(b"HTTP/") => Err(RequestError::UnsupportedVersion),
        _ => Err(RequestError::InvalidRequestLine),
    }
}

fn parse_header(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), RequestError> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(RequestError::InvalidHeader)?;
    let (name, value) = line.split_at_checked(colon).ok_or(RequestError::InvalidHeader)?;
    let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii();
    // A line that goes on from the one before begins with a blank, which no name has.
    is_token(name).then(|| (name.to_vec(), value.to_vec())).ok_or(RequestError::InvalidHeader)
}

/// A host and perhaps a port. Who is asking is not part of it.
fn parse_authority(bytes: &[u8]) -> Result<(String, Option<u16>), RequestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| RequestError::InvalidAuthority)?;
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, rest)) => {
            let port = rest
                .strip_prefix(':')
                .or(rest.is_empty().then_some(""))
                .ok_or(RequestError::InvalidAuthority)?;
            (format!("[{inner}]"), port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), port),
            None => (text.to_owned(), ""),
        },
    };
    if host.is_empty() || host.contains(['@', '\\']) {
        return Err(RequestError::InvalidAuthority);
    }
    if port.is_empty() {
        return Ok((host, None));
    }
    let number: Option<u16> =
        port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    Ok((host, Some(number.filter(|number| *number != 0).ok_or(RequestError::InvalidAuthority)?)))
}

/// How much follows. Two ways to say it in one request are a trick.
fn body_framing(fields: &[(Vec<u8>, Vec<u8>)], version: HttpVersion) -> Result<BodyFraming, RequestError> {
    let all = |wanted: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
        found.map(|(_, value)| value.as_slice()).collect()
    };
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Ok(BodyFraming::None),
        ([digits], []) => {
            let digits = std::str::from_utf8(digits).map_err(|_| RequestError::AmbiguousLength)?;
            // The standard parser takes a plus sign.
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number
                .then(|| digits.parse().ok())
                .flatten()
                .map(BodyFraming::Length)
                .ok_or(RequestError::AmbiguousLength)
        }
        ([], [coding]) if version == HttpVersion::Http11 => coding
            .eq_ignore_ascii_case(b"chunked")
            .then_some(BodyFraming::Chunked)
            .ok_or(RequestError::UnsupportedCoding),
        _ => Err(RequestError::AmbiguousLength),
    }
}

/// Leaves out what is about the connection, by its own name or named by `Connection`, and what is written anew.
fn end_to_end_headers(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    const ANEW: [&str; 4] = ["host", "content-length", "transfer-encoding", "te"];
    let connection = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let mut left_out: Vec<Vec<u8>> = ANEW.map(|name| name.as_bytes().to_vec()).to_vec();
    for (_, names) in connection {
        left_out.extend(names.split(|byte| *byte == b',').map(|name| name.trim_ascii().to_vec()));
    }
    let kept =
        |name: &[u8]| !is_hop_by_hop(name) && !left_out.iter().any(|out| out.eq_ignore_ascii_case(name));
    fields.into_iter().filter(|(name, _)| kept(name)).collect()
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn is_token(bytes: &[u8]) -> bool {
    let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_one)
}
