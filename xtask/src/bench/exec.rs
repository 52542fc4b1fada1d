//! What running commands costs, beside bash, bubblewrap and the Python program: `cargo xtask bench exec`.

mod bars;
mod leftovers;
mod wrapped;

use std::process::ExitCode;

use anyhow::Result;

use super::contest::{Contest, Group};

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
    Contest { name: "exec", driver, groups: GROUPS, env: Vec::new() }.hold(args)
}
