//! Why a connection failed, in the words that people search for.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::CertificateError;

const TRUST_REMEDY: &str = "If that is expected, for example behind a company proxy, add its CA to this \
    machine's certificates, or name a file with all trusted CAs in SSL_CERT_FILE.";

/// A proxy wants other credentials, or any.
pub const PROXY_AUTH_REQUIRED: &str =
    "proxy authentication required: set the proxy address as http://user:password@host:port";

/// The first cause of an error, without what the layers above add to it.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    match root_cause(error) {
        RootCause::Tls(error) => explain_tls(error),
        RootCause::Io(error) => explain_io(error),
        // The library has no type for it.
        RootCause::Other(error) if error.to_string().ends_with("proxy authorization required") => {
            PROXY_AUTH_REQUIRED.to_owned()
        }
        RootCause::Other(error) => error.to_string(),
    }
}

/// As [`explain`], with the steps that help the owner of this machine.
pub fn explain_with_remedy(error: &(dyn Error + 'static)) -> String {
    use CertificateError::{BadSignature, UnknownIssuer};
    let cause = explain(error);
    match root_cause(error) {
        RootCause::Tls(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            format!("{cause}. {TRUST_REMEDY}")
        }
        _ => cause,
    }
}

/// Whether the server's certificate was rejected.
pub fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    matches!(root_cause(error), RootCause::Tls(rustls::Error::InvalidCertificate(_)))
}

enum RootCause<'a> {
    Tls(&'a rustls::Error),
    Io(&'a io::Error),
    Other(&'a (dyn Error + 'static)),
}

fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> RootCause<'a> {
    let mut cause = error;
    loop {
        if let Some(error) = cause.downcast_ref() {
            return RootCause::Tls(error);
        }
        let io = cause.downcast_ref::<io::Error>();
        // `io::Error::source` skips the error that it wraps.
        let wrapped = io.and_then(io::Error::get_ref).map(|inner| inner as &(dyn Error + 'static));
        match (wrapped.or_else(|| cause.source()), io) {
            (Some(inner), _) => cause = inner,
            (None, Some(io)) => return RootCause::Io(io),
            (None, None) => return RootCause::Other(cause),
        }
    }
}

fn explain_io(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

fn explain_tls(error: &rustls::Error) -> String {
    use CertificateError as Certificate;
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => return "the server does not speak TLS".to_owned(),
        other => return other.to_string(),
    };
    let text = match certificate {
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "certificate signed by an unknown authority"
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "certificate has expired (or the clock of this machine is wrong)"
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "certificate is not valid yet (or the clock of this machine is wrong)"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "certificate is not valid for this host name (the address is wrong, or another server answers)"
        }
        other => return format!("invalid certificate: {other}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
        io::Error::other(error)
    }

    #[test]
    fn the_first_cause_is_named_in_plain_words() {
        let certificate = |error| io(rustls::Error::InvalidCertificate(error));
        let cases = [
            (io(io::Error::from(ErrorKind::ConnectionRefused)), "connection refused"),
            (certificate(CertificateError::UnknownIssuer), "certificate signed by an unknown authority"),
            (certificate(CertificateError::Revoked), "invalid certificate: Revoked"),
            (
                io(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)),
                "the server does not speak TLS",
            ),
            (io("tunnel error: proxy authorization required"), PROXY_AUTH_REQUIRED),
            (io("something else"), "something else"),
        ];
        for (error, expected) in cases {
            assert_eq!(explain(&error), expected);
        }
    }

    #[test]
    fn only_an_unknown_authority_has_a_remedy() {
        let unknown = io(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let expired = io(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert!(is_untrusted(&unknown) && is_untrusted(&expired));
        assert!(explain_with_remedy(&unknown).contains("SSL_CERT_FILE"));
        assert_eq!(explain_with_remedy(&expired), explain(&expired));
    }
}
