//! `search_files`: finds lines by a pattern, or files by their names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hermes_exec::Error as ExecError;
use hermes_exec::files::{FileError, FileSearch, LineRole, ResultPage, SearchHit, SearchMode, SearchSummary};
use hermes_policy::redact::Redactor;
use hermes_types::FileAccess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::read_file::file_failure;
use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::ToolContext;
use crate::tool_support::files::{FileOutcome, PlaceFiles, check_path};
use crate::tool_support::text::truncate_chars;

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 1_000;
const MAX_CONTEXT_LINES: u64 = 20;
const MAX_LINE_CHARS: usize = 500;
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Search files: lines that match a regular expression (target=content), or files by name
/// (target=files, pattern is a glob such as *.py). Hidden files and files that git ignores are left
/// out. Use this instead of grep, rg, find or ls.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SearchArguments {
    /// A regular expression, or a glob for target=files.
    pattern: String,
    #[serde(default)]
    target: SearchTarget,
    /// The directory or file to search.
    #[schemars(extend("default" = "."))]
    path: Option<String>,
    /// Only files that match this glob, such as *.rs or src/**/*.ts.
    file_glob: Option<String>,
    /// How many results.
    #[schemars(extend("default" = DEFAULT_LIMIT, "minimum" = 1))]
    limit: Option<i64>,
    /// Results to leave out first.
    #[schemars(extend("default" = 0, "minimum" = 0))]
    offset: Option<i64>,
    /// Matching lines, the files that have any, or how many each has.
    #[serde(default)]
    output_mode: SearchOutput,
    /// Lines around each match.
    #[schemars(extend("default" = 0, "minimum" = 0))]
    context: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SearchTarget {
    #[default]
    #[serde(alias = "grep")]
    Content,
    #[serde(alias = "find")]
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SearchOutput {
    #[default]
    Content,
    FilesOnly,
    Count,
}

impl ToolArguments for SearchArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let result = tokio::time::timeout(SEARCH_TIMEOUT, self.search(context, call)).await;
        result.unwrap_or_else(|_elapsed| {
            Err(ToolResult::error(format!(
                "the search took longer than {} seconds; search a smaller directory, or use file_glob",
                SEARCH_TIMEOUT.as_secs()
            )))
        })
    }
}

impl SearchArguments {
    async fn search(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let path = check_path(self.path.as_deref().unwrap_or("."))?;
        if self.pattern.is_empty() {
            return Err(ToolResult::error("`pattern` is empty"));
        }
        let number =
            |number: Option<i64>, default: u64| number.and_then(|n| u64::try_from(n).ok()).unwrap_or(default);
        let limit = number(self.limit, DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let context_lines = number(self.context, 0).min(MAX_CONTEXT_LINES);
        let search = FileSearch {
            target: match (self.target, self.output_mode) {
                (SearchTarget::Files, _) => SearchMode::Names,
                (SearchTarget::Content, SearchOutput::Content) => SearchMode::Lines {
                    pattern: self.pattern.clone(),
                    context: u16::try_from(context_lines).unwrap_or_default(),
                },
                (SearchTarget::Content, SearchOutput::FilesOnly | SearchOutput::Count) => {
                    SearchMode::Files { pattern: self.pattern.clone() }
                }
            },
            globs: match self.target {
                SearchTarget::Files => vec![name_glob(&self.pattern)],
                SearchTarget::Content => self.file_glob.iter().cloned().collect(),
            },
            offset: number(self.offset, 0),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
        };
        let files = PlaceFiles::open(context, call).await?;
        let run = |permit| files.guest.search(permit, search.clone());
        let FileOutcome { result, real_path } = files.with_permit(FileAccess::Read, path, run).await?;
        let ResultPage { items, summary: end } = match result {
            Ok(listing) => listing,
            Err(ExecError::FileFailed(FileError::BadPattern { message })) => {
                return Err(ToolResult::error(format!("invalid pattern `{}`: {message}", self.pattern)));
            }
            Err(error) => return Err(file_failure(&files, path, &error).await),
        };
        let (items, withheld) = drop_unreadable(&files, &real_path, items).await;
        let redactor = &context.config().redactor;
        let results = SearchResults { path, real_path: &real_path, items, end, withheld, redactor };
        let mut json = results.to_json(&self, &search);
        if self.target == SearchTarget::Files
            && let Some(ignored) = &self.file_glob
        {
            json["hint"] =
                json!(format!("target=files uses `pattern` only; file_glob={ignored} was ignored"));
        }
        Ok(ToolResult::success(json))
    }
}

/// A plain name matches anywhere in file names.
fn name_glob(pattern: &str) -> String {
    if pattern.contains(['*', '?', '[', '{']) { pattern.to_owned() } else { format!("*{pattern}*") }
}

/// Drops hits in files that cannot be read without a question: the permit is for the directory, not
/// for secrets in it.
async fn drop_unreadable(
    files: &PlaceFiles<'_>,
    root: &str,
    hits: Vec<SearchHit>,
) -> (Vec<SearchHit>, usize) {
    let mut readable: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut withheld = 0;
    let mut kept = Vec::new();
    for hit in hits {
        let (SearchHit::Line { path, .. } | SearchHit::File { path, .. }) = &hit;
        // The name of a file is no secret.
        let is_readable = match (&hit, readable.get(path.as_slice())) {
            (SearchHit::File { lines: 0, .. }, _) => true,
            (_, Some(is_readable)) => *is_readable,
            (_, None) => {
                let is_readable = match std::str::from_utf8(path) {
                    Ok(path) => files.is_readable_unasked(&join_path(root, path)).await,
                    Err(_) => false,
                };
                readable.insert(path.to_vec(), is_readable);
                is_readable
            }
        };
        if is_readable {
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

struct SearchResults<'a> {
    path: &'a str,
    real_path: &'a str,
    items: Vec<SearchHit>,
    end: SearchSummary,
    withheld: usize,
    redactor: &'a Redactor,
}

impl SearchResults<'_> {
    fn to_json(&self, given: &SearchArguments, search: &FileSearch) -> Value {
        let mut json = json!({"total_count": self.end.hits});
        let mut reported = 0_u64;
        match (given.target, given.output_mode) {
            (SearchTarget::Content, SearchOutput::Content) => {
                let matches: Vec<Value> =
                    self.items.iter().filter_map(|hit| self.line_json(hit, &mut reported)).collect();
                json["files_with_matches"] = json!(self.end.files);
                json["matches"] = json!(matches);
            }
            (SearchTarget::Content, SearchOutput::Count) => {
                let counts: BTreeMap<String, u64> =
                    self.items.iter().filter_map(|hit| self.file_count(hit)).collect();
                reported = counts.len() as u64;
                json["counted_lines"] = json!(counts.values().sum::<u64>());
                json["counts"] = json!(counts);
            }
            (SearchTarget::Files, _) | (_, SearchOutput::FilesOnly) => {
                let files: Vec<String> =
                    self.items.iter().filter_map(|hit| Some(self.file_count(hit)?.0)).collect();
                reported = files.len() as u64;
                json["files"] = json!(files);
            }
        }
        let next = search.offset + reported + self.withheld as u64;
        let truncated = next < self.end.hits;
        json["truncated"] = json!(truncated);
        if truncated && reported > 0 {
            json["hint"] = json!(format!("{} of {}; continue with offset={next}", reported, self.end.hits));
        }
        if self.withheld > 0 {
            let note = "matches in files with secrets are left out; read_file asks for permission";
            json["withheld"] = json!(self.withheld);
            json["withheld_note"] = json!(note);
        }
        if self.end.unreadable > 0 {
            json["unreadable"] = json!(self.end.unreadable);
            json["unreadable_note"] = json!("files that could not be read");
        }
        json
    }

    /// The path in the form that the model used for the search root.
    fn usable_path(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        if path.starts_with('/') && path == self.real_path {
            self.path.to_owned()
        } else {
            join_path(self.path, &path)
        }
    }

    fn file_count(&self, hit: &SearchHit) -> Option<(String, u64)> {
        let SearchHit::File { path, lines } = hit else { return None };
        Some((self.usable_path(path), *lines))
    }

    fn line_json(&self, hit: &SearchHit, reported: &mut u64) -> Option<Value> {
        let SearchHit::Line { path, number, text, role } = hit else { return None };
        // Redact before the cut: half a secret would not be recognized.
        let text = self.redactor.redact(&String::from_utf8_lossy(text)).into_owned();
        let shown = truncate_chars(text.trim_end_matches('\r'), MAX_LINE_CHARS);
        let mut line = json!({"path": self.usable_path(path), "line": number, "content": shown});
        match role {
            LineRole::Match => *reported += 1,
            LineRole::Context => line["context"] = json!(true),
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_to_the_search_root() {
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
    fn a_plain_name_matches_anywhere_in_file_names() {
        let globs = ["main", "*.py", "a?", "{a,b}"].map(name_glob);
        assert_eq!(globs, ["*main*", "*.py", "a?", "{a,b}"]);
    }
}
