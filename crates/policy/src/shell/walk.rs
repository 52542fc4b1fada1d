//! Walking the tree: every simple command of every branch becomes a [`Segment`].
//!
//! The walk follows what is easy to follow (literal assignments, `cd`, loops over known words, calls of functions
//! defined in the script, text piped into a shell) and leaves the rest unknown. Nothing is skipped because it might
//! not run.

use std::rc::Rc;

use super::budget::{Budget, MAX_DEPTH, MAX_REDIRECTS, MAX_SEGMENTS, MAX_WORDS, Trouble};
use super::env::Env;
use super::syntax::{self, AssignValue, Command, Compound, Item, Kind, List, Node, Operator, Target};
use super::value::{Piece, Redirect, Stream, Unknown, Word};
use super::{Doubt, DoubtKind, Script, Segment, Surroundings, parse};
use crate::programs::Language;

/// How many items of a `for` are followed one by one.
const MAX_ITEMS: usize = 16;

pub(super) struct Walk<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) budget: &'a Budget,
    pub(super) env: Env,
    pub(super) script: Script,
    /// The text of the last process substitution, for the command that reads it.
    pub(super) process_text: Option<Word>,
    pub(super) depth: usize,
    /// Whether the budget is used up, so that nothing more is followed.
    pub(super) spent: bool,
    /// How many branches that may not run surround this point.
    pub(super) conditional: usize,
    /// How many loops surround this point.
    repeated: usize,
    stdin: Stream,
    pub(super) via: Vec<String>,
    /// The functions that are being followed; none is followed into itself.
    pub(super) calls: Vec<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(around: &'a Surroundings<'a>, budget: &'a Budget) -> Self {
        Self {
            around,
            budget,
            env: Env::new(around),
            script: Script::default(),
            process_text: None,
            depth: 0,
            spent: false,
            conditional: 0,
            repeated: 0,
            stdin: Stream::default(),
            via: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub(super) fn doubt(&mut self, kind: DoubtKind, source: &str) {
        let doubt = Doubt { kind, source: source.to_owned() };
        if self.script.doubts.len() < 256 && !self.script.doubts.contains(&doubt) {
            self.script.doubts.push(doubt);
        }
    }

    /// Pays for work; when nothing is left, the script counts as not understood.
    pub(super) fn charge(&mut self, steps: usize) {
        if self.budget.spend(steps).is_err() {
            self.spent = true;
            self.trouble(Trouble::TooMuch, "");
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble, source: &str) {
        let kind = match trouble {
            Trouble::Syntax(what) => DoubtKind::Syntax(what),
            Trouble::TooDeep => DoubtKind::TooDeep,
            Trouble::TooMuch => DoubtKind::TooMuch,
        };
        self.doubt(kind, source);
    }

    /// Reads and walks a script text.
    pub(super) fn script_text(&mut self, text: &str) -> Stream {
        match parse::parse(text, self.budget, self.depth) {
            Ok(list) => self.list(&list),
            Err(trouble) => {
                self.trouble(trouble, text);
                Stream::default()
            }
        }
    }

    /// Reads a Python program.
    pub(super) fn python_text(&mut self, text: &str) {
        self.run_code(Language::Python, &Word::literal(text), text);
    }

    fn list(&mut self, list: &List) -> Stream {
        if self.depth >= MAX_DEPTH {
            self.trouble(Trouble::TooDeep, "");
            return Stream::default();
        }
        self.depth += 1;
        let mut streams = Vec::new();
        for item in &list.0 {
            if self.spent {
                break;
            }
            if self.script.segments.len() >= MAX_SEGMENTS {
                self.trouble(Trouble::TooMuch, "");
                break;
            }
            streams.push(self.item(item));
        }
        self.depth -= 1;
        if streams.len() == 1 {
            return streams.remove(0);
        }
        let mut programs: Vec<String> = streams.into_iter().flat_map(|stream| stream.programs).collect();
        programs.dedup();
        programs.truncate(16);
        Stream { text: None, programs }
    }

    fn item(&mut self, item: &Item) -> Stream {
        self.conditional += usize::from(item.conditional);
        let stream = if let [only] = item.pipeline.as_slice() {
            let stdin = self.stdin.clone();
            self.node(only, stdin)
        } else {
            let mut stream = self.stdin.clone();
            for node in &item.pipeline {
                self.charge(self.env.size());
                let saved = self.env.clone();
                stream = self.node(node, stream);
                self.env.leave_for(saved);
            }
            stream
        };
        self.conditional -= usize::from(item.conditional);
        stream
    }

    /// A list that runs in a shell of its own.
    pub(super) fn sublist(&mut self, list: &List) -> Stream {
        self.charge(self.env.size());
        let saved = self.env.clone();
        let stream = self.list(list);
        self.env.leave_for(saved);
        stream
    }

    /// What `$(…)` becomes.
    pub(super) fn substitution(&mut self, list: &List) -> Vec<Piece> {
        let stream = self.sublist(list);
        match stream.text {
            Some(text) => {
                let mut pieces = text.pieces().to_vec();
                if let Some(Piece::Text(last)) = pieces.last_mut() {
                    last.truncate(last.trim_end_matches('\n').len());
                }
                pieces
            }
            None => vec![Piece::Unknown(Unknown::Output(stream.programs))],
        }
    }

    pub(super) fn node(&mut self, node: &Node, mut stdin: Stream) -> Stream {
        let source = node.text.get(node.span.clone()).unwrap_or_default().trim_end();
        let mut redirects = Vec::with_capacity(node.redirects.len());
        if node.redirects.len() > MAX_REDIRECTS {
            self.trouble(Trouble::TooMuch, "");
        }
        for redirect in node.redirects.iter().take(MAX_REDIRECTS) {
            let target = match &redirect.target {
                Target::Word(word) if redirect.operator == Operator::HereString => self.expand_whole(word),
                Target::Word(word) => self.expand_target(word),
                Target::Body(body) => body.get().map(|word| self.expand_whole(word)).unwrap_or_default(),
            };
            let descriptor = redirect.descriptor.clone();
            redirects.push(Redirect { descriptor, operator: redirect.operator, target });
        }
        self.take_stdin(&redirects, &mut stdin);
        match &node.command {
            Command::Simple(simple) => self.simple(simple, redirects, stdin, source),
            Command::Compound(compound) => {
                if !redirects.is_empty() {
                    self.emit(Vec::new(), Vec::new(), redirects, stdin.clone(), source);
                }
                let outer = std::mem::replace(&mut self.stdin, stdin);
                let stream = self.compound(compound, source);
                self.stdin = outer;
                stream
            }
            Command::Function { name, body } => {
                if calls_itself_in_parallel(name, body) {
                    self.doubt(DoubtKind::ForkBomb, source);
                }
                self.env.functions.insert(name.clone(), Rc::clone(body));
                let positional = self.env.positional.take();
                self.conditional += 1;
                self.charge(self.env.size());
                let saved = self.env.clone();
                self.calls.push(name.clone());
                self.node(body, Stream::default());
                self.calls.pop();
                self.env = saved;
                self.conditional -= 1;
                self.env.positional = positional;
                Stream::default()
            }
        }
    }

    /// Lets redirections replace what arrives on standard input.
    fn take_stdin(&mut self, redirects: &[Redirect], stdin: &mut Stream) {
        for redirect in redirects {
            if redirect.descriptor.as_deref().is_some_and(|descriptor| descriptor != "0") {
                continue;
            }
            match redirect.operator {
                Operator::HereDocument | Operator::HereString => {
                    *stdin = Stream { text: Some(redirect.target.clone()), programs: Vec::new() };
                }
                Operator::Read | Operator::ReadWrite => {
                    if crate::paths::is_stream(&self.env.path(&redirect.target))
                        && redirect.target.known().is_some()
                    {
                        *stdin = Stream::default();
                        continue;
                    }
                    let programs: Vec<String> = redirect.target.output_of().map(str::to_owned).collect();
                    let written = self.env.files.get(&self.env.path(&redirect.target));
                    let text = match written.cloned().flatten() {
                        Some(text) => Some(text),
                        None if !programs.is_empty() => self.process_text.take(),
                        None => None,
                    };
                    let programs = if programs.is_empty() { vec!["<".to_owned()] } else { programs };
                    *stdin = Stream { text, programs };
                }
                _ => {}
            }
        }
    }

    fn compound(&mut self, compound: &Compound, source: &str) -> Stream {
        match compound.kind {
            Kind::Group => self.lists(&compound.lists),
            Kind::Subshell => {
                let saved = self.env.clone();
                self.charge(saved.size());
                let stream = self.lists(&compound.lists);
                self.env.leave_for(saved);
                stream
            }
            Kind::For => self.for_loop(compound),
            Kind::If | Kind::Loop | Kind::Case | Kind::Test | Kind::Arithmetic => {
                for word in &compound.words {
                    self.expand(word);
                }
                if compound.kind == Kind::Loop && spawns_for_ever(&compound.lists) {
                    self.doubt(DoubtKind::EndlessSpawn, source);
                }
                let repeats = usize::from(compound.kind == Kind::Loop);
                self.conditional += 1;
                self.repeated += repeats;
                let stream = self.lists(&compound.lists);
                self.repeated -= repeats;
                self.conditional -= 1;
                stream
            }
        }
    }

    fn lists(&mut self, lists: &[List]) -> Stream {
        let mut programs = Vec::new();
        let mut last = Stream::default();
        for list in lists {
            last = self.list(list);
            programs.append(&mut last.programs.clone());
        }
        if lists.len() == 1 {
            return last;
        }
        programs.dedup();
        programs.truncate(16);
        Stream { text: None, programs }
    }

    fn for_loop(&mut self, compound: &Compound) -> Stream {
        let name = compound.variable.clone().unwrap_or_default();
        let mut items = Vec::new();
        for word in &compound.words {
            items.extend(self.expand(word));
        }
        self.conditional += 1;
        self.repeated += 1;
        let mut stream = Stream::default();
        let follow = items.len() <= MAX_ITEMS && !items.is_empty() && items.iter().all(|item| !item.splits);
        if follow {
            for item in items {
                self.env.set(&name, item.pieces().to_vec(), true);
                stream = self.lists(&compound.lists);
            }
            stream.text = None;
        } else {
            // Every known item is still tried, but the body is walked once for all that cannot be told apart.
            for item in items.iter().filter(|item| !item.splits).take(MAX_ITEMS) {
                self.env.set(&name, item.pieces().to_vec(), true);
                self.lists(&compound.lists);
            }
            self.env.forget(&name);
            stream = self.lists(&compound.lists);
        }
        self.repeated -= 1;
        self.conditional -= 1;
        stream
    }

    fn simple(
        &mut self,
        simple: &syntax::Simple,
        redirects: Vec<Redirect>,
        stdin: Stream,
        source: &str,
    ) -> Stream {
        let mut assignments = Vec::new();
        for assign in &simple.assigns {
            self.expand(&syntax::Word { parts: assign.index.clone() });
            let value = match &assign.value {
                AssignValue::Scalar(word) => self.expand_whole(word),
                AssignValue::Array(words) => {
                    // `${a[@]}` and `$a` are not told apart: the elements are known together.
                    let mut pieces = Vec::new();
                    for (index, word) in words.iter().enumerate() {
                        if index > 0 {
                            pieces.push(Piece::Text(" ".to_owned()));
                        }
                        pieces.extend(self.expand_whole(word).pieces().iter().cloned());
                    }
                    Word::from_pieces(pieces)
                }
            };
            let mut pieces = Vec::new();
            if assign.append {
                pieces.extend(self.env.value(&assign.name).unwrap_or_default());
            }
            pieces.extend(value.pieces().iter().cloned());
            if simple.words.is_empty() {
                self.env.set(&assign.name, joined(pieces), self.conditional == 0);
            }
            assignments.push((assign.name.clone(), value));
        }
        let mut argv = Vec::new();
        for word in &simple.words {
            argv.extend(self.expand(word));
            if argv.len() > MAX_WORDS {
                argv.truncate(MAX_WORDS);
                self.trouble(Trouble::TooMuch, "");
                break;
            }
        }
        self.run(argv, assignments, redirects, stdin, source)
    }

    /// Adds a segment.
    pub(super) fn emit(
        &mut self,
        argv: Vec<Word>,
        assignments: Vec<(String, Word)>,
        redirects: Vec<Redirect>,
        stdin: Stream,
        source: &str,
    ) -> Segment {
        let mut argv = argv.into_iter();
        let program = argv.next().unwrap_or_default();
        let segment = Segment {
            name: super::program_name(&program),
            program,
            args: argv.collect(),
            assignments,
            redirects,
            stdin,
            cwd: self.env.cwd.clone(),
            via: self.via.clone(),
            repeated: self.repeated > 0,
            source: source.to_owned(),
        };
        self.charge(16 + 48 * (segment.args.len() + segment.redirects.len()));
        self.script.segments.push(segment.clone());
        segment
    }
}

/// Joins neighboring text.
pub(super) fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut result: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (result.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) => last.push_str(&text),
            (_, piece) => result.push(piece),
        }
    }
    result
}

/// Whether a function starts itself in a pipe or in the background: each call makes at least two more.
fn calls_itself_in_parallel(name: &str, body: &Node) -> bool {
    fn in_list(name: &str, list: &List, parallel: bool) -> bool {
        list.0.iter().any(|item| {
            let parallel = parallel || item.background || item.pipeline.len() > 1;
            item.pipeline.iter().any(|node| in_node(name, node, parallel))
        })
    }
    fn in_node(name: &str, node: &Node, parallel: bool) -> bool {
        match &node.command {
            Command::Simple(simple) => {
                parallel
                    && simple.words.iter().take(3).any(|word| {
                        matches!(word.parts.as_slice(), [syntax::Part::Text(text) | syntax::Part::Quoted(text)] if text == name)
                    })
            }
            Command::Compound(compound) => compound.lists.iter().any(|list| in_list(name, list, parallel)),
            Command::Function { .. } => false,
        }
    }
    in_node(name, body, false)
}

/// Whether a loop without an end starts something in the background each time round.
fn spawns_for_ever(lists: &[List]) -> bool {
    let [condition, body] = lists else { return false };
    let endless = condition.0.iter().flat_map(|item| &item.pipeline).all(|node| {
        matches!(&node.command, Command::Simple(simple) if matches!(simple.words.as_slice(), [word]
            if matches!(word.parts.as_slice(), [syntax::Part::Text(text)] if text == ":" || text == "true")))
    });
    let waits = |node: &Node| {
        matches!(&node.command, Command::Simple(simple) if simple.words.first().is_some_and(|word|
            matches!(word.parts.as_slice(), [syntax::Part::Text(text)] if matches!(text.as_str(), "sleep" | "wait" | "read"))))
    };
    endless
        && body.0.iter().any(|item| item.background)
        && !body.0.iter().filter(|item| !item.background).flat_map(|item| &item.pipeline).any(waits)
}
