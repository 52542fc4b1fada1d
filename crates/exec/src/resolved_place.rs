//! What a place is to be, and which place that makes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_types::{BackendName, Network, Place, PlaceId, SessionKey};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::backend::CreateRequest;
use crate::{Backend, EngineAccess, Error};

/// What this hermes brings along, whatever place it makes.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Tells this installation from others on the same machine.
    pub install_id: String,
    /// Where sockets and records of places are. Short, since the path of a socket has room for about 100 bytes.
    pub run_dir: PathBuf,
    /// Where the guest is kept.
    pub cache_dir: PathBuf,
    /// Where hermes keeps its own files.
    pub home: PathBuf,
    /// How many places there may be at once.
    pub max_places: usize,
}

/// A place, as its owner wants it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spec {
    /// What kind of place.
    pub backend: Backend,
    /// Where a session starts.
    pub cwd: String,
    /// The home directory of whoever runs commands there.
    pub home: String,
    /// Variables that commands get besides those of the place. They are no part of the identity, and their values are
    /// written down nowhere.
    #[serde(serialize_with = "without_values")]
    pub env: Vec<(String, String)>,
    /// Files of the place that bash sources when a session begins.
    pub init: Vec<String>,
    /// How long the place may be idle.
    pub lifetime: Duration,
}

/// A place that can be judged and made.
#[derive(Debug, Clone)]
pub struct ResolvedPlace {
    pub(crate) installation: Installation,
    pub(crate) spec: Spec,
    /// Whose place it is.
    owner_key: SessionKey,
    /// The session that works there: the same, unless several share the place.
    pub(crate) session: SessionKey,
    id: PlaceId,
    name: String,
    digest: String,
}

/// The beginning of the hash of all parts, as text.
pub(crate) fn hash_parts(parts: &[&str], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

impl ResolvedPlace {
    /// Gives the place its identity. Nothing is made yet.
    pub fn new(host: Installation, spec: Spec, session: SessionKey) -> Self {
        let uid = rustix::process::getuid().as_raw().to_string();
        let whose = [host.install_id.as_str(), &uid, session.as_str(), spec.backend.name().as_str()];
        // Enough of it that nobody finds a session whose place has the name of another's.
        let name = format!("hermes-{}", hash_parts(&whose, 8));
        let identity = Spec { env: Vec::new(), ..spec.clone() };
        let spec_text = serde_json::to_string(&identity).unwrap_or_default();
        let [install, uid, session_key, backend] = whose;
        let id = PlaceId::new(hash_parts(&[install, uid, session_key, backend, &spec_text], 16));
        let digest = hash_parts(&[&spec_text], 8);
        Self { installation: host, spec, owner_key: session.clone(), session, id, name, digest }
    }

    /// The same place, in which another session works. What one of them is permitted is not permitted to the others.
    pub fn with_session(self, session: SessionKey) -> Self {
        Self { session, ..self }
    }

    /// Whose place it is.
    pub(crate) fn owner_key(&self) -> &SessionKey {
        &self.owner_key
    }

    /// Tells its settings from others, whoever's place it is.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Which place this is.
    pub fn id(&self) -> &PlaceId {
        &self.id
    }

    /// What people call it. A session has one place on a backend, whatever its settings, so that its files are there
    /// again when a setting has changed.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The directory in which sessions there begin.
    pub fn initial_cwd(&self) -> &str {
        &self.spec.cwd
    }

    /// The session that works there.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// Tells whose it is from others without saying who that is.
    pub(crate) fn session_hash(&self) -> String {
        hash_parts(&[&self.installation.install_id, self.owner_key.as_str()], 8)
    }

    /// What the gate must know of it.
    pub fn place(&self) -> Place {
        Place {
            id: self.id.clone(),
            backend: self.backend_name(),
            reach: self.spec.backend.reach(),
            home: self.spec.home.clone(),
            hermes_home: self.installation.home.display().to_string(),
        }
    }

    /// Where its socket and record are, among those of other places.
    pub fn run_dir(&self) -> &Path {
        &self.installation.run_dir
    }

    /// What commands there reach over the network.
    pub fn network(&self) -> Network {
        self.spec.backend.network()
    }

    /// The kind of place with its settings.
    pub fn backend(&self) -> &Backend {
        &self.spec.backend
    }

    /// Whether whoever makes it speaks to engines.
    pub fn engine_access(&self) -> EngineAccess {
        self.spec.backend.engine_access()
    }

    /// What would be asked for to make it. Nothing is made.
    pub async fn create_request(&self) -> Result<CreateRequest, Error> {
        self.spec.backend.preview_request(self).await
    }

    /// What kind of place it is.
    pub fn backend_name(&self) -> BackendName {
        self.spec.backend.name()
    }
}

/// The names of variables, and whether each has a value.
fn without_values<S: Serializer>(env: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct ForwardedVariable<'a> {
        name: &'a str,
        present: bool,
    }
    serializer
        .collect_seq(env.iter().map(|(name, value)| ForwardedVariable { name, present: !value.is_empty() }))
}

#[cfg(test)]
mod tests {
    use hermes_sandbox::Limits;
    use hermes_types::Network;

    use super::*;
    use crate::{LocalBackend, SandboxBackend};

    #[test]
    fn whatever_makes_a_place_another_one_gives_it_another_identity() {
        let id = |adjust: &dyn Fn(&mut Installation, &mut Spec, &mut String)| {
            let home = || PathBuf::from("/h");
            let mut host = Installation {
                install_id: "i".to_owned(),
                run_dir: home(),
                cache_dir: home(),
                home: home(),
                max_places: 1,
            };
            let mut spec = Spec {
                backend: Backend::Local(LocalBackend { base_env: Vec::new() }),
                cwd: "/w".to_owned(),
                home: "/h".to_owned(),
                env: vec![("NAME".to_owned(), "value".to_owned())],
                init: Vec::new(),
                lifetime: Duration::from_secs(1),
            };
            let mut session = "s".to_owned();
            adjust(&mut host, &mut spec, &mut session);
            ResolvedPlace::new(host, spec, SessionKey::new(session)).id().clone()
        };
        let jail = |network| {
            Backend::Sandbox(SandboxBackend {
                helper: PathBuf::new(),
                files: None,
                owner_home: PathBuf::new(),
                audience: crate::Audience::Owner,
                binds: Vec::new(),
                network,
                limits: Limits::default(),
                base_env: Vec::new(),
            })
        };
        let plain = id(&|_, _, _| {});
        let others = [
            id(&|host, _, _| host.install_id.push('s')),
            id(&|_, _, session| session.push('s')),
            id(&|_, spec, _| spec.cwd.push('s')),
            id(&|_, spec, _| spec.home.push('s')),
            id(&|_, spec, _| spec.init.push("/w/init".to_owned())),
            id(&|_, spec, _| spec.lifetime = Duration::from_secs(2)),
            id(&|_, spec, _| spec.backend = jail(Network::None)),
            id(&|_, spec, _| spec.backend = jail(Network::Full)),
            // What is moved from one part to the next is no longer the same.
            id(&|host, _, session| {
                host.install_id.push_str(session);
                session.clear();
            }),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(*other != plain && !others.iter().take(number).any(|seen| seen == other), "{number}");
        }
        // A value that changes, such as a token that was renewed, does not.
        assert_eq!(id(&|_, spec, _| spec.env.clear()), plain);
        assert_eq!(id(&|host, _, _| host.max_places = 2), plain);
    }

    #[test]
    fn a_variable_makes_no_other_place_and_its_value_is_written_down_nowhere() {
        let host = Installation {
            install_id: "i".to_owned(),
            run_dir: PathBuf::new(),
            cache_dir: PathBuf::new(),
            home: PathBuf::new(),
            max_places: 1,
        };
        let spec = |env: &[(&str, &str)], cwd: &str| Spec {
            backend: Backend::Local(LocalBackend::default()),
            cwd: cwd.to_owned(),
            home: "/".to_owned(),
            env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let id = |spec: Spec| ResolvedPlace::new(host.clone(), spec, SessionKey::new("s")).id().clone();
        let with = spec(&[("TOKEN", "hunter2"), ("BLANK", "")], "/");
        assert_eq!(id(with.clone()), id(spec(&[], "/")));
        assert_ne!(id(with.clone()), id(spec(&[], "/tmp")));
        assert_eq!(
            serde_json::to_value(&with).unwrap()["env"],
            serde_json::json!([{"name": "TOKEN", "present": true}, {"name": "BLANK", "present": false}])
        );
    }
}
