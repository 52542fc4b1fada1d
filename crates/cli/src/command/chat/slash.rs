//! What can be typed besides messages: `/commands` and `!commands`.

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputLine {
    /// Nothing.
    Empty,
    /// A message for the model.
    Message(String),
    /// A command for the session's place.
    Shell(String),
    /// A command for the chat.
    Slash(SlashCommand),
    /// Something that wants to be a command, and what is wrong with it.
    Invalid(String),
}

/// A command for the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlashCommand {
    New,
    Stop,
    Retry,
    Undo,
    Model(Option<String>),
    Usage,
    Status,
    Approve(ApprovalScope, Option<String>),
    Deny(Option<String>),
    Steer(String),
    Queue(String),
    Help,
    Quit,
}

/// How far a yes goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalScope {
    Once,
    Session,
    Always,
}

/// A command as people learn of it.
struct SlashSpec {
    name: &'static str,
    aliases: &'static [&'static str],
    parameters: &'static str,
    summary: &'static str,
}

const fn spec(
    name: &'static str,
    aliases: &'static [&'static str],
    takes: &'static str,
    does: &'static str,
) -> SlashSpec {
    SlashSpec { name, aliases, parameters: takes, summary: does }
}

const SLASH_COMMANDS: [SlashSpec; 13] = [
    spec("new", &["reset"], "", "start a new conversation in the same environment"),
    spec("stop", &[], "", "stop the running turn"),
    spec("retry", &[], "", "answer the last message again"),
    spec("undo", &[], "", "undo the last message and its answer"),
    spec("model", &[], "[NAME]", "show or change the model"),
    spec("usage", &["cost"], "", "show tokens and cost of the conversation"),
    spec("status", &[], "", "show the conversation, its model and its environment"),
    spec("approve", &["yes"], "[session|always] [ID]", "approve a pending question"),
    spec("deny", &["no"], "[ID]", "deny a pending question"),
    spec("steer", &[], "TEXT", "send the model a note while it works"),
    spec("queue", &["q"], "TEXT", "send this after the running turn"),
    spec("help", &["?", "commands"], "", "show this list"),
    spec("quit", &["exit"], "", "leave; the conversation can be resumed"),
];

/// Reads a line. Commands come before anything else.
pub(super) fn parse_line(line: &str) -> InputLine {
    let line = line.trim();
    if line.is_empty() {
        return InputLine::Empty;
    }
    if let Some(command) = line.strip_prefix('!') {
        return match command.trim() {
            "" => InputLine::Invalid("usage: !COMMAND, for example `!ls`".to_owned()),
            command => InputLine::Shell(command.to_owned()),
        };
    }
    let Some(rest) = line.strip_prefix('/') else { return InputLine::Message(line.to_owned()) };
    let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path is a path, and `//` a comment.
    if !word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '?')) {
        return InputLine::Message(line.to_owned());
    }
    let word = word.to_ascii_lowercase();
    let found =
        SLASH_COMMANDS.iter().find(|known| known.name == word || known.aliases.contains(&word.as_str()));
    match found {
        Some(known) => parse_command(known, rest.trim()),
        None => InputLine::Invalid(unknown_command(&word)),
    }
}

fn parse_command(known: &SlashSpec, rest: &str) -> InputLine {
    let text = Some(rest.to_owned()).filter(|text| !text.is_empty());
    let said = match (known.name, text) {
        ("new", None) => SlashCommand::New,
        ("stop", None) => SlashCommand::Stop,
        ("retry", None) => SlashCommand::Retry,
        ("undo", None) => SlashCommand::Undo,
        ("model", name) => SlashCommand::Model(name),
        ("usage", None) => SlashCommand::Usage,
        ("status", None) => SlashCommand::Status,
        ("approve", text) => {
            let (yes, id) = parse_approval(text.as_deref().unwrap_or_default());
            SlashCommand::Approve(yes, id)
        }
        ("deny", id) => SlashCommand::Deny(id),
        ("steer", Some(text)) => SlashCommand::Steer(text),
        ("queue", Some(text)) => SlashCommand::Queue(text),
        ("help", _) => SlashCommand::Help,
        ("quit", None) => SlashCommand::Quit,
        _ => return InputLine::Invalid(format!("usage: {}", usage(known))),
    };
    InputLine::Slash(said)
}

fn parse_approval(text: &str) -> (ApprovalScope, Option<String>) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (yes, id) = match first {
        "session" => (ApprovalScope::Session, rest.trim()),
        "always" => (ApprovalScope::Always, rest.trim()),
        "once" => (ApprovalScope::Once, rest.trim()),
        _ => (ApprovalScope::Once, text),
    };
    (yes, Some(id.to_owned()).filter(|id| !id.is_empty()))
}

fn usage(known: &SlashSpec) -> String {
    format!("/{} {}", known.name, known.parameters).trim_end().to_owned()
}

fn unknown_command(word: &str) -> String {
    let names = SLASH_COMMANDS.iter().flat_map(|known| known.aliases.iter().chain([&known.name])).copied();
    let near = names
        .map(|name| (strsim::damerau_levenshtein(name, word), name))
        .filter(|(distance, name)| *distance <= 2 && *distance < name.len() || name.starts_with(word))
        .min();
    match near {
        Some((_, name)) => format!("unknown command /{word}; did you mean /{name}?"),
        None => format!("unknown command /{word}; /help lists the commands"),
    }
}

/// The list of all commands.
pub(super) fn help() -> String {
    let also = |known: &SlashSpec| match known.aliases {
        [] => String::new(),
        aliases => format!(" (also /{})", aliases.join(", /")),
    };
    let line = |known: &SlashSpec| format!("  {:32}{}{}\n", usage(known), known.summary, also(known));
    let mut text: String = SLASH_COMMANDS.iter().map(line).collect();
    text.push_str(&format!(
        "  {:32}run a shell command in the environment; the model does not see it\n",
        "!COMMAND"
    ));
    text.push_str("  End a line with \\ to continue it on the next one.");
    text
}

/// The names, for completion.
pub(super) fn names() -> impl Iterator<Item = String> {
    SLASH_COMMANDS.iter().map(|known| format!("/{}", known.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        let message = |text: &str| InputLine::Message(text.to_owned());
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            ("  ", InputLine::Empty),
            ("hello / there ", message("hello / there")),
            ("/etc/passwd: what is it?", message("/etc/passwd: what is it?")),
            ("// a comment", message("// a comment")),
            ("what does !x do", message("what does !x do")),
            ("!ls -l", InputLine::Shell("ls -l".to_owned())),
            ("! make test", InputLine::Shell("make test".to_owned())),
            ("/new", InputLine::Slash(SlashCommand::New)),
            ("/RESET", InputLine::Slash(SlashCommand::New)),
            (" /exit ", InputLine::Slash(SlashCommand::Quit)),
            ("/model", InputLine::Slash(SlashCommand::Model(None))),
            ("/model a/b c", InputLine::Slash(SlashCommand::Model(some("a/b c")))),
            ("/approve", InputLine::Slash(SlashCommand::Approve(ApprovalScope::Once, None))),
            ("/approve always", InputLine::Slash(SlashCommand::Approve(ApprovalScope::Always, None))),
            (
                "/approve session q_a",
                InputLine::Slash(SlashCommand::Approve(ApprovalScope::Session, some("q_a"))),
            ),
            ("/approve q_a", InputLine::Slash(SlashCommand::Approve(ApprovalScope::Once, some("q_a")))),
            ("/deny q_a", InputLine::Slash(SlashCommand::Deny(some("q_a")))),
            (
                "/steer look left\nand right",
                InputLine::Slash(SlashCommand::Steer("look left\nand right".to_owned())),
            ),
            ("/q later", InputLine::Slash(SlashCommand::Queue("later".to_owned()))),
            ("/?", InputLine::Slash(SlashCommand::Help)),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_line(line), expected, "{line}");
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
            assert!(
                matches!(parse_line(line), InputLine::Invalid(why) if why.contains(told)),
                "{line}: {:?}",
                parse_line(line)
            );
        }
    }

    #[test]
    fn every_command_is_understood_and_in_the_help() {
        for known in &SLASH_COMMANDS {
            let line = format!("/{} x", known.name);
            let bare = format!("/{}", known.name);
            let understood = [line, bare].iter().any(|line| matches!(parse_line(line), InputLine::Slash(_)));
            assert!(understood, "{}", known.name);
            assert!(help().contains(&format!("/{}", known.name)));
        }
    }
}
