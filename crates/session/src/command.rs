//! The commands of sessions: `/new`, `/stop`, `/model` and so on, the same in every front end.

use hermes_types::Choice;
use strum::{EnumString, IntoStaticStr};

/// The role of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum UserRole {
    User,
    Admin,
    /// The owner at the terminal, who also sees the sessions of others.
    Owner,
}

/// Where commands are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    Chat,
    Terminal,
}

/// A command typed as `/name`. The name of a variant is that of its [`CommandSpec`], where it has
/// one of its own.
#[derive(Debug, Clone, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum SessionCommand {
    New,
    Stop(StopScope),
    Status,
    /// Answer an approval question.
    #[strum(disabled)]
    Answer {
        /// Question id or prefix; the only open question if absent.
        id: Option<String>,
        choice: Choice,
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
    Quit,
    /// A known command with arguments that cannot be parsed.
    #[strum(disabled)]
    BadUsage(&'static CommandSpec),
    Unknown(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StopScope {
    #[default]
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
    /// The only surface that offers it, if not all do.
    pub only_on: Option<Surface>,
}

const fn spec(
    name: &'static str,
    aliases: &'static [&'static str],
    args: &'static str,
    summary: &'static str,
    while_busy: WhileBusy,
) -> CommandSpec {
    CommandSpec { name, aliases, args, summary, role: UserRole::User, while_busy, only_on: None }
}

impl CommandSpec {
    const fn admin(self) -> Self {
        Self { role: UserRole::Admin, ..self }
    }

    const fn only_on(self, surface: Surface) -> Self {
        Self { only_on: Some(surface), ..self }
    }
}

/// All commands, in the order `/help` lists them.
static COMMANDS: [CommandSpec; 21] = {
    use WhileBusy::{Refused, Runs};
    [
        spec("new", &["reset"], "", "start a new conversation", Runs),
        spec("stop", &[], "[all]", "stop the current reply; `all` also stops background tasks", Runs),
        spec("status", &[], "", "show the conversation, its model and environment", Runs),
        spec("approve", &["yes"], "[ID] [session|always]", "approve an open question", Runs),
        spec("deny", &["no"], "[ID] [REASON]", "deny an open question", Runs),
        spec("queue", &["q"], "TEXT", "send this after the current reply", Runs),
        spec("steer", &[], "TEXT", "pass a message to the running turn", Runs),
        spec("retry", &[], "", "answer the last message again", Refused),
        spec("undo", &[], "[COUNT]", "undo the last messages and their replies", Refused),
        spec("model", &[], "[NAME] [--global]", "show or change the model", Refused),
        spec("usage", &["cost"], "", "show token usage and cost", Runs),
        spec("title", &[], "[TEXT]", "show or set the title", Runs),
        spec("sessions", &["history"], "", "list your conversations", Runs),
        spec("resume", &[], "[ID]", "resume one of your conversations", Refused),
        spec("background", &["bg", "btw"], "TEXT", "run this as a background task", Runs),
        spec("whoami", &[], "", "show your user id and role", Runs),
        spec("help", &["commands", "?"], "", "list the commands", Runs),
        spec("sethome", &["set-home"], "", "make this chat the home channel", Runs)
            .admin()
            .only_on(Surface::Chat),
        spec("yolo", &[], "", "turn approvals off or on in this conversation", Runs).admin(),
        spec("restart", &[], "", "restart the gateway", Runs).admin().only_on(Surface::Chat),
        spec("quit", &["exit"], "", "leave; the conversation can be resumed", Runs)
            .only_on(Surface::Terminal),
    ]
};

/// The commands that a user of this role can use on a surface.
pub fn offered(surface: Surface, role: UserRole) -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().filter(move |spec| spec.is_offered(surface) && spec.role <= role)
}

impl CommandSpec {
    pub fn find(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|spec| spec.name == name || spec.aliases.contains(&name))
    }

    fn is_offered(&self, surface: Surface) -> bool {
        self.only_on.is_none_or(|only| only == surface)
    }

    pub fn usage(&self) -> String {
        format!("/{} {}", self.name, self.args).trim_end().to_owned()
    }
}

impl SessionCommand {
    /// Parses a text as a command; none if it is a message.
    pub fn parse(text: &str, surface: Surface) -> Option<Self> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let name = word.strip_prefix('/')?;
        let name = name.split_once('@').map_or(name, |(name, _)| name).to_lowercase();
        // `/usr/bin` and `/(°□°)` are not commands.
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '?');
        if name.is_empty() || word.matches('/').count() > 1 || !name.chars().all(is_name) {
            return None;
        }
        let Some(spec) = CommandSpec::find(&name).filter(|spec| spec.is_offered(surface)) else {
            return Some(Self::Unknown(name));
        };
        Some(parse_args(spec, &normalize_dashes(rest.trim())).unwrap_or(Self::BadUsage(spec)))
    }

    pub fn spec(&self) -> Option<&'static CommandSpec> {
        match self {
            Self::Answer { choice: Choice::Deny { .. }, .. } => CommandSpec::find("deny"),
            Self::Answer { .. } => CommandSpec::find("approve"),
            Self::BadUsage(spec) => Some(spec),
            Self::Unknown(_) => None,
            command => CommandSpec::find(command.into()),
        }
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

/// The reply to a command that does not exist.
pub(crate) fn unknown_command(name: &str, surface: Surface, role: UserRole) -> String {
    let names = offered(surface, role).flat_map(|spec| spec.aliases.iter().chain([&spec.name])).copied();
    let near = names
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len() || known.starts_with(name))
        .min();
    match near {
        Some((_, known)) => format!("Unknown command /{name}. Did you mean /{known}?"),
        None => format!("Unknown command /{name}. Use /help for a list."),
    }
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

fn parse_args(spec: &'static CommandSpec, rest: &str) -> Option<SessionCommand> {
    let text = || Some(rest.to_owned()).filter(|text| !text.is_empty());
    Some(match spec.name {
        "approve" => parse_approve(rest)?,
        "deny" => parse_deny(rest),
        "queue" => SessionCommand::Queue(text()?),
        "steer" => SessionCommand::Steer(text()?),
        "background" => SessionCommand::Background(text()?),
        "undo" if rest.is_empty() => SessionCommand::Undo(1),
        "undo" => SessionCommand::Undo(rest.parse().ok().filter(|count| *count > 0)?),
        "model" => SessionCommand::Model(parse_model(rest)?),
        "title" => SessionCommand::Title(text()),
        "resume" => SessionCommand::Resume(text()),
        "stop" if rest.eq_ignore_ascii_case("all") => SessionCommand::Stop(StopScope::All),
        // The others have no arguments.
        name => name.parse().ok()?,
    })
}

/// Accepts at most one id and one scope; anything else is a usage error, never an approval.
fn parse_approve(rest: &str) -> Option<SessionCommand> {
    let (mut id, mut choice) = (None, None);
    for word in rest.split_whitespace() {
        let is_repeated = match word.to_lowercase().trim_start_matches('-') {
            "once" => choice.replace(Choice::Once).is_some(),
            "session" => choice.replace(Choice::Session).is_some(),
            "always" => choice.replace(Choice::Always).is_some(),
            _ => !is_question_id(word) || id.replace(word.to_owned()).is_some(),
        };
        if is_repeated {
            return None;
        }
    }
    Some(SessionCommand::Answer { id, choice: choice.unwrap_or(Choice::Once) })
}

fn parse_deny(rest: &str) -> SessionCommand {
    let (first, others) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (id, reason) =
        if is_question_id(first) { (Some(first.to_owned()), others.trim()) } else { (None, rest) };
    let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
    SessionCommand::Answer { id, choice: Choice::Deny { reason } }
}

fn is_question_id(word: &str) -> bool {
    word.starts_with("q_")
}

fn parse_model(rest: &str) -> Option<Option<ModelChange>> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        rest.split_whitespace().partition(|word| word.starts_with('-'));
    let scope = match options.as_slice() {
        [] => ModelScope::Session,
        ["--global"] => ModelScope::Global,
        _ => return None,
    };
    match names.as_slice() {
        [] if scope == ModelScope::Session => Some(None),
        [name] => Some(Some(ModelChange { name: (*name).to_owned(), scope })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn parse(line: &str) -> Option<SessionCommand> {
        SessionCommand::parse(line, Surface::Chat)
    }

    fn yes(id: Option<&str>, choice: Choice) -> Option<SessionCommand> {
        Some(SessionCommand::Answer { id: id.map(str::to_owned), choice })
    }

    fn no(id: Option<&str>, reason: Option<&str>) -> Option<SessionCommand> {
        yes(id, Choice::Deny { reason: reason.map(str::to_owned) })
    }

    fn model(name: &str, scope: ModelScope) -> Option<SessionCommand> {
        Some(SessionCommand::Model(Some(ModelChange { name: name.to_owned(), scope })))
    }

    fn misused(name: &str) -> Option<SessionCommand> {
        CommandSpec::find(name).map(SessionCommand::BadUsage)
    }

    #[test]
    fn commands_are_parsed() {
        let cases = [
            ("/new", Some(SessionCommand::New)),
            ("  /NEW@hermes_bot  ", Some(SessionCommand::New)),
            ("/reset", Some(SessionCommand::New)),
            ("/stop now", Some(SessionCommand::Stop(StopScope::Turn))),
            ("/stop ALL", Some(SessionCommand::Stop(StopScope::All))),
            ("/status", Some(SessionCommand::Status)),
            ("/retry", Some(SessionCommand::Retry)),
            ("/usage", Some(SessionCommand::Usage)),
            ("/sessions", Some(SessionCommand::Sessions)),
            ("/sethome", Some(SessionCommand::Sethome)),
            ("/set-home", Some(SessionCommand::Sethome)),
            ("/whoami", Some(SessionCommand::Whoami)),
            ("/help", Some(SessionCommand::Help)),
            ("/?", Some(SessionCommand::Help)),
            ("/quit", Some(SessionCommand::Unknown(text("quit")))),
            ("/restart", Some(SessionCommand::Restart)),
            ("/yolo", Some(SessionCommand::Yolo)),
            ("/queue and then this\nand that", Some(SessionCommand::Queue(text("and then this\nand that")))),
            ("/q x", Some(SessionCommand::Queue(text("x")))),
            ("/queue", misused("queue")),
            ("/steer left", Some(SessionCommand::Steer(text("left")))),
            ("/steer  ", misused("steer")),
            ("/bg look", Some(SessionCommand::Background(text("look")))),
            ("/btw", misused("background")),
            ("/undo", Some(SessionCommand::Undo(1))),
            ("/undo 3", Some(SessionCommand::Undo(3))),
            ("/undo 0", misused("undo")),
            ("/undo all", misused("undo")),
            ("/title", Some(SessionCommand::Title(None))),
            ("/title A walk", Some(SessionCommand::Title(Some(text("A walk"))))),
            ("/resume", Some(SessionCommand::Resume(None))),
            ("/resume A walk", Some(SessionCommand::Resume(Some(text("A walk"))))),
            ("/model", Some(SessionCommand::Model(None))),
            ("/model gpt-5", model("gpt-5", ModelScope::Session)),
            ("/model gpt-5 --global", model("gpt-5", ModelScope::Global)),
            ("/model \u{2014}global openai/gpt-5", model("openai/gpt-5", ModelScope::Global)),
            ("/model --global", misused("model")),
            ("/model a b", misused("model")),
            ("/model a --globe", misused("model")),
            ("/approve", yes(None, Choice::Once)),
            ("/yes", yes(None, Choice::Once)),
            ("/approve always", yes(None, Choice::Always)),
            ("/approve q_abc Session", yes(Some("q_abc"), Choice::Session)),
            ("/approve \u{2014}always q_abc", yes(Some("q_abc"), Choice::Always)),
            ("/approve always session", misused("approve")),
            ("/approve q_a q_b", misused("approve")),
            ("/approve not at all", misused("approve")),
            ("/deny", no(None, None)),
            ("/deny q_abc", no(Some("q_abc"), None)),
            ("/deny q_abc use trash", no(Some("q_abc"), Some("use trash"))),
            ("/no use trash \u{2014} please", no(None, Some("use trash \u{2014} please"))),
            ("/dance x", Some(SessionCommand::Unknown(text("dance")))),
            ("/Ärger", Some(SessionCommand::Unknown(text("ärger")))),
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
            let surface = spec.only_on.unwrap_or(Surface::Terminal);
            let command = SessionCommand::parse(&format!("/{}{rest}", spec.name), surface).unwrap();
            assert_eq!(command.spec().unwrap().name, spec.name);
            assert!(!matches!(command, SessionCommand::BadUsage(_)), "{command:?}");
        }
    }

    #[test]
    fn each_surface_offers_its_commands() {
        let names = |surface, role| offered(surface, role).map(|spec| spec.name).collect::<Vec<_>>();
        let (user, admin) = (names(Surface::Chat, UserRole::User), names(Surface::Chat, UserRole::Admin));
        assert_eq!((user.len(), admin.len()), (17, 20));
        assert!(admin.contains(&"restart") && !user.contains(&"restart") && !admin.contains(&"quit"));
        let owner = names(Surface::Terminal, UserRole::Owner);
        assert!(owner.contains(&"quit") && owner.contains(&"yolo") && !owner.contains(&"restart"));
    }

    #[test]
    fn an_unknown_command_gets_a_suggestion() {
        let cases = [
            ("modle", "Did you mean /model?"),
            ("stat", "Did you mean /status?"),
            ("frobnicate", "Use /help for a list."),
            ("restrat", "Use /help for a list."),
        ];
        for (name, expected) in cases {
            let text = unknown_command(name, Surface::Terminal, UserRole::Owner);
            assert!(text.ends_with(expected), "{text}");
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
}
