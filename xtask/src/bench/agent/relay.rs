//! Forwards bytes to a model server and records when each request arrived.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Result;

/// A port in front of the server. Its threads end with the connections.
pub(super) struct Relay {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Instant>>>,
}

impl Relay {
    pub(super) fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let times = requests.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { return };
                let times = times.clone();
                forward(&client, &server, move |bytes| {
                    let is_request = bytes.starts_with(b"POST ")
                        && bytes
                            .get(..200)
                            .unwrap_or(bytes)
                            .windows(16)
                            .any(|word| word == b"chat/completions");
                    if is_request {
                        times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                    }
                });
                forward(&server, &client, |_bytes| {});
            }
        });
        Ok(Self { address, requests })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The times at which the requests arrived.
    pub(super) fn requests(&self) -> Vec<Instant> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Forwards the bytes of one direction, on a thread of its own.
fn forward(from: &TcpStream, to: &TcpStream, mut observe: impl FnMut(&[u8]) + Send + 'static) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut buffer) {
            let bytes = buffer.get(..count).unwrap_or_default();
            observe(bytes);
            if count == 0 || to.write_all(bytes).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    });
}
