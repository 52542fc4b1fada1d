//! Wrappers with habits of their own.

use super::super::Segment;
use super::super::args::{first_operand, has, joined, operands, values};
use super::super::value::{Piece, Unknown, Word};
use super::tables::Prefix;
use super::{Inner, Language, below};

/// Options of `docker run` and its kin that take a separate value.
pub(crate) const RUN_VALUED: &[&str] = &[
    "-v", "--volume", "-e", "--env", "--env-file", "-p", "--publish", "--name", "-w", "--workdir", "-u",
    "--user", "--network", "--net", "--mount", "--entrypoint", "-l", "--label", "-h", "--hostname", "-m",
    "--memory", "--cpus", "--gpus", "--device", "--cap-add", "--cap-drop", "--security-opt", "--restart",
    "--platform", "--pull", "--add-host", "--dns", "--tmpfs", "--ulimit", "--shm-size", "--log-driver",
    "--log-opt", "--ip", "--link", "--volumes-from", "--runtime", "--pid", "--ipc", "--uts", "--userns",
    "--cgroupns", "--cidfile", "--expose", "-a", "--attach", "--label-file", "--stop-signal",
    "--stop-timeout", "--annotation", "--pids-limit", "--cpuset-cpus", "--memory-swap", "--index",
    "--detach-keys", "--network-alias", "--health-cmd", "--health-interval", "--storage-opt", "--sysctl",
    "--group-add", "--secret", "--authfile", "--creds", "--pod",
];

/// Options of the engine itself that take a separate value.
pub(crate) const ENGINE_VALUED: &[&str] = &[
    "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "-f", "--file", "-p",
    "--project-name", "--project-directory", "--profile", "--env-file", "--tlscacert", "--tlscert",
    "--tlskey", "--url", "--root",
];

/// Options of `kubectl` that take a separate value.
pub(crate) const KUBECTL_VALUED: &[&str] = &[
    "-n", "--namespace", "--context", "--kubeconfig", "-c", "--container", "-s", "--server", "--cluster",
    "--user", "--as", "-l", "--selector", "-f", "--filename", "-o", "--output", "--token",
];

/// The command behind a prefix such as `sudo -u root`.
pub(super) fn prefixed(prefix: &Prefix, args: &[Word], found: &mut Vec<Inner>) {
    let start = first_operand(args, prefix.valued) + prefix.skip;
    let own = args.get(..start).unwrap_or(args);
    let mut rest = args.get(start..).unwrap_or_default();
    if prefix.name == "env" {
        let texts = values(own, &["-S", "--split-string"]);
        for text in &texts {
            let mut words = vec![text.clone()];
            words.extend(rest.iter().cloned());
            found.push(Inner::text(joined(&words)));
        }
        if !texts.is_empty() {
            return;
        }
    }
    if prefix.name == "watchexec" || prefix.name == "firejail" {
        rest = rest.strip_prefix(&[Word::literal("--")]).unwrap_or(rest);
    }
    if prefix.name == "env" {
        // A lone dash is short for `-i`.
        rest = rest.strip_prefix(&[Word::literal("-")]).unwrap_or(rest);
    }
    let mut assignments = Vec::new();
    while let Some((word, tail)) = rest.split_first()
        && matches!(prefix.name, "env" | "sudo" | "doas" | "dotenv")
        && let Some((name, _)) = word.prefix().split_once('=')
    {
        assignments.push((name.to_owned(), word.after('=').unwrap_or_default()));
        rest = tail;
    }
    let login_shell = prefix.name == "sudo" && has(own, &["-s", "-i", "--shell", "--login"]);
    if rest.is_empty() {
        if login_shell {
            found.push(Inner::Interactive);
        }
        return;
    }
    if prefix.name == "command" && has(own, &["-v", "-V"]) {
        return;
    }
    if login_shell {
        found.push(Inner::text(joined(rest)));
        return;
    }
    let directory = match prefix.name {
        "env" => values(own, &["-C", "--chdir"]).into_iter().next(),
        "sudo" | "run0" => values(own, &["-D", "--chdir"]).into_iter().next(),
        _ => None,
    };
    if prefix.name == "flock" && has(rest, &["-c", "--command"]) {
        return;
    }
    found.push(Inner::Argv { words: rest.to_vec(), assignments, directory });
}

/// Programs whose way of running others fits no table.
pub(super) fn special(name: &str, args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    match name {
        "xargs" => xargs(args, segment, found),
        "find" | "fd" | "fdfind" | "bfs" => find(args, found),
        "watch" => {
            let start = first_operand(args, &["-n", "--interval", "-q", "--equexit"]);
            found.push(Inner::text(joined(args.get(start..).unwrap_or_default())));
        }
        "parallel" => parallel(args, segment, found),
        "hyperfine" => {
            let valued = [
                "-w", "--warmup", "-r", "--runs", "-p", "--prepare", "-c", "--cleanup", "-S", "--shell",
                "-n", "--export-json", "--export-markdown", "-L", "-P", "-m", "-M", "--setup", "-s",
            ];
            found.extend(operands(args, &valued).into_iter().cloned().map(Inner::text));
            found.extend(
                values(args, &["-p", "--prepare", "-c", "--cleanup", "--setup"]).into_iter().map(Inner::text),
            );
        }
        "ssh" | "autossh" => ssh(args, segment, found),
        "su" | "runuser"
            if !has(
                args,
                &["-c", "--command", "--session-command", "-u", "--user", "--version", "--help"],
            ) =>
        {
            found.push(Inner::Interactive);
        }
        "docker" | "podman" | "nerdctl" | "docker-compose" | "podman-compose" => engine(args, name, found),
        "kubectl" | "oc" => kubectl(args, found),
        "vim" | "vi" | "nvim" | "ex" | "view" | "gvim" | "vimdiff" => editor(args, segment, found),
        "ed" | "red" => found.extend(segment.stdin.text.as_ref().map(bang_lines).into_iter().flatten()),
        "gdb" | "lldb" => {
            for text in values(args, &["-ex", "--eval-command", "-o", "-iex"]) {
                found.extend(
                    ["shell ", "!", "platform shell "]
                        .iter()
                        .find_map(|start| text.strip_prefix(start))
                        .map(Inner::text),
                );
            }
        }
        "psql" | "mysql" | "mariadb" | "sqlite3" | "ftp" | "sftp" | "lftp" => {
            for word in args.iter().chain(&segment.stdin.text) {
                client_escapes(word, found);
            }
        }
        "tar" | "gtar" => {
            for action in values(args, &["--checkpoint-action"]) {
                found.extend(action.strip_prefix("exec=").map(Inner::text));
            }
        }
        "tmux" => tmux(args, found),
        "adb" if args.first().and_then(Word::known) == Some("shell") => {
            found.push(Inner::text(joined(args.get(1..).unwrap_or_default())));
        }
        "make" | "gmake" => {
            found.extend(
                values(args, &["--eval"])
                    .into_iter()
                    .map(|text| Inner::text(text.strip_prefix("$(shell ").unwrap_or(text))),
            );
            for word in args {
                let Some((name, _)) = word.prefix().split_once('=') else { continue };
                let value = word.after('=').unwrap_or_default();
                if name == "SHELL" || value.prefix().contains(' ') {
                    found.push(Inner::text(value));
                }
            }
            found.extend(
                values(args, &["-f", "--file", "--makefile"])
                    .into_iter()
                    .map(|file| Inner::File(Language::Other, file)),
            );
        }
        "capsh" => {
            if let Some(at) = args.iter().position(|word| word.known() == Some("--")) {
                let mut words = vec![Word::literal("bash")];
                words.extend(args.get(at + 1..).unwrap_or_default().iter().cloned());
                found.extend(Inner::argv(&words));
            }
        }
        "less" | "more" => {
            found.extend(args.iter().filter_map(|word| word.strip_prefix("+!")).map(Inner::text))
        }
        "cargo" if args.first().and_then(Word::known) == Some("watch") => {
            found.extend(values(args, &["-s", "--shell"]).into_iter().map(Inner::text));
        }
        "gnome-terminal" | "mosh" | "alacritty" | "kitty" | "foot" => {
            if let Some(at) = args.iter().position(|word| matches!(word.known(), Some("--" | "-e"))) {
                found.extend(args.get(at + 1..).and_then(Inner::argv));
            }
        }
        "cmd" | "cmd.exe" => {
            if let Some(at) =
                args.iter().position(|word| word.known().is_some_and(|word| word.eq_ignore_ascii_case("/c")))
            {
                found.push(Inner::text(joined(args.get(at + 1..).unwrap_or_default())));
            }
        }
        "start-stop-daemon" => {
            let programs = values(args, &["-x", "--exec", "-a", "--startas"]);
            let behind =
                args.iter().position(|word| word.known() == Some("--")).map_or(args.len(), |at| at + 1);
            for program in programs {
                let words = [&[program], args.get(behind..).unwrap_or_default()].concat();
                found.extend(Inner::argv(&words));
            }
        }
        "run-parts" => found.extend(args.last().map(|file| Inner::File(Language::Shell, file.clone()))),
        "socat" => {
            for word in args {
                let parts = ["EXEC:", "SYSTEM:", "exec:", "system:"];
                found.extend(parts.iter().find_map(|start| word.strip_prefix(start)).map(Inner::text));
            }
        }
        _ => {}
    }
}

fn xargs(args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    let valued = [
        "-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E", "--max-args", "--max-procs", "--delimiter",
        "--arg-file", "--replace", "--max-lines",
    ];
    let start = first_operand(args, &valued);
    let rest = args.get(start..).unwrap_or_default();
    if rest.is_empty() {
        return;
    }
    let input: Vec<Word> = match segment.stdin.text.as_ref().and_then(Word::known) {
        Some(text) => text.split_whitespace().take(64).map(Word::literal).collect(),
        None => vec![Word::unknown(Unknown::Input)],
    };
    let marker =
        values(args, &["-I"]).into_iter().next().or_else(|| has(args, &["-i"]).then(|| Word::literal("{}")));
    let words = match marker.as_ref().and_then(Word::known) {
        Some(marker) => {
            let marker = marker.to_owned();
            rest.iter()
                .flat_map(|word| match word.known() {
                    Some(text) if text == marker => input.clone(),
                    Some(text) if text.contains(&marker) => vec![filled(text, &marker, &input)],
                    _ => vec![word.clone()],
                })
                .collect()
        }
        None => rest.iter().cloned().chain(input).collect(),
    };
    found.push(Inner::Argv { words, assignments: Vec::new(), directory: None });
}

/// A word in which a marker stands for what comes from the input.
fn filled(text: &str, marker: &str, input: &[Word]) -> Word {
    let value = match input {
        [only] => only.pieces().to_vec(),
        _ => vec![Piece::Unknown(Unknown::Input)],
    };
    let mut pieces = Vec::new();
    for (index, part) in text.split(marker).enumerate() {
        if index > 0 {
            pieces.extend(value.iter().cloned());
        }
        pieces.push(Piece::Text(part.to_owned()));
    }
    Word::from_pieces(super::super::walk::joined(pieces))
}

fn find(args: &[Word], found: &mut Vec<Inner>) {
    let starts: Vec<&Word> = args
        .iter()
        .skip_while(|word| matches!(word.known(), Some("-L" | "-P" | "-H" | "-O1" | "-O2" | "-O3")))
        .take_while(|word| !word.prefix().starts_with(['-', '(', '!']))
        .collect();
    let here = Word::literal(".");
    let starts = if starts.is_empty() { vec![&here] } else { starts };
    let name =
        super::super::find_name(args).or_else(|| Some(Word::from_pieces(vec![Piece::Glob("**".to_owned())])));
    let mut rest = args;
    while let Some((word, tail)) = rest.split_first() {
        rest = tail;
        let text = word.prefix();
        if !matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch")
        {
            continue;
        }
        let length =
            tail.iter().position(|word| matches!(word.known(), Some(";" | "+"))).unwrap_or(tail.len());
        let (command, behind) = tail.split_at(length);
        rest = behind;
        for start in starts.iter().take(4) {
            let path = below(start, name.as_ref());
            let mut words: Vec<Word> = command
                .iter()
                .map(|word| if word.prefix().contains("{}") { path.clone() } else { word.clone() })
                .collect();
            if text.starts_with("-x") || text.starts_with("-X") || text.starts_with("--") {
                words.push(path);
            }
            found.extend(Inner::argv(&words));
        }
    }
}

fn parallel(args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    let valued = [
        "-j", "--jobs", "-N", "-n", "-I", "-d", "--delimiter", "-a", "--arg-file", "--results", "--timeout",
        "--joblog", "-S", "--sshlogin", "--colsep", "-C",
    ];
    let start = first_operand(args, &valued);
    let rest = args.get(start..).unwrap_or_default();
    let mark = rest.iter().position(|word| word.prefix().starts_with(":::"));
    let (command, items) = rest.split_at(mark.unwrap_or(rest.len()));
    let items: Vec<Word> = items.iter().filter(|word| !word.prefix().starts_with(":::")).cloned().collect();
    if command.is_empty() {
        found.extend(items.into_iter().map(Inner::text));
        if mark.is_none() {
            found.push(Inner::Stdin(Language::Shell));
        }
        return;
    }
    let items = if mark.is_none() {
        match segment.stdin.text.as_ref().and_then(Word::known) {
            Some(text) => text.lines().take(64).map(Word::literal).collect(),
            None => vec![Word::unknown(Unknown::Input)],
        }
    } else {
        items
    };
    for item in items.iter().take(64) {
        let holds = command.iter().any(|word| word.prefix().contains("{}"));
        let mut words: Vec<Word> = command
            .iter()
            .map(|word| if word.known() == Some("{}") { item.clone() } else { word.clone() })
            .collect();
        if !holds {
            words.push(item.clone());
        }
        if let [only] = command {
            // One word is a whole command line.
            let mut text = vec![only.clone()];
            if !holds {
                text.push(item.clone());
            }
            if only.prefix().contains(' ') {
                found.push(Inner::text(joined(&text)));
                continue;
            }
        }
        found.extend(Inner::argv(&words));
    }
}

fn ssh(args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    let valued = [
        "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R",
        "-S", "-W", "-w", "-B", "-M",
    ];
    for option in values(args, &["-o"]) {
        let lower = option.prefix().to_ascii_lowercase();
        if lower.starts_with("proxycommand")
            || lower.starts_with("localcommand")
            || lower.starts_with("knownhostscommand")
        {
            found.extend(option.after('=').map(Inner::text));
        }
    }
    let host = first_operand(args, &valued);
    let mut rest = args.get(host + 1..).unwrap_or_default();
    let behind = first_operand(rest, &valued);
    rest = rest.get(behind..).unwrap_or_default();
    if !rest.is_empty() {
        found.push(Inner::text(joined(rest)));
        // Read as it was meant, too: the far shell splits quoted words again.
        if rest.len() > 1 {
            found.extend(Inner::argv(rest));
        }
    } else if segment.stdin.is_piped() && host < args.len() {
        found.push(Inner::Stdin(Language::Shell));
    }
}

fn engine(args: &[Word], name: &str, found: &mut Vec<Inner>) {
    let mut rest = args.get(first_operand(args, ENGINE_VALUED)..).unwrap_or_default();
    let compose = name.ends_with("compose") || rest.first().and_then(Word::known) == Some("compose");
    if matches!(rest.first().and_then(Word::known), Some("container" | "compose")) {
        rest = rest.get(1..).unwrap_or_default();
        rest = rest.get(first_operand(rest, ENGINE_VALUED)..).unwrap_or_default();
    }
    let Some(verb) = rest.first().and_then(Word::known) else { return };
    if !matches!(verb, "run" | "exec" | "create") {
        return;
    }
    let rest = rest.get(1..).unwrap_or_default();
    let valued: Vec<&str> =
        RUN_VALUED.iter().copied().filter(|option| !(compose && verb == "exec" && *option == "-T")).collect();
    let operand = first_operand(rest, &valued);
    let mut words = values(rest.get(..operand).unwrap_or_default(), &["--entrypoint"]);
    words.extend(rest.get(operand + 1..).unwrap_or_default().iter().cloned());
    found.extend(Inner::argv(&words));
}

fn kubectl(args: &[Word], found: &mut Vec<Inner>) {
    let verb = args.get(first_operand(args, KUBECTL_VALUED)).and_then(Word::known);
    if !matches!(verb, Some("exec" | "run" | "debug" | "rsh")) {
        return;
    }
    if let Some(at) = args.iter().position(|word| word.known() == Some("--")) {
        found.extend(args.get(at + 1..).and_then(Inner::argv));
    } else if verb == Some("exec") {
        let words = operands(args, KUBECTL_VALUED);
        let words: Vec<Word> = words.into_iter().skip(2).cloned().collect();
        found.extend(Inner::argv(&words));
    }
}

/// `-c '!cmd'`, `+'!cmd'`, and `system()` in an editor command.
fn editor(args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    let mut commands = values(args, &["-c", "--cmd", "-S"]);
    commands.extend(args.iter().filter_map(|word| word.strip_prefix("+")));
    commands.extend(segment.stdin.text.clone());
    for command in commands {
        for line in command.outline().split(['\n', '|']) {
            let line = line.trim_start_matches([':', ' ', '%', '.', '$', ',']);
            let line = line.trim_start_matches(|char: char| char.is_ascii_digit());
            let embedded = ["terminal ", "term ", "ter ", "sil !", "silent !"];
            found.extend(
                embedded
                    .iter()
                    .find_map(|start| line.strip_prefix(start))
                    .map(|text| Inner::text(Word::literal(text))),
            );
            let languages =
                ["lua ", "python3 ", "py3 ", "python ", "py ", "perl ", "ruby ", "luado ", "pydo "];
            if languages.iter().any(|start| line.starts_with(start)) {
                found.push(Inner::Code(Language::Other, Word::literal(line)));
            }
            if let Some((before, text)) = line.split_once('!')
                && (before.is_empty()
                    || matches!(
                        before.trim(),
                        "r" | "read" | "w" | "write" | "silent" | "exe" | "normal" | "ter"
                    ))
            {
                found.push(Inner::text(Word::literal(text.to_owned())));
            }
        }
        if command.outline().contains("system(")
            || command.outline().contains("term_start")
            || command.outline().contains("job_start")
        {
            found.push(Inner::Code(Language::Other, command));
        }
    }
}

/// Lines of an editor script that start a command.
fn bang_lines(text: &Word) -> Vec<Inner> {
    text.outline()
        .lines()
        .filter_map(|line| line.trim_start_matches([' ', 'r', 'w']).strip_prefix('!'))
        .map(|line| Inner::text(Word::literal(line)))
        .collect()
}

/// The shell escapes of database and file transfer clients.
fn client_escapes(word: &Word, found: &mut Vec<Inner>) {
    for line in word.outline().lines() {
        let line = line.trim_start();
        let escape = ["\\!", ".shell ", ".system ", "system ", "!"];
        found.extend(
            escape
                .iter()
                .find_map(|start| line.strip_prefix(start))
                .map(|text| Inner::text(Word::literal(text))),
        );
        if let Some((_, text)) = line.to_ascii_lowercase().split_once("to program '") {
            found.push(Inner::text(Word::literal(text.trim_end_matches(['\'', ';', ' ']))));
        }
    }
}

fn tmux(args: &[Word], found: &mut Vec<Inner>) {
    let valued = ["-L", "-S", "-f", "-c", "-t", "-s", "-n", "-x", "-y", "-e", "-F", "-l", "-p"];
    let verb = args.get(first_operand(args, &["-L", "-S", "-f"])).and_then(Word::known).unwrap_or_default();
    if !matches!(
        verb,
        "new"
            | "new-session"
            | "new-window"
            | "neww"
            | "split-window"
            | "splitw"
            | "run-shell"
            | "run"
            | "send-keys"
            | "send"
            | "respawn-pane"
            | "respawn-window"
            | "if-shell"
            | "if"
            | "pipe-pane"
            | "popup"
            | "display-popup"
    ) {
        return;
    }
    let keys = ["Enter", "C-m", "C-j", "C-c", "Escape", "Space", "KPEnter"];
    let words: Vec<Word> = operands(args, &valued)
        .into_iter()
        .skip(1)
        .filter(|word| !word.known().is_some_and(|word| keys.contains(&word)))
        .cloned()
        .collect();
    if !words.is_empty() {
        found.push(Inner::text(joined(&words)));
    }
}
