//! Program texts in other languages, searched for calls that reach outside the program.
//!
//! This is no parser for those languages. It separates string literals from code, finds calls by name, and turns a
//! call whose argument is a plain literal into the equivalent shell command, so one set of rules judges both. Ways
//! to hide a call (`eval`, `getattr`, imports by computed name) count as dangers themselves.

mod editing;
mod tables;

use super::syntax::RedirectOperator;
use crate::programs::Language;
use tables::{CallEffect, KnownCall};

/// One thing that a program text does outside the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodeEffect {
    /// Runs a shell text.
    Shell(String),
    /// Runs a program.
    Argv(Vec<String>),
    /// Reads or writes a file; without a path, one that is not known.
    Touch(RedirectOperator, Option<String>),
    /// Deletes a file or tree.
    Delete { path: Option<String>, tree: bool },
    /// Does something that cannot be judged further.
    Danger(&'static str),
}

/// Stands for a string literal in the skeleton of a program.
const MARK: char = '\u{1}';

pub(super) fn code_effects(language: Language, text: &str) -> Vec<CodeEffect> {
    match language {
        Language::Sed => return editing::sed(text),
        Language::Awk => return editing::awk(text),
        _ => {}
    }
    let skeleton = Skeleton::new(language, text);
    let mut effects = Vec::new();
    // In JavaScript `exec` is also a method of patterns.
    let starts_programs = language != Language::JavaScript
        || skeleton.strings.iter().any(|text| text.ends_with("child_process"));
    let calls: &[KnownCall] = if language == Language::Compiled { &[] } else { tables::CALLS };
    for call in calls.iter().filter(|call| starts_programs || call.effect != CallEffect::Run) {
        for at in skeleton.calls(call) {
            effects.extend(skeleton.act(call, at));
        }
    }
    for danger in tables::DANGERS.iter().filter(|danger| danger.language == language) {
        if danger.words.iter().any(|word| skeleton.holds(word)) {
            effects.push(CodeEffect::Danger(danger.reason));
        }
    }
    if language == Language::Python {
        skeleton.python_modules(&mut effects);
    }
    if language == Language::JavaScript {
        skeleton.javascript_modules(&mut effects);
    }
    if language == Language::Other && skeleton.strings.iter().any(|text| text == "socket") {
        effects.push(CodeEffect::Danger("opens a network connection or sends data"));
    }
    if skeleton.strings.iter().any(|text| text.contains("://") && crate::programs::is_metadata(text)) {
        effects.push(CodeEffect::Danger("asks the cloud for the keys of this machine"));
    }
    for text in &skeleton.commands {
        effects.push(CodeEffect::Shell(text.clone()));
    }
    if matches!(language, Language::Perl | Language::Ruby) {
        skeleton.strings.iter().for_each(|text| effects.extend(opened(text)));
    }
    for text in &skeleton.strings {
        if text.len() < 256
            && !text.contains(['\n', ' '])
            && (text.contains('/') || text.starts_with('.'))
            && !text.contains("://")
        {
            // Compiled source is not read closely, so a path it names may be written.
            let writes = language == Language::Compiled && text.starts_with('/');
            let operator = if writes { RedirectOperator::Write } else { RedirectOperator::Read };
            effects.push(CodeEffect::Touch(operator, Some(text.clone())));
        }
    }
    effects.dedup();
    effects.truncate(128);
    effects
}

/// The effect of `open` with a text such as `>file`, `|command` or `command|`.
fn opened(text: &str) -> Option<CodeEffect> {
    let text = text.trim();
    if let Some(command) = text.strip_prefix('|').or(text.strip_suffix('|')) {
        return (!command.is_empty()).then(|| CodeEffect::Shell(command.to_owned()));
    }
    let path = text.strip_prefix("+<").or(text.strip_prefix('>'))?.trim_start_matches('>').trim();
    if path.contains("HOME") {
        return Some(CodeEffect::Touch(RedirectOperator::Write, None));
    }
    path.starts_with(['/', '~']).then(|| CodeEffect::Touch(RedirectOperator::Write, Some(path.to_owned())))
}

/// A program with its string literals taken out.
struct Skeleton {
    code: Vec<char>,
    /// The same as text, to tell quickly what is not in it.
    text: String,
    strings: Vec<String>,
    /// Literals that the language itself runs as commands.
    commands: Vec<String>,
}

impl Skeleton {
    fn new(language: Language, text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut skeleton = Self {
            code: Vec::with_capacity(chars.len()),
            text: String::new(),
            strings: Vec::new(),
            commands: Vec::new(),
        };
        let comment: &[&str] = match language {
            Language::JavaScript | Language::Compiled => &["//"],
            Language::Php => &["//", "#"],
            Language::Other => &[],
            _ => &["#"],
        };
        let mut at = 0;
        while let Some(char) = chars.get(at).copied() {
            if let Some((value, end)) = literal(language, &chars, at) {
                if char == '`' && matches!(language, Language::Perl | Language::Ruby | Language::Php) {
                    skeleton.commands.push(value.clone());
                }
                skeleton.strings.push(value);
                skeleton.code.push(MARK);
                at = end;
                continue;
            }
            let starts_comment = comment.iter().any(|start| {
                start.chars().enumerate().all(|(offset, char)| chars.get(at + offset) == Some(&char))
            });
            // Perl's `$#` and `s#a#b#` are no comments; reading on is the careful choice.
            if starts_comment && language != Language::Perl {
                while chars.get(at).is_some_and(|char| *char != '\n') {
                    at += 1;
                }
                continue;
            }
            skeleton.code.push(if char == MARK { ' ' } else { char });
            at += 1;
        }
        skeleton.text = skeleton.code.iter().collect();
        skeleton
    }

    /// Whether a word occurs on its own, outside strings.
    fn holds(&self, word: &str) -> bool {
        !self.find(word).is_empty()
    }

    /// The indexes behind each use of a word that is not part of a longer name.
    fn find(&self, word: &str) -> Vec<usize> {
        if !self.text.contains(word) {
            return Vec::new();
        }
        let wanted: Vec<char> = word.chars().collect();
        let is_name = |char: Option<&char>| char.is_some_and(|char| *char == '_' || char.is_alphanumeric());
        let (first_is_name, last_is_name) = (is_name(wanted.first()), is_name(wanted.last()));
        let Some(first) = wanted.first() else { return Vec::new() };
        let mut found = Vec::new();
        for (at, _) in self.code.iter().enumerate().filter(|(_, char)| *char == first) {
            let end = at + wanted.len();
            if self.code.get(at..end) != Some(wanted.as_slice()) {
                continue;
            }
            let before = at.checked_sub(1).and_then(|at| self.code.get(at));
            if (first_is_name && is_name(before)) || (last_is_name && is_name(self.code.get(end))) {
                continue;
            }
            found.push(end);
            if found.len() >= 64 {
                break;
            }
        }
        found
    }

    /// The indexes behind the opening bracket of each use of a call.
    fn calls(&self, call: &KnownCall) -> Vec<usize> {
        call.names
            .iter()
            .flat_map(|name| self.find(name))
            .filter_map(|end| {
                let at = self.skip_blanks(end);
                match self.code.get(at) {
                    Some('(') => Some(at + 1),
                    // Perl and Ruby call without brackets.
                    Some(&MARK) if call.bare => Some(at),
                    Some(char)
                        if call.bare && at > end && (matches!(char, '$' | '@') || char.is_alphabetic()) =>
                    {
                        Some(at)
                    }
                    _ => None,
                }
            })
            .collect()
    }

    fn skip_blanks(&self, mut at: usize) -> usize {
        while self.code.get(at).is_some_and(|char| char.is_whitespace()) {
            at += 1;
        }
        at
    }

    /// The literal whose mark stands at an index.
    fn string_at(&self, at: usize) -> Option<&String> {
        let index = self.code.get(..at)?.iter().filter(|char| **char == MARK).count();
        self.strings.get(index)
    }

    /// The value of the argument that starts here, when it is a literal or a name once set to one.
    fn argument(&self, at: usize) -> Option<(String, usize)> {
        let at = self.skip_blanks(at);
        // `r"…"`, `b"…"`, `f"…"`: the prefix letter stands in front of the mark.
        let prefixed = usize::from(
            self.code.get(at).is_some_and(|char| "rbRB".contains(*char))
                && self.code.get(at + 1) == Some(&MARK),
        );
        let at = at + prefixed;
        if self.code.get(at) == Some(&MARK) {
            let end = self.skip_blanks(at + 1);
            return matches!(self.code.get(end), None | Some(',' | ')' | ']' | ';' | '\n' | '}'))
                .then(|| self.string_at(at).cloned())
                .flatten()
                .map(|text| (text, end));
        }
        let name: String =
            self.code.get(at..)?.iter().take_while(|char| **char == '_' || char.is_alphanumeric()).collect();
        let end = self.skip_blanks(at + name.chars().count());
        if name.is_empty() || !matches!(self.code.get(end), Some(',' | ')')) {
            return None;
        }
        for after in self.find(&name) {
            let equals = self.skip_blanks(after);
            if self.code.get(equals) == Some(&'=') && self.code.get(equals + 1) != Some(&'=') {
                let mark = self.skip_blanks(equals + 1);
                let behind = self.code.get(mark + 1);
                if self.code.get(mark) == Some(&MARK) && matches!(behind, None | Some('\n' | ';' | ' ')) {
                    return self.string_at(mark).cloned().map(|text| (text, end));
                }
                return None;
            }
        }
        None
    }

    fn act(&self, call: &KnownCall, at: usize) -> Vec<CodeEffect> {
        let first = self.argument(at);
        let second = first.as_ref().and_then(|(_, end)| {
            (self.code.get(*end) == Some(&',')).then(|| self.argument(end + 1)).flatten()
        });
        let path = first.as_ref().map(|(text, _)| text.clone());
        match call.effect {
            CallEffect::Run => self.run(at, first),
            CallEffect::Delete => vec![CodeEffect::Delete { path, tree: false }],
            CallEffect::DeleteTree => vec![CodeEffect::Delete { path, tree: true }],
            CallEffect::DeleteSelf => vec![CodeEffect::Delete { path: self.receiver(at), tree: false }],
            CallEffect::Write => vec![CodeEffect::Touch(RedirectOperator::Write, path)],
            CallEffect::WriteSelf => vec![CodeEffect::Touch(RedirectOperator::Write, self.receiver(at))],
            CallEffect::Move => vec![
                CodeEffect::Delete { path, tree: false },
                CodeEffect::Touch(RedirectOperator::Write, second.map(|(text, _)| text)),
            ],
            CallEffect::WriteSecond => {
                vec![CodeEffect::Touch(RedirectOperator::Write, second.map(|(text, _)| text))]
            }
            CallEffect::Open => {
                let mode = match (&first, second) {
                    (_, Some((mode, _))) => Some(mode),
                    _ => self.mode(at),
                };
                match mode {
                    Some(mode) if mode.contains(['w', 'a', 'x', '+', '>']) => {
                        vec![CodeEffect::Touch(RedirectOperator::Write, path)]
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    /// The mode of an `open` whose path is not a plain literal: the last short literal before the bracket closes.
    fn mode(&self, at: usize) -> Option<String> {
        let mut depth = 1_usize;
        let mut mode = None;
        for (offset, char) in self.code.get(at..)?.iter().enumerate().take(400) {
            match char {
                '(' => depth += 1,
                ')' => depth -= 1,
                &MARK if depth == 1 => {
                    mode = self.string_at(at + offset).filter(|text| text.len() <= 3).cloned().or(mode)
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        mode
    }

    /// The path in `Path("…").unlink()`, or in `p.unlink()` where `p = Path("…")` was said before.
    fn receiver(&self, at: usize) -> Option<String> {
        let before = self.code.get(..at)?;
        let dot = before.iter().rposition(|char| *char == '.')?;
        if before.get(dot.checked_sub(3)?..dot)? == ['(', MARK, ')'] {
            return self.string_at(dot - 2).cloned();
        }
        let name: String = before
            .get(..dot)?
            .iter()
            .rev()
            .take_while(|char| **char == '_' || char.is_alphanumeric())
            .collect();
        let name: String = name.chars().rev().collect();
        self.find(&name).into_iter().find_map(|after| {
            let equals = self.skip_blanks(after);
            let value = self.skip_blanks(equals + 1);
            let call = self
                .code
                .get(value..)?
                .iter()
                .take_while(|char| **char == '.' || char.is_alphanumeric())
                .count();
            let bracket = value + call;
            let literal = self.code.get(equals) == Some(&'=')
                && self.code.get(bracket..bracket + 3)? == ['(', MARK, ')'];
            literal.then(|| self.string_at(bracket + 1).cloned()).flatten()
        })
    }

    /// The command a call starts, as a shell text or as words.
    fn run(&self, at: usize, text: Option<(String, usize)>) -> Vec<CodeEffect> {
        let unknown = || vec![CodeEffect::Danger("starts a program that is not known")];
        let (mut words, mut at, lone) = match text {
            Some((text, end)) => (vec![text.clone()], end, Some(text)),
            None => (Vec::new(), at, None),
        };
        loop {
            at = self.skip_blanks(at);
            match self.code.get(at) {
                Some(',') => at += 1,
                Some('[') => match self.list(at + 1) {
                    Some((list, end)) => {
                        words.extend(list);
                        at = end;
                    }
                    None => return unknown(),
                },
                Some(&MARK) => match self.argument(at) {
                    Some((word, end)) => {
                        words.push(word);
                        at = end;
                    }
                    None => return unknown(),
                },
                // Options of the call, by name or as an object; the words are complete.
                Some(char) if !words.is_empty() && (*char == '{' || self.is_keyword(at)) => break,
                None | Some(')' | ';' | '\n' | '}') if !words.is_empty() => break,
                _ => return unknown(),
            }
        }
        match lone {
            Some(text) if words.len() == 1 => vec![CodeEffect::Shell(text)],
            _ => vec![CodeEffect::Argv(words)],
        }
    }

    /// The literals of a list, and the index behind its closing bracket.
    fn list(&self, mut at: usize) -> Option<(Vec<String>, usize)> {
        let mut words = Vec::new();
        loop {
            let (word, end) = self.argument(at)?;
            words.push(word);
            match self.code.get(end) {
                Some(']') => return Some((words, end + 1)),
                Some(',') => at = end + 1,
                _ => return None,
            }
        }
    }

    /// Whether `name=` stands here.
    fn is_keyword(&self, at: usize) -> bool {
        let rest = self.code.get(at..).unwrap_or_default();
        let name = rest.iter().take_while(|char| **char == '_' || char.is_alphanumeric()).count();
        name > 0 && rest.get(name) == Some(&'=') && rest.get(name + 1) != Some(&'=')
    }

    /// Every use of `os` must be one that is known to be harmless or was read as a call above.
    fn python_modules(&self, effects: &mut Vec<CodeEffect>) {
        for end in self.find("os") {
            let at = self.skip_blanks(end);
            if self.code.get(at) != Some(&'.') {
                let rest: String =
                    self.code.get(at..at + 60).or(self.code.get(at..)).unwrap_or_default().iter().collect();
                if let Some(names) = rest.strip_prefix("import ") {
                    let known = names
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .split(',')
                        .all(|name| tables::SAFE_OS.contains(&name.trim()));
                    if !known {
                        effects.push(CodeEffect::Danger("imports parts of `os` by name"));
                    }
                } else if rest.starts_with("as ") {
                    effects.push(CodeEffect::Danger("gives `os` another name"));
                }
                continue;
            }
            let name: String = self
                .code
                .get(at + 1..)
                .unwrap_or_default()
                .iter()
                .take_while(|char| **char == '_' || char.is_alphanumeric())
                .collect();
            let called = self.code.get(self.skip_blanks(at + 1 + name.chars().count())) == Some(&'(');
            let known = called
                && tables::CALLS.iter().any(|call| call.names.contains(&format!("os.{name}").as_str()));
            if !tables::SAFE_OS.contains(&name.as_str()) && !known {
                effects.push(CodeEffect::Danger("uses a system call that is not known to be harmless"));
            }
        }
        for module in ["subprocess", "shutil"] {
            for end in self.find(module) {
                let rest: String =
                    self.code.get(self.skip_blanks(end)..).unwrap_or_default().iter().take(12).collect();
                if rest.starts_with("as ")
                    || (rest.starts_with("import ") && module == "subprocess")
                    || rest.starts_with("import rm")
                {
                    effects.push(CodeEffect::Danger("gives a way to start programs another name"));
                }
            }
        }
    }

    fn javascript_modules(&self, effects: &mut Vec<CodeEffect>) {
        for text in &self.strings {
            match text.strip_prefix("node:").unwrap_or(text) {
                "child_process" => {
                    let known = tables::CALLS
                        .iter()
                        .filter(|call| call.effect == CallEffect::Run)
                        .any(|call| !self.calls(call).is_empty());
                    if !known {
                        effects.push(CodeEffect::Danger("starts a program that is not known"));
                    }
                }
                "net" | "dgram" | "tls" | "http2" => {
                    effects.push(CodeEffect::Danger("opens a network connection"))
                }
                "vm" | "worker_threads" | "cluster" => {
                    effects.push(CodeEffect::Danger("runs code that is not known"))
                }
                "POST" | "PUT" | "PATCH" => effects.push(CodeEffect::Danger("sends data to another machine")),
                _ => {}
            }
        }
        for at in self.find("require") {
            if self.code.get(at) == Some(&'(') && self.argument(at + 1).is_none() {
                effects.push(CodeEffect::Danger("loads a module by a computed name"));
            }
        }
    }
}

/// The string literal that starts here: its value and the index behind it.
fn literal(language: Language, chars: &[char], at: usize) -> Option<(String, usize)> {
    let quote = *chars.get(at)?;
    let quotes: &[char] = match language {
        Language::Other => &['"', '\''],
        Language::Python => &['"', '\''],
        _ => &['"', '\'', '`'],
    };
    if !quotes.contains(&quote) {
        return None;
    }
    let triple = language == Language::Python
        && chars.get(at + 1) == Some(&quote)
        && chars.get(at + 2) == Some(&quote);
    let width = if triple { 3 } else { 1 };
    let mut value = String::new();
    let mut index = at + width;
    loop {
        let char = *chars.get(index)?;
        if char == '\\' {
            index += escape(chars, index + 1, &mut value) + 1;
            continue;
        }
        if char == quote && (0..width).all(|offset| chars.get(index + offset) == Some(&quote)) {
            return Some((value, index + width));
        }
        if char == '\n' && !triple && quote != '`' && language == Language::Python {
            return None;
        }
        value.push(char);
        index += 1;
    }
}

/// Decodes one escape; gives how many characters it took behind the backslash.
fn escape(chars: &[char], at: usize, value: &mut String) -> usize {
    let number = |from: usize, most: usize, radix: u32| {
        let digits: Vec<u32> = chars
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take(most)
            .map_while(|char| char.to_digit(radix))
            .collect();
        let number = digits.iter().fold(0_u32, |sum, digit| sum.wrapping_mul(radix).wrapping_add(*digit));
        (char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER), digits.len())
    };
    match chars.get(at) {
        None => 0,
        Some('n') => {
            value.push('\n');
            1
        }
        Some('t') => {
            value.push('\t');
            1
        }
        Some('\n') => 1,
        Some('x') => {
            let (char, taken) = number(at + 1, 2, 16);
            value.push(char);
            1 + taken
        }
        Some('u') => {
            let (char, taken) = number(at + 1, 4, 16);
            value.push(char);
            1 + taken
        }
        Some('0'..='7') => {
            let (char, taken) = number(at, 3, 8);
            value.push(char);
            taken
        }
        Some(other) => {
            value.push(*other);
            1
        }
    }
}
