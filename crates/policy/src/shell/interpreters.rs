//! Program texts in other languages, searched for what reaches outside the program.
//!
//! This is no parser for those languages. One tokenizer splits a text of any of them into names,
//! string literals and signs. A known call whose arguments are plain literals becomes the
//! equivalent shell command or file access, so one set of rules judges both. A name that can start
//! programs, hide a call or reach other machines is a danger wherever it stands, and so is a known
//! call whose arguments cannot be read. A text in a language that is not modeled is a danger
//! unless it only prints.

mod editing;
mod paths;
mod tables;
mod uses;

use std::collections::HashMap;

use super::UNKNOWN_CHAR;
use super::output::unescape;
use super::syntax::RedirectOperator;
use crate::programs::Language;
use tables::*;

/// One thing that a program text does outside the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodeEffect {
    /// Runs a shell text.
    Shell(String),
    /// Runs a program.
    Argv(Vec<String>),
    /// Reads or writes a file; without a path, one that is not known.
    Touch(RedirectOperator, Option<String>),
    /// Names a file, and may do anything with it.
    Mention(String),
    /// Goes to a directory; without a path, to one that is not known.
    Enter(Option<String>),
    /// Deletes a file or tree.
    Delete { path: Option<String>, tree: bool },
    /// Requests something with a text that is not known, perhaps one from the home directory.
    Send { reads_home: bool },
    /// Does something that cannot be judged further.
    Danger(&'static str),
}

use CodeEffect::{Argv, Danger, Delete, Enter, Mention, Shell, Touch};

/// The number of calls that are examined, and of effects that are reported.
const MAX_EFFECTS: usize = 128;

/// The number of tokens that may stand between `for` and `in`.
const MAX_LOOP_TOKENS: usize = 32;

pub(super) fn code_effects(language: Language, text: &str) -> Vec<CodeEffect> {
    let mut effects = match language {
        Language::Sed => return editing::sed(text),
        Language::Awk => editing::awk(&Tokens::new(language, text)),
        _ => Tokens::new(language, text).effects(),
    };
    effects.dedup();
    if effects.len() > MAX_EFFECTS {
        effects.truncate(MAX_EFFECTS);
        effects.push(Danger(TOO_MUCH));
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
    /// Names with the literals they are set to.
    bound: HashMap<String, Option<String>>,
}

impl Tokens {
    fn new(language: Language, text: &str) -> Self {
        let mut tokens = Self { language, all: Vec::new(), effects: Vec::new(), bound: HashMap::new() };
        let (mut rest, mut before, mut depth) = (text, ' ', 0_usize);
        while let Some(char) = rest.chars().next() {
            let is_end = |char: char| !is_name(char) && char != '.';
            let length = match char {
                '"' | '\'' | '`' => tokens.literal(rest, before),
                '#' if language == Language::Python => rest.find('\n').unwrap_or(rest.len()),
                '.' if !rest.get(1..).is_some_and(|rest| rest.starts_with(is_name)) => 0,
                char if !is_end(char) => {
                    let (name, _) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
                    tokens.all.push(Name(name.to_owned()));
                    name.len()
                }
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
        // A path may be made from one that is made from a third.
        for _ in 0..3 {
            tokens.bound = tokens.find_bound();
        }
        tokens
    }

    /// Reads a string literal; gives its length, or 0 if it is not one.
    fn literal(&mut self, text: &str, before: char) -> usize {
        let quote = text.get(..1).unwrap_or_default();
        let is_python = self.language == Language::Python;
        let runs = matches!(self.language, Language::Perl | Language::Ruby | Language::Php) && quote == "`";
        if quote == "`" && matches!(self.language, Language::Python | Language::Awk | Language::Other) {
            return 0;
        }
        let mark = quote.repeat(if is_python && text.starts_with(&quote.repeat(3)) { 3 } else { 1 });
        let body = text.get(mark.len()..).unwrap_or_default();
        let mut escaped = false;
        let end = body.char_indices().find(|(at, char)| {
            let ends = !escaped && body.get(*at..).is_some_and(|rest| rest.starts_with(&mark));
            let breaks = !escaped && *char == '\n' && mark.len() == 1 && quote != "`";
            escaped = *char == '\\' && !escaped;
            ends || breaks
        });
        let Some(body) =
            end.and_then(|(end, _)| body.get(..end)).filter(|_| end.is_some_and(|end| end.1 != '\n'))
        else {
            return 0;
        };
        let value = unescape(body, |_| true);
        if matches!(before, '/' | '\\') {
            self.effects.push(Danger("has quotes that cannot be paired"));
        }
        if is_python
            && matches!(self.all.last(), Some(Name(name)) if is_name(before) && PREFIXES.contains(&name.as_str()))
        {
            self.all.pop();
        }
        if runs {
            self.effects.push(Shell(value.clone()));
        }
        // With an interpolation in it, the literal is only a part of the value.
        if runs || (!is_python && quote != "'" && (value.contains("#{") || value.contains('$'))) {
            self.all.push(Sign('$'));
        }
        self.all.push(Text(value));
        body.len() + 2 * mark.len()
    }

    fn name(&self, at: usize) -> &str {
        if let Some(Name(name)) = self.all.get(at) { name } else { "" }
    }

    fn is_sign(&self, at: usize, signs: &str) -> bool {
        matches!(self.all.get(at), Some(Sign(sign)) if signs.contains(*sign))
    }

    fn effects(mut self) -> Vec<CodeEffect> {
        let mut effects = std::mem::take(&mut self.effects);
        let is_javascript = self.language == Language::JavaScript;
        let loads_child_process =
            |token: &Token| matches!(token, Text(text) if text.ends_with("child_process"));
        let starts_programs = !is_javascript || self.all.iter().any(loads_child_process);
        let (mut names, mut calls) = (Vec::new(), 0);
        for (at, token) in self.all.iter().enumerate() {
            let name = match token {
                Name(name) if !SAFE_NAMES.contains(&name.as_str()) => name.as_str(),
                Text(text) => {
                    self.judge_text(at, text, &mut effects);
                    continue;
                }
                _ => continue,
            };
            names.push(name);
            let is_call = |known: &&str| {
                name.strip_suffix(*known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            let call = CALLS.iter().find(|(_, names)| names.iter().any(is_call));
            match call.or_else(|| self.is_path_replace(at).then_some(PATH_REPLACE)) {
                _ if self.language == Language::Compiled => {}
                Some((CallEffect::Run, _)) if !starts_programs => {}
                Some((effect, _)) if calls < MAX_EFFECTS => {
                    calls += 1;
                    self.act(*effect, at, &mut effects);
                }
                Some(_) => effects.push(Danger(TOO_MUCH)),
                None if self.language == Language::Python => effects.extend(self.module_use(at)),
                None => {}
            }
            let is_literal = |arguments: Vec<&[Token]>| matches!(arguments.as_slice(), [[Text(_)]]);
            let loads = match name {
                "require" => self.is_sign(at + 1, "(") && !self.arguments(at).is_some_and(is_literal),
                "import" => is_javascript && self.is_sign(at + 1, "("),
                _ => false,
            };
            if loads {
                effects.push(Danger("loads a module by a computed name"));
            }
            // Data that a request carries.
            if name == "data" && self.is_sign(at.wrapping_sub(1), "(,") && self.is_sign(at + 1, "=") {
                effects.push(Danger(NETWORK));
            }
        }
        effects.extend(self.servers(&names));
        if (0..self.all.len()).any(|at| self.sends_unknown(at, &names)) {
            let is_home = |name: &&str| {
                ["home", "HOME", "homedir", "expanduser"].iter().any(|home| has_member(name, home))
            };
            let reads_home = names.iter().any(is_home)
                || self.all.iter().any(|token| matches!(token, Text(text) if text == "HOME"));
            effects.push(CodeEffect::Send { reads_home });
        }
        names.sort_unstable();
        names.dedup();
        self.drop_harmless(&mut names);
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
        if starts_programs
            && is_javascript
            && !effects.iter().any(|effect| matches!(effect, Shell(_) | Argv(_)))
        {
            effects.push(Danger(STARTS));
        }
        effects
    }

    /// Whether a request at an index goes to another machine with a text that is not known.
    fn sends_unknown(&self, at: usize, names: &[&str]) -> bool {
        let name = self.name(at);
        let is_client = |name: &&str| HTTP_CLIENTS.iter().any(|client| has_member(name, client));
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_request = REQUESTS.contains(&last)
            || (matches!(last, "get" | "head" | "request" | "stream" | "options")
                && names.iter().any(is_client));
        let is_imported = self.is_sign(at + 1, ",\n;") || self.name(at.wrapping_sub(1)) == "import";
        if name.is_empty() || !is_request || is_imported {
            return false;
        }
        let Some(arguments) = self.arguments(at) else { return self.is_sign(at + 1, ")") };
        let is_literal = |argument: &[Token]| match argument {
            [Name(option), Sign('='), ..] if REQUEST_OPTIONS.contains(&option.as_str()) => true,
            [Name(_), Sign('='), rest @ ..] => !rest.iter().any(|token| matches!(token, Name(_))),
            [Name(prefix), Text(text)] if prefix == "f" => !text.contains('{'),
            [Sign('$'), Text(_), ..] => false,
            argument => {
                self.value(argument).is_some_and(|text| !text.contains(['*', UNKNOWN_CHAR]))
                    || !argument.iter().any(|token| matches!(token, Name(_)))
            }
        };
        let is_here = |token: &Token| {
            let Text(text) = token else { return false };
            let host = text.split_once("://").map_or("", |(_, rest)| rest);
            LOOPBACK.iter().any(|here| host.starts_with(here))
        };
        let is_local = arguments.first().is_some_and(|address| address.iter().any(is_here));
        !is_local && !arguments.into_iter().all(is_literal)
    }

    /// Whether servers may be reached from other machines, or show files.
    fn servers(&self, names: &[&str]) -> Option<CodeEffect> {
        let is_server = |name: &str| SERVERS.iter().any(|server| has_member(name, server));
        let is_here = |at: usize| {
            let address = self.arguments(at).unwrap_or_default().into_iter().next();
            matches!(address, Some([Sign('('), Text(host), ..]) if LOOPBACK.contains(&host.as_str()))
        };
        let mut calls =
            (0..self.all.len()).filter(|at| is_server(self.name(*at)) && self.is_sign(at + 1, "("));
        let is_safe = match self.language {
            Language::JavaScript => {
                let shows_files = |token: &Token| matches!(token, Text(text) if matches!(text.trim_start_matches("node:"), "fs" | "fs/promises" | "0.0.0.0"));
                !self.all.iter().any(shows_files)
            }
            _ => {
                names.iter().all(|name| !name.ends_with("test"))
                    && calls.clone().next().is_some()
                    && calls.all(is_here)
            }
        };
        let serves = names
            .iter()
            .any(|name| is_server(name) || SERVER_MODULES.iter().any(|module| has_member(name, module)));
        (serves && !is_safe).then_some(Danger(NETWORK))
    }

    /// The effects of a literal: a module it names, a path, an address, a command to open.
    fn judge_text(&self, at: usize, text: &str, effects: &mut Vec<CodeEffect>) {
        let imports = |at: usize| matches!(self.name(at), "require" | "from" | "import");
        let before = at.wrapping_sub(1);
        let is_module = imports(before) || (self.is_sign(before, "(") && imports(before.wrapping_sub(1)));
        match text.strip_prefix("node:").unwrap_or(text) {
            "net" | "dgram" | "tls" | "http2" | "socket" if is_module => effects.push(Danger(NETWORK)),
            "vm" | "worker_threads" | "cluster" | "module" if is_module => effects.push(Danger(HIDES)),
            "POST" | "PUT" | "PATCH" => effects.push(Danger(NETWORK)),
            text if text.contains("://") && crate::programs::is_metadata(text) => {
                effects.push(Danger("asks the cloud for the keys of this machine"));
            }
            _ => {}
        }
        // A call by its name: `fs['rmSync'](x)`, `array_map("unlink", …)`.
        let is_known = |(_, names): &(CallEffect, &[&str])| names.contains(&text);
        let is_member = self.is_sign(before, "[") && self.is_sign(at + 1, "]");
        if (is_member || self.language == Language::Php) && CALLS.iter().any(is_known) {
            effects.push(Danger(HIDES));
        }
        let is_path = text.len() < 4096 && !text.contains(['\n', ' ']) && !text.contains("://");
        if is_path && (text.contains('/') || text.starts_with('.')) {
            let path = text.to_owned();
            // Compiled source is not read closely, so a path it names may be written.
            effects.push(match self.language {
                Language::Compiled if text.starts_with('/') => Touch(RedirectOperator::Write, Some(path)),
                Language::Compiled | Language::Awk => Touch(RedirectOperator::Read, Some(path)),
                _ if self.is_only_read(at) => Touch(RedirectOperator::Read, Some(path)),
                _ => Mention(path),
            });
        }
        if matches!(self.language, Language::Perl | Language::Ruby) {
            effects.extend(opened(text));
        }
    }

    /// Whether the path in a literal is plainly only looked at: `open("x")`, `Path("x").exists()`.
    fn is_only_read(&self, at: usize) -> bool {
        let (mut start, mut end) = (at, at + 1);
        // A call whose first argument the literal is, from the inside out.
        while self.is_sign(start.wrapping_sub(1), "(") && start >= 2 {
            start -= 2;
            let name = self.name(start);
            let last = name.rsplit('.').next().unwrap_or_default();
            if LOOKERS.contains(&last) {
                return true;
            }
            if OPENERS.contains(&name) {
                let mode =
                    |arguments: Vec<&[Token]>| arguments.iter().skip(1).all(|mode| self.is_reading(mode));
                return self.arguments(start).is_some_and(mode);
            }
            let joins = last == "join" && self.is_sign(end, ",");
            if !(joins || PATH_MAKERS.contains(&last) && self.is_sign(end, ")")) {
                return false;
            }
            end += self
                .all
                .get(end..)
                .unwrap_or_default()
                .iter()
                .position(|token| *token == Sign(')'))
                .unwrap_or(0)
                + 1;
            while PATH_MAKERS.contains(&self.name(end).trim_start_matches('.')) && self.is_sign(end + 2, ")")
            {
                end += 3;
            }
            let method = self.name(end).trim_start_matches('.');
            if LOOKERS.contains(&method) {
                return true;
            }
        }
        false
    }

    /// Whether an argument of `open` leaves it reading.
    fn is_reading(&self, argument: &[Token]) -> bool {
        match argument {
            [] => true,
            [Name(option), Sign('='), mode @ ..] if option == "mode" => self.is_reading(mode),
            [Name(_), Sign('='), ..] => true,
            _ => self.value(argument).is_some_and(|mode| {
                // `w:gz` is one of `tarfile`.
                let mode = mode.split([':', '|']).next().unwrap_or_default();
                mode.len() > 3 || !mode.contains(['w', 'a', 'x', '+', '>'])
            }),
        }
    }

    /// Judges the use of a module that can change the system: only its known members are harmless.
    fn module_use(&self, at: usize) -> Option<CodeEffect> {
        let (module, member) = self.name(at).split_once('.').unwrap_or((self.name(at), ""));
        if !matches!(module, "os" | "posix" | "subprocess" | "shutil") {
            return None;
        }
        let before = at.wrapping_sub(1);
        let is_safe = |member: &str| SAFE_MEMBERS.contains(&member.split('.').next().unwrap_or_default());
        let harmless = if !member.is_empty() {
            is_safe(member)
        } else if self.name(before) == "from" {
            let names = self.all.iter().skip(at + 2).take_while(|token| !is_statement_end(token));
            names.into_iter().all(|token| matches!(token, Name(name) if is_safe(name)) || *token == Sign(','))
        } else {
            (self.name(before) == "import" || self.is_sign(before, ",")) && self.name(at + 1) != "as"
        };
        (!harmless).then_some(Danger("uses a system call that is not known to be harmless"))
    }

    /// The arguments of the call whose name stands at an index; `None` if it is not called there.
    fn arguments(&self, at: usize) -> Option<Vec<&[Token]>> {
        let brackets = self.is_sign(at + 1, "(");
        let may_omit = !matches!(self.language, Language::Python | Language::JavaScript);
        let is_operand =
            matches!(self.all.get(at + 1), Some(Text(_) | Name(_))) || self.is_sign(at + 1, "$@");
        if !(brackets || may_omit && is_operand) {
            return None;
        }
        let rest = self.all.get(at + 1 + usize::from(brackets)..)?;
        let mut depth = 0_usize;
        let end = rest.iter().position(|token| match token {
            Sign(')' | ']' | '}') if depth == 0 => true,
            token => {
                depth = nesting(depth, token);
                !brackets && is_statement_end(token)
            }
        });
        let mut depth = 0_usize;
        let is_comma = |token: &Token| {
            depth = nesting(depth, token);
            depth == 0 && *token == Sign(',')
        };
        Some(rest.get(..end.unwrap_or(rest.len()))?.split(is_comma).collect())
    }

    /// The value of an argument that is a literal, or a name set to one and never to anything else.
    fn value(&self, argument: &[Token]) -> Option<String> {
        match argument {
            [Text(text)] => Some(text.clone()),
            [Name(prefix), Text(text)] if prefix == "f" => below_start(text),
            _ => self.path(argument),
        }
    }

    /// The literal a name is set to, unless something else may change it.
    fn bound(&self, name: &str) -> Option<String> {
        self.bound.get(name).cloned().flatten()
    }

    /// The names that are set: `name = "text"` or `for name in Path("text").glob("*")`, once and
    /// nowhere else.
    fn find_bound(&self) -> HashMap<String, Option<String>> {
        let mut bound: HashMap<String, Option<String>> = HashMap::new();
        let mut at = 0;
        for line in self.all.split(is_statement_end) {
            let is_keyword = |token: &Token| matches!(token, Name(name) if matches!(name.as_str(), "def" | "lambda" | "function"));
            let is_hidden = line.iter().any(is_keyword);
            let targets = self.targets(at, line.len());
            let end = at + line.len();
            let loops = self.loops(at, end);
            for at in at..end {
                let is_set = self.is_sign(at + 1, "=") && !self.is_sign(at + 2, "=");
                let before = self.name(at.wrapping_sub(1));
                let is_changed = matches!(before, "as" | "global" | "nonlocal" | "import" | "del" | "case")
                    || self.is_sign(at + 1, "+-:")
                    || (self.is_sign(at + 1, "*/%|&^@<>")
                        && (self.is_sign(at + 2, "=") || self.is_sign(at + 3, "=")))
                    || targets.contains(&at)
                    || self.is_parameter(at);
                let of_loop = loops.get(&at);
                if self.name(at).is_empty() || !(is_set || is_hidden || is_changed || of_loop.is_some()) {
                    continue;
                }
                let value = match of_loop {
                    _ if is_hidden => None,
                    Some(item) => item.clone(),
                    None if before == "as" => self.context_path(at),
                    None => self.literal_at(at + 2).filter(|_| is_set && !self.is_parameter(at)),
                };
                bound.entry(self.name(at).to_owned()).and_modify(|value| *value = None).or_insert(value);
            }
            at = end + 1;
        }
        bound
    }

    /// The indexes of the names that a statement assigns to several at once: `p, q = …`.
    fn targets(&self, start: usize, length: usize) -> Vec<usize> {
        let (mut depth, mut open) = (0_usize, Vec::new());
        let mut found = Vec::new();
        for at in start..start + length {
            match self.all.get(at) {
                Some(Name(_)) if depth == 0 => open.push(at),
                Some(Sign('(' | '[' | '{')) => {
                    // Behind a name they hold an index or arguments.
                    let is_pattern = depth == 0 && self.name(at.wrapping_sub(1)).is_empty();
                    depth += usize::from(!is_pattern || depth > 0);
                }
                Some(Sign(')' | ']' | '}')) => depth = depth.saturating_sub(1),
                Some(Sign('='))
                    if depth == 0
                        && !self.is_sign(at + 1, "=")
                        && !self.is_sign(at.wrapping_sub(1), "=!<>") =>
                {
                    found.append(&mut open);
                }
                _ => {}
            }
        }
        found.retain(|at| !self.is_sign(at + 1, "="));
        found
    }

    /// What stands between `for` and `in` in a statement, and what each item is called.
    fn loops(&self, from: usize, to: usize) -> HashMap<usize, Option<String>> {
        let mut found = HashMap::new();
        for start in (from..to).filter(|at| self.name(*at) == "for") {
            let limit = to.min(start + MAX_LOOP_TOKENS);
            let is_in = |at: &usize| matches!(self.name(*at), "in" | "of");
            let end = (start..limit).find(is_in).unwrap_or(limit);
            let is_sign = |at: usize| matches!(self.all.get(at), Some(Sign(sign)) if *sign != '(');
            let several = (start..end).any(is_sign);
            let items = self.all.get(end + 1..to).filter(|_| !several);
            let item = items.and_then(|items| self.listed(items));
            found.extend((start + 1..end).map(|at| (at, item.clone())));
        }
        found
    }

    /// Whether a name is a parameter of an arrow function.
    fn is_parameter(&self, at: usize) -> bool {
        let is_listed = |at: &usize| self.is_sign(*at, ",") || !self.name(*at).is_empty();
        let end = (at..at + 16).find(|at| !is_listed(at)).unwrap_or(at);
        self.language == Language::JavaScript
            && self.is_sign(end, ")")
            && self.is_sign(end + 1, "=")
            && self.is_sign(end + 2, ">")
    }

    /// The path that `with … as name` makes.
    fn context_path(&self, at: usize) -> Option<String> {
        self.path(self.all.get(at.checked_sub(4)?..at - 1)?)
    }

    /// The literal, or the path made of literals, that is the rest of a statement.
    fn literal_at(&self, at: usize) -> Option<String> {
        let rest = self.all.get(at..)?;
        let end = rest.iter().position(is_statement_end).unwrap_or(rest.len());
        match rest.get(..end)? {
            [Text(text)] => Some(text.clone()),
            rest => self.path(rest),
        }
    }

    fn act(&self, effect: CallEffect, at: usize, effects: &mut Vec<CodeEffect>) {
        let Some(arguments) = self.arguments(at) else {
            // A call that is passed on by name is made somewhere.
            effects.extend(match effect {
                _ if self.is_sign(at + 1, "=:") || self.is_imported(at) => None,
                CallEffect::Run => Some(Danger(STARTS)),
                CallEffect::Delete { .. } | CallEffect::Move | CallEffect::WriteSelf => Some(Danger(FILES)),
                CallEffect::Open if self.is_passed_on(at) => Some(Danger(FILES)),
                _ => None,
            });
            return;
        };
        let value = |index: usize| arguments.get(index).and_then(|argument| self.value(argument));
        let write = |path: Option<String>| Touch(RedirectOperator::Write, path);
        match effect {
            CallEffect::Run => self.run(&arguments, effects),
            CallEffect::Delete { tree } => {
                let on_object = arguments.first().is_none_or(|first| first.is_empty() || is_option(first));
                let path = if on_object { self.receiver(at) } else { value(0) };
                // Files of any depth are as many as a tree.
                let tree = tree || path.as_ref().is_some_and(|path| path.contains(UNKNOWN_CHAR));
                effects.push(Delete { path, tree });
                let more = (1..arguments.len()).filter_map(value);
                effects.extend(more.map(|path| Delete { path: Some(path), tree }));
            }
            CallEffect::Write(index) => effects.push(write(value(index))),
            CallEffect::SaveNamed(wanted) => {
                let named = arguments.iter().find_map(|argument| match argument {
                    [Name(name), Sign('='), value @ ..] if name == wanted => Some(self.value(value)),
                    _ => None,
                });
                effects.extend(named.map(write));
            }
            CallEffect::Save(index) => effects.extend(value(index).map(|path| write(Some(path)))),
            CallEffect::Enter => {
                // In a loop, `..` may lead anywhere above.
                let loops = self
                    .all
                    .iter()
                    .any(|token| matches!(token, Name(name) if matches!(name.as_str(), "for" | "while")));
                effects.push(Enter(value(0).filter(|path| !loops || path.starts_with(['/', '~']))));
            }
            CallEffect::WriteSelf => effects.push(write(self.receiver(at))),
            CallEffect::Move if arguments.len() == 1 && self.name(at).contains('.') => {
                effects.extend([Delete { path: self.receiver(at), tree: false }, write(value(0))]);
            }
            CallEffect::Move => effects.extend([Delete { path: value(0), tree: false }, write(value(1))]),
            // `open($handle, '>', $path)`
            CallEffect::Open if self.language == Language::Perl && arguments.len() > 2 => {
                if value(1).is_none_or(|mode| mode.contains(['>', '+'])) {
                    effects.push(write(value(2)));
                }
            }
            CallEffect::Open => {
                let on_object = !OPENERS.contains(&self.name(at));
                let has_path = arguments.first().is_some_and(|first| !is_option(first));
                let mode = usize::from(!on_object && has_path);
                if arguments.iter().any(|argument| matches!(argument, [Sign('*'), ..])) {
                    effects.push(write(None));
                } else if !arguments.iter().skip(mode).all(|mode| self.is_reading(mode)) {
                    effects.push(write(if on_object { self.receiver(at) } else { value(0) }));
                }
            }
        }
    }

    /// Whether a call of `replace` is that of a path: the one of a text has two arguments.
    fn is_path_replace(&self, at: usize) -> bool {
        self.language == Language::Python
            && self.name(at).ends_with(".replace")
            && self.arguments(at).is_some_and(|arguments| arguments.len() == 1)
    }

    /// Whether the function that opens files is given to something else, under another name perhaps.
    fn is_passed_on(&self, at: usize) -> bool {
        let before = self.name(at.wrapping_sub(1));
        self.language == Language::Python
            && OPENERS.contains(&self.name(at))
            && !matches!(before, "import" | "def" | "as")
    }

    /// The command a call starts, as a shell text or as words.
    fn run(&self, arguments: &[&[Token]], effects: &mut Vec<CodeEffect>) {
        let is_bracket = |token: &&&Token| matches!(token, Sign(',' | '[' | ']'));
        let tokens: Vec<&Token> = arguments
            .iter()
            .take_while(|argument| !is_option(argument))
            .copied()
            .flatten()
            .take(256)
            .collect();
        let parts = tokens.iter().filter(|token| !is_bracket(token));
        let values: Vec<Option<String>> =
            parts.map(|token| self.value(std::slice::from_ref(token))).collect();
        if values.is_empty() || values.contains(&None) || tokens.len() == 256 {
            effects.push(Danger(STARTS));
        }
        let words: Vec<String> = values.into_iter().flatten().collect();
        match words.as_slice() {
            [] => {}
            [text] if !tokens.contains(&&Sign('[')) => {
                effects.extend(text.contains(UNKNOWN_CHAR).then_some(Danger(STARTS)));
                effects.push(Shell(text.clone()));
            }
            _ => effects.push(Argv(words)),
        }
    }
}

fn is_name(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

fn is_statement_end(token: &Token) -> bool {
    matches!(token, Sign('\n' | ';'))
}

/// What an f-string makes: something below the directory it starts with.
fn below_start(text: &str) -> Option<String> {
    let start = text.split('{').next().filter(|start| start.ends_with('/') && !text.contains(".."))?;
    Some(format!("{start}{UNKNOWN_CHAR}"))
}

/// The depth of brackets behind a token.
fn nesting(depth: usize, token: &Token) -> usize {
    match token {
        Sign('(' | '[' | '{') => depth + 1,
        Sign(')' | ']' | '}') => depth.saturating_sub(1),
        _ => depth,
    }
}

/// Whether a dotted name has these members in a row.
fn has_member(name: &str, wanted: &str) -> bool {
    let mut rest = name;
    while rest.len() >= wanted.len() {
        if rest.strip_prefix(wanted).is_some_and(|behind| behind.is_empty() || behind.starts_with('.')) {
            return true;
        }
        let Some((_, behind)) = rest.split_once('.') else { return false };
        rest = behind;
    }
    false
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
