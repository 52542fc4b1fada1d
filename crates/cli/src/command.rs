//! One module per subcommand.

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
