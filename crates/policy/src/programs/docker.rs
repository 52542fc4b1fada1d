//! Containers and virtual machines.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["docker", "podman", "nerdctl", "docker-compose", "podman-compose"])
        .valued(ENGINE_VALUED)
        .reads_outside()
        .contains()
        .files(&[
            writes(LastOperand).when(Verb(&["cp", "container cp", "compose cp"])),
            writes(Values(&["-o", "--output"])).when(Verb(&["save", "export", "image save"])),
        ])
        .runs(&[Custom(nested)])
        .asks(&[
            Test(loses).triggers("containers"),
            judged("container-escape", escapes),
            Verb(&["logout"]).triggers("publish"),
            OwnFlag(&["--config"]).triggers("tool-settings"),
        ]),
    program(&["crictl", "ctr", "buildah"]).valued(ENGINE_VALUED).asks(&[Test(loses).triggers("containers")]),
    program(&["vagrant"])
        .runs(&[Text(&["-c", "--command"])])
        .asks(&[Verb(&["destroy", "halt", "delete", "purge", "stop"]).triggers("containers")]),
    program(&["multipass"])
        .asks(&[Verb(&["destroy", "halt", "delete", "purge", "stop"]).triggers("containers")]),
    program(&["minikube", "kind", "k3d", "colima"]).asks(&[Verb(&["delete", "stop"]).triggers("containers")]),
    program(&["virsh"]).asks(&[
        Verb(&["destroy", "undefine", "shutdown", "vol-delete", "reboot"]).triggers("containers"),
        Operand(&["destroy", "shutdown", "undefine"]).triggers("power"),
    ]),
    program(&["lxc", "incus"])
        .contains()
        .runs(&[After("exec", &["--env", "--cwd"], 1)])
        .asks(&[Verb(&["delete", "stop", "restart"]).triggers("containers")]),
    program(&["apptainer", "singularity"]).contains().runs(&[After(
        "exec",
        &["-B", "--bind", "-H", "--home", "--pwd", "--env"],
        1,
    )]),
    program(&["toolbox"]).runs(&[After("run", &["-c", "--container"], 0)]),
    program(&["distrobox"]).runs(&[After("enter", &["-n", "--name"], 0)]),
];

/// Options of the engine itself that take a separate value.
const ENGINE_VALUED: &[&str] = &[
    "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "-f", "--file", "-p",
    "--project-name", "--project-directory", "--profile", "--env-file", "--tlscacert", "--tlscert",
    "--tlskey", "--url", "--root",
];

/// Options of `docker run` and `docker exec` that take a separate value.
const RUN_VALUED: &[&str] = &[
    "-v", "--volume", "-e", "--env", "--env-file", "-p", "--publish", "--name", "-w", "--workdir", "-u",
    "--user", "--network", "--net", "--mount", "--entrypoint", "-l", "--label", "-h", "--hostname", "-m",
    "--memory", "--cpus", "--gpus", "--device", "--cap-add", "--cap-drop", "--security-opt", "--restart",
    "--platform", "--pull", "--add-host", "--dns", "--tmpfs", "--ulimit", "--shm-size", "--log-driver",
    "--log-opt", "--ip", "--link", "--volumes-from", "--runtime", "--pid", "--ipc", "--uts", "--userns",
    "--cgroupns", "--cidfile", "--expose", "-a", "--attach", "--label-file", "--stop-signal",
    "--stop-timeout", "--annotation", "--pids-limit", "--cpuset-cpus", "--memory-swap", "--index",
    "--detach-keys", "--network-alias", "--health-cmd", "--health-interval", "--storage-opt", "--sysctl",
    "--group-add", "--secret", "--authfile", "--creds", "--pod",
];

/// Words in front of the verb that say what kind of thing it concerns.
const OBJECTS: &[&str] = &[
    "container", "image", "volume", "network", "system", "builder", "compose", "pod", "stack", "service",
    "swarm", "node", "secret", "config", "context", "buildx", "machine", "domain", "storage",
];

/// Verbs that stop or delete something.
///
/// `compose down` is among them even without `--volumes`, as in Hermes Agent: it takes services of
/// the owner down, and data that a container keeps outside of a volume is lost with it. What is in
/// the file of the project, and whether its services are in use, the words do not tell.
const LOSSES: &[&str] = &[
    "stop", "restart", "kill", "rm", "rmi", "down", "prune", "remove", "pause", "leave", "reset", "rename",
    "update", "purge", "rollback", "drain", "delete",
];

fn loses(call: &Invocation<'_>) -> bool {
    let object = OBJECTS.contains(&call.verb());
    let verb = if object { call.behind_verb().verb() } else { call.verb() };
    LOSSES.contains(&verb) && !(verb == "update" && call.verb() == "context")
}

/// Whether a container gets a directory, a device or a namespace that lets it out.
fn escapes(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let start = first_operand(call.args, ENGINE_VALUED);
    let (engine, rest) = call.args.split_at(start.min(call.args.len()));
    if engine.iter().any(|word| fits_any(word.prefix(), &["-H*", "--host*"])) {
        return true;
    }
    let is_run = |word: &Word| matches!(word.prefix(), "run" | "create" | "exec");
    let Some(verb) = rest.iter().take(3).position(is_run) else { return false };
    let rest = rest.get(verb + 1..).unwrap_or_default();
    let options = rest.get(..first_operand(rest, RUN_VALUED)).unwrap_or_default();
    let any_value = |names: &[&str], patterns: &[&str]| {
        values(options, names).iter().any(|value| fits_any(value.prefix(), patterns))
    };
    let has = |patterns: &[&str]| options.iter().any(|word| fits_any(word.prefix(), patterns));
    has(&["--privileged", "--privileged=*"]) && !has(&["--privileged=false"])
        || has(&["--device", "--device=*", "--volumes-from", "--volumes-from=*"])
        || any_value(&["--pid", "--ipc", "--uts", "--userns", "--cgroupns"], &["host", "container:*"])
        || any_value(&["--security-opt"], &["*unconfined*", "*disable*"])
        || values(options, &["--cap-add"]).iter().any(is_strong_capability)
        || mount_sources(options).iter().any(|source| exposes_owner(context, source))
}

fn is_strong_capability(value: &Word) -> bool {
    let value = value.prefix().to_uppercase();
    !matches!(
        value.trim_start_matches("CAP_"),
        "SYS_PTRACE" | "NET_BIND_SERVICE" | "CHOWN" | "FOWNER" | "SETUID" | "SETGID" | "IPC_LOCK"
    )
}

/// The directories of the host that these options mount.
fn mount_sources(options: &[Word]) -> Vec<String> {
    let outlines = |names: &[&str]| values(options, names).into_iter().map(|value| value.outline());
    let volumes = outlines(&["-v", "--volume"]);
    let mounts: Vec<String> = outlines(&["--mount"]).collect();
    let binds = mounts.iter().flat_map(|mount| mount.split(','));
    let binds = binds.filter_map(|part| part.strip_prefix("source=").or(part.strip_prefix("src=")));
    let sources = volumes.map(|volume| volume.split(':').next().unwrap_or_default().to_owned());
    let sources = sources.chain(binds.map(str::to_owned));
    sources.filter(|source| source.starts_with(['/', '~', '.', UNKNOWN_CHAR])).collect()
}

fn exposes_owner(context: &RuleContext<'_>, source: &str) -> bool {
    let paths = &context.paths;
    let source = source.strip_prefix('~').map_or(source.to_owned(), |rest| format!("{}{rest}", paths.home));
    let path = crate::paths::resolve(&source, context.invocation.segment.cwd.as_deref());
    paths.is_root(&path)
        || paths.is_system(&path)
        || paths.is_system_directory(&path)
        || paths.is_home(&path)
        || paths.is_credential(&path)
        || paths.is_hermes(&path)
        || paths.is_above_work(&path)
        || paths.is_startup(&path)
        || fits_any(&path, &["*docker.sock", "*podman.sock"])
}

/// The command that `run` and `exec` start in a container.
fn nested(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let mut rest = call.args.get(first_operand(call.args, ENGINE_VALUED)..).unwrap_or_default();
    if matches!(rest.first().and_then(Word::known), Some("container" | "compose")) {
        rest = rest.get(1..).unwrap_or_default();
        rest = rest.get(first_operand(rest, ENGINE_VALUED)..).unwrap_or_default();
    }
    if !matches!(rest.first().and_then(Word::known), Some("run" | "exec" | "create")) {
        return;
    }
    let rest = rest.get(1..).unwrap_or_default();
    let operand = first_operand(rest, RUN_VALUED);
    let mut words = values(rest.get(..operand).unwrap_or_default(), &["--entrypoint"]);
    words.extend(rest.get(operand + 1..).unwrap_or_default().iter().cloned());
    found.extend(Nested::argv(&words));
}
