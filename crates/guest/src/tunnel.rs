//! Sockets inside the place, joined to streams of the connection.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hermes_guest::protocol::frame::{FrameError, Frames};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Address, Counted, Doing, Fault, Input, Reply};
use hermes_guest::protocol::mux::{Mux, Stream};
use hermes_guest::removal;
use rustix::fs::{CWD, Mode, OFlags};
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet, spawn_local};

use crate::guest::Guest;
use crate::process::os;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// How long a socket may go on once the host has ended its side.
const LINGER: Duration = Duration::from_secs(60);

/// Connects to a socket in the place and carries its bytes.
pub(crate) async fn dial(address: &Address, mut frames: Frames<Stream>) -> Result<(), FrameError> {
    let connected = match address {
        Address::Unix(path) => UnixStream::connect(path_of(path)).await.map(Socket::Unix),
        Address::Loopback(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await.map(Socket::Tcp),
    };
    match connected {
        Ok(socket) => {
            frames.writer.send(&Reply::Done).await?;
            Ok(carry(frames, socket).await?)
        }
        Err(error) => {
            frames.writer.send(&Reply::Failed(os(Doing::Tunnel, &error))).await?;
            frames.writer.finish().await
        }
    }
}

/// Listens in the place for as long as the client keeps the stream open.
pub(crate) async fn listen(
    guest: &Rc<Guest>,
    mux: &Mux,
    number: u64,
    address: &Address,
    mut frames: Frames<Stream>,
) -> Result<(), FrameError> {
    let listener = match bind(guest, address) {
        Ok(listener) => listener,
        Err(fault) => {
            frames.writer.send(&Reply::Failed(fault)).await?;
            return frames.writer.finish().await;
        }
    };
    guest.listeners.set(guest.listeners.get() + 1);
    let reply = Reply::Listening(listener.port());
    let served = async {
        frames.writer.send(&reply).await?;
        tokio::select! {
            () = pass_on(&listener, mux, number, limit::CARRIED) => Ok(()),
            left = frames.reader.receive::<Input>() => left.map(drop),
        }
    }
    .await;
    guest.listeners.set(guest.listeners.get() - 1);
    served
}

/// A socket whose connections go to the host for as long as this is held.
#[derive(Debug)]
pub(crate) struct Carrier {
    guest: Rc<Guest>,
    task: JoinHandle<()>,
}

impl Carrier {
    /// Cuts every connection; when this returns, nothing comes from the socket any more.
    pub(crate) async fn cut(mut self) {
        self.task.abort();
        // It ends because it was told to.
        drop((&mut self.task).await);
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
        self.guest.listeners.set(self.guest.listeners.get() - 1);
    }
}

/// Listens on a socket in a directory, whose path may be longer than that of a socket.
pub(crate) fn carry_all(
    guest: &Rc<Guest>,
    mux: &Mux,
    number: u64,
    dir: &Path,
    name: &str,
) -> Result<Carrier, Fault> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::openat(CWD, dir, flags, Mode::empty());
    let held = held.map_err(|error| os(Doing::Tunnel, &error.into()))?;
    let path = removal::through(&held).join(name);
    let listener = bind(guest, &Address::Unix(ByteBuf::from(path.as_os_str().as_bytes())))?;
    guest.listeners.set(guest.listeners.get() + 1);
    let mux = mux.clone();
    let task = spawn_local(async move {
        pass_on(&listener, &mux, number, limit::CALLS).await;
        drop(held);
    });
    Ok(Carrier { guest: guest.clone(), task })
}

/// Hands each connection to the host as a stream of its own; all of them end with the listener.
async fn pass_on(listener: &Listener, mux: &Mux, number: u64, most: usize) {
    let mut carried = JoinSet::new();
    loop {
        while carried.try_join_next().is_some() {}
        // More would use up the streams of the connection; they wait in the kernel meanwhile.
        if carried.len() >= most {
            carried.join_next().await;
        }
        let Ok(socket) = listener.accept().await else { return };
        let mux = mux.clone();
        carried.spawn_local(async move {
            let mut frames = Frames::new(mux.open().await?);
            frames.writer.send(&Reply::Arrived(number)).await.map_err(io::Error::other)?;
            carry(frames, socket).await
        });
    }
}

/// Carries bytes both ways until both sides have ended.
async fn carry(frames: Frames<Stream>, socket: Socket) -> io::Result<()> {
    let (stream, early) = frames.into_raw();
    let socket: Box<dyn Duplex> = match socket {
        Socket::Unix(socket) => Box::new(socket),
        Socket::Tcp(socket) => Box::new(socket),
    };
    let (from_host, mut to_host) = tokio::io::split(Host { stream, ended: false });
    let (from_place, mut to_place) = tokio::io::split(socket);
    to_place.write_all(&early).await?;
    let inward = copy(from_host, &mut to_place);
    let outward = copy(from_place, &mut to_host);
    tokio::pin!(inward, outward);
    tokio::select! {
        ended = &mut outward => {
            ended?;
            inward.await
        }
        ended = &mut inward => {
            ended?;
            // A socket that nobody closes would be carried forever.
            tokio::time::timeout(LINGER, outward).await?
        }
    }
}

async fn copy(from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    tokio::io::copy_buf(&mut BufReader::with_capacity(limit::CHUNK, from), to).await?;
    to.shutdown().await
}

/// The stream to the host, with a reset told apart from an end.
struct Host {
    stream: Stream,
    /// Whether we have ended our side.
    ended: bool,
}

impl AsyncRead for Host {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let at_end = buffer.filled().len() == before;
        if at_end && !self.ended && self.stream.get_ref().is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Host {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A Unix listener takes its file with it.
enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener, _) => listener.accept().await.map(|(socket, _)| Socket::Unix(socket)),
            Self::Tcp(listener) => listener.accept().await.map(|(socket, _)| Socket::Tcp(socket)),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Unix(..) => 0,
            Self::Tcp(listener) => listener.local_addr().map_or(0, |address| address.port()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may have been removed already.
            drop(fs::remove_file(path));
        }
    }
}

fn bind(guest: &Guest, address: &Address) -> Result<Listener, Fault> {
    if guest.listeners.get() >= limit::LISTENERS {
        return Err(Fault::TooMany { what: Counted::Listeners, limit: limit::LISTENERS as u64 });
    }
    let bound = match address {
        Address::Unix(path) => {
            let path = path_of(path);
            UnixListener::bind(&path).map(|listener| Listener::Unix(listener, path))
        }
        Address::Loopback(port) => bind_loopback(*port).map(Listener::Tcp),
    };
    bound.map_err(|error| os(Doing::Tunnel, &error))
}

/// Clients that each want the same port share it: the kernel gives every connection to one of them.
fn bind_loopback(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(BACKLOG)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
