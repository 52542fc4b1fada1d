//! Connections to Discord: direct or through a proxy, with or without TLS.

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

use super::proxy::DiscordProxy;
use super::rest::ApiError;
use super::settings::DiscordSettings;

pub(super) const TIMED_OUT: &str = "timed out";

pub(super) type ConnectError = Box<dyn Error + Send + Sync>;

pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Opens connections to Discord, through the proxy and with TLS where needed.
#[derive(Debug)]
pub(super) struct DiscordTransport {
    pub(super) proxy: Option<DiscordProxy>,
    roots: Option<RootCertStore>,
    /// Certificates are loaded once, on first use.
    tls: OnceLock<Result<Arc<ClientConfig>, ApiError>>,
}

impl DiscordTransport {
    pub(super) fn new(settings: &DiscordSettings) -> Self {
        Self {
            proxy: settings.proxy.clone(),
            roots: settings.root_certificates.clone(),
            tls: OnceLock::new(),
        }
    }

    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, ApiError> {
        let build = || self.roots.clone().map_or_else(tls::roots, Ok).and_then(tls::client);
        let build = || build().map(Arc::new).map_err(|error| ApiError::Invalid(error.to_string()));
        self.tls.get_or_init(build).clone()
    }

    pub(super) async fn connect(&self, server: &Uri) -> Result<Box<dyn ByteStream>, ConnectError> {
        let host = server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_encrypted = server.scheme() == Some(&Scheme::HTTPS);
        let port = server.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let stream = match &self.proxy {
            Some(proxy) => proxy.connect(server).await?,
            None => TcpStream::connect((host.as_str(), port)).await?,
        };
        stream.set_nodelay(true).ok();
        if !is_encrypted {
            return Ok(Box::new(stream));
        }
        let connector = TlsConnector::from(self.tls()?);
        Ok(Box::new(connector.connect(ServerName::try_from(host)?, stream).await?))
    }

    pub(super) fn describe_failure(&self, reason: &str) -> String {
        match self.proxy {
            None => format!("cannot reach Discord: {reason}"),
            Some(_) => describe_proxy_failure(reason),
        }
    }
}

pub(super) fn describe_proxy_failure(reason: &str) -> String {
    format!("cannot reach Discord through `discord.proxy`: {reason}")
}
