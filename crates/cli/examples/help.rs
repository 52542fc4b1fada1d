//! Prints the help pages of all commands, for `cargo xtask docs`.

use std::io::{self, Write};

use clap::CommandFactory;
use hermes_cli::args::Args;

const WIDTH: usize = 100;

fn main() -> io::Result<()> {
    io::stdout().write_all(help_pages().as_bytes())
}

/// The content of `tests/snapshots/help.txt`.
pub(crate) fn help_pages() -> String {
    let mut root = Args::command();
    root.build();
    let mut pages = String::new();
    append_help_pages(&root, "hermes", &mut pages);
    pages
}

fn append_help_pages(command: &clap::Command, path: &str, pages: &mut String) {
    let help = command.clone().term_width(WIDTH).render_help().to_string();
    pages.push_str(&format!("$ {path} --help\n{}\n\n", help.trim_end()));
    let shown = |command: &&clap::Command| !command.is_hide_set() && command.get_name() != "help";
    for subcommand in command.get_subcommands().filter(shown) {
        append_help_pages(subcommand, &format!("{path} {}", subcommand.get_name()), pages);
    }
}
