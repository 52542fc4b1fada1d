//! Image pulls. A pull is a separate step before the container is created, so that callers can show
//! its progress.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bollard::auth::DockerCredentials;
use bollard::errors::Error as ApiError;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use hermes_types::Secret;
use thiserror::Error;
use tokio::time::timeout;

use super::credentials::{CredentialsError, find_credentials};
use super::engine::{Engine, EngineAddress};
use crate::registry::{discard, lock_within};
use crate::{Backend, Error, OpenPlace, ResolvedPlace, resolved_place};

/// The longest time without a progress message; some engines are silent while they extract.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// More layers than an image can have; further ones are ignored.
const MAX_LAYERS: usize = 512;

/// Credentials for a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryCredentials {
    Password {
        user: String,
        password: Secret,
    },
    /// An identity token issued by the registry.
    Token(Secret),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineImage {
    pub id: String,
    /// The digest in the registry, if the image came from one.
    pub digest: Option<String>,
    pub bytes: u64,
    /// Operating system and architecture.
    platform: (String, String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullProgress {
    /// The layers reported so far; some engines also report the image configuration.
    pub layers: Vec<PullLayer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullLayer {
    pub id: String,
    pub step: LayerStep,
    pub bytes: u64,
    pub total: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerStep {
    Waiting,
    Downloading,
    Downloaded,
    Extracting,
    Done,
}

#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PullError {
    #[error("invalid image name")]
    InvalidName,
    #[error("no such image or tag in the registry")]
    NotFound,
    #[error("access denied by the registry, or no such image")]
    Denied,
    #[error("the registry password cannot be encoded for the engine")]
    UnsendableSecret,
    #[error("the image does not support this platform")]
    WrongPlatform,
    #[error("cannot reach the registry: {0}")]
    Unreachable(String),
    #[error("no space left on the engine's disk")]
    DiskFull,
    #[error("timed out after {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("no progress for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Any other message of the engine.
    #[error("{0}")]
    Other(String),
}

/// How this installation pulls images.
#[derive(Debug, Clone)]
pub struct PullSettings {
    /// Docker's settings directory, which holds the registry credentials.
    pub docker_config: PathBuf,
    /// The time limit for a pull.
    pub timeout: Duration,
}

/// Events of a pull.
#[derive(Debug)]
pub enum PullEvent<'a> {
    Started,
    /// The pull continues without credentials.
    CredentialsUnavailable(&'a CredentialsError),
    Progress(&'a PullProgress),
    /// The pull ended, for better or worse.
    Finished {
        is_pulled: bool,
    },
}

impl ResolvedPlace {
    /// Opens the place; an image that the engine does not have is pulled first. `on_event` gets the
    /// name of the image and the event.
    pub async fn open_with_pull(
        &self,
        settings: &PullSettings,
        mut on_event: impl FnMut(&str, PullEvent<'_>),
    ) -> Result<OpenPlace, Error> {
        let image = match self.open().await {
            Err(Error::ImageMissing { image }) => image,
            opened => return opened,
        };
        on_event(&image, PullEvent::Started);
        let pulled = self.pull_image(&image, settings, |event| on_event(&image, event)).await;
        on_event(&image, PullEvent::Finished { is_pulled: pulled.is_ok() });
        pulled?;
        self.open().await
    }

    /// Pulls the image of the place unless the engine has it. Concurrent callers wait for one pull.
    async fn pull_image(
        &self,
        image: &str,
        settings: &PullSettings,
        on_event: impl FnMut(PullEvent<'_>),
    ) -> Result<(), Error> {
        let Backend::Docker(docker) = &self.spec.backend else { return Ok(()) };
        let name = resolved_place::hash_parts(&[&docker.engine.to_string(), image], 8);
        let path = self.installation.run_dir.join(format!(".pull-{name}"));
        let turn = lock_within(&path, None).await?;
        let engine = Engine::connect_cached(&docker.engine).await?;
        if find_image(&engine, image).await?.is_none() {
            download(&engine, image, settings, on_event).await?;
        }
        turn.map_or(Ok(()), discard)
    }
}

/// Pulls an image even if the engine has it. Returns the image before and after.
pub async fn refresh_image(
    address: &EngineAddress,
    image: &str,
    settings: &PullSettings,
    on_event: impl FnMut(PullEvent<'_>),
) -> Result<(Option<EngineImage>, EngineImage), Error> {
    let engine = Engine::connect(address).await?;
    let image = full_reference(image)?;
    let before = find_image(&engine, &image).await?;
    download(&engine, &image, settings, on_event).await?;
    Ok((before, check_image(&engine, &image).await?))
}

pub fn registry_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// The image, if the engine has it and it fits the engine's platform.
pub(super) async fn check_image(engine: &Engine, image: &str) -> Result<EngineImage, Error> {
    let image = full_reference(image)?;
    let Some(found) = find_image(engine, &image).await? else { return Err(Error::ImageMissing { image }) };
    let (system, processor) = &found.platform;
    // The engine has this architecture too, otherwise `query_engine` fails.
    let expected = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    if (system.is_empty() || system == "linux") && (processor.is_empty() || processor == expected) {
        return Ok(found);
    }
    let built = format!("{system}/{processor}");
    Err(Error::WrongPlatform { image, built, wanted: format!("linux/{expected}") })
}

pub(crate) async fn find_image(engine: &Engine, image: &str) -> Result<Option<EngineImage>, Error> {
    let found = match engine.api.inspect_image(image).await {
        Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => return Ok(None),
        Err(error) if PullError::from_api_error(&error) == PullError::InvalidName => {
            return Err(Error::Pull { image: image.to_owned(), error: PullError::InvalidName });
        }
        found => found.map_err(|error| engine.address.error(&error))?,
    };
    let digests = found.repo_digests.unwrap_or_default();
    Ok(Some(EngineImage {
        id: found.id.unwrap_or_default(),
        digest: digests.iter().find_map(|name| Some(name.split_once('@')?.1.to_owned())),
        bytes: found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
        platform: (found.os.unwrap_or_default(), found.architecture.unwrap_or_default()),
    }))
}

/// Pulls an image. Most images are public, so a broken credential store is only reported.
async fn download(
    engine: &Engine,
    image: &str,
    settings: &PullSettings,
    mut on_event: impl FnMut(PullEvent<'_>),
) -> Result<(), Error> {
    let pull_error = |error| Error::Pull { image: image.to_owned(), error };
    let host = registry_host(image);
    let credentials = find_credentials(&settings.docker_config, host).await.unwrap_or_else(|error| {
        on_event(PullEvent::CredentialsUnavailable(&error));
        None
    });
    let credentials = credentials.map(|credentials| auth_header(&credentials, host));
    let credentials = credentials.transpose().map_err(pull_error)?;
    // An engine may send no response header before the registry has answered.
    let api = engine.api.clone().with_timeout(settings.timeout.saturating_add(STALL_TIMEOUT));
    let options = CreateImageOptionsBuilder::new().from_image(image).build();
    let mut messages = api.create_image(Some(options), None, credentials);
    let watch = async {
        let mut progress = PullProgress::default();
        let stalled = |_elapsed| PullError::Stalled(STALL_TIMEOUT);
        while let Some(info) = timeout(STALL_TIMEOUT, messages.next()).await.map_err(stalled)? {
            if progress.update(info.map_err(|error| PullError::from_api_error(&error))?) {
                on_event(PullEvent::Progress(&progress));
            }
        }
        Ok(())
    };
    // Dropping the stream closes the connection, which makes the engine stop.
    let pulled = timeout(settings.timeout, watch).await;
    pulled.unwrap_or(Err(PullError::TimedOut(settings.timeout))).map_err(pull_error)
}

/// The image name with a tag; without one an engine pulls every tag.
fn full_reference(image: &str) -> Result<String, Error> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    // The name becomes part of a URL path; the engine checks the rest.
    let parts = image.split('/').all(|part| !part.is_empty() && !part.chars().all(|c| c == '.'));
    if !parts || !image.chars().all(known) {
        return Err(Error::Pull { image: image.to_owned(), error: PullError::InvalidName });
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    Ok(if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") })
}

fn auth_header(who: &RegistryCredentials, server: &str) -> Result<DockerCredentials, PullError> {
    let mut header = DockerCredentials { serveraddress: Some(server.to_owned()), ..Default::default() };
    match who {
        RegistryCredentials::Password { user, password } => {
            header.username = Some(user.clone());
            header.password = Some(password.expose().to_owned());
        }
        RegistryCredentials::Token(token) => header.identitytoken = Some(token.expose().to_owned()),
    }
    let text = serde_json::to_string(&header).map_err(|error| PullError::Other(error.to_string()))?;
    // Bollard encodes with the URL-safe alphabet, whose last two characters engines do not decode.
    if URL_SAFE.encode(text).contains(['-', '_']) { Err(PullError::UnsendableSecret) } else { Ok(header) }
}

impl PullProgress {
    pub fn downloaded_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.step >= LayerStep::Downloaded).count()
    }

    pub fn downloaded_bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.bytes))
    }

    /// The sum of the layer sizes known so far.
    pub fn total_bytes(&self) -> u64 {
        self.layers.iter().filter_map(|layer| layer.total).fold(0, u64::saturating_add)
    }

    /// Applies a progress message and returns whether anything changed.
    fn update(&mut self, info: CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (info.id, info.status) else { return false };
        let step = match status.as_str() {
            "Pulling fs layer" | "Waiting" => LayerStep::Waiting,
            again if again.starts_with("Retrying") => LayerStep::Waiting,
            "Downloading" => LayerStep::Downloading,
            "Verifying Checksum" | "Download complete" => LayerStep::Downloaded,
            "Extracting" => LayerStep::Extracting,
            "Pull complete" | "Already exists" => LayerStep::Done,
            _ => return false,
        };
        let is_new = !self.layers.iter().any(|layer| layer.id == id);
        if is_new && self.layers.len() < MAX_LAYERS {
            let layer = PullLayer { id: id.clone(), step: LayerStep::Waiting, bytes: 0, total: None };
            self.layers.push(layer);
        }
        let Some(layer) = self.layers.iter_mut().find(|layer| layer.id == id) else { return false };
        let before = layer.clone();
        layer.step = step;
        let detail = info.progress_detail.unwrap_or_default();
        let count = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
        match step {
            LayerStep::Downloading => {
                layer.bytes = count(detail.current).unwrap_or(layer.bytes);
                layer.total = count(detail.total).filter(|total| *total > 0).or(layer.total);
            }
            LayerStep::Downloaded | LayerStep::Extracting | LayerStep::Done => {
                layer.bytes = layer.total.unwrap_or(layer.bytes);
            }
            LayerStep::Waiting => layer.bytes = 0,
        }
        is_new || *layer != before
    }
}

impl PullError {
    /// Classifies an engine's message; the API has no error codes for these cases.
    fn from_api_error(error: &ApiError) -> Self {
        let message = match error {
            ApiError::DockerResponseServerError { message, .. } => message,
            ApiError::DockerStreamError { error } => error,
            other => return Self::Other(other.to_string()),
        };
        let mentions = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if let Some((error, _)) = ENGINE_MESSAGES.iter().find(|(_, words)| mentions(words)) {
            return error.clone();
        }
        let is_unreachable = mentions(&[
            "connection refused", "no such host", "network is unreachable", "no route to host",
            "i/o timeout", "TLS handshake timeout", "Client.Timeout exceeded", "context deadline exceeded",
            "server misbehaving", "emporary failure in name resolution", "x509:",
        ]);
        if is_unreachable { Self::Unreachable(message.clone()) } else { Self::Other(message.clone()) }
    }
}

/// Errors, and words in the messages of engines that stand for them.
const ENGINE_MESSAGES: [(PullError, &[&str]); 5] = [
    (PullError::InvalidName, &["invalid reference format", "must be lowercase"]),
    (PullError::DiskFull, &["no space left on device"]),
    (
        PullError::WrongPlatform,
        &[
            "no matching manifest for", "no image found in manifest list for",
            "no image found in image index for",
        ],
    ),
    (
        PullError::Denied,
        &[
            "pull access denied", "no basic auth credentials", "authentication required",
            "access to the resource is denied",
        ],
    ),
    (PullError::NotFound, &["manifest unknown", "name unknown", "repository name not known to registry"]),
];

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    fn info(id: Option<&str>, status: &str, bytes: Option<(i64, i64)>) -> CreateImageInfo {
        CreateImageInfo {
            id: id.map(str::to_owned),
            status: Some(status.to_owned()),
            progress_detail: bytes
                .map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) }),
            error_detail: None,
        }
    }

    #[test]
    fn progress_messages_update_each_layer() {
        let mut progress = PullProgress::default();
        let message = [
            // Messages that are not about a layer.
            (info(Some("v1"), "Pulling from t/one", None), false),
            (info(None, "Digest: sha256:0", None), false),
            (info(Some("a"), "Pulling fs layer", None), true),
            (info(Some("a"), "Pulling fs layer", None), false),
            (info(Some("b"), "Already exists", None), true),
            (info(Some("a"), "Downloading", Some((5, 20))), true),
            (info(Some("c"), "Downloading", Some((9, -1))), true),
        ];
        for (number, (info, is_news)) in message.into_iter().enumerate() {
            assert_eq!(progress.update(info), is_news, "{number}");
        }
        let layer = |id: &str, step, bytes, total| PullLayer { id: id.to_owned(), step, bytes, total };
        let (b, c) = (layer("b", LayerStep::Done, 0, None), layer("c", LayerStep::Downloading, 9, None));
        assert_eq!(progress.layers, [layer("a", LayerStep::Downloading, 5, Some(20)), b.clone(), c.clone()]);
        assert_eq!(
            (progress.downloaded_layers(), progress.downloaded_bytes(), progress.total_bytes()),
            (1, 14, 20)
        );
        // Extraction progress does not count bytes twice.
        progress.update(info(Some("a"), "Download complete", None));
        progress.update(info(Some("a"), "Extracting", Some((1, 20))));
        assert_eq!(progress.layers, [layer("a", LayerStep::Extracting, 20, Some(20)), b.clone(), c.clone()]);
        progress.update(info(Some("a"), "Retrying in 5 seconds", None));
        assert_eq!(progress.layers, [layer("a", LayerStep::Waiting, 0, Some(20)), b, c]);
    }

    #[test]
    fn the_number_of_layers_is_bounded() {
        let mut progress = PullProgress::default();
        for number in 0..2 * MAX_LAYERS {
            progress.update(info(Some(&number.to_string()), "Waiting", None));
        }
        assert_eq!(progress.layers.len(), MAX_LAYERS);
        progress.update(info(Some("0"), "Downloading", Some((i64::MAX, i64::MAX))));
        progress.update(info(Some("1"), "Downloading", Some((i64::MAX, i64::MAX))));
        progress.update(info(Some("2"), "Downloading", Some((i64::MAX, i64::MAX))));
        assert_eq!((progress.downloaded_bytes(), progress.total_bytes()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn an_image_name_gets_a_tag_and_cannot_change_the_request() {
        let cases = [
            ("bash", Some("bash:latest")),
            ("r.example:5000/bash", Some("r.example:5000/bash:latest")),
            ("r.example:5000/o/bash:5", Some("r.example:5000/o/bash:5")),
            ("bash@sha256:00", Some("bash@sha256:00")),
            ("", None),
            ("a b", None),
            ("a?b", None),
            ("a%2fb", None),
            ("../containers", None),
            ("a//b", None),
            ("/a", None),
            ("a\nb", None),
        ];
        for (image, expected) in cases {
            assert_eq!(full_reference(image).ok().as_deref(), expected, "{image}");
        }
        let hosts = [
            ("bash", "docker.io"),
            ("owner/bash:5", "docker.io"),
            ("localhost/bash", "localhost"),
            ("r.example/bash", "r.example"),
            ("r:5000/bash", "r:5000"),
        ];
        for (image, host) in hosts {
            assert_eq!(registry_host(image), host, "{image}");
        }
    }

    #[test]
    fn messages_of_both_engines_are_classified() {
        // Messages of dockerd 20.10 and Podman 4.3; those for a full disk and Docker Hub come from
        // their binaries.
        let cases = [
            ("manifest for h/t/one:no not found: manifest unknown: manifest unknown", PullError::NotFound),
            (
                "initializing source docker://h/t: reading manifest v1 in h/t: manifest unknown: manifest unknown",
                PullError::NotFound,
            ),
            ("Head \"http://h/v2/t/one/manifests/v1\": no basic auth credentials", PullError::Denied),
            ("unauthorized: authentication required", PullError::Denied),
            (
                "pull access denied for x, repository does not exist or may require 'docker login': denied: requested \
                 access to the resource is denied",
                PullError::Denied,
            ),
            ("invalid reference format: repository name must be lowercase", PullError::InvalidName),
            (
                "normalizing image: normalizing name for compat API: repository name must be lowercase",
                PullError::InvalidName,
            ),
            ("no matching manifest for linux/amd64 in the manifest list entries", PullError::WrongPlatform),
            (
                "no image found in manifest list for architecture amd64, variant \"\", OS linux",
                PullError::WrongPlatform,
            ),
            ("write /var/lib/x: no space left on device", PullError::DiskFull),
            (
                "Get \"https://h/v2/\": context deadline exceeded",
                PullError::Unreachable("Get \"https://h/v2/\": context deadline exceeded".to_owned()),
            ),
            ("something else", PullError::Other("something else".to_owned())),
        ];
        for (message, expected) in cases {
            let stream = ApiError::DockerStreamError { error: message.to_owned() };
            let answer =
                ApiError::DockerResponseServerError { status_code: 500, message: message.to_owned() };
            assert_eq!(
                [PullError::from_api_error(&stream), PullError::from_api_error(&answer)],
                [expected.clone(), expected],
                "{message}"
            );
        }
    }

    #[test]
    fn a_password_that_cannot_be_encoded_is_not_sent() {
        let header = |password: &str| {
            let who =
                RegistryCredentials::Password { user: "user".to_owned(), password: Secret::new(password) };
            super::auth_header(&who, "r.example").map(|on_progress| on_progress.password)
        };
        assert_eq!(header("hunter2"), Ok(Some("hunter2".to_owned())));
        // One of three neighboring positions is not encodable.
        let sent = ["?", "a?", "aa?"].map(|password| header(password).is_ok());
        assert_eq!(sent.iter().filter(|is_ok| !**is_ok).count(), 1, "{sent:?}");
        assert_eq!(header("ÿÿÿ"), Err(PullError::UnsendableSecret));
    }
}
