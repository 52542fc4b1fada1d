//! SOCKS 5 (RFC 1928): no authentication, `CONNECT` only.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::{Instant, timeout_at};

use super::reach::{self, Unreached};
use super::relay;

/// The first byte of every message.
pub(super) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The codes of a reply that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
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
    let asked =
        timeout_at(deadline, ask(&mut client)).await.map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    let reached = match &asked {
        Asked::Target(host, port) => reach::connect(host, *port).await.map_err(|error| code(&error)),
        Asked::Wrong(code) => Err(*code),
        Asked::NoMethod => return client.shutdown().await,
    };
    match reached {
        Ok(server) => {
            reply(&mut client, Code::Succeeded).await?;
            relay::join(client, server).await
        }
        Err(code) => {
            reply(&mut client, code).await?;
            client.shutdown().await
        }
    }
}

enum Asked {
    /// A host as it was written, and a port.
    Target(String, u16),
    /// Something else, and what to say to that.
    Wrong(Code),
    /// The client offered no way to go without authentication, and was told.
    NoMethod,
}

async fn ask<S>(client: &mut BufReader<S>) -> io::Result<Asked>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let [version, count] = read(client).await?;
    expect(version)?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Ok(Asked::NoMethod);
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    client.flush().await?;
    let [version, command, _reserved, kind] = read(client).await?;
    expect(version)?;
    let host = match kind {
        1 => Ok(Ipv4Addr::from(read::<4, _>(client).await?).to_string()),
        3 => {
            let [length] = read(client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            // What is no text is no name; it has the same end as a name that cannot be read.
            String::from_utf8(name).map_err(|_| Code::NotAllowed)
        }
        4 => Ok(Ipv6Addr::from(read::<16, _>(client).await?).to_string()),
        _ => {
            // How long the address is cannot be known, so nothing after it can be read.
            client.consume(client.buffer().len());
            return Ok(Asked::Wrong(Code::AddressNotSupported));
        }
    };
    let port = u16::from_be_bytes(read(client).await?);
    Ok(match host {
        _ if command != CONNECT => Asked::Wrong(Code::CommandNotSupported),
        Ok(host) => Asked::Target(host, port),
        Err(code) => Asked::Wrong(code),
    })
}

fn expect(version: u8) -> io::Result<()> {
    if version == VERSION { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

async fn read<const N: usize, S: AsyncRead + Unpin>(client: &mut BufReader<S>) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn code(error: &Unreached) -> Code {
    match error {
        Unreached::Unreadable(_) | Unreached::NotPublic(_) | Unreached::Own => Code::NotAllowed,
        Unreached::Unresolved(_) | Unreached::Silent => Code::HostUnreachable,
        Unreached::Failed(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => Code::Refused,
            io::ErrorKind::NetworkUnreachable => Code::NetworkUnreachable,
            _ => Code::HostUnreachable,
        },
    }
}

/// The address we are bound to is nobody's business inside; clients ignore it.
async fn reply<S: AsyncWrite + Unpin>(client: &mut S, code: Code) -> io::Result<()> {
    client.write_all(&[VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    client.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::proxy;

    /// All that comes back for some bytes.
    async fn answer(bytes: &[u8]) -> Vec<u8> {
        let (mut client, inner) = duplex(1024);
        let served = tokio::spawn(proxy::serve(inner));
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

    fn replied(code: Code) -> Vec<u8> {
        vec![5, 0, 5, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    #[tokio::test]
    async fn what_may_not_be_reached_is_refused_however_it_is_addressed() {
        let names: [&[u8]; 9] = [
            b"localhost", b"127.0.0.1", b"2130706433", b"example.com\0.localhost",
            b"127.0.0.1\0.example.com", b"\0", b"", b"\xff\xfe", b"[::1]",
        ];
        for name in names {
            assert_eq!(answer(&named(name)).await, replied(Code::NotAllowed), "{name:?}");
        }
        let v4 = [5, 1, 0, 5, 1, 0, 1, 169, 254, 169, 254, 0, 80];
        assert_eq!(answer(&v4).await, replied(Code::NotAllowed));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let v6 = [&[5, 1, 0, 5, 1, 0, 4], &mapped[..], &[0, 80]].concat();
        assert_eq!(answer(&v6).await, replied(Code::NotAllowed));
    }

    #[tokio::test]
    async fn other_methods_commands_and_kinds_of_address_have_their_own_answers() {
        assert_eq!(answer(&[5, 1, 2]).await, [5, 0xff]);
        assert_eq!(answer(&[5, 0]).await, [5, 0xff]);
        let bind = [5, 2, 2, 0, 5, 2, 0, 1, 8, 8, 8, 8, 0, 80];
        assert_eq!(answer(&bind).await, replied(Code::CommandNotSupported));
        assert_eq!(answer(&[5, 1, 0, 5, 1, 0, 9, 1]).await, replied(Code::AddressNotSupported));
        assert_eq!(answer(&[5, 1, 0, 4, 1, 0, 1]).await, [5, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_sentence_is_left() {
        let (mut client, inner) = duplex(1024);
        let started = Instant::now();
        client.write_all(&[5, 1]).await.unwrap();
        proxy::serve(inner).await;
        assert_eq!(started.elapsed().as_secs(), proxy::HANDSHAKE.as_secs());
    }
}
