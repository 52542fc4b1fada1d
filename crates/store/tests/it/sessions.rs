//! Finding, naming, listing and removing sessions.

use hermes_store::{Error, NewSession, PruneResult, SessionId, SessionPrompt, SessionQuery, Store, Viewer};
use hermes_types::{Person, SessionKey};

use crate::{Home, at, message_step, new_session, session, user};

fn viewer(name: &str) -> Viewer {
    Viewer::Person(Person::new(name))
}

async fn ids(store: &Store, reader: &Viewer, listing: SessionQuery) -> Vec<SessionId> {
    let found = store.sessions(reader, SessionQuery { limit: 100, ..listing }).await.unwrap();
    found.into_iter().map(|session| session.id).collect()
}

#[tokio::test]
async fn a_session_is_stored_with_all_its_fields() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let kept = store.session(&id).await.unwrap();
    let form: Vec<usize> = id.as_str().split('_').map(str::len).collect();
    assert_eq!(form, [8, 6, 6], "{id}");
    assert!(id.as_str().starts_with("20270115_080000_"), "{id}");
    assert_eq!((kept.key.as_str(), kept.cwd.as_deref()), ("/work: any key\n", Some("/work")));
    assert_eq!((kept.started, kept.ended, kept.messages), (at(0), None, 0));
    assert_eq!(store.session_prompt(&id).await.unwrap(), new_session().prompt);
    let other = SessionPrompt { text: "é\0".repeat(50_000), tools: "t".to_owned() };
    store.set_prompt(&id, other.clone()).await.unwrap();
    store.set_model(&id, "p2", "m2").await.unwrap();
    store.close().await;
    let store = home.store().await;
    assert_eq!(store.session_prompt(&id).await.unwrap(), other);
    assert_eq!(store.session(&id).await.unwrap().model, "m2");
    let unknown = store.session(&SessionId::new("unknown")).await;
    assert!(matches!(unknown, Err(Error::NoSession(_))), "{unknown:?}");
}

#[tokio::test]
async fn sessions_are_found_by_id_prefix_title_and_last() {
    let home = Home::new();
    let store = home.store().await;
    let mine = session(&store).await;
    let theirs = NewSession { person: Person::new("discord:7"), ..new_session() };
    let theirs = store.create_session(theirs, at(40_000)).await.unwrap();
    store.set_title(&mine, "  Fix the\tbuild ").await.unwrap();
    let find =
        async |reader: &Viewer, word: &str| store.find_session(reader, word).await.map(|found| found.id);
    let owner = &Viewer::Owner;
    for word in [mine.as_str(), "Fix the build", "20270115_08", "2027011"] {
        let found = find(owner, word).await;
        match word {
            "2027011" => assert!(matches!(found, Err(Error::Ambiguous { count: 2, .. })), "{found:?}"),
            word => assert_eq!(found.unwrap(), mine, "{word}"),
        }
    }
    assert_eq!(find(owner, "last").await.unwrap(), theirs);
    // Sessions of other people are never found.
    let stranger = &viewer("discord:7");
    assert_eq!(find(stranger, "2027011").await.unwrap(), theirs);
    for word in [mine.as_str(), "Fix the build", "20270115_08", "", "%", "_", "' OR 1 --", "x\0"] {
        let found = find(stranger, word).await;
        assert!(matches!(found, Err(Error::NoSession(_))), "{word}: {found:?}");
    }
    assert_eq!(ids(&store, stranger, SessionQuery::default()).await, [theirs]);
    assert_eq!(ids(&store, &viewer("nobody"), SessionQuery::default()).await, [] as [SessionId; 0]);
}

#[tokio::test]
async fn titles_are_unique_and_numbered() {
    let home = Home::new();
    let store = home.store().await;
    let (a, b, c) = (session(&store).await, session(&store).await, session(&store).await);
    let set = async |id: &SessionId, title: &str| store.set_title(id, title).await;
    assert_eq!(set(&a, "Plan").await.unwrap(), "Plan");
    assert_eq!(set(&a, "Plan").await.unwrap(), "Plan", "its own title");
    assert!(matches!(set(&b, " \u{202e} ").await, Err(Error::EmptyTitle)));
    assert_eq!(set(&b, "Plan").await.unwrap(), "Plan #2");
    assert_eq!(set(&c, "Plan #2").await.unwrap(), "Plan #3");
    let find = async |title: &str| store.find_session(&Viewer::Owner, title).await.unwrap().id;
    assert_eq!(find("Plan").await, a, "an exact title wins over numbered ones");
    assert_eq!(find("Plan #2").await, b);
    store.remove_session(&a).await.unwrap();
    assert_eq!(find("Plan").await, c, "without an exact title, the highest number");
    let long = "long ".repeat(40);
    let mut titles = Vec::new();
    for _ in 0..12 {
        titles.push(set(&session(&store).await, &long).await.unwrap());
    }
    assert!(titles.iter().all(|title| title.chars().count() <= 100), "{titles:?}");
    assert!(titles[1].ends_with("#2") && titles[11].ends_with("#12"), "{titles:?}");
}

#[tokio::test]
async fn lists_have_pages() {
    let home = Home::new();
    let store = home.store().await;
    let mut made = Vec::new();
    for number in 0..7 {
        let id = store.create_session(new_session(), at(number)).await.unwrap();
        made.push(id);
    }
    // Used last, so they come first; both at the same second.
    store.append_step(&made[2], message_step(user("hi"), at(100))).await.unwrap();
    store.append_step(&made[3], message_step(user("hi"), at(100))).await.unwrap();
    let other = NewSession { source: "discord".to_owned(), ..new_session() };
    let other = store.create_session(other, at(50)).await.unwrap();
    let expected = [3, 2].map(|at| made[at].clone()).into_iter().chain([other.clone()]);
    let expected: Vec<_> = expected.chain([6, 5, 4, 1, 0].map(|at| made[at].clone())).collect();
    let all = ids(&store, &Viewer::Owner, SessionQuery::default()).await;
    assert_eq!(all, expected);
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let listing = SessionQuery { after: after.clone(), limit: 2, ..SessionQuery::default() };
        let page = store.sessions(&Viewer::Owner, listing).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        paged.extend(page.into_iter().map(|session| session.id));
    }
    assert_eq!(paged, all);
    let of_discord = SessionQuery { source: Some("discord".to_owned()), ..SessionQuery::default() };
    assert_eq!(ids(&store, &Viewer::Owner, of_discord).await, std::slice::from_ref(&other));
    store.end_session(&other, "reset", at(300)).await.unwrap();
    let current = store.current_session(&SessionKey::new("/work: any key\n")).await.unwrap().unwrap();
    assert_eq!(current.id, made[6], "the newest open session");
    store.reopen_session(&other).await.unwrap();
    assert_eq!(store.session(&other).await.unwrap().ended, None);
}

#[tokio::test]
async fn a_session_with_a_live_turn_is_not_removed() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![], vec![], at(1)).await.unwrap();
    assert!(matches!(store.remove_session(&id).await, Err(Error::TurnInProgress(_))));
    assert!(store.session(&id).await.is_ok(), "nothing was removed");
    store.close_turn(turn, "text", vec![], at(1)).await.unwrap();
    store.remove_session(&id).await.unwrap();
    assert!(matches!(store.session(&id).await, Err(Error::NoSession(_))));
}

#[tokio::test]
async fn pruning_removes_old_ended_sessions_and_frees_space() {
    let home = Home::new();
    let store = home.store().await;
    let text = "All work and no play makes a dull boy. ".repeat(400);
    let fill = async |seconds: u64| {
        let id = store.create_session(new_session(), at(seconds)).await.unwrap();
        for _ in 0..10 {
            store.append_step(&id, message_step(user(&text), at(seconds))).await.unwrap();
        }
        id
    };
    let mut old = Vec::new();
    for number in 0..40 {
        let id = fill(number).await;
        store.end_session(&id, "exit", at(number)).await.unwrap();
        old.push(id);
    }
    let (open, young) = (fill(5).await, fill(1_000).await);
    store.end_session(&young, "exit", at(1_000)).await.unwrap();
    let before = store.size();
    assert_eq!(store.prunable(at(500)).await.unwrap(), old);
    let PruneResult { sessions, freed_bytes } = store.prune(at(500)).await.unwrap();
    assert_eq!(sessions, 40);
    assert!(freed_bytes > before / 2, "{freed_bytes} of {before}");
    assert!(store.size() < before / 4, "{} of {before}", store.size());
    assert_eq!(ids(&store, &Viewer::Owner, SessionQuery::default()).await, [young, open]);
    assert_eq!(store.prune(at(500)).await.unwrap(), PruneResult::default());
    let hits = hermes_store::SearchQuery { text: "dull boy".to_owned(), limit: 100, ..Default::default() };
    assert_eq!(store.search(&Viewer::Owner, hits).await.unwrap().len(), 20);
    store.close().await;
    assert_eq!(home.check(), "ok");
}

#[tokio::test]
async fn idle_sessions_are_retired_and_can_be_pruned() {
    let home = Home::new();
    let store = home.store().await;
    let begin = async |touched: u64| {
        let id = store.create_session(new_session(), at(1)).await.unwrap();
        store.append_step(&id, message_step(user("hello"), at(touched))).await.unwrap();
        id
    };
    let (old, busy, young) = (begin(5).await, begin(5).await, begin(1_000).await);
    store.open_turn(&busy, vec![], vec![], at(5)).await.unwrap();
    assert_eq!(store.prunable(at(500)).await.unwrap(), []);
    let idle = async || -> Vec<_> {
        store.idle_sessions(at(500)).await.unwrap().into_iter().map(|session| session.id).collect()
    };
    assert_eq!(idle().await, std::slice::from_ref(&old));
    for id in [&old, &busy, &young] {
        store.retire_session(id, at(500), at(2_000)).await.unwrap();
    }
    assert_eq!(store.prunable(at(500)).await.unwrap(), [old]);
    assert_eq!(store.prune(at(500)).await.unwrap().sessions, 1);
    assert_eq!(idle().await, []);
    let mut left = ids(&store, &Viewer::Owner, SessionQuery::default()).await;
    left.sort();
    let mut expected = [busy, young];
    expected.sort();
    assert_eq!(left, expected);
}
