//! `web_fetch`, against servers on this machine. A resolver lets the client reach them although
//! they are not public.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hermes_agent::http::{FetchLimits, ResolveHost, WebClient};
use hermes_agent::{Error, Tool};
use hermes_exec::proxy::{self, HostError};
use hermes_types::Secret;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::Fixture;

/// A server whose response depends on the path.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(respond: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, respond) = (requests.clone(), Arc::new(respond));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let respond = respond.clone();
                // A client may disconnect early.
                tokio::spawn(async move { drop(serve(stream, &*respond).await) });
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://site.test:{}{path}", self.address.port())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

enum Response {
    /// Headers and a body.
    Whole(String, Vec<u8>),
    /// Headers and an endless body.
    Endless(String),
    /// Headers and an incomplete body, then silence.
    Stuck(String),
}

async fn serve(mut stream: TcpStream, respond: &(impl Fn(&str) -> Response + Sync)) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(buffer.get(..count).unwrap());
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap();
    match respond(path) {
        Response::Whole(head, body) => {
            let head =
                format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await?;
        }
        Response::Endless(head) => {
            stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
        Response::Stuck(head) => {
            stream
                .write_all(format!("HTTP/1.1 {head}\r\nContent-Length: 100\r\n\r\nbegun").as_bytes())
                .await?;
            std::future::pending::<()>().await;
        }
    }
    stream.shutdown().await
}

fn page(body: &str) -> Response {
    Response::Whole("200 OK\r\nContent-Type: text/plain".to_owned(), body.as_bytes().to_vec())
}

fn redirect(to: &str) -> Response {
    Response::Whole(format!("302 Found\r\nLocation: {to}"), Vec::new())
}

/// Resolves one name to this machine, and all others as in production.
fn resolver(resolved: Arc<AtomicUsize>) -> ResolveHost {
    Arc::new(move |host| {
        let resolved = resolved.clone();
        Box::pin(async move {
            resolved.fetch_add(1, Ordering::SeqCst);
            match host.as_str() {
                "site.test" => Ok(vec![IpAddr::from(Ipv4Addr::LOCALHOST)]),
                other => proxy::resolve_public(other).await,
            }
        })
    })
}

fn web(limits: FetchLimits) -> WebClient {
    WebClient::new(resolver(Arc::default()), limits)
}

const LIMITS: FetchLimits = FetchLimits { timeout: Duration::from_secs(20), max_bytes: 100_000 };

#[tokio::test]
async fn a_page_is_fetched_only_from_the_checked_address() {
    let server = Server::start(|path| if path == "/go" { redirect("/there#part") } else { page(path) }).await;
    let resolved = Arc::new(AtomicUsize::new(0));
    let web = WebClient::new(resolver(resolved.clone()), LIMITS);
    // DNS does not know this name, so only the resolver of the client was used, once per request.
    let got = web.fetch(&server.url("/go")).await.unwrap();
    assert_eq!((got.status, got.body.as_slice(), got.is_partial), (200, b"/there".as_slice(), false));
    assert_eq!((got.url.path(), got.url.fragment()), ("/there", None));
    assert_eq!((resolved.load(Ordering::SeqCst), server.requests()), (2, 2));
}

#[tokio::test]
async fn only_public_addresses_are_reached() {
    let web = WebClient::default();
    for address in [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
        "http://10.0.0.1/",
        "http://192.168.1.1:8080/",
        "http://intranet/",
        "http://printer.local/",
        "http://0/",
    ] {
        let error = web.fetch(address).await.unwrap_err();
        assert!(matches!(error, Error::Host { reason: HostError::NotPublic(_), .. }), "{address}: {error}");
    }
    for address in [
        "file:///etc/passwd", "ftp://example.org/", "javascript:1", "http://", "nonsense",
        "http://u:p@example.org/", "http://u@example.org/",
    ] {
        let error = web.fetch(address).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl(_)), "{address}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_is_checked_like_any_url() {
    let server = Server::start(|path| match path {
        "/loop" => redirect("/loop"),
        path => redirect(path.trim_start_matches("/to/")),
    })
    .await;
    let web = web(LIMITS);
    for inside in [
        "http://127.0.0.1:1/", "http://169.254.169.254/", "http://[::1]/", "http://2130706433/",
        "//localhost/", "http://0x7f000001/",
    ] {
        let error = web.fetch(&server.url(&format!("/to/{inside}"))).await.unwrap_err();
        assert!(matches!(error, Error::Host { reason: HostError::NotPublic(_), .. }), "{inside}: {error}");
    }
    for wrong in ["file:///etc/passwd", "http://user:password@site.test/"] {
        let error = web.fetch(&server.url(&format!("/to/{wrong}"))).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl(_)), "{wrong}: {error}");
    }
    let before = server.requests();
    assert!(matches!(web.fetch(&server.url("/loop")).await.unwrap_err(), Error::TooManyRedirects));
    assert_eq!(server.requests() - before, 6);
}

#[tokio::test]
async fn a_page_is_limited_in_size_and_time() {
    let bomb = {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..100).for_each(|_| packer.write_all(&[b'z'; 1 << 20]).unwrap());
        packer.finish().unwrap()
    };
    assert!(bomb.len() < 200_000);
    let head = "200 OK\r\nContent-Type: text/plain".to_owned();
    let server = Server::start(move |path| match path {
        "/endless" => Response::Endless(head.clone()),
        "/stuck" => Response::Stuck(head.clone()),
        "/bomb" => Response::Whole(format!("{head}\r\nContent-Encoding: gzip"), bomb.clone()),
        "/broken" => {
            Response::Whole(format!("{head}\r\nContent-Encoding: gzip"), b"\x1f\x8bnonsense".to_vec())
        }
        "/other" => Response::Whole(format!("{head}\r\nContent-Encoding: br"), b"x".to_vec()),
        _ => Response::Whole(head.clone(), vec![b'y'; 100_000]),
    })
    .await;
    let web = web(LIMITS);
    for path in ["/endless", "/bomb"] {
        let got = web.fetch(&server.url(path)).await.unwrap();
        assert_eq!((got.body.len(), got.is_partial), (100_000, true), "{path}");
    }
    let got = web.fetch(&server.url("/just")).await.unwrap();
    assert_eq!((got.body.len(), got.is_partial), (100_000, false));
    assert!(matches!(web.fetch(&server.url("/broken")).await.unwrap_err(), Error::Decompression(_)));
    assert!(matches!(web.fetch(&server.url("/other")).await.unwrap_err(), Error::ContentEncoding(_)));
    let impatient = self::web(FetchLimits { timeout: Duration::from_millis(200), ..LIMITS });
    assert!(matches!(impatient.fetch(&server.url("/stuck")).await.unwrap_err(), Error::FetchTimeout(_)));
}

#[tokio::test]
async fn text_is_returned_in_parts_and_no_secret_is_sent_in_a_url() {
    let server = Server::start(|path| match path {
        "/html" => Response::Whole(
            "200 OK\r\nContent-Type: text/html; charset=iso-8859-1".to_owned(),
            b"<title>T</title><h2>gr\xfcn</h2><p>see <a href=/x>this</a><script>evil()</script>".to_vec(),
        ),
        "/gone" => {
            Response::Whole("404 Not Found\r\nContent-Type: text/plain".to_owned(), b"no such page".to_vec())
        }
        "/image" => Response::Whole("200 OK\r\nContent-Type: image/png".to_owned(), b"\x89PNG".to_vec()),
        _ => page("0123456789"),
    })
    .await;
    let mut fixture = Fixture::local();
    fixture.web = Arc::new(web(LIMITS));
    fixture.secrets = vec![Secret::new("hunter2/hunter2")];
    let s = fixture.session().await;
    let fetch = |path: &str| json!({"url": server.url(path)});
    let result = s.succeed(Tool::WebFetch, fetch("/html")).await;
    let link = server.url("/x");
    assert_eq!(result["content"], format!("# T\n\n## grün\n\nsee [this]({link})"));
    assert_eq!((&result["status"], &result["url"]), (&json!(200), &json!(server.url("/html"))));
    let mut part = fetch("/");
    part["max_length"] = json!(4);
    part["offset"] = json!(3);
    let result = s.succeed(Tool::WebFetch, part).await;
    assert_eq!((&result["content"], &result["total_length"]), (&json!("3456"), &json!(10)));
    let gone = s.call(Tool::WebFetch, fetch("/gone")).await;
    assert_eq!((&gone.content["content"], gone.succeeded), (&json!("no such page"), false));
    assert!(s.error(Tool::WebFetch, fetch("/image")).await.contains("not text"));
    let before = server.requests();
    for secret in ["/?q=hunter2/hunter2", "/?q=hunter2%2Fhunter2"] {
        assert!(s.error(Tool::WebFetch, fetch(secret)).await.contains("secret"));
    }
    assert_eq!(server.requests(), before);
    assert!(
        s.error(Tool::WebFetch, json!({"url": "http://127.0.0.1/"})).await.contains("not a public address")
    );
}
