//! Unknown and unused keys of `config.yaml`, with suggestions.

use std::path::Path;

use super::define::ConfigKey;
use super::keys;
use super::layers::{Problem, Severity};
use super::unused::{unused_keys, unused_reason};
use super::yaml::{Node, NodeKind};

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
        let is_short_model = path == "model" && matches!(entry.value.kind, NodeKind::Scalar { .. });
        let is_known = |key: &ConfigKey| key.path == path || key.aliases.contains(&path.as_str());
        let mut report = |severity, message: String, hint| {
            let problem = Problem::in_file(severity, file, entry.at, message);
            problems.push(Problem { key: Some(path.clone()), hint, ..problem });
        };
        if path == "_config_version" || is_short_model || keys::find(&path).is_some_and(is_known) {
            // Its value is checked where it is read.
        } else if let Some(reason) = unused_reason(&path) {
            report(Severity::Note, reason.to_owned(), None);
        } else if keys::all().any(|key| key.path.starts_with(&format!("{path}."))) {
            match &entry.value.kind {
                NodeKind::Map(_) => walk(&entry.value, &format!("{path}."), file, problems),
                NodeKind::Null => {}
                _ => {
                    let message = format!("expected a map, found {}", entry.value.describe());
                    report(Severity::Error, message, None);
                }
            }
        } else {
            report(Severity::Warning, "unknown key, ignored".to_owned(), hint(&path));
        }
    }
}

/// A hint about a key that is unknown or unused.
pub fn hint(path: &str) -> Option<String> {
    match unused_reason(path) {
        Some(reason) => Some(format!("it has no effect: {reason}")),
        None => nearest(path).map(|near| format!("did you mean `{near}`?")),
    }
}

/// The known key or section with the most similar name, if any is similar.
fn nearest(path: &str) -> Option<String> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let sections = keys::all().filter_map(|key| key.path.rsplit_once('.').map(|(section, _)| section));
    let known = keys::all().map(|key| key.path).chain(sections).map(str::to_owned).chain(unused_keys());
    let distance = |known: &str| {
        let whole = strsim::damerau_levenshtein(path, known);
        let is_same_name = known.rsplit('.').next() == Some(last) && known != path;
        // Of several keys with this name, the most similar path is meant.
        (if is_same_name { whole.min(1) } else { whole }, whole)
    };
    let (distance, near) =
        known.map(|known| (distance(&known), known)).min_by_key(|(distance, _)| *distance)?;
    (distance.0 <= (path.len() / 4).max(2)).then_some(near)
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
