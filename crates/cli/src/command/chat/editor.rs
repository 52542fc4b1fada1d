//! The prompt: a line with editing and history where the terminal can, a plain one elsewhere.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use reedline::{
    ColumnarMenu, DefaultCompleter, EditCommand, Emacs, FileBackedHistory, KeyCode, KeyModifiers,
    MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline,
    ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator, default_emacs_keybindings,
};

use super::slash;
use crate::failure::Failure;
use crate::keyboard::Keyboard;
use crate::screen::Screen;

/// Lines that are remembered.
const REMEMBERED: usize = 2_000;
/// The file they are in.
const HISTORY: &str = "chat_history";
const MENU: &str = "commands";

/// What came of asking for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entered {
    Line(String),
    /// Ctrl-C.
    Cleared,
    /// Ctrl-D, or nobody is there any more.
    End,
}

/// Where messages are typed.
pub(super) enum Editor {
    /// With editing and history. It is away while somebody types.
    Full(Option<Box<Reedline>>),
    /// As the terminal itself does it.
    Plain(Screen),
}

impl Editor {
    /// One that edits, with the history of this home.
    pub(super) fn full(home: &Path, screen: Screen) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete =
            ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline);
        // So ends a line that was typed before the editor was there.
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), ReedlineEvent::Enter);
        let mut completer = DefaultCompleter::with_inclusions(&['/']);
        completer.insert(slash::names().collect());
        let menu = ColumnarMenu::default().with_name(MENU);
        let editor = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(screen.has_colors())
            .with_validator(Box::new(TrailingBackslash))
            .with_completer(Box::new(completer))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_edit_mode(Box::new(Emacs::new(keys)));
        let editor = match history(home) {
            Ok(history) => editor.with_history(Box::new(history)),
            Err(error) => {
                screen.warn(&format!("what you type is not remembered: {error}"));
                editor
            }
        };
        Self::Full(Some(Box::new(editor)))
    }

    /// Waits for a message.
    pub(super) async fn message(&mut self) -> Result<Entered, Failure> {
        match self {
            Self::Plain(screen) => {
                screen.prompt(">");
                plain().await
            }
            Self::Full(editor) => {
                let Some(mut away) = editor.take() else { return Ok(Entered::End) };
                let typing = tokio::task::spawn_blocking(move || {
                    let signal = away.read_line(&Mark);
                    // Whoever is killed later has typed this all the same.
                    if let Err(error) = away.sync_history() {
                        tracing::warn!(%error, "what was typed could not be kept");
                    }
                    (away, signal)
                });
                let (back, signal) = typing.await.map_err(io::Error::other)?;
                *editor = Some(back);
                Ok(match signal {
                    Ok(Signal::Success(line)) => Entered::Line(joined(&line)),
                    Ok(Signal::CtrlC) => Entered::Cleared,
                    Ok(_) => Entered::End,
                    Err(error) => return Err(io::Error::other(error).into()),
                })
            }
        }
    }
}

/// A message as a plain terminal gives it, over several lines if they end in a backslash.
async fn plain() -> Result<Entered, Failure> {
    let mut keyboard = Keyboard::open()?;
    let mut text = String::new();
    loop {
        let line = tokio::select! {
            line = keyboard.line() => line?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Entered::Cleared);
            }
        };
        match line {
            None if text.is_empty() => return Ok(Entered::End),
            None => return Ok(Entered::Line(joined(&text))),
            Some(line) => {
                let goes_on = line.ends_with('\\');
                text.push_str(&line);
                if !goes_on {
                    return Ok(Entered::Line(joined(&text)));
                }
                text.push('\n');
            }
        }
    }
}

/// The text without the backslashes that only said that it goes on.
fn joined(text: &str) -> String {
    text.replace("\\\n", "\n")
}

/// The lines of earlier chats, which nobody else may read.
fn history(home: &Path) -> io::Result<FileBackedHistory> {
    let path = home.join(HISTORY);
    fs::create_dir_all(home)?;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    FileBackedHistory::with_file(REMEMBERED, path).map_err(io::Error::other)
}

/// A line goes on after a backslash.
struct TrailingBackslash;

impl Validator for TrailingBackslash {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

/// What stands before the line.
struct Mark;

impl Prompt for Mark {
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
