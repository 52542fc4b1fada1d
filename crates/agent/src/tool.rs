//! The tools a model can call, one file each.
//!
//! Names, parameters and results are those of the Python program, so that prompts, skills and
//! habits carry over.

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
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantArray};
use tokio_util::sync::CancellationToken;

use crate::tool_support::truncate;
use crate::{BoxFuture, Denied, Error, ToolContext, TurnObserver};

/// Every tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
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
    pub const ALL: &[Self] = Self::VARIANTS;

    pub const fn name(self) -> &'static str {
        self.into_str()
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.name() == name)
    }

    /// The description and schema that the model sees.
    pub fn spec(self) -> ToolSpec {
        let mut schema = (self.entry().schema)();
        let description = schema.remove("description").unwrap_or_default();
        let description = description.as_str().unwrap_or_default().to_owned();
        ToolSpec { name: self.name().to_owned(), description, parameters: schema.to_value() }
    }

    const fn entry(self) -> ToolEntry {
        match self {
            Self::Terminal => ToolEntry::new::<terminal::TerminalArguments>(),
            Self::Process => ToolEntry::new::<process::ProcessArguments>(),
            Self::ReadFile => ToolEntry::new::<read_file::ReadFileArguments>(),
            Self::WriteFile => ToolEntry::new::<write_file::WriteFileArguments>(),
            Self::Patch => ToolEntry::new::<patch::PatchArguments>(),
            Self::SearchFiles => ToolEntry::new::<search_files::SearchArguments>(),
            Self::WebFetch => ToolEntry::new::<web_fetch::WebFetchArguments>(),
            Self::ExecuteCode => ToolEntry::new::<execute_code::ExecuteCodeArguments>(),
            Self::Todo => ToolEntry::new::<todo::TodoArguments>(),
            Self::Clarify => ToolEntry::new::<clarify::ClarifyArguments>(),
        }
    }

    pub fn effects(self, arguments: &Map<String, Value>) -> Effects {
        let path =
            |default: &str| arguments.get("path").and_then(Value::as_str).unwrap_or(default).to_owned();
        let reads_process = || {
            let action = arguments.get("action").and_then(Value::as_str);
            matches!(action, Some("list" | "poll" | "log" | "wait"))
        };
        match self {
            Self::Process if reads_process() => Effects::None,
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

/// How a call ended early is a result too, so that `?` ends a call.
pub(crate) type CallResult = Result<ToolResult, ToolResult>;

/// The arguments of one tool. Their doc comments are the descriptions that the model sees.
trait ToolArguments: DeserializeOwned + JsonSchema + Send + 'static {
    fn run(self, context: &ToolContext, call: CallContext<'_>) -> impl Future<Output = CallResult> + Send;
}

/// A tool without the type of its arguments.
struct ToolEntry {
    schema: fn() -> Schema,
    run: for<'a> fn(&'a ToolContext, Map<String, Value>, CallContext<'a>) -> BoxFuture<'a, ToolResult>,
}

impl ToolEntry {
    const fn new<T: ToolArguments>() -> Self {
        Self { schema: argument_schema::<T>, run: run_tool::<T> }
    }
}

fn run_tool<'a, T: ToolArguments>(
    context: &'a ToolContext,
    arguments: Map<String, Value>,
    call: CallContext<'a>,
) -> BoxFuture<'a, ToolResult> {
    Box::pin(async move {
        match serde_json::from_value::<T>(Value::Object(arguments)) {
            Ok(arguments) => arguments.run(context, call).await.unwrap_or_else(|failure| failure),
            Err(error) => ToolResult::error(format!("arguments: {error}")),
        }
    })
}

impl<E: Into<Error>> From<E> for ToolResult {
    fn from(error: E) -> Self {
        match error.into() {
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
        let mut result = (tool.entry().run)(self, arguments, call).await;
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

fn argument_schema<T: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.transforms.push(Box::new(RecursiveTransform(simplify_schema)));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Removes what models do not need: to leave out an argument is the same as `null`.
fn simplify_schema(schema: &mut Schema) {
    schema.remove("title");
    schema.remove("format");
    if schema.get("default").is_some_and(|default| default.is_null() || *default == json!([])) {
        schema.remove("default");
    }
    if let Some(types) = schema.get_mut("type")
        && let Some(first) = types.get(0).cloned()
    {
        *types = first;
    }
    if let Some(Value::Array(keywords)) = schema.get_mut("enum") {
        keywords.retain(|keyword| !keyword.is_null());
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
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
            assert_eq!(Tool::from_name(tool.name()), Some(*tool));
            let spec = tool.spec();
            assert_eq!(spec.parameters["type"], "object", "{tool:?}");
            assert!(!spec.description.is_empty(), "{tool:?}");
        }
    }
}
