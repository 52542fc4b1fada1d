//! What Discord writes into a text: mentions, emoji, times.

/// The longest name of a thread.
const LONGEST_NAME: usize = 80;
/// The longest title of a post.
const LONGEST_TITLE: usize = 100;
/// The name of a thread that no words name.
const NAMELESS: &str = "Hermes";

/// A text without the mentions of the bot.
pub(super) fn without_mention(text: &str, bot: &str) -> String {
    forms(bot).iter().fold(text.to_owned(), |text, form| text.replace(form.as_str(), "")).trim().to_owned()
}

/// Whether a text mentions somebody outside of code.
pub(super) fn mentions(text: &str, id: &str) -> bool {
    let outside = outside_code(text);
    forms(id).iter().any(|form| outside.contains(form.as_str()))
}

/// A name for a thread about a text, without an id in it.
pub(super) fn thread_name(text: &str) -> String {
    cut(plain(text).split_whitespace().collect::<Vec<_>>().join(" "), LONGEST_NAME)
}

/// A title for a post that says a text: its first line.
pub(super) fn title(text: &str) -> String {
    let lines = text.lines().map(|line| plain(line.trim_start_matches(['#', '>', '*', '-', ' '])));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let name = words.map(|line| line.trim_matches(['*', '_', '`']).to_owned()).find(|line| !line.is_empty());
    cut(name.unwrap_or_default(), LONGEST_TITLE)
}

/// A name that is not longer than this, and not empty.
fn cut(name: String, longest: usize) -> String {
    match name.chars().count() {
        0 => NAMELESS.to_owned(),
        count if count <= longest => name,
        _ => name.chars().take(longest - 3).chain("...".chars()).collect(),
    }
}

fn forms(id: &str) -> [String; 2] {
    [format!("<@{id}>"), format!("<@!{id}>")]
}

/// A text without references: those to people, roles, channels and times are left out, emoji and commands keep their names.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        plain.push_str(before);
        rest = match after.split_once('>').and_then(|(inside, after)| Some((reference(inside)?, after))) {
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

/// What is left of what stands between angle brackets, if it refers to something.
fn reference(inside: &str) -> Option<String> {
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

/// A text without what is marked as code, where nothing is a mention.
fn outside_code(text: &str) -> String {
    let without_blocks: String = text.split("```").step_by(2).collect::<Vec<_>>().join(" ");
    without_blocks.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_by_words_only() {
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
            ("<@nobody> <#general>", "<@nobody> <#general>"),
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
            assert_eq!(title(text), expected, "{text:?}");
        }
    }

    #[test]
    fn mentions_count_outside_of_code() {
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
            assert_eq!(mentions(text, "42"), expected, "{text:?}");
        }
        assert_eq!(without_mention("<@42> tell <@7> <@!42>", "42"), "tell <@7>");
    }
}
