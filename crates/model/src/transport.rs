//! The HTTP client, made when it is first needed: a server on this machine needs no certificates, and reading those takes longer
//! than all the rest of a start.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{NoProxy, Url, redirect};
use rustls::RootCertStore;

use crate::error::{Class, Fault};
use crate::tls;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// Connections to one server that are kept for the next request.
const IDLE: usize = 8;

/// Which way requests go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    /// For `http` addresses.
    pub http: Option<Url>,
    /// For `https` addresses.
    pub https: Option<Url>,
    /// The hosts that are reached without one, as in `NO_PROXY`.
    pub except: String,
}

#[derive(Debug, Default)]
pub(crate) struct Transport {
    proxy: Proxy,
    plain: OnceLock<Result<reqwest::Client, String>>,
    secure: OnceLock<Result<reqwest::Client, String>>,
}

impl Transport {
    pub(crate) fn new(proxy: Proxy) -> Self {
        Self { proxy, ..Self::default() }
    }

    /// The client for an address.
    pub(crate) fn client(&self, url: &Url) -> Result<&reqwest::Client, Fault> {
        let secure =
            url.scheme() == "https" || self.proxy.http.as_ref().is_some_and(|url| url.scheme() == "https");
        let made = match secure {
            true => self.secure.get_or_init(|| self.build(tls::roots()?)),
            false => self.plain.get_or_init(|| self.build(RootCertStore::empty())),
        };
        made.as_ref().map_err(|error| Fault::new(Class::Untrusted, error.clone()))
    }

    fn build(&self, roots: RootCertStore) -> Result<reqwest::Client, String> {
        // A key must not travel to another host, so no redirect is followed.
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client(roots)?)
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(IDLE)
            .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        let chosen = [
            self.proxy.http.clone().map(reqwest::Proxy::http),
            self.proxy.https.clone().map(reqwest::Proxy::https),
        ];
        for proxy in chosen.into_iter().flatten() {
            let proxy = proxy.map_err(|error| error.to_string())?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&self.proxy.except)));
        }
        builder.build().map_err(|error| error.to_string())
    }
}

/// An error of the HTTP client, with what lies beneath it and without the address.
pub(crate) fn fault(error: reqwest::Error) -> Fault {
    let class = match &error {
        error if tls::is_untrusted(error) => Class::Untrusted,
        error if error.is_timeout() && !error.is_connect() => Class::Timeout,
        error if error.is_connect() => Class::Unreachable,
        error if error.is_builder() => Class::Format,
        _ => Class::Dropped,
    };
    let host = error.url().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let error = error.without_url();
    let why = tls::why_and_remedy(&error);
    let message = match class {
        Class::Unreachable | Class::Untrusted => format!("{host} cannot be reached: {why}"),
        Class::Timeout => format!("{host} did not answer in time"),
        _ => format!("the connection to {host} was lost: {why}"),
    };
    Fault::new(class, message)
}
