//! Keys of a file that mean nothing to us, and the ones their writer may have meant.

use std::path::Path;

use super::keys;
use super::layers::{Problem, Severity};
use super::unused::UNUSED;
use super::yaml::{MapEntry, Node, NodeKind};

/// Reports every key of the file that is not read.
pub(crate) fn report(root: &Node, file: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(root, "", file, &mut problems);
    problems
}

fn walk(node: &Node, prefix: &str, file: &Path, problems: &mut Vec<Problem>) {
    let NodeKind::Map(entries) = &node.kind else { return };
    for entry in entries {
        let path = format!("{prefix}{}", entry.key);
        if path == "_config_version" || path == "model" && matches!(entry.value.kind, NodeKind::Scalar { .. })
        {
            continue;
        }
        if let Some(why) = unused(&path) {
            problems.push(problem(Severity::Note, file, entry, &path, why.to_owned(), None));
        } else if keys::find(&path)
            .is_some_and(|key| key.path == path || key.aliases.contains(&path.as_str()))
        {
            // Known; its value is checked where it is read.
        } else if is_section(&path) {
            match &entry.value.kind {
                NodeKind::Map(_) => walk(&entry.value, &format!("{path}."), file, problems),
                NodeKind::Null => {}
                _ => {
                    let message = format!("expected a map, found {}", entry.value.describe());
                    problems.push(problem(Severity::Error, file, entry, &path, message, None));
                }
            }
        } else {
            let message = "unknown key, ignored".to_owned();
            problems.push(problem(Severity::Warning, file, entry, &path, message, hint(&path)));
        }
    }
}

fn is_section(path: &str) -> bool {
    let inside = |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    keys::all().any(|key| inside(key.path))
}

fn problem(
    severity: Severity,
    file: &Path,
    entry: &MapEntry,
    path: &str,
    message: String,
    hint: Option<String>,
) -> Problem {
    Problem {
        severity,
        file: Some(file.to_path_buf()),
        line: entry.at.line,
        column: entry.at.column,
        key: Some(path.to_owned()),
        message,
        hint,
    }
}

/// Why a key means nothing here that means something to the Python program.
fn unused(path: &str) -> Option<&'static str> {
    UNUSED.iter().find(|(unused, _)| *unused == path).map(|(_, why)| *why)
}

/// What may be meant by a key that is not known, in a sentence.
pub fn hint(path: &str) -> Option<String> {
    match unused(path) {
        Some(why) => Some(format!("it has no effect: {why}")),
        None => nearest(path).map(|near| format!("did you mean `{near}`?")),
    }
}

/// The known key or section whose name is nearest to this one, if any is near.
fn nearest(path: &str) -> Option<String> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let sections = keys::all().filter_map(|key| key.path.rsplit_once('.').map(|(section, _)| section));
    let unused = UNUSED.iter().map(|(path, _)| *path);
    let known = keys::all().map(|key| key.path).chain(sections).chain(unused);
    let distance = |known: &str| {
        let whole = strsim::damerau_levenshtein(path, known);
        let same_name = known.rsplit('.').next() == Some(last) && known != path;
        // Of several with the same name the most alike is meant.
        (if same_name { whole.min(1) } else { whole }, whole)
    };
    let (near, distance) =
        known.map(|known| (known, distance(known))).min_by_key(|(_, distance)| *distance)?;
    (distance.0 <= (path.len() / 4).max(2)).then(|| near.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_key_is_named() {
        let cases = [
            ("terminal.dokcer_image", Some("terminal.docker_image")),
            ("terminl", Some("terminal")),
            ("docker_image", Some("terminal.docker_image")),
            ("aproval.mode", Some("approvals.mode")),
            ("zzzz", None),
        ];
        for (path, expected) in cases {
            assert_eq!(nearest(path).as_deref(), expected, "{path}");
        }
    }
}
