//! A process that is asked, one line of JSON after the other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// It ends itself when nobody can ask it any more.
pub(super) struct Side {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Side {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let answers = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { questions: child.stdin.take(), answers, child })
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Value> {
        let questions = self.questions.as_mut().context("its input")?;
        writeln!(questions, "{}", serde_json::to_string(words)?).context("a side that has ended")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "no answer to {words:?}");
        Ok(serde_json::from_str(&answer)?)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.questions = None;
        if let Err(error) = self.child.wait() {
            eprintln!("a side could not be waited for: {error}");
        }
    }
}
