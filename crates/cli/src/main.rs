//! The `hermes` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A jail is made by this program in another role, before it has any thread.
    hermes_sandbox::helper_main();
    hermes_cli::run()
}
