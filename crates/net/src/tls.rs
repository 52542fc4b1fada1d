//! Which certificates are trusted.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

use crate::Error;

/// The TLS configuration of a client, created on first use and then shared.
#[derive(Debug, Default)]
pub struct TlsSettings {
    roots: Option<RootCertStore>,
    config: OnceLock<Result<Arc<ClientConfig>, Error>>,
}

impl TlsSettings {
    /// Trusts these certificates, or without any those of this machine.
    pub fn new(roots: Option<RootCertStore>) -> Self {
        Self { roots, config: OnceLock::new() }
    }

    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let create = || {
            let roots = self.roots.clone().map_or_else(system_roots, Ok)?;
            config(roots).map(Arc::new)
        };
        self.config.get_or_init(create).clone()
    }
}

/// The configuration for connections that do not use TLS; it trusts no certificate.
pub fn config_without_roots() -> Result<ClientConfig, Error> {
    config(RootCertStore::empty())
}

fn config(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The certificates that this machine trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR`
/// name.
fn system_roots() -> Result<RootCertStore, Error> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    match (roots.is_empty(), loaded.errors.first()) {
        (false, _) => Ok(roots),
        (true, Some(error)) => Err(Error::Roots(error.to_string())),
        (true, None) => Err(Error::NoRoots),
    }
}
