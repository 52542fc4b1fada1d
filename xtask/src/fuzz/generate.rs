//! Random shell scripts from a grammar, and mutations of known commands.

use super::shells::PROGRAMS;

pub(super) struct Generator {
    state: u64,
    depth: usize,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        let mut generator = Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, depth: 0 };
        for _ in 0..8 {
            generator.next();
        }
        generator
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 8).unwrap_or(0) % limit.max(1)
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let index = self.below(from.len());
        from.get(index).copied().unwrap_or_default()
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
    fn body(&mut self) -> String {
        let body = self.script();
        format!("{body}\n")
    }

    fn quoted(&mut self, text: &str) -> String {
        format!("'{}'", text.replace('\'', "'\\''"))
    }

    fn statement(&mut self) -> String {
        if self.depth >= 3 {
            return self.simple();
        }
        self.depth += 1;
        let text = match self.below(34) {
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
                let (end, next) =
                    (self.pick(&[";;", ";;", ";;", ";&", ";;&"]), self.pick(&["*", "b", "[a-c]"]));
                format!(
                    "case {} in {}) {}{end} {next}) {};; esac",
                    self.word(),
                    self.pick(&["a", "x|a", "(ls"]).trim_start_matches('('),
                    self.body(),
                    self.body()
                )
            }
            4 => format!("for v in {} {}; do {}done", self.word(), self.word(), self.body()),
            5 => format!("for v in a b; do {}{}done", self.body(), self.pick(&["", "break\n", "continue\n"])),
            6 => format!("while read -r v; do {}done <<< $'ls\\nrm'", self.body()),
            7 => format!("while {}; do {}break; done", self.condition(), self.body()),
            8 => format!("until {}; do {}break; done", self.condition(), self.body()),
            9 => format!("for ((i=0; i<2; i++)); do {}done", self.body()),
            10 | 11 => {
                let (name, define) = (self.pick(&["f", "g", "F", "ls"]), self.pick(&["()", " ()", "()"]));
                format!("{name}{define} {{ {}}}\n{name} {} {}", self.body(), self.word(), self.word())
            }
            12 => format!("function h {{ {}}}; h {}", self.body(), self.word()),
            13 => format!("({})", self.script()),
            14 => format!("{{ {}}}", self.body()),
            15 => format!("{} | {}", self.simple(), self.statement()),
            16 => format!("{} && {}", self.statement(), self.statement()),
            17 => format!("{} || {}", self.statement(), self.statement()),
            18 => format!("! {}", self.simple()),
            19 => {
                let inner = self.script();
                format!("eval {}", self.quoted(&inner))
            }
            20 => {
                let inner = self.script();
                let shell =
                    self.pick(&["bash -c", "sh -c", "bash -euo pipefail -c", "dash -c", "bash +o posix -c"]);
                format!("{shell} {} {} {}", self.quoted(&inner), self.word(), self.word())
            }
            21 => {
                let (end, shell) = (
                    self.pick(&["E", "'E'", "\"E\"", "E\\\nF"]),
                    self.pick(&["bash", "sh", "cat", "bash -s a b"]),
                );
                let name: String = end.chars().filter(char::is_ascii_alphabetic).collect();
                format!("{shell} <<{end}\n{}\n{name}", self.script())
            }
            22 => {
                let inner = self.script();
                format!("trap {} EXIT", self.quoted(&inner))
            }
            23 => format!(
                "alias {}={}\n{} {}",
                self.pick(&["k", "ls", "X"]),
                self.pick(&["rm", "'rm -f'", "'rm a; ls'", "'cd sub;'", "'v=rm '"]),
                self.pick(&["k", "ls", "X"]),
                self.word()
            ),
            24 => format!("{} &\nwait", self.simple()),
            25 => format!("x \"$({})\"", self.script()),
            26 => format!("[[ {} == {} && -n $({}) ]]", self.word(), self.word(), self.script()),
            27 => format!("{} <<< {}", self.pick(&["cat", "bash", "read v", "read -r v w"]), self.word()),
            _ => self.simple(),
        };
        self.depth -= 1;
        text
    }

    fn condition(&mut self) -> String {
        match self.below(8) {
            0 => "true".to_owned(),
            1 => "false".to_owned(),
            2 => format!("[ -d {} ]", self.pick(&["sub", "nodir", "/tmp"])),
            3 => format!("[[ {} == {} ]]", self.word(), self.word()),
            4 => format!("cd {}", self.pick(&["sub", "nodir", "..", "/tmp"])),
            5 => format!("test -n {}", self.word()),
            6 => format!("! {}", self.simple()),
            _ => self.simple(),
        }
    }

    fn variable(&mut self) -> &'static str {
        self.pick(&["v", "w", "a", "b"])
    }

    fn value(&mut self) -> String {
        match self.below(4) {
            0 | 1 => self.pick(&["rm", "ls", "'rm -f'", "''", "\"a b\"", "sub", "'a,b'", "cd"]).to_owned(),
            _ => self.word(),
        }
    }

    fn simple(&mut self) -> String {
        let name = self.variable();
        match self.below(44) {
            0..=3 => format!("{name}={}", self.value()),
            4 => format!("{name}+={}", self.value()),
            5 => format!("export {name}={}", self.value()),
            6 => format!(
                "{} {name}={}",
                self.pick(&[
                    "local", "declare", "typeset", "declare -x", "declare -l", "local -u", "declare -g",
                    "declare -i"
                ]),
                self.value()
            ),
            7 => format!("unset {name}"),
            8 => format!("printf {} {}", self.pick(&["-v v", "-vv", "-v w", "%s"]), self.value()),
            9 => format!("read {name} <<< {}", self.value()),
            10 => format!("set {} {} {}", self.pick(&["--", "", "-e --", "-"]), self.word(), self.word()),
            11 => self
                .pick(&[
                    "shift", "shift 2", "set -e", "set +e", "set -a", "shopt -s lastpipe",
                    "set -euo pipefail", "set -f", "set --",
                ])
                .to_owned(),
            12..=15 => format!(
                "cd {}",
                self.pick(&[
                    "sub", "nodir", "..", "/tmp", "-", "~", "", "\"$HOME\"", "\"$OLDPWD\"", "$v", "deep",
                    "/", "-P sub", "-- sub", "sub/deep", "\"$PWD/sub\"", "./sub", "''"
                ])
            ),
            16 => format!("pushd {} >/dev/null", self.pick(&["sub", "nodir", "/tmp", "..", ""])),
            17 => self.pick(&["popd >/dev/null", "popd"]).to_owned(),
            18 => format!(
                "{}={}",
                self.pick(&["IFS", "CDPATH", "HOME", "IFS"]),
                self.pick(&[",", "/home/ada", "/tmp", "''", ":", "/home/ada/work/sub"])
            ),
            19 => self.pick(&["exit", "return", "exit 1", "return 1", "break", "continue"]).to_owned(),
            20 => format!("mkdir -p {}", self.pick(&["sub", "new"])),
            21 => format!("{name}=({} {})", self.value(), self.value()),
            22 => format!("{name}[{}]={}", self.below(2), self.value()),
            23 => format!("(({name}={}))", self.below(9)),
            24 => format!("declare -n r={name}; r={}", self.value()),
            25 => format!(
                "{} {} {} {}",
                self.pick(&["command", "builtin", "exec", "command cd", "builtin cd"]),
                self.program(),
                self.word(),
                self.word()
            ),
            26 => format!("{name}={} {} {}", self.value(), self.program(), self.word()),
            27 => format!("echo {} > {}", self.word(), self.pick(&["out", "/dev/null", "sub/out", "a b"])),
            28 => format!(
                "echo {} | {}",
                self.value(),
                self.pick(&["read v", "bash", "sh", "cat", "read -r v w"])
            ),
            29 => format!("BASH_ALIASES[{}]={}", self.pick(&["ls", "k"]), self.value()),
            30 => format!("mapfile -t {name} <<< {}", self.value()),
            31 => format!("unset -f {}", self.pick(&["f", "ls"])),
            32 => format!(
                "echo {} > f.sh; {} f.sh",
                self.value(),
                self.pick(&["bash", "sh", ".", "source", "bash ./"])
            ),
            33 => format!("getopts a: {name} -a {}", self.word()),
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
        let name = self.pick(PROGRAMS.get(..12).unwrap_or(PROGRAMS));
        match self.below(12) {
            0 => format!("${}", self.variable()),
            1 => format!("\"${}\"", self.variable()),
            2 => self.word(),
            3 => format!("/usr/bin/{name}"),
            4 => self.spelled(name),
            5 => "\"$@\"".to_owned(),
            6 => self.pick(&["f", "g", "F", "h", "k", "X"]).to_owned(),
            _ => name.to_owned(),
        }
    }

    /// The same text with quotes, escapes or line continuations in it.
    fn spelled(&mut self, text: &str) -> String {
        let at = self.below(text.len()).max(1);
        let (head, tail) = text.split_at_checked(at).unwrap_or((text, ""));
        match self.below(7) {
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

    fn word(&mut self) -> String {
        let name = self.variable();
        if self.depth > 4 {
            return "a".to_owned();
        }
        self.depth += 1;
        let text = match self.below(40) {
            0 => format!("${name}"),
            1 => format!("\"${name}\""),
            2 => {
                let form = self.pick(&[
                    "-", ":-", "=", ":=", "+", ":+", "#", "##", "%", "%%", "/", "//", "^", ",", "@Q", ":1",
                    ":0:1", ":?",
                ]);
                let inner =
                    if form.len() == 2 && form.contains(['Q', '1']) { String::new() } else { self.word() };
                if self.one_in(2) {
                    format!("${{{name}{form}{inner}}}")
                } else {
                    format!("\"${{{name}{form}{inner}}}\"")
                }
            }
            3 => format!("$({})", self.simple()),
            4 => "`echo a b`".to_owned(),
            5 => {
                format!("{{{},{}}}", self.pick(&["a", "rm", "", "-f"]), self.pick(&["b", "ls", "{c,d}", ""]))
            }
            6 => self.pick(&["{1..3}", "{a..c}", "a{b,c}d", "{a}", "{,a}", "{a,b}{c,d}"]).to_owned(),
            7 => self.pick(&["~", "~/f", "~+", "~-/x", "\"~\"", "~nobody", "a=~/b"]).to_owned(),
            8 => self
                .pick(&[
                    "\"$@\"", "$@", "\"$*\"", "$*", "$1", "\"$2\"", "$#", "\"a$@b\"", "${@:1}", "\"${1-z}\"",
                ])
                .to_owned(),
            9 => self
                .pick(&["$((1+1))", "$((v))", "$[2]", "${#v}", "$?", "${a[@]}", "\"${a[0]}\"", "${!v}"])
                .to_owned(),
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
            15 => self
                .pick(&["#a", "a#b", "!", "--", "-", "a=b", "2>&1", ">out", "<file", "2>/dev/null", "&>out"])
                .to_owned(),
            16 => self
                .pick(&["$HOME", "\"$HOME/x\"", "${HOME%/}/f", "${PWD##*/}", "$PWD", "$OLDPWD", "${PWD%/*}"])
                .to_owned(),
            17 => self
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
