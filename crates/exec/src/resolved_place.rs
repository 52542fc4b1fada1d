//! The specification of a place and its identity.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_types::{BackendName, Person, Place, PlaceId, SessionKey, hex};
use serde::{Serialize, Serializer};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::backend::CreateRequest;
use crate::{Backend, Error};

/// The installation of Hermes that creates places.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Distinguishes this installation from others on the same machine.
    pub install_id: String,
    /// The directory of sockets and records. Short, since a socket path has at most about 100
    /// bytes.
    pub run_dir: PathBuf,
    /// The directory for the guest program.
    pub cache_dir: PathBuf,
    pub home: PathBuf,
    pub limits: PlaceLimits,
}

/// Limits that do not depend on what a guest reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimits {
    pub max_places: usize,
    /// Places of one person in chats.
    pub max_per_person: usize,
    /// A place that no hermes has used for this long is ended, even if processes run there.
    pub max_idle: Option<Duration>,
    /// An older place is ended.
    pub max_age: Option<Duration>,
}

impl Default for PlaceLimits {
    fn default() -> Self {
        Self { max_places: usize::MAX, max_per_person: usize::MAX, max_idle: None, max_age: None }
    }
}

/// An execution environment as its owner configured it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spec {
    pub backend: Backend,
    pub cwd: String,
    pub home: String,
    /// Variables for commands. They are not part of the identity, and their values are never
    /// written to disk.
    #[serde(serialize_with = "without_values")]
    pub env: Vec<(String, String)>,
    /// Files inside the place that bash sources when a session starts.
    pub init: Vec<String>,
    /// The longest idle time.
    pub lifetime: Duration,
}

/// A spec with an identity: it can be judged and opened.
#[derive(Debug, Clone)]
pub struct ResolvedPlace {
    pub(crate) installation: Installation,
    pub(crate) spec: Spec,
    /// The spec as it is recorded and shown, without values of variables.
    pub(crate) spec_json: serde_json::Value,
    /// The session that owns the place.
    pub(crate) owner_key: SessionKey,
    /// The session that uses it: the owner, unless several sessions share the place.
    pub(crate) session: SessionKey,
    /// The person in chats whom the place counts for.
    pub(crate) person: Option<Person>,
    id: PlaceId,
    name: String,
    /// A hash of the settings alone.
    pub(crate) digest: String,
}

/// The first bytes of a hash over all parts, in hexadecimal.
pub(crate) fn hash_parts(parts: &[&str], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex(hash.finalize().split_at(bytes).0)
}

impl ResolvedPlace {
    /// Computes the identity. Nothing is created.
    pub fn new(installation: Installation, spec: Spec, session: SessionKey) -> Result<Self, Error> {
        let uid = rustix::process::getuid().as_raw().to_string();
        let owner = [installation.install_id.as_str(), &uid, session.as_str(), spec.backend.name().as_str()];
        // Long enough that two sessions with the same name cannot be found.
        let name = format!("hermes-{}", hash_parts(&owner, 8));
        let spec_text = serde_json::to_string(&Spec { env: Vec::new(), ..spec.clone() })?;
        let spec_json = serde_json::to_value(&spec)?;
        let id = PlaceId::new(hash_parts(&[&owner[..], &[&spec_text]].concat(), 16));
        let digest = hash_parts(&[&spec_text], 8);
        let owner_key = session.clone();
        Ok(Self { installation, spec, spec_json, owner_key, session, person: None, id, name, digest })
    }

    /// The same place for another session. A permit for one session is not valid for the others.
    pub fn with_session(self, session: SessionKey) -> Self {
        Self { session, ..self }
    }

    /// The same place, counted for a person.
    pub fn for_person(self, person: Person) -> Self {
        Self { person: Some(person), ..self }
    }

    pub fn id(&self) -> &PlaceId {
        &self.id
    }

    /// The name shown to users. A session has one place per backend whatever its settings, so its
    /// files are there again after a setting changed.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    pub fn initial_cwd(&self) -> &str {
        &self.spec.cwd
    }

    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// Identifies the owner without revealing it.
    pub(crate) fn session_hash(&self) -> String {
        hash_parts(&[&self.installation.install_id, self.owner_key.as_str()], 8)
    }

    /// The storage of all places without kept files that have this run directory.
    pub(crate) fn unkept_storages(&self) -> PathBuf {
        let run_dir = hash_parts(&[&self.installation.run_dir.to_string_lossy()], 4);
        self.installation.home.join("cache/places").join(run_dir)
    }

    /// The directory for everything that grows: kept files, or files that are removed with the
    /// place. Not in the run directory, which is small and often in memory.
    pub(crate) fn storage_dir(&self) -> PathBuf {
        let kept = self.spec.backend.kept_dir(self);
        kept.unwrap_or_else(|| self.unkept_storages().join(self.name()))
    }

    /// The place for the gate.
    pub fn place(&self) -> Place {
        Place {
            id: self.id.clone(),
            backend: self.backend_name(),
            reach: self.spec.reach(),
            egress: self.spec.egress(),
            home: self.spec.home.clone(),
            hermes_home: self.installation.home.display().to_string(),
        }
    }

    pub fn run_dir(&self) -> &Path {
        &self.installation.run_dir
    }

    pub fn backend(&self) -> &Backend {
        &self.spec.backend
    }

    /// Builds the create request without creating anything.
    pub async fn create_request(&self) -> Result<CreateRequest, Error> {
        self.spec.backend.preview_request(self).await
    }

    pub fn backend_name(&self) -> BackendName {
        self.spec.backend.name()
    }
}

/// The names of variables, and whether each has a value.
fn without_values<S: Serializer>(env: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer
        .collect_seq(env.iter().map(|(name, value)| json!({"name": name, "present": !value.is_empty()})))
}

#[cfg(test)]
mod tests {
    use hermes_sandbox::JailLimits;
    use hermes_types::Network;

    use super::*;
    use crate::{LocalBackend, SandboxBackend};

    #[test]
    fn every_setting_changes_the_identity() {
        let id = |adjust: &dyn Fn(&mut Installation, &mut Spec, &mut String)| {
            let home = || PathBuf::from("/h");
            let mut installation = Installation {
                install_id: "i".to_owned(),
                run_dir: home(),
                cache_dir: home(),
                home: home(),
                limits: PlaceLimits { max_places: 1, ..PlaceLimits::default() },
            };
            let mut spec = Spec {
                backend: Backend::Local(LocalBackend::default()),
                cwd: "/w".to_owned(),
                home: "/h".to_owned(),
                env: vec![("NAME".to_owned(), "value".to_owned())],
                init: Vec::new(),
                lifetime: Duration::from_secs(1),
            };
            let mut session = "s".to_owned();
            adjust(&mut installation, &mut spec, &mut session);
            ResolvedPlace::new(installation, spec, SessionKey::new(session)).unwrap().id().clone()
        };
        let jail = |network| {
            Backend::Sandbox(SandboxBackend {
                helper: PathBuf::new(),
                files: None,
                owner_home: PathBuf::new(),
                audience: crate::Audience::Owner,
                binds: Vec::new(),
                network,
                limits: JailLimits::default(),
                base_env: Vec::new(),
            })
        };
        let plain = id(&|_, _, _| {});
        let others = [
            id(&|installation, _, _| installation.install_id.push('s')),
            id(&|_, _, session| session.push('s')),
            id(&|_, spec, _| spec.cwd.push('s')),
            id(&|_, spec, _| spec.home.push('s')),
            id(&|_, spec, _| spec.init.push("/w/init".to_owned())),
            id(&|_, spec, _| spec.lifetime = Duration::from_secs(2)),
            id(&|_, spec, _| spec.backend = jail(Network::None)),
            id(&|_, spec, _| spec.backend = jail(Network::Full)),
            // Moving text from one part to the next changes the identity.
            id(&|installation, _, session| {
                installation.install_id.push_str(session);
                session.clear();
            }),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(*other != plain && !others.iter().take(number).any(|seen| seen == other), "{number}");
        }
        // A changed value, such as a renewed token, does not.
        assert_eq!(id(&|_, spec, _| spec.env.clear()), plain);
        assert_eq!(id(&|installation, _, _| installation.limits.max_places = 2), plain);
    }

    #[test]
    fn a_variable_does_not_change_the_identity_and_its_value_is_not_serialized() {
        let installation = Installation {
            install_id: "i".to_owned(),
            run_dir: PathBuf::new(),
            cache_dir: PathBuf::new(),
            home: PathBuf::new(),
            limits: PlaceLimits { max_places: 1, ..PlaceLimits::default() },
        };
        let spec = |env: &[(&str, &str)], cwd: &str| Spec {
            backend: Backend::Local(LocalBackend::default()),
            cwd: cwd.to_owned(),
            home: "/".to_owned(),
            env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let id = |spec: Spec| {
            ResolvedPlace::new(installation.clone(), spec, SessionKey::new("s")).unwrap().id().clone()
        };
        let with = spec(&[("TOKEN", "hunter2"), ("BLANK", "")], "/");
        assert_eq!(id(with.clone()), id(spec(&[], "/")));
        assert_ne!(id(with.clone()), id(spec(&[], "/tmp")));
        assert_eq!(
            serde_json::to_value(&with).unwrap()["env"],
            serde_json::json!([{"name": "TOKEN", "present": true}, {"name": "BLANK", "present": false}])
        );
    }

    #[test]
    fn a_spec_that_cannot_be_serialized_is_an_error() {
        use std::os::unix::ffi::OsStrExt;

        let path = || PathBuf::from("/h");
        let installation = Installation {
            install_id: "i".to_owned(),
            run_dir: path(),
            cache_dir: path(),
            home: path(),
            limits: PlaceLimits { max_places: 1, ..PlaceLimits::default() },
        };
        let spec = Spec {
            backend: Backend::Sandbox(SandboxBackend {
                helper: PathBuf::new(),
                files: Some(std::ffi::OsStr::from_bytes(b"/kept/\xff").into()),
                owner_home: PathBuf::new(),
                audience: crate::Audience::Owner,
                binds: Vec::new(),
                network: Network::None,
                limits: JailLimits::default(),
                base_env: Vec::new(),
            }),
            cwd: "/".to_owned(),
            home: "/".to_owned(),
            env: Vec::new(),
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let refused = ResolvedPlace::new(installation, spec, SessionKey::new("s")).unwrap_err();
        assert!(matches!(refused, Error::Serialize(_)), "{refused}");
    }
}
