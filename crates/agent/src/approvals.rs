//! The only way from a job to a permit.
//!
//! [`Approvals`] joins the gate, the stored grants, the stored questions and the approver of one
//! session. A job is judged; if the gate wants a yes, the question is stored before anybody sees
//! it, and the first answer from any approver counts. In the mode `smart` a model is asked first, see
//! [`crate::review`]. Grants are read from the store each time
//! they matter, because their owner may have revoked them.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_policy::grant::Coverage;
use hermes_policy::{
    ApprovalMode, DenialCheck, DenialLog, Gate, Moment, Permit, Question, Refusal, StoredQuestion, Verdict,
};
use hermes_store::{AnswerResult, GrantRow, NewQuestion, QuestionState, Store, WaitingCall};
use hermes_types::{Answer, Attendance, Choice, Job, Origin, Person, Timestamp};
use serde_json::json;

use crate::approver::Approver;
use crate::lock;
use crate::review::{ApprovalReviewer, ReviewOutcome};
use crate::tool::CallContext;

/// Whether approvers are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionPolicy {
    /// About everything that the gate wants to ask about.
    Ask,
    /// About nothing. The gate still denies what is never allowed.
    Waive,
}

/// A permit, and the answer that gave it if the gate asked.
#[derive(Debug)]
pub struct Approval {
    pub permit: Permit,
    pub approved_by: Option<ApprovedBy>,
}

/// Who answered a question with yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovedBy {
    Person(Person),
    /// The model of the mode `smart`.
    Model,
}

impl fmt::Display for ApprovedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(person) => write!(f, "approved by {}", person.as_str()),
            Self::Model => f.write_str("allowed by the model (approvals.mode smart)"),
        }
    }
}

/// Why there is no permit, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A rule or a person refused it.
    #[error("{0}")]
    Refused(Refusal),
    /// The same was tried too often, and the turn is over.
    #[error("{0}")]
    EndOfTurn(Refusal),
    #[error("cannot ask for approval: no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    #[error("cannot ask for approval: {0}")]
    Store(String),
}

impl From<hermes_store::Error> for Denied {
    fn from(error: hermes_store::Error) -> Self {
        Self::Store(error.to_string())
    }
}

/// Judges the jobs of one session and asks its approvers.
pub struct Approvals {
    gate: Arc<Gate>,
    store: Store,
    approver: Arc<dyn Approver>,
    /// The model that is asked before a person.
    reviewer: Option<Arc<ApprovalReviewer>>,
    /// The actor changes with each message of a session that several people share.
    origin: Mutex<Origin>,
    policy: Mutex<QuestionPolicy>,
    denied: Mutex<DenialLog>,
}

/// A question after its review.
enum Reviewed {
    Allowed(Permit),
    /// A person decides.
    Open(Box<Question>),
}

/// Judges a job by the gate alone, without grants and without a store.
pub fn judge_by_rules(gate: &Gate, job: Job, origin: &Origin) -> Result<Verdict, Denied> {
    Ok(gate.judge(job, origin, moment()?))
}

impl Approvals {
    pub fn new(
        gate: Arc<Gate>,
        origin: Origin,
        store: Store,
        approver: Arc<dyn Approver>,
        reviewer: Option<Arc<ApprovalReviewer>>,
    ) -> Self {
        Self {
            gate,
            store,
            approver,
            reviewer,
            origin: Mutex::new(origin),
            policy: Mutex::new(QuestionPolicy::Ask),
            denied: Mutex::new(DenialLog::default()),
        }
    }

    /// Sets the person that the session works for, and who may answer questions.
    pub fn set_actor(&self, person: Person, attendance: Attendance) {
        let mut origin = lock(&self.origin);
        origin.person = person;
        origin.attendance = attendance;
    }

    pub fn set_question_policy(&self, policy: QuestionPolicy) {
        *lock(&self.policy) = policy;
    }

    /// Forgets what was denied in the turn before, so that it may be asked about again.
    pub fn begin_turn(&self) {
        *lock(&self.denied) = DenialLog::default();
    }

    /// Judges a job with all grants, and asks no approver: the dry run of [`Approvals::request`].
    pub async fn judge(&self, job: Job) -> Result<Verdict, Denied> {
        let (origin, moment) = (self.origin(), moment()?);
        Ok(self.judge_with_grants(|gate| gate.judge(job.clone(), &origin, moment)).await?)
    }

    /// Gets a permit for a job. A question waits until an approver answers it at any entry point,
    /// until it expires, or until the call is stopped.
    pub async fn request(&self, job: Job, call: CallContext<'_>) -> Result<Approval, Denied> {
        let moment = moment()?;
        let asked = self.find_asked_question(&job, call).await?;
        let mut origin = self.origin();
        if let Some((_, Some(answer))) = &asked {
            // The approver has answered and no longer has to be there.
            origin.attendance = Attendance::Attended(vec![answer.by.clone()]);
        }
        let judge = |gate: &Gate| match &asked {
            Some((stored, _)) => gate.reopen(stored.clone(), &origin, moment),
            None => gate.judge(job.clone(), &origin, moment),
        };
        let question = match self.judge_with_grants(judge).await? {
            Verdict::Allow(permit) => return Ok(Approval { permit, approved_by: None }),
            Verdict::Deny(refusal) if lock(&self.denied).record_refusal(&refusal) => {
                return Err(Denied::EndOfTurn(refusal));
            }
            Verdict::Deny(refusal) => return Err(Denied::Refused(refusal)),
            Verdict::Ask(question) => question,
        };
        let question = match lock(&self.denied).check(*question) {
            DenialCheck::New(question) => *question,
            DenialCheck::Repeated(refusal) => return Err(Denied::Refused(refusal)),
            DenialCheck::EndTurn(refusal) => return Err(Denied::EndOfTurn(refusal)),
        };
        let answer = match asked {
            Some((_, Some(answer))) => Some(answer),
            Some((_, None)) => self.wait_for_answer(&question, call).await?,
            None => return self.ask(question, call).await,
        };
        self.redeem_answer(question, answer).await
    }

    /// Has a question of [`Approvals::judge`] answered: by the model of the mode `smart`, or else it is
    /// stored and waits for a person.
    pub async fn ask(&self, question: Question, call: CallContext<'_>) -> Result<Approval, Denied> {
        let question = match self.review(question, call).await? {
            Reviewed::Allowed(permit) => {
                return Ok(Approval { permit, approved_by: Some(ApprovedBy::Model) });
            }
            Reviewed::Open(question) => *question,
        };
        if question.approvers().is_empty() {
            return Err(Denied::Refused(question.refuse_unattended()));
        }
        self.store.save_question(self.question_row(&question, call)?).await?;
        let answer = self.wait_for_answer(&question, call).await?;
        self.redeem_answer(question, answer).await
    }

    /// Asks the model of the mode `smart`, if there is one.
    async fn review(&self, mut question: Question, call: CallContext<'_>) -> Result<Reviewed, Denied> {
        let is_asking = *lock(&self.policy) == QuestionPolicy::Ask;
        let Some(reviewer) = self.reviewer.as_ref().filter(|_| is_asking) else {
            return Ok(Reviewed::Open(Box::new(question)));
        };
        let (started, origin) = (Instant::now(), self.origin());
        let outcome = tokio::select! {
            biased;
            () = call.stop.cancelled() => return Err(Denied::Refused(Refusal::Expired)),
            outcome = reviewer.review(&question, &origin) => outcome,
        };
        // The person gets the full time.
        question.extend(started.elapsed().as_secs());
        match outcome {
            ReviewOutcome::Allow => Ok(match question.allow_contained() {
                Ok(permit) => Reviewed::Allowed(permit),
                Err(question) => Reviewed::Open(question),
            }),
            ReviewOutcome::Refuse { reason } => {
                lock(&self.denied).record(&question);
                Err(Denied::Refused(Refusal::Model { reason }))
            }
            ReviewOutcome::Ask => Ok(Reviewed::Open(Box::new(question))),
        }
    }

    /// A permit for a job that no approver has to be asked about.
    pub(crate) async fn permit_if_unasked(&self, job: Job) -> Option<Permit> {
        match self.judge(job).await {
            Ok(Verdict::Allow(permit)) => Some(permit),
            Ok(Verdict::Deny(_) | Verdict::Ask(_)) | Err(_) => None,
        }
    }

    fn origin(&self) -> Origin {
        lock(&self.origin).clone()
    }

    async fn judge_with_grants(
        &self,
        judge: impl Fn(&Gate) -> Verdict,
    ) -> Result<Verdict, hermes_store::Error> {
        if *lock(&self.policy) == QuestionPolicy::Waive {
            return Ok(judge(&Gate { mode: ApprovalMode::Off, ..Gate::clone(&self.gate) }));
        }
        let verdict = judge(&self.gate);
        if !verdict.can_be_granted() {
            return Ok(verdict);
        }
        let mut gate = Gate::clone(&self.gate);
        let session = lock(&self.origin).session.clone();
        for row in self.store.grants(Some(&session)).await? {
            match serde_json::from_value(row.json) {
                Ok(grant) => gate.grants.add(&[grant]),
                // Without the grant the question is asked again, which is safe.
                Err(error) => tracing::warn!(grant = row.id, %error, "cannot read a stored grant"),
            }
        }
        Ok(judge(&gate))
    }

    /// The question that this very call asked before a restart, and its answer if there is one.
    async fn find_asked_question(
        &self,
        job: &Job,
        call: CallContext<'_>,
    ) -> Result<Option<(StoredQuestion, Option<Answer>)>, Denied> {
        let Some(turn) = call.turn.filter(|turn| turn.is_resumed) else { return Ok(None) };
        for row in self.store.session_questions(&turn.session).await? {
            let Ok(stored) = serde_json::from_value::<StoredQuestion>(row.stored) else { continue };
            if row.call.as_ref() != Some(call.call_id) || stored.job != *job {
                continue;
            }
            match row.state {
                QuestionState::Open if stored.expires > Timestamp::now() => return Ok(Some((stored, None))),
                QuestionState::Answered(answer) if !row.is_used => {
                    return Ok(Some((stored, Some(answer))));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn question_row(&self, question: &Question, call: CallContext<'_>) -> Result<NewQuestion, Denied> {
        let origin = self.origin();
        Ok(NewQuestion {
            id: question.id().as_str().to_owned(),
            key: origin.session,
            waiting_call: call.turn.map(|turn| WaitingCall {
                session: turn.session.clone(),
                turn: turn.id,
                call: call.call_id.clone(),
            }),
            stored: serde_json::to_value(question.to_stored()).map_err(json_error)?,
            shown: json!({
                "text": question.text().to_marked_string(),
                "parts": question.text().parts,
                "reasons": question.matches().iter().map(|found| found.reason).collect::<Vec<_>>(),
                "may_use": question.allowance().keywords(),
                "covers": question.coverage().iter().map(Coverage::show).collect::<Vec<_>>(),
                "backend": origin.place.backend.as_str(),
                "cwd": question.job().cwd,
            }),
            approvers: question.approvers().to_vec(),
            created: Timestamp::now(),
            expires: question.expires(),
        })
    }

    /// Waits for the first answer, from the approver here or from the store. None if the question
    /// expires or the call is stopped.
    async fn wait_for_answer(
        &self,
        question: &Question,
        call: CallContext<'_>,
    ) -> Result<Option<Answer>, Denied> {
        let store = &self.store;
        let id = question.id().as_str();
        let remaining =
            Duration::from_secs(question.expires().seconds().saturating_sub(Timestamp::now().seconds()));
        let state = tokio::select! {
            biased;
            () = call.stop.cancelled() => store.withdraw_question(id, Timestamp::now()).await?,
            answer = self.approver.ask_permission(question) => match answer {
                Some(answer) => match store.answer_question(id, answer.clone()).await? {
                    AnswerResult::Accepted => return Ok(Some(answer)),
                    AnswerResult::TooLate(state) => Some(state),
                    AnswerResult::NotApprover | AnswerResult::NoQuestion => None,
                },
                None => store.expire_question(id, Timestamp::now()).await?,
            },
            state = store.wait_for_decision(id) => state?,
            () = tokio::time::sleep(remaining) => store.expire_question(id, Timestamp::now()).await?,
        };
        Ok(match state {
            Some(QuestionState::Answered(answer)) => Some(answer),
            _ => None,
        })
    }

    /// Turns an answer into a permit, and stores the grants that it gives.
    async fn redeem_answer(&self, question: Question, answer: Option<Answer>) -> Result<Approval, Denied> {
        let Some(answer) = answer else { return Err(Denied::Refused(Refusal::Expired)) };
        if matches!(answer.choice, Choice::Deny { .. }) {
            lock(&self.denied).record(&question);
        } else if !self.store.consume_answer(question.id().as_str(), Timestamp::now()).await? {
            return Err(Denied::Store("the answer was used already".to_owned()));
        }
        let approved_by = Some(ApprovedBy::Person(answer.by.clone()));
        let permit = question.answer(answer).map_err(Denied::Refused)?;
        let mut grants = Vec::new();
        for grant in permit.grants() {
            grants.push(GrantRow {
                id: grant.id.as_str().to_owned(),
                scope: grant.scope.clone(),
                json: serde_json::to_value(grant).map_err(json_error)?,
                given_by: grant.given_by.clone(),
                given_at: grant.given_at,
            });
        }
        if !grants.is_empty() {
            self.store.save_grants(grants).await?;
        }
        Ok(Approval { permit, approved_by })
    }
}

fn json_error(error: serde_json::Error) -> Denied {
    Denied::Store(error.to_string())
}

/// The time, and random bytes for the id of a question.
fn moment() -> Result<Moment, Denied> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(Denied::NoRandomness)?;
    Ok(Moment { now: Timestamp::now(), seed })
}
