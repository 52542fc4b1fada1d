//! Ordinary programs work inside a jail.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hermes_sandbox::JailMount;
use hermes_testkit::prerequisite::require_root;
use hermes_types::MountAccess;

use crate::fixture::{CommandOutput, test_users};

/// Runs a script in a jail as every user and compares its output.
fn assert_prints(script: &str, expected: &str) {
    for user in test_users() {
        let jail = user.jail("/bin/bash", &["-c", script]);
        let output = user.run_confined(&jail);
        assert_eq!(
            output,
            CommandOutput { code: 0, stdout: expected.to_owned(), stderr: String::new() },
            "uid {}",
            user.uid
        );
    }
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let user = test_users().remove(0);
    let code = |script: &str| user.run_confined(&user.jail("/bin/bash", &["-c", script])).code;
    assert_eq!([code("exit 0"), code("exit 3"), code("bash -c 'kill -9 $$'; exit $?")], [0, 3, 137]);
}

#[test]
fn pipes_substitutions_and_background_work() {
    assert_prints(
        "seq 5 | tac | tr '\\n' ' '; echo $(echo in; echo side); (sleep 0.01; echo late) & wait",
        "5 4 3 2 1 in side\nlate\n",
    );
}

#[test]
fn written_files_belong_to_the_user() {
    for user in test_users() {
        let output =
            user.run_confined(&user.jail("/bin/bash", &["-c", "echo text > file && mkdir -p a/b && id -u"]));
        assert_eq!(
            output,
            CommandOutput { code: 0, stdout: format!("{}\n", user.uid), stderr: String::new() }
        );
        assert_eq!(fs::read_to_string(user.path("work/file")).unwrap(), "text\n");
        assert_eq!(fs::metadata(user.path("work/a/b")).unwrap().uid(), user.uid);
    }
}

#[test]
fn python_runs_with_threads_and_processes() {
    assert_prints(
        "/usr/bin/python3 -c 'import multiprocessing, threading, tempfile, sqlite3, ssl\n\
         if __name__ == \"__main__\":\n with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))'",
        "[1, 2]\n",
    );
}

#[test]
fn the_only_network_interface_is_loopback() {
    assert_prints("/usr/bin/python3 -c 'import socket; print(socket.if_nameindex())'", "[(1, 'lo')]\n");
}

#[test]
fn git_creates_a_repository() {
    assert_prints(
        "git -c init.defaultBranch=main init -q r && cd r && echo x > f && git add f && \
         git -c user.name=n -c user.email=e@x commit -qm one && git log --format=%s && git status --short",
        "one\n",
    );
}

#[test]
fn a_compiler_builds_a_program() {
    assert_prints(
        "printf '#include <stdio.h>\\nint main(void){puts(\"hi\");}' > h.c && gcc h.c -o h && ./h",
        "hi\n",
    );
}

#[test]
fn an_archive_of_another_user_is_unpacked() {
    assert_prints(
        "mkdir d && echo x > d/f && tar --owner=1234 --group=1234 -cf a.tar d && mkdir out && tar -xf a.tar -C out && cat out/d/f",
        "x\n",
    );
}

#[test]
fn files_are_moved_linked_and_locked() {
    assert_prints(
        "mkdir d && echo x > f && mv f d/ && ln d/f g && mv g /tmp/ && cat /tmp/g && chmod 700 d && \
         flock d/f true && install -m 755 d/f h && ls -l h | cut -c1-10",
        "x\n-rwxr-xr-x\n",
    );
}

#[test]
fn terminals_can_be_opened() {
    assert_prints(
        "/usr/bin/python3 -c 'import pty, os; m, s = pty.openpty(); os.write(s, b\"x\"); print(os.read(m, 1), os.ttyname(s))'",
        "b'x' /dev/pts/0\n",
    );
}

#[test]
fn devices_and_private_directories_work() {
    assert_prints(
        "echo x > /dev/null && head -c2 /dev/zero | od -An -tx1 && head -c4 /dev/urandom | wc -c && \
         echo y > /tmp/t && cat /tmp/t && echo z > /dev/shm/s && cat /dev/shm/s && ls /run /sys/fs 2>&1 | head -1",
        " 00 00\n4\ny\nz\nls: cannot access '/sys/fs': No such file or directory\n",
    );
}

#[test]
fn the_private_loopback_works() {
    assert_prints(
        "/usr/bin/python3 -c 'import socket; l = socket.create_server((\"127.0.0.1\", 0)); \
         c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.send(b\"x\"); print(c.recv(1))'",
        "b'x'\n",
    );
}

#[test]
fn processors_and_memory_are_visible() {
    assert_prints(
        "test $(nproc) -ge 1 && grep -q MemTotal /proc/meminfo && cat /proc/sys/kernel/ostype",
        "Linux\n",
    );
}

#[test]
fn the_jail_has_its_own_host_name_and_pid_namespace() {
    assert_prints(
        "hostname; echo $$; set -- /proc/[0-9]*; echo $#; cat /proc/self/setgroups",
        "sandbox\n1\n1\ndeny\n",
    );
}

#[test]
fn the_environment_is_exactly_the_given_one() {
    assert_prints("/usr/bin/env | sed 's/=.*//' | sort | tr '\\n' ' '", "HOME PATH PWD SHLVL _ ");
}

#[test]
fn an_environment_larger_than_a_packet_is_passed() {
    for user in test_users() {
        let mut jail = user.jail("/usr/bin/env", &[] as &[&str]);
        jail.environment = (0..10).map(|n| (format!("V{n}").into(), "x".repeat(100_000).into())).collect();
        assert_eq!(user.run_confined(&jail).stdout.len(), 10 * (100_000 + "V0=\n".len()));
    }
}

#[test]
fn a_debugger_traces_its_own_child() {
    assert_prints("strace -o trace /bin/true && grep -c exited trace", "1\n");
}

#[test]
fn the_rest_of_the_home_is_readable() {
    for user in test_users() {
        let file = user.path_str("home/visible");
        let output = user.run_confined(&user.jail("/bin/cat", &[file]));
        assert_eq!(output.stdout, "not a secret");
    }
}

#[test]
fn directories_appear_at_their_targets() {
    for user in test_users() {
        let mut jail = user.jail(
            "/bin/bash",
            &["-c", "cat /new/deep/file && ! touch /new/deep/x 2>/dev/null && cat /tmp/in/file"],
        );
        for target in ["/new/deep", "/tmp/in"] {
            let (source, target) = (user.path("outside").into(), target.into());
            jail.binds.push(JailMount { source, target, access: MountAccess::ReadOnly });
        }
        let output = user.run_confined(&jail);
        let twice = crate::fixture::SECRET.repeat(2);
        assert_eq!(output, CommandOutput { code: 0, stdout: twice, stderr: String::new() });
    }
}

#[test]
fn only_the_workspace_in_a_home_and_a_directory_in_run_are_visible() {
    if !require_root("create directories in /home and /run") {
        return;
    }
    for user in test_users() {
        let home = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/home").unwrap();
        let run = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/run").unwrap();
        for name in ["work", ".ssh"] {
            fs::create_dir(home.path().join(name)).unwrap();
            fs::write(home.path().join(name).join("file"), name).unwrap();
        }
        user.chown_tree(home.path());
        user.chown_tree(run.path());
        let script = format!(
            "cd {0} && ls -A . .ssh && cat work/file && touch work/new {1}/new && ! touch new 2>/dev/null && \
             echo $(ls /home | wc -l) $(ls /run | wc -l)",
            home.path().display(),
            run.path().display()
        );
        let mut jail = hermes_sandbox::Jail::new("/bin/bash", home.path())
            .bind(home.path().join("work"), MountAccess::ReadWrite)
            .bind(run.path(), MountAccess::ReadWrite);
        jail.arguments = vec!["-c".into(), script.into()];
        jail.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let stdout = ".:\n.ssh\nwork\n\n.ssh:\nwork1 1\n".to_owned();
        assert_eq!(
            user.run_confined(&jail),
            CommandOutput { code: 0, stdout, stderr: String::new() },
            "uid {}",
            user.uid
        );
        assert!(home.path().join("work/new").exists() && run.path().join("new").exists());
    }
}

#[test]
fn a_crash_starts_no_core_handler_of_the_host() {
    // One byte: the kernel writes no core and starts no handler. Zero only stops files.
    assert_prints("sed -n 's/^Max core file size *//p' /proc/self/limits | tr -s ' '", "1 1 bytes \n");
}

#[test]
fn two_hundred_short_processes_run() {
    assert_prints("for i in {1..200}; do /bin/true || exit 1; done; echo done", "done\n");
}
