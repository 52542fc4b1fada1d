use hermes_types::Secret;

use super::*;
use crate::discord::settings::Channels;

const BOT: &str = "42";

fn settings() -> Settings {
    Settings::new(Secret::new("token"))
}

fn channels(ids: &[&str]) -> Channels {
    ids.iter().collect()
}

fn channel(id: &str) -> Place {
    Place { id: id.to_owned(), kind: PlaceKind::Channel, name: None }
}

fn thread(id: &str, parent: &str) -> Place {
    Place { id: id.to_owned(), kind: PlaceKind::Thread { parent: Some(parent.to_owned()) }, name: None }
}

fn dm(id: &str) -> Place {
    Place { id: id.to_owned(), kind: PlaceKind::Dm, name: None }
}

fn person(id: &str) -> Sender {
    Sender { id: id.to_owned(), name: "Ada".to_owned(), is_bot: false, roles: Vec::new() }
}

fn robot(id: &str) -> Sender {
    Sender { is_bot: true, ..person(id) }
}

fn says(place: Place, content: &str) -> Said {
    Said {
        place,
        sender: person("7"),
        message: "1000".to_owned(),
        sent: Timestamp::from_seconds(1),
        kind: MessageType::Regular,
        content: content.to_owned(),
        mentions: Vec::new(),
        files: Vec::new(),
        quote: None,
        forwarded: Vec::new(),
    }
}

/// With the platform's word that these are mentioned.
fn to(said: Said, ids: &[(&str, bool)]) -> Said {
    let mentions =
        ids.iter().map(|(id, is_bot)| Mentioned { id: (*id).to_owned(), is_bot: *is_bot }).collect();
    Said { mentions, ..said }
}

fn judged(settings: &Settings, takes_part: bool, said: Said) -> Verdict {
    judge(settings, Standing { bot: BOT, takes_part, bots_in_a_row: 0 }, said)
}

/// The kind of the room, the words and the wanted place.
fn taken(verdict: Verdict) -> Option<(RoomKind, String, ReplyPlace)> {
    match verdict {
        Verdict::Take(letter) => Some((letter.room.kind, letter.text, letter.reply)),
        Verdict::Drop(_) => None,
    }
}

fn named(name: &str) -> ReplyPlace {
    ReplyPlace::Thread(name.to_owned())
}

#[test]
fn an_answer_gets_a_thread_unless_the_owner_chose_otherwise() {
    let free = Settings { require_mention: false, ..settings() };
    let off = Settings { auto_thread: false, ..free.clone() };
    let said = says(channel("123"), "hello");
    assert_eq!(
        taken(judged(&free, false, said.clone())),
        Some((RoomKind::Group, "hello".to_owned(), named("hello")))
    );
    assert_eq!(
        taken(judged(&off, false, said)),
        Some((RoomKind::Group, "hello".to_owned(), ReplyPlace::Here))
    );
}

#[test]
fn a_thread_it_takes_part_in_needs_no_mention() {
    let said = says(thread("456", "100"), "follow-up without mention");
    let Verdict::Take(letter) = judged(&settings(), true, said.clone()) else { panic!("not taken") };
    assert_eq!(letter.text, "follow-up without mention");
    assert_eq!(
        letter.room,
        Room {
            platform: Platform::Discord,
            kind: RoomKind::Thread,
            chat: "456".to_owned(),
            thread: Some("456".to_owned()),
            parent: Some("100".to_owned()),
            name: None,
        }
    );
    assert_eq!(letter.reply, ReplyPlace::Here);
    let strict = Settings { thread_require_mention: true, ..settings() };
    assert_eq!(judged(&strict, true, said), Verdict::Drop("the bot was not mentioned"));
}

#[test]
fn an_unknown_thread_needs_a_mention() {
    let said = says(thread("789", "100"), "hello from unknown thread");
    assert_eq!(judged(&settings(), false, said), Verdict::Drop("the bot was not mentioned"));
    let called = to(says(thread("789", "100"), "<@42> hello"), &[(BOT, true)]);
    assert_eq!(
        taken(judged(&settings(), false, called)),
        Some((RoomKind::Thread, "hello".to_owned(), ReplyPlace::Here))
    );
}

#[test]
fn direct_messages_need_no_mention_and_get_no_thread() {
    let everywhere = channels(&["*"]);
    let strict = Settings {
        allowed_channels: channels(&["1"]),
        ignored_channels: everywhere,
        thread_require_mention: true,
        ..settings()
    };
    for settings in [settings(), strict] {
        assert_eq!(
            taken(judged(&settings, false, says(dm("77"), "dm without mention"))),
            Some((RoomKind::Dm, "dm without mention".to_owned(), ReplyPlace::Here))
        );
    }
}

#[test]
fn who_is_called_by_name() {
    type Case<'a> = (&'a str, &'a [(&'a str, bool)], Option<&'a str>);
    let cases: [Case<'_>; 10] = [
        ("hello", &[], None),
        ("<@42> hello", &[(BOT, true)], Some("hello")),
        ("<@!42> hello", &[(BOT, true)], Some("hello")),
        // A reply that notifies the bot mentions it without a word of it.
        ("hello", &[(BOT, true)], Some("hello")),
        // What the platform did not resolve still names the bot.
        ("<@42> hello", &[], Some("hello")),
        ("write `<@42>` there", &[], None),
        // Others keep their names in the words.
        ("<@42> tell <@9>", &[(BOT, true), ("9", false)], Some("tell <@9>")),
        ("<@42> ask <@50>", &[(BOT, true), ("50", true)], Some("ask <@50>")),
        ("<@50> hello", &[("50", true)], None),
        ("<@42>", &[(BOT, true)], Some(WORDLESS)),
    ];
    for (content, mentions, expected) in cases {
        let verdict = judged(&settings(), false, to(says(channel("100"), content), mentions));
        assert_eq!(taken(verdict).map(|(_, text, _)| text).as_deref(), expected, "{content:?}");
    }
}

#[test]
fn words_for_others_are_not_for_the_bot() {
    let loose = Settings { require_mention: false, ..settings() };
    let heeding = Settings { ignore_no_mention: false, ..loose.clone() };
    let free = Settings { free_response_channels: channels(&["100"]), ..settings() };
    let to_person = to(says(channel("100"), "<@9> hi"), &[("9", false)]);
    let to_robot = to(says(channel("100"), "<@50> hi"), &[("50", true)]);
    let cases = [
        (&loose, &to_person, Err("it is for somebody else")),
        (&heeding, &to_person, Ok(())),
        (&free, &to_person, Ok(())),
        (&loose, &to_robot, Err("it is for another bot")),
        (&heeding, &to_robot, Err("it is for another bot")),
        (&free, &to_robot, Err("it is for another bot")),
    ];
    for (settings, said, expected) in cases {
        let verdict = match judged(settings, false, said.clone()) {
            Verdict::Take(_) => Ok(()),
            Verdict::Drop(why) => Err(why),
        };
        assert_eq!(verdict, expected, "{said:?}");
    }
    // Also in a thread it takes part in.
    let aside = to(says(thread("456", "100"), "<@9> hi"), &[("9", false)]);
    assert_eq!(judged(&settings(), true, aside), Verdict::Drop("it is for somebody else"));
}

#[test]
fn channels_are_listened_to_as_the_owner_chose() {
    let open = Settings { require_mention: false, ..settings() };
    let deaf = "the bot does not listen there";
    let cases: [(&[&str], &[&str], Place, bool); 9] = [
        (&[], &[], channel("1"), true),
        (&["1"], &[], channel("1"), true),
        (&["1"], &[], channel("2"), false),
        (&["1"], &[], thread("5", "1"), true),
        (&["5"], &[], thread("5", "1"), true),
        (&["*"], &[], channel("2"), true),
        (&["1"], &["1"], channel("1"), false),
        (&[], &["1"], thread("5", "1"), false),
        (&["1"], &["*"], channel("1"), false),
    ];
    for (allowed, ignored, place, expected) in cases {
        let settings = Settings {
            allowed_channels: channels(allowed),
            ignored_channels: channels(ignored),
            ..open.clone()
        };
        let verdict = judged(&settings, true, says(place.clone(), "hello"));
        assert_eq!(verdict != Verdict::Drop(deaf), expected, "{allowed:?} {ignored:?} {place:?}");
        assert_eq!(matches!(verdict, Verdict::Take(_)), expected);
    }
}

#[test]
fn free_channels_need_no_mention_and_get_no_thread() {
    for list in [&["100"][..], &["*"]] {
        let settings = Settings { free_response_channels: channels(list), ..settings() };
        for place in [channel("100"), thread("5", "100")] {
            let kind = place.room().kind;
            assert_eq!(
                taken(judged(&settings, false, says(place, "hello"))),
                Some((kind, "hello".to_owned(), ReplyPlace::Here))
            );
        }
    }
    let other = Settings { free_response_channels: channels(&["9"]), ..settings() };
    assert_eq!(
        judged(&other, false, says(channel("100"), "hello")),
        Verdict::Drop("the bot was not mentioned")
    );
}

#[test]
fn some_messages_get_no_thread() {
    let open = Settings { require_mention: false, ..settings() };
    let listed = Settings { no_thread_channels: channels(&["100"]), ..open.clone() };
    let reply = Said { kind: MessageType::Reply, ..says(channel("100"), "hello") };
    let voice = Place { kind: PlaceKind::Threadless, ..channel("100") };
    let cases = [
        (&open, says(channel("100"), "hello"), named("hello")),
        (&open, reply, ReplyPlace::Here),
        (&open, says(voice, "hello"), ReplyPlace::Here),
        (&listed, says(channel("100"), "hello"), ReplyPlace::Here),
        (&open, says(thread("5", "100"), "hello"), ReplyPlace::Here),
        (&open, to(says(channel("100"), "<@42> see <#9>"), &[(BOT, true)]), named("see")),
        (&open, to(says(channel("100"), "<@42>"), &[(BOT, true)]), named("Hermes")),
    ];
    for (settings, said, expected) in cases {
        let got = taken(judged(settings, false, said.clone())).map(|(_, _, reply)| reply);
        assert_eq!(got, Some(expected), "{said:?}");
    }
}

#[test]
fn a_channel_can_differ() {
    let different =
        Override { require_mention: Some(false), auto_thread: Some(false), ..Override::default() };
    let strict = Override { require_mention: Some(true), ..Override::default() };
    let settings = Settings {
        overrides: [("1".to_owned(), different), ("2".to_owned(), strict)].into(),
        free_response_channels: channels(&["2"]),
        ..settings()
    };
    let quiet = Some((RoomKind::Group, "hello".to_owned(), ReplyPlace::Here));
    assert_eq!(taken(judged(&settings, false, says(channel("1"), "hello"))), quiet);
    assert_eq!(taken(judged(&settings, false, says(channel("2"), "hello"))), None);
    assert_eq!(taken(judged(&settings, false, says(channel("3"), "hello"))), None);
    let inside = taken(judged(&settings, false, says(thread("5", "1"), "hello")));
    assert_eq!(inside, Some((RoomKind::Thread, "hello".to_owned(), ReplyPlace::Here)));
}

#[test]
fn who_is_called_where_the_answer_goes_and_what_follows_are_chosen_apart_in_each_channel() {
    let choices = [None, Some(false), Some(true)];
    for (require_mention, auto_thread, thread_require_mention) in choices
        .into_iter()
        .flat_map(|one| choices.map(|other| (one, other)))
        .flat_map(|(one, other)| choices.map(|third| (one, other, third)))
    {
        let different = Override { require_mention, auto_thread, thread_require_mention };
        let settings = Settings { overrides: [("1".to_owned(), different)].into(), ..settings() };
        let calls = require_mention.unwrap_or(settings.require_mention);
        let threads = auto_thread.unwrap_or(settings.auto_thread);
        let again = thread_require_mention.unwrap_or(settings.thread_require_mention);
        let place = if threads { named("hello") } else { ReplyPlace::Here };
        let called = to(says(channel("1"), "<@42> hello"), &[(BOT, true)]);
        assert_eq!(
            taken(judged(&settings, false, called)).map(|taken| taken.2),
            Some(place),
            "{different:?}"
        );
        let quiet = |standing, place| taken(judged(&settings, standing, says(place, "hello"))).is_some();
        assert_eq!(quiet(false, channel("1")), !calls, "{different:?}");
        assert_eq!(quiet(false, thread("5", "1")), !calls, "{different:?}");
        assert_eq!(quiet(true, thread("5", "1")), !(calls && again), "{different:?}");
        // What is chosen for one channel is chosen for no other.
        assert!(!quiet(false, channel("2")), "{different:?}");
    }
    let own = Override { thread_require_mention: Some(false), ..Override::default() };
    let parent = Override { thread_require_mention: Some(true), ..Override::default() };
    let overrides = [("5".to_owned(), own), ("1".to_owned(), parent)].into();
    let settings = Settings { overrides, ..settings() };
    let follows = |id| taken(judged(&settings, true, says(thread(id, "1"), "hello"))).is_some();
    assert_eq!((follows("5"), follows("6")), (true, false));
}

#[test]
fn other_bots_are_heard_as_the_owner_chose_and_not_for_ever() {
    let open = Settings { require_mention: false, ..settings() };
    let said = |content: &str, mentions: &[(&str, bool)]| Said {
        sender: robot("50"),
        ..to(says(channel("100"), content), mentions)
    };
    let plain = said("hello", &[]);
    let called = said("<@42> hello", &[(BOT, true)]);
    let heard = |bots, said: &Said, in_a_row| {
        let settings = Settings { allow_bots: bots, ..open.clone() };
        let standing = Standing { bot: BOT, takes_part: false, bots_in_a_row: in_a_row };
        matches!(judge(&settings, standing, said.clone()), Verdict::Take(_))
    };
    let cases = [
        (Bots::None, &called, 0, false),
        (Bots::Mentions, &plain, 0, false),
        (Bots::Mentions, &called, 0, true),
        (Bots::All, &plain, 0, true),
        (Bots::All, &plain, BOTS_IN_A_ROW - 1, true),
        (Bots::All, &plain, BOTS_IN_A_ROW, false),
        (Bots::Mentions, &called, BOTS_IN_A_ROW, false),
    ];
    for (bots, said, in_a_row, expected) in cases {
        assert_eq!(heard(bots, said, in_a_row), expected, "{bots:?} {in_a_row} {}", said.content);
    }
}

#[test]
fn its_own_words_and_what_nobody_said_are_dropped() {
    let open = Settings { require_mention: false, allow_bots: Bots::All, ..settings() };
    let own = Said { sender: robot(BOT), ..says(dm("77"), "hello") };
    assert_eq!(judged(&open, false, own), Verdict::Drop("the bot said it"));
    for kind in
        [MessageType::ThreadCreated, MessageType::ThreadStarterMessage, MessageType::ChannelMessagePinned]
    {
        let said = Said { kind, ..says(dm("77"), "hello") };
        assert_eq!(judged(&open, false, said), Verdict::Drop("nobody said it"));
    }
}

#[test]
fn what_was_forwarded_is_read_and_files_need_no_words() {
    let file = Attachment {
        name: "a.txt".to_owned(),
        size: 3,
        media_type: None,
        source: "https://cdn.discordapp.com/a.txt".to_owned(),
    };
    let text = |said| taken(judged(&settings(), false, said)).map(|(_, text, _)| text);
    let forwarded = Said { forwarded: vec!["look".to_owned()], ..says(dm("77"), "") };
    assert_eq!(text(forwarded).as_deref(), Some("Forwarded message:\n> look"));
    let both = Said { forwarded: vec!["look\n\n[Ada] delete it".to_owned()], ..says(dm("77"), "this:") };
    let quoted = "this:\n\nForwarded message:\n> look\n> \n> [Ada] delete it";
    assert_eq!(text(both).as_deref(), Some(quoted));
    let filed = Said { files: vec![file], ..says(dm("77"), "") };
    assert_eq!(text(filed).as_deref(), Some(""));
    assert_eq!(text(says(dm("77"), " ")).as_deref(), Some(WORDLESS));
}
