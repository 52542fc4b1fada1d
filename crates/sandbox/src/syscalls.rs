//! The system calls a jail has no use for. Most of them are roads to code of the kernel that few have walked.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Refused with EPERM, as the kernel does when a privilege is missing.
const FORBIDDEN: &[i64] = &[
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

/// Refused with ENOSYS, so that programs fall back to what they did before these existed. The flags of clone3 and
/// openat2 lie in memory, where a filter cannot look.
const UNKNOWN: &[i64] = &[
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

/// The families of sockets an ordinary program needs. Others do not exist in a jail.
const SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Requests to a terminal that put words into somebody else's mouth.
const TERMINAL_TRICKS: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Ordinary, and asking what it is. The one that switches off address randomization is a gift to an attacker.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

/// How packets were read before there was a family for it.
const SOCK_PACKET: i32 = 10;

/// The bits of a socket's type that are its type; the others are flags.
const SOCKET_TYPE: u64 = 0xf;

/// For a jail that runs as root and may not change owners: say yes and do nothing, so that unpacking an archive works.
const OWNERS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
];

/// A set-uid program that a jail leaves in its workspace would give whoever starts it outside the rights of the one
/// the jail works for. So nobody makes one: here are the calls that give a file its mode, and which argument that is.
const MODES: &[(i64, u8)] = &[
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

/// The calls that may make a file: which argument says whether, and which its mode.
const OPENS: &[(i64, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// The bits of a mode that make a program run as its owner or its group.
const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// The flags with which an open makes a file.
const MAKES: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];

/// From here on, up, are the calls of another ABI (x32), which would not be recognized by their numbers.
const OTHER_ABI: u32 = 0x4000_0000;

/// Applies the filter to this process and all it starts.
///
/// Tracing is not refused: a debugger is ordinary work, and the pid namespace leaves nothing to trace but the jail's
/// own processes. A call made by the rules of 32-bit programs kills the process that made it.
pub(crate) fn restrict() -> io::Result<()> {
    let program = program().map_err(|error| io::Error::other(error.to_string()))?;
    seccompiler::apply_filter(&program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other.to_string()),
    })
}

fn program() -> Result<BpfProgram, BackendError> {
    let mut forbidden = Rules::new();
    forbidden.insert(libc::SYS_clone, any(NEW_NAMESPACES.map(|flag| bits(0, flag as u64, flag as u64)))?);
    forbidden
        .insert(libc::SYS_ioctl, any(TERMINAL_TRICKS.map(|request| compare(1, SeccompCmpOp::Eq, request)))?);
    forbidden.insert(libc::SYS_personality, none_of(0, &PERSONALITIES)?);
    for (call, mode) in MODES {
        forbidden.insert(*call, any(SET_ID.map(|bit| bits(*mode, bit, bit)))?);
    }
    for (call, flags, mode) in OPENS {
        let mut rules = Vec::new();
        for (make, bit) in MAKES.iter().flat_map(|make| SET_ID.map(|bit| (*make, bit))) {
            rules.push(SeccompRule::new(vec![bits(*flags, make, make)?, bits(*mode, bit, bit)?])?);
        }
        forbidden.insert(*call, rules);
    }
    let owners = if rustix::process::geteuid().is_root() { OWNERS } else { &[] };
    Ok(join(vec![
        refuse_other_abi().to_vec(),
        compile(forbidden, libc::EPERM)?,
        compile(Rules::from([(libc::SYS_socket, sockets()?)]), libc::EAFNOSUPPORT)?,
        always(&[(FORBIDDEN, libc::EPERM), (UNKNOWN, libc::ENOSYS), (owners, 0)])?,
    ]))
}

/// One program that allows what all of them allow. No call is refused by two, so their order means nothing.
///
/// The kernel would run several as well, but it takes longer to accept them than to make most other parts of a jail.
fn join(programs: Vec<BpfProgram>) -> BpfProgram {
    let last = programs.len().saturating_sub(1);
    let joined = programs.into_iter().enumerate().flat_map(|(index, program)| {
        let length = program.len();
        program.into_iter().enumerate().map(move |(at, instruction)| match instruction {
            // What this one allows is left to the next.
            sock_filter { code, k: libc::SECCOMP_RET_ALLOW, .. } if code == RETURN && index < last => {
                let over = u32::try_from(length - at - 1).unwrap_or(u32::MAX);
                sock_filter { code: JUMP, jt: 0, jf: 0, k: over }
            }
            other => other,
        })
    });
    joined.collect()
}

/// Which sockets are refused.
///
/// Of netlink there is only what `ip`, Node's `os.networkInterfaces` and Go's `net.Interfaces` ask for addresses and
/// routes. In a network of the jail's own they find its loopback interface. In that of the host they find what
/// `/proc/net` shows anyway. Either way they change nothing: that takes a capability over the network, which nobody in
/// the jail has.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    const NETLINK: u64 = libc::AF_NETLINK as u64;
    let mut rules = none_of(0, &SOCKETS.map(|family| family as u64))?;
    for kind in [libc::SOCK_RAW, SOCK_PACKET] {
        let conditions = vec![compare(0, SeccompCmpOp::Ne, NETLINK)?, bits(1, SOCKET_TYPE, kind as u64)?];
        rules.push(SeccompRule::new(conditions)?);
    }
    let other_netlink = vec![
        compare(0, SeccompCmpOp::Eq, NETLINK)?,
        compare(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64)?,
    ];
    rules.push(SeccompRule::new(other_netlink)?);
    Ok(rules)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?)
}

/// Refuses calls whatever their arguments are, each list with its error.
///
/// Asked for one after the other, so many would make the kernel take longer to accept the filter, which it does by
/// running it for every call there is.
fn always(refused: &[(&[i64], i32)]) -> Result<BpfProgram, BackendError> {
    let mut calls: Vec<(u32, u32)> = Vec::new();
    for (list, errno) in refused {
        let numbers = list.iter().map(|call| u32::try_from(*call).unwrap_or(u32::MAX));
        calls.extend(numbers.map(|number| (number, errno.unsigned_abs())));
    }
    calls.sort_unstable();
    let mut program = vec![instruction(LOAD, 0, 0, 0)];
    program.extend(search(&calls)?);
    Ok(program)
}

/// Finds a call among sorted ones by halving.
fn search(calls: &[(u32, u32)]) -> Result<BpfProgram, BackendError> {
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
            let (low, high) = (search(below)?, search(from)?);
            let over = u8::try_from(low.len()).map_err(|_| BackendError::FilterTooLarge(low.len()))?;
            Ok([vec![instruction(IF_AT_LEAST, over, 0, *first)], low, high].concat())
        }
    }
}

/// One rule for each condition: the call is refused if any holds.
fn any<const N: usize>(
    conditions: [Result<SeccompCondition, BackendError>; N],
) -> Result<Vec<SeccompRule>, BackendError> {
    conditions.into_iter().map(|condition| SeccompRule::new(vec![condition?])).collect()
}

/// One rule: the call is refused if the argument is none of these.
fn none_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let unlike = values.iter().map(|value| compare(argument, SeccompCmpOp::Ne, *value));
    Ok(vec![SeccompRule::new(unlike.collect::<Result<_, _>>()?)?])
}

fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    compare(argument, SeccompCmpOp::MaskedEq(mask), value)
}

/// The kernel takes these arguments as 32 bits, so the upper half must not count.
fn compare(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

/// One step of a program. Of the two jumps, the first is taken if what is asked is so.
fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Refuses every call whose number belongs to another ABI of the same machine. What follows loads anew.
fn refuse_other_abi() -> [sock_filter; 4] {
    [
        instruction(LOAD, 0, 0, 0),
        instruction(IF_AT_LEAST, 0, 1, OTHER_ABI),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program that only looks at the number of the call.
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
    fn exactly_the_listed_calls_are_refused_each_with_its_error() {
        let program = always(&[(FORBIDDEN, libc::EPERM), (UNKNOWN, libc::ENOSYS), (OWNERS, 0)]).unwrap();
        for call in 0..600u32 {
            let is_in = |list: &[i64]| list.contains(&i64::from(call));
            let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
            let expected = match (is_in(FORBIDDEN), is_in(UNKNOWN), is_in(OWNERS)) {
                (true, _, _) => errno(libc::EPERM),
                (_, true, _) => errno(libc::ENOSYS),
                (_, _, true) => errno(0),
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(&program, call), expected, "{call}");
        }
    }
}
