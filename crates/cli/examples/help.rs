//! Prints the help pages of all commands, for `cargo xtask docs`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(hermes_cli::args::help_pages().as_bytes())
}
