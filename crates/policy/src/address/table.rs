//! The address ranges that are not public, from the IANA special-purpose registries and the
//! documentation of cloud providers. The first matching range decides, so narrow ranges come first.

use super::AddressKind::{self, *};

/// All addresses with the same prefix. IPv4 addresses are mapped to IPv6 ones.
pub(super) struct AddressRange {
    first: u128,
    length: u32,
    pub(super) kind: AddressKind,
}

impl AddressRange {
    pub(super) fn contains(&self, address: u128) -> bool {
        (address ^ self.first).leading_zeros() >= self.length
    }
}

const fn v4([a, b, c, d]: [u8; 4], length: u32, kind: AddressKind) -> AddressRange {
    let first = std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().to_bits();
    AddressRange { first, length: 96 + length, kind }
}

const fn v6(parts: [u16; 8], length: u32, kind: AddressKind) -> AddressRange {
    let [a, b, c, d, e, f, g, h] = parts;
    AddressRange { first: std::net::Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits(), length, kind }
}

/// IPv6 ranges that are not listed are unassigned and therefore reserved.
pub(super) const RANGES: &[AddressRange] = &[
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
    // Azure's wire server; a public address by the registry.
    v4([168, 63, 129, 16], 32, Metadata),
    // Oracle, before it moved to the common address.
    v4([192, 0, 0, 192], 32, Metadata),
    v4([0, 0, 0, 0], 8, Unspecified),
    v4([10, 0, 0, 0], 8, Private),
    v4([100, 64, 0, 0], 10, SharedNat),
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
    // AWS has all its local services here.
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
    // These only embed an IPv4 address, which decides.
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

/// Names that always lead to such an address, including the names below them.
pub(super) const RESERVED_NAMES: &[(&str, AddressKind)] = &[
    ("localhost", Loopback),
    ("localhost.localdomain", Loopback),
    ("localhost4", Loopback),
    ("localhost6", Loopback),
    ("ip6-localhost", Loopback),
    ("ip6-loopback", Loopback),
    // Google, long and short names.
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
    // Reserved for private networks: multicast DNS, ICANN's private use, RFC 8375, and convention.
    ("local", Private),
    ("internal", Private),
    ("home.arpa", Private),
    ("localdomain", Private),
];
