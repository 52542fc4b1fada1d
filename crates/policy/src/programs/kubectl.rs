//! Clusters.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["kubectl", "oc"]).valued(VALUED).reads_outside().contains().runs(&[Custom(nested)]).asks(&[
        Verb(&[
            "delete", "drain", "cordon", "uncordon", "taint", "replace", "patch", "edit", "scale",
            "autoscale", "set", "annotate", "label", "evict", "proxy", "debug", "create", "run", "expose",
            "certificate", "adm", "rollout restart", "rollout undo", "rollout pause", "rollout resume",
            "config set", "config set-cluster", "config set-credentials", "config delete-context",
            "config delete-cluster", "config unset", "config delete-user",
        ])
        .triggers("cluster"),
        Arg(&["*:*"]).triggers("cluster").on(&["cp"]),
        Any(&[
            Value(&["-f", "--filename"], &["*://*", "-"]),
            Test(|call| call.values(&["-f", "--filename"]).iter().any(Word::has_unknown)),
            Flag(&["--prune", "--force"]),
        ])
        .triggers("cluster")
        .on(&["apply"]),
        All(&[Test(names_secret), Flag(&["-o", "--output"])]).triggers("cluster").on(&["get"]),
        All(&[Operand(&["secret"]), Flag(&["-o", "--output"])]).triggers("secret-stores"),
        Flag(&["--raw"]).triggers("secret-stores").on(&["config view"]),
        Verb(&["create token"]).triggers("secret-stores"),
    ]),
    program(&["helm"]).valued(VALUED).reads_outside().asks(&[
        Verb(&["uninstall", "delete", "rollback", "upgrade", "install", "push"]).triggers("cluster"),
        Verb(&["push"]).triggers("publish"),
    ]),
    program(&["helmfile"])
        .valued(VALUED)
        .asks(&[Verb(&["destroy", "delete", "apply", "sync"]).triggers("cluster")]),
    program(&["argocd", "flux", "nomad", "eksctl", "velero", "istioctl"]).asks(&[Operand(&[
        "delete", "destroy", "rollback", "uninstall", "stop", "set", "suspend", "restore",
    ])
    .triggers("cluster")]),
];

const VALUED: &[&str] = &[
    "-n", "--namespace", "--context", "--kubeconfig", "-c", "--container", "-s", "--server", "--cluster",
    "--user", "--as", "-l", "--selector", "-f", "--filename", "-o", "--output", "--token",
];

fn names_secret(call: &Invocation<'_>) -> bool {
    call.words().any(|word| word.split(',').any(|kind| kind.starts_with("secret")))
}

fn nested(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if !matches!(call.verb(), "exec" | "run" | "debug" | "rsh") {
        return;
    }
    if let Some(words) = call.after(|word| word.known() == Some("--")) {
        found.extend(Nested::argv(words));
    } else if call.verb() == "exec" {
        let words: Vec<Word> = call.operands().into_iter().skip(2).cloned().collect();
        found.extend(Nested::argv(&words));
    }
}
