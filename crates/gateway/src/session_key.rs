//! Session keys: which messages belong to the same session. Only this module decides it.

use hermes_types::SessionKey;

use crate::message::{Chat, ChatKind};

/// Whether users share a session in groups and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionScope {
    /// Each user has their own session.
    pub group_per_user: bool,
    /// Each user has their own session.
    pub thread_per_user: bool,
}

/// The session key of a user's messages in a chat.
pub(crate) fn session_key(chat: &Chat, user: &str, scope: SessionScope) -> SessionKey {
    let mut parts = vec!["agent", "main", chat.platform.as_str(), chat.kind.as_str()];
    match chat.kind {
        ChatKind::Dm if chat.id.is_empty() => parts.push(user),
        _ => parts.push(&chat.id),
    }
    parts.extend(chat.thread.as_deref());
    if chat.kind != ChatKind::Dm && !is_shared_session(chat, scope) && !user.is_empty() {
        parts.push(user);
    }
    SessionKey::new(parts.join(":"))
}

/// Whether several users share the session of a chat.
pub fn is_shared_session(chat: &Chat, scope: SessionScope) -> bool {
    match (chat.kind, &chat.thread) {
        (ChatKind::Dm, _) => false,
        (_, Some(_)) => !scope.thread_per_user,
        (_, None) => !scope.group_per_user,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Platform;

    fn chat(kind: ChatKind, chat: &str, thread: Option<&str>) -> Chat {
        Chat {
            platform: Platform::Discord,
            kind,
            id: chat.to_owned(),
            thread: thread.map(str::to_owned),
            parent: None,
            name: None,
        }
    }

    #[test]
    fn each_chat_has_its_key() {
        let shared = SessionScope::default();
        let apart = SessionScope { group_per_user: true, thread_per_user: true };
        let usual = SessionScope { group_per_user: true, thread_per_user: false };
        let cases = [
            (chat(ChatKind::Dm, "77", None), usual, "agent:main:discord:dm:77"),
            (chat(ChatKind::Dm, "77", Some("5")), usual, "agent:main:discord:dm:77:5"),
            (chat(ChatKind::Dm, "", None), usual, "agent:main:discord:dm:u1"),
            (chat(ChatKind::Group, "100", None), usual, "agent:main:discord:group:100:u1"),
            (chat(ChatKind::Group, "100", None), shared, "agent:main:discord:group:100"),
            (chat(ChatKind::Thread, "555", Some("555")), usual, "agent:main:discord:thread:555:555"),
            (chat(ChatKind::Thread, "555", Some("555")), apart, "agent:main:discord:thread:555:555:u1"),
        ];
        for (chat, scope, expected) in cases {
            assert_eq!(session_key(&chat, "u1", scope).as_str(), expected);
        }
    }
}
