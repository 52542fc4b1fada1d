//! Hermes' own home, settings and life.

use super::{On, Rule, View};

/// Directories of the home that belong to the work, not to Hermes.
const WORK_DIRECTORIES: &[&str] = &["workspace", "workspaces", "sandboxes", "cache", "tmp", "home"];

pub(super) const RULES: &[Rule] = &[
    Rule::floor("hermes-files", "changes Hermes' own settings, approvals or records", On::Effects, |view| {
        view.any_write(|path| guarded(view, path))
            || view.any_delete(|path, _| guarded(view, path))
            || view.any_named(|path| guarded(view, path))
    })
    .examples(
        &[
            "echo x >> ~/.hermes/config.yaml",
            "cd ~/.hermes && sed -i s/a/b/ config.yaml",
            "rm -f ~/.hermes/audit.log",
            "cp x $HERMES_HOME/config.yaml",
            "rm -rf ~/.hermes",
            "rm -rf ~/.hermes/home",
        ],
        &[
            "ls -la ~/.hermes", "cat tests/home/.hermes/config.yaml", "cat ~/.hermes/config.yaml",
            "touch ~/.hermes/home/notes",
        ],
    ),
    Rule::floor(
        "hermes-policy",
        "changes what Hermes may do without asking",
        On::Programs(&["hermes", "hermes-agent"]),
        |view| {
            let words = view.words();
            let yolo = view
                .args()
                .iter()
                .any(|word| matches!(word.prefix(), "--yolo" | "--dangerously-skip-permissions"));
            let policy = match (words.first().copied(), words.get(1).copied()) {
                (Some("approvals"), Some(verb)) => {
                    !matches!(verb, "ls" | "list" | "test" | "grants" | "show")
                }
                (Some("pairing"), Some(verb)) => !matches!(verb, "ls" | "list" | "status"),
                (Some("config"), Some("set" | "unset" | "edit" | "import" | "reset")) => true,
                _ => false,
            };
            yolo || policy
        },
    )
    .examples(
        &[
            "hermes config set approvals.mode off", "hermes approvals allow 'rm *'", "hermes --yolo",
            "hermes pairing approve telegram X",
        ],
        &["hermes --version", "hermes config get approvals.mode", "hermes approvals ls"],
    ),
    Rule::ask(
        "hermes-life",
        "starts, stops or updates Hermes itself",
        On::Programs(&["hermes", "hermes-agent"]),
        |view| {
            let words = view.words();
            matches!(
                words.first().copied(),
                Some(
                    "update"
                        | "upgrade"
                        | "uninstall"
                        | "stop"
                        | "restart"
                        | "reset"
                        | "logout"
                        | "setup"
                        | "auth"
                        | "secrets"
                        | "cron"
                        | "skills"
                        | "plugins"
                        | "mcp"
                )
            ) && !words.iter().any(|word| matches!(*word, "ls" | "list" | "status"))
                || (words.first().copied() == Some("gateway")
                    && !matches!(words.get(1).copied(), Some("status" | "logs")))
        },
    )
    .examples(
        &["hermes gateway stop", "hermes gateway restart", "hermes update", "nohup hermes gateway run &"],
        &["hermes gateway status", "hermes --help"],
    ),
    Rule::ask("hermes-home", "points Hermes at another home", On::Every, |view| {
        let names = |name: &str| name == "HERMES_HOME" || name.starts_with("HERMES_");
        view.segment.assignments.iter().any(|(name, _)| names(name))
            || (matches!(view.name(), "export" | "declare" | "env" | "unset" | "readonly" | "typeset")
                && view.args().iter().any(|word| names(word.prefix().split('=').next().unwrap_or_default())))
    })
    .examples(
        &["export HERMES_HOME=/tmp/h", "HERMES_HOME=/tmp/h hermes status"],
        &["echo $HERMES_HOME", "export HOME_DIR=x"],
    ),
];

fn guarded(view: &View<'_>, path: &str) -> bool {
    if !view.marks.is_hermes(path) {
        return false;
    }
    let home = crate::paths::normal(view.marks.hermes_home);
    let rest = path
        .strip_prefix(&home)
        .or_else(|| path.split_once("/.hermes").map(|(_, rest)| rest))
        .unwrap_or_default();
    let first = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    !WORK_DIRECTORIES.contains(&first)
        || rest.trim_start_matches('/') == first && view.any_delete(|deleted, tree| tree && deleted == path)
}
