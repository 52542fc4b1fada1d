//! Where a jail cannot be whole there is none, and the reason is said.

use hermes_sandbox::{Access, Bind};

use crate::bed::{Bed, Ended, everybody};

/// No jail, this reason, and nothing run.
fn refuses(bed: &Bed, ended: &Ended, reason: &str) {
    assert_eq!((ended.code, ended.out.as_str()), (99, ""), "{ended:?}");
    assert!(ended.err.contains(reason), "{ended:?}");
    assert!(!bed.path("work/ran").exists());
}

fn marks(bed: &Bed) -> hermes_sandbox::Jail {
    bed.jail("/bin/bash", &["-c", "touch ran; echo ran"])
}

#[test]
fn a_missing_program_is_named() {
    for bed in everybody() {
        let ended = bed.confined(&bed.jail("/no/such/program", &[] as &[&str]));
        refuses(&bed, &ended, "cannot start the program /no/such/program: No such file or directory");
    }
}

#[test]
fn a_missing_source_is_named() {
    for bed in everybody() {
        let mut jail = marks(&bed);
        let (source, target) = (bed.path("missing"), "/tmp/x".into());
        jail.binds.push(Bind { source, target, access: Access::ReadOnly });
        refuses(&bed, &bed.confined(&jail), "cannot open for the jail");
    }
}

#[test]
fn a_mount_point_that_is_not_there_is_named() {
    for bed in everybody() {
        let mut jail = marks(&bed);
        let (source, target) = (bed.path("outside"), "/usr/no/such/place".into());
        jail.binds.push(Bind { source, target, access: Access::ReadOnly });
        refuses(&bed, &bed.confined(&jail), "/usr/no/such/place");
    }
}

#[test]
fn a_missing_directory_is_named() {
    for bed in everybody() {
        let mut jail = marks(&bed);
        jail.directory = "/no/such/directory".into();
        refuses(&bed, &bed.confined(&jail), "cannot enter the working directory /no/such/directory");
    }
}

/// Runs the launcher after `before`, as the owner of a user namespace.
fn inside_namespaces(bed: &Bed, flags: &str, before: &str) -> Ended {
    let run = format!("{before} exec {} run {}", bed.text("testbed"), bed.spec(&marks(bed)).display());
    bed.free(&["unshare", flags, "bash", "-c", &run])
}

#[test]
fn a_machine_without_user_namespaces_is_told_how_to_get_them() {
    for bed in everybody() {
        let ended = inside_namespaces(&bed, "-Ur", "echo 0 > /proc/sys/user/max_user_namespaces;");
        refuses(&bed, &ended, "sysctl -w user.max_user_namespaces=15000");
    }
}

#[test]
fn a_covered_proc_is_told_apart() {
    for bed in everybody() {
        // As container engines do it: the cover cannot be taken off in the namespaces a jail makes.
        let ended = inside_namespaces(&bed, "-Urm", "mount -t tmpfs none /proc/sys/kernel;");
        refuses(&bed, &ended, "/proc is partly covered");
    }
}

#[test]
fn a_jail_in_a_jail_is_refused_because_of_the_filter() {
    for bed in everybody() {
        let mut outer = bed.jail(bed.program(), &["run".into(), bed.spec(&marks(&bed)).into_os_string()]);
        outer = outer.bind(bed.path("spec"), Access::ReadOnly);
        refuses(
            &bed,
            &bed.confined(&outer),
            "a system call filter around this process forbids new namespaces",
        );
    }
}
