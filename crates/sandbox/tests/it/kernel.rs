//! Attacks on the kernel's interfaces.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hermes_sandbox::Network;

use crate::attack::{Attack, Control, plain, shell, testbed};
use crate::bed::{NOBODY, copy, everybody};

/// CLONE_NEWUSER
const NEW_USER: &str = "268435456";

/// A system call with numbers for arguments.
fn syscall(number: i64, arguments: &'static [&'static str]) -> Attack {
    shell(move |bed| format!("{} attack syscall {number} {}", bed.text("testbed"), arguments.join(" ")))
}

#[test]
fn a_user_namespace_is_not_made_by_unshare() {
    syscall(libc::SYS_unshare, &[NEW_USER]).is_refused();
}

#[test]
fn a_user_namespace_is_not_made_by_clone() {
    testbed(|_| ["clone".into(), NEW_USER.into()]).is_refused();
}

#[test]
fn a_user_namespace_is_not_made_by_clone3() {
    testbed(|_| ["clone3".into(), NEW_USER.into()]).is_refused();
}

#[test]
fn the_unshare_command_is_refused() {
    shell(|_| "unshare -Ur true 2>/dev/null".to_owned()).is_refused();
}

#[test]
fn nothing_is_mounted() {
    testbed(|bed| ["mount".into(), bed.text("work")]).control(Control::Namespaces("-Urm")).is_refused();
}

#[test]
fn nothing_is_bound_elsewhere() {
    testbed(|bed| ["bind".into(), bed.text("home"), bed.text("work")])
        .freely(|bed| format!("mount --rbind {} {}", bed.text("home"), bed.text("work")))
        .control(Control::Namespaces("-Urm"))
        .is_refused();
}

#[test]
fn nothing_is_mounted_by_the_new_calls() {
    plain("fsopen").control(Control::Namespaces("-Urm")).is_refused();
}

#[test]
fn no_mount_is_copied() {
    plain("open-tree /dev/shm").control(Control::Namespaces("-Urm")).is_refused();
}

#[test]
fn the_root_is_not_changed() {
    plain("pivot-root /dev/shm")
        .freely(|bed| format!("mount -t tmpfs none /mnt && {} attack pivot-root /mnt", bed.text("testbed")))
        .control(Control::Namespaces("-Urm"))
        .is_refused();
}

#[test]
fn there_is_no_chroot() {
    plain("chroot /tmp").control(Control::Namespaces("-Ur")).is_refused();
}

#[test]
fn ones_own_namespaces_are_not_entered_again() {
    plain("setns-by-file /proc/self/ns/uts").control(Control::Root).is_refused();
}

#[test]
fn the_host_name_is_not_changed() {
    shell(|_| "hostname other 2>/dev/null".to_owned()).control(Control::Namespaces("-Uru")).is_refused();
}

#[test]
fn no_words_are_put_into_a_terminal() {
    plain("tiocsti").control(Control::Root).is_refused();
}

#[test]
fn no_key_is_added() {
    plain("add-key").is_refused();
}

#[test]
fn no_key_is_requested() {
    plain("request-key").is_refused();
}

#[test]
fn no_keyring_is_joined() {
    // KEYCTL_GET_KEYRING_ID of the session keyring, made if it is not there.
    syscall(libc::SYS_keyctl, &["0", "-3", "1"]).is_refused();
}

#[test]
fn no_events_are_counted() {
    plain("perf").is_refused();
}

#[test]
fn no_bpf_map_is_made() {
    plain("bpf").control(Control::Root).is_refused();
}

#[test]
fn no_ring_is_set_up() {
    plain("io-uring").is_refused();
}

#[test]
fn no_page_faults_are_handled() {
    // UFFD_USER_MODE_ONLY
    syscall(libc::SYS_userfaultfd, &["1"]).is_refused();
}

#[test]
fn no_file_is_opened_by_handle() {
    testbed(|bed| ["open-by-handle".into(), bed.text("work")]).control(Control::Root).is_refused();
}

#[test]
fn addresses_stay_random() {
    // ADDR_NO_RANDOMIZE
    syscall(libc::SYS_personality, &["262144"]).is_refused();
}

#[test]
fn the_calls_of_32_bit_programs_are_refused() {
    plain("32-bit").is_refused();
}

#[test]
fn there_are_no_raw_sockets() {
    plain("socket 2 3 1").control(Control::Root).is_refused();
}

#[test]
fn of_netlink_there_is_nothing_but_addresses_and_routes() {
    for protocol in [
        libc::NETLINK_USERSOCK,
        libc::NETLINK_SOCK_DIAG,
        libc::NETLINK_XFRM,
        libc::NETLINK_AUDIT,
        libc::NETLINK_NETFILTER,
        libc::NETLINK_KOBJECT_UEVENT,
        libc::NETLINK_GENERIC,
    ] {
        let attack = testbed(move |_| ["socket".into(), "16".into(), "3".into(), protocol.to_string()]);
        attack.is_refused();
    }
}

#[test]
fn no_address_is_added_to_the_network() {
    plain("add-address").control(Control::Namespaces("-Urn")).is_refused();
}

#[test]
fn no_address_is_added_to_the_network_of_the_host() {
    let attack = plain("add-address").control(Control::Namespaces("-Urn"));
    attack.jail(|_, jail| jail.network = Network::Full).is_refused();
}

#[test]
fn no_route_is_added_to_the_network() {
    plain("add-route").control(Control::Namespaces("-Urn")).is_refused();
}

#[test]
fn there_are_no_packet_sockets() {
    plain("socket 17 3 0").control(Control::Root).is_refused();
}

#[test]
fn there_are_no_sockets_to_the_hypervisor() {
    plain("socket 40 1 0").is_refused();
}

#[test]
fn there_are_no_sockets_past_the_network_stack() {
    plain("socket 44 3 0").control(Control::Root).is_refused();
}

#[test]
fn no_device_is_made() {
    testbed(|bed| ["mknod".into(), bed.text("work/device")])
        .freely(|bed| format!("mknod {0} c 1 3 && rm {0}", bed.text("work/control")))
        .control(Control::Root)
        .is_refused();
}

#[test]
fn the_kernels_log_is_not_read() {
    shell(|_| "test -r /dev/kmsg -a -c /dev/kmsg".to_owned()).control(Control::Root).is_refused();
}

#[test]
fn disks_are_not_opened() {
    shell(|_| "ls -l /dev | grep -q ^b".to_owned()).is_refused();
}

#[test]
fn settings_of_the_kernel_are_not_changed() {
    plain("write-same /proc/sys/vm/swappiness").control(Control::Root).is_refused();
}

#[test]
fn the_core_pattern_is_not_changed() {
    plain("write-same /proc/sys/kernel/core_pattern").control(Control::Root).is_refused();
}

#[test]
fn the_module_loader_is_not_changed() {
    if !fs::exists("/proc/sys/kernel/modprobe").unwrap() {
        return eprintln!("this kernel loads no modules, so there is nothing to change");
    }
    plain("write-same /proc/sys/kernel/modprobe").control(Control::Root).is_refused();
}

#[test]
fn system_requests_are_not_made() {
    if !fs::exists("/proc/sysrq-trigger").unwrap() {
        return eprintln!("this kernel takes no system requests");
    }
    plain("open-write /proc/sysrq-trigger").control(Control::Root).is_refused();
}

#[test]
fn settings_of_devices_are_not_changed() {
    plain("write-same /sys/kernel/mm/transparent_hugepage/enabled").control(Control::Root).is_refused();
}

#[test]
fn cgroups_are_not_seen() {
    shell(|_| "test -e /sys/fs/cgroup".to_owned()).is_refused();
}

#[test]
fn limits_of_memory_for_others_are_not_changed() {
    plain("open-write /proc/self/oom_score_adj").is_refused();
}

#[test]
fn there_are_no_capabilities() {
    plain("capabilities").control(Control::Root).is_refused();
}

#[test]
fn a_set_uid_program_stays_who_one_is() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can make a set-uid program of another person");
    }
    for bed in everybody() {
        let other = if bed.uid == 0 { NOBODY } else { 0 };
        let program = bed.path("work/other");
        copy(bed.program(), &program);
        std::os::unix::fs::chown(&program, Some(other), Some(other)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        shell(move |_| format!("./other attack effective-uid {other}")).is_refused_to(&bed);
    }
}

#[test]
fn no_set_uid_program_is_left_behind() {
    shell(|_| "cp /bin/true left && chmod 4755 left".to_owned()).is_refused();
    shell(|_| "cp /bin/true left && chmod 2755 left".to_owned()).is_refused();
}

#[test]
fn no_set_uid_program_is_made_at_once() {
    testbed(|bed| ["make-set-uid".into(), bed.text("work/confined")])
        .freely(|bed| format!("{} attack make-set-uid {}", bed.text("testbed"), bed.text("work/free")))
        .is_refused();
}

#[test]
fn capabilities_of_a_file_are_not_given() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can give a file capabilities");
    }
    for bed in everybody() {
        let program = bed.path("work/able");
        copy(bed.program(), &program);
        bed.give(&program);
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        // Revision 2, effective; permitted: CAP_NET_RAW.
        let bytes: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
        let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&program, "security.capability", &bytes, flags).unwrap();
        shell(|_| "./able attack capabilities".to_owned()).is_refused_to(&bed);
    }
}
