//! A scripted model as a process: `scripted-model SCRIPT.json` listens at the script's address,
//! prints it, and serves until its standard input ends. Then it prints the invalid requests and
//! fails if there were any.

use std::io::{Read, Write};
use std::process::ExitCode;

use hermes_testkit::ScriptedModel;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: scripted-model SCRIPT.json")?;
    let script = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let model = ScriptedModel::start_script(script)?;
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", model.address())?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let failures = model.failures();
    for failure in &failures {
        writeln!(out, "{failure}")?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
