//! Who is let in, and what they may do.
//!
//! The first line that fits decides:
//!
//! | who | is |
//! |---|---|
//! | nobody the platform vouches for | out |
//! | a program | in if bots are heard, else out |
//! | anybody, where the platform is open | in |
//! | somebody with an allowed role | in |
//! | somebody on the list of the platform or of the gateway | in |
//! | somebody who was paired | in |
//! | anybody, if the gateway is open and there is no list | in |
//! | all others | out |
//!
//! People are known by what the platform calls them and by nothing else: names are anybody's.

use std::collections::HashMap;

use hermes_store::{Asked, Error, Store};
use hermes_types::{Person, Timestamp};

use crate::command::{Command, Known, Rights};
use crate::letter::{Platform, Room, RoomKind, Sender};

/// On a list, everybody.
const EVERYBODY: &str = "*";
/// Commands that nobody who was let in is refused.
const FLOOR: [&str; 3] = ["help", "whoami", "status"];

/// Who is let in, as the owner has set it. Entries of lists are ids, or `platform:id`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is set for a platform.
    pub platforms: HashMap<Platform, Rules>,
    /// Who is let in on all platforms.
    pub allowed_users: Vec<String>,
    /// Whether everybody is let in where there is no list.
    pub allow_all_users: bool,
    /// What strangers get in direct messages.
    pub strangers: Option<Behavior>,
}

/// Who is let in on one platform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Who is let in.
    pub allowed_users: Vec<String>,
    /// Roles whose members are let in.
    pub allowed_roles: Vec<String>,
    /// Whether everybody is let in.
    pub allow_all_users: bool,
    /// Whether programs are heard.
    pub bots: Bots,
    /// What strangers get in direct messages, instead of what they get on other platforms.
    pub strangers: Option<Behavior>,
    /// Who looks after hermes, in direct messages.
    pub admins: Vec<String>,
    /// The same, everywhere else.
    pub group_admins: Vec<String>,
    /// The commands that others may use in direct messages. Empty for those that touch nobody else.
    pub commands: Vec<String>,
    /// The same, everywhere else. It counts in direct messages too if nothing is set for them.
    pub group_commands: Vec<String>,
    /// Who may answer the questions of others.
    pub approvers: Vec<String>,
}

/// Whether programs are heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bots {
    /// Never.
    #[default]
    None,
    /// If they call us; the channel tells nothing of others.
    Mentions,
    /// Always.
    All,
}

/// What a stranger gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// Nothing.
    Ignore,
    /// A code to be let in with.
    Pair,
}

/// Whether somebody is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// They are.
    In(Tier),
    /// They are not, and get this.
    Stranger(Behavior),
}

/// What somebody who was let in may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Look after hermes.
    Admin,
    /// Talk to it.
    Ordinary,
}

/// The people of all chats.
#[derive(Debug, Clone)]
pub struct People {
    settings: Settings,
    store: Store,
}

impl People {
    /// Those that the owner has named, and those who were let in since.
    pub fn new(settings: Settings, store: Store) -> Self {
        Self { settings, store }
    }

    /// Whether somebody who says or presses something in a room is let in. Nothing is done for them before.
    pub async fn admit(&self, room: &Room, sender: &Sender) -> Result<Admission, Error> {
        let rules = self.rules(room.platform);
        if sender.id.trim().is_empty() {
            return Ok(Admission::Stranger(Behavior::Ignore));
        }
        if sender.is_bot {
            return Ok(match rules.bots {
                Bots::None => Admission::Stranger(Behavior::Ignore),
                Bots::Mentions | Bots::All => Admission::In(Tier::Ordinary),
            });
        }
        let is_in = rules.allow_all_users
            || sender.roles.iter().any(|role| rules.allowed_roles.contains(role))
            || self.is_listed(room.platform, &sender.id)
            || self.store.is_paired(room.platform.word(), &sender.id).await?
            || (self.settings.allow_all_users && !self.has_list(room.platform));
        if is_in {
            return Ok(Admission::In(self.tier(room, sender).await?));
        }
        Ok(Admission::Stranger(self.behavior(room)))
    }

    /// What to tell a stranger who is to be told something, at most every ten minutes.
    pub async fn greet(&self, room: &Room, sender: &Sender, now: Timestamp) -> Result<Option<String>, Error> {
        let platform = room.platform.word();
        Ok(match self.store.ask_in(platform, &sender.id, &sender.name, now).await? {
            Asked::Code { code, expires } => {
                let minutes = expires.seconds().saturating_sub(now.seconds()).div_ceil(60);
                Some(format!(
                    "I do not know you yet. Whoever looks after me can let you in, within {minutes} minutes, with\n\
                     `hermes pairing approve {platform} {code}`"
                ))
            }
            Asked::Full => Some(
                "I do not know you yet, and too many wait to be let in. Try again in an hour.".to_owned(),
            ),
            Asked::In | Asked::TooSoon | Asked::Locked { .. } => None,
        })
    }

    /// Whether somebody who was let in may use a command; else what to tell them.
    pub fn may_use(&self, room: &Room, tier: Tier, command: &Command) -> Result<(), String> {
        let Some(known) = command.known() else { return Ok(()) };
        let rules = self.rules(room.platform);
        let named = match room.kind {
            RoomKind::Dm if !rules.commands.is_empty() => &rules.commands,
            _ => &rules.group_commands,
        };
        let is_named = named.iter().any(|word| Known::find(word.trim_start_matches('/')) == Some(known));
        let is_floor = FLOOR.contains(&known.name);
        let word = room.platform.word();
        match (tier, command.rights()) {
            (Tier::Admin, _) => Ok(()),
            // Whoever allows a command has not allowed it for everybody's sake.
            (Tier::Ordinary, Rights::Admin) if !is_named || known.rights == Rights::Everybody => {
                let key = admin_key(room.kind);
                Err(format!(
                    "`/{}` is for those who look after me. The owner names them in `{word}.{key}`.",
                    known.name
                ))
            }
            (Tier::Ordinary, _) if is_named || is_floor || named.is_empty() => Ok(()),
            (Tier::Ordinary, _) => {
                let key = commands_key(room.kind);
                Err(format!("`/{}` is not among the commands of `{word}.{key}`.", known.name))
            }
        }
    }

    /// Whether somebody may allow something for good: that holds for everybody, in every chat.
    pub fn may_allow_for_good(&self, platform: Platform, person: &Person, tier: Tier) -> bool {
        tier == Tier::Admin || self.named_approvers(platform).contains(person)
    }

    /// Who may answer the questions that come up in the work for somebody: they themselves, and those who are named for it.
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

    /// Those who are named to answer the questions of others.
    fn named_approvers(&self, platform: Platform) -> Vec<Person> {
        let named = self.rules(platform).approvers.into_iter().filter(|entry| entry != EVERYBODY);
        named
            .map(|entry| if typed(&entry).is_some() { Person::new(entry) } else { platform.person(&entry) })
            .collect()
    }

    fn rules(&self, platform: Platform) -> Rules {
        self.settings.platforms.get(&platform).cloned().unwrap_or_default()
    }

    /// All entries that count on a platform.
    fn entries(&self, platform: Platform) -> impl Iterator<Item = &str> {
        let own = self.settings.platforms.get(&platform).map(|rules| rules.allowed_users.as_slice());
        let is_here = move |entry: &&str| typed(entry).is_none_or(|(place, _)| place == platform);
        let all = own.unwrap_or_default().iter().chain(&self.settings.allowed_users);
        all.map(String::as_str).filter(is_here)
    }

    fn is_listed(&self, platform: Platform, id: &str) -> bool {
        self.entries(platform).any(|entry| entry == EVERYBODY || bare(entry) == id)
    }

    /// Whether somebody was named, so that the others were meant to stay out.
    fn has_list(&self, platform: Platform) -> bool {
        !self.rules(platform).allowed_roles.is_empty() || self.entries(platform).next().is_some()
    }

    async fn tier(&self, room: &Room, sender: &Sender) -> Result<Tier, Error> {
        let rules = self.rules(room.platform);
        let list = match room.kind {
            RoomKind::Dm => &rules.admins,
            RoomKind::Group | RoomKind::Thread => &rules.group_admins,
        };
        let is_meant = |entry: &String| {
            typed(entry).is_none_or(|(platform, _)| platform == room.platform) && bare(entry) == sender.id
        };
        let is_admin = if rules.admins.is_empty() && rules.group_admins.is_empty() {
            self.is_only_one(room.platform, &sender.id).await?
        } else {
            list.iter().any(is_meant)
        };
        Ok(if is_admin { Tier::Admin } else { Tier::Ordinary })
    }

    /// Whether nobody else is let in on a platform.
    async fn is_only_one(&self, platform: Platform, id: &str) -> Result<bool, Error> {
        let rules = self.rules(platform);
        let is_open = rules.allow_all_users || (self.settings.allow_all_users && !self.has_list(platform));
        if is_open || !rules.allowed_roles.is_empty() || self.entries(platform).any(|entry| bare(entry) != id)
        {
            return Ok(false);
        }
        let paired = self.store.paired().await?;
        Ok(paired.iter().all(|one| one.platform != platform.word() || one.user == id))
    }

    fn behavior(&self, room: &Room) -> Behavior {
        let set = || self.rules(room.platform).strangers.or(self.settings.strangers);
        match room.kind {
            RoomKind::Group | RoomKind::Thread => Behavior::Ignore,
            RoomKind::Dm => set().unwrap_or(match self.has_list(room.platform) {
                true => Behavior::Ignore,
                false => Behavior::Pair,
            }),
        }
    }
}

/// The key that names those who look after hermes.
fn admin_key(kind: RoomKind) -> &'static str {
    match kind {
        RoomKind::Dm => "allow_admin_from",
        RoomKind::Group | RoomKind::Thread => "group_allow_admin_from",
    }
}

/// The key that names what others may use.
fn commands_key(kind: RoomKind) -> &'static str {
    match kind {
        RoomKind::Dm => "user_allowed_commands",
        RoomKind::Group | RoomKind::Thread => "group_user_allowed_commands",
    }
}

/// The platform and the id of an entry that names both.
fn typed(entry: &str) -> Option<(Platform, &str)> {
    let (word, id) = entry.split_once(':')?;
    Some((Platform::from_word(word)?, id))
}

/// The id of an entry.
fn bare(entry: &str) -> &str {
    typed(entry).map_or(entry, |(_, id)| id)
}

#[cfg(test)]
mod tests;
