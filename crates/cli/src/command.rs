//! One module per subcommand.

use crate::{Failure, Result};

pub(crate) mod approvals;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod fill_pool;
pub(crate) mod gateway;
pub(crate) mod keep_proxy;
pub(crate) mod pairing;
pub(crate) mod process;
pub(crate) mod sandbox;
pub(crate) mod send;
pub(crate) mod sessions;
pub(crate) mod shell;
pub(crate) mod status;
pub(crate) mod tool;

/// The only item that `id` names.
fn only_item<T>(mut found: Vec<T>, noun: &str, id: &str, list_hint: &str) -> Result<T> {
    match (found.pop(), found.len()) {
        (Some(item), 0) => Ok(item),
        (Some(_), more) => {
            Err(Failure::usage(format!("`{id}` matches {} {noun}s", more + 1)).hint(list_hint))
        }
        (None, _) => Err(Failure::failed(format!("no {noun} `{id}`")).hint(list_hint)),
    }
}
