//! The seccomp filter: refuses system calls that programs in a jail do not need. Most of them reach
//! rarely used kernel code.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Fail with EPERM, as for a missing privilege.
const EPERM_CALLS: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// Fail with ENOSYS, so that programs fall back to older calls. The flags of clone3 and openat2 are
/// in memory, which a filter cannot inspect.
const ENOSYS_CALLS: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_memfd_secret,
    libc::SYS_openat2,
    LISTMOUNT,
    STATMOUNT,
    OPEN_TREE_ATTR,
    LSM_SET_SELF_ATTR,
];

const FCHMODAT2: i64 = 452;
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const LSM_SET_SELF_ATTR: i64 = 460;
const OPEN_TREE_ATTR: i64 = 467;

/// Socket families that ordinary programs need; all others fail.
const ALLOWED_SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

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

/// System calls of the x32 ABI start here; the filter would not recognize their numbers.
const X32_ABI_START: u32 = 0x4000_0000;

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
    let owners = if rustix::process::geteuid().is_root() { CHOWN_CALLS } else { &[] };
    Ok(join_programs(vec![
        refuse_other_abi().to_vec(),
        compile(forbidden, libc::EPERM)?,
        compile(SeccompRules::from([(libc::SYS_socket, socket_rules()?)]), libc::EAFNOSUPPORT)?,
        refuse_always(&[(EPERM_CALLS, libc::EPERM), (ENOSYS_CALLS, libc::ENOSYS), (owners, 0)])?,
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

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: SeccompRules, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?)
}

/// Refuses calls regardless of their arguments, each list with its error.
///
/// Uses a binary search: the kernel runs a new filter for every system call, which a linear list
/// would slow down.
fn refuse_always(refused: &[(&[i64], i32)]) -> Result<BpfProgram, BackendError> {
    let mut calls: Vec<(u32, u32)> = Vec::new();
    for (list, errno) in refused {
        let numbers = list.iter().map(|call| u32::try_from(*call).unwrap_or(u32::MAX));
        calls.extend(numbers.map(|number| (number, errno.unsigned_abs())));
    }
    calls.sort_unstable();
    let mut program = vec![instruction(LOAD, 0, 0, 0)];
    program.extend(search_calls(&calls)?);
    Ok(program)
}

/// Binary search among sorted calls.
fn search_calls(calls: &[(u32, u32)]) -> Result<BpfProgram, BackendError> {
    let allow = instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    let (below, from) = calls.split_at(calls.len() / 2);
    match (below, from) {
        (_, []) => Ok(vec![allow]),
        ([], [(call, errno), ..]) => Ok(vec![
            instruction(IF_EQUAL, 0, 1, *call),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
            allow,
        ]),
        (_, [(first, _), ..]) => {
            let (low, high) = (search_calls(below)?, search_calls(from)?);
            let over = u8::try_from(low.len()).map_err(|_| BackendError::FilterTooLarge(low.len()))?;
            Ok([vec![instruction(IF_AT_LEAST, over, 0, *first)], low, high].concat())
        }
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
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

/// One instruction. The first jump is taken if the condition holds.
fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Refuses all calls of the x32 ABI. The next program loads the number again.
fn refuse_other_abi() -> [sock_filter; 4] {
    [
        instruction(LOAD, 0, 0, 0),
        instruction(IF_AT_LEAST, 0, 1, X32_ABI_START),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
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
                IF_EQUAL => call == step.k,
                IF_AT_LEAST => call >= step.k,
                other => panic!("{other}"),
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn exactly_the_listed_calls_are_refused_with_their_error() {
        let program =
            refuse_always(&[(EPERM_CALLS, libc::EPERM), (ENOSYS_CALLS, libc::ENOSYS), (CHOWN_CALLS, 0)])
                .unwrap();
        for call in 0..600u32 {
            let is_in = |list: &[i64]| list.contains(&i64::from(call));
            let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
            let expected = match (is_in(EPERM_CALLS), is_in(ENOSYS_CALLS), is_in(CHOWN_CALLS)) {
                (true, _, _) => errno(libc::EPERM),
                (_, true, _) => errno(libc::ENOSYS),
                (_, _, true) => errno(0),
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(&program, call), expected, "{call}");
        }
    }
}
