//! Permits: the right to run one job, once.

use hermes_types::{Job, PlaceId, SessionKey};
use thiserror::Error;

use crate::grant::Grant;

/// The right to run one job, in one environment, for one session.
///
/// Only this crate can create one:
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
/// It is consumed by use:
///
/// ```compile_fail
/// use hermes_types::{PlaceId, SessionKey};
/// fn twice(permit: hermes_policy::Permit, place: &PlaceId, session: &SessionKey) {
///     let _first = permit.redeem(place, session);
///     let _second = permit.redeem(place, session);
/// }
/// ```
///
/// It cannot be deserialized:
///
/// ```compile_fail
/// fn read<T: serde::de::DeserializeOwned>() {}
/// read::<hermes_policy::Permit>();
/// ```
///
/// The only way to use it:
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

/// A permit presented in the wrong environment or session. It is void.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the permit is for {what} `{wanted}`, not for `{given}`")]
pub struct PermitMismatch {
    what: &'static str,
    wanted: String,
    given: String,
}

impl Permit {
    pub(crate) fn new(job: Job, place: PlaceId, session: SessionKey, grants: Vec<Grant>) -> Self {
        Self { job, place, session, grants }
    }

    pub fn job(&self) -> &Job {
        &self.job
    }

    pub fn place(&self) -> &PlaceId {
        &self.place
    }

    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// The lasting grants of the answer, for the store.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Consumes the permit and returns the job to the environment that runs it.
    pub fn redeem(self, place: &PlaceId, session: &SessionKey) -> Result<Job, PermitMismatch> {
        let mismatch = |what, wanted: &str, given: &str| PermitMismatch {
            what,
            wanted: wanted.to_owned(),
            given: given.to_owned(),
        };
        if self.place != *place {
            return Err(mismatch("place", self.place.as_str(), place.as_str()));
        }
        if self.session != *session {
            return Err(mismatch("session", self.session.as_str(), session.as_str()));
        }
        Ok(self.job)
    }
}
