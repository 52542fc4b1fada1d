//! The context in which the tools of one session run: its execution environment, its approvals and
//! its limits.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{PullEvent, PullSettings};
use hermes_exec::{Error, OpenPlace, ResolvedPlace};
use hermes_policy::redact::Redactor;
use hermes_policy::{Gate, Permit};
use hermes_store::Store;
use hermes_types::{Attendance, EntryPoint, Job, Origin, Person, SessionKey};
use tokio::sync::OnceCell;

use crate::approvals::{Approval, Approvals, ApprovedBy, Denied};
use crate::approver::Approver;
use crate::conversation::{TurnEvent, TurnObserver};
use crate::http::WebClient;
use crate::process_events::ProcessEvents;
use crate::review::ApprovalReviewer;
use crate::tool::execute_code::CodeExecutionConfig;
use crate::tool::todo::TodoList;
use crate::tool::{CallContext, Tool};
use crate::tool_support::file_state::FileStateTracker;

/// How often the session may change its state while a command waits for its permit.
const MAX_START_ATTEMPTS: u32 = 5;

/// Limits of tool input and output.
#[derive(Debug, Clone)]
pub struct ToolLimits {
    /// Timeout of a command whose call sets none.
    pub timeout: Duration,
    /// The longest timeout that a call may set for a foreground command.
    pub max_foreground: Duration,
    /// Bytes of a command's output that the model sees.
    pub output_bytes: u32,
    /// Lines that one read of a file returns at most.
    pub read_lines: u64,
    /// Characters of one line.
    pub line_length: usize,
    /// Characters that one read of a file returns at most.
    pub read_chars: usize,
    pub code_execution: CodeExecutionConfig,
}

/// Everything a [`ToolContext`] is made of. The entry point that opens a session decides all of it.
#[derive(Clone)]
pub struct SessionConfig {
    /// Several sessions may share one environment.
    pub session: SessionKey,
    /// The environment in which commands run.
    pub place: ResolvedPlace,
    /// The owner's rules. Grants are in the store.
    pub gate: Arc<Gate>,
    /// The person that the session works for.
    pub person: Person,
    pub entry_point: EntryPoint,
    /// Who may answer questions.
    pub attendance: Attendance,
    pub approver: Arc<dyn Approver>,
    /// The model that is asked before a person, in the mode `smart`.
    pub reviewer: Option<Arc<ApprovalReviewer>>,
    /// Removes secrets from tool results.
    pub redactor: Redactor,
    pub limits: ToolLimits,
    pub tools: Vec<Tool>,
    /// Keeps questions and grants.
    pub store: Store,
    pub pull: PullSettings,
    /// Shows a warning to the owner.
    pub warn: Arc<dyn Fn(&str) + Send + Sync>,
    pub web: Arc<WebClient>,
}

/// The tools of one session and their shared state.
pub struct ToolContext {
    config: SessionConfig,
    approvals: Approvals,
    pub(crate) place: OnceCell<OpenPlace>,
    pub(crate) todo: Mutex<TodoList>,
    pub(crate) file_state: Mutex<FileStateTracker>,
    pub(crate) process_events: ProcessEvents,
}

impl ToolContext {
    /// Opens no environment: the first tool that needs it does.
    pub fn new(config: SessionConfig) -> Self {
        let origin = Origin {
            person: config.person.clone(),
            entry_point: config.entry_point,
            session: config.session.clone(),
            attendance: config.attendance.clone(),
            place: config.place.place(),
        };
        let (gate, approver) = (Arc::clone(&config.gate), Arc::clone(&config.approver));
        Self {
            approvals: Approvals::new(gate, origin, config.store.clone(), approver, config.reviewer.clone()),
            config,
            place: OnceCell::new(),
            todo: Mutex::default(),
            file_state: Mutex::default(),
            process_events: ProcessEvents::default(),
        }
    }

    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    pub fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Whether a tool has opened the environment.
    pub fn has_open_place(&self) -> bool {
        self.place.initialized()
    }

    /// The environment if a tool has opened it, for the caller to end.
    pub fn into_place(self) -> Option<OpenPlace> {
        self.place.into_inner()
    }

    /// Opens the environment. A missing image is pulled first, and `observer` sees the progress.
    pub async fn open_place(&self, observer: TurnObserver<'_>) -> Result<&OpenPlace, Error> {
        let SessionConfig { place, pull, warn, .. } = &self.config;
        let open = || {
            let mut started = Instant::now();
            place.open_with_pull(pull, move |image, event| {
                if let PullEvent::Started = event {
                    started = Instant::now();
                }
                match event {
                    PullEvent::CredentialsUnavailable(error) => warn(&error.warning()),
                    event => observer(turn_event(image, event, started.elapsed())),
                }
            })
        };
        self.place.get_or_try_init(open).await
    }

    /// Starts a job with a permit for it, and returns who approved it. While the job
    /// waits for its permit, another command may change the state of the session; then the gate judges
    /// the job in the new one.
    pub(crate) async fn start_with_permit<T, J, S>(
        &self,
        job: impl Fn() -> J,
        start: impl Fn(Permit) -> S,
        call: CallContext<'_>,
    ) -> Result<(T, Option<ApprovedBy>), crate::Error>
    where
        J: Future<Output = Result<Job, Error>>,
        S: Future<Output = Result<T, Error>>,
    {
        let mut attempts = 0;
        loop {
            let Approval { permit, approved_by } = self.approvals.request(job().await?, call).await?;
            attempts += 1;
            match start(permit).await {
                Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
                started => return Ok((started?, approved_by)),
            }
        }
    }

    /// Gets a permit for a job, see [`Approvals::request`].
    pub async fn request_permit(&self, job: Job, call: CallContext<'_>) -> Result<Permit, Denied> {
        Ok(self.approvals.request(job, call).await?.permit)
    }
}

/// The event of a turn that reports an event of a pull.
fn turn_event(image: &str, event: PullEvent<'_>, elapsed: Duration) -> TurnEvent {
    let image = image.to_owned();
    let (bytes, total) = match event {
        PullEvent::Finished { is_pulled } => {
            return TurnEvent::Pulled { image, succeeded: is_pulled, elapsed };
        }
        PullEvent::Progress(progress) => (progress.downloaded_bytes(), progress.total_bytes()),
        PullEvent::Started | PullEvent::CredentialsUnavailable(_) => (0, 0),
    };
    TurnEvent::Pulling { image, bytes, total }
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::{LayerStep, PullLayer, PullProgress};

    use super::*;

    #[test]
    fn a_pull_reports_its_start_its_progress_and_its_end() {
        let layer = PullLayer { id: "1".to_owned(), step: LayerStep::Downloading, bytes: 3, total: Some(10) };
        let progress = PullProgress { layers: vec![layer] };
        let event = |event| turn_event("i:1", event, Duration::from_secs(7));
        let image = || "i:1".to_owned();
        assert_eq!(event(PullEvent::Started), TurnEvent::Pulling { image: image(), bytes: 0, total: 0 });
        assert_eq!(
            event(PullEvent::Progress(&progress)),
            TurnEvent::Pulling { image: image(), bytes: 3, total: 10 }
        );
        for succeeded in [true, false] {
            let elapsed = Duration::from_secs(7);
            assert_eq!(
                event(PullEvent::Finished { is_pulled: succeeded }),
                TurnEvent::Pulled { image: image(), succeeded, elapsed }
            );
        }
    }
}
