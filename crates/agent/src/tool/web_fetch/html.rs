//! HTML to Markdown, as far as a reader needs it.
//!
//! The page comes from a stranger, so the converter reads its tokens once from left to right with a
//! short stack: neither nesting nor invalid markup costs time or memory. The tree builders of
//! `html5ever`, and with it `html2text` and `htmd`, take time that grows with the square of the
//! nesting depth: a second for 10,000 open `<div>`, of which 5 MiB hold a million.

use std::borrow::Cow;

use html5gum::Tokenizer;
use html5gum::emitters::default::{DefaultEmitter, StartTag, Token};
use reqwest::Url;

/// Indentation levels of nested lists.
const MAX_LIST_DEPTH: usize = 8;
/// Bytes of a link target; longer ones are left out.
const MAX_LINK_BYTES: usize = 500;

/// Elements whose content is no text for a reader. The title is not part of the text either.
const SKIPPED_ELEMENTS: [&str; 16] = [
    "audio", "button", "canvas", "iframe", "math", "noembed", "noframes", "noscript", "object", "script",
    "select", "style", "svg", "template", "title", "video",
];

/// Converts a page to Markdown with absolute links.
pub(super) fn to_markdown(html: &str, base: &Url) -> String {
    let mut converter = Converter {
        out: MarkdownWriter::default(),
        base,
        skipped: None,
        link: None,
        lists: Vec::new(),
        title: String::new(),
    };
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        converter.handle_token(token);
    }
    converter.finish()
}

struct Converter<'a> {
    out: MarkdownWriter,
    base: &'a Url,
    /// The open element whose content is skipped.
    skipped: Option<String>,
    /// The target of the open link, and where its text begins.
    link: Option<(String, usize)>,
    /// The open lists, each with the number of its next item if its items are numbered.
    lists: Vec<Option<u32>>,
    title: String,
}

impl Converter<'_> {
    fn handle_token(&mut self, token: Token) {
        match (token, self.skipped.as_deref()) {
            (Token::EndTag(tag), Some(skipped)) if *tag.name == skipped.as_bytes() => self.skipped = None,
            (Token::String(text), Some("title")) if self.title.is_empty() => {
                self.title = lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
            }
            (_, Some(_)) => {}
            (Token::String(text), None) => self.out.text(&lossy(&text)),
            (Token::StartTag(tag), None) => self.open(&tag),
            (Token::EndTag(tag), None) => self.close(&lossy(&tag.name)),
            _ => {}
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let attribute = |name: &[u8]| tag.attributes.get(name).map(|value| lossy(value).into_owned());
        match lossy(&tag.name).as_ref() {
            skipped if SKIPPED_ELEMENTS.contains(&skipped) => self.skipped = Some(skipped.to_owned()),
            name @ ("h1" | "h2" | "h3" | "h4" | "h5" | "h6") => {
                let level = name.bytes().last().map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
                self.out.paragraph();
                self.out.raw(&format!("{} ", "#".repeat(level.clamp(1, 6))));
            }
            "br" => self.out.line(),
            "hr" => {
                self.out.paragraph();
                self.out.raw("---");
                self.out.paragraph();
            }
            "pre" => {
                self.out.paragraph();
                self.out.raw("```\n");
                self.out.pre += 1;
            }
            "code" | "kbd" | "samp" if self.out.pre == 0 => self.out.raw("`"),
            "b" | "strong" if self.out.pre == 0 => self.out.raw("**"),
            "ul" => self.lists.push(None),
            "ol" => self.lists.push(Some(1)),
            "li" => self.item(),
            "blockquote" => {
                self.out.paragraph();
                self.out.raw("> ");
            }
            "td" | "th" => self.out.cell(),
            "tr" => self.out.line(),
            "img" => {
                let alt = attribute(b"alt").unwrap_or_default();
                if !alt.trim().is_empty() {
                    self.out.text(&format!("[{}]", alt.trim()));
                }
            }
            "a" => {
                self.end_link();
                self.link = attribute(b"href").map(|href| (href, self.out.text.len()));
            }
            "p" | "div" | "section" | "article" | "header" | "footer" | "main" | "nav" | "aside"
            | "table" | "form" | "dl" | "figure" | "address" | "body" => self.out.paragraph(),
            "dt" | "dd" | "figcaption" | "summary" | "details" => self.out.line(),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "a" => self.end_link(),
            "pre" if self.out.pre > 0 => {
                self.out.pre -= 1;
                self.out.line();
                self.out.raw("```");
                self.out.paragraph();
            }
            "code" | "kbd" | "samp" if self.out.pre == 0 => self.out.raw("`"),
            "b" | "strong" if self.out.pre == 0 => self.out.raw("**"),
            "ul" | "ol" => {
                self.lists.pop();
                if self.lists.is_empty() { self.out.paragraph() } else { self.out.line() }
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "div" | "section" | "article" | "blockquote"
            | "table" => {
                self.out.paragraph();
            }
            "li" | "tr" => self.out.line(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.out.line();
        let depth = self.lists.len().clamp(1, MAX_LIST_DEPTH) - 1;
        let mark = match self.lists.last_mut().and_then(Option::as_mut) {
            Some(next) => {
                *next = next.saturating_add(1);
                format!("{}. ", next.saturating_sub(1))
            }
            None => "- ".to_owned(),
        };
        self.out.raw(&format!("{}{mark}", "  ".repeat(depth)));
    }

    fn end_link(&mut self) {
        let Some((href, start)) = self.link.take() else { return };
        let words = self.out.text.get(start..).unwrap_or_default();
        let is_usable = !words.trim().is_empty() && !words.contains('\n');
        if let Some(url) = self.absolute_url(&href).filter(|_| is_usable) {
            let words = words.trim().to_owned();
            let lead =
                if self.out.text.get(start..).is_some_and(|text| text.starts_with(' ')) { " " } else { "" };
            self.out.text.truncate(start);
            self.out.raw(&format!("{lead}[{words}]({url})"));
        }
    }

    fn absolute_url(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = self.base.join(href).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }

    fn finish(mut self) -> String {
        self.end_link();
        let text = self.out.text.trim();
        match (self.title.is_empty(), text.starts_with(&format!("# {}", self.title))) {
            (true, _) | (false, true) => text.to_owned(),
            (false, false) => format!("# {}\n\n{text}", self.title).trim_end().to_owned(),
        }
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Writes white space only when text follows it.
#[derive(Default)]
struct MarkdownWriter {
    text: String,
    pending: PendingSpace,
    pre: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum PendingSpace {
    #[default]
    Nothing,
    Blank,
    Line,
    Paragraph,
}

impl MarkdownWriter {
    fn text(&mut self, text: &str) {
        if self.pre > 0 {
            self.write_space();
            self.text.push_str(text);
            return;
        }
        for (number, word) in text.split(char::is_whitespace).enumerate() {
            if number > 0 {
                self.request_space(PendingSpace::Blank);
            }
            if !word.is_empty() {
                self.write_space();
                self.text.push_str(word);
            }
        }
    }

    fn raw(&mut self, text: &str) {
        self.write_space();
        self.text.push_str(text);
    }

    fn line(&mut self) {
        self.request_space(PendingSpace::Line);
    }

    fn paragraph(&mut self) {
        self.request_space(PendingSpace::Paragraph);
    }

    /// Separates a cell from the one before it in its row.
    fn cell(&mut self) {
        if self.pending < PendingSpace::Line && !self.text.ends_with('\n') && !self.text.is_empty() {
            self.pending = PendingSpace::Nothing;
            self.text.push_str(" | ");
        }
    }

    fn request_space(&mut self, pending: PendingSpace) {
        self.pending = self.pending.max(pending);
    }

    fn write_space(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if self.text.is_empty() {
            return;
        }
        match pending {
            PendingSpace::Nothing => {}
            PendingSpace::Blank if self.text.ends_with([' ', '\n']) => {}
            PendingSpace::Blank => self.text.push(' '),
            PendingSpace::Line if self.text.ends_with('\n') => {}
            PendingSpace::Line => self.text.push('\n'),
            PendingSpace::Paragraph if self.text.ends_with("\n\n") => {}
            PendingSpace::Paragraph if self.text.ends_with('\n') => self.text.push('\n'),
            PendingSpace::Paragraph => self.text.push_str("\n\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn convert(html: &str) -> String {
        to_markdown(html, &"https://example.org/dir/page".parse().unwrap())
    }

    #[test]
    fn common_markup_becomes_markdown() {
        let cases = [
            ("plain", "plain"),
            ("<p>a\n  b</p><p>c</p>", "a b\n\nc"),
            ("<h1>T</h1><h3>S</h3>x", "# T\n\n### S\n\nx"),
            ("<title>T &amp; U</title><p>x", "# T & U\n\nx"),
            ("<title>T</title><h1>T</h1>", "# T"),
            ("a<br>b<br/>c", "a\nb\nc"),
            ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd"),
            ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
            (
                "see <a href='/x?a=1&amp;b=2'>this</a> and <a href=\"#top\">up</a>",
                "see [this](https://example.org/x?a=1&b=2) and up",
            ),
            ("<a href=javascript:alert(1)>x</a>", "x"),
            ("<a href=other>y</a>", "[y](https://example.org/dir/other)"),
            ("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc"),
            ("use <code>x &lt; y</code> <b>now</b>", "use `x < y` **now**"),
            ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
            ("<script>if (a < b) {}</script><style>p{}</style>x<!-- <p>no -->y", "xy"),
            ("<img src=a alt='a cat'>", "[a cat]"),
            ("a < b && c &lt; d &unknown; &#65;&#x42;&#0;", "a < b && c < d &unknown; AB\u{fffd}"),
            ("<p title=\"a > b\">x</p>", "x"),
            ("<div><div>x", "x"),
            ("</p></ul></pre>x", "x"),
            ("<script>never closed", ""),
            ("<p", ""),
            ("x <", "x <"),
        ];
        for (html, expected) in cases {
            assert_eq!(convert(html), expected, "{html}");
        }
    }

    #[test]
    fn deep_nesting_and_invalid_markup_stay_cheap() {
        let deep =
            ["<div>", "<ul><li>", "<b>", "<a href=x>", "<table><tr><td>", "<", "</", "<p a='", "&", "<!--"];
        for piece in deep {
            let html = piece.repeat(100_000);
            assert!(convert(&html).len() < 10 * html.len(), "{piece}");
        }
    }

    proptest! {
        #[test]
        fn any_input_is_converted(html in "(<(a href|p|/p|li|ul|pre|/pre|code|!--|script|x='|img alt)|[<>&;=\"' a\nü#0-9/])*") {
            convert(&html);
        }
    }
}
