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

use crate::people::Asking;

const REDIRECTS: usize = 5;
const LONGEST_ADDRESS: usize = 8_000;

/// Gives the addresses of a host that may be connected to, or says why there are none.
pub type Reach = Arc<dyn Fn(String) -> Asking<'static, Result<Vec<IpAddr>, HostError>> + Send + Sync>;

/// How much a page may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For everything, redirects included.
    pub time: Duration,
    /// Of what is kept of a page.
    pub bytes: usize,
}

/// Fetches pages.
pub struct Web {
    reach: Reach,
    bounds: Bounds,
    tls: OnceLock<Result<ClientConfig, String>>,
}

/// A page that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it was in the end.
    pub url: Url,
    /// What the server said of it.
    pub status: u16,
    /// What it is, as the server says.
    pub content_type: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Whether these are all.
    pub extent: Extent,
}

/// Whether all of a page is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Its beginning.
    Beginning,
}

/// Why there is no page.
#[derive(Debug, Error)]
pub enum Fault {
    /// It is no address.
    #[error("not an address of the web: {0}")]
    Address(String),
    /// The host may not be reached, or cannot be.
    #[error("{host} {why}")]
    Host {
        /// Which one.
        host: String,
        /// Why.
        why: HostError,
    },
    /// It was sent from one address to the next.
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    /// It took too long.
    #[error("the page did not come within {} seconds", .0.as_secs())]
    Time(Duration),
    /// The connection failed.
    #[error("{host} cannot be talked to: {why}")]
    Connection {
        /// The host.
        host: String,
        /// What lies beneath.
        why: String,
    },
    /// It is packed in a way we did not ask for.
    #[error("the page is packed as {0}, which was not asked for")]
    Packing(String),
    /// It cannot be unpacked.
    #[error("the page cannot be unpacked: {0}")]
    Unpacking(std::io::Error),
    /// This machine cannot make safe connections.
    #[error("{0}")]
    Tls(String),
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Default for Web {
    /// Reaches public hosts and nothing else.
    fn default() -> Self {
        let reach: Reach = Arc::new(|host| Box::pin(async move { proxy::resolve_public(&host).await }));
        Self::new(reach, Bounds { time: Duration::from_secs(30), bytes: 5 << 20 })
    }
}

impl Web {
    /// Reaches what it is told to reach.
    pub fn new(reach: Reach, bounds: Bounds) -> Self {
        Self { reach, bounds, tls: OnceLock::new() }
    }

    /// Fetches a page.
    pub async fn get(&self, address: &str) -> Result<Page, Fault> {
        let time = self.bounds.time;
        tokio::time::timeout(time, self.follow(address)).await.map_err(|_elapsed| Fault::Time(time))?
    }

    async fn follow(&self, address: &str) -> Result<Page, Fault> {
        let mut url = parsed(address)?;
        for _ in 0..=REDIRECTS {
            let response = self.ask(&url).await?;
            match next(&url, &response)? {
                Some(other) => url = other,
                None => return self.read(url, response).await,
            }
        }
        Err(Fault::Redirects)
    }

    async fn ask(&self, url: &Url) -> Result<Response, Fault> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let found = (self.reach)(host.clone()).await;
        let found = found.map_err(|why| Fault::Host { host: host.clone(), why })?;
        let port = url.port_or_known_default().unwrap_or(80);
        let addresses: Vec<SocketAddr> =
            found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let client = self.client(url, &host, &addresses)?;
        let request = client
            .get(url.clone())
            .header(ACCEPT, "text/html, text/markdown, text/plain, application/json, */*;q=0.5")
            .header(ACCEPT_ENCODING, "gzip");
        request.send().await.map_err(|error| connection(&host, error))
    }

    /// A client that knows no other addresses for the host than those that were checked.
    fn client(&self, url: &Url, host: &str, addresses: &[SocketAddr]) -> Result<Client, Fault> {
        let config = match url.scheme() {
            "https" => self.tls.get_or_init(|| tls::client(tls::roots()?)).clone(),
            // Reading the certificates takes longer than all the rest.
            _ => tls::client(RootCertStore::empty()),
        };
        Client::builder()
            .tls_backend_preconfigured(config.map_err(Fault::Tls)?)
            .resolve_to_addrs(host, addresses)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .build()
            .map_err(|error| connection(host, error))
    }

    async fn read(&self, url: Url, mut response: Response) -> Result<Page, Fault> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let status = response.status().as_u16();
        let content_type = header(response.headers(), CONTENT_TYPE.as_str());
        let mut unpacked =
            match header(response.headers(), CONTENT_ENCODING.as_str()).to_ascii_lowercase().as_str() {
                "" | "identity" => Unpacked::Plain(Capped::new(self.bounds.bytes)),
                "gzip" | "x-gzip" => {
                    Unpacked::Gzip(Box::new(MultiGzDecoder::new(Capped::new(self.bounds.bytes))))
                }
                other => return Err(Fault::Packing(other.to_owned())),
            };
        while let Some(chunk) = response.chunk().await.map_err(|error| connection(&host, error))? {
            unpacked.push(&chunk)?;
            if unpacked.capped().is_full() {
                break;
            }
        }
        let Capped { bytes, overflowed, .. } = unpacked.finish()?;
        let extent = if overflowed { Extent::Beginning } else { Extent::Whole };
        Ok(Page { url, status, content_type, body: bytes, extent })
    }
}

/// An address of the web without anything that has no business there.
fn parsed(address: &str) -> Result<Url, Fault> {
    let wrong = |why: &str| Err(Fault::Address(why.to_owned()));
    let address = address.trim();
    if address.len() > LONGEST_ADDRESS {
        return wrong("it is too long");
    }
    let url = Url::parse(address).map_err(|error| Fault::Address(error.to_string()))?;
    allowed(url)
}

fn allowed(mut url: Url) -> Result<Url, Fault> {
    let wrong = |why: String| Err(Fault::Address(why));
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
fn next(url: &Url, response: &Response) -> Result<Option<Url>, Fault> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = header(response.headers(), LOCATION.as_str());
    if !is_redirect || location.is_empty() {
        return Ok(None);
    }
    let other =
        url.join(&location).map_err(|error| Fault::Address(format!("a redirect to {location}: {error}")))?;
    allowed(other).map(Some)
}

fn header(headers: &HeaderMap, name: &str) -> String {
    let bytes = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What is wrong with a connection, without the address it was made for.
fn connection(host: &str, error: reqwest::Error) -> Fault {
    let error = error.without_url();
    Fault::Connection { host: host.to_owned(), why: tls::why(&error) }
}

/// Bytes up to a limit.
struct Capped {
    bytes: Vec<u8>,
    most: usize,
    overflowed: bool,
}

impl Capped {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, overflowed: false }
    }

    fn is_full(&self) -> bool {
        self.overflowed
    }
}

impl Write for Capped {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let room = self.most.saturating_sub(self.bytes.len());
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
enum Unpacked {
    Plain(Capped),
    Gzip(Box<MultiGzDecoder<Capped>>),
}

impl Unpacked {
    fn push(&mut self, data: &[u8]) -> Result<(), Fault> {
        let pushed = match self {
            Self::Plain(capped) => capped.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
        };
        match pushed {
            Err(_full) if self.capped().is_full() => Ok(()),
            pushed => pushed.map_err(Fault::Unpacking),
        }
    }

    fn capped(&self) -> &Capped {
        match self {
            Self::Plain(capped) => capped,
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn finish(self) -> Result<Capped, Fault> {
        match self {
            Self::Plain(capped) => Ok(capped),
            Self::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                let capped = std::mem::replace(decoder.get_mut(), Capped::new(0));
                match finished {
                    Err(error) if !capped.is_full() => Err(Fault::Unpacking(error)),
                    _ => Ok(capped),
                }
            }
        }
    }
}
