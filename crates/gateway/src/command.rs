#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope { Once, Session, Always }
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command { New, Stop, Status, Approve{id: Option<String>, scope: Scope}, Deny{id: Option<String>, reason: Option<String>}, Queue(String), Steer(String), Retry, Undo(usize), Model(Option<String>), Usage, Sethome, Whoami, Help, Unknown(String), Title }
impl Command {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('/')?;
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let id = || (!rest.is_empty()).then(|| rest.to_owned());
        Some(match name { "new" => Self::New, "stop" => Self::Stop, "status" => Self::Status, "approve" => Self::Approve{id: id(), scope: Scope::Once}, "deny" => Self::Deny{id: id(), reason: None}, "queue" => Self::Queue(rest.to_owned()), "steer" => Self::Steer(rest.to_owned()), "retry" => Self::Retry, "undo" => Self::Undo(1), "model" => Self::Model(id()), "usage" => Self::Usage, "sethome" => Self::Sethome, "whoami" => Self::Whoami, "help" => Self::Help, other => Self::Unknown(other.to_owned()) })
    }
    pub fn works_while_busy(&self) -> bool { matches!(self, Self::Approve{..}|Self::Deny{..}|Self::Status|Self::Help|Self::Whoami) }
    pub fn needs_admin(&self) -> bool { matches!(self, Self::Sethome) }
    pub fn help(_admin: bool) -> String { "/help".to_owned() }
    pub fn name(&self) -> &str { "x" }
}
