//! Connections of programs in the environment to the host.

use tokio::sync::mpsc;

use super::Client;
use super::connection::RequestStream;
use super::error::Error;
use crate::protocol::message::{GuestReply, GuestRequest};
use crate::protocol::tunnel::Tunnel;

impl Client {
    /// Listens on a TCP port of the environment's loopback interface; 0 selects a free one.
    /// Dropping the listener closes the socket.
    pub async fn listen(&self, port: u16) -> Result<TunnelListener, Error> {
        let (number, inbound) = self.connection.register_listener();
        let (stream, reply) = self.connection.start_request(&GuestRequest::Listen(number, port)).await?;
        let GuestReply::Listening(port) = reply else { return Err(stream.unexpected_reply(reply)) };
        Ok(TunnelListener { port, inbound, _stream: stream })
    }
}

/// The connections that a Python program opens to the host.
#[derive(Debug)]
pub struct PythonConnections {
    pub(super) inbound: mpsc::Receiver<Tunnel>,
}

impl PythonConnections {
    /// Waits for the next connection. Returns `None` when the connection to the guest is closed.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.inbound.recv().await
    }
}

/// A listening socket inside the environment.
#[derive(Debug)]
pub struct TunnelListener {
    /// The TCP port inside the environment.
    pub port: u16,
    inbound: mpsc::Receiver<Tunnel>,
    /// Closing this stream closes the socket.
    _stream: RequestStream,
}

impl TunnelListener {
    /// Waits for the next connection. Returns `None` when the connection to the guest is closed.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.inbound.recv().await
    }
}
