//! A machine and a small internet in separate namespaces.
//!
//! | address | host |
//! |---|---|
//! | `1.1.1.1`, `2606:4700::1111` | web servers of the internet |
//! | `8.8.4.4` | its name server |
//! | `10.66.0.1`, `169.254.169.254` | a private network and a metadata service |
//! | `9.9.9.1`, `2606:4700:9::1` | this machine itself, with a service on all its addresses |

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hermes_exec::{
    Backend, BindMount, Installation, OpenPlace, OutputMode, PlaceLimits, ResolvedPlace, SandboxBackend, Spec,
};
use hermes_types::{MountAccess, Network, SessionKey, Work};

use crate::fixture::{permit_for, run_options};
use crate::session::text;

/// The variable that marks the process inside the namespaces.
const INSIDE_VAR: &str = "HERMES_TEST_WORLD";

/// The content of services that must not be reached.
pub(crate) const SECRET: &str = "secret";
/// The Rust installation in a jail.
pub(crate) const CARGO_DIR: &str = "/mnt";

/// The network around the test.
pub(crate) struct TestNetwork {
    folder: tempfile::TempDir,
    internet: Child,
    /// The process that simulates the internet; killed on drop.
    _line: ChildStdin,
    /// Connections to the service of this machine.
    pub(crate) intrusions: Arc<AtomicUsize>,
}

/// Runs the body of the named test in another process, in its own namespaces.
#[expect(clippy::disallowed_methods, reason = "the test runs its own program in new namespaces")]
pub(crate) fn in_test_network(test: &str, body: impl AsyncFnOnce(&TestNetwork)) {
    if std::env::var_os(INSIDE_VAR).is_some() {
        let test_network = TestNetwork::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(body(&test_network));
        return;
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(INSIDE_VAR, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
}

impl TestNetwork {
    #[expect(clippy::disallowed_methods, reason = "programs set up the network")]
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("world-").tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/internet.py");
        let mut internet = Command::new("unshare")
            .args(["--net", "--", "python3", script])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = internet.stdin.take().unwrap();
        let mut output = BufReader::new(internet.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "here");
        std::fs::write(folder.path().join("resolv.conf"), "nameserver 8.8.4.4\n").unwrap();
        std::fs::write(folder.path().join("nsswitch.conf"), "hosts: files dns\n").unwrap();
        let made = Command::new("sh")
            .args(["-ec", include_str!("world.sh"), "world", &internet.id().to_string()])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        line.write_all(b"\n").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        let intrusions = Arc::new(AtomicUsize::new(0));
        serve_secrets(&intrusions);
        Self { folder, internet, _line: line, intrusions }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The output of an unconfined command of this machine.
    #[expect(clippy::disallowed_methods, reason = "runs the control of an attack")]
    pub(crate) fn run_unconfined(&self, command: &str) -> (i32, String) {
        let output = Command::new("bash").args(["-c", command]).current_dir(self.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    /// The number of connections to the service of this machine since the last call.
    pub(crate) fn intrusions(&self) -> usize {
        self.intrusions.swap(0, Ordering::SeqCst)
    }

    #[expect(clippy::disallowed_methods, reason = "the test uses the programs of its user")]
    fn plan(&self, session: &str) -> ResolvedPlace {
        let host = Installation {
            install_id: "test".to_owned(),
            run_dir: self.path().join("run"),
            cache_dir: Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"),
            home: self.path().join("home"),
            limits: PlaceLimits { max_places: 10, ..PlaceLimits::default() },
        };
        let jail = SandboxBackend {
            helper: env!("CARGO_BIN_EXE_exec-jailer").into(),
            files: Some(self.path().join("kept")),
            owner_home: std::env::var_os("HOME").unwrap().into(),
            audience: hermes_exec::Audience::Owner,
            // Root in a jail cannot read the home of root.
            binds: vec![BindMount {
                source: cargo_dir().to_owned(),
                target: CARGO_DIR.into(),
                access: MountAccess::ReadOnly,
            }],
            network: Network::Proxy,
            limits: hermes_sandbox::JailLimits::default(),
            base_env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
        };
        let spec = Spec {
            backend: Backend::Sandbox(jail),
            cwd: hermes_exec::backend::sandbox::WORKSPACE_DIR.to_owned(),
            home: hermes_exec::backend::sandbox::HOME_DIR.to_owned(),
            env: Vec::new(),
            init: Vec::new(),
            lifetime: Duration::from_secs(5),
        };
        ResolvedPlace::new(host, spec, SessionKey::new(session)).unwrap()
    }

    /// A jail that can reach the network only through the proxy.
    pub(crate) async fn jail(&self) -> JailedPlace {
        let plan = self.plan("s");
        JailedPlace { sandbox: plan.open().await.unwrap(), plan }
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.internet.kill());
        drop(self.internet.wait());
    }
}

/// The Rust installation of the tests.
fn cargo_dir() -> &'static Path {
    Path::new(env!("CARGO")).parent().and_then(Path::parent).unwrap()
}

/// A jailed place that runs the commands of the attacker.
pub(crate) struct JailedPlace {
    pub(crate) plan: ResolvedPlace,
    pub(crate) sandbox: OpenPlace,
}

impl JailedPlace {
    /// Runs a command in the jail and returns its exit code and output.
    pub(crate) async fn run(&self, command: &str) -> (i32, String) {
        let work = Work::Shell(command.to_owned());
        let permit = permit_for(&self.plan, "s", self.sandbox.job(work).await.unwrap());
        let outcome = self
            .sandbox
            .start_command(permit, run_options(OutputMode::AtEnd))
            .await
            .unwrap()
            .wait()
            .await
            .unwrap();
        (outcome.code, text(&outcome))
    }

    /// Returns the output of a command in the jail that must succeed.
    pub(crate) async fn out(&self, command: &str) -> String {
        let (code, output) = self.run(command).await;
        assert_eq!(code, 0, "{command}\n{output}");
        output
    }
}

/// Serves a secret on all addresses of this machine.
fn serve_secrets(intrusions: &Arc<AtomicUsize>) {
    let listener = TcpListener::bind("[::]:80").unwrap();
    let intrusions = intrusions.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            intrusions.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            // A connection counts even if it sends nothing.
            drop(stream.read(&mut request));
            drop(
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\na secret of this machine\n"),
            );
        }
    });
}
