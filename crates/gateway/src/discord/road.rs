//! The way to Discord: through a proxy or not, in secret where the address says so.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use hermes_agent::http::tls;
use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::proxy::Proxy;
use super::settings::Settings;

/// Why there is no connection if nothing else is known.
pub(super) const SLOW: &str = "it takes too long";

/// Why there is no connection.
pub(super) type Unreached = Box<dyn Error + Send + Sync>;

/// Both directions of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The one way that everything takes.
#[derive(Debug)]
pub(super) struct Road {
    pub(super) proxy: Option<Proxy>,
    roots: Option<RootCertStore>,
    /// Certificates are read once, and not before they are needed.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Road {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { proxy: settings.proxy.clone(), roots: settings.roots.clone(), tls: OnceLock::new() }
    }

    /// How connections are made secret.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let make = || {
            let roots = self.roots.clone().map_or_else(tls::roots, Ok)?;
            tls::client(roots).map(Arc::new)
        };
        self.tls.get_or_init(make).clone()
    }

    /// Connects to a server.
    pub(super) async fn connect(&self, server: &Uri) -> Result<Box<dyn Stream>, Unreached> {
        let host = server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_secret = server.scheme() == Some(&Scheme::HTTPS);
        let port = server.port_u16().unwrap_or(if is_secret { 443 } else { 80 });
        let stream = match &self.proxy {
            Some(proxy) => proxy.connect(server).await?,
            None => TcpStream::connect((host.as_str(), port)).await?,
        };
        stream.set_nodelay(true).ok();
        if !is_secret {
            return Ok(Box::new(stream));
        }
        let connector = TlsConnector::from(self.tls()?);
        Ok(Box::new(connector.connect(ServerName::try_from(host)?, stream).await?))
    }

    /// Why Discord was not reached, and what to do about it.
    pub(super) fn unreached(&self, why: &str) -> String {
        match self.proxy {
            None => format!("Discord cannot be reached: {why}"),
            Some(_) => barred(why),
        }
    }
}

/// Why Discord was not reached through the proxy.
pub(super) fn barred(why: &str) -> String {
    format!("Discord cannot be reached through `discord.proxy`: {why}")
}
