//! Programs that run another command with other rights, limits or surroundings.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["sudo"])
        .valued(&[
            "-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t", "-U", "--user", "--group", "--host",
            "--prompt", "--chdir", "--chroot", "--close-from", "--role", "--type", "--other-user",
            "--command-timeout",
        ])
        .runs(&[Custom(sudo)])
        .directory(&["-D", "--chdir"])
        .asks(&[ELEVATES]),
    wrapper(&["doas"], &["-u", "-C", "-a"]).asks(&[ELEVATES]),
    wrapper(&["pkexec"], &["--user"]).asks(&[ELEVATES]),
    wrapper(
        &["run0"],
        &["-u", "-g", "-D", "--user", "--group", "--chdir", "--unit", "--property", "--setenv", "--slice"],
    )
    .directory(&["-D", "--chdir"])
    .asks(&[ELEVATES]),
    program(&["runuser"])
        .valued(&[
            "-u", "-g", "-G", "-c", "-s", "--user", "--group", "--command", "--shell", "--session-command",
        ])
        .runs(&[Text(&["-c", "--command", "--session-command"]), Behind(0), Custom(user_shell)])
        .asks(&[ELEVATES]),
    program(&["su"])
        .runs(&[Text(&["-c", "--command", "--session-command"]), Custom(user_shell)])
        .asks(&[ELEVATES]),
    program(&["gosu", "su-exec"]).runs(&[Behind(1)]).asks(&[ELEVATES]),
    wrapper(
        &["setpriv"],
        &["--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set", "--securebits"],
    )
    .asks(&[ELEVATES]),
    wrapper(&["chpst"], &["-u", "-U", "-b", "-e", "-d", "-o", "-p", "-f", "-c"]).asks(&[ELEVATES]),
    program(&["sg"]).runs(&[Text(&["-c"])]).asks(&[ELEVATES]),
    program(&["machinectl"]).runs(&[After("shell", &["-M", "--uid", "-E"], 1)]).asks(&[ELEVATES]),
    program(&["sudoedit"]).valued(&["-f"]).files(&[writes(Operands)]).asks(&[ELEVATES]),
    program(&["gksudo", "kdesudo", "newgrp"]).asks(&[ELEVATES]),
    reader(&["env"])
        .valued(&["-u", "-C", "-a", "-S", "--unset", "--chdir", "--argv0", "--split-string"])
        .runs(&[Custom(env)])
        .directory(&["-C", "--chdir"])
        .asks(&[super::builtins::DUMPS]),
    reader(&["nohup"]).runs(BEHIND),
    wrapper(&["nice"], &["-n", "--adjustment"]),
    wrapper(&["ionice"], &["-c", "-n", "-p", "-P", "-u", "--class", "--classdata"]),
    reader(&["timeout"]).valued(&["-s", "-k", "--signal", "--kill-after"]).runs(&[Behind(1)]),
    program(&["gtimeout"]).valued(&["-s", "-k", "--signal", "--kill-after"]).runs(&[Behind(1)]),
    reader(&["time"]).valued(&["-f", "-o", "--format", "--output"]).runs(BEHIND),
    wrapper(&["stdbuf"], &["-i", "-o", "-e", "--input", "--output", "--error"]),
    program(&["chroot"]).valued(&["--userspec", "--groups"]).runs(&[Behind(1)]).asks(&[always("mount")]),
    wrapper(
        &["unshare"],
        &["-R", "-w", "-S", "-G", "--root", "--wd", "--setuid", "--setgid", "--propagation"],
    )
    .asks(&[always("mount")]),
    wrapper(&["nsenter"], &["-t", "-S", "-G", "--target", "--setuid", "--setgid"]).asks(&[always("attach")]),
    wrapper(&["strace"], &["-e", "-o", "-p", "-s", "-u", "-E", "-P", "-I", "-O", "-S", "-a", "-b"])
        .asks(&[Flag(&["-p", "--pid"]).triggers("attach")]),
    wrapper(&["ltrace"], &["-e", "-o", "-p", "-s", "-u", "-a", "-l", "-n", "-x"])
        .asks(&[Flag(&["-p", "--pid"]).triggers("attach")]),
    program(&["perf"]).runs(&[
        After("stat", &["-e", "-o", "-p", "-r"], 0),
        After("record", &["-e", "-o", "-p", "-F", "-c", "-g"], 0),
    ]),
    program(&["taskset", "setarch"]).runs(&[Behind(1)]),
    program(&["chrt"]).valued(&["-T", "-P", "-D"]).runs(&[Behind(1)]),
    wrapper(&["numactl"], &["-N", "-m", "-C", "-i", "-p"]),
    wrapper(&["caffeinate"], &["-t", "-w"]),
    wrapper(&["proxychains", "proxychains4"], &["-f"]),
    wrapper(&["dbus-run-session"], &["--config-file"]),
    wrapper(&["xvfb-run"], &["-n", "-s", "-e", "-f", "-w", "--server-args", "--server-num"]),
    wrapper(&["rlwrap"], &["-f", "-H", "-s"]),
    wrapper(&["cgexec"], &["-g"]),
    wrapper(
        &["systemd-run"],
        &[
            "-p", "-u", "-E", "-M", "-H", "--unit", "--property", "--setenv", "--slice", "--on-active",
            "--on-calendar",
        ],
    )
    .asks(&[always("schedule")]),
    wrapper(&["systemd-inhibit"], &["--what", "--who", "--why", "--mode"]),
    wrapper(&["dotenv"], &["-f", "-e"]),
    wrapper(&["tini"], &["-p", "-e"]),
    wrapper(&["sshpass"], &["-p", "-f", "-d", "-P"]),
    wrapper(&["ssh-agent"], &["-a", "-t"]),
    program(&["flock"])
        .valued(&["-w", "-E", "--timeout", "--conflict-exit-code"])
        .runs(&[Text(&["-c", "--command"]), Behind(1)]),
    wrapper(
        &["watchexec"],
        &["-w", "-e", "-f", "-i", "-s", "--watch", "--exts", "--filter", "--ignore", "--signal"],
    ),
    wrapper(&["screen"], &["-S", "-c", "-e", "-h", "-p", "-s", "-t", "-T"])
        .asks(&[Flag(&["-X"]).triggers("attach")]),
    program(&[
        "setsid", "firejail", "torsocks", "torify", "unbuffer", "catchsegv", "valgrind", "fakeroot",
        "busybox", "toybox", "dumb-init", "entr",
    ])
    .runs(BEHIND),
    wrapper(
        &["ld-linux*", "ld-musl*", "ld.so"],
        &["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"],
    ),
    program(&["watch"]).valued(&["-n", "--interval", "-q", "--equexit"]).runs(&[Line]),
    program(&["hyperfine"])
        .valued(&[
            "-w", "--warmup", "-r", "--runs", "-p", "--prepare", "-c", "--cleanup", "-S", "--shell", "-n",
            "--export-json", "--export-markdown", "-L", "-P", "-m", "-M", "--setup", "-s",
        ])
        .runs(&[
            Custom(|call, found| found.extend(call.operands().into_iter().cloned().map(Nested::text))),
            Text(&["-p", "--prepare", "-c", "--cleanup", "--setup"]),
        ]),
    program(&["script"])
        .valued(&["-c", "-E", "-I", "-O", "-B", "-T", "-m", "-o", "--command"])
        .files(&[writes(FirstOperand).when(Not(&Flag(&["-a", "--append"])))])
        .runs(&[Text(&["-c", "--command"])]),
    program(&["xterm", "konsole"]).runs(&[Text(&["-e"])]),
    program(&["gnome-terminal", "alacritty", "kitty", "foot"]).runs(&[AfterMark(&["-e"])]),
    program(&["direnv"]).runs(&[After("exec", &[], 1)]),
    program(&["mise", "asdf"]).runs(&[After("exec", &[], 0)]),
    program(&["nix"]).runs(&[After("run", &[], 0), After("shell", &[], 0)]),
    program(&["nix-shell"]).runs(&[Text(&["--run", "--command"])]),
    program(&["fzf"]).runs(&[Text(&["--preview"])]),
    program(&["nodemon"]).runs(&[Text(&["-x", "--exec"])]),
    program(&["capsh"]).runs(&[Custom(capsh)]),
    program(&["cmd"]).runs(&[Custom(windows_shell)]),
    program(&["cmd.exe"]).runs(&[Custom(windows_shell)]).asks(&[always("devices")]),
    program(&["adb"]).runs(&[Custom(|call, found| {
        if call.verb() == "shell" {
            found.push(Nested::text(Word::joined(call.behind_verb().args)));
        }
    })]),
    program(&["start-stop-daemon"]).runs(&[Custom(start_stop_daemon)]),
    program(&["run-parts"]).runs(&[Custom(|call, found| {
        found.extend(call.args.last().map(|file| Nested::File(Language::Shell, file.clone())));
    })]),
    program(&["tmux"])
        .valued(&["-L", "-S", "-f"])
        .runs(&[Custom(tmux)])
        .asks(&[ENDS_SESSIONS, judged("attach", uses_other_terminals)]),
    program(&["zellij"]).asks(&[ENDS_SESSIONS]),
];

/// A program that runs the words behind its own options.
const fn wrapper(names: &'static [&'static str], valued: &'static [&'static str]) -> ProgramSpec {
    program(names).valued(valued).runs(BEHIND)
}

const BEHIND: &[Runs] = &[Behind(0)];

const ELEVATES: Ask = always("elevate").unless(Test(only_shows_rights));

const ENDS_SESSIONS: Ask = Arg(&["kill-server", "kill-session", "kill-all-sessions", "delete-all-sessions"])
    .triggers("end-sessions");

fn only_shows_rights(call: &Invocation<'_>) -> bool {
    let shows = |word: &Word| {
        matches!(word.known(), Some("-l" | "-v" | "-k" | "-K" | "--list" | "--validate" | "-ll"))
    };
    matches!(call.args, [only] if shows(only)) || (call.asks_for_help() && call.words().next().is_none())
}

fn sudo(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if !OwnFlag(&["-s", "-i", "--shell", "--login"]).holds(call) {
        nested_behind(call, 0, found);
        return;
    }
    let words = call.words_from_verb().iter().skip_while(|word| word.prefix().contains('='));
    let words: Vec<Word> = words.cloned().collect();
    let shell = if words.is_empty() { Nested::Interactive } else { Nested::text(Word::joined(&words)) };
    found.push(shell);
}

fn user_shell(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let runs_command =
        call.has(&["-c", "--command", "--session-command", "-u", "--user", "--version", "--help"]);
    if !runs_command {
        found.push(Nested::Interactive);
    }
}

/// `env A=b CMD` and `env -S 'CMD …' …`.
fn env(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let start = first_operand(call.args, call.valued());
    let (own, rest) = call.args.split_at(start.min(call.args.len()));
    let texts = crate::shell::values(own, &["-S", "--split-string"]);
    if texts.is_empty() {
        nested_behind(call, 0, found);
    }
    for text in texts {
        found.push(Nested::text(Word::joined(&[&[text], rest].concat())));
    }
}

fn capsh(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if let Some(rest) = call.after(|word| word.known() == Some("--")) {
        found.extend(Nested::argv(&[&[Word::literal("bash")], rest].concat()));
    }
}

fn windows_shell(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let rest = call.after(|word| word.prefix().eq_ignore_ascii_case("/c"));
    found.extend(rest.map(Word::joined).map(Nested::text));
}

fn start_stop_daemon(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let rest = call.after(|word| word.known() == Some("--")).unwrap_or_default();
    for program in call.values(&["-x", "--exec", "-a", "--startas"]) {
        found.extend(Nested::argv(&[&[program], rest].concat()));
    }
}

/// Whether a socket outside the project is used, which is that of other terminals.
fn uses_other_terminals(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let own = call.args.get(..first_operand(call.args, call.valued())).unwrap_or_default();
    let sockets = crate::shell::values(own, &["-S"]);
    sockets.iter().any(|socket| !context.paths.is_project(&call.segment.path(socket)))
}

/// The text of `tmux new`, `tmux send-keys` and the like.
fn tmux(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let runs = [
        "new", "new-session", "new-window", "neww", "split-window", "splitw", "run-shell", "run",
        "send-keys", "send", "respawn-pane", "respawn-window", "if-shell", "if", "pipe-pane", "popup",
        "display-popup",
    ];
    if !runs.contains(&call.verb()) {
        return;
    }
    let valued = ["-L", "-S", "-f", "-c", "-t", "-s", "-n", "-x", "-y", "-e", "-F", "-l", "-p"];
    let keys = ["Enter", "C-m", "C-j", "C-c", "Escape", "Space", "KPEnter"];
    let words: Vec<Word> = operands(call.args, &valued)
        .into_iter()
        .skip(1)
        .filter(|word| !word.known().is_some_and(|word| keys.contains(&word)))
        .cloned()
        .collect();
    if !words.is_empty() {
        found.push(Nested::text(Word::joined(&words)));
    }
}
