//! `hermes chat`: talking to the agent.
//!
//! `talk.rs` is the conversation itself, `seat.rs` what can be typed while an answer comes, `editor.rs` the prompt,
//! `slash.rs` what can be typed besides messages, and `place.rs` commands that the person runs.

mod editor;
mod opening;
mod pictures;
mod place;
mod report;
mod seat;
mod slash;
mod talk;

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::{Album, Approver, StopReason, ToolContext, UserInput};
use hermes_store::{SessionRow as Kept, Viewer};
use hermes_types::{Attendance, BackendName, EntryPoint};
use tokio::signal::unix::{SignalKind, signal};

use crate::Context;
use crate::args::ChatArgs;
use crate::ask::{Consent, owner};
use crate::command::config::settings;
use crate::people::Desk;
use crate::place::leave;
use crate::screen::{Format, Tone, one_line};
use crate::stage::{Answer, Manner, Stage, Surface, Thoughts};
use crate::terminal;
use editor::{Editor, Entered, Typed};
use hermes_config::failure::{Failure, Kind};
use hermes_config::keys::Config;
use hermes_config::resolve::PlaceRequest;
use hermes_config::resolve::agent::{self, Stock, Visitor};
use hermes_config::resolve::{self, Making, Session};
use seat::{Ears, Seat};
use slash::{Said, Slash};
use talk::{Talk, Turned};

/// The longest message that is read from a pipe.
const LONGEST: u64 = 16 << 20;
/// Characters of a message that are shown when it is said.
const SHOWN: usize = 200;

pub(crate) fn run(args: &ChatArgs, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(chat(args, context, config));
    // Somebody may still be reading the keyboard.
    runtime.shutdown_background();
    code
}

/// What there is to do.
enum Task {
    /// To answer this, with the pictures that are named.
    One(String),
    /// To go on where something was interrupted.
    CarryOn,
    /// To talk.
    Talk,
}

async fn chat(args: &ChatArgs, context: &Context, config: &Config) -> Result<ExitCode, Failure> {
    let task = task(args, context)?;
    let store = resolve::store::open(context).await?;
    let album = Album::new(context.home.path());
    let old = album.clone();
    tokio::task::spawn_blocking(move || old.forget());
    let kept = match &args.resume {
        Some(word) => Some(store.resolve_session(&Viewer::Owner, word).await.map_err(resolve::store::told)?),
        None => None,
    };
    let place = place_of(args, kept.as_ref());
    let config = &settings_of(config, &place, kept.as_ref());
    let session = Session::new(&place, config)?;
    let plan = resolve::plan(context, config, &place, &session, Making::Later)?;
    let saying = match &task {
        Task::One(text) => Some(pictures::shown(text, &args.images, &album, plan.backend_name()).await?),
        Task::CarryOn | Task::Talk => None,
    };
    let stage = Arc::new(Stage::new(context.screen, manner(context, config, &task)));
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    let desk = Arc::new(Desk::new(context.screen, Arc::clone(&stage), consent));
    let attendance = match args.yes || desk.is_attended() {
        true => Attendance::Attended(vec![owner()]),
        false => Attendance::Unattended,
    };
    let ask = Arc::clone(&desk) as Arc<dyn Approver>;
    let visitor = Visitor { person: owner(), door: EntryPoint::Cli, attendance, ask };
    let setup = agent::setup(&Stock::new(context, config), config, plan.clone(), visitor, store.clone());
    let ears = if matches!(task, Task::Talk) { Ears::Open } else { Ears::ForAnswers };
    let seat = Seat::new(context, stage, desk, ears);
    let mut talk = Talk::new(context, config, args, seat, setup);
    let done = match task {
        Task::Talk => converse(&mut talk, kept).await,
        Task::One(_) | Task::CarryOn => once(&mut talk, kept, saying).await,
    };
    let hands = talk.leave(done.as_ref().is_ok_and(|done| done.is_over)).await;
    if hands.as_ref().is_some_and(ToolContext::has_open_place) {
        let reaper = resolve::places(context, config).start_reaper(plan.engine_access());
        leave(context, &place, &plan, &session, hands).await?;
        // What it could not remove the next one tries again.
        if let Err(error) = reaper.finish().await {
            tracing::warn!(%error, "leftovers of places could not be removed");
        }
    }
    store.close().await;
    done.map(|done| done.code)
}

/// How a chat ended.
struct Done {
    code: ExitCode,
    /// Whether nothing is left to be carried on.
    is_over: bool,
}

impl Done {
    fn over(code: ExitCode) -> Self {
        Self { code, is_over: true }
    }

    /// Somebody could not wait.
    fn left() -> Self {
        Self { code: ExitCode::from(130), is_over: false }
    }
}

fn task(args: &ChatArgs, context: &Context) -> Result<Task, Failure> {
    let text = match &args.query {
        Some(text) => text.clone(),
        None if io::stdin().is_terminal() && !args.images.is_empty() => String::new(),
        None if io::stdin().is_terminal() && context.screen.format == Format::Text => return Ok(Task::Talk),
        None if io::stdin().is_terminal() => String::new(),
        None => {
            let mut text = String::new();
            io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
            text
        }
    };
    match (text.trim().is_empty() && args.images.is_empty(), &args.resume) {
        (false, _) => Ok(Task::One(text)),
        (true, Some(_)) => Ok(Task::CarryOn),
        (true, None) => Err(Failure::new(Kind::Usage, "nothing was said")
            .hint("`hermes chat -q TEXT` says something, and so does a pipe: `echo TEXT | hermes chat`")
            .hint("in a terminal, `hermes` alone begins a chat")),
    }
}

/// A conversation goes on in its own place.
fn place_of(args: &ChatArgs, kept: Option<&Kept>) -> PlaceRequest {
    let own = || kept.map(|kept| kept.key.as_str().to_owned());
    let session = args.session.clone().or_else(own);
    PlaceRequest { backend: args.backend, session, ..PlaceRequest::default() }
}

/// It also goes on in its own directory, from wherever it is resumed, as long as that is there.
fn settings_of(config: &Config, place: &PlaceRequest, kept: Option<&Kept>) -> Config {
    let mut config = config.clone();
    let is_here = place.backend.unwrap_or(config.terminal.backend) == BackendName::Local;
    if let Some(cwd) = kept.and_then(|kept| kept.cwd.as_ref())
        && (!is_here || Path::new(cwd).is_dir())
    {
        config.terminal.cwd.clone_from(cwd);
    }
    config
}

fn manner(context: &Context, config: &Config, task: &Task) -> Manner {
    let surface = match io::stdout().is_terminal() && io::stderr().is_terminal() {
        false => Surface::Pipe,
        true if is_dumb(context) => Surface::Dumb,
        true => Surface::Terminal,
    };
    let is_script = !matches!(task, Task::Talk) && !io::stdout().is_terminal();
    Manner {
        surface,
        answer: match is_script || context.screen.format == Format::Json {
            true => Answer::Elsewhere,
            false => Answer::AsItComes,
        },
        thoughts: if config.display.show_reasoning { Thoughts::Shown } else { Thoughts::Hidden },
    }
}

fn is_dumb(context: &Context) -> bool {
    context.variable("TERM").is_none_or(|term| term == "dumb")
}

/// One turn, and what is left of an earlier one before it.
async fn once(talk: &mut Talk<'_>, kept: Option<Kept>, saying: Option<UserInput>) -> Result<Done, Failure> {
    if let Some(failure) = talk.failure() {
        return Err(failure);
    }
    let mut last = None;
    if let Some(kept) = kept {
        talk.resume(kept).await?;
        last = match talk.carry_on().await? {
            Turned::Left => return Ok(Done::left()),
            Turned::Ended(ended) => Some(ended),
            Turned::Nothing => None,
        };
    }
    let was_stopped = matches!(&last, Some(ended) if ended.stop_reason == StopReason::Interrupted);
    if let (Some(saying), false) = (saying, was_stopped) {
        last = match talk.say(saying).await? {
            Turned::Left => return Ok(Done::left()),
            Turned::Ended(ended) => Some(ended),
            Turned::Nothing => None,
        };
    }
    match last {
        Some(ended) => Ok(Done::over(report::report(talk, &ended)?)),
        None => Err(Failure::new(Kind::Usage, "this conversation has nothing left to be carried on")
            .hint("`-q TEXT` says something in it")),
    }
}

/// Message after message, until somebody leaves.
async fn converse(talk: &mut Talk<'_>, kept: Option<Kept>) -> Result<Done, Failure> {
    let context = talk.context();
    let _terminal = terminal::Kept::new()?;
    let mut editor = match is_dumb(context) || !io::stdout().is_terminal() || !io::stderr().is_terminal() {
        true => Editor::plain(context.screen),
        false => Editor::full(context.home.path(), context.screen),
    };
    talk.welcome();
    if let Some(kept) = kept {
        talk.resume(kept).await?;
        talk.recap();
        if talk.failure().is_none() && matches!(talk.carry_on().await?, Turned::Left) {
            return Ok(Done::left());
        }
    }
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut cleared = false;
    // What happened while a message was typed is said after it.
    let mut held = Vec::new();
    while !talk.seat().is_leaving() {
        let said = match talk.seat().next() {
            Some(text) => {
                talk.seat().stage().note(&format!("> {}", one_line(&text, SHOWN)));
                Said::Message(text)
            }
            None => {
                let hands = Arc::clone(talk.hands());
                let notice = hands.has_subscriptions().then(|| hands.next_process_event());
                let entered = tokio::select! {
                    entered = editor.message(notice) => entered?,
                    _ = terminated.recv() => Entered::End,
                    _ = hung_up.recv() => Entered::End,
                };
                if !matches!(entered, Entered::Noticed(_, Typed::Something)) {
                    talk.seat().last(held.drain(..));
                }
                match entered {
                    Entered::Line(line) => slash::read(&line),
                    Entered::Both(line, text) => {
                        talk.seat().last([text]);
                        slash::read(&line)
                    }
                    Entered::Noticed(text, Typed::Nothing) => {
                        talk.seat().last([text]);
                        continue;
                    }
                    Entered::Noticed(text, Typed::Something) => {
                        let told = format!("{}  (said after your message)", one_line(&text, SHOWN));
                        talk.seat().quiet(&told);
                        held.push(text);
                        continue;
                    }
                    Entered::Cleared if cleared => break,
                    Entered::Cleared => {
                        cleared = true;
                        talk.seat().stage().note(&context.screen.paint(Tone::Quiet, "Ctrl-C again leaves"));
                        continue;
                    }
                    Entered::End => break,
                }
            }
        };
        cleared = false;
        let turned = match said {
            Said::Nothing => Turned::Nothing,
            Said::Wrong(why) => {
                talk.seat().stage().note(&why);
                Turned::Nothing
            }
            Said::Message(text) => talk.say(text.as_str().into()).await?,
            Said::Shell(command) => place::run(talk, &command).await?,
            Said::Slash(Slash::Quit) => break,
            Said::Slash(slash) => talk.obey(slash).await?,
        };
        if matches!(turned, Turned::Left) {
            talk.farewell().await;
            return Ok(Done::left());
        }
    }
    talk.farewell().await;
    Ok(Done::over(ExitCode::SUCCESS))
}
