//! `hermes-guest serve`: starts the guest, accepts clients, and shuts down when idle.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::guard::WORK_DIR;
use hermes_guest::protocol::limit;
use hermes_types::process::GUEST_PROCESS_NAME;
use hermes_types::{RunDir, create_private_dir};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::WaitOptions;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};

use crate::connection;
use crate::guest::{BASE_ENV, Guest};
use crate::process::{output, shim};
use crate::run::python;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServeOptions {
    pub(crate) socket: PathBuf,
    /// Idle time after which the guest exits.
    pub(crate) idle: Duration,
    /// Whether the parent process waits. Otherwise it returns as soon as the guest accepts
    /// connections, unless the guest is process 1 of its environment.
    pub(crate) is_foreground: bool,
    /// Removed when the guest exits.
    pub(crate) run_dir: Option<PathBuf>,
    /// For output and Python programs. By default next to the socket.
    pub(crate) work_dir: Option<PathBuf>,
}

pub(crate) fn main(options: &ServeOptions) -> io::Result<()> {
    shim::close_inherited();
    clear_environment()?;
    // The working directory must not keep a file system busy.
    let socket = std::path::absolute(&options.socket)?;
    std::env::set_current_dir("/")?;
    let is_first = std::process::id() == 1;
    let ready = if options.is_foreground || is_first { None } else { Some(shim::detach()?) };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Its file may have any name.
    rustix::thread::set_name(&CString::new(GUEST_PROCESS_NAME)?)?;
    let run_dir = ensure_private_dir(&socket, is_first)?;
    let owned_run_dir = options.run_dir.as_deref().map(RunDir::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_secs(1))
        .build()?;
    let work_dir = options.work_dir.clone().unwrap_or_else(|| run_dir.join(WORK_DIR));
    let result = LocalSet::new().block_on(&runtime, run(&socket, work_dir, options.idle, ready));
    // Does not wait for a blocking read that never ends.
    runtime.shutdown_background();
    result?;
    // A leftover directory is removed when the next environment is created.
    owned_run_dir.map(RunDir::remove).transpose().ok();
    Ok(())
}

/// Re-executes the guest with a clean environment, because commands can read the environment of
/// their parent through `/proc`.
#[expect(clippy::disallowed_methods, reason = "the guest reads its environment only to clear it")]
fn clear_environment() -> io::Result<()> {
    let is_base = |name: &std::ffi::OsStr| BASE_ENV.iter().any(|base| name == *base);
    if std::env::vars_os().all(|(name, _)| is_base(&name)) {
        return Ok(());
    }
    let kept = std::env::vars_os().filter(|(name, _)| is_base(name));
    Err(Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env_clear().envs(kept).exec())
}

/// Makes sure that only the owner can access the directory of the socket. As process 1 of a
/// container the guest accepts any directory: the creator of the container restricts it from
/// outside.
fn ensure_private_dir(socket: &Path, is_first: bool) -> io::Result<PathBuf> {
    let dir = socket.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if !dir.exists() {
        create_private_dir(dir)?;
    }
    let found = fs::metadata(dir)?;
    let is_open = found.mode() & 0o077 != 0;
    match found.uid() == rustix::process::geteuid().as_raw() {
        true if is_open => fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?,
        // In a container the directory belongs to the user who created the container.
        false if is_open && !is_first => {
            return Err(io::Error::other("the run directory is accessible to other users"));
        }
        _ => {}
    }
    Ok(dir.to_owned())
}

async fn run(socket: &Path, work_dir: PathBuf, idle: Duration, ready: Option<OwnedFd>) -> io::Result<()> {
    let listener = listen(socket)?;
    // Access is controlled by the directory, so the socket accepts every user.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    create_private_dir(&work_dir)?;
    remove_leftovers(&work_dir);
    let guest = Guest::new(work_dir.clone());
    spawn_local(reap_children());
    let mut stop = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    if let Some(ready) = ready {
        detach_stdio()?;
        rustix::io::write(&ready, b"!")?;
    }
    tokio::select! {
        () = accept_clients(&guest, &listener) => {}
        () = wait_until_idle(&guest, idle) => {}
        _ = stop.recv() => {}
        _ = interrupt.recv() => {}
    }
    // Stops accepting clients first, so that no new request is cut off.
    drop(listener);
    // Another process may have removed it already.
    fs::remove_file(socket).ok();
    for process in guest.table.list() {
        process.kill(hermes_guest::protocol::message::ExitCause::Killed).await;
    }
    remove_leftovers(&work_dir);
    // Only if it is empty.
    fs::remove_dir(work_dir).ok();
    Ok(())
}

/// Removes files of this guest or of a previous one that was killed.
fn remove_leftovers(work_dir: &Path) {
    output::remove_spools(work_dir);
    python::remove_leftover_dirs(work_dir);
}

/// Replaces the socket of a dead guest, but never that of a running one.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(socket) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                return Err(io::Error::other("another guest is already listening on the socket"));
            }
            fs::remove_file(socket)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    }
}

/// The parent process may wait for end of file on its pipes.
fn detach_stdio() -> io::Result<()> {
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

async fn accept_clients(guest: &Rc<Guest>, listener: &UnixListener) {
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        if guest.clients.get() >= limit::MAX_CLIENTS {
            // Leaves the connection in the backlog: a client that is refused would consider the
            // guest broken.
            changed.await;
            continue;
        }
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: some will be closed soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        guest.clients.set(guest.clients.get() + 1);
        let guest = guest.clone();
        spawn_local(async move {
            connection::serve_client(guest.clone(), stream).await;
            guest.clients.set(guest.clients.get() - 1);
            guest.table.changed.notify_waiters();
        });
    }
}

/// Reaps shims and, as process 1, any orphaned process.
async fn reap_children() {
    let Ok(mut child) = signal(SignalKind::child()) else { return };
    loop {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if child.recv().await.is_none() {
            return;
        }
    }
}

/// Returns when the guest has been idle for this long.
async fn wait_until_idle(guest: &Guest, idle: Duration) {
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        let Some(left) = idle.checked_sub(guest.idle_time()).filter(|left| !left.is_zero()) else { return };
        // Checks again after either activity or a timeout.
        drop(tokio::time::timeout(left, changed).await);
    }
}
