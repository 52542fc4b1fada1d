//! A jail that cannot be complete is not created, and the error gives the reason.

use hermes_sandbox::JailMount;
use hermes_types::MountAccess;

use crate::fixture::{CommandOutput, TestUser, test_users};

/// Asserts that no jail was created for this reason, and that nothing ran.
fn assert_no_jail(user: &TestUser, output: &CommandOutput, reason: &str) {
    assert_eq!((output.code, output.stdout.as_str()), (99, ""), "{output:?}");
    assert!(output.stderr.contains(reason), "{output:?}");
    assert!(!user.path("work/ran").exists());
}

fn marking_jail(user: &TestUser) -> hermes_sandbox::Jail {
    user.jail("/bin/bash", &["-c", "touch ran; echo ran"])
}

#[test]
fn a_missing_program_is_named() {
    for user in test_users() {
        let output = user.run_confined(&user.jail("/no/such/program", &[] as &[&str]));
        assert_no_jail(
            &user,
            &output,
            "cannot start the program /no/such/program: No such file or directory",
        );
    }
}

#[test]
fn a_missing_source_is_named() {
    for user in test_users() {
        let mut jail = marking_jail(&user);
        let (source, target) = (user.path("missing").into(), "/tmp/x".into());
        jail.binds.push(JailMount { source, target, access: MountAccess::ReadOnly });
        assert_no_jail(&user, &user.run_confined(&jail), "cannot open the mount source");
    }
}

#[test]
fn a_link_that_a_command_may_have_made_is_no_mount_source() {
    for user in test_users() {
        // Both directories are mounted; what runs in the first can replace the second.
        std::os::unix::fs::symlink(user.path("home/.ssh"), user.path("work/data")).unwrap();
        let mut jail = marking_jail(&user);
        let (source, target) = (user.path("work/data").into(), "/data".into());
        jail.binds.push(JailMount { source, target, access: MountAccess::ReadOnly });
        let reason = format!(
            "cannot use a link in a directory that commands can write as the mount source {}",
            user.path_str("work/data")
        );
        assert_no_jail(&user, &user.run_confined(&jail), &reason);
    }
}

#[test]
fn a_missing_mount_point_is_named() {
    for user in test_users() {
        let mut jail = marking_jail(&user);
        let (source, target) = (user.path("outside").into(), "/usr/no/such/place".into());
        jail.binds.push(JailMount { source, target, access: MountAccess::ReadOnly });
        assert_no_jail(&user, &user.run_confined(&jail), "/usr/no/such/place");
    }
}

#[test]
fn a_missing_directory_is_named() {
    for user in test_users() {
        let mut jail = marking_jail(&user);
        jail.directory = "/no/such/directory".into();
        assert_no_jail(
            &user,
            &user.run_confined(&jail),
            "cannot enter the working directory /no/such/directory",
        );
    }
}

/// Runs a shell command and then the launcher, as the owner of a user namespace.
fn run_in_namespaces(user: &TestUser, flags: &str, before: &str) -> CommandOutput {
    let run = format!(
        "{before} exec {} run {}",
        user.path_str("testbed"),
        user.write_spec(&marking_jail(user)).display()
    );
    user.run_unconfined(&["unshare", flags, "bash", "-c", &run])
}

#[test]
fn a_machine_without_user_namespaces_gets_a_remedy() {
    for user in test_users() {
        let output = run_in_namespaces(&user, "-Ur", "echo 0 > /proc/sys/user/max_user_namespaces;");
        assert_no_jail(&user, &output, "sysctl -w user.max_user_namespaces=15000");
    }
}

#[test]
fn a_masked_proc_is_distinguished() {
    for user in test_users() {
        // Container engines mask /proc like this. A nested user namespace cannot remove the mount.
        let output = run_in_namespaces(&user, "-Urm", "mount -t tmpfs none /proc/sys/kernel;");
        assert_no_jail(&user, &output, "parts of /proc are masked");
    }
}

#[test]
fn a_jail_in_a_jail_is_refused_because_of_the_filter() {
    for user in test_users() {
        let mut outer = user
            .jail(user.program(), &["run".into(), user.write_spec(&marking_jail(&user)).into_os_string()]);
        outer = outer.bind(user.path("spec"), MountAccess::ReadOnly);
        assert_no_jail(&user, &user.run_confined(&outer), "a seccomp filter forbids new namespaces");
    }
}
