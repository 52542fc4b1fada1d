//! Where the engine listens, by what its own tools go by.
//!
//! What was said is used or it is an error; only if nobody said anything, the usual sockets are looked at. In this order:
//!
//! | | |
//! |---|---|
//! | `DOCKER_HOST` | an address |
//! | `DOCKER_CONTEXT`, then `currentContext` of Docker's own settings | a name of one; not for Podman, which knows no such names |
//! | `CONTAINER_HOST` | an address, of Podman; not if it is to be Docker |
//! | the usual sockets | the first that this user may use; only those of the engine that is meant |

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::engine::Address;
use super::fault::{EngineFault, Unsupported};

/// The context of Docker that means none.
const NO_CONTEXT: &str = "default";
/// What is read of a file; those of Docker are far shorter.
const LONGEST_FILE: u64 = 4 << 20;
/// How it is said that there is no file.
const NOT_THERE: [io::ErrorKind; 2] = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
/// Where an engine listens that was told no port.
const PORT: u16 = 2375;

/// Everything that says where the engine is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clues {
    /// The value of `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// The value of `DOCKER_CONTEXT`.
    pub docker_context: Option<String>,
    /// The value of `DOCKER_TLS_VERIFY`, which encrypts when it is not empty.
    pub docker_tls_verify: Option<String>,
    /// The value of `CONTAINER_HOST`.
    pub container_host: Option<String>,
    /// The engine's command, which tells which engine is meant.
    pub binary: Option<String>,
    /// The directory of Docker's own settings.
    pub docker_config: PathBuf,
    /// The directory of the user's own sockets.
    pub run: PathBuf,
    /// The user's home.
    pub home: PathBuf,
}

/// An engine's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it listens.
    pub address: Address,
    /// How that is known.
    pub why: Why,
}

/// How an address is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// From `DOCKER_HOST`.
    DockerHost,
    /// From this context of the docker command.
    Context(String),
    /// From `CONTAINER_HOST`.
    ContainerHost,
    /// It is a socket where engines usually listen.
    Usual,
}

impl Why {
    /// What the address is the value of.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::DockerHost => "DOCKER_HOST".to_owned(),
            Self::Context(name) => format!("the address of the docker context {name}"),
            Self::ContainerHost => "CONTAINER_HOST".to_owned(),
            Self::Usual => "the usual socket".to_owned(),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DockerHost => f.write_str("DOCKER_HOST"),
            Self::Context(name) => write!(f, "docker context {name}"),
            Self::ContainerHost => f.write_str("CONTAINER_HOST"),
            Self::Usual => f.write_str("a usual socket"),
        }
    }
}

/// Which engine is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meant {
    Any,
    Docker,
    Podman,
}

impl Clues {
    /// Where the engine is. Nobody is connected to.
    pub fn find(&self) -> Result<Found, EngineFault> {
        let meant = self.meant()?;
        if let Some(host) = &self.docker_host {
            let is_encrypted = self.docker_tls_verify.is_some();
            return parse(host, Why::DockerHost, is_encrypted);
        }
        if meant != Meant::Podman
            && let Some(name) = self.context()?
        {
            return self.endpoint(name);
        }
        if meant != Meant::Docker
            && let Some(host) = &self.container_host
        {
            return parse(host, Why::ContainerHost, false);
        }
        let socket = usable(self.sockets(meant))?;
        Ok(Found { address: Address::Unix(socket), why: Why::Usual })
    }

    fn meant(&self) -> Result<Meant, EngineFault> {
        let Some(word) = &self.binary else { return Ok(Meant::Any) };
        match Path::new(word).file_name().and_then(|name| name.to_str()) {
            Some("docker") => Ok(Meant::Docker),
            Some("podman") => Ok(Meant::Podman),
            _ => Err(EngineFault::Binary { word: word.clone() }),
        }
    }

    /// The context that was chosen, if one was.
    fn context(&self) -> Result<Option<String>, EngineFault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Settings {
            current_context: Option<String>,
        }
        let chosen = match &self.docker_context {
            Some(name) => Some(name.clone()),
            None => {
                let path = self.docker_config.join("config.json");
                let wrong = |error: io::Error| {
                    let reason = format!("{}: {error}", path.display());
                    EngineFault::Context { name: "in use".to_owned(), reason }
                };
                match read::<Settings>(&path) {
                    // Whoever has no such file has chosen none.
                    Err(error) if NOT_THERE.contains(&error.kind()) => None,
                    settings => settings.map_err(wrong)?.current_context,
                }
            }
        };
        Ok(chosen.filter(|name| !name.is_empty() && name != NO_CONTEXT))
    }

    /// The address that a context stands for.
    fn endpoint(&self, name: String) -> Result<Found, EngineFault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Meta {
            endpoints: Endpoints,
        }
        #[derive(Deserialize)]
        struct Endpoints {
            docker: Endpoint,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Endpoint {
            host: String,
        }
        let id: String = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
        let contexts = self.docker_config.join("contexts");
        let path = contexts.join("meta").join(&id).join("meta.json");
        let meta = read::<Meta>(&path).map_err(|error| EngineFault::Context {
            name: name.clone(),
            reason: format!("{}: {error}", path.display()),
        })?;
        let is_encrypted = contexts.join("tls").join(&id).join("docker").is_dir();
        parse(&meta.endpoints.docker.host, Why::Context(name), is_encrypted)
    }

    /// Where engines usually listen, the likeliest first.
    fn sockets(&self, meant: Meant) -> Vec<PathBuf> {
        let docker = [
            PathBuf::from("/var/run/docker.sock"),
            PathBuf::from("/run/docker.sock"),
            self.run.join("docker.sock"),
            // Docker Desktop, on macOS and on Linux.
            self.home.join(".docker/run/docker.sock"),
            self.home.join(".docker/desktop/docker.sock"),
            self.home.join(".colima/default/docker.sock"),
            // Rancher Desktop.
            self.home.join(".rd/docker.sock"),
        ];
        let podman = [PathBuf::from("/run/podman/podman.sock"), self.run.join("podman/podman.sock")];
        match meant {
            Meant::Any => docker.into_iter().chain(podman).collect(),
            Meant::Docker => docker.into(),
            Meant::Podman => podman.into(),
        }
    }
}

/// A file of Docker's own settings.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST_FILE).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn parse(text: &str, why: Why, is_encrypted: bool) -> Result<Found, EngineFault> {
    let fault = |problem| EngineFault::Address { why: why.clone(), text: text.to_owned(), problem };
    let (scheme, rest) = text.trim().split_once("://").ok_or_else(|| fault(Unsupported::Unknown))?;
    let address = match scheme {
        "unix" if Path::new(rest).is_absolute() => Address::Unix(PathBuf::from(rest)),
        "tcp" | "http" if is_encrypted => return Err(fault(Unsupported::Tls)),
        "tcp" | "http" => {
            let host = rest.trim_end_matches('/');
            if host.is_empty() || host.contains('/') {
                return Err(fault(Unsupported::Unknown));
            }
            // The colons of an address in brackets are no ports.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            Address::Tcp(if has_port { host.to_owned() } else { format!("{host}:{PORT}") })
        }
        "https" => return Err(fault(Unsupported::Tls)),
        "ssh" => return Err(fault(Unsupported::Ssh)),
        "npipe" => return Err(fault(Unsupported::Pipe)),
        "fd" => return Err(fault(Unsupported::Descriptor)),
        _ => return Err(fault(Unsupported::Unknown)),
    };
    Ok(Found { address, why })
}

/// The first socket that this user may use. If there is none, the first that others may is told of.
fn usable(sockets: Vec<PathBuf>) -> Result<PathBuf, EngineFault> {
    if let Some(socket) = sockets.iter().find(|socket| access(*socket, Access::WRITE_OK).is_ok()) {
        return Ok(socket.clone());
    }
    match sockets.iter().find(|socket| fs::symlink_metadata(socket).is_ok()) {
        Some(socket) => Err(super::engine::forbidden(socket)),
        None => Err(EngineFault::NotFound { looked: sockets }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const HOST: &str = "unix:///host.sock";
    const OTHER: &str = "unix:///other.sock";

    fn unix(path: &str, why: Why) -> Result<Found, EngineFault> {
        Ok(Found { address: Address::Unix(path.into()), why })
    }

    /// A home in which Docker knows the context `far`, and uses the one that is given.
    fn home(current: Option<&str>) -> (tempfile::TempDir, Clues) {
        let folder = tempfile::tempdir().unwrap();
        let docker = folder.path().join(".docker");
        // What `printf far | sha256sum` says.
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
        let clues = Clues {
            docker_config: docker,
            run: folder.path().join("run"),
            home: folder.path().to_owned(),
            ..Clues::default()
        };
        (folder, clues)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn what_was_said_is_used_in_order() {
        let far = || Why::Context("far".to_owned());
        let (_folder, none) = home(None);
        let (_folder, in_use) = home(Some("far"));
        let cases = [
            // Everything at once.
            (
                Clues {
                    docker_host: some(HOST),
                    docker_context: some("far"),
                    container_host: some(OTHER),
                    ..in_use.clone()
                },
                unix("/host.sock", Why::DockerHost),
            ),
            (
                Clues { docker_context: some("far"), container_host: some(HOST), ..none.clone() },
                unix("/other.sock", far()),
            ),
            (Clues { container_host: some(HOST), ..in_use.clone() }, unix("/other.sock", far())),
            // The context that means none.
            (
                Clues { docker_context: some("default"), container_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", Why::ContainerHost),
            ),
            (Clues { container_host: some(HOST), ..none.clone() }, unix("/host.sock", Why::ContainerHost)),
            // Podman has no contexts.
            (
                Clues { binary: some("podman"), container_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", Why::ContainerHost),
            ),
            (
                Clues { binary: some("/usr/bin/podman"), docker_host: some(HOST), ..in_use.clone() },
                unix("/host.sock", Why::DockerHost),
            ),
            (
                Clues { binary: some("docker"), container_host: some(HOST), ..in_use },
                unix("/other.sock", far()),
            ),
            (
                Clues { binary: some("/bin/nerdctl"), docker_host: some(HOST), ..none },
                Err(EngineFault::Binary { word: "/bin/nerdctl".to_owned() }),
            ),
        ];
        for (clues, expected) in cases {
            assert_eq!(clues.find(), expected, "{clues:?}");
        }
    }

    #[test]
    fn a_context_that_cannot_be_used_is_an_error_and_never_another_engine() {
        let (folder, mut clues) = home(Some("near"));
        clues.container_host = some(HOST);
        let reason = |clues: &Clues| match clues.find() {
            Err(EngineFault::Context { name, reason }) => (name, reason),
            other => panic!("{other:?}"),
        };
        let (name, told) = reason(&clues);
        assert_eq!(name, "near");
        assert!(told.ends_with("meta.json: No such file or directory (os error 2)"), "{told}");
        fs::write(folder.path().join(".docker/config.json"), "{").unwrap();
        assert!(reason(&clues).1.contains("config.json: EOF"), "{clues:?}");
        // One that is there and cannot be read may say anything.
        fs::remove_file(folder.path().join(".docker/config.json")).unwrap();
        fs::create_dir(folder.path().join(".docker/config.json")).unwrap();
        assert!(reason(&clues).1.contains("config.json: Is a directory"), "{clues:?}");
        clues.docker_context = some("far");
        assert_eq!(clues.find(), unix("/other.sock", Why::Context("far".to_owned())));
        let meta = folder.path().join(".docker/contexts/meta");
        let meta = fs::read_dir(meta).unwrap().next().unwrap().unwrap().path().join("meta.json");
        fs::write(&meta, r#"{"Endpoints":{"docker":{"Host":"tcp://far:2376"}}}"#).unwrap();
        let id = meta.parent().unwrap().file_name().unwrap().to_owned();
        fs::create_dir_all(folder.path().join(".docker/contexts/tls").join(id).join("docker")).unwrap();
        let told = clues.find().unwrap_err().to_string();
        let expected = "the address of the docker context far is tcp://far:2376, and engines are not reached through TLS";
        assert_eq!(told, expected);
    }

    #[test]
    fn addresses_are_understood_or_refused_by_kind() {
        let tcp = |host: &str| Ok(Address::Tcp(host.to_owned()));
        let cases = [
            ("unix:///run/x y.sock", Ok(Address::Unix("/run/x y.sock".into()))),
            ("tcp://10.0.0.1:2375", tcp("10.0.0.1:2375")),
            ("http://engine:80/", tcp("engine:80")),
            ("tcp://engine", tcp("engine:2375")),
            ("tcp://[::1]", tcp("[::1]:2375")),
            ("tcp://[::1]:99", tcp("[::1]:99")),
            ("https://engine:2376", Err(Unsupported::Tls)),
            ("ssh://me@far", Err(Unsupported::Ssh)),
            ("npipe:////./pipe/docker_engine", Err(Unsupported::Pipe)),
            ("fd://", Err(Unsupported::Descriptor)),
            ("unix://relative", Err(Unsupported::Unknown)),
            ("tcp://", Err(Unsupported::Unknown)),
            ("tcp://engine:1/path", Err(Unsupported::Unknown)),
            ("/var/run/docker.sock", Err(Unsupported::Unknown)),
            ("gopher://x", Err(Unsupported::Unknown)),
        ];
        for (text, expected) in cases {
            let clues = Clues { docker_host: some(text), ..Clues::default() };
            let found = clues.find().map(|found| found.address).map_err(|fault| match fault {
                EngineFault::Address { problem, .. } => problem,
                other => panic!("{other}"),
            });
            assert_eq!(found, expected, "{text}");
        }
        let encrypted =
            Clues { docker_host: some("tcp://x:1"), docker_tls_verify: some("1"), ..Clues::default() };
        let problem = Unsupported::Tls;
        assert_eq!(
            encrypted.find(),
            Err(EngineFault::Address { why: Why::DockerHost, text: "tcp://x:1".to_owned(), problem })
        );
    }

    #[test]
    fn the_sockets_are_those_of_the_engine_that_is_meant() {
        let clues = Clues { run: "/run/user/7".into(), home: "/home/me".into(), ..Clues::default() };
        let docker = [
            "/var/run/docker.sock", "/run/docker.sock", "/run/user/7/docker.sock",
            "/home/me/.docker/run/docker.sock", "/home/me/.docker/desktop/docker.sock",
            "/home/me/.colima/default/docker.sock", "/home/me/.rd/docker.sock",
        ]
        .map(PathBuf::from);
        let podman = ["/run/podman/podman.sock", "/run/user/7/podman/podman.sock"].map(PathBuf::from);
        assert_eq!(clues.sockets(Meant::Docker), docker);
        assert_eq!(clues.sockets(Meant::Podman), podman);
        assert_eq!(clues.sockets(Meant::Any), [&docker[..], &podman[..]].concat());
    }

    #[test]
    fn the_first_socket_that_is_there_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
        let all = || vec![one.clone(), two.clone(), three.clone()];
        assert_eq!(usable(all()), Err(EngineFault::NotFound { looked: all() }));
        let _three = UnixListener::bind(&three).unwrap();
        assert_eq!(usable(all()).as_ref(), Ok(&three));
        let _two = UnixListener::bind(&two).unwrap();
        assert_eq!(usable(all()).as_ref(), Ok(&two));
    }
}
