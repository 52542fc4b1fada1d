//! What the launcher and the keeper say to each other: packets over one socket, with descriptors beside the bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Fault;
use crate::held::Held;
use crate::jail::Jail;

/// Descriptors in one packet; the kernel allows 253.
pub(crate) const MOST_DESCRIPTORS: usize = 64;

/// A report is small. What is larger is not ours.
const LONGEST: usize = 64 * 1024;

/// What is to be made. It travels in a file in memory, because an environment can be larger than a packet.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) jail: Jail,
    /// The numbers inside the jail of the descriptors that come with the order, in their order.
    pub(crate) numbers: Vec<RawFd>,
}

/// What the keeper says, in this order: one of the first two, and after `Made` once `Ended`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The namespaces exist. With it come the pidfd of process 1, and a pipe that carries a [`Fault`] if a later step
    /// fails and ends empty when the program has started.
    Made { pid: i32, held: Held },
    /// There is no jail.
    Failed(Fault),
    /// The whole jail is gone, its cgroups too.
    Ended(Exit),
}

/// How a jail's program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Two ends of a connection that keeps packets apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one packet.
pub(crate) fn send<T: Serialize>(to: impl AsFd, what: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(what).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    sendmsg(to, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet. `None`: the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let descriptors: Vec<OwnedFd> = beside
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    let bytes = bytes.get(..received.bytes).unwrap_or_default();
    Ok(Some((postcard::from_bytes(bytes).map_err(io::Error::other)?, descriptors)))
}
