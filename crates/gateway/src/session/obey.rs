//! Does what people tell the gateway itself.

use hermes_agent::{QuestionPolicy, UserInput};
use hermes_store::{Clash, Listing, Reader};
use hermes_types::{Person, Timestamp};

use super::{Item, Session, words};
use crate::beside::MOST;
use crate::channel::Post;
use crate::command::{self, Command, Extent, Model, Reach, Scope};
use crate::key::task_key;
use crate::letter::Room;
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
            Command::Stop(extent) => match self.stop_beside(extent) {
                0 => "nothing is under way".to_owned(),
                _ => "stopped".to_owned(),
            },
            Command::New => match self.finish("new", (&item.letter.room, &item.person)).await {
                Ok(()) => "a new conversation, in a new place".to_owned(),
                Err(why) => why,
            },
            Command::Background(text) => match self.begin_beside(item, text).await {
                Ok(()) => return,
                Err((refused, why)) => return self.say(&refused, &why).await,
            },
            Command::Yolo => self.waive(&item.person),
            Command::Restart => return self.restart(&item).await,
            Command::Approve { id, scope } => self.ask.decide(&item, id.as_deref(), choice(scope)).await,
            Command::Deny { id, reason } => {
                self.ask.decide(&item, id.as_deref(), hermes_store::Choice::Deny { reason }).await
            }
            Command::Queue(text) | Command::Steer(text) => return self.next.push_front(item.saying(text)),
            Command::Retry => match self.taken_back(&item, 1).await {
                Ok(Some(saying)) => return self.next.push_front(item.repeating(saying)),
                Ok(None) => "nothing was said yet".to_owned(),
                Err(why) => why,
            },
            Command::Undo(count) => match self.taken_back(&item, count).await {
                Ok(Some(saying)) => format!("taken back: {}", saying.text),
                Ok(None) => "nothing was said yet".to_owned(),
                Err(why) => why,
            },
            Command::Model(None) => words::mind(&self.shared.house.mind(self.model.as_deref())),
            Command::Model(Some(model)) => self.change_model(&item, model).await,
            Command::Status => self.status(&item).await,
            Command::Usage => self.usage().await,
            Command::Whoami => {
                let tier = if item.tier == Tier::Admin { "admin" } else { "user" };
                format!("{} ({}), {tier}", item.letter.sender.name, item.person.as_str())
            }
            Command::Sethome => {
                let room = &item.letter.room;
                match self
                    .store()
                    .set_home(room.platform.word(), &room.chat, &item.person, Timestamp::now())
                    .await
                {
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
        };
        self.say(&item, &text).await;
    }

    /// Ends what is worked on beside the conversation, if that is meant too, and says how much it was.
    pub(super) fn stop_beside(&self, extent: Extent) -> usize {
        let tasks = match extent {
            Extent::Answer => Vec::new(),
            Extent::Everything => self.shared.beside.of(&self.key),
        };
        tasks.iter().for_each(|task| task.stop.cancel());
        tasks.len()
    }

    /// Gives a letter to a session of its own, or gives it back with the reason.
    async fn begin_beside(&self, item: Item, text: String) -> Result<(), (Item, String)> {
        if self.shared.beside.of(&self.key).len() >= MOST {
            return Err((item, format!("{MOST} things are under way already; `/stop all` ends them")));
        }
        let key = task_key(&self.key, &item.letter.message);
        let item = item.saying(text);
        // From here on it is begun again by whoever comes next, should this be the end.
        let kept = match serde_json::to_value(&item.letter) {
            Ok(event) => {
                self.store().readdress(item.id, &key, event).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = kept {
            return Err((item, why));
        }
        let text = format!("[{}]\nbegun; the answer comes here", words::title(&item.letter.text));
        let post = Post { text, ..Post::default() };
        let mark = Some(format!("begun:{}", key.as_str()));
        let part = words::part(&self.shared.channel, &key, &item.letter.room.chat, mark, &post);
        self.shared.put(Vec::new(), vec![part]).await;
        self.shared.give(&key, item).await;
        Ok(())
    }

    /// Asks nothing in this conversation, or asks again.
    fn waive(&self, person: &Person) -> String {
        let questions = self.shared.waive(&self.key, person);
        if let Some(hands) = &self.hands {
            hands.set_question_policy(questions);
        }
        match questions {
            QuestionPolicy::Waive => {
                "nobody is asked in this conversation any more, until `/yolo`, `/new` or a \
                                  restart; what is never allowed stays so"
                    .to_owned()
            }
            QuestionPolicy::Ask => "questions are asked again".to_owned(),
        }
    }

    /// Starts hermes anew, if the letter is done: it would have whoever comes next do the same.
    async fn restart(&self, item: &Item) {
        self.say(item, "starting anew, as soon as what is under way has ended").await;
        let begun = match self.is_done(item).await {
            Ok(true) => self.shared.house.restart(&item.letter.room, &item.letter.message),
            Ok(false) => Err("the store cannot be written".to_owned()),
            Err(why) => Err(why),
        };
        if let Err(why) = begun {
            self.shared.tell(&item.letter.room, &format!("this could not be done: {why}")).await;
        }
    }

    /// Ends the conversation and its place, for a reason in a word.
    pub(super) async fn finish(&mut self, reason: &str, (room, by): (&Room, &Person)) -> Result<(), String> {
        self.ask_again(by).await.map_err(|error| format!("the conversation could not be ended: {error}"))?;
        let current = match self.conversation.take() {
            Some(conversation) => Some(conversation.id().clone()),
            None => self.store().current(&self.key).await.ok().flatten().map(|session| session.id),
        };
        self.hands = None;
        if let Some(id) = current
            && let Err(error) = self.store().end(&id, reason, Timestamp::now()).await
        {
            return Err(format!("the conversation could not be ended: {error}"));
        }
        let cleared = self.shared.house.clear(&self.key, room).await;
        cleared.map_err(|why| format!("a new conversation; its old place could not be removed: {why}"))
    }

    /// Asks about everything again: what was allowed for one conversation is not allowed for the next.
    async fn ask_again(&self, by: &Person) -> Result<(), hermes_store::Error> {
        self.shared.ask_again(&self.key);
        self.store().end_grants(&self.key, by, Timestamp::now()).await.map(drop)
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
            self.store().end(&current.id, "resume", Timestamp::now()).await?;
        }
        self.store().reopen(&meant.id).await?;
        self.conversation = None;
        self.ask_again(person).await?;
        Ok(format!("going on with `{}` {}", meant.id, meant.title.unwrap_or_default()))
    }

    async fn taken_back(&mut self, item: &Item, count: u32) -> Result<Option<UserInput>, String> {
        self.open(item).await?;
        let mut last = None;
        for _ in 0..count.max(1) {
            let Some(conversation) = &mut self.conversation else { break };
            match conversation.undo().await.map_err(|error| error.to_string())? {
                Some(saying) => last = Some(saying),
                None => break,
            }
        }
        Ok(last)
    }

    async fn change_model(&mut self, item: &Item, Model { name, reach }: Model) -> String {
        let mind = self.shared.house.mind(Some(&name));
        if mind.is_ok()
            && reach == Reach::Everybody
            && let Err(why) = self.shared.house.prefer(&name)
        {
            return why;
        }
        if let (Ok(mind), Ok(())) = (&mind, self.open(item).await)
            && let (Some(conversation), Some(hands)) = (&mut self.conversation, &self.hands)
        {
            let told = self.shared.house.told(hands.config(), &name, &item.letter.room);
            if let Err(error) = conversation.set_model(mind.clone(), told).await {
                return error.to_string();
            }
            self.model = Some(name);
        }
        words::mind(&mind)
    }

    async fn status(&self, item: &Item) -> String {
        let mut lines = vec![format!("session  {}", self.key.as_str())];
        if let Some(hands) = &self.hands {
            let plan = &hands.config().place;
            lines.push(format!("place    {} on {}", plan.name(), plan.backend_name()));
        }
        if let Ok(Some(session)) = self.store().current(&self.key).await {
            lines.push(format!("model    {} ({})", session.model, session.provider));
            lines.push(format!("id       {}", session.id));
        }
        lines.push(format!("waiting  {}", self.next.len()));
        if self.shared.questions(&self.key) == QuestionPolicy::Waive {
            lines.push("asks     nothing, because of /yolo".to_owned());
        }
        lines.extend(self.shared.beside.of(&self.key).iter().map(|task| format!("beside   {}", task.title)));
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
