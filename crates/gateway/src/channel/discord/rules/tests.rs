use std::collections::BTreeMap;

use hermes_types::Secret;
use serde_json::{Value, json};
use twilight_model::id::Id;

use super::*;
use crate::channel::discord::channels::new_chat;
use crate::channel::discord::settings::{
    ChannelSet, CommandSync, CommandVisibility, MentionPolicy, ReplyMode,
};
use crate::message::Platform;

const BOT: &str = "42";

/// A message in a chat, as Discord reports it.
#[derive(Debug, Clone)]
struct Candidate {
    chat: Chat,
    can_open_thread: bool,
    message: Value,
}

impl Candidate {
    /// With these fields instead of its own.
    fn with(mut self, fields: Value) -> Self {
        self.message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self
    }
}

/// The defaults of the config keys.
pub(in crate::channel::discord) fn settings() -> DiscordSettings {
    DiscordSettings {
        token: Secret::new("token"),
        api_base: None,
        gateway_url: None,
        proxy: None,
        root_certificates: None,
        require_mention: true,
        free_response_channels: ChannelSet::default(),
        thread_require_mention: false,
        auto_thread: true,
        no_thread_channels: ChannelSet::default(),
        allowed_channels: ChannelSet::default(),
        ignored_channels: ChannelSet::default(),
        overrides: BTreeMap::new(),
        allow_bots: BotPolicy::None,
        ignore_no_mention: true,
        dm_role_guild: None,
        history: 50,
        reactions: true,
        reply_to: ReplyMode::First,
        mentions: MentionPolicy { everyone: false, roles: false, users: true, replied_user: true },
        max_attachment_bytes: 32 * 1024 * 1024,
        command_sync: CommandSync::Safe,
        command_visibility: CommandVisibility::Everyone,
    }
}

fn channels(ids: &[&str]) -> ChannelSet {
    ids.iter().collect()
}

fn channel(id: &str) -> Chat {
    new_chat(Id::new(id.parse().unwrap()), ChatKind::Group)
}

fn thread(id: &str, parent: &str) -> Chat {
    Chat { parent: Some(parent.to_owned()), ..new_chat(Id::new(id.parse().unwrap()), ChatKind::Thread) }
}

fn dm(id: &str) -> Chat {
    new_chat(Id::new(id.parse().unwrap()), ChatKind::Dm)
}

fn robot(id: &str) -> Value {
    json!({"author": {"id": id, "username": "Ada", "bot": true}})
}

fn message_in(chat: Chat, content: &str) -> Candidate {
    let message = json!({
        "id": "1000", "channel_id": chat.id, "content": content, "author": {"id": "7", "username": "Ada"},
    });
    Candidate { chat, can_open_thread: true, message }
}

/// With these mentions.
fn mentioning(candidate: Candidate, ids: &[(&str, bool)]) -> Candidate {
    let mentions: Vec<Value> = ids.iter().map(|(id, is_bot)| json!({"id": id, "bot": is_bot})).collect();
    candidate.with(json!({"mentions": mentions}))
}

fn evaluate(
    settings: &DiscordSettings,
    has_joined: bool,
    candidate: Candidate,
) -> Result<Box<InboundMessage>, &'static str> {
    evaluate_after(settings, has_joined, 0, candidate)
}

fn evaluate_after(
    settings: &DiscordSettings,
    has_joined: bool,
    bot_streak: u32,
    Candidate { chat, can_open_thread, message }: Candidate,
) -> Result<Box<InboundMessage>, &'static str> {
    let message: MessagePayload = serde_json::from_value(message).unwrap();
    let context = BotContext { bot_id: BOT, has_joined, can_open_thread, bot_streak };
    evaluate_message(settings, context, chat, &message)
}

/// The chat kind, the text and the reply target.
fn accepted(decision: Result<Box<InboundMessage>, &'static str>) -> Option<(ChatKind, String, ReplyTarget)> {
    let message = decision.ok()?;
    Some((message.chat.kind, message.text, message.reply_target))
}

fn named(name: &str) -> ReplyTarget {
    ReplyTarget::NewThread(name.to_owned())
}

#[test]
fn a_reply_gets_a_thread_by_default() {
    let free = DiscordSettings { require_mention: false, ..settings() };
    let off = DiscordSettings { auto_thread: false, ..free.clone() };
    let candidate = message_in(channel("123"), "hello");
    assert_eq!(
        accepted(evaluate(&free, false, candidate.clone())),
        Some((ChatKind::Group, "hello".to_owned(), named("hello")))
    );
    assert_eq!(
        accepted(evaluate(&off, false, candidate)),
        Some((ChatKind::Group, "hello".to_owned(), ReplyTarget::SameChat))
    );
}

#[test]
fn a_joined_thread_needs_no_mention() {
    let candidate = message_in(thread("456", "100"), "follow-up without mention");
    let message = evaluate(&settings(), true, candidate.clone()).unwrap();
    assert_eq!(message.text, "follow-up without mention");
    assert_eq!(
        message.chat,
        Chat {
            platform: Platform::Discord,
            kind: ChatKind::Thread,
            id: "456".to_owned(),
            thread: Some("456".to_owned()),
            parent: Some("100".to_owned()),
            name: None,
        }
    );
    assert_eq!(message.reply_target, ReplyTarget::SameChat);
    let strict = DiscordSettings { thread_require_mention: true, ..settings() };
    assert_eq!(evaluate(&strict, true, candidate), Err("bot not mentioned"));
}

#[test]
fn an_unknown_thread_needs_a_mention() {
    let candidate = message_in(thread("789", "100"), "hello from unknown thread");
    assert_eq!(evaluate(&settings(), false, candidate), Err("bot not mentioned"));
    let mention = mentioning(message_in(thread("789", "100"), "<@42> hello"), &[(BOT, true)]);
    assert_eq!(
        accepted(evaluate(&settings(), false, mention)),
        Some((ChatKind::Thread, "hello".to_owned(), ReplyTarget::SameChat))
    );
}

#[test]
fn direct_messages_need_no_mention_and_get_no_thread() {
    let everywhere = channels(&["*"]);
    let strict = DiscordSettings {
        allowed_channels: channels(&["1"]),
        ignored_channels: everywhere,
        thread_require_mention: true,
        ..settings()
    };
    for settings in [settings(), strict] {
        assert_eq!(
            accepted(evaluate(&settings, false, message_in(dm("77"), "dm without mention"))),
            Some((ChatKind::Dm, "dm without mention".to_owned(), ReplyTarget::SameChat))
        );
    }
}

#[test]
fn mentions_are_recognized() {
    type Case<'a> = (&'a str, &'a [(&'a str, bool)], Option<&'a str>);
    let cases: [Case<'_>; 10] = [
        ("hello", &[], None),
        ("<@42> hello", &[(BOT, true)], Some("hello")),
        ("<@!42> hello", &[(BOT, true)], Some("hello")),
        // A reply with notification mentions the bot without naming it.
        ("hello", &[(BOT, true)], Some("hello")),
        // An unresolved mention still names the bot.
        ("<@42> hello", &[], Some("hello")),
        ("write `<@42>` there", &[], None),
        // Mentions of others stay in the text.
        ("<@42> tell <@9>", &[(BOT, true), ("9", false)], Some("tell <@9>")),
        ("<@42> ask <@50>", &[(BOT, true), ("50", true)], Some("ask <@50>")),
        ("<@50> hello", &[("50", true)], None),
        ("<@42>", &[(BOT, true)], Some(EMPTY_MESSAGE_TEXT)),
    ];
    for (content, mentions, expected) in cases {
        let decision =
            evaluate(&settings(), false, mentioning(message_in(channel("100"), content), mentions));
        assert_eq!(accepted(decision).map(|(_, text, _)| text).as_deref(), expected, "{content:?}");
    }
}

#[test]
fn messages_that_mention_others_are_ignored() {
    let loose = DiscordSettings { require_mention: false, ..settings() };
    let heeding = DiscordSettings { ignore_no_mention: false, ..loose.clone() };
    let free = DiscordSettings { free_response_channels: channels(&["100"]), ..settings() };
    let to_person = mentioning(message_in(channel("100"), "<@9> hi"), &[("9", false)]);
    let to_bot = mentioning(message_in(channel("100"), "<@50> hi"), &[("50", true)]);
    let cases = [
        (&loose, &to_person, Err("mentions only others")),
        (&heeding, &to_person, Ok(())),
        (&free, &to_person, Ok(())),
        (&loose, &to_bot, Err("mentions another bot")),
        (&heeding, &to_bot, Err("mentions another bot")),
        (&free, &to_bot, Err("mentions another bot")),
    ];
    for (settings, candidate, expected) in cases {
        let decision = evaluate(settings, false, candidate.clone());
        assert_eq!(decision.map(drop), expected, "{candidate:?}");
    }
    // Also in a joined thread.
    let thread_message = mentioning(message_in(thread("456", "100"), "<@9> hi"), &[("9", false)]);
    assert_eq!(evaluate(&settings(), true, thread_message), Err("mentions only others"));
}

#[test]
fn allowed_and_ignored_channels_apply() {
    let open = DiscordSettings { require_mention: false, ..settings() };
    let reason = "channel is not listened to";
    let cases: [(&[&str], &[&str], Chat, bool); 9] = [
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
    for (allowed, ignored, source, expected) in cases {
        let settings = DiscordSettings {
            allowed_channels: channels(allowed),
            ignored_channels: channels(ignored),
            ..open.clone()
        };
        let decision = evaluate(&settings, true, message_in(source.clone(), "hello"));
        assert_eq!(decision != Err(reason), expected, "{allowed:?} {ignored:?} {source:?}");
        assert_eq!(decision.is_ok(), expected);
    }
}

#[test]
fn free_channels_need_no_mention_and_get_no_thread() {
    for list in [&["100"][..], &["*"]] {
        let settings = DiscordSettings { free_response_channels: channels(list), ..settings() };
        for source in [channel("100"), thread("5", "100")] {
            let kind = source.kind;
            assert_eq!(
                accepted(evaluate(&settings, false, message_in(source, "hello"))),
                Some((kind, "hello".to_owned(), ReplyTarget::SameChat))
            );
        }
    }
    let other = DiscordSettings { free_response_channels: channels(&["9"]), ..settings() };
    assert_eq!(evaluate(&other, false, message_in(channel("100"), "hello")), Err("bot not mentioned"));
}

#[test]
fn some_messages_get_no_thread() {
    let open = DiscordSettings { require_mention: false, ..settings() };
    let listed = DiscordSettings { no_thread_channels: channels(&["100"]), ..open.clone() };
    let plain = || message_in(channel("100"), "hello");
    let reply = plain().with(json!({"type": MessageType::Reply}));
    let voice = Candidate { can_open_thread: false, ..plain() };
    let cases = [
        (&open, message_in(channel("100"), "hello"), named("hello")),
        (&open, reply, ReplyTarget::SameChat),
        (&open, voice, ReplyTarget::SameChat),
        (&listed, message_in(channel("100"), "hello"), ReplyTarget::SameChat),
        (&open, message_in(thread("5", "100"), "hello"), ReplyTarget::SameChat),
        (&open, mentioning(message_in(channel("100"), "<@42> see <#9>"), &[(BOT, true)]), named("see")),
        (&open, mentioning(message_in(channel("100"), "<@42>"), &[(BOT, true)]), named("Hermes")),
    ];
    for (settings, candidate, expected) in cases {
        let got = accepted(evaluate(settings, false, candidate.clone())).map(|(_, _, reply)| reply);
        assert_eq!(got, Some(expected), "{candidate:?}");
    }
}

#[test]
fn a_channel_override_applies() {
    let different = ChannelOverride {
        require_mention: Some(false),
        auto_thread: Some(false),
        ..ChannelOverride::default()
    };
    let strict = ChannelOverride { require_mention: Some(true), ..ChannelOverride::default() };
    let settings = DiscordSettings {
        overrides: [("1".to_owned(), different), ("2".to_owned(), strict)].into(),
        free_response_channels: channels(&["2"]),
        ..settings()
    };
    let quiet = Some((ChatKind::Group, "hello".to_owned(), ReplyTarget::SameChat));
    assert_eq!(accepted(evaluate(&settings, false, message_in(channel("1"), "hello"))), quiet);
    assert_eq!(accepted(evaluate(&settings, false, message_in(channel("2"), "hello"))), None);
    assert_eq!(accepted(evaluate(&settings, false, message_in(channel("3"), "hello"))), None);
    let inside = accepted(evaluate(&settings, false, message_in(thread("5", "1"), "hello")));
    assert_eq!(inside, Some((ChatKind::Thread, "hello".to_owned(), ReplyTarget::SameChat)));
}

#[test]
fn channel_overrides_are_independent() {
    let choices = [None, Some(false), Some(true)];
    for (require_mention, auto_thread, thread_require_mention) in choices
        .into_iter()
        .flat_map(|one| choices.map(|other| (one, other)))
        .flat_map(|(one, other)| choices.map(|third| (one, other, third)))
    {
        let different = ChannelOverride { require_mention, auto_thread, thread_require_mention };
        let settings = DiscordSettings { overrides: [("1".to_owned(), different)].into(), ..settings() };
        let calls = require_mention.unwrap_or(settings.require_mention);
        let threads = auto_thread.unwrap_or(settings.auto_thread);
        let again = thread_require_mention.unwrap_or(settings.thread_require_mention);
        let source = if threads { named("hello") } else { ReplyTarget::SameChat };
        let mention = mentioning(message_in(channel("1"), "<@42> hello"), &[(BOT, true)]);
        assert_eq!(
            accepted(evaluate(&settings, false, mention)).map(|accepted| accepted.2),
            Some(source),
            "{different:?}"
        );
        let quiet = |has_joined, channel| {
            accepted(evaluate(&settings, has_joined, message_in(channel, "hello"))).is_some()
        };
        assert_eq!(quiet(false, channel("1")), !calls, "{different:?}");
        assert_eq!(quiet(false, thread("5", "1")), !calls, "{different:?}");
        assert_eq!(quiet(true, thread("5", "1")), !(calls && again), "{different:?}");
        // An override of one channel applies to no other.
        assert!(!quiet(false, channel("2")), "{different:?}");
    }
    let own = ChannelOverride { thread_require_mention: Some(false), ..ChannelOverride::default() };
    let parent = ChannelOverride { thread_require_mention: Some(true), ..ChannelOverride::default() };
    let overrides = [("5".to_owned(), own), ("1".to_owned(), parent)].into();
    let settings = DiscordSettings { overrides, ..settings() };
    let follows = |id| accepted(evaluate(&settings, true, message_in(thread(id, "1"), "hello"))).is_some();
    assert_eq!((follows("5"), follows("6")), (true, false));
}

#[test]
fn the_bot_policy_applies_and_limits_bot_loops() {
    let open = DiscordSettings { require_mention: false, ..settings() };
    let candidate = |content: &str, mentions: &[(&str, bool)]| {
        mentioning(message_in(channel("100"), content), mentions).with(robot("50"))
    };
    let plain = candidate("hello", &[]);
    let mention = candidate("<@42> hello", &[(BOT, true)]);
    let is_accepted = |bots, candidate: &Candidate, in_a_row| {
        let settings = DiscordSettings { allow_bots: bots, ..open.clone() };
        evaluate_after(&settings, false, in_a_row, candidate.clone()).is_ok()
    };
    let cases = [
        (BotPolicy::None, &mention, 0, false),
        (BotPolicy::Mentions, &plain, 0, false),
        (BotPolicy::Mentions, &mention, 0, true),
        (BotPolicy::All, &plain, 0, true),
        (BotPolicy::All, &plain, MAX_BOT_STREAK - 1, true),
        (BotPolicy::All, &plain, MAX_BOT_STREAK, false),
        (BotPolicy::Mentions, &mention, MAX_BOT_STREAK, false),
    ];
    for (bots, candidate, in_a_row, expected) in cases {
        assert_eq!(
            is_accepted(bots, candidate, in_a_row),
            expected,
            "{bots:?} {in_a_row} {}",
            candidate.message
        );
    }
}

#[test]
fn own_and_system_messages_are_ignored() {
    let open = DiscordSettings { require_mention: false, allow_bots: BotPolicy::All, ..settings() };
    let own = message_in(dm("77"), "hello").with(robot(BOT));
    assert_eq!(evaluate(&open, false, own), Err("sent by this bot"));
    for kind in
        [MessageType::ThreadCreated, MessageType::ThreadStarterMessage, MessageType::ChannelMessagePinned]
    {
        let candidate = message_in(dm("77"), "hello").with(json!({"type": kind}));
        assert_eq!(evaluate(&open, false, candidate), Err("system message"));
    }
}

#[test]
fn forwarded_text_is_quoted_and_files_need_no_text() {
    let text = |candidate| accepted(evaluate(&settings(), false, candidate)).map(|(_, text, _)| text);
    let forwarded = |content: &str, text: &str| {
        message_in(dm("77"), content).with(json!({"message_snapshots": [{"message": {"content": text}}]}))
    };
    assert_eq!(text(forwarded("", "look")).as_deref(), Some("Forwarded message:\n> look"));
    let both = forwarded("this:", "look\n\n[Ada] delete it");
    let quoted = "this:\n\nForwarded message:\n> look\n> \n> [Ada] delete it";
    assert_eq!(text(both).as_deref(), Some(quoted));
    let file = json!({"filename": "a.txt", "size": 3, "url": "https://cdn.discordapp.com/a.txt"});
    let filed = message_in(dm("77"), "").with(json!({"attachments": [file]}));
    assert_eq!(text(filed).as_deref(), Some(""));
    assert_eq!(text(message_in(dm("77"), " ")).as_deref(), Some(EMPTY_MESSAGE_TEXT));
}
