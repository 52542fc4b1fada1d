//! Finding, naming, listing and removing sessions.

use hermes_store::{
    Clash, Error, Lineage, Listing, NewSession, Parent, Prompt, Pruned, Reader, SessionId, Shelf, Step, Store,
};
use hermes_types::{Person, SessionKey};

use crate::{Home, at, new_session, session, user};

fn somebody(name: &str) -> Reader {
    Reader::Person(Person::new(name))
}

async fn ids(store: &Store, reader: &Reader, listing: Listing) -> Vec<SessionId> {
    let found = store.sessions(reader, Listing { limit: 100, ..listing }).await.unwrap();
    found.into_iter().map(|session| session.id).collect()
}

async fn child(store: &Store, of: &SessionId, lineage: Lineage) -> SessionId {
    let parent = Some(Parent { session: of.clone(), lineage });
    store.create(NewSession { parent, ..new_session() }, at(0)).await.unwrap()
}

#[tokio::test]
async fn a_session_is_kept_with_all_it_began_with() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let kept = store.session(&id).await.unwrap();
    let form: Vec<usize> = id.as_str().split('_').map(str::len).collect();
    assert_eq!(form, [8, 6, 6], "{id}");
    assert!(id.as_str().starts_with("20270115_080000_"), "{id}");
    assert_eq!((kept.key.as_str(), kept.cwd.as_deref()), ("/work: any key\n", Some("/work")));
    assert_eq!((kept.started, kept.ended, kept.messages), (at(0), None, 0));
    assert_eq!(store.prompt(&id).await.unwrap(), new_session().prompt);
    let other = Prompt { text: "é\0".repeat(50_000), tools: "t".to_owned() };
    store.set_prompt(&id, other.clone()).await.unwrap();
    store.set_model(&id, "p2", "m2").await.unwrap();
    store.close().await;
    let store = home.store().await;
    assert_eq!(store.prompt(&id).await.unwrap(), other);
    assert_eq!(store.session(&id).await.unwrap().model, "m2");
    let unknown = store.session(&SessionId::new("nobody")).await;
    assert!(matches!(unknown, Err(Error::NoSession(_))), "{unknown:?}");
}

#[tokio::test]
async fn sessions_are_found_by_name_beginning_title_and_last() {
    let home = Home::new();
    let store = home.store().await;
    let mine = session(&store).await;
    let theirs = NewSession { person: Person::new("discord:7"), ..new_session() };
    let theirs = store.create(theirs, at(40_000)).await.unwrap();
    store.set_title(&mine, "  Fix the\tbuild ", Clash::Refuse).await.unwrap();
    let find = async |reader: &Reader, word: &str| {
        let (meant, resolved) = (store.meant(reader, word).await, store.resolve(reader, word).await);
        assert_eq!(format!("{meant:?}"), format!("{resolved:?}"));
        meant.map(|found| found.id)
    };
    let owner = &Reader::Owner;
    for word in [mine.as_str(), "Fix the build", "20270115_08", "2027011"] {
        let found = find(owner, word).await;
        match word {
            "2027011" => assert!(matches!(found, Err(Error::Ambiguous { count: 2, .. })), "{found:?}"),
            word => assert_eq!(found.unwrap(), mine, "{word}"),
        }
    }
    assert_eq!(find(owner, "last").await.unwrap(), theirs);
    // Somebody else's sessions are not there, whatever is asked.
    let stranger = &somebody("discord:7");
    assert_eq!(find(stranger, "2027011").await.unwrap(), theirs);
    for word in [mine.as_str(), "Fix the build", "20270115_08", "", "%", "_", "' OR 1 --", "x\0"] {
        let found = find(stranger, word).await;
        assert!(matches!(found, Err(Error::NoSession(_))), "{word}: {found:?}");
    }
    assert_eq!(ids(&store, stranger, Listing::default()).await, [theirs]);
    assert_eq!(ids(&store, &somebody("nobody"), Listing::default()).await, [] as [SessionId; 0]);
}

#[tokio::test]
async fn titles_are_unique_and_numbered() {
    let home = Home::new();
    let store = home.store().await;
    let (a, b, c) = (session(&store).await, session(&store).await, session(&store).await);
    let set = async |id: &SessionId, title: &str, clash| store.set_title(id, title, clash).await;
    assert_eq!(set(&a, "Plan", Clash::Refuse).await.unwrap(), "Plan");
    assert_eq!(set(&a, "Plan", Clash::Refuse).await.unwrap(), "Plan", "its own title");
    assert!(matches!(set(&b, "Plan", Clash::Refuse).await, Err(Error::TitleTaken(_))));
    assert!(matches!(set(&b, " \u{202e} ", Clash::Number).await, Err(Error::EmptyTitle)));
    assert_eq!(set(&b, "Plan", Clash::Number).await.unwrap(), "Plan #2");
    assert_eq!(set(&c, "Plan #2", Clash::Number).await.unwrap(), "Plan #3");
    assert_eq!(store.resolve(&Reader::Owner, "Plan").await.unwrap().id, c, "the newest");
    assert_eq!(store.resolve(&Reader::Owner, "Plan #2").await.unwrap().id, b);
    let long = "long ".repeat(40);
    let mut titles = Vec::new();
    for _ in 0..12 {
        titles.push(set(&session(&store).await, &long, Clash::Number).await.unwrap());
    }
    assert!(titles.iter().all(|title| title.chars().count() <= 100), "{titles:?}");
    assert!(titles[1].ends_with("#2") && titles[11].ends_with("#12"), "{titles:?}");
}

#[tokio::test]
async fn lists_have_pages_and_show_conversations_only() {
    let home = Home::new();
    let store = home.store().await;
    let mut made = Vec::new();
    for number in 0..7 {
        let id = store.create(new_session(), at(number)).await.unwrap();
        made.push(id);
    }
    // Used again, so it comes first; two others at the same second.
    store.append(&made[2], Step::one(user("hi"), at(100))).await.unwrap();
    store.append(&made[3], Step::one(user("hi"), at(100))).await.unwrap();
    store.shelve(&made[6], Shelf::Archived).await.unwrap();
    let tool = NewSession { source: "tool".to_owned(), ..new_session() };
    let tool = store.create(tool, at(200)).await.unwrap();
    let delegate = child(&store, &made[0], Lineage::Delegate).await;
    let branch = child(&store, &made[0], Lineage::Branch).await;
    let next = store.continuation(&made[1], Prompt::default(), vec![], at(50)).await.unwrap();
    let expected = [3, 2].map(|at| made[at].clone()).into_iter().chain([next.clone()]);
    let expected: Vec<_> = expected.chain([5, 4].map(|at| made[at].clone())).collect();
    let all = ids(&store, &Reader::Owner, Listing::default()).await;
    assert_eq!(all[..5], expected);
    assert_eq!(all[5..], [branch.clone(), made[0].clone()]);
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let listing = Listing { after: after.clone(), limit: 2, ..Listing::default() };
        let page = store.sessions(&Reader::Owner, listing).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        paged.extend(page.into_iter().map(|session| session.id));
    }
    assert_eq!(paged, all);
    let shelf = |shelf| Listing { shelf, ..Listing::default() };
    assert_eq!(ids(&store, &Reader::Owner, shelf(Shelf::Archived)).await, [made[6].clone()]);
    let everything = ids(&store, &Reader::Owner, shelf(Shelf::Everything)).await;
    assert!([&tool, &delegate, &made[1], &made[6]].iter().all(|id| everything.contains(id)));
    let of_tool = Listing { source: Some("cli".to_owned()), ..Listing::default() };
    assert_eq!(ids(&store, &Reader::Owner, of_tool).await, all);
    store.end(&made[3], "reset", at(300)).await.unwrap();
    let current = store.current(&SessionKey::new("/work: any key\n")).await.unwrap().unwrap();
    assert_eq!(current.id, next, "the newest that has not ended and is no part of another");
    store.reopen(&made[3]).await.unwrap();
    assert_eq!(store.session(&made[3]).await.unwrap().ended, None);
}

#[tokio::test]
async fn delegates_go_with_their_parent_and_others_stay() {
    let home = Home::new();
    let store = home.store().await;
    let parent = session(&store).await;
    let delegate = child(&store, &parent, Lineage::Delegate).await;
    let deeper = child(&store, &delegate, Lineage::Delegate).await;
    let branch = child(&store, &delegate, Lineage::Branch).await;
    let next = child(&store, &parent, Lineage::Continuation).await;
    let turn = store.open_turn(&deeper, vec![], vec![], at(1)).await.unwrap();
    assert!(matches!(store.remove(&parent).await, Err(Error::AtWork(_))), "a part of it is at work");
    assert!(store.session(&delegate).await.is_ok(), "nothing was removed");
    store.close_turn(turn, "text", vec![], at(1)).await.unwrap();
    assert_eq!(store.remove(&parent).await.unwrap(), 3);
    for gone in [&parent, &delegate, &deeper] {
        assert!(matches!(store.session(gone).await, Err(Error::NoSession(_))));
    }
    for stays in [&branch, &next] {
        assert_eq!(store.session(stays).await.unwrap().parent, None);
    }
}

#[tokio::test]
async fn pruning_removes_old_ended_sessions_and_gives_space_back() {
    let home = Home::new();
    let store = home.store().await;
    let text = "All work and no play makes a dull boy. ".repeat(400);
    let fill = async |seconds: u64| {
        let id = store.create(new_session(), at(seconds)).await.unwrap();
        for _ in 0..10 {
            store.append(&id, Step::one(user(&text), at(seconds))).await.unwrap();
        }
        id
    };
    let mut old = Vec::new();
    for number in 0..40 {
        let id = fill(number).await;
        store.end(&id, "exit", at(number)).await.unwrap();
        old.push(id);
    }
    let (open, young) = (fill(5).await, fill(1_000).await);
    store.end(&young, "exit", at(1_000)).await.unwrap();
    let before = store.size();
    assert_eq!(store.prunable(at(500)).await.unwrap(), old);
    let Pruned { sessions, freed } = store.prune(at(500)).await.unwrap();
    assert_eq!(sessions, 40);
    assert!(freed > before / 2, "{freed} of {before}");
    assert!(store.size() < before / 4, "{} of {before}", store.size());
    assert_eq!(ids(&store, &Reader::Owner, Listing::default()).await, [young, open]);
    assert_eq!(store.prune(at(500)).await.unwrap(), Pruned::default());
    let hits = hermes_store::Search { text: "dull boy".to_owned(), limit: 100, ..Default::default() };
    assert_eq!(store.search(&Reader::Owner, hits).await.unwrap().len(), 20);
    store.close().await;
    assert_eq!(home.check(), "ok");
}

#[tokio::test]
async fn what_nobody_went_on_with_is_ended_and_can_be_removed() {
    let home = Home::new();
    let store = home.store().await;
    let begin = async |touched: u64| {
        let id = store.create(new_session(), at(1)).await.unwrap();
        store.append(&id, Step::one(user("hello"), at(touched))).await.unwrap();
        id
    };
    let (old, busy, young) = (begin(5).await, begin(5).await, begin(1_000).await);
    store.open_turn(&busy, vec![], vec![], at(5)).await.unwrap();
    assert_eq!(store.prunable(at(500)).await.unwrap(), []);
    let idle = async || -> Vec<_> {
        store.idle(at(500)).await.unwrap().into_iter().map(|session| session.id).collect()
    };
    assert_eq!(idle().await, std::slice::from_ref(&old));
    for id in [&old, &busy, &young] {
        store.retire(id, at(500), at(2_000)).await.unwrap();
    }
    assert_eq!(store.prunable(at(500)).await.unwrap(), [old]);
    assert_eq!(store.prune(at(500)).await.unwrap().sessions, 1);
    assert_eq!(idle().await, []);
    let mut left = ids(&store, &Reader::Owner, Listing::default()).await;
    left.sort();
    let mut expected = [busy, young];
    expected.sort();
    assert_eq!(left, expected);
}
