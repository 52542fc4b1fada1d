//! What is written in messages.

use hermes_testkit::model::Script;
use hermes_testkit::venue::{Able, Seen, Words};
use hermes_testkit::{Step, Venue};

use crate::hall::Bed;

/// A family, which is one character to a reader and seven to a program.
const FAMILY: &str = "👨\u{200d}👩\u{200d}👧\u{200d}👦";

/// A text of several messages, with places that are bad for a cut.
fn long<V: Venue>() -> String {
    let mut text = String::new();
    for number in 0.. {
        if V::length(&text) > V::LONGEST * 2 {
            break;
        }
        text.push_str(&format!("Paragraph {number} of {FAMILY} with é, 漢字 and 🇩🇪.\n\n"));
        text.push_str(&format!("```rust\nlet n{number} = \"👍🏽\";\n```\n\n"));
    }
    text.push_str("```text\n");
    for number in 0..V::LONGEST / 8 {
        text.push_str(&format!("line {number}\n"));
    }
    // Nowhere to cut.
    text.push_str(&format!("```\n\n{}", "🎉".repeat(V::LONGEST)));
    text
}

/// Whether a platform takes such messages, and a reader can read them.
fn are_valid<V: Venue>(pieces: &[Seen<V::Id>]) {
    for Seen { text, rings, .. } in pieces {
        assert!(V::length(text) <= V::LONGEST && !text.trim().is_empty(), "{text:?}");
        assert!(!rings, "{text:?}");
        let is_joiner = |char: char| matches!(char, '\u{200d}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
        assert!(!text.starts_with(is_joiner) && !text.ends_with('\u{200d}'), "{text:?}");
    }
}

/// A text without blanks, what cannot be seen, and the lines that begin and end code.
fn bare(text: &str) -> String {
    let is_fence = |line: &str| line.strip_prefix("```").is_some_and(|rest| !rest.contains('`'));
    let lines = text.lines().filter(|line| !is_fence(line));
    lines.flat_map(str::chars).filter(|char| !char.is_whitespace() && !char.is_control()).collect()
}

/// Messages as one text, without their numbers.
fn joined<Id>(pieces: &[Seen<Id>]) -> String {
    let count = pieces.len();
    let one = |(piece, number): (&Seen<Id>, usize)| {
        let text = piece.text.trim_end();
        bare(text.strip_suffix(&format!("({number}/{count})")).unwrap_or(text))
    };
    pieces.iter().zip(1..).map(one).collect()
}

pub(super) async fn splits_long_answers<V: Venue>() -> Able {
    let text = long::<V>();
    let bed = Bed::<V>::then_echo([Step::text(&text)]).await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "tell me all");
    bed.say(bed.ann, dm, "and now?");
    bed.saw(dm, "the next answer", |seen| seen.text == "echo: and now?").await;
    let mut pieces = bed.server.seen(dm);
    pieces.pop();
    assert!(pieces.len() > 2);
    are_valid::<V>(&pieces);
    for Seen { text, .. } in &pieces {
        let fences = text.lines().filter(|line| line.starts_with("```")).count();
        assert!(fences.is_multiple_of(2), "{text}");
    }
    assert_eq!(joined(&pieces), bare(&text));
    bed.close().await;
    Ok(())
}

pub(super) async fn stands_any_text<V: Venue>() -> Able {
    let texts = [
        "@everyone @here @all @room <!everyone> <!channel> <!here> hello".to_owned(),
        "**bold *and __under ~~struck ||hidden [a link](http://x.invalid/a_(b) <http://y.invalid> \\_ \\* > - 1. #"
            .to_owned(),
        "<b>x</b> &lt;i&gt; &amp; <script>y()</script> {{z}} ${z} %s <@1> <#2> <@&3> <:a:4>".to_owned(),
        "a\u{1}b\u{7}c\u{8}d\u{1b}[31mred\u{1b}[0m\u{7f}\u{9f}e".to_owned(),
        "\u{202e}backwards\u{202c} \u{2066}apart\u{2069} עברית العربية".to_owned(),
        "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f".to_owned(),
        "x".repeat(V::LONGEST * 2 + 1),
        format!("a{}b", "`".repeat(2_000)),
    ];
    // After them the model says nothing but blanks, however often it is asked.
    let script = Script {
        steps: texts.iter().flat_map(|text| [Step::text(text), Step::text("so far")]).collect(),
        always: Some(Step::text(" \n\t\u{a0} \r\n")),
        ..Script::default()
    };
    let bed = Bed::<V>::with(script, &Bed::<V>::everybody()).await.open().await;
    let first = bed.call(bed.ann, bed.channel, "show me");
    let room = bed.answered_in(first).await;
    let mut begin = 0;
    for text in &texts {
        if begin > 0 {
            bed.call(bed.ann, room, "more");
        }
        bed.call(bed.ann, room, "is that all?");
        let seen = bed
            .wait("the end of it", |server| {
                let seen = server.seen(room).split_off(begin);
                seen.last().is_some_and(|last| last.text == "so far").then_some(seen)
            })
            .await;
        begin += seen.len();
        let (_, pieces) = seen.split_last().unwrap();
        are_valid::<V>(pieces);
        assert_eq!(joined(pieces), bare(text));
    }
    bed.call(bed.ann, room, "and now?");
    bed.said(room, begin + 1).await;
    are_valid::<V>(&bed.server.seen(room).split_off(begin));
    bed.close().await;
    Ok(())
}

pub(super) async fn caps_media<V: Venue>() -> Able {
    let config = format!("{}  max_attachment_bytes: 1000\n", Bed::<V>::everybody());
    let bed = Bed::<V>::with(Bed::<V>::echoing([]), &config).await.open().await;
    let dm = bed.server.direct(bed.ann);
    let files = [("small", 1000), ("large", 1001)].map(|(name, size)| (name.to_owned(), vec![b'x'; size]));
    bed.server.tell(bed.ann, dm, Words { files: files.to_vec(), ..Words::new("look") });
    let said = bed.said(dm, 1).await.remove(0);
    assert!(said.contains("[file small: 1000 bytes"), "{said}");
    assert!(said.contains("[file large was not fetched: it is too large: 1001 bytes"), "{said}");
    let able = bed.server.bluff(bed.ann, dm, "endless");
    if able.is_ok() {
        let said = bed.said(dm, 2).await.remove(1);
        assert!(said.contains("[file endless was not fetched: it is larger than 1000 bytes]"), "{said}");
    }
    bed.close().await;
    able
}
