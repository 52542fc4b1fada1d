//! The connection to a container engine, and facts about it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerCreateBody, HostConfig, SystemInfo};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListImagesOptions, RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use super::engine_error::EngineError;

pub(super) const MIN_API_VERSION: (usize, usize) = (1, 41);
/// Removing a large layer can take this long.
const RESPONSE_TIMEOUT_SECONDS: u64 = 120;
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_PING_BYTES: u64 = 16 << 10;
/// The uid that stands for every unmapped uid.
const OVERFLOW_UID: u32 = 65534;
/// Exists on hosts with cgroup version 2.
const CGROUP_V2_FILE: &str = "/sys/fs/cgroup/cgroup.controllers";
const INFO_ATTEMPTS: u32 = 5;
/// Storage drivers that can limit a container's layer if the file system supports quotas.
const QUOTA_STORAGE: [&str; 5] =
    ["overlay2 on xfs", "overlay on xfs", "btrfs on ", "zfs on ", "devicemapper on "];
const PROBE_CONTAINER: &str = "hermes-probe";

/// Facts by engine address; some engines take up to a second to report them.
static FACTS_CACHE: Mutex<BTreeMap<String, (ClientVersion, EngineFacts)>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EngineAddress {
    #[error("unix://{}", .0.display())]
    Unix(PathBuf),
    /// A plain TCP address, without TLS.
    #[error("tcp://{0}")]
    Tcp(String),
}

impl EngineAddress {
    /// Whether the engine shares no directory with this host. The guest is then uploaded, and
    /// reached through a relay process in the container instead of a socket file.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Whether others on the network can read what is sent to the engine.
    pub fn is_exposed_to_network(&self) -> bool {
        let Self::Tcp(address) = self else { return false };
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _port)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[derive(Debug)]
pub struct Engine {
    pub api: Docker,
    pub facts: EngineFacts,
    pub(super) address: EngineAddress,
}

/// Facts about an engine that decide how a container is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EngineFacts {
    pub kind: EngineKind,
    /// Root inside its containers is an unprivileged user outside.
    #[serde(rename = "rootless")]
    pub is_rootless: bool,
    /// User ids inside differ from those outside.
    pub remaps_users: bool,
    #[serde(skip)]
    pub enforced: EnforcedLimits,
    /// Whether the writable layer can be limited; found out by creating a probe container.
    #[serde(rename = "disk_quota")]
    pub has_disk_quota: bool,
}

/// Facts about an engine for `status` and `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineDescription {
    pub version: String,
    /// The cgroup version.
    pub cgroup: Option<u8>,
    #[serde(skip)]
    pub seccomp: Seccomp,
    /// The storage driver and its backing file system.
    pub storage: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum EngineKind {
    /// Docker, or an engine that does not identify itself as Podman.
    #[error("Docker")]
    Docker,
    #[error("Podman")]
    Podman,
}

/// Limits that an engine enforces; `None` if the engine does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnforcedLimits {
    pub memory: Option<bool>,
    pub processes: Option<bool>,
    pub processor: Option<bool>,
}

/// The engine's seccomp profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seccomp {
    On,
    /// Supported but turned off.
    Unconfined,
    /// Not supported.
    Missing,
}

struct PingReply {
    /// A client with this API version.
    api: Docker,
    version: ClientVersion,
    kind: EngineKind,
    /// The server runs as an unprivileged user of this host.
    is_user_socket: bool,
}

impl Engine {
    /// Connects with cached facts, or asks for them the first time.
    pub(crate) async fn connect_cached(address: &EngineAddress) -> Result<Self, EngineError> {
        let known = lock_cache().get(&address.to_string()).copied();
        let Some((version, facts)) = known else { return Self::connect(address).await };
        Ok(Self { api: client(address, &version)?, facts, address: address.clone() })
    }

    /// Connects and asks for the facts.
    pub async fn connect(address: &EngineAddress) -> Result<Self, EngineError> {
        let reply = ping(address).await?;
        let version = reply.version;
        let engine = if reply.kind == EngineKind::Podman && reply.is_user_socket {
            // Rootless Podman takes up to a second to report its facts, and they are all known.
            let limits = if Path::new(CGROUP_V2_FILE).exists() { None } else { Some(false) };
            let facts = EngineFacts {
                kind: EngineKind::Podman,
                is_rootless: true,
                remaps_users: false,
                enforced: EnforcedLimits { memory: limits, processes: limits, processor: limits },
                has_disk_quota: false,
            };
            Self { api: reply.api, facts, address: address.clone() }
        } else {
            query_engine(reply, address).await?.0
        };
        lock_cache().insert(address.to_string(), (version, engine.facts));
        Ok(engine)
    }

    /// Connects and asks for everything the engine reports about itself.
    pub async fn describe(address: &EngineAddress) -> Result<(Self, EngineDescription), EngineError> {
        query_engine(ping(address).await?, address).await
    }

    /// Creates a probe container with a disk limit from any local image.
    async fn probe_disk_quota(&self) -> Result<bool, EngineError> {
        let failed = |error: ApiError| self.address.error(&error);
        let images = self.api.list_images(None::<ListImagesOptions>).await.map_err(failed)?;
        let Some(image) = images.into_iter().next() else { return Ok(false) };
        // A probe left by a crash blocks the name.
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
            // The engine has no quota, or another process is probing.
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
            Err(error) => Err(self.address.error(&error)),
        }
    }
}

fn client(address: &EngineAddress, version: &ClientVersion) -> Result<Docker, EngineError> {
    let api = match address {
        EngineAddress::Unix(path) => {
            Docker::connect_with_unix(&path.to_string_lossy(), RESPONSE_TIMEOUT_SECONDS, version)
        }
        EngineAddress::Tcp(host) => Docker::connect_with_http(host, RESPONSE_TIMEOUT_SECONDS, version),
    };
    api.map_err(|error| address.error(&error))
}

fn lock_cache() -> MutexGuard<'static, BTreeMap<String, (ClientVersion, EngineFacts)>> {
    FACTS_CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends `GET /_ping`, which answers quickly and carries the API version.
async fn ping(address: &EngineAddress) -> Result<PingReply, EngineError> {
    let strange = |reason: String| EngineError::NotAnEngine { address: address.clone(), reason };
    let silent = |_elapsed| EngineError::TimedOut { address: address.clone(), timeout: PING_TIMEOUT };
    let (response, is_user_socket) =
        tokio::time::timeout(PING_TIMEOUT, send_ping(address)).await.map_err(silent)??;
    let mut lines = response.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.") {
        return Err(strange("the response is not HTTP".to_owned()));
    }
    let headers: HashMap<String, &str> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let Some(api_version) = headers.get("api-version") else {
        return Err(strange(format!("the response is {status}")));
    };
    let numbers = api_version
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some(engine_version) = numbers else {
        return Err(strange(format!("invalid API version {api_version}")));
    };
    if engine_version < MIN_API_VERSION {
        return Err(EngineError::TooOld { address: address.clone(), version: (*api_version).to_owned() });
    }
    let ours = (API_DEFAULT_VERSION.major_version, API_DEFAULT_VERSION.minor_version);
    let (major_version, minor_version) = engine_version.min(ours);
    let kind =
        if headers.contains_key("libpod-api-version") { EngineKind::Podman } else { EngineKind::Docker };
    let version = ClientVersion { major_version, minor_version };
    Ok(PingReply { api: client(address, &version)?, version, kind, is_user_socket })
}

/// The response, and whether the server runs as an unprivileged user of this host.
async fn send_ping(address: &EngineAddress) -> Result<(String, bool), EngineError> {
    let refused = |error: io::Error| EngineError::ConnectionRefused {
        address: address.clone(),
        reason: error.to_string(),
    };
    match address {
        EngineAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => permission_denied(path),
                io::ErrorKind::NotFound => EngineError::SocketMissing { socket: path.clone() },
                _ => refused(error),
            })?;
            let user = stream.peer_cred().map_err(refused)?.uid();
            Ok((exchange_ping(stream).await.map_err(refused)?, user != 0 && user != OVERFLOW_UID))
        }
        EngineAddress::Tcp(host) => {
            let stream = TcpStream::connect(host).await.map_err(refused)?;
            Ok((exchange_ping(stream).await.map_err(refused)?, false))
        }
    }
}

async fn exchange_ping(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    stream.write_all(b"GET /_ping HTTP/1.1\r\nHost: hermes\r\nConnection: close\r\n\r\n").await?;
    let mut response = Vec::new();
    let mut answer = BufReader::new(stream.take(MAX_PING_BYTES));
    // The headers end with an empty line.
    while answer.read_until(b'\n', &mut response).await? > "\r\n".len() {}
    Ok(String::from_utf8_lossy(&response).into_owned())
}

pub(super) fn permission_denied(socket: &Path) -> EngineError {
    let group = std::fs::metadata(socket).ok().map(|meta| meta.gid());
    EngineError::PermissionDenied { socket: socket.to_owned(), group }
}

impl EngineAddress {
    /// Explains a failed call of the engine at this address.
    pub(super) fn error(&self, error: &ApiError) -> EngineError {
        let address = self;
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
        // A restarted engine may be a different one.
        lock_cache().remove(&address.to_string());
        fault
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root_cause)
}

async fn query_engine(
    reply: PingReply,
    address: &EngineAddress,
) -> Result<(Engine, EngineDescription), EngineError> {
    let PingReply { api, kind, is_user_socket, .. } = reply;
    let info = fetch_info(&api).await.map_err(|error| address.error(&error))?;
    let engine = rust_architecture(info.architecture.as_deref().unwrap_or_default());
    if engine != std::env::consts::ARCH {
        let guest = std::env::consts::ARCH.to_owned();
        return Err(EngineError::WrongArchitecture { engine: engine.to_owned(), guest });
    }
    let (facts, description) = describe(kind, is_user_socket, info);
    let mut engine = Engine { api, facts, address: address.clone() };
    let may_have_quota = QUOTA_STORAGE.iter().any(|storage| description.storage.starts_with(storage));
    engine.facts.has_disk_quota = !facts.is_rootless && may_have_quota && engine.probe_disk_quota().await?;
    Ok((engine, description))
}

/// Podman inspects all containers for this call and fails if one ends during it, so it is retried.
async fn fetch_info(api: &Docker) -> Result<SystemInfo, ApiError> {
    for _ in 1..INFO_ATTEMPTS {
        match api.info().await {
            Err(ApiError::DockerResponseServerError { status_code: 500, .. }) => {}
            result => return result,
        }
    }
    api.info().await
}

/// Maps an engine's architecture name to Rust's.
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

fn describe(kind: EngineKind, is_user_socket: bool, info: SystemInfo) -> (EngineFacts, EngineDescription) {
    let options = info.security_options.unwrap_or_default();
    let option =
        |name: &str| options.iter().find(|option| option.split(',').next() == Some(&format!("name={name}")));
    // Podman 4.3 does not report rootless mode, but the owner of the socket tells.
    let is_rootless = option("rootless").is_some() || is_user_socket;
    let cgroup = info.cgroup_version.and_then(|version| version.to_string().parse().ok());
    let enforced = |response: Option<bool>| match (response, cgroup) {
        (Some(true), Some(1)) if is_rootless => Some(false),
        // Rootless Podman reports support without checking which controllers were delegated to its
        // user.
        (Some(true), _) if is_rootless && kind == EngineKind::Podman => None,
        (response, _) => response,
    };
    let status = info.driver_status.unwrap_or_default();
    let disk = status.iter().find_map(|row| match row.as_slice() {
        [name, value] if name == "Backing Filesystem" => Some(value.as_str()),
        _ => None,
    });
    let facts = EngineFacts {
        kind,
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

/// Turns a failed create or start call into an error that names the mount at fault.
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
        other => address.error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_info(kind: EngineKind, is_user_socket: bool, info: &str) -> (EngineFacts, EngineDescription) {
        describe(kind, is_user_socket, serde_json::from_str(info).unwrap())
    }

    #[test]
    fn engine_info_is_parsed() {
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
        assert_eq!(parse_info(EngineKind::Docker, false, &remapped), (facts, description));

        let without_root = |cgroup: u8| {
            format!(r#"{{"CgroupVersion": "{cgroup}", {limits}, "SecurityOptions": ["name=rootless"]}}"#)
        };
        let (facts, description) = parse_info(EngineKind::Docker, false, &without_root(2));
        assert!(facts.is_rootless);
        assert_eq!((facts.enforced, description.seccomp), (enforces, Seccomp::Missing));
        // Podman's word on limits is unreliable without root.
        let hoped = EnforcedLimits { memory: None, processes: None, processor: Some(false) };
        assert_eq!(parse_info(EngineKind::Podman, true, &without_root(2)).0.enforced, hoped);
        let nothing = EnforcedLimits { memory: Some(false), processes: Some(false), processor: Some(false) };
        assert_eq!(parse_info(EngineKind::Podman, true, &without_root(1)).0.enforced, nothing);
        assert_eq!([rust_architecture("amd64"), rust_architecture("x86_64")], ["x86_64"; 2]);
    }
}
