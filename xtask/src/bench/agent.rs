//! `cargo xtask bench agent`: a turn of the whole program, compared with the Python program, on the
//! same model server.

mod relay;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::comparison::Subject;
use super::comparison::table::{Bar, Format, Row, print};
use super::{build_example, build_hermes, peak_memory, python_hermes};
use crate::{peers, root};
use relay::Relay;

const OUR_ROUNDS: usize = 30;
const THEIR_ROUNDS: usize = 5;
/// The limit of each step that is not measured.
const START_TIMEOUT: Duration = Duration::from_secs(120);

type Group = fn(&AgentBench) -> Result<Vec<Row>>;

const GROUPS: &[(&str, Group)] = &[
    ("launch", AgentBench::launch),
    ("batch", AgentBench::batch),
    ("memory", AgentBench::memory),
    ("interrupt", AgentBench::interrupt),
    ("code", AgentBench::code),
];

pub(super) fn main(args: &[String]) -> Result<ExitCode> {
    let usage = "usage: cargo xtask bench agent [--only NAME] [--json]";
    let (mut only, mut format) = (None, Format::Table);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--json" => format = Format::Json,
            "--only" => only = Some(words.next().context(usage)?),
            _ => bail!(usage),
        }
    }
    let bench = AgentBench::new()?;
    let mut rows = Vec::new();
    for (name, measure) in GROUPS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        eprintln!("measuring {name}");
        rows.extend(measure(&bench).with_context(|| (*name).to_owned())?);
    }
    ensure!(!rows.is_empty(), usage);
    print(&rows, format)?;
    Ok(if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Both programs, each with its own home.
struct AgentBench {
    ours: PathBuf,
    theirs: PathBuf,
    model: PathBuf,
    folder: PathBuf,
}

impl AgentBench {
    fn new() -> Result<Self> {
        let (ours, model) = (build_hermes()?, build_example("scripted-model")?);
        let folder = std::env::temp_dir().join(format!("hermes-bench-{}", std::process::id()));
        for who in [Subject::Ours, Subject::Theirs] {
            fs::create_dir_all(folder.join(who.as_str()))?;
        }
        Ok(Self { ours, theirs: python_hermes()?, model, folder })
    }

    fn launch(&self) -> Result<Vec<Row>> {
        let script = json!({"always": answer_step(&[json!({"text": "hello"})])});
        let first = |run: &Run| run.requests.first().map(|at| at.duration_since(run.began));
        let (ours, theirs) = self.run_in_turns(&script, first)?;
        Ok(vec![Row::at_least_faster("launch to the first request", &ours, ("hermes 0.19", &theirs), 50.0)])
    }

    fn batch(&self) -> Result<Vec<Row>> {
        let calls: Vec<Value> =
            (1..=5).map(|n| terminal_call(&format!("call_{n}"), &format!("echo {n}"))).collect();
        let script = json!({"steps": [answer_step(&calls), answer_step(&[json!({"text": "done"})])]});
        let between = |run: &Run| match run.requests.as_slice() {
            [first, second, ..] => Some(second.duration_since(*first)),
            _ => None,
        };
        let (ours, theirs) = self.run_in_turns(&script, between)?;
        Ok(vec![Row::at_least_faster("five `echo` in one answer", &ours, ("hermes 0.19", &theirs), 20.0)])
    }

    fn memory(&self) -> Result<Vec<Row>> {
        let script = json!({"always": answer_step(&[json!({"text": "hello"})])});
        let mut peaks = Vec::new();
        for who in [Subject::Ours, Subject::Theirs] {
            let server = self.server(&script)?;
            let command = self.command(who, &server.relay)?;
            let mut words = vec!["env".to_owned()];
            for (name, value) in command.get_envs() {
                let value = value.context("the variable has no value")?;
                words.push(format!("{}={}", name.display(), value.display()));
            }
            words.push(command.get_program().display().to_string());
            words.extend(command.get_args().map(|word| word.display().to_string()));
            peaks.push(peak_memory(&words.iter().map(String::as_str).collect::<Vec<_>>())?);
        }
        let [ours, theirs] = peaks[..] else { bail!("expected two measurements") };
        Ok(vec![Row::share("peak memory of a turn", "MB", ours, ("hermes 0.19", theirs), 0.25)])
    }

    fn interrupt(&self) -> Result<Vec<Row>> {
        let calls = [terminal_call("call_1", "sleep 20"), terminal_call("call_2", "sleep 20")];
        let script = json!({"steps": [answer_step(&calls)]});
        let mut taken = Vec::new();
        for _ in 0..5 {
            let server = self.server(&script)?;
            let mut child = self
                .command(Subject::Ours, &server.relay)?
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let deadline = Instant::now() + START_TIMEOUT;
            while server.relay.requests().is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_secs(1));
            let began = Instant::now();
            kill_process(Pid::from_child(&child), Signal::INT)?;
            let status = child.wait()?;
            taken.push(began.elapsed().as_secs_f64());
            ensure!(!status.success(), "the turn was not interrupted");
        }
        Ok(vec![Row::figures("interrupt during two tools of 20 s", "s", &taken, Bar::AtMost(0.5))])
    }

    fn code(&self) -> Result<Vec<Row>> {
        let (socket, image) =
            peers::docker().context("the peer `docker`; start it with: cargo xtask peers up docker")?;
        let mut command = Command::new(build_example("code_speed")?);
        let output = command.arg(socket).arg(image).current_dir(root()).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{command:?} ended with {}", output.status);
        let mut rows = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let report: Value = serde_json::from_str(line)?;
            let backend = report["backend"].as_str().context("the report has no `backend`")?.to_owned();
            let figures = |name: &str| -> Result<Vec<f64>> {
                report[name]
                    .as_array()
                    .context("the report has no figures")?
                    .iter()
                    .map(|one| one.as_f64().context("the figure is not a number"))
                    .collect()
            };
            let (bare, direct) = (figures("bare")?, figures("direct")?);
            let name = format!("a script that prints, {backend}");
            rows.push(Row::at_most_slower(&name, &figures("script")?, ("python3 -c", &bare), 2.0));
            let most = if backend == "docker" { 2.0 } else { 1.0 };
            let name = format!("a call inside a script, {backend}");
            rows.push(Row::at_most_later(&name, &figures("inside")?, ("made directly", &direct), most));
        }
        Ok(rows)
    }

    /// Runs both programs in turns, each with a new server, and returns the figures of each.
    fn run_in_turns(
        &self,
        script: &Value,
        figure: impl Fn(&Run) -> Option<Duration>,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=OUR_ROUNDS {
            let mut runs = vec![(Subject::Ours, &mut ours)];
            if round % (OUR_ROUNDS / THEIR_ROUNDS) == 0 {
                runs.push((Subject::Theirs, &mut theirs));
            }
            for (who, figures) in runs {
                let run = self.run(who, script)?;
                let figure = figure(&run).with_context(|| format!("{who:?} did not ask the model"))?;
                // The first round has cold caches and writes compiled files.
                if round > 0 {
                    figures.push(figure.as_secs_f64());
                }
            }
        }
        Ok((ours, theirs))
    }

    fn run(&self, who: Subject, script: &Value) -> Result<Run> {
        let server = self.server(script)?;
        let mut command = self.command(who, &server.relay)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{command:?} ended with {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Run { began, requests: server.relay.requests() })
    }

    fn command(&self, who: Subject, relay: &Relay) -> Result<Command> {
        let home = self.folder.join(who.as_str());
        let config = format!(
            "model:\n  default: scripted\n  provider: custom\n  base_url: http://{}/v1\n  api_key: none\n  context_length: 200000\n\
             terminal:\n  backend: local\n",
            relay.address()
        );
        fs::write(home.join("config.yaml"), config)?;
        let mut command = match who {
            Subject::Ours => Command::new(&self.ours),
            Subject::Theirs => Command::new(&self.theirs),
        };
        command.args(match who {
            Subject::Ours => ["chat", "-q", "say hi"].as_slice(),
            Subject::Theirs => &["-z", "say hi"],
        });
        command.current_dir(&home).env("HERMES_HOME", &home).env("HOME", &home).env("XDG_RUNTIME_DIR", &home);
        Ok(command)
    }

    fn server(&self, script: &Value) -> Result<Server> {
        let path = self.folder.join("script.json");
        fs::write(&path, script.to_string())?;
        Server::start(&self.model, &path)
    }
}

impl Drop for AgentBench {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

/// One run, with the times of the model requests.
struct Run {
    began: Instant,
    requests: Vec<Instant>,
}

/// The scripted model, behind a relay that records times.
struct Server {
    relay: Relay,
    child: Child,
    input: Option<ChildStdin>,
}

impl Server {
    fn start(program: &Path, script: &Path) -> Result<Self> {
        let mut child =
            Command::new(program).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the scripted model has no standard output")?)
            .read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("http://").context("the scripted model printed no address")?.parse()?;
        let input = child.stdin.take();
        Ok(Self { relay: Relay::start(address)?, child, input })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        // Its exit code reports protocol violations, which matter only in tests.
        if let Err(error) = self.child.wait() {
            eprintln!("cannot wait for the scripted model: {error}");
        }
    }
}

fn answer_step(items: &[Value]) -> Value {
    json!({"reply": {"items": items}})
}

fn terminal_call(id: &str, command: &str) -> Value {
    json!({"call": {"id": id, "name": "terminal", "arguments": json!({"command": command}).to_string()}})
}
