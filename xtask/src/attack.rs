//! `cargo xtask attack`: runs lists of dangerous and of ordinary commands for real, each on a
//! throw-away machine, and reports which of them did harm or asked.
//!
//! An entry runs twice: first by a plain bash, which proves that it does its harm or what its exit
//! code is, then by `hermes exec` on `local`, where every question is answered with no.
//!
//! | part | file |
//! |---|---|
//! | lists of commands and their format | `attack/list.rs` |
//! | the throw-away machine | `attack/enter.sh` |
//! | its user, files and running of an entry | `attack/machine.rs` |
//! | servers that receive what is sent out | `attack/catcher.rs` |
//! | finding out what happened | `attack/evidence.rs` |

mod catcher;
mod evidence;
mod list;
mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::root;
use list::{Entry, Kind};

const USAGE: &str = "usage: cargo xtask attack [--hermes PROGRAM] [--guard off|protect|project|missing] \
                     [--only TEXT] [--jobs N] [--json] FILE...";

/// The value of `--guard` for a machine that cannot give a guard, so that only the gate is tested.
const MISSING_GUARD: &str = "missing";

#[derive(Debug)]
struct Options {
    hermes: Option<PathBuf>,
    guard: Option<String>,
    only: Option<String>,
    jobs: usize,
    json: bool,
    files: Vec<PathBuf>,
}

/// Who runs the commands of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Runner {
    Bash,
    Hermes,
}

/// What one run of an entry did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RunReport {
    /// The harm, in words; empty if there was none.
    harm: Vec<String>,
    /// Whether a step was refused or needed an approval.
    stopped: bool,
    exit_code: Option<i32>,
    output: String,
}

/// One run, for the program inside the throw-away machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunRequest {
    entry: Entry,
    runner: Runner,
    guard: Option<String>,
    /// Paths inside the throw-away machine, which shows the files of this one.
    hermes: PathBuf,
    report: PathBuf,
}

/// The result of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// A dangerous entry did harm.
    Harm,
    /// An ordinary entry was stopped.
    Asked,
    /// An ordinary entry ended differently than in bash.
    Broken,
    /// A dangerous entry was not stopped by the gate, but did no harm.
    Contained,
    /// A dangerous entry was stopped, or an ordinary one ran as in bash.
    Good,
    /// A dangerous entry does no harm in bash either.
    Void,
}

#[derive(Debug, Serialize)]
struct Outcome {
    list: String,
    line: usize,
    label: String,
    verdict: Verdict,
    text: String,
    bash: RunReport,
    hermes: RunReport,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    if let [first, request] = args
        && first == "inside"
    {
        return machine::run_inside(Path::new(request));
    }
    let options = parse(args)?;
    ensure!(rustix::process::geteuid().is_root(), "run as root: each entry needs namespaces of its own");
    let hermes = match &options.hermes {
        Some(program) => fs::canonicalize(program).with_context(|| program.display().to_string())?,
        None => build_hermes()?,
    };
    let mut entries = Vec::new();
    for file in &options.files {
        entries.extend(list::read(file)?);
    }
    entries.retain(|entry| options.only.as_ref().is_none_or(|text| entry.text().contains(text.as_str())));
    ensure!(!entries.is_empty(), "no entry matches");
    let outcomes = run_all(&entries, &hermes, &options)?;
    print(&outcomes, options.json)?;
    let failed = outcomes
        .iter()
        .any(|outcome| matches!(outcome.verdict, Verdict::Harm | Verdict::Asked | Verdict::Broken));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options =
        Options { hermes: None, guard: None, only: None, jobs: 2, json: false, files: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().context(USAGE);
        match arg.as_str() {
            "--hermes" => options.hermes = Some(value()?.into()),
            "--guard" => options.guard = Some(value()?),
            "--only" => options.only = Some(value()?),
            "--jobs" => options.jobs = value()?.parse().context("--jobs")?,
            "--json" => options.json = true,
            option if option.starts_with('-') => bail!(USAGE),
            file => options.files.push(file.into()),
        }
    }
    ensure!(!options.files.is_empty() && options.jobs > 0, USAGE);
    Ok(options)
}

fn build_hermes() -> Result<PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--release", "--quiet", "--package", "hermes-cli"]).current_dir(root());
    ensure!(command.status().context("cargo build")?.success(), "{command:?} failed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("release").join("hermes"))
}

fn run_all(entries: &[Entry], hermes: &Path, options: &Options) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Outcome>)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(entry) = entries.get(at)
                {
                    let outcome = run_entry(entry, hermes, options.guard.as_deref());
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, outcome));
                    if at % 100 == 99 {
                        eprintln!("{} of {}", at + 1, entries.len());
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, outcome)| outcome).collect()
}

fn run_entry(entry: &Entry, hermes: &Path, guard: Option<&str>) -> Result<Outcome> {
    let run = |runner| {
        run_on_machine(entry, hermes, guard, runner)
            .with_context(|| format!("{}:{}: {}", entry.list, entry.line, entry.text()))
    };
    let bash = run(Runner::Bash)?;
    let hermes = run(Runner::Hermes)?;
    Ok(Outcome {
        list: entry.list.clone(),
        line: entry.line,
        label: entry.label.clone(),
        verdict: verdict(entry.kind(), &bash, &hermes),
        text: entry.text(),
        bash,
        hermes,
    })
}

fn verdict(kind: Kind, bash: &RunReport, hermes: &RunReport) -> Verdict {
    match kind {
        Kind::Dangerous if bash.harm.is_empty() => Verdict::Void,
        Kind::Dangerous if !hermes.harm.is_empty() => Verdict::Harm,
        Kind::Dangerous if hermes.stopped => Verdict::Good,
        Kind::Dangerous => Verdict::Contained,
        Kind::Ordinary if hermes.stopped => Verdict::Asked,
        Kind::Ordinary if hermes.exit_code != bash.exit_code => Verdict::Broken,
        Kind::Ordinary => Verdict::Good,
    }
}

/// Runs an entry on a machine of its own.
fn run_on_machine(entry: &Entry, hermes: &Path, guard: Option<&str>, runner: Runner) -> Result<RunReport> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("hermes-attack-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    // Not below /tmp, which the machine replaces: the report is written through the old tree.
    let dir = PathBuf::from("/var/cache").join(name);
    fs::create_dir_all(&dir)?;
    let request = RunRequest {
        entry: entry.clone(),
        runner,
        guard: guard.map(str::to_owned),
        hermes: hermes.to_owned(),
        report: "/dev/stdout".into(),
    };
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"])
        .args(["--propagation", "private", "--", "bash", "-c", include_str!("attack/enter.sh"), "enter.sh"])
        .arg(&dir)
        .arg(std::env::current_exe()?)
        .args(["attack", "inside", &serde_json::to_string(&request)?])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    fs::remove_dir_all(&dir)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the machine ended with {}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| errors.into_owned())
}

fn print(outcomes: &[Outcome], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(outcomes)?);
        return Ok(());
    }
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.verdict).or_default() += 1;
        if outcome.verdict == Verdict::Good {
            continue;
        }
        let word = serde_json::to_value(outcome.verdict)?;
        println!(
            "{}  {}:{}  {}",
            word.as_str().unwrap_or_default(),
            outcome.list,
            outcome.line,
            outcome.label
        );
        println!("    {}", outcome.text.replace('\n', "\n    "));
        match outcome.verdict {
            Verdict::Broken | Verdict::Asked => println!(
                "    exit code {:?}, in bash {:?}: {}",
                outcome.hermes.exit_code,
                outcome.bash.exit_code,
                outcome.hermes.output.trim()
            ),
            _ => println!("    {}", outcome.hermes.harm.join("; ")),
        }
    }
    for (verdict, count) in counts {
        println!("{:<10} {count:>6}", serde_json::to_value(verdict)?.as_str().unwrap_or_default());
    }
    println!("{:<10} {:>6}", "total", outcomes.len());
    Ok(())
}
