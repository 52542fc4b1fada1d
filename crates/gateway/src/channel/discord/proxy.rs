//! The proxy for connections to Discord.

use std::future::poll_fn;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel as Connect};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use tokio::net::TcpStream;
use tower_service::Service as _;

use super::rest::ApiError;
use super::transport::ConnectError;
use crate::error::Error;
use hermes_types::Secret;

/// A proxy for all connections to Discord.
#[derive(Debug, Clone)]
pub struct DiscordProxy {
    /// Includes credentials.
    url: Secret,
    is_socks: bool,
}

impl DiscordProxy {
    /// Parses `http://[user:password@]host:port` or `socks5://...`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::InvalidProxy(reason);
        let url = Url::parse(text.trim()).map_err(|error| invalid(format!("not a URL: {error}")))?;
        let is_socks = match url.scheme() {
            "http" => false,
            // The proxy always resolves names.
            "socks5" | "socks5h" => true,
            other => {
                return Err(invalid(format!("unsupported scheme {other}://; use http:// or socks5://")));
            }
        };
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(invalid("missing host".to_owned()));
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(invalid("unexpected path or query".to_owned()));
        }
        let who = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, password) => format!("{user}:{}@", password.unwrap_or_default()),
        };
        let port = url.port_or_known_default().unwrap_or(1080);
        let scheme = if is_socks { "socks5h" } else { "http" };
        Ok(Self { url: Secret::new(format!("{scheme}://{who}{host}:{port}")), is_socks })
    }

    pub(super) fn to_reqwest(&self) -> Result<reqwest::Proxy, ApiError> {
        reqwest::Proxy::all(self.url.expose()).map_err(|_| ApiError::Invalid("invalid proxy URL".to_owned()))
    }

    pub(super) async fn connect(&self, server: &Uri) -> Result<TcpStream, ConnectError> {
        let matcher = Matcher::builder().all(self.url.expose()).build();
        let way = matcher.intercept(server).ok_or("invalid proxy URL")?;
        let proxy = Uri::builder()
            .scheme("http")
            .authority(way.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default())
            .path_and_query("/")
            .build()?;
        let connected = if self.is_socks {
            let mut socks = SocksV5::new(proxy, HttpConnector::new());
            if let Some((user, password)) = way.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            poll_fn(|context| socks.poll_ready(context)).await?;
            socks.call(server.clone()).await?
        } else {
            let mut connect = Connect::new(proxy, HttpConnector::new());
            if let Some(header) = way.basic_auth() {
                connect = connect.with_auth(header.clone());
            }
            poll_fn(|context| connect.poll_ready(context)).await?;
            connect.call(server.clone()).await?
        };
        Ok(connected.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_urls_are_parsed() {
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
            let read = DiscordProxy::parse(text).map(|proxy| proxy.url.expose().to_owned());
            assert_eq!(read.as_deref().ok(), expected, "{text}: {read:?}");
        }
        assert!(!format!("{:?}", DiscordProxy::parse("http://me:hush@proxy")).contains("hush"));
    }
}
