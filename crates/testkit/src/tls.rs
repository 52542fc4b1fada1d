//! A TLS terminator in front of a fake server, with faults to inject.

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

use crate::server_task::ServerTask;

/// The start of a handshake record.
const TLS_RECORD_START: &[u8] = &[0x16, 0x03, 0x03];

#[derive(Debug)]
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// How a connection is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsBehavior {
    Valid,
    WrongName,
    Expired,
    NotYetValid,
    UnknownAuthority,
    NoTls,
    /// The connection breaks during the handshake.
    BrokenHandshake,
    /// Nothing is sent.
    Silent,
    /// The connection ends without `close_notify`.
    NoCloseNotify,
}

/// Terminates TLS in front of a server until it is dropped.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    state: Arc<FrontState>,
    _task: ServerTask,
}

#[derive(Debug)]
struct FrontState {
    server: SocketAddr,
    authority: Arc<CertificateAuthority>,
    names: Vec<String>,
    behavior: Mutex<TlsBehavior>,
    /// The number of accepted connections.
    accepted: watch::Sender<u32>,
    /// Changes when all connections are dropped.
    cuts: watch::Sender<u32>,
}

impl CertificateAuthority {
    /// Creates an authority that no system trusts.
    pub fn new() -> io::Result<Arc<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut params = CertificateParams::default();
        // Each needs a name of its own, or a client would report a bad signature.
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Ok(Arc::new(Self(CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?)))
    }

    /// The certificate in PEM form.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A store that trusts only this authority.
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
    /// Starts in front of a server, with certificates for its own address and for `name`.
    pub fn start(server: SocketAddr, authority: &Arc<CertificateAuthority>, name: &str) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(FrontState {
            server,
            authority: Arc::clone(authority),
            names: vec![address.ip().to_string(), name.to_owned()],
            behavior: Mutex::new(TlsBehavior::Valid),
            accepted: watch::Sender::default(),
            cuts: watch::Sender::default(),
        });
        let served = Arc::clone(&state);
        let task = ServerTask::spawn("tls", move || serve(listener, served))?;
        Ok(Self { address, state, _task: task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets how later connections are handled.
    pub fn set_behavior(&self, behavior: TlsBehavior) {
        *self.state.behavior.lock().unwrap_or_else(PoisonError::into_inner) = behavior;
    }

    pub fn drop_connections(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The number of accepted connections, to watch.
    pub fn accepted(&self) -> watch::Receiver<u32> {
        self.state.accepted.subscribe()
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<FrontState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        state.accepted.send_modify(|count| *count += 1);
        let (state, mut cuts) = (Arc::clone(&state), state.cuts.subscribe());
        connections.spawn(async move {
            tokio::select! {
                // A connection often breaks because the test wants it.
                _ended = state.relay(client) => {}
                _cut = cuts.changed() => {}
            }
        });
    }
}

impl FrontState {
    async fn relay(&self, mut client: TcpStream) -> io::Result<()> {
        let behavior = *self.behavior.lock().unwrap_or_else(PoisonError::into_inner);
        match behavior {
            TlsBehavior::Silent => return std::future::pending().await,
            TlsBehavior::BrokenHandshake => {
                // Unread data would reset the connection instead of closing it.
                let received = client.read(&mut [0; 16 * 1024]).await?;
                return if received > 0 { client.write_all(TLS_RECORD_START).await } else { Ok(()) };
            }
            _ => {}
        }
        if behavior == TlsBehavior::NoTls {
            let mut server = TcpStream::connect(self.server).await?;
            return copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
        let acceptor = TlsAcceptor::from(Arc::new(self.config(behavior)?));
        let mut client = acceptor.accept(client).await?;
        let mut server = TcpStream::connect(self.server).await?;
        if behavior == TlsBehavior::NoCloseNotify {
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

    fn config(&self, behavior: TlsBehavior) -> io::Result<ServerConfig> {
        let names = if behavior == TlsBehavior::WrongName {
            vec!["other.invalid".to_owned()]
        } else {
            self.names.clone()
        };
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        match behavior {
            TlsBehavior::Expired => params.not_after = date_time_ymd(2001, 1, 1),
            TlsBehavior::NotYetValid => params.not_before = date_time_ymd(4000, 1, 1),
            TlsBehavior::UnknownAuthority => return CertificateAuthority::new()?.sign(&params),
            _ => {}
        }
        self.authority.sign(&params)
    }
}
