//! What can be typed besides messages: `/commands` and `!commands`.

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing.
    Nothing,
    /// A message for the model.
    Message(String),
    /// A command for the session's place.
    Shell(String),
    /// A command for the chat.
    Slash(Slash),
    /// Something that wants to be a command, and what is wrong with it.
    Wrong(String),
}

/// A command for the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slash {
    New,
    Stop,
    Retry,
    Undo,
    Model(Option<String>),
    Usage,
    Status,
    Approve(Yes, Option<String>),
    Deny(Option<String>),
    Steer(String),
    Queue(String),
    Help,
    Quit,
}

/// How far a yes goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yes {
    Once,
    Session,
    Always,
}

/// A command as people learn of it.
struct Known {
    name: &'static str,
    aliases: &'static [&'static str],
    takes: &'static str,
    does: &'static str,
}

const fn known(
    name: &'static str,
    aliases: &'static [&'static str],
    takes: &'static str,
    does: &'static str,
) -> Known {
    Known { name, aliases, takes, does }
}

const ALL: [Known; 13] = [
    known("new", &["reset"], "", "begin a new conversation in the same place"),
    known("stop", &[], "", "end the answer that is under way"),
    known("retry", &[], "", "have the last message answered again"),
    known("undo", &[], "", "take back the last message and what came of it"),
    known("model", &[], "[NAME]", "show the model, or let another one answer"),
    known("usage", &["cost"], "", "what the conversation took so far"),
    known("status", &[], "", "the conversation, its model and its place"),
    known("approve", &["yes"], "[session|always] [ID]", "say yes to a question that waits"),
    known("deny", &["no"], "[ID]", "say no to it"),
    known("steer", &[], "TEXT", "tell the model something while it works"),
    known("queue", &["q"], "TEXT", "say this when the answer is there"),
    known("help", &["?", "commands"], "", "this list"),
    known("quit", &["exit"], "", "leave; the conversation can be resumed"),
];

/// Reads a line. Commands come before anything else.
pub(super) fn read(line: &str) -> Said {
    let line = line.trim();
    if line.is_empty() {
        return Said::Nothing;
    }
    if let Some(command) = line.strip_prefix('!') {
        return match command.trim() {
            "" => Said::Wrong("behind ! stands a command, as in `!ls`".to_owned()),
            command => Said::Shell(command.to_owned()),
        };
    }
    let Some(rest) = line.strip_prefix('/') else { return Said::Message(line.to_owned()) };
    let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path is a path, and `//` a comment.
    if !word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '?')) {
        return Said::Message(line.to_owned());
    }
    let word = word.to_ascii_lowercase();
    let found = ALL.iter().find(|known| known.name == word || known.aliases.contains(&word.as_str()));
    match found {
        Some(known) => slash(known, rest.trim()),
        None => Said::Wrong(unknown(&word)),
    }
}

fn slash(known: &Known, rest: &str) -> Said {
    let text = Some(rest.to_owned()).filter(|text| !text.is_empty());
    let said = match (known.name, text) {
        ("new", None) => Slash::New,
        ("stop", None) => Slash::Stop,
        ("retry", None) => Slash::Retry,
        ("undo", None) => Slash::Undo,
        ("model", name) => Slash::Model(name),
        ("usage", None) => Slash::Usage,
        ("status", None) => Slash::Status,
        ("approve", text) => {
            let (yes, id) = approval(text.as_deref().unwrap_or_default());
            Slash::Approve(yes, id)
        }
        ("deny", id) => Slash::Deny(id),
        ("steer", Some(text)) => Slash::Steer(text),
        ("queue", Some(text)) => Slash::Queue(text),
        ("help", _) => Slash::Help,
        ("quit", None) => Slash::Quit,
        _ => return Said::Wrong(format!("it is used like this: {}", usage(known))),
    };
    Said::Slash(said)
}

fn approval(text: &str) -> (Yes, Option<String>) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (yes, id) = match first {
        "session" => (Yes::Session, rest.trim()),
        "always" => (Yes::Always, rest.trim()),
        "once" => (Yes::Once, rest.trim()),
        _ => (Yes::Once, text),
    };
    (yes, Some(id.to_owned()).filter(|id| !id.is_empty()))
}

fn usage(known: &Known) -> String {
    format!("/{} {}", known.name, known.takes).trim_end().to_owned()
}

fn unknown(word: &str) -> String {
    let names = ALL.iter().flat_map(|known| known.aliases.iter().chain([&known.name])).copied();
    let near = names
        .map(|name| (strsim::damerau_levenshtein(name, word), name))
        .filter(|(distance, name)| *distance <= 2 && *distance < name.len() || name.starts_with(word))
        .min();
    match near {
        Some((_, name)) => format!("there is no /{word}; did you mean /{name}?"),
        None => format!("there is no /{word}; /help lists the commands"),
    }
}

/// The list of all commands.
pub(super) fn help() -> String {
    let also = |known: &Known| match known.aliases {
        [] => String::new(),
        aliases => format!(" (also /{})", aliases.join(", /")),
    };
    let line = |known: &Known| format!("  {:32}{}{}\n", usage(known), known.does, also(known));
    let mut text: String = ALL.iter().map(line).collect();
    text.push_str(&format!(
        "  {:32}run a command in the place of this chat; the model is not told\n",
        "!COMMAND"
    ));
    text.push_str("  A line that ends in \\ goes on in the next one.");
    text
}

/// The names, for completion.
pub(super) fn names() -> impl Iterator<Item = String> {
    ALL.iter().map(|known| format!("/{}", known.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        let message = |text: &str| Said::Message(text.to_owned());
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            ("  ", Said::Nothing),
            ("hello / there ", message("hello / there")),
            ("/etc/passwd: what is it?", message("/etc/passwd: what is it?")),
            ("// a comment", message("// a comment")),
            ("what does !x do", message("what does !x do")),
            ("!ls -l", Said::Shell("ls -l".to_owned())),
            ("! make test", Said::Shell("make test".to_owned())),
            ("/new", Said::Slash(Slash::New)),
            ("/RESET", Said::Slash(Slash::New)),
            (" /exit ", Said::Slash(Slash::Quit)),
            ("/model", Said::Slash(Slash::Model(None))),
            ("/model a/b c", Said::Slash(Slash::Model(some("a/b c")))),
            ("/approve", Said::Slash(Slash::Approve(Yes::Once, None))),
            ("/approve always", Said::Slash(Slash::Approve(Yes::Always, None))),
            ("/approve session q_a", Said::Slash(Slash::Approve(Yes::Session, some("q_a")))),
            ("/approve q_a", Said::Slash(Slash::Approve(Yes::Once, some("q_a")))),
            ("/deny q_a", Said::Slash(Slash::Deny(some("q_a")))),
            ("/steer look left\nand right", Said::Slash(Slash::Steer("look left\nand right".to_owned()))),
            ("/q later", Said::Slash(Slash::Queue("later".to_owned()))),
            ("/?", Said::Slash(Slash::Help)),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_almost_a_command_says_what_would_be_one() {
        let cases = [
            ("/modle x", "did you mean /model?"),
            ("/stat", "did you mean /status?"),
            ("/frobnicate", "/help lists"),
            ("/steer", "/steer TEXT"),
            ("/undo 3", "/undo"),
            ("!", "`!ls`"),
        ];
        for (line, told) in cases {
            assert!(matches!(read(line), Said::Wrong(why) if why.contains(told)), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn every_command_is_understood_and_in_the_help() {
        for known in &ALL {
            let line = format!("/{} x", known.name);
            let bare = format!("/{}", known.name);
            let understood = [line, bare].iter().any(|line| matches!(read(line), Said::Slash(_)));
            assert!(understood, "{}", known.name);
            assert!(help().contains(&format!("/{}", known.name)));
        }
    }
}
