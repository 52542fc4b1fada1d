//! Tracks the whole process tree of one program. All unsafe code of the guest is in this file.
//!
//! Between the guest and each program runs a small process, the shim. It is forked, not executed,
//! and it is a *subreaper*: whatever the program starts, however often it forks and however it
//! detaches, becomes a child of the shim when its parent dies. So the descendants of the shim are
//! exactly the processes of the program, at any moment, without cgroups and without a marker in the
//! environment. The shim exits when none is left.
//!
//! The shim sends three values through one pipe: the pid of the program, its wait status when it
//! exits, and finally [`TREE_GONE`]. A pipe that ends without that value means that the shim was
//! killed. If the guest dies, the kernel sends the shim SIGTERM, and the shim kills the tree. If
//! another process kills the shim, the kernel kills the program; orphaned descendants become
//! children of the guest, which has no other children but shims and kills them.
//!
//! The shim runs between fork and exec of a process that may have threads, so it may only make
//! system calls: no allocation, no locks.

#![expect(unsafe_code, reason = "fork, pre_exec and waiting for signals have no safe wrapper")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space};
use tokio::io::unix::AsyncFd;

use super::tree;
use crate::view::View;

/// Sent when the process tree is gone; no wait status has this value.
pub(super) const TREE_GONE: i32 = -1;

/// A program and its shim.
#[derive(Debug)]
pub(crate) struct ShimmedProcess {
    pub(crate) shim: Pid,
    /// The program itself, leader of its own session and process group.
    pub(crate) main: Pid,
    /// Carries the wait status and `TREE_GONE`, four bytes each; ends with the shim.
    pub(crate) status: OwnedFd,
}

/// Which descriptor becomes the controlling terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControllingTerminal {
    Stdin,
    None,
}

/// What the forked child does before it executes the program.
pub(crate) struct ProgramSetup {
    pub(crate) dir: OwnedFd,
    /// The path of `dir`. In a view, a descriptor of the directory would lead out of it.
    pub(crate) path: CString,
    pub(crate) view: Option<Arc<View>>,
    /// Descriptors that the program inherits under these numbers.
    pub(crate) inherited: Vec<(OwnedFd, i32)>,
    pub(crate) controlling: ControllingTerminal,
}

/// Starts a command under a shim.
pub(crate) fn spawn_under_shim(mut command: Command, setup: ProgramSetup) -> io::Result<ShimmedProcess> {
    let (status, status_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let guest = rustix::process::getpid();
    let thread = setup.view.as_ref().and_then(|view| view.thread.clone());
    // SAFETY: the closure runs in the forked child and only makes system calls; see the head of
    // this file.
    unsafe {
        command.pre_exec(move || fork_program(guest, status_end.as_fd(), &setup));
    }
    let spawn = move || {
        let child = command.spawn();
        // It owns the guest's copy of the writing end; the pipe must end with the shim.
        drop(command);
        child
    };
    let child = match thread {
        Some(thread) => thread.run(spawn)?,
        None => spawn(),
    }?;
    let shim = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
    let mut pid = [0; 4];
    io::Read::read_exact(&mut File::from(status.try_clone()?), &mut pid)?;
    let main = Pid::from_raw(i32::from_ne_bytes(pid)).ok_or(io::ErrorKind::InvalidData)?;
    Ok(ShimmedProcess { shim, main, status })
}

/// Forks the child again: the parent becomes the shim, the child returns and is executed.
fn fork_program(guest: Pid, status: BorrowedFd<'_>, setup: &ProgramSetup) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if rustix::process::getppid() != Some(guest) {
        exit_now();
    }
    let shim = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(shim))?;
    set_signal_mask(libc::sigfillset);
    // SAFETY: both sides go on with system calls only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            set_signal_mask(libc::sigemptyset);
            match &setup.view {
                Some(view) => {
                    enter_view(view)?;
                    rustix::process::chdir(setup.path.as_c_str())?;
                }
                None => rustix::process::fchdir(&setup.dir)?,
            }
            // Entering a view clears the signal.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(shim) {
                exit_now();
            }
            rustix::process::setsid()?;
            for (fd, number) in &setup.inherited {
                duplicate_to(fd.as_fd(), *number)?;
            }
            if setup.controlling == ControllingTerminal::Stdin {
                // SAFETY: descriptor 0 was set up by `Command` and stays open.
                rustix::process::ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
            }
            Ok(())
        }
        main => run_shim(main, status),
    }
}

/// Capabilities with which root could leave a view or read around it.
const VIEW_CAPABILITIES: [CapabilitySet; 9] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::MKNOD,
    CapabilitySet::BPF,
    CapabilitySet::PERFMON,
];

/// Moves this process into a view and drops the capabilities to leave it.
fn enter_view(view: &View) -> io::Result<()> {
    if let Some(namespace) = &view.user_namespace {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(view.mount_namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let mut dropped = VIEW_CAPABILITIES.into_iter().fold(CapabilitySet::empty(), |all, one| all | one);
    if !view.has_allowance {
        // A process may inspect another one that has no capability beyond its own. Without this
        // unused one, it cannot reach into a view that shows more.
        dropped |= CapabilitySet::WAKE_ALARM;
    }
    for capability in dropped.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel does not know it.
            Err(rustix::io::Errno::INVAL) => {}
            other => other?,
        }
    }
    let is_root = view.user_namespace.is_none();
    let kept = if is_root {
        rustix::thread::capabilities(None)?.permitted - dropped
    } else {
        CapabilitySet::empty()
    };
    let inheritable = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(())
}

/// Duplicates a descriptor to a number that the program inherits.
fn duplicate_to(fd: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: nothing in the forked child uses the descriptor that had this number.
    match unsafe { libc::dup2(fd.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The main loop of the shim.
fn run_shim(main: i32, status: BorrowedFd<'_>) -> ! {
    write_status(status, [main]);
    close_all_except(status);
    loop {
        reap(main, status, libc::WNOHANG);
        if wait_for_signal() == libc::SIGTERM {
            loop {
                kill_children();
                reap(main, status, 0);
            }
        }
    }
}

/// Reaps children: with `WNOHANG` all dead ones, otherwise the next one to die. Exits the shim with
/// its last child.
///
/// If the program leaves no descendants, both values are sent in one write, so that the guest never
/// sees an exited program with a living tree.
fn reap(main: i32, status: BorrowedFd<'_>, options: i32) {
    let mut ended = None;
    loop {
        let mut wait_status = 0;
        // SAFETY: the pointer is to a local.
        match unsafe { libc::waitpid(-1, &raw mut wait_status, options) } {
            -1 => {
                match ended {
                    Some(ended) => write_status(status, [ended, TREE_GONE]),
                    None => write_status(status, [TREE_GONE]),
                }
                exit_now();
            }
            0 => break,
            pid if pid == main => ended = Some(wait_status),
            _ => {}
        }
        if options == 0 {
            break;
        }
    }
    if let Some(ended) = ended {
        write_status(status, [ended]);
    }
}

/// Kills the direct children; their children are reparented to the shim and killed in the next
/// round.
fn kill_children() {
    let shim = rustix::process::getpid();
    // Nothing can be done if /proc cannot be read.
    drop(tree::for_each_process(|process| {
        if process.parent == Some(shim) {
            rustix::process::kill_process(process.pid, Signal::KILL).ok();
        }
    }));
}

fn write_status<const COUNT: usize>(status: BorrowedFd<'_>, numbers: [i32; COUNT]) {
    // The pipe never fills up, and a dead guest needs no report.
    rustix::io::write(status, numbers.map(i32::to_ne_bytes).as_flattened()).ok();
}

fn close_all_except(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd().unsigned_abs();
    close_range(0, kept - 1);
    close_range(kept + 1, u32::MAX);
}

/// Closes descriptors leaked by the parent process, so that no command inherits them. Must run
/// before the guest opens anything.
pub(crate) fn close_inherited() {
    close_range(3, u32::MAX);
}

/// Closes a range of descriptors, which nothing may use afterwards.
fn close_range(first: u32, last: u32) {
    // SAFETY: the callers see to it that nothing in this process owns one of them.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done != 0 {
        // Before Linux 5.9: one by one, up to the limit.
        let top = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let top = top.and_then(|top| u32::try_from(top).ok()).unwrap_or(1024).min(65_536);
        for fd in first..=last.min(top) {
            // SAFETY: as above.
            unsafe { libc::close(fd.cast_signed()) };
        }
    }
}

/// Sets the signal mask to the set that `fill` makes.
fn set_signal_mask(fill: unsafe extern "C" fn(*mut libc::sigset_t) -> libc::c_int) {
    // SAFETY: the set is a local that is filled before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        fill(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Waits for SIGCHLD or SIGTERM. Both are blocked, so none is lost between two calls.
fn wait_for_signal() -> i32 {
    // SAFETY: the set is a local that is filled before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigwaitinfo(&raw const set, std::ptr::null_mut())
    }
}

fn exit_now() -> ! {
    // SAFETY: ends the process immediately, without the exit handlers of the guest.
    unsafe { libc::_exit(0) }
}

/// Registers a descriptor with the runtime.
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    // SAFETY: an `OwnedFd` is open until it is dropped, and the `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Continues in a forked child, so that the parent process can return. The result is the pipe on
/// which the child reports that it is ready; the parent exits with 0 after that report, otherwise
/// with 1.
pub(crate) fn detach() -> io::Result<OwnedFd> {
    let (ready, ready_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the process has a single thread at this point.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::setsid()?;
            Ok(ready_writer)
        }
        _child => {
            drop(ready_writer);
            let mut byte = [0];
            let count = rustix::io::read(&ready, &mut byte).unwrap_or(0);
            std::process::exit(i32::from(count == 0));
        }
    }
}

/// Replaces libc's user lookup, with which the standard library finds a home directory. The lookup
/// of a static glibc loads shared libraries of the environment, which may belong to another version
/// of glibc.
#[unsafe(no_mangle)]
extern "C" fn getpwuid_r(
    _uid: libc::uid_t,
    _entry: *mut libc::passwd,
    _buffer: *mut libc::c_char,
    _length: libc::size_t,
    _found: *mut *mut libc::passwd,
) -> libc::c_int {
    libc::ENOENT
}

/// Replaces libc's stack inspection, with which the standard library reports a stack overflow. It
/// parses `/proc/self/maps` at every start and is a large part of a static glibc.
#[unsafe(no_mangle)]
extern "C" fn pthread_getattr_np(
    _thread: libc::pthread_t,
    _attributes: *mut libc::pthread_attr_t,
) -> libc::c_int {
    libc::ENOSYS
}
