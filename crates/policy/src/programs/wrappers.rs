//! Programs that run another command with other rights, limits or surroundings.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["sudo"])
        .valued(&[
            "-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t", "-U", "--user", "--group", "--host",
            "--prompt", "--chdir", "--chroot", "--close-from", "--role", "--type", "--other-user",
            "--command-timeout",
        ])
        .reads_files()
        .runs(&[Custom(sudo)])
        .directory(&["-D", "--chdir"])
        .asks(&[ELEVATES]),
    program(&["doas"]).valued(&["-u", "-C", "-a"]).runs(BEHIND).asks(&[ELEVATES]),
    program(&["pkexec"]).valued(&["--user"]).runs(BEHIND).asks(&[ELEVATES]),
    program(&["run0"])
        .valued(&[
            "-u", "-g", "-D", "--user", "--group", "--chdir", "--unit", "--property", "--setenv", "--slice",
        ])
        .runs(BEHIND)
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
    program(&["setpriv"])
        .valued(&["--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set", "--securebits"])
        .runs(BEHIND)
        .asks(&[ELEVATES]),
    program(&["chpst"])
        .valued(&["-u", "-U", "-b", "-e", "-d", "-o", "-p", "-f", "-c"])
        .runs(BEHIND)
        .asks(&[ELEVATES]),
    program(&["sg"]).runs(&[Text(&["-c"])]).asks(&[ELEVATES]),
    program(&["machinectl"]).runs(&[After("shell", &["-M", "--uid", "-E"], 1)]).asks(&[ELEVATES]),
    program(&["sudoedit"]).valued(&["-f"]).files(&[writes(Operands)]).asks(&[ELEVATES]),
    program(&["gksudo", "kdesudo", "newgrp"]).asks(&[ELEVATES]),
    program(&["env"])
        .valued(&["-u", "-C", "-a", "-S", "--unset", "--chdir", "--argv0", "--split-string"])
        .reads_files()
        .runs(&[Custom(env)])
        .directory(&["-C", "--chdir"])
        .asks(&[super::builtins::DUMPS]),
    program(&["nohup"]).reads_files().runs(BEHIND),
    program(&["nice"]).valued(&["-n", "--adjustment"]).runs(BEHIND),
    program(&["ionice"]).valued(&["-c", "-n", "-p", "-P", "-u", "--class", "--classdata"]).runs(BEHIND),
    program(&["timeout"]).valued(&["-s", "-k", "--signal", "--kill-after"]).reads_files().runs(&[Behind(1)]),
    program(&["gtimeout"]).valued(&["-s", "-k", "--signal", "--kill-after"]).runs(&[Behind(1)]),
    program(&["time"]).valued(&["-f", "-o", "--format", "--output"]).reads_files().runs(BEHIND),
    program(&["stdbuf"]).valued(&["-i", "-o", "-e", "--input", "--output", "--error"]).runs(BEHIND),
    program(&["chroot"]).valued(&["--userspec", "--groups"]).runs(&[Behind(1)]).asks(&[always("mount")]),
    program(&["unshare"])
        .valued(&["-R", "-w", "-S", "-G", "--root", "--wd", "--setuid", "--setgid", "--propagation"])
        .runs(BEHIND)
        .asks(&[always("mount")]),
    program(&["nsenter"])
        .valued(&["-t", "-S", "-G", "--target", "--setuid", "--setgid"])
        .runs(BEHIND)
        .asks(&[always("attach")]),
    program(&["strace"])
        .valued(&["-e", "-o", "-p", "-s", "-u", "-E", "-P", "-I", "-O", "-S", "-a", "-b"])
        .runs(BEHIND)
        .asks(&[ask("attach", Flag(&["-p", "--pid"]))]),
    program(&["ltrace"])
        .valued(&["-e", "-o", "-p", "-s", "-u", "-a", "-l", "-n", "-x"])
        .runs(BEHIND)
        .asks(&[ask("attach", Flag(&["-p", "--pid"]))]),
    program(&["perf"]).runs(&[
        After("stat", &["-e", "-o", "-p", "-r"], 0),
        After("record", &["-e", "-o", "-p", "-F", "-c", "-g"], 0),
    ]),
    program(&["taskset", "setarch"]).runs(&[Behind(1)]),
    program(&["chrt"]).valued(&["-T", "-P", "-D"]).runs(&[Behind(1)]),
    program(&["numactl"]).valued(&["-N", "-m", "-C", "-i", "-p"]).runs(BEHIND),
    program(&["caffeinate"]).valued(&["-t", "-w"]).runs(BEHIND),
    program(&["proxychains", "proxychains4"]).valued(&["-f"]).runs(BEHIND),
    program(&["dbus-run-session"]).valued(&["--config-file"]).runs(BEHIND),
    program(&["xvfb-run"])
        .valued(&["-n", "-s", "-e", "-f", "-w", "--server-args", "--server-num"])
        .runs(BEHIND),
    program(&["rlwrap"]).valued(&["-f", "-H", "-s"]).runs(BEHIND),
    program(&["cgexec"]).valued(&["-g"]).runs(BEHIND),
    program(&["systemd-run"])
        .valued(&[
            "-p", "-u", "-E", "-M", "-H", "--unit", "--property", "--setenv", "--slice", "--on-active",
            "--on-calendar",
        ])
        .runs(BEHIND)
        .asks(&[always("schedule")]),
    program(&["systemd-inhibit"]).valued(&["--what", "--who", "--why", "--mode"]).runs(BEHIND),
    program(&["dotenv"]).valued(&["-f", "-e"]).runs(BEHIND),
    program(&["tini"]).valued(&["-p", "-e"]).runs(BEHIND),
    program(&["sshpass"]).valued(&["-p", "-f", "-d", "-P"]).runs(BEHIND),
    program(&["ssh-agent"]).valued(&["-a", "-t"]).runs(BEHIND),
    program(&["flock"])
        .valued(&["-w", "-E", "--timeout", "--conflict-exit-code"])
        .runs(&[Text(&["-c", "--command"]), Behind(1)]),
    program(&["watchexec"])
        .valued(&["-w", "-e", "-f", "-i", "-s", "--watch", "--exts", "--filter", "--ignore", "--signal"])
        .runs(BEHIND),
    program(&["screen"]).valued(&["-S", "-c", "-e", "-h", "-p", "-s", "-t", "-T"]).runs(BEHIND),
    program(&[
        "setsid", "firejail", "torsocks", "torify", "unbuffer", "catchsegv", "valgrind", "fakeroot",
        "busybox", "toybox", "dumb-init", "entr",
    ])
    .runs(BEHIND),
    program(&["ld-linux*", "ld-musl*", "ld.so"])
        .valued(&["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"])
        .runs(BEHIND),
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
    program(&["script"]).runs(&[Text(&["-c", "--command"])]),
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
    program(&["tmux"]).valued(&["-L", "-S", "-f"]).runs(&[Custom(tmux)]).asks(&[ENDS_SESSIONS]),
    program(&["zellij"]).asks(&[ENDS_SESSIONS]),
];

const BEHIND: &[Runs] = &[Behind(0)];

const ELEVATES: Ask = ask("elevate", Not(&Test(only_shows_rights)));

const ENDS_SESSIONS: Ask =
    ask("end-sessions", Arg(&["kill-server", "kill-session", "kill-all-sessions", "delete-all-sessions"]));

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
