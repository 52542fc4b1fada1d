//! `cargo xtask bench exec`: the cost of running commands, compared with bash, bubblewrap and the
//! Python program.

mod bars;
mod leftovers;
mod wrapped;

use std::process::ExitCode;

use anyhow::Result;

use super::comparison::{Comparison, Group};

pub(super) use leftovers::inside as leftovers;

const GROUPS: &[(&str, Group)] = &[
    ("no-op", bars::no_op),
    ("new-place", bars::new_place),
    ("whole", bars::whole),
    ("output", bars::output),
    ("crowd", bars::crowd),
    ("tree", bars::tree),
    ("files", bars::files),
    ("leftovers", leftovers::row),
];

pub(super) fn main(args: &[String]) -> Result<ExitCode> {
    let driver = include_str!("exec/hermes.py");
    Comparison { name: "exec", driver, groups: GROUPS, env: Vec::new() }.run(args)
}
