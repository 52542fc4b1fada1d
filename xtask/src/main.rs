//! Developer tasks, run as `cargo xtask TASK`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a developer tool: it starts programs, reads its environment and prints for a person"
)]

mod peers;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask TASK [ARGUMENT...]

Tasks:
  peers    Start, stop and list the real peers that tests talk to
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let outcome = match task.as_deref() {
        Some("peers") => peers::main(&rest),
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
