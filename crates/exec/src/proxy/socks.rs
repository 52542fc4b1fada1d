//! SOCKS 5 (RFC 1928): no authentication, `CONNECT` only.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::{Instant, timeout_at};

use super::relay;
use super::target::{self, HostError};

/// The first byte of every message.
pub(super) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyCode {
    Succeeded = 0,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

pub(super) async fn serve<S>(mut client: BufReader<S>, deadline: Instant) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = timeout_at(deadline, read_request(&mut client))
        .await
        .map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    let connected = match &request {
        SocksRequest::Target(host, port) => {
            target::connect(host, *port).await.map_err(|error| reply_code(&error))
        }
        SocksRequest::Rejected(code) => Err(*code),
        SocksRequest::NoMethod => return client.shutdown().await,
    };
    match connected {
        Ok(server) => {
            reply(&mut client, ReplyCode::Succeeded).await?;
            relay::copy_both_ways(client, server).await
        }
        Err(code) => {
            reply(&mut client, code).await?;
            client.shutdown().await
        }
    }
}

enum SocksRequest {
    /// A host as the client wrote it, and a port.
    Target(String, u16),
    Rejected(ReplyCode),
    /// The client offered no method without authentication and got the reply.
    NoMethod,
}

async fn read_request<S>(client: &mut BufReader<S>) -> io::Result<SocksRequest>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let [version, count] = read(client).await?;
    check_version(version)?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Ok(SocksRequest::NoMethod);
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    client.flush().await?;
    let [version, command, _reserved, kind] = read(client).await?;
    check_version(version)?;
    let host = match kind {
        1 => Ok(Ipv4Addr::from(read::<4, _>(client).await?).to_string()),
        3 => {
            let [length] = read(client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            // A name that is not UTF-8 gets the same reply as an invalid one.
            String::from_utf8(name).map_err(|_| ReplyCode::NotAllowed)
        }
        4 => Ok(Ipv6Addr::from(read::<16, _>(client).await?).to_string()),
        _ => {
            // The length of an unknown address type is unknown, so the rest cannot be parsed.
            client.consume(client.buffer().len());
            return Ok(SocksRequest::Rejected(ReplyCode::AddressNotSupported));
        }
    };
    let port = u16::from_be_bytes(read(client).await?);
    Ok(match host {
        _ if command != CONNECT => SocksRequest::Rejected(ReplyCode::CommandNotSupported),
        Ok(host) => SocksRequest::Target(host, port),
        Err(code) => SocksRequest::Rejected(code),
    })
}

fn check_version(version: u8) -> io::Result<()> {
    if version == VERSION { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

async fn read<const N: usize, S: AsyncRead + Unpin>(client: &mut BufReader<S>) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn reply_code(error: &HostError) -> ReplyCode {
    match error {
        HostError::InvalidHost(_) | HostError::NotPublic(_) | HostError::OwnAddress => ReplyCode::NotAllowed,
        HostError::Resolve(_) | HostError::TimedOut => ReplyCode::HostUnreachable,
        HostError::Connect(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => ReplyCode::Refused,
            io::ErrorKind::NetworkUnreachable => ReplyCode::NetworkUnreachable,
            _ => ReplyCode::HostUnreachable,
        },
    }
}

/// Clients ignore the bound address, and the place has no need to know it.
async fn reply<S: AsyncWrite + Unpin>(client: &mut S, code: ReplyCode) -> io::Result<()> {
    client.write_all(&[VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    client.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::proxy;

    /// The whole reply to some bytes.
    async fn answer(bytes: &[u8]) -> Vec<u8> {
        let (mut client, inner) = duplex(1024);
        let served = tokio::spawn(proxy::serve_connection(inner));
        client.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        served.await.unwrap();
        answer
    }

    fn named(name: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[5, 1, 0, 5, 1, 0, 3, length], name, &[0, 80]].concat()
    }

    fn replied(code: ReplyCode) -> Vec<u8> {
        vec![5, 0, 5, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    #[tokio::test]
    async fn internal_targets_are_refused_in_every_address_type() {
        let names: [&[u8]; 9] = [
            b"localhost", b"127.0.0.1", b"2130706433", b"example.com\0.localhost",
            b"127.0.0.1\0.example.com", b"\0", b"", b"\xff\xfe", b"[::1]",
        ];
        for name in names {
            assert_eq!(answer(&named(name)).await, replied(ReplyCode::NotAllowed), "{name:?}");
        }
        let v4 = [5, 1, 0, 5, 1, 0, 1, 169, 254, 169, 254, 0, 80];
        assert_eq!(answer(&v4).await, replied(ReplyCode::NotAllowed));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let v6 = [&[5, 1, 0, 5, 1, 0, 4], &mapped[..], &[0, 80]].concat();
        assert_eq!(answer(&v6).await, replied(ReplyCode::NotAllowed));
    }

    #[tokio::test]
    async fn unsupported_methods_commands_and_address_types_have_their_own_replies() {
        assert_eq!(answer(&[5, 1, 2]).await, [5, 0xff]);
        assert_eq!(answer(&[5, 0]).await, [5, 0xff]);
        let bind = [5, 2, 2, 0, 5, 2, 0, 1, 8, 8, 8, 8, 0, 80];
        assert_eq!(answer(&bind).await, replied(ReplyCode::CommandNotSupported));
        assert_eq!(answer(&[5, 1, 0, 5, 1, 0, 9, 1]).await, replied(ReplyCode::AddressNotSupported));
        assert_eq!(answer(&[5, 1, 0, 4, 1, 0, 1]).await, [5, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_request_is_dropped() {
        let (mut client, inner) = duplex(1024);
        let started = Instant::now();
        client.write_all(&[5, 1]).await.unwrap();
        proxy::serve_connection(inner).await;
        assert_eq!(started.elapsed().as_secs(), proxy::HANDSHAKE_TIMEOUT.as_secs());
    }
}
