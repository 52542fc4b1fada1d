//! `search_files`: lines by a pattern, or files by their names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hermes_exec::Error;
use hermes_exec::files::{FileFault, Found, Hit, Listing, Role, Scope, Search, Target};
use hermes_policy::redact::Redactor;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{self, FileOutcome, PlaceFiles, check_path};
use super::read_file::missing_file_result;
use super::{CallContext, ToolResult, parse_arguments, truncate_chars};
use crate::ToolContext;

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 1_000;
const MAX_CONTEXT_LINES: u64 = 20;
/// Characters of a line that are shown.
const MAX_LINE_CHARS: usize = 500;
/// How long one search may take.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct SearchArguments {
    pattern: String,
    #[serde(default)]
    target: SearchTarget,
    path: Option<String>,
    file_glob: Option<String>,
    limit: Option<i64>,
    offset: Option<i64>,
    #[serde(default)]
    output_mode: SearchOutput,
    context: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchTarget {
    #[default]
    #[serde(alias = "grep")]
    Content,
    #[serde(alias = "find")]
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SearchOutput {
    #[default]
    Content,
    FilesOnly,
    Count,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Search files: lines that match a regular expression (target=content), or files by name \
        (target=files, pattern is a glob such as *.py). Hidden files and those that git ignores are left out. Use this \
        instead of grep, rg, find or ls.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "A regular expression, or a glob for target=files."},
            "target": {"type": "string", "enum": ["content", "files"], "default": "content"},
            "path": {"type": "string", "description": "The directory or file to search.", "default": "."},
            "file_glob": {"type": "string", "description": "Only files that match this glob, such as *.rs or src/**/*.ts."},
            "limit": {"type": "integer", "description": "How many results.", "default": DEFAULT_LIMIT, "minimum": 1},
            "offset": {"type": "integer", "description": "Results to leave out first.", "default": 0, "minimum": 0},
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_only", "count"],
                "description": "Matching lines, the files that have any, or how many each has.",
                "default": "content",
            },
            "context": {"type": "integer", "description": "Lines around each match.", "default": 0, "minimum": 0},
        },
        "required": ["pattern"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    match tokio::time::timeout(SEARCH_TIMEOUT, search(hands, given, scene)).await {
        Ok(Ok(done) | Err(done)) => done,
        Err(_elapsed) => ToolResult::error(format!(
            "the search took longer than {} seconds; search a smaller directory, or use file_glob",
            SEARCH_TIMEOUT.as_secs()
        )),
    }
}

async fn search(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let given: SearchArguments = parse_arguments(given)?;
    let path = check_path(given.path.as_deref().unwrap_or("."))?;
    if given.pattern.is_empty() {
        return Err(ToolResult::error("`pattern` is empty"));
    }
    let number =
        |wanted: Option<i64>, default: u64| wanted.and_then(|n| u64::try_from(n).ok()).unwrap_or(default);
    let limit = number(given.limit, DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let context = number(given.context, 0).min(MAX_CONTEXT_LINES);
    let search = Search {
        target: match (given.target, given.output_mode) {
            (SearchTarget::Files, _) => Target::Names,
            (SearchTarget::Content, SearchOutput::Content) => Target::Lines {
                pattern: given.pattern.clone(),
                context: u16::try_from(context).unwrap_or_default(),
            },
            (SearchTarget::Content, SearchOutput::FilesOnly | SearchOutput::Count) => {
                Target::Files { pattern: given.pattern.clone() }
            }
        },
        globs: match given.target {
            SearchTarget::Files => vec![name_glob(&given.pattern)],
            SearchTarget::Content => given.file_glob.iter().cloned().collect(),
        },
        scope: Scope::Tracked,
        offset: number(given.offset, 0),
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    };
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(ToolResult::from)?;
    let act = |permit| shelf.files.search(permit, search.clone());
    let touched = shelf.with_permit(FileAccess::Read, path, scene, act).await;
    let FileOutcome { result: got, real_path: real } = touched.map_err(ToolResult::from)?;
    let Listing { items, end } = match got {
        Ok(listing) => listing,
        Err(error) if files::is_missing(&error) => return Err(missing_file_result(&shelf, path).await),
        Err(Error::FileFailed(FileFault::BadPattern { message })) => {
            return Err(ToolResult::error(format!("`{}` is no pattern: {message}", given.pattern)));
        }
        Err(error) => return Err(ToolResult::error(files::describe_error(path, &error))),
    };
    let (items, withheld) = drop_unreadable(&shelf, &real, items).await;
    let redactor = &hands.config().redactor;
    let shown = SearchResults { path, real: &real, items, end, withheld, redactor };
    let mut answer = shown.to_json(&given, &search);
    if given.target == SearchTarget::Files
        && let Some(ignored) = &given.file_glob
    {
        answer["hint"] =
            json!(format!("target=files looks for `pattern` alone; file_glob={ignored} was not used"));
    }
    Ok(ToolResult::success(answer))
}

/// A name without any sign of a pattern is looked for anywhere in names.
fn name_glob(pattern: &str) -> String {
    if pattern.contains(['*', '?', '[', '{']) { pattern.to_owned() } else { format!("*{pattern}*") }
}

/// Leaves out what is in files that cannot be read without a question: it was asked about a directory, not about them.
async fn drop_unreadable(shelf: &PlaceFiles<'_>, root: &str, hits: Vec<Hit>) -> (Vec<Hit>, usize) {
    let mut open: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut withheld = 0;
    let mut kept = Vec::new();
    for hit in hits {
        let (Hit::Line { path, .. } | Hit::File { path, .. }) = &hit;
        // That there is a file of this name may be known.
        let is_open = match (&hit, open.get(path.as_slice())) {
            (Hit::File { lines: 0, .. }, _) => true,
            (_, Some(is_open)) => *is_open,
            (_, None) => {
                let is_open = match std::str::from_utf8(path) {
                    Ok(path) => shelf.is_readable_unasked(&join_path(root, path)).await,
                    Err(_) => false,
                };
                open.insert(path.to_vec(), is_open);
                is_open
            }
        };
        if is_open {
            kept.push(hit);
        } else {
            withheld += 1;
        }
    }
    (kept, withheld)
}

fn join_path(root: &str, path: &str) -> String {
    match (root, path) {
        (_, path) if path.starts_with('/') => path.to_owned(),
        ("." | "./", path) => path.to_owned(),
        (root, path) => format!("{}/{path}", root.trim_end_matches('/')),
    }
}

/// A page of results.
struct SearchResults<'a> {
    path: &'a str,
    real: &'a str,
    items: Vec<Hit>,
    end: Found,
    withheld: usize,
    redactor: &'a Redactor,
}

impl SearchResults<'_> {
    fn to_json(&self, given: &SearchArguments, search: &Search) -> Value {
        let mut answer = json!({"total_count": self.end.hits});
        let mut reported = 0_u64;
        match (given.target, given.output_mode) {
            (SearchTarget::Content, SearchOutput::Content) => {
                let matches: Vec<Value> =
                    self.items.iter().filter_map(|hit| self.line_json(hit, &mut reported)).collect();
                answer["files_with_matches"] = json!(self.end.files);
                answer["matches"] = json!(matches);
            }
            (SearchTarget::Content, SearchOutput::Count) => {
                let counts: BTreeMap<String, u64> =
                    self.items.iter().filter_map(|hit| self.file_count(hit)).collect();
                reported = counts.len() as u64;
                answer["counted_lines"] = json!(counts.values().sum::<u64>());
                answer["counts"] = json!(counts);
            }
            (SearchTarget::Files, _) | (_, SearchOutput::FilesOnly) => {
                let files: Vec<String> =
                    self.items.iter().filter_map(|hit| Some(self.file_count(hit)?.0)).collect();
                reported = files.len() as u64;
                answer["files"] = json!(files);
            }
        }
        let next = search.offset + reported + self.withheld as u64;
        let truncated = next < self.end.hits;
        answer["truncated"] = json!(truncated);
        if truncated && reported > 0 {
            answer["hint"] = json!(format!("{} of {}; go on with offset={next}", reported, self.end.hits));
        }
        let others = [
            ("withheld", self.withheld as u64, "read_file asks for files that hold secrets"),
            ("unreadable", self.end.unreadable, "they could not be read"),
        ];
        for (name, count, why) in others {
            if count > 0 {
                answer[name] = json!(count);
                answer[format!("{name}_note")] = json!(why);
            }
        }
        answer
    }

    /// The path as the model can use it: below what it asked for.
    fn usable_path(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        if path.starts_with('/') && path == self.real {
            self.path.to_owned()
        } else {
            join_path(self.path, &path)
        }
    }

    fn file_count(&self, hit: &Hit) -> Option<(String, u64)> {
        match hit {
            Hit::File { path, lines } => Some((self.usable_path(path), *lines)),
            Hit::Line { .. } => None,
        }
    }

    fn line_json(&self, hit: &Hit, reported: &mut u64) -> Option<Value> {
        let Hit::Line { path, number, text, role } = hit else { return None };
        // Half a secret would not be recognized as one.
        let text = self.redactor.text(&String::from_utf8_lossy(text)).into_owned();
        let shown = truncate_chars(text.trim_end_matches('\r'), MAX_LINE_CHARS);
        let mut line = json!({"path": self.usable_path(path), "line": number, "content": shown});
        match role {
            Role::Match => *reported += 1,
            Role::Context => line["context"] = json!(true),
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_so_that_they_can_be_used() {
        let cases = [
            (".", "a/b", "a/b"),
            ("./", "a", "a"),
            ("src", "a", "src/a"),
            ("/x/", "a", "/x/a"),
            ("/", "a", "/a"),
            ("x", "/y/z", "/y/z"),
        ];
        for (root, path, expected) in cases {
            assert_eq!(join_path(root, path), expected, "{root} {path}");
        }
    }

    #[test]
    fn a_plain_name_is_looked_for_anywhere_in_names() {
        let globs = ["main", "*.py", "a?", "{a,b}"].map(name_glob);
        assert_eq!(globs, ["*main*", "*.py", "a?", "{a,b}"]);
    }
}
