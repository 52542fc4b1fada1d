//! Repairs tool names that a model misspelled.

use heck::ToSnakeCase;
use hermes_types::ToolSpec;

/// Longer names are not compared: it takes too long.
const MAX_COMPARED_CHARS: usize = 128;
/// With a lower value, `edit_file` would match `write_file`.
const MIN_SIMILARITY: f64 = 0.75;

/// The tool that the model meant, if that is certain. Removes markup that leaked into the name,
/// then tries case, separators, `CamelCase`, a `tool` suffix, and finally the one name that is
/// nearly the same.
pub fn repair_tool_name(name: &str, tools: &[ToolSpec]) -> Option<String> {
    let cut = name.split(['"', '\'', '<', '>', '`']).next().unwrap_or_default().trim();
    let cut = cut.strip_prefix("functions.").unwrap_or(cut);
    let cut = match cut.rsplit_once(':') {
        Some((before, number)) if number.chars().all(|c| c.is_ascii_digit()) => before,
        _ => cut,
    };
    let lower = cut.to_lowercase();
    let snake = cut.to_snake_case();
    let mut without_suffix = snake.as_str();
    let mut candidates = vec![name, cut, &lower, &snake];
    for _ in 0..2 {
        without_suffix = without_suffix.strip_suffix("tool").unwrap_or_default().trim_end_matches('_');
        candidates.push(without_suffix);
    }
    // Some servers send the name with each piece of a call, and a proxy joins the pieces.
    candidates.extend(repeated_part(&lower).into_iter().chain(repeated_part(&snake)));
    let found = candidates.into_iter().find(|candidate| tools.iter().any(|tool| tool.name == *candidate));
    found.map(str::to_owned).or_else(|| most_similar(&snake, tools))
}

/// The text of which a name is two or more copies.
fn repeated_part(name: &str) -> Option<&str> {
    if name.len() > MAX_COMPARED_CHARS {
        return None;
    }
    let starts = name.char_indices().map(|(at, _)| at).skip(1).filter(|at| *at <= name.len() / 2);
    let mut parts = starts.filter(|at| name.len().is_multiple_of(*at)).filter_map(|at| name.get(..at));
    parts.find(|part| part.repeat(name.len() / part.len()) == name)
}

/// The most similar name, or none if two are equally similar.
fn most_similar(name: &str, tools: &[ToolSpec]) -> Option<String> {
    if name.chars().count() > MAX_COMPARED_CHARS {
        return None;
    }
    let score = |tool: &ToolSpec| strsim::normalized_damerau_levenshtein(name, &tool.name);
    let scores: Vec<f64> = tools.iter().map(score).collect();
    let best = scores.iter().copied().max_by(f64::total_cmp).filter(|best| *best >= MIN_SIMILARITY)?;
    let mut similar = tools.iter().zip(scores).filter(|(_, score)| best - score < f64::EPSILON);
    similar.next().filter(|_| similar.next().is_none()).map(|(tool, _)| tool.name.clone())
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
            (" Terminal ", Some("terminal")),
            ("terminalterminal", Some("terminal")),
            ("TerminalTerminal", Some("terminal")),
            ("read_fileread_fileread_file", Some("read_file")),
            ("terminalread_file", None),
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
