//! Connections of programs in the environment to the host.

use tokio::sync::mpsc;

use super::Client;
use super::connection::SharedConnection;
use super::error::Error;
use crate::protocol::frame::FrameStream;
use crate::protocol::limit;
use crate::protocol::message::{GuestReply, GuestRequest};
use crate::protocol::mux::MuxStream;
use crate::protocol::tunnel::Tunnel;

/// Connections waiting to be accepted: as many as a guest forwards at once, so a burst loses none.
const BACKLOG: usize = limit::MAX_LISTENER_CONNECTIONS;

impl Client {
    /// Listens on a TCP port of the environment's loopback interface; 0 selects a free one.
    /// Dropping the listener closes the socket.
    pub async fn listen(&self, port: u16) -> Result<TunnelListener, Error> {
        let (sender, inbound) = mpsc::channel(BACKLOG);
        let number = self.connection.register_listener(sender);
        let (frames, reply) = self.connection.start_request(&GuestRequest::Listen(number, port)).await?;
        let GuestReply::Listening(port) = reply else { return Err(self.connection.unexpected_reply(reply)) };
        Ok(TunnelListener { port, inbound, _connection: self.connection.clone(), _frames: frames })
    }
}

/// The connections that a Python program opens to the host.
#[derive(Debug)]
pub struct PythonConnections {
    inbound: mpsc::Receiver<Tunnel>,
}

impl PythonConnections {
    /// Registers a listener before the program can connect.
    pub(super) fn register(connection: &SharedConnection) -> (u64, Self) {
        let (sender, inbound) = mpsc::channel(BACKLOG);
        (connection.register_listener(sender), Self { inbound })
    }

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
    _connection: SharedConnection,
    /// Closing this stream closes the socket.
    _frames: FrameStream<MuxStream>,
}

impl TunnelListener {
    /// Waits for the next connection. Returns `None` when the connection to the guest is closed.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.inbound.recv().await
    }
}
