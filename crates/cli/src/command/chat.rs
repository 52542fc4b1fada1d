//! `hermes chat`: talking to the agent.
//!
//! `repl` drives the session, `frontend` and `host` are its two sides here, `input` reads the
//! keyboard while a turn runs, `editor` is the prompt, `line` says what a line is, and
//! `shell_command` runs `!COMMAND`.

mod editor;
mod frontend;
mod host;
mod images;
mod input;
mod line;
mod recap;
mod repl;
mod report;
mod shell_command;

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hermes_session::{
    Approver, SessionActor, SessionCommand, SessionHost, SessionMessage, SessionPool, StopReason, Surface,
    ToolContext, UserInput,
};
use hermes_store::{ImageStore, SessionRow, Viewer};
use hermes_types::{Attendance, EntryPoint};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::approval::{Consent, owner};
use crate::args::ChatArgs;
use crate::command::config::settings;
use crate::place::with_reaper;
use crate::screen::one_line;
use crate::terminal;
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::{OutputKind, TurnView, ViewMode};
use crate::{Config, Context, Failure, Result, block_on};
use editor::{Editor, EditorEvent, Notice};
use frontend::{TerminalFrontend, TerminalMessage, TerminalOutput};
use hermes_config::resolve::agent::Actor;
use hermes_config::resolve::{self, PlaceRequest};
use host::TerminalHost;
use input::InputLoop;
use line::InputLine;
use repl::{Repl, TurnOutcome};

const MAX_STDIN_BYTES: u64 = 16 << 20;
/// Characters of a queued message that are shown when it is sent.
const MAX_ECHO_CHARS: usize = 200;
/// How long background tasks may take to stop when the person leaves.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ChatArgs, context: &Arc<Context>) -> Result<ExitCode> {
    block_on(chat(args, context, settings(context)?))
}

enum ChatTask {
    /// Answer this text, with the images of the command line.
    SingleTurn(String),
    ResumeTurn,
    Interactive,
}

async fn chat(args: &ChatArgs, context: &Arc<Context>, config: &Config) -> Result<ExitCode> {
    let task = read_task(args, context)?;
    let store = resolve::store::open(context).await?;
    let image_store = ImageStore::new(context.home.path());
    let old = image_store.clone();
    tokio::task::spawn_blocking(move || old.prune());
    let resumed = match &args.resume {
        Some(word) => Some(store.find_session(&Viewer::Owner, word).await?),
        None => None,
    };
    // A resumed conversation continues in its own environment.
    let session = args.session.clone().or(resumed.as_ref().map(|row| row.key.as_str().to_owned()));
    let request = PlaceRequest { backend: args.backend, session, ..PlaceRequest::default() };
    let host = Arc::new(TerminalHost::new(
        Arc::clone(context),
        config.clone(),
        request,
        store.clone(),
        args.model.clone(),
    )?);
    let view = Arc::new(TurnView::new(context.screen, view_mode(context, config, &task)));
    let consent = Consent::new(args.yes, true);
    let approver = Arc::new(TerminalApprover::new(context.screen, Arc::clone(&view), consent));
    let attendance = match args.yes || approver.can_answer() {
        true => Attendance::Attended(vec![owner()]),
        false => Attendance::Unattended,
    };
    let actor = Actor {
        person: owner(),
        entry_point: EntryPoint::Cli,
        attendance: attendance.clone(),
        approver: Arc::clone(&approver) as Arc<dyn Approver>,
    };
    let setup = host.setup(host.key(), resumed.as_ref().and_then(|row| row.cwd.as_deref()), actor)?;
    let place = setup.place.clone();
    let message = match &task {
        ChatTask::SingleTurn(text) => {
            Some(images::user_input(text, &args.images, &image_store, place.backend_name()).await?)
        }
        ChatTask::ResumeTurn | ChatTask::Interactive => None,
    };
    let (background, background_texts) = mpsc::unbounded_channel();
    let output = Arc::new(TerminalOutput {
        screen: context.screen,
        view,
        approver,
        attendance,
        store: store.clone(),
        background,
        calls: Default::default(),
        last_id: Default::default(),
    });
    let tasks = TaskTracker::new();
    let session_host = Arc::clone(&host) as Arc<dyn SessionHost<TerminalMessage>>;
    let busy = config.display.busy_input_mode;
    let pool = Arc::new(SessionPool::new(store.clone(), session_host, busy, tasks.clone()));
    if let Some(model) = &args.model {
        pool.set_model(host.key(), model.clone());
    }
    let frontend = Arc::new(TerminalFrontend { output: Arc::clone(&output), task: None });
    let (mut actor, mailbox) = SessionActor::driven(Arc::clone(&pool), frontend, host.key().clone());
    actor.set_tools(Arc::new(ToolContext::new(setup)));
    let input = InputLoop {
        output: Arc::clone(&output),
        mailbox,
        background: background_texts,
        reads_all_lines: matches!(task, ChatTask::Interactive),
        is_leaving: false,
    };
    let mut repl = Repl { context: Arc::clone(context), output, actor, input, host: Arc::clone(&host) };
    let done = match task {
        ChatTask::Interactive => run_interactive(&mut repl, config, resumed).await,
        ChatTask::SingleTurn(_) | ChatTask::ResumeTurn => run_single_turn(&mut repl, resumed, message).await,
    };
    pool.stop();
    tokio::time::timeout(BACKGROUND_STOP_TIMEOUT, tasks.wait()).await.ok();
    let tools = repl.actor.close(done.as_ref().is_ok_and(|done| done.is_over)).await;
    if let Some(tools) = tools.filter(ToolContext::has_open_place) {
        with_reaper(context, config, &place, host.leave(tools)).await?;
    }
    store.close().await;
    done.map(|done| done.code)
}

/// How a chat ended.
struct ChatResult {
    code: ExitCode,
    /// Whether the conversation has ended, too.
    is_over: bool,
}

impl ChatResult {
    fn finished(code: ExitCode) -> Self {
        Self { code, is_over: true }
    }

    fn interrupted() -> Self {
        Self { code: ExitCode::from(130), is_over: false }
    }
}

fn read_task(args: &ChatArgs, context: &Context) -> Result<ChatTask> {
    let text = match &args.query {
        Some(text) => text.clone(),
        None if io::stdin().is_terminal() && !args.images.is_empty() => String::new(),
        None if io::stdin().is_terminal() && !context.screen.is_json() => {
            return Ok(ChatTask::Interactive);
        }
        None if io::stdin().is_terminal() => String::new(),
        None => {
            let mut text = String::new();
            io::stdin().lock().take(MAX_STDIN_BYTES).read_to_string(&mut text)?;
            text
        }
    };
    match (text.trim().is_empty() && args.images.is_empty(), &args.resume) {
        (false, _) => Ok(ChatTask::SingleTurn(text)),
        (true, Some(_)) => Ok(ChatTask::ResumeTurn),
        (true, None) => Err(Failure::usage("no message")
            .hint("Use `hermes chat -q TEXT` or a pipe: `echo TEXT | hermes chat`.")
            .hint("Run `hermes` in a terminal to start a chat.")),
    }
}

fn view_mode(context: &Context, config: &Config, task: &ChatTask) -> ViewMode {
    let is_script = !matches!(task, ChatTask::Interactive) && !io::stdout().is_terminal();
    ViewMode {
        output: output_kind(context),
        is_answer_streamed: !is_script && !context.screen.is_json(),
        is_reasoning_shown: config.display.show_reasoning,
    }
}

fn output_kind(context: &Context) -> OutputKind {
    let is_dumb = context.variable("TERM").is_none_or(|term| term == "dumb");
    match io::stdout().is_terminal() && io::stderr().is_terminal() {
        false => OutputKind::Pipe,
        true if is_dumb => OutputKind::Dumb,
        true => OutputKind::Terminal,
    }
}

/// Runs one turn, after the interrupted one of a resumed conversation.
async fn run_single_turn(
    repl: &mut Repl,
    resumed: Option<SessionRow>,
    message: Option<UserInput>,
) -> Result<ChatResult> {
    repl.host.check_model()?;
    let mut outcome = TurnOutcome::NoTurn;
    if let Some(session) = resumed {
        repl.open(&session).await?;
        outcome = repl.resume_turn().await?;
    }
    let was_stopped = match &outcome {
        TurnOutcome::Ended(ended) => ended.stop_reason == StopReason::Interrupted,
        TurnOutcome::Abandoned => true,
        TurnOutcome::NoTurn => false,
    };
    if let (Some(message), false) = (message, was_stopped) {
        outcome = repl.send_message(message).await?;
    }
    match outcome {
        TurnOutcome::Ended(ended) => Ok(ChatResult::finished(report::report(repl, &ended)?)),
        TurnOutcome::Abandoned => Ok(ChatResult::interrupted()),
        TurnOutcome::NoTurn => Err(Failure::usage("this conversation has no interrupted turn")
            .hint("Use `-q TEXT` to send a message.")),
    }
}

/// Processes one line after the other until the person leaves.
async fn run_interactive(
    repl: &mut Repl,
    config: &Config,
    resumed: Option<SessionRow>,
) -> Result<ChatResult> {
    let _terminal = terminal::TerminalGuard::new()?;
    let screen = repl.context.screen;
    let mut editor = match output_kind(&repl.context) {
        OutputKind::Terminal => Editor::full(repl.context.home.path(), screen),
        OutputKind::Dumb | OutputKind::Pipe => Editor::plain(screen),
    };
    repl.print_welcome();
    if let Some(session) = resumed
        && repl.host.check_model().is_ok()
    {
        repl.open(&session).await?;
        repl.print_recap();
        if matches!(repl.resume_turn().await?, TurnOutcome::Abandoned) {
            return Ok(ChatResult::interrupted());
        }
    }
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut was_interrupted = false;
    // Process notices that arrived while a line was edited; they are sent after it.
    let mut held = Vec::new();
    while !repl.input.is_leaving {
        let outcome = match repl.actor.next_waiting() {
            Some(input) => {
                let text = one_line(input.message.text(), MAX_ECHO_CHARS);
                repl.output.view.print_note(&format!("> {text}"));
                repl.process(input).await?
            }
            None => {
                let (entered, notice) = tokio::select! {
                    entered = repl.next_event(&mut editor) => entered?,
                    _ = terminated.recv() => (EditorEvent::End, None),
                    _ = hung_up.recv() => (EditorEvent::End, None),
                };
                let has_text = entered == EditorEvent::Paused { has_text: true };
                if !has_text {
                    held.drain(..).for_each(|text| repl.on_notice(Notice::Process(text)));
                }
                match notice {
                    Some(Notice::Process(text)) if has_text => {
                        let line = one_line(&text, MAX_ECHO_CHARS);
                        repl.output.print_quiet(&format!("{line}  (sent after your message)"));
                        held.push(text);
                    }
                    notice => notice.into_iter().for_each(|notice| repl.on_notice(notice)),
                }
                let line = match entered {
                    EditorEvent::Line(line) => line,
                    EditorEvent::Paused { .. } => continue,
                    EditorEvent::Interrupted if was_interrupted => break,
                    EditorEvent::Interrupted => {
                        was_interrupted = true;
                        repl.output.print_quiet("press Ctrl-C again to quit");
                        continue;
                    }
                    EditorEvent::End => break,
                };
                match line::parse_line(&line) {
                    InputLine::Empty => TurnOutcome::NoTurn,
                    InputLine::Invalid(why) => {
                        repl.output.view.print_note(why);
                        TurnOutcome::NoTurn
                    }
                    InputLine::Shell(command) => shell_command::run(repl, config, &command).await?,
                    InputLine::Session(text)
                        if SessionCommand::parse(&text, Surface::Terminal) == Some(SessionCommand::Quit) =>
                    {
                        break;
                    }
                    InputLine::Session(text) => repl.process(repl.output.line_input(text)).await?,
                }
            }
        };
        was_interrupted = false;
        if matches!(outcome, TurnOutcome::Abandoned) {
            repl.print_farewell();
            return Ok(ChatResult::interrupted());
        }
    }
    repl.print_farewell();
    Ok(ChatResult::finished(ExitCode::SUCCESS))
}
