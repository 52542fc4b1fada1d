//! `read_file`: reads a part of a text file, with line numbers.

use hermes_exec::Error as ExecError;
use hermes_exec::files::{DirEntry, FileKind, FileRange, ReadSummary};
use hermes_types::FileAccess;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::tool_support::files::{FileOutcome, PlaceFiles, check_path, file_error, is_missing};
use crate::tool_support::text::{is_binary, truncate_chars};
use crate::{ToolContext, ToolLimits, lock};

const DEFAULT_LIMIT: u64 = 500;
/// Bytes of one part that are held in memory.
const MAX_PART_BYTES: usize = 16 << 20;
const MAX_SUGGESTIONS: usize = 5;
/// Similarity of a suggested name, from 0 to 1.
const MIN_NAME_SIMILARITY: f64 = 0.6;

const BOM: char = '\u{feff}';

/// Read a text file. Lines come as `number|text`. Long files are read in parts with `offset` and
/// `limit`; total_lines says how long a file is. Use this instead of cat, head or tail.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ReadFileArguments {
    /// Absolute, relative to the working directory, or below ~.
    path: String,
    /// The first line, from 1.
    #[schemars(extend("default" = 1, "minimum" = 1))]
    offset: Option<i64>,
    /// How many lines, at most 2000.
    #[schemars(extend("default" = DEFAULT_LIMIT, "minimum" = 1))]
    limit: Option<i64>,
}

impl ToolArguments for ReadFileArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let path = check_path(&self.path)?;
        let limits = &context.config().limits;
        let first = self.offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(1).max(1);
        let count = self.limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
        let count = count.clamp(1, limits.read_lines);
        let files = PlaceFiles::open(context, call).await?;
        let read = |permit| files.read(permit, FileRange::Lines { first, count }, MAX_PART_BYTES);
        let FileOutcome { result, real_path } = files.with_permit(FileAccess::Read, path, read).await?;
        let (bytes, end) = match result {
            Ok(read) => read,
            Err(ExecError::TooLarge(max)) => {
                let advice = "these lines are too long for text; use `terminal` with cut, head -c or jq to see parts of them";
                return Err(ToolResult::error(format!(
                    "{path}: more than {max} bytes in {count} lines; {advice}"
                )));
            }
            Err(error) => return Err(file_failure(&files, path, &error).await),
        };
        if is_binary(&bytes) {
            let advice = "use `terminal` with file, strings, xxd or a program for its format";
            return Err(ToolResult::failure(json!({
                "error": format!("{path} is not a text file; {advice}"), "is_binary": true, "file_size": end.stat.size,
            })));
        }
        let text = String::from_utf8_lossy(&bytes);
        // Redact before lines are cut: half a secret would not be recognized.
        let page = LinePage::new(&context.config().redactor.redact(&text), first, limits);
        page.check_size(limits)?;
        let mut result = page.to_json(&end, first);
        if text.contains(char::REPLACEMENT_CHARACTER) && std::str::from_utf8(&bytes).is_err() {
            result["note"] =
                json!("some bytes are not UTF-8 and visible as U+FFFD; patch leaves them as they are");
        }
        let mut file_state = lock(&context.file_state);
        if let Some(whole) = end.whole {
            file_state.record_digest(&real_path, whole.digest);
            if file_state.is_repeated_read(format!("{real_path} {first} {count} {:?}", whole.digest)) {
                result["loop_note"] = json!("this part has not changed since you last read it");
            }
        }
        Ok(ToolResult::success(result))
    }
}

/// Numbered lines for the model.
struct LinePage {
    content: String,
    chars: usize,
    lines: u64,
    truncated_lines: u64,
    crlf: bool,
    /// How many of the lines fit into the limit of one read.
    fitting: u64,
}

impl LinePage {
    fn new(text: &str, first: u64, limits: &ToolLimits) -> Self {
        let text = if first == 1 { text.strip_prefix(BOM).unwrap_or(text) } else { text };
        let mut page =
            Self { content: String::new(), chars: 0, lines: 0, truncated_lines: 0, crlf: false, fitting: 0 };
        for (number, line) in (first..).zip(text.split_inclusive('\n')) {
            let line = line.strip_suffix('\n').unwrap_or(line);
            page.crlf |= line.ends_with('\r');
            let line = line.strip_suffix('\r').unwrap_or(line);
            let visible = truncate_chars(line, limits.line_length);
            page.truncated_lines += u64::from(visible.len() < line.len());
            let separator = if page.lines > 0 { "\n" } else { "" };
            let mark = if visible.len() < line.len() { " … [line cut]" } else { "" };
            let line = format!("{separator}{number}|{visible}{mark}");
            page.chars += line.chars().count();
            page.lines += 1;
            if page.chars <= limits.read_chars {
                page.fitting = page.lines;
                page.content.push_str(&line);
            }
        }
        page
    }

    fn check_size(&self, limits: &ToolLimits) -> Result<(), ToolResult> {
        if self.chars <= limits.read_chars {
            return Ok(());
        }
        let advice = match self.fitting {
            0 => "use `terminal` with cut or head -c".to_owned(),
            fitting => format!(
                "use limit={fitting} and continue with offset, or find the right part with search_files"
            ),
        };
        Err(ToolResult::error(format!(
            "these {} lines have {} characters, more than the {} of one read; {advice}",
            self.lines, self.chars, limits.read_chars
        )))
    }

    fn to_json(&self, end: &ReadSummary, first: u64) -> Value {
        let total = end.whole.map_or(0, |whole| whole.lines);
        let last = first.saturating_add(self.lines).saturating_sub(1);
        let mut json = json!({
            "content": self.content,
            "total_lines": total,
            "file_size": end.stat.size,
            "truncated": last < total && self.lines > 0,
        });
        if self.lines == 0 && total > 0 {
            json["hint"] = json!(format!("the file has only {total} lines"));
        } else if total == 0 {
            json["hint"] = json!("the file is empty");
        } else if last < total {
            json["hint"] =
                json!(format!("lines {first} to {last} of {total}; continue with offset={}", last + 1));
        }
        if self.truncated_lines > 0 {
            json["lines_cut"] = json!(self.truncated_lines);
        }
        if self.crlf {
            json["line_endings"] = json!("crlf");
        }
        json
    }
}

/// The result for a file operation that failed.
pub(super) async fn file_failure(files: &PlaceFiles<'_>, path: &str, error: &ExecError) -> ToolResult {
    if is_missing(error) { missing_file_result(files, path).await } else { file_error(path, error).into() }
}

/// The result for a file that does not exist, with similar names.
pub(super) async fn missing_file_result(files: &PlaceFiles<'_>, path: &str) -> ToolResult {
    let absolute = files.lexical(path);
    let (parent, name) = absolute.rsplit_once('/').unwrap_or(("", &absolute));
    let parent = if parent.is_empty() { "/" } else { parent };
    let listed = files.if_unasked(parent, |permit| files.guest.list(permit)).await;
    let mut result = json!({"error": format!("there is no {path}")});
    match listed.map(|listed| listed.result) {
        Some(Ok(listing)) => {
            let similar = similar_names(name, &listing.items);
            if !similar.is_empty() {
                result["similar_files"] =
                    similar.into_iter().map(|name| json!(format!("{parent}/{name}"))).collect();
            }
        }
        Some(Err(error)) if is_missing(&error) => {
            result["error"] = json!(format!("there is no {path}, and no directory {parent}"));
        }
        Some(Err(_)) | None => {}
    }
    ToolResult::failure(result)
}

fn similar_names(name: &str, entries: &[DirEntry]) -> Vec<String> {
    let missing = name.to_lowercase();
    let mut found: Vec<(f64, String)> = Vec::new();
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name);
        let lower = name.to_lowercase();
        let contains = missing.len() > 2 && (lower.contains(&missing) || missing.contains(&lower));
        let similarity =
            strsim::normalized_damerau_levenshtein(&missing, &lower).max(if contains { 0.9 } else { 0.0 });
        if similarity >= MIN_NAME_SIMILARITY {
            let slash = if entry.stat.kind == FileKind::Directory { "/" } else { "" };
            found.push((similarity, format!("{name}{slash}")));
        }
    }
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tool::execute_code::{CodeExecutionConfig, CodeMode};

    fn limits() -> ToolLimits {
        ToolLimits {
            timeout: Duration::from_secs(1),
            max_foreground: Duration::from_secs(1),
            output_bytes: 1000,
            read_lines: 2000,
            line_length: 5,
            read_chars: 30,
            code_execution: CodeExecutionConfig {
                timeout: Duration::from_secs(1),
                max_tool_calls: 1,
                mode: CodeMode::Strict,
            },
        }
    }

    #[test]
    fn lines_are_numbered_and_cut_and_lose_their_ends() {
        let cases = [
            ("", 1, ""),
            ("a\nb", 1, "1|a\n2|b"),
            ("a\nb\n", 1, "1|a\n2|b"),
            ("a\n\n", 1, "1|a\n2|"),
            ("\u{feff}a\r\nb\r\n", 1, "1|a\n2|b"),
            ("\u{feff}a", 7, "7|\u{feff}a"),
            ("äöüäöü", 1, "1|äöüäö … [line cut]"),
        ];
        for (text, first, expected) in cases {
            assert_eq!(LinePage::new(text, first, &limits()).content, expected, "{text:?}");
        }
    }

    #[test]
    fn a_page_that_is_too_large_says_how_many_lines_fit() {
        let page = LinePage::new(&"abcd\n".repeat(20), 1, &limits());
        let error = page.check_size(&limits()).unwrap_err().content["error"].to_string();
        assert!(error.contains("limit=4 "), "{error}");
        assert!(LinePage::new("abcd\n", 1, &limits()).check_size(&limits()).is_ok());
    }
}
