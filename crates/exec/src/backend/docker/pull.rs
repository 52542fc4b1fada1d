//! Getting an image. It is a step of its own, before a container is made, so that somebody can watch it.

use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::errors::Error as ApiError;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use hermes_types::Secret;
use thiserror::Error;
use tokio::time::timeout;

use super::engine::{Engine, EngineAddress};
use crate::registry::lock_exclusive;
use crate::{Backend, Error, ResolvedPlace, resolved_place};

/// How long an engine may say nothing new. Some say nothing while they unpack.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// More layers than an image can have; what an engine says of others is not kept.
const MAX_LAYERS: usize = 512;

/// What a pull is allowed.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Who asks, for a registry that wants to know.
    pub credentials: Option<RegistryCredentials>,
    /// How long all of it may take.
    pub timeout: Duration,
}

/// Who somebody is to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryCredentials {
    /// By name.
    Password {
        /// The name.
        user: String,
        /// What proves it.
        password: Secret,
    },
    /// By what the registry gave out earlier.
    Token(Secret),
}

/// An image that the engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineImage {
    /// What the engine calls it.
    pub id: String,
    /// What its registry calls it, if it came from one.
    pub digest: Option<String>,
    /// How much it takes.
    pub bytes: u64,
    /// The operating system and processor it is for.
    platform: (String, String),
}

/// How far a pull is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullProgress {
    /// The layers heard of so far, the image's description sometimes among them.
    pub layers: Vec<PullLayer>,
}

/// How far one layer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullLayer {
    /// What the engine calls it.
    pub id: String,
    /// What is being done with it.
    pub step: LayerStep,
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes that there are, once that is known.
    pub total: Option<u64>,
}

/// What is being done with a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerStep {
    /// Nothing yet.
    Waiting,
    /// It comes over the network.
    Downloading,
    /// All of it is here.
    Downloaded,
    /// It is being unpacked.
    Extracting,
    /// It is part of the image.
    Done,
}

/// Why an image could not be pulled.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PullError {
    /// No image can have this name.
    #[error("no image can have that name")]
    InvalidName,
    /// The registry does not know it.
    #[error("its registry has no such image or tag")]
    NotFound,
    /// The registry does not give it to this caller, or does not want to say that there is none.
    #[error("its registry gives it only to those who have logged in, or has no such image")]
    Denied,
    /// The engine cannot be told this secret.
    #[error("the secret for its registry has a character that cannot be sent where it stands")]
    UnsendableSecret,
    /// There is one, but not for this kind of machine.
    #[error("it is not built for this kind of machine")]
    WrongPlatform,
    /// The engine does not get through to the registry.
    #[error("its registry cannot be reached: {0}")]
    Unreachable(String),
    /// The engine has no room for it.
    #[error("the engine has no space left on its disk")]
    DiskFull,
    /// It took too long.
    #[error("it was not there after {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The engine had nothing new to say for too long.
    #[error("nothing came for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Something else, in the engine's words.
    #[error("{0}")]
    Other(String),
}

impl ResolvedPlace {
    /// Gets the image of the place, unless the engine has it by now. Of several callers one fetches it.
    pub async fn pull_image(
        &self,
        means: &PullOptions,
        told: impl FnMut(&PullProgress),
    ) -> Result<(), Error> {
        let Backend::Docker(docker) = &self.spec.backend else { return Ok(()) };
        let image = full_reference(&docker.image)?;
        let name = resolved_place::hash_parts(&[&docker.engine.to_string(), &image], 8);
        let turn = lock_exclusive(&self.installation.run_dir, &format!(".pull-{name}")).await?;
        let engine = Engine::connect_cached(&docker.engine).await?;
        if find_image(&engine, &image).await?.is_none() {
            download(&engine, &image, means, told).await?;
        }
        turn.discard()
    }
}

/// Asks the registry for an image, also if the engine has one of that name. Gives what it had before and has now.
pub async fn refresh_image(
    address: &EngineAddress,
    image: &str,
    means: &PullOptions,
    told: impl FnMut(&PullProgress),
) -> Result<(Option<EngineImage>, EngineImage), Error> {
    let image = full_reference(image)?;
    let engine = Engine::connect(address).await?;
    let before = find_image(&engine, &image).await?;
    download(&engine, &image, means, told).await?;
    let now =
        find_image(&engine, &image).await?.ok_or_else(|| Error::ImageMissing { image: image.clone() })?;
    check_platform(&image, &now)?;
    Ok((before, now))
}

/// The host of the registry that an image comes from.
pub fn registry_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// Makes sure that a container can be made of the image.
pub(super) async fn check_image(engine: &Engine, image: &str) -> Result<(), Error> {
    let image = full_reference(image)?;
    match find_image(engine, &image).await? {
        Some(found) => check_platform(&image, &found),
        None => Err(Error::ImageMissing { image }),
    }
}

/// The image as the engine has it, if it does.
async fn find_image(engine: &Engine, image: &str) -> Result<Option<EngineImage>, Error> {
    let found = match engine.api.inspect_image(image).await {
        Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => return Ok(None),
        Err(error) if PullError::from_api_error(&error) == PullError::InvalidName => {
            return Err(Error::Pull { image: image.to_owned(), error: PullError::InvalidName });
        }
        found => found.map_err(|error| engine.error(&error))?,
    };
    let digests = found.repo_digests.unwrap_or_default();
    Ok(Some(EngineImage {
        id: found.id.unwrap_or_default(),
        digest: digests.iter().find_map(|name| Some(name.split_once('@')?.1.to_owned())),
        bytes: found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
        platform: (found.os.unwrap_or_default(), found.architecture.unwrap_or_default()),
    }))
}

/// What is inside must run where the guest does.
fn check_platform(image: &str, found: &EngineImage) -> Result<(), Error> {
    let (system, processor) = &found.platform;
    // The engine is of the same kind, or it would have been refused.
    let wanted = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    if (system.is_empty() || system == "linux") && (processor.is_empty() || processor == wanted) {
        return Ok(());
    }
    Err(Error::WrongPlatform {
        image: image.to_owned(),
        built: format!("{system}/{processor}"),
        wanted: format!("linux/{wanted}"),
    })
}

async fn download(
    engine: &Engine,
    image: &str,
    means: &PullOptions,
    mut told: impl FnMut(&PullProgress),
) -> Result<(), Error> {
    let fault = |fault| Error::Pull { image: image.to_owned(), error: fault };
    let credentials = means.credentials.as_ref().map(|who| auth_header(who, registry_host(image)));
    let credentials = credentials.transpose().map_err(fault)?;
    // An engine may begin its answer when it has heard from the registry, and not before.
    let api = engine.api.clone().with_timeout(means.timeout.saturating_add(STALL_TIMEOUT));
    let options = CreateImageOptionsBuilder::new().from_image(image).build();
    let mut news = api.create_image(Some(options), None, credentials);
    let watch = async {
        let mut progress = PullProgress::default();
        loop {
            match timeout(STALL_TIMEOUT, news.next()).await {
                Err(_elapsed) => return Err(PullError::Stalled(STALL_TIMEOUT)),
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(PullError::from_api_error(&error)),
                Ok(Some(Ok(info))) => {
                    if progress.update(info) {
                        told(&progress);
                    }
                }
            }
        }
    };
    // Whoever goes away closes the connection, and the engine stops.
    timeout(means.timeout, watch).await.unwrap_or(Err(PullError::TimedOut(means.timeout))).map_err(fault)
}

/// The whole name of an image. Without a tag an engine would get all there are.
fn full_reference(image: &str) -> Result<String, Error> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    // The name becomes part of an address; the engine judges the rest of it.
    let parts = image.split('/').all(|part| !part.is_empty() && !part.chars().all(|c| c == '.'));
    if !parts || !image.chars().all(known) {
        return Err(Error::Pull { image: image.to_owned(), error: PullError::InvalidName });
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    Ok(if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") })
}

/// What the engine is told about the caller.
fn auth_header(who: &RegistryCredentials, server: &str) -> Result<DockerCredentials, PullError> {
    let mut told = DockerCredentials { serveraddress: Some(server.to_owned()), ..Default::default() };
    match who {
        RegistryCredentials::Password { user, password } => {
            told.username = Some(user.clone());
            told.password = Some(password.expose().to_owned());
        }
        RegistryCredentials::Token(token) => told.identitytoken = Some(token.expose().to_owned()),
    }
    let text = serde_json::to_string(&told).map_err(|error| PullError::Other(error.to_string()))?;
    // Bollard encodes with an alphabet of which engines do not know the last two characters.
    if sextets(text.as_bytes()).any(|sextet| sextet >= 62) {
        Err(PullError::UnsendableSecret)
    } else {
        Ok(told)
    }
}

/// The numbers that the characters of Base64 stand for.
fn sextets(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.chunks(3).flat_map(|chunk| {
        let byte = |number: usize| u32::from(chunk.get(number).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        [18, 12, 6, 0].map(|shift| u8::try_from(bits >> shift & 63).unwrap_or_default())
    })
}

impl PullProgress {
    /// How many layers are here.
    pub fn downloaded_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.step >= LayerStep::Downloaded).count()
    }

    /// How many bytes are here.
    pub fn downloaded_bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.bytes))
    }

    /// How many bytes there are, as far as that is known.
    pub fn total_bytes(&self) -> u64 {
        self.layers.iter().filter_map(|layer| layer.total).fold(0, u64::saturating_add)
    }

    /// Takes in what an engine says, and tells whether that was news.
    fn update(&mut self, info: CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (info.id, info.status) else { return false };
        let step = match status.as_str() {
            "Pulling fs layer" | "Waiting" => LayerStep::Waiting,
            "Downloading" => LayerStep::Downloading,
            "Verifying Checksum" | "Download complete" => LayerStep::Downloaded,
            "Extracting" => LayerStep::Extracting,
            "Pull complete" | "Already exists" => LayerStep::Done,
            again if again.starts_with("Retrying") => LayerStep::Waiting,
            _ => return false,
        };
        let known = self.layers.iter().position(|layer| layer.id == id);
        let number = known.unwrap_or(self.layers.len());
        if known.is_none() {
            if number == MAX_LAYERS {
                return false;
            }
            self.layers.push(PullLayer { id, step: LayerStep::Waiting, bytes: 0, total: None });
        }
        let Some(layer) = self.layers.get_mut(number) else { return false };
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
                layer.bytes = layer.total.unwrap_or(layer.bytes)
            }
            LayerStep::Waiting => layer.bytes = 0,
        }
        known.is_none() || *layer != before
    }
}

impl PullError {
    /// What an engine meant. It has no other words for it than these.
    fn from_api_error(error: &ApiError) -> Self {
        let said = match error {
            ApiError::DockerResponseServerError { message, .. } => message,
            ApiError::DockerStreamError { error } => error,
            other => return Self::Other(other.to_string()),
        };
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if says(&["invalid reference format", "must be lowercase"]) {
            Self::InvalidName
        } else if says(&["no space left on device"]) {
            Self::DiskFull
        } else if says(&[
            "no matching manifest for", "no image found in manifest list for",
            "no image found in image index for",
        ]) {
            Self::WrongPlatform
        } else if says(&[
            "pull access denied", "no basic auth credentials", "authentication required",
            "access to the resource is denied",
        ]) {
            Self::Denied
        } else if says(&["manifest unknown", "name unknown", "repository name not known to registry"]) {
            Self::NotFound
        } else if says(&[
            "connection refused", "no such host", "network is unreachable", "no route to host",
            "i/o timeout", "TLS handshake timeout", "Client.Timeout exceeded", "context deadline exceeded",
            "server misbehaving", "emporary failure in name resolution", "x509:",
        ]) {
            Self::Unreachable(said.clone())
        } else {
            Self::Other(said.clone())
        }
    }
}

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
    fn what_an_engine_says_becomes_the_state_of_each_layer() {
        let mut progress = PullProgress::default();
        let said = [
            // Neither of these is about a layer.
            (info(Some("v1"), "Pulling from t/one", None), false),
            (info(None, "Digest: sha256:0", None), false),
            (info(Some("a"), "Pulling fs layer", None), true),
            (info(Some("a"), "Pulling fs layer", None), false),
            (info(Some("b"), "Already exists", None), true),
            (info(Some("a"), "Downloading", Some((5, 20))), true),
            (info(Some("c"), "Downloading", Some((9, -1))), true),
        ];
        for (number, (info, is_news)) in said.into_iter().enumerate() {
            assert_eq!(progress.update(info), is_news, "{number}");
        }
        let layer = |id: &str, step, bytes, total| PullLayer { id: id.to_owned(), step, bytes, total };
        let (b, c) = (layer("b", LayerStep::Done, 0, None), layer("c", LayerStep::Downloading, 9, None));
        assert_eq!(progress.layers, [layer("a", LayerStep::Downloading, 5, Some(20)), b.clone(), c.clone()]);
        assert_eq!(
            (progress.downloaded_layers(), progress.downloaded_bytes(), progress.total_bytes()),
            (1, 14, 20)
        );
        // How far the unpacking is counts no bytes twice.
        progress.update(info(Some("a"), "Download complete", None));
        progress.update(info(Some("a"), "Extracting", Some((1, 20))));
        assert_eq!(progress.layers, [layer("a", LayerStep::Extracting, 20, Some(20)), b.clone(), c.clone()]);
        progress.update(info(Some("a"), "Retrying in 5 seconds", None));
        assert_eq!(progress.layers, [layer("a", LayerStep::Waiting, 0, Some(20)), b, c]);
    }

    #[test]
    fn an_engine_without_end_is_not_remembered_without_end() {
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
    fn a_name_has_a_tag_and_nothing_that_could_be_another_request() {
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
        for (image, wanted) in cases {
            assert_eq!(full_reference(image).ok().as_deref(), wanted, "{image}");
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
    fn the_words_of_both_engines_are_understood() {
        // As dockerd 20.10 and Podman 4.3 have them; those of a full disk and of Docker Hub are in their binaries.
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
        for (said, wanted) in cases {
            let stream = ApiError::DockerStreamError { error: said.to_owned() };
            let answer = ApiError::DockerResponseServerError { status_code: 500, message: said.to_owned() };
            assert_eq!(
                [PullError::from_api_error(&stream), PullError::from_api_error(&answer)],
                [wanted.clone(), wanted],
                "{said}"
            );
        }
    }

    #[test]
    fn a_password_that_would_not_arrive_is_not_sent() {
        let header = |password: &str| {
            let who =
                RegistryCredentials::Password { user: "user".to_owned(), password: Secret::new(password) };
            super::auth_header(&who, "r.example").map(|told| told.password)
        };
        assert_eq!(header("hunter2"), Ok(Some("hunter2".to_owned())));
        // Of three neighbors one stands where it cannot be.
        let sent = ["?", "a?", "aa?"].map(|password| header(password).is_ok());
        assert_eq!(sent.iter().filter(|is_ok| !**is_ok).count(), 1, "{sent:?}");
        assert_eq!(header("ÿÿÿ"), Err(PullError::UnsendableSecret));
    }
}
