//! Contained harm: what a model may allow in the mode `smart`.
//!
//! A question is contained if the gate has read the whole script, and the script sets no variable
//! that could lead a command elsewhere, uses and names nothing protected beyond what it would get
//! unasked, and matches no rule but those marked here, so none of the owner. A mark covers uses of a
//! program, in a known directory of the project and with words that stay in it, that lose at most
//! uncommitted work or visible files of that directory, or processes that the command started.

use super::{Rule, RuleContext};
use crate::programs::Invocation;
use crate::programs::When::{self, All, Any, Arg, Not, Test, Verb};
use crate::shell::Word;

/// Uncommitted work below the working directory. The root of the repository may be far above it, so
/// commands that change all of the repository are not among these.
pub(super) const UNCOMMITTED_WORK: When = All(&[
    Any(&[Verb(&["clean", "restore", "rm"]), All(&[Verb(&["checkout"]), Test(is_limited_to_paths)])]),
    // No option of git itself, such as `-C`.
    Test(|call| call.args.first().and_then(Word::known) == Some(call.verb())),
    Not(&Arg(&["--pathspec*"])),
]);

fn is_limited_to_paths(call: &Invocation<'_>) -> bool {
    let behind_mark = call.after(|word| word.known() == Some("--"));
    behind_mark.map_or_else(
        || call.args.last().is_some_and(|word| matches!(word.known(), Some("." | "./"))),
        |paths| !paths.is_empty(),
    )
}

/// Files of the working directory, but not hidden ones such as its history.
pub(super) const VISIBLE_FILES: When = Test(|call| {
    let is_visible = |part: &str| {
        part.starts_with(|first: char| first.is_alphanumeric() || matches!(first, '_' | '*'))
            && !part.contains('(')
    };
    let outlines = call.operands().into_iter().map(Word::outline);
    let mut below = outlines.map(|path| path.strip_prefix("./").unwrap_or(&path).split('/').all(is_visible));
    call.name() == "rm" && below.all(|is_below| is_below)
});

/// The process group of the command, and jobs of its shell.
pub(super) const OWN_PROCESSES: When = Test(|call| {
    let is_signal = |word: &Word| word.prefix().starts_with('-');
    let targets = call.args.get(usize::from(call.args.first().is_some_and(is_signal))..);
    let is_own = |word: &Word| word.prefix() == "0" || word.prefix().starts_with('%');
    call.name() == "kill" && targets.is_some_and(|words| !words.is_empty() && words.iter().all(is_own))
});

/// Whether the harm of a rule that matched is contained.
pub(super) fn is_contained(rule: &Rule, context: &RuleContext<'_>) -> bool {
    let segment = context.segment();
    let in_project = |directory: &str| context.paths.is_project(&format!("{directory}/file"));
    rule.contained.holds(&context.invocation)
        && segment.program.known() == Some(context.name())
        && segment.via.is_empty()
        && segment.assignments.is_empty()
        && segment.cwd.as_deref().is_some_and(in_project)
        && segment.args.iter().all(stays_below)
}

/// Whether a word, if it is a path, is below the directory.
fn stays_below(word: &Word) -> bool {
    let text = word.outline();
    let leaves = ["..", "=/", "=~"].iter().any(|part| text.contains(part));
    !word.has_unknown() && !text.starts_with(['/', '~', ':', '!']) && !leaves
}
