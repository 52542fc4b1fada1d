//! `search_files`: lines by a pattern, or files by their names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hermes_exec::Error;
use hermes_exec::files::{FileFault, Found, Hit, Listing, Role, Scope, Search, Target};
use hermes_policy::redact::Redactor;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::read_file::missing;
use super::shelf::{self, Shelf, Touched, checked};
use super::{Done, Scene, arguments, cut};
use crate::Hands;

const DEFAULT_LIMIT: u64 = 50;
const MOST: u64 = 1_000;
const MOST_CONTEXT: u64 = 20;
/// Characters of a line that are shown.
const LINE: usize = 500;
/// How long one search may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    target: Kind,
    path: Option<String>,
    file_glob: Option<String>,
    limit: Option<i64>,
    offset: Option<i64>,
    #[serde(default)]
    output_mode: Mode,
    context: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    #[serde(alias = "grep")]
    Content,
    #[serde(alias = "find")]
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
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

pub(super) async fn call(hands: &Hands, given: Map<String, Value>, scene: Scene<'_>) -> Done {
    match tokio::time::timeout(PATIENCE, search(hands, given, scene)).await {
        Ok(Ok(done) | Err(done)) => done,
        Err(_elapsed) => Done::error(format!(
            "the search took longer than {} seconds; search a smaller directory, or use file_glob",
            PATIENCE.as_secs()
        )),
    }
}

async fn search(hands: &Hands, given: Map<String, Value>, scene: Scene<'_>) -> Result<Done, Done> {
    let given: Arguments = arguments(given)?;
    let path = checked(given.path.as_deref().unwrap_or("."))?;
    if given.pattern.is_empty() {
        return Err(Done::error("`pattern` is empty"));
    }
    let number =
        |wanted: Option<i64>, default: u64| wanted.and_then(|n| u64::try_from(n).ok()).unwrap_or(default);
    let limit = number(given.limit, DEFAULT_LIMIT).clamp(1, MOST);
    let context = number(given.context, 0).min(MOST_CONTEXT);
    let search = Search {
        target: match (given.target, given.output_mode) {
            (Kind::Files, _) => Target::Names,
            (Kind::Content, Mode::Content) => Target::Lines {
                pattern: given.pattern.clone(),
                context: u16::try_from(context).unwrap_or_default(),
            },
            (Kind::Content, Mode::FilesOnly | Mode::Count) => {
                Target::Files { pattern: given.pattern.clone() }
            }
        },
        globs: match given.target {
            Kind::Files => vec![glob(&given.pattern)],
            Kind::Content => given.file_glob.iter().cloned().collect(),
        },
        scope: Scope::Tracked,
        offset: number(given.offset, 0),
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    };
    let shelf = Shelf::open(hands, scene.watch).await.map_err(Done::from)?;
    let act = |permit| shelf.files.search(permit, search.clone());
    let touched = shelf.touch(FileAccess::Read, path, scene, act).await;
    let Touched { got, real } = touched.map_err(Done::from)?;
    let Listing { items, end } = match got {
        Ok(listing) => listing,
        Err(error) if shelf::is_missing(&error) => return Err(missing(&shelf, path).await),
        Err(Error::FileFailed(FileFault::BadPattern { message })) => {
            return Err(Done::error(format!("`{}` is no pattern: {message}", given.pattern)));
        }
        Err(error) => return Err(Done::error(shelf::fault(path, &error))),
    };
    let (items, withheld) = open_only(&shelf, &real, items).await;
    let redactor = &hands.setup().redactor;
    let shown = Shown { path, real: &real, items, end, withheld, redactor };
    let mut answer = shown.told(&given, &search);
    if given.target == Kind::Files
        && let Some(ignored) = &given.file_glob
    {
        answer["hint"] =
            json!(format!("target=files looks for `pattern` alone; file_glob={ignored} was not used"));
    }
    Ok(Done::worked(answer))
}

/// A name without any sign of a pattern is looked for anywhere in names.
fn glob(pattern: &str) -> String {
    if pattern.contains(['*', '?', '[', '{']) { pattern.to_owned() } else { format!("*{pattern}*") }
}

/// Leaves out what is in files that cannot be read without a question: it was asked about a directory, not about them.
async fn open_only(shelf: &Shelf<'_>, root: &str, hits: Vec<Hit>) -> (Vec<Hit>, usize) {
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
                    Ok(path) => shelf.is_open(&joined(root, path)).await,
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

fn joined(root: &str, path: &str) -> String {
    match (root, path) {
        (_, path) if path.starts_with('/') => path.to_owned(),
        ("." | "./", path) => path.to_owned(),
        (root, path) => format!("{}/{path}", root.trim_end_matches('/')),
    }
}

/// A page of results.
struct Shown<'a> {
    path: &'a str,
    real: &'a str,
    items: Vec<Hit>,
    end: Found,
    withheld: usize,
    redactor: &'a Redactor,
}

impl Shown<'_> {
    fn told(&self, given: &Arguments, search: &Search) -> Value {
        let mut answer = json!({"total_count": self.end.hits});
        let mut reported = 0_u64;
        match (given.target, given.output_mode) {
            (Kind::Content, Mode::Content) => {
                let matches: Vec<Value> =
                    self.items.iter().filter_map(|hit| self.line(hit, &mut reported)).collect();
                answer["files_with_matches"] = json!(self.end.files);
                answer["matches"] = json!(matches);
            }
            (Kind::Content, Mode::Count) => {
                let counts: BTreeMap<String, u64> =
                    self.items.iter().filter_map(|hit| self.file(hit)).collect();
                reported = counts.len() as u64;
                answer["counted_lines"] = json!(counts.values().sum::<u64>());
                answer["counts"] = json!(counts);
            }
            (Kind::Files, _) | (_, Mode::FilesOnly) => {
                let files: Vec<String> =
                    self.items.iter().filter_map(|hit| Some(self.file(hit)?.0)).collect();
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
    fn below(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        if path.starts_with('/') && path == self.real {
            self.path.to_owned()
        } else {
            joined(self.path, &path)
        }
    }

    fn file(&self, hit: &Hit) -> Option<(String, u64)> {
        match hit {
            Hit::File { path, lines } => Some((self.below(path), *lines)),
            Hit::Line { .. } => None,
        }
    }

    fn line(&self, hit: &Hit, reported: &mut u64) -> Option<Value> {
        let Hit::Line { path, number, text, role } = hit else { return None };
        // Half a secret would not be recognized as one.
        let text = self.redactor.text(&String::from_utf8_lossy(text)).into_owned();
        let shown = cut(text.trim_end_matches('\r'), LINE);
        let mut line = json!({"path": self.below(path), "line": number, "content": shown});
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
            assert_eq!(joined(root, path), expected, "{root} {path}");
        }
    }

    #[test]
    fn a_plain_name_is_looked_for_anywhere_in_names() {
        let globs = ["main", "*.py", "a?", "{a,b}"].map(glob);
        assert_eq!(globs, ["*main*", "*.py", "a?", "{a,b}"]);
    }
}
