//! `cargo xtask bench NAME`: measurements against other programs.
//!
//! Times are medians of many runs taken in turns, so that a busy machine slows all programs alike.
//! The ratio counts.

mod agent;
mod comparison;
mod docker;
mod exec;
mod gateway;
mod startup;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// The release of the Python program that we compare with.
const PYTHON_HERMES: &str = "hermes-agent==0.19.0";

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    match args.first().map(String::as_str) {
        Some("startup") => startup::main(),
        Some("agent") => agent::main(args.get(1..).unwrap_or_default()),
        Some("exec") => exec::main(args.get(1..).unwrap_or_default()),
        Some("gateway") => gateway::main(args.get(1..).unwrap_or_default()),
        Some("docker") => docker::main(args.get(1..).unwrap_or_default()),
        // Peak memory is known only for ended children, so each measurement has its own parent.
        Some("peak-memory") => peak_memory_of(args.get(1..).unwrap_or_default()),
        // It runs in its own namespaces, which a process with threads cannot enter.
        Some("leftovers") => exec::leftovers(args.get(1..).unwrap_or_default()),
        _ => bail!("usage: cargo xtask bench startup|agent|exec|docker|gateway"),
    }
}

/// The programs that measure parts of `hermes`, with their packages.
const EXAMPLES: [&str; 14] = [
    "--package", "hermes-agent", "--example", "code_speed", "--package", "hermes-exec", "--example",
    "contestant", "--package", "hermes-testkit", "--example", "gateway_speed", "--example", "scripted-model",
];

/// Builds `hermes` as it is shipped.
fn build_hermes() -> Result<PathBuf> {
    build(&["--package", "hermes-cli"])?;
    Ok(target().join("dist").join("hermes"))
}

/// Builds the examples, all at once so that shared crates are built once, and returns one of them.
fn build_example(name: &str) -> Result<PathBuf> {
    build(&EXAMPLES)?;
    Ok(target().join("dist").join("examples").join(name))
}

fn build(packages: &[&str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--profile", "dist", "--quiet"]).args(packages).current_dir(root());
    let status = command.status().context("cargo build")?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The Python program in its own virtual environment, installed on first use.
fn python_hermes() -> Result<PathBuf> {
    let folder = target().join("bench").join(PYTHON_HERMES.replace("==", "-"));
    let program = folder.join("bin").join("hermes");
    if !program.exists() {
        eprintln!("installing {PYTHON_HERMES} into {}", folder.display());
        fs::create_dir_all(&folder)?;
        for (name, args) in [
            ("python3", vec!["-m", "venv", folder.to_str().context("path")?]),
            (
                folder.join("bin").join("pip").to_str().context("path")?,
                vec!["install", "--quiet", PYTHON_HERMES],
            ),
        ] {
            let status =
                Command::new(name).args(args).stdout(Stdio::null()).status().context(name.to_owned())?;
            ensure!(status.success(), "{name} failed");
        }
    }
    Ok(program)
}

/// How long one run takes, output discarded.
fn time(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let taken = start.elapsed();
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(taken)
}

/// A random number between 0 and 1.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0) >> 32;
    bits as f64 / f64::from(u32::MAX)
}

/// The median and the 99th percentile, in milliseconds.
fn median_and_p99(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at =
        |share: usize| times.get((times.len().saturating_sub(1)) * share / 100).copied().unwrap_or_default();
    (at(50).as_secs_f64() * 1000.0, at(99).as_secs_f64() * 1000.0)
}

/// Peak memory of a command, in MB.
fn peak_memory(command: &[&str]) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "peak-memory"])
        .args(command)
        .stderr(Stdio::null())
        .output()?;
    let kib: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().context("peak memory")?;
    Ok(kib / 1024.0)
}

fn peak_memory_of(command: &[String]) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("usage: peak-memory PROGRAM [ARGUMENT...]")?;
    time(Command::new(program).args(args))?;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    println!("{}", usage.max_rss());
    Ok(ExitCode::SUCCESS)
}
