//! The container engines that `cargo xtask peers up` started.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::query_parameters::ListContainersOptionsBuilder;
use hermes_exec::backend::docker::engine::{Engine, EngineAddress};
use serde_json::Value;

use crate::fixture::Peer;

/// An image with bash, and one without.
pub(crate) const BASH: &str = "bash";
pub(crate) const BUSYBOX: &str = "busybox";

impl Peer {
    /// The engine with this name; the test fails without it.
    pub(crate) fn named(name: &str, image: &str) -> Self {
        let peers = read();
        let named = |list: &str, name: &str| {
            let list = peers[list].as_array().cloned().unwrap_or_default();
            list.into_iter().find(|one| one["name"] == name)
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let socket = named("peers", name).and_then(|peer| text(&peer["access"]["socket"]));
        let socket =
            socket.unwrap_or_else(|| panic!("there is no peer {name}: `cargo xtask peers up` starts it"));
        let reference = named("images", image).and_then(|image| text(&image["reference"]));
        let image = reference.unwrap_or_else(|| panic!("there is no image {image}"));
        Self { socket: socket.into(), image, options: Vec::new() }
    }

    /// The same for containers with a read-only layer.
    pub(crate) fn read_only(name: &str, image: &str) -> Self {
        Self { options: vec!["--read-only".to_owned()], ..Self::named(name, image) }
    }

    pub(crate) fn address(&self) -> EngineAddress {
        EngineAddress::Unix(self.socket.clone())
    }

    pub(crate) async fn engine(&self) -> Engine {
        Engine::connect(&self.address()).await.unwrap()
    }

    /// The names of all containers of an installation, whatever state they are in.
    pub(crate) async fn containers(&self, install: &str) -> Vec<String> {
        let filters = HashMap::from([("label".to_owned(), vec![format!("hermes-install={install}")])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = self.engine().await.api.list_containers(Some(options)).await.unwrap();
        listed.into_iter().flat_map(|one| one.names.unwrap_or_default()).collect()
    }
}

/// The description of all peers.
pub(crate) fn read() -> Value {
    let path = directory().join("peers.json");
    let text = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo xtask peers up` starts the peers", path.display())
    });
    serde_json::from_slice(&text).unwrap()
}

/// The directory of the peers.
#[expect(clippy::disallowed_methods, reason = "the peers are described by a variable")]
pub(crate) fn directory() -> PathBuf {
    let configured = std::env::var_os("HERMES_PEERS_DIR").map(PathBuf::from);
    configured.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"))
}
