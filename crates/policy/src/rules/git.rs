//! Losing work in version control.

use super::{Rule, Trigger};
use crate::programs::When::{Any, Flag, Help};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("git-loss", "throws away commits or changes, here or at the remote", Trigger::Programs)
        .unless(Any(&[Help, Flag(&["--dry-run"])]))
        .examples(
            &[
                "git reset --hard", "git push --force", "git push -fu origin main", "git push origin +main",
                "git clean -fd", "git branch -D x", "git -C d reset --hard", "git checkout .",
                "git stash clear",
            ],
            &[
                "git push", "git reset HEAD~1", "git clean -n", "git branch -d x", "git checkout main",
                "git stash", "git push --dry-run --force",
            ],
        ),
    Rule::ask("git-helper", "lets git start a program to reach a repository", Trigger::Programs).examples(
        &["git clone 'ext::sh -c x'", "git --exec-path=/tmp/x status"],
        &["git clone https://x.example/y.git"],
    ),
];
