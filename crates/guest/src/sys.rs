//! System calls without a safe wrapper that create namespaces and mounts.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in rustix or std")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Moves this process, which must have one thread, into new namespaces.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: new user and mount namespaces change no memory and no descriptor of this process.
    check_result(unsafe { libc::unshare(flags) }.into())
}

/// Makes a mount and its submounts read-only.
pub(crate) fn set_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attr =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is an empty, NUL-terminated string, and `attr` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            std::ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    };
    check_result(result)
}

fn check_result(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
