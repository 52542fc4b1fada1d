//! Walks the syntax tree: every simple command of every branch becomes a [`Segment`].
//!
//! It follows literal assignments, `cd`, loops over known words, calls of functions defined in the
//! script and text piped into a shell, and treats the rest as unknown. It skips no branch, even if
//! the branch might not run.

use std::rc::Rc;

use super::budget::{Budget, MAX_DEPTH, MAX_REDIRECTS, MAX_SEGMENTS, MAX_WORDS};
use super::env::ShellEnv;
use super::syntax::{
    CommandNode, Compound, CompoundKind, List, ListItem, RedirectOperator, Simple, SyntaxNode, literal_text,
};
use super::*;
use crate::programs::Language;

/// Items of a `for` that are followed one by one.
const MAX_ITEMS: usize = 16;

pub(super) struct Walker<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) budget: &'a Budget,
    pub(super) env: ShellEnv,
    pub(super) script: Script,
    /// The text of the last process substitution, for the command that reads it.
    pub(super) process_text: Option<Word>,
    pub(super) depth: usize,
    /// Whether the budget is exhausted, so that nothing more is followed.
    pub(super) spent: bool,
    /// The number of enclosing branches that may not run.
    pub(super) conditional: usize,
    /// The number of enclosing loops.
    repeated: usize,
    stdin: PipeData,
    pub(super) via: Vec<String>,
    /// The functions being followed; none is followed recursively.
    pub(super) calls: Vec<String>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(around: &'a Surroundings<'a>, budget: &'a Budget) -> Self {
        Self {
            around,
            budget,
            env: ShellEnv::new(around),
            script: Script::default(),
            process_text: None,
            depth: 0,
            spent: false,
            conditional: 0,
            repeated: 0,
            stdin: PipeData::default(),
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

    /// Spends budget; if none is left, the script counts as not analyzed.
    pub(super) fn charge(&mut self, steps: usize) {
        if self.budget.spend(steps).is_err() {
            self.spent = true;
            self.doubt(DoubtKind::TooMuch, "");
        }
    }

    /// Parses and walks a script.
    pub(super) fn script_text(&mut self, text: &str) -> PipeData {
        match parse::parse(text, self.budget, self.depth) {
            Ok(list) => self.list(&list),
            Err(trouble) => {
                self.doubt(trouble, text);
                PipeData::default()
            }
        }
    }

    pub(super) fn python_text(&mut self, text: &str) {
        self.run_code(Language::Python, &Word::literal(text), text);
    }

    fn list(&mut self, list: &List) -> PipeData {
        if self.depth >= MAX_DEPTH {
            self.doubt(DoubtKind::TooDeep, "");
            return PipeData::default();
        }
        self.depth += 1;
        let mut streams = Vec::new();
        for item in list {
            if self.spent {
                break;
            }
            if self.script.segments.len() >= MAX_SEGMENTS {
                self.doubt(DoubtKind::TooMuch, "");
                break;
            }
            streams.push(self.item(item));
        }
        self.depth -= 1;
        merge(streams)
    }

    fn item(&mut self, item: &ListItem) -> PipeData {
        self.conditional += usize::from(item.conditional);
        let stream = if let [only] = item.pipeline.as_slice() {
            let stdin = self.stdin.clone();
            self.node(only, stdin)
        } else {
            let mut stream = self.stdin.clone();
            for node in &item.pipeline {
                stream = self.in_subshell(|walk| walk.node(node, stream));
            }
            stream
        };
        self.conditional -= usize::from(item.conditional);
        stream
    }

    /// Runs `follow` in a subshell: only the files it writes stay.
    fn in_subshell<T>(&mut self, follow: impl FnOnce(&mut Self) -> T) -> T {
        self.charge(self.env.size());
        let saved = self.env.clone();
        let result = follow(self);
        self.env.leave_for(saved);
        result
    }

    /// Walks a list that runs in a subshell.
    pub(super) fn sublist(&mut self, list: &List) -> PipeData {
        self.in_subshell(|walk| walk.list(list))
    }

    /// The value of `$(…)`.
    pub(super) fn substitution(&mut self, list: &List) -> Vec<WordPiece> {
        let stream = self.sublist(list);
        match stream.text {
            Some(text) => {
                let mut pieces = text.pieces().to_vec();
                if let Some(WordPiece::Text(last)) = pieces.last_mut() {
                    last.truncate(last.trim_end_matches('\n').len());
                }
                pieces
            }
            None => vec![WordPiece::Unknown(Unknown::Output(stream.programs))],
        }
    }

    pub(super) fn node(&mut self, node: &SyntaxNode, mut stdin: PipeData) -> PipeData {
        let source = node.text.get(node.span.clone()).unwrap_or_default().trim_end();
        let mut redirects = Vec::with_capacity(node.redirects.len());
        if node.redirects.len() > MAX_REDIRECTS {
            self.doubt(DoubtKind::TooMuch, "");
        }
        for redirect in node.redirects.iter().take(MAX_REDIRECTS) {
            let target = redirect.target.get().map(|word| match redirect.operator {
                RedirectOperator::HereString | RedirectOperator::HereDocument => self.expand_whole(word),
                _ => self.expand_target(word),
            });
            let target = target.unwrap_or_default();
            let descriptor = redirect.descriptor.clone();
            redirects.push(Redirect { descriptor, operator: redirect.operator, target });
        }
        self.take_stdin(&redirects, &mut stdin);
        match &node.command {
            CommandNode::Simple(simple) => {
                self.simple(simple, Segment { redirects, stdin, ..Segment::default() }, source)
            }
            CommandNode::Compound(compound) => {
                if !redirects.is_empty() {
                    let stdin = stdin.clone();
                    self.emit(Segment { redirects, stdin, ..Segment::default() }, source);
                }
                let outer = std::mem::replace(&mut self.stdin, stdin);
                let stream = self.compound(compound, source);
                self.stdin = outer;
                stream
            }
            CommandNode::Function { name, body } => {
                if calls_itself_in_parallel(name, body, false) {
                    self.doubt(DoubtKind::ForkBomb, source);
                }
                self.env.functions.insert(name.clone(), Rc::clone(body));
                self.conditional += 1;
                self.charge(self.env.size());
                let saved = self.env.clone();
                self.env.positional = None;
                self.calls.push(name.clone());
                self.node(body, PipeData::default());
                self.calls.pop();
                self.env = saved;
                self.conditional -= 1;
                PipeData::default()
            }
        }
    }

    /// Applies redirections of standard input.
    fn take_stdin(&mut self, redirects: &[Redirect], stdin: &mut PipeData) {
        for redirect in redirects {
            if redirect.descriptor.as_deref().is_some_and(|descriptor| descriptor != "0") {
                continue;
            }
            match redirect.operator {
                RedirectOperator::HereDocument | RedirectOperator::HereString => {
                    *stdin = PipeData { text: Some(redirect.target.clone()), programs: Vec::new() };
                }
                RedirectOperator::Read | RedirectOperator::ReadWrite => {
                    if crate::paths::is_stream(&self.env.path(&redirect.target))
                        && redirect.target.known().is_some()
                    {
                        *stdin = PipeData::default();
                        continue;
                    }
                    let mut programs: Vec<String> = redirect.target.output_of().map(str::to_owned).collect();
                    let written = self.env.files.get(&self.env.path(&redirect.target)).cloned().flatten();
                    let text = written
                        .or_else(|| (!programs.is_empty()).then(|| self.process_text.take()).flatten());
                    if programs.is_empty() {
                        programs.push("<".to_owned());
                    }
                    *stdin = PipeData { text, programs };
                }
                _ => {}
            }
        }
    }

    fn compound(&mut self, compound: &Compound, source: &str) -> PipeData {
        match &compound.kind {
            CompoundKind::Group => self.lists(&compound.lists),
            CompoundKind::Subshell => self.in_subshell(|walk| walk.lists(&compound.lists)),
            CompoundKind::For(name) => self.for_loop(name, compound),
            CompoundKind::Loop | CompoundKind::Branches => {
                for word in &compound.words {
                    self.expand(word);
                }
                if compound.kind == CompoundKind::Loop && spawns_for_ever(&compound.lists) {
                    self.doubt(DoubtKind::EndlessSpawn, source);
                }
                let repeats = usize::from(compound.kind == CompoundKind::Loop);
                self.conditional += 1;
                self.repeated += repeats;
                let stream = self.lists(&compound.lists);
                self.repeated -= repeats;
                self.conditional -= 1;
                stream
            }
        }
    }

    fn lists(&mut self, lists: &[List]) -> PipeData {
        merge(lists.iter().map(|list| self.list(list)).collect())
    }

    fn for_loop(&mut self, name: &str, compound: &Compound) -> PipeData {
        let mut items = Vec::new();
        for word in &compound.words {
            items.extend(self.expand(word));
        }
        self.conditional += 1;
        self.repeated += 1;
        let mut stream = PipeData::default();
        let all_known =
            items.len() <= MAX_ITEMS && !items.is_empty() && items.iter().all(|item| !item.splits);
        for item in items.iter().filter(|item| !item.splits).take(MAX_ITEMS) {
            self.env.set(name, item.clone(), true);
            stream = PipeData { text: None, ..self.lists(&compound.lists) };
        }
        // The body is followed once more for all unknown items.
        if !all_known {
            self.env.forget(name);
            stream = self.lists(&compound.lists);
        }
        self.repeated -= 1;
        self.conditional -= 1;
        stream
    }

    /// Expands a simple command and runs it with the redirections and the input of `segment`.
    fn simple(&mut self, simple: &Simple, mut segment: Segment, source: &str) -> PipeData {
        for assign in &simple.assigns {
            self.expand(&assign.index);
            // `${a[@]}` and `$a` are treated alike: as all elements together.
            let values: Vec<Word> = assign.values.iter().map(|word| self.expand_whole(word)).collect();
            let value = Word::joined(&values);
            if simple.words.is_empty() {
                let before = if assign.append { self.env.value(&assign.name) } else { None };
                let whole = before.unwrap_or_default().followed_by(&value);
                self.env.set(&assign.name, whole, self.conditional == 0);
            }
            segment.assignments.push((assign.name.clone(), value));
        }
        for word in &simple.words {
            segment.args.extend(self.expand(word));
            if segment.args.len() > MAX_WORDS {
                segment.args.truncate(MAX_WORDS);
                self.doubt(DoubtKind::TooMuch, "");
                break;
            }
        }
        self.run(segment, source)
    }

    /// Records a command whose program is the first of its words.
    pub(super) fn emit(&mut self, mut segment: Segment, source: &str) -> Segment {
        if !segment.args.is_empty() {
            segment.program = segment.args.remove(0);
        }
        segment.name = super::program_name(&segment.program);
        segment.cwd = self.env.cwd.clone();
        segment.via = self.via.clone();
        segment.repeated = self.repeated > 0;
        segment.source = source.to_owned();
        self.charge(16 + 48 * (segment.args.len() + segment.redirects.len()));
        self.script.segments.push(segment.clone());
        segment
    }
}

/// The output of commands in sequence; its text is only known if there is one.
fn merge(mut streams: Vec<PipeData>) -> PipeData {
    if streams.len() == 1 {
        return streams.remove(0);
    }
    let mut programs: Vec<String> = streams.into_iter().flat_map(|stream| stream.programs).collect();
    programs.dedup();
    programs.truncate(16);
    PipeData { text: None, programs }
}

/// Whether a function calls itself in a pipe or in the background: each call starts at least two
/// more.
fn calls_itself_in_parallel(name: &str, node: &SyntaxNode, parallel: bool) -> bool {
    match &node.command {
        CommandNode::Simple(simple) => {
            parallel && simple.words.iter().take(3).any(|word| literal_text(word) == Some(name))
        }
        CommandNode::Compound(compound) => compound.lists.iter().flatten().any(|item| {
            let parallel = parallel || item.background || item.pipeline.len() > 1;
            item.pipeline.iter().any(|node| calls_itself_in_parallel(name, node, parallel))
        }),
        CommandNode::Function { .. } => false,
    }
}

/// Whether an endless loop starts a background process in each iteration.
fn spawns_for_ever(lists: &[List]) -> bool {
    let [condition, body] = lists else { return false };
    let endless = |node| matches!(program_and_word_count(node), Some((":" | "true", 1)));
    let waits = |node| matches!(program_and_word_count(node), Some(("sleep" | "wait" | "read", _)));
    let (background, rest): (Vec<_>, Vec<_>) = body.iter().partition(|item| item.background);
    condition.iter().flat_map(|item| &item.pipeline).all(endless)
        && !background.is_empty()
        && !rest.iter().flat_map(|item| &item.pipeline).any(waits)
}

fn program_and_word_count(node: &SyntaxNode) -> Option<(&str, usize)> {
    let CommandNode::Simple(simple) = &node.command else { return None };
    Some((literal_text(simple.words.first()?)?, simple.words.len()))
}
