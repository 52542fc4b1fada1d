//! Running processes: ending them, looking into them.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["kill"]).asks(&[
        Test(targets_everything).triggers("kill-everything"),
        Test(targets_init).triggers("kill-init").unless(Test(signals_nothing)),
        KILLS_HERMES,
        Test(kills_many).triggers("mass-kill").unless(Test(signals_nothing)),
    ]),
    non_reader(&["pkill"]).asks(&[
        KILLS_HERMES,
        Any(&[
            SENDS_KILL,
            Test(|call| {
                let is_wide = |word: &Word| matches!(word.prefix(), "." | ".*" | "") && !is_this_shell(word);
                call.args.iter().any(is_wide)
            }),
            Flag(&["-u", "-U", "-g", "-t", "-v", "--inverse", "--euid"]),
            Test(kills_children_of_others),
        ])
        .triggers("mass-kill"),
    ]),
    non_reader(&["pgrep"]),
    program(&["killall"]).asks(&[
        KILLS_HERMES,
        Any(&[SENDS_KILL, Flag(&["-r", "-u", "--regexp", "--user", "-g"])]).triggers("mass-kill"),
    ]),
    program(&["killall5"]).asks(&[always("kill-everything"), KILLS_HERMES]),
    program(&["skill"]).asks(&[
        Test(targets_everything).triggers("kill-everything"),
        KILLS_HERMES,
        always("mass-kill"),
    ]),
    program(&["xkill"]).asks(&[KILLS_HERMES, always("mass-kill")]),
    program(&["fuser"]).asks(&[KILLS_HERMES, Flag(&["-k", "--kill"]).triggers("mass-kill")]),
    program(&["ps"]).asks(&[Any(&[Test(shows_variables), Flag(&["-E"])]).triggers("secret-stores")]),
    program(&["gdb", "lldb"])
        .files(&[writes(Computed(debugger_logs))])
        .runs(&[
            Escapes(&["shell ", "she ", "shel ", "platform shell ", "!", "pipe ", "| "]),
            Custom(debugger),
        ])
        .asks(&[Flag(&["-p", "--pid"]).triggers("attach")]),
    program(&["gcore", "reptyr", "dtrace", "bpftrace", "jmap"]).asks(&[always("attach")]),
];

/// Whether the children of a process are ended that is not the shell itself.
fn kills_children_of_others(call: &Invocation<'_>) -> bool {
    call.has(&["-P", "--parent"]) && !call.values(&["-P", "--parent"]).iter().all(is_this_shell)
}

/// Whether a word is `$$`.
fn is_this_shell(word: &Word) -> bool {
    word.pieces().len() == 1 && word.variables().eq(["$"])
}

const DEBUGGER_FILES: &[&str] = &[
    "-x", "-command", "--command", "-ix", "-init-command", "--init-command", "--source",
    "--source-before-file", "--source-on-crash",
];

/// The commands that are given or typed to a debugger.
fn debugger_lines(call: &Invocation<'_>) -> Vec<String> {
    let mut texts = call.values(&[
        "-ex", "-eval-command", "--eval-command", "-iex", "-init-eval-command", "--init-eval-command", "-o",
        "-O", "-k", "--one-line", "--one-line-before-file", "--one-line-on-crash",
    ]);
    texts.extend(call.segment.stdin.text.clone());
    texts
        .iter()
        .map(Word::outline)
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The files into which a debugger writes what it shows.
fn debugger_logs(call: &Invocation<'_>) -> Vec<Word> {
    let lines = debugger_lines(call).into_iter();
    let logs = lines.filter(|line| line.contains("logging") || line.trim_start().starts_with("log "));
    logs.filter_map(|line| line.split_whitespace().last().map(Word::literal)).collect()
}

/// Commands of a debugger that run program text or call a function.
fn debugger(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let mut files = call.values(DEBUGGER_FILES);
    if call.name() == "lldb" {
        files.extend(call.values(&["-s", "-S"]));
    }
    found.extend(files.into_iter().map(|file| Nested::File(Language::Other, file)));
    if call.segment.stdin.is_piped() && call.segment.stdin.text.is_none() {
        found.push(Nested::Stdin(Language::Other));
    }
    for line in debugger_lines(call) {
        let runs_text = [
            "py", "pi ", "script", "guile", "gu ", "source", "compile", "dump", "append", "restore", "expr",
            "command", "save", "generate-core", "gcore", "call ", "memory read", "process save-core",
        ];
        if runs_text.iter().any(|start| line.trim_start().starts_with(start)) || line.contains('(') {
            found.push(Nested::Code(Language::Other, Word::literal(line)));
        }
    }
}

const SENDS_KILL: When = Arg(&[
    "-9", "-KILL", "-kill", "-SIGKILL", "9", "KILL", "SIGKILL", "*signal=9", "*signal=KILL",
    "*signal=SIGKILL",
]);

const KILLS_HERMES: Ask = Test(targets_hermes).triggers("kill-hermes").unless(Test(signals_nothing));

/// The processes a `kill` names, without its signal.
fn targets<'a>(call: &Invocation<'a>) -> Vec<&'a str> {
    let mut words = call.args.iter().map(Word::prefix).peekable();
    let mut targets = Vec::new();
    let mut may_be_signal = true;
    while let Some(word) = words.next() {
        if may_be_signal && matches!(word, "-s" | "-n" | "--signal") {
            words.next();
            continue;
        }
        if may_be_signal && word == "--" {
            targets.extend(words);
            break;
        }
        let is_signal = word.len() > 1 && word.starts_with('-') && !(word == "-1" && words.peek().is_none());
        if !(std::mem::take(&mut may_be_signal) && is_signal) {
            targets.push(word);
        }
    }
    targets
}

fn targets_everything(call: &Invocation<'_>) -> bool {
    targets(call).contains(&"-1")
}

fn targets_init(call: &Invocation<'_>) -> bool {
    targets(call).contains(&"1")
}

fn signals_nothing(call: &Invocation<'_>) -> bool {
    call.args.first().is_some_and(|word| matches!(word.known(), Some("-0" | "-l" | "-L")))
}

fn targets_hermes(call: &Invocation<'_>) -> bool {
    let by_name = Arg(&["*hermes*", "*cli.py*"]).holds(call)
        || (matches!(call.name(), "pkill" | "killall") && Arg(&["*gateway*"]).holds(call));
    // The parent of a command is the guest that runs it.
    let parent = call.args.iter().any(|word| word.variables().any(|name| name == "PPID"));
    let by_search = call.name() == "kill"
        && call.segment.source.to_lowercase().contains("hermes")
        && call.args.iter().any(Word::has_unknown);
    parent || by_name || by_search
}

/// Whether a `kill` ends a group, or processes that another program finds.
fn kills_many(call: &Invocation<'_>) -> bool {
    let any_output = |programs: &[&str]| {
        call.args.iter().any(|word| word.output_of().any(|program| programs.contains(&program)))
    };
    let found = any_output(&["pgrep", "pidof", "ps", "lsof", "awk", "fuser", "grep"])
        || (any_output(&["cat"]) && !reads_process_file(call));
    // Ending the process that listens on one port is an everyday thing.
    let by_port =
        any_output(&["lsof"]) || call.segment.stdin.programs.iter().any(|program| program == "lsof");
    let each_input = call.segment.via.iter().any(|via| via == "xargs" || via == "parallel");
    let group = targets(call).contains(&"0")
        || call.args.iter().any(|word| word.prefix() == "-" && word.has_unknown());
    let each = call.segment.repeated && call.args.iter().any(Word::has_unknown);
    each || group || (!by_port && (found || (each_input && !signals_nothing(call))))
}

/// Whether a number comes from a file that a server wrote its own number to.
fn reads_process_file(call: &Invocation<'_>) -> bool {
    let source = &call.segment.source;
    source.contains(".pid") && !source.contains("-1")
}

/// `ps e` and the like show the variables of processes.
fn shows_variables(call: &Invocation<'_>) -> bool {
    call.args
        .iter()
        .map(Word::prefix)
        .any(|word| word.contains('e') && word.bytes().all(|byte| byte.is_ascii_lowercase()))
}
