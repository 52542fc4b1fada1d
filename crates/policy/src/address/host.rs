//! Parsing of hosts the way resolvers and browsers do.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use idna::AsciiDenyList;
use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::{AddressKind, classify, table};

/// A name has at most 253 bytes, but may be written with escapes.
const MAX_HOST_BYTES: usize = 1024;

/// The host of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKind {
    Address(IpAddr, AddressKind),
    /// A name that always leads to such an address.
    Reserved(String, AddressKind),
    /// A name to resolve: lowercase, ASCII, without a final dot.
    Name(String),
    /// Not a host, or one that programs parse differently.
    Invalid(HostParseError),
}

impl HostKind {
    /// The address kind, if it is known without resolving.
    pub fn kind(&self) -> Option<AddressKind> {
        match self {
            Self::Address(_, kind) | Self::Reserved(_, kind) => Some(*kind),
            Self::Name(_) | Self::Invalid(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostParseError {
    #[error("host is empty")]
    Empty,
    #[error("host is longer than {MAX_HOST_BYTES} bytes")]
    TooLong,
    /// A percent sign without two hexadecimal digits, or escapes that are not UTF-8.
    #[error("host has a broken percent escape")]
    Escape,
    #[error("host has characters that are not allowed in a name")]
    Characters,
    /// Ends in a number, so it must be an IPv4 address.
    #[error("host looks like an IPv4 address but is not valid")]
    Number,
    /// Has colons or brackets, so it must be an IPv6 address.
    #[error("host looks like an IPv6 address but is not valid")]
    Colons,
    #[error("host has a zone but is not a local address")]
    Zone,
    #[error("host has a label that is empty or too long")]
    Label,
}

/// Parses a host as it stands in a URL, without user, port or path. Text that has any of these is
/// invalid, because programs disagree on where its host begins.
pub fn parse_host(text: &str) -> HostKind {
    try_parse_host(text).unwrap_or_else(HostKind::Invalid)
}

fn try_parse_host(text: &str) -> Result<HostKind, HostParseError> {
    if text.is_empty() {
        return Err(HostParseError::Empty);
    }
    if text.len() > MAX_HOST_BYTES {
        return Err(HostParseError::TooLong);
    }
    if let Some(inner) = text.strip_prefix('[') {
        return parse_v6(inner.strip_suffix(']').ok_or(HostParseError::Colons)?);
    }
    if text.contains(':') {
        return parse_v6(text);
    }
    // A second layer of escapes is invalid.
    let plain: Cow<'_, [u8]> = percent_decode_str(text).into();
    if plain.contains(&b'%') || std::str::from_utf8(&plain).is_err() {
        return Err(HostParseError::Escape);
    }
    let ascii =
        idna::domain_to_ascii_cow(&plain, AsciiDenyList::URL).map_err(|_| HostParseError::Characters)?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err(HostParseError::Empty);
    }
    if name.rsplit('.').next().is_some_and(is_number) {
        return parse_v4(name);
    }
    check_labels(name)?;
    let below =
        |known: &str| name.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    Ok(match table::RESERVED_NAMES.iter().find(|(known, _)| below(known)) {
        Some((_, kind)) => HostKind::Reserved(name.to_owned(), *kind),
        None => HostKind::Name(name.to_owned()),
    })
}

fn parse_v6(text: &str) -> Result<HostKind, HostParseError> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| HostParseError::Colons)?;
    let kind = classify(address.into());
    if let Some(zone) = zone {
        let named =
            !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
        if !named || kind.is_public() {
            return Err(HostParseError::Zone);
        }
    }
    Ok(HostKind::Address(address.into(), kind))
}

/// Whether a last label makes the whole an IPv4 address: decimal digits, or `0x` and hexadecimal
/// ones.
fn is_number(part: &str) -> bool {
    let hex = part.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses one to four numbers, each decimal, octal or hexadecimal; the last one fills the rest.
fn parse_v4(text: &str) -> Result<HostKind, HostParseError> {
    let read = |text: &str| match url::Host::parse(text) {
        Ok(url::Host::Ipv4(address)) => Some(IpAddr::from(address)),
        _ => None,
    };
    let address = read(text).ok_or(HostParseError::Number)?;
    // Some programs read `010.0.0.1` as octal, some as decimal. The less public reading counts.
    let decimal: Vec<&str> = text.split('.').map(without_leading_zeros).collect();
    let readings = [Some(address), read(&decimal.join("."))];
    let worse = readings.into_iter().flatten().find(|reading| !classify(*reading).is_public());
    let address = worse.unwrap_or(address);
    Ok(HostKind::Address(address, classify(address)))
}

fn without_leading_zeros(number: &str) -> &str {
    let rest = number.trim_start_matches('0');
    if rest.is_empty() || rest.starts_with('x') { number } else { rest }
}

fn check_labels(name: &str) -> Result<(), HostParseError> {
    if name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(HostParseError::Label);
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    name.bytes().all(plain).then_some(()).ok_or(HostParseError::Characters)
}
