//! Forwards sockets inside the environment to streams of the connection.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::frame::{FrameError, FrameStream};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{FailedOperation, GuestReply, Rejection, RunInput};
use hermes_guest::protocol::mux::{Mux, MuxStream};
use hermes_guest::protocol::tunnel::{OnReset, Tunnel};
use hermes_types::removal;
use rustix::fs::{CWD, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::task::{JoinSet, spawn_local};
use tokio_util::task::AbortOnDropHandle;

use crate::guest::Guest;
use crate::process::os_error;

/// Backlog of a listening TCP socket.
const LISTEN_BACKLOG: u32 = 1024;

/// How long a socket may keep sending after the host closed its side.
const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Listens in the environment as long as the client keeps the stream open.
pub(crate) async fn listen(
    guest: &Rc<Guest>,
    mux: &Mux,
    number: u64,
    port: u16,
    mut frames: FrameStream<MuxStream>,
) -> Result<(), FrameError> {
    let listener = match check_count(guest, bind_loopback(port)) {
        Ok(listener) => listener,
        Err(fault) => {
            frames.writer.send(&GuestReply::Failed(fault)).await?;
            return frames.writer.finish().await;
        }
    };
    let _counted = guest.listeners.clone();
    let reply = GuestReply::Listening(listener.local_addr().map_or(0, |address| address.port()));
    frames.writer.send(&reply).await?;
    tokio::select! {
        () = forward_connections(|| listener.accept(), mux, number, limit::MAX_LISTENER_CONNECTIONS) => Ok(()),
        left = frames.reader.receive::<RunInput>() => left.map(drop),
    }
}

/// Listens on a Unix socket in a directory whose path may exceed the length limit of socket paths.
/// The task forwards its connections until it is aborted; it ends when all of them are closed.
pub(crate) fn forward_socket(
    guest: &Rc<Guest>,
    mux: &Mux,
    number: u64,
    dir: &Path,
    name: &str,
) -> Result<AbortOnDropHandle<()>, Rejection> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir_fd = rustix::fs::openat(CWD, dir, flags, Mode::empty());
    let dir_fd = dir_fd.map_err(os_error(FailedOperation::Tunnel))?;
    let path = removal::descriptor_path(&dir_fd).join(name);
    let listener = check_count(guest, UnixListener::bind(&path))?;
    let (mux, counted) = (mux.clone(), guest.listeners.clone());
    Ok(AbortOnDropHandle::new(spawn_local(async move {
        forward_connections(|| listener.accept(), &mux, number, limit::MAX_PYTHON_CONNECTIONS).await;
        drop((dir_fd, counted));
    })))
}

/// Forwards each connection to the host on its own stream; all of them end with the listener.
async fn forward_connections<S, A>(
    accept: impl AsyncFn() -> io::Result<(S, A)>,
    mux: &Mux,
    number: u64,
    max_connections: usize,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut forwarded = JoinSet::new();
    loop {
        while forwarded.try_join_next().is_some() {}
        // More connections would use up the streams; they wait in the backlog of the kernel.
        if forwarded.len() >= max_connections {
            forwarded.join_next().await;
        }
        let Ok((socket, _)) = accept().await else { return };
        let mux = mux.clone();
        forwarded.spawn_local(async move {
            let mut frames = FrameStream::new(mux.open_stream().await?);
            frames.writer.send(&GuestReply::Connected(number)).await.map_err(io::Error::other)?;
            copy_both_ways(frames, socket).await
        });
    }
}

/// Copies bytes in both directions until both sides are closed.
async fn copy_both_ways(
    frames: FrameStream<MuxStream>,
    socket: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (from_host, mut to_host) = tokio::io::split(Tunnel::new(frames, OnReset::Error));
    let (from_socket, mut to_socket) = tokio::io::split(socket);
    let inward = copy_to_end(from_host, &mut to_socket);
    let outward = copy_to_end(from_socket, &mut to_host);
    tokio::pin!(inward, outward);
    tokio::select! {
        ended = &mut outward => {
            ended?;
            inward.await
        }
        ended = &mut inward => {
            ended?;
            // Otherwise a socket that is never closed would be forwarded forever.
            tokio::time::timeout(HALF_CLOSE_TIMEOUT, outward).await?
        }
    }
}

async fn copy_to_end(from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    tokio::io::copy_buf(&mut BufReader::with_capacity(limit::CHUNK_BYTES, from), to).await?;
    to.shutdown().await
}

/// Accepts a bound socket unless the guest has too many.
fn check_count<T>(guest: &Guest, bound: io::Result<T>) -> Result<T, Rejection> {
    if Rc::strong_count(&guest.listeners) > limit::MAX_LISTENERS {
        return Err(Rejection::TooManyListeners);
    }
    bound.map_err(os_error(FailedOperation::Tunnel))
}

/// Several clients may listen on the same port: the kernel distributes the connections.
fn bind_loopback(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(LISTEN_BACKLOG)
}
