//! Classification of network addresses, however they are written.
//!
//! A tool that fetches on behalf of a stranger must not reach this machine, its network or the
//! metadata service of its cloud. Both functions work without I/O: [`classify`] classifies an
//! address, using a table of our own that does not change with the standard library; [`parse_host`]
//! classifies the host of a URL, reading numbers the way resolvers and browsers do (`2130706433`,
//! `0x7f.1`, `0177.0.0.1`, full-width digits, percent escapes) and an IPv4 address embedded in an
//! IPv6 one as its target.
//!
//! A host name must be resolved by the code that connects: it calls [`classify`] for **every**
//! address and connects to exactly that address.

mod host;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use host::{HostKind, HostParseError, parse_host};

/// The kind of network an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    Public,
    Loopback,
    /// A private network (RFC 1918).
    Private,
    /// A private IPv6 network (`fc00::/7`, and the site-local addresses it replaced).
    UniqueLocal,
    /// The local link (`169.254.0.0/16`, `fe80::/10`).
    LinkLocal,
    /// A cloud's metadata or credential service.
    Metadata,
    /// Carrier-grade NAT (`100.64.0.0/10`).
    SharedNat,
    Multicast,
    Broadcast,
    /// `0.0.0.0/8` and `::`, which many systems treat as this machine.
    Unspecified,
    Documentation,
    Benchmark,
    /// Reserved for protocols, discarded or unassigned.
    Reserved,
}

impl AddressKind {
    /// Whether a tool may fetch from such an address on behalf of a stranger.
    pub fn is_public(self) -> bool {
        self == Self::Public
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private | Self::UniqueLocal => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::SharedNat => "carrier network",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Unspecified => "unspecified",
            Self::Documentation => "documentation",
            Self::Benchmark => "benchmark",
            Self::Reserved => "reserved",
        }
    }
}

/// Classifies an address. An IPv4 address embedded in an IPv6 one decides, unless the outer one is
/// worse.
pub fn classify(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => range_kind(address.to_ipv6_mapped()),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn range_kind(address: Ipv6Addr) -> AddressKind {
    let range = table::RANGES.iter().find(|range| range.contains(address.to_bits()));
    range.map_or(AddressKind::Reserved, |range| range.kind)
}

fn classify_v6(address: Ipv6Addr) -> AddressKind {
    let inside = embedded_v4(address).into_iter().flatten().map(|inside| range_kind(inside.to_ipv6_mapped()));
    let mut kinds = inside.chain([range_kind(address)]);
    // Metadata wins wherever it is; otherwise the embedded address comes first.
    match kinds.clone().find(|kind| *kind == AddressKind::Metadata) {
        Some(metadata) => metadata,
        None => kinds.find(|kind| !kind.is_public()).unwrap_or(AddressKind::Public),
    }
}

/// The IPv4 addresses embedded in an IPv6 one, for every transition mechanism.
fn embedded_v4(address: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    let [first, second] = match [a, b, c, d, e, f] {
        // IPv4-translated (SIIT) and IPv4-compatible; the table has the IPv4-mapped ones. `::` and
        // `::1` are not IPv4 addresses.
        [0, 0, 0, 0, 0xffff, 0] => [v4(g, h), None],
        [0, 0, 0, 0, 0, 0] if g != 0 || h > 1 => [v4(g, h), None],
        // NAT64 with the well-known prefix, and with the local one, which allows two positions.
        [0x64, 0xff9b, 0, 0, 0, 0] => [v4(g, h), None],
        [0x64, 0xff9b, 1, high, low, next] => {
            let middle = v4(high, ((low & 0xff) << 8) | (next >> 8));
            [v4(g, h), middle].map(|found| found.filter(|address| !address.is_unspecified()))
        }
        // 6to4 has it at the front.
        [0x2002, high, low, ..] => [v4(high, low), None],
        // Teredo has the client at the end, inverted, and its server at the front.
        [0x2001, 0, high, low, ..] => [v4(!g, !h), v4(high, low)],
        _ => [None, None],
    };
    // ISATAP marks the interface part, under any prefix.
    let isatap = matches!([e, f], [0 | 0x200, 0x5efe]).then(|| v4(g, h)).flatten();
    [first, second, isatap]
}

#[cfg(test)]
mod tests;
