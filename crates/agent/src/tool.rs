//! The tools a model can call.
//!
//! What a tool is called, what it takes and what it answers are those of the Python program, so that prompts, skills and
//! habits carry over.

pub(crate) mod ansi;
mod clarify;
pub mod execute_code;
pub(crate) mod file_state;
mod files;
mod patch;
pub(crate) mod process;
mod read_file;
mod search_files;
pub mod terminal;
mod text;
pub mod todo;
mod transfer;
pub(crate) mod truncate;
mod web_fetch;
mod write_file;

use std::borrow::Cow;
use std::fmt;

use hermes_exec::Error;
use hermes_policy::redact::Redactor;
use hermes_store::{SessionId, TurnId};
use hermes_types::{CallId, ToolSpec};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use transfer::{ExportPolicy, IMPORT_DIR, TransferError};

use crate::{Denied, ToolContext, TurnObserver};

/// Every tool there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Runs a command.
    Terminal,
    /// Looks after commands in the background.
    Process,
    /// Reads a file.
    ReadFile,
    /// Writes a file.
    WriteFile,
    /// Changes files.
    Patch,
    /// Searches files.
    SearchFiles,
    /// Fetches a page of the web.
    WebFetch,
    /// Runs a Python program that can call tools.
    ExecuteCode,
    /// Keeps a list of what is to be done.
    Todo,
    /// Asks the person.
    Clarify,
}

/// What a call touches. Calls that touch nothing in common may run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effects {
    /// It looks, at no file of the place that others could change, or does not care.
    None,
    /// It reads this path of the place, and what is below.
    Reads(String),
    /// It changes this path of the place.
    Writes(String),
    /// It may do anything in the place.
    Everything,
    /// It takes a person's attention, so that it is alone.
    Exclusive,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// What the model is told, an object.
    pub content: Value,
    /// Whether it worked, as far as people are shown.
    pub succeeded: bool,
    /// Whether the turn is over.
    pub ends_turn: bool,
}

/// One call, on its way.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Which call it is.
    pub call_id: &'a CallId,
    /// Ends it early. What it has done so far is told.
    pub stop: &'a CancellationToken,
    /// The turn it belongs to, if it belongs to one.
    pub turn: Option<&'a TurnRef>,
    /// Who is told how far it is.
    pub observer: TurnObserver<'a>,
}

impl fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scene").field("call", self.call_id).finish_non_exhaustive()
    }
}

/// The turn of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRef {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub id: TurnId,
    /// Whether it began before hermes was restarted, so that the call may have asked somebody already.
    pub is_resumed: bool,
}

impl Tool {
    /// All of them, in the order in which a model sees them.
    pub const ALL: [Self; 10] = [
        Self::Terminal,
        Self::Process,
        Self::ReadFile,
        Self::WriteFile,
        Self::Patch,
        Self::SearchFiles,
        Self::WebFetch,
        Self::ExecuteCode,
        Self::Todo,
        Self::Clarify,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Process => "process",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::Patch => "patch",
            Self::SearchFiles => "search_files",
            Self::WebFetch => "web_fetch",
            Self::ExecuteCode => "execute_code",
            Self::Todo => "todo",
            Self::Clarify => "clarify",
        }
    }

    /// The tool with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// What a model is told about it.
    pub fn spec(self) -> ToolSpec {
        let (description, parameters) = match self {
            Self::Terminal => terminal::spec(),
            Self::Process => process::spec(),
            Self::ReadFile => read_file::spec(),
            Self::WriteFile => write_file::spec(),
            Self::Patch => patch::spec(),
            Self::SearchFiles => search_files::spec(),
            Self::WebFetch => web_fetch::spec(),
            Self::ExecuteCode => execute_code::spec(),
            Self::Todo => todo::spec(),
            Self::Clarify => clarify::spec(),
        };
        ToolSpec { name: self.name().to_owned(), description: description.to_owned(), parameters }
    }

    /// What a call with these arguments touches.
    pub fn effects(self, arguments: &Map<String, Value>) -> Effects {
        let path =
            |default: &str| arguments.get("path").and_then(Value::as_str).unwrap_or(default).to_owned();
        match self {
            Self::Process if process::is_read_only(arguments) => Effects::None,
            Self::Terminal | Self::Process | Self::ExecuteCode => Effects::Everything,
            Self::ReadFile => Effects::Reads(path("")),
            Self::SearchFiles => Effects::Reads(path(".")),
            // A patch of its own format names its files itself.
            Self::Patch if arguments.contains_key("patch") => Effects::Everything,
            Self::WriteFile | Self::Patch => Effects::Writes(path("")),
            Self::WebFetch => Effects::None,
            Self::Todo | Self::Clarify => Effects::Exclusive,
        }
    }
}

impl Effects {
    /// Whether two calls can be under way at once without one noticing the other.
    pub fn is_parallel_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => false,
            (Self::None, _) | (_, Self::None) => true,
            (Self::Everything, _) | (_, Self::Everything) => false,
            (Self::Reads(_), Self::Reads(_)) => true,
            (Self::Reads(one) | Self::Writes(one), Self::Reads(other) | Self::Writes(other)) => {
                are_disjoint(one, other)
            }
        }
    }
}

/// Whether two paths lead to files of which neither is above the other, by their words alone. Where the words do not say
/// it, they may not be.
fn are_disjoint(one: &str, other: &str) -> bool {
    let (Some((root, one)), Some((other_root, other))) = (path_components(one), path_components(other))
    else {
        return false;
    };
    let is_within = |path: &[&str], above: &[&str]| path.starts_with(above);
    root == other_root && !is_within(&one, &other) && !is_within(&other, &one)
}

/// The names in a path, and whether it begins at the root; none for one that leads to an unknown directory first.
fn path_components(path: &str) -> Option<(bool, Vec<&str>)> {
    let is_absolute = path.starts_with('/');
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." if is_absolute => drop(names.pop()),
            ".." => drop(names.pop()?),
            name if name.starts_with('~') && names.is_empty() && !is_absolute => return None,
            name => names.push(name),
        }
    }
    Some((is_absolute, names))
}

/// Why a tool got nothing of the place.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It may not.
    Denied(Denied),
    /// Something is wrong with the place.
    Exec(Error),
    /// Somebody stopped it.
    Interrupted,
}

impl From<CallError> for ToolResult {
    fn from(stopped: CallError) -> Self {
        match stopped {
            CallError::Denied(no) => Self::denied(&no),
            CallError::Exec(error) => Self::error(error),
            CallError::Interrupted => Self::error("interrupted"),
        }
    }
}

impl ToolResult {
    /// An answer that shows what was done.
    pub fn success(answer: Value) -> Self {
        Self { content: answer, succeeded: true, ends_turn: false }
    }

    /// An answer about something that did not work.
    pub fn failure(answer: Value) -> Self {
        Self { content: answer, succeeded: false, ends_turn: false }
    }

    /// An answer that only says what went wrong.
    pub fn error(what: impl std::fmt::Display) -> Self {
        Self::failure(json!({"error": what.to_string()}))
    }

    /// Whether it was not allowed.
    pub fn is_denied(&self) -> bool {
        self.content.get("status").is_some_and(|status| status == "blocked")
    }

    /// An answer to what was not allowed.
    pub fn denied(no: &Denied) -> Self {
        let answer = json!({"status": "blocked", "error": format!("not allowed: {no}")});
        Self { content: answer, succeeded: false, ends_turn: matches!(no, Denied::EndOfTurn(_)) }
    }
}

impl ToolContext {
    /// Does what a model asked for. Whatever goes wrong is told to the model.
    pub async fn call_tool(
        &self,
        tool: Tool,
        arguments: Map<String, Value>,
        scene: CallContext<'_>,
    ) -> ToolResult {
        let mut done = match tool {
            Tool::Terminal => terminal::call(self, arguments, scene).await,
            Tool::Process => process::call(self, arguments, scene).await,
            Tool::ReadFile => read_file::call(self, arguments, scene).await,
            Tool::WriteFile => write_file::call(self, arguments, scene).await,
            Tool::Patch => patch::call(self, arguments, scene).await,
            Tool::SearchFiles => search_files::call(self, arguments, scene).await,
            Tool::WebFetch => web_fetch::call(self, arguments, scene).await,
            Tool::ExecuteCode => execute_code::call(self, arguments, scene).await,
            Tool::Todo => todo::call(self, arguments),
            Tool::Clarify => clarify::call(self, arguments, scene).await,
        };
        redact_value(&mut done.content, &self.config().redactor);
        // A part of a file that was asked for is not put into another file.
        if tool != Tool::ReadFile {
            truncate::truncate_result(self, &mut done, scene).await;
        }
        done
    }
}

/// Takes the secrets out of every text in an answer. Names are ours.
fn redact_value(answer: &mut Value, redactor: &Redactor) {
    match answer {
        Value::String(text) => {
            if let Cow::Owned(clean) = redactor.text(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(item, redactor)),
        Value::Object(fields) => fields.values_mut().for_each(|field| redact_value(field, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The arguments of a tool, or what is wrong with them.
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, ToolResult> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolResult::error(format!("arguments: {error}")))
}

/// The beginning of a text, so many characters of it.
pub(crate) fn truncate_chars(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_agree_unless_one_may_notice_the_other() {
        use Effects::{Everything, Exclusive, None};
        let reads = |path: &str| Effects::Reads(path.to_owned());
        let writes = |path: &str| Effects::Writes(path.to_owned());
        let cases = [
            (None, None, true),
            (None, Everything, true),
            (None, Exclusive, false),
            (Exclusive, Exclusive, false),
            (Everything, Everything, false),
            (Everything, reads("/a"), false),
            (reads("/a"), reads("/a"), true),
            (reads("/a"), writes("/a"), false),
            (reads("/a"), writes("/a/b"), false),
            (reads("/a/b"), writes("/a"), false),
            (reads("/"), writes("/a"), false),
            (writes("/a"), writes("/ab"), true),
            (writes("/a/b"), writes("/a/c"), true),
            (writes("a/b"), writes("a/c"), true),
            (writes("./a"), writes("a"), false),
            (writes("/x/../a"), writes("/a"), false),
            (writes("a"), writes("/b"), false),
            (writes("~/a"), writes("b"), false),
            (writes("../a"), writes("b"), false),
            (reads("."), writes("b"), false),
            (writes("a//b/"), reads("a/b/c"), false),
        ];
        for (one, other, agree) in cases {
            assert_eq!(one.is_parallel_with(&other), agree, "{one:?} {other:?}");
            assert_eq!(other.is_parallel_with(&one), agree, "{other:?} {one:?}");
        }
    }

    #[test]
    fn every_tool_is_found_by_its_name_and_describes_an_object() {
        for tool in Tool::ALL {
            assert_eq!(Tool::from_name(tool.name()), Some(tool));
            let spec = tool.spec();
            assert_eq!(spec.parameters["type"], "object", "{tool:?}");
            assert!(!spec.description.is_empty(), "{tool:?}");
        }
    }
}
