//! How Hermes connects to servers: HTTP clients, TLS roots, proxies and readable transport errors.
//!
//! Invariants:
//!
//! - A client never follows redirects by itself: a key or token must not travel to another host.
//! - A client never reads proxy variables of the environment by itself; the caller passes the proxy.
//! - Certificates are always verified, and nothing turns that off.
//! - Certificates are read on first use: that takes longer than everything else at startup, and
//!   servers on this machine need none.
//!
//! Start with [`client_builder`] for HTTP and [`Connector`] for streams. `tls.rs` has the trusted
//! certificates, `proxy.rs` the proxies; `explain.rs` turns an error of any layer into the sentence
//! that a user can search for.

mod connector;
mod explain;
mod proxy;
mod tls;

use reqwest::{Client, ClientBuilder, redirect};
use rustls::ClientConfig;
use thiserror::Error as ThisError;

pub use connector::{ConnectError, Connector, NetStream};
pub use explain::{PROXY_AUTH_REQUIRED, explain, explain_with_remedy, is_untrusted};
pub use proxy::{EnvProxies, ProxyServer};
pub use reqwest::Url;
pub use tls::{TlsSettings, config_without_roots};

/// A connection cannot be set up. Errors of a connection that was tried are those of its library;
/// [`explain`] makes them readable.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    #[error("cannot read trusted certificates: {0}")]
    Roots(String),
    #[error(
        "no trusted certificates found. Install the package ca-certificates, or name a PEM file in \
         SSL_CERT_FILE."
    )]
    NoRoots,
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Proxy(String),
    #[error("cannot create HTTP client: {0}")]
    Client(String),
}

/// A builder with the settings that every client of Hermes shares. The caller adds timeouts,
/// proxies and fixed addresses.
pub fn client_builder(tls: ClientConfig) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
}

/// Builds the client.
pub fn build(builder: ClientBuilder) -> Result<Client, Error> {
    builder.build().map_err(|error| Error::Client(explain(&error)))
}
