//! The prompt: with editing and history where the terminal supports it, else a plain line.

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
use crate::Result;
use crate::keyboard::{Keyboard, or_pending};
use crate::screen::{ERASE_LINE, Screen, write_stderr};
use hermes_types::create_private_dir;

const MAX_HISTORY_LINES: usize = 2_000;
const HISTORY_FILE: &str = "chat_history";
const COMPLETION_MENU: &str = "commands";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditorEvent {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the terminal is closed.
    End,
    /// A notice arrived before the line was complete. The text stays for the next time.
    Paused {
        has_text: bool,
    },
}

/// Something that happens while a line is edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// An event of a process, for the model.
    Process(String),
    /// A text of a background task, for the person.
    Background(String),
}

pub(super) enum Editor {
    Full {
        /// Absent while a thread reads a line.
        line: Option<Box<Reedline>>,
        /// Makes the thread return early.
        interrupt: Arc<AtomicBool>,
    },
    /// Lines edited by the terminal itself.
    Plain {
        screen: Screen,
        /// Lines of a message that continues on the next line.
        partial: String,
    },
}

impl Editor {
    /// An editor with the history of this home.
    pub(super) fn full(home: &Path, screen: Screen) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(COMPLETION_MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline);
        // Ends a line that was typed before the editor was ready.
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), ReedlineEvent::Enter);
        let mut completer = DefaultCompleter::with_inclusions(&['/']);
        completer.insert(line::command_names());
        let menu = ColumnarMenu::default().with_name(COMPLETION_MENU);
        let editor = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(screen.colors)
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
        Self::Full { line: Some(Box::new(editor)), interrupt: Arc::default() }
    }

    pub(super) fn plain(screen: Screen) -> Self {
        Self::Plain { screen, partial: String::new() }
    }

    /// Waits for a line or a notice. Both may come at the same moment.
    pub(super) async fn next_event(
        &mut self,
        notice: Option<impl Future<Output = Notice>>,
    ) -> Result<(EditorEvent, Option<Notice>)> {
        let can_be_noticed = notice.is_some();
        let noticed = or_pending(notice);
        match self {
            Self::Plain { screen, partial } => {
                screen.prompt(">");
                tokio::select! {
                    entered = read_plain_line(partial) => Ok((entered?, None)),
                    notice = noticed => {
                        write_stderr("\n");
                        Ok((EditorEvent::Paused { has_text: !partial.is_empty() }, Some(notice)))
                    }
                }
            }
            Self::Full { line: editor, interrupt } => {
                let Some(mut line) = editor.take() else { return Ok((EditorEvent::End, None)) };
                if can_be_noticed {
                    // The editor then polls the flag ten times a second.
                    *line = line.with_break_signal(Arc::clone(interrupt));
                }
                let mut typing = tokio::task::spawn_blocking(move || {
                    let signal = line.read_line(&ChatPrompt);
                    // Now, because the process may be killed later.
                    if let Err(error) = line.sync_history() {
                        tracing::warn!(%error, "cannot save the input history");
                    }
                    (line, signal)
                });
                let (typed, notice) = tokio::select! {
                    typed = &mut typing => (typed, None),
                    notice = noticed => {
                        interrupt.store(true, Ordering::Relaxed);
                        let typed = typing.await;
                        interrupt.store(false, Ordering::Relaxed);
                        (typed, Some(notice))
                    }
                };
                let (line, signal) = typed.map_err(io::Error::other)?;
                *editor = Some(line);
                let event = match signal.map_err(io::Error::other)? {
                    Signal::ExternalBreak(half) if half.is_empty() => {
                        write_stderr(ERASE_LINE);
                        EditorEvent::Paused { has_text: false }
                    }
                    Signal::ExternalBreak(_) => {
                        write_stderr("\n");
                        EditorEvent::Paused { has_text: true }
                    }
                    Signal::Success(line) => EditorEvent::Line(join_continued(&line)),
                    Signal::CtrlC if notice.is_some() => EditorEvent::Paused { has_text: false },
                    Signal::CtrlC => EditorEvent::Interrupted,
                    _ => EditorEvent::End,
                };
                Ok((event, notice))
            }
        }
    }
}

/// Reads a line, or several if they end in a backslash.
async fn read_plain_line(text: &mut String) -> Result<EditorEvent> {
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
                let is_continued = line.ends_with('\\');
                text.push_str(&line);
                if !is_continued {
                    return Ok(EditorEvent::Line(join_continued(&std::mem::take(text))));
                }
                text.push('\n');
            }
        }
    }
}

/// Removes the backslashes that continue a line.
fn join_continued(text: &str) -> String {
    text.replace("\\\n", "\n")
}

/// Opens the history file, readable only by its owner.
fn open_history(home: &Path) -> io::Result<FileBackedHistory> {
    let path = home.join(HISTORY_FILE);
    create_private_dir(home)?;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    FileBackedHistory::with_file(MAX_HISTORY_LINES, path).map_err(io::Error::other)
}

/// Continues a line after a backslash.
struct BackslashValidator;

impl Validator for BackslashValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

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
        Cow::Owned(format!("(history search: `{}`{found}) ", search.term))
    }
}
