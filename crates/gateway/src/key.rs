//! Which session something belongs to. This is the only place that decides it.

use hermes_types::SessionKey;

use crate::letter::{Room, RoomKind};

/// Who shares a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Everybody has a session of their own in a group.
    pub group_per_user: bool,
    /// Everybody has a session of their own in a thread.
    pub thread_per_user: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { group_per_user: true, thread_per_user: false }
    }
}

/// The session of what somebody says in a room.
pub fn session_key(room: &Room, user: &str, sharing: Sharing) -> SessionKey {
    let mut parts = vec!["agent", "main", room.platform.word(), room.kind.word()];
    match room.kind {
        RoomKind::Dm if room.chat.is_empty() => parts.push(user),
        _ => parts.push(&room.chat),
    }
    parts.extend(room.thread.as_deref());
    let is_own = match (room.kind, &room.thread) {
        (RoomKind::Dm, _) => false,
        (_, Some(_)) => sharing.thread_per_user,
        (_, None) => sharing.group_per_user,
    };
    if is_own && !user.is_empty() {
        parts.push(user);
    }
    SessionKey::new(parts.join(":"))
}

/// Whether several people may speak in the session of a room.
pub fn is_shared(room: &Room, sharing: Sharing) -> bool {
    match (room.kind, &room.thread) {
        (RoomKind::Dm, _) => false,
        (_, Some(_)) => !sharing.thread_per_user,
        (_, None) => !sharing.group_per_user,
    }
}

/// What stands between the key of a chat and what was asked for beside its conversation.
const TASK: &str = ":task:";

/// The session of what a message asked for beside the conversation of a chat.
pub fn task_key(chat: &SessionKey, message: &str) -> SessionKey {
    SessionKey::new(format!("{}{TASK}{message}", chat.as_str()))
}

/// The chat beside whose conversation a session works, if it is such a one.
pub fn chat_of(key: &SessionKey) -> Option<SessionKey> {
    let (chat, _message) = key.as_str().rsplit_once(TASK)?;
    Some(SessionKey::new(chat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::Platform;

    fn room(kind: RoomKind, chat: &str, thread: Option<&str>) -> Room {
        Room {
            platform: Platform::Discord,
            kind,
            chat: chat.to_owned(),
            thread: thread.map(str::to_owned),
            parent: None,
            name: None,
        }
    }

    #[test]
    fn what_is_done_beside_a_conversation_has_a_key_of_its_own() {
        let chat = session_key(&room(RoomKind::Dm, "77", None), "u1", Sharing::default());
        let task = task_key(&chat, "900");
        assert_eq!(task.as_str(), "agent:main:discord:dm:77:task:900");
        assert_eq!((chat_of(&task), chat_of(&chat)), (Some(chat.clone()), None));
    }

    #[test]
    fn each_room_has_its_key() {
        let shared = Sharing { group_per_user: false, thread_per_user: false };
        let apart = Sharing { group_per_user: true, thread_per_user: true };
        let usual = Sharing::default();
        let cases = [
            (room(RoomKind::Dm, "77", None), usual, "agent:main:discord:dm:77"),
            (room(RoomKind::Dm, "77", Some("5")), usual, "agent:main:discord:dm:77:5"),
            (room(RoomKind::Dm, "", None), usual, "agent:main:discord:dm:u1"),
            (room(RoomKind::Group, "100", None), usual, "agent:main:discord:group:100:u1"),
            (room(RoomKind::Group, "100", None), shared, "agent:main:discord:group:100"),
            (room(RoomKind::Thread, "555", Some("555")), usual, "agent:main:discord:thread:555:555"),
            (room(RoomKind::Thread, "555", Some("555")), apart, "agent:main:discord:thread:555:555:u1"),
        ];
        for (room, sharing, expected) in cases {
            assert_eq!(session_key(&room, "u1", sharing).as_str(), expected);
        }
    }
}
