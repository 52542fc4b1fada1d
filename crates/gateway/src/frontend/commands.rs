//! Runs the commands of a session.

use hermes_agent::{QuestionPolicy, UserInput};
use hermes_store::{SessionQuery, TitleConflict, Viewer};
use hermes_types::{Person, Timestamp};
use serde_json::json;

use super::{ChatSession, SessionInput, format};
use crate::access::UserRole;
use crate::background::MAX_TASKS_PER_SESSION;
use crate::channel::OutboundMessage;
use crate::command::{self, ApprovalScope, ChatCommand, ModelChange, ModelScope, StopScope};
use crate::error::Error;
use crate::message::Chat;
use crate::session_key::background_task_key;

const MAX_LISTED_SESSIONS: usize = 20;

impl ChatSession {
    /// Runs a command and replies.
    pub(super) async fn run_command(&mut self, input: SessionInput, command: ChatCommand) {
        if let Err(reason) = self.context.access.check_command(&input.message.chat, input.role, &command) {
            return self.reply(&input, &reason.to_string()).await;
        }
        let text = match command {
            ChatCommand::Help => command::help_text(input.role),
            ChatCommand::Stop(extent) => match self.stop_background(extent) {
                0 => "Nothing is running.".to_owned(),
                _ => "Stopped.".to_owned(),
            },
            ChatCommand::New => {
                match self.end_conversation("new", &input.message.chat, &input.person).await {
                    Ok(()) => "Started a new conversation in a fresh environment.".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            ChatCommand::Background(text) => match self.start_background(input, text).await {
                Ok(()) => return,
                Err((refused, reason)) => return self.reply(&refused, &reason).await,
            },
            ChatCommand::Yolo => self.toggle_approvals(&input.person),
            ChatCommand::Restart => return self.restart(&input).await,
            ChatCommand::Approve { id, scope } => {
                self.approver.answer_question(&input, id.as_deref(), choice(scope)).await
            }
            ChatCommand::Deny { id, reason } => {
                self.approver
                    .answer_question(&input, id.as_deref(), hermes_types::Choice::Deny { reason })
                    .await
            }
            ChatCommand::Queue(text) | ChatCommand::Steer(text) => {
                return self.next.push_front(input.with_text(text));
            }
            ChatCommand::Retry => match self.undo_messages(&input, 1).await {
                Ok(Some(saying)) => return self.next.push_front(input.with_input(saying)),
                Ok(None) => "This conversation is empty.".to_owned(),
                Err(error) => error.to_string(),
            },
            ChatCommand::Undo(count) => match self.undo_messages(&input, count).await {
                Ok(Some(saying)) => format!("Undone: {}", saying.text),
                Ok(None) => "This conversation is empty.".to_owned(),
                Err(error) => error.to_string(),
            },
            ChatCommand::Model(None) => {
                format::describe_models(&self.context.host.model_for(self.model.as_deref()))
            }
            ChatCommand::Model(Some(model)) => self.change_model(&input, model).await,
            ChatCommand::Status => self.status_text(&input).await,
            ChatCommand::Usage => self.usage_text().await,
            ChatCommand::Whoami => {
                let role = if input.role == UserRole::Admin { "admin" } else { "user" };
                format!("{} ({}), {role}", input.message.sender.name, input.person.as_str())
            }
            ChatCommand::Sethome => {
                let chat = &input.message.chat;
                match self
                    .store()
                    .set_home_chat(chat.platform.as_str(), &chat.id, &input.person, Timestamp::now())
                    .await
                {
                    Ok(()) => "This chat is now the home channel.".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            ChatCommand::BadUsage(spec) => format!("Usage: `{}`", spec.usage()),
            ChatCommand::Unknown(name) => format!("Unknown command /{name}. Use /help for a list."),
            ChatCommand::Title(title) => {
                self.show_or_set_title(title.as_deref()).await.unwrap_or_else(|error| error.to_string())
            }
            ChatCommand::Sessions | ChatCommand::Resume(None) => {
                self.list_sessions(&input.person).await.unwrap_or_else(|error| error.to_string())
            }
            ChatCommand::Resume(Some(word)) => {
                self.resume_session(&input.person, &word).await.unwrap_or_else(|error| error.to_string())
            }
        };
        self.reply(&input, &text).await;
    }

    /// Stops background tasks if `scope` includes them; returns how many.
    pub(super) fn stop_background(&self, extent: StopScope) -> usize {
        let tasks = match extent {
            StopScope::Turn => Vec::new(),
            StopScope::All => self.context.background.tasks_of(&self.key),
        };
        tasks.iter().for_each(|task| task.stop.cancel());
        tasks.len()
    }

    /// Hands the message to a background session, or returns it with the reason.
    async fn start_background(
        &self,
        input: SessionInput,
        text: String,
    ) -> Result<(), (SessionInput, String)> {
        if self.context.background.tasks_of(&self.key).len() >= MAX_TASKS_PER_SESSION {
            return Err((
                input,
                format!(
                    "{MAX_TASKS_PER_SESSION} background tasks are already running; `/stop all` stops them."
                ),
            ));
        }
        let key = background_task_key(&self.key, &input.message.id);
        let input = input.with_text(text);
        // From here on a restart resumes it as a background task.
        if let Err(error) = self.store().reassign(input.inbox_id, &key, json!(input.message)).await {
            return Err((input, error.to_string()));
        }
        let text =
            format!("[{}]\nStarted. The reply will be posted here.", format::task_title(&input.message.text));
        let outbound = OutboundMessage::text(text);
        let part_key = Some(format!("begun:{}", key.as_str()));
        let part =
            format::outbox_part(&self.context.channel, &key, &input.message.chat.id, part_key, &outbound);
        self.context.outbox.enqueue(Vec::new(), vec![part]).await;
        self.context.dispatch(&key, input);
        Ok(())
    }

    fn toggle_approvals(&self, person: &Person) -> String {
        let questions = self.context.approvals.toggle(&self.key);
        let is_asking = questions == QuestionPolicy::Ask;
        let entry = json!({ "person": person, "session": self.key, "asks": is_asking });
        self.context.audit.record("yolo", &entry);
        if let Some(tools) = &self.tools {
            tools.approvals().set_question_policy(questions);
        }
        match questions {
            QuestionPolicy::Waive => {
                "Approvals are off in this conversation until `/yolo`, `/new` or a restart. \
                                  Hard-blocked commands are still refused."
                    .to_owned()
            }
            QuestionPolicy::Ask => "Approvals are on again.".to_owned(),
        }
    }

    /// Restarts, but only once the command is done: otherwise the next start would restart again.
    async fn restart(&self, input: &SessionInput) {
        self.reply(input, "Restarting as soon as running replies have finished.").await;
        let begun = match self.is_finished(input).await {
            Ok(true) => self.context.host.request_restart(&input.message.chat, &input.message.id),
            Ok(false) => Err(Error::NotRecorded),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = begun {
            self.context
                .outbox
                .send_notice(&input.message.chat, &format!("Could not restart: {reason}"))
                .await;
        }
    }

    /// Ends the conversation and removes its environment.
    pub(super) async fn end_conversation(
        &mut self,
        reason: &str,
        chat: &Chat,
        person: &Person,
    ) -> Result<(), Error> {
        self.restore_approvals(person).await.map_err(Error::EndConversation)?;
        let current = match self.conversation.take() {
            Some(conversation) => Some(conversation.id().clone()),
            None => self.store().current_session(&self.key).await.ok().flatten().map(|session| session.id),
        };
        self.tools = None;
        if let Some(id) = current {
            self.store().end_session(&id, reason, Timestamp::now()).await.map_err(Error::EndConversation)?;
        }
        let removed = self.context.host.remove_sandbox(&self.key, chat).await;
        removed.map_err(|error| Error::RemoveSandbox(Box::new(error)))
    }

    /// Turns approvals on and ends grants, which are valid for one conversation only.
    async fn restore_approvals(&self, by: &Person) -> Result<(), hermes_store::Error> {
        self.context.approvals.restore(&self.key);
        self.store().revoke_session_grants(&self.key, by, Timestamp::now()).await.map(drop)
    }

    async fn show_or_set_title(&self, title: Option<&str>) -> Result<String, hermes_store::Error> {
        let Some(current) = self.store().current_session(&self.key).await? else {
            return Ok("This conversation is empty.".to_owned());
        };
        Ok(match title {
            Some(title) => self.store().set_title(&current.id, title, TitleConflict::Number).await?,
            None => current.title.unwrap_or_else(|| "No title yet.".to_owned()),
        })
    }

    async fn list_sessions(&self, person: &Person) -> Result<String, hermes_store::Error> {
        let listing = SessionQuery { limit: MAX_LISTED_SESSIONS, ..SessionQuery::default() };
        let all = self.store().sessions(&Viewer::Person(person.clone()), listing).await?;
        let own = all.iter().filter(|session| session.key == self.key);
        let lines: Vec<String> = own
            .map(|session| format!("`{}` {}", session.id, session.title.as_deref().unwrap_or_default()))
            .collect();
        Ok(if lines.is_empty() { "No conversations yet.".to_owned() } else { lines.join("\n") })
    }

    async fn resume_session(&mut self, person: &Person, word: &str) -> Result<String, hermes_store::Error> {
        let meant = self.store().resolve_session(&Viewer::Person(person.clone()), word).await?;
        if meant.key != self.key {
            return Ok("That conversation belongs to another chat.".to_owned());
        }
        let current = self.store().current_session(&self.key).await?;
        if let Some(current) = current.filter(|current| current.id != meant.id) {
            self.store().end_session(&current.id, "resume", Timestamp::now()).await?;
        }
        self.store().reopen_session(&meant.id).await?;
        self.conversation = None;
        self.restore_approvals(person).await?;
        Ok(format!("Resumed `{}` {}", meant.id, meant.title.unwrap_or_default()))
    }

    async fn undo_messages(&mut self, input: &SessionInput, count: u32) -> Result<Option<UserInput>, Error> {
        self.ensure_conversation(input).await?;
        let mut last = None;
        for _ in 0..count.max(1) {
            let Some(conversation) = &mut self.conversation else { break };
            match conversation.undo().await? {
                Some(saying) => last = Some(saying),
                None => break,
            }
        }
        Ok(last)
    }

    async fn change_model(
        &mut self,
        input: &SessionInput,
        ModelChange { name, scope }: ModelChange,
    ) -> String {
        let models = self.context.host.model_for(Some(&name));
        if models.is_ok()
            && scope == ModelScope::Global
            && let Err(reason) = self.context.host.set_default_model(&name)
        {
            return reason.to_string();
        }
        if let (Ok(models), Ok(())) = (&models, self.ensure_conversation(input).await)
            && let (Some(conversation), Some(tools)) = (&mut self.conversation, &self.tools)
        {
            let prompt = self.context.host.system_prompt(tools.config(), &name, &input.message.chat);
            if let Err(error) = conversation.set_model(models.clone(), prompt).await {
                return error.to_string();
            }
            self.model = Some(name);
        }
        format::describe_models(&models)
    }

    async fn status_text(&self, input: &SessionInput) -> String {
        let mut lines = vec![format!("session      {}", self.key.as_str())];
        if let Some(tools) = &self.tools {
            let plan = &tools.config().place;
            lines.push(format!("environment  {} on {}", plan.name(), plan.backend_name()));
        }
        if let Ok(Some(session)) = self.store().current_session(&self.key).await {
            lines.push(format!("model        {} ({})", session.model, session.provider));
            lines.push(format!("id           {}", session.id));
        }
        lines.push(format!("queued       {}", self.next.len()));
        if self.context.approvals.mode(&self.key) == QuestionPolicy::Waive {
            lines.push("approvals    off (/yolo)".to_owned());
        }
        lines.extend(
            self.context
                .background
                .tasks_of(&self.key)
                .iter()
                .map(|task| format!("background   {}", task.title)),
        );
        lines.push(format!("you          {}", input.person.as_str()));
        format!("```\n{}\n```", lines.join("\n"))
    }

    async fn usage_text(&self) -> String {
        match self.store().current_session(&self.key).await {
            Ok(Some(session)) => format!(
                "{} API calls; tokens: {} in ({} cached), {} out",
                session.api_calls,
                session.usage.prompt(),
                session.usage.cache_read,
                session.usage.output
            ),
            Ok(None) => "This conversation is empty.".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

fn choice(scope: ApprovalScope) -> hermes_types::Choice {
    match scope {
        ApprovalScope::Once => hermes_types::Choice::Once,
        ApprovalScope::Session => hermes_types::Choice::Session,
        ApprovalScope::Always => hermes_types::Choice::Always,
    }
}
