//! Passes bytes on to a model server, and notes when each request for an answer came.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Result;

/// A port before the server. Its threads end with the connections.
pub(super) struct Relay {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Instant>>>,
}

impl Relay {
    pub(super) fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = requests.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { return };
                let noted = noted.clone();
                pass(&client, &server, move |bytes| {
                    let is_request = bytes.starts_with(b"POST ")
                        && bytes
                            .get(..200)
                            .unwrap_or(bytes)
                            .windows(16)
                            .any(|word| word == b"chat/completions");
                    if is_request {
                        noted.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                    }
                });
                pass(&server, &client, |_bytes| {});
            }
        });
        Ok(Self { address, requests })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// When the requests came.
    pub(super) fn requests(&self) -> Vec<Instant> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Passes on what comes from one side, on a thread of its own.
fn pass(from: &TcpStream, to: &TcpStream, mut see: impl FnMut(&[u8]) + Send + 'static) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut buffer) {
            let bytes = buffer.get(..count).unwrap_or_default();
            see(bytes);
            if count == 0 || to.write_all(bytes).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    });
}
