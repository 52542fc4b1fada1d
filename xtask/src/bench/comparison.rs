//! Comparison of several programs.
//!
//! Each program is a process that answers requests with figures, see [`subject`]. They run in
//! turns, and the ratio of the medians is compared with the bar.

mod subject;
pub(super) mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{build_example, build_hermes, python_hermes};
use subject::SubjectProcess;
use table::{Format, Row};

/// The id of the measured installation; hermes reads it from a file in its home.
const INSTALL_ID: &str = "be4c4000000000000000000000000000";

pub(super) type Group = fn(&mut Bench) -> Result<Vec<Row>>;

/// One benchmark command.
pub(super) struct Comparison {
    /// The word after `bench`.
    pub(super) name: &'static str,
    /// The Python script that measures the Python program.
    pub(super) driver: &'static str,
    pub(super) groups: &'static [(&'static str, Group)],
    /// Variables for all measured processes.
    pub(super) env: Vec<(&'static str, OsString)>,
}

impl Comparison {
    pub(super) fn run(self, args: &[String]) -> Result<ExitCode> {
        let usage = format!("usage: cargo xtask bench {} [--only NAME] [--json]", self.name);
        let (mut only, mut format) = (None, Format::Table);
        let mut words = args.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => format = Format::Json,
                "--only" => only = Some(words.next().with_context(|| usage.clone())?),
                _ => bail!(usage),
            }
        }
        let chosen: Vec<_> =
            self.groups.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.groups.iter().map(|(name, _)| *name).collect();
            bail!("{usage}\nnames: {}", names.join(", "));
        }
        let mut bench = Bench::new(self.driver, self.env)?;
        let mut rows = Vec::new();
        for (name, measure) in chosen {
            eprintln!("measuring {name}");
            rows.extend(measure(&mut bench).with_context(|| (*name).to_owned())?);
        }
        table::print(&rows, format)?;
        warn_of_load()?;
        Ok(if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Warns about a busy machine: processes that wait for each other are slowed more than a single
/// one.
fn warn_of_load() -> Result<()> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let load: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    let processors = std::thread::available_parallelism()?.get();
    // The average of the last minute includes one or two processes of the benchmark.
    if load > processors as f64 + 1.0 {
        eprintln!(
            "the machine is busy (load {load} on {processors} processors): ratios look worse than they are"
        );
    }
    Ok(())
}

/// The measured processes and their directory.
pub(super) struct Bench {
    /// A program that links this `hermes`.
    ours: SubjectProcess,
    /// The Python program, started on first use.
    theirs: Option<SubjectProcess>,
    driver: &'static str,
    env: Vec<(&'static str, OsString)>,
    pub(super) hermes: PathBuf,
    pub(super) folder: BenchDir,
}

/// The measured program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Ours,
    Theirs,
}

impl Subject {
    /// The name of the directory of this program.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "theirs",
        }
    }
}

impl Bench {
    fn new(driver: &'static str, env: Vec<(&'static str, OsString)>) -> Result<Self> {
        let (hermes, contestant) = (build_hermes()?, build_example("contestant")?);
        let folder = BenchDir::new()?;
        fs::write(folder.home().join(".install-id"), INSTALL_ID)?;
        let install: String = INSTALL_ID.chars().take(8).collect();
        let mut command = Command::new(contestant);
        command.arg(folder.home()).arg(folder.run().join(format!("hermes-{install}")));
        command.env("HERMES_HOME", folder.home()).env("XDG_RUNTIME_DIR", folder.run());
        command.current_dir(folder.workspace("workspace")?);
        command.envs(env.clone());
        let ours = SubjectProcess::start(&mut command)?;
        Ok(Self { ours, theirs: None, driver, env, hermes, folder })
    }

    /// Variables for all measured processes.
    pub(super) fn env(&self) -> &[(&'static str, OsString)] {
        &self.env
    }

    /// One of these variables, as text.
    pub(super) fn variable(&self, name: &str) -> Result<String> {
        let found = self.env.iter().find(|(known, _)| *known == name).context("the variable is not set")?;
        Ok(found.1.to_str().context("the variable is not UTF-8")?.to_owned())
    }

    pub(super) fn ask(&mut self, who: Subject, words: &[&str]) -> Result<Value> {
        match who {
            Subject::Ours => self.ours.ask(words),
            Subject::Theirs => self.theirs()?.ask(words),
        }
    }

    fn theirs(&mut self) -> Result<&mut SubjectProcess> {
        if self.theirs.is_none() {
            let workspace = self.folder.workspace("theirs")?;
            let mut command = Command::new(python_hermes()?.with_file_name("python"));
            command.args(["-c", self.driver]).current_dir(&workspace).envs(self.env.clone());
            command.env("HERMES_HOME", &workspace).env("HOME", &workspace);
            self.theirs = Some(SubjectProcess::start(&mut command)?);
        }
        self.theirs.as_mut().context("the Python program is not running")
    }

    /// Runs all requests in turns and returns the seconds of each.
    pub(super) fn run_in_turns(
        &mut self,
        rounds: usize,
        questions: &[(Subject, &[&str])],
    ) -> Result<Vec<Vec<f64>>> {
        let mut answers = vec![Vec::new(); questions.len()];
        for round in 0..=rounds {
            for ((who, words), answers) in questions.iter().zip(&mut answers) {
                let seconds =
                    self.ask(*who, words)?["seconds"].as_f64().context("the response has no `seconds`")?;
                // The first round has cold caches and creates the environments.
                if round > 0 {
                    answers.push(seconds);
                }
            }
        }
        Ok(answers)
    }
}

/// A temporary directory. Its path is short because socket paths are limited.
pub(super) struct BenchDir {
    path: PathBuf,
}

impl BenchDir {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("hermes-bench-{}", std::process::id()));
        let folder = Self { path };
        fs::create_dir_all(folder.home())?;
        fs::create_dir_all(folder.run())?;
        Ok(folder)
    }

    pub(super) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// A directory with a tree to search and a file to patch.
    pub(super) fn workspace(&self, name: &str) -> Result<PathBuf> {
        let workspace = self.home().join(name);
        fs::create_dir_all(workspace.join("tree"))?;
        let text = |file: usize| -> String {
            (0..200).map(|line| format!("line {line} of file {file}\n")).collect()
        };
        for file in 0..100 {
            fs::write(workspace.join("tree").join(format!("file{file}.txt")), text(file))?;
        }
        fs::write(workspace.join("patched.txt"), format!("{}alpha\n{}", text(1), text(2)))?;
        Ok(workspace)
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}

pub(super) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}
