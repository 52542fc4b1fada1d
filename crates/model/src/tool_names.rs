//! Repairs tool names that a model misspelled.

use hermes_types::ToolSpec;

/// With a lower value, `edit_file` would match `write_file`.
const MIN_SIMILARITY: f64 = 0.75;

/// The tool that the model meant, if that is certain. Removes markup that leaked into the name,
/// then tries case, separators, `CamelCase`, a `tool` suffix, and finally the one name that is
/// nearly the same.
pub fn repair_tool_name(name: &str, tools: &[ToolSpec]) -> Option<String> {
    let known = |candidate: &str| tools.iter().any(|tool| tool.name == candidate);
    let cut = name.split(['"', '\'', '<', '>', '`']).next().unwrap_or_default().trim();
    let cut = cut.strip_prefix("functions.").unwrap_or(cut);
    let cut = match cut.rsplit_once(':') {
        Some((before, number)) if number.chars().all(|c| c.is_ascii_digit()) => before,
        _ => cut,
    };
    let lower = cut.to_lowercase();
    let joined = lower.replace(['-', ' '], "_");
    let snake = to_snake_case(cut);
    let candidates = [name, cut, &lower, &joined, &snake];
    if let Some(found) = candidates.into_iter().find(|candidate| known(candidate)) {
        return Some(found.to_owned());
    }
    for start in [&joined, &snake] {
        let mut rest = start.as_str();
        for _ in 0..2 {
            let Some(shorter) = rest.strip_suffix("tool") else { break };
            rest = shorter.trim_end_matches('_');
            if known(rest) {
                return Some(rest.to_owned());
            }
        }
    }
    most_similar(&snake, tools)
}

fn to_snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && after_lower {
            out.push('_');
        }
        after_lower = c.is_lowercase() || c.is_ascii_digit();
        match c {
            '-' | ' ' | '.' => out.push('_'),
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

/// The most similar name, or none if two are equally similar.
fn most_similar(name: &str, tools: &[ToolSpec]) -> Option<String> {
    // The comparison is quadratic in the length.
    if name.chars().count() > 128 {
        return None;
    }
    let mut similar: Vec<_> = tools
        .iter()
        .map(|tool| (strsim::normalized_damerau_levenshtein(name, &tool.name), &tool.name))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    match similar.as_slice() {
        [(first, _), (second, _), ..] if (first - second).abs() < f64::EPSILON => None,
        [(_, best), ..] => Some((*best).clone()),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_intended_tool_is_found() {
        let tools = ["terminal", "read_file", "write_file", "todo"].map(|name| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({}),
        });
        let cases = [
            ("terminal", Some("terminal")),
            ("Terminal", Some("terminal")),
            ("terminal\" arguments=\"", Some("terminal")),
            ("terminal</name>", Some("terminal")),
            ("read-file", Some("read_file")),
            ("Read File", Some("read_file")),
            ("ReadFile", Some("read_file")),
            ("ReadFileTool", Some("read_file")),
            ("terminal_tool_tool", Some("terminal")),
            ("functions.terminal:0", Some("terminal")),
            ("termnal", Some("terminal")),
            ("edit_file", None),
            ("delete_everything", None),
            ("", None),
            ("tool", None),
        ];
        for (name, expected) in cases {
            assert_eq!(repair_tool_name(name, &tools).as_deref(), expected, "{name}");
        }
        assert_eq!(repair_tool_name(&"x".repeat(1 << 20), &tools), None);
    }
}
