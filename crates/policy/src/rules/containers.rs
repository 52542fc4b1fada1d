//! Containers and clusters: stopping them, deleting them, and letting them out.

use super::{On, Rule, View};
use crate::shell::{ENGINE_VALUED, KUBECTL_VALUED, RUN_VALUED, Word, first_operand, values};

pub(super) const RULES: &[Rule] = &[
    Rule::ask(
        "containers",
        "stops or deletes containers, images or volumes",
        On::Programs(&[
            "docker", "podman", "docker-compose", "podman-compose", "nerdctl", "lxc", "incus", "crictl",
            "ctr", "vagrant", "minikube", "kind", "k3d", "colima", "multipass", "virsh", "buildah",
        ]),
        container_loss,
    )
    .examples(
        &[
            "docker stop web", "docker rm -f web", "docker compose down", "docker-compose down -v",
            "docker system prune -af", "podman kill x", "docker volume rm x",
        ],
        &["docker ps", "docker build .", "docker run --rm x", "docker compose up -d", "docker logs x"],
    ),
    Rule::ask(
        "container-escape",
        "gives a container the run of this machine",
        On::Programs(&["docker", "podman", "nerdctl", "docker-compose"]),
        container_escape,
    )
    .examples(
        &[
            "docker run -v /:/h x",
            "docker run --privileged x",
            "docker run --pid=host x",
            "docker run -v /var/run/docker.sock:/var/run/docker.sock x",
            "docker run --cap-add SYS_ADMIN x",
            "docker run -v ~/.ssh:/s x",
        ],
        &[
            "docker run -v $PWD:/app x", "docker run -v ./data:/data x", "docker run -p 80:80 x",
            "docker run -v cache:/c x",
        ],
    ),
    Rule::ask(
        "cluster",
        "changes or deletes things in a cluster",
        On::Programs(&[
            "kubectl", "oc", "helm", "k9s", "argocd", "flux", "kustomize", "eksctl", "istioctl", "velero",
            "helmfile", "nomad",
        ]),
        cluster,
    )
    .examples(
        &[
            "kubectl delete pod --all",
            "helm uninstall web",
            "kubectl drain n1",
            "kubectl scale deploy/x --replicas=0",
            "kubectl apply -f https://x.example/y.yaml",
        ],
        &[
            "kubectl get pods", "kubectl describe pod x", "helm list", "kubectl logs x",
            "kubectl rollout status deploy/x",
        ],
    ),
];

/// The words behind the engine's own options, `container`, `compose` and the like skipped.
fn engine_words(view: &View<'_>) -> (Vec<String>, Vec<Word>) {
    let args = view.args();
    let start = first_operand(args, ENGINE_VALUED);
    let rest = args.get(start..).unwrap_or_default().to_vec();
    (rest.iter().map(|word| word.prefix().to_owned()).collect(), rest)
}

fn container_loss(view: &View<'_>) -> bool {
    if view.asks_for_help() && view.args().len() <= 2 {
        return false;
    }
    let (words, rest) = engine_words(view);
    let at = |index: usize| words.get(index).map(String::as_str).unwrap_or_default();
    let groups = [
        "container", "image", "volume", "network", "system", "builder", "compose", "pod", "stack", "service",
        "swarm", "node", "secret", "config", "context", "buildx", "machine", "domain", "storage",
    ];
    let behind = rest.get(1..).unwrap_or_default();
    let second = behind.get(first_operand(behind, ENGINE_VALUED)).map(Word::prefix).unwrap_or_default();
    let verb = if groups.contains(&at(0)) { second } else { at(0) };
    match view.name() {
        "vagrant" | "multipass" => matches!(at(0), "destroy" | "halt" | "delete" | "purge" | "stop"),
        "minikube" | "kind" | "k3d" | "colima" => matches!(at(0), "delete" | "stop"),
        "virsh" => matches!(at(0), "destroy" | "undefine" | "shutdown" | "vol-delete" | "reboot"),
        "lxc" | "incus" => matches!(at(0), "delete" | "stop" | "restart"),
        _ => {
            matches!(
                verb,
                "stop"
                    | "restart"
                    | "kill"
                    | "rm"
                    | "rmi"
                    | "down"
                    | "prune"
                    | "remove"
                    | "pause"
                    | "leave"
                    | "reset"
                    | "rename"
                    | "update"
                    | "purge"
                    | "rollback"
                    | "drain"
                    | "delete"
            ) && !(at(0) == "context" && verb == "update")
        }
    }
}

fn container_escape(view: &View<'_>) -> bool {
    let (words, rest) = engine_words(view);
    let engine = view.args().get(..view.args().len() - rest.len()).unwrap_or_default();
    if engine.iter().any(|word| word.prefix().starts_with("-H") || word.prefix().starts_with("--host")) {
        return true;
    }
    if !words.iter().take(3).any(|word| matches!(word.as_str(), "run" | "create" | "exec")) {
        return false;
    }
    let verb = words.iter().position(|word| matches!(word.as_str(), "run" | "create" | "exec")).unwrap_or(0);
    let rest = rest.get(verb + 1..).unwrap_or_default();
    let options = rest.get(..first_operand(rest, RUN_VALUED)).unwrap_or_default();
    let flag = |names: &[&str]| {
        options.iter().any(|word| names.contains(&word.prefix().split('=').next().unwrap_or_default()))
    };
    let host = |names: &[&str]| {
        values(options, names)
            .iter()
            .any(|value| value.prefix() == "host" || value.prefix().starts_with("container:"))
    };
    let mounts = values(options, &["-v", "--volume"]).into_iter().map(|value| {
        let text = value.outline();
        text.split(':').next().unwrap_or_default().to_owned()
    });
    let bind = values(options, &["--mount"]).into_iter().filter_map(|value| {
        let text = value.outline();
        text.split(',')
            .find_map(|part| part.strip_prefix("source=").or(part.strip_prefix("src=")).map(str::to_owned))
    });
    let dangerous_mount = mounts.chain(bind).any(|source| {
        if !source.starts_with(['/', '~', '.', crate::shell::HOLE]) {
            return false;
        }
        let source =
            source.strip_prefix("~").map_or(source.clone(), |rest| format!("{}{rest}", view.marks.home));
        let path = crate::paths::resolve(&source, view.segment.cwd.as_deref());
        view.marks.is_root(&path)
            || view.marks.is_system(&path)
            || view.marks.is_system_directory(&path)
            || view.marks.is_home(&path)
            || view.marks.is_credential(&path)
            || view.marks.is_hermes(&path)
            || path.ends_with("docker.sock")
            || path.ends_with("podman.sock")
            || view.marks.is_above_work(&path)
            || view.marks.is_startup(&path)
    });
    let capability = values(options, &["--cap-add"]).iter().any(|value| {
        let value = value.prefix().to_uppercase();
        !matches!(
            value.trim_start_matches("CAP_"),
            "SYS_PTRACE" | "NET_BIND_SERVICE" | "CHOWN" | "FOWNER" | "SETUID" | "SETGID" | "IPC_LOCK"
        )
    });
    let unconfined = values(options, &["--security-opt"])
        .iter()
        .any(|value| value.prefix().contains("unconfined") || value.prefix().contains("disable"));
    dangerous_mount
        || flag(&["--privileged"]) && !options.iter().any(|word| word.prefix() == "--privileged=false")
        || flag(&["--device", "--volumes-from"])
        || host(&["--pid", "--ipc", "--uts", "--userns", "--cgroupns"])
        || capability
        || unconfined
}

fn cluster(view: &View<'_>) -> bool {
    let words: Vec<&str> = view.operands(KUBECTL_VALUED).into_iter().map(Word::prefix).collect();
    let verb = words.first().copied().unwrap_or_default();
    let second = words.get(1).copied().unwrap_or_default();
    if view.args().iter().any(|word| word.prefix().starts_with("--dry-run")) || view.asks_for_help() {
        return false;
    }
    match view.name() {
        "kubectl" | "oc" => match verb {
            "delete" | "drain" | "cordon" | "uncordon" | "taint" | "replace" | "patch" | "edit" | "scale"
            | "autoscale" | "set" | "annotate" | "label" | "evict" | "cp" | "proxy" | "debug" | "create"
            | "run" | "expose" | "certificate" | "adm" => {
                verb != "cp" || view.args().iter().any(|word| word.prefix().contains(':'))
            }
            "rollout" => matches!(second, "restart" | "undo" | "pause" | "resume"),
            "apply" => {
                view.values(&["-f", "--filename"])
                    .iter()
                    .any(|file| file.prefix().contains("://") || file.prefix() == "-" || file.has_unknown())
                    || view.has(&["--prune", "--force"])
            }
            "config" => matches!(
                second,
                "set"
                    | "set-cluster"
                    | "set-credentials"
                    | "delete-context"
                    | "delete-cluster"
                    | "unset"
                    | "delete-user"
            ),
            "get" => {
                words.iter().any(|word| word.split(',').any(|kind| kind.starts_with("secret")))
                    && view.has(&["-o", "--output"])
            }
            _ => false,
        },
        "helm" => matches!(verb, "uninstall" | "delete" | "rollback" | "upgrade" | "install" | "push"),
        "argocd" | "flux" | "nomad" | "eksctl" | "velero" | "istioctl" => words.iter().any(|word| {
            matches!(
                *word,
                "delete" | "destroy" | "rollback" | "uninstall" | "stop" | "set" | "suspend" | "restore"
            )
        }),
        "helmfile" => matches!(verb, "destroy" | "delete" | "apply" | "sync"),
        _ => false,
    }
}
