//! The seccomp filter: allows the system calls that ordinary programs need, like the default profile
//! of container engines. Most others reach rarely used kernel code.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// The calls that programs may make, as container engines allow them: all others are for
/// administration, obsolete, or need privileges that no process in a jail has. The arguments of
/// some are restricted below.
const ALLOWED_CALLS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_adjtimex,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fanotify_mark,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_mremap,
    libc::SYS_mseal,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_name_to_handle_at,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_personality,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pselect6,
    libc::SYS_ptrace,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_remap_file_pages,
    libc::SYS_removexattr,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_setuid,
    libc::SYS_setxattr,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    CACHESTAT,
    FCHMODAT2,
    MAP_SHADOW_STACK,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
];

/// Older forms, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD_CALLS: &[i64] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_get_thread_area,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_set_thread_area,
    libc::SYS_setrlimit,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD_CALLS: &[i64] = &[];

/// From this number on, calls are so new that programs expect kernels without them, and fall back to
/// older calls if they are told so. Others fail as for a missing privilege. The flags of clone3 and
/// openat2 are in memory, which a filter cannot inspect.
const FIRST_NEW_CALL: u32 = 424;

/// All calls from this number on are refused.
const END_OF_CALLS: u32 = 600;

const CACHESTAT: i64 = 451;
const FCHMODAT2: i64 = 452;
const MAP_SHADOW_STACK: i64 = 453;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;

/// Socket families that ordinary programs need; all others fail.
const ALLOWED_SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Internet protocols, with the default of the socket type. Others make the kernel load modules.
const ALLOWED_PROTOCOLS: [i32; 5] =
    [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];

/// Terminal requests that inject input.
const FORBIDDEN_IOCTLS: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The default, and the query. Disabling address randomization would help an attacker.
const ALLOWED_PERSONALITIES: [u64; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

/// The obsolete way to receive packets.
const SOCK_PACKET: i32 = 10;

/// The type bits of a socket type; the others are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Succeed without effect in a jail that runs as root and cannot change owners, so that unpacking
/// an archive works.
const CHOWN_CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
];

/// System calls that set a file mode, with the index of the mode argument. Set-user-ID modes are
/// refused: such a program in the workspace would give its caller outside the rights of the jail's
/// user.
const MODE_CALLS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];

/// System calls that may create a file, with the indexes of the flags and mode arguments.
const OPEN_CALLS: &[(i64, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// Mode bits that make a program run as its owner or group.
const SET_ID_BITS: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// Flags with which open creates a file.
const CREATE_FLAGS: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];

/// Applies the filter to this process and its descendants.
///
/// Tracing is allowed: debuggers are ordinary programs, and the pid namespace contains only the
/// jail's own processes. A 32-bit system call kills its process.
pub(crate) fn install_filter() -> io::Result<()> {
    let program = build_filter().map_err(|error| io::Error::other(error.to_string()))?;
    seccompiler::apply_filter(&program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other.to_string()),
    })
}

fn build_filter() -> Result<BpfProgram, BackendError> {
    let mut forbidden = SeccompRules::new();
    forbidden
        .insert(libc::SYS_clone, any_of(NAMESPACE_FLAGS.map(|flag| bits_set(0, flag as u64, flag as u64)))?);
    forbidden.insert(
        libc::SYS_ioctl,
        any_of(FORBIDDEN_IOCTLS.map(|request| compare_argument(1, SeccompCmpOp::Eq, request)))?,
    );
    forbidden.insert(libc::SYS_personality, none_of(0, &ALLOWED_PERSONALITIES)?);
    for (call, mode) in MODE_CALLS {
        forbidden.insert(*call, any_of(SET_ID_BITS.map(|bit| bits_set(*mode, bit, bit)))?);
    }
    for (call, flags, mode) in OPEN_CALLS {
        let mut rules = Vec::new();
        for (make, bit) in CREATE_FLAGS.iter().flat_map(|make| SET_ID_BITS.map(|bit| (*make, bit))) {
            rules.push(SeccompRule::new(vec![bits_set(*flags, make, make)?, bits_set(*mode, bit, bit)?])?);
        }
        forbidden.insert(*call, rules);
    }
    let families = SeccompRules::from([
        (libc::SYS_socket, socket_rules()?),
        // The only other family with pairs is that of clusters.
        (libc::SYS_socketpair, none_of(0, &[libc::AF_UNIX as u64])?),
    ]);
    let owners = if rustix::process::geteuid().is_root() { CHOWN_CALLS } else { &[] };
    Ok(join_programs(vec![
        compile(forbidden, libc::EPERM)?,
        compile(families, libc::EAFNOSUPPORT)?,
        compile(SeccompRules::from([(libc::SYS_socket, protocol_rules()?)]), libc::EPROTONOSUPPORT)?,
        decide_by_number(owners)?,
    ]))
}

/// Joins programs into one that allows what all of them allow. No call is refused by two programs,
/// so their order does not matter.
///
/// The kernel could run several filters, but installing them takes longer than most other parts of
/// the setup.
fn join_programs(programs: Vec<BpfProgram>) -> BpfProgram {
    let last = programs.len().saturating_sub(1);
    let joined = programs.into_iter().enumerate().flat_map(|(index, program)| {
        let length = program.len();
        program.into_iter().enumerate().map(move |(at, instruction)| match instruction {
            // The next program decides about calls that this one allows.
            sock_filter { code, k: libc::SECCOMP_RET_ALLOW, .. } if code == RETURN && index < last => {
                let over = u32::try_from(length - at - 1).unwrap_or(u32::MAX);
                sock_filter { code: JUMP, jt: 0, jf: 0, k: over }
            }
            other => other,
        })
    });
    joined.collect()
}

/// Rules for refused sockets.
///
/// Of netlink, only the route family is allowed, which `ip`, Node's `os.networkInterfaces` and Go's
/// `net.Interfaces` use to list addresses and routes. In a private network they find the loopback
/// interface; in that of the host they find what `/proc/net` shows anyway. Changes need a
/// capability that no process in the jail has.
fn socket_rules() -> Result<Vec<SeccompRule>, BackendError> {
    const NETLINK: u64 = libc::AF_NETLINK as u64;
    let mut rules = none_of(0, &ALLOWED_SOCKET_FAMILIES.map(|family| family as u64))?;
    for kind in [libc::SOCK_RAW, SOCK_PACKET] {
        let conditions = vec![
            compare_argument(0, SeccompCmpOp::Ne, NETLINK)?,
            bits_set(1, SOCKET_TYPE_MASK, kind as u64)?,
        ];
        rules.push(SeccompRule::new(conditions)?);
    }
    let other_netlink = vec![
        compare_argument(0, SeccompCmpOp::Eq, NETLINK)?,
        compare_argument(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64)?,
    ];
    rules.push(SeccompRule::new(other_netlink)?);
    Ok(rules)
}

/// Rules for refused protocols.
fn protocol_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let of_family = |family: i32| {
        let mut conditions = vec![compare_argument(0, SeccompCmpOp::Eq, family as u64)];
        let other = |protocol: i32| compare_argument(2, SeccompCmpOp::Ne, protocol as u64);
        conditions.extend(ALLOWED_PROTOCOLS.map(other));
        SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
    };
    [libc::AF_INET, libc::AF_INET6].into_iter().map(of_family).collect()
}

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: SeccompRules, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?)
}

/// Decides about calls regardless of their arguments; `ignored` ones succeed without effect.
fn decide_by_number(ignored: &[i64]) -> Result<BpfProgram, BackendError> {
    let decision = |call: u32| {
        let is_in = |list: &[i64]| list.contains(&i64::from(call));
        let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
        if is_in(ignored) {
            errno(0)
        } else if is_in(ALLOWED_CALLS) || is_in(ALLOWED_OLD_CALLS) {
            libc::SECCOMP_RET_ALLOW
        } else {
            errno(if call < FIRST_NEW_CALL { libc::EPERM } else { libc::ENOSYS })
        }
    };
    // The last range has no end, so it includes the numbers of the x32 ABI.
    let mut ranges: Vec<(u32, u32)> = (0..END_OF_CALLS).map(|call| (call, decision(call))).collect();
    ranges.dedup_by_key(|(_, decision)| *decision);
    let mut program = vec![instruction(LOAD, 0, 0, 0)];
    program.extend(search_ranges(&ranges)?);
    Ok(program)
}

/// Binary search among ranges of numbers, each with its start and result: the kernel runs a new
/// filter for every system call, which a linear list would slow down.
fn search_ranges(ranges: &[(u32, u32)]) -> Result<BpfProgram, BackendError> {
    let (below, from) = ranges.split_at(ranges.len() / 2);
    match (below, from) {
        ([], [(_, decision), ..]) => Ok(vec![instruction(RETURN, 0, 0, *decision)]),
        (_, [(first, _), ..]) => {
            let (low, high) = (search_ranges(below)?, search_ranges(from)?);
            let over = u8::try_from(low.len()).map_err(|_| BackendError::FilterTooLarge(low.len()))?;
            Ok([vec![instruction(IF_AT_LEAST, over, 0, *first)], low, high].concat())
        }
        (_, []) => Ok(Vec::new()),
    }
}

/// One rule per condition: the call is refused if any holds.
fn any_of<const N: usize>(
    conditions: [Result<SeccompCondition, BackendError>; N],
) -> Result<Vec<SeccompRule>, BackendError> {
    conditions.into_iter().map(|condition| SeccompRule::new(vec![condition?])).collect()
}

/// One rule: the call is refused if the argument has none of these values.
fn none_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let unlike = values.iter().map(|value| compare_argument(argument, SeccompCmpOp::Ne, *value));
    Ok(vec![SeccompRule::new(unlike.collect::<Result<_, _>>()?)?])
}

fn bits_set(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    compare_argument(argument, SeccompCmpOp::MaskedEq(mask), value)
}

/// The kernel uses 32 bits of these arguments, so the upper half must be ignored.
fn compare_argument(
    argument: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

/// One instruction. The first jump is taken if the condition holds.
fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program that only inspects the system call number.
    fn run(program: &[sock_filter], call: u32) -> u32 {
        let mut at = 0;
        loop {
            let step = &program[at];
            let holds = match step.code {
                RETURN => return step.k,
                LOAD => {
                    at += 1;
                    continue;
                }
                IF_AT_LEAST => call >= step.k,
                other => panic!("{other}"),
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn only_listed_calls_are_allowed_and_new_ones_are_unknown() {
        let program = decide_by_number(CHOWN_CALLS).unwrap();
        let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
        let x32_read = 0x4000_0000;
        for call in (0..1000).chain([x32_read, u32::MAX]) {
            let is_in = |list: &[i64]| list.contains(&i64::from(call));
            let expected = match (is_in(CHOWN_CALLS), is_in(ALLOWED_CALLS) || is_in(ALLOWED_OLD_CALLS)) {
                (true, _) => errno(0),
                (_, true) => libc::SECCOMP_RET_ALLOW,
                _ => errno(if call < 424 { libc::EPERM } else { libc::ENOSYS }),
            };
            assert_eq!(run(&program, call), expected, "{call}");
        }
        let of = |call: i64| run(&program, u32::try_from(call).unwrap());
        let refused = [libc::SYS_mount, libc::SYS_clone3, libc::SYS_io_uring_setup];
        assert_eq!(refused.map(of), [errno(libc::EPERM), errno(libc::ENOSYS), errno(libc::ENOSYS)]);
    }
}
