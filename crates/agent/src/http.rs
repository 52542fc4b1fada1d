//! The one way to the web for tools.
//!
//! Whoever asks for a page is a model that reads pages written by strangers, so no address is believed: a host is resolved
//! once, every address found must be public, and the connection is made to one of those. A redirect is followed by
//! hand and begins all over. Size and time are bounded while the answer comes, after it is unpacked.
//!
//! | limit | value |
//! |---|---|
//! | redirects | 5 |
//! | bytes of a page, unpacked | 5 MiB; the rest is left out |
//! | time for everything | 30 s |

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use hermes_exec::proxy::{self, HostError};
pub use hermes_model::tls;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Response, Url, redirect};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use crate::approver::BoxFuture;

const MAX_REDIRECTS: usize = 5;
const MAX_URL_BYTES: usize = 8_000;

/// Gives the addresses of a host that may be connected to, or says why there are none.
pub type ResolveHost =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Vec<IpAddr>, HostError>> + Send + Sync>;

/// How much a page may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// For everything, redirects included.
    pub timeout: Duration,
    /// Of what is kept of a page.
    pub max_bytes: usize,
}

/// Fetches pages.
pub struct WebClient {
    resolve: ResolveHost,
    limits: FetchLimits,
    tls: OnceLock<Result<ClientConfig, String>>,
}

/// A page that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPage {
    /// Where it was in the end.
    pub url: Url,
    /// What the server said of it.
    pub status: u16,
    /// What it is, as the server says.
    pub content_type: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Whether these are all.
    pub extent: PageExtent,
}

/// Whether all of a page is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageExtent {
    /// All of it.
    Whole,
    /// Its beginning.
    Partial,
}

/// Why there is no page.
#[derive(Debug, Error)]
pub enum WebError {
    /// It is no address.
    #[error("not an address of the web: {0}")]
    InvalidUrl(String),
    /// The host may not be reached, or cannot be.
    #[error("{host} {reason}")]
    Host {
        /// Which one.
        host: String,
        /// Why.
        reason: HostError,
    },
    /// It was sent from one address to the next.
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    /// It took too long.
    #[error("the page did not come within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// The connection failed.
    #[error("{host} cannot be talked to: {reason}")]
    Connection {
        /// The host.
        host: String,
        /// What lies beneath.
        reason: String,
    },
    /// It is packed in a way we did not ask for.
    #[error("the page is packed as {0}, which was not asked for")]
    ContentEncoding(String),
    /// It cannot be unpacked.
    #[error("the page cannot be unpacked: {0}")]
    Decompression(std::io::Error),
    /// This machine cannot make safe connections.
    #[error("{0}")]
    Tls(String),
}

impl fmt::Debug for WebClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("bounds", &self.limits).finish_non_exhaustive()
    }
}

impl Default for WebClient {
    /// Reaches public hosts and nothing else.
    fn default() -> Self {
        let reach: ResolveHost = Arc::new(|host| Box::pin(async move { proxy::resolve_public(&host).await }));
        Self::new(reach, FetchLimits { timeout: Duration::from_secs(30), max_bytes: 5 << 20 })
    }
}

impl WebClient {
    /// Reaches what it is told to reach.
    pub fn new(reach: ResolveHost, bounds: FetchLimits) -> Self {
        Self { resolve: reach, limits: bounds, tls: OnceLock::new() }
    }

    /// Fetches a page.
    pub async fn fetch(&self, address: &str) -> Result<FetchedPage, WebError> {
        let time = self.limits.timeout;
        tokio::time::timeout(time, self.follow_redirects(address))
            .await
            .map_err(|_elapsed| WebError::Timeout(time))?
    }

    async fn follow_redirects(&self, address: &str) -> Result<FetchedPage, WebError> {
        let mut url = parse_url(address)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_request(&url).await?;
            match redirect_target(&url, &response)? {
                Some(other) => url = other,
                None => return self.read_body(url, response).await,
            }
        }
        Err(WebError::TooManyRedirects)
    }

    async fn send_request(&self, url: &Url) -> Result<Response, WebError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let found = (self.resolve)(host.clone()).await;
        let found = found.map_err(|why| WebError::Host { host: host.clone(), reason: why })?;
        let port = url.port_or_known_default().unwrap_or(80);
        let addresses: Vec<SocketAddr> =
            found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let client = self.client(url, &host, &addresses)?;
        let request = client
            .get(url.clone())
            .header(ACCEPT, "text/html, text/markdown, text/plain, application/json, */*;q=0.5")
            .header(ACCEPT_ENCODING, "gzip");
        request.send().await.map_err(|error| connection_error(&host, error))
    }

    /// A client that knows no other addresses for the host than those that were checked.
    fn client(&self, url: &Url, host: &str, addresses: &[SocketAddr]) -> Result<Client, WebError> {
        let config = match url.scheme() {
            "https" => self.tls.get_or_init(|| tls::client(tls::roots()?)).clone(),
            // Reading the certificates takes longer than all the rest.
            _ => tls::client(RootCertStore::empty()),
        };
        Client::builder()
            .tls_backend_preconfigured(config.map_err(WebError::Tls)?)
            .resolve_to_addrs(host, addresses)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .build()
            .map_err(|error| connection_error(host, error))
    }

    async fn read_body(&self, url: Url, mut response: Response) -> Result<FetchedPage, WebError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let status = response.status().as_u16();
        let content_type = header_value(response.headers(), CONTENT_TYPE.as_str());
        let mut unpacked =
            match header_value(response.headers(), CONTENT_ENCODING.as_str()).to_ascii_lowercase().as_str() {
                "" | "identity" => BodyDecoder::Plain(CappedBuffer::new(self.limits.max_bytes)),
                "gzip" | "x-gzip" => {
                    BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(CappedBuffer::new(self.limits.max_bytes))))
                }
                other => return Err(WebError::ContentEncoding(other.to_owned())),
            };
        while let Some(chunk) = response.chunk().await.map_err(|error| connection_error(&host, error))? {
            unpacked.push(&chunk)?;
            if unpacked.capped().is_full() {
                break;
            }
        }
        let CappedBuffer { bytes, overflowed, .. } = unpacked.finish()?;
        let extent = if overflowed { PageExtent::Partial } else { PageExtent::Whole };
        Ok(FetchedPage { url, status, content_type, body: bytes, extent })
    }
}

/// An address of the web without anything that has no business there.
fn parse_url(address: &str) -> Result<Url, WebError> {
    let wrong = |why: &str| Err(WebError::InvalidUrl(why.to_owned()));
    let address = address.trim();
    if address.len() > MAX_URL_BYTES {
        return wrong("it is too long");
    }
    let url = Url::parse(address).map_err(|error| WebError::InvalidUrl(error.to_string()))?;
    check_url(url)
}

fn check_url(mut url: Url) -> Result<Url, WebError> {
    let wrong = |why: String| Err(WebError::InvalidUrl(why));
    if !matches!(url.scheme(), "http" | "https") {
        return wrong(format!("only http and https are fetched, not {}", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("a name or password in it would be sent to the host; leave it out".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return wrong("it has no host".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// Where a server sends us, if it does.
fn redirect_target(url: &Url, response: &Response) -> Result<Option<Url>, WebError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = header_value(response.headers(), LOCATION.as_str());
    if !is_redirect || location.is_empty() {
        return Ok(None);
    }
    let other = url
        .join(&location)
        .map_err(|error| WebError::InvalidUrl(format!("a redirect to {location}: {error}")))?;
    check_url(other).map(Some)
}

fn header_value(headers: &HeaderMap, name: &str) -> String {
    let bytes = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What is wrong with a connection, without the address it was made for.
fn connection_error(host: &str, error: reqwest::Error) -> WebError {
    let error = error.without_url();
    WebError::Connection { host: host.to_owned(), reason: tls::why(&error) }
}

/// Bytes up to a limit.
struct CappedBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
    overflowed: bool,
}

impl CappedBuffer {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), max_bytes: most, overflowed: false }
    }

    fn is_full(&self) -> bool {
        self.overflowed
    }
}

impl Write for CappedBuffer {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let room = self.max_bytes.saturating_sub(self.bytes.len());
        self.bytes.extend(data.iter().take(room));
        self.overflowed |= data.len() > room;
        // What does not fit is dropped as it is unpacked, so that a small answer cannot become a large one.
        if self.overflowed { Err(std::io::Error::other("full")) } else { Ok(data.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A body as it comes.
enum BodyDecoder {
    Plain(CappedBuffer),
    Gzip(Box<MultiGzDecoder<CappedBuffer>>),
}

impl BodyDecoder {
    fn push(&mut self, data: &[u8]) -> Result<(), WebError> {
        let pushed = match self {
            Self::Plain(capped) => capped.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
        };
        match pushed {
            Err(_full) if self.capped().is_full() => Ok(()),
            pushed => pushed.map_err(WebError::Decompression),
        }
    }

    fn capped(&self) -> &CappedBuffer {
        match self {
            Self::Plain(capped) => capped,
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn finish(self) -> Result<CappedBuffer, WebError> {
        match self {
            Self::Plain(capped) => Ok(capped),
            Self::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                let capped = std::mem::replace(decoder.get_mut(), CappedBuffer::new(0));
                match finished {
                    Err(error) if !capped.is_full() => Err(WebError::Decompression(error)),
                    _ => Ok(capped),
                }
            }
        }
    }
}
