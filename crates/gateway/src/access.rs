//! Access control: who may use the bot, and for what.
//!
//! The first matching row decides:
//!
//! | sender | access |
//! |---|---|
//! | no user id | no |
//! | a bot | if bots are allowed |
//! | anyone, on a platform open to all | yes |
//! | has an allowed role | yes |
//! | on the list of the platform or of the gateway | yes |
//! | paired | yes |
//! | anyone, if the gateway is open to all and there is no list | yes |
//! | anyone else | no |
//!
//! Users are identified by their platform user id only: names are not unique.

use std::collections::HashMap;

use hermes_session::{CommandSpec, Error, SessionCommand, UserRole};
use hermes_store::{CodeResponse, Error as StoreError, Store};
use hermes_types::{Person, Timestamp};

use crate::message::{Chat, ChatKind, Platform, Sender};

const WILDCARD: &str = "*";
/// Commands that every user may use.
const ALWAYS_ALLOWED_COMMANDS: [&str; 3] = ["help", "whoami", "status"];

/// Who may use the bot. Entries of lists are user ids or `platform:id`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessSettings {
    pub platforms: HashMap<Platform, PlatformAccess>,
    /// Users allowed on all platforms.
    pub allowed_users: Vec<String>,
    /// Allows everyone on platforms without a list.
    pub allow_all_users: bool,
    pub strangers: Option<StrangerPolicy>,
}

/// Who may use the bot on one platform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlatformAccess {
    pub allowed_users: Vec<String>,
    pub allowed_roles: Vec<String>,
    pub allow_all_users: bool,
    pub bots: BotPolicy,
    /// Overrides the policy for all platforms.
    pub strangers: Option<StrangerPolicy>,
    /// Admins in direct messages.
    pub admins: Vec<String>,
    /// Admins in groups and threads.
    pub group_admins: Vec<String>,
    /// Commands that other users may use in direct messages. If empty: all that do not affect
    /// others.
    pub commands: Vec<String>,
    /// As `commands`, in groups and threads. Applies to direct messages too if `commands` is empty.
    pub group_commands: Vec<String>,
    /// Users who may answer approval questions of others.
    pub approvers: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BotPolicy {
    #[default]
    None,
    /// Only if they mention the bot, which the channel checks.
    Mentions,
    All,
}

/// What a stranger's direct message gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrangerPolicy {
    Ignore,
    /// A pairing code.
    Pair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    Granted(UserRole),
    Denied(StrangerPolicy),
}

/// Decides who may use the bot, and for what.
#[derive(Debug, Clone)]
pub struct AccessControl {
    settings: AccessSettings,
    store: Store,
}

impl AccessControl {
    pub fn new(settings: AccessSettings, store: Store) -> Self {
        Self { settings, store }
    }

    /// Decides whether a sender has access. Nothing is done for them before.
    pub async fn check(&self, chat: &Chat, sender: &Sender) -> Result<AccessDecision, StoreError> {
        let rules = self.platform_access(chat.platform);
        if sender.id.trim().is_empty() {
            return Ok(AccessDecision::Denied(StrangerPolicy::Ignore));
        }
        if sender.is_bot {
            return Ok(match rules.bots {
                BotPolicy::None => AccessDecision::Denied(StrangerPolicy::Ignore),
                BotPolicy::Mentions | BotPolicy::All => AccessDecision::Granted(UserRole::User),
            });
        }
        let is_allowed = rules.allow_all_users
            || sender.roles.iter().any(|role| rules.allowed_roles.contains(role))
            || self
                .allowed_entries(chat.platform)
                .any(|entry| entry == WILDCARD || entry_id(entry) == sender.id)
            || self.store.is_paired(chat.platform.as_str(), &sender.id).await?
            || (self.settings.allow_all_users && !self.has_list(chat.platform));
        if is_allowed {
            return Ok(AccessDecision::Granted(self.role_of(chat, sender).await?));
        }
        Ok(AccessDecision::Denied(self.stranger_policy(chat)))
    }

    /// The reply to a stranger, at most every ten minutes.
    pub async fn pairing_reply(
        &self,
        chat: &Chat,
        sender: &Sender,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let platform = chat.platform.as_str();
        Ok(match self.store.request_code(platform, &sender.id, &sender.name, now).await? {
            CodeResponse::Code { code, expires } => {
                let minutes = expires.seconds().saturating_sub(now.seconds()).div_ceil(60);
                Some(format!(
                    "I don't know you yet. To give you access, my owner can run this within {minutes} minutes:\n\
                     `hermes pairing approve {platform} {code}`"
                ))
            }
            CodeResponse::TooManyPending => Some(
                "I don't know you yet, and too many requests are pending. Try again in an hour.".to_owned(),
            ),
            CodeResponse::AlreadyPaired | CodeResponse::TooSoon | CodeResponse::Locked { .. } => None,
        })
    }

    /// Whether a user may use a command; the error is shown to them.
    pub fn check_command(&self, chat: &Chat, role: UserRole, command: &SessionCommand) -> Result<(), Error> {
        let Some(known) = command.spec() else { return Ok(()) };
        let rules = self.platform_access(chat.platform);
        let named = match chat.kind {
            ChatKind::Dm if !rules.commands.is_empty() => &rules.commands,
            _ => &rules.group_commands,
        };
        let is_named =
            named.iter().any(|word| CommandSpec::find(word.trim_start_matches('/')) == Some(known));
        let is_always_allowed = ALWAYS_ALLOWED_COMMANDS.contains(&known.name);
        let (name, word) = (known.name, chat.platform.as_str());
        let group = if chat.kind == ChatKind::Dm { "" } else { "group_" };
        match (role, command.required_role()) {
            (UserRole::Admin | UserRole::Owner, _) => Ok(()),
            // Listing a command does not include its admin-only forms.
            (UserRole::User, UserRole::Admin) if !is_named || known.role == UserRole::User => {
                let key = format!("{word}.{group}allow_admin_from");
                let text = format!("`/{name}` is for admins. The owner lists them in `{key}`.");
                Err(Error::CommandDenied(text))
            }
            (UserRole::User, _) if is_named || is_always_allowed || named.is_empty() => Ok(()),
            (UserRole::User, _) => {
                let key = format!("{word}.{group}user_allowed_commands");
                let text = format!("`/{name}` is not enabled for you. The owner lists commands in `{key}`.");
                Err(Error::CommandDenied(text))
            }
        }
    }

    /// Whether a user may grant something permanently, which applies to everyone in every chat.
    pub fn may_grant_always(&self, platform: Platform, person: &Person, role: UserRole) -> bool {
        role >= UserRole::Admin || self.named_approvers(platform).contains(person)
    }

    /// Who may answer the questions of a sender's turns: the sender and the configured approvers.
    pub fn approvers(&self, platform: Platform, asker: &Sender) -> Vec<Person> {
        let own = (!asker.is_bot && !asker.id.trim().is_empty()).then(|| platform.person(&asker.id));
        let mut people: Vec<Person> = own.into_iter().collect();
        for person in self.named_approvers(platform) {
            if !people.contains(&person) {
                people.push(person);
            }
        }
        people
    }

    fn named_approvers(&self, platform: Platform) -> Vec<Person> {
        let entries = self.platform_access(platform).approvers.into_iter().filter(|entry| entry != WILDCARD);
        let person = |entry: String| match split_entry(&entry) {
            Some(_) => Person::new(entry),
            None => platform.person(&entry),
        };
        entries.map(person).collect()
    }

    fn platform_access(&self, platform: Platform) -> PlatformAccess {
        self.settings.platforms.get(&platform).cloned().unwrap_or_default()
    }

    fn allowed_entries(&self, platform: Platform) -> impl Iterator<Item = &str> {
        let own = self.settings.platforms.get(&platform).map(|rules| rules.allowed_users.as_slice());
        let is_here = move |entry: &&str| split_entry(entry).is_none_or(|(other, _)| other == platform);
        let all = own.unwrap_or_default().iter().chain(&self.settings.allowed_users);
        all.map(String::as_str).filter(is_here)
    }

    /// Whether a list exists, which means that others are not allowed.
    fn has_list(&self, platform: Platform) -> bool {
        !self.platform_access(platform).allowed_roles.is_empty()
            || self.allowed_entries(platform).next().is_some()
    }

    async fn role_of(&self, chat: &Chat, sender: &Sender) -> Result<UserRole, StoreError> {
        let rules = self.platform_access(chat.platform);
        let list = match chat.kind {
            ChatKind::Dm => &rules.admins,
            ChatKind::Group | ChatKind::Thread => &rules.group_admins,
        };
        let is_sender = |entry: &String| {
            split_entry(entry).is_none_or(|(platform, _)| platform == chat.platform)
                && entry_id(entry) == sender.id
        };
        let is_admin = if rules.admins.is_empty() && rules.group_admins.is_empty() {
            self.is_sole_user(chat.platform, &sender.id).await?
        } else {
            list.iter().any(is_sender)
        };
        Ok(if is_admin { UserRole::Admin } else { UserRole::User })
    }

    /// Whether this is the only user with access, who is then an admin.
    async fn is_sole_user(&self, platform: Platform, id: &str) -> Result<bool, StoreError> {
        let rules = self.platform_access(platform);
        let is_open = rules.allow_all_users || (self.settings.allow_all_users && !self.has_list(platform));
        if is_open
            || !rules.allowed_roles.is_empty()
            || self.allowed_entries(platform).any(|entry| entry_id(entry) != id)
        {
            return Ok(false);
        }
        let paired = self.store.paired_users().await?;
        Ok(paired.iter().all(|one| one.platform != platform.as_str() || one.user == id))
    }

    fn stranger_policy(&self, chat: &Chat) -> StrangerPolicy {
        let set = || self.platform_access(chat.platform).strangers.or(self.settings.strangers);
        match chat.kind {
            ChatKind::Group | ChatKind::Thread => StrangerPolicy::Ignore,
            ChatKind::Dm => set().unwrap_or(match self.has_list(chat.platform) {
                true => StrangerPolicy::Ignore,
                false => StrangerPolicy::Pair,
            }),
        }
    }
}

/// Splits a `platform:id` entry.
fn split_entry(entry: &str) -> Option<(Platform, &str)> {
    let (word, id) = entry.split_once(':')?;
    Some((Platform::from_name(word)?, id))
}

fn entry_id(entry: &str) -> &str {
    split_entry(entry).map_or(entry, |(_, id)| id)
}

#[cfg(test)]
mod tests;
