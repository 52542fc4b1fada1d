//! Questions to people, and their answers. Of all answers to a question, whoever gives them and in whatever process, one counts.

use hermes_types::{CallId, Person, SessionKey, Timestamp};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Fault};
use crate::message::bounded;
use crate::session::{self, SessionId};
use crate::store::Store;
use crate::turn::TurnId;

/// Questions that one answer has at most.
const PAGE: usize = 1_000;

/// A question to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewQuestion {
    /// Its unguessable name.
    pub id: String,
    /// The key of the session it came up in.
    pub key: SessionKey,
    /// What it belongs to, if it came up in a turn.
    pub asked_by: Option<AskedBy>,
    /// What its gate needs to ask it again.
    pub stored: Value,
    /// What people are shown.
    pub shown: Value,
    /// Who may answer.
    pub approvers: Vec<Person>,
    /// When it was asked.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
}

/// The call that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedBy {
    /// In which session.
    pub session: SessionId,
    /// In which turn.
    pub turn: TurnId,
    /// For which call.
    pub call: CallId,
}

/// A question that was kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// Its name.
    pub id: String,
    /// The key of the session it came up in.
    pub key: SessionKey,
    /// The session itself, if it came up in a turn.
    pub session: Option<SessionId>,
    /// The call that waits.
    pub call: Option<CallId>,
    /// What its gate needs to ask it again.
    pub stored: Value,
    /// What people are shown.
    pub shown: Value,
    /// Who may answer.
    pub approvers: Vec<Person>,
    /// When it was asked.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// What became of it.
    pub state: QuestionState,
    /// Whether its answer was acted upon.
    pub is_used: bool,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionState {
    /// It waits.
    Open,
    /// Somebody has answered.
    Answered(Answer),
    /// Nobody answered in time.
    Expired,
    /// It is no longer asked.
    Withdrawn,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Who gave it.
    pub by: Person,
    /// When.
    pub at: Timestamp,
    /// What it is.
    #[serde(flatten)]
    pub choice: Choice,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "lowercase")]
pub enum Choice {
    /// Yes, this time.
    Once,
    /// Yes, and the same again in this session.
    Session,
    /// Yes, and the same again from now on.
    Always,
    /// No.
    Deny {
        /// Why, for the model.
        reason: Option<String>,
    },
}

/// What became of an attempt to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answering {
    /// It counts.
    Counts,
    /// Another answer came first, or the question has ended.
    TooLate(QuestionState),
    /// This person is not asked.
    NotAsked,
    /// There is no such question.
    Unknown,
}

impl Store {
    /// Keeps a question before anybody is asked.
    pub async fn ask(&self, question: NewQuestion) -> Result<(), Error> {
        self.write(move |transaction| insert(transaction, &question)).await
    }

    /// A question by its name.
    pub async fn question(&self, id: &str) -> Result<Option<Question>, Error> {
        let id = id.to_owned();
        self.read(move |connection| get(connection, &id)).await
    }

    /// The questions whose names begin so, newest first: people do not type all of a name.
    pub async fn questions_named(&self, beginning: &str) -> Result<Vec<Question>, Error> {
        let beginning = beginning.to_owned();
        self.read(move |connection| {
            let sql = format!(
                "{SELECT} WHERE substr(q.id, 1, length(?1)) = ?1 ORDER BY q.created DESC, q.id LIMIT {PAGE}"
            );
            if beginning.is_empty() { Ok(Vec::new()) } else { all(connection, &sql, params![beginning]) }
        })
        .await
    }

    /// The questions that wait, oldest first.
    pub async fn open_questions(&self, now: Timestamp) -> Result<Vec<Question>, Error> {
        self.read(move |connection| {
            let sql = format!(
                "{SELECT} WHERE q.state = 'open' AND q.expires > ?1 ORDER BY q.created, q.id LIMIT {PAGE}"
            );
            all(connection, &sql, params![now.seconds()])
        })
        .await
    }

    /// All questions of a session, oldest first: what a turn that goes on after a restart looks for its answers in.
    pub async fn questions_of(&self, session: &SessionId) -> Result<Vec<Question>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::number(connection, &session)?;
            let sql = format!("{SELECT} WHERE q.session = ?1 ORDER BY q.created, q.id LIMIT {PAGE}");
            all(connection, &sql, params![n])
        })
        .await
    }

    /// Answers a question, if this person is asked and nobody was faster.
    pub async fn answer(&self, id: &str, answer: Answer) -> Result<Answering, Error> {
        let id = id.to_owned();
        self.write(move |transaction| {
            let Some(question) = get(transaction, &id)? else { return Ok(Answering::Unknown) };
            if !question.approvers.contains(&answer.by) {
                return Ok(Answering::NotAsked);
            }
            if question.state != QuestionState::Open {
                return Ok(Answering::TooLate(question.state));
            }
            if answer.at >= question.expires {
                decide(transaction, &id, "expired", answer.at)?;
                return Ok(Answering::TooLate(QuestionState::Expired));
            }
            let (choice, reason) = match &answer.choice {
                Choice::Once => ("once", None),
                Choice::Session => ("session", None),
                Choice::Always => ("always", None),
                Choice::Deny { reason } => ("deny", reason.as_deref()),
            };
            bounded("a reason", reason.map_or(0, str::len))?;
            // No other answer can come between the look and this: a transaction that writes is alone.
            let sql = "UPDATE questions SET state = 'answered', decided = ?2, decided_by = ?3, choice = ?4, reason = ?5
                       WHERE id = ?1 AND state = 'open'";
            let counts = transaction.prepare_cached(sql)?.execute(params![
                id,
                answer.at.seconds(),
                answer.by.as_str(),
                choice,
                reason
            ])?;
            if counts == 1 { Ok(Answering::Counts) } else { Ok(Answering::TooLate(question.state)) }
        })
        .await
    }

    /// Takes an answer to act upon it. Of all who try one gets it, also if hermes was restarted in between.
    pub async fn use_answer(&self, id: &str, at: Timestamp) -> Result<bool, Error> {
        let id = id.to_owned();
        self.write(move |transaction| {
            let sql = "UPDATE questions SET used = ?2 WHERE id = ?1 AND state = 'answered' AND used IS NULL";
            Ok(transaction.prepare_cached(sql)?.execute(params![id, at.seconds()])? == 1)
        })
        .await
    }

    /// Asks no longer. Tells what became of the question: an answer that came first stands. `None` when there is no such question.
    pub async fn withdraw(&self, id: &str, at: Timestamp) -> Result<Option<QuestionState>, Error> {
        self.settle(id, "withdrawn", at).await
    }

    /// Ends a question whose time is over. An answer that came first stands.
    pub async fn expire(&self, id: &str, at: Timestamp) -> Result<Option<QuestionState>, Error> {
        self.settle(id, "expired", at).await
    }

    async fn settle(
        &self,
        id: &str,
        state: &'static str,
        at: Timestamp,
    ) -> Result<Option<QuestionState>, Error> {
        let id = id.to_owned();
        self.write(move |transaction| {
            decide(transaction, &id, state, at)?;
            Ok(get(transaction, &id)?.map(|question| question.state))
        })
        .await
    }

    /// Ends every question whose time is over, and tells how many.
    pub async fn expire_all(&self, now: Timestamp) -> Result<usize, Error> {
        self.write(move |transaction| {
            let sql =
                "UPDATE questions SET state = 'expired', decided = ?1 WHERE state = 'open' AND expires <= ?1";
            Ok(transaction.prepare_cached(sql)?.execute([now.seconds()])?)
        })
        .await
    }

    /// Waits until a question is no longer open, whoever ends it and in whatever process. `None` when there is no such question.
    /// Time does not end it by itself: whoever waits knows the hour, and calls [`Store::expire`].
    pub async fn decided(&self, id: &str) -> Result<Option<QuestionState>, Error> {
        let mut changes = self.changes().listen();
        loop {
            changes.mark_unchanged();
            match self.question(id).await?.map(|question| question.state) {
                Some(QuestionState::Open) => {}
                decided => return Ok(decided),
            }
            changes.changed().await.map_err(|_closed| Error::Closed)?;
        }
    }
}

const SELECT: &str =
    "SELECT q.id, q.key, s.id, q.call, q.stored, q.shown, q.approvers, q.created, q.expires, q.state,
    q.decided, q.decided_by, q.choice, q.reason, q.used FROM questions q LEFT JOIN sessions s ON s.n = q.session";

fn insert(connection: &Connection, question: &NewQuestion) -> Result<(), Fault> {
    let session = match &question.asked_by {
        Some(asked) => Some(session::number(connection, &asked.session)?),
        None => None,
    };
    let (stored, shown) = (question.stored.to_string(), question.shown.to_string());
    let approvers: Value = question.approvers.iter().map(Person::as_str).collect();
    bounded("a question", stored.len() + shown.len())?;
    let sql =
        "INSERT INTO questions (id, session, key, turn, call, stored, shown, approvers, created, expires)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let inserted = connection.prepare_cached(sql)?.execute(params![
        question.id,
        session,
        question.key.as_str(),
        question.asked_by.as_ref().map(|asked| asked.turn.number()),
        question.asked_by.as_ref().map(|asked| asked.call.as_str()),
        stored,
        shown,
        approvers.to_string(),
        question.created.seconds(),
        question.expires.seconds(),
    ]);
    match inserted {
        Err(error) if Fault::is_forbidden_by_schema(&error) => {
            Err(Error::SameQuestion(question.id.clone()).into())
        }
        inserted => {
            inserted?;
            Ok(())
        }
    }
}

fn decide(connection: &Connection, id: &str, state: &str, at: Timestamp) -> Result<(), Fault> {
    let sql = "UPDATE questions SET state = ?2, decided = ?3 WHERE id = ?1 AND state = 'open'";
    connection.prepare_cached(sql)?.execute(params![id, state, at.seconds()])?;
    Ok(())
}

fn get(connection: &Connection, id: &str) -> Result<Option<Question>, Fault> {
    let sql = format!("{SELECT} WHERE q.id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(read).transpose()
}

fn all(connection: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<Vec<Question>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Result<Question, Fault> {
    let id: String = row.get(0)?;
    let wrong = || Fault::Damaged(format!("question {id} has no form that is known"));
    let json = |at: usize| -> Result<Value, Fault> {
        serde_json::from_str(&row.get::<_, String>(at)?).map_err(|_error| wrong())
    };
    let approvers: Vec<Person> = serde_json::from_value(json(6)?).map_err(|_error| wrong())?;
    let state = match row.get::<_, String>(9)?.as_str() {
        "open" => QuestionState::Open,
        "expired" => QuestionState::Expired,
        "withdrawn" => QuestionState::Withdrawn,
        "answered" => QuestionState::Answered(Answer {
            by: Person::new(row.get::<_, String>(11)?),
            at: Timestamp::from_seconds(row.get(10)?),
            choice: match row.get::<_, String>(12)?.as_str() {
                "once" => Choice::Once,
                "session" => Choice::Session,
                "always" => Choice::Always,
                "deny" => Choice::Deny { reason: row.get(13)? },
                _ => return Err(wrong()),
            },
        }),
        _ => return Err(wrong()),
    };
    Ok(Question {
        key: SessionKey::new(row.get::<_, String>(1)?),
        session: row.get::<_, Option<String>>(2)?.map(SessionId::new),
        call: row.get::<_, Option<String>>(3)?.map(CallId::new),
        stored: json(4)?,
        shown: json(5)?,
        approvers,
        created: Timestamp::from_seconds(row.get(7)?),
        expires: Timestamp::from_seconds(row.get(8)?),
        state,
        is_used: row.get::<_, Option<u64>>(14)?.is_some(),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_the_words_of_the_command_line() {
        let deny = Choice::Deny { reason: Some("no".to_owned()) };
        let answer = Answer { by: Person::new("cli"), at: Timestamp::from_seconds(1), choice: deny };
        let json = serde_json::json!({"by": "cli", "at": 1, "choice": "deny", "reason": "no"});
        assert_eq!(serde_json::to_value(answer).unwrap(), json);
    }
}
