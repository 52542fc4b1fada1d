//! The way to the gateway through a proxy.
//!
//! Twilight connects to an address and nothing else, so it is given one of this machine: what comes there is brought
//! through the proxy, made secret on the way with the name of the server it is for, and its first lines are changed to say that
//! name too. Nothing of ours may go around the proxy, so twilight is never left to connect again by itself: it would do so
//! with the address that the gateway told it.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel as Connect};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tower_service::Service as _;

use super::{deepest, lock, rest};
use hermes_types::Secret;

/// The longest a connection through the proxy takes.
const CONNECTS: Duration = Duration::from_secs(15);
/// How long the last words of a server can be read.
const LINGERS: Duration = Duration::from_millis(500);
/// The longest first lines.
const HEAD: usize = 8 * 1024;
/// Connections at once; twilight has one.
const MOST: usize = 8;

/// A proxy that everything goes through.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// With the name and the password, where it has such.
    url: Secret,
    is_socks: bool,
}

impl Proxy {
    /// Reads `http://host:port` or `socks5://host:port`, with `user:password@` before the host where it wants that.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).map_err(|error| format!("it is no address: {error}"))?;
        let is_socks = match url.scheme() {
            "http" => false,
            // Names are always looked up by the proxy.
            "socks5" | "socks5h" => true,
            other => return Err(format!("{other}:// is not spoken; http:// and socks5:// are")),
        };
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err("it names no host".to_owned());
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err("it has more than a host and a port".to_owned());
        }
        let who = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, password) => format!("{user}:{}@", password.unwrap_or_default()),
        };
        let port = url.port_or_known_default().unwrap_or(1080);
        let scheme = if is_socks { "socks5h" } else { "http" };
        Ok(Self { url: Secret::new(format!("{scheme}://{who}{host}:{port}")), is_socks })
    }

    /// The proxy for requests.
    pub(super) fn for_requests(&self) -> Result<reqwest::Proxy, String> {
        reqwest::Proxy::all(self.url.expose()).map_err(|_| "the address of the proxy is wrong".to_owned())
    }

    /// Connects to a server through the proxy.
    async fn connect(&self, server: &Uri) -> Result<TcpStream, String> {
        let matcher = Matcher::builder().all(self.url.expose()).build();
        let way = matcher.intercept(server).ok_or("the address of the proxy is wrong")?;
        let proxy = Uri::builder()
            .scheme("http")
            .authority(way.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default())
            .path_and_query("/")
            .build()
            .map_err(|error| error.to_string())?;
        let connected = if self.is_socks {
            let mut socks = SocksV5::new(proxy, HttpConnector::new());
            if let Some((user, password)) = way.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            poll_fn(|context| socks.poll_ready(context)).await.map_err(|error| error.to_string())?;
            socks.call(server.clone()).await.map_err(|error| deepest(&error))?
        } else {
            let mut connect = Connect::new(proxy, HttpConnector::new());
            if let Some(header) = way.basic_auth() {
                connect = connect.with_auth(header.clone());
            }
            poll_fn(|context| connect.poll_ready(context)).await.map_err(|error| error.to_string())?;
            connect.call(server.clone()).await.map_err(|error| deepest(&error))?
        };
        Ok(connected.into_inner())
    }
}

/// An address of this machine behind which a proxy is.
#[derive(Debug)]
pub(super) struct Tunnel {
    base: String,
    trouble: Arc<Mutex<Option<String>>>,
    task: AbortHandle,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tunnel {
    pub(super) async fn open(proxy: Proxy) -> Result<Self, String> {
        let words = |error: io::Error| format!("no way to the proxy can be opened: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(words)?;
        let port = listener.local_addr().map_err(words)?.port();
        // Others on this machine can connect too; they do not get through without this.
        let mut secret = [0; 16];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut secret).map_err(|_| "there is no randomness".to_owned())?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let trouble = Arc::new(Mutex::new(None));
        let way = Way { proxy, prefix: format!("/{secret}/"), trouble: Arc::clone(&trouble) };
        let task = tokio::spawn(serve(listener, Arc::new(way))).abort_handle();
        Ok(Self { base: format!("ws://127.0.0.1:{port}/{secret}/"), trouble, task })
    }

    /// The address under which a server is reached through the proxy.
    pub(super) fn through(&self, url: &str) -> String {
        match url.trim_end_matches('/').split_once("://") {
            Some((scheme, server)) if !url.starts_with(&self.base) => {
                format!("{}{scheme}/{server}", self.base)
            }
            _ => url.to_owned(),
        }
    }

    /// Why the last connection did not get through, if it did not.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).take()
    }
}

/// How connections are brought through.
#[derive(Debug)]
struct Way {
    proxy: Proxy,
    prefix: String,
    trouble: Arc<Mutex<Option<String>>>,
}

async fn serve(listener: TcpListener, way: Arc<Way>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MOST {
            connections.join_next().await;
        }
        let Ok((local, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let way = Arc::clone(&way);
        connections.spawn(async move { way.bring(local).await });
        while connections.try_join_next().is_some() {}
    }
}

impl Way {
    async fn bring(&self, mut local: TcpStream) {
        let brought = match tokio::time::timeout(CONNECTS, self.reach(&mut local)).await {
            Ok(brought) => brought,
            Err(_) => Err("it takes too long".to_owned()),
        };
        match brought {
            Ok(remote) => carry(&mut local, remote).await,
            Err(why) => *lock(&self.trouble) = Some(format!("the proxy does not get through: {why}")),
        }
        // An end that is no error is one after which twilight connects again by itself.
        local.set_zero_linger().ok();
    }

    /// Reads the first lines, and says them to the server they are for.
    async fn reach(&self, local: &mut TcpStream) -> Result<Box<dyn Stream>, String> {
        let head = head(local).await.map_err(|error| error.to_string())?;
        let (server, head) = self.readdressed(&head).ok_or("somebody else connected")?;
        let stream = self.proxy.connect(&server).await?;
        let mut stream: Box<dyn Stream> = match server.scheme_str() {
            Some("https") => Box::new(secured(stream, &server).await?),
            _ => Box::new(stream),
        };
        stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    /// The server that first lines are for, and what they are for it.
    fn readdressed(&self, head: &str) -> Option<(Uri, String)> {
        let (first, rest) = head.split_once("\r\n")?;
        let path = first.strip_prefix("GET ")?.strip_prefix(self.prefix.as_str())?;
        let (scheme, path) = path.split_once('/')?;
        let (server, path) = path.split_once('/')?;
        let scheme = match scheme {
            "wss" => "https",
            "ws" => "http",
            _ => return None,
        };
        let with_port = match (server.rsplit_once(':'), scheme) {
            (Some(_), _) => server.to_owned(),
            (None, "https") => format!("{server}:443"),
            (None, _) => format!("{server}:80"),
        };
        let uri = format!("{scheme}://{with_port}/").parse().ok()?;
        let mut lines = vec![format!("GET /{path}"), format!("Host: {server}")];
        let is_host = |line: &&str| line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("host:"));
        lines.extend(rest.split("\r\n").filter(|line| !is_host(line)).map(str::to_owned));
        Some((uri, lines.join("\r\n")))
    }
}

/// Carries what is said in both directions, until one side says no more. That is not told here: the other side is to find an
/// error, after it read what there is.
async fn carry(local: &mut TcpStream, remote: Box<dyn Stream>) {
    let (mut from_local, mut to_local) = local.split();
    let (mut from_remote, mut to_remote) = tokio::io::split(remote);
    let out = copy(&mut from_local, &mut to_remote);
    let back = async {
        copy(&mut from_remote, &mut to_local).await.ok();
        tokio::time::sleep(LINGERS).await;
    };
    tokio::select! {
        _ = out => {}
        () = back => {}
    }
}

/// Both directions of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The first lines of a request, with the empty one.
async fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD || stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    String::from_utf8(head).map_err(io::Error::other)
}

async fn secured(stream: TcpStream, server: &Uri) -> Result<impl Stream + 'static, String> {
    let config = rest::tls(rest::roots()?)?;
    let name = ServerName::try_from(server.host().unwrap_or_default().to_owned());
    let name = name.map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_and_others_refused() {
        let cases = [
            ("http://proxy.example:3128", Some("http://proxy.example:3128")),
            ("http://proxy.example/", Some("http://proxy.example:80")),
            ("socks5://10.0.0.1", Some("socks5h://10.0.0.1:1080")),
            ("socks5h://me:p%40ss@proxy:9", Some("socks5h://me:p%40ss@proxy:9")),
            ("http://me@proxy:9", Some("http://me:@proxy:9")),
            ("https://proxy.example", None),
            ("socks4://proxy.example", None),
            ("proxy.example:3128", None),
            ("http://proxy.example/path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let read = Proxy::parse(text).map(|proxy| proxy.url.expose().to_owned());
            assert_eq!(read.as_deref().ok(), expected, "{text}: {read:?}");
        }
        assert!(!format!("{:?}", Proxy::parse("http://me:hush@proxy")).contains("hush"));
    }

    #[test]
    fn the_first_lines_say_the_name_of_the_server() {
        let proxy = Proxy::parse("http://proxy").unwrap();
        let way = Way { proxy, prefix: "/secret/".to_owned(), trouble: Arc::default() };
        let head =
            |path: &str| format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:5\r\nUpgrade: websocket\r\n\r\n");
        let cases = [
            (
                "/secret/wss/gateway.discord.gg/?v=10",
                Some(("https://gateway.discord.gg:443/", "gateway.discord.gg")),
            ),
            ("/secret/ws/127.0.0.1:80/?v=10", Some(("http://127.0.0.1:80/", "127.0.0.1:80"))),
            ("/other/wss/gateway.discord.gg/?v=10", None),
            ("/secret/ftp/gateway.discord.gg/?v=10", None),
            ("/secret/wss", None),
        ];
        for (path, expected) in cases {
            let got = way.readdressed(&head(path));
            let wanted = expected.map(|(uri, host)| {
                let lines = format!("GET /?v=10 HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n\r\n");
                (uri.parse::<Uri>().unwrap(), lines)
            });
            assert_eq!(got, wanted, "{path}");
        }
    }
}
