//! Losing data and work: in repositories, databases, containers, clouds, at Hermes itself; and
//! letting data out or other machines in.

use super::contained::UNCOMMITTED_WORK;
use super::{Leak, Rule, RuleContext, ask, floor};
use crate::programs::PathAccess;
use crate::programs::When::{Any, Arg, Flag, Help};
use crate::programs::is_local;
use crate::shell::{FILE_CONTENT, Word, pattern_matches};

pub(super) const RULES: &[Rule] = &[
    floor("hermes-files", "changes Hermes' own settings, approvals or records").on_files(|context| {
        context.any_change(|path, _| is_guarded(context, path))
            || context.any_possible_change(|path| is_guarded(context, path))
    }),
    ask("read-hermes", "reads conversations, approvals or other records of Hermes").on_files(|context| {
        context.any(|effect| {
            matches!(effect.access, PathAccess::Read | PathAccess::ReadTree)
                && is_record(context, &effect.path)
        })
    }),
    floor("hermes-policy", "uses Hermes to change its settings, answers, records or environments"),
    ask("hermes-work", "starts another conversation or job of Hermes"),
    ask("hermes-program", "copies or links the program of Hermes").on_files(|context| {
        let programs = ["/bin/hermes", "/sbin/hermes", "/libexec/hermes"];
        context.any(|effect| {
            programs.iter().any(|program| effect.path.ends_with(program))
                && !context.paths.is_project(&effect.path)
        })
    }),
    ask("hermes-home", "uses another Hermes home").on_every(|context| {
        let is_own = |name: &str| name.starts_with("HERMES_");
        let sets = ["export", "declare", "env", "unset", "readonly", "typeset"].contains(&context.name());
        let segment = context.segment();
        segment.assignments.iter().any(|(name, _)| is_own(name))
            || (sets && segment.args.iter().any(|word| is_own(word.prefix())))
    }),
    ask("git-loss", "discards commits or changes, here or at the remote")
        .unless(Any(&[Help, Flag(&["--dry-run"])]))
        .contained(UNCOMMITTED_WORK),
    ask("git-helper", "lets git start a program that the command names"),
    ask("sql", "drops or empties database tables").inside(),
    ask("database-loss", "deletes a database or its content").inside(),
    ask("schema-reset", "drops or empties a database through a framework"),
    ask("backups", "deletes snapshots or backups"),
    ask("containers", "stops or deletes containers, images or volumes").unless(Help),
    ask("container-escape", "gives a container control of this machine"),
    ask("cluster", "changes or deletes things in a cluster").unless(Any(&[Help, Arg(&["--dry-run*"])])),
    ask("cloud", "deletes or changes things in a cloud account").unless(Any(&[
        Help,
        Arg(&["--dryrun", "--dry-run", "--check", "--syntax-check", "--list-tasks", "--list-hosts"]),
    ])),
    ask("publish", "publishes packages or releases, or deletes published ones")
        .unless(Any(&[Help, Arg(&["--dry-run*", "--snapshot", "--check"])])),
    ask("send-file", "sends files or command output to another machine")
        .on_every(sends_owners_content)
        .leaks(Leak::Data),
    ask("copy-out", "copies files to another machine").unless(Help).leaks(Leak::Data),
    ask("inbound-access", "lets other machines reach or control this one").unless(Help),
    ask("raw-socket", "connects to another machine through the shell")
        .on_every(|context| {
            let is_socket = |word: &Word| {
                let text = word.prefix();
                let host = text.strip_prefix("/dev/tcp/").or_else(|| text.strip_prefix("/dev/udp/"));
                host.is_some_and(|host| !LOOPBACK.contains(&host.split('/').next().unwrap_or_default()))
            };
            let segment = context.segment();
            segment.redirects.iter().map(|redirect| &redirect.target).chain(&segment.args).any(is_socket)
        })
        .leaks(Leak::Data),
    ask("metadata", "asks the cloud for the keys of this machine").leaks(Leak::PrivateAccess),
    ask("steal-by-name", "hides data in a name lookup").leaks(Leak::Data),
    ask("secret-stores", "reads passwords or tokens from a password store").unless(Help),
    ask("dump-environment", "prints every variable, secrets included, into a file or to another program"),
    ask("many-machines", "runs commands on many machines at once").unless(Help),
    ask("delete-remote", "asks another machine to delete something").leaks(Leak::PrivateAccess),
    ask(
        "push-elsewhere",
        "sends the repository, or the content of a file, to an address that the command names",
    )
    .leaks(Leak::Data),
    ask(
        "packages-elsewhere",
        "installs packages over an unencrypted connection, which others on the network can change",
    ),
    ask("remote-code", "downloads code that the project does not pin, and runs it").unless(Help),
    ask("scan", "scans other machines").unless(Help).leaks(Leak::PrivateAccess),
];

/// This machine, as the shell may connect to it.
const LOOPBACK: &[&str] = &["127.0.0.1", "localhost", "::1"];

/// Whether a program that connects to other machines gets an argument computed from a file.
fn sends_owners_content(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let is_content = |word: &Word| word.output_of().any(|program| program == FILE_CONTENT);
    call.program.fetches
        && call.args.iter().any(is_content)
        && !call.args.iter().any(|word| is_local(word.prefix()))
}

/// Directories of the Hermes home that belong to the work, not to Hermes.
const WORK_DIRECTORIES: &[&str] = &["workspace", "workspaces", "cache", "tmp", "home"];

/// Files of the Hermes home that commands may read: what the owner wrote for the model.
const READABLE_FILES: &[&str] = &["skills", "config.yaml", "SOUL.md"];

fn is_record(context: &RuleContext<'_>, path: &str) -> bool {
    let first = below_hermes(context, path).split('/').next().unwrap_or_default();
    is_guarded(context, path) && !READABLE_FILES.contains(&first)
}

/// The path below the Hermes home that it lies in.
fn below_hermes<'a>(context: &RuleContext<'_>, path: &'a str) -> &'a str {
    let home = crate::paths::normalize(context.paths.hermes_home);
    let rest = path.strip_prefix(&home).or_else(|| path.split_once("/.hermes").map(|(_, rest)| rest));
    rest.unwrap_or_default().trim_start_matches('/')
}

fn is_guarded(context: &RuleContext<'_>, path: &str) -> bool {
    if !context.paths.is_hermes(path) {
        return false;
    }
    let rest = below_hermes(context, path);
    let mut parts = rest.split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Programs in the cache run inside every environment.
    let is_program = first == "cache" && pattern_matches(second, "guest");
    !WORK_DIRECTORIES.contains(&first)
        || is_program
        || (rest == first && context.any_delete(|deleted, tree| tree && deleted == path))
}
