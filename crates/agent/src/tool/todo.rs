//! `todo`: what is to be done, in the model's own words.

use std::collections::BTreeMap;

use hermes_types::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Done, Tool, arguments};
use crate::Hands;
use crate::hands::lock;

const MOST_ITEMS: usize = 256;
const LONGEST_ITEM: usize = 4_000;

/// The list of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Todo {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Item {
    id: String,
    content: String,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Deserialize)]
struct Arguments {
    todos: Option<Vec<Change>>,
    #[serde(default)]
    merge: bool,
}

/// An item, or with `merge` what is to change about one.
#[derive(Deserialize)]
struct Change {
    id: String,
    content: Option<String>,
    status: Option<Status>,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Keep a list of steps for work that has three or more of them. Without `todos` it gives the list. \
        With `todos` it replaces the list, or with `merge` changes the items with the same ids and adds the others. \
        Keep one item in progress at a time, and mark each one completed as soon as it is.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": "The items. Leave it out to read the list.",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string", "description": "A short name that stays the same."},
                        "content": {"type": "string", "description": "What is to be done."},
                        "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                    },
                    "required": ["id", "content", "status"],
                },
            },
            "merge": {
                "type": "boolean",
                "description": "Change items by id instead of replacing the list.",
                "default": false,
            },
        },
    });
    (description, parameters)
}

pub(super) fn call(hands: &Hands, given: Map<String, Value>) -> Done {
    let given: Arguments = match arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    let mut todo = lock(&hands.todo);
    if let Some(changes) = given.todos {
        match todo.changed(changes, given.merge) {
            Ok(changed) => *todo = changed,
            Err(why) => return Done::error(why),
        }
    }
    Done::worked(todo.told())
}

impl Hands {
    /// Takes up the list that a conversation last showed, when a session goes on in another process.
    pub fn recall(&self, history: &[Message]) {
        let told = history.iter().rev().find_map(|message| match message {
            Message::Tool { name, text, .. } if name == Tool::Todo.name() => Todo::from_answer(text),
            _ => None,
        });
        *lock(&self.todo) = told.unwrap_or_default();
    }
}

impl Todo {
    fn from_answer(text: &str) -> Option<Self> {
        let answer: Value = serde_json::from_str(text).ok()?;
        let items = serde_json::from_value(answer.get("todos")?.clone()).ok()?;
        Some(Self { items })
    }

    fn changed(&self, changes: Vec<Change>, merge: bool) -> Result<Self, String> {
        let mut items = if merge { self.items.clone() } else { Vec::new() };
        for Change { id, content, status } in changes {
            if content.as_ref().is_some_and(|content| content.chars().count() > LONGEST_ITEM) {
                return Err(format!("item {id}: longer than {LONGEST_ITEM} characters"));
            }
            match (items.iter_mut().find(|item| item.id == id), content) {
                (Some(item), content) => {
                    item.status = status.unwrap_or(item.status);
                    item.content = content.unwrap_or_else(|| item.content.clone());
                }
                (None, Some(content)) => {
                    items.push(Item { id, content, status: status.unwrap_or(Status::Pending) });
                }
                (None, None) => return Err(format!("item {id}: `content` is missing")),
            }
        }
        if items.len() > MOST_ITEMS {
            return Err(format!("more than {MOST_ITEMS} items"));
        }
        Ok(Self { items })
    }

    fn told(&self) -> Value {
        let mut counts = BTreeMap::new();
        for item in &self.items {
            *counts.entry(item.status).or_insert(0_usize) += 1;
        }
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        json!({
            "todos": self.items,
            "summary": {
                "total": self.items.len(),
                "pending": count(Status::Pending),
                "in_progress": count(Status::InProgress),
                "completed": count(Status::Completed),
                "cancelled": count(Status::Cancelled),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(list: &Todo, changes: Value, merge: bool) -> Result<Todo, String> {
        list.changed(serde_json::from_value(changes).unwrap(), merge)
    }

    #[test]
    fn a_list_is_replaced_or_changed_by_id_and_told_whole() {
        let first = change(
            &Todo::default(),
            json!([{"id": "a", "content": "A", "status": "pending"}, {"id": "b", "content": "B"}]),
            false,
        );
        let merged = change(
            &first.clone().unwrap(),
            json!([{"id": "a", "status": "completed"}, {"id": "c", "content": "C", "status": "in_progress"}]),
            true,
        )
        .unwrap();
        let told = merged.told();
        assert_eq!(
            told["summary"],
            json!({"total": 3, "pending": 1, "in_progress": 1, "completed": 1, "cancelled": 0})
        );
        assert_eq!(told["todos"][0], json!({"id": "a", "content": "A", "status": "completed"}));
        assert_eq!(Todo::from_answer(&told.to_string()), Some(merged.clone()));
        assert_eq!(change(&merged, json!([]), false), Ok(Todo::default()));
        assert!(change(&merged, json!([{"id": "new"}]), true).unwrap_err().contains("`content` is missing"));
    }

    #[test]
    fn a_list_has_an_end() {
        let many: Vec<_> = (0..=MOST_ITEMS).map(|n| json!({"id": n.to_string(), "content": "x"})).collect();
        assert!(change(&Todo::default(), json!(many), false).is_err());
        let long = json!([{"id": "a", "content": "x".repeat(LONGEST_ITEM + 1)}]);
        assert!(change(&Todo::default(), long, false).is_err());
    }
}
