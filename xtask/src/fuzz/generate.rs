//! Random shell scripts from a grammar, and mutations of known commands.

use hermes_types::ShellKind;

use super::shells::PROGRAMS;

pub(super) struct Generator {
    state: u64,
    depth: usize,
    /// Whether the script is one for bash.
    bash: bool,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        let mut generator = Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, depth: 0, bash: true };
        for _ in 0..8 {
            generator.next();
        }
        generator
    }

    pub(super) fn write_for(&mut self, shell: ShellKind) {
        self.bash = shell == ShellKind::Bash;
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 8).unwrap_or(0) % limit.max(1)
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let index = self.below(from.len());
        from.get(index).copied().unwrap_or_default()
    }

    /// A text of a grammar. `<use TEXT>` puts the text in place of `@`.
    pub(super) fn expand(&mut self, grammar: &[(&str, &[&str])], name: &str) -> String {
        let alternatives = grammar.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, all)| all);
        let limit = if self.depth > 6 { 1 } else { alternatives.len() };
        let index = self.below(limit);
        let mut rest = alternatives.get(index).copied().unwrap_or(name);
        let mut text = String::new();
        self.depth += 1;
        while let Some((before, part)) = rest.split_once('<') {
            text.push_str(before);
            let end = matching_end(part);
            let (name, behind) = part.split_at(end);
            match name.split_once(' ') {
                Some((name, argument)) => {
                    let argument = match argument.strip_prefix("'<").and_then(|rest| rest.strip_suffix(">'"))
                    {
                        Some(inner) => format!("'{}'", self.expand(grammar, inner)),
                        None => argument.to_owned(),
                    };
                    text.push_str(&self.expand(grammar, name).replace('@', &argument));
                }
                None => text.push_str(&self.expand(grammar, name)),
            }
            rest = behind.get(1..).unwrap_or_default();
        }
        self.depth -= 1;
        text.push_str(rest);
        text
    }

    pub(super) fn script(&mut self) -> String {
        let count = 1 + self.below(4);
        let mut text = String::new();
        for index in 0..count {
            if index > 0 {
                text.push_str(self.pick(&["\n", "\n", "; ", "; ", " && ", " || "]));
            }
            text.push_str(&self.statement());
        }
        text
    }

    /// A list that ends a line, for the inside of compound commands.
    pub(super) fn body(&mut self) -> String {
        let body = self.script();
        format!("{body}\n")
    }

    pub(super) fn quoted(&mut self, text: &str) -> String {
        format!("'{}'", text.replace('\'', "'\\''"))
    }

    /// A script for another shell.
    pub(super) fn script_for(&mut self, bash: bool) -> String {
        let outer = std::mem::replace(&mut self.bash, bash);
        let script = self.script();
        self.bash = outer;
        script
    }

    pub(super) fn statement(&mut self) -> String {
        if self.depth >= 2 {
            return self.simple();
        }
        self.depth += 1;
        let bash = self.bash;
        let text = match self.below(60) {
            0 => format!("if {}; then {}fi", self.condition(), self.body()),
            1 => format!("if {}; then {}else {}fi", self.condition(), self.body(), self.body()),
            2 => format!(
                "if {}; then {}elif {}; then {}fi",
                self.condition(),
                self.body(),
                self.condition(),
                self.body()
            ),
            3 => {
                let ends: &[&str] = if bash { &[";;", ";;", ";&", ";;&"] } else { &[";;"] };
                let (end, next) = (self.pick(ends), self.pick(&["*", "b", "[a-c]", "$v"]));
                let subject = self.word();
                let pattern = self.pick(&["a", "x|a", "(a"]).trim_start_matches('(');
                format!("case {subject} in {pattern}) {}{end} {next}) {};; esac", self.body(), self.body())
            }
            4 => format!("for v in {} {}; do {}done", self.word(), self.word(), self.body()),
            5 => format!("for v in a b; do {}{}done", self.body(), self.pick(&["", "break\n", "continue\n"])),
            6 if bash => format!("while read -r v; do {}done <<< $'ls\\nrm'", self.body()),
            6 => format!("while read -r v; do {}done <<L\nls\nrm\nL\n:", self.body()),
            7 => format!("while {}; do {}break; done", self.condition(), self.body()),
            8 => format!("until {}; do {}break; done", self.condition(), self.body()),
            9 if bash => format!("for ((i=0; i<2; i++)); do {}done", self.body()),
            10..=12 => {
                let (name, define) = (self.pick(&["f", "g", "F", "ls"]), self.pick(&["()", " ()", "()"]));
                format!("{name}{define} {{ {}}}\n{name} {} {}", self.body(), self.word(), self.word())
            }
            13 if bash => format!("function h {{ {}}}; h {}", self.body(), self.word()),
            14 | 15 => format!("({})", self.script()),
            16 => format!("{{ {}}}", self.body()),
            17 => format!("{} | {}", self.simple(), self.statement()),
            18 => format!("{} && {}", self.statement(), self.statement()),
            19 => format!("{} || {}", self.statement(), self.statement()),
            20 => format!("! {}", self.simple()),
            21 => {
                let inner = self.script();
                format!("eval {}", self.quoted(&inner))
            }
            22 | 23 => {
                let shell =
                    self.pick(&["bash -c", "sh -c", "bash -euo pipefail -c", "dash -c", "bash +o posix -c"]);
                let inner = self.script_for(shell.starts_with("bash"));
                format!("{shell} {} {} {}", self.quoted(&inner), self.word(), self.word())
            }
            24 | 25 => {
                let (end, shell) = (
                    self.pick(&["E", "'E'", "\"E\"", "E", "\\E", "E''"]),
                    self.pick(&["bash", "sh", "cat", "bash -s a b", "cat | sh"]),
                );
                let name = format!("E{}", self.below(1000));
                let inner = self.script_for(shell.starts_with("bash"));
                format!("{shell} <<{}\n{inner}\n{name}\n:", end.replace('E', &name))
            }
            26 => {
                let inner = self.script();
                let signal = self.pick(&["EXIT", "EXIT", "0", if bash { "ERR" } else { "EXIT" }]);
                format!("trap {} {signal}", self.quoted(&inner))
            }
            27 | 28 => format!(
                "alias {}={}\n{} {}",
                self.pick(&["k", "ls", "X"]),
                self.pick(&["rm", "'rm -f'", "'rm a; ls'", "'cd sub;'", "'v=rm '", "'rm '"]),
                self.pick(&["k", "ls", "X"]),
                self.word()
            ),
            29 => format!("{} &\nwait", self.simple()),
            30 => format!("x \"$({})\"", self.script()),
            31 if bash => {
                let (left, right) = (self.plain(), self.plain());
                format!(
                    "[[ {left} {} {right} && -n $({}) ]]",
                    self.pick(&["==", "!=", "<", "-nt"]),
                    self.script()
                )
            }
            32 if bash => {
                format!("{} <<< {}", self.pick(&["cat", "bash", "read v", "read -r v w"]), self.word())
            }
            33 | 34 => self.wrapped(),
            35 if bash => {
                format!("{} {}; do {}done", self.pick(&["select v in", "for v in"]), self.word(), self.body())
            }
            36 => format!("for v; do {}done", self.body()),
            37 if bash => format!("coproc {{ {}}}; wait", self.body()),
            38 => format!("while [ $# -gt 0 ]; do {}shift || break; done", self.body()),
            39 => format!("{{ {}}} {}", self.body(), self.redirect()),
            40..=46 => self.posix_construct(),
            47..=54 if bash => self.bash_construct(),
            _ => self.simple(),
        };
        self.depth -= 1;
        text
    }

    /// A command behind a program that runs it.
    fn wrapped(&mut self) -> String {
        let mut inner = format!("{} {} {}", self.name(), self.word(), self.plain());
        if self.one_in(3) {
            let script = self.script_for(false);
            inner = format!("sh -c {} {}", self.quoted(&script), self.plain());
        }
        match self.below(12) {
            0 => format!("env {inner}"),
            1 => format!("env {}={} {inner}", self.variable(), self.plain()),
            2 => format!("env -i {inner}"),
            3 => format!("env -C sub {inner}"),
            4 => format!("timeout {} {inner}", self.pick(&["5", "-k 1 5", "-s KILL 5", "--foreground 5"])),
            5 => format!("nohup {inner}"),
            6 => format!("sudo {} {inner}", self.pick(&["", "-n", "-u x", "-E", "v=1"])),
            7 => format!(
                "echo {} | xargs {} {inner}",
                self.plain(),
                self.pick(&["", "-n 1", "-0", "-r", "-t"])
            ),
            8 => format!("echo {} | xargs -I{{}} {inner} {{}}", self.plain()),
            9 => format!("find {} -exec {inner} {{}} \\;", self.pick(&[".", "sub", ". -name file"])),
            10 => format!("find sub -maxdepth 0 -exec {inner} {{}} +"),
            _ => format!("find . -type d -name 's*' {} {inner} {{}} ';'", self.pick(&["-execdir", "-exec"])),
        }
    }

    pub(super) fn redirect(&mut self) -> String {
        let bash: &[&str] = if self.bash { &["&> out", ">& out", "{fd}> out", "&>> out"] } else { &[] };
        let all = [
            ">out", "> /dev/null", "2>&1", ">> out", "< file", "2> out", ">| out", "3< file", "<&-",
            "< nofile",
        ];
        let all = [&all, bash].concat();
        self.pick(&all).to_owned()
    }

    /// A word without expansions and signs.
    pub(super) fn plain(&mut self) -> &'static str {
        self.pick(&["a", "b", "file", "sub", "rm", "'a b'", "x.y", "\"\"", "-f", "--", "/tmp"])
    }

    pub(super) fn name(&mut self) -> &'static str {
        self.pick(PROGRAMS.get(..12).unwrap_or(PROGRAMS))
    }

    pub(super) fn condition(&mut self) -> String {
        match self.below(8) {
            0 => "true".to_owned(),
            1 => "false".to_owned(),
            2 => format!("[ -d {} ]", self.pick(&["sub", "nodir", "/tmp"])),
            3 if self.bash => format!("[[ {} == {} ]]", self.plain(), self.plain()),
            4 => format!("cd {}", self.pick(&["sub", "nodir", "..", "/tmp"])),
            5 => format!("test -n {}", self.word()),
            6 => format!("! {}", self.simple()),
            _ => self.simple(),
        }
    }

    fn variable(&mut self) -> &'static str {
        self.pick(&["v", "w", "a", "b"])
    }

    pub(super) fn value(&mut self) -> String {
        match self.below(4) {
            0 | 1 => self.pick(&["rm", "ls", "'rm -f'", "''", "\"a b\"", "sub", "'a,b'", "cd"]).to_owned(),
            _ => self.word(),
        }
    }

    pub(super) fn simple(&mut self) -> String {
        let name = self.variable();
        let bash = self.bash;
        match self.below(56) {
            0..=3 => format!("{name}={}", self.value()),
            4 if bash => format!("{name}+={}", self.value()),
            5 => format!("export {name}={}", self.value()),
            6 if bash => format!(
                "{} {name}={}",
                self.pick(&[
                    "local", "declare", "typeset", "declare -x", "declare -l", "local -u", "declare -g",
                    "declare -i"
                ]),
                self.value()
            ),
            6 => format!("{} {name}={}", self.pick(&["local", "readonly", "export"]), self.value()),
            7 => format!("unset {name}"),
            8 if bash => format!("printf {} {}", self.pick(&["-v v", "-vv", "-v w", "%s"]), self.value()),
            9 if bash => format!("read {name} <<< {}", self.value()),
            10 => format!("set {} {} {}", self.pick(&["--", "--", "-e --", "-"]), self.word(), self.word()),
            11 => {
                let all = ["shift", "shift 2", "set -e", "set +e", "set -a", "set -f", "set --", "set -u"];
                let only_bash =
                    ["shopt -s lastpipe", "set -euo pipefail", "shopt -s extglob", "set +o posix"];
                if bash && self.one_in(3) { self.pick(&only_bash) } else { self.pick(&all) }.to_owned()
            }
            12..=15 => format!(
                "cd {}",
                self.pick(&[
                    "sub", "nodir", "..", "/tmp", "-", "~", "", "\"$HOME\"", "\"$OLDPWD\"", "$v", "deep",
                    "/", "-P sub", "-- sub", "sub/deep", "\"$PWD/sub\"", "./sub", "''", "sub/..", "build"
                ])
            ),
            16 if bash => format!("pushd {} >/dev/null", self.pick(&["sub", "nodir", "/tmp", "..", ""])),
            17 if bash => self.pick(&["popd >/dev/null", "popd"]).to_owned(),
            18 => format!(
                "{}={}",
                self.pick(&["IFS", "CDPATH", "HOME", "IFS", "OLDPWD", "PWD"]),
                self.pick(&[",", "/home/ada", "/tmp", "''", ":", "/home/ada/work/sub", "' ,'"])
            ),
            19 => self.pick(&["exit", "return", "exit 1", "return 1", "break", "continue"]).to_owned(),
            20 => format!("mkdir -p {}", self.pick(&["sub", "new"])),
            21 if bash => format!("{name}=({} {})", self.value(), self.value()),
            22 if bash => format!("{name}[{}]={}", self.below(2), self.value()),
            23 if bash => format!("(({name}={}))", self.below(9)),
            24 if bash => format!("declare -n r={name}; r={}", self.value()),
            25 => format!(
                "{} {} {} {}",
                self.pick(&["command", "exec", "command cd", if bash { "builtin" } else { "command" }]),
                self.name(),
                self.word(),
                self.word()
            ),
            26 => format!("{name}={} {} {}", self.value(), self.name(), self.word()),
            27 => format!("echo {} > {}", self.word(), self.pick(&["out", "/dev/null", "sub/out", "'a b'"])),
            28 => format!(
                "echo {} | {}",
                self.value(),
                self.pick(&["read v", "bash", "sh", "cat", "read -r v w"])
            ),
            29 if bash => format!("BASH_ALIASES[{}]={}", self.pick(&["ls", "k"]), self.value()),
            30 if bash => format!("mapfile -t {name} <<< {}", self.value()),
            31 => format!("unset -f {}", self.pick(&["f", "ls"])),
            32 => format!(
                "echo {} > f.sh; {} f.sh",
                self.value(),
                self.pick(&["bash", "sh", ".", ".", "bash ./"])
            ),
            33 => format!("getopts a: {name} -a {}", self.word()),
            34 | 35 => format!("{name}={}; ${name} {}", self.name(), self.word()),
            36 => format!("{name}='{} {}'; ${name}", self.name(), self.pick(&["a", "a b", "*", "-f"])),
            37 if bash => {
                format!("{name}=({} {}); \"${{{name}[@]}}\" {}", self.name(), self.word(), self.word())
            }
            38 => format!("unalias {}", self.pick(&["k", "ls", "-a"])),
            39 => format!("set -- {} {}; \"$@\" {}", self.name(), self.word(), self.word()),
            40 => format!("{} {} {}", self.name(), self.word(), self.redirect()),
            41 => self.pick(&[":", "true", "false", "wait", "umask 022", "times", "pwd"]).to_owned(),
            _ => {
                let mut text = self.program();
                for _ in 0..self.below(4) {
                    text.push(' ');
                    text.push_str(&self.word());
                }
                text
            }
        }
    }

    fn program(&mut self) -> String {
        let name = self.name();
        match self.below(120) {
            0 => format!("${}", self.variable()),
            1 => format!("\"${}\"", self.variable()),
            2 => self.word(),
            3 => "\"$@\"".to_owned(),
            4..=13 => format!("/usr/bin/{name}"),
            14..=25 => self.spelled(name),
            26..=38 => self.pick(&["f", "g", "F", "h", "k", "X"]).to_owned(),
            _ => name.to_owned(),
        }
    }

    /// The same text with quotes, escapes or line continuations in it.
    fn spelled(&mut self, text: &str) -> String {
        let at = self.below(text.len()).max(1);
        let (head, tail) = text.split_at_checked(at).unwrap_or((text, ""));
        match self.below(if self.bash { 7 } else { 4 }) {
            0 => format!("{head}''{tail}"),
            1 => format!("{head}\\\n{tail}"),
            2 => format!("{head}\"{tail}\""),
            3 => format!("\\{text}"),
            4 => format!("$'{text}\\0z'"),
            5 => format!(
                "$'\\x{:02x}'{}",
                text.bytes().next().unwrap_or(b'a'),
                text.get(1..).unwrap_or_default()
            ),
            _ => format!("'{head}'{tail}"),
        }
    }

    pub(super) fn word(&mut self) -> String {
        let name = self.variable();
        if self.depth > 4 {
            return "a".to_owned();
        }
        self.depth += 1;
        let text = match self.below(40) {
            0 => format!("${name}"),
            1 => format!("\"${name}\""),
            2 => {
                let all = ["-", ":-", "=", ":=", "+", ":+", "#", "##", "%", "%%", ":?"];
                let only_bash = ["/", "//", "^", ",", "@Q", ":1", ":0:1", "^^", ",,", "/#", "/%"];
                let form = if self.bash && self.one_in(3) { self.pick(&only_bash) } else { self.pick(&all) };
                let inner = if form.contains(['Q', '1']) { String::new() } else { self.word() };
                if self.one_in(2) {
                    format!("${{{name}{form}{inner}}}")
                } else {
                    format!("\"${{{name}{form}{inner}}}\"")
                }
            }
            3 => format!("$({})", self.simple()),
            4 => "`echo a b`".to_owned(),
            5 if self.bash => {
                format!("{{{},{}}}", self.pick(&["a", "rm", "", "-f"]), self.pick(&["b", "ls", "{c,d}", ""]))
            }
            6 if self.bash => {
                self.pick(&["{1..3}", "{a..c}", "a{b,c}d", "{a}", "{,a}", "{a,b}{c,d}"]).to_owned()
            }
            7 => self.pick(&["~", "~/f", "~+", "~-/x", "\"~\"", "~root", "a=~/b"]).to_owned(),
            8 => self
                .pick(&[
                    "\"$@\"", "$@", "\"$*\"", "$*", "$1", "\"$2\"", "$#", "\"a$@b\"", "${2-y}", "\"${1-z}\"",
                ])
                .to_owned(),
            9 if self.bash => self
                .pick(&["$[2]", "${a[@]}", "\"${a[0]}\"", "${!v}", "${@:1}", "\"${v[@]}\"", "${a[*]}"])
                .to_owned(),
            9 => self.pick(&["$((1+1))", "$((v))", "${#v}", "$?", "$((v=3))", "$((w+=1))"]).to_owned(),
            10 => self.pick(&["*", "fil?", "[f]ile", "s*/", "no*", "\"*\"", "\\*", "sub/*"]).to_owned(),
            11 => {
                let text = self.pick(&["rm", "file", "a"]);
                self.spelled(text)
            }
            12 => self
                .pick(&[
                    "''", "\"\"", "'a b'", "\"a b\"", "a\\ b", "\"\\$v\"", "\"\\a\"", "'\\'", "\"a\\\nb\"",
                    "'a\\\nb'",
                ])
                .to_owned(),
            13 => format!("\"a$({})b\"", self.simple()),
            14 => format!("{}{}", self.word(), self.word()),
            15 => self.pick(&["a#b", "!", "--", "-", "a=b", "=", "a:b", "%", "@"]).to_owned(),
            16 => self
                .pick(&["$HOME", "\"$HOME/x\"", "${HOME%/}/f", "${PWD##*/}", "$PWD", "$OLDPWD", "${PWD%/*}"])
                .to_owned(),
            17 if self.bash => self
                .pick(&["$\"a\"", "$'a\\tb'", "$'\\''", "$'\\u0041'", "$'\\101'", "$", "a$", "\"$\""])
                .to_owned(),
            _ => self
                .pick(&["a", "b", "-f", "-rf", "file", "sub", "rm", "ls", "x.y", "a/b", "/tmp"])
                .to_owned(),
        };
        self.depth -= 1;
        text
    }

    /// A known command with a change in it.
    pub(super) fn mutation(&mut self, corpora: &[String]) -> String {
        let pieces = [
            "\\\n", "'", "\"", ";", "\n", " ", "$v", "${v:-rm}", "&&", "||", "|", "$(", ")", "`", "{", "}",
            "\\", "<<E\n", "\nE\n", "[[ ", " ]]", "#", "~", "*", "!", "cd sub;", "v=rm;", "if ", "then ",
            "fi\n",
        ];
        let index = self.below(corpora.len());
        let Some(command) = corpora.get(index).filter(|text| text.len() < 400 && !text.contains('&')) else {
            return self.script();
        };
        let mut text: Vec<char> = command.chars().collect();
        for _ in 0..self.below(4) {
            let at = self.below(text.len() + 1);
            let piece: Vec<char> = self.pick(&pieces).chars().collect();
            let removed = self.below(3).min(text.len() - at);
            text.splice(at..at + removed, piece);
        }
        text.into_iter().collect()
    }
}

/// Where the part ends that a text begins with.
fn matching_end(text: &str) -> usize {
    let mut depth = 0_usize;
    text.find(|char| {
        match char {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '>' => return true,
            _ => {}
        }
        false
    })
    .unwrap_or(text.len())
}
