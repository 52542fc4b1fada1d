//! System calls by their numbers, as an attacker makes them.
#![expect(unsafe_code, reason = "an attack goes around every wrapper")]

use std::io;

/// Makes a system call with numbers for arguments, the sixth of which is zero.
pub(crate) fn call(number: i64, arguments: [i64; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: pointers among the arguments come from values the callers keep alive over the call, or are null.
    match unsafe { libc::syscall(number, a, b, c, d, e, 0i64) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Copies this process. The child runs `body` and ends with its result.
pub(crate) fn fork(body: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => std::process::exit(body()),
        pid => Ok(pid),
    }
}

/// How a child ended: its wait status.
pub(crate) fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

/// Asks for the process number by the calls of 32-bit programs.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_of_32_bit_programs() -> i64 {
    let mut result: i64 = 20;
    // SAFETY: getpid takes no argument and changes no memory; the registers the kernel may clobber are named.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}
