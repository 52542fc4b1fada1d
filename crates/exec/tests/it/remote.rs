//! An engine reached over TCP, as on another machine: it shares no directory with this host.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bollard::query_parameters::ListVolumesOptions;
use hermes_exec::backend::docker::EngineVolume;
use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::{BindMount, Error, StateLoss};
use hermes_types::MountAccess;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;

use crate::session::{TestEnv, text};

/// A relay to an engine.
pub(crate) struct TcpEngine {
    pub(crate) address: EngineAddress,
    task: JoinHandle<()>,
}

impl TcpEngine {
    pub(crate) async fn new(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = EngineAddress::Tcp(listener.local_addr().unwrap().to_string());
        let task = tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let socket = socket.clone();
                tokio::spawn(async move {
                    let mut to = UnixStream::connect(socket).await.unwrap();
                    drop(copy_bidirectional(&mut from, &mut to).await);
                });
            }
        });
        Self { address, task }
    }
}

impl Drop for TcpEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn a_remote_engine_behaves_like_a_local_one(test_env: &TestEnv) {
    let peer = test_env.peer.clone().unwrap();
    let remote = TcpEngine::new(peer.socket.clone()).await;
    let open = async || test_env.open_with("s", |docker| docker.engine = remote.address.clone()).await;
    let s = open().await;
    assert_eq!(s.out("export A=1; cd /tmp; echo kept >/workspace/file; pwd").await, "/tmp\n");
    s.background("sleep 100").await;
    drop(s);
    // Another handle, as in another process, finds it unchanged.
    let s = open().await;
    assert_eq!(s.out("echo $A $PWD; cat /workspace/file").await, "1 /tmp\nkept\n");
    assert_eq!(s.processes().await.list().await.unwrap().len(), 1);
    let found = test_env.places().list().await.unwrap();
    assert_eq!(found.len(), 1);
    found[0].end().await.unwrap();
    assert_eq!(test_env.containers().await, Vec::<String>::new());
    // Its files are volumes of the engine, and outlive it.
    let again = s.run("cat /workspace/file").await;
    assert_eq!((text(&again).as_str(), again.state_loss), ("kept\n", StateLoss::Yes));
    let named = s.plan.name();
    s.sandbox.remove().await.unwrap();
    let volumes = peer.engine().await.api.list_volumes(None::<ListVolumesOptions>).await.unwrap();
    let left = volumes.volumes.into_iter().flatten().filter(|volume| volume.name.starts_with(&named));
    assert_eq!(left.count(), 0);
}

pub(crate) async fn every_user_has_a_guest_on_a_remote_engine(test_env: &TestEnv) {
    let remote = TcpEngine::new(test_env.peer.clone().unwrap().socket).await;
    let volumes = async || {
        let api = test_env.peer.clone().unwrap().engine().await.api;
        let listed = api.list_volumes(None::<ListVolumesOptions>).await.unwrap().volumes.unwrap_or_default();
        listed.into_iter().map(|volume| volume.name).collect::<BTreeSet<_>>()
    };
    for (option, uid) in [("--user=1000", "1000\n"), ("--user=nobody", "65534\n"), ("--user=0", "0\n")] {
        let s = test_env
            .open_with("s", |docker| {
                docker.engine = remote.address.clone();
                *docker.run_args = RunArgs::parse(&[option.to_owned()]).unwrap();
                docker.files = None;
            })
            .await;
        assert_eq!(s.out("echo x >~/x; echo y >/workspace/y; id -u").await, uid);
        let mine = s.out("cat /proc/self/mountinfo").await;
        s.sandbox.remove().await.unwrap();
        // The anonymous volume is gone; only the named ones remain.
        let left = volumes().await;
        let left: Vec<_> = left.iter().filter(|name| mine.contains(name.as_str())).collect();
        assert_eq!(left, Vec::<&String>::new(), "{mine}");
    }
}

pub(crate) async fn host_mounts_on_a_remote_engine_are_refused(test_env: &TestEnv) {
    let remote = TcpEngine::new(test_env.peer.clone().unwrap().socket).await;
    let source = test_env.folder.join("work");
    let (path, target) = (source.display().to_string(), PathBuf::from("/x"));
    let bind = BindMount { source: source.clone(), target: target.clone(), access: MountAccess::ReadOnly };
    let options = vec!["z".to_owned()];
    let mount = BindMount { source: PathBuf::from(&path), target, access: MountAccess::ReadOnly };
    let volume = EngineVolume { mount, options };
    for (binds, volumes) in [(vec![bind], Vec::new()), (Vec::new(), vec![volume])] {
        let plan = test_env.plan_with("s", |docker| {
            docker.engine = remote.address.clone();
            (docker.binds, docker.volumes) = (binds, volumes);
        });
        let error = plan.open().await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
        let shown = error.to_string();
        assert!(shown.contains(&path), "{shown}");
    }
    assert_eq!(test_env.containers().await, Vec::<String>::new());
}
