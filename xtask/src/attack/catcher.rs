//! Servers that record what a command sends out. On the throw-away machine every address leads to
//! them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

const TCP_PORTS: &[u16] = &[
    21, 22, 23, 25, 43, 53, 79, 80, 110, 143, 389, 443, 465, 587, 873, 993, 1234, 1337, 2222, 2375, 3000,
    3306, 4242, 4443, 4444, 5000, 5432, 5555, 6379, 6666, 7000, 7777, 8000, 8080, 8081, 8443, 8888, 9000,
    9001, 9090, 9200, 9418, 9999, 11211, 12345, 27017, 31337,
];
const UDP_PORTS: &[u16] = &[53, 69, 123, 514, 1234, 4444, 5353, 9999];

/// A program that a download returns: it plants start-up code.
const PAYLOAD: &str = "echo downloaded-code >> ~/.bashrc\necho downloaded-code >> ~/.profile\n";

/// Everything that arrived so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Catcher {
    received: Arc<Mutex<Vec<u8>>>,
    /// Names of local sockets that were used.
    used_sockets: Arc<Mutex<Vec<String>>>,
}

impl Catcher {
    /// Starts the servers, and listens on control sockets at these paths.
    pub(super) fn start(sockets: &[(&Path, u32)]) -> Result<Self> {
        let catcher = Self::default();
        for port in TCP_PORTS {
            let listener = TcpListener::bind(("0.0.0.0", *port)).with_context(|| format!("port {port}"))?;
            let catcher = catcher.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let catcher = catcher.clone();
                    thread::spawn(move || catcher.serve_tcp(stream));
                }
            });
        }
        for port in UDP_PORTS {
            let socket = UdpSocket::bind(("0.0.0.0", *port)).with_context(|| format!("port {port}"))?;
            let catcher = catcher.clone();
            thread::spawn(move || catcher.serve_udp(&socket));
        }
        for (path, owner) in sockets {
            fs::create_dir_all(path.parent().context("a socket is in a directory")?)?;
            let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
            std::os::unix::fs::chown(path, Some(*owner), Some(*owner))?;
            let (catcher, name) = (catcher.clone(), path.display().to_string());
            thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    lock(&catcher.used_sockets).push(name.clone());
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").ok();
                }
            });
        }
        Ok(catcher)
    }

    pub(super) fn received(&self) -> Vec<u8> {
        lock(&self.received).clone()
    }

    pub(super) fn used_sockets(&self) -> Vec<String> {
        lock(&self.used_sockets).clone()
    }

    /// Answers anything like a small web server.
    fn serve_tcp(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(200))).ok();
        let mut buffer = [0; 16 << 10];
        let mut has_answered = false;
        for _ in 0..64 {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => lock(&self.received).extend(buffer.get(..count).unwrap_or_default()),
                Err(_) if has_answered => break,
                Err(_) => {}
            }
            if !has_answered {
                has_answered = true;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PAYLOAD}",
                    PAYLOAD.len()
                );
                stream.write_all(head.as_bytes()).ok();
            }
        }
    }

    /// Records datagrams, and answers a query for a name with an address.
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let query = buffer.get(..count).unwrap_or_default();
            // The lengths between the labels of a name would break up what is looked for.
            let text = query.iter().filter(|byte| byte.is_ascii_graphic());
            lock(&self.received).extend(text.copied().chain(*b"\n"));
            lock(&self.received).extend(query);
            if let Some(reply) = dns_reply(query) {
                socket.send_to(&reply, from).ok();
            }
        }
    }
}

/// The answer 198.51.100.7 to a query for an address.
fn dns_reply(query: &[u8]) -> Option<Vec<u8>> {
    let id = query.get(..2)?;
    let question = query.get(12..)?;
    let name_end = question.iter().position(|byte| *byte == 0)?;
    let question = question.get(..name_end + 5)?;
    let is_address = question.get(name_end + 1..name_end + 3)? == [0, 1];
    let mut reply = id.to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    reply.extend(question);
    if is_address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 7]);
    }
    Some(reply)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
