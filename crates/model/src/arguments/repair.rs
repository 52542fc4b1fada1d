//! Repairs the mistakes that models make in JSON, without guessing a value.

/// Longer text is not repaired.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Removes trailing commas, raw control characters, code fences and surplus closing brackets, and
/// closes open brackets. An open string is not closed: the rest of its text is unknown.
pub(super) fn repair(text: &str) -> Option<String> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let text = strip_fence(text);
    let mut repaired = String::with_capacity(text.len() + 8);
    let mut open: Vec<char> = Vec::new();
    let mut is_string = false;
    let mut is_escaped = false;
    for c in text.chars() {
        if is_string {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => is_string = false,
                _ => {}
            }
            if c.is_ascii_control() {
                // A control character after a backslash has one backslash too many.
                if repaired.ends_with('\\') && !repaired.ends_with("\\\\") {
                    repaired.pop();
                }
                repaired.push_str(&format!("\\u{:04x}", u32::from(c)));
            } else {
                repaired.push(c);
            }
            continue;
        }
        match c {
            '"' => is_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                drop_comma(&mut repaired);
                // A surplus bracket is ignored.
                let Some(expected) = open.pop() else { continue };
                if expected != c {
                    return None;
                }
            }
            _ => {}
        }
        repaired.push(c);
    }
    if is_string {
        return None;
    }
    drop_comma(&mut repaired);
    repaired.extend(open.iter().rev());
    Some(repaired)
}

/// Removes a code fence around the whole text.
fn strip_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    match inner.split_once('\n') {
        Some((language, rest)) if language.chars().all(char::is_alphanumeric) => rest,
        _ => inner,
    }
}

fn drop_comma(text: &mut String) {
    let trimmed = text.trim_end();
    if trimmed.ends_with(',') {
        text.truncate(trimmed.len() - 1);
    }
}
