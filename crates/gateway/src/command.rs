//! What people can tell the gateway itself, read before anything else is done with their words.

use crate::letter::Letter;
use crate::people::Tier;

/// Something for the gateway, not for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begin a new conversation.
    New,
    /// End what is under way.
    Stop(Extent),
    /// Tell how things are.
    Status,
    /// Say yes to a question.
    Approve {
        /// Which one; the one that waits if there is only one.
        id: Option<String>,
        /// How far the yes goes.
        scope: Scope,
    },
    /// Say no to a question.
    Deny {
        /// Which one; the one that waits if there is only one.
        id: Option<String>,
        /// Why, for the model.
        reason: Option<String>,
    },
    /// Say this when the answer is there.
    Queue(String),
    /// Tell the model something while it works.
    Steer(String),
    /// Have the last message answered again.
    Retry,
    /// Take back so many messages.
    Undo(u32),
    /// Show the model, or change it.
    Model(Option<Model>),
    /// What the conversation took so far.
    Usage,
    /// Show the title, or change it.
    Title(Option<String>),
    /// List conversations.
    Sessions,
    /// Go on with another conversation.
    Resume(Option<String>),
    /// Let this chat get what belongs to no chat.
    Sethome,
    /// Tell people who they are here.
    Whoami,
    /// List the commands.
    Help,
    /// Have this done beside the conversation.
    Background(String),
    /// Start hermes anew.
    Restart,
    /// Ask no questions in this conversation.
    Yolo,
    /// A command that needs to be written in another way.
    Misused(&'static Known),
    /// No command.
    Unknown(String),
}

/// How far a yes goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This time.
    Once,
    /// In this conversation.
    Session,
    /// From now on.
    Always,
}

/// How much is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The answer that is under way.
    Answer,
    /// And what is worked on beside the conversation.
    Everything,
}

/// A model that is to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Which one.
    pub name: String,
    /// For whom.
    pub reach: Reach,
}

/// For whom something is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// For this conversation.
    Session,
    /// For everybody.
    Everybody,
}

/// Who may use a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Whoever was let in.
    Everybody,
    /// Those who look after hermes.
    Admin,
}

/// What a command does while something is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// It works.
    Works,
    /// It has to wait, or `/stop` comes first.
    Waits,
}

/// A command as people learn of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What is written behind it.
    pub takes: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Who may use it.
    pub rights: Rights,
    /// What it does while something is under way.
    pub busy: Busy,
}

const fn known(
    name: &'static str,
    aliases: &'static [&'static str],
    takes: &'static str,
    does: &'static str,
    rights: Rights,
    busy: Busy,
) -> Known {
    Known { name, aliases, takes, does, rights, busy }
}

/// All commands, in the order of the help.
pub static ALL: [Known; 20] = {
    use Busy::{Waits, Works};
    use Rights::{Admin, Everybody};
    [
        known("new", &["reset"], "", "begin a new conversation", Everybody, Works),
        known("stop", &[], "[all]", "end the answer that is under way, or all that is", Everybody, Works),
        known("status", &[], "", "the conversation, its model and its place", Everybody, Works),
        known(
            "approve",
            &["yes"],
            "[ID] [session|always]",
            "say yes to a question that waits",
            Everybody,
            Works,
        ),
        known("deny", &["no"], "[ID] [REASON]", "say no to it", Everybody, Works),
        known("queue", &["q"], "TEXT", "say this when the answer is there", Everybody, Works),
        known("steer", &[], "TEXT", "tell the model something while it works", Everybody, Works),
        known("retry", &[], "", "have the last message answered again", Everybody, Waits),
        known("undo", &[], "[COUNT]", "take back messages and what came of them", Everybody, Waits),
        known(
            "model",
            &[],
            "[NAME] [--global]",
            "show the model, or let another one answer",
            Everybody,
            Waits,
        ),
        known("usage", &["cost"], "", "what the conversation took so far", Everybody, Works),
        known(
            "title",
            &[],
            "[TEXT]",
            "show what the conversation is called, or call it so",
            Everybody,
            Works,
        ),
        known("sessions", &["history"], "", "your conversations", Everybody, Works),
        known("resume", &[], "[ID]", "go on with another conversation of yours", Everybody, Waits),
        known(
            "background",
            &["bg", "btw"],
            "TEXT",
            "have this done beside the conversation",
            Everybody,
            Works,
        ),
        known("whoami", &[], "", "who you are here and what you may do", Everybody, Works),
        known("help", &["commands"], "", "this list", Everybody, Works),
        known("sethome", &["set-home"], "", "let this chat get what belongs to no chat", Admin, Works),
        known("yolo", &[], "", "ask no questions in this conversation, or ask again", Admin, Works),
        known("restart", &[], "", "start hermes anew", Admin, Works),
    ]
};

impl Known {
    /// The command with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|known| known.name == name || known.aliases.contains(&name))
    }

    /// How it is written.
    pub fn usage(&self) -> String {
        format!("/{} {}", self.name, self.takes).trim_end().to_owned()
    }
}

impl Command {
    /// The command that a letter is, if it is one. Only people give commands: what a program sends is never one.
    pub fn read(letter: &Letter) -> Option<Self> {
        if letter.sender.is_bot { None } else { parse(&letter.text) }
    }

    /// What is known of it.
    pub fn known(&self) -> Option<&'static Known> {
        Known::find(match self {
            Self::New => "new",
            Self::Stop(_) => "stop",
            Self::Status => "status",
            Self::Approve { .. } => "approve",
            Self::Deny { .. } => "deny",
            Self::Queue(_) => "queue",
            Self::Steer(_) => "steer",
            Self::Retry => "retry",
            Self::Undo(_) => "undo",
            Self::Model(_) => "model",
            Self::Usage => "usage",
            Self::Title(_) => "title",
            Self::Sessions => "sessions",
            Self::Resume(_) => "resume",
            Self::Sethome => "sethome",
            Self::Whoami => "whoami",
            Self::Help => "help",
            Self::Background(_) => "background",
            Self::Restart => "restart",
            Self::Yolo => "yolo",
            Self::Misused(known) => known.name,
            Self::Unknown(_) => return None,
        })
    }

    /// Who may use it, as it is written.
    pub fn rights(&self) -> Rights {
        match self {
            Self::Model(Some(Model { reach: Reach::Everybody, .. })) => Rights::Admin,
            _ => self.known().map_or(Rights::Everybody, |known| known.rights),
        }
    }

    /// What it does while something is under way. What only tells something never waits.
    pub fn busy(&self) -> Busy {
        match self {
            Self::Model(None) | Self::Misused(_) | Self::Unknown(_) => Busy::Works,
            _ => self.known().map_or(Busy::Works, |known| known.busy),
        }
    }
}

/// The list of commands for somebody.
pub fn help(tier: Tier) -> String {
    let may = |known: &&Known| tier == Tier::Admin || known.rights == Rights::Everybody;
    let line = |known: &Known| format!("`{}` {}", known.usage(), known.does);
    ALL.iter().filter(may).map(line).collect::<Vec<_>>().join("\n")
}

fn parse(text: &str) -> Option<Command> {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let name = word.strip_prefix('/')?;
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_lowercase();
    // A path is no command, and neither is a face.
    let is_name = |name: &str| name.chars().all(|char| char.is_alphanumeric() || matches!(char, '-' | '_'));
    if name.is_empty() || word.matches('/').count() > 1 || !is_name(&name) {
        return None;
    }
    let Some(known) = Known::find(&name) else { return Some(Command::Unknown(name)) };
    Some(meant(known, &undashed(rest.trim())).unwrap_or(Command::Misused(known)))
}

/// Phones make dashes of hyphens. One that a word begins with was an option's.
fn undashed(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut is_start = true;
    while let Some(char) = chars.next() {
        let is_option = is_start && chars.peek().is_some_and(|next| next.is_alphanumeric());
        match char {
            '\u{2014}' if is_option => plain.push_str("--"),
            '\u{2013}' if is_option => plain.push('-'),
            other => plain.push(other),
        }
        is_start = char.is_whitespace();
    }
    plain
}

fn meant(known: &'static Known, rest: &str) -> Option<Command> {
    let text = || Some(rest.to_owned()).filter(|text| !text.is_empty());
    Some(match known.name {
        "approve" => approve(rest)?,
        "deny" => deny(rest),
        "queue" => Command::Queue(text()?),
        "steer" => Command::Steer(text()?),
        "background" => Command::Background(text()?),
        "undo" if rest.is_empty() => Command::Undo(1),
        "undo" => Command::Undo(rest.parse().ok().filter(|count| *count > 0)?),
        "model" => Command::Model(model(rest)?),
        "title" => Command::Title(text()),
        "resume" => Command::Resume(text()),
        "new" => Command::New,
        "stop" if rest.eq_ignore_ascii_case("all") => Command::Stop(Extent::Everything),
        "stop" => Command::Stop(Extent::Answer),
        "status" => Command::Status,
        "retry" => Command::Retry,
        "usage" => Command::Usage,
        "sessions" => Command::Sessions,
        "sethome" => Command::Sethome,
        "whoami" => Command::Whoami,
        "help" => Command::Help,
        "restart" => Command::Restart,
        "yolo" => Command::Yolo,
        _ => return None,
    })
}

/// A yes is clear or it is none.
fn approve(rest: &str) -> Option<Command> {
    let (mut id, mut scope) = (None, None);
    for word in rest.split_whitespace() {
        let (taken, wide) = match word.to_lowercase().trim_start_matches('-') {
            "once" => (scope.replace(Scope::Once).is_some(), true),
            "session" => (scope.replace(Scope::Session).is_some(), true),
            "always" => (scope.replace(Scope::Always).is_some(), true),
            _ => (id.replace(word.to_owned()).is_some(), false),
        };
        if taken || (!wide && !is_question(word)) {
            return None;
        }
    }
    Some(Command::Approve { id, scope: scope.unwrap_or(Scope::Once) })
}

fn deny(rest: &str) -> Command {
    let (first, others) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (id, reason) =
        if is_question(first) { (Some(first.to_owned()), others.trim()) } else { (None, rest) };
    Command::Deny { id, reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()) }
}

/// Whether a word is the name of a question, or the beginning of one.
fn is_question(word: &str) -> bool {
    word.starts_with("q_")
}

fn model(rest: &str) -> Option<Option<Model>> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        rest.split_whitespace().partition(|word| word.starts_with('-'));
    let reach = match options.as_slice() {
        [] => Reach::Session,
        ["--global"] => Reach::Everybody,
        _ => return None,
    };
    match names.as_slice() {
        [] if reach == Reach::Session => Some(None),
        [name] => Some(Some(Model { name: (*name).to_owned(), reach })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn yes(id: Option<&str>, scope: Scope) -> Option<Command> {
        Some(Command::Approve { id: id.map(str::to_owned), scope })
    }

    fn no(id: Option<&str>, reason: Option<&str>) -> Option<Command> {
        Some(Command::Deny { id: id.map(str::to_owned), reason: reason.map(str::to_owned) })
    }

    fn model(name: &str, reach: Reach) -> Option<Command> {
        Some(Command::Model(Some(Model { name: name.to_owned(), reach })))
    }

    fn misused(name: &str) -> Option<Command> {
        Known::find(name).map(Command::Misused)
    }

    #[test]
    fn words_are_commands_or_they_are_not() {
        let cases = [
            ("/new", Some(Command::New)),
            ("  /NEW@hermes_bot  ", Some(Command::New)),
            ("/reset", Some(Command::New)),
            ("/stop now", Some(Command::Stop(Extent::Answer))),
            ("/stop ALL", Some(Command::Stop(Extent::Everything))),
            ("/status", Some(Command::Status)),
            ("/retry", Some(Command::Retry)),
            ("/usage", Some(Command::Usage)),
            ("/sessions", Some(Command::Sessions)),
            ("/sethome", Some(Command::Sethome)),
            ("/set-home", Some(Command::Sethome)),
            ("/whoami", Some(Command::Whoami)),
            ("/help", Some(Command::Help)),
            ("/restart", Some(Command::Restart)),
            ("/yolo", Some(Command::Yolo)),
            ("/queue and then this\nand that", Some(Command::Queue(text("and then this\nand that")))),
            ("/q x", Some(Command::Queue(text("x")))),
            ("/queue", misused("queue")),
            ("/steer left", Some(Command::Steer(text("left")))),
            ("/steer  ", misused("steer")),
            ("/bg look", Some(Command::Background(text("look")))),
            ("/btw", misused("background")),
            ("/undo", Some(Command::Undo(1))),
            ("/undo 3", Some(Command::Undo(3))),
            ("/undo 0", misused("undo")),
            ("/undo all", misused("undo")),
            ("/title", Some(Command::Title(None))),
            ("/title A walk", Some(Command::Title(Some(text("A walk"))))),
            ("/resume", Some(Command::Resume(None))),
            ("/resume A walk", Some(Command::Resume(Some(text("A walk"))))),
            ("/model", Some(Command::Model(None))),
            ("/model gpt-5", model("gpt-5", Reach::Session)),
            ("/model gpt-5 --global", model("gpt-5", Reach::Everybody)),
            ("/model \u{2014}global openai/gpt-5", model("openai/gpt-5", Reach::Everybody)),
            ("/model --global", misused("model")),
            ("/model a b", misused("model")),
            ("/model a --globe", misused("model")),
            ("/approve", yes(None, Scope::Once)),
            ("/yes", yes(None, Scope::Once)),
            ("/approve always", yes(None, Scope::Always)),
            ("/approve q_abc Session", yes(Some("q_abc"), Scope::Session)),
            ("/approve \u{2014}always q_abc", yes(Some("q_abc"), Scope::Always)),
            ("/approve always session", misused("approve")),
            ("/approve q_a q_b", misused("approve")),
            ("/approve not at all", misused("approve")),
            ("/deny", no(None, None)),
            ("/deny q_abc", no(Some("q_abc"), None)),
            ("/deny q_abc use trash", no(Some("q_abc"), Some("use trash"))),
            ("/no use trash \u{2014} please", no(None, Some("use trash \u{2014} please"))),
            ("/dance x", Some(Command::Unknown(text("dance")))),
            ("/Ärger", Some(Command::Unknown(text("ärger")))),
            ("", None),
            ("new", None),
            ("/", None),
            ("/ new", None),
            ("//new", None),
            ("/@bot", None),
            ("/usr/bin/env is missing", None),
            ("/new/x", None),
            ("/(°□°)", None),
            ("say /new", None),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn names_are_not_shared_and_each_command_is_read_by_its_own() {
        let names: Vec<&str> =
            ALL.iter().flat_map(|known| known.aliases.iter().copied().chain([known.name])).collect();
        let different: std::collections::HashSet<&&str> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        for known in &ALL {
            let rest = if known.takes == "TEXT" { " x" } else { "" };
            let command = parse(&format!("/{}{rest}", known.name)).unwrap();
            assert_eq!(command.known().unwrap().name, known.name);
            assert!(!matches!(command, Command::Misused(_)), "{command:?}");
        }
    }

    #[test]
    fn what_touches_others_is_for_admins() {
        let admin = |line: &str| parse(line).unwrap().rights() == Rights::Admin;
        for line in ["/restart", "/yolo", "/sethome", "/model x --global"] {
            assert!(admin(line), "{line}");
        }
        for line in ["/model x", "/model", "/new", "/approve", "/nonsense", "/help", "/undo x"] {
            assert!(!admin(line), "{line}");
        }
    }

    #[test]
    fn some_commands_wait_while_something_is_under_way() {
        let waits = |line: &str| parse(line).unwrap().busy() == Busy::Waits;
        for line in ["/retry", "/undo", "/model x", "/resume x"] {
            assert!(waits(line), "{line}");
        }
        for line in
            ["/stop", "/new", "/approve", "/deny", "/status", "/model", "/queue x", "/undo x", "/dance"]
        {
            assert!(!waits(line), "{line}");
        }
    }

    #[test]
    fn help_shows_what_somebody_may_use() {
        let (all, some) = (help(Tier::Admin), help(Tier::Ordinary));
        assert_eq!((all.lines().count(), some.lines().count()), (20, 17));
        assert!(all.contains("`/restart` start hermes anew") && !some.contains("/restart"));
        assert!(some.contains("`/queue TEXT` say this when the answer is there"));
    }
}
