//! Questions and their answers. Only the first answer to a question counts, whichever process
//! records it.

use std::path::Path;

use hermes_types::{Answer, CallId, Person, SessionKey, Timestamp};
use rusqlite::{Connection, Params, Row, params};
use serde::Serialize;
use serde_json::{Value, json};

use crate::approval_key::{ApprovalKey, CodedRow, read_coded, valid_rows};
use crate::error::{Error, QueryError, QueryResult, Result};
use crate::message::check_size;
use crate::session::{self, SessionId};
use crate::sql;
use crate::store::Store;
use crate::turn::TurnId;

const MAX_ROWS: usize = 1_000;

/// A question to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewQuestion {
    /// An unguessable id.
    pub id: String,
    pub key: SessionKey,
    /// The tool call that waits for the answer, if there is one.
    pub waiting_call: Option<WaitingCall>,
    /// The data that the gate needs to restore the question.
    pub stored: Value,
    /// The data that is shown to approvers.
    pub shown: Value,
    pub approvers: Vec<Person>,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// A tool call that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingCall {
    pub session: SessionId,
    pub turn: TurnId,
    pub call: CallId,
}

/// A stored question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionRow {
    pub id: String,
    pub key: SessionKey,
    /// The session, if the question belongs to a turn.
    pub session: Option<SessionId>,
    pub call: Option<CallId>,
    /// The data that the gate needs to restore the question.
    pub stored: Value,
    /// The data that is shown to approvers.
    pub shown: Value,
    pub approvers: Vec<Person>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub state: QuestionState,
    /// Whether the answer was acted on.
    pub is_used: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionState {
    Open,
    Answered(Answer),
    Expired,
    Withdrawn,
}

/// The result of an attempt to answer a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerResult {
    Accepted,
    /// Another answer came first, or the question is closed.
    TooLate(QuestionState),
    NotApprover,
    NoQuestion,
}

impl Store {
    /// Stores a question. Call this before asking anyone.
    pub async fn save_question(&self, question: NewQuestion) -> Result<()> {
        let database = self.path().to_owned();
        self.write(move |transaction| {
            let call = question.waiting_call.as_ref();
            let session = call.map(|call| session::row_number(transaction, &call.session)).transpose()?;
            let (stored, shown) = (question.stored.to_string(), question.shown.to_string());
            let approvers: Value = question.approvers.iter().map(Person::as_str).collect();
            check_size("a question", stored.len() + shown.len())?;
            let sql =
                "INSERT INTO questions (id, session, key, turn, call, stored, shown, approvers, created, expires)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
            let values = params![
                question.id,
                session,
                question.key.as_str(),
                call.map(|call| call.turn.number()),
                call.map(|call| call.call.as_str()),
                stored,
                shown,
                approvers.to_string(),
                question.created.seconds(),
                question.expires.seconds(),
            ];
            if sql::execute_counted(transaction, sql, values)? == 0 {
                return Err(Error::DuplicateQuestion(question.id).into());
            }
            write_code(transaction, &database, &question.id)
        })
        .await
    }

    pub async fn question(&self, id: &str) -> Result<Option<QuestionRow>> {
        let (id, database) = (id.to_owned(), self.path().to_owned());
        self.read(move |connection| get(connection, &database, &id)).await
    }

    /// The questions whose ids start with `prefix`, newest first.
    pub async fn questions_by_prefix(&self, prefix: &str) -> Result<Vec<QuestionRow>> {
        if prefix.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "{SELECT} WHERE substr(q.id, 1, length(?1)) = ?1 ORDER BY q.created DESC, q.id LIMIT {MAX_ROWS}"
        );
        self.valid_questions(sql, (prefix.to_owned(),)).await
    }

    /// The open questions, oldest first.
    pub async fn open_questions(&self, now: Timestamp) -> Result<Vec<QuestionRow>> {
        let sql = format!(
            "{SELECT} WHERE q.state = 'open' AND q.expires > ?1 ORDER BY q.created, q.id LIMIT {MAX_ROWS}"
        );
        self.valid_questions(sql, (now.seconds(),)).await
    }

    /// All questions of a session, oldest first. A resumed turn finds its answers here.
    pub async fn session_questions(&self, session: &SessionId) -> Result<Vec<QuestionRow>> {
        let sql = format!("{SELECT} WHERE q.session = ?1 ORDER BY q.created, q.id LIMIT {MAX_ROWS}");
        let database = self.path().to_owned();
        self.read_session(session, move |connection, n| {
            valid_rows(&database, sql::rows(connection, &sql, [n], read_row)?)
        })
        .await
    }

    async fn valid_questions(
        &self,
        sql: String,
        values: impl Params + Send + 'static,
    ) -> Result<Vec<QuestionRow>> {
        let database = self.path().to_owned();
        self.read(move |connection| valid_rows(&database, sql::rows(connection, &sql, values, read_row)?))
            .await
    }

    /// Records an answer, if the person is an approver and the question is open.
    pub async fn answer_question(&self, id: &str, answer: Answer) -> Result<AnswerResult> {
        let (id, database) = (id.to_owned(), self.path().to_owned());
        self.write(move |transaction| {
            let Some(question) = get(transaction, &database, &id)? else { return Ok(AnswerResult::NoQuestion) };
            if !question.approvers.contains(&answer.by) {
                return Ok(AnswerResult::NotApprover);
            }
            if question.state != QuestionState::Open {
                return Ok(AnswerResult::TooLate(question.state));
            }
            if answer.at >= question.expires {
                set_state(transaction, &database, &id, "expired", answer.at)?;
                return Ok(AnswerResult::TooLate(QuestionState::Expired));
            }
            let choice = json!(answer.choice);
            let (choice, reason) = (choice["choice"].as_str(), choice["reason"].as_str());
            check_size("a reason", reason.map_or(0, str::len))?;
            // Write transactions are exclusive, so no other answer can come in between.
            let sql = "UPDATE questions SET state = 'answered', decided = ?2, decided_by = ?3, choice = ?4, reason = ?5
                       WHERE id = ?1 AND state = 'open'";
            let (at, by) = (answer.at.seconds(), answer.by.as_str());
            sql::execute(transaction, sql, params![id, at, by, choice, reason])?;
            write_code(transaction, &database, &id)?;
            Ok(AnswerResult::Accepted)
        })
        .await
    }

    /// Marks an answer as used. Only one caller succeeds, even across restarts.
    pub async fn consume_answer(&self, id: &str, at: Timestamp) -> Result<bool> {
        let sql = "UPDATE questions SET used = ?2 WHERE id = ?1 AND state = 'answered' AND used IS NULL";
        let (id, database) = (id.to_owned(), self.path().to_owned());
        self.write(move |transaction| {
            let question = get(transaction, &database, &id)?;
            let is_answered = |question: &QuestionRow| matches!(question.state, QuestionState::Answered(_));
            if !question.is_some_and(|question| is_answered(&question) && !question.is_used) {
                return Ok(false);
            }
            ApprovalKey::end(&database, std::slice::from_ref(&id))?;
            Ok(sql::execute_counted(transaction, sql, (id, at.seconds()))? == 1)
        })
        .await
    }

    /// Withdraws a question. Returns its final state; an earlier answer stands. `None` if it does
    /// not exist.
    pub async fn withdraw_question(&self, id: &str, at: Timestamp) -> Result<Option<QuestionState>> {
        self.close_question(id, "withdrawn", at).await
    }

    /// Expires a question. An earlier answer stands.
    pub async fn expire_question(&self, id: &str, at: Timestamp) -> Result<Option<QuestionState>> {
        self.close_question(id, "expired", at).await
    }

    async fn close_question(
        &self,
        id: &str,
        state: &'static str,
        at: Timestamp,
    ) -> Result<Option<QuestionState>> {
        let (id, database) = (id.to_owned(), self.path().to_owned());
        self.write(move |transaction| {
            if get(transaction, &database, &id)?.is_none() {
                return Ok(None);
            }
            set_state(transaction, &database, &id, state, at)?;
            Ok(get(transaction, &database, &id)?.map(|question| question.state))
        })
        .await
    }

    /// Waits until a question is closed by any process. `None` if it does not exist. The caller
    /// must call [`Store::expire_question`] when its time is over.
    pub async fn wait_for_decision(&self, id: &str) -> Result<Option<QuestionState>> {
        let mut changes = self.notifier().subscribe();
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
    q.decided, q.decided_by, q.choice, q.reason, q.code, q.used FROM questions q LEFT JOIN sessions s ON s.n = q.session";

fn set_state(connection: &Connection, database: &Path, id: &str, state: &str, at: Timestamp) -> QueryResult {
    let sql = "UPDATE questions SET state = ?2, decided = ?3 WHERE id = ?1 AND state = 'open'";
    sql::execute(connection, sql, params![id, state, at.seconds()])?;
    write_code(connection, database, id)
}

/// Writes the code of a row that this transaction has written or checked.
fn write_code(connection: &Connection, database: &Path, id: &str) -> QueryResult {
    let key = ApprovalKey::load_or_create(database)?;
    let stored = sql::only_row(connection, &format!("{SELECT} WHERE q.id = ?1"), [id], read_row)?;
    let sql = "UPDATE questions SET code = ?2 WHERE id = ?1";
    sql::execute(connection, sql, params![id, key.code(&stored.fields)])
}

fn get(connection: &Connection, database: &Path, id: &str) -> QueryResult<Option<QuestionRow>> {
    let found = sql::rows(connection, &format!("{SELECT} WHERE q.id = ?1"), [id], read_row)?;
    Ok(valid_rows(database, found)?.pop())
}

/// The questions that are pending, or whose answer was not used, with or without the right code.
pub(crate) fn effective(connection: &Connection, now: Timestamp) -> QueryResult<Vec<CodedRow<QuestionRow>>> {
    let sql = format!(
        "{SELECT} WHERE (q.state = 'open' OR q.state = 'answered' AND q.used IS NULL) AND q.expires > ?1 LIMIT {MAX_ROWS}"
    );
    sql::rows(connection, &sql, [now.seconds()], read_row)
}

fn read_row(row: &Row<'_>) -> QueryResult<CodedRow<QuestionRow>> {
    let is_ended = row.get::<_, Option<u64>>(15)?.is_some();
    Ok(CodedRow { is_ended, ..read_coded(row, 14, read_question)? })
}

fn read_question(row: &Row<'_>) -> QueryResult<QuestionRow> {
    let id: String = row.get(0)?;
    let wrong = || QueryError::Corrupt(format!("question {id} has an unknown format"));
    let json = |at: usize| -> QueryResult<Value> {
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
            choice: serde_json::from_value(json!({
                "choice": row.get::<_, String>(12)?,
                "reason": row.get::<_, Option<String>>(13)?,
            }))
            .map_err(|_error| wrong())?,
        }),
        _ => return Err(wrong()),
    };
    Ok(QuestionRow {
        key: SessionKey::new(row.get::<_, String>(1)?),
        session: row.get::<_, Option<String>>(2)?.map(SessionId::new),
        call: row.get::<_, Option<String>>(3)?.map(CallId::new),
        stored: json(4)?,
        shown: json(5)?,
        approvers,
        created: Timestamp::from_seconds(row.get(7)?),
        expires: Timestamp::from_seconds(row.get(8)?),
        state,
        is_used: row.get::<_, Option<u64>>(15)?.is_some(),
        id,
    })
}
