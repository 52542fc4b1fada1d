//! The commands of chats: `/new`, `/stop`, `/model` and so on.

use crate::access::UserRole;
use crate::message::InboundMessage;

/// A command typed in a chat as `/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatCommand {
    New,
    Stop(StopScope),
    Status,
    Approve {
        /// Question id or prefix; the only open question if absent.
        id: Option<String>,
        scope: ApprovalScope,
    },
    Deny {
        /// Question id or prefix; the only open question if absent.
        id: Option<String>,
        reason: Option<String>,
    },
    /// Send this text as the next message once the current turn ends.
    Queue(String),
    /// Pass this text to the running turn.
    Steer(String),
    Retry,
    Undo(u32),
    Model(Option<ModelChange>),
    Usage,
    Title(Option<String>),
    Sessions,
    Resume(Option<String>),
    /// Make this chat the home channel.
    Sethome,
    Whoami,
    Help,
    /// Run this text as a background task.
    Background(String),
    Restart,
    /// Turn approvals off, or on again, in this conversation.
    Yolo,
    /// A spec command with arguments that cannot be parsed.
    BadUsage(&'static CommandSpec),
    Unknown(String),
}

/// How long an approval lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalScope {
    Once,
    Session,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopScope {
    Turn,
    /// The current turn and all background tasks.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChange {
    pub name: String,
    pub scope: ModelScope,
}

/// Where a model change applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelScope {
    Session,
    Global,
}

/// Whether a command can be used while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileBusy {
    Runs,
    /// It is refused until the turn ends.
    Refused,
}

/// Name, syntax and rights of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandSpec {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub args: &'static str,
    pub summary: &'static str,
    pub role: UserRole,
    pub while_busy: WhileBusy,
}

const fn spec(
    name: &'static str,
    aliases: &'static [&'static str],
    args: &'static str,
    summary: &'static str,
    role: UserRole,
    while_busy: WhileBusy,
) -> CommandSpec {
    CommandSpec { name, aliases, args, summary, role, while_busy }
}

/// All commands, in the order `/help` lists them.
pub(crate) static COMMANDS: [CommandSpec; 20] = {
    use UserRole::{Admin, User};
    use WhileBusy::{Refused, Runs};
    [
        spec("new", &["reset"], "", "start a new conversation", User, Runs),
        spec("stop", &[], "[all]", "stop the current reply; `all` also stops background tasks", User, Runs),
        spec("status", &[], "", "show the conversation, its model and environment", User, Runs),
        spec("approve", &["yes"], "[ID] [session|always]", "approve an open question", User, Runs),
        spec("deny", &["no"], "[ID] [REASON]", "deny an open question", User, Runs),
        spec("queue", &["q"], "TEXT", "send this after the current reply", User, Runs),
        spec("steer", &[], "TEXT", "pass a message to the running turn", User, Runs),
        spec("retry", &[], "", "answer the last message again", User, Refused),
        spec("undo", &[], "[COUNT]", "undo the last messages and their replies", User, Refused),
        spec("model", &[], "[NAME] [--global]", "show or change the model", User, Refused),
        spec("usage", &["cost"], "", "show token usage", User, Runs),
        spec("title", &[], "[TEXT]", "show or set the title", User, Runs),
        spec("sessions", &["history"], "", "list your conversations", User, Runs),
        spec("resume", &[], "[ID]", "resume one of your conversations", User, Refused),
        spec("background", &["bg", "btw"], "TEXT", "run this as a background task", User, Runs),
        spec("whoami", &[], "", "show your user id and role", User, Runs),
        spec("help", &["commands"], "", "list the commands", User, Runs),
        spec("sethome", &["set-home"], "", "make this chat the home channel", Admin, Runs),
        spec("yolo", &[], "", "turn approvals off or on in this conversation", Admin, Runs),
        spec("restart", &[], "", "restart the gateway", Admin, Runs),
    ]
};

impl CommandSpec {
    pub fn find(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|spec| spec.name == name || spec.aliases.contains(&name))
    }

    pub fn usage(&self) -> String {
        format!("/{} {}", self.name, self.args).trim_end().to_owned()
    }
}

impl ChatCommand {
    /// Parses a message as a command. Bots cannot give commands.
    pub fn from_message(message: &InboundMessage) -> Option<Self> {
        if message.sender.is_bot { None } else { parse(&message.text) }
    }

    pub fn spec(&self) -> Option<&'static CommandSpec> {
        CommandSpec::find(match self {
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
            Self::BadUsage(spec) => spec.name,
            Self::Unknown(_) => return None,
        })
    }

    /// The role needed for the command with these arguments.
    pub fn required_role(&self) -> UserRole {
        match self {
            Self::Model(Some(ModelChange { scope: ModelScope::Global, .. })) => UserRole::Admin,
            _ => self.spec().map_or(UserRole::User, |spec| spec.role),
        }
    }

    pub fn while_busy(&self) -> WhileBusy {
        match self {
            Self::Model(None) | Self::BadUsage(_) | Self::Unknown(_) => WhileBusy::Runs,
            _ => self.spec().map_or(WhileBusy::Runs, |spec| spec.while_busy),
        }
    }
}

/// The commands a user of this role may use, one per line.
pub(crate) fn help_text(role: UserRole) -> String {
    let may = |spec: &&CommandSpec| role == UserRole::Admin || spec.role == UserRole::User;
    let line = |spec: &CommandSpec| format!("`{}` {}", spec.usage(), spec.summary);
    COMMANDS.iter().filter(may).map(line).collect::<Vec<_>>().join("\n")
}

fn parse(text: &str) -> Option<ChatCommand> {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let name = word.strip_prefix('/')?;
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_lowercase();
    // `/usr/bin` and `/(°□°)` are not commands.
    let is_name = |name: &str| name.chars().all(|char| char.is_alphanumeric() || matches!(char, '-' | '_'));
    if name.is_empty() || word.matches('/').count() > 1 || !is_name(&name) {
        return None;
    }
    let Some(spec) = CommandSpec::find(&name) else { return Some(ChatCommand::Unknown(name)) };
    Some(parse_args(spec, &normalize_dashes(rest.trim())).unwrap_or(ChatCommand::BadUsage(spec)))
}

/// Turns an em or en dash at the start of a word back into hyphens: phone keyboards replace `--` as
/// it is typed.
fn normalize_dashes(text: &str) -> String {
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

fn parse_args(spec: &'static CommandSpec, rest: &str) -> Option<ChatCommand> {
    let text = || Some(rest.to_owned()).filter(|text| !text.is_empty());
    Some(match spec.name {
        "approve" => parse_approve(rest)?,
        "deny" => parse_deny(rest),
        "queue" => ChatCommand::Queue(text()?),
        "steer" => ChatCommand::Steer(text()?),
        "background" => ChatCommand::Background(text()?),
        "undo" if rest.is_empty() => ChatCommand::Undo(1),
        "undo" => ChatCommand::Undo(rest.parse().ok().filter(|count| *count > 0)?),
        "model" => ChatCommand::Model(parse_model(rest)?),
        "title" => ChatCommand::Title(text()),
        "resume" => ChatCommand::Resume(text()),
        "new" => ChatCommand::New,
        "stop" if rest.eq_ignore_ascii_case("all") => ChatCommand::Stop(StopScope::All),
        "stop" => ChatCommand::Stop(StopScope::Turn),
        "status" => ChatCommand::Status,
        "retry" => ChatCommand::Retry,
        "usage" => ChatCommand::Usage,
        "sessions" => ChatCommand::Sessions,
        "sethome" => ChatCommand::Sethome,
        "whoami" => ChatCommand::Whoami,
        "help" => ChatCommand::Help,
        "restart" => ChatCommand::Restart,
        "yolo" => ChatCommand::Yolo,
        _ => return None,
    })
}

/// Accepts at most one id and one scope; anything else is a usage error, never an approval.
fn parse_approve(rest: &str) -> Option<ChatCommand> {
    let (mut id, mut scope) = (None, None);
    for word in rest.split_whitespace() {
        let (taken, wide) = match word.to_lowercase().trim_start_matches('-') {
            "once" => (scope.replace(ApprovalScope::Once).is_some(), true),
            "session" => (scope.replace(ApprovalScope::Session).is_some(), true),
            "always" => (scope.replace(ApprovalScope::Always).is_some(), true),
            _ => (id.replace(word.to_owned()).is_some(), false),
        };
        if taken || (!wide && !is_question_id(word)) {
            return None;
        }
    }
    Some(ChatCommand::Approve { id, scope: scope.unwrap_or(ApprovalScope::Once) })
}

fn parse_deny(rest: &str) -> ChatCommand {
    let (first, others) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (id, reason) =
        if is_question_id(first) { (Some(first.to_owned()), others.trim()) } else { (None, rest) };
    ChatCommand::Deny { id, reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()) }
}

fn is_question_id(word: &str) -> bool {
    word.starts_with("q_")
}

fn parse_model(rest: &str) -> Option<Option<ModelChange>> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        rest.split_whitespace().partition(|word| word.starts_with('-'));
    let reach = match options.as_slice() {
        [] => ModelScope::Session,
        ["--global"] => ModelScope::Global,
        _ => return None,
    };
    match names.as_slice() {
        [] if reach == ModelScope::Session => Some(None),
        [name] => Some(Some(ModelChange { name: (*name).to_owned(), scope: reach })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn yes(id: Option<&str>, scope: ApprovalScope) -> Option<ChatCommand> {
        Some(ChatCommand::Approve { id: id.map(str::to_owned), scope })
    }

    fn no(id: Option<&str>, reason: Option<&str>) -> Option<ChatCommand> {
        Some(ChatCommand::Deny { id: id.map(str::to_owned), reason: reason.map(str::to_owned) })
    }

    fn model(name: &str, reach: ModelScope) -> Option<ChatCommand> {
        Some(ChatCommand::Model(Some(ModelChange { name: name.to_owned(), scope: reach })))
    }

    fn misused(name: &str) -> Option<ChatCommand> {
        CommandSpec::find(name).map(ChatCommand::BadUsage)
    }

    #[test]
    fn commands_are_parsed() {
        let cases = [
            ("/new", Some(ChatCommand::New)),
            ("  /NEW@hermes_bot  ", Some(ChatCommand::New)),
            ("/reset", Some(ChatCommand::New)),
            ("/stop now", Some(ChatCommand::Stop(StopScope::Turn))),
            ("/stop ALL", Some(ChatCommand::Stop(StopScope::All))),
            ("/status", Some(ChatCommand::Status)),
            ("/retry", Some(ChatCommand::Retry)),
            ("/usage", Some(ChatCommand::Usage)),
            ("/sessions", Some(ChatCommand::Sessions)),
            ("/sethome", Some(ChatCommand::Sethome)),
            ("/set-home", Some(ChatCommand::Sethome)),
            ("/whoami", Some(ChatCommand::Whoami)),
            ("/help", Some(ChatCommand::Help)),
            ("/restart", Some(ChatCommand::Restart)),
            ("/yolo", Some(ChatCommand::Yolo)),
            ("/queue and then this\nand that", Some(ChatCommand::Queue(text("and then this\nand that")))),
            ("/q x", Some(ChatCommand::Queue(text("x")))),
            ("/queue", misused("queue")),
            ("/steer left", Some(ChatCommand::Steer(text("left")))),
            ("/steer  ", misused("steer")),
            ("/bg look", Some(ChatCommand::Background(text("look")))),
            ("/btw", misused("background")),
            ("/undo", Some(ChatCommand::Undo(1))),
            ("/undo 3", Some(ChatCommand::Undo(3))),
            ("/undo 0", misused("undo")),
            ("/undo all", misused("undo")),
            ("/title", Some(ChatCommand::Title(None))),
            ("/title A walk", Some(ChatCommand::Title(Some(text("A walk"))))),
            ("/resume", Some(ChatCommand::Resume(None))),
            ("/resume A walk", Some(ChatCommand::Resume(Some(text("A walk"))))),
            ("/model", Some(ChatCommand::Model(None))),
            ("/model gpt-5", model("gpt-5", ModelScope::Session)),
            ("/model gpt-5 --global", model("gpt-5", ModelScope::Global)),
            ("/model \u{2014}global openai/gpt-5", model("openai/gpt-5", ModelScope::Global)),
            ("/model --global", misused("model")),
            ("/model a b", misused("model")),
            ("/model a --globe", misused("model")),
            ("/approve", yes(None, ApprovalScope::Once)),
            ("/yes", yes(None, ApprovalScope::Once)),
            ("/approve always", yes(None, ApprovalScope::Always)),
            ("/approve q_abc Session", yes(Some("q_abc"), ApprovalScope::Session)),
            ("/approve \u{2014}always q_abc", yes(Some("q_abc"), ApprovalScope::Always)),
            ("/approve always session", misused("approve")),
            ("/approve q_a q_b", misused("approve")),
            ("/approve not at all", misused("approve")),
            ("/deny", no(None, None)),
            ("/deny q_abc", no(Some("q_abc"), None)),
            ("/deny q_abc use trash", no(Some("q_abc"), Some("use trash"))),
            ("/no use trash \u{2014} please", no(None, Some("use trash \u{2014} please"))),
            ("/dance x", Some(ChatCommand::Unknown(text("dance")))),
            ("/Ärger", Some(ChatCommand::Unknown(text("ärger")))),
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
    fn command_names_are_unique_and_parse() {
        let names: Vec<&str> =
            COMMANDS.iter().flat_map(|spec| spec.aliases.iter().copied().chain([spec.name])).collect();
        let different: std::collections::HashSet<&&str> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        for spec in &COMMANDS {
            let rest = if spec.args == "TEXT" { " x" } else { "" };
            let command = parse(&format!("/{}{rest}", spec.name)).unwrap();
            assert_eq!(command.spec().unwrap().name, spec.name);
            assert!(!matches!(command, ChatCommand::BadUsage(_)), "{command:?}");
        }
    }

    #[test]
    fn commands_that_affect_others_are_for_admins() {
        let admin = |line: &str| parse(line).unwrap().required_role() == UserRole::Admin;
        for line in ["/restart", "/yolo", "/sethome", "/model x --global"] {
            assert!(admin(line), "{line}");
        }
        for line in ["/model x", "/model", "/new", "/approve", "/nonsense", "/help", "/undo x"] {
            assert!(!admin(line), "{line}");
        }
    }

    #[test]
    fn some_commands_are_refused_during_a_turn() {
        let waits = |line: &str| parse(line).unwrap().while_busy() == WhileBusy::Refused;
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
    fn help_lists_the_commands_of_a_role() {
        let (all, some) = (help_text(UserRole::Admin), help_text(UserRole::User));
        assert_eq!((all.lines().count(), some.lines().count()), (20, 17));
        assert!(all.contains("`/restart` restart the gateway") && !some.contains("/restart"));
        assert!(some.contains("`/queue TEXT` send this after the current reply"));
    }
}
