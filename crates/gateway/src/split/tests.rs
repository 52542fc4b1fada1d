//! Texts that are hard to split.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn capabilities(max_len: usize) -> Capabilities {
    Capabilities {
        max_message_len: max_len,
        can_edit: true,
        typing_interval: Duration::from_secs(10),
        min_edit_interval: Duration::from_secs(1),
        max_files: 10,
        max_file_bytes: 1,
    }
}

fn split(text: &str, max_len: usize) -> Vec<String> {
    split_message(text, &capabilities(max_len))
}

/// Properties of every split, except for code blocks.
fn check(text: &str, max_len: usize) -> Vec<String> {
    let parts = split_message(text, &capabilities(max_len));
    let limit = max_len.max(2);
    for part in &parts {
        assert!(!part.trim().is_empty(), "an empty part of {text:?} at {max_len}: {parts:?}");
        assert!(message_len(part) <= limit, "{} > {max_len}: {part:?}", message_len(part));
    }
    if parts.len() > 1 {
        let ends =
            parts.iter().zip(1..).filter(|(part, n)| part.ends_with(&format!("({n}/{})", parts.len())));
        let numbered = ends.count();
        assert!(max_len < 60 || numbered == parts.len(), "{parts:?}");
    }
    parts
}

/// Whether the parts contain the whole text except for whitespace.
fn check_pieces(text: &str, max_len: usize) {
    let text = trim_blank_ends(text);
    let mut end = 0;
    for piece in MessageSplitter::new(text, max_len).slices() {
        let gap = text.get(end..piece.body.start).expect("in order");
        assert!(gap.trim().is_empty(), "{gap:?} of {text:?} is lost at {max_len}");
        end = piece.body.end;
    }
    assert_eq!(end, text.len());
}

/// Whether every opened block is closed.
fn is_balanced(part: &str) -> bool {
    let mut open: Option<&str> = None;
    for line in part.lines().map(str::trim) {
        let ticks: &str = line.split(|char| char != '`').next().unwrap();
        let rest = line.strip_prefix(ticks).unwrap();
        open = match open {
            None if ticks.len() >= 3 && !rest.contains('`') => Some(ticks),
            Some(open) if ticks.len() >= open.len() && rest.is_empty() => None,
            other => other,
        };
    }
    open.is_none()
}

#[test]
fn a_short_text_is_unchanged() {
    for text in ["", " \n ", "\n\n"] {
        assert_eq!(split(text, 10), Vec::<String>::new());
    }
    assert_eq!(split("0123456789", 10), ["0123456789"]);
    assert_eq!(split("\n\n  a\nb \n", 10), ["  a\nb"]);
    assert_eq!(split("```rust\nlet x", 100), ["```rust\nlet x"]);
}

#[test]
fn cuts_prefer_paragraphs_lines_and_words() {
    let words = "one two three four five six seven";
    assert_eq!(split(words, 24), ["one two three four (1/2)", "five six seven (2/2)"]);
    let lines = "one two\nthree\nfour five six seven";
    assert_eq!(split(lines, 26), ["one two\nthree (1/2)", "four five six seven (2/2)"]);
    let paragraphs = "one two three\n\nfour\nfive six seven";
    assert_eq!(split(paragraphs, 28), ["one two three (1/2)", "four\nfive six seven (2/2)"]);
    let early = "one\ntwothreefourfive sixseveneight";
    assert_eq!(split(early, 28), ["one\ntwothreefourfive (1/2)", "sixseveneight (2/2)"]);
    let indented = "- one two three four\n  - five\n  - six";
    assert_eq!(split(indented, 30), ["- one two three four (1/2)", "  - five\n  - six (2/2)"]);
}

#[test]
fn a_code_block_is_closed_and_reopened_with_its_language() {
    let text = format!("Look:\n\n```rust\n{}```\nDone.", "let a = 1;\n".repeat(12));
    let parts = split(&text, 100);
    assert_eq!(
        parts,
        [
            format!("Look:\n\n```rust\n{}```\n(1/2)", "let a = 1;\n".repeat(6)),
            format!("```rust\n{}```\nDone. (2/2)", "let a = 1;\n".repeat(6)),
        ]
    );
}

#[test]
fn a_late_block_starts_in_the_next_part() {
    let text = format!("{}\n```\n{}```", "words ".repeat(12).trim_end(), "code\n".repeat(10));
    let parts = split(&text, 100);
    assert_eq!(
        parts,
        [
            format!("{} (1/2)", "words ".repeat(12).trim_end()),
            format!("```\n{}```\n(2/2)", "code\n".repeat(10)),
        ]
    );
}

#[test]
fn a_block_without_end_is_closed_in_each_part() {
    let text = format!("```py\n{}", "x = 1\n".repeat(40));
    let parts = check(&text, 80);
    assert!(parts.len() > 1 && parts.iter().all(|part| is_balanced(part)), "{parts:?}");
}

#[test]
fn a_nested_fence_stays_in_its_block() {
    let text = format!("````md\n{}````\nafter", "```js\nlet a\n```\n".repeat(10));
    for part in check(&text, 90) {
        assert!(part.starts_with("````md\n"), "{part:?}");
        assert!(is_balanced(&part), "{part:?}");
    }
}

#[test]
fn code_links_and_urls_stay_whole() {
    let filler = "word ".repeat(8);
    for whole in [
        "`cargo test --all features`",
        "``a ` b c d e f g h i j k``",
        "[a link with words](https://example.com/a_(b))",
        "https://example.com/some/long-path-with-dashes/and-more",
    ] {
        for shift in 0..30 {
            let text = format!("{}{filler}{whole} {filler}{filler}", "x".repeat(shift));
            let parts = check(&text, 80);
            assert!(parts.iter().any(|part| part.contains(whole)), "{whole} at {shift}: {parts:?}");
        }
    }
}

#[test]
fn a_cut_does_not_turn_inline_ticks_into_a_fence() {
    for shift in 0..40 {
        let text = format!("{} ``` words {}", "x".repeat(shift), "word ".repeat(30));
        let parts = check(&text, 60);
        assert!(parts.iter().skip(1).all(|part| !part.starts_with("```")), "{parts:?}");
    }
}

#[test]
fn grapheme_clusters_are_not_cut() {
    let family = "👩‍👩‍👧‍👦";
    for max_len in [24, 50, 61] {
        for part in check(&family.repeat(40), max_len) {
            let bare = part.rsplit_once(" (").map_or(part.as_str(), |(bare, _)| bare);
            assert_eq!(bare.replace(family, ""), "", "{max_len}");
        }
    }
    let accents = format!("e{}", "\u{301}".repeat(500));
    check(&accents, 50);
    check_pieces(&accents, 50);
}

#[test]
fn length_is_measured_in_utf16_units() {
    let text = "😀".repeat(3_000);
    assert_eq!(split(&text, 6_000).len(), 1);
    let parts = check(&text, 4_096);
    assert_eq!(parts.len(), 2);
    assert!(parts[0].encode_utf16().count() >= 4_090);
}

#[test]
fn no_text_is_lost() {
    let texts = [
        "x".repeat(10_000),
        " ".repeat(1_000) + "x" + &" ".repeat(1_000) + "y",
        "`".repeat(1_000),
        "[".repeat(1_000),
        "](".repeat(500),
        format!("```{}\ncode\n```\nafter", "i".repeat(3_000)),
        format!("{}```\ncode\n    ```{}\nafter", "\n".repeat(1_000), " ".repeat(1_000)),
        format!("```\n{}```", "\n".repeat(1_000)),
        format!("```\n{}\n```", "x".repeat(1_000)),
        "line\r\n".repeat(200),
        format!("```sh\r\n{}```\r\nend", "echo hello\r\n".repeat(100)),
        "שלום עולם ".repeat(100) + "\u{200f}",
        "日本語の文章には空白がありません。".repeat(60),
        "a\u{a0}".repeat(500),
        "~~~\n```\n~~~\n".repeat(200),
    ];
    for text in &texts {
        for max_len in [1, 2, 3, 7, 24, 33, 50, 100, 2_000] {
            check(text, max_len);
            check_pieces(text, max_len.max(2));
        }
    }
}

#[test]
fn long_runs_are_cut_too() {
    let many = |text: &str| text.repeat(100_000 / text.len());
    for run in [" ", "\t \n", "`", "](", "[", "a://", "a`b``", "```\nx\n```\n", "\u{301}"] {
        for text in [format!("y{}x", many(run)), format!("```\ny{}x", many(run))] {
            check(&text, 2_000);
            check_pieces(&text, 2_000);
        }
    }
    assert_eq!(split(&format!("{}x", many(" ")), 2_000), ["x"]);
    assert_eq!(split(&format!("y{}x", many(" ")), 2_000), ["y (1/2)", "x (2/2)"]);
}

#[test]
fn a_cut_at_a_delimiter_leaves_no_block_open_or_empty() {
    for before in 0..90 {
        let text =
            format!("{}\n```rust\n{}\n```\nand {}", "p".repeat(before), "c\n".repeat(20), "more ".repeat(20));
        let parts = check(&text, 80);
        for part in &parts {
            assert!(is_balanced(part), "{parts:?}");
            assert!(!part.contains("```rust\n```"), "{parts:?}");
        }
    }
}

/// A piece of a text as models write it, and worse.
fn block() -> impl Strategy<Value = String> {
    let prose = "[a-zA-Zé😀`\\[\\]() ]{0,120}\n{1,2}".prop_map(|text| text.replace("``", "`"));
    let code = ("`{3,5}", "(|rust|py|c\\+\\+)", prop::collection::vec("[ a-z{};='~]{0,60}", 0..12))
        .prop_map(|(ticks, language, lines)| format!("{ticks}{language}\n{}\n{ticks}\n", lines.join("\n")));
    let other = prop_oneof![
        Just("https://example.com/a/b?c=d#e \n".to_owned()),
        Just("[words in a link](https://example.com/x)\n".to_owned()),
        Just("👩‍👩‍👧‍👦🇩🇪e\u{301}שלום\r\n".to_owned()),
        "x{0,300}\n",
    ];
    prop_oneof![3 => prose, 2 => code, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_are_the_text(blocks in prop::collection::vec(block(), 0..12), max_len in 1_usize..400) {
        let text = blocks.concat();
        let parts = check(&text, max_len);
        check_pieces(&text, max_len.max(2));
        // The largest block needs eleven units for its fences, three times, and twice that for a
        // line.
        if max_len >= 120 {
            for part in &parts {
                prop_assert!(is_balanced(part), "{part:?} of {parts:?}");
            }
            prop_assert_eq!(joined(&parts), joined(&[text]));
        }
    }

    #[test]
    fn any_text_is_cut(text: String, max_len in 1_usize..60) {
        check(&text, max_len);
        check_pieces(&text, max_len.max(2));
    }
}

/// The text of parts, without numbers and added fences.
fn joined(parts: &[String]) -> String {
    let bare = |(part, n): (&String, usize)| {
        let number = format!("({n}/{})", parts.len());
        let part = if parts.len() > 1 { part.strip_suffix(&number).unwrap() } else { part };
        let lines = part.lines().filter(|line| !line.trim_start().starts_with("```"));
        lines.flat_map(str::chars).filter(|char| !char.is_whitespace()).collect::<String>()
    };
    parts.iter().zip(1..).map(bare).collect()
}

#[test]
fn partial_code_is_readable() {
    let draft = |text: &str| split_draft(text, &capabilities(40));
    assert_eq!(draft("see:\n```rust\nfn main"), ["see:\n```rust\nfn main\n```"]);
    assert_eq!(draft("see:\n```rust\nfn main() {}\n```\nso"), ["see:\n```rust\nfn main() {}\n```\nso"]);
    assert_eq!(draft("just words"), ["just words"]);
    assert_eq!(draft(""), [""; 0]);
    let long = draft(&format!("```\n{}", "word word\n".repeat(8)));
    assert!(long.len() > 1);
    for part in long {
        assert_eq!(part.lines().filter(|line| line.starts_with("```")).count(), 2, "{part}");
    }
}
