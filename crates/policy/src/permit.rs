//! Permits: the right to run one job, once.

use hermes_types::{Allowance, Job, PlaceId, SessionKey};
use thiserror::Error;

use crate::grant::Grant;

/// The right to run one job, in one environment, for one session.
///
/// Only this crate can create one:
///
/// ```compile_fail
/// let permit = hermes_policy::Permit(panic!());
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
/// use hermes_types::{Allowance, Job, PlaceId, SessionKey};
/// fn run(permit: hermes_policy::Permit, place: &PlaceId, session: &SessionKey) -> Option<Job> {
///     permit.redeem(place, session).ok()
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not redeemed runs nothing"]
pub struct Permit(Box<PermitTerms>);

#[derive(Debug, PartialEq, Eq)]
struct PermitTerms {
    job: Job,
    place: PlaceId,
    session: SessionKey,
    grants: Vec<Grant>,
    allowance: Allowance,
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
    pub(crate) fn new(
        job: Job,
        place: PlaceId,
        session: SessionKey,
        allowance: Allowance,
        grants: Vec<Grant>,
    ) -> Self {
        Self(Box::new(PermitTerms { job, place, session, grants, allowance }))
    }

    /// What the job may use although the guard protects it.
    pub fn allowance(&self) -> &Allowance {
        &self.0.allowance
    }

    pub fn job(&self) -> &Job {
        &self.0.job
    }

    pub fn place(&self) -> &PlaceId {
        &self.0.place
    }

    pub fn session(&self) -> &SessionKey {
        &self.0.session
    }

    /// The lasting grants of the answer, for the store.
    pub fn grants(&self) -> &[Grant] {
        &self.0.grants
    }

    /// Consumes the permit and returns the job to the environment that runs it.
    pub fn redeem(self, place: &PlaceId, session: &SessionKey) -> Result<Job, PermitMismatch> {
        let mismatch = |what, wanted: &str, given: &str| PermitMismatch {
            what,
            wanted: wanted.to_owned(),
            given: given.to_owned(),
        };
        if self.0.place != *place {
            return Err(mismatch("place", self.0.place.as_str(), place.as_str()));
        }
        if self.0.session != *session {
            return Err(mismatch("session", self.0.session.as_str(), session.as_str()));
        }
        Ok(self.0.job)
    }
}
