//! The request head, parsed strictly: a head that two parsers could read differently is refused.

use std::str::FromStr;

use httparse::Header;
use thiserror::Error;

use super::body::BodyFraming;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    /// The host as the client wrote it, brackets and escapes included.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) kind: RequestKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Connect,
    Forward(ForwardRequest),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForwardRequest {
    method: String,
    path: Vec<u8>,
    /// The minor version of HTTP/1.
    version: u8,
    authority: String,
    /// Without hop-by-hop headers, `Host` and headers about the length.
    fields: Vec<(String, Vec<u8>)>,
    pub(super) body: BodyFraming,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RequestError {
    #[error("not a proxy request")]
    InvalidRequestLine,
    #[error("only http: URLs are forwarded; use CONNECT for others")]
    UnsupportedScheme,
    #[error("invalid host or port")]
    InvalidAuthority,
    #[error("invalid header")]
    InvalidHeader,
    #[error("ambiguous request length")]
    AmbiguousLength,
    #[error("only chunked transfer coding is supported")]
    UnsupportedCoding,
    #[error("the request is too long")]
    TooLong,
    #[error("the request timed out")]
    TimedOut,
    #[error("only HTTP/1.0 and HTTP/1.1 are supported")]
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
    /// Parses a head including its empty line.
    pub(super) fn parse(head: &[u8]) -> Result<Self, RequestError> {
        let ParsedHead { method, target, version, fields } = parse_head(head)?;
        if method == "CONNECT" {
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
            [] if method == "OPTIONS" => b"*".to_vec(),
            [b'/', ..] => path.to_vec(),
            _ => [b"/", path].concat(),
        };
        let authority = String::from_utf8(named.to_vec()).map_err(|_| RequestError::InvalidAuthority)?;
        let body = body_framing(&fields, version)?;
        let fields = end_to_end_headers(&fields);
        let plain = ForwardRequest { method: method.to_owned(), path, version, authority, fields, body };
        Ok(Self { host, port: port.unwrap_or(80), kind: RequestKind::Forward(plain) })
    }
}

impl ForwardRequest {
    /// The head for the server.
    pub(super) fn head(&self) -> Vec<u8> {
        let version = format!(" HTTP/1.{}", self.version);
        let mut head = [self.method.as_bytes(), b" ", &self.path, version.as_bytes()].concat();
        let mut line = |name: &str, value: &[u8]| {
            for part in [b"\r\n", name.as_bytes(), b": ", value] {
                head.extend_from_slice(part);
            }
        };
        line("Host", self.authority.as_bytes());
        for (name, value) in &self.fields {
            line(name, value);
        }
        match self.body {
            BodyFraming::None => {}
            BodyFraming::Length(length) => line("Content-Length", length.to_string().as_bytes()),
            BodyFraming::Chunked => line("Transfer-Encoding", b"chunked"),
        }
        line("Connection", b"close");
        head.extend_from_slice(b"\r\n\r\n");
        head
    }
}

pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
    const NAMES: [&str; 6] = [
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
        "upgrade",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

struct ParsedHead<'a> {
    method: &'a str,
    target: &'a [u8],
    version: u8,
    fields: Vec<Header<'a>>,
}

/// Parses the head with `httparse`, after refusing what it tolerates: line ends without a carriage
/// return, empty lines at the start and control characters.
fn parse_head(head: &[u8]) -> Result<ParsedHead<'_>, RequestError> {
    let text = head.strip_suffix(b"\r\n").ok_or(RequestError::InvalidHeader)?;
    let lines: Vec<&[u8]> = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r\n").filter(|line| line.iter().all(|byte| is_text(*byte))))
        .collect::<Option<_>>()
        .ok_or(RequestError::InvalidHeader)?;
    let words: Vec<&[u8]> = match lines.first() {
        Some(line) if !line.is_empty() => line.split(|byte| *byte == b' ').collect(),
        _ => return Err(RequestError::InvalidRequestLine),
    };
    let mut fields = vec![httparse::EMPTY_HEADER; lines.len()];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::Version) if words.len() == 3 && words.iter().last().is_some_and(is_http) => {
            return Err(RequestError::UnsupportedVersion);
        }
        Err(httparse::Error::Token | httparse::Error::Version) => {
            return Err(RequestError::InvalidRequestLine);
        }
        Ok(_) | Err(_) => return Err(RequestError::InvalidHeader),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(RequestError::InvalidRequestLine);
    };
    let count = request.headers.len();
    fields.truncate(count);
    Ok(ParsedHead { method, target: target.as_bytes(), version, fields })
}

fn is_http(word: &&[u8]) -> bool {
    word.starts_with(b"HTTP/")
}

/// A host with an optional port; user information is refused.
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
    let port = parse_digits(port.as_bytes()).filter(|port| *port != 0);
    Ok((host, Some(port.ok_or(RequestError::InvalidAuthority)?)))
}

/// The length of the body. A request that states it twice is an attack.
fn body_framing(fields: &[Header<'_>], version: u8) -> Result<BodyFraming, RequestError> {
    let all = |wanted: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(wanted));
        found.map(|field| field.value.trim_ascii()).collect()
    };
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Ok(BodyFraming::None),
        ([digits], []) => parse_digits(digits).map(BodyFraming::Length).ok_or(RequestError::AmbiguousLength),
        ([], [coding]) if version == 1 => {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            is_chunked.then_some(BodyFraming::Chunked).ok_or(RequestError::UnsupportedCoding)
        }
        _ => Err(RequestError::AmbiguousLength),
    }
}

/// Parses a decimal number. The standard parser accepts a plus sign.
fn parse_digits<T: FromStr>(digits: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

/// Drops hop-by-hop headers, those named by `Connection`, and those that are rewritten.
fn end_to_end_headers(fields: &[Header<'_>]) -> Vec<(String, Vec<u8>)> {
    const REWRITTEN: [&[u8]; 4] = [b"host", b"content-length", b"transfer-encoding", b"te"];
    let connection = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let named = connection.flat_map(|field| field.value.split(|byte| *byte == b','));
    let left_out: Vec<&[u8]> = named.map(<[u8]>::trim_ascii).chain(REWRITTEN).collect();
    let is_kept =
        |name: &[u8]| !is_hop_by_hop(name) && !left_out.iter().any(|out| out.eq_ignore_ascii_case(name));
    let kept = fields.iter().filter(|field| is_kept(field.name.as_bytes()));
    kept.map(|field| (field.name.to_owned(), field.value.trim_ascii().to_vec())).collect()
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
