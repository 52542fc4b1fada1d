//! Kills `hermes` at random moments and counts the containers that are left after one idle
//! lifetime.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::IMAGE_VAR;
use super::registry::Registry;
use crate::bench::comparison::Bench;
use crate::bench::comparison::table::{Bar, Row};
use crate::bench::random_fraction;

const KILLS: u32 = 100;
const LIFETIME: Duration = Duration::from_secs(2);
/// The background command.
const BACKGROUND: &str = "sleep 1";
/// Extra time for a busy engine and for the interval between two cleanups.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Sessions with a running command while the containers are counted.
const LIVE: [&str; 3] = ["live 1", "live 2", "live 3"];

pub(super) fn rows(bench: &mut Bench) -> Result<Vec<Row>> {
    let home = bench.folder.home().join("killed");
    fs::create_dir_all(&home)?;
    let hermes = Hermes { program: bench.hermes.clone(), home, env: bench.env().to_vec() };
    let registry = Registry::new(&hermes.home.join("registry"), &bench.variable(IMAGE_VAR)?, bench.env())?;
    let began = Instant::now();
    hermes.run(&["exec", "--backend", "docker", "--session", "first", "--", "true"])?;
    let usual = began.elapsed();
    let began = Instant::now();
    let pulled = ["--image", &registry.image, "--", "true"];
    hermes.run(&[&["exec", "--backend", "docker", "--session", "pulled"], &pulled[..]].concat())?;
    let pulling = began.elapsed();
    let (mut running, mut seen) = (0, 0);
    for number in 0..KILLS {
        let session = format!("session {}", number % 8);
        let (session, words, span): (_, &[&str], _) = match number % 5 {
            0 => (format!("new {number}"), &["--", "true"], usual),
            1 => (session, &["--", "sleep 60"], 2 * usual),
            2 => (session, &["--background", "--", BACKGROUND], usual),
            3 => {
                registry.remove_image()?;
                (format!("pulled {number}"), &pulled, pulling)
            }
            _ => {
                hermes.run(&["exec", "--backend", "docker", "--session", "ending", "--", "true"])?;
                ("ending".to_owned(), &[], usual)
            }
        };
        let mut command = match words {
            [] => hermes.command(&["sandbox", "rm", &session]),
            words => hermes
                .command(&[&["exec", "--backend", "docker", "--session", session.as_str()], words].concat()),
        };
        let mut child = command.spawn()?;
        std::thread::sleep(span.mul_f64(random_fraction()));
        running += u32::from(child.try_wait()?.is_none());
        child.kill()?;
        child.wait()?;
        seen = seen.max(hermes.containers()?.len());
    }
    eprintln!(
        "{running} of {KILLS} were still running when killed; a pull takes {pulling:?}; up to {seen} containers existed at once"
    );
    ensure!(running > 0 && seen > 0, "no running command was killed, so the result proves nothing");
    for session in LIVE {
        hermes
            .run(&["exec", "--backend", "docker", "--session", session, "--background", "--", "sleep 600"])?;
    }
    let (left, missing) = hermes.wait_for_cleanup()?;
    left.iter().for_each(|one| eprintln!("left: {one}"));
    hermes.run(&[&["sandbox", "rm", "--force"], &LIVE[..]].concat())?;
    hermes.run(&["sandbox", "prune", "--files"])?;
    let pruned = hermes.containers()?;
    pruned.iter().for_each(|one| eprintln!("left after `hermes sandbox prune`: {one}"));
    let count = |name: &str, count: usize| -> Result<Row> {
        let count = f64::from(u32::try_from(count)?);
        Ok(Row::figures(&format!("{KILLS} kills: {name}"), "", &[count], Bar::AtMost(0.0)))
    };
    Ok(vec![
        count("containers that no session has", left.len())?,
        count("sessions without their container", missing)?,
        count("containers after `prune`", pruned.len())?,
    ])
}

/// A separate installation.
struct Hermes {
    program: PathBuf,
    home: PathBuf,
    env: Vec<(&'static str, OsString)>,
}

impl Hermes {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .envs(self.env.clone())
            .env("HERMES_HOME", &self.home)
            .env_remove("XDG_RUNTIME_DIR");
        command.env("TERMINAL_LIFETIME_SECONDS", LIFETIME.as_secs().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        let output = self.command(words).stderr(Stdio::piped()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "hermes {words:?} ended with {}: {stderr}", output.status);
        Ok(())
    }

    /// The names and states of all containers of this installation, running or not.
    fn containers(&self) -> Result<BTreeSet<String>> {
        let install = fs::read_to_string(self.home.join(".install-id"))?;
        let label = format!("label=hermes-install={}", install.trim());
        let mut command = Command::new("docker");
        command.args([
            "ps",
            "--all",
            "--filter",
            &label,
            "--format",
            "{{.Label \"hermes-place\"}} {{.Status}}",
        ]);
        let output = command.envs(self.env.clone()).stderr(Stdio::inherit()).output().context("docker ps")?;
        ensure!(output.status.success(), "{command:?} ended with {}", output.status);
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    /// Waits one idle lifetime, then until the containers match the live sessions. Returns orphaned
    /// containers and the number of sessions without one.
    fn wait_for_cleanup(&self) -> Result<(BTreeSet<String>, usize)> {
        // The engine may still be working on the last request.
        std::thread::sleep(LIFETIME);
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        loop {
            let mut left = self.containers()?;
            let mut missing = 0;
            for session in LIVE {
                let output =
                    self.command(&["--json", "sandbox", "show", session]).stdout(Stdio::piped()).output()?;
                let place: serde_json::Value = serde_json::from_slice(&output.stdout)?;
                let name = place["name"].as_str().unwrap_or("?");
                let before = left.len();
                left.retain(|one| !one.starts_with(&format!("{name} Up")));
                missing += usize::from(left.len() == before);
            }
            if (left.is_empty() && missing == 0) || Instant::now() > deadline {
                return Ok((left, missing));
            }
            // The next use of hermes removes leftovers.
            self.run(&["exec", "--backend", "docker", "--session", "live 1", "--", "true"])?;
            std::thread::sleep(LIFETIME / 2);
        }
    }
}
