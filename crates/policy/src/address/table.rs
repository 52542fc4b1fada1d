//! The address ranges that are not public, from the IANA special-purpose registries and the documents of
//! the clouds. The first range that holds an address decides, so the narrow ones stand first.

use super::AddressKind::{self, *};

/// All addresses that begin with the same bits.
pub(super) struct Range<Bits> {
    first: Bits,
    length: u32,
    pub(super) kind: AddressKind,
}

impl Range<u32> {
    pub(super) fn holds(&self, address: u32) -> bool {
        (address ^ self.first).leading_zeros() >= self.length
    }
}

impl Range<u128> {
    pub(super) fn holds(&self, address: u128) -> bool {
        (address ^ self.first).leading_zeros() >= self.length
    }
}

const fn v4(parts: [u8; 4], length: u32, kind: AddressKind) -> Range<u32> {
    Range { first: u32::from_be_bytes(parts), length, kind }
}

const fn v6(parts: [u16; 8], length: u32, kind: AddressKind) -> Range<u128> {
    let [a, b, c, d, e, f, g, h] = parts;
    Range { first: std::net::Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits(), length, kind }
}

pub(super) const V4: &[Range<u32>] = &[
    // AWS, Google, Azure, Oracle, DigitalOcean, Hetzner, OpenStack and many others.
    v4([169, 254, 169, 254], 32, Metadata),
    // AWS: credentials of containers (ECS) and pods (EKS).
    v4([169, 254, 170, 2], 32, Metadata),
    v4([169, 254, 170, 23], 32, Metadata),
    // Tencent.
    v4([169, 254, 0, 23], 32, Metadata),
    v4([169, 254, 10, 10], 32, Metadata),
    // Scaleway.
    v4([169, 254, 42, 42], 32, Metadata),
    // Alibaba.
    v4([100, 100, 100, 200], 32, Metadata),
    // Azure's wire server; an ordinary public address by the registry.
    v4([168, 63, 129, 16], 32, Metadata),
    // Oracle, before it moved to the common one.
    v4([192, 0, 0, 192], 32, Metadata),
    v4([0, 0, 0, 0], 8, Unspecified),
    v4([10, 0, 0, 0], 8, Private),
    v4([100, 64, 0, 0], 10, CarrierNat),
    v4([127, 0, 0, 0], 8, Loopback),
    v4([169, 254, 0, 0], 16, LinkLocal),
    v4([172, 16, 0, 0], 12, Private),
    v4([192, 0, 0, 0], 24, Reserved),
    v4([192, 0, 2, 0], 24, Documentation),
    v4([192, 31, 196, 0], 24, Reserved),
    v4([192, 52, 193, 0], 24, Reserved),
    v4([192, 88, 99, 0], 24, Reserved),
    v4([192, 168, 0, 0], 16, Private),
    v4([192, 175, 48, 0], 24, Reserved),
    v4([198, 18, 0, 0], 15, Benchmark),
    v4([198, 51, 100, 0], 24, Documentation),
    v4([203, 0, 113, 0], 24, Documentation),
    v4([233, 252, 0, 0], 24, Documentation),
    v4([224, 0, 0, 0], 4, Multicast),
    v4([255, 255, 255, 255], 32, Broadcast),
    v4([240, 0, 0, 0], 4, Reserved),
];

/// What is not listed here is not handed out and therefore reserved.
pub(super) const V6: &[Range<u128>] = &[
    // AWS keeps all its local services there.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32, Metadata),
    // Google.
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, Metadata),
    // Alibaba, Linode, Scaleway, Oracle, OpenStack.
    v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128, Metadata),
    v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128, Metadata),
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128, Metadata),
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, Metadata),
    v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, Metadata),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, Unspecified),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, Loopback),
    // These only carry an IPv4 address, which decides.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, Public),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, Public),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, Public),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, Public),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Reserved),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Reserved),
    v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64, Reserved),
    // Teredo; then the rest of the protocol block.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Public),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Benchmark),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Reserved),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Documentation),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Public),
    v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, Reserved),
    v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, Reserved),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Documentation),
    v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, Public),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Reserved),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, UniqueLocal),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, LinkLocal),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, UniqueLocal),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Multicast),
];

/// Names that lead to such an address whatever a resolver is told, the names below them included.
pub(super) const NAMES: &[(&str, AddressKind)] = &[
    ("localhost", Loopback),
    ("localhost.localdomain", Loopback),
    ("localhost4", Loopback),
    ("localhost6", Loopback),
    ("ip6-localhost", Loopback),
    ("ip6-loopback", Loopback),
    // Google, by its full and its short names.
    ("metadata.google.internal", Metadata),
    ("metadata.goog", Metadata),
    ("metadata", Metadata),
    // AWS.
    ("instance-data", Metadata),
    ("instance-data.ec2.internal", Metadata),
    // Tencent, Equinix.
    ("metadata.tencentyun.com", Metadata),
    ("metadata.packet.net", Metadata),
    ("metadata.platformequinix.com", Metadata),
    // Set aside for networks of one's own: multicast DNS, ICANN's private use, RFC 8375, and custom.
    ("local", Private),
    ("internal", Private),
    ("home.arpa", Private),
    ("localdomain", Private),
];
