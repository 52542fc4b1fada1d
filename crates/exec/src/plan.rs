//! What a place is to be, and which place that makes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_types::{BackendName, Network, Place, PlaceId, SessionKey};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::backend::Request;
use crate::{Backend, Engines, Error};

/// What this hermes brings along, whatever place it makes.
#[derive(Debug, Clone)]
pub struct Host {
    /// Tells this installation from others on the same machine.
    pub install: String,
    /// Where sockets and records of places are. Short, since the path of a socket has room for about 100 bytes.
    pub run: PathBuf,
    /// Where the guest is kept.
    pub cache: PathBuf,
    /// Where hermes keeps its own files.
    pub home: PathBuf,
    /// How many places there may be at once.
    pub most_places: usize,
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
pub struct Plan {
    pub(crate) host: Host,
    pub(crate) spec: Spec,
    /// Whose place it is.
    whose: SessionKey,
    /// The session that works there: the same, unless several share the place.
    pub(crate) session: SessionKey,
    id: PlaceId,
    name: String,
    digest: String,
}

/// The beginning of the hash of all parts, as text.
pub(crate) fn hash(parts: &[&str], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

impl Plan {
    /// Gives the place its identity. Nothing is made yet.
    pub fn new(host: Host, spec: Spec, session: SessionKey) -> Self {
        let uid = rustix::process::getuid().as_raw().to_string();
        let whose = [host.install.as_str(), &uid, session.as_str(), spec.backend.name().as_str()];
        // Enough of it that nobody finds a session whose place has the name of another's.
        let name = format!("hermes-{}", hash(&whose, 8));
        let identity = Spec { env: Vec::new(), ..spec.clone() };
        let spec_text = serde_json::to_string(&identity).unwrap_or_default();
        let [install, uid, session_key, backend] = whose;
        let id = PlaceId::new(hash(&[install, uid, session_key, backend, &spec_text], 16));
        let digest = hash(&[&spec_text], 8);
        Self { host, spec, whose: session.clone(), session, id, name, digest }
    }

    /// The same place, in which another session works. What one of them is permitted is not permitted to the others.
    pub fn shared_by(self, session: SessionKey) -> Self {
        Self { session, ..self }
    }

    /// Whose place it is.
    pub(crate) fn whose(&self) -> &SessionKey {
        &self.whose
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
    pub fn directory(&self) -> &str {
        &self.spec.cwd
    }

    /// The session that works there.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// Tells whose it is from others without saying who that is.
    pub(crate) fn session_hash(&self) -> String {
        hash(&[&self.host.install, self.whose.as_str()], 8)
    }

    /// What the gate must know of it.
    pub fn place(&self) -> Place {
        Place {
            id: self.id.clone(),
            backend: self.backend(),
            reach: self.spec.backend.reach(),
            home: self.spec.home.clone(),
            hermes_home: self.host.home.display().to_string(),
        }
    }

    /// Where its socket and record are, among those of other places.
    pub fn run(&self) -> &Path {
        &self.host.run
    }

    /// What commands there reach over the network.
    pub fn network(&self) -> Network {
        self.spec.backend.network()
    }

    /// The kind of place with its settings.
    pub fn settings(&self) -> &Backend {
        &self.spec.backend
    }

    /// Whether whoever makes it speaks to engines.
    pub fn engines(&self) -> Engines {
        self.spec.backend.engines()
    }

    /// What would be asked for to make it. Nothing is made.
    pub async fn request(&self) -> Result<Request, Error> {
        self.spec.backend.sketch(self).await
    }

    /// What kind of place it is.
    pub fn backend(&self) -> BackendName {
        self.spec.backend.name()
    }
}

/// The names of variables, and whether each has a value.
fn without_values<S: Serializer>(env: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Forwarded<'a> {
        name: &'a str,
        present: bool,
    }
    serializer.collect_seq(env.iter().map(|(name, value)| Forwarded { name, present: !value.is_empty() }))
}

#[cfg(test)]
mod tests {
    use hermes_sandbox::Limits;
    use hermes_types::Network;

    use super::*;
    use crate::{Local, Sandboxed};

    #[test]
    fn whatever_makes_a_place_another_one_gives_it_another_identity() {
        let id = |adjust: &dyn Fn(&mut Host, &mut Spec, &mut String)| {
            let home = || PathBuf::from("/h");
            let mut host =
                Host { install: "i".to_owned(), run: home(), cache: home(), home: home(), most_places: 1 };
            let mut spec = Spec {
                backend: Backend::Local(Local { base_env: Vec::new() }),
                cwd: "/w".to_owned(),
                home: "/h".to_owned(),
                env: vec![("NAME".to_owned(), "value".to_owned())],
                init: Vec::new(),
                lifetime: Duration::from_secs(1),
            };
            let mut session = "s".to_owned();
            adjust(&mut host, &mut spec, &mut session);
            Plan::new(host, spec, SessionKey::new(session)).id().clone()
        };
        let jail = |network| {
            Backend::Sandbox(Sandboxed {
                helper: PathBuf::new(),
                files: None,
                owner_home: PathBuf::new(),
                works_for: crate::WorksFor::Owner,
                binds: Vec::new(),
                network,
                limits: Limits::default(),
                base_env: Vec::new(),
            })
        };
        let plain = id(&|_, _, _| {});
        let others = [
            id(&|host, _, _| host.install.push('s')),
            id(&|_, _, session| session.push('s')),
            id(&|_, spec, _| spec.cwd.push('s')),
            id(&|_, spec, _| spec.home.push('s')),
            id(&|_, spec, _| spec.init.push("/w/init".to_owned())),
            id(&|_, spec, _| spec.lifetime = Duration::from_secs(2)),
            id(&|_, spec, _| spec.backend = jail(Network::None)),
            id(&|_, spec, _| spec.backend = jail(Network::Full)),
            // What is moved from one part to the next is no longer the same.
            id(&|host, _, session| {
                host.install.push_str(session);
                session.clear();
            }),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(*other != plain && !others.iter().take(number).any(|seen| seen == other), "{number}");
        }
        // A value that changes, such as a token that was renewed, does not.
        assert_eq!(id(&|_, spec, _| spec.env.clear()), plain);
        assert_eq!(id(&|host, _, _| host.most_places = 2), plain);
    }

    #[test]
    fn a_variable_makes_no_other_place_and_its_value_is_written_down_nowhere() {
        let host = Host {
            install: "i".to_owned(),
            run: PathBuf::new(),
            cache: PathBuf::new(),
            home: PathBuf::new(),
            most_places: 1,
        };
        let spec = |env: &[(&str, &str)], cwd: &str| Spec {
            backend: Backend::Local(Local::default()),
            cwd: cwd.to_owned(),
            home: "/".to_owned(),
            env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let id = |spec: Spec| Plan::new(host.clone(), spec, SessionKey::new("s")).id().clone();
        let with = spec(&[("TOKEN", "hunter2"), ("BLANK", "")], "/");
        assert_eq!(id(with.clone()), id(spec(&[], "/")));
        assert_ne!(id(with.clone()), id(spec(&[], "/tmp")));
        assert_eq!(
            serde_json::to_value(&with).unwrap()["env"],
            serde_json::json!([{"name": "TOKEN", "present": true}, {"name": "BLANK", "present": false}])
        );
    }
}
