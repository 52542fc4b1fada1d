//! `hermes chat`: talking to the agent.
//!
//! `talk.rs` is the conversation itself, `seat.rs` what can be typed while an answer comes, `editor.rs` the prompt,
//! `slash.rs` what can be typed besides messages, and `place.rs` commands that the person runs.

mod editor;
mod images;
mod input;
mod recap;
mod repl;
mod report;
mod shell_command;
mod slash;

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::{Approver, StopReason, ToolContext, UserInput};
use hermes_store::{ImageStore, SessionRow as Kept, Viewer};
use hermes_types::{Attendance, BackendName, EntryPoint};
use tokio::signal::unix::{SignalKind, signal};

use crate::Context;
use crate::approval::{Consent, owner};
use crate::args::ChatArgs;
use crate::command::config::settings;
use crate::place::release_place;
use crate::screen::{OutputFormat, Tone, one_line};
use crate::terminal;
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::{AnswerDisplay, OutputKind, ReasoningDisplay, TurnView, ViewMode};
use editor::{Editor, EditorEvent, PromptContent};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve::PlaceRequest;
use hermes_config::resolve::agent::{self, Actor, SharedResources};
use hermes_config::resolve::{self, ResolveMode, SessionChoice};
use input::{InputLoop, LinePolicy};
use repl::{Repl, TurnOutcome};
use slash::{InputLine, SlashCommand};

/// The longest message that is read from a pipe.
const MAX_STDIN_BYTES: u64 = 16 << 20;
/// Characters of a message that are shown when it is said.
const MAX_ECHO_CHARS: usize = 200;

pub(crate) fn run(args: &ChatArgs, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(chat(args, context, config));
    // Somebody may still be reading the keyboard.
    runtime.shutdown_background();
    code
}

/// What there is to do.
enum ChatTask {
    /// To answer this, with the pictures that are named.
    SingleTurn(String),
    /// To go on where something was interrupted.
    ResumeTurn,
    /// To talk.
    Interactive,
}

async fn chat(args: &ChatArgs, context: &Context, config: &Config) -> Result<ExitCode, Failure> {
    let task = read_task(args, context)?;
    let store = resolve::store::open(context).await?;
    let image_store = ImageStore::new(context.home.path());
    let old = image_store.clone();
    tokio::task::spawn_blocking(move || old.prune());
    let kept = match &args.resume {
        Some(word) => {
            Some(store.resolve_session(&Viewer::Owner, word).await.map_err(resolve::store::store_failure)?)
        }
        None => None,
    };
    let place = place_request(args, kept.as_ref());
    let config = &session_settings(config, &place, kept.as_ref());
    let session = SessionChoice::new(&place, config)?;
    let plan = resolve::resolve_place(context, config, &place, &session, ResolveMode::Create)?;
    let saying = match &task {
        ChatTask::SingleTurn(text) => {
            Some(images::user_input(text, &args.images, &image_store, plan.backend_name()).await?)
        }
        ChatTask::ResumeTurn | ChatTask::Interactive => None,
    };
    let stage = Arc::new(TurnView::new(context.screen, view_mode(context, config, &task)));
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    let desk = Arc::new(TerminalApprover::new(context.screen, Arc::clone(&stage), consent));
    let attendance = match args.yes || desk.can_answer() {
        true => Attendance::Attended(vec![owner()]),
        false => Attendance::Unattended,
    };
    let ask = Arc::clone(&desk) as Arc<dyn Approver>;
    let visitor = Actor { person: owner(), entry_point: EntryPoint::Cli, attendance, approver: ask };
    let setup = agent::session_config(
        &SharedResources::new(context, config),
        config,
        plan.clone(),
        visitor,
        store.clone(),
    );
    let ears =
        if matches!(task, ChatTask::Interactive) { LinePolicy::ReadAll } else { LinePolicy::AnswersOnly };
    let seat = InputLoop::new(context, stage, desk, ears);
    let mut talk = Repl::new(context, config, args, seat, setup);
    let done = match task {
        ChatTask::Interactive => run_interactive(&mut talk, kept).await,
        ChatTask::SingleTurn(_) | ChatTask::ResumeTurn => run_single_turn(&mut talk, kept, saying).await,
    };
    let hands = talk.close(done.as_ref().is_ok_and(|done| done.is_over)).await;
    if hands.as_ref().is_some_and(ToolContext::has_open_place) {
        let reaper = resolve::places(context, config).start_reaper(plan.engine_access());
        release_place(context, &place, &plan, &session, hands).await?;
        // What it could not remove the next one tries again.
        if let Err(error) = reaper.finish().await {
            tracing::warn!(%error, "leftovers of places could not be removed");
        }
    }
    store.close().await;
    done.map(|done| done.code)
}

/// How a chat ended.
struct ChatResult {
    code: ExitCode,
    /// Whether nothing is left to be carried on.
    is_over: bool,
}

impl ChatResult {
    fn finished(code: ExitCode) -> Self {
        Self { code, is_over: true }
    }

    /// Somebody could not wait.
    fn interrupted() -> Self {
        Self { code: ExitCode::from(130), is_over: false }
    }
}

fn read_task(args: &ChatArgs, context: &Context) -> Result<ChatTask, Failure> {
    let text = match &args.query {
        Some(text) => text.clone(),
        None if io::stdin().is_terminal() && !args.images.is_empty() => String::new(),
        None if io::stdin().is_terminal() && context.screen.format == OutputFormat::Text => {
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
        (true, None) => Err(Failure::new(FailureKind::Usage, "no message")
            .hint("Use `hermes chat -q TEXT` or a pipe: `echo TEXT | hermes chat`.")
            .hint("Run `hermes` in a terminal to start a chat.")),
    }
}

/// A conversation goes on in its own place.
fn place_request(args: &ChatArgs, kept: Option<&Kept>) -> PlaceRequest {
    let own = || kept.map(|kept| kept.key.as_str().to_owned());
    let session = args.session.clone().or_else(own);
    PlaceRequest { backend: args.backend, session, ..PlaceRequest::default() }
}

/// It also goes on in its own directory, from wherever it is resumed, as long as that is there.
fn session_settings(config: &Config, place: &PlaceRequest, kept: Option<&Kept>) -> Config {
    let mut config = config.clone();
    let is_here = place.backend.unwrap_or(config.terminal.backend) == BackendName::Local;
    if let Some(cwd) = kept.and_then(|kept| kept.cwd.as_ref())
        && (!is_here || Path::new(cwd).is_dir())
    {
        config.terminal.cwd.clone_from(cwd);
    }
    config
}

fn view_mode(context: &Context, config: &Config, task: &ChatTask) -> ViewMode {
    let surface = match io::stdout().is_terminal() && io::stderr().is_terminal() {
        false => OutputKind::Pipe,
        true if is_dumb(context) => OutputKind::Dumb,
        true => OutputKind::Terminal,
    };
    let is_script = !matches!(task, ChatTask::Interactive) && !io::stdout().is_terminal();
    ViewMode {
        surface,
        answer: match is_script || context.screen.format == OutputFormat::Json {
            true => AnswerDisplay::Withheld,
            false => AnswerDisplay::Streamed,
        },
        thoughts: if config.display.show_reasoning {
            ReasoningDisplay::Shown
        } else {
            ReasoningDisplay::Hidden
        },
    }
}

fn is_dumb(context: &Context) -> bool {
    context.variable("TERM").is_none_or(|term| term == "dumb")
}

/// One turn, and what is left of an earlier one before it.
async fn run_single_turn(
    talk: &mut Repl<'_>,
    kept: Option<Kept>,
    saying: Option<UserInput>,
) -> Result<ChatResult, Failure> {
    if let Some(failure) = talk.failure() {
        return Err(failure);
    }
    let mut last = None;
    if let Some(kept) = kept {
        talk.resume(kept).await?;
        last = match talk.resume_turn().await? {
            TurnOutcome::Abandoned => return Ok(ChatResult::interrupted()),
            TurnOutcome::Ended(ended) => Some(ended),
            TurnOutcome::NoTurn => None,
        };
    }
    let was_stopped = matches!(&last, Some(ended) if ended.stop_reason == StopReason::Interrupted);
    if let (Some(saying), false) = (saying, was_stopped) {
        last = match talk.send_message(saying).await? {
            TurnOutcome::Abandoned => return Ok(ChatResult::interrupted()),
            TurnOutcome::Ended(ended) => Some(ended),
            TurnOutcome::NoTurn => None,
        };
    }
    match last {
        Some(ended) => Ok(ChatResult::finished(report::report(talk, &ended)?)),
        None => Err(Failure::new(FailureKind::Usage, "this conversation has no interrupted turn")
            .hint("Use `-q TEXT` to send a message.")),
    }
}

/// Message after message, until somebody leaves.
async fn run_interactive(talk: &mut Repl<'_>, kept: Option<Kept>) -> Result<ChatResult, Failure> {
    let context = talk.context();
    let _terminal = terminal::TerminalGuard::new()?;
    let mut editor = match is_dumb(context) || !io::stdout().is_terminal() || !io::stderr().is_terminal() {
        true => Editor::read_plain_line(context.screen),
        false => Editor::full(context.home.path(), context.screen),
    };
    talk.print_welcome();
    if let Some(kept) = kept {
        talk.resume(kept).await?;
        talk.print_recap();
        if talk.failure().is_none() && matches!(talk.resume_turn().await?, TurnOutcome::Abandoned) {
            return Ok(ChatResult::interrupted());
        }
    }
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut cleared = false;
    // What happened while a message was typed is said after it.
    let mut held = Vec::new();
    while !talk.input().is_leaving() {
        let said = match talk.input().next_queued() {
            Some(text) => {
                talk.input().view().print_note(&format!("> {}", one_line(&text, MAX_ECHO_CHARS)));
                InputLine::Message(text)
            }
            None => {
                let hands = Arc::clone(talk.tools());
                let notice = hands.has_subscriptions().then(|| hands.next_process_event());
                let entered = tokio::select! {
                    entered = editor.next_event(notice) => entered?,
                    _ = terminated.recv() => EditorEvent::End,
                    _ = hung_up.recv() => EditorEvent::End,
                };
                if !matches!(entered, EditorEvent::Notice(_, PromptContent::Text)) {
                    talk.input().push_back(held.drain(..));
                }
                match entered {
                    EditorEvent::Line(line) => slash::parse_line(&line),
                    EditorEvent::LineAndNotice(line, text) => {
                        talk.input().push_back([text]);
                        slash::parse_line(&line)
                    }
                    EditorEvent::Notice(text, PromptContent::Empty) => {
                        talk.input().push_back([text]);
                        continue;
                    }
                    EditorEvent::Notice(text, PromptContent::Text) => {
                        let told = format!("{}  (said after your message)", one_line(&text, MAX_ECHO_CHARS));
                        talk.input().print_quiet(&told);
                        held.push(text);
                        continue;
                    }
                    EditorEvent::Interrupted if cleared => break,
                    EditorEvent::Interrupted => {
                        cleared = true;
                        talk.input()
                            .view()
                            .print_note(&context.screen.paint(Tone::Quiet, "press Ctrl-C again to quit"));
                        continue;
                    }
                    EditorEvent::End => break,
                }
            }
        };
        cleared = false;
        let turned = match said {
            InputLine::Empty => TurnOutcome::NoTurn,
            InputLine::Invalid(why) => {
                talk.input().view().print_note(&why);
                TurnOutcome::NoTurn
            }
            InputLine::Message(text) => talk.send_message(text.as_str().into()).await?,
            InputLine::Shell(command) => shell_command::run(talk, &command).await?,
            InputLine::Slash(SlashCommand::Quit) => break,
            InputLine::Slash(slash) => talk.run_command(slash).await?,
        };
        if matches!(turned, TurnOutcome::Abandoned) {
            talk.print_farewell().await;
            return Ok(ChatResult::interrupted());
        }
    }
    talk.print_farewell().await;
    Ok(ChatResult::finished(ExitCode::SUCCESS))
}
