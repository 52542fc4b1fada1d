//! Editors, and the two small languages of text editing.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["sed", "gsed"])
        .valued(&["-e", "-f", "-l", "--expression", "--file"])
        .inert()
        .files(&[writes(OperandsAfterScript(&["-e", "--expression", "-f", "--file"]))
            .when(Any(&[Flag(&["-i", "--in-place"]), Arg(&["-i*"])]))])
        .runs(&[Custom(sed)]),
    reader(&["awk", "gawk", "mawk", "nawk", "original-awk"])
        .valued(&[
            "-F", "-v", "-i", "-l", "-e", "-f", "-E", "--field-separator", "--assign", "--include", "--load",
            "--source", "--file",
        ])
        .inert()
        .files(&[writes(OperandsAfterScript(&["-f", "--file", "-e", "--source"]))
            .when(Value(&["-i", "--include"], &["inplace"]))])
        .runs(&[Custom(awk)]),
    reader(&["vim", "vi", "nvim", "ex", "gvim", "vimdiff"])
        .valued(EDITOR_VALUED)
        .files(EDITOR_FILES)
        .runs(&[Custom(vim)]),
    reader(&["view"]).runs(&[Custom(vim)]),
    reader(&["ed", "red"]).valued(EDITOR_VALUED).files(EDITOR_FILES).runs(&[Custom(ed)]),
    reader(&["nano", "pico", "micro"]).valued(EDITOR_VALUED).files(EDITOR_FILES),
    program(&["emacs"])
        .valued(EDITOR_VALUED)
        .files(EDITOR_FILES)
        .runs(&[Interprets(&super::interpreters::OTHER)]),
    program(&["visudo", "vipw"]).valued(&["-f"]).files(&[writes(Operands)]).asks(&[always("accounts")]),
];

const EDITOR_VALUED: &[&str] = &["-c", "--cmd", "-S", "-u", "-w", "-W"];

/// Functions of Vim that run text or programs, or that change files.
const VIM_CALLS: &[&str] = &[
    "system(", "systemlist(", "term_start", "job_start", "jobstart", "termopen", "delete(", "writefile(",
    "rename(", "mkdir(", "filecopy(", "libcall", "feedkeys(", "execute(", "py3eval(", "pyeval(", "pyxeval(",
    "luaeval(", "perleval(", "rubyeval(", "ch_open", "ch_log", "sockconnect", "serverstart", "remote_send",
    "remote_expr", "chansend", "rpcrequest", "rpcnotify", "timer_start", "nvim_exec", "nvim_command",
    "vim.fn", "vim.api", "vim.cmd", "eval(",
];

const EDITOR_FILES: &[DeclaredFiles] = &[writes(Computed(edited_files))];

/// The files an editor opens, and those its commands write.
fn edited_files(call: &Invocation<'_>) -> Vec<Word> {
    let opened = call.operands().into_iter().filter(|word| !word.prefix().starts_with('+')).cloned();
    let mut commands: Vec<String> = call.values(&["-c", "--cmd"]).iter().map(Word::outline).collect();
    let typed = call.segment.stdin.text.as_ref().map(Word::outline).unwrap_or_default();
    commands.extend(typed.lines().map(str::to_owned));
    commands.extend(call.args.iter().filter_map(|word| word.strip_prefix("+")).map(|text| text.outline()));
    let written = commands.iter().filter_map(|text| {
        let line = text.trim_start_matches(is_range);
        let writes = line.starts_with(['w', 's', 'x', 'e', 'r', 'W', 'f']) || line.starts_with("mk");
        let is_redirect = line.starts_with("redi");
        let mut words = line.split_whitespace().skip(1);
        // `:w!~/file` needs no blank.
        let attached = line.split_whitespace().next().filter(|word| word.starts_with(['w', 'W']));
        let attached = attached.and_then(|word| word.get(word.find(['~', '/'])?..));
        let word = if is_redirect { words.last() } else { attached.or_else(|| words.next()) };
        word.filter(|_| writes).map(|path| Word::literal(path.trim_start_matches('>')))
    });
    let logs = call.values(&["-w", "-W"]);
    opened.chain(written).chain(logs).collect()
}

/// Whether a character may be part of the lines for which a command of `ex` is meant.
fn is_range(char: char) -> bool {
    char.is_ascii_digit() || ":%,;.$+-' ".contains(char)
}

fn sed(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let mut scripts = call.values(&["-e", "--expression"]);
    if scripts.is_empty() && call.values(&["-f", "--file"]).is_empty() {
        scripts.extend(call.operands().first().copied().cloned());
    }
    found.extend(scripts.into_iter().map(|script| Nested::Code(Language::Sed, script)));
    let files = call.values(&["-f", "--file"]);
    found.extend(files.into_iter().map(|file| Nested::File(Language::Sed, file)));
}

fn awk(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let mut scripts = call.values(&["-e", "--source"]);
    let files = call.values(&["-f", "--file", "-E"]);
    if scripts.is_empty() && files.is_empty() {
        scripts.extend(call.operands().first().copied().cloned());
    }
    found.extend(scripts.into_iter().map(|script| Nested::Code(Language::Awk, script)));
    found.extend(files.into_iter().map(|file| Nested::File(Language::Awk, file)));
}

/// `-c '!cmd'`, `+'!cmd'`, and `system()` in an editor command.
fn vim(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let files = call.values(&["-S", "-u", "-U"]);
    found.extend(files.into_iter().map(|file| Nested::File(Language::Other, file)));
    let mut commands = call.values(&["-c", "--cmd"]);
    commands.extend(call.args.iter().filter_map(|word| word.strip_prefix("+")));
    commands.extend(call.segment.stdin.text.clone());
    for command in commands {
        let text = command.outline();
        if command.has_unknown() {
            found.push(Nested::Code(Language::Other, command.clone()));
        }
        for line in text.split(['\n', '|']) {
            let line = line.trim_start_matches([':', ' ', '%', '.', '$', ',']);
            let line = line.trim_start_matches(|char: char| char.is_ascii_digit());
            let starts = ["terminal ", "term ", "ter ", "sil !", "silent !"];
            let terminal = starts.iter().find_map(|start| line.strip_prefix(start));
            let bang = line.split_once('!').filter(|(before, _)| {
                matches!(
                    before.trim(),
                    "" | "r" | "read" | "w" | "write" | "silent" | "exe" | "normal" | "ter"
                )
            });
            let texts = terminal.into_iter().chain(bang.map(|(_, text)| text));
            found.extend(texts.map(|text| Nested::text(Word::literal(text))));
            let languages =
                ["lua ", "python3 ", "py3 ", "python ", "py ", "perl ", "ruby ", "luado ", "pydo "];
            if languages.iter().any(|start| line.starts_with(start)) {
                found.push(Nested::Code(Language::Other, Word::literal(line)));
            }
        }
        let hides = |line: &str| {
            let line = line.trim_start_matches([':', ' ']);
            (line.starts_with("norm") && line.contains(':'))
                || (line.starts_with("exe") && line.contains('/'))
        };
        if VIM_CALLS.iter().any(|call| text.contains(call)) || text.split(['\n', '|']).any(hides) {
            found.push(Nested::Code(Language::Other, command));
        }
    }
}

/// Lines of an `ed` script that start a command.
fn ed(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let Some(script) = &call.segment.stdin.text else { return };
    for line in script.outline().lines() {
        let address = |char: char| char.is_ascii_digit() || " .,$;+-%rwe".contains(char);
        let command = line.trim_start_matches(address).strip_prefix('!');
        found.extend(command.map(|line| Nested::text(Word::literal(line))));
    }
}
