use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, PortBinding, ResourcesUlimits,
};

use super::*;

fn items(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn parse(words: &[&str]) -> RunArgs {
    RunArgs::parse(&items(words)).unwrap_or_else(|bad| panic!("{words:?}: {bad}"))
}

fn wrong(words: &[&str]) -> String {
    match RunArgs::parse(&items(words)) {
        Ok(extra) => panic!("{words:?}: {extra:?}"),
        Err(bad) => format!("{}: {bad}", bad.item),
    }
}

fn texts(words: &[&str]) -> Option<Vec<String>> {
    Some(items(words))
}

#[test]
fn a_value_may_follow_its_option_in_every_docker_syntax() {
    let expected = parse(&["--publish=8080:80"]);
    assert_eq!(expected.ports.len(), 1);
    for words in [
        &["--publish", "8080:80"][..],
        &["--publish 8080:80"],
        &["-p", "8080:80"],
        &["-p 8080:80"],
        &["-p=8080:80"],
        &["-p8080:80"],
        &[" --publish=8080:80 "],
    ] {
        assert_eq!(parse(words), expected, "{words:?}");
    }
    assert_eq!(parse(&["--privileged=false", "--init", "--read-only=true"]), {
        let host = HostConfig { readonly_rootfs: Some(true), ..HostConfig::default() };
        RunArgs { host, ..RunArgs::default() }
    });
    assert_eq!(parse(&[]), RunArgs::default());
}

#[test]
fn every_option_has_its_field_in_the_request() {
    let extra = parse(&[
        "--cap-add=cap_net_raw",
        "--cap-add",
        "CHOWN",
        "--cap-drop=FOWNER",
        "--device=/dev/fuse",
        "--device=/dev/a:/dev/b:r",
        "--gpus=\"device=0,1\"",
        "--privileged",
        "--read-only",
        "--security-opt=seccomp=unconfined",
        "--security-opt=no-new-privileges:true",
        "--network=host",
        "-p",
        "127.0.0.1:8080:80",
        "-p",
        "81:80",
        "--pid=host",
        "--ipc=shareable",
        "--uts=host",
        "--userns=keep-id",
        "--group-add=audio",
        "--hostname=box",
        "--add-host=db:10.0.0.1",
        "--add-host",
        "gate=host-gateway",
        "--dns=1.1.1.1",
        "--label=team=a",
        "--tmpfs=/scratch:size=64m",
        "--mount=type=tmpfs,target=/more,tmpfs-size=1m",
        "--runtime=runsc",
        "--sysctl=net.core.somaxconn=1024",
        "--ulimit=nofile=1024:2048",
        "--cpuset-cpus=0-1,3",
        "--memory-swap=-1",
    ]);
    let rights = ["DAC_OVERRIDE", "CHOWN", "FOWNER"];
    let mut body = ContainerCreateBody {
        host_config: Some(HostConfig {
            cap_add: texts(&rights),
            security_opt: texts(&["no-new-privileges"]),
            ..extra.host.clone()
        }),
        ..ContainerCreateBody::default()
    };
    extra.apply(&mut body);
    let device = |source: &str, target: &str, rights: &str| DeviceMapping {
        path_on_host: Some(source.to_owned()),
        path_in_container: Some(target.to_owned()),
        cgroup_permissions: Some(rights.to_owned()),
    };
    let port = |ip: Option<&str>, port: &str| PortBinding {
        host_ip: ip.map(str::to_owned),
        host_port: Some(port.to_owned()),
    };
    let pairs = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    let expected = ContainerCreateBody {
        hostname: Some("box".to_owned()),
        exposed_ports: texts(&["80/tcp"]),
        labels: pairs(&[("team", "a")]),
        host_config: Some(HostConfig {
            cap_add: texts(&["DAC_OVERRIDE", "CHOWN", "NET_RAW"]),
            security_opt: texts(&["no-new-privileges", "seccomp=unconfined"]),
            devices: Some(vec![device("/dev/fuse", "/dev/fuse", "rwm"), device("/dev/a", "/dev/b", "r")]),
            device_requests: Some(vec![DeviceRequest {
                device_ids: texts(&["0", "1"]),
                capabilities: Some(vec![items(&["gpu"])]),
                ..DeviceRequest::default()
            }]),
            privileged: Some(true),
            readonly_rootfs: Some(true),
            network_mode: Some("host".to_owned()),
            port_bindings: Some(
                [("80/tcp".to_owned(), Some(vec![port(Some("127.0.0.1"), "8080"), port(None, "81")]))].into(),
            ),
            pid_mode: Some("host".to_owned()),
            ipc_mode: Some("shareable".to_owned()),
            uts_mode: Some("host".to_owned()),
            userns_mode: Some("keep-id".to_owned()),
            group_add: texts(&["audio"]),
            extra_hosts: texts(&["db:10.0.0.1", "gate:host-gateway"]),
            dns: texts(&["1.1.1.1"]),
            tmpfs: pairs(&[("/scratch", "size=64m"), ("/more", "size=1048576")]),
            runtime: Some("runsc".to_owned()),
            sysctls: pairs(&[("net.core.somaxconn", "1024")]),
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("nofile".to_owned()),
                soft: Some(1024),
                hard: Some(2048),
            }]),
            cpuset_cpus: Some("0-1,3".to_owned()),
            memory_swap: Some(-1),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    assert_eq!(body, expected);
}

#[test]
fn adding_all_capabilities_drops_none_first() {
    let rights = |words: &[&str]| {
        let host_config = HostConfig {
            cap_drop: texts(&["ALL"]),
            cap_add: texts(&["CHOWN", "FOWNER"]),
            ..HostConfig::default()
        };
        let mut body =
            ContainerCreateBody { host_config: Some(host_config), ..ContainerCreateBody::default() };
        parse(words).apply(&mut body);
        let host = body.host_config.unwrap();
        (host.cap_drop, host.cap_add)
    };
    assert_eq!(rights(&["--cap-drop=ALL"]), (texts(&["ALL"]), texts(&["CHOWN", "FOWNER"])));
    assert_eq!(rights(&["--cap-add=all"]), (None, texts(&["ALL"])));
    assert_eq!(rights(&["--cap-add=ALL", "--cap-drop=BPF"]), (texts(&["BPF"]), texts(&["ALL"])));
}

#[test]
fn limits_override_those_of_the_settings() {
    let set = ContainerLimits {
        millicpus: Some(1000),
        memory: Some(1),
        processes: Some(256),
        disk: Some(7),
        ..ContainerLimits::default()
    };
    let limited = |words: &[&str]| {
        let mut limits = set.clone();
        parse(words).apply_limits(&mut limits);
        limits
    };
    assert_eq!(limited(&[]), set);
    let lifted = limited(&["--memory=0", "--cpus=0", "--pids-limit=-1"]);
    assert_eq!(lifted, ContainerLimits { disk: Some(7), ..ContainerLimits::default() });
    let other = limited(&["-m1.5g", "--cpus", ".5", "--pids-limit=9", "--shm-size=64m"]);
    let expected = ContainerLimits {
        millicpus: Some(500),
        memory: Some(3 << 29),
        processes: Some(9),
        shm: Some(64 << 20),
        ..set.clone()
    };
    assert_eq!(other, expected);
}

#[test]
fn mounts_become_volumes_and_variables_stay_out_of_the_record() {
    let extra = parse(&[
        "-v",
        "/data:/data:ro",
        "--mount=type=bind,source=/src,target=/src,readonly",
        "--mount=type=volume,src=cache,dst=/cache",
        "-e",
        "TOKEN=a=b c ",
    ]);
    let shown: Vec<String> = extra.volumes.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["/data:/data:ro", "/src:/src:ro", "cache:/cache"]);
    assert_eq!(extra.env, [("TOKEN".parse().unwrap(), "a=b c ".to_owned())]);
    let written = serde_json::to_string(&extra).unwrap();
    assert!(!written.contains("TOKEN") && !written.contains("a=b c"), "{written}");
    assert_eq!(serde_json::from_str::<RunArgs>(&written).unwrap(), {
        RunArgs { env: Vec::new(), volumes: Vec::new(), ..extra }
    });
}

#[test]
fn spellings_of_a_tmpfs_path_are_normalized() {
    let expected = parse(&["--tmpfs=/workspace/x:size=8m"]);
    for words in
        ["--tmpfs=//workspace/./x/:size=8m", "--mount=type=tmpfs,dst=/workspace//x,tmpfs-size=8388608"]
    {
        let paths: Vec<String> = parse(&[words]).tmpfs.into_keys().collect();
        assert_eq!(paths, expected.tmpfs.keys().cloned().collect::<Vec<_>>(), "{words}");
    }
}

#[test]
fn invalid_options_are_refused_by_name() {
    let cases = [
        (
            &["--init", "--frobnicate"][..],
            "1: expected a supported option of `docker run`, found `--frobnicate`",
        ),
        (&["ubuntu"], "0: expected a supported option of `docker run`, found `ubuntu`"),
        (&["--name=x"], "0: expected no `--name` (Hermes names the container), found one"),
        (&["--memory"], "0: expected `--memory` with a size such as 512m, found `--memory` alone"),
        (&["--memory", "lots"], "0: expected `--memory` with a size such as 512m, found `--memory lots`"),
        (
            &["--privileged=maybe"],
            "0: expected `--privileged`, with `=true` or `=false` at most, found `--privileged=maybe`",
        ),
    ];
    for (words, message) in cases {
        assert_eq!(wrong(words), message);
    }
    for refused in
        ["--restart=always", "--rm", "-d", "--detach", "-it", "-t", "--entrypoint=x", "-w /x", "--env-file=x"]
    {
        let message = wrong(&[refused]);
        assert!(message.ends_with(", found one"), "{message}");
    }
    for bad in [
        "--cap-add=FLY",
        "--device=fuse",
        "--device=/dev/a:x",
        "--gpus=0",
        "--security-opt=no-new-privileges:false",
        "--security-opt=seccomp=/profile.json",
        "--security-opt=systempaths=unconfined",
        "--network=a b",
        "--network=",
        "-p=80-90",
        "--pid=private",
        "--ipc=x",
        "--uts=x",
        "--userns=ns:/proc/1/ns/user",
        "--hostname=a/b",
        "--add-host=db",
        "--dns=resolver",
        "--label=hermes-agent=1",
        "--label==1",
        "--tmpfs=scratch",
        "--tmpfs=/a/../.hermes",
        "--tmpfs=/.hermes/run",
        "--tmpfs=//.hermes/run",
        "--tmpfs=/./.hermes",
        "--tmpfs=/",
        "--volume=/a",
        "--volume=/a:/.hermes/guest",
        "--mount=type=bind,source=name,target=/x",
        "--mount=type=bind,source=/a,target=/x,frobnicate",
        "--mount=type=bind,source=/a:/b,target=/x",
        "--mount=type=bind,source=/a,target=/x:ro",
        "--mount=type=tmpfs,target=/x:exec",
        "--ulimit=nofile",
        "--ulimit=wings=1",
        "--cpuset-cpus=a",
        "--cpus=-1",
        "--pids-limit=many",
    ] {
        let (option, _) = bad.split_once('=').unwrap();
        let message = wrong(&[bad]);
        assert!(message.starts_with(&format!("0: expected `{option}` with ")), "{message}");
    }
    let bare = wrong(&["-e", "TOKEN"]);
    assert!(bare.contains("docker_forward_env") && bare.ends_with("found `TOKEN` alone"), "{bare}");
    let unnamed = wrong(&["-e", "1=hunter2"]);
    assert!(!unnamed.contains("hunter2"), "{unnamed}");
}

#[test]
fn options_with_host_reach_are_distinguished_from_those_without() {
    for option in [
        "--privileged", "--network host", "--network container:other", "--pid host", "--pid container:other",
        "--ipc host", "--uts host", "--userns host", "--device /dev/fuse", "--cap-add ALL",
        "--cap-add SYS_ADMIN", "--cap-add SYS_PTRACE", "--cap-add SYS_MODULE", "--cap-add SYS_RAWIO",
        "--cap-add DAC_READ_SEARCH", "--security-opt seccomp=unconfined",
        "--security-opt apparmor=unconfined", "--security-opt label=disable",
        "--security-opt label=type:spc_t",
    ] {
        let extra = parse(&[option]);
        assert_eq!(extra.exposures(), [(option.to_owned(), Reach::Host)]);
        assert!(extra.reaches_host());
    }
    for option in ["--network backend", "--cap-add NET_ADMIN", "--gpus all", "--publish 8080:80/tcp"] {
        let extra = parse(&[option]);
        assert_eq!(extra.exposures(), [(option.to_owned(), Reach::Nothing)]);
        assert!(!extra.reaches_host());
    }
    for option in
        ["--network none", "--network bridge", "--ipc private", "--security-opt apparmor=mine", "--read-only"]
    {
        assert_eq!(parse(&[option]).exposures(), [], "{option}");
    }
}
