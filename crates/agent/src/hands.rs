//! What a session does its work with: a place, the gate in front of it, and people who can be asked.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use hermes_exec::backend::docker::pull::Means;
use hermes_exec::{Error, Plan, Sandbox};
use hermes_policy::redact::Redactor;
use hermes_policy::{Choice, Considered, Gate, Moment, Permit, Question, Refusal, Turn, Verdict};
use hermes_types::{Attendance, Door, Job, Origin, Person, Timestamp};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::Tool;
use crate::people::{Ask, Asking};
use crate::tool::code::CodeExecution;
use crate::tool::todo::Todo;

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
pub type MeansOf = Arc<dyn Fn(String) -> Asking<'static, Means> + Send + Sync>;

/// What hands are made of. The door that opens a session decides all of it.
#[derive(Clone)]
pub struct Setup {
    /// Where commands run.
    pub plan: Plan,
    /// What the owner and the people have decided.
    pub gate: Arc<RwLock<Gate>>,
    /// Who asks.
    pub person: Person,
    /// By which door.
    pub door: Door,
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
    /// What a pull is allowed.
    pub means: MeansOf,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("plan", &self.plan).field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// The hands of one session.
#[derive(Debug)]
pub struct Hands {
    setup: Setup,
    sandbox: OnceCell<Sandbox>,
    denied: Mutex<Turn>,
    pub(crate) todo: Mutex<Todo>,
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
}

impl Hands {
    /// Hands that have done nothing yet. The place is made when the first tool needs it.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            sandbox: OnceCell::new(),
            denied: Mutex::new(Turn::default()),
            todo: Mutex::new(Todo::default()),
        }
    }

    /// What they were made of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What was denied in the turn before may be asked about again.
    pub fn begin_turn(&self) {
        *lock(&self.denied) = Turn::default();
    }

    /// The place, open. An image that is missing is pulled first.
    pub async fn sandbox(&self) -> Result<&Sandbox, Error> {
        let plan = &self.setup.plan;
        let open = || async {
            match plan.open().await {
                Err(Error::NoImage { image }) => {
                    plan.pull(&(self.setup.means)(image).await, |_progress| {}).await?;
                    plan.open().await
                }
                opened => opened,
            }
        };
        self.sandbox.get_or_try_init(open).await
    }

    /// Asks the gate, and the people it sends us to. A question waits until it is answered, expires, or `stop` is
    /// called.
    pub async fn permit(&self, job: Job, stop: &CancellationToken) -> Result<Permit, No> {
        let origin = self.origin();
        let moment = Moment { now: now(), seed: seed().map_err(No::NoChance)? };
        let verdict = read(&self.setup.gate).judge(job, &origin, moment);
        let question = match verdict {
            Verdict::Allow(permit) => return Ok(permit),
            Verdict::Deny(refusal) => return Err(No::Refused(refusal)),
            Verdict::Ask(question) => question,
        };
        let question = match lock(&self.denied).consider(*question) {
            Considered::Fresh(question) => *question,
            Considered::Repeated(refusal) => return Err(No::Refused(refusal)),
            Considered::EndTurn(refusal) => return Err(No::EndOfTurn(refusal)),
        };
        self.put(question, stop).await
    }

    async fn put(&self, question: Question, stop: &CancellationToken) -> Result<Permit, No> {
        let answer = tokio::select! {
            answer = self.setup.ask.permission(&question) => answer,
            () = stop.cancelled() => None,
        };
        let Some(answer) = answer else {
            return Err(No::Refused(Refusal::Expired));
        };
        if matches!(answer.choice, Choice::Deny(_)) {
            lock(&self.denied).denied(&question);
        }
        let permit = question.answered(answer).map_err(No::Refused)?;
        let grants = permit.grants();
        if !grants.is_empty() {
            let mut gate = self.setup.gate.write().unwrap_or_else(PoisonError::into_inner);
            gate.grants.add(grants);
        }
        Ok(permit)
    }

    /// The circumstances of everything that is done here.
    fn origin(&self) -> Origin {
        Origin {
            person: self.setup.person.clone(),
            door: self.setup.door,
            session: self.setup.plan.session().clone(),
            attendance: self.setup.attendance.clone(),
            place: self.setup.plan.place(),
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(since.as_secs())
}

/// Bytes that nobody can guess, for the name of a question.
fn seed() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn read(gate: &RwLock<Gate>) -> std::sync::RwLockReadGuard<'_, Gate> {
    gate.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
