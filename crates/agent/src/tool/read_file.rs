//! `read_file`: a part of a text file, with line numbers.

use hermes_exec::Error;
use hermes_exec::files::{Entry, Kind, Part, ReadEnd};
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{self, FileOutcome, PlaceFiles, check_path};
use super::{CallContext, ToolResult, parse_arguments, truncate_chars};
use crate::tool_context::{ToolContext, ToolLimits, lock};

const DEFAULT_LIMIT: u64 = 500;
/// Bytes of one part of a file that are held at once, whatever its lines are like.
const MAX_PART_BYTES: usize = 16 << 20;
/// Bytes that are looked at to tell text from anything else.
const SAMPLE_BYTES: usize = 8_000;
/// Names that are offered for one that is not there.
const MAX_SUGGESTIONS: usize = 5;
/// How alike a name must be to be offered.
const MIN_NAME_SIMILARITY: f64 = 0.6;

const BOM: char = '\u{feff}';

#[derive(Deserialize)]
struct ReadFileArguments {
    path: String,
    offset: Option<i64>,
    limit: Option<i64>,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Read a text file. Lines come as `number|text`. Long files are read in parts with `offset` and \
        `limit`; total_lines says how long a file is. Use this instead of cat, head or tail.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Absolute, relative to the working directory, or below ~."},
            "offset": {"type": "integer", "description": "The first line, from 1.", "default": 1, "minimum": 1},
            "limit": {
                "type": "integer",
                "description": "How many lines, at most 2000.",
                "default": DEFAULT_LIMIT,
                "minimum": 1,
            },
        },
        "required": ["path"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    match read_file(hands, given, scene).await {
        Ok(done) | Err(done) => done,
    }
}

async fn read_file(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let given: ReadFileArguments = parse_arguments(given)?;
    let path = check_path(&given.path)?;
    let limits = &hands.config().limits;
    let first = given.offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(1).max(1);
    let count = given.limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
    let count = count.clamp(1, limits.read_lines);
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(ToolResult::from)?;
    let part = Part::Lines { first, count };
    let act = |permit| async { shelf.files.read(permit, part).await?.read_to_end(MAX_PART_BYTES).await };
    let FileOutcome { result: got, real_path: real } =
        shelf.with_permit(FileAccess::Read, path, scene, act).await.map_err(ToolResult::from)?;
    let (bytes, end) = match got {
        Ok(read) => read,
        Err(error) if files::is_missing(&error) => return Err(missing_file_result(&shelf, path).await),
        Err(Error::TooLarge(most)) => {
            let advice =
                "these lines are longer than text; `terminal` with cut, head -c or jq shows parts of them";
            return Err(ToolResult::error(format!(
                "{path}: more than {most} bytes in {count} lines; {advice}"
            )));
        }
        Err(error) => return Err(ToolResult::error(files::describe_error(path, &error))),
    };
    if is_binary(&bytes) {
        let advice = "`terminal` with file, strings, xxd or a program for its format can look into it";
        return Err(ToolResult::failure(json!({
            "error": format!("{path} is not a text file; {advice}"), "is_binary": true, "file_size": end.stat.size,
        })));
    }
    let text = String::from_utf8_lossy(&bytes);
    // A secret that is cut in two would not be recognized any more.
    let page = LinePage::new(&hands.config().redactor.text(&text), first, limits);
    page.check_size(limits)?;
    let mut answer = page.to_json(&end, first);
    if text.contains(char::REPLACEMENT_CHARACTER) && std::str::from_utf8(&bytes).is_err() {
        answer["note"] = json!("some bytes are not UTF-8 and shown as U+FFFD; patch leaves them as they are");
    }
    let mut notes = lock(&hands.file_state);
    if let Some(whole) = end.whole {
        notes.record_digest(&real, whole.digest);
        if notes.is_repeated_read(format!("{real} {first} {count} {:?}", whole.digest)) {
            answer["loop_note"] = json!("this part has not changed since you last read it");
        }
    }
    Ok(ToolResult::success(answer))
}

/// Lines as the model sees them.
struct LinePage {
    content: String,
    chars: usize,
    lines: u64,
    truncated_lines: u64,
    crlf: bool,
    /// How many lines fit into what one read may give.
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
            let shown = truncate_chars(line, limits.line_length);
            page.truncated_lines += u64::from(shown.len() < line.len());
            let separator = if page.lines > 0 { "\n" } else { "" };
            let mark = if shown.len() < line.len() { " … [line cut]" } else { "" };
            let line = format!("{separator}{number}|{shown}{mark}");
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
                "ask for limit={fitting} and go on with offset, or search_files for what you look for"
            ),
        };
        Err(ToolResult::error(format!(
            "these {} lines have {} characters, more than the {} that one read gives; {advice}",
            self.lines, self.chars, limits.read_chars
        )))
    }

    fn to_json(&self, end: &ReadEnd, first: u64) -> Value {
        let total = end.whole.map_or(0, |whole| whole.lines);
        let last = first.saturating_add(self.lines).saturating_sub(1);
        let mut answer = json!({
            "content": self.content,
            "total_lines": total,
            "file_size": end.stat.size,
            "truncated": last < total && self.lines > 0,
        });
        if self.lines == 0 && total > 0 {
            answer["hint"] = json!(format!("the file has only {total} lines"));
        } else if total == 0 {
            answer["hint"] = json!("the file is empty");
        } else if last < total {
            answer["hint"] =
                json!(format!("lines {first} to {last} of {total}; go on with offset={}", last + 1));
        }
        if self.truncated_lines > 0 {
            answer["lines_cut"] = json!(self.truncated_lines);
        }
        if self.crlf {
            answer["line_endings"] = json!("crlf");
        }
        answer
    }
}

/// Whether bytes are anything but text that is compatible with ASCII.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let sample = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    let is_control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    sample.contains(&0) || sample.iter().filter(is_control).count() * 10 > sample.len() * 3
}

/// Says that a file is not there, and which ones are.
pub(super) async fn missing_file_result(shelf: &PlaceFiles<'_>, path: &str) -> ToolResult {
    let whole = shelf.lexical(path);
    let (above, name) = whole.rsplit_once('/').unwrap_or(("", &whole));
    let above = if above.is_empty() { "/" } else { above };
    let listed = shelf.if_unasked(above, |permit| shelf.files.list(permit)).await;
    let mut answer = json!({"error": format!("there is no {path}")});
    match listed.map(|listed| listed.result) {
        Some(Ok(listing)) => {
            let similar = similar_names(name, &listing.items);
            if !similar.is_empty() {
                answer["similar_files"] =
                    similar.into_iter().map(|name| json!(format!("{above}/{name}"))).collect();
            }
        }
        Some(Err(error)) if files::is_missing(&error) => {
            answer["error"] = json!(format!("there is no {path}, not even the directory {above}"));
        }
        Some(Err(_)) | None => {}
    }
    ToolResult::failure(answer)
}

fn similar_names(name: &str, entries: &[Entry]) -> Vec<String> {
    let wanted = name.to_lowercase();
    let mut found: Vec<(f64, String)> = Vec::new();
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name);
        let lower = name.to_lowercase();
        let contains = wanted.len() > 2 && (lower.contains(&wanted) || wanted.contains(&lower));
        let alike =
            strsim::normalized_damerau_levenshtein(&wanted, &lower).max(if contains { 0.9 } else { 0.0 });
        if alike >= MIN_NAME_SIMILARITY {
            let slash = if entry.stat.kind == Kind::Directory { "/" } else { "" };
            found.push((alike, format!("{name}{slash}")));
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
    fn lines_are_numbered_and_cut_and_keep_no_ends() {
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
    fn too_much_says_how_much_would_do() {
        let page = LinePage::new(&"abcd\n".repeat(20), 1, &limits());
        let told = page.check_size(&limits()).unwrap_err().content["error"].to_string();
        assert!(told.contains("limit=4 "), "{told}");
        assert!(LinePage::new("abcd\n", 1, &limits()).check_size(&limits()).is_ok());
    }

    #[test]
    fn text_is_told_from_other_things() {
        for text in
            [&b""[..], b"hello\tworld\r\n", "grüße".as_bytes(), b"caf\xe9 latin", b"\x1b[1mbold\x1b[0m"]
        {
            assert!(!is_binary(text), "{text:?}");
        }
        for other in [&b"a\0b"[..], b"\x01\x02\x03\x04", b"\xff\xfeh\0i\0"] {
            assert!(is_binary(other), "{other:?}");
        }
    }
}
