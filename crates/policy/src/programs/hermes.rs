//! Hermes' own command line. Only what reads is free: Hermes is no tool against itself.
//!
//! A test in `crates/cli` compares this with the definition of the command line.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] =
    &[non_reader(&["hermes", "hermes-*"]).valued(VALUED).inert().runs(&[Custom(nested)]).asks(&[
        Test(agrees_by_itself).triggers("hermes-policy"),
        Not(&Any(&[Test(only_reads), Test(starts_work), Test(shows_help)])).triggers("hermes-policy"),
        Test(starts_work).triggers("hermes-work").unless(Any(&[Test(runs_command), Test(shows_help)])),
    ])];

/// The options that take a separate value, of all commands that are not refused.
const VALUED: &[&str] = &[
    "--home", "--query", "--oneshot", "-q", "-z", "--image", "--model", "-m", "--backend", "--session",
    "--cwd", "--timeout", "--env", "--offset", "--limit",
];

const READS: &[&[&str]] = &[
    &["status"],
    &["doctor"],
    &["completions"],
    &["help"],
    &["config", "path"],
    &["config", "show"],
    &["config", "get"],
    &["config", "explain"],
    &["config", "check"],
    &["config", "schema"],
    &["sandbox", "ls"],
    &["sandbox", "list"],
    &["sandbox", "show"],
    &["process", "ls"],
    &["process", "list"],
    &["process", "log"],
    &["process", "wait"],
    &["tool", "ls"],
    &["tool", "list"],
    &["approvals", "ls"],
    &["approvals", "list"],
    &["approvals", "grants"],
    &["approvals", "test"],
    &["gateway", "status"],
];

/// Commands whose own gate asks about what they run.
const WORKS: &[&[&str]] = &[&[], &["chat"], &["exec"], &["shell"], &["tool", "call"], &["process", "write"]];

/// Whether the command is one of these. An unknown word in front of it may be any.
fn is_command(call: &Invocation<'_>, commands: &[&[&str]]) -> bool {
    let operands = call.operands();
    commands.iter().any(|command| match command {
        [] => operands.is_empty() && call.args.iter().all(|word| !word.starts_unknown()),
        command => command.iter().enumerate().all(|(at, part)| {
            operands.get(at).is_some_and(|word| word.known() == Some(part) && !word.splits)
        }),
    })
}

fn only_reads(call: &Invocation<'_>) -> bool {
    is_command(call, READS)
}

fn starts_work(call: &Invocation<'_>) -> bool {
    is_command(call, WORKS)
}

fn runs_command(call: &Invocation<'_>) -> bool {
    is_command(call, &[&["exec"]])
}

/// Whether nothing but a command and a request for help is given: a word behind it may be a value.
fn shows_help(call: &Invocation<'_>) -> bool {
    let is_help = |word: &Word| matches!(word.known(), Some("--help" | "-h" | "--version" | "-V"));
    let (help, rest): (Vec<&Word>, Vec<&Word>) = call.args.iter().partition(|word| is_help(word));
    !help.is_empty()
        && rest.len() <= 2
        && rest.iter().all(|word| word.known().is_some_and(|word| !word.starts_with('-')))
}

/// Whether it answers questions by itself. Behind `exec` the words of the command begin.
fn agrees_by_itself(call: &Invocation<'_>) -> bool {
    let own = own_words(call);
    has(own, &["--yes", "--yolo", "--dangerously-skip-permissions", "--live"])
}

fn own_words<'a>(call: &Invocation<'a>) -> &'a [Word] {
    let behind = if runs_command(call) { call.behind_verb() } else { return call.args };
    let command = behind.words_from_verb().len();
    call.args.get(..call.args.len() - command).unwrap_or(call.args)
}

/// The command of `exec`, and what `process write` types.
fn nested(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if runs_command(call) {
        match call.behind_verb().words_from_verb() {
            [text] => found.push(Nested::text(text.clone())),
            words => found.extend(Nested::argv(words)),
        }
    } else if is_command(call, &[&["process", "write"]]) {
        found.extend(call.operands().get(3).map(|text| Nested::text((*text).clone())));
    }
}
