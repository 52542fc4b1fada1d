//! Places that are created before a session needs one.
//!
//! Each is a place without a session. A session takes one over by renaming its directory and its
//! files; mounts inside stay valid. So the first command of a session does not wait for the engine.
//! A session with kept files gets a place created for them.

use std::fs;
use std::time::SystemTime;

use hermes_guest::client::Client;
use hermes_types::SessionKey;

use crate::place::FoundGuest;
use crate::registry::{PlaceDir, discard, place_dirs, run_blocking};
use crate::{Error, ResolvedPlace};

/// The start of the session keys of warm places. No other key starts with a NUL.
pub(crate) const WARM_KEY_PREFIX: &str = "\0ready ";

impl ResolvedPlace {
    pub fn has_warm_pool(&self) -> bool {
        self.spec.backend.warm_count() > 0
    }

    /// Creates warm places up to the configured number. Concurrent callers wait for each other.
    pub async fn fill_warm_pool(&self) -> Result<(), Error> {
        let lock = PlaceDir::named(&self.installation.run_dir, &format!("hermes-pool-{}", self.digest))
            .lock()
            .await?;
        let wanted = usize::try_from(self.spec.backend.warm_count()).unwrap_or(usize::MAX);
        for number in self.list_warm()?.len()..wanted {
            // The name must not repeat one that was handed over, since its container keeps that
            // name.
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let process = std::process::id();
            self.as_warm_place(&format!("{}{} {process} {number}", self.warm_key(), now.as_nanos()))?
                .find_or_create()
                .await?;
        }
        discard(lock)
    }

    fn warm_key(&self) -> String {
        format!("{WARM_KEY_PREFIX}{} ", self.digest)
    }

    fn as_warm_place(&self, session: &str) -> Result<Self, Error> {
        Self::new(self.installation.clone(), self.spec.clone(), SessionKey::new(session))
    }

    fn list_warm(&self) -> Result<Vec<Self>, Error> {
        let key = self.warm_key();
        let records = place_dirs(&self.installation.run_dir)?.into_iter().filter_map(|dir| dir.record());
        let warm = records.filter(|record| record.session.starts_with(&key));
        warm.map(|record| self.as_warm_place(&record.session)).collect()
    }

    /// Takes a warm place for this session. The caller holds the lock of `dir`, which is empty.
    pub(crate) async fn take_warm(&self, dir: &PlaceDir) -> Result<Option<Client>, Error> {
        if !self.has_warm_pool() || self.session.as_str().starts_with(WARM_KEY_PREFIX) {
            return Ok(None);
        }
        for warm in self.list_warm()? {
            let from = PlaceDir::for_place(&warm);
            // Another process takes it.
            let Some(lock) = from.try_lock() else { continue };
            let Some(FoundGuest::Same(client)) = warm.find_guest(&from).await else { continue };
            // A place that was used is not handed over.
            if !client.stats().await.is_ok_and(|stats| stats.sessions == 0 && stats.running == 0) {
                continue;
            }
            let (place, dir) = (self.clone(), dir.clone());
            run_blocking(move || place.adopt_warm(&warm, &from, &dir)).await?;
            discard(lock)?;
            return Ok(Some(client));
        }
        Ok(None)
    }

    /// A crash in between leaves a place with the wrong identity; it is ended and another one
    /// created.
    fn adopt_warm(&self, warm: &Self, from: &PlaceDir, dir: &PlaceDir) -> Result<(), Error> {
        let created = from.record();
        fs::rename(from.path(), dir.path()).map_err(Error::file(dir.path()))?;
        if let (Some(from), Some(to)) = (warm.spec.backend.kept_dir(warm), self.spec.backend.kept_dir(self)) {
            fs::rename(&from, &to).map_err(Error::file(&to))?;
            dir.link_shared(&to)?;
        }
        let mut record = self.new_record();
        if let Some(created) = created {
            record.container = created.container;
            record.request = created.request;
            record.unenforced = created.unenforced;
        }
        record.write(dir.path())?;
        record.files.iter().try_for_each(|files| record.write(files))
    }
}
