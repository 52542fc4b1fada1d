//! `cargo xtask bench docker`: the cost of containers, compared with bash, the `docker` command and
//! the Python program.
//!
//! All of them use the engine of the peer `docker`.

mod bars;
mod leftovers;
mod registry;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::comparison::{Comparison, Group};
use crate::peers;

const GROUPS: &[(&str, Group)] = &[
    ("no-op", bars::no_op),
    ("new-container", bars::new_container),
    ("crowd", bars::crowd),
    ("leftovers", leftovers::rows),
];

/// The variables with the engine and the image for all programs.
const ENGINE_VAR: &str = "DOCKER_HOST";
const IMAGE_VAR: &str = "TERMINAL_DOCKER_IMAGE";

pub(super) fn main(args: &[String]) -> Result<ExitCode> {
    let (socket, image) =
        peers::docker().context("the peer `docker`; start it with: cargo xtask peers up docker")?;
    let driver = include_str!("docker/hermes.py");
    let env = vec![(ENGINE_VAR, address(&socket)), (IMAGE_VAR, image.into())];
    Comparison { name: "docker", driver, groups: GROUPS, env }.run(args)
}

fn address(socket: &Path) -> OsString {
    let mut address = OsString::from("unix://");
    address.push(socket);
    address
}
