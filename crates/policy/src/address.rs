//! What an address is, whatever it is disguised as.
//!
//! A tool that fetches for a stranger must not reach this machine, its neighbors or the metadata service
//! of its cloud. Two questions are answered here, both without asking anybody: [`classify`] says what an
//! address is, from a table of our own that does not change with the standard library; [`host`] says what
//! a host as written in a URL is, reading numbers the way resolvers and browsers do (`2130706433`,
//! `0x7f.1`, `0177.0.0.1`, full-width digits, percent escapes) and an IPv4 address inside an IPv6 one as
//! what it leads to.
//!
//! A name is only a name: who connects must resolve it, ask [`classify`] about **every** address it gets,
//! and connect to that very address.

mod host;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use host::{HostKind, Unreadable, host};

/// What kind of network an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// Anybody's, reachable over the internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network (RFC 1918).
    Private,
    /// A private IPv6 network (`fc00::/7`, and the site-local addresses it replaced).
    UniqueLocal,
    /// The same cable (`169.254.0.0/16`, `fe80::/10`).
    LinkLocal,
    /// A cloud's metadata or credential service.
    Metadata,
    /// Shared by the customers of a provider (`100.64.0.0/10`).
    CarrierNat,
    /// Many machines at once.
    Multicast,
    /// All machines of this network.
    Broadcast,
    /// No address: `0.0.0.0/8` and `::`, which many systems take for this machine.
    Unspecified,
    /// Set aside for examples in documents.
    Documentation,
    /// Set aside for measuring equipment.
    Benchmark,
    /// Set aside for protocols, discarded or not handed out.
    Reserved,
}

impl AddressKind {
    /// Whether an address of this kind may be fetched from on behalf of a stranger.
    pub fn is_public(self) -> bool {
        self == Self::Public
    }

    /// What people call it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private | Self::UniqueLocal => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::CarrierNat => "carrier network",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Unspecified => "unspecified",
            Self::Documentation => "documentation",
            Self::Benchmark => "benchmark",
            Self::Reserved => "reserved",
        }
    }
}

/// What an address is. An IPv4 address carried inside an IPv6 one decides, unless the outside is worse.
pub fn classify(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressKind {
    let bits = address.to_bits();
    table::V4.iter().find(|range| range.holds(bits)).map_or(AddressKind::Public, |range| range.kind)
}

fn classify_v6(address: Ipv6Addr) -> AddressKind {
    let bits = address.to_bits();
    let outside =
        table::V6.iter().find(|range| range.holds(bits)).map_or(AddressKind::Reserved, |range| range.kind);
    let inside = embedded(address).map(|inside| inside.map(classify_v4));
    let mut kinds = inside.into_iter().flatten().chain([outside]);
    // The metadata service is worth its name wherever it hides; then the inside comes first.
    match kinds.clone().find(|kind| *kind == AddressKind::Metadata) {
        Some(metadata) => metadata,
        None => kinds.find(|kind| !kind.is_public()).unwrap_or(AddressKind::Public),
    }
}

/// The IPv4 addresses inside an IPv6 one, for every scheme that carries any.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    let [first, second] = match [a, b, c, d, e, f] {
        // IPv4-mapped, IPv4-translated (SIIT) and IPv4-compatible. `::` and `::1` are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => [v4(g, h), None],
        [0, 0, 0, 0, 0, 0] if g != 0 || h > 1 => [v4(g, h), None],
        // NAT64 with the well-known prefix, and with the local one, which has it in one of two places.
        [0x64, 0xff9b, 0, 0, 0, 0] => [v4(g, h), None],
        [0x64, 0xff9b, 1, high, low, next] => {
            let middle = v4(high, ((low & 0xff) << 8) | (next >> 8));
            [v4(g, h), middle].map(|found| found.filter(|address| !address.is_unspecified()))
        }
        // 6to4 has it in front.
        [0x2002, high, low, ..] => [v4(high, low), None],
        // Teredo has the client at the end, with every bit turned over, and its server in front.
        [0x2001, 0, high, low, ..] => [v4(!g, !h), v4(high, low)],
        _ => [None, None],
    };
    // ISATAP marks the interface part, under any prefix.
    let isatap = matches!([e, f], [0 | 0x200, 0x5efe]).then(|| v4(g, h)).flatten();
    [first, second, isatap]
}

#[cfg(test)]
mod tests;
