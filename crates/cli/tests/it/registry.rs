//! A real registry with images that no engine has. A proxy, which can be throttled, makes it
//! reachable on the loopback of the engine.

use std::fs::{self, File};
use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hermes_testkit::eventually;
use hermes_testkit::peers;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;
use sha2::{Digest, Sha256};

/// The htpasswd entry of "user" with the password "hunter2".
const HTPASSWD: &str = "user:$2b$04$tQMXGayGSSrSj/B1F9deFO6VnGOJw6dGGdDkwjEPHOEK2Z2/7WSn2\n";
/// The same credentials as `docker login` stores them.
pub(crate) const AUTH: &str = "dXNlcjpodW50ZXIy";

const MANIFEST_TYPE: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// An engine among the peers.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) socket: PathBuf,
    busybox: PathBuf,
}

/// The engines that are up. A missing engine fails in CI and prints a notice elsewhere.
pub(crate) fn engines(names: &[&str]) -> Vec<Engine> {
    let found = |name: &&str| {
        let socket = peers::socket(name)?;
        let busybox = peers::image("busybox").unwrap()["tarball"].as_str().unwrap().into();
        Some(Engine { name: (*name).to_owned(), socket, busybox })
    };
    names.iter().filter_map(found).collect()
}

impl Engine {
    pub(crate) fn has_image(&self, image: &str) -> bool {
        http(&self.socket, "GET", &format!("/images/{image}/json"), &[], b"").0 == 200
    }

    pub(crate) fn remove_image(&self, image: &str) {
        http(&self.socket, "DELETE", &format!("/images/{image}?force=true"), &[], b"");
    }
}

/// Whether a registry requires credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    Open,
    Locked,
}

/// A registry that one engine can reach.
pub(crate) struct Registry {
    engine: Engine,
    folder: tempfile::TempDir,
    server: Child,
    proxy: Arc<RegistryProxy>,
    pub(crate) host: String,
    pushed: Vec<String>,
}

#[derive(Default)]
struct RegistryProxy {
    is_throttled: AtomicBool,
    open_connections: AtomicUsize,
    bytes_sent: AtomicUsize,
}

/// An image in a registry.
pub(crate) struct Pushed {
    pub(crate) name: String,
    pub(crate) digest: String,
    /// The digest of its largest layer.
    pub(crate) layer: String,
}

impl Registry {
    pub(crate) fn new(engine: &Engine, lock: Lock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut config = json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": path("store")}},
            "http": {"net": "unix", "addr": path("sock"), "secret": "of a test"},
        });
        if lock == Lock::Locked {
            fs::write(path("users"), HTPASSWD).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": path("users")}});
        }
        fs::write(path("config.yml"), config.to_string()).unwrap();
        let log = File::create(path("log")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the peer")]
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(path("config.yml")).stdin(Stdio::null());
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        eventually("the registry answers", || UnixStream::connect(path("sock")).is_ok());
        let proxy = Arc::new(RegistryProxy::default());
        let port = RegistryProxy::start(&proxy, engine, path("sock"));
        Self {
            engine: engine.clone(),
            folder,
            server,
            proxy,
            host: format!("127.0.0.1:{port}"),
            pushed: Vec::new(),
        }
    }

    /// Pushes an image with a shell and some megabytes of random data.
    pub(crate) fn push(&mut self, name: &str, processor: &str, megabytes: usize) -> Pushed {
        let layers = [fs::read(&self.engine.busybox).unwrap(), self.noise(megabytes << 20)];
        let digests = layers.each_ref().map(|layer| self.upload(name, layer));
        let config = json!({
            "architecture": processor,
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": digests},
        })
        .to_string();
        let part = |kind: &str, bytes: &[u8], digest: &str| {
            let kind = format!("application/vnd.docker.{kind}");
            json!({"mediaType": kind, "size": bytes.len(), "digest": digest})
        };
        let image = self.upload(name, config.as_bytes());
        let list: Vec<_> = layers
            .iter()
            .zip(&digests)
            .map(|(layer, digest)| part("image.rootfs.diff.tar.gzip", layer, digest))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": part("container.image.v1+json", config.as_bytes(), &image),
            "layers": list,
        })
        .to_string();
        let kind = format!("Content-Type: {MANIFEST_TYPE}");
        let path = format!("/v2/{name}/manifests/v1");
        let (status, response) = self.request("PUT", &path, &[&kind], manifest.as_bytes());
        assert_eq!(status, 201, "{response}");
        let (image, digest) = (format!("{}/{name}:v1", self.host), digest(manifest.as_bytes()));
        // An image that lost its tag to a newer one is removed by digest.
        self.pushed.extend([image.clone(), format!("{}/{name}@{digest}", self.host)]);
        Pushed { name: image, digest, layer: digests[1].clone() }
    }

    /// Returns a layer with one file of random bytes, which no engine can have.
    fn noise(&self, bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
        fs::write(self.folder.path().join("noise"), noise).unwrap();
        #[expect(clippy::disallowed_methods, reason = "makes the layer")]
        let mut tar = Command::new("tar");
        tar.args(["--create", "--file=-", "noise"]).current_dir(self.folder.path());
        tar.output().unwrap().stdout
    }

    fn upload(&self, name: &str, blob: &[u8]) -> String {
        let (status, response) = self.request("POST", &format!("/v2/{name}/blobs/uploads/"), &[], b"");
        assert_eq!(status, 202, "{response}");
        let location = response.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let (_, path) = location.split_once("/v2/").unwrap();
        let digest = digest(blob);
        let (status, response) = self.request("PUT", &format!("/v2/{path}&digest={digest}"), &[], blob);
        assert_eq!(status, 201, "{response}");
        digest
    }

    fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (u16, String) {
        let authorization = format!("Authorization: Basic {AUTH}");
        let headers: Vec<&str> = headers.iter().copied().chain([authorization.as_str()]).collect();
        http(&self.folder.path().join("sock"), method, path, &headers, body)
    }

    /// How many read requests had this in their path.
    pub(crate) fn reads(&self, path: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        let read = |line: &&str| line.contains("\"GET /v2/") || line.contains("\"HEAD /v2/");
        log.lines().filter(read).filter(|line| line.contains(path)).count()
    }

    pub(crate) fn throttle(&self) {
        self.proxy.is_throttled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn unthrottle(&self) {
        self.proxy.is_throttled.store(false, Ordering::SeqCst);
    }

    /// How many bytes the proxy has sent to the engine.
    pub(crate) fn bytes_sent(&self) -> usize {
        self.proxy.bytes_sent.load(Ordering::SeqCst)
    }

    /// How many connections of the engine are open.
    pub(crate) fn connections(&self) -> usize {
        self.proxy.open_connections.load(Ordering::SeqCst)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.unthrottle();
        for image in &self.pushed {
            self.engine.remove_image(image);
        }
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl RegistryProxy {
    /// Listens on the loopback of the engine's network namespace and returns the port.
    fn start(proxy: &Arc<Self>, engine: &Engine, registry: PathBuf) -> u16 {
        let connection = UnixStream::connect(&engine.socket).unwrap();
        let pid = rustix::net::sockopt::socket_peercred(&connection).unwrap().pid;
        // Podman's threads enter the network namespaces of its containers. Without root a thread
        // cannot return and ends there, except the first thread, which cannot end and would be
        // found there. The parent process stays in the namespace of the engine.
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
        let network = File::open(format!("/proc/{parent}/ns/net")).unwrap();
        let proxy = Arc::clone(proxy);
        let (port, port_sent) = std::sync::mpsc::channel();
        thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            port.send(listener.local_addr().unwrap().port()).unwrap();
            for caller in listener.incoming() {
                let (proxy, Ok(server)) = (Arc::clone(&proxy), UnixStream::connect(&registry)) else {
                    return;
                };
                thread::spawn(move || proxy.forward(caller.unwrap(), server));
            }
        });
        port_sent.recv().unwrap()
    }

    fn forward(&self, caller: TcpStream, server: UnixStream) {
        self.open_connections.fetch_add(1, Ordering::SeqCst);
        let (mut from, mut to) = (caller.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || {
            copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Both).ok();
            from.shutdown(Shutdown::Both).ok();
        });
        let (mut from, mut to) = (server, caller);
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.bytes_sent.fetch_add(count, Ordering::SeqCst);
            if self.is_throttled.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(250));
            }
        }
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
        self.open_connections.fetch_sub(1, Ordering::SeqCst);
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Sends one request over a socket and returns the status and the whole response.
fn http(socket: &Path, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response).replace("\r\n", "\n");
    (response.split(' ').nth(1).unwrap().parse().unwrap(), response)
}
