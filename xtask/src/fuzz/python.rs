//! `cargo xtask fuzz gate --python`: runs generated Python programs that report what they do, and compares
//! that with what the gate found in their text.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hermes_policy::shell::{
    RedirectOperator, Script, Segment, Surroundings, Word, WordPiece, understand, understand_python,
};
use hermes_types::{ShellContext, ShellKind};

use super::generate::Generator;
use super::python_grammar::GRAMMAR;

const CWD: &str = "/home/ada/work";
const SERVER: &str = include_str!("instrumented.py");

/// Makes a root directory with Python in it, and starts the server in namespaces of its own.
const START: &str = r#"
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir -p usr home/ada tmp dev etc
mount --bind /usr usr
mount -o remount,bind,ro usr
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$link"; done
: >dev/null && mount --bind /dev/null dev/null
: >dev/urandom && mount --bind /dev/urandom dev/urandom
printf '%s' "$2" >server.py
exec env -i PATH=/usr/sbin:/usr/bin:/bin HOME=/home/ada chroot "$1" /usr/bin/python3 -I -S /server.py
"#;

pub(super) fn main(seconds: u64, seed: u64) -> Result<ExitCode> {
    let directory = tempfile::tempdir()?;
    let mut python = Python::start(directory.path())?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut doubted, mut idle, mut found) = (0_u64, 0_u64, 0_u64, 0_u64);
    while Instant::now() < end {
        runs += 1;
        let mut generator = Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(runs));
        let program = generator.expand(GRAMMAR, "program");
        let read = read(&program);
        if !read.doubts.is_empty() {
            doubted += 1;
            continue;
        }
        let events = python.run(&program)?;
        idle += u64::from(events.is_empty());
        if missed(&read, &events).is_none() {
            continue;
        }
        found += 1;
        let mut lines: Vec<&str> = program.split('\n').collect();
        let mut at = 0;
        while at < lines.len() {
            let mut fewer = lines.clone();
            fewer.remove(at);
            let text = fewer.join("\n");
            let script = self::read(&text);
            if script.doubts.is_empty() && missed(&script, &python.run(&text)?).is_some() {
                lines = fewer;
            } else {
                at += 1;
            }
        }
        let program = lines.join("\n");
        let read = self::read(&program);
        let events = python.run(&program)?;
        let missed = missed(&read, &events).unwrap_or_default();
        let shown: Vec<String> = read.segments.iter().map(Segment::show).collect();
        println!("{program}\n%%\n# did {}\n# found {}\n", missed.join(" "), shown.join("; "));
    }
    println!(
        "{runs} programs: {} compared, {doubted} doubted, {idle} of those compared did nothing, {found} \
         disagreements",
        runs - doubted
    );
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(program: &str) -> Script {
    static SHELL: ShellContext = ShellContext::new();
    let around =
        Surroundings { cwd: CWD, home: "/home/ada", hermes_home: "/home/ada/.hermes", shell: &SHELL };
    understand_python(program, &around)
}

/// The first event that the gate did not find.
fn missed<'a>(script: &Script, events: &'a [Vec<String>]) -> Option<&'a [String]> {
    let is_missed = |event: &&Vec<String>| match event.as_slice() {
        [kind, path] if kind == "write" => !is_temporary(path) && !writes(script, path),
        [kind, path] if kind == "delete" => !is_temporary(path) && !deletes(script, path),
        [kind, words @ ..] if kind == "run" => !runs(script, words),
        _ => true,
    };
    events.iter().find(is_missed).map(Vec::as_slice)
}

/// Whether Python chose the name itself.
fn is_temporary(path: &str) -> bool {
    path.starts_with("/tmp/tmp") || path.starts_with("/dev/") || path.contains("/tmp")
}

fn writes(script: &Script, path: &str) -> bool {
    script.segments.iter().any(|segment| {
        segment.redirects.iter().any(|redirect| {
            !matches!(redirect.operator, RedirectOperator::Read) && is_path(segment, &redirect.target, path)
        })
    })
}

fn deletes(script: &Script, path: &str) -> bool {
    let is_delete = |segment: &Segment| {
        segment.name == "rm" && segment.args.iter().skip(1).any(|word| is_path(segment, word, path))
    };
    script.segments.iter().any(is_delete) || mentions(script, path)
}

fn mentions(script: &Script, path: &str) -> bool {
    script.segments.iter().any(|segment| {
        segment.redirects.iter().any(|redirect| {
            redirect.operator == RedirectOperator::Mention && is_path(segment, &redirect.target, path)
        })
    })
}

fn runs(script: &Script, words: &[String]) -> bool {
    if let [shell, option, text] = words
        && shell.ends_with("sh")
        && option == "-c"
    {
        let shell = ShellContext { shell: ShellKind::Sh, ..ShellContext::new() };
        let around =
            Surroundings { cwd: CWD, home: "/home/ada", hermes_home: "/home/ada/.hermes", shell: &shell };
        let nested = understand(text, &around);
        return nested
            .segments
            .iter()
            .all(|wanted| script.segments.iter().any(|it| it.show() == wanted.show()));
    }
    script.segments.iter().any(|segment| {
        let all = std::iter::once(&segment.program).chain(&segment.args);
        // `execvp` has the name of the program twice.
        let extra = all.clone().count().checked_sub(words.len());
        extra.is_some_and(|extra| extra <= 1)
            && all
                .skip(extra.unwrap_or(0))
                .zip(words)
                .all(|(word, ran)| word.has_unknown() || word.known() == Some(ran.as_str()))
    })
}

/// Whether a word that the gate found can mean a path. Without a known directory it means any.
fn is_path(segment: &Segment, word: &Word, path: &str) -> bool {
    let mut text = String::new();
    for piece in word.pieces() {
        match piece {
            WordPiece::Text(part) | WordPiece::Glob(part) => text.push_str(part),
            WordPiece::Unknown(_) => text.push('\0'),
        }
    }
    let text = match (text.starts_with(['/', '\0']), &segment.cwd) {
        (true, _) => text,
        (false, Some(cwd)) => format!("{cwd}/{text}"),
        (false, None) => return true,
    };
    match text.split_once('\0') {
        Some((start, _)) => path.starts_with(start),
        // A tree is written as a whole.
        None => Path::new(path).starts_with(normalized(&text)),
    }
}

fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

struct Python {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    fn start(directory: &Path) -> Result<Self> {
        let root = fs::canonicalize(directory)?;
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--fork"]);
        command.args(["--kill-child", "sh", "-c", START, "sh"]).arg(root).arg(SERVER);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("unshare")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, answers })
    }

    /// What a program did: `write PATH`, `delete PATH`, `run WORD...`, `signal` or `network ADDRESS`.
    fn run(&mut self, program: &str) -> Result<Vec<Vec<String>>> {
        let input = self.child.stdin.as_mut().context("no input")?;
        writeln!(input, "{}", serde_json::to_string(program)?)?;
        input.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("the instrumented Python ended")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
