//! Hermes is no tool against itself: from a command that it runs, only harmless subcommands work.
//!
//! The gate already judges `hermes` in a command. This check holds for whatever the gate did not
//! see: scripts, copies and links of the program. A command cannot drop its ancestors, because the
//! guest adopts orphaned descendants.

use std::fs;

use hermes_types::process::GUEST_PROCESS_NAME;

use crate::args::Command;
use crate::{Failure, Result};

/// The subcommands that change nothing, run nothing and show no conversation.
const HARMLESS: &[&str] = &[
    "approvals grants", "approvals ls", "approvals test", "completions", "config check", "config explain",
    "config get", "config path", "config schema", "config show", "doctor", "gateway status", "process log",
    "process ls", "process wait", "sandbox ls", "sandbox show", "status", "tool ls",
];

/// Refuses a subcommand, named by its words, that a command of Hermes must not use.
pub(crate) fn check(words: &str, command: &Command) -> Result<()> {
    let is_harmless = HARMLESS.contains(&words) && !matches!(command, Command::Doctor { live: true, .. });
    if is_harmless || !is_below_guest() {
        return Ok(());
    }
    let name = format!("hermes {words}");
    Err(Failure::refused(format!(
        "cannot run '{}' from a command that Hermes runs: it could change what Hermes allows",
        name.trim_end()
    ))
    .hint("Run it in a terminal of your own."))
}

/// Whether an ancestor of this process is a guest.
fn is_below_guest() -> bool {
    let mut pid = std::process::id();
    while let Some((name, parent)) = name_and_parent(pid) {
        if name == GUEST_PROCESS_NAME {
            return true;
        }
        pid = parent;
    }
    false
}

/// The name of a process and the pid of its parent; `None` beyond the first process.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, so it ends at the last parenthesis.
    let (start, rest) = stat.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    /// The words of all subcommands that have none of their own.
    fn all_subcommands() -> Vec<String> {
        let mut found = vec![String::new()];
        for first in Args::command().get_subcommands() {
            let name = first.get_name().to_owned();
            if first.has_subcommands() {
                found.extend(first.get_subcommands().map(|second| format!("{name} {}", second.get_name())));
            } else {
                found.push(name);
            }
        }
        found
    }

    #[test]
    fn every_subcommand_is_harmless_or_refused() {
        const REFUSED: &[&str] = &[
            "", "approvals approve", "approvals deny", "approvals revoke", "chat", "config edit",
            "config migrate", "config set", "config unset", "exec", "fill-pool", "gateway run", "keep-proxy",
            "pairing approve", "pairing clear-pending", "pairing ls", "pairing revoke", "process kill",
            "process write", "sandbox prune", "sandbox pull", "sandbox rm", "send", "sessions export",
            "sessions ls", "sessions prune", "sessions rm", "sessions search", "sessions show", "shell",
            "tool call",
        ];
        let mut known: Vec<&str> = HARMLESS.iter().chain(REFUSED).copied().collect();
        known.sort_unstable();
        let mut all = all_subcommands();
        all.sort_unstable();
        assert_eq!(all, known, "decide about each subcommand");
    }

    #[test]
    fn the_parent_of_a_process_with_any_name_is_found() {
        let (_, parent) = name_and_parent(std::process::id()).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert_eq!(name_and_parent(0), None);
    }
}
