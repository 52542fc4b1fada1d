//! Hermes' own home, settings and life.

use super::{Rule, RuleContext, Trigger};

/// Directories of the home that belong to the work, not to Hermes.
const WORK_DIRECTORIES: &[&str] = &["workspace", "workspaces", "sandboxes", "cache", "tmp", "home"];

pub(super) const RULES: &[Rule] = &[
    Rule::floor(
        "hermes-files",
        "changes Hermes' own settings, approvals or records",
        Trigger::Effects(|context| {
            context.any_write(|path| is_guarded(context, path))
                || context.any_delete(|path, _| is_guarded(context, path))
                || context.any_possible_change(|path| is_guarded(context, path))
        }),
    )
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
    Rule::floor("hermes-policy", "changes what Hermes may do without asking", Trigger::Programs).examples(
        &[
            "hermes config set approvals.mode off", "hermes approvals allow 'rm *'", "hermes --yolo",
            "hermes pairing approve telegram X",
        ],
        &["hermes --version", "hermes config get approvals.mode", "hermes approvals ls"],
    ),
    Rule::ask("hermes-life", "starts, stops or updates Hermes itself", Trigger::Programs).examples(
        &["hermes gateway stop", "hermes gateway restart", "hermes update", "nohup hermes gateway run &"],
        &["hermes gateway status", "hermes --help"],
    ),
    Rule::ask(
        "hermes-home",
        "points Hermes at another home",
        Trigger::Every(|context| {
            let names = |name: &str| name == "HERMES_HOME" || name.starts_with("HERMES_");
            context.segment().assignments.iter().any(|(name, _)| names(name))
                || (matches!(context.name(), "export" | "declare" | "env" | "unset" | "readonly" | "typeset")
                    && context
                        .segment()
                        .args
                        .iter()
                        .any(|word| names(word.prefix().split('=').next().unwrap_or_default())))
        }),
    )
    .examples(
        &["export HERMES_HOME=/tmp/h", "HERMES_HOME=/tmp/h hermes status"],
        &["echo $HERMES_HOME", "export HOME_DIR=x"],
    ),
];

fn is_guarded(context: &RuleContext<'_>, path: &str) -> bool {
    if !context.paths.is_hermes(path) {
        return false;
    }
    let home = crate::paths::normalize(context.paths.hermes_home);
    let rest = path
        .strip_prefix(&home)
        .or_else(|| path.split_once("/.hermes").map(|(_, rest)| rest))
        .unwrap_or_default();
    let first = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    !WORK_DIRECTORIES.contains(&first)
        || rest.trim_start_matches('/') == first
            && context.any_delete(|deleted, tree| tree && deleted == path)
}
