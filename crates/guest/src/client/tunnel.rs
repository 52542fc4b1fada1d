//! Connections of programs in the environment to the host.

use tokio::sync::mpsc;

use super::Client;
use super::connection::RequestStream;
use super::error::Error;
use crate::protocol::message::{GuestReply, GuestRequest};
use crate::protocol::tunnel::Tunnel;

/// A listening socket inside the environment.
#[derive(Debug)]
pub struct TunnelListener {
    /// The TCP port inside the environment.
    pub port: u16,
    /// Ends when the connection to the guest is closed.
    pub connections: mpsc::Receiver<Tunnel>,
    /// Closing this stream closes the socket.
    _stream: RequestStream,
}

impl Client {
    /// Listens on a TCP port of the environment's loopback interface; 0 selects a free one.
    /// Dropping the listener closes the socket.
    pub async fn listen(&self, port: u16) -> Result<TunnelListener, Error> {
        let (number, connections) = self.register_listener();
        let (stream, reply) = self.start_request(&GuestRequest::Listen(number, port)).await?;
        let GuestReply::Listening(port) = reply else { return Err(self.unexpected_reply(reply)) };
        Ok(TunnelListener { port, connections, _stream: stream })
    }
}
