//! A proxy that everything goes through.

use std::future::poll_fn;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel as Connect};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use tokio::net::TcpStream;
use tower_service::Service as _;

use super::road::Unreached;
use hermes_types::Secret;

/// A proxy that everything goes through.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// With the name and the password, where it has such.
    url: Secret,
    is_socks: bool,
}

impl Proxy {
    /// Reads `http://host:port` or `socks5://host:port`, with `user:password@` before the host where it wants that.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).map_err(|error| format!("it is no address: {error}"))?;
        let is_socks = match url.scheme() {
            "http" => false,
            // Names are always looked up by the proxy.
            "socks5" | "socks5h" => true,
            other => return Err(format!("{other}:// is not spoken; http:// and socks5:// are")),
        };
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err("it names no host".to_owned());
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err("it has more than a host and a port".to_owned());
        }
        let who = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, password) => format!("{user}:{}@", password.unwrap_or_default()),
        };
        let port = url.port_or_known_default().unwrap_or(1080);
        let scheme = if is_socks { "socks5h" } else { "http" };
        Ok(Self { url: Secret::new(format!("{scheme}://{who}{host}:{port}")), is_socks })
    }

    /// The proxy for requests.
    pub(super) fn for_requests(&self) -> Result<reqwest::Proxy, String> {
        reqwest::Proxy::all(self.url.expose()).map_err(|_| "the address of the proxy is wrong".to_owned())
    }

    /// Connects to a server through the proxy.
    pub(super) async fn connect(&self, server: &Uri) -> Result<TcpStream, Unreached> {
        let matcher = Matcher::builder().all(self.url.expose()).build();
        let way = matcher.intercept(server).ok_or("the address of the proxy is wrong")?;
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
    fn proxies_are_read_and_others_refused() {
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
            let read = Proxy::parse(text).map(|proxy| proxy.url.expose().to_owned());
            assert_eq!(read.as_deref().ok(), expected, "{text}: {read:?}");
        }
        assert!(!format!("{:?}", Proxy::parse("http://me:hush@proxy")).contains("hush"));
    }
}
