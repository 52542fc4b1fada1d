//! Opens streams to servers, directly or through one proxy, with TLS where the address asks for it.

use std::error::Error as StdError;

use http::Uri;
use http::uri::Scheme;
use reqwest::ClientBuilder;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Error, ProxyServer, TlsSettings, client_builder};

/// Why a stream could not be opened; [`crate::explain`] makes it readable.
pub type ConnectError = Box<dyn StdError + Send + Sync>;

/// Both directions of a connection.
pub trait NetStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> NetStream for S {}

/// Opens the connections of one client, so that all of them use the same proxy and certificates.
#[derive(Debug)]
pub struct Connector {
    proxy: Option<ProxyServer>,
    tls: TlsSettings,
}

impl Connector {
    /// Trusts these certificates, or without any those of this machine.
    pub fn new(proxy: Option<ProxyServer>, roots: Option<RootCertStore>) -> Self {
        Self { proxy, tls: TlsSettings::new(roots) }
    }

    pub fn has_proxy(&self) -> bool {
        self.proxy.is_some()
    }

    /// Reads the trusted certificates now, so that a missing one is found at startup.
    pub fn load_certificates(&self) -> Result<(), Error> {
        self.tls.config().map(drop)
    }

    /// As [`crate::client_builder`], with the proxy and the certificates of this connector.
    pub fn client_builder(&self) -> Result<ClientBuilder, Error> {
        let builder = client_builder((*self.tls.config()?).clone());
        match &self.proxy {
            Some(proxy) => proxy.apply(builder),
            None => Ok(builder),
        }
    }

    pub async fn connect(&self, server: &Uri) -> Result<Box<dyn NetStream>, ConnectError> {
        let host = server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_tls = server.scheme() == Some(&Scheme::HTTPS);
        let port = server.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = match &self.proxy {
            Some(proxy) => proxy.connect(server).await?,
            None => TcpStream::connect((host.as_str(), port)).await?,
        };
        stream.set_nodelay(true).ok();
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let connector = TlsConnector::from(self.tls.config()?);
        Ok(Box::new(connector.connect(ServerName::try_from(host)?, stream).await?))
    }
}
