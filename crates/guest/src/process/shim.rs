//! Keeps the whole tree of one program together. All unsafe code of the guest is in this file.
//!
//! Between the guest and each program stands a small process, the shim. It is forked, not executed, and it is a
//! *subreaper*: whatever the program starts, however often it forks and however it detaches, becomes a child of
//! the shim when its parent dies. So the descendants of the shim are exactly what belongs to the program, at any
//! moment, without cgroups and without a mark in the environment, and the shim ends when nothing is left.
//!
//! The shim tells the guest three things through one pipe: the pid of the program, its wait status when it ends,
//! and, with its last word, that the tree is gone. A pipe that ends without that word means that the shim was killed.
//! If the guest dies, the kernel sends the
//! shim SIGTERM, and it kills the tree. If somebody kills the shim, the kernel kills the program; what the program
//! left behind becomes a child of the guest, which has no other children but shims and kills it.
//!
//! The shim runs between fork and exec of a process that may have threads, so it may only make system calls: no
//! allocation, no locks.

#![expect(unsafe_code, reason = "fork, pre_exec and waiting for signals have no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal};
use tokio::io::unix::AsyncFd;

use super::tree;

/// The last word of a shim that has nothing left to look after; no wait status looks like it.
pub(super) const FAREWELL: i32 = -1;

/// A program under its shim.
#[derive(Debug)]
pub(crate) struct Shimmed {
    pub(crate) shim: Pid,
    /// The program itself, leader of its own session and process group.
    pub(crate) main: Pid,
    /// Gives the wait status and the last word, four bytes each, and ends with the shim.
    pub(crate) status: OwnedFd,
}

/// Whether the program's standard input becomes its controlling terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controlling {
    Terminal,
    Nothing,
}

/// Starts a prepared command in a directory, under a shim.
pub(crate) fn spawn(mut command: Command, dir: OwnedFd, controlling: Controlling) -> io::Result<Shimmed> {
    let (status, status_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let guest = rustix::process::getpid();
    // SAFETY: the closure runs in the forked child and only makes system calls, see the head of this file.
    unsafe {
        command.pre_exec(move || fork_again(guest, status_end.as_fd(), dir.as_fd(), controlling));
    }
    let child = command.spawn()?;
    // The closure owns the guest's copy of the writing end; the pipe must end with the shim.
    drop(command);
    let shim = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
    let mut pid = [0; 4];
    io::Read::read_exact(&mut File::from(status.try_clone()?), &mut pid)?;
    let main = Pid::from_raw(i32::from_ne_bytes(pid)).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Shimmed { shim, main, status })
}

/// Splits the forked child in two: the shim, which stays here, and the program, which returns to be executed.
fn fork_again(
    guest: Pid,
    status: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    controlling: Controlling,
) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if rustix::process::getppid() != Some(guest) {
        exit();
    }
    let shim = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(shim))?;
    set_mask(Mask::All);
    // SAFETY: both sides go on with system calls only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            set_mask(Mask::None);
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(shim) {
                exit();
            }
            rustix::process::setsid()?;
            rustix::process::fchdir(dir)?;
            if controlling == Controlling::Terminal {
                // SAFETY: descriptor 0 was set up by `Command` and stays open.
                rustix::process::ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
            }
            Ok(())
        }
        main => watch(main, status),
    }
}

/// What the shim does all its life.
fn watch(main: i32, status: BorrowedFd<'_>) -> ! {
    tell(status, [main]);
    close_all_but(status);
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

/// Reaps children: with `WNOHANG` all that are dead, else the next one to die. Ends the shim with its last child.
///
/// A program that leaves nothing behind ends at the same moment as its tree: both are told at once, so that nobody who
/// is told of the one finds something of the other.
fn reap(main: i32, status: BorrowedFd<'_>, options: i32) {
    let mut ended = None;
    loop {
        let mut wait_status = 0;
        // SAFETY: the pointer is to a local.
        match unsafe { libc::waitpid(-1, &raw mut wait_status, options) } {
            -1 => {
                match ended {
                    Some(ended) => tell(status, [ended, FAREWELL]),
                    None => tell(status, [FAREWELL]),
                }
                exit();
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
        tell(status, [ended]);
    }
}

/// Kills the direct children; theirs become ours, and are killed in the next round.
fn kill_children() {
    let shim = rustix::process::getpid();
    // Nothing can be done, and nobody told, if /proc cannot be read.
    drop(tree::each_process(|process| {
        if process.parent == Some(shim) {
            rustix::process::kill_process(process.pid, Signal::KILL).ok();
        }
    }));
}

fn tell<const COUNT: usize>(status: BorrowedFd<'_>, numbers: [i32; COUNT]) {
    // The pipe has room, and a guest that is gone needs no telling.
    rustix::io::write(status, numbers.map(i32::to_ne_bytes).as_flattened()).ok();
}

fn close_all_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd().unsigned_abs();
    close_range(0, kept - 1);
    close_range(kept + 1, u32::MAX);
}

/// Closes what a starter left open by mistake, so that no command can inherit it. For the beginning of the guest,
/// when it has opened nothing itself.
pub(crate) fn close_inherited() {
    close_range(3, u32::MAX);
}

/// Nobody may use these descriptors from here on.
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

enum Mask {
    All,
    None,
}

fn set_mask(mask: Mask) {
    // SAFETY: the set is a local that is filled before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        match mask {
            Mask::All => libc::sigfillset(&raw mut set),
            Mask::None => libc::sigemptyset(&raw mut set),
        };
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

fn exit() -> ! {
    // SAFETY: ends the process at once, without what libc does at exit for the guest.
    unsafe { libc::_exit(0) }
}

/// Lets the runtime wait for a descriptor.
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    // SAFETY: an `OwnedFd` is open until it is dropped, and the `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Leaves the guest in a child of its own, so that whoever started it can go on. Returns in the child, with the
/// pipe on which to say that it is ready; the parent ends when that was said, or fails when it was not.
pub(crate) fn detach() -> io::Result<OwnedFd> {
    let (ready, say_ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: there is one thread yet.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::setsid()?;
            Ok(say_ready)
        }
        _child => {
            drop(say_ready);
            let mut byte = [0];
            let said = rustix::io::read(&ready, &mut byte).unwrap_or(0);
            std::process::exit(i32::from(said == 0));
        }
    }
}

/// Stands in for libc's lookup of a user, by which the standard library finds a home that no variable names. That of
/// a static glibc loads libraries of the place, which may be of another glibc.
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

/// Stands in for libc's look at a thread's stack, by which the standard library names an overflow when there is one.
/// It reads and parses `/proc/self/maps` at every start, and is a large part of a static glibc.
#[unsafe(no_mangle)]
extern "C" fn pthread_getattr_np(
    _thread: libc::pthread_t,
    _attributes: *mut libc::pthread_attr_t,
) -> libc::c_int {
    libc::ENOSYS
}
