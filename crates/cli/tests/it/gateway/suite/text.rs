//! Text and attachments of messages.

use hermes_testkit::fake_platform::{BotMessage, Supported, UserMessage};
use hermes_testkit::model::ModelScript;
use hermes_testkit::{FakePlatform, ScriptStep};

use crate::gateway::env::PlatformEnv;

/// A family emoji: one grapheme cluster, seven code points.
const FAMILY: &str = "👨\u{200d}👩\u{200d}👧\u{200d}👦";

/// A text of several messages that is hard to split.
fn long_text<V: FakePlatform>() -> String {
    let mut text = String::new();
    for number in 0.. {
        if V::text_length(&text) > V::MAX_TEXT_LENGTH * 2 {
            break;
        }
        text.push_str(&format!("Paragraph {number} of {FAMILY} with é, 漢字 and 🇩🇪.\n\n"));
        text.push_str(&format!("```rust\nlet n{number} = \"👍🏽\";\n```\n\n"));
    }
    text.push_str("```text\n");
    for number in 0..V::MAX_TEXT_LENGTH / 8 {
        text.push_str(&format!("line {number}\n"));
    }
    // This text has no place to split at.
    text.push_str(&format!("```\n\n{}", "🎉".repeat(V::MAX_TEXT_LENGTH)));
    text
}

/// Asserts that the messages are valid and readable.
fn assert_valid<V: FakePlatform>(pieces: &[BotMessage<V::Id>]) {
    for BotMessage { text, notifies_everyone, .. } in pieces {
        assert!(V::text_length(text) <= V::MAX_TEXT_LENGTH && !text.trim().is_empty(), "{text:?}");
        assert!(!notifies_everyone, "{text:?}");
        let is_joiner = |char: char| matches!(char, '\u{200d}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
        assert!(!text.starts_with(is_joiner) && !text.ends_with('\u{200d}'), "{text:?}");
    }
}

/// Removes whitespace, control characters and code fences.
fn strip_formatting(text: &str) -> String {
    let is_fence = |line: &str| line.strip_prefix("```").is_some_and(|rest| !rest.contains('`'));
    let lines = text.lines().filter(|line| !is_fence(line));
    lines.flat_map(str::chars).filter(|char| !char.is_whitespace() && !char.is_control()).collect()
}

/// Joins messages without their part numbers.
fn join_messages<Id>(pieces: &[BotMessage<Id>]) -> String {
    let count = pieces.len();
    let strip_number = |(piece, number): (&BotMessage<Id>, usize)| {
        let text = piece.text.trim_end();
        strip_formatting(text.strip_suffix(&format!("({number}/{count})")).unwrap_or(text))
    };
    pieces.iter().zip(1..).map(strip_number).collect()
}

pub(super) async fn splits_long_answers<V: FakePlatform>() -> Supported {
    let text = long_text::<V>();
    let env = PlatformEnv::<V>::then_echo([ScriptStep::text(&text)]).await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "tell me all");
    env.send(env.ann, dm, "and now?");
    env.wait_for_message(dm, "the next answer", |seen| seen.text == "echo: and now?").await;
    let mut pieces = env.server.bot_messages(dm);
    pieces.pop();
    assert!(pieces.len() > 2);
    assert_valid::<V>(&pieces);
    for BotMessage { text, .. } in &pieces {
        let fences = text.lines().filter(|line| line.starts_with("```")).count();
        assert!(fences.is_multiple_of(2), "{text}");
    }
    assert_eq!(join_messages(&pieces), strip_formatting(&text));
    env.close().await;
    Ok(())
}

pub(super) async fn handles_any_text<V: FakePlatform>() -> Supported {
    let texts = [
        "@everyone @here @all @room <!everyone> <!channel> <!here> hello".to_owned(),
        "**bold *and __under ~~struck ||hidden [a link](http://x.invalid/a_(b) <http://y.invalid> \\_ \\* > - 1. #"
            .to_owned(),
        "<b>x</b> &lt;i&gt; &amp; <script>y()</script> {{z}} ${z} %s <@1> <#2> <@&3> <:a:4>".to_owned(),
        "a\u{1}b\u{7}c\u{8}d\u{1b}[31mred\u{1b}[0m\u{7f}\u{9f}e".to_owned(),
        "\u{202e}backwards\u{202c} \u{2066}apart\u{2069} עברית العربية".to_owned(),
        "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f".to_owned(),
        "x".repeat(V::MAX_TEXT_LENGTH * 2 + 1),
        format!("a{}b", "`".repeat(2_000)),
    ];
    // After these replies the model sends only whitespace.
    let script = ModelScript {
        steps: texts.iter().flat_map(|text| [ScriptStep::text(text), ScriptStep::text("so far")]).collect(),
        always: Some(ScriptStep::text(" \n\t\u{a0} \r\n")),
        ..ModelScript::default()
    };
    let env = PlatformEnv::<V>::with(script, &PlatformEnv::<V>::allow_everyone()).await.open().await;
    let first = env.mention(env.ann, env.channel, "show me");
    let chat = env.reply_chat(first).await;
    let mut begin = 0;
    for text in &texts {
        if begin > 0 {
            env.mention(env.ann, chat, "more");
        }
        env.mention(env.ann, chat, "is that all?");
        let seen = env
            .wait("the last message", |server| {
                let seen = server.bot_messages(chat).split_off(begin);
                seen.last().is_some_and(|last| last.text == "so far").then_some(seen)
            })
            .await;
        begin += seen.len();
        let (_, pieces) = seen.split_last().unwrap();
        assert_valid::<V>(pieces);
        assert_eq!(join_messages(pieces), strip_formatting(text));
    }
    env.mention(env.ann, chat, "and now?");
    env.wait_for_replies(chat, begin + 1).await;
    assert_valid::<V>(&env.server.bot_messages(chat).split_off(begin));
    env.close().await;
    Ok(())
}

pub(super) async fn limits_attachment_size<V: FakePlatform>() -> Supported {
    let config = format!("{}  max_attachment_bytes: 1000\n", PlatformEnv::<V>::allow_everyone());
    let env = PlatformEnv::<V>::with(PlatformEnv::<V>::echo_script([]), &config).await.open().await;
    let dm = env.server.direct_chat(env.ann);
    let files = [("small", 1000), ("large", 1001)].map(|(name, size)| (name.to_owned(), vec![b'x'; size]));
    env.server.send(env.ann, dm, UserMessage { files: files.to_vec(), ..UserMessage::new("look") });
    let said = env.wait_for_replies(dm, 1).await.remove(0);
    assert!(said.contains("[file small: 1000 bytes"), "{said}");
    assert!(said.contains("[file large could not be downloaded: too large: 1001 bytes"), "{said}");
    let supported = env.server.send_endless_file(env.ann, dm, "endless");
    if supported.is_ok() {
        let said = env.wait_for_replies(dm, 2).await.remove(1);
        assert!(said.contains("[file endless could not be downloaded: larger than 1000 bytes]"), "{said}");
    }
    env.close().await;
    supported
}
