//! The HTTP clients for models, each created on first use.

use std::sync::OnceLock;
use std::time::Duration;

use hermes_net::{EnvProxies, TlsSettings, Url};

use crate::error::{FailureClass, RequestFailure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to one server that are kept for the next request.
const MAX_IDLE_CONNECTIONS: usize = 8;

type CachedClient = OnceLock<Result<reqwest::Client, hermes_net::Error>>;

#[derive(Debug, Default)]
pub(crate) struct Transport {
    proxies: EnvProxies,
    tls: TlsSettings,
    /// Needs no certificates, which take long to read.
    plain: CachedClient,
    secure: CachedClient,
}

impl Transport {
    pub(crate) fn new(proxies: EnvProxies) -> Self {
        Self { proxies, ..Self::default() }
    }

    /// The client for an address.
    pub(crate) fn client(&self, url: &Url) -> Result<&reqwest::Client, RequestFailure> {
        let proxy_scheme = self.proxies.http.as_ref().map(Url::scheme);
        let client = if url.scheme() == "https" || proxy_scheme == Some("https") {
            self.secure.get_or_init(|| self.build((*self.tls.config()?).clone()))
        } else {
            self.plain.get_or_init(|| self.build(hermes_net::config_without_roots()?))
        };
        client.as_ref().map_err(|error| RequestFailure::new(FailureClass::Untrusted, error.to_string()))
    }

    fn build(&self, tls: rustls::ClientConfig) -> Result<reqwest::Client, hermes_net::Error> {
        let builder = hermes_net::client_builder(tls)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS);
        hermes_net::build(self.proxies.apply(builder)?)
    }
}

/// The failure for an error of the HTTP client, without the address of the request.
pub(crate) fn failure(error: reqwest::Error) -> RequestFailure {
    let class = match &error {
        error if hermes_net::is_untrusted(error) => FailureClass::Untrusted,
        error if error.is_timeout() && !error.is_connect() => FailureClass::Timeout,
        error if error.is_connect() => FailureClass::Unreachable,
        error if error.is_builder() => FailureClass::Format,
        _ => FailureClass::Dropped,
    };
    let host = error.url().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let reason = hermes_net::explain_with_remedy(&error.without_url());
    let message = match class {
        FailureClass::Unreachable | FailureClass::Untrusted => format!("cannot connect to {host}: {reason}"),
        FailureClass::Timeout => format!("{host} did not respond in time"),
        _ => format!("lost the connection to {host}: {reason}"),
    };
    RequestFailure::new(class, message)
}
