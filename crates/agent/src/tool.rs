//! The tools a model can call, one file each.
//!
//! Names, parameters and results are those of the Python program, so that prompts, skills and habits
//! carry over.

mod clarify;
pub mod execute_code;
mod patch;
pub(crate) mod process;
mod read_file;
mod search_files;
mod terminal;
pub(crate) mod todo;
mod web_fetch;
mod write_file;

use std::borrow::Cow;
use std::fmt;

use hermes_policy::redact::Redactor;
use hermes_store::{SessionId, TurnId};
use hermes_types::{CallId, ToolSpec};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::tool_support::truncate;
use crate::{Denied, Error, ToolContext, TurnObserver};

/// Every tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    Terminal,
    /// Manages background commands.
    Process,
    ReadFile,
    WriteFile,
    Patch,
    SearchFiles,
    WebFetch,
    /// Runs a Python program that can call tools.
    ExecuteCode,
    Todo,
    Clarify,
}

/// The parts of the environment that a call touches. Calls that touch nothing in common may run in
/// parallel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effects {
    /// It changes nothing and depends on nothing that another call changes.
    None,
    /// It reads this path and everything below.
    Reads(String),
    /// It changes this path.
    Writes(String),
    /// It may do anything in the environment.
    Everything,
    /// It runs alone, because it takes the attention of a person.
    Exclusive,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The JSON object that the model sees.
    pub content: Value,
    /// Shown to people; the model reads `content`.
    pub succeeded: bool,
    pub ends_turn: bool,
}

/// One running call.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    pub call_id: &'a CallId,
    /// Stops the call early. The result says how far it came.
    pub stop: &'a CancellationToken,
    /// None for a call outside of a turn.
    pub turn: Option<&'a TurnRef>,
    pub observer: TurnObserver<'a>,
}

impl fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext").field("call_id", self.call_id).finish_non_exhaustive()
    }
}

/// The turn that a call belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRef {
    pub session: SessionId,
    pub id: TurnId,
    /// Whether the turn began before a restart, so that the call may have asked a question already.
    pub is_resumed: bool,
}

impl Tool {
    /// All tools, in the order in which a model sees them.
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

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The description and schema that the model sees.
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

    pub fn effects(self, arguments: &Map<String, Value>) -> Effects {
        let path =
            |default: &str| arguments.get("path").and_then(Value::as_str).unwrap_or(default).to_owned();
        match self {
            Self::Process if process::is_read_only(arguments) => Effects::None,
            Self::Terminal | Self::Process | Self::ExecuteCode => Effects::Everything,
            Self::ReadFile => Effects::Reads(path("")),
            Self::SearchFiles => Effects::Reads(path(".")),
            // A patch in the multi-file format names its files itself.
            Self::Patch if arguments.contains_key("patch") => Effects::Everything,
            Self::WriteFile | Self::Patch => Effects::Writes(path("")),
            Self::WebFetch => Effects::None,
            Self::Todo | Self::Clarify => Effects::Exclusive,
        }
    }
}

impl Effects {
    /// Whether two calls can run at once without one seeing effects of the other.
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

/// Whether neither path is at or above the other, judged by their text. When the text cannot tell,
/// the answer is no.
fn are_disjoint(one: &str, other: &str) -> bool {
    let (Some((root, one)), Some((other_root, other))) = (path_components(one), path_components(other))
    else {
        return false;
    };
    let is_within = |path: &[&str], above: &[&str]| path.starts_with(above);
    root == other_root && !is_within(&one, &other) && !is_within(&other, &one)
}

/// Whether a path is absolute, and its components; none if it starts in an unknown directory.
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

impl From<Error> for ToolResult {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denied) => Self::denied(&denied),
            error => Self::error(error),
        }
    }
}

impl ToolResult {
    pub fn success(answer: Value) -> Self {
        Self { content: answer, succeeded: true, ends_turn: false }
    }

    pub fn failure(answer: Value) -> Self {
        Self { content: answer, succeeded: false, ends_turn: false }
    }

    /// A failure that has nothing but an error message.
    pub fn error(message: impl fmt::Display) -> Self {
        Self::failure(json!({"error": message.to_string()}))
    }

    pub fn is_denied(&self) -> bool {
        self.content.get("status").is_some_and(|status| status == "blocked")
    }

    pub fn denied(denied: &Denied) -> Self {
        let content = json!({"status": "blocked", "error": format!("not allowed: {denied}")});
        Self { content, succeeded: false, ends_turn: matches!(denied, Denied::EndOfTurn(_)) }
    }
}

impl ToolContext {
    /// Runs a call of the model. Every failure becomes a result that the model reads.
    pub async fn call_tool(
        &self,
        tool: Tool,
        arguments: Map<String, Value>,
        call: CallContext<'_>,
    ) -> ToolResult {
        let result = match tool {
            Tool::Terminal => terminal::call(self, arguments, call).await,
            Tool::Process => process::call(self, arguments, call).await,
            Tool::ReadFile => read_file::call(self, arguments, call).await,
            Tool::WriteFile => write_file::call(self, arguments, call).await,
            Tool::Patch => patch::call(self, arguments, call).await,
            Tool::SearchFiles => search_files::call(self, arguments, call).await,
            Tool::WebFetch => web_fetch::call(self, arguments, call).await,
            Tool::ExecuteCode => execute_code::call(self, arguments, call).await,
            Tool::Todo => todo::call(self, arguments),
            Tool::Clarify => clarify::call(self, arguments, call).await,
        };
        let (Ok(mut result) | Err(mut result)) = result;
        redact_value(&mut result.content, &self.config().redactor);
        // read_file pages its own output; copying it to another file would not help.
        if tool != Tool::ReadFile {
            truncate::truncate_result(self, &mut result, call).await;
        }
        result
    }
}

/// Removes secrets from every string value. Field names are ours.
fn redact_value(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = redactor.redact(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(item, redactor)),
        Value::Object(fields) => fields.values_mut().for_each(|field| redact_value(field, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Parses the arguments of a call; the error is the result for the model.
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, ToolResult> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolResult::error(format!("arguments: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_parallel_unless_their_paths_overlap() {
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
        for (one, other, parallel) in cases {
            assert_eq!(one.is_parallel_with(&other), parallel, "{one:?} {other:?}");
            assert_eq!(other.is_parallel_with(&one), parallel, "{other:?} {one:?}");
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
