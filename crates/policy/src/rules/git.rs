//! Losing work in version control.

use super::{On, Rule, View};
use crate::shell::{GIT_VALUED, Word, first_operand};

pub(super) const RULES: &[Rule] = &[
    Rule::ask(
        "git-loss",
        "throws away commits or changes, here or at the remote",
        On::Programs(&["git"]),
        git_loss,
    )
    .examples(
        &[
            "git reset --hard", "git push --force", "git push -fu origin main", "git push origin +main",
            "git clean -fd", "git branch -D x", "git -C d reset --hard", "git checkout .", "git stash clear",
        ],
        &[
            "git push", "git reset HEAD~1", "git clean -n", "git branch -d x", "git checkout main",
            "git stash", "git push --dry-run --force",
        ],
    ),
    Rule::ask(
        "git-helper",
        "lets git start a program to reach a repository",
        On::Programs(&["git"]),
        |view| {
            view.args().iter().any(|word| {
                word.prefix().starts_with("ext::")
                    || word.prefix().starts_with("--upload-pack")
                    || word.prefix().starts_with("--receive-pack")
                    || word.prefix().starts_with("--exec-path=")
            })
        },
    )
    .examples(
        &["git clone 'ext::sh -c x'", "git --exec-path=/tmp/x status"],
        &["git clone https://x.example/y.git"],
    ),
];

fn git_loss(view: &View<'_>) -> bool {
    let args = view.args();
    let start = first_operand(args, GIT_VALUED);
    let Some(verb) = args.get(start).map(Word::prefix) else { return false };
    let rest = args.get(start + 1..).unwrap_or_default();
    let has = |options: &[&str]| crate::shell::has(rest, options);
    let words: Vec<&str> =
        crate::shell::operands(rest, &["-m", "-b", "-B", "-o", "--push-option", "-C", "-n"])
            .into_iter()
            .map(Word::prefix)
            .collect();
    if has(&["--dry-run", "--help"]) || (verb == "clean" && has(&["-n"])) {
        return false;
    }
    let literal = |option: &str| rest.iter().any(|word| word.known() == Some(option));
    match verb {
        "reset" => has(&["--hard", "--merge", "--keep"]),
        "push" => {
            literal("--force")
                || rest.iter().any(|word| word.prefix().starts_with("--force"))
                || has(&["-f"])
                || has(&["--delete", "--mirror", "--prune"])
                || has(&["-d"])
                || words.iter().skip(1).any(|word| word.starts_with('+') || word.starts_with(':'))
        }
        "clean" => {
            has(&["-f", "--force"])
                || rest.iter().any(|word| word.prefix().starts_with("-") && word.prefix().contains('f'))
        }
        "branch" => {
            literal("-D")
                || rest.iter().any(|word| {
                    word.prefix().starts_with('-')
                        && !word.prefix().starts_with("--")
                        && word.prefix().contains('D')
                })
                || (has(&["--delete", "-d"]) && has(&["--force", "-f"]))
                || has(&["-f", "-M", "-C"])
        }
        "checkout" => {
            has(&["-f", "--force"])
                || literal("--")
                || words.iter().any(|word| matches!(*word, "." | "./" | ":/" | "*"))
                || literal("-B")
        }
        "switch" => has(&["-f", "--force", "--discard-changes", "-C"]),
        "restore" => !has(&["--staged", "-S"]) || has(&["--worktree", "-W"]),
        "stash" => matches!(words.first().copied(), Some("drop" | "clear")),
        "reflog" => matches!(words.first().copied(), Some("expire" | "delete")),
        "gc" => {
            rest.iter().any(|word| word.prefix().starts_with("--prune"))
                || has(&["--aggressive"]) && has(&["--prune"])
        }
        "prune" | "filter-branch" | "filter-repo" | "replace" | "fast-import" => true,
        "tag" => has(&["-d", "--delete", "-f", "--force"]),
        "rebase" => false,
        "update-ref" => has(&["-d", "--stdin"]) || words.len() > 1,
        "worktree" => words.first().copied() == Some("remove") && has(&["-f", "--force"]),
        "remote" => matches!(words.first().copied(), Some("set-url" | "remove" | "rm")),
        "submodule" => words.first().copied() == Some("deinit") && has(&["-f", "--force", "--all"]),
        "rm" => {
            has(&["-f", "--force"]) && has(&["-r"]) && words.iter().any(|word| matches!(*word, "." | "*"))
        }
        "commit" => false,
        "read-tree" => has(&["--reset", "-u"]),
        "lfs" => words.first().copied() == Some("prune"),
        "daemon" | "instaweb" => true,
        _ => false,
    }
}
