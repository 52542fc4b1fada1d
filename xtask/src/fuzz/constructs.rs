//! The rarer constructs of the two shells, for the generator of scripts.

use super::generate::Generator;

impl Generator {
    /// A construct that both shells know.
    pub(super) fn posix_construct(&mut self) -> String {
        match self.below(34) {
            0 => format!(
                "cat <<A; {} <<B\n{}\n$({})\nA\n{}\nB",
                self.pick(&["cat", "sh", "x"]),
                self.word(),
                self.simple(),
                self.simple()
            ),
            1 => {
                let inner = self.script();
                let name = self.unique("H");
                format!("sh <<-{name}\n\t{}\n\t{name}\n:", inner.replace('\n', "\n\t"))
            }
            2 => {
                let inner = self.script_for(false);
                let name = self.unique("N");
                format!(
                    "{} > f.sh <<'{name}'\n{inner}\n{name}\n{}",
                    self.pick(&["cat", "tee"]),
                    self.runs_file()
                )
            }
            3 => {
                let inner = self.script_for(false);
                format!("printf '%s\\n' {} > f.sh; {}", self.quoted(&inner), self.runs_file())
            }
            4 => format!("f() {{ {}}} {}\nf {}", self.body(), self.redirect(), self.word()),
            5 => format!("f() ({}); f {}", self.script(), self.word()),
            6 => format!("f() if {}; then {}fi\nf {}", self.condition(), self.body(), self.word()),
            7 => format!(
                "alias k={}\nk {}\nk {}; {}",
                self.pick(&[
                    "'if true; then'", "'rm;'", "'k a'", "'X '", "'{ ls; }; rm'", "'rm #'", "'v=a'", "'! '"
                ]),
                self.word(),
                self.pick(&["; fi", "X", "k", "a"]),
                self.simple()
            ),
            8 => format!("alias k={} X={}\nk X {}", self.value(), self.value(), self.word()),
            9 => format!(
                "set {}; {}; {}",
                self.pick(&["-e", "-u", "-eu", "-o errexit", "-o nounset"]),
                self.simple(),
                self.simple()
            ),
            10 => format!(
                "set -e; {} {} {}; {}",
                self.statement(),
                self.pick(&["&&", "||"]),
                self.simple(),
                self.simple()
            ),
            11 => format!(
                "set -e; f() {{ {}}}\nf {} {}",
                self.body(),
                self.pick(&["|| ", "&& ", "; "]),
                self.simple()
            ),
            12 => format!(
                "exec {}; {}; {}",
                self.pick(&["3> out", "> out", "< file", "2> out", "3< file", "3>&1", "4<&0", "> nodir/x"]),
                self.simple(),
                self.simple()
            ),
            13 => format!(
                "{{ {}}} 3> out; {} >&{}",
                self.body(),
                self.simple(),
                self.pick(&["1", "2", "3", "-"])
            ),
            14 => format!(
                "IFS={}; set -- {}; {} \"$1\" $2",
                self.pick(&[":", "a", "' '", "' :'", "''", "/"]),
                self.word(),
                self.name()
            ),
            15 => format!(
                "while IFS={} read -r v w; do {}done {}",
                self.pick(&["", ":", "' '"]),
                self.body(),
                self.pick(&["< file", "<<L\na b:c\n d\nL\n:", "< nofile", "< /dev/null"])
            ),
            16 => format!(
                "printf {} | while read v w; do {}done",
                self.pick(&["'a b\\n'", "'a\\\\b c'", "' a  b \\nc\\n'", "'no end'"]),
                self.body()
            ),
            17 => format!(
                "{} $(echo {}) > $(echo {})",
                self.name(),
                self.word(),
                self.pick(&["out", "a b", "sub/x"])
            ),
            18 => format!(
                "case $({}) in $(echo {})) {};; *) {}esac",
                self.simple(),
                self.plain(),
                self.simple(),
                self.body()
            ),
            19 => format!("v=$({}) w=\"$({})\" {} $v", self.simple(), self.simple(), self.name()),
            20 => format!(
                "{} {} # {}\n{}",
                self.name(),
                self.word(),
                self.pick(&["rm x", "'", "\"", "$(", "\\"]),
                self.simple()
            ),
            21 => format!("if # c'\n{} # \"d\nthen # e`\n{}fi # f)", self.condition(), self.body()),
            22 => format!("{} \\\n {} \\\n{}", self.name(), self.word(), self.word()),
            23 => format!(
                "f() {{ {}return {}; {}}}\nf {} || {}",
                self.body(),
                self.below(2),
                self.body(),
                self.word(),
                self.simple()
            ),
            24 => format!(
                "f() {{ local v={} w; {}}}\nf; {} \"$v\" \"$w\"",
                self.word(),
                self.body(),
                self.name()
            ),
            25 => format!(
                "{} | {} | {}",
                self.simple(),
                self.statement(),
                self.pick(&["cat", "sh", "tee out", "xargs ls", "while read v; do rm \"$v\"; done"])
            ),
            26 => format!(
                "x \"`{}`\" \"$(x \"$({})\")\"",
                self.pick(&["echo a", "echo \\`ls b\\`", "echo \"a b\"", "echo '\\\\a'"]),
                self.simple()
            ),
            27 => format!(
                "while getopts {} o {}; do {}done; {} \"$OPTIND\"",
                self.pick(&["ab:", ":a", "x"]),
                self.pick(&["-a", "-b c d", "-x -y", "-ab c", ""]),
                self.body(),
                self.name()
            ),
            28 => format!("eval {} {}; {}", self.word(), self.word(), self.simple()),
            29 => {
                let (outer, inner) = (self.script(), self.script());
                format!(
                    "trap {} {}; {inner}\n{}",
                    self.quoted(&outer),
                    self.pick(&["EXIT", "TERM", "INT EXIT", "USR1"]),
                    self.pick(&["", "trap - EXIT", "kill -USR1 $$", "trap '' EXIT", "(exit 1)"])
                )
            }
            30 => format!("cd {} && {} || {}; {}", self.word(), self.simple(), self.simple(), self.name()),
            31 => format!("{} {}", self.nested_wrapper(), self.simple_program()),
            32 => format!(
                "for v in {}; do for w in $v {}; do {}done; {}done",
                self.word(),
                self.word(),
                self.body(),
                self.body()
            ),
            _ => format!(
                "{{ {} & {}; }} | {}; wait",
                self.simple(),
                self.simple(),
                self.pick(&["cat", "sh", "read v"])
            ),
        }
    }

    /// A construct of bash.
    pub(super) fn bash_construct(&mut self) -> String {
        match self.below(38) {
            0 => format!("coproc N {{ {}}}; cat <&\"${{N[0]}}\"; wait", self.body()),
            1 => format!("coproc {}; wait; {}", self.simple(), self.simple()),
            2 => format!("select v in {} b; do {}break; done <<< 1", self.word(), self.body()),
            3 => format!(
                "case {} in (a|b) {}{} @(x|{})) {}{} [!c-d]?*) {};; esac",
                self.word(),
                self.body(),
                self.pick(&[";&", ";;&"]),
                self.plain(),
                self.body(),
                self.pick(&[";&", ";;&", ";;"]),
                self.simple()
            ),
            4 => format!(
                "for ((v={}; v<{}; v+=1)) {{ {}}}; {} $v",
                self.below(2),
                self.below(4),
                self.body(),
                self.name()
            ),
            5 => format!(
                "[[ {} =~ {} ]] && {} \"${{BASH_REMATCH[{}]}}\"",
                self.word(),
                self.pick(&["^(.)(.*)$", "a", "[[:alpha:]]+", "(x|y) ?", "$v", "\"a.b\"", "^$"]),
                self.name(),
                self.below(3)
            ),
            6 => format!(
                "declare -A m=([k]={} [l m]={}); {} \"${{m[k]}}\" \"${{m[@]}}\" ${{!m[k]}}",
                self.word(),
                self.word(),
                self.name()
            ),
            7 => format!(
                "a=({} {} {}); {} {}",
                self.word(),
                self.word(),
                self.word(),
                self.name(),
                self.pick(&[
                    "\"${a[@]:1}\"", "\"${#a[@]}\"", "\"${!a[@]}\"", "\"${a[@]/a/b}\"", "\"${a[-1]}\"",
                    "${a[*]:0:1}", "\"${a[@]@Q}\"", "\"${a[1]:-x}\""
                ])
            ),
            8 => format!(
                "a=([2]={} x [0]=y); {} \"${{a[@]}}\"; unset 'a[2]'; {} \"${{a[@]}}\"",
                self.word(),
                self.name(),
                self.name()
            ),
            9 => format!(
                "v={}; {} {}",
                self.word(),
                self.name(),
                self.pick(&[
                    "\"${v@Q}\"", "${v@U}", "${v@u}x", "\"${v@L}\"", "\"${v@E}\"", "${v@a}", "\"${!v}\"",
                    "${!v*}", "\"${!v@}\"", "${v@A}"
                ])
            ),
            10 => format!("w=v; v={}; {} \"${{!w}}\" \"${{!w:-x}}\"", self.word(), self.name()),
            11 => format!(
                "declare -n r={}; r={}; {}; {} \"$r\" \"$v\"",
                self.pick(&["v", "w", "a"]),
                self.word(),
                self.simple(),
                self.name()
            ),
            12 => {
                let inner = self.script();
                format!(
                    "trap {} {}; {}",
                    self.quoted(&inner),
                    self.pick(&["DEBUG", "RETURN", "ERR", "EXIT", "CHLD"]),
                    self.simple()
                )
            }
            13 => format!(
                "{} <({}) {}",
                self.pick(&["cat", "bash", ".", "source", "ls", "sh"]),
                self.simple(),
                self.word()
            ),
            14 => format!("{} > >({})", self.simple(), self.simple()),
            15 => format!(
                "while read -r v; do {}done < <({})",
                self.body(),
                self.pick(&["echo a", "printf 'a b\\nc\\n'", "seq 2", "ls a b", "cat file"])
            ),
            16 => format!(
                "mapfile -t a < <(printf {}); {} \"${{a[@]}}\" \"${{a[0]}}\"",
                self.pick(&["'a\\nb c\\n'", "a", "''", "'\\n'"]),
                self.name()
            ),
            17 => format!(
                "readarray -d , -t a <<< {}; for v in \"${{a[@]}}\"; do {}done",
                self.word(),
                self.body()
            ),
            18 => format!(
                "IFS={} read -r{} a b <<< {}; {} \"$a\" \"$b\"",
                self.pick(&[",", "' '", ":", ""]),
                self.pick(&["", " -n 2", " -d x", " -t 1"]),
                self.word(),
                self.name()
            ),
            19 => format!(
                "shopt -s {}; {} {}",
                self.pick(&[
                    "nullglob", "dotglob", "failglob", "globstar", "nocaseglob", "extglob", "nocasematch",
                    "lastpipe", "inherit_errexit"
                ]),
                self.name(),
                self.pick(&["s*", "no*", "**", "S*", "*", "sub/**", "f?le"])
            ),
            20 => format!(
                "shopt -s extglob\n{} {}",
                self.name(),
                self.pick(&["!(sub)", "@(file|x)", "+(s)ub", "?(a)", "*(s|u)b", "sub/!(a)", "${v##*(a)}"])
            ),
            21 => format!(
                "{} {} {}",
                self.name(),
                self.pick(&[
                    "{1..3}", "{3..1}", "{a..e..2}", "{01..03}", "{1..2}{a,b}", "$v{a,b}", "$v{1..2}",
                    "~/{a,b}", "{~,a}/b", "{a,b", "{a..1}", "x{,}", "{$v,b}", "{\"a b\",c}", "{a,b}{",
                    "${v}{1,2}", "\"$v\"{1,2}", "{1..5..2}", "{-1..1}", "a{b,c}$", "{}", "{a,{b,c}d}"
                ]),
                self.pick(&[
                    "~+", "~-", "~+/x", "~ada/x", "a:~", "x=~:~", "~nouser", "-d=~", "~/$v", "~\"/a\"",
                    "\\~", "~'x'"
                ])
            ),
            22 => format!(
                "{} {}",
                self.name(),
                self.pick(&[
                    "$'a\\'b'", "$'\\x41\\102\\cA'", "$'\\u00e9'", "$'a\\\nb'", "\"$'a'\"", "$\"a $v\"",
                    "$'\\e[0m'", "$'\\0'", "$'\\q'", "$'a'$'b'", "$'\\xff'"
                ])
            ),
            23 => format!(
                "{} \"${{v-{}}}\" ${{w-{}}}",
                self.name(),
                self.pick(&[
                    "a b", "'a b'", "\"a b\"", "\"$v\"", "$w$v", "\\a", "\\}", "\"\\a\"", "a\"b\"c", "~",
                    "$(echo a b)", "`echo a`", "*", "$'x y'"
                ]),
                self.pick(&[
                    "a b", "'a b'", "\"a b\"", "\"$v\"", "$w$v", "\\a", "\"\\a\"", "~", "$(echo a b)", "*",
                    "$'x y'"
                ])
            ),
            24 => format!("local -; set -f; {}; {}", self.simple(), self.simple()),
            25 => format!(
                "f() {{ local -{} v={}; {}}}\nf; {} \"$v\"",
                self.pick(&["x", "r", "i", "a", "u"]),
                self.word(),
                self.body(),
                self.name()
            ),
            26 => format!(
                "f() {{ {}}}\nexport -f f; bash -c 'f {}'; {}",
                self.body(),
                self.plain(),
                self.simple()
            ),
            27 => format!(
                "{} {}; {}",
                self.pick(&[
                    "pushd sub; pushd +1", "pushd sub; pushd; popd", "pushd -n sub; popd",
                    "dirs; pushd /tmp; dirs -c; popd", "pushd sub; popd -n; cd ~-"
                ]),
                self.pick(&["", ">/dev/null", "2>&1"]),
                self.simple()
            ),
            28 => format!(
                "exec {} {} {}; x never",
                self.pick(&["-a n", "-c", "-l", "--", ""]),
                self.name(),
                self.word()
            ),
            29 => format!(
                "set -o pipefail; false | {} && {}; set -e; false | {}; {}",
                self.simple(),
                self.simple(),
                self.simple(),
                self.simple()
            ),
            30 => format!("{} |& {}", self.statement(), self.simple()),
            31 => format!("time {}; {} &> out", self.simple(), self.statement()),
            32 => format!("x \"$(cat <<'E'\n{}\nE\n)\"", self.simple()),
            33 => format!(
                "let {}; {} $v $((v+w)) $((v*2)) ${{v:-z}}",
                self.pick(&["v=3", "'v += 2'", "v++", "w=v,v=1"]),
                self.name()
            ),
            34 => format!(
                "set -- {} {}; {} {}",
                self.word(),
                self.word(),
                self.name(),
                self.pick(&[
                    "\"${@:2}\"", "\"${*:1:1}\"", "\"${@: -1}\"", "${@:1}", "\"${!#}\"", "\"${@/a/b}\"",
                    "\"${#@}\"", "\"$_\"", "\"${1:0:1}\"", "\"${@%e}\""
                ])
            ),
            35 => format!("x $(case a in a) {};; esac) \"$({})\"", self.simple(), self.statement()),
            36 => format!("function g () {{ {}}}; g {}; unset -f g; g", self.body(), self.word()),
            _ => {
                let inner = self.simple();
                format!("echo {} > f.sh; BASH_ENV=f.sh bash -c {}", self.quoted(&inner), self.plain())
            }
        }
    }

    /// How a script in a file is run.
    fn runs_file(&mut self) -> String {
        format!(
            "{} {}",
            self.pick(&[
                "sh f.sh", ". ./f.sh", "bash f.sh", "sh < f.sh", "cat f.sh | sh", "bash ./f.sh",
                "eval \"$(cat f.sh)\""
            ]),
            self.plain()
        )
    }

    /// Several programs that run a command.
    fn nested_wrapper(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(3) {
            let all = [
                "env", "env v=rm", "env -u v", "env -i", "timeout 5", "timeout -k 1 3", "nohup", "sudo",
                "sudo -n", "command", "exec", "env -C sub", "find . -maxdepth 0 -exec", "echo a b | xargs",
                "echo 'a b' | xargs -n1", "printf 'a\\0b' | xargs -0", "printf 'a b\\nc\\n' | xargs -I{}",
                "echo \"'a b' c\" | xargs", "printf 'a,b' | xargs -d,",
            ];
            text = format!("{} {text}", self.pick(&all));
        }
        text
    }

    /// A program with words.
    fn simple_program(&mut self) -> String {
        format!("{} {} {}", self.name(), self.word(), self.pick(&["", "{}", "\\;", "{} \\;", "+"]))
    }

    fn unique(&mut self, prefix: &str) -> String {
        format!("{prefix}{}", self.below(1000))
    }
}
