//! Attacks that need more than a shell.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::raw;

const WAIT: Duration = Duration::from_secs(5);

pub(crate) fn attempt(name: &str, arguments: &[&str]) -> io::Result<()> {
    let argument = |index: usize| {
        arguments.get(index).copied().ok_or_else(|| io::Error::other("an argument is missing"))
    };
    let number = |index: usize| argument(index)?.parse::<i64>().map_err(io::Error::other);
    let path = |index: usize| CString::new(argument(index)?).map_err(io::Error::other);
    match name {
        "syscall" => {
            let mut numbers = [0; 6];
            for (index, slot) in numbers.iter_mut().enumerate().take(arguments.len()) {
                *slot = number(index)?;
            }
            let [call, rest @ ..] = numbers;
            raw::call(call, rest).map(drop)
        }
        "socket" => raw::call(libc::SYS_socket, [number(0)?, number(1)?, number(2)?, 0, 0]).map(drop),
        // 127.9.9.9/32 on the first interface: family, prefix, flags, scope, index; then IFA_LOCAL.
        "add-address" => {
            netlink(libc::RTM_NEWADDR, &[2, 32, 0, 0, 1, 0, 0, 0, /* attribute */ 8, 0, 2, 0, 127, 9, 9, 9])
        }
        // To 10.9.9.9/32, unreachable: family, lengths, service, table, protocol, scope, type; then
        // RTA_DST.
        "add-route" => netlink(
            libc::RTM_NEWROUTE,
            &[2, 32, 0, 0, 254, 4, 0, 7, 0, 0, 0, 0, /* attribute */ 8, 0, 1, 0, 10, 9, 9, 9],
        ),
        "tcp" => TcpStream::connect_timeout(&argument(0)?.parse().map_err(io::Error::other)?, WAIT).map(drop),
        "udp" => udp(argument(0)?, b"ping"),
        "dns" => udp(argument(0)?, DNS_QUERY),
        "unix" => UnixStream::connect(argument(0)?).map(drop),
        "abstract" => UnixStream::connect_addr(&SocketAddr::from_abstract_name(argument(0)?)?).map(drop),
        "ptrace" => {
            raw::call(libc::SYS_ptrace, [i64::from(libc::PTRACE_SEIZE), number(0)?, 0, 0, 0]).map(drop)
        }
        "read-memory" => {
            let mut byte = 0u8;
            let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let remote = libc::iovec { iov_base: number(1)? as *mut libc::c_void, iov_len: 1 };
            let (local, remote) = (&raw const local as i64, &raw const remote as i64);
            raw::call(libc::SYS_process_vm_readv, [number(0)?, local, 1, remote, 1]).map(drop)
        }
        "setns" => {
            let pidfd = raw::call(libc::SYS_pidfd_open, [number(0)?, 0, 0, 0, 0])?;
            raw::call(libc::SYS_setns, [pidfd, i64::from(libc::CLONE_NEWUTS), 0, 0, 0]).map(drop)
        }
        "setns-by-file" => {
            let file = File::open(argument(0)?)?;
            raw::call(libc::SYS_setns, [i64::from(file.as_raw_fd()), 0, 0, 0, 0]).map(drop)
        }
        "clone" => clone(libc::SYS_clone, number(0)?),
        "clone3" => clone(libc::SYS_clone3, number(0)?),
        "mount" => {
            let (kind, at) = (CString::new("tmpfs")?, path(0)?);
            let pointer = kind.as_ptr() as i64;
            raw::call(libc::SYS_mount, [pointer, at.as_ptr() as i64, pointer, 0, 0]).map(drop)
        }
        "bind" => {
            let (from, at) = (path(0)?, path(1)?);
            let flags = libc::MS_BIND as i64;
            raw::call(libc::SYS_mount, [from.as_ptr() as i64, at.as_ptr() as i64, 0, flags, 0]).map(drop)
        }
        "umount" => {
            let at = path(0)?;
            raw::call(libc::SYS_umount2, [at.as_ptr() as i64, i64::from(libc::MNT_DETACH), 0, 0, 0]).map(drop)
        }
        "fsopen" => {
            let kind = CString::new("tmpfs")?;
            raw::call(libc::SYS_fsopen, [kind.as_ptr() as i64, 0, 0, 0, 0]).map(drop)
        }
        "open-tree" => {
            let at = path(0)?;
            raw::call(libc::SYS_open_tree, [-100, at.as_ptr() as i64, 1, 0, 0]).map(drop)
        }
        "pivot-root" => {
            let at = path(0)?;
            let pointer = at.as_ptr() as i64;
            raw::call(libc::SYS_pivot_root, [pointer, pointer, 0, 0, 0]).map(drop)
        }
        "chroot" => {
            let at = path(0)?;
            raw::call(libc::SYS_chroot, [at.as_ptr() as i64, 0, 0, 0, 0]).map(drop)
        }
        "mknod" => mknod(argument(0)?),
        "tiocsti" => tiocsti(),
        "add-key" => key(libc::SYS_add_key),
        "request-key" => key(libc::SYS_request_key),
        "perf" => perf(),
        "bpf" => bpf(),
        "io-uring" => io_uring(),
        "open-by-handle" => open_by_handle(argument(0)?),
        "32-bit" => thirty_two_bit(),
        "capabilities" => capabilities(),
        "effective-uid" => {
            let wanted = u32::try_from(number(0)?).map_err(io::Error::other)?;
            refuse_unless(rustix::process::geteuid().as_raw() == wanted)
        }
        "make-set-uid" => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o4755).open(argument(0)?)?;
            refuse_unless(made.metadata()?.mode() & 0o4000 != 0)
        }
        "write-same" => {
            let text = fs::read_to_string(argument(0)?)?;
            // A file with choices shows the chosen one in brackets.
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(&text);
            OpenOptions::new().write(true).open(argument(0)?)?.write_all(chosen.as_bytes())
        }
        "open-write" => OpenOptions::new().write(true).open(argument(0)?).map(drop),
        "fork-bomb" => fork_bomb(number(0)?),
        "memory-bomb" => memory_bomb(number(0)?),
        "disk-fill" => disk_fill(Path::new(argument(0)?), number(1)?),
        "inodes" => inodes(Path::new(argument(0)?), number(1)?),
        other => {
            eprintln!("no such attack: {other}");
            std::process::exit(2);
        }
    }
}

/// A query for the address of `a.test`.
const DNS_QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01";

fn udp(address: &str, question: &[u8]) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(WAIT))?;
    // Connected, so that a closed port is reported as an error.
    socket.connect(address)?;
    socket.send(question)?;
    socket.recv(&mut [0; 64]).map(drop)
}

/// Sends a netlink request and reads the kernel's reply.
fn netlink(kind: u16, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let family = i64::from(libc::AF_NETLINK);
    let socket = raw::call(libc::SYS_socket, [family, i64::from(libc::SOCK_RAW), 0, 0, 0])?;
    raw::call(libc::SYS_write, [socket, message.as_ptr() as i64, i64::from(length), 0, 0])?;
    let mut answer = [0; 1024];
    raw::call(libc::SYS_read, [socket, answer.as_mut_ptr() as i64, answer.len() as i64, 0, 0])?;
    // The reply is an error message; errno 0 means success.
    let [.., a, b, c, d] = answer.first_chunk::<20>().copied().unwrap_or([0xff; 20]);
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

fn refuse_unless(done: bool) -> io::Result<()> {
    if done { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Starts a child in new namespaces; it exits immediately.
fn clone(call: i64, flags: i64) -> io::Result<()> {
    let pid = if call == libc::SYS_clone3 {
        let args: [u64; 11] = [flags as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, 0, 0, 0];
        raw::call(call, [args.as_ptr() as i64, size_of_val(&args) as i64, 0, 0, 0])?
    } else {
        raw::call(call, [flags | i64::from(libc::SIGCHLD), 0, 0, 0, 0])?
    };
    if pid == 0 {
        std::process::exit(0);
    }
    raw::wait(pid as i32).map(drop)
}

/// A copy of the null device: harmless, but as forbidden as a disk.
fn mknod(at: &str) -> io::Result<()> {
    let at = CString::new(at)?;
    let mode = i64::from(libc::S_IFCHR | 0o666);
    raw::call(libc::SYS_mknodat, [-100, at.as_ptr() as i64, mode, libc::makedev(1, 3) as i64, 0]).map(drop)
}

/// Injects a byte into the input of its own terminal.
fn tiocsti() -> io::Result<()> {
    let controller = OpenOptions::new().read(true).write(true).open("/dev/ptmx")?;
    let unlock = 0i32;
    let fd = i64::from(controller.as_raw_fd());
    raw::call(libc::SYS_ioctl, [fd, libc::TIOCSPTLCK as i64, &raw const unlock as i64, 0, 0])?;
    let mut index = 0u32;
    raw::call(libc::SYS_ioctl, [fd, libc::TIOCGPTN as i64, &raw mut index as i64, 0, 0])?;
    let pid = raw::fork(|| {
        let put = || -> io::Result<()> {
            rustix::process::setsid()?;
            let terminal = OpenOptions::new().read(true).write(true).open(format!("/dev/pts/{index}"))?;
            let fd = i64::from(terminal.as_fd().as_raw_fd());
            raw::call(libc::SYS_ioctl, [fd, libc::TIOCSCTTY as i64, 0, 0, 0])?;
            let byte = b'x';
            raw::call(libc::SYS_ioctl, [fd, libc::TIOCSTI as i64, &raw const byte as i64, 0, 0]).map(drop)
        };
        i32::from(put().is_err())
    })?;
    refuse_unless(raw::wait(pid)? == 0)
}

fn key(call: i64) -> io::Result<()> {
    let (kind, name) = (CString::new("user")?, CString::new("hermes-test")?);
    let session_of_this_process = -2;
    let payload = b"x";
    let result = if call == libc::SYS_add_key {
        raw::call(
            call,
            [kind.as_ptr() as i64, name.as_ptr() as i64, payload.as_ptr() as i64, 1, session_of_this_process],
        )
    } else {
        raw::call(call, [kind.as_ptr() as i64, name.as_ptr() as i64, 0, session_of_this_process, 0])
    };
    match result {
        // The kernel searched for the key, so the call is allowed.
        Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => Ok(()),
        other => other.map(drop),
    }
}

/// Counts the page faults of this process, the most harmless event.
fn perf() -> io::Result<()> {
    let mut attributes = [0u64; 16];
    attributes[0] = 1 | (128 << 32); // PERF_TYPE_SOFTWARE, size
    attributes[1] = 2; // PERF_COUNT_SW_PAGE_FAULTS
    attributes[5] = 1 << 5 | 1 << 6; // without kernel and hypervisor
    raw::call(libc::SYS_perf_event_open, [attributes.as_ptr() as i64, 0, -1, -1, 0]).map(drop)
}

/// Creates an array map with one entry.
fn bpf() -> io::Result<()> {
    let attributes: [u32; 18] = [2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    raw::call(libc::SYS_bpf, [0, attributes.as_ptr() as i64, size_of_val(&attributes) as i64, 0, 0]).map(drop)
}

fn io_uring() -> io::Result<()> {
    let mut parameters = [0u64; 16];
    raw::call(libc::SYS_io_uring_setup, [1, parameters.as_mut_ptr() as i64, 0, 0, 0]).map(drop)
}

/// Opens a file by handle, without a path that could be masked.
fn open_by_handle(path: &str) -> io::Result<()> {
    let at = CString::new(path)?;
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let mut mount = 0i32;
    let (pointer, mount) = (handle.as_mut_ptr() as i64, &raw mut mount as i64);
    raw::call(libc::SYS_name_to_handle_at, [-100, at.as_ptr() as i64, pointer, mount, 0])?;
    let root = File::open("/")?;
    raw::call(libc::SYS_open_by_handle_at, [i64::from(root.as_raw_fd()), pointer, 0, 0, 0]).map(drop)
}

#[cfg(target_arch = "x86_64")]
fn thirty_two_bit() -> io::Result<()> {
    // In a child, because a refused call kills its process.
    let pid = raw::fork(|| i32::from(raw::getpid_of_32_bit_programs() <= 0))?;
    refuse_unless(raw::wait(pid)? == 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn thirty_two_bit() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Succeeds if this process has, or could get, any capability.
fn capabilities() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let sets = status.lines().filter(|line| line.starts_with("Cap") && !line.starts_with("CapBnd"));
    refuse_unless(
        sets.filter_map(|line| line.split_whitespace().nth(1)).any(|set| set.contains(|c| c != '0')),
    )
}

/// Starts `count` children at once. They exit with this process.
fn fork_bomb(count: i64) -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    let mut children = Vec::new();
    let mut result = Ok(());
    for _ in 0..count {
        let held = raw::fork(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
            reader.read(&mut [0]).map_or(1, |_| 0)
        });
        match held {
            Ok(pid) => children.push(pid),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for pid in children {
        rustix::process::Pid::from_raw(pid)
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        raw::wait(pid)?;
    }
    drop(writer);
    result
}

/// Touches this much memory in a child, which may be killed.
fn memory_bomb(megabytes: i64) -> io::Result<()> {
    let bytes = (megabytes as usize) << 20;
    let pid = raw::fork(|| {
        let mut memory: Vec<u8> = Vec::new();
        if memory.try_reserve_exact(bytes).is_err() {
            return 1;
        }
        memory.resize(bytes, 1);
        i32::from(memory.iter().step_by(4096).map(|byte| usize::from(*byte)).sum::<usize>() != bytes / 4096)
    })?;
    refuse_unless(raw::wait(pid)? == 0)
}

/// Writes this many megabytes to a file and removes it.
fn disk_fill(directory: &Path, megabytes: i64) -> io::Result<()> {
    let path = directory.join("fill");
    let write = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        let block = vec![1; 1 << 20];
        (0..megabytes).try_for_each(|_| file.write_all(&block))
    };
    let result = write();
    fs::remove_file(&path)?;
    result
}

/// Creates this many empty files and removes them.
fn inodes(directory: &Path, count: i64) -> io::Result<()> {
    let inside = directory.join("many");
    fs::create_dir(&inside)?;
    let result = (0..count).try_for_each(|number| File::create(inside.join(number.to_string())).map(drop));
    fs::remove_dir_all(&inside)?;
    result
}
