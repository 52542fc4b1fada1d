//! The errors of this crate. A tool shows them to the model; a turn that fails because of the model
//! is no error but a [`StopReason`](crate::StopReason).

use std::time::Duration;

use hermes_exec::proxy::HostError;
use thiserror::Error;

use crate::Denied;
use crate::http::MAX_REDIRECTS;

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hermes_store::Error),
    #[error("cannot read the tool list that is stored with the session: {0}")]
    StoredTools(serde_json::Error),
    /// There is no permit.
    #[error("not allowed: {0}")]
    Denied(#[from] Denied),
    /// The execution environment failed.
    #[error(transparent)]
    Exec(#[from] hermes_exec::Error),
    #[error("interrupted")]
    Interrupted,

    #[error("it is outside of the workspace")]
    OutsideWorkspace,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// A file cannot be read, changed or copied. Without a path, the text follows the file's name.
    #[error("{0}")]
    File(String),

    #[error("invalid URL: {0}")]
    InvalidUrl(String),
    #[error("{host} {reason}")]
    Host { host: String, reason: HostError },
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("no answer within {} seconds", .0.as_secs())]
    FetchTimeout(Duration),
    #[error("cannot connect to {host}: {reason}")]
    Connection { host: String, reason: String },
    #[error("unsupported content encoding: {0}")]
    ContentEncoding(String),
    #[error("cannot decompress the page: {0}")]
    Decompression(std::io::Error),
    #[error(transparent)]
    Client(#[from] hermes_net::Error),
}
