//! The request head, parsed strictly: a head that two parsers could read differently is refused.

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
    method: Vec<u8>,
    path: Vec<u8>,
    version: HttpVersion,
    authority: String,
    /// Without hop-by-hop headers, `Host` and headers about the length.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: BodyFraming,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpVersion {
    Http10,
    Http11,
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
        let ParsedHead { method, target, version, headers: fields } = parse_head(head)?;
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
    /// The head for the server.
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

pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
    const NAMES: [&str; 6] = [
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
        "upgrade",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

struct ParsedHead<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: HttpVersion,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
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
    let mut headers = vec![httparse::EMPTY_HEADER; lines.len()];
    let mut request = httparse::Request::new(&mut headers);
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
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(RequestError::InvalidRequestLine);
    };
    let version = if request.version == Some(0) { HttpVersion::Http10 } else { HttpVersion::Http11 };
    let headers = request
        .headers
        .iter()
        .map(|header| (header.name.as_bytes().to_vec(), header.value.trim_ascii().to_vec()))
        .collect();
    Ok(ParsedHead { method: method.as_bytes(), target: target.as_bytes(), version, headers })
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
    let number: Option<u16> =
        port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    Ok((host, Some(number.filter(|number| *number != 0).ok_or(RequestError::InvalidAuthority)?)))
}

/// The length of the body. A request that states it twice is an attack.
fn body_framing(fields: &[(Vec<u8>, Vec<u8>)], version: HttpVersion) -> Result<BodyFraming, RequestError> {
    let all = |wanted: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
        found.map(|(_, value)| value.as_slice()).collect()
    };
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Ok(BodyFraming::None),
        ([digits], []) => {
            let digits = std::str::from_utf8(digits).map_err(|_| RequestError::AmbiguousLength)?;
            // The standard parser accepts a plus sign.
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

/// Drops hop-by-hop headers, those named by `Connection`, and those that are rewritten.
fn end_to_end_headers(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    const REWRITTEN: [&str; 4] = ["host", "content-length", "transfer-encoding", "te"];
    let connection = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let mut left_out: Vec<Vec<u8>> = REWRITTEN.map(|name| name.as_bytes().to_vec()).to_vec();
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
