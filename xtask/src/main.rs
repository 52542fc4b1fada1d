//! Developer tasks, run as `cargo xtask TASK`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a developer tool: it starts programs, reads its environment and prints for a person"
)]

mod bench;
mod docs;
mod peers;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask TASK [ARGUMENT...]

Tasks:
  test     Install and start the peers, then run every test
  peers    Start, stop and list the real peers that tests talk to
  tidy     Check what a reader expects of the tree (also a test)
  docs     Write the pages that are made from the code
  bench    Measure against the Python program: bench startup, exec, docker
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
    outcome.unwrap_or_else(|fault| {
        eprintln!("error: {fault:#}");
        ExitCode::FAILURE
    })
}

/// The top of the tree.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
