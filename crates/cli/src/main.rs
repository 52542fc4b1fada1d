//! The `hermes` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The sandbox runs this program again as its helper, which must start before any thread.
    hermes_sandbox::helper_main();
    hermes_cli::run()
}
