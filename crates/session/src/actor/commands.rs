//! Runs the commands of a session.

use std::sync::Arc;

use hermes_agent::QuestionPolicy;
use hermes_store::{SessionQuery, SessionRow, Viewer};
use hermes_types::{Choice, Person, Timestamp};

use super::{ConversationScope, SessionActor};
use crate::background::{MAX_TASKS_PER_SESSION, background_task_key, parent_session, task_title};
use crate::command::{self, ModelChange, ModelScope, SessionCommand, StopScope, UserRole};
use crate::{CommandReply, Error, Frontend, FrontendInput, ModelConfig, SessionMessage, UserInput};

const MAX_LISTED_SESSIONS: usize = 20;
const EMPTY_CONVERSATION: &str = "This conversation is empty.";

impl<F: Frontend> SessionActor<F> {
    /// Runs a command and replies.
    pub(super) async fn run_command(&mut self, input: FrontendInput<F>, command: SessionCommand) {
        if let Err(reason) = self.frontend.check_command(&input, &command) {
            return self.frontend.reply(&input, reason.to_string().into()).await;
        }
        let reply: Result<CommandReply, Error> = match command {
            SessionCommand::Background(text) => return self.start_background(input, text).await,
            SessionCommand::Queue(text) | SessionCommand::Steer(text) => {
                return self.next.push_front(input.with_text(text));
            }
            SessionCommand::Retry => match self.undo_messages(&input, 1).await {
                Ok(Some(message)) => return self.next.push_front(input.with_input(message)),
                Ok(None) => Ok(EMPTY_CONVERSATION.into()),
                Err(error) => Err(error),
            },
            SessionCommand::Sethome | SessionCommand::Restart | SessionCommand::Quit => {
                return self.frontend.run_own_command(&input, &command).await;
            }
            SessionCommand::Help => {
                Ok(CommandReply::Commands(command::offered(F::SURFACE, input.role).collect()))
            }
            SessionCommand::Stop(scope) => match self.stop_background(scope) {
                0 => Ok("Nothing is running.".into()),
                _ => Ok("Stopped.".into()),
            },
            SessionCommand::New => {
                self.end_conversation("new", &input.message, &input.person).await.map(|is_removed| {
                    match is_removed {
                        true => "Started a new conversation in a fresh environment.".into(),
                        false => "Started a new conversation in the same environment.".into(),
                    }
                })
            }
            SessionCommand::Yolo => Ok(self.toggle_approvals(&input.person).into()),
            SessionCommand::Answer { id, choice } => {
                self.answer_question(&input, id.as_deref(), choice).await
            }
            SessionCommand::Undo(count) => match self.undo_messages(&input, count).await {
                Ok(Some(message)) => Ok(format!("Undone: {}", message.text).into()),
                Ok(None) => Ok(EMPTY_CONVERSATION.into()),
                Err(error) => Err(error),
            },
            SessionCommand::Model(None) => self.models_in_use().map(|models| describe_models(&models)),
            SessionCommand::Model(Some(change)) => self.change_model(&input, change).await,
            SessionCommand::Status => self.status_rows(&input).await.map(CommandReply::Table),
            SessionCommand::Usage => self.usage_text().await,
            SessionCommand::Whoami => {
                let role: &str = input.role.into();
                Ok(format!("{}, {role}", input.message.sender(&input.person)).into())
            }
            SessionCommand::Title(title) => self.show_or_set_title(title.as_deref()).await,
            SessionCommand::Sessions | SessionCommand::Resume(None) => self.list_sessions(&input).await,
            SessionCommand::Resume(Some(word)) => self.resume_session(&input, &word).await,
            SessionCommand::BadUsage(spec) => Ok(format!("Usage: `{}`", spec.usage()).into()),
            SessionCommand::Unknown(name) => {
                Ok(command::unknown_command(&name, F::SURFACE, input.role).into())
            }
        };
        self.frontend.reply(&input, reply.unwrap_or_else(|error| error.to_string().into())).await;
    }

    /// Stops background tasks if `scope` includes them; returns how many.
    pub(super) fn stop_background(&self, scope: StopScope) -> usize {
        let tasks = match scope {
            StopScope::Turn => Vec::new(),
            StopScope::All => self.pool.background_tasks(&self.key),
        };
        tasks.iter().for_each(|task| task.stop.cancel());
        tasks.len()
    }

    /// Runs a text in a background session.
    async fn start_background(&self, input: FrontendInput<F>, text: String) {
        if self.pool.background_tasks(&self.key).len() >= MAX_TASKS_PER_SESSION {
            let text = format!(
                "{MAX_TASKS_PER_SESSION} background tasks are already running; `/stop all` stops them."
            );
            return self.frontend.reply(&input, text.into()).await;
        }
        let key = background_task_key(&self.key, input.message.id());
        let input = input.with_text(text);
        let title = task_title(input.message.text());
        if let Err(error) = self.frontend.start_background_task(&input, &key, &title).await {
            return self.frontend.reply(&input, error.to_string().into()).await;
        }
        let new_frontend = |task| self.frontend.for_background_task(&key, task);
        if let Some(rejected) = self.pool.dispatch(&key, input, new_frontend) {
            self.frontend.reject(rejected, true).await;
        }
    }

    fn toggle_approvals(&self, person: &Person) -> String {
        let policy = self.pool.toggle_approvals(&self.key);
        self.frontend.on_approvals_changed(person, policy == QuestionPolicy::Ask);
        if let Some(tools) = &self.tools {
            tools.approvals().set_question_policy(policy);
        }
        match policy {
            QuestionPolicy::Waive => {
                "Approvals are off in this conversation until `/yolo`, `/new` or a restart. \
                 Hard-blocked commands are still refused."
                    .to_owned()
            }
            QuestionPolicy::Ask => "Approvals are on again.".to_owned(),
        }
    }

    /// Answers a question by id, or the only open one. Returns the text to show.
    async fn answer_question(
        &self,
        input: &FrontendInput<F>,
        id: Option<&str>,
        choice: Choice,
    ) -> Result<CommandReply, Error> {
        let open = self.store().open_questions(Timestamp::now()).await?;
        let is_here = |question: &&hermes_store::QuestionRow| {
            question.key == self.key || parent_session(&question.key).as_ref() == Some(&self.key)
        };
        let here = open.iter().any(|question| is_here(&question));
        // The owner also answers questions of other sessions.
        let sees_all = input.role == UserRole::Owner && (id.is_some() || !here);
        let mut meant = open.iter().filter(|question| {
            (sees_all || is_here(question)) && id.is_none_or(|id| question.id.starts_with(id))
        });
        Ok(match (meant.next(), meant.next()) {
            (None, _) => "No question is open here.".into(),
            (Some(_), Some(_)) => "Several questions are open. Add the id of the one you mean.".into(),
            (Some(question), None) => self.frontend.answer_question(input, &question.id, choice).await.into(),
        })
    }

    /// Ends the conversation and removes its environment. Returns whether that was its own.
    pub(super) async fn end_conversation(
        &mut self,
        reason: &str,
        message: &F::Message,
        person: &Person,
    ) -> Result<bool, Error> {
        self.restore_approvals(person).await.map_err(Error::EndConversation)?;
        let current = match self.conversation.take() {
            Some(conversation) => Some(conversation.id().clone()),
            None => self.current_session().await.ok().flatten().map(|session| session.id),
        };
        if let ConversationScope::Own(own) = &mut self.scope {
            *own = None;
        }
        if let Some(id) = current {
            self.store().end_session(&id, reason, Timestamp::now()).await.map_err(Error::EndConversation)?;
        }
        let host = Arc::clone(&self.pool.host);
        let is_removed = host.remove_sandbox(&self.key, message).await;
        if !matches!(is_removed, Ok(false)) {
            self.tools = None;
        }
        is_removed.map_err(|error| Error::RemoveSandbox(Box::new(error)))
    }

    /// Turns approvals on and ends grants, which are valid for one conversation only.
    async fn restore_approvals(&self, by: &Person) -> Result<(), hermes_store::Error> {
        self.pool.restore_approvals(&self.key);
        self.store().revoke_session_grants(&self.key, by, Timestamp::now()).await
    }

    async fn show_or_set_title(&self, title: Option<&str>) -> Result<CommandReply, Error> {
        let Some(current) = self.current_session().await? else { return Ok(EMPTY_CONVERSATION.into()) };
        Ok(match title {
            Some(title) => self.store().set_title(&current.id, title).await?.into(),
            None => current.title.map_or("No title yet.".into(), CommandReply::Text),
        })
    }

    /// The conversations of the sender in this chat, or at a terminal all of the owner.
    async fn list_sessions(&self, input: &FrontendInput<F>) -> Result<CommandReply, Error> {
        let query = SessionQuery { limit: MAX_LISTED_SESSIONS, ..SessionQuery::default() };
        let all = self.store().sessions(&self.viewer(input), query).await?;
        let lines: Vec<String> = all
            .iter()
            .filter(|session| self.may_resume(session))
            .map(|session| format!("`{}` {}", session.id, session.title.as_deref().unwrap_or_default()))
            .collect();
        Ok(if lines.is_empty() { "No conversations yet.".into() } else { lines.join("\n").into() })
    }

    fn viewer(&self, input: &FrontendInput<F>) -> Viewer {
        match input.role {
            UserRole::Owner => Viewer::Owner,
            UserRole::User | UserRole::Admin => Viewer::Person(input.person.clone()),
        }
    }

    /// A terminal can take up every conversation, a chat only its own.
    fn may_resume(&self, session: &SessionRow) -> bool {
        matches!(self.scope, ConversationScope::Own(_)) || session.key == self.key
    }

    async fn resume_session(&mut self, input: &FrontendInput<F>, word: &str) -> Result<CommandReply, Error> {
        let meant = self.store().find_session(&self.viewer(input), word).await?;
        if !self.may_resume(&meant) {
            return Ok("That conversation belongs to another chat.".into());
        }
        let current = self.current_session().await?;
        if let Some(current) = current.filter(|current| current.id != meant.id) {
            self.store().end_session(&current.id, "resume", Timestamp::now()).await?;
        }
        self.store().reopen_session(&meant.id).await?;
        self.restore_approvals(&input.person).await?;
        match self.scope {
            ConversationScope::Key => self.conversation = None,
            ConversationScope::Own(_) => self.continue_conversation(&meant).await,
        }
        Ok(format!("Resumed `{}` {}", meant.id, meant.title.unwrap_or_default()).into())
    }

    async fn undo_messages(
        &mut self,
        input: &FrontendInput<F>,
        count: u32,
    ) -> Result<Option<UserInput>, Error> {
        if self.current_session().await?.is_none() {
            return Ok(None);
        }
        self.ensure_conversation(input).await?;
        let mut last = None;
        for _ in 0..count {
            let Some(conversation) = &mut self.conversation else { break };
            match conversation.undo().await? {
                Some(message) => last = Some(message),
                None => break,
            }
        }
        Ok(last)
    }

    async fn change_model(
        &mut self,
        input: &FrontendInput<F>,
        ModelChange { name, scope }: ModelChange,
    ) -> Result<CommandReply, Error> {
        let models = self.pool.host.model_for(Some(&name))?;
        if scope == ModelScope::Global {
            self.pool.host.set_default_model(&name)?;
        }
        if self.current_session().await?.is_some() {
            self.ensure_conversation(input).await?;
        }
        if let (Some(conversation), Some(tools)) = (&mut self.conversation, &self.tools) {
            let prompt = self.pool.host.system_prompt(tools.config(), &name, &input.message);
            conversation.set_model(models.clone(), prompt).await?;
        }
        self.pool.set_model(&self.key, name);
        Ok(describe_models(&models))
    }

    fn models_in_use(&self) -> Result<ModelConfig, Error> {
        match &self.conversation {
            Some(conversation) => Ok(conversation.model_config().clone()),
            None => self.pool.host.model_for(self.pool.model_choice(&self.key).as_deref()),
        }
    }

    async fn status_rows(&self, input: &FrontendInput<F>) -> Result<Vec<(&'static str, String)>, Error> {
        let mut rows = vec![("session", self.key.as_str().to_owned())];
        if let Some(tools) = &self.tools {
            let plan = &tools.config().place;
            rows.push(("environment", format!("{} on {}", plan.name(), plan.backend_name())));
        }
        if let Some(session) = self.current_session().await? {
            rows.push(("model", format!("{} ({})", session.model, session.provider)));
            rows.push(("id", session.id.to_string()));
            rows.extend(session.title.map(|title| ("title", title)));
            rows.push(("messages", session.messages.to_string()));
        }
        rows.push(("queued", self.next.len().to_string()));
        if self.pool.question_policy(&self.key) == QuestionPolicy::Waive {
            rows.push(("approvals", "off (/yolo)".to_owned()));
        }
        let tasks = self.pool.background_tasks(&self.key);
        rows.extend(tasks.into_iter().map(|task| ("background", task.title)));
        rows.push(("you", input.person.as_str().to_owned()));
        Ok(rows)
    }

    async fn usage_text(&self) -> Result<CommandReply, Error> {
        let Some(session) = self.current_session().await? else { return Ok(EMPTY_CONVERSATION.into()) };
        Ok(format!(
            "{} API calls; tokens: {} in ({} cached), {} out; cost: {}",
            session.api_calls,
            session.usage.prompt(),
            session.usage.cache_read,
            session.usage.output,
            session.cost_text(),
        )
        .into())
    }
}

fn describe_models(models: &ModelConfig) -> CommandReply {
    let names = models.endpoints.iter().map(|end| format!("{} ({})", end.model, end.provider));
    names.collect::<Vec<_>>().join(", then ").into()
}
