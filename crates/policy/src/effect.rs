//! What a simple command does to files: read, written or deleted paths, whatever program does it.
//!
//! Rules about files are rules about effects, so that `shred -u x`, `find x -delete` and `> x` need no rule each.

use crate::paths::resolve;
use crate::shell::{Operator, Segment, Word, find_name, first_operand, has, operands, values};

/// One effect on one path. Paths are absolute and normal; unknown stretches are holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The file, or with `tree` everything below the directory, is gone afterward.
    Delete { path: String, tree: bool },
    /// The file is made, changed or replaced.
    Write { path: String },
    /// The content is read.
    Read { path: String },
    /// The path is handed to a program that may do anything with it.
    Name { path: String },
}

/// Programs that name paths without reading what is in them.
const LOOKERS: &[&str] = &[
    "ls", "stat", "file", "test", "[", "cd", "pushd", "du", "df", "tree", "echo", "printf", "mkdir", "rmdir",
    "readlink", "realpath", "basename", "dirname", "which", "type", "command", "export", "declare", "local",
    "readonly", "typeset", "unset", "exa", "eza", "lsd", "chmod", "chown", "chgrp", "touch", "rm", "unlink",
    "shred", "kill", "pgrep", "pkill", "git", "cargo", "npm", "yarn", "pnpm", "pip", "pip3", "make",
    "docker", "podman", "docker-compose", "kubectl", "helm", "go", "source", ".", "hermes", "findmnt",
    "lsblk", "namei", "getfacl", "lsattr", "set", "alias", "cmp", "wait", "sleep", "true", "false", ":",
    "for", "seq", "date", "truncate", "mktemp", "ssh-add", "ssh-keygen", "fd", "locate", "sha256sum",
    "md5sum", "sha1sum", "wc", "pytest", "trap", "eval", "bash", "sh", "zsh", "dash", "exit", "return", "uv",
    "tox", "poetry", "mount", "umount", "jest", "vitest", "eslint", "prettier", "ruff", "black", "mypy",
    "terraform", "ln",
];

/// Of the above, tools that carry files away when they are given one from elsewhere.
const CARRIERS: &[&str] =
    &["git", "docker", "podman", "docker-compose", "kubectl", "helm", "source", ".", "terraform"];

/// Programs that only ever read the files they are given, or whose writing is told apart below.
const READERS: &[&str] = &[
    "cat", "tac", "nl", "head", "tail", "less", "more", "bat", "batcat", "grep", "egrep", "fgrep", "zgrep",
    "ag", "ack", "awk", "gawk", "mawk", "sed", "gsed", "diff", "colordiff", "comm", "sort", "cut", "paste",
    "jq", "yq", "od", "hexdump", "strings", "base64", "ssh", "scp", "sftp", "cp", "install", "rsync", "tar",
    "zip", "ugrep", "python", "python3", "perl", "ruby", "node", "rev", "column", "fold", "shellcheck",
    "view", "delta", "sha512sum", "b2sum", "cksum", "xargs", "sudo", "env", "find", "time", "timeout",
    "nohup", "code", "open", "xdg-open", "history", "fc", "curl", "wget", "dd", "gcp", "vim", "vi", "nvim",
    "nano", "ed", "ex", "read", "mapfile",
];

/// Options whose value is a key to use, not a file to show.
const KEY_OPTIONS: &[(&str, &[&str])] = &[
    ("ssh", &["-i", "-F"]),
    ("scp", &["-i", "-F"]),
    ("sftp", &["-i", "-F"]),
    ("rsync", &["-e", "--rsh"]),
    ("curl", &["-E", "--cert", "--key", "--cacert", "--netrc-file", "-K", "-b", "-c", "--cookie-jar"]),
    ("psql", &["-f"]),
];

/// Everything a segment does to files.
pub(crate) fn effects(segment: &Segment, home: &str) -> Vec<Effect> {
    let mut found = Vec::new();
    for redirect in &segment.redirects {
        let path = segment.path(&redirect.target);
        match redirect.operator {
            Operator::Write | Operator::Append | Operator::Both => found.push(Effect::Write { path }),
            Operator::ReadWrite => {
                found.push(Effect::Read { path: path.clone() });
                found.push(Effect::Write { path });
            }
            Operator::Read => found.push(Effect::Read { path }),
            Operator::Duplicate | Operator::HereString | Operator::HereDocument => {}
        }
    }
    if segment.name.is_empty() {
        return found;
    }
    let files = Files { segment, home };
    files.deletes(&mut found);
    files.writes(&mut found);
    files.reads(&mut found);
    found
}

struct Files<'a> {
    segment: &'a Segment,
    home: &'a str,
}

impl Files<'_> {
    fn path(&self, word: &Word) -> String {
        self.segment.path(word)
    }

    fn args(&self) -> &[Word] {
        &self.segment.args
    }

    fn deletes(&self, found: &mut Vec<Effect>) {
        let args = self.args();
        match self.segment.name.as_str() {
            "rm" | "grm" | "srm" | "wipe" | "rimraf" => {
                if has(args, &["--help", "--version"]) {
                    return;
                }
                let tree = self.segment.name == "rimraf"
                    || has(args, &["-r", "-R", "--recursive"])
                    || self.segment.via.iter().any(|via| matches!(via.as_str(), "find" | "fd" | "bfs"))
                    || args.iter().any(|word| word.splits && word.starts_unknown());
                for word in operands(args, &[]) {
                    found.push(Effect::Delete { path: self.path(word), tree });
                    // An unquoted unknown may be several words, and an empty one leaves what is around it.
                    if word.has_unknown() && tree {
                        let bare = word.outline().replace(crate::shell::HOLE, "");
                        if bare.starts_with('/') {
                            found.push(Effect::Delete {
                                path: resolve(&bare, self.segment.cwd.as_deref()),
                                tree: false,
                            });
                        }
                    }
                }
            }
            "unlink" | "shred" | "rmdir" => {
                let words = operands(args, &["-n", "-s", "--iterations", "--size", "--random-source"]);
                found.extend(
                    words.into_iter().map(|word| Effect::Delete { path: self.path(word), tree: false }),
                );
            }
            "find" | "bfs" if args.iter().any(|word| word.known() == Some("-delete")) => {
                for start in self.find_starts() {
                    let path = match find_name(args) {
                        Some(name) => format!("{start}/{}/{}", crate::shell::HOLE, name.outline()),
                        None => start,
                    };
                    found.push(Effect::Delete { path, tree: true });
                }
            }
            "rsync"
                if args.iter().any(|word| word.prefix().starts_with("--del"))
                    && !has(args, &["-n", "--dry-run"]) =>
            {
                if let Some(target) = operands(args, RSYNC_VALUED).last() {
                    found.push(Effect::Delete { path: self.path(target), tree: true });
                }
            }
            "mv" | "gmv" => {
                let words = operands(args, &["-t", "-S", "--target-directory", "--suffix"]);
                let count = if has(args, &["-t", "--target-directory"]) {
                    words.len()
                } else {
                    words.len().saturating_sub(1)
                };
                found.extend(
                    words
                        .into_iter()
                        .take(count)
                        .map(|word| Effect::Delete { path: self.path(word), tree: true }),
                );
            }
            "git" if self.segment.args.first().and_then(Word::known) == Some("rm") => {
                let tree = has(args, &["-r"]);
                let words = operands(args, &[]).into_iter().skip(1);
                found.extend(
                    words
                        .filter(|word| word.prefix().starts_with(['/', '~']))
                        .map(|word| Effect::Delete { path: self.path(word), tree }),
                );
            }
            _ => {}
        }
    }

    fn find_starts(&self) -> Vec<String> {
        let starts: Vec<String> = self
            .args()
            .iter()
            .skip_while(|word| matches!(word.known(), Some("-L" | "-P" | "-H")))
            .take_while(|word| !word.prefix().starts_with(['-', '(', '!']))
            .map(|word| self.path(word))
            .collect();
        if starts.is_empty() { vec![self.path(&Word::literal("."))] } else { starts }
    }

    fn writes(&self, found: &mut Vec<Effect>) {
        let args = self.args();
        let mut write = |word: &Word| {
            let path = match word.strip_prefix("~/") {
                Some(rest) => resolve(&format!("{}/{}", self.home, rest.outline()), None),
                None => self.segment.path(word),
            };
            found.push(Effect::Write { path });
        };
        match self.segment.name.as_str() {
            "tee" | "sponge" | "truncate" | "fallocate" => {
                operands(args, &["-s", "--size", "-r", "-l", "-o", "--length"])
                    .into_iter()
                    .for_each(&mut write);
            }
            "touch" | "mkdir" | "mkfifo" | "mknod" => {
                operands(args, &["-m", "-d", "-r", "-t", "--mode", "--date"])
                    .into_iter()
                    .for_each(&mut write);
            }
            "cp" | "mv" | "install" | "ln" | "gcp" | "gmv" | "ginstall" | "link" | "ditto" => {
                let valued = [
                    "-t", "-S", "-m", "-o", "-g", "--target-directory", "--suffix", "--mode", "--owner",
                    "--group",
                ];
                let words = operands(args, &valued);
                let (targets, sources) = match values(args, &["-t", "--target-directory"]).into_iter().next()
                {
                    Some(target) => (vec![target], words),
                    None => match words.split_last() {
                        Some((last, rest)) if !rest.is_empty() => (vec![(*last).clone()], rest.to_vec()),
                        _ => return,
                    },
                };
                for target in &targets {
                    write(target);
                    for source in &sources {
                        let outline = source.outline();
                        let name = outline.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
                        let below = format!("{}/{name}", self.segment.path(target));
                        write(&Word::literal(below));
                    }
                }
            }
            "dd" => args.iter().filter_map(|word| word.strip_prefix("of=")).for_each(|word| write(&word)),
            "sed" | "gsed"
                if has(args, &["-i", "--in-place"])
                    || args.iter().any(|word| word.prefix().starts_with("-i")) =>
            {
                let skip = usize::from(!has(args, &["-e", "--expression", "-f", "--file"]));
                operands(args, &["-e", "-f", "-l", "--expression", "--file"])
                    .into_iter()
                    .skip(skip)
                    .for_each(&mut write);
            }
            "perl" | "ruby" if args.iter().any(|word| is_in_place(word.prefix())) => {
                let code = usize::from(has(args, &["-e", "-E"]));
                operands(args, &["-e", "-E", "-I", "-r"])
                    .into_iter()
                    .skip(1 - code.min(1))
                    .for_each(&mut write);
            }
            "awk" | "gawk"
                if values(args, &["-i", "--include"]).iter().any(|word| word.known() == Some("inplace")) =>
            {
                operands(args, &["-i", "-F", "-v", "-f", "--include"])
                    .into_iter()
                    .skip(1)
                    .for_each(&mut write);
            }
            "yq" | "crudini" | "dasel" | "toml" | "augtool" | "xmlstarlet"
                if has(args, &["-i", "--inplace", "--in-place", "--set", "-L"]) =>
            {
                args.iter()
                    .filter(|word| word.prefix().contains('/') || word.prefix().contains('.'))
                    .for_each(&mut write);
            }
            "ed" | "ex" | "vim" | "vi" | "nvim" | "nano" | "emacs" | "pico" | "micro" | "red" => {
                operands(args, &["-c", "--cmd", "-S", "-u"])
                    .into_iter()
                    .filter(|word| !word.prefix().starts_with('+'))
                    .for_each(&mut write);
                for command in values(args, &["-c", "--cmd"]) {
                    let text = command.outline();
                    let target = text
                        .split_whitespace()
                        .nth(1)
                        .filter(|_| text.trim_start_matches([':', '%']).starts_with(['w', 's', 'x']));
                    target.map(Word::literal).iter().for_each(&mut write);
                }
            }
            "sudoedit" | "visudo" | "vipw" => {
                operands(args, &["-f"]).into_iter().for_each(&mut write);
            }
            "sort" | "gpg" | "gpg2" | "cc" | "gcc" | "clang" | "pandoc" => {
                values(args, &["-o", "--output"]).iter().for_each(&mut write);
            }
            "curl" => {
                values(
                    args,
                    &["-o", "--output", "--output-dir", "-c", "--cookie-jar", "-D", "--dump-header"],
                )
                .iter()
                .for_each(&mut write);
            }
            "wget" | "aria2c" => {
                values(
                    args,
                    &["-O", "--output-document", "-P", "--directory-prefix", "-o", "-a", "-d", "--dir"],
                )
                .iter()
                .for_each(&mut write);
            }
            "uniq" => operands(args, &["-f", "-s", "-w"]).into_iter().skip(1).for_each(&mut write),
            "openssl" => values(args, &["-out", "-keyout"]).iter().for_each(&mut write),
            "ssh-keygen" if !has(args, &["-l", "-y", "-e", "-B", "-F", "-r", "-R"]) => {
                values(args, &["-f"]).iter().for_each(&mut write)
            }
            "tar" | "bsdtar" | "gtar" => {
                let bundle = args.first().and_then(Word::known).unwrap_or_default();
                let extracts = has(args, &["-x", "--extract", "--get"])
                    || (!bundle.starts_with('-') && bundle.contains('x'));
                if extracts {
                    values(args, &["-C", "--directory", "--one-top-level"]).iter().for_each(&mut write);
                    let absolute = !bundle.starts_with('-') && bundle.contains('P');
                    if absolute || has(args, &["-P", "--absolute-names"]) {
                        write(&Word::literal("/"));
                    }
                } else {
                    values(args, &["-f", "--file"]).iter().for_each(&mut write);
                }
            }
            "unzip" | "7z" | "unrar" | "bsdcpio" => values(args, &["-d", "-o"]).iter().for_each(&mut write),
            "rsync" => {
                let words = operands(args, RSYNC_VALUED);
                words
                    .last()
                    .filter(|last| words.len() > 1 && !is_remote(last.prefix()))
                    .copied()
                    .into_iter()
                    .for_each(&mut write);
            }
            "scp" | "sftp" => {
                let words = operands(args, SCP_VALUED);
                words
                    .last()
                    .filter(|last| words.len() > 1 && !is_remote(last.prefix()))
                    .copied()
                    .into_iter()
                    .for_each(&mut write);
            }
            "git" => {
                let start = first_operand(args, crate::shell::GIT_VALUED);
                let verb = args.get(start).and_then(Word::known).unwrap_or_default();
                let words = operands(
                    args.get(start + 1..).unwrap_or_default(),
                    &["-b", "--branch", "--depth", "-c", "-o", "--origin"],
                );
                if verb == "clone" && words.len() > 1 {
                    words.last().copied().into_iter().for_each(&mut write);
                }
            }
            "find" | "bfs" => {
                values(args, &["-fprint", "-fprint0", "-fprintf", "-fls"]).iter().for_each(&mut write);
            }
            "cpio" => values(args, &["-D", "--directory"]).iter().for_each(&mut write),
            "patch" if has(args, &["-d", "--directory"]) => {
                values(args, &["-d", "--directory"]).iter().for_each(&mut write);
            }
            "patch" => {
                operands(args, &["-i", "-p", "-d", "-o", "-r"]).into_iter().take(1).for_each(&mut write)
            }
            "sqlite3" => {
                let text: String =
                    args.iter().skip(1).map(Word::outline).collect::<Vec<_>>().join(" ").to_ascii_lowercase();
                let changes = ["update", "insert", "delete", "drop", "create", "alter", "replace", "vacuum"];
                if changes.iter().any(|word| text.contains(word)) {
                    operands(args, &["-cmd", "-separator"]).into_iter().take(1).for_each(&mut write);
                }
                for command in args {
                    let text = command.outline();
                    let mut words = text.split_whitespace();
                    if matches!(words.next(), Some(".output" | ".once" | ".backup" | ".save" | ".log")) {
                        words.last().map(Word::literal).iter().for_each(&mut write);
                    }
                }
            }
            "split" | "csplit" | "logrotate" => {}
            "chattr" | "setfacl" | "xattr" => args.iter().skip(1).for_each(&mut write),
            _ => {}
        }
    }

    fn reads(&self, found: &mut Vec<Effect>) {
        let name = self.segment.name.as_str();
        let looks =
            LOOKERS.contains(&name) && name != "ln" && !(name == "git" && has(self.args(), &["--no-index"]));
        if name == "mv" || name == "tee" || (looks && !CARRIERS.contains(&name)) {
            return;
        }
        let may_write = !looks && !READERS.contains(&name);
        let skipped =
            KEY_OPTIONS.iter().find(|(program, _)| *program == name).map_or(&[][..], |(_, options)| options);
        let in_secret_place = self.segment.cwd.as_deref().is_none_or(crate::paths::is_secret_tree);
        // The first operand of a search is what it looks for, not where.
        let searches =
            matches!(name, "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "ag" | "ack" | "ugrep" | "ggrep");
        let mut pattern_next = searches && !has(self.args(), &["-e", "--regexp", "-f", "--file", "--files"]);
        let mut skip_next = false;
        for word in self.args() {
            if std::mem::take(&mut skip_next) {
                continue;
            }
            let text = word.outline();
            if !text.starts_with('-') && std::mem::take(&mut pattern_next) {
                continue;
            }
            if skipped.contains(&text.as_str()) {
                skip_next = true;
                continue;
            }
            // A bare name in an ordinary directory is no secret; most words are spared the closer look.
            if !in_secret_place
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !crate::paths::is_secret_name(&text)
            {
                continue;
            }
            for part in self.path_parts(&text) {
                let path = match part.strip_prefix("~/") {
                    Some(rest) => format!("{}/{rest}", self.home),
                    None => part.to_owned(),
                };
                let path = resolve(&path, self.segment.cwd.as_deref());
                // Files of the project are what these tools are for.
                if looks && crate::paths::below(&path, self.segment.cwd.as_deref().unwrap_or_default()) {
                    continue;
                }
                if may_write {
                    found.push(Effect::Name { path: path.clone() });
                }
                // What is written is not read.
                if !found.contains(&Effect::Write { path: path.clone() }) {
                    found.push(Effect::Read { path });
                }
            }
        }
    }

    /// The stretches of a word that may be paths: `f=@path`, `--opt=path`, `if=path`, `name:path`.
    fn path_parts<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut parts = Vec::new();
        if text.len() > 512 || text.contains('\n') {
            return parts;
        }
        if !text.starts_with('-') {
            parts.push(text);
        }
        if let Some((_, rest)) = text.rsplit_once('=') {
            parts.push(rest);
        }
        for mark in ['=', '@', ':'] {
            if let Some((_, rest)) = text.split_once(mark) {
                let rest = rest.trim_start_matches(['@', '<']);
                let rest = rest.split([';', ',']).next().unwrap_or_default();
                if !rest.is_empty() && !rest.starts_with("//") {
                    parts.push(rest);
                }
            }
        }
        if let Some(rest) = text.get(2..).filter(|rest| {
            text.starts_with('-') && !text.starts_with("--") && rest.starts_with(['/', '~', '@', '.'])
        }) {
            parts.push(rest.trim_start_matches('@'));
        }
        parts
    }
}

pub(crate) const RSYNC_VALUED: &[&str] = &[
    "-e", "--rsh", "-f", "--filter", "--exclude", "--include", "--exclude-from", "--include-from",
    "--files-from", "--rsync-path", "--bwlimit", "-T", "--partial-dir", "--backup-dir", "--port",
    "--password-file", "--log-file",
];
pub(crate) const SCP_VALUED: &[&str] = &["-i", "-P", "-o", "-F", "-c", "-l", "-S", "-J", "-D", "-X"];

/// `host:path` and `user@host:path`, but no `./a:b`.
pub(crate) fn is_remote(text: &str) -> bool {
    match text.split_once(':') {
        Some((host, _)) => (!host.is_empty() && !host.contains('/')) || text.contains("://"),
        None => false,
    }
}

fn is_in_place(option: &str) -> bool {
    option.starts_with('-')
        && !option.starts_with("--")
        && option.chars().skip(1).take_while(char::is_ascii_alphanumeric).take(4).any(|char| char == 'i')
        && !option.starts_with("-I")
        && !option.starts_with("-M")
        && !option.starts_with("-e")
}
