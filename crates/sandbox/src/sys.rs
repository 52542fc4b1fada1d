//! The system calls that have no safe wrapper. Everything unsafe in this crate is in this file.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in rustix or std")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Which side of a [`fork`] this is.
pub(crate) enum Side {
    /// The new process.
    Child,
    /// The old one, which knows the new one by number and by descriptor.
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Starts a copy of this process in the new namespaces named by `flags`.
///
/// The caller must have one thread only: in a copy of a process with more, a lock held by a thread that was not
/// copied stays locked for ever. [`single_threaded`] says so, and is asked first.
pub(crate) fn fork(flags: i32) -> io::Result<Side> {
    if !single_threaded()? {
        return Err(io::Error::other("a process with threads cannot be copied"));
    }
    let mut pidfd: RawFd = -1;
    // SAFETY: all fields of clone_args are integers, for which zero is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (flags as u32 as u64) | libc::CLONE_PIDFD as u64;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM the child gets its own copy of the memory and needs no stack; `args` and `pidfd`
    // outlive the call. There is one thread, so that no lock is left held in the copy.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, ptr::from_mut(&mut args), size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid: i32::try_from(pid).map_err(io::Error::other)?, pidfd })
        }
    }
}

fn single_threaded() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.take(2).count() == 1)
}

/// Adds `flags` (`MOUNT_ATTR_*`) to a mount and to all mounts below it, and cuts them off from what happens to the
/// mounts they were copied from.
pub(crate) fn restrict_mount(mount: BorrowedFd<'_>, flags: u64) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    // SAFETY: the path is an empty string with its end, and `attr` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    };
    done(result)
}

/// Moves this process into a new cgroup namespace, whose top is the cgroup it is in.
pub(crate) fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: a cgroup namespace changes no memory and no descriptor of this process.
    done(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into())
}

/// Puts a copy of `fd` at `number`, where it will survive the start of the program.
///
/// What was at `number` is closed: the caller owns the whole table and has moved what it still needs.
pub(crate) fn place(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 touches no memory; see above for what it closes.
    done(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into())
}

/// Closes all descriptors from `first` up.
///
/// For the very beginning of a process, when no value in it stands for one of them yet.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: see above; nobody uses what is closed.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Marks all descriptors from `first` to `last` to be closed when the program starts.
pub(crate) fn close_on_exec(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: this closes nothing now, it only sets a flag.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Brings up the loopback interface of a new network namespace.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and names an interface by a string with its end.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, ptr::from_ref(&request)) }.into())
}

/// When a process started, in ticks since boot: the 22nd field, counted after the name, which may hold anything.
pub(crate) fn started(pid: i32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    field.and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other("a strange process"))
}

/// Gives every signal its ordinary meaning again, whatever the process that started us ignored.
pub(crate) fn ordinary_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs no code of ours. SIGKILL and SIGSTOP refuse, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes a system call with one number and otherwise null arguments, to see whether it is refused. For the probe.
pub(crate) fn attempt(call: i64, argument: i64) -> io::Result<()> {
    // SAFETY: the kernel checks null pointers before it uses them, and no call that is tried changes our memory.
    done(unsafe { libc::syscall(call, argument, 0i64, 0i64, 0i64, 0i64) })
}

fn done(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
