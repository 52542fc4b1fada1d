//! Places that are ready before anybody asks for one.
//!
//! Each is a place of its own, of nobody's session, and is handed over by giving its room and its files the names of the
//! session's place: what is mounted inside stays where it is. So the first command of a session does not wait for an
//! engine. A session with files of its own gets a place that is made for them.

use std::fs;
use std::time::SystemTime;

use hermes_guest::client::Client;
use hermes_types::SessionKey;

use crate::registry::{Record, Room, blocking, rooms};
use crate::sandbox::{Here, Made};
use crate::{Error, Plan};

/// How the sessions of such places begin. No other does: nobody can type it, and no chat has such a name.
pub(crate) const READY: &str = "\0ready ";

impl Plan {
    /// Whether places are to be ready before anybody asks for one.
    pub fn wants_pool(&self) -> bool {
        self.spec.backend.ready() > 0
    }

    /// Makes as many places ready as are wanted. Of two that do so one waits for the other.
    pub async fn fill_pool(&self) -> Result<(), Error> {
        let lock = Room::named(&self.host.run, &format!("hermes-pool-{}", self.digest())).lock().await?;
        let wanted = usize::try_from(self.spec.backend.ready()).unwrap_or(usize::MAX);
        for number in self.ready()?.len()..wanted {
            // Never the name of one that was handed over, which is still that of its container.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let process = std::process::id();
            self.ready_as(&format!("{}{} {process} {number}", self.ready_key(), now.as_nanos()))
                .find_or_make()
                .await?;
        }
        lock.discard()
    }

    /// How the sessions of places with these settings begin that are ready.
    fn ready_key(&self) -> String {
        format!("{READY}{} ", self.digest())
    }

    /// The same place for a session that is nobody's.
    fn ready_as(&self, session: &str) -> Self {
        Self::new(self.host.clone(), self.spec.clone(), SessionKey::new(session))
    }

    /// Those that are there.
    fn ready(&self) -> Result<Vec<Self>, Error> {
        let key = self.ready_key();
        let records = rooms(&self.host.run)?.into_iter().filter_map(|room| room.record());
        let ready = records.filter(|record| record.session.starts_with(&key));
        Ok(ready.map(|record| self.ready_as(&record.session)).collect())
    }

    /// One that is ready, as the place of this session. Whoever asks holds the lock of its room, which is empty.
    pub(crate) async fn take_ready(&self, room: &Room) -> Result<Option<Client>, Error> {
        if !self.wants_pool() || self.session.as_str().starts_with(READY) {
            return Ok(None);
        }
        for ready in self.ready()? {
            let from = Room::of(&ready);
            // Somebody else takes it.
            let Some(lock) = from.try_lock() else { continue };
            let Some(Here { client, made: Made::AsWanted }) = ready.find(&from).await else { continue };
            // One in which anybody has been is nobody else's.
            if !client.stats().await.is_ok_and(|stats| stats.sessions == 0 && stats.running == 0) {
                continue;
            }
            let (plan, room) = (self.clone(), room.clone());
            blocking(move || plan.take_over(&ready, &from, &room)).await?;
            lock.discard()?;
            return Ok(Some(client));
        }
        Ok(None)
    }

    /// Whoever is killed in between leaves a place that is not what anybody asked for: it ends, and another is made.
    fn take_over(&self, ready: &Self, from: &Room, room: &Room) -> Result<(), Error> {
        let made = from.record();
        fs::rename(from.path(), room.path()).map_err(Error::file(room.path()))?;
        if let (Some(from), Some(to)) = (ready.spec.backend.files(ready), self.spec.backend.files(self)) {
            fs::rename(&from, &to).map_err(Error::file(&to))?;
            room.lead(&to)?;
        }
        let mut record = self.record();
        if let Some(made) = made {
            record = Record {
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
