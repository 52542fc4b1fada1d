use proptest::prelude::*;

use super::AddressKind::*;
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_range_has_its_kind() {
    for (text, kind) in [
        ("1.1.1.1", Public),
        ("8.8.8.8", Public),
        ("172.15.255.255", Public),
        ("172.32.0.0", Public),
        ("100.63.255.255", Public),
        ("100.128.0.0", Public),
        ("169.253.255.255", Public),
        ("192.0.1.0", Public),
        ("198.20.0.0", Public),
        ("223.255.255.255", Public),
        ("127.0.0.1", Loopback),
        ("127.255.255.254", Loopback),
        ("10.0.0.1", Private),
        ("172.16.0.1", Private),
        ("172.31.255.255", Private),
        ("192.168.1.1", Private),
        ("169.254.1.1", LinkLocal),
        ("169.254.169.254", Metadata),
        ("169.254.170.2", Metadata),
        ("169.254.170.23", Metadata),
        ("169.254.0.23", Metadata),
        ("169.254.42.42", Metadata),
        ("100.100.100.200", Metadata),
        ("168.63.129.16", Metadata),
        ("192.0.0.192", Metadata),
        ("168.63.129.17", Public),
        ("100.64.0.1", SharedNat),
        ("100.127.255.255", SharedNat),
        ("224.0.0.1", Multicast),
        ("239.255.255.250", Multicast),
        ("255.255.255.255", Broadcast),
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Unspecified),
        ("192.0.2.1", Documentation),
        ("198.51.100.1", Documentation),
        ("203.0.113.9", Documentation),
        ("198.18.0.1", Benchmark),
        ("198.19.255.255", Benchmark),
        ("192.0.0.8", Reserved),
        ("192.88.99.1", Reserved),
        ("240.0.0.1", Reserved),
        ("2606:4700:4700::1111", Public),
        ("2a00:1450:4001:81b::200e", Public),
        ("::", Unspecified),
        ("::1", Loopback),
        ("fe80::1", LinkLocal),
        ("febf:ffff::1", LinkLocal),
        ("fec0::1", UniqueLocal),
        ("fc00::1", UniqueLocal),
        ("fdff:ffff::1", UniqueLocal),
        ("fd00:ec2::254", Metadata),
        ("fd00:ec2::23", Metadata),
        ("fd20:ce::254", Metadata),
        ("fd00:42::42", Metadata),
        ("fd00:100::100:200", Metadata),
        ("fd00:a9fe:a9fe::1", Metadata),
        ("fd00:c1::a9fe:a9fe", Metadata),
        ("fe80::a9fe:a9fe", Metadata),
        ("ff02::1", Multicast),
        ("2001:db8::1", Documentation),
        ("3fff:fff::1", Documentation),
        ("2001:2::1", Benchmark),
        ("2001:10::1", Reserved),
        ("2001:20::1", Reserved),
        ("100::1", Reserved),
        ("5f00::1", Reserved),
        ("4000::1", Reserved),
        ("e000::1", Reserved),
    ] {
        assert_eq!(classify(ip(text)), kind, "{text}");
        assert_eq!(classify(ip(text)).is_public(), kind == Public, "{text}");
    }
}

#[test]
fn an_embedded_address_decides() {
    for (text, kind) in [
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:169.254.169.254", Metadata),
        ("::ffff:8.8.8.8", Public),
        ("::ffff:0:10.0.0.1", Private),
        ("::127.0.0.1", Loopback),
        ("::8.8.8.8", Public),
        ("::2", Unspecified),
        ("64:ff9b::169.254.169.254", Metadata),
        ("64:ff9b::10.1.2.3", Private),
        ("64:ff9b::8.8.8.8", Public),
        ("64:ff9b:1::169.254.169.254", Metadata),
        ("64:ff9b:1:a9fe:a9:fe00::", Metadata),
        ("64:ff9b:1:a00:0:100::", Private),
        ("64:ff9b:1::8.8.8.8", Reserved),
        ("64:ff9b:1:808:8:800:808:808", Reserved),
        ("2002:a9fe:a9fe::", Metadata),
        ("2002:7f00:1::1", Loopback),
        ("2002:808:808::1", Public),
        ("2002:808:808::5efe:10.0.0.1", Private),
        // Teredo: server 65.54.227.120, client 192.0.2.45 and 8.8.8.8 turned over.
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Documentation),
        ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", Public),
        ("2001:0:a00:1:8000:63bf:f7f7:f7f7", Private),
        ("2606:4700::5efe:10.0.0.1", Private),
        ("2606:4700::200:5efe:127.0.0.1", Loopback),
        ("2606:4700::5efe:8.8.8.8", Public),
        ("fe80::5efe:8.8.8.8", LinkLocal),
    ] {
        assert_eq!(classify(ip(text)), kind, "{text}");
    }
}

#[test]
fn odd_spellings_of_an_address_are_read() {
    for (text, address) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0x", "127.0.0.0"),
        ("127.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0x7f.0x0.0x0.0x1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("0177.0.0.01", "127.0.0.1"),
        ("00000177.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("2852039166", "169.254.169.254"),
        ("0xa9fea9fe", "169.254.169.254"),
        ("0251.0376.0251.0376", "169.254.169.254"),
        ("169.254.43518", "169.254.169.254"),
        ("%31%32%37.0.0.1", "127.0.0.1"),
        ("127%2e0%2E0.1", "127.0.0.1"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("127。0．0｡1", "127.0.0.1"),
        ("①②⑦.0.0.1", "127.0.0.1"),
        ("𝟏𝟐𝟕.0.0.1", "127.0.0.1"),
        ("127.0.0.\u{ad}1", "127.0.0.1"),
        ("0ｘ7f.1", "127.0.0.1"),
        ("%EF%BC%91%EF%BC%92%EF%BC%97.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ("[fe80::1%25eth0]", "fe80::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[2002:a9fe:a9fe::]", "2002:a9fe:a9fe::"),
        // Octal would make it public, decimal does not.
        ("010.8.8.8", "10.8.8.8"),
        ("0300.0250.1.1", "192.168.1.1"),
    ] {
        let address = ip(address);
        assert_eq!(parse_host(text), HostKind::Address(address, classify(address)), "{text}");
        assert!(!classify(address).is_public(), "{text}");
    }
    assert_eq!(parse_host("0101.1.1.1"), HostKind::Address(ip("65.1.1.1"), Public));
    assert_eq!(parse_host("8.8.8.8"), HostKind::Address(ip("8.8.8.8"), Public));
}

#[test]
fn host_names_are_normalized() {
    for (text, name) in [
        ("example.com", "example.com"),
        ("Example.COM.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("ｅｘａｍｐｌｅ。com", "example.com"),
        ("ex%61mple.com", "example.com"),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("0x7f.example", "0x7f.example"),
        ("mymetadata", "mymetadata"),
        ("notlocalhost", "notlocalhost"),
    ] {
        assert_eq!(parse_host(text), HostKind::Name(name.into()), "{text}");
    }
    for (text, name, kind) in [
        ("localhost", "localhost", Loopback),
        ("LOCALHOST.", "localhost", Loopback),
        ("ｌocalhost", "localhost", Loopback),
        ("a.localhost", "a.localhost", Loopback),
        ("metadata.google.internal", "metadata.google.internal", Metadata),
        ("Metadata.Google.Internal.", "metadata.google.internal", Metadata),
        ("metadata%2Egoogle%2Einternal", "metadata.google.internal", Metadata),
        ("metadata", "metadata", Metadata),
        ("metadata.goog", "metadata.goog", Metadata),
        ("instance-data.ec2.internal", "instance-data.ec2.internal", Metadata),
        ("db.internal", "db.internal", Private),
        ("Printer.local.", "printer.local", Private),
        ("nas.home.arpa", "nas.home.arpa", Private),
        ("host.localdomain", "host.localdomain", Private),
        ("localhost.localdomain", "localhost.localdomain", Loopback),
    ] {
        assert_eq!(parse_host(text), HostKind::Reserved(name.into(), kind), "{text}");
        assert_eq!(parse_host(text).kind(), Some(kind));
    }
}

#[test]
fn hosts_that_programs_parse_differently_are_invalid() {
    use HostParseError::*;
    for (text, reason) in [
        ("", Empty),
        (".", Empty),
        ("256.0.0.1", Number),
        ("1.2.3.4.5", Number),
        ("4294967296", Number),
        ("0x100000000", Number),
        ("127.0.0.256", Number),
        ("1.2.3.08", Number),
        ("127.0.0.1..", Label),
        ("127..1", Number),
        ("a.1", Number),
        ("example.0x7f", Number),
        ("+127.1", Number),
        ("user@127.0.0.1", Characters),
        ("example.com@127.0.0.1", Characters),
        ("127.0.0.1\\@example.com", Characters),
        ("127.0.0.1#@example.com", Characters),
        ("example.com/", Characters),
        ("127.0.0.1 example.com", Characters),
        ("127.0.0.1\texample.com", Characters),
        ("127.0.0.1\n", Characters),
        ("exa\0mple.com", Characters),
        ("example.com%00", Characters),
        ("example.com%2f", Characters),
        ("℀.example", Characters),
        ("127.0.0.1:80", Colons),
        ("user:pass@127.0.0.1", Colons),
        ("[::1", Colons),
        ("[::1]:80", Colons),
        ("[127.0.0.1]", Colons),
        ("[v1.fe80]", Colons),
        ("::ffff:0177.0.0.1", Colons),
        ("[2606:4700::1%25eth0]", Zone),
        ("[fe80::1%25]", Zone),
        ("%", Escape),
        ("%zz", Escape),
        ("%2531", Escape),
        ("%ff%fe", Escape),
        ("a..b", Label),
    ] {
        assert_eq!(parse_host(text), HostKind::Invalid(reason), "{text:?}");
    }
    assert_eq!(parse_host(&"a".repeat(64)), HostKind::Invalid(Label));
    assert_eq!(parse_host(&"a".repeat(2000)), HostKind::Invalid(TooLong));
}

#[test]
fn addresses_that_hermes_agent_accepted_are_not_public() {
    for text in ["168.63.129.16", "192.0.0.192", "[2002:a9fe:a9fe::]", "[64:ff9b::a9fe:a9fe]"] {
        assert_eq!(parse_host(text).kind(), Some(Metadata), "{text}");
    }
    assert_eq!(parse_host("[fe80::1]").kind(), Some(LinkLocal));
}

const SPECIAL: &[(&str, u32)] = &[
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    ("168.63.129.16", 32),
    ("100.100.100.200", 32),
];

fn special_v4() -> impl Strategy<Value = Ipv4Addr> {
    (prop::sample::select(SPECIAL), any::<u32>()).prop_map(|((first, length), random)| {
        let first: Ipv4Addr = first.parse().unwrap();
        let free = u32::MAX.checked_shr(length).unwrap_or(0);
        Ipv4Addr::from_bits(first.to_bits() | (random & free))
    })
}

/// Writes an address with one to four parts, each in its own base.
fn numbers(address: Ipv4Addr, parts: usize, bases: [u8; 4]) -> String {
    let octets = address.octets();
    let (front, last) = octets.split_at(parts - 1);
    let last = last.iter().fold(0_u32, |value, octet| (value << 8) | u32::from(*octet));
    let values = front.iter().map(|octet| u32::from(*octet)).chain([last]);
    let written = values.zip(bases).map(|(value, base)| match base % 5 {
        0 => format!("0x{value:x}"),
        1 => format!("0X{value:X}"),
        2 => format!("0{value:o}"),
        3 => format!("0x000{value:x}"),
        _ => value.to_string(),
    });
    written.collect::<Vec<_>>().join(".")
}

/// Replaces each character by another way to write it.
fn disguise(text: &str, choices: &[u8]) -> String {
    let disguised = text.chars().zip(choices.iter().cycle()).map(|(c, choice)| match (choice % 6, c) {
        (0, _) => format!("%{:02x}", u32::from(c)),
        (1, '.') => "。".into(),
        (2, '.') => "．".into(),
        (3, '.') => "｡".into(),
        (1, _) => char::from_u32(u32::from(c) + 0xfee0).unwrap().to_string(),
        (2, '0'..='9') => char::from_u32(0x1d7ce + u32::from(c) - 48).unwrap().to_string(),
        _ => c.to_string(),
    });
    disguised.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_spelling_makes_a_special_address_public(
        address in special_v4(),
        parts in 1_usize..=4,
        bases in any::<[u8; 4]>(),
        choices in prop::collection::vec(any::<u8>(), 1..20),
        dot in any::<bool>(),
    ) {
        prop_assert!(!classify(address.into()).is_public());
        let plain = numbers(address, parts, bases) + if dot { "." } else { "" };
        for text in [disguise(&plain, &choices), plain] {
            match parse_host(&text) {
                HostKind::Address(read, kind) => {
                    prop_assert_eq!(read, IpAddr::from(address), "{}", text);
                    prop_assert!(!kind.is_public());
                }
                other => prop_assert!(false, "{} was read as {:?}", text, other),
            }
        }
    }

    #[test]
    fn no_ipv6_disguise_makes_a_special_address_public(address in special_v4(), random in any::<[u16; 8]>()) {
        let bits = address.to_bits();
        let (high, low) = ((bits >> 16) as u16, bits as u16);
        let [a, b, c, d, ..] = random;
        for disguised in [
            [0, 0, 0, 0, 0, 0xffff, high, low],
            [0, 0, 0, 0, 0xffff, 0, high, low],
            [0, 0, 0, 0, 0, 0, high, low],
            [0x64, 0xff9b, 0, 0, 0, 0, high, low],
            [0x64, 0xff9b, 1, a, b, c, high, low],
            [0x2002, high, low, a, b, c, d, 1],
            [0x2001, 0, 0x4136, 0xe378, a, b, !high, !low],
            [a, b, c, d, 0, 0x5efe, high, low],
            [a, b, c, d, 0x200, 0x5efe, high, low],
        ] {
            let disguised = Ipv6Addr::from(disguised);
            prop_assert!(!classify(disguised.into()).is_public(), "{}", disguised);
            let kind = parse_host(&format!("[{disguised}]")).kind();
            prop_assert!(kind.is_some_and(|kind| !kind.is_public()), "{}", disguised);
        }
    }

    #[test]
    fn special_ipv6_ranges_are_not_public(random in any::<u128>()) {
        for (first, length) in [("fc00::", 7), ("fe80::", 10), ("fec0::", 10), ("ff00::", 8), ("2001:db8::", 32), ("100::", 64), ("4000::", 2), ("8000::", 1)] {
            let first: Ipv6Addr = first.parse().unwrap();
            let address = Ipv6Addr::from_bits(first.to_bits() | (random & (u128::MAX >> length)));
            prop_assert!(!classify(address.into()).is_public(), "{}", address);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,40}", escaped in "[%0-9a-fx.:\\[\\]@]{0,30}") {
        parse_host(&text);
        parse_host(&escaped);
    }
}
