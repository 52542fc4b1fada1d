//! Attacks on files, processes and the network of the host.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use std::thread;

use hermes_sandbox::{Jail, JailMount, JailNetwork};
use hermes_testkit::prerequisite::require_root;
use hermes_types::MountAccess;

use crate::attack::{Control, Victim, shell, testbed};
use crate::fixture::{REFUSED, SECRET, TestUser, copy, test_users};

fn grep_secret(path: &str) -> String {
    format!("grep -q {SECRET} {path}")
}

#[test]
fn hermes_home_is_not_read_by_path() {
    shell(|user| grep_secret(&user.path_str("home/.hermes/.env"))).assert_refused();
}

#[test]
fn ssh_keys_are_not_read_by_path() {
    shell(|user| grep_secret(&user.path_str("home/.ssh/id"))).assert_refused();
}

#[test]
fn cloud_credentials_are_not_read_by_path() {
    shell(|user| grep_secret(&user.path_str("home/.aws/credentials"))).assert_refused();
}

#[test]
fn a_masked_file_is_not_read_by_path() {
    shell(|user| grep_secret(&user.path_str("home/.netrc"))).assert_refused();
}

#[test]
fn ssh_keys_are_not_read_by_a_symlink() {
    shell(|user| format!("ln -sfn {} link && {}", user.path_str("home/.ssh/id"), grep_secret("link")))
        .assert_refused();
}

#[test]
fn ssh_keys_are_not_read_by_a_symlink_made_outside() {
    for user in test_users() {
        std::os::unix::fs::symlink(user.path("home/.ssh"), user.path("work/keys")).unwrap();
        shell(|_| grep_secret("keys/id")).assert_refused_for(&user);
    }
}

#[test]
fn ssh_keys_are_not_read_by_a_hard_link() {
    shell(|user| format!("ln -f {} hard && {}", user.path_str("home/.ssh/id"), grep_secret("hard")))
        .assert_refused();
}

#[test]
fn ssh_keys_are_not_read_by_the_roots_of_processes() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let outside = victim.pid();
        shell(|user| {
            format!(
                "cat /proc/[0-9]*/root{0} 2>/dev/null | {1}",
                user.path_str("home/.ssh/id"),
                grep_secret("-")
            )
        })
        .control_script(move |user| {
            grep_secret(&format!("/proc/{outside}/root{}", user.path_str("home/.ssh/id")))
        })
        .assert_refused_for(&user);
    }
}

#[test]
fn the_environment_of_host_processes_is_not_read() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let pid = victim.pid();
        shell(move |_| format!("grep -qa {SECRET} /proc/{pid}/environ /proc/[0-9]*/environ 2>/dev/null"))
            .control_script(move |_| format!("grep -qa {SECRET} /proc/{pid}/environ"))
            .assert_refused_for(&user);
    }
}

#[test]
fn open_files_of_host_processes_are_not_read() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let pid = victim.pid();
        shell(move |_| grep_secret(&format!("/proc/{pid}/fd/0"))).assert_refused_for(&user);
    }
}

#[test]
fn a_bind_at_another_path_does_not_show_what_is_masked() {
    shell(|_| grep_secret("/shown/.ssh/id"))
        .control_script(|user| grep_secret(&user.path_str("home/.ssh/id")))
        .jail(|user, jail| {
            let (source, target) = (user.path("home").into(), "/shown".into());
            jail.binds.push(JailMount { source, target, access: MountAccess::ReadWrite });
        })
        .assert_refused();
}

#[test]
fn a_home_that_is_the_workspace_still_hides_its_keys() {
    shell(|user| grep_secret(&user.path_str("home/.ssh/id")))
        .jail(|user, jail| {
            *jail = jail.clone().bind(user.path("home"), MountAccess::ReadWrite);
        })
        .assert_refused();
}

#[test]
fn a_mask_cannot_be_unmounted() {
    testbed(|user| ["umount".into(), user.path_str("home/.ssh")])
        .control_script(|_| "mount -t tmpfs none /mnt && umount /mnt".to_owned())
        .control(Control::Namespaces("-Urm"))
        .assert_refused();
}

#[test]
fn the_password_hashes_are_not_read() {
    shell(|_| "grep -q : /etc/shadow".to_owned()).control(Control::Root).assert_refused();
}

#[test]
fn files_that_only_root_can_read_are_not_read() {
    if !require_root("create a file that only root can read") {
        return;
    }
    for user in test_users() {
        let secrets = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/var/lib").unwrap();
        fs::set_permissions(secrets.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (file, inside) = (secrets.path().join("file"), secrets.path().join("closed"));
        fs::write(&file, SECRET).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("file"), SECRET).unwrap();
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o700)).unwrap();
        for path in [file, inside.join("file")] {
            let path = path.to_str().unwrap().to_owned();
            shell(move |_| grep_secret(&path)).control(Control::Root).assert_refused_for(&user);
        }
    }
}

#[test]
fn root_in_a_jail_is_another_user_outside() {
    if !require_root("create a jail as root") {
        return;
    }
    let user = TestUser::new(0);
    let output = user.run_confined(&user.jail("/bin/sh", &["-c", "id -u; cut -c1-40 /proc/self/uid_map"]));
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    assert_eq!(words, ["0", "0", "2000000000", "1"]);
}

#[test]
fn homes_of_other_users_are_not_read() {
    if !require_root("create a home for another user") {
        return;
    }
    let home = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/home").unwrap();
    fs::write(home.path().join("diary"), SECRET).unwrap();
    let diary = home.path().join("diary").to_str().unwrap().to_owned();
    shell(move |_| grep_secret(&diary)).control(Control::Root).assert_refused();
}

#[test]
fn a_program_behind_a_mask_is_not_run_by_the_loader() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for user in test_users() {
        copy("/bin/true", user.path("home/.aws/tool"));
        user.chown_tree(&user.path("home/.aws/tool"));
        shell(move |user| format!("{loader} {}", user.path_str("home/.aws/tool"))).assert_refused_for(&user);
    }
}

#[test]
fn nothing_is_created_outside_the_workspace() {
    shell(|user| format!("touch {}", user.path_str("outside/new"))).assert_refused();
}

/// Adds a bind mount at a root entry that the host does not have.
fn add_root_entry(user: &TestUser, jail: &mut Jail) {
    let (source, target) = (user.path("work").into(), "/another/root".into());
    jail.binds.push(JailMount { source, target, access: MountAccess::ReadWrite });
}

#[test]
fn nothing_is_created_outside_the_workspace_from_another_root() {
    shell(|user| {
        format!("touch {0} || touch /..{0} || touch /proc/1/root/..{0}", user.path_str("outside/new"))
    })
    .jail(add_root_entry)
    .assert_refused();
}

#[test]
fn ssh_keys_are_not_read_from_another_root() {
    shell(|user| {
        format!(
            "cat {0} /..{0} /proc/1/root{0} /proc/1/cwd/..{0} | {1}",
            user.path_str("home/.ssh/id"),
            grep_secret("-")
        )
    })
    .jail(add_root_entry)
    .assert_refused();
}

#[test]
fn no_mount_of_the_host_stays_below_another() {
    for user in test_users() {
        let jail = user.jail("/bin/sh", &["-c", "cut -d' ' -f5,6 /proc/self/mountinfo"]);
        let output = user.run_confined(&jail);
        let mounts: Vec<(&str, &str)> =
            output.stdout.lines().filter_map(|line| line.split_once(' ')).collect();
        let mut writable: Vec<&str> =
            mounts.iter().filter(|(_, options)| options.starts_with("rw")).map(|(path, _)| *path).collect();
        writable.sort_unstable();
        let work = user.path_str("work");
        // Device files are mounts of their own, and Landlock guards them.
        writable.retain(|path| !path.starts_with("/dev/") || ["/dev/pts", "/dev/shm"].contains(path));
        let mut expected = ["/dev/pts", "/dev/shm", &work, "/tmp", "/var/tmp"];
        expected.sort_unstable();
        assert_eq!(writable, expected, "uid {}", user.uid);
        for at in ["/", "/proc"] {
            assert_eq!(mounts.iter().filter(|(path, _)| *path == at).count(), 1, "{at}: {}", output.stdout);
        }
    }
}

#[test]
fn nothing_is_changed_outside_the_workspace() {
    shell(|user| format!("echo changed >> {}", user.path_str("outside/file"))).assert_refused();
}

#[test]
fn nothing_is_changed_by_a_symlink_in_the_workspace() {
    shell(|user| format!("ln -sfn {} way && touch way/new", user.path_str("outside"))).assert_refused();
}

#[test]
fn nothing_is_changed_by_the_root_of_a_process() {
    shell(|user| format!("touch /proc/self/root{}", user.path_str("outside/new"))).assert_refused();
}

#[test]
fn nothing_is_linked_out_of_the_workspace() {
    shell(|user| format!("touch mine && ln -f mine {}", user.path_str("outside/theirs"))).assert_refused();
}

#[test]
fn nothing_outside_is_removed() {
    shell(|user| format!("rm -f {}", user.path_str("outside/file")))
        .control_script(|user| format!("touch {0} && rm {0}", user.path_str("outside/file2")))
        .assert_refused();
}

#[test]
fn nothing_outside_changes_its_mode() {
    shell(|user| format!("chmod 777 {}", user.path_str("outside/file"))).assert_refused();
}

#[test]
fn system_directories_are_not_written() {
    shell(|_| "touch /usr/hermes-test && rm /usr/hermes-test".to_owned())
        .control(Control::Root)
        .assert_refused();
}

#[test]
fn named_pipes_outside_are_not_written() {
    for user in test_users() {
        let made = user.run_unconfined(&["mkfifo", &user.path_str("outside/pipe")]);
        assert_eq!(made.code, 0);
        shell(|user| format!("exec 5<>{}", user.path_str("outside/pipe"))).assert_refused_for(&user);
    }
}

#[test]
fn a_descriptor_passed_for_reading_is_not_reopened_for_writing() {
    for user in test_users() {
        let script = format!("if echo changed > /proc/self/fd/0; then exit 0; else exit {REFUSED}; fi");
        let stdin = || Stdio::from(fs::File::open(user.path("outside/file")).unwrap());
        let mut free = user.command(user.uid, "bash");
        assert_eq!(free.args(["-c", &script]).stdin(stdin()).status().unwrap().code(), Some(0));
        let jail = user.jail("/bin/bash", &["-c", &script]);
        assert_eq!(user.jail_command(&jail).stdin(stdin()).output().unwrap().status.code(), Some(REFUSED));
    }
}

/// Runs a script with and without a jail, started by a process that leaked `path` as descriptor 9.
fn assert_leak_is_refused(path: &str, script: &str) {
    for user in test_users() {
        let leak = |words: &str| {
            let script = format!("exec 9<{}; exec {words}", user.path_str(path));
            let mut command = user.command(user.uid, "bash");
            command.args(["-c", &script]).output().unwrap().status.code()
        };
        let script = format!("if {script}; then exit 0; else exit {REFUSED}; fi");
        assert_eq!(leak(&format!("bash -c '{script}'")), Some(0), "control");
        let spec = user.write_spec(&user.jail("/bin/bash", &["-c", &script]));
        assert_eq!(leak(&format!("{} run {}", user.path_str("testbed"), spec.display())), Some(REFUSED));
    }
}

#[test]
fn a_leaked_file_is_not_inherited() {
    assert_leak_is_refused("home/.ssh/id", &grep_secret("/proc/self/fd/9"));
}

#[test]
fn a_leaked_directory_is_not_inherited() {
    assert_leak_is_refused("home", &grep_secret("/proc/self/fd/9/.ssh/id"));
}

#[test]
fn host_processes_are_not_signaled() {
    for user in test_users() {
        let mut victim = Victim::spawn(&user);
        let pid = victim.pid();
        shell(move |_| format!("kill -0 {pid}")).assert_refused_for(&user);
        let all = user.run_confined(&user.jail("/bin/bash", &["-c", "trap '' TERM; kill -TERM -1; exit 0"]));
        assert_eq!((all.code, victim.is_alive()), (0, true));
    }
}

#[test]
fn host_processes_are_not_traced() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let pid = victim.pid().to_string();
        testbed(move |_| ["ptrace".into(), pid.clone()]).assert_refused_for(&user);
    }
}

#[test]
fn the_memory_of_host_processes_is_not_read() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid())).unwrap();
        let start = i64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
        let pid = victim.pid().to_string();
        testbed(move |_| ["read-memory".into(), pid.clone(), start.to_string()]).assert_refused_for(&user);
    }
}

#[test]
fn the_namespaces_of_host_processes_are_not_entered() {
    for user in test_users() {
        let victim = Victim::spawn(&user);
        let pid = victim.pid().to_string();
        testbed(move |_| ["setns".into(), pid.clone()]).control(Control::Root).assert_refused_for(&user);
    }
}

#[test]
fn the_hosts_loopback_is_not_reached_by_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    testbed(move |_| ["tcp".into(), address.clone()]).assert_refused();
}

#[test]
fn the_hosts_loopback_is_not_reached_by_the_shell() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    shell(move |_| format!("exec 5<>/dev/tcp/127.0.0.1/{port}")).assert_refused();
}

/// Echoes every datagram until an empty one arrives.
fn echo() -> (String, impl Drop) {
    struct Stop(String);
    impl Drop for Stop {
        fn drop(&mut self) {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], &self.0).unwrap();
        }
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length @ 1.., from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..length], from).unwrap();
        }
    });
    (address.clone(), Stop(address))
}

#[test]
fn the_hosts_loopback_is_not_reached_by_udp() {
    let (address, _stop) = echo();
    testbed(move |_| ["udp".into(), address.clone()]).assert_refused();
}

#[test]
fn a_name_server_of_the_host_is_not_reached() {
    let (address, _stop) = echo();
    testbed(move |_| ["dns".into(), address.clone()]).assert_refused();
}

/// A listener in the abstract socket namespace.
fn abstract_listener(user: &TestUser) -> (String, UnixListener) {
    let name = format!("hermes-test-{}-{}", std::process::id(), user.path_str("").len() + user.uid as usize);
    let name = format!("{name}-{:?}", thread::current().id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    (name, UnixListener::bind_addr(&address).unwrap())
}

#[test]
fn abstract_sockets_of_the_host_are_not_reached() {
    for user in test_users() {
        let (name, _listener) = abstract_listener(&user);
        testbed(move |_| ["abstract".into(), name.clone()]).assert_refused_for(&user);
    }
}

#[test]
fn abstract_sockets_of_the_host_are_not_reached_with_its_network() {
    for user in test_users() {
        let (name, _listener) = abstract_listener(&user);
        testbed(move |_| ["abstract".into(), name.clone()])
            .jail(|_, jail| jail.network = JailNetwork::Full)
            .assert_refused_for(&user);
    }
}

#[test]
fn an_engine_socket_in_a_home_is_not_reached() {
    for user in test_users() {
        let _listener = UnixListener::bind(user.path("home/.docker/engine.sock")).unwrap();
        user.chown_tree(&user.path("home/.docker"));
        testbed(|user| ["unix".into(), user.path_str("home/.docker/engine.sock")]).assert_refused_for(&user);
    }
}

#[test]
fn a_socket_outside_the_workspace_is_not_reached() {
    for user in test_users() {
        let _listener = UnixListener::bind(user.path("outside/editor.sock")).unwrap();
        user.chown_tree(&user.path("outside"));
        testbed(|user| ["unix".into(), user.path_str("outside/editor.sock")]).assert_refused_for(&user);
    }
}

#[test]
fn a_socket_that_a_server_creates_again_is_not_reached() {
    for user in test_users() {
        let directory = user.path("outside/server");
        fs::create_dir(&directory).unwrap();
        let socket = directory.join("s.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::write(directory.join("s.pid"), "1").unwrap();
        let [ready, going] = ["work/ready", "work/going"].map(|name| user.path(name));
        for fifo in [&ready, &going] {
            assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
        }
        user.chown_tree(&directory);
        user.chown_tree(&user.path("work"));
        let attack = [user.path_str("testbed"), "attack".into(), "unix".into(), socket.display().to_string()];
        let script = format!("echo > ready; read -r < going; {}", attack.join(" "));
        let mut jail = user.jail_command(&user.jail("/bin/bash", &["-c", &script])).spawn().unwrap();
        fs::read(&ready).unwrap();
        drop(listener);
        fs::remove_file(&socket).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        user.chown_tree(&directory);
        let control = user.run_unconfined(&attack);
        assert_eq!(control.code, 0, "{control:?}");
        fs::write(&going, "\n").unwrap();
        assert_eq!(jail.wait().unwrap().code(), Some(REFUSED));
    }
}

#[test]
fn a_socket_in_the_workspace_is_reached() {
    for user in test_users() {
        let _listener = UnixListener::bind(user.path("work/meant.sock")).unwrap();
        user.chown_tree(&user.path("work"));
        let words = ["attack".to_owned(), "unix".to_owned(), user.path_str("work/meant.sock")];
        assert_eq!(user.run_confined(&user.jail(user.program(), &words)).code, 0);
    }
}

#[test]
fn the_hosts_network_is_reached_by_a_jail_that_has_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for user in test_users() {
        let mut jail = user.jail(user.program(), &["attack", "tcp", &address]);
        jail.network = JailNetwork::Full;
        assert_eq!(user.run_confined(&jail).code, 0);
    }
}

#[test]
fn sockets_in_run_are_not_reached() {
    if !require_root("create a socket in /run") {
        return;
    }
    let directory = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/run").unwrap();
    let path = directory.path().join("docker.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    testbed(move |_| ["unix".into(), path.clone()]).control(Control::Root).assert_refused();
}
