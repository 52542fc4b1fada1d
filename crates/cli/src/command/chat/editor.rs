//! The prompt: a line with editing and history where the terminal can, a plain one elsewhere.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reedline::{
    ColumnarMenu, DefaultCompleter, EditCommand, Emacs, FileBackedHistory, KeyCode, KeyModifiers,
    MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline,
    ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator, default_emacs_keybindings,
};

use super::line;
use crate::keyboard::Keyboard;
use crate::screen::Screen;
use hermes_config::failure::Failure;
use hermes_config::file::create_private_dir;

/// Lines that are remembered.
const MAX_HISTORY_LINES: usize = 2_000;
/// The file they are in.
const HISTORY_FILE: &str = "chat_history";
const COMPLETION_MENU: &str = "commands";
/// Back to the beginning of the line, which is made empty.
const ERASE_LINE: &str = "\r\u{1b}[K";

/// What came of asking for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditorEvent {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or nobody is there any more.
    End,
    /// A message, and something that happened in the same moment.
    LineAndNotice(String, Notice),
    /// Something happened meanwhile that is to be said.
    Notice(Notice, PromptContent),
}

/// Something that happens while a line is edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// An event of a process, for the model.
    Process(String),
    /// A text of a background task, for the person.
    Background(String),
}

/// Whether something stands at the prompt. It still does the next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptContent {
    Text,
    /// Nothing, as far as can be known.
    Empty,
}

/// Where messages are typed.
pub(super) enum Editor {
    /// With editing and history.
    Full {
        /// It is away while somebody types.
        line: Option<Box<Reedline>>,
        /// Makes it come back early.
        back: Arc<AtomicBool>,
        screen: Screen,
    },
    /// As the terminal itself does it.
    Plain {
        screen: Screen,
        /// Lines of a message that goes on.
        begun: String,
    },
}

impl Editor {
    /// One that edits, with the history of this home.
    pub(super) fn full(home: &Path, screen: Screen) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(COMPLETION_MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline);
        // So ends a line that was typed before the editor was there.
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), ReedlineEvent::Enter);
        let mut completer = DefaultCompleter::with_inclusions(&['/']);
        completer.insert(line::command_names());
        let menu = ColumnarMenu::default().with_name(COMPLETION_MENU);
        let editor = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(screen.has_colors())
            .with_validator(Box::new(BackslashValidator))
            .with_completer(Box::new(completer))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_edit_mode(Box::new(Emacs::new(keys)));
        let editor = match open_history(home) {
            Ok(history) => editor.with_history(Box::new(history)),
            Err(error) => {
                screen.warn(&format!("cannot keep the input history: {error}"));
                editor
            }
        };
        Self::Full { line: Some(Box::new(editor)), back: Arc::default(), screen }
    }

    /// One without.
    pub(super) fn read_plain_line(screen: Screen) -> Self {
        Self::Plain { screen, begun: String::new() }
    }

    /// Waits for a message, or for something else that is to be said, if there can be such a thing.
    pub(super) async fn next_event(
        &mut self,
        notice: Option<impl Future<Output = Notice>>,
    ) -> Result<EditorEvent, Failure> {
        let can_be_noticed = notice.is_some();
        let noticed = async {
            match notice {
                Some(notice) => notice.await,
                None => std::future::pending().await,
            }
        };
        match self {
            Self::Plain { screen, begun } => {
                screen.prompt(">");
                tokio::select! {
                    entered = plain(begun) => entered,
                    text = noticed => {
                        screen.write_stderr("\n");
                        let typed = if begun.is_empty() { PromptContent::Empty } else { PromptContent::Text };
                        Ok(EditorEvent::Notice(text, typed))
                    }
                }
            }
            Self::Full { line: editor, back, screen } => {
                let Some(mut away) = editor.take() else { return Ok(EditorEvent::End) };
                if can_be_noticed {
                    // It looks ten times a second whether it is called back, so only where that may be.
                    *away = away.with_break_signal(Arc::clone(back));
                }
                let mut typing = tokio::task::spawn_blocking(move || {
                    let signal = away.read_line(&ChatPrompt);
                    // Whoever is killed later has typed this all the same.
                    if let Err(error) = away.sync_history() {
                        tracing::warn!(%error, "what was typed could not be kept");
                    }
                    (away, signal)
                });
                let (typed, told) = tokio::select! {
                    typed = &mut typing => (typed, None),
                    text = noticed => {
                        back.store(true, Ordering::Relaxed);
                        let typed = typing.await;
                        back.store(false, Ordering::Relaxed);
                        (typed, Some(text))
                    }
                };
                let (away, signal) = typed.map_err(io::Error::other)?;
                *editor = Some(away);
                Ok(match (signal, told) {
                    (Err(error), _) => return Err(io::Error::other(error).into()),
                    (Ok(Signal::ExternalBreak(half)), Some(text)) if half.is_empty() => {
                        screen.write_stderr(ERASE_LINE);
                        EditorEvent::Notice(text, PromptContent::Empty)
                    }
                    (Ok(Signal::ExternalBreak(_)), Some(text)) => {
                        screen.write_stderr("\n");
                        EditorEvent::Notice(text, PromptContent::Text)
                    }
                    (Ok(Signal::Success(line)), None) => EditorEvent::Line(join_continued(&line)),
                    (Ok(Signal::Success(line)), Some(text)) => {
                        EditorEvent::LineAndNotice(join_continued(&line), text)
                    }
                    (Ok(Signal::CtrlC), None) => EditorEvent::Interrupted,
                    (Ok(Signal::CtrlC), Some(text)) => EditorEvent::Notice(text, PromptContent::Empty),
                    (Ok(_), _) => EditorEvent::End,
                })
            }
        }
    }
}

/// A message as a plain terminal gives it, over several lines if they end in a backslash.
async fn plain(text: &mut String) -> Result<EditorEvent, Failure> {
    let mut keyboard = Keyboard::open()?;
    loop {
        let line = tokio::select! {
            line = keyboard.line() => line?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                text.clear();
                return Ok(EditorEvent::Interrupted);
            }
        };
        match line {
            None if text.is_empty() => return Ok(EditorEvent::End),
            None => return Ok(EditorEvent::Line(join_continued(&std::mem::take(text)))),
            Some(line) => {
                let goes_on = line.ends_with('\\');
                text.push_str(&line);
                if !goes_on {
                    return Ok(EditorEvent::Line(join_continued(&std::mem::take(text))));
                }
                text.push('\n');
            }
        }
    }
}

/// The text without the backslashes that only said that it goes on.
fn join_continued(text: &str) -> String {
    text.replace("\\\n", "\n")
}

/// The lines of earlier chats, which nobody else may read.
fn open_history(home: &Path) -> io::Result<FileBackedHistory> {
    let path = home.join(HISTORY_FILE);
    create_private_dir(home)?;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    FileBackedHistory::with_file(MAX_HISTORY_LINES, path).map_err(io::Error::other)
}

/// A line goes on after a backslash.
struct BackslashValidator;

impl Validator for BackslashValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

/// What stands before the line.
struct ChatPrompt;

impl Prompt for ChatPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("· ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let found = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => ", nothing found",
        };
        Cow::Owned(format!("(earlier lines with `{}`{found}) ", search.term))
    }
}
