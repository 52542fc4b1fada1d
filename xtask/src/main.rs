//! Developer tasks, run as `cargo xtask TASK`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a developer tool: it starts programs, reads its environment and prints for a person"
)]

mod attack;
mod bench;
mod docs;
mod fuzz;
mod lines;
mod messages;
mod peers;
mod source;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask TASK [ARGUMENT...]

Tasks:
  test     Install and start the peers, then run every test
  peers    Start, stop and list the real peers that tests talk to
  tidy     Check names, layout and dependencies (also runs as a test)
  docs     Write the pages and message files that are generated from the code
  lines    Count the product code of each crate
  attack   Run lists of dangerous and ordinary commands for real: attack [--guard MODE] FILE...
  fuzz     Compare the gate with real shells: fuzz gate [--seconds N] [--seed N] [--shell bash|sh]
  bench    Measure against other programs: bench startup, exec, docker, agent, gateway
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let outcome = match task.as_deref() {
        Some("test") => test::main(&rest),
        Some("peers") => peers::main(&rest),
        Some("tidy") => tidy::main(),
        Some("docs") => docs::main(),
        Some("lines") => lines::main(),
        Some("attack") => attack::main(&rest),
        Some("fuzz") => fuzz::main(&rest),
        Some("bench") => bench::main(&rest),
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => {
            eprintln!("error: unknown task `{other}`\n\n{HELP}");
            Ok(ExitCode::from(2))
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The top of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
