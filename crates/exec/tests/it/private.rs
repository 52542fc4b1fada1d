//! An engine for one test, which can be stopped and restarted.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use hermes_exec::backend::docker::engine::Engine;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::Peer;
use crate::peers::{self, BUSYBOX};
use crate::session::until;

/// The start of the shell script of every peer.
const PRELUDE: &str = include_str!("../../../../xtask/src/peers/cell/prelude.sh");
const CELL: &str = include_str!("private.sh");
/// Removes the cgroups that containers leave when they are killed together with their engine.
const CGROUPS: &str = include_str!("../../../../xtask/src/peers/cgroups-down.sh");

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Docker(&'static [&'static str]),
    Podman,
}

/// Where the engine stores its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    OfMachine,
    /// A separate disk that can limit layers.
    Btrfs,
}

/// The size of the separate disk.
const DISK_BYTES: u64 = 1 << 30;

/// How the engine is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disruption {
    /// With SIGTERM.
    Asked,
    /// With SIGKILL.
    Killed,
}

/// An engine in namespaces that outlive it.
pub(crate) struct Private {
    kind: Kind,
    supervisor: Child,
    daemon: Option<Child>,
    folder: tempfile::TempDir,
    pub(crate) peer: Peer,
}

impl Private {
    /// Starts an engine and imports an image.
    pub(crate) async fn new(kind: Kind) -> Self {
        Self::on(kind, Disk::OfMachine).await
    }

    /// Starts an engine that stores its layers on a disk of this kind.
    #[expect(clippy::disallowed_methods, reason = "an engine is started by programs")]
    pub(crate) async fn on(kind: Kind, disk: Disk) -> Self {
        let folder = tempfile::Builder::new().prefix("engine-").tempdir().unwrap();
        // Remapped users must reach their layers.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        for name in ["run", "data"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o711)).unwrap();
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "slave", "--pid", "--mount-proc", "--net"]);
        unshare.args(["--fork", "--kill-child", "sh", "-euc"]).arg(format!("{PRELUDE}\n{CELL}")).arg("cell");
        unshare.arg(folder.path().join("run"));
        if disk == Disk::Btrfs {
            let path = folder.path().join("disk");
            File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
            let made = Command::new("mkfs.btrfs").arg("--quiet").arg(&path).output();
            let made = made.unwrap_or_else(|error| panic!("mkfs.btrfs of btrfs-progs: {error}"));
            assert!(made.status.success(), "{made:?}");
            unshare.arg(path).arg(folder.path().join("data"));
        }
        let supervisor = unshare.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let socket = folder.path().join("run/engine.sock");
        let mut private = Self {
            kind,
            supervisor,
            daemon: None,
            peer: Peer { socket, image: String::new(), options: Vec::new() },
            folder,
        };
        until("the cell is ready", || private.inside("true", &[]).output().unwrap().status.success()).await;
        private.start().await;
        private.import().await;
        private
    }

    /// Starts the engine and waits until it answers.
    pub(crate) async fn start(&mut self) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let host = format!("unix://{}", self.peer.socket.display());
        let (data, exec, pid, temporary) = (at("data"), at("run/exec"), at("run/pid"), at("run/tmp"));
        let (program, words) = match &self.kind {
            Kind::Docker(options) => {
                let words = ["--data-root", &data, "--exec-root", &exec, "--pidfile", &pid, "--host", &host];
                let cgroups = ["--group=root", "--exec-opt=native.cgroupdriver=cgroupfs", "--cgroup-parent"];
                let parent = format!("/{}", self.parent());
                let words = [&words[..], &cgroups, &[&parent, "--shutdown-timeout=3"], *options].concat();
                ("dockerd", words.into_iter().map(str::to_owned).collect())
            }
            Kind::Podman => {
                let words = ["--root", &data, "--runroot", &exec, "--tmpdir", &temporary, "--runtime=runc"];
                let service = ["--cgroup-manager=cgroupfs", "system", "service", "--time=0", &host];
                ("podman", [&words[..], &service].concat().into_iter().map(str::to_owned).collect::<Vec<_>>())
            }
        };
        let log = File::options().create(true).append(true).open(at("log")).unwrap();
        let mut daemon = self.inside(program, &words);
        daemon.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(daemon.spawn().unwrap());
        let answers = async {
            while Engine::connect(&self.peer.address()).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let answered = tokio::time::timeout(crate::session::WAIT_TIMEOUT, answers).await;
        assert!(answered.is_ok(), "{}", fs::read_to_string(at("log")).unwrap());
    }

    /// Ends the engine and waits until it is gone.
    pub(crate) fn end(&mut self, disruption: Disruption) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let signal = match disruption {
            Disruption::Asked => Signal::TERM,
            Disruption::Killed => Signal::KILL,
        };
        kill_process(child(&daemon).unwrap(), signal).unwrap();
        daemon.wait().unwrap();
    }

    /// A program in the same namespaces.
    #[expect(clippy::disallowed_methods, reason = "an engine is started by programs")]
    fn inside(&self, program: &str, words: &[String]) -> Command {
        // Before the cell is ready, the pid is 0, which nsenter refuses.
        let first = child(&self.supervisor).map_or(0, |pid| pid.as_raw_nonzero().get());
        let mut command = Command::new("nsenter");
        command.args(["--target", &first.to_string(), "--mount", "--net", "--pid"]);
        command.arg("--").arg(program).args(words);
        command
    }

    /// The control group of all its containers.
    fn parent(&self) -> String {
        self.folder.path().file_name().unwrap().to_string_lossy().into_owned()
    }

    async fn import(&mut self) {
        let peers = peers::read();
        let image =
            peers["images"].as_array().unwrap().iter().find(|image| image["name"] == BUSYBOX).unwrap();
        let tarball = PathBuf::from(image["tarball"].as_str().unwrap());
        let reference = image["reference"].as_str().unwrap().to_owned();
        let options = CreateImageOptionsBuilder::new().from_src("-").repo(&reference).build();
        let body = bollard::body_full(fs::read(Path::new(&tarball)).unwrap().into());
        let api = self.peer.engine().await.api;
        let mut news = api.create_image(Some(options), Some(body), None);
        while let Some(said) = news.next().await {
            said.unwrap();
        }
        self.peer.image = reference;
    }
}

impl Drop for Private {
    #[expect(clippy::disallowed_methods, reason = "the cleanup runs programs")]
    fn drop(&mut self) {
        // All processes of the cell end with its first one, and then the supervisor, which waits
        // for it.
        if let Some(first) = child(&self.supervisor) {
            kill_process(first, Signal::KILL).ok();
        }
        drop(self.supervisor.wait());
        self.daemon.take().map(|mut daemon| daemon.wait());
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-euc"]).arg(format!("{PRELUDE}\n{CGROUPS}")).arg("cgroups");
        unshare.arg(self.parent()).status().ok();
    }
}

/// The only child of a process that waits for it.
fn child(parent: &Child) -> Option<Pid> {
    let text = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}
