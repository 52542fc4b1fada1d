//! A measured process: one JSON line per request and per response.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The process exits when its standard input closes.
pub(super) struct SubjectProcess {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
}

impl SubjectProcess {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let responses =
            BufReader::new(child.stdout.take().context("the measured process has no standard output")?);
        Ok(Self { requests: child.stdin.take(), responses, child })
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Value> {
        let requests = self.requests.as_mut().context("the measured process has no standard input")?;
        writeln!(requests, "{}", serde_json::to_string(words)?).context("the measured process has ended")?;
        let mut response = String::new();
        self.responses.read_line(&mut response)?;
        ensure!(!response.is_empty(), "no response to {words:?}");
        Ok(serde_json::from_str(&response)?)
    }
}

impl Drop for SubjectProcess {
    fn drop(&mut self) {
        self.requests = None;
        if let Err(error) = self.child.wait() {
            eprintln!("cannot wait for a measured process: {error}");
        }
    }
}
