//! Resolves the target of a connection and checks that it is a public address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use hermes_policy::address::{self, AddressKind, HostKind, HostParseError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For the resolver, and again for all addresses of a host together.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);

const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

const MAX_ADDRESSES: usize = 8;

/// The reason why a host was not connected.
#[derive(Debug, Error)]
pub enum HostError {
    #[error("is invalid: {0}")]
    InvalidHost(#[from] HostParseError),
    #[error("is not a public address ({})", .0.as_str())]
    NotPublic(AddressKind),
    #[error("is an address of this machine")]
    OwnAddress,
    #[error("cannot be resolved: {0}")]
    Resolve(io::Error),
    #[error("cannot be connected to: {0}")]
    Connect(io::Error),
    #[error("did not answer in time")]
    TimedOut,
}

impl HostError {
    /// The rule that refused the host; `None` for a failed connection.
    pub(super) fn refusal_reason(&self) -> Option<&'static str> {
        match self {
            Self::InvalidHost(_) => Some("unreadable"),
            Self::NotPublic(kind) => Some(kind.as_str()),
            Self::OwnAddress => Some("this machine"),
            Self::Resolve(_) | Self::Connect(_) | Self::TimedOut => None,
        }
    }
}

/// Connects to a host. The name is resolved once, so the checked address is the one connected to.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, HostError> {
    let addresses = resolve_public(host).await?;
    timeout(RESOLVE_TIMEOUT, connect_any(&addresses, port)).await.map_err(|_elapsed| HostError::TimedOut)?
}

/// The addresses of a host in a URL, if all are public and none belongs to this machine. The caller
/// must connect to one of these and not resolve the name again.
pub async fn resolve_public(host: &str) -> Result<Vec<IpAddr>, HostError> {
    let found = match address::parse_host(host) {
        HostKind::Invalid(reason) => return Err(reason.into()),
        HostKind::Reserved(_, kind) => return Err(HostError::NotPublic(kind)),
        HostKind::Address(address, _) => vec![address],
        // A name without a dot has a meaning only through a search list or a file of this machine.
        HostKind::Name(name) if !name.contains('.') => {
            return Err(HostError::NotPublic(AddressKind::Private));
        }
        HostKind::Name(name) => resolve(&name).await?,
    };
    let found = check_public(found)?;
    if found.iter().any(|address| is_own_address(*address)) {
        return Err(HostError::OwnAddress);
    }
    Ok(found)
}

async fn resolve(name: &str) -> Result<Vec<IpAddr>, HostError> {
    let found = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name, 0))).await;
    let found = found.map_err(|_elapsed| HostError::TimedOut)?.map_err(HostError::Resolve)?;
    Ok(found.map(|address| address.ip()).collect())
}

/// Accepts addresses only if all are public. A name with mixed answers is made to be retried until
/// it resolves to an internal one.
fn check_public(found: Vec<IpAddr>) -> Result<Vec<IpAddr>, HostError> {
    if let Some(kind) = found.iter().map(|found| address::classify(*found)).find(|kind| !kind.is_public()) {
        return Err(HostError::NotPublic(kind));
    }
    Ok(found.into_iter().take(MAX_ADDRESSES).map(|address| address.to_canonical()).collect())
}

async fn connect_any(addresses: &[IpAddr], port: u16) -> Result<TcpStream, HostError> {
    let mut last = HostError::Resolve(io::Error::other("it has no address"));
    for address in addresses {
        match timeout(ADDRESS_TIMEOUT, TcpStream::connect((*address, port))).await {
            Ok(Ok(stream)) if is_self_connection(&stream) => return Err(HostError::OwnAddress),
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(HostError::Connect)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = HostError::Connect(error),
            Err(_elapsed) => last = HostError::TimedOut,
        }
    }
    Err(last)
}

/// Whether an address belongs to this machine, where any service that listens on all interfaces
/// would answer. The kernel sends to itself from the destination address; a connected datagram
/// socket shows that without sending anything.
fn is_own_address(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let source = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        // Any port works, since nothing is sent.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    // An address without a route cannot be connected to either.
    source().is_ok_and(|source| source.ip().to_canonical() == address)
}

/// The same check for an established connection, before any byte passes.
fn is_self_connection(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip().to_canonical() == peer.ip().to_canonical(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_internal_address_refuses_the_name() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let public = vec![ip("8.8.8.8"), ip("2606:4700::1111"), ip("::ffff:1.1.1.1")];
        let canonical = vec![ip("8.8.8.8"), ip("2606:4700::1111"), ip("1.1.1.1")];
        assert_eq!(check_public(public.clone()).unwrap(), canonical);
        for inside in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "fe80::1", "::ffff:192.168.0.1", "0.0.0.0"]
        {
            let mixed: Vec<IpAddr> = public.iter().copied().chain([ip(inside)]).collect();
            let refused = check_public(mixed).unwrap_err();
            assert!(matches!(refused, HostError::NotPublic(_)), "{inside}: {refused}");
        }
    }

    #[tokio::test]
    async fn odd_spellings_are_refused_before_resolution() {
        for (host, expected) in [
            ("2130706433", "is not a public address (loopback)"),
            ("0x7f.1", "is not a public address (loopback)"),
            ("0177.0.0.1", "is not a public address (loopback)"),
            ("１２７.0.0.1", "is not a public address (loopback)"),
            ("%31%32%37.0.0.1", "is not a public address (loopback)"),
            ("127.0.0.1.", "is not a public address (loopback)"),
            ("[::ffff:127.0.0.1]", "is not a public address (loopback)"),
            ("::1", "is not a public address (loopback)"),
            ("[fe80::1%25eth0]", "is not a public address (link-local)"),
            ("169.254.169.254", "is not a public address (cloud metadata)"),
            ("a.localhost", "is not a public address (loopback)"),
            ("metadata.google.internal", "is not a public address (cloud metadata)"),
            ("printer.local", "is not a public address (private)"),
            ("intranet", "is not a public address (private)"),
            ("example.com\0.evil.example", "is invalid: host has characters that are not allowed in a name"),
            ("", "is invalid: host is empty"),
            ("user@example.com", "is invalid: host has characters that are not allowed in a name"),
        ] {
            let refused = connect(host, 80).await.unwrap_err();
            assert_eq!(refused.to_string(), expected, "{host:?}");
            assert!(refused.refusal_reason().is_some());
        }
    }

    #[test]
    fn own_addresses_are_recognized_without_sending_anything() {
        assert!(is_own_address(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own_address(Ipv4Addr::new(240, 1, 2, 3).into()));
    }
}
