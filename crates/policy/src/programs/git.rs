//! git and the command lines of code hosts.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["git"])
        .valued(&[
            "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix",
            "--config-env",
        ])
        .reads_outside()
        .inert()
        .files(&[
            reads_tree(Operands).when(Flag(&["--no-index"])),
            deletes_tree(Computed(absolute_operands)).when(All(&[Verb(&["rm"]), Flag(&["-r"])])),
            deletes(Computed(absolute_operands)).when(Verb(&["rm"])),
            writes(Values(&["-o", "--output", "--output-directory"]))
                .when(Verb(&["archive", "format-patch", "diff", "log", "show"])),
            writes(OperandsFrom(2)).when(Verb(&["bundle create"])),
            writes(Computed(merged_file)).when(Verb(&["merge-file"])),
            adds(Computed(clone_target)).when(Verb(&["clone * *"])),
            writes(Computed(patched)).when(All(&[
                Verb(&["apply"]),
                Not(&Flag(&["--check", "--stat", "--numstat", "--summary", "--cached"])),
            ])),
            writes(Computed(traces)),
            writes(Values(&["--prefix"])).when(Verb(&["checkout-index"])),
        ])
        .runs(&[Custom(nested), After("bisect", &[], 1)])
        .asks(&[
            // `--keep` stops where a change would be lost.
            Flag(&["--hard", "--merge"]).triggers(LOSS).on(&["reset"]),
            Any(&[
                Flag(&["-f", "-d", "--delete", "--mirror", "--prune"]),
                Arg(&["--force*"]),
                Operand(&["+*", ":*"]),
            ])
            .triggers(LOSS)
            .on(&["push"]),
            Flag(&["-f", "--force"]).triggers(LOSS).unless(Flag(&["-n"])).on(&["clean"]),
            Any(&[Flag(&["-D", "-f", "-M", "-C"]), All(&[Flag(&["-d", "--delete"]), Flag(&["--force"])])])
                .triggers(LOSS)
                .on(&["branch"]),
            Any(&[Flag(&["-f", "--force", "-B"]), Arg(&["--"]), Operand(&[".", "./", ":/"])])
                .triggers(LOSS)
                .on(&["checkout"]),
            Flag(&["-f", "--force", "--discard-changes", "-C"]).triggers(LOSS).on(&["switch"]),
            Any(&[Not(&Flag(&["--staged", "-S"])), Flag(&["--worktree", "-W"])])
                .triggers(LOSS)
                .on(&["restore"]),
            Arg(&["--prune*"]).triggers(LOSS).on(&["gc"]),
            Flag(&["-d", "--delete", "-f", "--force"]).triggers(LOSS).on(&["tag"]),
            Flag(&["-d", "--stdin"]).triggers(LOSS).on(&["update-ref"]),
            // The same directory may be deleted by its path.
            Flag(&["-f", "--force"]).triggers(LOSS).unless(Test(removes_temporary)).on(&["worktree remove"]),
            All(&[Verb(&["fast-import"]), Not(&Test(imports_to_temporary))]).triggers(LOSS),
            Flag(&["-f", "--force", "--all"]).triggers(LOSS).on(&["submodule deinit"]),
            All(&[Flag(&["-f", "--force"]), Flag(&["-r"]), Operand(&["."])]).triggers(LOSS).on(&["rm"]),
            Flag(&["--reset", "-u"]).triggers(LOSS).unless(Arg(&["--prefix=*"])).on(&["read-tree"]),
            Verb(&[
                "stash drop", "stash clear", "reflog expire", "reflog delete", "prune", "filter-branch",
                "filter-repo", "replace", "update-ref * *", "remote set-url", "remote remove", "remote rm",
                "lfs prune", "daemon", "instaweb",
            ])
            .triggers(LOSS),
            Arg(&["core.hookspath=*"])
                .triggers("git-helper")
                .unless(Arg(&["core.hookspath=", "core.hookspath=/dev/null"])),
            Value(&["-c", "--config"], &["include*"]).triggers("git-helper"),
            Arg(&["ext::*", "--upload-pack*", "--receive-pack*", "--exec-path=*"]).triggers("git-helper"),
            Test(sends_elsewhere).triggers("push-elsewhere"),
            judged("push-elsewhere", pushes_to_new_remote),
            Arg(&["--template*"]).triggers("tool-settings").on(&["init", "clone"]),
            Test(changes_settings).triggers("tool-settings").on(&["config"]),
            Verb(&["credential fill", "credential approve", "credential reject", "credential-*"])
                .triggers("secret-stores"),
        ]),
    program(&["hg"]).runs(&[Custom(|call, found| {
        let settings = call.values(&["--config"]);
        found.extend(settings.iter().filter_map(|setting| setting.after('!')).map(Nested::text));
    })]),
    program(&["gh", "glab", "hub"]).inert().asks(HOSTS),
];

const LOSS: &str = "git-loss";

/// The command lines of code hosts. Everyday work on pull requests and issues does not ask.
const HOSTS: &[Ask] = &[
    Verb(&[
        "* delete", "* edit", "* archive", "* transfer", "* rename", "* merge", "* close", "* create",
        "* upload", "* set", "* remove", "* revoke", "* lock", "* add", "* disable", "* enable", "* run",
        "* cancel", "* rerun", "* fork", "* token", "* login", "* logout", "* refresh", "* setup-git",
        "* publish", "* approve", "* review", "* import", "* sync", "* install", "* comment",
    ])
    .triggers("publish")
    .unless(Verb(&[
        "pr create", "pr edit", "pr review", "pr comment", "pr close", "issue create", "issue edit",
        "issue close", "issue comment", "run rerun", "run cancel", "workflow run", "workflow cancel",
        "repo fork", "repo sync", "repo create", "alias import", "label create", "label edit",
    ])),
    All(&[Verb(&["api"]), Value(&["-X", "--method"], &["*"])])
        .triggers("publish")
        .unless(Value(&["-X", "--method"], &["GET"])),
    Verb(&["gist create"]).triggers("copy-out"),
    Verb(&["auth token"]).triggers("secret-stores"),
    Flag(&["--show-token"]).triggers("secret-stores"),
];

fn is_temporary(word: &Word) -> bool {
    word.known().is_some_and(|path| path.starts_with("/tmp/") && !path.contains(".."))
}

/// Whether the worktrees that are removed lie in a temporary directory.
fn removes_temporary(call: &Invocation<'_>) -> bool {
    let words = call.operands();
    words.len() > 1 && words.into_iter().skip(1).all(is_temporary)
}

/// Whether an import goes to a repository in a temporary directory and writes no other file.
fn imports_to_temporary(call: &Invocation<'_>) -> bool {
    let repositories = call.values(&["-C"]);
    let is_moved = Arg(&["--git-dir*", "--work-tree*", "*marks*", "*unsafe*", "--force"]).holds(call);
    repositories.len() == 1
        && repositories.iter().all(is_temporary)
        && !is_moved
        && call.segment.assignments.is_empty()
}

fn absolute_operands(call: &Invocation<'_>) -> Vec<Word> {
    let is_absolute = |word: &&Word| word.prefix().starts_with(['/', '~']);
    call.behind_verb().operands().into_iter().filter(is_absolute).cloned().collect()
}

/// The files into which git writes what it does.
fn traces(call: &Invocation<'_>) -> Vec<Word> {
    call.segment
        .assignments
        .iter()
        .filter(|(name, value)| is_trace(name, value))
        .map(|(_, value)| value.clone())
        .collect()
}

pub(super) fn exported_traces(call: &Invocation<'_>) -> Vec<Word> {
    let set = call.args.iter().filter_map(Word::as_assignment);
    set.filter(|(name, value)| is_trace(name, value)).map(|(_, value)| value).collect()
}

fn is_trace(name: &str, value: &Word) -> bool {
    name.starts_with("GIT_TRACE") && value.prefix().starts_with('/')
}

/// Something in the directory in which a patch is applied.
fn patched(call: &Invocation<'_>) -> Vec<Word> {
    let base = call.values(&["-C"]).into_iter().next().unwrap_or_else(|| Word::literal("."));
    let directory = call.values(&["--directory"]).into_iter().next();
    let outside = call.has(&["--unsafe-paths"]).then(|| Word::literal("/"));
    let patched = std::iter::once(base).chain(directory).chain(outside);
    patched.map(|path| path.followed_by(&Word::literal("/file"))).collect()
}

/// The first of the files that are merged gets the result.
fn merged_file(call: &Invocation<'_>) -> Vec<Word> {
    let call = call.behind_verb();
    if call.has(&["-p", "--stdout"]) {
        return Vec::new();
    }
    operands(call.args, &["-L"]).into_iter().take(1).cloned().collect()
}

fn clone_target(call: &Invocation<'_>) -> Vec<Word> {
    let valued = ["-b", "--branch", "--depth", "-c", "-o", "--origin"];
    operands(call.behind_verb().args, &valued).into_iter().skip(1).next_back().cloned().into_iter().collect()
}

/// Whether a push, or an address that holds the output of another program, leaves the known
/// remotes.
fn sends_elsewhere(call: &Invocation<'_>) -> bool {
    let is_address = |word: &&Word| {
        word.prefix().contains("://") || (word.prefix().contains('@') && word.prefix().contains(':'))
    };
    let pushes = call.verb() == "push";
    call.args.iter().filter(is_address).any(|word| pushes || super::network::carries_output(word))
}

/// The remote that a command adds.
pub(crate) fn added_remote<'a>(call: &Invocation<'a>) -> Option<&'a Word> {
    let words = operands(call.behind_verb().args, &["-t", "-m", "--mirror"]);
    let adds = call.name() == "git" && call.verb() == "remote";
    match words.as_slice() {
        [verb, name, _, ..] if adds && verb.known() == Some("add") => Some(name),
        _ => None,
    }
}

/// Whether the remote that a push names, or all of them, may be one that the same script adds.
fn pushes_to_new_remote(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let words = operands(call.behind_verb().args, &["-o", "--push-option", "--repo", "--receive-pack"]);
    let named = call.values(&["--repo"]);
    let target = named.first().or(words.first().copied());
    let is_target = |remote: &Word| {
        target.is_none_or(|target| target == remote || target.has_unknown() || remote.has_unknown())
    };
    call.verb() == "push" && context.added_remotes.iter().any(is_target)
}

/// Settings of one repository that cannot start a program.
const HARMLESS_SETTINGS: &[&str] = &[
    "user.*", "alias.*", "color.*", "branch.*", "push.*", "pull.*", "init.defaultbranch*", "merge.*",
    "rebase.*", "fetch.*", "advice.*", "commit.gpgsign*", "rerere.*", "log.*", "status.*", "core.autocrlf",
    "core.eol", "core.filemode", "core.ignorecase", "core.quotepath", "core.whitespace", "core.longpaths",
    "diff.algorithm", "safe.directory", "blame.ignorerevsfile", "commit.template", "lfs.url",
];

/// Whether `git config` changes a setting that can start a program, or a setting of every
/// repository.
fn changes_settings(call: &Invocation<'_>) -> bool {
    let words: Vec<&str> = call.words().collect();
    let reads = call
        .has(&["--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin", "--get-urlmatch"])
        || matches!(words.first().copied(), Some("get" | "list"));
    let writes = words.len() > 1
        || call.has(&[
            "--unset", "--unset-all", "--edit", "-e", "--remove-section", "--rename-section", "--add",
            "--replace-all",
        ]);
    if reads || !writes {
        return false;
    }
    let mut from_key = words.iter().skip_while(|word| !word.contains('.'));
    let key = from_key.next().copied().unwrap_or_default();
    let value = from_key.next().copied().unwrap_or_default();
    let starts_program = fits_any(key, &["user.signingkey", "*.driver"])
        || (fits_any(key, &["alias.*"]) && value.starts_with('!'));
    call.has(&["--global", "--system"]) || starts_program || !fits_any(key, HARMLESS_SETTINGS)
}

/// Options of subcommands whose value git runs.
const TEXT_OPTIONS: &[(&[&str], &[&str])] = &[
    (&["rebase"], &["-x", "--exec"]),
    (
        &["filter-branch"],
        &[
            "--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter",
            "--commit-filter", "--tag-name-filter", "--setup",
        ],
    ),
    (&["difftool"], &["-x", "--extcmd"]),
    (&["grep"], &["-O", "--open-files-in-pager"]),
    (&["clone", "ls-remote", "archive"], &["--upload-pack", "-u", "--receive-pack", "--exec"]),
    (&["fetch", "pull"], &["--upload-pack"]),
    (&["push"], &["--upload-pack", "--receive-pack", "--exec"]),
];

/// Settings whose value git runs; a `!` in front is dropped.
const COMMAND_SETTINGS: &[&str] = &[
    "core.fsmonitor", "core.askpass", "diff.external", "core.gitproxy", "uploadpack.packobjectshook",
    "interactive.difffilter", "core.hookspath", "init.templatedir", "pager.*", "*.textconv", "*.driver",
    "*cmd", "*command", "*.program", "*.helper", "*.editor", "*.pager", "*.clean", "*.smudge", "*.process",
];

fn nested(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for setting in call.values(&["-c", "--config"]) {
        if let Some((key, value)) = setting.as_assignment() {
            run_setting(&key, &value, found);
        }
    }
    let behind = call.behind_verb();
    let rest = behind.args;
    let verb = call.verb();
    for (_, options) in TEXT_OPTIONS.iter().filter(|(verbs, _)| verbs.contains(&verb)) {
        found.extend(values(rest, options).into_iter().map(Nested::text));
    }
    found.extend(rest.iter().filter_map(|word| word.strip_prefix("ext::")).map(Nested::text));
    match verb {
        "config" => {
            let words = operands(rest, &["-f", "--file", "--blob", "--type", "--default"]);
            let mut words = words
                .into_iter()
                .skip_while(|word| matches!(word.known(), Some("set" | "add" | "replace-all")));
            if let (Some(key), Some(value)) = (words.next(), words.next()) {
                run_setting(key.prefix(), value, found);
            }
        }
        "submodule" => {
            if let Some(words) = behind.after(|word| word.known() == Some("foreach")) {
                let words = words.iter().skip_while(|word| word.prefix().starts_with("--"));
                found.push(Nested::text(Word::joined(&words.cloned().collect::<Vec<_>>())));
            }
        }
        _ => {}
    }
}

fn run_setting(key: &str, value: &Word, found: &mut Vec<Nested>) {
    let command = value.strip_prefix("!");
    if fits_any(key, &["alias.*"]) {
        found.extend(command.map(Nested::text));
    } else if fits_any(key, COMMAND_SETTINGS) {
        found.push(Nested::text(command.unwrap_or_else(|| value.clone())));
    }
}
