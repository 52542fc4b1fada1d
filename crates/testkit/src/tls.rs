//! TLS before a fake server, and what can be wrong with it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::server_task::Aside;

/// How the answer to a handshake begins.
const TLS_RECORD_START: &[u8] = &[0x16, 0x03, 0x03];

/// Who signs certificates.
#[derive(Debug)]
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// How connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsBehavior {
    /// As they should be.
    Valid,
    /// With a certificate for another name.
    WrongName,
    /// With a certificate that has expired.
    Expired,
    /// With a certificate that is not valid yet.
    NotYetValid,
    /// With a certificate of another authority.
    UnknownAuthority,
    /// Without TLS.
    NoTls,
    /// They break in the middle of the handshake.
    BrokenHandshake,
    /// Not a word is said.
    Silent,
    /// They end without the word that TLS has for it.
    NoCloseNotify,
}

/// What stands before a server and speaks TLS for it. It ends when it is dropped.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    shared: Arc<FrontState>,
    _aside: Aside,
}

#[derive(Debug)]
struct FrontState {
    server: SocketAddr,
    authority: Arc<CertificateAuthority>,
    names: Vec<String>,
    behavior: Mutex<TlsBehavior>,
    /// How often a connection was made.
    accepted: watch::Sender<u32>,
    /// How often all connections were cut.
    cuts: watch::Sender<u32>,
}

impl CertificateAuthority {
    /// A new one that nobody knows.
    pub fn new() -> io::Result<Arc<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut params = CertificateParams::default();
        // Two of the same name would be told apart only by their signatures.
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Ok(Arc::new(Self(CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?)))
    }

    /// Its certificate, as it is in files.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// What somebody trusts who trusts nobody else.
    pub fn roots(&self) -> io::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).map_err(io::Error::other)?;
        Ok(roots)
    }

    fn sign(&self, params: &CertificateParams) -> io::Result<ServerConfig> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.0).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .map_err(io::Error::other)
    }
}

impl TlsFront {
    /// Stands before a server, under the address it listens at and another name.
    pub fn start(server: SocketAddr, authority: &Arc<CertificateAuthority>, name: &str) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(FrontState {
            server,
            authority: Arc::clone(authority),
            names: vec![address.ip().to_string(), name.to_owned()],
            behavior: Mutex::new(TlsBehavior::Valid),
            accepted: watch::Sender::default(),
            cuts: watch::Sender::default(),
        });
        let served = Arc::clone(&shared);
        let aside = Aside::begin("tls", move || serve(listener, served))?;
        Ok(Self { address, shared, _aside: aside })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How connections are taken from now on.
    pub fn set_behavior(&self, manner: TlsBehavior) {
        *self.shared.behavior.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// Cuts all connections.
    pub fn drop_connections(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How often a connection was made, and when that changes.
    pub fn accepted(&self) -> watch::Receiver<u32> {
        self.shared.accepted.subscribe()
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<FrontState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        shared.accepted.send_modify(|taken| *taken += 1);
        let (shared, mut cuts) = (Arc::clone(&shared), shared.cuts.subscribe());
        connections.spawn(async move {
            tokio::select! {
                // A connection that ends badly is often what the test wanted.
                _ended = shared.relay(client) => {}
                _cut = cuts.changed() => {}
            }
        });
    }
}

impl FrontState {
    async fn relay(&self, mut client: TcpStream) -> io::Result<()> {
        let manner = *self.behavior.lock().unwrap_or_else(PoisonError::into_inner);
        match manner {
            TlsBehavior::Silent => return std::future::pending().await,
            TlsBehavior::BrokenHandshake => {
                // All of what it says, since what is left unread would break it in another way.
                let heard = client.read(&mut [0; 16 * 1024]).await?;
                return if heard > 0 { client.write_all(TLS_RECORD_START).await } else { Ok(()) };
            }
            _ => {}
        }
        if manner == TlsBehavior::NoTls {
            let mut server = TcpStream::connect(self.server).await?;
            return copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
        let acceptor = TlsAcceptor::from(Arc::new(self.config(manner)?));
        let mut client = acceptor.accept(client).await?;
        let mut server = TcpStream::connect(self.server).await?;
        if manner == TlsBehavior::NoCloseNotify {
            let (mut from_client, mut to_client) = split(client);
            let (mut from_server, mut to_server) = server.split();
            tokio::select! {
                up = copy(&mut from_client, &mut to_server) => up?,
                down = copy(&mut from_server, &mut to_client) => down?,
            };
            return Ok(());
        }
        copy_bidirectional(&mut client, &mut server).await.map(drop)
    }

    fn config(&self, manner: TlsBehavior) -> io::Result<ServerConfig> {
        let names = if manner == TlsBehavior::WrongName {
            vec!["other.invalid".to_owned()]
        } else {
            self.names.clone()
        };
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        match manner {
            TlsBehavior::Expired => params.not_after = date_time_ymd(2001, 1, 1),
            TlsBehavior::NotYetValid => params.not_before = date_time_ymd(4000, 1, 1),
            TlsBehavior::UnknownAuthority => return CertificateAuthority::new()?.sign(&params),
            _ => {}
        }
        self.authority.sign(&params)
    }
}
