//! System calls without a safe wrapper. All unsafe code of this crate is in this file.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in rustix or std")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

pub(crate) enum ForkSide {
    Child,
    /// The caller, with the pid of the child and a pidfd for it.
    Parent(i64, OwnedFd),
}

/// Forks this process into the new namespaces in `flags`.
///
/// Fails if the process has more than one thread: a lock held by another thread would stay locked
/// in the child forever.
pub(crate) fn fork(flags: i32) -> io::Result<ForkSide> {
    if !is_single_threaded()? {
        return Err(io::Error::other("cannot fork a process with more than one thread"));
    }
    let mut pidfd: RawFd = -1;
    // SAFETY: all fields of clone_args are integers, for which zero is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (flags as u32 as u64) | libc::CLONE_PIDFD as u64;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM the child has its own copy of the memory and needs no stack; `args`
    // and `pidfd` outlive the call. The process has one thread, so no lock is left held in the
    // copy.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, ptr::from_mut(&mut args), size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkSide::Child),
        // SAFETY: the kernel just created this descriptor, and nothing else owns it.
        pid => Ok(ForkSide::Parent(pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
    }
}

fn is_single_threaded() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.take(2).count() == 1)
}

/// Adds `flags` (`MOUNT_ATTR_*`) to a mount and its submounts, and makes them private.
pub(crate) fn restrict_mount(mount: BorrowedFd<'_>, flags: u64) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    set_mount_attr(mount, &attr)
}

/// Makes a detached mount and its submounts show the owners of files as a user namespace maps them,
/// and translate them back.
pub(crate) fn map_mount_owners(mount: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?;
    let attr_set = libc::MOUNT_ATTR_IDMAP;
    set_mount_attr(mount, &libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd })
}

fn set_mount_attr(mount: BorrowedFd<'_>, attr: &libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is an empty, NUL-terminated string, and `attr` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    };
    check_result(result)
}

/// Moves this process into a new cgroup namespace, rooted at its current cgroup.
pub(crate) fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: a cgroup namespace changes no memory and no descriptor of this process.
    check_result(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into())
}

/// Duplicates `fd` to `number`, without close-on-exec.
///
/// Closes what was at `number`: the caller owns the whole descriptor table and moved what it still
/// needs.
pub(crate) fn duplicate_to(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 touches no memory; see above for what it closes.
    check_result(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into())
}

/// Closes all descriptors from `first` on.
///
/// Call it at the start of a process, before any value owns one of them.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: see above; nothing uses the closed descriptors.
    check_result(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Marks all descriptors from `first` to `last` close-on-exec.
pub(crate) fn close_on_exec(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: this only sets a flag and closes nothing.
    check_result(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Brings up the loopback interface of a new network namespace.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and contains a NUL-terminated interface name.
    check_result(
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, ptr::from_ref(&request)) }.into(),
    )
}

/// Resets all signals to their default actions, whatever the parent process ignored.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs no code of ours. SIGKILL and SIGSTOP refuse, which
        // changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes a system call with one argument and otherwise null, to see whether it is refused. For the
/// probe.
pub(crate) fn try_syscall(call: i64, argument: i64) -> io::Result<()> {
    // SAFETY: the kernel checks null pointers before it uses them, and none of these calls changes
    // our memory.
    check_result(unsafe { libc::syscall(call, argument, 0i64, 0i64, 0i64, 0i64) })
}

fn check_result(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
