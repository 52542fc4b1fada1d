//! Attacks on the interfaces of the kernel.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hermes_sandbox::JailNetwork;
use hermes_testkit::prerequisite::{report_not_applicable, require_root};

use crate::attack::{Attack, Control, shell, testbed, testbed_command};
use crate::fixture::{UNPRIVILEGED_UID, copy, test_users};

/// CLONE_NEWUSER
const NEW_USER: &str = "268435456";

/// A system call with numbers for arguments.
fn syscall(number: i64, arguments: &'static [&'static str]) -> Attack {
    shell(move |user| format!("{} attack syscall {number} {}", user.path_str("testbed"), arguments.join(" ")))
}

#[test]
fn a_user_namespace_is_not_made_by_unshare() {
    syscall(libc::SYS_unshare, &[NEW_USER]).assert_refused();
}

#[test]
fn a_user_namespace_is_not_made_by_clone() {
    testbed(|_| ["clone".into(), NEW_USER.into()]).assert_refused();
}

#[test]
fn a_user_namespace_is_not_made_by_clone3() {
    testbed(|_| ["clone3".into(), NEW_USER.into()]).assert_refused();
}

#[test]
fn the_unshare_command_is_refused() {
    shell(|_| "unshare -Ur true 2>/dev/null".to_owned()).assert_refused();
}

#[test]
fn nothing_is_mounted() {
    testbed(|user| ["mount".into(), user.path_str("work")])
        .control(Control::Namespaces("-Urm"))
        .assert_refused();
}

#[test]
fn nothing_is_bind_mounted() {
    testbed(|user| ["bind".into(), user.path_str("home"), user.path_str("work")])
        .control_script(|user| format!("mount --rbind {} {}", user.path_str("home"), user.path_str("work")))
        .control(Control::Namespaces("-Urm"))
        .assert_refused();
}

#[test]
fn nothing_is_mounted_by_the_new_calls() {
    testbed_command("fsopen").control(Control::Namespaces("-Urm")).assert_refused();
}

#[test]
fn no_mount_is_copied() {
    testbed_command("open-tree /dev/shm").control(Control::Namespaces("-Urm")).assert_refused();
}

#[test]
fn the_root_is_not_changed() {
    testbed_command("pivot-root /dev/shm")
        .control_script(|user| {
            format!("mount -t tmpfs none /mnt && {} attack pivot-root /mnt", user.path_str("testbed"))
        })
        .control(Control::Namespaces("-Urm"))
        .assert_refused();
}

#[test]
fn chroot_is_refused() {
    testbed_command("chroot /tmp").control(Control::Namespaces("-Ur")).assert_refused();
}

#[test]
fn own_namespaces_are_not_entered_again() {
    testbed_command("setns-by-file /proc/self/ns/uts").control(Control::Root).assert_refused();
}

#[test]
fn the_host_name_is_not_changed() {
    shell(|_| "hostname other 2>/dev/null".to_owned()).control(Control::Namespaces("-Uru")).assert_refused();
}

#[test]
fn no_input_is_injected_into_a_terminal() {
    testbed_command("tiocsti").control(Control::Root).assert_refused();
}

#[test]
fn no_key_is_added() {
    testbed_command("add-key").assert_refused();
}

#[test]
fn no_key_is_requested() {
    testbed_command("request-key").assert_refused();
}

#[test]
fn no_keyring_is_joined() {
    // KEYCTL_GET_KEYRING_ID of the session keyring, which creates a missing keyring.
    syscall(libc::SYS_keyctl, &["0", "-3", "1"]).assert_refused();
}

#[test]
fn no_performance_events_are_opened() {
    testbed_command("perf").assert_refused();
}

#[test]
fn no_bpf_map_is_made() {
    testbed_command("bpf").control(Control::Root).assert_refused();
}

#[test]
fn no_io_uring_is_set_up() {
    testbed_command("io-uring").assert_refused();
}

#[test]
fn no_page_faults_are_handled() {
    // UFFD_USER_MODE_ONLY
    syscall(libc::SYS_userfaultfd, &["1"]).assert_refused();
}

#[test]
fn no_file_is_opened_by_handle() {
    testbed(|user| ["open-by-handle".into(), user.path_str("work")]).control(Control::Root).assert_refused();
}

#[test]
fn addresses_stay_random() {
    // ADDR_NO_RANDOMIZE
    syscall(libc::SYS_personality, &["262144"]).assert_refused();
}

#[test]
fn the_calls_of_32_bit_programs_are_refused() {
    testbed_command("32-bit").assert_refused();
}

#[test]
fn there_are_no_raw_sockets() {
    testbed_command("socket 2 3 1").control(Control::Root).assert_refused();
}

#[test]
fn netlink_allows_only_the_route_family() {
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
        attack.assert_refused();
    }
}

#[test]
fn no_address_is_added_to_the_network() {
    testbed_command("add-address").control(Control::Namespaces("-Urn")).assert_refused();
}

#[test]
fn no_address_is_added_to_the_network_of_the_host() {
    let attack = testbed_command("add-address").control(Control::Namespaces("-Urn"));
    attack.jail(|_, jail| jail.network = JailNetwork::Full).assert_refused();
}

#[test]
fn no_route_is_added_to_the_network() {
    testbed_command("add-route").control(Control::Namespaces("-Urn")).assert_refused();
}

#[test]
fn there_are_no_packet_sockets() {
    testbed_command("socket 17 3 0").control(Control::Root).assert_refused();
}

#[test]
fn there_are_no_sockets_to_the_hypervisor() {
    testbed_command("socket 40 1 0").assert_refused();
}

#[test]
fn there_are_no_sockets_past_the_network_stack() {
    testbed_command("socket 44 3 0").control(Control::Root).assert_refused();
}

#[test]
fn there_are_no_sockets_of_unusual_protocols() {
    // UDP-Lite; others may not be loaded.
    testbed_command("socket 2 2 136").assert_refused();
    testbed_command("socket 10 2 136").assert_refused();
}

#[test]
fn calls_that_ordinary_programs_do_not_need_are_refused() {
    syscall(libc::SYS_get_mempolicy, &["0", "0", "0", "0", "0"]).assert_refused();
}

#[test]
fn no_device_is_made() {
    testbed(|user| ["mknod".into(), user.path_str("work/device")])
        .control_script(|user| format!("mknod {0} c 1 3 && rm {0}", user.path_str("work/control")))
        .control(Control::Root)
        .assert_refused();
}

#[test]
fn the_kernels_log_is_not_read() {
    shell(|_| "test -r /dev/kmsg -a -c /dev/kmsg".to_owned()).control(Control::Root).assert_refused();
}

#[test]
fn disks_are_not_opened() {
    shell(|_| "ls -l /dev | grep -q ^b".to_owned()).assert_refused();
}

#[test]
fn settings_of_the_kernel_are_not_changed() {
    testbed_command("write-same /proc/sys/vm/swappiness").control(Control::Root).assert_refused();
}

#[test]
fn the_core_pattern_is_not_changed() {
    testbed_command("write-same /proc/sys/kernel/core_pattern").control(Control::Root).assert_refused();
}

#[test]
fn the_module_loader_is_not_changed() {
    if !fs::exists("/proc/sys/kernel/modprobe").unwrap() {
        return report_not_applicable("this kernel has no module loader");
    }
    testbed_command("write-same /proc/sys/kernel/modprobe").control(Control::Root).assert_refused();
}

#[test]
fn system_requests_are_not_made() {
    if !fs::exists("/proc/sysrq-trigger").unwrap() {
        return report_not_applicable("this kernel has no sysrq trigger");
    }
    testbed_command("open-write /proc/sysrq-trigger").control(Control::Root).assert_refused();
}

#[test]
fn settings_of_devices_are_not_changed() {
    testbed_command("write-same /sys/kernel/mm/transparent_hugepage/enabled")
        .control(Control::Root)
        .assert_refused();
}

#[test]
fn cgroups_are_not_seen() {
    shell(|_| "test -e /sys/fs/cgroup".to_owned()).assert_refused();
}

#[test]
fn the_oom_score_is_not_changed() {
    testbed_command("open-write /proc/self/oom_score_adj").assert_refused();
}

#[test]
fn there_are_no_capabilities() {
    testbed_command("capabilities").control(Control::Root).assert_refused();
}

#[test]
fn a_set_uid_program_does_not_change_the_user() {
    if !require_root("create a set-uid program of another user") {
        return;
    }
    for user in test_users() {
        let other = if user.uid == 0 { UNPRIVILEGED_UID } else { 0 };
        let program = user.path("work/other");
        copy(user.program(), &program);
        std::os::unix::fs::chown(&program, Some(other), Some(other)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        shell(move |_| format!("./other attack effective-uid {other}")).assert_refused_for(&user);
    }
}

#[test]
fn no_set_uid_program_is_created_by_chmod() {
    shell(|_| "cp /bin/true left && chmod 4755 left".to_owned()).assert_refused();
    shell(|_| "cp /bin/true left && chmod 2755 left".to_owned()).assert_refused();
}

#[test]
fn no_set_uid_program_is_created_by_open() {
    testbed(|user| ["make-set-uid".into(), user.path_str("work/confined")])
        .control_script(|user| {
            format!("{} attack make-set-uid {}", user.path_str("testbed"), user.path_str("work/free"))
        })
        .assert_refused();
}

#[test]
fn file_capabilities_are_not_granted() {
    if !require_root("set file capabilities") {
        return;
    }
    for user in test_users() {
        let program = user.path("work/able");
        copy(user.program(), &program);
        user.chown_tree(&program);
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        // Revision 2, effective; permitted: CAP_NET_RAW.
        let bytes: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
        let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&program, "security.capability", &bytes, flags).unwrap();
        shell(|_| "./able attack capabilities".to_owned()).assert_refused_for(&user);
    }
}
