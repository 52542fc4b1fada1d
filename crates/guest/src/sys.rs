//! System calls without a safe wrapper that create namespaces, mounts and Landlock domains.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in rustix or std")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// The first version of Landlock that has scopes.
pub(crate) const LANDLOCK_ABI_WITH_SCOPES: i64 = 6;
pub(crate) const LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
pub(crate) const LANDLOCK_SCOPE_SIGNAL: u64 = 2;

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct LandlockRulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// The version of Landlock in this kernel.
pub(crate) fn landlock_abi() -> io::Result<i64> {
    // SAFETY: with this flag the call reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<LandlockRulesetAttr>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    check_result(version).map(|()| version)
}

/// A ruleset with these scopes and no other restriction.
pub(crate) fn create_landlock_ruleset(scoped: u64) -> io::Result<OwnedFd> {
    let attr = LandlockRulesetAttr { handled_access_fs: 0, handled_access_net: 0, scoped };
    // SAFETY: `attr` outlives the call, which is given its size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(&attr),
            size_of::<LandlockRulesetAttr>(),
            0_u32,
        )
    };
    check_result(fd)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just created this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves the calling thread, and what it starts from now on, into a new domain.
pub(crate) fn enter_landlock_domain(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and flags, and changes no memory.
    check_result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) })
}

fn check_result(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
