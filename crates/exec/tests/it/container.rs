//! The life cycle of containers, as far as it differs from other places.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveImageOptions,
};
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::backend::docker::{ContainerLimits, RunAs};
use hermes_exec::{Backend, BindMount, DockerBackend, Error, OpenPlace, ResolvedPlace, Spec, StateLoss};
use hermes_types::{MountAccess, SessionKey};

use crate::fixture::{Fixture, Peer};
use crate::private::{Disk, Kind, Private};
use crate::session::{Session, TestEnv, guest, is_alive, text, until};

impl Fixture {
    fn engine(&self) -> &Peer {
        self.peer.as_ref().unwrap()
    }

    /// A place with changed container settings.
    pub(crate) fn plan_with(&self, session: &str, change: impl FnOnce(&mut DockerBackend)) -> ResolvedPlace {
        let mut docker = self.docker();
        change(&mut docker);
        let spec = Spec { backend: Backend::Docker(docker), ..self.spec() };
        ResolvedPlace::new(self.host(), spec, SessionKey::new(session)).unwrap()
    }

    /// A session with changed container settings.
    pub(crate) async fn open_with(&self, session: &str, change: impl FnOnce(&mut DockerBackend)) -> Session {
        let plan = self.plan_with(session, change);
        Session { sandbox: plan.open().await.unwrap(), plan, key: session.to_owned() }
    }

    /// Whether root inside is the user that runs the test.
    fn is_rootless(&self) -> bool {
        !rustix::process::getuid().is_root()
    }

    /// Whether containers have a cgroup, by which they are limited and paused. Rootless Podman has
    /// none on hosts with cgroup version 1.
    pub(crate) async fn has_cgroups(&self) -> bool {
        let info = self.engine().engine().await.api.info().await.unwrap();
        let version = info.cgroup_version.map(|version| version.to_string());
        rustix::process::getuid().is_root() || version.as_deref() != Some("1")
    }
}

/// The container name of a session.
fn name(plan: &ResolvedPlace) -> String {
    plan.name().chars().take("hermes-".len() + 8).collect()
}

#[derive(Debug, Clone, Copy)]
enum Disruption {
    Removed,
    Stopped,
    Killed,
    Paused,
}

pub(crate) async fn a_removed_stopped_killed_or_paused_container_is_recreated_and_reported_once(
    test_env: &TestEnv,
) {
    let api = test_env.engine().engine().await.api;
    let s = test_env.open("s").await;
    let name = name(&s.plan);
    s.out("echo kept >file").await;
    let mut disruptions = vec![Disruption::Removed, Disruption::Stopped, Disruption::Killed];
    if test_env.has_cgroups().await {
        disruptions.push(Disruption::Paused);
    }
    for disruption in disruptions {
        s.out("export A=1; cd /").await;
        let force = RemoveContainerOptionsBuilder::new().force(true).build();
        let struck = match disruption {
            Disruption::Removed => api.remove_container(&name, Some(force)).await,
            Disruption::Stopped => api.stop_container(&name, None).await,
            Disruption::Killed => api.kill_container(&name, None).await,
            Disruption::Paused => api.pause_container(&name).await,
        };
        match struck {
            // Podman waits for a killed process and may find its container already removed.
            Err(ApiError::DockerResponseServerError { status_code: 500, message })
                if message.contains("no such container") => {}
            struck => struck.unwrap_or_else(|error| panic!("{disruption:?}: {error}")),
        }
        let seen = s.run("echo [$A]; cat file").await;
        assert_eq!((text(&seen).as_str(), seen.state_loss), ("[]\nkept\n", StateLoss::Yes), "{disruption:?}");
        assert_eq!(s.run("true").await.state_loss, StateLoss::No, "{disruption:?}");
        assert_eq!(test_env.containers().await.len(), 1, "{disruption:?}");
    }
}

pub(crate) async fn opening_a_paused_container_replaces_it(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out("export A=1").await;
    let api = test_env.engine().engine().await.api;
    let paused = api.pause_container(&name(&s.plan)).await;
    if !test_env.has_cgroups().await {
        assert!(paused.is_err(), "a container without cgroups cannot be paused");
        return;
    }
    paused.unwrap();
    drop(s);
    let outcome = test_env.open("s").await.run("echo [$A]").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::Yes));
}

pub(crate) async fn a_foreign_container_with_the_same_name_is_left_alone(test_env: &TestEnv) {
    let api = test_env.engine().engine().await.api;
    let name = name(&test_env.plan("s"));
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let body = ContainerCreateBody {
        image: Some(test_env.engine().image.clone()),
        cmd: Some(vec!["true".to_owned()]),
        ..ContainerCreateBody::default()
    };
    let id = api.create_container(Some(options), body).await.unwrap().id;
    let refused = test_env.try_open("s").await;
    assert!(matches!(&refused, Err(Error::NameTaken { name: taken }) if *taken == name), "{refused:?}");
    test_env.assert_nothing_left().await;
    assert!(api.inspect_container(&id, None).await.is_ok());
    api.remove_container(&id, None).await.unwrap();
    assert_eq!(test_env.open("s").await.out("echo fine").await, "fine\n");
}

pub(crate) async fn a_failed_creation_leaves_nothing_and_gives_the_reason(test_env: &TestEnv) {
    let missing = test_env.folder.join("missing").display().to_string();
    let file = test_env.folder.join("file");
    fs::write(&file, "").unwrap();
    let bind = |target: &str| BindMount {
        source: file.clone(),
        target: target.into(),
        access: MountAccess::ReadOnly,
    };
    type Change<'a> = Box<dyn Fn(&mut DockerBackend) + 'a>;
    let cases: [(&str, Change<'_>); 3] = [
        (
            "localhost/no-such-image:1",
            Box::new(|docker| docker.image = "localhost/no-such-image:1".to_owned()),
        ),
        // A file cannot be mounted on a directory.
        ("/etc", Box::new(|docker| docker.binds = vec![bind("/etc")])),
        (
            &missing,
            Box::new(|docker| {
                docker.engine =
                    hermes_exec::backend::docker::engine::EngineAddress::Unix(missing.clone().into())
            }),
        ),
    ];
    for (expected, change) in &cases {
        let refused: Result<OpenPlace, Error> = test_env.plan_with("s", change).open().await;
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Engine(_) | Error::ImageMissing { .. }), "{expected}: {error}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        test_env.assert_nothing_left().await;
    }
}

/// An image with changed settings, removed after the test.
struct CustomImage {
    image: String,
}

impl CustomImage {
    /// Applies these Dockerfile lines, the only form that Podman accepts.
    async fn new(test_env: &TestEnv, tag: &str, changes: &str) -> Self {
        let api = test_env.engine().engine().await.api;
        let folder = test_env.folder.file_name().unwrap().to_string_lossy().replace('.', "").to_lowercase();
        let (repo, tag) = ("localhost/hermes-test-odd", format!("{folder}-{tag}"));
        let body = ContainerCreateBody {
            image: Some(test_env.engine().image.clone()),
            cmd: Some(vec!["true".to_owned()]),
            ..ContainerCreateBody::default()
        };
        let id = api.create_container(None, body).await.unwrap().id;
        let options =
            CommitContainerOptionsBuilder::new().container(&id).repo(repo).tag(&tag).changes(changes);
        api.commit_container(options.pause(false).build(), ContainerConfig::default()).await.unwrap();
        api.remove_container(&id, None).await.unwrap();
        Self { image: format!("{repo}:{tag}") }
    }

    async fn remove(self, test_env: &TestEnv) {
        let api = test_env.engine().engine().await.api;
        api.remove_image(&self.image, None::<RemoveImageOptions>, None).await.unwrap();
    }
}

pub(crate) async fn the_guest_starts_with_any_entry_point_and_user_of_the_image(test_env: &TestEnv) {
    let changes = "ENTRYPOINT [\"/bin/false\"]\nCMD [\"no\"]\nWORKDIR /nowhere\nUSER 1000:1000";
    let odd = CustomImage::new(test_env, "all", changes).await;
    let made = test_env.engine().engine().await.api.inspect_image(&odd.image).await.unwrap().config.unwrap();
    assert_eq!(
        (made.user.as_deref(), made.entrypoint),
        (Some("1000:1000"), Some(vec!["/bin/false".to_owned()]))
    );
    let s = test_env.open_with("odd", |docker| docker.image.clone_from(&odd.image)).await;
    let ran = s
        .run("pwd; id -u; echo x >file; echo y >~/file; cat file ~/file; tr '\\0' ' ' </proc/1/cmdline")
        .await;
    s.sandbox.remove().await.unwrap();
    odd.remove(test_env).await;
    let ran = text(&ran);
    assert!(ran.starts_with("/workspace\n1000\nx\ny\n") && ran.contains(" serve --foreground "), "{ran}");
}

pub(crate) async fn every_user_can_write_to_home_and_workspace(test_env: &TestEnv) {
    let (numbered, named) = (
        CustomImage::new(test_env, "numbered", "USER 1000").await,
        CustomImage::new(test_env, "named", &format!("USER {}", "nobody")).await,
    );
    let plain = test_env.engine().image.clone();
    let own = if test_env.is_rootless() { 0 } else { rustix::process::getuid().as_raw() };
    let option = |text: &str| Box::new(RunArgs::parse(&[text.to_owned()]).unwrap());
    let mounted = test_env.folder.join("work");
    fs::write(mounted.join("there"), "").unwrap();
    fs::set_permissions(&mounted, fs::Permissions::from_mode(0o777)).unwrap();
    for is_kept in [true, false] {
        for is_mounted in [false, true] {
            let cases = [
                (&plain, RunAs::Image, Box::default(), 0),
                (&numbered.image, RunAs::Image, Box::default(), 1000),
                (&named.image, RunAs::Image, Box::default(), 65534),
                (&numbered.image, RunAs::Host, Box::default(), own),
                (&named.image, RunAs::Host, Box::default(), own),
                (&plain, RunAs::Image, option("--user=1000"), 1000),
                (&plain, RunAs::Image, option("--user=1000:1000"), 1000),
                (&plain, RunAs::Image, option("--user=nobody"), 65534),
                (&numbered.image, RunAs::Image, option("--user=root"), 0),
            ];
            for (number, (image, user, extra, uid)) in cases.into_iter().enumerate() {
                let case = format!("{number}: {image} {user:?} kept {is_kept} mounted {is_mounted}");
                let plan = test_env.plan_with("s", |docker| {
                    docker.image.clone_from(image);
                    (docker.user, docker.run_args) = (user, extra);
                    docker.files = docker.files.take().filter(|_| is_kept);
                    if is_mounted {
                        let (source, target) = (mounted.clone(), "/workspace".into());
                        docker.binds = vec![BindMount { source, target, access: MountAccess::ReadWrite }];
                    }
                });
                let sandbox = plan.open().await.unwrap_or_else(|error| panic!("{case}: {error}"));
                let s = Session { sandbox, plan, key: "s".to_owned() };
                let look = "id -u; pwd; ls; echo $HOME; echo x >file && echo y >~/file && echo z >/tmp/file \
                    && cat file ~/file /tmp/file; rm -f file; grep -c 'CapEff:.0*$' /proc/self/status";
                let seen = s.run(look).await;
                let there = if is_mounted { "there\n" } else { "" };
                // Only root has root's capabilities.
                let has_none = u32::from(uid != 0);
                let expected = format!("{uid}\n/workspace\n{there}/root\nx\ny\nz\n{has_none}\n");
                assert_eq!(text(&seen), expected, "{case}");
                s.sandbox.remove().await.unwrap();
            }
        }
    }
    numbered.remove(test_env).await;
    named.remove(test_env).await;
}

/// User namespace modes of Podman, and the user of commands in each.
pub(crate) async fn commands_can_write_with_every_podman_user_mapping(test_env: &TestEnv) {
    for (mode, uid) in [("keep-id", rustix::process::getuid().as_raw()), ("nomap", 0)] {
        for is_kept in [true, false] {
            let options = [format!("--userns={mode}")];
            let s = test_env
                .open_with("s", |docker| {
                    *docker.run_args = RunArgs::parse(&options).unwrap();
                    docker.files = docker.files.take().filter(|_| is_kept);
                })
                .await;
            let said = s.out("id -u; echo x >file; echo y >~/file; cat file ~/file").await;
            assert_eq!(said, format!("{uid}\nx\ny\n"), "{mode} {is_kept}");
            s.sandbox.remove().await.unwrap();
        }
    }
}

pub(crate) async fn only_the_read_only_layer_is_not_writable(test_env: &TestEnv) {
    let write = "for at in / /etc /usr /home /workspace /root /tmp /var/tmp /run /dev/shm; do \
        if ( : >$at/x ) 2>/dev/null; then echo $at; fi; done";
    // The directories of Hermes are mounts too; commands cannot write there.
    let open = ["/workspace", "/root", "/tmp", "/var/tmp", "/run", "/dev/shm"];
    let s = test_env.open("s").await;
    assert_eq!(s.out(write).await.lines().collect::<Vec<_>>(), open);
    let s = test_env.open_with("unkept", |docker| docker.files = None).await;
    let open = ["/home"].iter().chain(&open).copied().collect::<Vec<_>>();
    assert_eq!(s.out(write).await.lines().collect::<Vec<_>>(), open);
}

pub(crate) async fn the_first_process_reaps_orphans(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out("for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'sleep 0.1 & exit' &); done").await;
    let zombies = "grep -lsE '^State:.[ZX]' /proc/[0-9]*/status | wc -l; ls -d /proc/[0-9]* | wc -l";
    let gone = async {
        // The shell, its counting pipeline, the shim and the first process.
        while !s.out(zombies).await.starts_with("0\n") {}
    };
    tokio::time::timeout(crate::session::WAIT_TIMEOUT, gone).await.unwrap();
    let dead = async { while !s.processes().await.list().await.unwrap().is_empty() {} };
    tokio::time::timeout(crate::session::WAIT_TIMEOUT, dead).await.unwrap();
}

pub(crate) async fn a_process_over_the_memory_limit_is_killed_and_the_place_survives(test_env: &TestEnv) {
    let hog = "exec python3 -c \"print(len(bytearray(300 << 20)))\"";
    let free = test_env.open("free").await;
    assert_eq!(free.out(hog).await, "314572800\n");
    let limits = ContainerLimits { memory: Some(64 << 20), ..ContainerLimits::default() };
    let s = test_env.open_with("s", |docker| docker.limits = limits).await;
    s.out("echo kept >file").await;
    if !test_env.has_cgroups().await {
        assert_eq!(s.out(hog).await, "314572800\n");
        return;
    }
    let mut command = s.start(hog, crate::fixture::run_options(hermes_exec::OutputMode::AtEnd)).await;
    match command.wait().await {
        Ok(outcome) => assert_eq!(outcome.code, 137, "{}", text(&outcome)),
        // The kernel may have chosen the guest.
        Err(error) => assert!(matches!(error, Error::Guest(_)), "{error}"),
    }
    assert_eq!(s.out("cat file").await, "kept\n");
}

pub(crate) async fn a_container_killed_for_its_memory_is_recreated_and_reported_once(test_env: &TestEnv) {
    let limits = ContainerLimits { memory: Some(64 << 20), ..ContainerLimits::default() };
    let s = test_env.open_with("s", |docker| docker.limits = limits).await;
    if !test_env.has_cgroups().await {
        let unenforced = s.sandbox.take_unenforced_limits().await;
        assert!(unenforced.iter().any(|limit| limit.contains("memory")), "{unenforced:?}");
        return;
    }
    s.out("echo kept >file; export A=1; cd /").await;
    // Earlier processes keep their own limits, and neither of the two exceeds the limit of the
    // place, so the kernel kills the guest.
    let hog = "half() { exec python3 -c 'import time; half = bytearray(40 << 20); time.sleep(60)'; }; echo begun; \
        while read -r chance </proc/1/oom_score_adj && [ $chance != 1000 ]; do sleep 0.01; done; half & half";
    let mut command = s.start(hog, crate::fixture::run_options(hermes_exec::OutputMode::Live)).await;
    let begun = command.next_event().await.unwrap();
    assert!(matches!(begun, hermes_exec::CommandEvent::Output(_)), "{begun:?}");
    let first = guest(test_env, &s.plan).await;
    fs::write(format!("/proc/{first}/oom_score_adj"), "1000").unwrap();
    let error = command.wait().await.unwrap_err();
    assert!(matches!(error, Error::Guest(_)), "{error}");
    until("the first process is dead", || !is_alive(first)).await;
    let seen = s.run("echo [$A]; pwd; cat file").await;
    assert_eq!((text(&seen).as_str(), seen.state_loss), ("[]\n/workspace\nkept\n", StateLoss::Yes));
    assert_eq!(s.run("true").await.state_loss, StateLoss::No);
    assert_eq!(test_env.containers().await.len(), 1);
}

pub(crate) async fn a_client_killed_during_creation_leaves_no_container(test_env: &TestEnv) {
    let fixture = test_env.short_lived();
    let acts = [("show", "true"), ("end", "")];
    let began = std::time::Instant::now();
    assert!(fixture.another_hermes("first", &acts).wait().unwrap().success());
    let all = began.elapsed();
    const KILLS: u32 = 10;
    for moment in 0..KILLS {
        let mut hermes = fixture.another_hermes(&moment.to_string(), &acts);
        tokio::time::sleep(all * moment / KILLS).await;
        hermes.kill().unwrap();
        hermes.wait().unwrap();
    }
    // The test opens no place again: a live one ends by itself, and the sweep removes the others.
    until("all processes are gone", || test_env.running().is_empty()).await;
    test_env.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_a_disk_limit_cannot_exceed_it() {
    let engine = Private::on(Kind::Docker(&[]), Disk::Btrfs).await;
    let test_env = TestEnv::of(engine.peer.clone());
    // Hermes detects the quota with a probe container, which it removes.
    let facts = engine.peer.engine().await.facts;
    assert!(facts.has_disk_quota, "{facts:?}");
    let fill =
        "dd if=/dev/zero of=/filled bs=1M count=100 2>&1; ls -l /filled | awk '{ print $5 }'; rm /filled";
    let limits = |disk| ContainerLimits { disk, ..ContainerLimits::default() };
    let free = test_env.open_with("free", |docker| docker.limits = limits(None)).await;
    assert_eq!(free.out(fill).await.lines().last(), Some("104857600"));
    let s = test_env.open_with("s", |docker| docker.limits = limits(Some(32 << 20))).await;
    assert_eq!(s.sandbox.take_unenforced_limits().await, Vec::<String>::new());
    let said = s.out(fill).await;
    let written: u64 = said.lines().last().unwrap().parse().unwrap();
    assert!(said.contains("quota") && written < 32 << 20, "{said}");
    assert_eq!(s.out("echo fine >/again; cat /again").await, "fine\n");
    test_env.remove_all().await;
    let api = engine.peer.engine().await.api;
    let all = ListContainersOptionsBuilder::new().all(true).build();
    assert_eq!(api.list_containers(Some(all)).await.unwrap(), Vec::new());
}
