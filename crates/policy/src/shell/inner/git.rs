//! The many ways in which git runs something else.

use super::super::args::{joined, values};
use super::super::value::Word;
use super::Inner;
use super::tables::GIT_COMMAND_KEYS;

/// Options of `git` itself that take a separate value.
pub(crate) const VALUED: &[&str] =
    &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env"];

pub(super) fn runs(args: &[Word], found: &mut Vec<Inner>) {
    for setting in values(args, &["-c", "--config"]) {
        let (key, _) = setting.prefix().split_once('=').unwrap_or((setting.prefix(), ""));
        if let Some(value) = setting.after('=') {
            run_setting(key, &value, found);
        }
    }
    let start = super::first_operand(args, VALUED);
    let Some(verb) = args.get(start).and_then(Word::known) else { return };
    let rest = args.get(start + 1..).unwrap_or_default();
    match verb {
        "config" => {
            let operands = super::args::operands(rest, &["-f", "--file", "--blob", "--type", "--default"]);
            let operands: Vec<&Word> = operands
                .into_iter()
                .skip_while(|word| matches!(word.known(), Some("set" | "add" | "replace-all")))
                .collect();
            if let [key, value, ..] = operands.as_slice() {
                run_setting(key.prefix(), value, found);
            }
        }
        "rebase" => found.extend(values(rest, &["-x", "--exec"]).into_iter().map(Inner::text)),
        "submodule" => {
            if let Some(at) = rest.iter().position(|word| word.known() == Some("foreach")) {
                let words = rest.get(at + 1..).unwrap_or_default();
                let from = words.iter().position(|word| !word.prefix().starts_with("--")).unwrap_or(0);
                found.push(Inner::text(joined(words.get(from..).unwrap_or_default())));
            }
        }
        "filter-branch" => {
            let filters = [
                "--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter",
                "--commit-filter", "--tag-name-filter", "--setup",
            ];
            found.extend(values(rest, &filters).into_iter().map(Inner::text));
        }
        "difftool" => found.extend(values(rest, &["-x", "--extcmd"]).into_iter().map(Inner::text)),
        "grep" => found.extend(values(rest, &["-O", "--open-files-in-pager"]).into_iter().map(Inner::text)),
        "clone" | "fetch" | "pull" | "ls-remote" | "push" | "archive" => {
            let options = ["--upload-pack", "-u", "--receive-pack", "--exec"];
            if verb != "push" || values(rest, &["--receive-pack", "--exec"]).is_empty() {
                let options = if matches!(verb, "clone" | "ls-remote" | "archive") {
                    &options[..]
                } else {
                    &options[..1]
                };
                found.extend(values(rest, options).into_iter().map(Inner::text));
            } else {
                found.extend(values(rest, &["--receive-pack", "--exec"]).into_iter().map(Inner::text));
            }
            for word in rest {
                found.extend(word.strip_prefix("ext::").map(Inner::text));
            }
        }
        _ => {}
    }
}

fn run_setting(key: &str, value: &Word, found: &mut Vec<Inner>) {
    let key = key.to_ascii_lowercase();
    if key.starts_with("alias.") {
        found.extend(value.strip_prefix("!").map(Inner::text));
        return;
    }
    let tail = key.rsplit('.').next().unwrap_or_default();
    let runs = GIT_COMMAND_KEYS.contains(&key.as_str())
        || key.starts_with("pager.")
        || (key.starts_with("filter.") && matches!(tail, "clean" | "smudge" | "process"))
        || (key.contains('.') && matches!(tail, "textconv" | "driver" | "cmd" | "helper"));
    if runs {
        let text = value.strip_prefix("!").unwrap_or_else(|| value.clone());
        found.push(Inner::text(text));
    }
}
