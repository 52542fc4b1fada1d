//! Connections to Discord, direct or through `discord.proxy`.

use hermes_net::{ConnectError, Connector, NetStream};
use http::Uri;
use reqwest::ClientBuilder;

use super::settings::DiscordSettings;

pub(super) const TIMED_OUT: &str = "timed out";

#[derive(Debug)]
pub(super) struct DiscordTransport {
    connector: Connector,
}

impl DiscordTransport {
    pub(super) fn new(settings: &DiscordSettings) -> Self {
        let (proxy, roots) = (settings.proxy.clone(), settings.root_certificates.clone());
        Self { connector: Connector::new(proxy, roots) }
    }

    pub(super) fn load_certificates(&self) -> Result<(), hermes_net::Error> {
        self.connector.load_certificates()
    }

    pub(super) fn client_builder(&self) -> Result<ClientBuilder, hermes_net::Error> {
        self.connector.client_builder()
    }

    pub(super) async fn connect(&self, server: &Uri) -> Result<Box<dyn NetStream>, ConnectError> {
        self.connector.connect(server).await
    }

    pub(super) fn describe_failure(&self, reason: &str) -> String {
        if self.connector.has_proxy() {
            describe_proxy_failure(reason)
        } else {
            format!("cannot reach Discord: {reason}")
        }
    }
}

pub(super) fn describe_proxy_failure(reason: &str) -> String {
    format!("cannot reach Discord through `discord.proxy`: {reason}")
}
