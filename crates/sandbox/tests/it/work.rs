//! Ordinary work goes on as usual inside.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hermes_sandbox::{Access, Bind};

use crate::bed::{Ended, everybody};

/// Runs a script in a jail as everybody and compares what it prints.
fn works(script: &str, expected: &str) {
    for bed in everybody() {
        let jail = bed.jail("/bin/bash", &["-c", script]);
        let ended = bed.confined(&jail);
        assert_eq!(ended, Ended { code: 0, out: expected.to_owned(), err: String::new() }, "uid {}", bed.uid);
    }
}

#[test]
fn exit_codes_and_signals_come_back() {
    let bed = everybody().remove(0);
    let code = |script: &str| bed.confined(&bed.jail("/bin/bash", &["-c", script])).code;
    assert_eq!([code("exit 0"), code("exit 3"), code("bash -c 'kill -9 $$'; exit $?")], [0, 3, 137]);
}

#[test]
fn pipes_substitutions_and_background_work() {
    works(
        "seq 5 | tac | tr '\\n' ' '; echo $(echo in; echo side); (sleep 0.01; echo late) & wait",
        "5 4 3 2 1 in side\nlate\n",
    );
}

#[test]
fn what_is_written_belongs_to_the_one_who_asked() {
    for bed in everybody() {
        let ended =
            bed.confined(&bed.jail("/bin/bash", &["-c", "echo text > file && mkdir -p a/b && id -u"]));
        assert_eq!(ended, Ended { code: 0, out: format!("{}\n", bed.uid), err: String::new() });
        assert_eq!(fs::read_to_string(bed.path("work/file")).unwrap(), "text\n");
        assert_eq!(fs::metadata(bed.path("work/a/b")).unwrap().uid(), bed.uid);
    }
}

#[test]
fn python_runs_with_threads_and_processes() {
    works(
        "/usr/bin/python3 -c 'import multiprocessing, threading, tempfile, sqlite3, ssl\n\
         if __name__ == \"__main__\":\n with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))'",
        "[1, 2]\n",
    );
}

#[test]
fn the_interfaces_of_the_network_can_be_listed_and_are_one() {
    works("/usr/bin/python3 -c 'import socket; print(socket.if_nameindex())'", "[(1, 'lo')]\n");
}

#[test]
fn git_makes_a_repository() {
    works(
        "git -c init.defaultBranch=main init -q r && cd r && echo x > f && git add f && \
         git -c user.name=n -c user.email=e@x commit -qm one && git log --format=%s && git status --short",
        "one\n",
    );
}

#[test]
fn a_compiler_makes_a_program() {
    works("printf '#include <stdio.h>\\nint main(void){puts(\"hi\");}' > h.c && gcc h.c -o h && ./h", "hi\n");
}

#[test]
fn an_archive_of_somebody_else_is_unpacked() {
    works(
        "mkdir d && echo x > d/f && tar --owner=1234 --group=1234 -cf a.tar d && mkdir out && tar -xf a.tar -C out && cat out/d/f",
        "x\n",
    );
}

#[test]
fn files_are_moved_linked_and_locked() {
    works(
        "mkdir d && echo x > f && mv f d/ && ln d/f g && mv g /tmp/ && cat /tmp/g && chmod 700 d && \
         flock d/f true && install -m 755 d/f h && ls -l h | cut -c1-10",
        "x\n-rwxr-xr-x\n",
    );
}

#[test]
fn terminals_are_made() {
    works(
        "/usr/bin/python3 -c 'import pty, os; m, s = pty.openpty(); os.write(s, b\"x\"); print(os.read(m, 1), os.ttyname(s))'",
        "b'x' /dev/pts/0\n",
    );
}

#[test]
fn devices_and_private_directories_work() {
    works(
        "echo x > /dev/null && head -c2 /dev/zero | od -An -tx1 && head -c4 /dev/urandom | wc -c && \
         echo y > /tmp/t && cat /tmp/t && echo z > /dev/shm/s && cat /dev/shm/s && ls /run /sys/fs 2>&1 | head -1",
        " 00 00\n4\ny\nz\nls: cannot access '/sys/fs': No such file or directory\n",
    );
}

#[test]
fn ones_own_loopback_works() {
    works(
        "/usr/bin/python3 -c 'import socket; l = socket.create_server((\"127.0.0.1\", 0)); \
         c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.send(b\"x\"); print(c.recv(1))'",
        "b'x'\n",
    );
}

#[test]
fn the_processors_and_memory_are_seen() {
    works("test $(nproc) -ge 1 && grep -q MemTotal /proc/meminfo && cat /proc/sys/kernel/ostype", "Linux\n");
}

#[test]
fn the_world_is_small_and_has_a_name() {
    works(
        "hostname; echo $$; set -- /proc/[0-9]*; echo $#; cat /proc/self/setgroups",
        "sandbox\n1\n1\ndeny\n",
    );
}

#[test]
fn the_environment_is_the_one_given() {
    works("/usr/bin/env | sed 's/=.*//' | sort | tr '\\n' ' '", "HOME PATH PWD SHLVL _ ");
}

#[test]
fn an_environment_larger_than_a_packet_arrives() {
    for bed in everybody() {
        let mut jail = bed.jail("/usr/bin/env", &[] as &[&str]);
        jail.environment = (0..10).map(|n| (format!("V{n}").into(), "x".repeat(100_000).into())).collect();
        assert_eq!(bed.confined(&jail).out.len(), 10 * (100_000 + "V0=\n".len()));
    }
}

#[test]
fn a_debugger_traces_its_own_child() {
    works("strace -o trace /bin/true && grep -c exited trace", "1\n");
}

#[test]
fn the_rest_of_the_home_is_read() {
    for bed in everybody() {
        let file = bed.text("home/visible");
        let ended = bed.confined(&bed.jail("/bin/cat", &[file]));
        assert_eq!(ended.out, "anybody may know");
    }
}

#[test]
fn directories_appear_where_they_are_asked_for() {
    for bed in everybody() {
        let mut jail = bed.jail(
            "/bin/bash",
            &["-c", "cat /new/deep/file && ! touch /new/deep/x 2>/dev/null && cat /tmp/in/file"],
        );
        for target in ["/new/deep", "/tmp/in"] {
            let (source, target) = (bed.path("outside"), target.into());
            jail.binds.push(Bind { source, target, access: Access::ReadOnly });
        }
        let ended = bed.confined(&jail);
        let twice = crate::bed::SECRET.repeat(2);
        assert_eq!(ended, Ended { code: 0, out: twice, err: String::new() });
    }
}

#[test]
fn a_workspace_in_a_home_and_a_directory_in_run_are_shown_alone() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can make directories in /home and /run");
    }
    for bed in everybody() {
        let home = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/home").unwrap();
        let run = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/run").unwrap();
        for name in ["work", ".ssh"] {
            fs::create_dir(home.path().join(name)).unwrap();
            fs::write(home.path().join(name).join("file"), name).unwrap();
        }
        bed.give(home.path());
        bed.give(run.path());
        let script = format!(
            "cd {0} && ls -A . .ssh && cat work/file && touch work/new {1}/new && ! touch new 2>/dev/null && \
             echo $(ls /home | wc -l) $(ls /run | wc -l)",
            home.path().display(),
            run.path().display()
        );
        let mut jail = hermes_sandbox::Jail::new("/bin/bash", home.path())
            .bind(home.path().join("work"), Access::ReadWrite)
            .bind(run.path(), Access::ReadWrite);
        jail.arguments = vec!["-c".into(), script.into()];
        jail.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let out = ".:\n.ssh\nwork\n\n.ssh:\nwork1 1\n".to_owned();
        assert_eq!(bed.confined(&jail), Ended { code: 0, out, err: String::new() }, "uid {}", bed.uid);
        assert!(home.path().join("work/new").exists() && run.path().join("new").exists());
    }
}

#[test]
fn two_hundred_quick_processes() {
    works("for i in {1..200}; do /bin/true || exit 1; done; echo done", "done\n");
}
