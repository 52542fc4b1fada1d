//! Tunnels to and from sockets inside the environment.

use tokio::sync::mpsc;

use super::Client;
use super::connection::SharedConnection;
use super::error::Error;
use crate::protocol::frame::FrameStream;
use crate::protocol::limit;
use crate::protocol::message::{GuestReply, GuestRequest, TunnelAddress};
use crate::protocol::mux::MuxStream;
use crate::protocol::tunnel::{OnReset, Tunnel};

/// Connections waiting to be accepted: as many as a guest forwards at once, so a burst loses none.
const BACKLOG: usize = limit::MAX_LISTENER_CONNECTIONS;

impl Client {
    /// Creates a socket in the environment and forwards its connections. Dropping the listener
    /// removes the socket.
    pub async fn listen(&self, address: TunnelAddress) -> Result<TunnelListener, Error> {
        let (sender, inbound) = mpsc::channel(BACKLOG);
        let number = self.connection.register_listener(sender);
        let request = GuestRequest::Listen(number, address);
        let (frames, reply) = self.connection.start_request(&request).await?;
        let GuestReply::Listening(port) = reply else { return Err(self.connection.unexpected_reply(reply)) };
        Ok(TunnelListener { port, inbound, _connection: self.connection.clone(), _frames: frames })
    }

    /// Connects to a socket in the environment.
    pub async fn dial(&self, address: TunnelAddress) -> Result<Tunnel, Error> {
        let request = GuestRequest::Dial(address);
        let (frames, reply) = self.connection.start_request(&request).await?;
        self.connection.expect_done(reply)?;
        Ok(Tunnel::new(frames, OnReset::EndOfFile))
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
    port: u16,
    inbound: mpsc::Receiver<Tunnel>,
    _connection: SharedConnection,
    /// Closing this stream removes the socket.
    _frames: FrameStream<MuxStream>,
}

impl TunnelListener {
    /// The TCP port inside the environment; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the next connection. Returns `None` when the connection to the guest is closed.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.inbound.recv().await
    }
}
