//! Reading a host the way those who connect to it do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use idna::AsciiDenyList;
use thiserror::Error;

use super::{AddressKind, classify, table};

/// The longest text looked at. A name has at most 253 bytes, but may be written with escapes.
const LONGEST: usize = 1024;

/// What the host of a URL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// An address, however it was written.
    Address(IpAddr, AddressKind),
    /// A name that leads to such an address whatever a resolver says.
    Reserved(String, AddressKind),
    /// A name to resolve, in lower case, in ASCII and without a final dot.
    Name(String),
    /// Nothing that can be connected to, or something different readers would read differently.
    Invalid(Unreadable),
}

impl HostKind {
    /// What is known of the address without resolving anything.
    pub fn kind(&self) -> Option<AddressKind> {
        match self {
            Self::Address(_, kind) | Self::Reserved(_, kind) => Some(*kind),
            Self::Name(_) | Self::Invalid(_) => None,
        }
    }
}

/// Why a text is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// Nothing there.
    #[error("host is empty")]
    Empty,
    /// More than any name needs.
    #[error("host is longer than {LONGEST} bytes")]
    TooLong,
    /// A percent sign without two hexadecimal digits, or escapes that give no text.
    #[error("host has a broken percent escape")]
    Escape,
    /// Characters that belong to other parts of a URL or to no name.
    #[error("host has characters that no name has")]
    Characters,
    /// Ends in a number, so it must be an IPv4 address, and is none.
    #[error("host looks like an ipv4 address and is none")]
    Number,
    /// Has colons or brackets, so it must be an IPv6 address, and is none.
    #[error("host looks like an ipv6 address and is none")]
    Colons,
    /// A zone on an address that has none.
    #[error("host has a zone but is no local address")]
    Zone,
    /// A part between dots that is empty or too long.
    #[error("host has a part that is empty or too long")]
    Label,
}

/// What a host is, as it stands in a URL between the slashes: without user, port or path. A text that has
/// any of these is invalid, because programs disagree on where the host in it begins.
pub fn host(text: &str) -> HostKind {
    read(text).unwrap_or_else(HostKind::Invalid)
}

fn read(text: &str) -> Result<HostKind, Unreadable> {
    if text.is_empty() {
        return Err(Unreadable::Empty);
    }
    if text.len() > LONGEST {
        return Err(Unreadable::TooLong);
    }
    if let Some(inner) = text.strip_prefix('[') {
        return v6(inner.strip_suffix(']').ok_or(Unreadable::Colons)?);
    }
    if text.contains(':') {
        return v6(text);
    }
    let plain = unescape(text)?;
    let ascii = idna::domain_to_ascii_cow(&plain, AsciiDenyList::URL).map_err(|_| Unreadable::Characters)?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err(Unreadable::Empty);
    }
    if name.rsplit('.').next().is_some_and(is_number) {
        return v4(name);
    }
    check_labels(name)?;
    let below =
        |known: &str| name.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    Ok(match table::NAMES.iter().find(|(known, _)| below(known)) {
        Some((_, kind)) => HostKind::Reserved(name.to_owned(), *kind),
        None => HostKind::Name(name.to_owned()),
    })
}

/// Takes away one layer of percent escapes; a second one is a broken first one.
fn unescape(text: &str) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or(Unreadable::Escape);
        let value = digit()? * 16 + digit()?;
        plain.push(u8::try_from(value).map_err(|_| Unreadable::Escape)?);
    }
    if plain.contains(&b'%') || std::str::from_utf8(&plain).is_err() {
        return Err(Unreadable::Escape);
    }
    Ok(plain)
}

fn v6(text: &str) -> Result<HostKind, Unreadable> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| Unreadable::Colons)?;
    let kind = classify(address.into());
    if let Some(zone) = zone {
        let named =
            !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
        if !named || kind.is_public() {
            return Err(Unreadable::Zone);
        }
    }
    Ok(HostKind::Address(address.into(), kind))
}

/// Whether a last part makes the whole an IPv4 address: decimal digits, or `0x` and hexadecimal ones.
fn is_number(part: &str) -> bool {
    let hex = part.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Reads one to four numbers, each decimal, octal or hexadecimal, the last one filling what is left.
fn v4(text: &str) -> Result<HostKind, Unreadable> {
    let address = join(text, octal_or_decimal)?;
    // Some readers take `010.0.0.1` for octal, some for decimal. The worse reading counts.
    let readings = [Some(address), join(text, decimal).ok()];
    let worse = readings.into_iter().flatten().find(|reading| !classify((*reading).into()).is_public());
    let address = IpAddr::from(worse.unwrap_or(address));
    Ok(HostKind::Address(address, classify(address)))
}

fn join(text: &str, number: fn(&str) -> Option<u64>) -> Result<Ipv4Addr, Unreadable> {
    let parts: Option<Vec<u64>> = text.split('.').map(number).collect();
    let parts = parts.ok_or(Unreadable::Number)?;
    let (last, front) = parts.split_last().ok_or(Unreadable::Number)?;
    let left = 4_usize.checked_sub(front.len()).filter(|left| *left > 0).ok_or(Unreadable::Number)?;
    if front.iter().any(|part| *part > 255) || *last >= 1 << (8 * left) {
        return Err(Unreadable::Number);
    }
    let high = front.iter().fold(0, |bits, part| (bits << 8) | part);
    let bits = (high << (8 * left)) | last;
    u32::try_from(bits).map(Ipv4Addr::from_bits).map_err(|_| Unreadable::Number)
}

fn octal_or_decimal(part: &str) -> Option<u64> {
    match part.strip_prefix('0') {
        Some(octal) if !octal.is_empty() && !octal.starts_with('x') => radix(octal, 8),
        _ => decimal(part),
    }
}

fn decimal(part: &str) -> Option<u64> {
    match part.strip_prefix("0x") {
        Some("") => Some(0),
        Some(hex) => radix(hex, 16),
        None => radix(part, 10),
    }
}

fn radix(digits: &str, radix: u32) -> Option<u64> {
    // The standard parser takes a leading plus sign, which no address has.
    digits
        .bytes()
        .all(|b| b.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

fn check_labels(name: &str) -> Result<(), Unreadable> {
    if name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(Unreadable::Label);
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    name.bytes().all(plain).then_some(()).ok_or(Unreadable::Characters)
}
