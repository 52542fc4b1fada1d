//! Access decisions.

use hermes_session::SessionMessage;
use hermes_store::{ApprovalResult, FILE_NAME};

use super::*;

/// A store in a temporary directory.
async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join(FILE_NAME)).await.unwrap();
    (folder, store)
}

fn chat(kind: ChatKind) -> Chat {
    Chat { platform: Platform::Discord, kind, id: "1".to_owned(), thread: None, parent: None, name: None }
}

fn dm() -> Chat {
    chat(ChatKind::Dm)
}

fn sender(id: &str) -> Sender {
    Sender { id: id.to_owned(), name: "ada".to_owned(), is_bot: false, roles: vec!["r1".to_owned()] }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + seconds)
}

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

fn settings(rules: PlatformAccess) -> AccessSettings {
    AccessSettings { platforms: HashMap::from([(Platform::Discord, rules)]), ..AccessSettings::default() }
}

fn everywhere(entries: &[&str]) -> AccessSettings {
    AccessSettings { allowed_users: list(entries), ..AccessSettings::default() }
}

fn users(entries: &[&str]) -> AccessSettings {
    settings(PlatformAccess { allowed_users: list(entries), ..PlatformAccess::default() })
}

/// Approves a user, as the owner does.
async fn pair(store: &Store, user: &str) {
    let asked = store.request_code("discord", user, "ada", at(0)).await.unwrap();
    let CodeResponse::Code { code, .. } = &asked else { unreachable!("{asked:?}") };
    assert!(matches!(store.approve_code("discord", code, at(1)).await.unwrap(), ApprovalResult::Approved(_)));
}

const ORDINARY: AccessDecision = AccessDecision::Granted(UserRole::User);
const ADMIN: AccessDecision = AccessDecision::Granted(UserRole::Admin);
const PAIR: AccessDecision = AccessDecision::Denied(StrangerPolicy::Pair);
const IGNORE: AccessDecision = AccessDecision::Denied(StrangerPolicy::Ignore);

#[tokio::test]
async fn the_first_matching_row_decides() {
    let (_folder, store) = store().await;
    let open = settings(PlatformAccess { allow_all_users: true, ..PlatformAccess::default() });
    let roles = |entries: &[&str]| {
        settings(PlatformAccess { allowed_roles: list(entries), ..PlatformAccess::default() })
    };
    let wide = |settings: AccessSettings| AccessSettings { allow_all_users: true, ..settings };
    let cases = [
        ("nothing is set", AccessSettings::default(), "7", PAIR),
        ("no id", open.clone(), "", IGNORE),
        ("a blank id", open.clone(), " ", IGNORE),
        ("open", open, "7", ORDINARY),
        ("a role", roles(&["r0", "r1"]), "7", ORDINARY),
        ("another role", roles(&["r2"]), "7", IGNORE),
        ("listed with another", users(&["7", "8"]), "7", ORDINARY),
        ("the only one listed", users(&["7"]), "7", ADMIN),
        ("listed by type", users(&["discord:7"]), "7", ADMIN),
        ("not listed", users(&["8"]), "7", IGNORE),
        ("the beginning of an id", users(&["77"]), "7", IGNORE),
        ("a name", users(&["ada"]), "7", IGNORE),
        ("what stands before an @", users(&["7"]), "7@evil.example", IGNORE),
        ("a part of an entry", users(&["7@home.example"]), "7", IGNORE),
        ("everybody by a star", users(&["*"]), "7", ORDINARY),
        ("listed everywhere", everywhere(&["7", "9"]), "7", ORDINARY),
        ("listed everywhere by type", everywhere(&["discord:7", "9"]), "7", ORDINARY),
        ("an id that looks typed", everywhere(&["discord:7"]), "discord:7", IGNORE),
        ("an id with a colon", everywhere(&["@ada:home.example", "9"]), "@ada:home.example", ORDINARY),
        ("a platform that is none", everywhere(&["telegraph:7"]), "7", IGNORE),
        ("all, without a list", wide(AccessSettings::default()), "7", ORDINARY),
        ("all, with a list", wide(users(&["8"])), "7", IGNORE),
        ("all, with a list everywhere", wide(everywhere(&["8"])), "7", IGNORE),
        ("all, with roles", wide(roles(&["r2"])), "7", IGNORE),
    ];
    for (what, settings, id, expected) in cases {
        let access = AccessControl::new(settings, store.clone());
        assert_eq!(access.check(&dm(), &sender(id)).await.unwrap(), expected, "{what}");
    }
}

#[tokio::test]
async fn bots_get_access_only_as_bots() {
    let (_folder, store) = store().await;
    let bot = Sender { is_bot: true, ..sender("7") };
    for (bots, expected) in
        [(BotPolicy::None, IGNORE), (BotPolicy::Mentions, ORDINARY), (BotPolicy::All, ORDINARY)]
    {
        let rules = PlatformAccess {
            bots,
            allow_all_users: true,
            allowed_users: list(&["7"]),
            allowed_roles: list(&["r1"]),
            admins: list(&["7"]),
            strangers: Some(StrangerPolicy::Pair),
            ..PlatformAccess::default()
        };
        let access = AccessControl::new(settings(rules), store.clone());
        assert_eq!(access.check(&dm(), &bot).await.unwrap(), expected, "{bots:?}");
        assert_eq!(access.approvers(Platform::Discord, &bot), []);
    }
}

#[tokio::test]
async fn the_stranger_policy_applies_in_direct_messages_only() {
    let (_folder, store) = store().await;
    let set = |platform, all, allowed: &[&str]| AccessSettings {
        strangers: all,
        ..settings(PlatformAccess {
            strangers: platform,
            allowed_users: list(allowed),
            ..PlatformAccess::default()
        })
    };
    let (pair, ignore) = (Some(StrangerPolicy::Pair), Some(StrangerPolicy::Ignore));
    let cases = [
        (set(None, None, &[]), PAIR),
        (set(None, None, &["8"]), IGNORE),
        (set(None, pair, &["8"]), PAIR),
        (set(None, ignore, &[]), IGNORE),
        (set(pair, ignore, &["8"]), PAIR),
        (set(ignore, pair, &[]), IGNORE),
    ];
    for (settings, expected) in cases {
        let access = AccessControl::new(settings.clone(), store.clone());
        assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), expected, "{settings:?}");
        for kind in [ChatKind::Group, ChatKind::Thread] {
            assert_eq!(access.check(&chat(kind), &sender("7")).await.unwrap(), IGNORE, "{settings:?}");
        }
    }
}

#[tokio::test]
async fn a_paired_user_has_access_until_revoked() {
    let (_folder, store) = store().await;
    let access = AccessControl::new(users(&["8"]), store.clone());
    pair(&store, "7").await;
    assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), ORDINARY);
    assert_eq!(access.check(&chat(ChatKind::Group), &sender("7")).await.unwrap(), ORDINARY);
    assert_eq!(access.check(&dm(), &sender("8")).await.unwrap(), ORDINARY, "not the only one any more");
    store.revoke_pairing("discord", "7").await.unwrap();
    assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), IGNORE);
    assert_eq!(access.check(&dm(), &sender("8")).await.unwrap(), ADMIN);
}

#[tokio::test]
async fn the_only_paired_user_is_an_admin() {
    let (_folder, store) = store().await;
    let access = AccessControl::new(AccessSettings::default(), store.clone());
    pair(&store, "7").await;
    assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), ADMIN);
    pair(&store, "8").await;
    assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), ORDINARY);
}

#[tokio::test]
async fn admins_are_set_for_direct_messages_and_groups() {
    let (_folder, store) = store().await;
    let rules = PlatformAccess {
        allowed_users: list(&["7", "8"]),
        admins: list(&["7"]),
        group_admins: list(&["discord:8", "*"]),
        ..PlatformAccess::default()
    };
    let access = AccessControl::new(settings(rules), store);
    let cases = [
        (ChatKind::Dm, "7", ADMIN),
        (ChatKind::Dm, "8", ORDINARY),
        (ChatKind::Group, "7", ORDINARY),
        (ChatKind::Group, "8", ADMIN),
        (ChatKind::Thread, "8", ADMIN),
        (ChatKind::Group, "9", IGNORE),
    ];
    for (kind, id, expected) in cases {
        assert_eq!(access.check(&chat(kind), &sender(id)).await.unwrap(), expected, "{kind:?} {id}");
    }
}

#[tokio::test]
async fn being_an_admin_gives_no_access() {
    let (_folder, store) = store().await;
    let access = AccessControl::new(
        settings(PlatformAccess { admins: list(&["7"]), ..PlatformAccess::default() }),
        store,
    );
    assert_eq!(access.check(&dm(), &sender("7")).await.unwrap(), PAIR);
}

#[tokio::test]
async fn command_lists_apply() {
    let (_folder, store) = store().await;
    let read = |text: &str| {
        let message = crate::InboundMessage {
            chat: dm(),
            sender: sender("7"),
            id: "1".to_owned(),
            sent_at: at(0),
            text: text.to_owned(),
            attachments: Vec::new(),
            quote: None,
            reply_target: crate::message::ReplyTarget::SameChat,
            interaction: None,
        };
        message.command().unwrap()
    };
    let plain = AccessControl::new(AccessSettings::default(), store.clone());
    let rules = PlatformAccess {
        commands: list(&["/new", "sethome", "model"]),
        group_commands: list(&["stop"]),
        ..PlatformAccess::default()
    };
    let strict = AccessControl::new(settings(rules), store);
    let group = chat(ChatKind::Group);
    let cases = [
        (&plain, dm(), "/new", true),
        (&plain, dm(), "/sethome", false),
        (&plain, dm(), "/model x", true),
        (&plain, dm(), "/model x --global", false),
        (&plain, dm(), "/dance", true),
        (&strict, dm(), "/new", true),
        (&strict, dm(), "/reset", true),
        (&strict, dm(), "/sethome", true),
        (&strict, dm(), "/stop", false),
        (&strict, dm(), "/help", true),
        (&strict, dm(), "/model x", true),
        (&strict, dm(), "/model x --global", false),
        (&strict, group.clone(), "/stop", true),
        (&strict, group.clone(), "/new", false),
        (&strict, group.clone(), "/whoami", true),
        (&strict, group.clone(), "/restart", false),
    ];
    for (access, chat, text, may) in cases {
        let reply = access.check_command(&chat, UserRole::User, &read(text));
        assert_eq!(reply.is_ok(), may, "{text}: {reply:?}");
        assert!(access.check_command(&chat, UserRole::Admin, &read(text)).is_ok(), "{text}");
    }
    let refused = |chat: &Chat, text: &str| {
        strict.check_command(chat, UserRole::User, &read(text)).unwrap_err().to_string()
    };
    assert!(refused(&dm(), "/restart").contains("`discord.allow_admin_from`"));
    assert!(refused(&group, "/restart").contains("`discord.group_allow_admin_from`"));
    assert!(refused(&group, "/new").contains("`discord.group_user_allowed_commands`"));
    let bot = Sender { is_bot: true, ..sender("7") };
    let message = crate::InboundMessage {
        chat: dm(),
        sender: bot,
        id: "1".to_owned(),
        sent_at: at(0),
        text: "/restart".to_owned(),
        attachments: Vec::new(),
        quote: None,
        reply_target: crate::message::ReplyTarget::SameChat,
        interaction: None,
    };
    assert_eq!(message.command(), None, "a program gives no commands");
}

#[tokio::test]
async fn the_sender_and_the_approvers_can_answer_a_question() {
    let (_folder, store) = store().await;
    let rules =
        PlatformAccess { approvers: list(&["8", "discord:9", "7", "*"]), ..PlatformAccess::default() };
    let access = AccessControl::new(settings(rules), store.clone());
    let expected: Vec<Person> = ["discord:7", "discord:8", "discord:9"].map(Person::new).into();
    assert_eq!(access.approvers(Platform::Discord, &sender("7")), expected);
    let alone = AccessControl::new(AccessSettings::default(), store);
    assert_eq!(alone.approvers(Platform::Discord, &sender("7")), [Person::new("discord:7")]);
}

#[tokio::test]
async fn a_stranger_gets_the_pairing_command_once() {
    let (_folder, store) = store().await;
    let access = AccessControl::new(AccessSettings::default(), store.clone());
    let reply = access.pairing_reply(&dm(), &sender("7"), at(0)).await.unwrap().unwrap();
    let (_, command) = reply.split_once("`hermes pairing approve discord ").unwrap();
    let code = command.strip_suffix('`').unwrap();
    assert!(reply.contains("60 minutes"), "{reply}");
    assert_eq!(access.pairing_reply(&dm(), &sender("7"), at(10)).await.unwrap(), None);
    assert!(matches!(
        store.approve_code("discord", code, at(20)).await.unwrap(),
        ApprovalResult::Approved(_)
    ));
    assert_eq!(access.pairing_reply(&dm(), &sender("7"), at(1_000)).await.unwrap(), None);
    for user in ["1", "2", "3"] {
        access.pairing_reply(&dm(), &sender(user), at(30)).await.unwrap().unwrap();
    }
    let full = access.pairing_reply(&dm(), &sender("4"), at(31)).await.unwrap().unwrap();
    assert!(!full.contains('`'), "{full}");
    for _ in 0..5 {
        store.approve_code("discord", "AAAAAAAA", at(40)).await.unwrap();
    }
    assert_eq!(access.pairing_reply(&dm(), &sender("5"), at(41)).await.unwrap(), None);
}
