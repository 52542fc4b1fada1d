//! Connections that are secret: whom they trust, and why one of them was not made.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{CertificateError, ClientConfig, RootCertStore};

/// What to do about a certificate of somebody who is not trusted.
const TRUST: &str = "if that is so on purpose, as behind the proxy of a company, add its CA to the certificates of \
    this machine, or name a file in SSL_CERT_FILE that has all CAs to trust";
/// What is wrong where nobody can be trusted.
const NOBODY: &str = "there are no certificates to trust; install ca-certificates, or name a file in SSL_CERT_FILE \
    that has some as PEM";

/// What a proxy means that asks who is there.
pub const LOCKED: &str =
    "the proxy wants a name and a password, or other ones: its address is http://name:password@host:port";

/// How connections are made secret.
pub fn client(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The certificates this machine trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name instead.
pub fn roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    match (roots.is_empty(), found.errors.first()) {
        (false, _) => Ok(roots),
        (true, Some(error)) => Err(format!("the certificates to trust cannot be read: {error}")),
        (true, None) => Err(NOBODY.to_owned()),
    }
}

/// What went wrong first, and what its owner can do about it.
pub fn why_and_remedy(error: &(dyn Error + 'static)) -> String {
    use CertificateError as Bad;
    match deepest(error) {
        Ok(rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            format!("{}; {TRUST}", why(error))
        }
        _ => why(error),
    }
}

/// What went wrong first, of all that went wrong because of it.
pub fn why(error: &(dyn Error + 'static)) -> String {
    match deepest(error) {
        Ok(error) => in_words(error),
        // There is no better sign of it: the error has no name.
        Err(error) if error.to_string().ends_with("proxy authorization required") => LOCKED.to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Whether somebody answered who is not trusted.
pub fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    matches!(deepest(error), Ok(rustls::Error::InvalidCertificate(_)))
}

/// What lies beneath an error: one of TLS, or another one.
fn deepest<'a>(error: &'a (dyn Error + 'static)) -> Result<&'a rustls::Error, &'a (dyn Error + 'static)> {
    let mut deepest = error;
    loop {
        if let Some(error) = deepest.downcast_ref() {
            return Ok(error);
        }
        // What an error of this kind holds is not its source.
        let held = deepest.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match held.map(|held| held as &(dyn Error + 'static)).or_else(|| deepest.source()) {
            Some(beneath) => deepest = beneath,
            None => return Err(deepest),
        }
    }
}

fn in_words(error: &rustls::Error) -> String {
    use CertificateError as Bad;
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => return "what answers there does not speak TLS".to_owned(),
        other => return other.to_string(),
    };
    match certificate {
        Bad::UnknownIssuer | Bad::BadSignature => {
            "its certificate is from nobody this machine trusts".to_owned()
        }
        Bad::Expired | Bad::ExpiredContext { .. } => {
            "its certificate has expired; if it has not, the clock of this machine is wrong".to_owned()
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "its certificate is not valid yet; if it is, the clock of this machine is wrong".to_owned()
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "its certificate is for another name; the address is wrong, or somebody else answers there"
                .to_owned()
        }
        other => format!("its certificate is not good: {other}"),
    }
}
