//! Does what people tell the gateway itself.

use hermes_store::{Clash, Listing, Reader};
use hermes_types::Person;

use super::{Item, Session, words};
use crate::clock::now;
use crate::command::{self, Command, Scope};
use crate::letter::{Letter, Room};
use crate::people::Tier;

/// Earlier conversations that are listed.
const LISTED: usize = 20;

impl Session {
    /// Does what a command says.
    pub(super) async fn obey(&mut self, item: Item, command: Command) {
        if let Err(why) = self.shared.people.may_use(&item.letter.room, item.tier, &command) {
            return self.say(&item, &why).await;
        }
        let text = match command {
            Command::Help => command::help(item.tier),
            Command::Stop => "nothing is under way".to_owned(),
            Command::New => self.begin_anew(&item.letter.room).await,
            Command::Approve { id, scope } => self.ask.decide(&item, id.as_deref(), choice(scope)).await,
            Command::Deny { id, reason } => {
                self.ask.decide(&item, id.as_deref(), hermes_store::Choice::Deny { reason }).await
            }
            Command::Queue(text) | Command::Steer(text) => {
                let letter = Letter { text, ..item.letter.clone() };
                return self.next.push_front(Item { letter, ..item });
            }
            Command::Retry => match self.taken_back(&item, 1).await {
                Ok(Some(text)) => {
                    let letter = Letter { text, ..item.letter.clone() };
                    return self.next.push_front(Item { letter, ..item });
                }
                Ok(None) => "nothing was said yet".to_owned(),
                Err(why) => why,
            },
            Command::Undo(count) => match self.taken_back(&item, count).await {
                Ok(Some(text)) => format!("taken back: {text}"),
                Ok(None) => "nothing was said yet".to_owned(),
                Err(why) => why,
            },
            Command::Model(None) => words::mind(&self.shared.house.mind(self.model.as_deref())),
            Command::Model(Some(model)) => self.change_model(&item, model.name).await,
            Command::Status => self.status(&item).await,
            Command::Usage => self.usage().await,
            Command::Whoami => {
                let tier = if item.tier == Tier::Admin { "admin" } else { "user" };
                format!("{} ({}), {tier}", item.letter.sender.name, item.person.as_str())
            }
            Command::Sethome => {
                let room = &item.letter.room;
                match self.store().set_home(room.platform.word(), &room.chat, &item.person, now()).await {
                    Ok(()) => "this is the home channel now".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            Command::Misused(known) => format!("it is written `{}`", known.usage()),
            Command::Unknown(name) => format!("there is no command /{name}; /help lists those there are"),
            Command::Title(title) => {
                self.title(title.as_deref()).await.unwrap_or_else(|error| error.to_string())
            }
            Command::Sessions | Command::Resume(None) => {
                self.earlier(&item.person).await.unwrap_or_else(|error| error.to_string())
            }
            Command::Resume(Some(word)) => {
                self.take_up(&item.person, &word).await.unwrap_or_else(|error| error.to_string())
            }
            Command::Background(_) | Command::Restart | Command::Yolo => {
                "this command is not part of this version".to_owned()
            }
        };
        self.say(&item, &text).await;
    }

    /// Ends the conversation and its place.
    async fn begin_anew(&mut self, room: &Room) -> String {
        let current = match self.conversation.take() {
            Some(conversation) => Some(conversation.id().clone()),
            None => self.store().current(&self.key).await.ok().flatten().map(|session| session.id),
        };
        self.hands = None;
        if let Some(id) = current
            && let Err(error) = self.store().end(&id, "new", now()).await
        {
            return format!("the conversation could not be ended: {error}");
        }
        match self.shared.house.clear(&self.key, room).await {
            Ok(()) => "a new conversation, in a new place".to_owned(),
            Err(why) => format!("a new conversation; its old place could not be removed: {why}"),
        }
    }

    /// Shows the title of the conversation, or changes it.
    async fn title(&self, title: Option<&str>) -> Result<String, hermes_store::Error> {
        let Some(current) = self.store().current(&self.key).await? else {
            return Ok("nothing was said yet".to_owned());
        };
        Ok(match title {
            Some(title) => self.store().set_title(&current.id, title, Clash::Number).await?,
            None => current.title.unwrap_or_else(|| "it has no title".to_owned()),
        })
    }

    /// Earlier conversations of somebody in this chat.
    async fn earlier(&self, person: &Person) -> Result<String, hermes_store::Error> {
        let listing = Listing { limit: LISTED, ..Listing::default() };
        let all = self.store().sessions(&Reader::Person(person.clone()), listing).await?;
        let own = all.iter().filter(|session| session.key == self.key);
        let lines: Vec<String> = own
            .map(|session| format!("`{}` {}", session.id, session.title.as_deref().unwrap_or_default()))
            .collect();
        Ok(if lines.is_empty() { "there is none yet".to_owned() } else { lines.join("\n") })
    }

    /// Goes on with an earlier conversation of somebody in this chat.
    async fn take_up(&mut self, person: &Person, word: &str) -> Result<String, hermes_store::Error> {
        let meant = self.store().resolve(&Reader::Person(person.clone()), word).await?;
        if meant.key != self.key {
            return Ok("that conversation belongs to another chat".to_owned());
        }
        let current = self.store().current(&self.key).await?;
        if let Some(current) = current.filter(|current| current.id != meant.id) {
            self.store().end(&current.id, "resume", now()).await?;
        }
        self.store().reopen(&meant.id).await?;
        self.conversation = None;
        Ok(format!("going on with `{}` {}", meant.id, meant.title.unwrap_or_default()))
    }

    async fn taken_back(&mut self, item: &Item, count: u32) -> Result<Option<String>, String> {
        self.open(item).await?;
        let mut last = None;
        for _ in 0..count.max(1) {
            let Some(conversation) = &mut self.conversation else { break };
            match conversation.undo().await.map_err(|error| error.to_string())? {
                Some(text) => last = Some(text),
                None => break,
            }
        }
        Ok(last)
    }

    async fn change_model(&mut self, item: &Item, name: String) -> String {
        let mind = self.shared.house.mind(Some(&name));
        if let (Ok(mind), Ok(())) = (&mind, self.open(item).await)
            && let (Some(conversation), Some(hands)) = (&mut self.conversation, &self.hands)
        {
            let told = self.shared.house.told(hands.setup(), &name, &item.letter.room);
            if let Err(error) = conversation.change_mind(mind.clone(), told).await {
                return error.to_string();
            }
            self.model = Some(name);
        }
        words::mind(&mind)
    }

    async fn status(&self, item: &Item) -> String {
        let mut lines = vec![format!("session  {}", self.key.as_str())];
        if let Some(hands) = &self.hands {
            let plan = &hands.setup().plan;
            lines.push(format!("place    {} on {}", plan.name(), plan.backend()));
        }
        if let Ok(Some(session)) = self.store().current(&self.key).await {
            lines.push(format!("model    {} ({})", session.model, session.provider));
            lines.push(format!("id       {}", session.id));
        }
        lines.push(format!("waiting  {}", self.next.len()));
        lines.push(format!("you      {}", item.person.as_str()));
        format!("```\n{}\n```", lines.join("\n"))
    }

    async fn usage(&self) -> String {
        match self.store().current(&self.key).await {
            Ok(Some(session)) => format!(
                "{} calls; tokens: {} in ({} from the cache), {} out",
                session.api_calls,
                session.usage.prompt(),
                session.usage.cache_read,
                session.usage.output
            ),
            Ok(None) => "nothing was said yet".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

fn choice(scope: Scope) -> hermes_store::Choice {
    match scope {
        Scope::Once => hermes_store::Choice::Once,
        Scope::Session => hermes_store::Choice::Session,
        Scope::Always => hermes_store::Choice::Always,
    }
}
