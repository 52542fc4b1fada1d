//! What a session does its work with: a place, the gate in front of it, and people who can be asked.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{PullOptions, PullProgress};
use hermes_exec::{Error, OpenPlace, ResolvedPlace};
use hermes_policy::redact::Redactor;
use hermes_policy::{
    Answer, Choice, Considered, Gate, GrantScope, Mode, Moment, Permit, Question, QuestionId, Refusal,
    StoredQuestion, Turn, Verdict,
};
use hermes_store::{
    Answer as KeptAnswer, Answering, AskedBy, Choice as KeptChoice, GrantScope as Lasting, NewGrant,
    NewQuestion, QuestionState, Store,
};
use hermes_types::{Attendance, EntryPoint, Job, Origin, Person, SessionKey, Timestamp};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::approver::{Approver, BoxFuture};
use crate::conversation::{TurnEvent, TurnObserver};
use crate::http::WebClient;
use crate::tool::CallContext;
use crate::tool::execute_code::CodeExecutionConfig;
use crate::tool::file_state::FileStateTracker;
use crate::tool::todo::TodoList;
use crate::{Tool, process_events};

/// How much tools take and give.
#[derive(Debug, Clone)]
pub struct ToolLimits {
    /// How long a command may run that says nothing about it.
    pub timeout: Duration,
    /// The longest a model may make a turn wait for a command.
    pub max_foreground: Duration,
    /// Bytes of a command's output that the model sees.
    pub output_bytes: u32,
    /// Lines of a file that one read gives.
    pub read_lines: u64,
    /// Characters of a line.
    pub line_length: usize,
    /// Characters that one read of a file gives.
    pub read_chars: usize,
    /// What scripts are allowed.
    pub code_execution: CodeExecutionConfig,
}

/// What a pull of an image is allowed, found out when one is needed.
pub type PullAuth = Arc<dyn Fn(String) -> BoxFuture<'static, PullOptions> + Send + Sync>;

/// What hands are made of. The door that opens a session decides all of it.
#[derive(Clone)]
pub struct SessionConfig {
    /// The session, which may share its place with others.
    pub session: SessionKey,
    /// Where commands run.
    pub place: ResolvedPlace,
    /// What the owner has decided. What people have allowed is in the store.
    pub gate: Arc<Gate>,
    /// Who asks.
    pub person: Person,
    /// By which door.
    pub entry_point: EntryPoint,
    /// Who may answer questions.
    pub attendance: Attendance,
    /// How they are asked.
    pub approver: Arc<dyn Approver>,
    /// Takes secrets out of what the model sees.
    pub redactor: Redactor,
    /// How much tools take and give.
    pub limits: ToolLimits,
    /// The tools of this session.
    pub tools: Vec<Tool>,
    /// Where questions and what people allowed are kept.
    pub store: Store,
    /// What a pull is allowed.
    pub pull_auth: PullAuth,
    /// How pages are fetched.
    pub web: Arc<WebClient>,
}

impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("plan", &self.place).field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// Whether people are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionPolicy {
    /// About all that the gate wants to ask about.
    Ask,
    /// About nothing, as where the owner has turned questions off. What is never allowed stays so.
    Waive,
}

/// The hands of one session.
#[derive(Debug)]
pub struct ToolContext {
    config: SessionConfig,
    place: OnceCell<OpenPlace>,
    /// Who is served now, and who may answer questions.
    actor: Mutex<(Person, Attendance)>,
    denied: Mutex<Turn>,
    questions: Mutex<QuestionPolicy>,
    pub(crate) todo: Mutex<TodoList>,
    pub(crate) file_state: Mutex<FileStateTracker>,
    pub(crate) process_events: process_events::ProcessEvents,
}

/// A permit, and whose word it took.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) permit: Permit,
    /// Who said yes; nobody was asked if there is none.
    pub(crate) approved_by: Option<Person>,
}

/// A no that the model hears.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A rule or a person said so.
    #[error("{0}")]
    Refused(Refusal),
    /// The same was tried too often, and the turn is over.
    #[error("{0}")]
    EndOfTurn(Refusal),
    /// Nobody could be asked, because this machine gives no random numbers.
    #[error("no question can be put: {0}")]
    NoRandomness(getrandom::Error),
    /// Nobody could be asked, because the question could not be kept.
    #[error("no question can be put: {0}")]
    Store(String),
}

impl From<hermes_store::Error> for Denied {
    fn from(error: hermes_store::Error) -> Self {
        Self::Store(error.to_string())
    }
}

impl ToolContext {
    /// Hands that have done nothing yet. The place is made when the first tool needs it.
    pub fn new(setup: SessionConfig) -> Self {
        Self {
            actor: Mutex::new((setup.person.clone(), setup.attendance.clone())),
            config: setup,
            place: OnceCell::new(),
            denied: Mutex::new(Turn::default()),
            questions: Mutex::new(QuestionPolicy::Ask),
            todo: Mutex::new(TodoList::default()),
            file_state: Mutex::new(FileStateTracker::default()),
            process_events: process_events::ProcessEvents::default(),
        }
    }

    /// What they were made of.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Whether any tool needed the place.
    pub fn has_open_place(&self) -> bool {
        self.place.initialized()
    }

    /// The place, if any tool needed it.
    pub(crate) fn opened_place(&self) -> Option<&OpenPlace> {
        self.place.get()
    }

    /// The place that was opened, if any tool needed it, for whoever is to end it.
    pub fn into_place(self) -> Option<OpenPlace> {
        self.place.into_inner()
    }

    /// Serves somebody else of the same session from now on.
    pub fn set_actor(&self, person: Person, attendance: Attendance) {
        *lock(&self.actor) = (person, attendance);
    }

    /// Asks people from now on, or asks them nothing.
    pub fn set_question_policy(&self, questions: QuestionPolicy) {
        *lock(&self.questions) = questions;
    }

    /// What was denied in the turn before may be asked about again.
    pub fn begin_turn(&self) {
        *lock(&self.denied) = Turn::default();
    }

    /// The place, open. An image that is missing is pulled first, and `watch` is told how far that is.
    pub async fn open_place(&self, watch: TurnObserver<'_>) -> Result<&OpenPlace, Error> {
        let plan = &self.config.place;
        let open = || async {
            match plan.open().await {
                Err(Error::ImageMissing { image }) => {
                    let means = (self.config.pull_auth)(image.clone()).await;
                    pull_image(image, watch, |told| plan.pull_image(&means, told)).await?;
                    plan.open().await
                }
                opened => opened,
            }
        };
        self.place.get_or_try_init(open).await
    }

    /// Asks the gate, and the people it sends us to. A question is kept before anybody is asked; it waits until it is
    /// answered, by whatever door, until it expires, or until the call is stopped.
    pub async fn request_permit(&self, job: Job, scene: CallContext<'_>) -> Result<Permit, Denied> {
        Ok(self.request_approval(job, scene).await?.permit)
    }

    /// The same, and whose word it took.
    pub(crate) async fn request_approval(
        &self,
        job: Job,
        scene: CallContext<'_>,
    ) -> Result<Approval, Denied> {
        let moment = Moment { now: Timestamp::now(), seed: random_seed().map_err(Denied::NoRandomness)? };
        let asked = self.find_asked_question(&job, scene).await?;
        let mut origin = self.origin();
        if let Some((_, Some(answer))) = &asked {
            // Whoever was there has answered; nobody has to be there any more.
            origin.attendance = Attendance::Attended(vec![answer.by.clone()]);
        }
        let judge = |gate: &Gate| match &asked {
            Some((stored, _)) => gate.reopen(stored.clone(), &origin, moment),
            None => gate.judge(job.clone(), &origin, moment),
        };
        let question = match self.judge_with_grants(judge).await? {
            Verdict::Allow(permit) => return Ok(Approval { permit, approved_by: None }),
            Verdict::Deny(refusal) => return Err(Denied::Refused(refusal)),
            Verdict::Ask(question) => question,
        };
        let question = match lock(&self.denied).consider(*question) {
            Considered::Fresh(question) => *question,
            Considered::Repeated(refusal) => return Err(Denied::Refused(refusal)),
            Considered::EndTurn(refusal) => return Err(Denied::EndOfTurn(refusal)),
        };
        let answer = match asked {
            Some((_, Some(answer))) => Some(answer),
            Some((_, None)) => self.wait_for_answer(&question, scene).await?,
            None => self.store_and_ask(&question, scene).await?,
        };
        self.redeem_answer(question, answer).await
    }

    /// What the gate says about a job, with all that was allowed to happen again.
    pub async fn judge(&self, job: Job) -> Result<Verdict, Denied> {
        let moment = Moment { now: Timestamp::now(), seed: random_seed().map_err(Denied::NoRandomness)? };
        let origin = self.origin();
        Ok(self.judge_with_grants(|gate| gate.judge(job.clone(), &origin, moment)).await?)
    }

    /// Keeps a question of the gate, and puts it.
    pub async fn ask(&self, question: Question, scene: CallContext<'_>) -> Result<Permit, Denied> {
        let answer = self.store_and_ask(&question, scene).await?;
        Ok(self.redeem_answer(question, answer).await?.permit)
    }

    /// A permit for what nobody has to be asked about.
    pub(crate) async fn permit_if_unasked(&self, job: Job) -> Option<Permit> {
        match self.judge(job).await {
            Ok(Verdict::Allow(permit)) => Some(permit),
            Ok(Verdict::Deny(_) | Verdict::Ask(_)) | Err(_) => None,
        }
    }

    /// Has the gate judge. What was allowed to happen again is read each time it matters: it may have been taken back.
    async fn judge_with_grants(
        &self,
        judge: impl Fn(&Gate) -> Verdict,
    ) -> Result<Verdict, hermes_store::Error> {
        if *lock(&self.questions) == QuestionPolicy::Waive {
            return Ok(judge(&Gate { mode: Mode::Off, ..Gate::clone(&self.config.gate) }));
        }
        let verdict = judge(&self.config.gate);
        if !verdict.yields_to_grants() {
            return Ok(verdict);
        }
        let mut gate = Gate::clone(&self.config.gate);
        for kept in self.config.store.grants_in(&self.config.session).await? {
            match serde_json::from_value(kept.json) {
                Ok(grant) => gate.grants.add(&[grant]),
                // Who cannot read what was allowed asks again.
                Err(error) => tracing::warn!(grant = kept.id, %error, "a grant cannot be read"),
            }
        }
        Ok(judge(&gate))
    }

    /// The question that this very call asked before hermes was restarted, with its answer if there is one by now.
    async fn find_asked_question(
        &self,
        job: &Job,
        scene: CallContext<'_>,
    ) -> Result<Option<(StoredQuestion, Option<Answer>)>, Denied> {
        let Some(occasion) = scene.turn.filter(|occasion| occasion.is_resumed) else { return Ok(None) };
        for kept in self.config.store.questions_of(&occasion.session).await? {
            let Ok(stored) = serde_json::from_value::<StoredQuestion>(kept.stored) else { continue };
            if kept.call.as_ref() != Some(scene.call_id) || stored.job != *job {
                continue;
            }
            match kept.state {
                QuestionState::Open if stored.expires > Timestamp::now() => return Ok(Some((stored, None))),
                QuestionState::Answered(answer) if !kept.is_used => {
                    let answer = answer_from_row(&stored.id, answer);
                    return Ok(Some((stored, Some(answer))));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// What is kept of a question.
    fn question_row(&self, question: &Question, scene: CallContext<'_>) -> Result<NewQuestion, Denied> {
        let fault = |error: serde_json::Error| Denied::Store(error.to_string());
        Ok(NewQuestion {
            id: question.id().as_str().to_owned(),
            key: self.config.session.clone(),
            asked_by: scene.turn.map(|occasion| AskedBy {
                session: occasion.session.clone(),
                turn: occasion.id,
                call: scene.call_id.clone(),
            }),
            stored: serde_json::to_value(question.stored()).map_err(fault)?,
            shown: json!({
                "text": question.shown().plain(),
                "parts": question.shown().parts,
                "reasons": question.matches().iter().map(|found| found.reason).collect::<Vec<_>>(),
                "backend": self.config.place.backend_name().as_str(),
                "cwd": question.job().cwd,
            }),
            approvers: question.approvers().to_vec(),
            created: Timestamp::now(),
            expires: question.expires(),
        })
    }

    /// Keeps a question that was never put, and puts it.
    async fn store_and_ask(
        &self,
        question: &Question,
        scene: CallContext<'_>,
    ) -> Result<Option<Answer>, Denied> {
        self.config.store.ask(self.question_row(question, scene)?).await?;
        self.wait_for_answer(question, scene).await
    }

    /// Puts a question to whoever is at the door, while somebody may answer it elsewhere. The first answer counts.
    async fn wait_for_answer(
        &self,
        question: &Question,
        scene: CallContext<'_>,
    ) -> Result<Option<Answer>, Denied> {
        let store = &self.config.store;
        let id = question.id().as_str();
        let patience =
            Duration::from_secs(question.expires().seconds().saturating_sub(Timestamp::now().seconds()));
        let state = tokio::select! {
            biased;
            () = scene.stop.cancelled() => store.withdraw(id, Timestamp::now()).await?,
            answer = self.config.approver.ask_permission(question) => match answer {
                Some(answer) => match store.answer(id, answer_to_row(&answer)).await? {
                    Answering::Counts => return Ok(Some(answer)),
                    Answering::TooLate(state) => Some(state),
                    Answering::NotAsked | Answering::Unknown => None,
                },
                None => store.expire(id, Timestamp::now()).await?,
            },
            state = store.decided(id) => state?,
            () = tokio::time::sleep(patience) => store.expire(id, Timestamp::now()).await?,
        };
        Ok(match state {
            Some(QuestionState::Answered(answer)) => Some(answer_from_row(question.id(), answer)),
            _ => None,
        })
    }

    /// Turns an answer into a permit, and keeps what it allows beyond this once.
    async fn redeem_answer(&self, question: Question, answer: Option<Answer>) -> Result<Approval, Denied> {
        let Some(answer) = answer else { return Err(Denied::Refused(Refusal::Expired)) };
        if matches!(answer.choice, Choice::Deny(_)) {
            lock(&self.denied).denied(&question);
        } else if !self.config.store.use_answer(question.id().as_str(), Timestamp::now()).await? {
            return Err(Denied::Store("its answer was used already".to_owned()));
        }
        let by = Some(answer.by.clone());
        let permit = question.answered(answer).map_err(Denied::Refused)?;
        let mut grants = Vec::new();
        for grant in permit.grants() {
            grants.push(NewGrant {
                id: grant.id.as_str().to_owned(),
                scope: match &grant.scope {
                    GrantScope::Session(key) => Lasting::Session(key.clone()),
                    GrantScope::Always => Lasting::Always,
                },
                json: serde_json::to_value(grant).map_err(|error| Denied::Store(error.to_string()))?,
                given_by: grant.given_by.clone(),
                given_at: grant.given_at,
            });
        }
        if !grants.is_empty() {
            self.config.store.grant(grants).await?;
        }
        Ok(Approval { permit, approved_by: by })
    }

    /// The circumstances of everything that is done here.
    fn origin(&self) -> Origin {
        let (person, attendance) = lock(&self.actor).clone();
        Origin {
            person,
            entry_point: self.config.entry_point,
            session: self.config.session.clone(),
            attendance,
            place: self.config.place.place(),
        }
    }
}

/// Has an image pulled, and tells when that begins, how far it is, and when it is over.
async fn pull_image<'a, P: Future<Output = Result<(), Error>>>(
    image: String,
    watch: TurnObserver<'a>,
    pull: impl FnOnce(Box<dyn FnMut(&PullProgress) + Send + 'a>) -> P,
) -> Result<(), Error> {
    let began = Instant::now();
    let tell = {
        let image = image.clone();
        move |bytes, total| watch(TurnEvent::Pulling { image: image.clone(), bytes, total })
    };
    tell(0, 0);
    let done =
        pull(Box::new(move |progress| tell(progress.downloaded_bytes(), progress.total_bytes()))).await;
    watch(TurnEvent::Pulled { image, succeeded: done.is_ok(), elapsed: began.elapsed() });
    done
}

/// An answer that was kept, as the gate knows it.
fn answer_from_row(question: &QuestionId, answer: KeptAnswer) -> Answer {
    let choice = match answer.choice {
        KeptChoice::Once => Choice::Once,
        KeptChoice::Session => Choice::Session,
        KeptChoice::Always => Choice::Always,
        KeptChoice::Deny { reason } => Choice::Deny(reason),
    };
    Answer { question: question.clone(), by: answer.by, at: answer.at, choice }
}

/// An answer as it is kept.
fn answer_to_row(answer: &Answer) -> KeptAnswer {
    let choice = match &answer.choice {
        Choice::Once => KeptChoice::Once,
        Choice::Session => KeptChoice::Session,
        Choice::Always => KeptChoice::Always,
        Choice::Deny(reason) => KeptChoice::Deny { reason: reason.clone() },
    };
    KeptAnswer { by: answer.by.clone(), at: answer.at, choice }
}

/// Bytes that nobody can guess, for the name of a question.
fn random_seed() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::{LayerStep, PullError, PullLayer};

    use super::*;

    #[tokio::test]
    async fn a_pull_is_told_from_its_beginning_to_its_end() {
        let progress = |bytes| PullProgress {
            layers: vec![PullLayer {
                id: "1".to_owned(),
                step: LayerStep::Downloading,
                bytes,
                total: Some(10),
            }],
        };
        for works in [true, false] {
            let told = Mutex::new(Vec::new());
            let watch = |event: TurnEvent| match event {
                TurnEvent::Pulling { image, bytes, total } => {
                    lock(&told).push(format!("{image} {bytes}/{total}"))
                }
                TurnEvent::Pulled { image, succeeded, .. } => {
                    lock(&told).push(format!("{image} {succeeded}"))
                }
                other => panic!("{other:?}"),
            };
            let pull = |mut tell: Box<dyn FnMut(&PullProgress) + Send>| async move {
                tell(&progress(3));
                tell(&progress(10));
                let fault = Error::Pull { image: "i".to_owned(), error: PullError::NotFound };
                if works { Ok(()) } else { Err(fault) }
            };
            assert_eq!(pull_image("i:1".to_owned(), &watch, pull).await.is_ok(), works);
            let last = format!("i:1 {works}");
            assert_eq!(*lock(&told), ["i:1 0/0", "i:1 3/10", "i:1 10/10", last.as_str()]);
        }
    }
}
