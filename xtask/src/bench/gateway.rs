//! `cargo xtask bench gateway`: startup, memory and throughput of the gateway.

use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::comparison::table::{Bar, Format, Row, print};
use super::{build_example, build_hermes, python_hermes};
use crate::root;

/// Time that the Python program needs to start.
const STARTUP_DELAY: Duration = Duration::from_secs(15);

pub(super) fn main(args: &[String]) -> Result<ExitCode> {
    let format = match args {
        [] => Format::Table,
        [word] if word == "--json" => Format::Json,
        _ => bail!("usage: cargo xtask bench gateway [--json]"),
    };
    let ours = build_hermes()?;
    let folder = std::env::temp_dir().join(format!("hermes-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = measure(&ours, &folder).and_then(|report| Ok((report, theirs(&folder)?)));
    fs::remove_dir_all(&folder)?;
    let (report, theirs) = measured?;
    let figure = |name: &str| report[name].as_f64().with_context(|| format!("no {name}"));
    let ready: Vec<f64> =
        report["ready"].as_array().into_iter().flatten().filter_map(Value::as_f64).map(|s| s * 1e3).collect();
    let (idle, session) = (figure("idle_mb")?, figure("session_kib")?);
    let rows = [
        Row::figures("launch to connected", "ms", &ready, Bar::AtMost(200.0)),
        Row::figures("idle and connected", "MB", &[idle], Bar::AtMost(25.0)),
        Row::figures("each of 1,000 active sessions", "KiB", &[session], Bar::AtMost(100.0)),
        Row::figures("messages stored per second", "", &[figure("kept_per_second")?], Bar::AtLeast(2_000.0)),
        Row::share("idle, compared with one without a platform", "MB", idle, ("hermes 0.19", theirs), 1.0),
    ];
    print(&rows, format)?;
    Ok(if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(ours: &std::path::Path, folder: &std::path::Path) -> Result<Value> {
    let mut command = Command::new(build_example("gateway_speed")?);
    command.arg(ours).arg(folder).current_dir(root()).stderr(Stdio::inherit());
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Memory of the idle gateway of the Python program, in MB.
fn theirs(folder: &std::path::Path) -> Result<f64> {
    let home = folder.join("theirs");
    fs::create_dir_all(&home)?;
    let mut child = Command::new(python_hermes()?)
        .args(["gateway", "run"])
        .env("HERMES_HOME", &home)
        .env("HOME", &home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(STARTUP_DELAY);
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id()));
    child.kill()?;
    child.wait()?;
    let rollup = rollup.context("the Python program's gateway has ended")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
