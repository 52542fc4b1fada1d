//! Attacks on files, processes and the network of the host.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use hermes_sandbox::{Access, Bind, Jail, Network};

use crate::attack::{Control, Victim, shell, testbed};
use crate::bed::{Bed, REFUSED, SECRET, copy, everybody};

fn reads(path: &str) -> String {
    format!("grep -q {SECRET} {path}")
}

#[test]
fn hermes_home_is_not_read_by_path() {
    shell(|bed| reads(&bed.text("home/.hermes/.env"))).is_refused();
}

#[test]
fn ssh_keys_are_not_read_by_path() {
    shell(|bed| reads(&bed.text("home/.ssh/id"))).is_refused();
}

#[test]
fn cloud_credentials_are_not_read_by_path() {
    shell(|bed| reads(&bed.text("home/.aws/credentials"))).is_refused();
}

#[test]
fn a_masked_file_is_not_read_by_path() {
    shell(|bed| reads(&bed.text("home/.netrc"))).is_refused();
}

#[test]
fn ssh_keys_are_not_read_by_a_symlink() {
    shell(|bed| format!("ln -sfn {} link && {}", bed.text("home/.ssh/id"), reads("link"))).is_refused();
}

#[test]
fn ssh_keys_are_not_read_by_a_symlink_made_outside() {
    for bed in everybody() {
        std::os::unix::fs::symlink(bed.path("home/.ssh"), bed.path("work/keys")).unwrap();
        shell(|_| reads("keys/id")).is_refused_to(&bed);
    }
}

#[test]
fn ssh_keys_are_not_read_by_a_hard_link() {
    shell(|bed| format!("ln -f {} hard && {}", bed.text("home/.ssh/id"), reads("hard"))).is_refused();
}

#[test]
fn ssh_keys_are_not_read_by_the_roots_of_processes() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let outside = victim.pid();
        shell(|bed| {
            format!("cat /proc/[0-9]*/root{0} 2>/dev/null | {1}", bed.text("home/.ssh/id"), reads("-"))
        })
        .freely(move |bed| reads(&format!("/proc/{outside}/root{}", bed.text("home/.ssh/id"))))
        .is_refused_to(&bed);
    }
}

#[test]
fn the_environment_of_host_processes_is_not_read() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let pid = victim.pid();
        shell(move |_| format!("grep -qa {SECRET} /proc/{pid}/environ /proc/[0-9]*/environ 2>/dev/null"))
            .freely(move |_| format!("grep -qa {SECRET} /proc/{pid}/environ"))
            .is_refused_to(&bed);
    }
}

#[test]
fn open_files_of_host_processes_are_not_read() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let pid = victim.pid();
        shell(move |_| reads(&format!("/proc/{pid}/fd/0"))).is_refused_to(&bed);
    }
}

#[test]
fn a_bind_at_another_path_does_not_show_what_is_masked() {
    shell(|_| reads("/shown/.ssh/id"))
        .freely(|bed| reads(&bed.text("home/.ssh/id")))
        .jail(|bed, jail| {
            let (source, target) = (bed.path("home"), PathBuf::from("/shown"));
            jail.binds.push(Bind { source, target, access: Access::ReadWrite });
        })
        .is_refused();
}

#[test]
fn a_home_that_is_the_workspace_still_hides_its_keys() {
    shell(|bed| reads(&bed.text("home/.ssh/id")))
        .jail(|bed, jail| {
            *jail = jail.clone().bind(bed.path("home"), Access::ReadWrite);
        })
        .is_refused();
}

#[test]
fn the_cover_of_a_mask_cannot_be_taken_off() {
    testbed(|bed| ["umount".into(), bed.text("home/.ssh")])
        .freely(|_| "mount -t tmpfs none /mnt && umount /mnt".to_owned())
        .control(Control::Namespaces("-Urm"))
        .is_refused();
}

#[test]
fn the_password_hashes_are_not_read() {
    shell(|_| "grep -q : /etc/shadow".to_owned()).control(Control::Root).is_refused();
}

#[test]
fn the_homes_of_others_are_not_read() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can make a home for another person");
    }
    let home = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/home").unwrap();
    fs::write(home.path().join("diary"), SECRET).unwrap();
    let diary = home.path().join("diary").to_str().unwrap().to_owned();
    shell(move |_| reads(&diary)).control(Control::Root).is_refused();
}

#[test]
fn a_program_behind_a_mask_is_not_run_by_the_loader() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for bed in everybody() {
        copy("/bin/true", bed.path("home/.aws/tool"));
        bed.give(&bed.path("home/.aws/tool"));
        shell(move |bed| format!("{loader} {}", bed.text("home/.aws/tool"))).is_refused_to(&bed);
    }
}

#[test]
fn nothing_is_made_outside_the_workspace() {
    shell(|bed| format!("touch {}", bed.text("outside/new"))).is_refused();
}

/// A jail whose root has a name that the host's root has not, and is therefore another one.
fn with_another_root(bed: &Bed, jail: &mut Jail) {
    let (source, target) = (bed.path("work"), PathBuf::from("/another/root"));
    jail.binds.push(Bind { source, target, access: Access::ReadWrite });
}

#[test]
fn nothing_is_made_outside_the_workspace_from_another_root() {
    shell(|bed| format!("touch {0} || touch /..{0} || touch /proc/1/root/..{0}", bed.text("outside/new")))
        .jail(with_another_root)
        .is_refused();
}

#[test]
fn ssh_keys_are_not_read_from_another_root() {
    shell(|bed| {
        format!(
            "cat {0} /..{0} /proc/1/root{0} /proc/1/cwd/..{0} | {1}",
            bed.text("home/.ssh/id"),
            reads("-")
        )
    })
    .jail(with_another_root)
    .is_refused();
}

#[test]
fn nothing_is_changed_outside_the_workspace() {
    shell(|bed| format!("echo changed >> {}", bed.text("outside/file"))).is_refused();
}

#[test]
fn nothing_is_changed_by_a_symlink_in_the_workspace() {
    shell(|bed| format!("ln -sfn {} way && touch way/new", bed.text("outside"))).is_refused();
}

#[test]
fn nothing_is_changed_by_the_root_of_a_process() {
    shell(|bed| format!("touch /proc/self/root{}", bed.text("outside/new"))).is_refused();
}

#[test]
fn nothing_is_linked_out_of_the_workspace() {
    shell(|bed| format!("touch mine && ln -f mine {}", bed.text("outside/theirs"))).is_refused();
}

#[test]
fn nothing_outside_is_removed() {
    shell(|bed| format!("rm -f {}", bed.text("outside/file")))
        .freely(|bed| format!("touch {0} && rm {0}", bed.text("outside/file2")))
        .is_refused();
}

#[test]
fn nothing_outside_changes_its_mode() {
    shell(|bed| format!("chmod 777 {}", bed.text("outside/file"))).is_refused();
}

#[test]
fn system_directories_are_not_written() {
    shell(|_| "touch /usr/hermes-test && rm /usr/hermes-test".to_owned()).control(Control::Root).is_refused();
}

#[test]
fn named_pipes_outside_are_not_written() {
    for bed in everybody() {
        let made = bed.free(&["mkfifo", &bed.text("outside/pipe")]);
        assert_eq!(made.code, 0);
        shell(|bed| format!("exec 5<>{}", bed.text("outside/pipe"))).is_refused_to(&bed);
    }
}

#[test]
fn a_file_handed_over_for_reading_is_not_opened_for_writing() {
    for bed in everybody() {
        let script = format!("if echo changed > /proc/self/fd/0; then exit 0; else exit {REFUSED}; fi");
        let stdin = || Stdio::from(fs::File::open(bed.path("outside/file")).unwrap());
        let mut free = bed.command(bed.uid, "bash");
        assert_eq!(free.args(["-c", &script]).stdin(stdin()).status().unwrap().code(), Some(0));
        let jail = bed.jail("/bin/bash", &["-c", &script]);
        assert_eq!(bed.run(&jail).stdin(stdin()).output().unwrap().status.code(), Some(REFUSED));
    }
}

/// Runs `script` free and confined by processes that hold `path` open at number 9, where a careless one leaves it.
fn with_a_leaked_descriptor(path: &str, script: &str) {
    for bed in everybody() {
        let leak = |words: &str| {
            let script = format!("exec 9<{}; exec {words}", bed.text(path));
            let mut command = bed.command(bed.uid, "bash");
            command.args(["-c", &script]).output().unwrap().status.code()
        };
        let script = format!("if {script}; then exit 0; else exit {REFUSED}; fi");
        assert_eq!(leak(&format!("bash -c '{script}'")), Some(0), "control");
        let spec = bed.spec(&bed.jail("/bin/bash", &["-c", &script]));
        assert_eq!(leak(&format!("{} run {}", bed.text("testbed"), spec.display())), Some(REFUSED));
    }
}

#[test]
fn a_leaked_file_does_not_come_along() {
    with_a_leaked_descriptor("home/.ssh/id", &reads("/proc/self/fd/9"));
}

#[test]
fn a_leaked_directory_does_not_come_along() {
    with_a_leaked_descriptor("home", &reads("/proc/self/fd/9/.ssh/id"));
}

#[test]
fn host_processes_are_not_signalled() {
    for bed in everybody() {
        let mut victim = Victim::of(&bed);
        let pid = victim.pid();
        shell(move |_| format!("kill -0 {pid}")).is_refused_to(&bed);
        let all = bed.confined(&bed.jail("/bin/bash", &["-c", "trap '' TERM; kill -TERM -1; exit 0"]));
        assert_eq!((all.code, victim.is_alive()), (0, true));
    }
}

#[test]
fn host_processes_are_not_traced() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let pid = victim.pid().to_string();
        testbed(move |_| ["ptrace".into(), pid.clone()]).is_refused_to(&bed);
    }
}

#[test]
fn the_memory_of_host_processes_is_not_read() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid())).unwrap();
        let start = i64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
        let pid = victim.pid().to_string();
        testbed(move |_| ["read-memory".into(), pid.clone(), start.to_string()]).is_refused_to(&bed);
    }
}

#[test]
fn the_namespaces_of_host_processes_are_not_entered() {
    for bed in everybody() {
        let victim = Victim::of(&bed);
        let pid = victim.pid().to_string();
        testbed(move |_| ["setns".into(), pid.clone()]).control(Control::Root).is_refused_to(&bed);
    }
}

#[test]
fn the_hosts_loopback_is_not_reached_by_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    testbed(move |_| ["tcp".into(), address.clone()]).is_refused();
}

#[test]
fn the_hosts_loopback_is_not_reached_by_the_shell() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    shell(move |_| format!("exec 5<>/dev/tcp/127.0.0.1/{port}")).is_refused();
}

/// Answers every datagram until it gets an empty one.
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
    testbed(move |_| ["udp".into(), address.clone()]).is_refused();
}

#[test]
fn a_name_server_of_the_host_is_not_asked() {
    let (address, _stop) = echo();
    testbed(move |_| ["dns".into(), address.clone()]).is_refused();
}

/// A socket with a name that only exists in the kernel.
fn abstract_listener(bed: &Bed) -> (String, UnixListener) {
    let name = format!("hermes-test-{}-{}", std::process::id(), bed.text("").len() + bed.uid as usize);
    let name = format!("{name}-{:?}", thread::current().id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    (name, UnixListener::bind_addr(&address).unwrap())
}

#[test]
fn abstract_sockets_of_the_host_are_not_reached() {
    for bed in everybody() {
        let (name, _listener) = abstract_listener(&bed);
        testbed(move |_| ["abstract".into(), name.clone()]).is_refused_to(&bed);
    }
}

#[test]
fn abstract_sockets_of_the_host_are_not_reached_with_its_network() {
    for bed in everybody() {
        let (name, _listener) = abstract_listener(&bed);
        testbed(move |_| ["abstract".into(), name.clone()])
            .jail(|_, jail| jail.network = Network::Full)
            .is_refused_to(&bed);
    }
}

#[test]
fn an_engine_socket_in_a_home_is_not_reached() {
    for bed in everybody() {
        let _listener = UnixListener::bind(bed.path("home/.docker/engine.sock")).unwrap();
        bed.give(&bed.path("home/.docker"));
        testbed(|bed| ["unix".into(), bed.text("home/.docker/engine.sock")]).is_refused_to(&bed);
    }
}

#[test]
fn a_socket_somewhere_else_is_not_reached() {
    for bed in everybody() {
        let _listener = UnixListener::bind(bed.path("outside/editor.sock")).unwrap();
        bed.give(&bed.path("outside"));
        testbed(|bed| ["unix".into(), bed.text("outside/editor.sock")]).is_refused_to(&bed);
    }
}

#[test]
fn a_socket_in_the_workspace_is_reached() {
    for bed in everybody() {
        let _listener = UnixListener::bind(bed.path("work/meant.sock")).unwrap();
        bed.give(&bed.path("work"));
        let words = ["attack".to_owned(), "unix".to_owned(), bed.text("work/meant.sock")];
        assert_eq!(bed.confined(&bed.jail(bed.program(), &words)).code, 0);
    }
}

#[test]
fn the_hosts_network_is_reached_by_a_jail_that_has_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for bed in everybody() {
        let mut jail = bed.jail(bed.program(), &["attack", "tcp", &address]);
        jail.network = Network::Full;
        assert_eq!(bed.confined(&jail).code, 0);
    }
}

#[test]
fn sockets_in_run_are_not_reached() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can make a socket in /run");
    }
    let directory = tempfile::Builder::new().prefix("hermes-test-").tempdir_in("/run").unwrap();
    let path = directory.path().join("docker.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    testbed(move |_| ["unix".into(), path.clone()]).control(Control::Root).is_refused();
}

#[test]
fn descriptors_that_are_handed_over_arrive() {
    let bed = everybody().remove(0);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut jail = bed.jail("/bin/bash", &["-c", "echo through >&7"]);
    jail.directory = PathBuf::from("/");
    let launcher = hermes_sandbox::Launcher::program(bed.program());
    let streams = hermes_sandbox::Streams { others: vec![(7, writer.as_fd())], ..Default::default() };
    let mut running = launcher.launch(&jail, &streams).unwrap();
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "through\n");
    assert_eq!(running.wait().unwrap(), hermes_sandbox::Exit::Code(0));
}
