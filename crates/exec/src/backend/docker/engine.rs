//! The engine that makes containers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerCreateBody, HostConfig, SystemInfo, SystemInfoCgroupVersionEnum};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListImagesOptions, RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::engine_error::EngineError;
use crate::Error;

/// The version of the Engine API that is needed.
pub(super) const MIN_API_VERSION: (usize, usize) = (1, 41);
/// How long one answer may take, in seconds: an engine that removes a large layer is slow.
const RESPONSE_TIMEOUT_SECONDS: u64 = 120;
/// How long it may take to say that it is there.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// What an engine says of itself in its greeting is no longer than this.
const MAX_PING_BYTES: u64 = 16 << 10;
/// What stands behind the last header.
const HEADERS_END: &[u8] = b"\r\n\r\n";
/// The user that stands for all who have no number here.
const OVERFLOW_UID: u32 = 65534;
/// This is there with the second version of control groups.
const CGROUP_V2_FILE: &str = "/sys/fs/cgroup/cgroup.controllers";
/// How often an engine is asked what it is.
const INFO_ATTEMPTS: u32 = 5;
/// The storages whose layers have a limit, or would have if the disk below were set up for it.
const QUOTA_STORAGE: [&str; 5] =
    ["overlay2 on xfs", "overlay on xfs", "btrfs on ", "zfs on ", "devicemapper on "];
/// The container by which is tried whether a layer can be limited.
const PROBE_CONTAINER: &str = "hermes-probe";

/// What engines have said of themselves, by their addresses. Some take long to say it.
static FACTS_CACHE: Mutex<BTreeMap<String, (ClientVersion, EngineFacts)>> = Mutex::new(BTreeMap::new());

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineAddress {
    /// On this machine.
    Unix(PathBuf),
    /// On another one, or as if it were, without encryption.
    Tcp(String),
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl EngineAddress {
    /// What an engine there answered instead of doing what was asked.
    pub(super) fn error(&self, error: &ApiError) -> Error {
        map_api_error(self, error).into()
    }
}

/// An engine that answers.
#[derive(Debug)]
pub struct Engine {
    /// What to ask.
    pub api: Docker,
    /// What is known of it.
    pub facts: EngineFacts,
    address: EngineAddress,
}

/// What must be known of an engine to make a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EngineFacts {
    /// What it is.
    pub kind: EngineKind,
    /// The user it runs as is root inside of its containers.
    pub is_rootless: bool,
    /// Users inside are others outside.
    pub remaps_users: bool,
    /// What it limits.
    pub enforced: EnforcedLimits,
    /// The layer of a container can be limited. Only known once it was tried.
    pub has_disk_quota: bool,
}

/// What else an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineDescription {
    /// Its version.
    pub version: String,
    /// The version of control groups, by which it limits.
    pub cgroup: Option<u8>,
    /// What keeps containers from dangerous system calls.
    pub seccomp: Seccomp,
    /// How it keeps layers, and on what.
    pub storage: String,
}

/// The engines that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum EngineKind {
    /// Docker, or what says it is.
    Docker,
    /// Podman.
    Podman,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
        })
    }
}

/// What an engine limits, as far as it can be told without trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnforcedLimits {
    /// Memory.
    pub memory: Option<bool>,
    /// Processes and threads.
    pub processes: Option<bool>,
    /// Processor time.
    pub processor: Option<bool>,
}

/// Whether dangerous system calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Seccomp {
    /// They are.
    On,
    /// The engine could, and is told not to.
    Unconfined,
    /// The engine cannot.
    Missing,
}

/// How an engine greets.
struct PingReply {
    kind: EngineKind,
    /// The version of the API that is spoken with it.
    version: ClientVersion,
    /// It runs as a user of this machine that is not root.
    is_user_socket: bool,
}

impl Engine {
    /// One that has been asked before what must be known of it, or is asked now.
    pub(crate) async fn connect_cached(address: &EngineAddress) -> Result<Self, EngineError> {
        let known = lock_cache().get(&address.to_string()).copied();
        match known {
            Some((version, facts)) => {
                let api = client(address, &version)?;
                Ok(Self { api, facts, address: address.clone() })
            }
            None => Self::connect(address).await,
        }
    }

    /// Asks the engine what must be known to make a container.
    pub async fn connect(address: &EngineAddress) -> Result<Self, EngineError> {
        let (api, greeting) = ping_and_connect(address).await?;
        let engine = if greeting.kind == EngineKind::Podman && greeting.is_user_socket {
            // It takes up to a second to say what it is, and here that is known.
            let limits = if Path::new(CGROUP_V2_FILE).exists() { None } else { Some(false) };
            let facts = EngineFacts {
                kind: EngineKind::Podman,
                is_rootless: true,
                remaps_users: false,
                enforced: EnforcedLimits { memory: limits, processes: limits, processor: limits },
                has_disk_quota: false,
            };
            Self { api, facts, address: address.clone() }
        } else {
            query_engine(api, &greeting, address).await?.0
        };
        lock_cache().insert(address.to_string(), (greeting.version, engine.facts));
        Ok(engine)
    }

    /// Asks the engine everything that it says of itself.
    pub async fn describe(address: &EngineAddress) -> Result<(Self, EngineDescription), EngineError> {
        let (api, greeting) = ping_and_connect(address).await?;
        query_engine(api, &greeting, address).await
    }

    /// Tries whether the layer of a container can be limited, with an image that is there.
    async fn probe_disk_quota(&self) -> Result<bool, EngineError> {
        let failed = |error: ApiError| map_api_error(&self.address, &error);
        let images = self.api.list_images(None::<ListImagesOptions>).await.map_err(failed)?;
        let Some(image) = images.into_iter().next() else { return Ok(false) };
        // One that was left behind is in the way.
        self.remove_probe().await?;
        let body = ContainerCreateBody {
            image: Some(image.id),
            entrypoint: Some(vec!["/none".to_owned()]),
            host_config: Some(HostConfig {
                storage_opt: Some(HashMap::from([("size".to_owned(), (64 << 20).to_string())])),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().name(PROBE_CONTAINER).build();
        let has_quota = match self.api.create_container(Some(options), body).await {
            Ok(_) => true,
            // It says that it cannot, or somebody else is trying.
            Err(ApiError::DockerResponseServerError { .. }) => false,
            Err(error) => return Err(failed(error)),
        };
        self.remove_probe().await?;
        Ok(has_quota)
    }

    async fn remove_probe(&self) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).build();
        match self.api.remove_container(PROBE_CONTAINER, Some(options)).await {
            Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(map_api_error(&self.address, &error)),
        }
    }

    /// What it answered instead of doing what was asked.
    pub(super) fn error(&self, error: &ApiError) -> EngineError {
        map_api_error(&self.address, error)
    }

    /// Whether it has this image.
    pub async fn has_image(&self, image: &str) -> Result<bool, EngineError> {
        match self.api.inspect_image(image).await {
            Ok(_) => Ok(true),
            Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => Ok(false),
            Err(error) => Err(map_api_error(&self.address, &error)),
        }
    }
}

async fn ping_and_connect(address: &EngineAddress) -> Result<(Docker, PingReply), EngineError> {
    let greeted = tokio::time::timeout(PING_TIMEOUT, ping(address)).await;
    let silent = || EngineError::TimedOut { address: address.clone(), timeout: PING_TIMEOUT };
    let greeting = greeted.map_err(|_elapsed| silent())??;
    Ok((client(address, &greeting.version)?, greeting))
}

fn client(address: &EngineAddress, version: &ClientVersion) -> Result<Docker, EngineError> {
    let api = match address {
        EngineAddress::Unix(path) => {
            Docker::connect_with_unix(&path.to_string_lossy(), RESPONSE_TIMEOUT_SECONDS, version)
        }
        EngineAddress::Tcp(host) => Docker::connect_with_http(host, RESPONSE_TIMEOUT_SECONDS, version),
    };
    api.map_err(|error| map_api_error(address, &error))
}

fn lock_cache() -> MutexGuard<'static, BTreeMap<String, (ClientVersion, EngineFacts)>> {
    FACTS_CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says hello. The answer to that is quick and tells the version, so that nobody need ask for it.
async fn ping(address: &EngineAddress) -> Result<PingReply, EngineError> {
    let refused = |error: io::Error| EngineError::ConnectionRefused {
        address: address.clone(),
        reason: error.to_string(),
    };
    let strange = |reason: String| EngineError::NotAnEngine { address: address.clone(), reason };
    let (said, is_of_user) = match address {
        EngineAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => permission_denied(path),
                io::ErrorKind::NotFound => EngineError::SocketMissing { socket: path.clone() },
                _ => refused(error),
            })?;
            let user = stream.peer_cred().map_err(refused)?.uid();
            (send_ping(stream).await, user != 0 && user != OVERFLOW_UID)
        }
        EngineAddress::Tcp(host) => {
            (send_ping(TcpStream::connect(host).await.map_err(refused)?).await, false)
        }
    };
    let said = said.map_err(refused)?;
    let mut lines = said.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.") {
        return Err(strange("what it says is no HTTP".to_owned()));
    }
    let headers: HashMap<String, &str> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let Some(spoken) = headers.get("api-version") else {
        return Err(strange(format!("it answers with {status}")));
    };
    let numbers =
        spoken.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some(theirs) = numbers else {
        return Err(strange(format!("its version is {spoken}")));
    };
    if theirs < MIN_API_VERSION {
        return Err(EngineError::TooOld { address: address.clone(), version: (*spoken).to_owned() });
    }
    let ours = (API_DEFAULT_VERSION.major_version, API_DEFAULT_VERSION.minor_version);
    let (major_version, minor_version) = theirs.min(ours);
    let kind =
        if headers.contains_key("libpod-api-version") { EngineKind::Podman } else { EngineKind::Docker };
    Ok(PingReply {
        kind,
        version: ClientVersion { major_version, minor_version },
        is_user_socket: is_of_user,
    })
}

async fn send_ping(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    stream.write_all(b"GET /_ping HTTP/1.1\r\nHost: hermes\r\nConnection: close\r\n\r\n").await?;
    let mut said = Vec::new();
    let mut answer = stream.take(MAX_PING_BYTES);
    while !said.windows(HEADERS_END.len()).any(|part| part == HEADERS_END) {
        if answer.read_buf(&mut said).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// That this user may not use the socket, and who may.
pub(super) fn permission_denied(socket: &Path) -> EngineError {
    let group = std::fs::metadata(socket).ok().map(|meta| meta.gid());
    EngineError::PermissionDenied { socket: socket.to_owned(), group }
}

fn map_api_error(address: &EngineAddress, error: &ApiError) -> EngineError {
    let fault = match (error, address) {
        (ApiError::SocketNotFoundError(_), EngineAddress::Unix(socket)) => {
            EngineError::SocketMissing { socket: socket.clone() }
        }
        (ApiError::HyperLegacyError { err }, _) if err.is_connect() => {
            EngineError::ConnectionRefused { address: address.clone(), reason: root_cause(err) }
        }
        (ApiError::RequestTimeoutError, _) => EngineError::TimedOut {
            address: address.clone(),
            timeout: Duration::from_secs(RESPONSE_TIMEOUT_SECONDS),
        },
        _ => return EngineError::Failed { address: address.clone(), reason: error.to_string() },
    };
    // The one that comes back may be another.
    lock_cache().remove(&address.to_string());
    fault
}

/// What is at the bottom of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut bottom = error;
    while let Some(below) = bottom.source() {
        bottom = below;
    }
    bottom.to_string()
}

async fn query_engine(
    api: Docker,
    greeting: &PingReply,
    address: &EngineAddress,
) -> Result<(Engine, EngineDescription), EngineError> {
    let info = fetch_info(&api).await.map_err(|error| map_api_error(address, &error))?;
    let engine = rust_architecture(info.architecture.as_deref().unwrap_or_default());
    if engine != std::env::consts::ARCH {
        let guest = std::env::consts::ARCH.to_owned();
        return Err(EngineError::WrongArchitecture { engine: engine.to_owned(), guest });
    }
    let (facts, description) = describe(greeting, info);
    let mut engine = Engine { api, facts, address: address.clone() };
    let may_have_quota = QUOTA_STORAGE.iter().any(|storage| description.storage.starts_with(storage));
    engine.facts.has_disk_quota = !facts.is_rootless && may_have_quota && engine.probe_disk_quota().await?;
    Ok((engine, description))
}

/// What an engine says of itself. Podman looks at all its containers for that and fails if one ends meanwhile.
async fn fetch_info(api: &Docker) -> Result<SystemInfo, ApiError> {
    for _ in 1..INFO_ATTEMPTS {
        match api.info().await {
            Err(ApiError::DockerResponseServerError { status_code: 500, .. }) => {}
            told => return told,
        }
    }
    api.info().await
}

/// The processor that an engine names, in the words of Rust.
fn rust_architecture(word: &str) -> &str {
    match word {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "armv6l" | "armv7l" => "arm",
        "386" | "i386" | "i686" => "x86",
        "ppc64le" => "powerpc64",
        other => other,
    }
}

fn describe(greeting: &PingReply, info: SystemInfo) -> (EngineFacts, EngineDescription) {
    let options = info.security_options.unwrap_or_default();
    let option =
        |name: &str| options.iter().find(|option| option.split(',').next() == Some(&format!("name={name}")));
    // Podman 4.3 does not say, but the socket does.
    let is_rootless = option("rootless").is_some() || greeting.is_user_socket;
    let cgroup = match info.cgroup_version {
        Some(SystemInfoCgroupVersionEnum::_1) => Some(1),
        Some(SystemInfoCgroupVersionEnum::_2) => Some(2),
        Some(SystemInfoCgroupVersionEnum::EMPTY) | None => None,
    };
    let enforced = |said: Option<bool>| match (said, cgroup) {
        (Some(true), Some(1)) if is_rootless => Some(false),
        // What it may limit was decided when its user logged in; Podman does not ask.
        (Some(true), _) if is_rootless && greeting.kind == EngineKind::Podman => None,
        (said, _) => said,
    };
    let status = info.driver_status.unwrap_or_default();
    let disk = status.iter().find_map(|row| match row.as_slice() {
        [name, value] if name == "Backing Filesystem" => Some(value.as_str()),
        _ => None,
    });
    let facts = EngineFacts {
        kind: greeting.kind,
        is_rootless,
        remaps_users: option("userns").is_some(),
        enforced: EnforcedLimits {
            memory: enforced(info.memory_limit),
            processes: enforced(info.pids_limit),
            processor: enforced(info.cpu_cfs_quota),
        },
        has_disk_quota: false,
    };
    let description = EngineDescription {
        version: info.server_version.unwrap_or_default(),
        cgroup,
        seccomp: match option("seccomp") {
            Some(option) if option.contains("profile=unconfined") => Seccomp::Unconfined,
            Some(_) => Seccomp::On,
            None => Seccomp::Missing,
        },
        storage: format!(
            "{} on {}",
            info.driver.unwrap_or_default(),
            disk.unwrap_or("an unknown file system")
        ),
    };
    (facts, description)
}

/// Why no container could be made.
pub(super) fn explain_create_error(
    address: &EngineAddress,
    error: &ApiError,
    sources: &[PathBuf],
) -> EngineError {
    match error {
        ApiError::DockerResponseServerError { message, .. } => {
            let failed = || EngineError::Failed { address: address.clone(), reason: message.clone() };
            EngineError::from_mount_message(message, sources).unwrap_or_else(failed)
        }
        other => map_api_error(address, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: EngineKind, is_of_user: bool, info: &str) -> (EngineFacts, EngineDescription) {
        let version = ClientVersion { major_version: 1, minor_version: 41 };
        let greeting = PingReply { kind, version, is_user_socket: is_of_user };
        describe(&greeting, serde_json::from_str(info).unwrap())
    }

    #[test]
    fn what_engines_say_is_understood() {
        let limits = r#""MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": false"#;
        let remapped = format!(
            r#"{{"ServerVersion": "29", "Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "xfs"]],
                "CgroupVersion": "2", {limits}, "SecurityOptions": ["name=seccomp,profile=unconfined", "name=userns"]}}"#
        );
        let enforces = EnforcedLimits { memory: Some(true), processes: Some(true), processor: Some(false) };
        let facts = EngineFacts {
            kind: EngineKind::Docker,
            is_rootless: false,
            remaps_users: true,
            enforced: enforces,
            has_disk_quota: false,
        };
        let description = EngineDescription {
            version: "29".to_owned(),
            cgroup: Some(2),
            seccomp: Seccomp::Unconfined,
            storage: "overlay2 on xfs".to_owned(),
        };
        assert_eq!(told(EngineKind::Docker, false, &remapped), (facts, description));

        let without_root = |cgroup: u8| {
            format!(r#"{{"CgroupVersion": "{cgroup}", {limits}, "SecurityOptions": ["name=rootless"]}}"#)
        };
        let (facts, description) = told(EngineKind::Docker, false, &without_root(2));
        assert!(facts.is_rootless);
        assert_eq!((facts.enforced, description.seccomp), (enforces, Seccomp::Missing));
        // The same of Podman is no more than a hope.
        let hoped = EnforcedLimits { memory: None, processes: None, processor: Some(false) };
        assert_eq!(told(EngineKind::Podman, true, &without_root(2)).0.enforced, hoped);
        let nothing = EnforcedLimits { memory: Some(false), processes: Some(false), processor: Some(false) };
        assert_eq!(told(EngineKind::Podman, true, &without_root(1)).0.enforced, nothing);
        assert_eq!([rust_architecture("amd64"), rust_architecture("x86_64")], ["x86_64"; 2]);
    }
}
