//! Proxies between a client and its servers.

use std::future::poll_fn;

use hermes_types::Secret;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, NoProxy, Proxy, Url};
use tokio::net::TcpStream;
use tower_service::Service as _;

use crate::{ConnectError, Error};

/// The proxies that the variables `http_proxy`, `https_proxy` and `no_proxy` name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvProxies {
    /// For `http` addresses.
    pub http: Option<Url>,
    /// For `https` addresses.
    pub https: Option<Url>,
    /// Hosts that are reached without a proxy, as in `NO_PROXY`.
    pub exceptions: String,
}

impl EnvProxies {
    pub fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, Error> {
        let proxies = [self.http.clone().map(Proxy::http), self.https.clone().map(Proxy::https)];
        for proxy in proxies.into_iter().flatten() {
            let proxy = proxy.map_err(|error| Error::Proxy(format!("invalid proxy address: {error}")))?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&self.exceptions)));
        }
        Ok(builder)
    }
}

/// One proxy for all connections: HTTP with `CONNECT`, or SOCKS5.
#[derive(Debug, Clone)]
pub struct ProxyServer {
    /// With the user name and password, if it has any.
    url: Secret,
    is_socks: bool,
}

impl ProxyServer {
    /// Parses `http://host:port` or `socks5://host:port`, with `user:password@` before the host if
    /// the proxy needs it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let url = Url::parse(text.trim())
            .map_err(|error| Error::Proxy(format!("invalid proxy address: {error}")))?;
        let is_socks = match url.scheme() {
            "http" => false,
            // The proxy always resolves host names.
            "socks5" | "socks5h" => true,
            other => {
                return Err(Error::Proxy(format!("unsupported scheme {other}://; use http:// or socks5://")));
            }
        };
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(Error::Proxy("the proxy address has no host".to_owned()));
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(Error::Proxy("the proxy address must have only a host and a port".to_owned()));
        }
        let credentials = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, password) => format!("{user}:{}@", password.unwrap_or_default()),
        };
        let port = url.port_or_known_default().unwrap_or(1080);
        let scheme = if is_socks { "socks5h" } else { "http" };
        Ok(Self { url: Secret::new(format!("{scheme}://{credentials}{host}:{port}")), is_socks })
    }

    pub(crate) fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, Error> {
        // The error would show the password.
        let proxy =
            Proxy::all(self.url.expose()).map_err(|_| Error::Proxy("invalid proxy address".to_owned()))?;
        Ok(builder.proxy(proxy))
    }

    /// Connects to a server through the proxy.
    pub(crate) async fn connect(&self, server: &Uri) -> Result<TcpStream, ConnectError> {
        let matcher = Matcher::builder().all(self.url.expose()).build();
        let route = matcher.intercept(server).ok_or("invalid proxy address")?;
        let proxy = Uri::builder()
            .scheme("http")
            .authority(route.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default())
            .path_and_query("/")
            .build()?;
        let connected = if self.is_socks {
            let mut socks = SocksV5::new(proxy, HttpConnector::new());
            if let Some((user, password)) = route.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            poll_fn(|context| socks.poll_ready(context)).await?;
            socks.call(server.clone()).await?
        } else {
            let mut tunnel = Tunnel::new(proxy, HttpConnector::new());
            if let Some(header) = route.basic_auth() {
                tunnel = tunnel.with_auth(header.clone());
            }
            poll_fn(|context| tunnel.poll_ready(context)).await?;
            tunnel.call(server.clone()).await?
        };
        Ok(connected.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_and_socks_proxies_are_parsed_and_others_rejected() {
        let cases = [
            ("http://proxy.example:3128", Some("http://proxy.example:3128")),
            ("http://proxy.example/", Some("http://proxy.example:80")),
            ("socks5://10.0.0.1", Some("socks5h://10.0.0.1:1080")),
            ("socks5h://me:p%40ss@proxy:9", Some("socks5h://me:p%40ss@proxy:9")),
            ("http://me@proxy:9", Some("http://me:@proxy:9")),
            ("https://proxy.example", None),
            ("socks4://proxy.example", None),
            ("proxy.example:3128", None),
            ("http://proxy.example/path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = ProxyServer::parse(text).map(|proxy| proxy.url.expose().to_owned());
            assert_eq!(parsed.as_deref().ok(), expected, "{text}: {parsed:?}");
        }
        assert!(!format!("{:?}", ProxyServer::parse("http://me:hush@proxy")).contains("hush"));
    }
}
