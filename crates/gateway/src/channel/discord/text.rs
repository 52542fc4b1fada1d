//! Discord markup in texts: mentions, emoji, times.

const MAX_THREAD_NAME_CHARS: usize = 80;
const MAX_POST_TITLE_CHARS: usize = 100;
const DEFAULT_THREAD_NAME: &str = "Hermes";

pub(super) fn strip_mention(text: &str, bot: &str) -> String {
    mention_forms(bot)
        .iter()
        .fold(text.to_owned(), |text, form| text.replace(form.as_str(), ""))
        .trim()
        .to_owned()
}

pub(super) fn has_mention(text: &str, id: &str) -> bool {
    let outside = strip_code(text);
    mention_forms(id).iter().any(|form| outside.contains(form.as_str()))
}

/// A thread name from a text, without references.
pub(super) fn thread_name(text: &str) -> String {
    truncate_title(
        strip_references(text).split_whitespace().collect::<Vec<_>>().join(" "),
        MAX_THREAD_NAME_CHARS,
    )
}

/// The first line of a text as a forum post title.
pub(super) fn post_title(text: &str) -> String {
    let lines = text.lines().map(|line| strip_references(line.trim_start_matches(['#', '>', '*', '-', ' '])));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let name = words.map(|line| line.trim_matches(['*', '_', '`']).to_owned()).find(|line| !line.is_empty());
    truncate_title(name.unwrap_or_default(), MAX_POST_TITLE_CHARS)
}

fn truncate_title(name: String, max_chars: usize) -> String {
    match name.chars().count() {
        0 => DEFAULT_THREAD_NAME.to_owned(),
        count if count <= max_chars => name,
        _ => name.chars().take(max_chars - 3).chain("...".chars()).collect(),
    }
}

fn mention_forms(id: &str) -> [String; 2] {
    [format!("<@{id}>"), format!("<@!{id}>")]
}

/// Removes references to users, roles, channels and times; keeps the names of emoji and commands.
fn strip_references(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        plain.push_str(before);
        rest = match after.split_once('>').and_then(|(inside, after)| Some((reference_text(inside)?, after)))
        {
            Some((words, after)) => {
                plain.push_str(&words);
                after
            }
            None => {
                plain.push('<');
                after
            }
        };
    }
    plain.push_str(rest);
    plain
}

/// The replacement of a reference in angle brackets.
fn reference_text(inside: &str) -> Option<String> {
    let is_id = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered =
        |text: &str| text.rsplit_once(':').filter(|(_, id)| is_id(id)).map(|(name, _)| name.to_owned());
    if let Some(person) = inside.strip_prefix('@') {
        let id = person.strip_prefix(['!', '&']).unwrap_or(person);
        return is_id(id).then(String::new);
    }
    if let Some(channel) = inside.strip_prefix('#') {
        return is_id(channel).then(String::new);
    }
    if let Some(command) = inside.strip_prefix('/') {
        return numbered(command).map(|name| format!("/{name}"));
    }
    if let Some(time) = inside.strip_prefix("t:") {
        return is_id(time.split(':').next().unwrap_or_default()).then(String::new);
    }
    let emoji = inside.strip_prefix("a:").or_else(|| inside.strip_prefix(':'))?;
    numbered(emoji).map(|name| format!(":{name}:"))
}

fn strip_code(text: &str) -> String {
    let without_blocks: String = text.split("```").step_by(2).collect::<Vec<_>>().join(" ");
    without_blocks.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_names_contain_no_references() {
        let long = "a".repeat(81);
        let cut = format!("{}...", "a".repeat(77));
        let just = "é".repeat(80);
        let cases = [
            ("fix the build", "fix the build"),
            ("  fix\n\tthe   build ", "fix the build"),
            ("<@42> <@!43> <@&44> look at <#45> now", "look at now"),
            ("<@42>", "Hermes"),
            ("", "Hermes"),
            ("</model:77> is broken <:sad:78> <a:cry:79>", "/model is broken :sad: :cry:"),
            ("at <t:1700000000:R> please", "at please"),
            ("if a<b and c>d", "if a<b and c>d"),
            ("<@unknown> <#general>", "<@unknown> <#general>"),
            (long.as_str(), cut.as_str()),
            (just.as_str(), just.as_str()),
        ];
        for (text, expected) in cases {
            assert_eq!(thread_name(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_post_is_named_by_its_first_line() {
        let long = "é".repeat(101);
        let cut = format!("{}...", "é".repeat(97));
        let cases = [
            ("Report\nall is well", "Report"),
            ("\n\n## **Daily**  report\nall is well", "Daily** report"),
            ("> <@42>\n`done`", "done"),
            ("", "Hermes"),
            (long.as_str(), cut.as_str()),
        ];
        for (text, expected) in cases {
            assert_eq!(post_title(text), expected, "{text:?}");
        }
    }

    #[test]
    fn mentions_in_code_do_not_count() {
        let cases = [
            ("hi <@42>", true),
            ("hi <@!42>", true),
            ("hi <@421>", false),
            ("say `<@42>`", false),
            ("```\n<@42>\n``` there", false),
            ("```\ncode\n``` <@42>", true),
            ("hi 42", false),
        ];
        for (text, expected) in cases {
            assert_eq!(has_mention(text, "42"), expected, "{text:?}");
        }
        assert_eq!(strip_mention("<@42> tell <@7> <@!42>", "42"), "tell <@7>");
    }
}
