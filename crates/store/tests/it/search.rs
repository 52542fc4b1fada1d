//! Search with any input.

use hermes_store::{NewSession, SearchQuery, SessionId, Store, Viewer};
use hermes_types::{Message, Person};
use proptest::prelude::*;

use crate::{Home, assistant, at, message_step, new_session, session, user};

const TEXTS: [&str; 12] = [
    "How do I configure the docker network for a container?",
    "Edit my-app.config.ts and run it with --force, then check user_name in snake_case.",
    "We were running migrations on the database; the runner failed.",
    "请帮我迁移数据库,然后重启服务",
    "データベースを再起動してください",
    "데이터베이스를 다시 시작하세요",
    "Ship it 🚀🚀 today",
    "null\0byte and tab\there",
    "C++ and C# and a->b; x == y",
    "quoted \"exact phrase here\" and 'single'",
    "café déjà vu naïve",
    "OR AND NOT NEAR are words too",
];

async fn fill(store: &Store) -> SessionId {
    let id = session(store).await;
    for text in TEXTS {
        store.append_step(&id, message_step(user(text), at(1))).await.unwrap();
    }
    id
}

async fn hits(store: &Store, text: &str) -> Vec<u32> {
    let search = SearchQuery { text: text.to_owned(), limit: 50, ..SearchQuery::default() };
    let hits = store.search(&Viewer::Owner, search).await.unwrap();
    let mut places: Vec<u32> = hits.iter().map(|hit| hit.seq.number()).collect();
    places.sort_unstable();
    places
}

#[tokio::test]
async fn words_of_every_script_are_found() {
    let home = Home::new();
    let store = home.store().await;
    fill(&store).await;
    let cases: [(&str, &[u32]); 36] = [
        ("docker network", &[1]),
        ("NETWORK Docker", &[1]),
        ("docker zebra", &[]),
        ("docker OR migrations", &[1, 3]),
        ("docker NOT network", &[]),
        ("runs", &[2, 3]),
        ("config*", &[1, 2]),
        ("my-app.config.ts", &[2]),
        ("user_name", &[2]),
        ("\"exact phrase\"", &[10]),
        ("\"phrase exact\"", &[]),
        ("cafe", &[11]),
        ("deja vu", &[11]),
        ("数据库", &[4]),
        ("数据", &[4]),
        ("库", &[4]),
        ("务", &[4]),
        ("据数", &[]),
        ("数据库 重启", &[4]),
        ("数据库 OR docker", &[1, 4]),
        ("迁移数据库", &[4]),
        ("移数库", &[]),
        ("データベース", &[5]),
        ("再起動", &[5]),
        ("데이터베이스", &[6]),
        ("다시 시작", &[6]),
        ("🚀", &[7]),
        ("🚀🚀", &[7]),
        ("ship 🚀", &[7]),
        ("byte tab", &[8]),
        ("C++", &[9]),
        ("->", &[9]),
        ("NOT NEAR words", &[]),
        ("words \"NOT\"", &[12]),
        ("docker (network)", &[1]),
        ("docker NOT 数据库", &[1]),
    ];
    for (text, expected) in cases {
        // Single letters are words too: C++ matches c.
        assert_eq!(hits(&store, text).await, expected, "{text}");
    }
    for nothing in ["", "   ", "\0", "NOT", "OR OR", "\"\"", "*", "()", "NOT docker"] {
        assert_eq!(hits(&store, nothing).await, [] as [u32; 0], "{nothing:?}");
    }
}

#[tokio::test]
async fn undone_and_removed_messages_and_those_of_others_are_not_found() {
    let home = Home::new();
    let store = home.store().await;
    let id = fill(&store).await;
    assert_eq!(hits(&store, "near").await, [12]);
    store.undo(&id).await.unwrap();
    assert_eq!(hits(&store, "near").await, [] as [u32; 0]);

    let put = async |new: NewSession| {
        let id = store.create_session(new, at(1)).await.unwrap();
        store.append_step(&id, message_step(assistant("a xylophone 木琴"), at(1))).await.unwrap();
        id
    };
    let theirs =
        put(NewSession { person: Person::new("signal:1"), source: "signal".to_owned(), ..new_session() })
            .await;
    let mine = put(new_session()).await;
    for text in ["xylophone", "木琴", "xylophone 木琴"] {
        let by = async |reader: Viewer, source: Option<&str>| -> Vec<SessionId> {
            let source = source.map(str::to_owned);
            let search = SearchQuery { text: text.to_owned(), source, limit: 9, ..SearchQuery::default() };
            store.search(&reader, search).await.unwrap().into_iter().map(|hit| hit.session).collect()
        };
        assert_eq!(by(Viewer::Owner, None).await, [mine.clone(), theirs.clone()], "{text}");
        assert_eq!(by(Viewer::Owner, Some("signal")).await, std::slice::from_ref(&theirs));
        assert_eq!(by(Viewer::Person(Person::new("signal:1")), None).await, std::slice::from_ref(&theirs));
        assert_eq!(by(Viewer::Person(Person::new("unknown")), None).await, [] as [SessionId; 0]);
    }
    store.remove_session(&mine).await.unwrap();
    // The row id of the removed message is reused, but its text must not be found.
    let next = session(&store).await;
    store.append_step(&next, message_step(assistant("something else"), at(2))).await.unwrap();
    for text in ["xylophone", "木琴"] {
        assert_eq!(hits(&store, text).await.len(), 1, "{text}");
    }
}

#[tokio::test]
async fn hits_come_in_pages_with_snippets() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for number in 0..30 {
        let text = format!("{} needle {number} {}", "before ".repeat(50), "after ".repeat(50));
        let message = Message::Tool { call: hermes_types::CallId::new("c"), name: "t".to_owned(), text };
        store.append_step(&id, message_step(message, at(number))).await.unwrap();
    }
    let page = async |skip: usize| {
        let search = SearchQuery { text: "needle".to_owned(), skip, limit: 12, source: None };
        store.search(&Viewer::Owner, search).await.unwrap()
    };
    let (first, second, third) = (page(0).await, page(12).await, page(24).await);
    assert_eq!((first.len(), second.len(), third.len()), (12, 12, 6));
    let mut all: Vec<u32> = [first, second, third].concat().iter().map(|hit| hit.seq.number()).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=30).collect::<Vec<_>>());
    let hit = &page(0).await[0];
    assert_eq!((hit.role.as_str(), hit.source.as_str(), &hit.session), ("tool", "cli", &id));
    assert_eq!(hit.snippet.found, "needle");
    assert!(hit.snippet.before.ends_with("before  ") && hit.snippet.after.chars().count() < 70, "{hit:?}");
}

#[test]
fn no_input_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let home = Home::new();
    let store = runtime.block_on(async {
        let store = home.store().await;
        fill(&store).await;
        store
    });
    let typed = prop_oneof![
        "(?s).{0,60}",
        "[\"*^:(){}+\\-a ]{0,30}",
        "(AND|OR|NOT|NEAR| |\"|\\*|a|数|🚀|\\(|\\)|:|text:|rank:){0,20}",
        "[\\p{Han}\\p{Hangul}\\p{Katakana}a \"*]{0,20}",
    ];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    });
    runner
        .run(&typed, |text| {
            let search = SearchQuery { text, limit: 5, ..SearchQuery::default() };
            runtime
                .block_on(store.search(&Viewer::Owner, search))
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            Ok(())
        })
        .unwrap();
    let long = "zebra ".repeat(10_000) + &"(".repeat(1_000);
    let search = SearchQuery { text: long, limit: 5, ..SearchQuery::default() };
    assert_eq!(runtime.block_on(store.search(&Viewer::Owner, search)).unwrap(), []);
}
