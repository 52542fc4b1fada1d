//! Attacks on the host from inside a container. Each attack has a control that succeeds elsewhere
//! or shows that success would be noticed.

use std::fs;
use std::io::Read;
use std::net::TcpListener;

use hermes_exec::OutputMode;
use hermes_exec::backend::docker::ContainerLimits;
use hermes_types::Network;

use crate::fixture::run_options;
use crate::session::{Session, TestEnv, text};

/// CHOWN, DAC_OVERRIDE, FOWNER, SETGID and SETUID, as the kernel numbers them.
const GRANTED_CAPS: &str = "00000000000000cb";

/// Capability sets without any capability.
const NO_CAPS: &str = "0000000000000000";

pub(crate) async fn commands_have_only_the_granted_capabilities(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    let field = async |name: &str, of: &str| {
        let found = s.out(&format!("sed -n 's/^{name}:.//p' /proc/{of}/status")).await;
        found.trim().to_owned()
    };
    for of in ["self", "1"] {
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(field(name, of).await, GRANTED_CAPS, "{name} of {of}");
        }
        assert_eq!(field("CapAmb", of).await, NO_CAPS);
        assert_eq!(field("NoNewPrivs", of).await, "1");
        // The seccomp filter of the engine is active.
        assert_eq!(field("Seccomp", of).await, "2");
    }
    // Control: unconfined root has more capabilities.
    let here = fs::read_to_string("/proc/self/status").unwrap();
    let bounds = here.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).unwrap();
    assert_ne!(bounds, GRANTED_CAPS);
}

pub(crate) async fn nothing_of_the_host_is_visible(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    let secret = test_env.folder.join("secret");
    fs::write(&secret, "host data").unwrap();
    let peer = test_env.peer.clone().unwrap();
    // Paths of the host, looked up inside.
    for path in [&secret, &test_env.persistent_dir(), &test_env.host().run_dir, &peer.socket] {
        assert!(path.exists(), "{}", path.display());
        assert_ne!(s.run(&format!("test -e {}", path.display())).await.code, 0, "{}", path.display());
    }
    let sockets = s.out("find / -xdev -type s 2>/dev/null; find /run /.hermes /tmp -type s").await;
    let mut sockets: Vec<&str> = sockets.lines().collect();
    sockets.dedup();
    assert_eq!(sockets, ["/.hermes/run/sock"]);
    // Every mount of the host is one that Hermes configured.
    let folder = test_env.folder.display().to_string();
    let shown = s.out("grep ' - ' /proc/self/mountinfo").await;
    let mut targets: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains(&folder) || line.contains("hermes-guest"))
        .map(|line| line.split(' ').nth(4).unwrap())
        .collect();
    targets.sort_unstable();
    assert_eq!(targets, ["/.hermes/guest", "/.hermes/run", "/root", "/workspace"]);
    // The guest itself cannot be changed.
    assert_ne!(s.run("echo x >>/.hermes/guest").await.code, 0);
    assert_ne!(s.run("rm -f /.hermes/guest").await.code, 0);
    // Only processes of the place are visible.
    assert_eq!(s.out("tr '\\0' ' ' </proc/1/cmdline | grep -c ' serve '").await, "1\n");
    let processes = s.out("ls -d /proc/[0-9]* | wc -l").await;
    assert!(processes.trim().parse::<u32>().unwrap() < 10, "{processes}");
}

/// Runs a Python program and returns its output.
async fn python(s: &Session, program: &str) -> String {
    s.out(&format!("exec python3 - <<'END'\n{program}\nEND")).await
}

pub(crate) async fn devices_and_the_kernel_are_not_accessible(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    let devices =
        s.out("cd /dev; for name in * mqueue/* shm/*; do [ -L $name ] || { [ -c $name -o -b $name ] && echo $name; }; done; true").await;
    let known = ["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"];
    let strange = devices.lines().filter(|name| !known.contains(name));
    assert_eq!(strange.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(devices.lines().any(|name| name == "null"), "{devices}");
    // New device nodes: of the disk, of memory, of the kernel log.
    let attempts = "import os, stat\n\
        for kind, major, minor in [(stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 11)]:\n\
        \x20   for place in ['/tmp', '/workspace', '/']:\n\
        \x20       path = os.path.join(place, 'node')\n\
        \x20       try:\n\
        \x20           os.mknod(path, kind | 0o600, os.makedev(major, minor))\n\
        \x20           print('made', path, major, minor)\n\
        \x20           os.unlink(path)\n\
        \x20       except PermissionError: pass\n\
        os.mknod('/tmp/pipe', stat.S_IFIFO | 0o600); print('a pipe can be made')";
    assert_eq!(python(&s, attempts).await, "a pipe can be made\n");
    for path in [
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/drop_caches", "/sys/kernel/uevent_helper", "/sys/power/state",
    ] {
        assert_ne!(s.run(&format!("echo 1 >{path}")).await.code, 0, "{path}");
    }
    assert_eq!(s.out("echo 1 >/tmp/written; cat /tmp/written").await, "1\n");
    for path in ["/proc/kcore", "/proc/keys", "/proc/timer_list"] {
        assert_eq!(s.run(&format!("head -c 100 {path} 2>/dev/null")).await.output, b"", "{path}");
    }
    assert_ne!(s.run("dmesg").await.code, 0);
}

/// System calls that only root of the host may make. Prints calls that succeeded or failed for
/// another reason than missing rights.
const PRIVILEGED_CALLS: &str = r"import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
new = {'mount': 0x20000, 'network': 0x40000000, 'processes': 0x20000000, 'cgroup': 0x2000000}
calls = {
    'mount tmpfs': lambda: libc.mount(b'none', b'/mnt', b'tmpfs', 0, None),
    'mount cgroup': lambda: libc.mount(b'none', b'/mnt', b'cgroup', 0, b'memory'),
    'mount proc': lambda: libc.mount(b'none', b'/mnt', b'proc', 0, None),
    'bind': lambda: libc.mount(b'/', b'/mnt', None, 4096, None),
    'remount': lambda: libc.mount(b'none', b'/proc/sys', None, 32 | 4096, None),
    'unmount a mask': lambda: libc.umount2(b'/proc/sys', 2),
    'unmount the guest': lambda: libc.umount2(b'/.hermes/guest', 2),
    'chroot': lambda: libc.chroot(b'/'),
    'name': lambda: libc.sethostname(b'other', 5),
    'enter a namespace': lambda: libc.setns(os.open('/proc/1/ns/mnt', os.O_RDONLY), 0),
    'open by handle': lambda: libc.open_by_handle_at(0, None, 0),
    'load a module': lambda: libc.init_module(None, 0, b''),
    'swap': lambda: libc.swapon(b'/tmp', 0),
    'reboot': lambda: libc.reboot(0),
    'keep time': lambda: libc.clock_settime(0, (ctypes.c_long * 2)(0, 0)),
}
for name, flag in new.items():
    calls['new ' + name] = lambda flag=flag: libc.unshare(flag)
for name, call in calls.items():
    try:
        if call() != -1: print(name, 'succeeded')
        elif ctypes.get_errno() not in (1, 13, 38): print(name, os.strerror(ctypes.get_errno()))
    except PermissionError: pass
print(libc.getpid() == os.getpid())";

/// Tries the same as root of a new user namespace, which Podman allows and which grants nothing.
const CALLS_IN_USER_NAMESPACE: &str = r"import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000 | 0x20000) == -1:
    print(os.strerror(ctypes.get_errno()))
else:
    attempts = {
        'mount proc': lambda: libc.mount(b'none', b'/mnt', b'proc', 0, None),
        'mount cgroup': lambda: libc.mount(b'none', b'/mnt', b'cgroup', 0, b'memory'),
        'unmount a mask': lambda: libc.umount2(b'/proc/sys', 2),
        'unmount the guest': lambda: libc.umount2(b'/.hermes/guest', 2),
        'open by handle': lambda: libc.open_by_handle_at(0, None, 0),
        'load a module': lambda: libc.init_module(None, 0, b''),
        'a device': lambda: os.mknod('/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0)),
        'the kernel': lambda: open('/proc/sys/kernel/core_pattern', 'w').close(),
    }
    for name, attempt in attempts.items():
        try:
            if attempt() != -1: print(name, 'succeeded')
        except OSError: pass
    print('no privileges')";

pub(crate) async fn cgroups_and_mounts_cannot_be_changed(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    assert_eq!(python(&s, PRIVILEGED_CALLS).await, "True\n");
    let output = python(&s, CALLS_IN_USER_NAMESPACE).await;
    assert!(["Operation not permitted\n", "no privileges\n"].contains(&output.as_str()), "{output}");
    // Through a writable cgroup, a command could make the kernel run a program on the host.
    // Control: the same steps succeed in an ordinary directory.
    let attempt = |directories: &str| {
        format!(
            "for at in {directories}; do mkdir $at/mine && echo created $at; \
             echo /tmp/x >$at/release_agent && echo set $at; echo 1 >$at/notify_on_release && echo enabled $at; done; true"
        )
    };
    let quietly = |command: String| format!("{{ {command}; }} 2>/dev/null");
    let cgroups = "$(grep -- ' - cgroup' /proc/self/mountinfo | cut -d' ' -f5)";
    assert_eq!(s.out(&quietly(attempt(cgroups))).await, "");
    assert_eq!(s.out(&quietly(attempt("/tmp"))).await, "created /tmp\nset /tmp\nenabled /tmp\n");
}

pub(crate) async fn a_setuid_program_gives_no_privileges(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    // An unprivileged user runs a setuid copy of a program of root.
    let report = "cp /usr/bin/python3 /workspace/rooted; chmod 4755 /workspace/rooted /workspace; chmod 755 /workspace; \
        cat >/workspace/who.py <<'END'\nimport os\nprint(os.geteuid())\nEND\n\
        stat -c %a /workspace/rooted; \
        exec python3 -c \"import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); \
        os.execv('/workspace/rooted', ['rooted', '/workspace/who.py'])\"";
    assert_eq!(s.out(report).await, "4755\n65534\n");
}

pub(crate) async fn the_guest_of_another_place_is_not_reachable(test_env: &TestEnv) {
    let (s, other) = (test_env.open("s").await, test_env.open("other").await);
    other.out("export SECRET=1; echo x >/workspace/mine").await;
    assert_eq!(s.out("ls -A /workspace").await, "");
    // The memory of the first process holds only data of this place, so taking it over gains
    // nothing.
    let seen = s.run("head -c 1 /proc/1/root/workspace/mine; cat /proc/1/root/etc/hostname").await;
    assert_eq!(s.out("cat /etc/hostname").await.trim(), text(&seen).lines().last().unwrap());
    assert_eq!(other.out("echo $SECRET; cat /workspace/mine").await, "1\nx\n");
    // A listener in place of the guest is trusted only for this place.
    let fake = "import os, socket\n\
        os.unlink('/.hermes/run/sock'); s = socket.socket(socket.AF_UNIX); s.bind('/.hermes/run/sock'); s.listen()\n\
        os.chmod('/.hermes/run/sock', 0o777); print('listening', flush=True)\n\
        while True: c, _ = s.accept(); c.sendall(b'hermes-guest' + b'x' * 100); c.close()";
    let id = s.background(&format!("exec python3 -u - <<'END'\n{fake}\nEND")).await;
    assert_eq!(crate::process::output_of(&s, id, 1).await, "listening\n");
    drop(s);
    assert_eq!(test_env.open("s").await.out("ls -A /workspace; echo $SECRET").await, "\n");
    assert_eq!(other.out("echo $SECRET").await, "1\n");
}

/// Inspects the first process as a command of the same user: whether it can be traced and stopped,
/// which of two secrets is in its memory, its variables, and its open files outside the place.
const INSPECT_INIT: &str = r"import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
secrets = {name: ('canary' + '-' + name).encode() for name in ['mine', 'other', 'unused']}
found = set()
with open('/proc/1/mem', 'rb', 0) as memory:
    for line in open('/proc/1/maps'):
        span, rights = line.split()[:2]
        if not rights.startswith('rw'): continue
        begin, end = (int(part, 16) for part in span.split('-'))
        memory.seek(begin)
        try: text = memory.read(end - begin)
        except OSError: continue
        found |= {name for name, secret in secrets.items() if secret in text}
print('memory', *sorted(found))
print('environ', *sorted(pair.split(b'=')[0].decode() for pair in open('/proc/1/environ', 'rb').read().split(b'\0') if pair))
kinds = ('socket:', 'pipe:', 'anon_inode:', '/memfd:', '/dev/null', '/dev/ptmx', '/dev/pts/', '/.hermes/run/')
links = [os.readlink('/proc/1/fd/' + number) for number in os.listdir('/proc/1/fd')]
print('unexpected', *sorted(link for link in links if not link.startswith(kinds)))
print('traceable', libc.ptrace(0x4206, 1, 0, 0) == 0, flush=True)";

/// The first process runs as the user of the commands, which can trace it. It has no data and no
/// privileges that they do not have, and the host does not trust it.
pub(crate) async fn the_first_process_reveals_only_the_environment_of_the_session(test_env: &TestEnv) {
    let (s, other) = (test_env.open("s").await, test_env.open("other").await);
    other.out("export SECRET=canary-other").await;
    s.out("export SECRET=canary-mine").await;
    let seen = python(&s, INSPECT_INIT).await.replace(" TERM\n", "\n");
    assert_eq!(seen, "memory mine\nenviron HOME PATH\nunexpected\ntraceable True\n");
    assert_eq!((s.out("echo $SECRET").await, other.out("echo $SECRET").await), {
        ("canary-mine\n".to_owned(), "canary-other\n".to_owned())
    });
}

pub(crate) async fn a_fork_bomb_stays_below_its_limit(test_env: &TestEnv) {
    const MAX_PROCESSES: usize = 64;
    let bomb = "import os, time\nmade = 0\n\
        for _ in range(200):\n\
        \x20   try: pid = os.fork()\n\
        \x20   except OSError: break\n\
        \x20   if pid == 0: time.sleep(1000); os._exit(0)\n\
        \x20   made += 1\n\
        print(made)";
    let limits = |max| ContainerLimits { processes: Some(max), ..ContainerLimits::default() };
    let unlimited = test_env.open_with("free", |docker| docker.limits = limits(1000)).await;
    assert_eq!(python_number(&unlimited, bomb).await, 200);
    let s = test_env.open_with("s", |docker| docker.limits = limits(64)).await;
    let made = python_number(&s, bomb).await;
    if test_env.has_cgroups().await {
        assert!((1..MAX_PROCESSES).contains(&made), "{made}");
    } else {
        assert_eq!(made, 200);
    }
    assert_eq!(s.out("echo fine").await, "fine\n");
}

/// Runs a Python program that prints a number, and kills its leftover processes.
async fn python_number(s: &Session, program: &str) -> usize {
    let command = format!("exec python3 - <<'END'\n{program}\nEND");
    let outcome = s.end(&command, run_options(OutputMode::AtEnd)).await;
    s.processes().await.kill(outcome.leftover.unwrap()).await.unwrap();
    text(&outcome).trim().parse().unwrap()
}

pub(crate) async fn a_place_without_network_has_only_loopback(test_env: &TestEnv) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = [0; 4];
        stream.read_exact(&mut received).unwrap();
        received
    });
    let addresses = host_addresses();
    assert!(addresses.contains(&"127.0.0.1".to_owned()), "{addresses:?}");
    let attempt = |address: &str| {
        format!(
            "import socket\ns = socket.socket(); s.settimeout(5)\n\
             try: s.connect(('{address}', {port})); s.sendall(b'ping'); print('reached')\n\
             except ConnectionRefusedError: print('refused')\n\
             except OSError: print('unreachable')"
        )
    };
    for network in [Network::None, Network::Proxy] {
        let s = test_env.open_with(network.as_str(), |docker| docker.network = network).await;
        assert_eq!(s.out("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n", "{network:?}");
        let elsewhere = ["169.254.169.254", "10.0.2.2", "172.17.0.1"];
        for address in addresses.iter().map(String::as_str).chain(elsewhere) {
            // The loopback interface of the place exists, but nothing listens there.
            let expected = if address.starts_with("127.") { "refused\n" } else { "unreachable\n" };
            assert_eq!(python(&s, &attempt(address)).await, expected, "{network:?} {address}");
            if network == Network::Proxy {
                let answer = python(&s, &proxy_connect_program(address, port)).await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{address}: {answer}");
            }
        }
    }
    // Control: with a network, the host of the engine can be reached.
    let s = test_env.open_with("full", |docker| docker.network = Network::Full).await;
    let gateway = "import socket, struct\n\
        for line in open('/proc/net/route').read().splitlines()[1:]:\n\
        \x20   fields = line.split()\n\
        \x20   if fields[1] == '00000000': print(socket.inet_ntoa(struct.pack('<I', int(fields[2], 16))))";
    let gateway = python(&s, gateway).await;
    assert_ne!(python(&s, &attempt(gateway.trim())).await, "unreachable\n", "{gateway}");
    let mut reached = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut reached, b"ping").unwrap();
    assert_eq!(&service.join().unwrap(), b"ping", "the service was running all the time");
}

/// A Python program that requests a connection from the proxy and prints the response.
fn proxy_connect_program(address: &str, port: u16) -> String {
    format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', 13128), 10)\n\
         s.sendall(b'CONNECT {address}:{port} HTTP/1.1\\r\\nHost: {address}\\r\\n\\r\\n'); print(s.recv(100).decode())"
    )
}

/// The addresses of this machine.
fn host_addresses() -> Vec<String> {
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap();
    let lines: Vec<&str> = routes.lines().collect();
    let local = lines.windows(2).filter(|pair| pair[1].contains("/32 host LOCAL"));
    let mut found: Vec<String> = local
        .filter_map(|pair| pair[0].rsplit("-- ").next())
        .map(|address| address.trim().to_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}
