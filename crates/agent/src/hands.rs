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

use crate::conversation::{Event, Watch};
use crate::http::Web;
use crate::people::{Ask, Asking};
use crate::tool::Scene;
use crate::tool::code::CodeExecution;
use crate::tool::notes::Notes;
use crate::tool::todo::Todo;
use crate::{Tool, notice};

/// How much tools take and give.
#[derive(Debug, Clone)]
pub struct Limits {
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
    pub code_execution: CodeExecution,
}

/// What a pull of an image is allowed, found out when one is needed.
pub type MeansOf = Arc<dyn Fn(String) -> Asking<'static, PullOptions> + Send + Sync>;

/// What hands are made of. The door that opens a session decides all of it.
#[derive(Clone)]
pub struct Setup {
    /// The session, which may share its place with others.
    pub session: SessionKey,
    /// Where commands run.
    pub plan: ResolvedPlace,
    /// What the owner has decided. What people have allowed is in the store.
    pub gate: Arc<Gate>,
    /// Who asks.
    pub person: Person,
    /// By which door.
    pub door: EntryPoint,
    /// Who may answer questions.
    pub attendance: Attendance,
    /// How they are asked.
    pub ask: Arc<dyn Ask>,
    /// Takes secrets out of what the model sees.
    pub redactor: Redactor,
    /// How much tools take and give.
    pub limits: Limits,
    /// The tools of this session.
    pub tools: Vec<Tool>,
    /// Where questions and what people allowed are kept.
    pub store: Store,
    /// What a pull is allowed.
    pub means: MeansOf,
    /// How pages are fetched.
    pub web: Arc<Web>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("plan", &self.plan).field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// Whether people are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Questions {
    /// About all that the gate wants to ask about.
    Asked,
    /// About nothing, as where the owner has turned questions off. What is never allowed stays so.
    Waived,
}

/// The hands of one session.
#[derive(Debug)]
pub struct Hands {
    setup: Setup,
    sandbox: OnceCell<OpenPlace>,
    /// Who is served now, and who may answer questions.
    served: Mutex<(Person, Attendance)>,
    denied: Mutex<Turn>,
    questions: Mutex<Questions>,
    pub(crate) todo: Mutex<Todo>,
    pub(crate) notes: Mutex<Notes>,
    pub(crate) notices: notice::Notices,
}

/// A permit, and whose word it took.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) permit: Permit,
    /// Who said yes; nobody was asked if there is none.
    pub(crate) by: Option<Person>,
}

/// A no that the model hears.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum No {
    /// A rule or a person said so.
    #[error("{0}")]
    Refused(Refusal),
    /// The same was tried too often, and the turn is over.
    #[error("{0}")]
    EndOfTurn(Refusal),
    /// Nobody could be asked, because this machine gives no random numbers.
    #[error("no question can be put: {0}")]
    NoChance(getrandom::Error),
    /// Nobody could be asked, because the question could not be kept.
    #[error("no question can be put: {0}")]
    Unkept(String),
}

impl From<hermes_store::Error> for No {
    fn from(error: hermes_store::Error) -> Self {
        Self::Unkept(error.to_string())
    }
}

impl Hands {
    /// Hands that have done nothing yet. The place is made when the first tool needs it.
    pub fn new(setup: Setup) -> Self {
        Self {
            served: Mutex::new((setup.person.clone(), setup.attendance.clone())),
            setup,
            sandbox: OnceCell::new(),
            denied: Mutex::new(Turn::default()),
            questions: Mutex::new(Questions::Asked),
            todo: Mutex::new(Todo::default()),
            notes: Mutex::new(Notes::default()),
            notices: notice::Notices::default(),
        }
    }

    /// What they were made of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Whether any tool needed the place.
    pub fn has_opened(&self) -> bool {
        self.sandbox.initialized()
    }

    /// The place, if any tool needed it.
    pub(crate) fn opened(&self) -> Option<&OpenPlace> {
        self.sandbox.get()
    }

    /// The place that was opened, if any tool needed it, for whoever is to end it.
    pub fn into_sandbox(self) -> Option<OpenPlace> {
        self.sandbox.into_inner()
    }

    /// Serves somebody else of the same session from now on.
    pub fn serve(&self, person: Person, attendance: Attendance) {
        *lock(&self.served) = (person, attendance);
    }

    /// Asks people from now on, or asks them nothing.
    pub fn ask_people(&self, questions: Questions) {
        *lock(&self.questions) = questions;
    }

    /// What was denied in the turn before may be asked about again.
    pub fn begin_turn(&self) {
        *lock(&self.denied) = Turn::default();
    }

    /// The place, open. An image that is missing is pulled first, and `watch` is told how far that is.
    pub async fn sandbox(&self, watch: Watch<'_>) -> Result<&OpenPlace, Error> {
        let plan = &self.setup.plan;
        let open = || async {
            match plan.open().await {
                Err(Error::ImageMissing { image }) => {
                    let means = (self.setup.means)(image.clone()).await;
                    pulled(image, watch, |told| plan.pull_image(&means, told)).await?;
                    plan.open().await
                }
                opened => opened,
            }
        };
        self.sandbox.get_or_try_init(open).await
    }

    /// Asks the gate, and the people it sends us to. A question is kept before anybody is asked; it waits until it is
    /// answered, by whatever door, until it expires, or until the call is stopped.
    pub async fn permit(&self, job: Job, scene: Scene<'_>) -> Result<Permit, No> {
        Ok(self.decide(job, scene).await?.permit)
    }

    /// The same, and whose word it took.
    pub(crate) async fn decide(&self, job: Job, scene: Scene<'_>) -> Result<Granted, No> {
        let moment = Moment { now: Timestamp::now(), seed: seed().map_err(No::NoChance)? };
        let asked = self.asked_before(&job, scene).await?;
        let mut origin = self.origin();
        if let Some((_, Some(answer))) = &asked {
            // Whoever was there has answered; nobody has to be there any more.
            origin.attendance = Attendance::Attended(vec![answer.by.clone()]);
        }
        let judge = |gate: &Gate| match &asked {
            Some((stored, _)) => gate.reopen(stored.clone(), &origin, moment),
            None => gate.judge(job.clone(), &origin, moment),
        };
        let question = match self.judged(judge).await? {
            Verdict::Allow(permit) => return Ok(Granted { permit, by: None }),
            Verdict::Deny(refusal) => return Err(No::Refused(refusal)),
            Verdict::Ask(question) => question,
        };
        let question = match lock(&self.denied).consider(*question) {
            Considered::Fresh(question) => *question,
            Considered::Repeated(refusal) => return Err(No::Refused(refusal)),
            Considered::EndTurn(refusal) => return Err(No::EndOfTurn(refusal)),
        };
        let answer = match asked {
            Some((_, Some(answer))) => Some(answer),
            Some((_, None)) => self.put(&question, scene).await?,
            None => self.put_anew(&question, scene).await?,
        };
        self.settle(question, answer).await
    }

    /// What the gate says about a job, with all that was allowed to happen again.
    pub async fn judge(&self, job: Job) -> Result<Verdict, No> {
        let moment = Moment { now: Timestamp::now(), seed: seed().map_err(No::NoChance)? };
        let origin = self.origin();
        Ok(self.judged(|gate| gate.judge(job.clone(), &origin, moment)).await?)
    }

    /// Keeps a question of the gate, and puts it.
    pub async fn ask(&self, question: Question, scene: Scene<'_>) -> Result<Permit, No> {
        let answer = self.put_anew(&question, scene).await?;
        Ok(self.settle(question, answer).await?.permit)
    }

    /// A permit for what nobody has to be asked about.
    pub(crate) async fn unasked(&self, job: Job) -> Option<Permit> {
        match self.judge(job).await {
            Ok(Verdict::Allow(permit)) => Some(permit),
            Ok(Verdict::Deny(_) | Verdict::Ask(_)) | Err(_) => None,
        }
    }

    /// Has the gate judge. What was allowed to happen again is read each time it matters: it may have been taken back.
    async fn judged(&self, judge: impl Fn(&Gate) -> Verdict) -> Result<Verdict, hermes_store::Error> {
        if *lock(&self.questions) == Questions::Waived {
            return Ok(judge(&Gate { mode: Mode::Off, ..Gate::clone(&self.setup.gate) }));
        }
        let verdict = judge(&self.setup.gate);
        if !verdict.yields_to_grants() {
            return Ok(verdict);
        }
        let mut gate = Gate::clone(&self.setup.gate);
        for kept in self.setup.store.grants_in(&self.setup.session).await? {
            match serde_json::from_value(kept.json) {
                Ok(grant) => gate.grants.add(&[grant]),
                // Who cannot read what was allowed asks again.
                Err(error) => tracing::warn!(grant = kept.id, %error, "a grant cannot be read"),
            }
        }
        Ok(judge(&gate))
    }

    /// The question that this very call asked before hermes was restarted, with its answer if there is one by now.
    async fn asked_before(
        &self,
        job: &Job,
        scene: Scene<'_>,
    ) -> Result<Option<(StoredQuestion, Option<Answer>)>, No> {
        let Some(occasion) = scene.occasion.filter(|occasion| occasion.resumed) else { return Ok(None) };
        for kept in self.setup.store.questions_of(&occasion.session).await? {
            let Ok(stored) = serde_json::from_value::<StoredQuestion>(kept.stored) else { continue };
            if kept.call.as_ref() != Some(scene.call) || stored.job != *job {
                continue;
            }
            match kept.state {
                QuestionState::Open if stored.expires > Timestamp::now() => return Ok(Some((stored, None))),
                QuestionState::Answered(answer) if !kept.is_used => {
                    let answer = given(&stored.id, answer);
                    return Ok(Some((stored, Some(answer))));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// What is kept of a question.
    fn kept(&self, question: &Question, scene: Scene<'_>) -> Result<NewQuestion, No> {
        let fault = |error: serde_json::Error| No::Unkept(error.to_string());
        Ok(NewQuestion {
            id: question.id().as_str().to_owned(),
            key: self.setup.session.clone(),
            asked_by: scene.occasion.map(|occasion| AskedBy {
                session: occasion.session.clone(),
                turn: occasion.turn,
                call: scene.call.clone(),
            }),
            stored: serde_json::to_value(question.stored()).map_err(fault)?,
            shown: json!({
                "text": question.shown().plain(),
                "parts": question.shown().parts,
                "reasons": question.matches().iter().map(|found| found.reason).collect::<Vec<_>>(),
                "backend": self.setup.plan.backend_name().as_str(),
                "cwd": question.job().cwd,
            }),
            approvers: question.approvers().to_vec(),
            created: Timestamp::now(),
            expires: question.expires(),
        })
    }

    /// Keeps a question that was never put, and puts it.
    async fn put_anew(&self, question: &Question, scene: Scene<'_>) -> Result<Option<Answer>, No> {
        self.setup.store.ask(self.kept(question, scene)?).await?;
        self.put(question, scene).await
    }

    /// Puts a question to whoever is at the door, while somebody may answer it elsewhere. The first answer counts.
    async fn put(&self, question: &Question, scene: Scene<'_>) -> Result<Option<Answer>, No> {
        let store = &self.setup.store;
        let id = question.id().as_str();
        let patience =
            Duration::from_secs(question.expires().seconds().saturating_sub(Timestamp::now().seconds()));
        let state = tokio::select! {
            biased;
            () = scene.stop.cancelled() => store.withdraw(id, Timestamp::now()).await?,
            answer = self.setup.ask.permission(question) => match answer {
                Some(answer) => match store.answer(id, taken(&answer)).await? {
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
            Some(QuestionState::Answered(answer)) => Some(given(question.id(), answer)),
            _ => None,
        })
    }

    /// Turns an answer into a permit, and keeps what it allows beyond this once.
    async fn settle(&self, question: Question, answer: Option<Answer>) -> Result<Granted, No> {
        let Some(answer) = answer else { return Err(No::Refused(Refusal::Expired)) };
        if matches!(answer.choice, Choice::Deny(_)) {
            lock(&self.denied).denied(&question);
        } else if !self.setup.store.use_answer(question.id().as_str(), Timestamp::now()).await? {
            return Err(No::Unkept("its answer was used already".to_owned()));
        }
        let by = Some(answer.by.clone());
        let permit = question.answered(answer).map_err(No::Refused)?;
        let mut grants = Vec::new();
        for grant in permit.grants() {
            grants.push(NewGrant {
                id: grant.id.as_str().to_owned(),
                scope: match &grant.scope {
                    GrantScope::Session(key) => Lasting::Session(key.clone()),
                    GrantScope::Always => Lasting::Always,
                },
                json: serde_json::to_value(grant).map_err(|error| No::Unkept(error.to_string()))?,
                given_by: grant.given_by.clone(),
                given_at: grant.given_at,
            });
        }
        if !grants.is_empty() {
            self.setup.store.grant(grants).await?;
        }
        Ok(Granted { permit, by })
    }

    /// The circumstances of everything that is done here.
    fn origin(&self) -> Origin {
        let (person, attendance) = lock(&self.served).clone();
        Origin {
            person,
            entry_point: self.setup.door,
            session: self.setup.session.clone(),
            attendance,
            place: self.setup.plan.place(),
        }
    }
}

/// Has an image pulled, and tells when that begins, how far it is, and when it is over.
async fn pulled<'a, P: Future<Output = Result<(), Error>>>(
    image: String,
    watch: Watch<'a>,
    pull: impl FnOnce(Box<dyn FnMut(&PullProgress) + Send + 'a>) -> P,
) -> Result<(), Error> {
    let began = Instant::now();
    let tell = {
        let image = image.clone();
        move |bytes, total| watch(Event::Pulling { image: image.clone(), bytes, total })
    };
    tell(0, 0);
    let done =
        pull(Box::new(move |progress| tell(progress.downloaded_bytes(), progress.total_bytes()))).await;
    watch(Event::Pulled { image, worked: done.is_ok(), took: began.elapsed() });
    done
}

/// An answer that was kept, as the gate knows it.
fn given(question: &QuestionId, answer: KeptAnswer) -> Answer {
    let choice = match answer.choice {
        KeptChoice::Once => Choice::Once,
        KeptChoice::Session => Choice::Session,
        KeptChoice::Always => Choice::Always,
        KeptChoice::Deny { reason } => Choice::Deny(reason),
    };
    Answer { question: question.clone(), by: answer.by, at: answer.at, choice }
}

/// An answer as it is kept.
fn taken(answer: &Answer) -> KeptAnswer {
    let choice = match &answer.choice {
        Choice::Once => KeptChoice::Once,
        Choice::Session => KeptChoice::Session,
        Choice::Always => KeptChoice::Always,
        Choice::Deny(reason) => KeptChoice::Deny { reason: reason.clone() },
    };
    KeptAnswer { by: answer.by.clone(), at: answer.at, choice }
}

/// Bytes that nobody can guess, for the name of a question.
fn seed() -> Result<[u8; 16], getrandom::Error> {
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
            let watch = |event: Event| match event {
                Event::Pulling { image, bytes, total } => {
                    lock(&told).push(format!("{image} {bytes}/{total}"))
                }
                Event::Pulled { image, worked, .. } => lock(&told).push(format!("{image} {worked}")),
                other => panic!("{other:?}"),
            };
            let pull = |mut tell: Box<dyn FnMut(&PullProgress) + Send>| async move {
                tell(&progress(3));
                tell(&progress(10));
                let fault = Error::Pull { image: "i".to_owned(), error: PullError::NotFound };
                if works { Ok(()) } else { Err(fault) }
            };
            assert_eq!(pulled("i:1".to_owned(), &watch, pull).await.is_ok(), works);
            let last = format!("i:1 {works}");
            assert_eq!(*lock(&told), ["i:1 0/0", "i:1 3/10", "i:1 10/10", last.as_str()]);
        }
    }
}
