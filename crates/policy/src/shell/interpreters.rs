//! Program texts in other languages, searched for what reaches outside the program.
//!
//! This is no parser for those languages. One tokenizer splits a text of any of them into names,
//! string literals and signs. A known call whose arguments are plain literals becomes the
//! equivalent shell command or file access, so one set of rules judges both. A name that can start
//! programs, hide a call or reach other machines is a danger wherever it stands, and so is a known
//! call whose arguments cannot be read. A text in a language that is not modeled is a danger
//! unless it only prints.

mod editing;
mod tables;

use super::output::unescape;
use super::syntax::RedirectOperator;
use crate::programs::Language;
use tables::{CALLS, CallEffect, DANGERS, FILES, HIDES, NETWORK, PRINTING, SAFE_MEMBERS, SAFE_NAMES, STARTS};

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

use CodeEffect::{Argv, Danger, Delete, Shell, Touch};

/// The number of calls that are examined, and of effects that are reported.
const MAX_EFFECTS: usize = 128;

pub(super) fn code_effects(language: Language, text: &str) -> Vec<CodeEffect> {
    let mut effects = match language {
        Language::Sed => return editing::sed(text),
        Language::Awk => editing::awk(&Tokens::new(language, text)),
        _ => Tokens::new(language, text).effects(),
    };
    effects.dedup();
    if effects.len() > MAX_EFFECTS {
        effects.truncate(MAX_EFFECTS);
        effects.push(Danger("does too much to be followed"));
    }
    effects
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name with its members: `os.path.join`, or `.read` behind an expression.
    Name(String),
    /// A string literal.
    Text(String),
    Sign(char),
}

use Token::{Name, Sign, Text};

struct Tokens {
    language: Language,
    all: Vec<Token>,
    /// Effects of the literals themselves.
    effects: Vec<CodeEffect>,
}

impl Tokens {
    fn new(language: Language, text: &str) -> Self {
        let mut tokens = Self { language, all: Vec::new(), effects: Vec::new() };
        let mut rest = text;
        let mut before = ' ';
        let mut depth = 0_usize;
        while let Some(char) = rest.chars().next() {
            let length = match char {
                '"' | '\'' | '`' => tokens.literal(rest, before),
                '#' if language == Language::Python => rest.find('\n').unwrap_or(rest.len()),
                _ if is_name(char) => tokens.name(rest),
                _ => 0,
            };
            match char {
                '(' | '[' => depth += 1,
                ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            // Between brackets a line end ends no statement.
            if length == 0 && (!char.is_whitespace() || (char == '\n' && depth == 0)) {
                tokens.all.push(Sign(char));
            }
            let (done, tail) = rest.split_at(length.max(char.len_utf8()));
            before = done.chars().next_back().unwrap_or(' ');
            rest = tail;
        }
        tokens
    }

    /// Reads a name and its members; gives its length.
    fn name(&mut self, text: &str) -> usize {
        let mut length = 0;
        let mut name = String::new();
        // A member of an expression: `f(x).read`.
        if self.all.last() == Some(&Sign('.')) {
            self.all.pop();
            name.push('.');
        }
        loop {
            let rest = text.get(length..).unwrap_or_default();
            let end = rest.find(|char| !is_name(char)).unwrap_or(rest.len());
            let (part, rest) = rest.split_at(end);
            name.push_str(part);
            length += end;
            let mark = [".", "::"]
                .into_iter()
                .find(|mark| rest.strip_prefix(mark).is_some_and(|rest| rest.starts_with(is_name)));
            let Some(mark) = mark else { break };
            name.push('.');
            length += mark.len();
        }
        self.all.push(Name(name));
        length
    }

    /// Reads a string literal; gives its length, or 0 if it is not one.
    fn literal(&mut self, text: &str, before: char) -> usize {
        let quote = text.get(..1).unwrap_or_default();
        let is_python = self.language == Language::Python;
        if quote == "`" && matches!(self.language, Language::Python | Language::Awk | Language::Other) {
            return 0;
        }
        let triple = is_python && text.starts_with(&quote.repeat(3));
        let width = if triple { 3 } else { 1 };
        let body = text.get(width..).unwrap_or_default();
        let mut escaped = false;
        let end = body.char_indices().find(|(at, char)| {
            let ends = !escaped && body.get(*at..).is_some_and(|rest| rest.starts_with(&quote.repeat(width)));
            escaped = *char == '\\' && !escaped;
            ends || (*char == '\n' && !triple && quote != "`")
        });
        let Some((end, _)) = end.filter(|(_, char)| *char != '\n' || triple || quote == "`") else {
            return 0;
        };
        let value = unescape(body.get(..end).unwrap_or_default(), false);
        if matches!(before, '/' | '\\') {
            self.effects.push(Danger("has quotes that cannot be paired"));
        }
        let prefix = matches!(self.all.last(), Some(Name(name)) if is_name(before)
            && name.len() < 3 && name.chars().all(|char| "rbuRBU".contains(char)));
        if is_python && prefix {
            self.all.pop();
        }
        let commands = quote == "`" && self.runs_backquotes();
        if commands {
            self.effects.push(Shell(value.clone()));
        }
        // With an interpolation in it, the literal is only a part of the value.
        if commands || (!is_python && quote != "'" && (value.contains("#{") || value.contains('$'))) {
            self.all.push(Sign('$'));
        }
        self.all.push(Text(value));
        end + 2 * width
    }

    fn runs_backquotes(&self) -> bool {
        matches!(self.language, Language::Perl | Language::Ruby | Language::Php)
    }

    fn get_name(&self, at: usize) -> &str {
        if let Some(Name(name)) = self.all.get(at) { name } else { "" }
    }

    fn is_sign(&self, at: usize, signs: &str) -> bool {
        matches!(self.all.get(at), Some(Sign(sign)) if signs.contains(*sign))
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.all.iter().filter_map(|token| if let Text(text) = token { Some(text.as_str()) } else { None })
    }

    fn effects(mut self) -> Vec<CodeEffect> {
        let mut effects = std::mem::take(&mut self.effects);
        let starts_programs =
            self.language != Language::JavaScript || self.texts().any(|text| text.ends_with("child_process"));
        let mut names: Vec<&str> = Vec::new();
        for at in 0..self.all.len() {
            let name = self.get_name(at);
            if name.is_empty() || SAFE_NAMES.contains(&name) {
                continue;
            }
            names.push(name);
            let is_call = |known: &&str| {
                name.strip_suffix(*known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            let call = CALLS.iter().find(|(_, names)| names.iter().any(is_call));
            match call {
                _ if effects.len() > MAX_EFFECTS || self.language == Language::Compiled => {}
                Some((CallEffect::Run, _)) if !starts_programs => {}
                Some((effect, _)) => self.act(*effect, at, &mut effects),
                None if self.language == Language::Python => effects.extend(self.module_use(at)),
                None => {}
            }
            if matches!(name, "require" | "import") && self.is_sign(at + 1, "(") {
                let literal =
                    matches!((self.all.get(at + 2), self.all.get(at + 3)), (Some(Text(_)), Some(Sign(')'))));
                if (name == "require" && !literal)
                    || self.language == Language::JavaScript && name == "import"
                {
                    effects.push(Danger("loads a module by a computed name"));
                }
            }
            // Data that a request carries.
            if name == "data"
                && self.is_sign(at + 1, "=")
                && !self.is_sign(at + 2, "=")
                && self.is_sign(at.wrapping_sub(1), "(,")
            {
                effects.push(Danger(NETWORK));
            }
        }
        names.sort_unstable();
        names.dedup();
        for (language, reason, words) in DANGERS {
            let holds = |name: &&str| words.iter().any(|word| has_member(name, word));
            if language.is_none_or(|language| language == self.language) && names.iter().any(holds) {
                effects.push(Danger(reason));
            }
        }
        let prints = |name: &&str| name.len() == 1 || PRINTING.contains(name);
        if self.language == Language::Other && !names.iter().all(prints) {
            effects.push(Danger("is in a language that is not examined"));
        }
        for (at, token) in self.all.iter().enumerate() {
            if let Text(text) = token {
                self.judge_text(at, text, &mut effects);
            }
        }
        effects
    }

    /// The effects of a literal: a module it names, a path, an address, a command to open.
    fn judge_text(&self, at: usize, text: &str, effects: &mut Vec<CodeEffect>) {
        let imports = |at: usize| matches!(self.get_name(at), "require" | "from" | "import");
        let is_module = imports(at.wrapping_sub(1))
            || (self.is_sign(at.wrapping_sub(1), "(") && imports(at.wrapping_sub(2)));
        match text.strip_prefix("node:").unwrap_or(text) {
            "net" | "dgram" | "tls" | "http2" | "socket" if is_module => effects.push(Danger(NETWORK)),
            "vm" | "worker_threads" | "cluster" | "module" if is_module => effects.push(Danger(HIDES)),
            "child_process" if !effects.iter().any(|effect| matches!(effect, Shell(_) | Argv(_))) => {
                effects.push(Danger(STARTS));
            }
            "POST" | "PUT" | "PATCH" => effects.push(Danger(NETWORK)),
            _ => {}
        }
        if text.contains("://") {
            if crate::programs::is_metadata(text) {
                effects.push(Danger("asks the cloud for the keys of this machine"));
            }
        } else if text.len() < 256
            && !text.contains(['\n', ' '])
            && (text.contains('/') || text.starts_with('.'))
        {
            // Compiled source is not read closely, so a path it names may be written.
            let writes = self.language == Language::Compiled && text.starts_with('/');
            let operator = if writes { RedirectOperator::Write } else { RedirectOperator::Read };
            effects.push(Touch(operator, Some(text.to_owned())));
        }
        if matches!(self.language, Language::Perl | Language::Ruby) {
            effects.extend(opened(text));
        }
    }

    /// Judges the use of a module that can change the system: only its known members are harmless.
    fn module_use(&self, at: usize) -> Option<CodeEffect> {
        let (module, member) = self.get_name(at).split_once('.').unwrap_or((self.get_name(at), ""));
        if !matches!(module, "os" | "subprocess" | "shutil") {
            return None;
        }
        let before = at.wrapping_sub(1);
        let is_safe = if !member.is_empty() {
            SAFE_MEMBERS.contains(&member.split('.').next().unwrap_or_default())
        } else if self.get_name(before) == "from" {
            let names = self.all.get(at + 2..).unwrap_or_default();
            let mut names = names.iter().take_while(|token| !matches!(token, Sign('\n' | ';')));
            names.all(|token| match token {
                Name(name) => SAFE_MEMBERS.contains(&name.as_str()),
                other => *other == Sign(','),
            })
        } else {
            (self.get_name(before) == "import" || self.is_sign(before, ",")) && self.get_name(at + 1) != "as"
        };
        (!is_safe).then_some(Danger("uses a system call that is not known to be harmless"))
    }

    /// The arguments of the call whose name stands at an index; `None` if it is not called there.
    fn arguments(&self, at: usize) -> Option<Vec<&[Token]>> {
        let brackets = self.is_sign(at + 1, "(");
        let without_brackets = !matches!(self.language, Language::Python | Language::JavaScript)
            && (matches!(self.all.get(at + 1), Some(Text(_) | Name(_))) || self.is_sign(at + 1, "$@"));
        if !brackets && !without_brackets {
            return None;
        }
        let start = at + 1 + usize::from(brackets);
        let mut found = Vec::new();
        let (mut depth, mut from) = (0_usize, start);
        for (index, token) in self.all.iter().enumerate().skip(start) {
            match token {
                Sign('(' | '[' | '{') => depth += 1,
                Sign(')' | ']' | '}') if depth > 0 => depth -= 1,
                Sign(',') if depth == 0 => {
                    found.push(self.all.get(from..index).unwrap_or_default());
                    from = index + 1;
                }
                Sign(')' | ']' | '}') => {
                    found.push(self.all.get(from..index).unwrap_or_default());
                    return Some(found);
                }
                Sign(';' | '\n') if !brackets => {
                    found.push(self.all.get(from..index).unwrap_or_default());
                    return Some(found);
                }
                _ => {}
            }
        }
        found.push(self.all.get(from..).unwrap_or_default());
        Some(found)
    }

    /// The value of an argument that is a literal, or a name set to one and never to anything else.
    fn value(&self, argument: &[Token]) -> Option<String> {
        match argument {
            [Text(text)] => Some(text.clone()),
            [Name(name)] => self.bound(name),
            _ => None,
        }
    }

    /// The literal a name is set to: `name = "text"` or `name = Path("text")`.
    fn bound(&self, name: &str) -> Option<String> {
        let uses: Vec<usize> = (0..self.all.len()).filter(|at| self.get_name(*at) == name).collect();
        let is_set = |at: &&usize| self.is_sign(**at + 1, "=") && !self.is_sign(**at + 2, "=");
        let hides = |at: &usize| {
            let line = self.all.get(..*at).unwrap_or_default().iter().rev();
            let mut line = line.take_while(|token| !matches!(token, Sign('\n' | ';')));
            matches!(self.get_name(at.wrapping_sub(1)), "for" | "as" | "global")
                || self.is_sign(at + 1, "+-:")
                || line.any(|token| matches!(token, Name(name) if matches!(name.as_str(), "def" | "lambda" | "function")))
        };
        let mut sets = uses.iter().filter(is_set);
        let (set, None) = (sets.next()?, sets.next()) else { return None };
        if uses.iter().any(hides) {
            return None;
        }
        let is_path = self.get_name(set + 2).ends_with("Path") && self.is_sign(set + 3, "(");
        let at = set + 2 + 2 * usize::from(is_path);
        let end = at + 1 + usize::from(is_path);
        let closed = !is_path || self.is_sign(at + 1, ")");
        match self.all.get(at) {
            Some(Text(text)) if closed && (self.all.get(end).is_none() || self.is_sign(end, "\n;")) => {
                Some(text.clone())
            }
            _ => None,
        }
    }

    /// The path of the object whose method stands at an index: `Path("x").unlink`, `p.unlink`.
    fn receiver(&self, at: usize) -> Option<String> {
        let (object, _) = self.get_name(at).rsplit_once('.')?;
        if !object.is_empty() {
            return self.bound(object);
        }
        match self.all.get(at.checked_sub(4)?..at)? {
            [Name(name), Sign('('), Text(text), Sign(')')] if name.ends_with("Path") => Some(text.clone()),
            _ => None,
        }
    }

    fn act(&self, effect: CallEffect, at: usize, effects: &mut Vec<CodeEffect>) {
        let Some(arguments) = self.arguments(at) else {
            // A call that is passed on by name is made somewhere.
            if !self.is_sign(at + 1, "=:") {
                match effect {
                    CallEffect::Run => effects.push(Danger(STARTS)),
                    CallEffect::Delete { .. } => effects.push(Danger(FILES)),
                    _ => {}
                }
            }
            return;
        };
        let value = |index: usize| arguments.get(index).and_then(|argument| self.value(argument));
        let write = |path: Option<String>| Touch(RedirectOperator::Write, path);
        match effect {
            CallEffect::Run => self.run(&arguments, effects),
            CallEffect::Delete { tree } => {
                let on_object = arguments.first().is_none_or(|first| first.is_empty() || is_option(first));
                effects.push(Delete { path: if on_object { self.receiver(at) } else { value(0) }, tree });
                let more = (1..arguments.len()).filter_map(value);
                effects.extend(more.map(|path| Delete { path: Some(path), tree }));
            }
            CallEffect::Write(index) => effects.push(write(value(index))),
            CallEffect::WriteSelf => effects.push(write(self.receiver(at))),
            CallEffect::Move => effects.extend([Delete { path: value(0), tree: false }, write(value(1))]),
            CallEffect::Open => {
                let name = self.get_name(at);
                let opener = name.rsplit_once('.').map_or("", |(opener, _)| opener);
                let on_object = name != "open"
                    && !matches!(opener, "io" | "os" | "fs" | "codecs" | "File" | "gzip" | "IO")
                    && name != "fopen";
                let mode = usize::from(!on_object);
                let reads = arguments.get(mode..).unwrap_or_default().iter().all(|argument| match argument {
                    [] => true,
                    [Name(option), Sign('='), ..] => option != "mode",
                    _ => self
                        .value(argument)
                        .is_some_and(|mode| !mode.contains(['w', 'a', 'x', '+', '>']) || mode.len() > 3),
                });
                if !reads {
                    effects.push(write(if on_object { self.receiver(at) } else { value(0) }));
                }
            }
        }
    }

    /// The command a call starts, as a shell text or as words.
    fn run(&self, arguments: &[&[Token]], effects: &mut Vec<CodeEffect>) {
        let mut words = Vec::new();
        let (mut is_list, mut is_known) = (false, true);
        for argument in arguments {
            if is_option(argument) {
                break;
            }
            for token in *argument {
                match token {
                    Text(text) => words.push(text.clone()),
                    Sign('[' | ']') => is_list = true,
                    Sign(',') => {}
                    Name(name) => match self.bound(name) {
                        Some(text) => words.push(text),
                        None => is_known = false,
                    },
                    Sign(_) => is_known = false,
                }
            }
        }
        if !is_known || words.is_empty() {
            effects.push(Danger(STARTS));
        }
        match words.as_slice() {
            [] => {}
            [text] if !is_list => effects.push(Shell(text.clone())),
            _ => effects.push(Argv(words)),
        }
    }
}

fn is_name(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

/// Whether a dotted name has these members in a row.
fn has_member(name: &str, wanted: &str) -> bool {
    name.match_indices(wanted).any(|(at, _)| {
        let (before, rest) = name.split_at(at);
        let behind = rest.strip_prefix(wanted).unwrap_or_default();
        (before.is_empty() || before.ends_with('.')) && (behind.is_empty() || behind.starts_with('.'))
    })
}

/// Whether an argument is an option by name, or an object with options.
fn is_option(argument: &[Token]) -> bool {
    matches!(argument, [Sign('{'), ..] | [Name(_), Sign('='), ..])
}

/// The effect of `open` with a text such as `>file`, `|command` or `command|`.
fn opened(text: &str) -> Option<CodeEffect> {
    let text = text.trim();
    if let Some(command) = text.strip_prefix('|').or(text.strip_suffix('|')) {
        return match command {
            "" => None,
            "-" => Some(Danger(STARTS)),
            command => Some(Shell(command.to_owned())),
        };
    }
    let path = text.strip_prefix("+<").or(text.strip_prefix('>'))?.trim_start_matches('>').trim();
    let is_absolute = path.starts_with(['/', '~']);
    let path = (is_absolute && !path.contains('$')).then(|| path.to_owned());
    (is_absolute || text.contains("HOME")).then_some(Touch(RedirectOperator::Write, path))
}
