//! Clusters.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["kubectl", "oc"]).valued(VALUED).reads_outside().contains().runs(&[Custom(nested)]).asks(&[
        verbs(
            &[
                "delete", "drain", "cordon", "uncordon", "taint", "replace", "patch", "edit", "scale",
                "autoscale", "set", "annotate", "label", "evict", "proxy", "debug", "create", "run",
                "expose", "certificate", "adm", "rollout restart", "rollout undo", "rollout pause",
                "rollout resume", "config set", "config set-cluster", "config set-credentials",
                "config delete-context", "config delete-cluster", "config unset", "config delete-user",
            ],
            "cluster",
        ),
        on(&["cp"], "cluster", Arg(&["*:*"])),
        on(
            &["apply"],
            "cluster",
            Any(&[
                Value(&["-f", "--filename"], &["*://*", "-"]),
                Test(|call| call.values(&["-f", "--filename"]).iter().any(Word::has_unknown)),
                Flag(&["--prune", "--force"]),
            ]),
        ),
        on(&["get"], "cluster", All(&[Test(names_secret), Flag(&["-o", "--output"])])),
        ask("secret-stores", All(&[Operand(&["secret"]), Flag(&["-o", "--output"])])),
        on(&["config view"], "secret-stores", Flag(&["--raw"])),
        verbs(&["create token"], "secret-stores"),
    ]),
    program(&["helm"]).valued(VALUED).reads_outside().asks(&[
        verbs(&["uninstall", "delete", "rollback", "upgrade", "install", "push"], "cluster"),
        verbs(&["push"], "publish"),
    ]),
    program(&["helmfile"]).valued(VALUED).asks(&[verbs(&["destroy", "delete", "apply", "sync"], "cluster")]),
    program(&["argocd", "flux", "nomad", "eksctl", "velero", "istioctl"]).asks(&[ask(
        "cluster",
        Operand(&["delete", "destroy", "rollback", "uninstall", "stop", "set", "suspend", "restore"]),
    )]),
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
