//! System calls by number, as an attacker makes them.
#![expect(unsafe_code, reason = "an attack bypasses every wrapper")]

use std::io;

/// Makes a system call with integer arguments; the sixth is zero.
pub(crate) fn call(number: i64, arguments: [i64; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: pointers among the arguments are null or point to values that outlive the call.
    match unsafe { libc::syscall(number, a, b, c, d, e, 0i64) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Forks this process. The child runs `body` and exits with its result.
pub(crate) fn fork(body: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => std::process::exit(body()),
        pid => Ok(pid),
    }
}

/// Waits for a child and returns its wait status.
pub(crate) fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

/// Calls getpid through the 32-bit system call interface.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_of_32_bit_programs() -> i64 {
    let mut result: i64 = 20;
    // SAFETY: getpid takes no argument and changes no memory; all clobbered registers are declared.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}
