//! The right to run one job, once.

use hermes_types::{Job, PlaceId, SessionKey};
use thiserror::Error;

use crate::grant::Grant;

/// The right to run one job, in one place, for one session.
///
/// Only this crate can make one:
///
/// ```compile_fail
/// use hermes_policy::Permit;
/// use hermes_types::{Job, PlaceId, SessionKey};
/// let permit = Permit {
///     job: Job::shell("ls", "/"),
///     place: PlaceId::new("p"),
///     session: SessionKey::new("s"),
///     grants: Vec::new(),
/// };
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail
/// fn twice(permit: hermes_policy::Permit) -> (hermes_policy::Permit, hermes_policy::Permit) {
///     (permit.clone(), permit)
/// }
/// ```
///
/// It is used up by use:
///
/// ```compile_fail
/// use hermes_types::{PlaceId, SessionKey};
/// fn twice(permit: hermes_policy::Permit, place: &PlaceId, session: &SessionKey) {
///     let _first = permit.redeem(place, session);
///     let _second = permit.redeem(place, session);
/// }
/// ```
///
/// It cannot be read back from anywhere:
///
/// ```compile_fail
/// fn read<T: serde::de::DeserializeOwned>() {}
/// read::<hermes_policy::Permit>();
/// ```
///
/// The one right way:
///
/// ```
/// use hermes_types::{Job, PlaceId, SessionKey};
/// fn run(permit: hermes_policy::Permit, place: &PlaceId, session: &SessionKey) -> Option<Job> {
///     permit.redeem(place, session).ok()
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not redeemed runs nothing"]
pub struct Permit {
    job: Job,
    place: PlaceId,
    session: SessionKey,
    grants: Vec<Grant>,
}

/// A permit shown at the wrong place or for the wrong session. It is void.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the permit is for {what} `{wanted}`, not for `{given}`")]
pub struct Misuse {
    what: &'static str,
    wanted: String,
    given: String,
}

impl Permit {
    pub(crate) fn new(job: Job, place: PlaceId, session: SessionKey, grants: Vec<Grant>) -> Self {
        Self { job, place, session, grants }
    }

    /// The job, to look at.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The place it is for.
    pub fn place(&self) -> &PlaceId {
        &self.place
    }

    /// The session it is for.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// What the person who said yes wants remembered, for the store to keep.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Gives the job to the place that will run it. The directory is part of the job.
    pub fn redeem(self, place: &PlaceId, session: &SessionKey) -> Result<Job, Misuse> {
        if self.place != *place {
            return Err(Misuse {
                what: "place",
                wanted: self.place.as_str().to_owned(),
                given: place.as_str().to_owned(),
            });
        }
        if self.session != *session {
            return Err(Misuse {
                what: "session",
                wanted: self.session.as_str().to_owned(),
                given: session.as_str().to_owned(),
            });
        }
        Ok(self.job)
    }
}
