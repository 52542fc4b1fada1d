//! The only way to the web for tools.
//!
//! The requests come from a model that reads pages written by strangers, so no URL is trusted: a
//! host is resolved once, every address found must be public, and the connection goes to one of
//! those. Each redirect is checked in the same way. Size and time are limited while the body
//! arrives, after decompression.
//!
//! | limit | value |
//! |---|---|
//! | redirects | 5 |
//! | decompressed bytes of a page | 5 MiB; the rest is dropped |
//! | time for everything | 30 s |

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_compression::tokio::bufread::GzipDecoder;
use futures_util::TryStreamExt;
use hermes_exec::proxy::{self, HostError};
use hermes_net::TlsSettings;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, Url};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use crate::Error;
use crate::approver::BoxFuture;

pub(crate) const MAX_REDIRECTS: usize = 5;
const MAX_URL_BYTES: usize = 8_000;

/// Resolves a host to the addresses that a client may connect to.
pub type ResolveHost =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Vec<IpAddr>, HostError>> + Send + Sync>;

/// Limits of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// For the whole fetch, redirects included.
    pub timeout: Duration,
    /// Of the decompressed body.
    pub max_bytes: usize,
}

/// Fetches pages of the public web.
pub struct WebClient {
    resolve: ResolveHost,
    limits: FetchLimits,
    tls: TlsSettings,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPage {
    /// The final URL, after redirects.
    pub url: Url,
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
    /// Whether the body ends at the limit.
    pub is_partial: bool,
}

impl Default for WebClient {
    /// Connects to public hosts only.
    fn default() -> Self {
        let resolve: ResolveHost =
            Arc::new(|host| Box::pin(async move { proxy::resolve_public(&host).await }));
        Self::new(resolve, FetchLimits { timeout: Duration::from_secs(30), max_bytes: 5 << 20 })
    }
}

impl WebClient {
    pub fn new(resolve: ResolveHost, limits: FetchLimits) -> Self {
        Self { resolve, limits, tls: TlsSettings::default() }
    }

    pub async fn fetch(&self, address: &str) -> Result<FetchedPage, Error> {
        let time = self.limits.timeout;
        tokio::time::timeout(time, self.follow_redirects(address))
            .await
            .map_err(|_elapsed| Error::FetchTimeout(time))?
    }

    async fn follow_redirects(&self, address: &str) -> Result<FetchedPage, Error> {
        let mut url = parse_url(address)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_request(&url).await?;
            match redirect_target(&url, &response)? {
                Some(other) => url = other,
                None => return self.read_body(url, response).await,
            }
        }
        Err(Error::TooManyRedirects)
    }

    async fn send_request(&self, url: &Url) -> Result<Response, Error> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let found = (self.resolve)(host.clone()).await;
        let found = found.map_err(|reason| Error::Host { host: host.clone(), reason })?;
        let port = url.port_or_known_default().unwrap_or(80);
        let addresses: Vec<_> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let tls = match url.scheme() {
            "https" => (*self.tls.config()?).clone(),
            _ => hermes_net::config_without_roots()?,
        };
        // The client knows only the checked addresses of the host.
        let client = hermes_net::client_builder(tls).resolve_to_addrs(&host, &addresses);
        let request = hermes_net::build(client)?
            .get(url.clone())
            .header(ACCEPT, "text/html, text/markdown, text/plain, application/json, */*;q=0.5")
            .header(ACCEPT_ENCODING, "gzip");
        request.send().await.map_err(|error| connection_error(&host, error))
    }

    async fn read_body(&self, url: Url, response: Response) -> Result<FetchedPage, Error> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let status = response.status().as_u16();
        let content_type = header_value(response.headers(), CONTENT_TYPE.as_str());
        let encoding = header_value(response.headers(), CONTENT_ENCODING.as_str()).to_ascii_lowercase();
        let received = StreamReader::new(response.bytes_stream().map_err(std::io::Error::other));
        let decoded: Box<dyn AsyncRead + Send + Unpin> = match encoding.as_str() {
            "" | "identity" => Box::new(received),
            "gzip" | "x-gzip" => {
                let mut decoder = GzipDecoder::new(received);
                decoder.multiple_members(true);
                Box::new(decoder)
            }
            _ => return Err(Error::ContentEncoding(encoding)),
        };
        let max_bytes = self.limits.max_bytes;
        let mut body = Vec::new();
        // Reading stops at the limit, so that a small body cannot expand to a large one.
        let read = decoded.take(max_bytes as u64 + 1).read_to_end(&mut body).await;
        read.map_err(|error| match error.downcast::<reqwest::Error>() {
            Ok(error) => connection_error(&host, error),
            Err(error) => Error::Decompression(error),
        })?;
        let is_partial = body.len() > max_bytes;
        body.truncate(max_bytes);
        Ok(FetchedPage { url, status, content_type, body, is_partial })
    }
}

fn parse_url(address: &str) -> Result<Url, Error> {
    let address = address.trim();
    if address.len() > MAX_URL_BYTES {
        return Err(Error::InvalidUrl("too long".to_owned()));
    }
    let url = Url::parse(address).map_err(|error| Error::InvalidUrl(error.to_string()))?;
    check_url(url)
}

fn check_url(mut url: Url) -> Result<Url, Error> {
    let invalid = |reason: String| Err(Error::InvalidUrl(reason));
    if !matches!(url.scheme(), "http" | "https") {
        return invalid(format!("only http and https are supported, not {}", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return invalid("it contains a user name or password, which would be sent to the host".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return invalid("it has no host".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// The target of a redirect.
fn redirect_target(url: &Url, response: &Response) -> Result<Option<Url>, Error> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = header_value(response.headers(), LOCATION.as_str());
    if !is_redirect || location.is_empty() {
        return Ok(None);
    }
    let other = url
        .join(&location)
        .map_err(|error| Error::InvalidUrl(format!("a redirect to {location}: {error}")))?;
    check_url(other).map(Some)
}

fn header_value(headers: &HeaderMap, name: &str) -> String {
    let bytes = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Leaves out the URL, which may contain secrets.
fn connection_error(host: &str, error: reqwest::Error) -> Error {
    let error = error.without_url();
    Error::Connection { host: host.to_owned(), reason: hermes_net::explain(&error) }
}
