//! `hermes-guest serve`: the life of a guest.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::limit;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::WaitOptions;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};

use crate::connection;
use crate::guest::{BASE_ENV, Guest};
use crate::process::{output, shim};
use crate::room::Room;
use crate::run::python;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) socket: PathBuf,
    /// How long the guest waits for somebody to need it.
    pub(crate) idle: Duration,
    pub(crate) stay: Stay,
    /// A directory that is removed at the end.
    pub(crate) room: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// The starter goes on as soon as the guest can be reached.
    Detached,
    /// The starter is meant to wait, or the guest is the first process of its place and has none.
    Foreground,
}

pub(crate) fn main(options: &Options) -> io::Result<()> {
    shim::close_inherited();
    shed_environment()?;
    // Where its run directory is removed or a disk is taken away, the guest does not stand in the way.
    let socket = std::path::absolute(&options.socket)?;
    std::env::set_current_dir("/")?;
    let is_first = std::process::id() == 1;
    let ready = match options.stay {
        Stay::Detached if !is_first => Some(shim::detach()?),
        Stay::Detached | Stay::Foreground => None,
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let run_dir = private_dir(&socket, is_first)?;
    let room = options.room.as_deref().map(Room::hold).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_secs(1))
        .build()?;
    let lived = LocalSet::new().block_on(&runtime, live(&socket, run_dir, options.idle, ready));
    // A thread that still reads something endless does not keep us.
    runtime.shutdown_background();
    lived?;
    // What cannot be removed is swept away by whoever makes the next place.
    room.map(Room::remove).transpose().ok();
    Ok(())
}

/// Starts over without whatever the environment holds: commands can read the environment of their parent.
#[expect(clippy::disallowed_methods, reason = "the environment is looked at to be thrown away")]
fn shed_environment() -> io::Result<()> {
    let is_base = |name: &std::ffi::OsStr| BASE_ENV.iter().any(|base| name == *base);
    if std::env::vars_os().all(|(name, _)| is_base(&name)) {
        return Ok(());
    }
    let kept = std::env::vars_os().filter(|(name, _)| is_base(name));
    Err(Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env_clear().envs(kept).exec())
}

/// The directory of the socket, which nobody else may look into. In a container there is nobody else, and whoever made
/// it sees to the outside.
fn private_dir(socket: &Path, is_first: bool) -> io::Result<PathBuf> {
    let dir = socket.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if !dir.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let found = fs::metadata(dir)?;
    let is_open = found.mode() & 0o077 != 0;
    match found.uid() == rustix::process::geteuid().as_raw() {
        true if is_open => fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?,
        // In a container it is that of whoever made the container, who is somebody else there.
        false if is_open && !is_first => return Err(io::Error::other("the run directory is open to others")),
        _ => {}
    }
    Ok(dir.to_owned())
}

async fn live(socket: &Path, run_dir: PathBuf, idle: Duration, ready: Option<OwnedFd>) -> io::Result<()> {
    let listener = listen(socket)?;
    // Whoever may enter its directory may speak to us, as whichever user that is.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    sweep(&run_dir);
    let guest = Guest::new(run_dir.clone());
    spawn_local(reap());
    let mut stop = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    if let Some(ready) = ready {
        let_go_of_starter()?;
        rustix::io::write(&ready, b"!")?;
    }
    tokio::select! {
        () = accept(&guest, &listener) => {}
        () = idle_for(&guest, idle) => {}
        _ = stop.recv() => {}
        _ = interrupt.recv() => {}
    }
    // From here on nobody can find us, so nobody begins what would be cut off.
    drop(listener);
    // Somebody may have removed it before us.
    fs::remove_file(socket).ok();
    for process in guest.table.listed() {
        process.kill(hermes_guest::protocol::message::Cause::Killed).await;
    }
    sweep(&run_dir);
    Ok(())
}

/// Removes what belongs to nobody: it is of a guest that was killed, or that ends now.
fn sweep(run_dir: &Path) {
    output::sweep(run_dir);
    python::sweep(run_dir);
}

/// Takes the place of a guest that died without cleaning up, but never of one that lives.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(socket) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                return Err(io::Error::other("a guest is already there"));
            }
            fs::remove_file(socket)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    }
}

/// The starter may be waiting for the end of its pipes.
fn let_go_of_starter() -> io::Result<()> {
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

async fn accept(guest: &Rc<Guest>, listener: &UnixListener) {
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        if guest.clients.get() >= limit::CLIENTS {
            // Whoever comes now waits at the door: one who is sent away takes the guest for broken.
            changed.await;
            continue;
        }
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: some will come back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        guest.clients.set(guest.clients.get() + 1);
        let guest = guest.clone();
        spawn_local(async move {
            connection::serve(guest.clone(), stream).await;
            guest.clients.set(guest.clients.get() - 1);
            guest.table.changed.notify_waiters();
        });
    }
}

/// Collects the dead: shims, and as the first process of a place whatever else is left to us.
async fn reap() {
    let Ok(mut child) = signal(SignalKind::child()) else { return };
    loop {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if child.recv().await.is_none() {
            return;
        }
    }
}

/// Returns when nobody has needed the guest for so long.
async fn idle_for(guest: &Guest, idle: Duration) {
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        let Some(left) = idle.checked_sub(guest.idle()).filter(|left| !left.is_zero()) else { return };
        // Either it was used meanwhile, or the time is over; both are looked at again.
        drop(tokio::time::timeout(left, changed).await);
    }
}
