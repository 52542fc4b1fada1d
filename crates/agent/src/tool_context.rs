//! The context in which the tools of one session run: its execution environment, its approvals and
//! its limits.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{PullOptions, PullProgress};
use hermes_exec::{Error, OpenPlace, ResolvedPlace};
use hermes_policy::redact::Redactor;
use hermes_policy::{Gate, Permit};
use hermes_store::Store;
use hermes_types::{Attendance, EntryPoint, Job, Origin, Person, SessionKey};
use tokio::sync::OnceCell;

use crate::approvals::{Approvals, Denied};
use crate::approver::{Approver, BoxFuture};
use crate::conversation::{TurnEvent, TurnObserver};
use crate::http::WebClient;
use crate::process_events::ProcessEvents;
use crate::tool::execute_code::CodeExecutionConfig;
use crate::tool::todo::TodoList;
use crate::tool::{CallContext, Tool};
use crate::tool_support::file_state::FileStateTracker;

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

/// Finds the credentials and the timeout for pulling an image, when a pull is needed.
pub type PullAuth = Arc<dyn Fn(String) -> BoxFuture<'static, PullOptions> + Send + Sync>;

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
    /// Removes secrets from tool results.
    pub redactor: Redactor,
    pub limits: ToolLimits,
    pub tools: Vec<Tool>,
    /// Keeps questions and grants.
    pub store: Store,
    pub pull_auth: PullAuth,
    pub web: Arc<WebClient>,
}

impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionConfig")
            .field("place", &self.place)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// The tools of one session and their shared state.
#[derive(Debug)]
pub struct ToolContext {
    config: SessionConfig,
    approvals: Approvals,
    place: OnceCell<OpenPlace>,
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
            approvals: Approvals::new(gate, origin, config.store.clone(), approver),
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

    pub(crate) fn opened_place(&self) -> Option<&OpenPlace> {
        self.place.get()
    }

    /// The environment if a tool has opened it, for the caller to end.
    pub fn into_place(self) -> Option<OpenPlace> {
        self.place.into_inner()
    }

    /// Opens the environment. A missing image is pulled first, and `observer` sees the progress.
    pub async fn open_place(&self, observer: TurnObserver<'_>) -> Result<&OpenPlace, Error> {
        let place = &self.config.place;
        let open = || async {
            match place.open().await {
                Err(Error::ImageMissing { image }) => {
                    let auth = (self.config.pull_auth)(image.clone()).await;
                    pull_image(image, observer, |on_progress| place.pull_image(&auth, on_progress)).await?;
                    place.open().await
                }
                opened => opened,
            }
        };
        self.place.get_or_try_init(open).await
    }

    /// Gets a permit for a job, see [`Approvals::request`].
    pub async fn request_permit(&self, job: Job, call: CallContext<'_>) -> Result<Permit, Denied> {
        Ok(self.approvals.request(job, call).await?.permit)
    }
}

/// Pulls an image and reports its start, its progress and its end.
async fn pull_image<'a, P: Future<Output = Result<(), Error>>>(
    image: String,
    observer: TurnObserver<'a>,
    pull: impl FnOnce(Box<dyn FnMut(&PullProgress) + Send + 'a>) -> P,
) -> Result<(), Error> {
    let started = Instant::now();
    let report = {
        let image = image.clone();
        move |bytes, total| observer(TurnEvent::Pulling { image: image.clone(), bytes, total })
    };
    report(0, 0);
    let result =
        pull(Box::new(move |progress| report(progress.downloaded_bytes(), progress.total_bytes()))).await;
    observer(TurnEvent::Pulled { image, succeeded: result.is_ok(), elapsed: started.elapsed() });
    result
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::{LayerStep, PullError, PullLayer};

    use super::*;
    use crate::lock;

    #[tokio::test]
    async fn a_pull_reports_its_start_its_progress_and_its_end() {
        let progress = |bytes| PullProgress {
            layers: vec![PullLayer {
                id: "1".to_owned(),
                step: LayerStep::Downloading,
                bytes,
                total: Some(10),
            }],
        };
        for succeeds in [true, false] {
            let reported = Mutex::new(Vec::new());
            let observer = |event: TurnEvent| match event {
                TurnEvent::Pulling { image, bytes, total } => {
                    lock(&reported).push(format!("{image} {bytes}/{total}"))
                }
                TurnEvent::Pulled { image, succeeded, .. } => {
                    lock(&reported).push(format!("{image} {succeeded}"))
                }
                other => panic!("{other:?}"),
            };
            let pull = |mut on_progress: Box<dyn FnMut(&PullProgress) + Send>| async move {
                on_progress(&progress(3));
                on_progress(&progress(10));
                let error = Error::Pull { image: "i".to_owned(), error: PullError::NotFound };
                if succeeds { Ok(()) } else { Err(error) }
            };
            assert_eq!(pull_image("i:1".to_owned(), &observer, pull).await.is_ok(), succeeds);
            let last = format!("i:1 {succeeds}");
            assert_eq!(*lock(&reported), ["i:1 0/0", "i:1 3/10", "i:1 10/10", last.as_str()]);
        }
    }
}
