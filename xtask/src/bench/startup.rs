//! `cargo xtask bench startup`: the duration of `hermes --version`, compared with the Python
//! program.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use super::{build_hermes, median_and_p99, peak_memory, python_hermes, time};

const OUR_RUNS: usize = 500;
const THEIR_RUNS: usize = 25;

pub(super) fn main() -> Result<ExitCode> {
    let (ours, theirs) = (build_hermes()?, python_hermes()?);
    let home = std::env::temp_dir().join("hermes-bench-no-home");
    let run = |program: &std::path::Path| {
        let mut command = Command::new(program);
        command.arg("--version").env("HERMES_HOME", &home);
        command
    };
    // Once each before measuring: the Python program writes its compiled files then.
    time(&mut run(&ours))?;
    time(&mut run(&theirs))?;
    let (mut our_times, mut their_times, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..OUR_RUNS {
        our_times.push(time(&mut run(&ours))?);
        floor.push(time(Command::new("bash").args(["-c", "true"]))?);
        if round % (OUR_RUNS / THEIR_RUNS) == 0 {
            their_times.push(time(&mut run(&theirs))?);
        }
    }
    let (ours_ms, ours_p99) = median_and_p99(our_times);
    let (theirs_ms, theirs_p99) = median_and_p99(their_times);
    let (floor_ms, floor_p99) = median_and_p99(floor);
    let memory = |program: &std::path::Path| peak_memory(&[program.to_str().context("path")?, "--version"]);
    println!("| `--version`          | median ms | p99 ms | peak MB |");
    println!("|----------------------|-----------|--------|---------|");
    println!("| hermes (this)        | {ours_ms:9.2} | {ours_p99:6.2} | {:7.1} |", memory(&ours)?);
    println!("| hermes 0.19 (Python) | {theirs_ms:9.2} | {theirs_p99:6.2} | {:7.1} |", memory(&theirs)?);
    println!("| `bash -c true`       | {floor_ms:9.2} | {floor_p99:6.2} |         |");
    println!("\n{:.0} times faster than hermes 0.19", theirs_ms / ours_ms);
    Ok(ExitCode::SUCCESS)
}
