//! Lexing of words: quotes, escapes and everything that starts with a dollar sign.

use std::rc::Rc;

use super::DoubtKind;
use super::output::unescape;
use super::parse::{Parser, is_name_byte, parse};
use super::syntax::{Parameter, ParameterForm, RawWord, WordPart};

/// The meaning of quotes in the current context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    Bare,
    /// Inside double quotes, a single quote is literal.
    Double,
    /// In the word of `"${x-word}"`, a double quote is none.
    Word,
    /// In double quotes in such a word. There, bash drops every backslash.
    Inner,
    /// In a here-document, all quotes are literal.
    Document,
}

impl Parser<'_> {
    /// One word, up to a blank or an operator.
    pub(super) fn word(&mut self) -> Result<RawWord, DoubtKind> {
        self.budget.spend(1)?;
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'(') => {
                    let pattern = matches!(parts.last(), Some(WordPart::Text(text))
                        if text.ends_with(['?', '*', '+', '@', '!']));
                    if !pattern {
                        break;
                    }
                    self.budget.uses_bash_syntax();
                    self.at += 1;
                    push_text(&mut parts, "(");
                    let inner = self.nested(|parser| parser.parts_until(b')', Quoting::Bare))?;
                    parts.extend(inner);
                    push_text(&mut parts, ")");
                }
                Some(b'<' | b'>') => {
                    if self.peek_at(1) != Some(b'(') {
                        break;
                    }
                    self.budget.uses_bash_syntax();
                    self.at += 2;
                    let list = self.nested(|parser| parser.closed_list(")"))?;
                    parts.push(WordPart::Process(Rc::new(list)));
                }
                Some(_) => self.part(Quoting::Bare, &mut parts, b"(<>;&|) \t\n")?,
            }
        }
        Ok(parts)
    }

    pub(super) fn parts_until(&mut self, end: u8, quoting: Quoting) -> Result<Vec<WordPart>, DoubtKind> {
        let mut parts = Vec::new();
        while self.peek().is_some_and(|byte| byte != end) {
            self.part(quoting, &mut parts, &[end])?;
        }
        self.at += 1;
        if self.at > self.text.len() { Err(DoubtKind::Syntax) } else { Ok(parts) }
    }

    pub(super) fn parts_to_end(&mut self, quoting: Quoting) -> Result<Vec<WordPart>, DoubtKind> {
        let mut parts = Vec::new();
        while self.peek().is_some() {
            self.part(quoting, &mut parts, &[])?;
        }
        Ok(parts)
    }

    /// One part. At least one byte is consumed.
    pub(super) fn part(
        &mut self,
        quoting: Quoting,
        parts: &mut Vec<WordPart>,
        stops: &[u8],
    ) -> Result<(), DoubtKind> {
        self.budget.spend(1)?;
        let bare = quoting == Quoting::Bare;
        match self.peek() {
            Some(b'\\') => self.escape(quoting, parts)?,
            Some(b'\'') if bare => {
                let rest = self.text.get(self.at + 1..).unwrap_or_default();
                let (text, _) = rest.split_once('\'').ok_or(DoubtKind::Syntax)?;
                self.budget.spend(text.len() / 8)?;
                parts.push(WordPart::Quoted(text.to_owned()));
                self.at += text.len() + 2;
            }
            Some(b'"') if bare || quoting == Quoting::Word => {
                self.at += 1;
                self.ends_no_name(bare, parts)?;
                self.double_quoted(if bare { Quoting::Double } else { Quoting::Inner }, parts)?;
                self.ends_no_name(bare, parts)?;
            }
            Some(b'`') => self.backquoted(quoting, parts)?,
            Some(b'$') => self.dollar(quoting, parts)?,
            _ => {
                let start = self.at;
                let rest = self.text.as_bytes().get(start..).unwrap_or_default();
                let special: &[u8] = match quoting {
                    Quoting::Bare => b"\\'\"`$",
                    Quoting::Word => b"\\\"`$",
                    Quoting::Double | Quoting::Inner | Quoting::Document => b"\\`$",
                };
                let length = rest
                    .iter()
                    .skip(1)
                    .position(|byte| special.contains(byte) || stops.contains(byte))
                    .map_or(rest.len(), |length| length + 1);
                self.budget.spend(length / 8)?;
                self.at += length;
                let text = self.slice(start, start + length).to_owned();
                parts.push(if bare { WordPart::Text(text) } else { WordPart::Quoted(text) });
            }
        }
        Ok(())
    }

    /// Doubts a name that a double quote ends in the word of `"${x-word}"`: some versions of bash
    /// drop the quote first, so that the name goes on behind it.
    fn ends_no_name(&self, bare: bool, parts: &[WordPart]) -> Result<(), DoubtKind> {
        let is_open = matches!(parts.last(), Some(WordPart::Parameter(parameter)) if parameter.is_open);
        if !bare && is_open && self.peek().is_some_and(is_name_byte) {
            return Err(DoubtKind::Code);
        }
        Ok(())
    }

    fn double_quoted(&mut self, quoting: Quoting, parts: &mut Vec<WordPart>) -> Result<(), DoubtKind> {
        let inner = self.nested(|parser| parser.parts_until(b'"', quoting))?;
        // Even `""` is a word.
        parts.push(WordPart::Quoted(String::new()));
        parts.extend(inner);
        Ok(())
    }

    fn escape(&mut self, quoting: Quoting, parts: &mut Vec<WordPart>) -> Result<(), DoubtKind> {
        self.at += 1;
        let Some(next) = self.text.get(self.at..).and_then(|rest| rest.chars().next()) else {
            // At the end of a file, bash drops the backslash; at the end of an argument, it stays.
            if quoting == Quoting::Bare {
                return Err(DoubtKind::Syntax);
            }
            parts.push(WordPart::Quoted("\\".to_owned()));
            return Ok(());
        };
        self.at += next.len_utf8();
        let escapes = match quoting {
            Quoting::Bare => true,
            Quoting::Word if next == '}' => true,
            Quoting::Double | Quoting::Word | Quoting::Inner => {
                matches!(next, '$' | '`' | '"' | '\\' | '\n')
            }
            Quoting::Document => matches!(next, '$' | '`' | '\\' | '\n'),
        };
        if escapes && next == '\n' {
            return Ok(());
        }
        if quoting == Quoting::Inner && !escapes {
            self.budget.uses_bash_syntax();
        }
        let escapes = escapes || quoting == Quoting::Inner;
        let text = if escapes { next.to_string() } else { format!("\\{next}") };
        parts.push(WordPart::Quoted(text));
        Ok(())
    }

    fn backquoted(&mut self, quoting: Quoting, parts: &mut Vec<WordPart>) -> Result<(), DoubtKind> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            let mut chars = self.text.get(self.at..).unwrap_or_default().chars();
            let char = chars.next().ok_or(DoubtKind::Syntax)?;
            self.budget.spend(1)?;
            self.at += char.len_utf8();
            let is_escaped = |next: &char| {
                let in_quotes = matches!(quoting, Quoting::Double | Quoting::Inner);
                matches!(next, '$' | '`' | '\\') || (in_quotes && *next == '"')
            };
            match (char, chars.next().filter(is_escaped)) {
                ('`', _) => break,
                ('\\', Some(next)) => {
                    self.at += 1;
                    inner.push(next);
                }
                (other, _) => inner.push(other),
            }
        }
        let list = self.nested(|parser| parse(&inner, parser.budget, parser.depth))?;
        parts.push(WordPart::Command { list: Rc::new(list), quoted: quoting != Quoting::Bare });
        Ok(())
    }

    fn dollar(&mut self, quoting: Quoting, parts: &mut Vec<WordPart>) -> Result<(), DoubtKind> {
        let quoted = quoting != Quoting::Bare;
        self.join_lines()?;
        match self.peek_at(1) {
            Some(b'(') => {
                if self.peek_at(2) == Some(b'(')
                    && let Some(inner) = self.nested(|parser| parser.attempt_arithmetic(3))?
                {
                    parts.push(WordPart::Arithmetic(inner));
                    return Ok(());
                }
                self.at += 2;
                let outer = (self.in_quotes, self.in_braces);
                (self.in_quotes, self.in_braces) = (self.in_quotes || quoted, false);
                let list = self.nested(|parser| parser.closed_list(")"))?;
                (self.in_quotes, self.in_braces) = outer;
                parts.push(WordPart::Command { list: Rc::new(list), quoted });
            }
            Some(b'{') => {
                self.at += 2;
                let part = self.nested(|parser| parser.braced(quoted))?;
                parts.push(part);
            }
            Some(b'[') => {
                self.budget.uses_bash_syntax();
                self.at += 2;
                let inner = self.nested(|parser| parser.parts_until(b']', Quoting::Bare))?;
                parts.push(WordPart::Arithmetic(inner));
            }
            Some(b'\'') if matches!(quoting, Quoting::Bare | Quoting::Word) => {
                self.budget.uses_bash_syntax();
                self.at += 2;
                let text = self.ansi_c()?;
                let is_plain = text.bytes().all(|byte| is_name_byte(byte) || b"./-".contains(&byte));
                if self.in_quotes && self.in_braces && !is_plain {
                    // Some versions of bash then lose these quotes.
                    return Err(DoubtKind::Code);
                }
                parts.push(WordPart::Quoted(text));
            }
            Some(b'"') if quoting == Quoting::Bare => {
                self.budget.uses_bash_syntax();
                self.at += 2;
                self.double_quoted(Quoting::Double, parts)?;
            }
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                let length = (1..).take_while(|ahead| self.peek_at(*ahead).is_some_and(is_name_byte)).count();
                let start = self.at + 1;
                self.budget.spend(length)?;
                self.at += 1 + length;
                parts.push(plain_parameter(self.slice(start, start + length), quoted));
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(&byte) => {
                self.at += 2;
                parts.push(plain_parameter(&char::from(byte).to_string(), quoted));
            }
            _ => {
                self.at += 1;
                let text = "$".to_owned();
                parts.push(if quoted { WordPart::Quoted(text) } else { WordPart::Text(text) });
            }
        }
        Ok(())
    }

    /// The inside of `${…}`, after the opening brace.
    fn braced(&mut self, quoted: bool) -> Result<WordPart, DoubtKind> {
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|')) {
            self.eat("|");
            let list = self.closed_list("}")?;
            return Ok(WordPart::Command { list: Rc::new(list), quoted });
        }
        let mut computed = false;
        if matches!(self.peek(), Some(b'#' | b'!')) && self.peek_at(1).is_some_and(|byte| byte != b'}') {
            computed = true;
            self.at += 1;
        }
        let start = self.at;
        if self.peek().is_some_and(is_name_byte) {
            while self.peek().is_some_and(is_name_byte) {
                self.at += 1;
            }
        } else if self.peek().is_some_and(|byte| b"@*#?$!-".contains(&byte)) {
            self.at += 1;
        }
        let name = self.slice(start, self.at).to_owned();
        self.budget.spend(name.len())?;
        let index = if self.eat("[") { self.parts_until(b']', Quoting::Bare)? } else { Vec::new() };
        self.join_lines()?;
        let operator_start = self.at;
        let colon = self.eat(":");
        let (form, strong) = match self.peek() {
            Some(b'}') if !colon => (ParameterForm::Plain, false),
            Some(b'-') => (ParameterForm::Default, colon),
            Some(b'=') => (ParameterForm::Assign, colon),
            Some(b'+') => (ParameterForm::Alternative, colon),
            Some(b'?') => (ParameterForm::Plain, false),
            Some(sign @ (b'#' | b'%')) if !colon => {
                let twice = self.peek_at(1) == Some(sign);
                self.at += usize::from(twice);
                let is_prefix = sign == b'#';
                (if is_prefix { ParameterForm::WithoutPrefix } else { ParameterForm::WithoutSuffix }, twice)
            }
            _ => (ParameterForm::Computed, false),
        };
        if form == ParameterForm::Computed {
            self.budget.uses_bash_syntax();
            self.at = operator_start;
        } else {
            self.at += usize::from(self.peek() != Some(b'}'));
        }
        let takes_pattern = matches!(
            form,
            ParameterForm::WithoutPrefix | ParameterForm::WithoutSuffix | ParameterForm::Computed
        );
        let quoting = if quoted && !takes_pattern { Quoting::Word } else { Quoting::Bare };
        let outer = std::mem::replace(&mut self.in_braces, true);
        let argument = self.parts_until(b'}', quoting)?;
        self.in_braces = outer;
        let is_element = !index.is_empty() && form != ParameterForm::Plain;
        let form = if computed || is_element { ParameterForm::Computed } else { form };
        Ok(WordPart::Parameter(Rc::new(Parameter {
            name,
            form,
            strong,
            index,
            argument,
            quoted,
            is_open: false,
        })))
    }

    /// An arithmetic expression after an opening of this length, or `None` if the brackets are
    /// subshells.
    pub(super) fn attempt_arithmetic(&mut self, opening: usize) -> Result<Option<Vec<WordPart>>, DoubtKind> {
        let start = self.at;
        let outer = (self.in_quotes, self.in_braces);
        self.at += opening;
        let mut depth = 0_usize;
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                Some(bracket) if bracket == b'(' || (bracket == b')' && depth > 0) => {
                    depth = if bracket == b'(' { depth + 1 } else { depth - 1 };
                    self.at += 1;
                    self.budget.spend(1)?;
                }
                Some(b')') if self.peek_at(1) == Some(b')') => {
                    self.at += 2;
                    return Ok(Some(parts));
                }
                None | Some(b')') => break,
                Some(_) => match self.part(Quoting::Bare, &mut parts, b"()") {
                    Ok(()) => {}
                    Err(DoubtKind::Syntax) => break,
                    Err(other) => return Err(other),
                },
            }
        }
        self.at = start;
        (self.in_quotes, self.in_braces) = outer;
        Ok(None)
    }

    /// The inside of `$'…'`, decoded.
    fn ansi_c(&mut self) -> Result<String, DoubtKind> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'\'' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = end.ok_or(DoubtKind::Syntax)?;
        self.budget.spend(end)?;
        let text = unescape(rest.get(..end).unwrap_or_default(), |byte| matches!(byte, b'\'' | b'"' | b'?'));
        self.at += end + 1;
        // Bash ends the text at a zero byte.
        Ok(text.split('\0').next().unwrap_or_default().to_owned())
    }
}

fn push_text(parts: &mut Vec<WordPart>, text: &str) {
    parts.push(WordPart::Text(text.to_owned()));
}

pub(super) fn plain_parameter(name: &str, quoted: bool) -> WordPart {
    WordPart::Parameter(Rc::new(Parameter {
        name: name.to_owned(),
        quoted,
        is_open: !name.starts_with(|char: char| char.is_ascii_digit() || "@*#?$!-".contains(char)),
        ..Parameter::default()
    }))
}
