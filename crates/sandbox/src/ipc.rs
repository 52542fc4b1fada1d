//! Messages between launcher, supervisor and first process: packets over a Unix socket, with
//! descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::SetupError;
use crate::limit_report::LimitReport;

/// Descriptors per packet; the kernel allows 253.
const MAX_DESCRIPTORS: usize = 64;

/// Reports are small.
const MAX_PACKET_BYTES: usize = 64 * 1024;

/// Messages of the supervisor: `Started` or `Failed`, and after `Started` one `Exited`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorReport {
    /// The namespaces exist. Includes the pidfd of process 1, and a socket that carries a
    /// [`SetupError`] if a later step fails, and ends empty when the program has started.
    Started(LimitReport),
    Failed(SetupError),
    /// The jail and its cgroups are gone.
    Exited(JailExit),
}

/// How a jail's program exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailExit {
    Code(i32),
    Signal(i32),
}

/// A connected pair of packet sockets.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn send<T: Serialize>(
    to: impl AsFd,
    payload: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(payload).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet; `None` if the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            // The socket has a receive timeout.
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            other => break other?,
        }
    };
    let descriptors: Vec<OwnedFd> = ancillary
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
