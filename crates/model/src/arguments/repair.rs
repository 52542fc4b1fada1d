//! Mends the mistakes that models make in JSON, without ever guessing at a value.

/// Longer texts are left as they are.
const LONGEST: usize = 4 << 20;

/// The text without trailing commas, raw control characters, code fences and surplus closing brackets, and with the brackets
/// closed that are open. An open string is not closed: nobody knows what else was to be in it.
pub(super) fn repair(text: &str) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let text = unfenced(text);
    let mut mended = String::with_capacity(text.len() + 8);
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
                // A control character behind a backslash is one with a backslash too many.
                if mended.ends_with('\\') && !mended.ends_with("\\\\") {
                    mended.pop();
                }
                mended.push_str(&format!("\\u{:04x}", u32::from(c)));
            } else {
                mended.push(c);
            }
            continue;
        }
        match c {
            '"' => is_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                drop_comma(&mut mended);
                match open.last() {
                    Some(expected) if *expected == c => {
                        open.pop();
                    }
                    // One too many, as long as nothing follows.
                    None => continue,
                    Some(_) => return None,
                }
            }
            _ => {}
        }
        mended.push(c);
    }
    if is_string {
        return None;
    }
    drop_comma(&mut mended);
    mended.extend(open.iter().rev());
    Some(mended)
}

/// What is inside of a code fence, if all of it is.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    match inner.split_once('\n') {
        Some((word, rest)) if word.chars().all(char::is_alphanumeric) => rest,
        _ => inner,
    }
}

fn drop_comma(text: &mut String) {
    let trimmed = text.trim_end();
    if trimmed.ends_with(',') {
        text.truncate(trimmed.len() - 1);
    }
}
