//! `todo`: the task list of the model.

use hermes_types::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallContext, CallResult, Tool, ToolArguments, ToolResult};
use crate::{ToolContext, lock};

const MAX_ITEMS: usize = 256;
const MAX_ITEM_CHARS: usize = 4_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TodoList {
    items: Vec<TodoItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct TodoItem {
    /// A short name that stays the same.
    id: String,
    /// The task.
    content: String,
    status: TodoStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

/// Keep a list of steps for work that has three or more of them. Without `todos` it gives the list.
/// With `todos` it replaces the list, or with `merge` changes the items with the same ids and adds
/// the others. Keep one item in progress at a time, and mark each one completed as soon as it is.
#[derive(Deserialize, JsonSchema)]
pub(super) struct TodoArguments {
    /// The items. Leave it out to read the list.
    #[schemars(with = "Option<Vec<TodoItem>>")]
    todos: Option<Vec<TodoChange>>,
    /// Change items by id instead of replacing the list.
    #[serde(default)]
    merge: bool,
}

/// A whole item, or with `merge` the changed fields of one.
#[derive(Deserialize)]
struct TodoChange {
    id: String,
    content: Option<String>,
    status: Option<TodoStatus>,
}

impl ToolArguments for TodoArguments {
    async fn run(self, context: &ToolContext, _call: CallContext<'_>) -> CallResult {
        let mut todo = lock(&context.todo);
        if let Some(changes) = self.todos {
            *todo = todo.with_changes(changes, self.merge)?;
        }
        Ok(ToolResult::success(todo.to_json()))
    }
}

impl ToolContext {
    /// Restores the list from the last `todo` result of a stored conversation.
    pub(crate) fn restore_todo(&self, history: &[Message]) {
        let last = history.iter().rev().find_map(|message| match message {
            Message::Tool { name, text, .. } if name == Tool::Todo.name() => TodoList::from_result(text),
            _ => None,
        });
        *lock(&self.todo) = last.unwrap_or_default();
    }
}

impl TodoList {
    fn from_result(text: &str) -> Option<Self> {
        let result: Value = serde_json::from_str(text).ok()?;
        let items = serde_json::from_value(result.get("todos")?.clone()).ok()?;
        Some(Self { items })
    }

    fn with_changes(&self, changes: Vec<TodoChange>, merge: bool) -> Result<Self, ToolResult> {
        let mut items = if merge { self.items.clone() } else { Vec::new() };
        for TodoChange { id, content, status } in changes {
            if content.as_ref().is_some_and(|content| content.chars().count() > MAX_ITEM_CHARS) {
                return Err(ToolResult::error(format!("item {id}: longer than {MAX_ITEM_CHARS} characters")));
            }
            match (items.iter_mut().find(|item| item.id == id), content) {
                (Some(item), content) => {
                    item.status = status.unwrap_or(item.status);
                    item.content = content.unwrap_or_else(|| item.content.clone());
                }
                (None, Some(content)) => {
                    items.push(TodoItem { id, content, status: status.unwrap_or(TodoStatus::Pending) });
                }
                (None, None) => return Err(ToolResult::error(format!("item {id}: `content` is missing"))),
            }
        }
        if items.len() > MAX_ITEMS {
            return Err(ToolResult::error(format!("more than {MAX_ITEMS} items")));
        }
        Ok(Self { items })
    }

    fn to_json(&self) -> Value {
        let count = |status| self.items.iter().filter(|item| item.status == status).count();
        json!({
            "todos": self.items,
            "summary": {
                "total": self.items.len(),
                "pending": count(TodoStatus::Pending),
                "in_progress": count(TodoStatus::InProgress),
                "completed": count(TodoStatus::Completed),
                "cancelled": count(TodoStatus::Cancelled),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(list: &TodoList, changes: Value, merge: bool) -> Result<TodoList, ToolResult> {
        list.with_changes(serde_json::from_value(changes).unwrap(), merge)
    }

    #[test]
    fn a_list_is_replaced_or_changed_by_id_and_returned_whole() {
        let first = change(
            &TodoList::default(),
            json!([{"id": "a", "content": "A", "status": "pending"}, {"id": "b", "content": "B"}]),
            false,
        );
        let merged = change(
            &first.clone().unwrap(),
            json!([{"id": "a", "status": "completed"}, {"id": "c", "content": "C", "status": "in_progress"}]),
            true,
        )
        .unwrap();
        let json = merged.to_json();
        assert_eq!(
            json["summary"],
            json!({"total": 3, "pending": 1, "in_progress": 1, "completed": 1, "cancelled": 0})
        );
        assert_eq!(json["todos"][0], json!({"id": "a", "content": "A", "status": "completed"}));
        assert_eq!(TodoList::from_result(&json.to_string()), Some(merged.clone()));
        assert_eq!(change(&merged, json!([]), false).unwrap(), TodoList::default());
        let error = change(&merged, json!([{"id": "new"}]), true).unwrap_err();
        assert_eq!(error, ToolResult::error("item new: `content` is missing"));
    }

    #[test]
    fn the_size_of_a_list_is_limited() {
        let many: Vec<_> = (0..=MAX_ITEMS).map(|n| json!({"id": n.to_string(), "content": "x"})).collect();
        assert!(change(&TodoList::default(), json!(many), false).is_err());
        let long = json!([{"id": "a", "content": "x".repeat(MAX_ITEM_CHARS + 1)}]);
        assert!(change(&TodoList::default(), long, false).is_err());
    }
}
