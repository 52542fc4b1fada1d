//! Who is let in.

use hermes_store::{Approving, FILE_NAME};

use super::*;

/// What is kept in a directory of its own.
async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join(FILE_NAME)).await.unwrap();
    (folder, store)
}

fn room(kind: RoomKind) -> Room {
    Room { platform: Platform::Discord, kind, chat: "1".to_owned(), thread: None, parent: None, name: None }
}

fn dm() -> Room {
    room(RoomKind::Dm)
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

fn settings(rules: Rules) -> Settings {
    Settings { platforms: HashMap::from([(Platform::Discord, rules)]), ..Settings::default() }
}

fn everywhere(entries: &[&str]) -> Settings {
    Settings { allowed_users: list(entries), ..Settings::default() }
}

fn users(entries: &[&str]) -> Settings {
    settings(Rules { allowed_users: list(entries), ..Rules::default() })
}

/// Lets somebody in, as an owner does.
async fn pair(store: &Store, user: &str) {
    let asked = store.ask_in("discord", user, "ada", at(0)).await.unwrap();
    let Asked::Code { code, .. } = &asked else { unreachable!("{asked:?}") };
    assert!(matches!(store.approve("discord", code, at(1)).await.unwrap(), Approving::In(_)));
}

const ORDINARY: Admission = Admission::In(Tier::Ordinary);
const ADMIN: Admission = Admission::In(Tier::Admin);
const PAIR: Admission = Admission::Stranger(Behavior::Pair);
const IGNORE: Admission = Admission::Stranger(Behavior::Ignore);

#[tokio::test]
async fn the_first_line_that_fits_decides() {
    let (_folder, store) = store().await;
    let open = settings(Rules { allow_all_users: true, ..Rules::default() });
    let roles = |entries: &[&str]| settings(Rules { allowed_roles: list(entries), ..Rules::default() });
    let wide = |settings: Settings| Settings { allow_all_users: true, ..settings };
    let cases = [
        ("nothing is set", Settings::default(), "7", PAIR),
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
        ("all, without a list", wide(Settings::default()), "7", ORDINARY),
        ("all, with a list", wide(users(&["8"])), "7", IGNORE),
        ("all, with a list everywhere", wide(everywhere(&["8"])), "7", IGNORE),
        ("all, with roles", wide(roles(&["r2"])), "7", IGNORE),
    ];
    for (what, settings, id, expected) in cases {
        let people = People::new(settings, store.clone());
        assert_eq!(people.admit(&dm(), &sender(id)).await.unwrap(), expected, "{what}");
    }
}

#[tokio::test]
async fn programs_are_heard_only_as_programs() {
    let (_folder, store) = store().await;
    let bot = Sender { is_bot: true, ..sender("7") };
    for (bots, expected) in [(Bots::None, IGNORE), (Bots::Mentions, ORDINARY), (Bots::All, ORDINARY)] {
        let rules = Rules {
            bots,
            allow_all_users: true,
            allowed_users: list(&["7"]),
            allowed_roles: list(&["r1"]),
            admins: list(&["7"]),
            strangers: Some(Behavior::Pair),
            ..Rules::default()
        };
        let people = People::new(settings(rules), store.clone());
        assert_eq!(people.admit(&dm(), &bot).await.unwrap(), expected, "{bots:?}");
        assert_eq!(people.approvers(Platform::Discord, &bot), []);
    }
}

#[tokio::test]
async fn strangers_get_what_is_set_for_them_and_nothing_in_groups() {
    let (_folder, store) = store().await;
    let set = |platform, all, allowed: &[&str]| Settings {
        strangers: all,
        ..settings(Rules { strangers: platform, allowed_users: list(allowed), ..Rules::default() })
    };
    let (pair, ignore) = (Some(Behavior::Pair), Some(Behavior::Ignore));
    let cases = [
        (set(None, None, &[]), PAIR),
        (set(None, None, &["8"]), IGNORE),
        (set(None, pair, &["8"]), PAIR),
        (set(None, ignore, &[]), IGNORE),
        (set(pair, ignore, &["8"]), PAIR),
        (set(ignore, pair, &[]), IGNORE),
    ];
    for (settings, expected) in cases {
        let people = People::new(settings.clone(), store.clone());
        assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), expected, "{settings:?}");
        for kind in [RoomKind::Group, RoomKind::Thread] {
            assert_eq!(people.admit(&room(kind), &sender("7")).await.unwrap(), IGNORE, "{settings:?}");
        }
    }
}

#[tokio::test]
async fn whoever_was_paired_is_in_until_it_is_taken_back() {
    let (_folder, store) = store().await;
    let people = People::new(users(&["8"]), store.clone());
    pair(&store, "7").await;
    assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), ORDINARY);
    assert_eq!(people.admit(&room(RoomKind::Group), &sender("7")).await.unwrap(), ORDINARY);
    assert_eq!(people.admit(&dm(), &sender("8")).await.unwrap(), ORDINARY, "not the only one any more");
    store.revoke_pairing("discord", "7").await.unwrap();
    assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), IGNORE);
    assert_eq!(people.admit(&dm(), &sender("8")).await.unwrap(), ADMIN);
}

#[tokio::test]
async fn the_only_one_who_was_paired_looks_after_hermes() {
    let (_folder, store) = store().await;
    let people = People::new(Settings::default(), store.clone());
    pair(&store, "7").await;
    assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), ADMIN);
    pair(&store, "8").await;
    assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), ORDINARY);
}

#[tokio::test]
async fn admins_are_named_for_direct_messages_and_for_groups() {
    let (_folder, store) = store().await;
    let rules = Rules {
        allowed_users: list(&["7", "8"]),
        admins: list(&["7"]),
        group_admins: list(&["discord:8", "*"]),
        ..Rules::default()
    };
    let people = People::new(settings(rules), store);
    let cases = [
        (RoomKind::Dm, "7", ADMIN),
        (RoomKind::Dm, "8", ORDINARY),
        (RoomKind::Group, "7", ORDINARY),
        (RoomKind::Group, "8", ADMIN),
        (RoomKind::Thread, "8", ADMIN),
        (RoomKind::Group, "9", IGNORE),
    ];
    for (kind, id, expected) in cases {
        assert_eq!(people.admit(&room(kind), &sender(id)).await.unwrap(), expected, "{kind:?} {id}");
    }
}

#[tokio::test]
async fn being_admin_lets_nobody_in() {
    let (_folder, store) = store().await;
    let people = People::new(settings(Rules { admins: list(&["7"]), ..Rules::default() }), store);
    assert_eq!(people.admit(&dm(), &sender("7")).await.unwrap(), PAIR);
}

#[tokio::test]
async fn commands_are_for_those_they_are_given_to() {
    let (_folder, store) = store().await;
    let read = |text: &str| {
        let letter = crate::Letter {
            room: dm(),
            sender: sender("7"),
            message: "1".to_owned(),
            sent: at(0),
            text: text.to_owned(),
            files: Vec::new(),
            quote: None,
            reply: crate::letter::ReplyPlace::Here,
            interaction: None,
        };
        Command::read(&letter).unwrap()
    };
    let plain = People::new(Settings::default(), store.clone());
    let rules = Rules {
        commands: list(&["/new", "sethome", "model"]),
        group_commands: list(&["stop"]),
        ..Rules::default()
    };
    let strict = People::new(settings(rules), store);
    let group = room(RoomKind::Group);
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
    for (people, room, text, may) in cases {
        let told = people.may_use(&room, Tier::Ordinary, &read(text));
        assert_eq!(told.is_ok(), may, "{text}: {told:?}");
        assert_eq!(people.may_use(&room, Tier::Admin, &read(text)), Ok(()), "{text}");
    }
    let refused = |room: &Room, text: &str| strict.may_use(room, Tier::Ordinary, &read(text)).unwrap_err();
    assert!(refused(&dm(), "/restart").contains("`discord.allow_admin_from`"));
    assert!(refused(&group, "/restart").contains("`discord.group_allow_admin_from`"));
    assert!(refused(&group, "/new").contains("`discord.group_user_allowed_commands`"));
    let bot = Sender { is_bot: true, ..sender("7") };
    let letter = crate::Letter {
        room: dm(),
        sender: bot,
        message: "1".to_owned(),
        sent: at(0),
        text: "/restart".to_owned(),
        files: Vec::new(),
        quote: None,
        reply: crate::letter::ReplyPlace::Here,
        interaction: None,
    };
    assert_eq!(Command::read(&letter), None, "a program gives no commands");
}

#[tokio::test]
async fn a_question_is_for_who_asked_and_those_who_are_named() {
    let (_folder, store) = store().await;
    let rules = Rules { approvers: list(&["8", "discord:9", "7", "*"]), ..Rules::default() };
    let people = People::new(settings(rules), store.clone());
    let expected: Vec<Person> = ["discord:7", "discord:8", "discord:9"].map(Person::new).into();
    assert_eq!(people.approvers(Platform::Discord, &sender("7")), expected);
    let alone = People::new(Settings::default(), store);
    assert_eq!(alone.approvers(Platform::Discord, &sender("7")), [Person::new("discord:7")]);
}

#[tokio::test]
async fn a_stranger_is_told_once_what_the_owner_has_to_run() {
    let (_folder, store) = store().await;
    let people = People::new(Settings::default(), store.clone());
    let told = people.greet(&dm(), &sender("7"), at(0)).await.unwrap().unwrap();
    let (_, command) = told.split_once("`hermes pairing approve discord ").unwrap();
    let code = command.strip_suffix('`').unwrap();
    assert!(told.contains("60 minutes"), "{told}");
    assert_eq!(people.greet(&dm(), &sender("7"), at(10)).await.unwrap(), None);
    assert!(matches!(store.approve("discord", code, at(20)).await.unwrap(), Approving::In(_)));
    assert_eq!(people.greet(&dm(), &sender("7"), at(1_000)).await.unwrap(), None);
    for user in ["1", "2", "3"] {
        people.greet(&dm(), &sender(user), at(30)).await.unwrap().unwrap();
    }
    let full = people.greet(&dm(), &sender("4"), at(31)).await.unwrap().unwrap();
    assert!(!full.contains('`'), "{full}");
    for _ in 0..5 {
        store.approve("discord", "AAAAAAAA", at(40)).await.unwrap();
    }
    assert_eq!(people.greet(&dm(), &sender("5"), at(41)).await.unwrap(), None);
}
