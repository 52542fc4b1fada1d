//! Finds the engine by the settings that its own tools use.
//!
//! A setting that is present is used or is an error. The well-known sockets are tried only if there
//! is none. In this order:
//!
//! | | |
//! |---|---|
//! | `DOCKER_HOST` | an address |
//! | `DOCKER_CONTEXT`, then `currentContext` of Docker's settings | a context name; ignored for Podman, which has no contexts |
//! | `CONTAINER_HOST` | an address of Podman; ignored for Docker |
//! | well-known sockets | the first one that this user may use; only those of the selected engine |

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hermes_types::hex;
use rustix::fs::{Access, access};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::engine::{EngineAddress, EngineKind};
use super::engine_error::{AddressProblem, EngineError};

/// The name of the context that stands for no context.
const DEFAULT_CONTEXT: &str = "default";
const MAX_FILE_BYTES: u64 = 4 << 20;
const MISSING_FILE_ERRORS: [io::ErrorKind; 2] = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
const DEFAULT_PORT: u16 = 2375;

/// The settings and variables that name an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineHints {
    pub docker_host: Option<String>,
    pub docker_context: Option<String>,
    /// The value of `DOCKER_TLS_VERIFY`; a non-empty one requires TLS.
    pub docker_tls_verify: Option<String>,
    pub container_host: Option<String>,
    /// The value of `terminal.docker_binary`, which selects Docker or Podman.
    pub binary: Option<String>,
    /// The directory of Docker's own settings, usually `~/.docker`.
    pub docker_config: PathBuf,
    pub runtime_dir: PathBuf,
    pub home_dir: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredEngine {
    pub address: EngineAddress,
    pub source: EngineSource,
}

/// The setting that names an engine address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineSource {
    #[error("DOCKER_HOST")]
    DockerHost,
    /// A context of the docker command.
    #[error("docker context {0}")]
    Context(String),
    #[error("CONTAINER_HOST")]
    ContainerHost,
    /// A socket at a well-known path.
    #[error("default socket")]
    DefaultSocket,
}

impl EngineHints {
    /// Finds the address of the engine without connecting to it.
    pub fn discover(&self) -> Result<DiscoveredEngine, EngineError> {
        let preference = self.preference()?;
        if let Some(host) = &self.docker_host {
            let is_encrypted = self.docker_tls_verify.is_some();
            return parse_address(host, EngineSource::DockerHost, is_encrypted);
        }
        if preference != Some(EngineKind::Podman)
            && let Some(name) = self.chosen_context()?
        {
            return self.context_engine(name);
        }
        if preference != Some(EngineKind::Docker)
            && let Some(host) = &self.container_host
        {
            return parse_address(host, EngineSource::ContainerHost, false);
        }
        let socket = first_usable_socket(self.default_sockets(preference))?;
        Ok(DiscoveredEngine { address: EngineAddress::Unix(socket), source: EngineSource::DefaultSocket })
    }

    /// The selected engine, if any.
    fn preference(&self) -> Result<Option<EngineKind>, EngineError> {
        let Some(word) = &self.binary else { return Ok(None) };
        match Path::new(word).file_name().and_then(|name| name.to_str()) {
            Some("docker") => Ok(Some(EngineKind::Docker)),
            Some("podman") => Ok(Some(EngineKind::Podman)),
            _ => Err(EngineError::Binary { word: word.clone() }),
        }
    }

    fn chosen_context(&self) -> Result<Option<String>, EngineError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct DockerConfigFile {
            current_context: Option<String>,
        }
        let chosen = match &self.docker_context {
            Some(name) => Some(name.clone()),
            None => {
                let path = self.docker_config.join("config.json");
                let wrong = |error: io::Error| {
                    let reason = format!("{}: {error}", path.display());
                    EngineError::Context { name: "in use".to_owned(), reason }
                };
                match read_json::<DockerConfigFile>(&path) {
                    // Without the file there is no chosen context.
                    Err(error) if MISSING_FILE_ERRORS.contains(&error.kind()) => None,
                    settings => settings.map_err(wrong)?.current_context,
                }
            }
        };
        Ok(chosen.filter(|name| !name.is_empty() && name != DEFAULT_CONTEXT))
    }

    fn context_engine(&self, name: String) -> Result<DiscoveredEngine, EngineError> {
        let id = hex(&Sha256::digest(&name));
        let contexts = self.docker_config.join("contexts");
        let path = contexts.join("meta").join(&id).join("meta.json");
        let wrong = |reason: String| {
            let reason = format!("{}: {reason}", path.display());
            EngineError::Context { name: name.clone(), reason }
        };
        let meta: serde_json::Value = read_json(&path).map_err(|error| wrong(error.to_string()))?;
        let host = meta.pointer("/Endpoints/docker/Host").and_then(serde_json::Value::as_str);
        let host = host.ok_or_else(|| wrong("it names no docker host".to_owned()))?;
        let is_encrypted = contexts.join("tls").join(&id).join("docker").is_dir();
        parse_address(host, EngineSource::Context(name.clone()), is_encrypted)
    }

    /// Well-known socket paths, most likely first.
    fn default_sockets(&self, preference: Option<EngineKind>) -> Vec<PathBuf> {
        let docker = [
            PathBuf::from("/var/run/docker.sock"),
            PathBuf::from("/run/docker.sock"),
            self.runtime_dir.join("docker.sock"),
            self.home_dir.join(".docker/run/docker.sock"),
            self.home_dir.join(".docker/desktop/docker.sock"),
            self.home_dir.join(".colima/default/docker.sock"),
            // Rancher Desktop.
            self.home_dir.join(".rd/docker.sock"),
        ];
        let podman = [PathBuf::from("/run/podman/podman.sock"), self.runtime_dir.join("podman/podman.sock")];
        match preference {
            None => docker.into_iter().chain(podman).collect(),
            Some(EngineKind::Docker) => docker.into(),
            Some(EngineKind::Podman) => podman.into(),
        }
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn parse_address(
    text: &str,
    source: EngineSource,
    is_encrypted: bool,
) -> Result<DiscoveredEngine, EngineError> {
    let fault = |problem| EngineError::Address { origin: source.clone(), text: text.to_owned(), problem };
    let (scheme, rest) = text.trim().split_once("://").ok_or_else(|| fault(AddressProblem::Unknown))?;
    let address = match scheme {
        "unix" if Path::new(rest).is_absolute() => EngineAddress::Unix(PathBuf::from(rest)),
        "tcp" | "http" if is_encrypted => return Err(fault(AddressProblem::Tls)),
        "tcp" | "http" => {
            let host = rest.trim_end_matches('/');
            if host.is_empty() || host.contains('/') {
                return Err(fault(AddressProblem::Unknown));
            }
            // Colons inside brackets belong to an IPv6 address.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            EngineAddress::Tcp(if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") })
        }
        "https" => return Err(fault(AddressProblem::Tls)),
        "ssh" => return Err(fault(AddressProblem::Ssh)),
        "npipe" => return Err(fault(AddressProblem::Pipe)),
        "fd" => return Err(fault(AddressProblem::Descriptor)),
        _ => return Err(fault(AddressProblem::Unknown)),
    };
    Ok(DiscoveredEngine { address, source })
}

/// The first socket that this user may write to. Otherwise the error names the first one that
/// exists.
fn first_usable_socket(sockets: Vec<PathBuf>) -> Result<PathBuf, EngineError> {
    if let Some(socket) = sockets.iter().find(|socket| access(*socket, Access::WRITE_OK).is_ok()) {
        return Ok(socket.clone());
    }
    match sockets.iter().find(|socket| fs::symlink_metadata(socket).is_ok()) {
        Some(socket) => Err(super::engine::permission_denied(socket)),
        None => Err(EngineError::NotFound { searched: sockets }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const HOST: &str = "unix:///host.sock";
    const OTHER: &str = "unix:///other.sock";

    fn unix(path: &str, source: EngineSource) -> Result<DiscoveredEngine, EngineError> {
        Ok(DiscoveredEngine { address: EngineAddress::Unix(path.into()), source })
    }

    /// A home directory where Docker knows the context `far` and has `current` selected.
    fn home(current: Option<&str>) -> (tempfile::TempDir, EngineHints) {
        let folder = tempfile::tempdir().unwrap();
        let docker = folder.path().join(".docker");
        // The output of `printf far | sha256sum`.
        let far = "512eea46ceb3921dff4363c7069d89d4964d1d9fccaa0f411851a7aa60a5c868";
        let meta = docker.join("contexts/meta").join(far);
        fs::create_dir_all(&meta).unwrap();
        let text =
            format!(r#"{{"Name":"far","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{OTHER}"}}}}}}"#);
        fs::write(meta.join("meta.json"), text).unwrap();
        if let Some(name) = current {
            let text = format!(r#"{{"auths":{{}},"currentContext":"{name}"}}"#);
            fs::write(docker.join("config.json"), text).unwrap();
        }
        let hints = EngineHints {
            docker_config: docker,
            runtime_dir: folder.path().join("run"),
            home_dir: folder.path().to_owned(),
            ..EngineHints::default()
        };
        (folder, hints)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn settings_are_used_in_order() {
        let far = || EngineSource::Context("far".to_owned());
        let (_folder, none) = home(None);
        let (_folder, in_use) = home(Some("far"));
        let cases = [
            // All settings at once.
            (
                EngineHints {
                    docker_host: some(HOST),
                    docker_context: some("far"),
                    container_host: some(OTHER),
                    ..in_use.clone()
                },
                unix("/host.sock", EngineSource::DockerHost),
            ),
            (
                EngineHints { docker_context: some("far"), container_host: some(HOST), ..none.clone() },
                unix("/other.sock", far()),
            ),
            (EngineHints { container_host: some(HOST), ..in_use.clone() }, unix("/other.sock", far())),
            // The default context is ignored.
            (
                EngineHints { docker_context: some("default"), container_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", EngineSource::ContainerHost),
            ),
            (
                EngineHints { container_host: some(HOST), ..none.clone() },
                unix("/host.sock", EngineSource::ContainerHost),
            ),
            // Podman has no contexts.
            (
                EngineHints { binary: some("podman"), container_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", EngineSource::ContainerHost),
            ),
            (
                EngineHints { binary: some("/usr/bin/podman"), docker_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", EngineSource::DockerHost),
            ),
            (
                EngineHints { binary: some("docker"), container_host: some(HOST), ..in_use },
                unix("/other.sock", far()),
            ),
            (
                EngineHints { binary: some("/bin/nerdctl"), docker_host: some(HOST), ..none },
                Err(EngineError::Binary { word: "/bin/nerdctl".to_owned() }),
            ),
        ];
        for (hints, expected) in cases {
            assert_eq!(hints.discover(), expected, "{hints:?}");
        }
    }

    #[test]
    fn an_unusable_context_is_an_error_and_never_another_engine() {
        let (folder, mut hints) = home(Some("near"));
        hints.container_host = some(HOST);
        let reason = |hints: &EngineHints| match hints.discover() {
            Err(EngineError::Context { name, reason }) => (name, reason),
            other => panic!("{other:?}"),
        };
        let (name, message) = reason(&hints);
        assert_eq!(name, "near");
        assert!(message.ends_with("meta.json: No such file or directory (os error 2)"), "{message}");
        fs::write(folder.path().join(".docker/config.json"), "{").unwrap();
        assert!(reason(&hints).1.contains("config.json: EOF"), "{hints:?}");
        // A settings file that cannot be read is an error.
        fs::remove_file(folder.path().join(".docker/config.json")).unwrap();
        fs::create_dir(folder.path().join(".docker/config.json")).unwrap();
        assert!(reason(&hints).1.contains("config.json: Is a directory"), "{hints:?}");
        hints.docker_context = some("far");
        assert_eq!(hints.discover(), unix("/other.sock", EngineSource::Context("far".to_owned())));
        let meta = folder.path().join(".docker/contexts/meta");
        let meta = fs::read_dir(meta).unwrap().next().unwrap().unwrap().path().join("meta.json");
        fs::write(&meta, r#"{"Endpoints":{"docker":{"Host":"tcp://far:2376"}}}"#).unwrap();
        let id = meta.parent().unwrap().file_name().unwrap().to_owned();
        fs::create_dir_all(folder.path().join(".docker/contexts/tls").join(id).join("docker")).unwrap();
        let message = hints.discover().unwrap_err().to_string();
        let expected = "docker context far is tcp://far:2376, but TLS is not supported";
        assert_eq!(message, expected);
    }

    #[test]
    fn only_addresses_of_this_machine_are_hidden_from_the_network() {
        let tcp = |host: &str| EngineAddress::Tcp(host.to_owned()).is_exposed_to_network();
        let own = ["127.0.0.1:2375", "[::1]:99", "localhost:2375"].map(tcp);
        let others = ["10.0.0.1:2375", "engine:2375", "[fe80::1]:99", "localhost.example:1"].map(tcp);
        assert_eq!((own, others), ([false; 3], [true; 4]));
        assert!(!EngineAddress::Unix("/run/docker.sock".into()).is_exposed_to_network());
    }

    #[test]
    fn addresses_are_parsed_or_refused_by_kind() {
        let tcp = |host: &str| Ok(EngineAddress::Tcp(host.to_owned()));
        let cases = [
            ("unix:///run/x y.sock", Ok(EngineAddress::Unix("/run/x y.sock".into()))),
            ("tcp://10.0.0.1:2375", tcp("10.0.0.1:2375")),
            ("http://engine:80/", tcp("engine:80")),
            ("tcp://engine", tcp("engine:2375")),
            ("tcp://[::1]", tcp("[::1]:2375")),
            ("tcp://[::1]:99", tcp("[::1]:99")),
            ("https://engine:2376", Err(AddressProblem::Tls)),
            ("ssh://me@far", Err(AddressProblem::Ssh)),
            ("npipe:////./pipe/docker_engine", Err(AddressProblem::Pipe)),
            ("fd://", Err(AddressProblem::Descriptor)),
            ("unix://relative", Err(AddressProblem::Unknown)),
            ("tcp://", Err(AddressProblem::Unknown)),
            ("tcp://engine:1/path", Err(AddressProblem::Unknown)),
            ("/var/run/docker.sock", Err(AddressProblem::Unknown)),
            ("gopher://x", Err(AddressProblem::Unknown)),
        ];
        for (text, expected) in cases {
            let hints = EngineHints { docker_host: some(text), ..EngineHints::default() };
            let found = hints.discover().map(|found| found.address).map_err(|fault| match fault {
                EngineError::Address { problem, .. } => problem,
                other => panic!("{other}"),
            });
            assert_eq!(found, expected, "{text}");
        }
        let encrypted = EngineHints {
            docker_host: some("tcp://x:1"),
            docker_tls_verify: some("1"),
            ..EngineHints::default()
        };
        let problem = AddressProblem::Tls;
        assert_eq!(
            encrypted.discover(),
            Err(EngineError::Address {
                origin: EngineSource::DockerHost,
                text: "tcp://x:1".to_owned(),
                problem
            })
        );
    }

    #[test]
    fn the_default_sockets_are_those_of_the_selected_engine() {
        let hints = EngineHints {
            runtime_dir: "/run/user/7".into(),
            home_dir: "/home/me".into(),
            ..EngineHints::default()
        };
        let docker = [
            "/var/run/docker.sock", "/run/docker.sock", "/run/user/7/docker.sock",
            "/home/me/.docker/run/docker.sock", "/home/me/.docker/desktop/docker.sock",
            "/home/me/.colima/default/docker.sock", "/home/me/.rd/docker.sock",
        ]
        .map(PathBuf::from);
        let podman = ["/run/podman/podman.sock", "/run/user/7/podman/podman.sock"].map(PathBuf::from);
        assert_eq!(hints.default_sockets(Some(EngineKind::Docker)), docker);
        assert_eq!(hints.default_sockets(Some(EngineKind::Podman)), podman);
        assert_eq!(hints.default_sockets(None), [&docker[..], &podman[..]].concat());
    }

    #[test]
    fn the_first_usable_socket_wins() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
        let all = || vec![one.clone(), two.clone(), three.clone()];
        assert_eq!(first_usable_socket(all()), Err(EngineError::NotFound { searched: all() }));
        let _three = UnixListener::bind(&three).unwrap();
        assert_eq!(first_usable_socket(all()).as_ref(), Ok(&three));
        let _two = UnixListener::bind(&two).unwrap();
        assert_eq!(first_usable_socket(all()).as_ref(), Ok(&two));
    }
}
