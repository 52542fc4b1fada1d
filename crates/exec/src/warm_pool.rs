//! Places that are ready before anybody asks for one.
//!
//! Each is a place of its own, of nobody's session, and is handed over by giving its room and its files the names of the
//! session's place: what is mounted inside stays where it is. So the first command of a session does not wait for an
//! engine. A session with files of its own gets a place that is made for them.

use std::fs;
use std::time::SystemTime;

use hermes_guest::client::Client;
use hermes_types::SessionKey;

use crate::place::{FoundGuest, SettingsMatch};
use crate::registry::{PlaceDir, PlaceRecord, place_dirs, run_blocking};
use crate::{Error, ResolvedPlace};

/// How the sessions of such places begin. No other does: nobody can type it, and no chat has such a name.
pub(crate) const WARM_KEY_PREFIX: &str = "\0ready ";

impl ResolvedPlace {
    /// Whether places are to be ready before anybody asks for one.
    pub fn has_warm_pool(&self) -> bool {
        self.spec.backend.warm_count() > 0
    }

    /// Makes as many places ready as are wanted. Of two that do so one waits for the other.
    pub async fn fill_warm_pool(&self) -> Result<(), Error> {
        let lock = PlaceDir::named(&self.installation.run_dir, &format!("hermes-pool-{}", self.digest()))
            .lock()
            .await?;
        let wanted = usize::try_from(self.spec.backend.warm_count()).unwrap_or(usize::MAX);
        for number in self.list_warm()?.len()..wanted {
            // Never the name of one that was handed over, which is still that of its container.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let process = std::process::id();
            self.as_warm_place(&format!("{}{} {process} {number}", self.warm_key(), now.as_nanos()))
                .find_or_create()
                .await?;
        }
        lock.discard()
    }

    /// How the sessions of places with these settings begin that are ready.
    fn warm_key(&self) -> String {
        format!("{WARM_KEY_PREFIX}{} ", self.digest())
    }

    /// The same place for a session that is nobody's.
    fn as_warm_place(&self, session: &str) -> Self {
        Self::new(self.installation.clone(), self.spec.clone(), SessionKey::new(session))
    }

    /// Those that are there.
    fn list_warm(&self) -> Result<Vec<Self>, Error> {
        let key = self.warm_key();
        let records = place_dirs(&self.installation.run_dir)?.into_iter().filter_map(|room| room.record());
        let ready = records.filter(|record| record.session.starts_with(&key));
        Ok(ready.map(|record| self.as_warm_place(&record.session)).collect())
    }

    /// One that is ready, as the place of this session. Whoever asks holds the lock of its room, which is empty.
    pub(crate) async fn take_warm(&self, room: &PlaceDir) -> Result<Option<Client>, Error> {
        if !self.has_warm_pool() || self.session.as_str().starts_with(WARM_KEY_PREFIX) {
            return Ok(None);
        }
        for ready in self.list_warm()? {
            let from = PlaceDir::for_place(&ready);
            // Somebody else takes it.
            let Some(lock) = from.try_lock() else { continue };
            let Some(FoundGuest { client, settings: SettingsMatch::Same }) = ready.find_guest(&from).await
            else {
                continue;
            };
            // One in which anybody has been is nobody else's.
            if !client.stats().await.is_ok_and(|stats| stats.sessions == 0 && stats.running == 0) {
                continue;
            }
            let (plan, room) = (self.clone(), room.clone());
            run_blocking(move || plan.adopt_warm(&ready, &from, &room)).await?;
            lock.discard()?;
            return Ok(Some(client));
        }
        Ok(None)
    }

    /// Whoever is killed in between leaves a place that is not what anybody asked for: it ends, and another is made.
    fn adopt_warm(&self, ready: &Self, from: &PlaceDir, room: &PlaceDir) -> Result<(), Error> {
        let made = from.record();
        fs::rename(from.path(), room.path()).map_err(Error::file(room.path()))?;
        if let (Some(from), Some(to)) = (ready.spec.backend.kept_dir(ready), self.spec.backend.kept_dir(self))
        {
            fs::rename(&from, &to).map_err(Error::file(&to))?;
            room.link_shared(&to)?;
        }
        let mut record = self.new_record();
        if let Some(made) = made {
            record = PlaceRecord {
                container: made.container,
                request: made.request,
                unenforced: made.unenforced,
                ..record
            };
        }
        record.write(room.path())?;
        record.files.iter().try_for_each(|files| record.write(files))
    }
}
