//! Walks the syntax tree: every simple command of every branch becomes a [`Segment`].
//!
//! It follows assignments, `cd`, loops, calls of functions defined in the script and text piped into
//! a shell, and treats the rest as unknown. It skips no branch, even if the branch might not run:
//! both ways lead on, and their states are joined where they meet. The state after a command that
//! failed is kept apart if it differs, as after `cd`.

use std::rc::Rc;

use super::budget::{Budget, MAX_DEPTH, MAX_READINGS, MAX_REDIRECTS, MAX_SEGMENTS, MAX_WORDS};
use super::endless::spawns_for_ever;
use super::env::ShellEnv;
use super::expand::Tildes;
use super::syntax::{
    CommandNode, Compound, CompoundKind, Joint, List, ListItem, RawWord, RedirectOperator, Simple,
    SyntaxNode, WordPart, literal_text,
};
use super::*;
use crate::programs::Language;
use hermes_types::ShellKind;

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
    /// The shell that reads the text.
    pub(super) dialect: ShellKind,
    /// The state in case the last command failed, if it differs.
    failed: Option<ShellEnv>,
    /// The states at `break`, `continue` and `return`, joined.
    jumps: Option<ShellEnv>,
    /// The choices made for this reading of a command: what is chosen, the choice, their number.
    choices: Vec<(String, usize, usize)>,
    /// The number of enclosing commands whose failure `set -e` ignores.
    guarded: usize,
    /// The number of enclosing pipelines and commands in the background.
    pub(super) joined: usize,
    /// The number of enclosing loops.
    repeated: usize,
    /// The number of enclosing commands that are walked again.
    pub(super) rereads: usize,
    /// The variables that each enclosing function declared as local, with their outer values.
    pub(super) locals: Vec<Vec<(String, Option<Vec<Word>>)>>,
    /// Texts that the shell runs when it exits.
    pub(super) traps: Vec<Word>,
    /// Texts that it runs at a signal or an error, and the states in which that may be.
    pub(super) signal_traps: Vec<Word>,
    pub(super) trapped: Option<ShellEnv>,
    stdin: PipeData,
    pub(super) via: Vec<String>,
    /// The functions that were defined and not called so far, with the state at that point.
    pub(super) uncalled: Vec<(String, Rc<SyntaxNode>, ShellEnv)>,
    /// The functions being followed; none is followed recursively.
    pub(super) calls: Vec<String>,
    /// The states in which they were called.
    pub(super) entries: Vec<(String, ShellEnv)>,
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
            dialect: around.shell.shell,
            failed: None,
            jumps: None,
            choices: Vec::new(),
            guarded: 0,
            joined: 0,
            repeated: 0,
            rereads: 0,
            locals: Vec::new(),
            traps: Vec::new(),
            signal_traps: Vec::new(),
            trapped: None,
            stdin: PipeData::default(),
            via: Vec::new(),
            uncalled: Vec::new(),
            calls: Vec::new(),
            entries: Vec::new(),
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
        self.budget.take_bash_syntax();
        let parsed = parse::parse(text, self.budget, self.depth);
        if self.budget.take_bash_syntax() && self.dialect == ShellKind::Sh {
            self.doubt(DoubtKind::Syntax, text);
        }
        match parsed {
            Ok(list) => self.list(&list),
            Err(trouble) => {
                self.doubt(trouble, text);
                PipeData::default()
            }
        }
    }

    /// One of several possibilities. Within a reading of a command, the same choice stays.
    pub(super) fn choose(&mut self, what: &str, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        if let Some((_, choice, _)) = self.choices.iter().find(|(known, ..)| known == what) {
            return (*choice).min(count - 1);
        }
        self.choices.push((what.to_owned(), 0, count));
        0
    }

    /// Moves on to the next reading of a command, if there is one.
    fn next_reading(&mut self) -> bool {
        while let Some((_, choice, count)) = self.choices.last_mut() {
            *choice += 1;
            if choice < count {
                return true;
            }
            self.choices.pop();
        }
        false
    }

    /// Runs `read` once for each reading, each time in the same state, and joins the states.
    fn all_readings<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> T {
        let outer = std::mem::take(&mut self.choices);
        let before = self.env.clone();
        let mut result = read(self);
        let mut count = 1;
        while self.next_reading() {
            count += 1;
            if count > MAX_READINGS || self.spent {
                self.doubt(DoubtKind::TooMuch, "");
                break;
            }
            self.charge(16 + self.env.size());
            let (ok, failed) = (std::mem::replace(&mut self.env, before.clone()), self.failed.take());
            self.rereads += 1;
            result = read(self);
            self.rereads -= 1;
            self.failed = match (failed, self.failed.take()) {
                (None, None) => None,
                (failed, again) => {
                    let mut joined = failed.unwrap_or_else(|| ok.clone());
                    joined.join(again.unwrap_or_else(|| self.env.clone()));
                    Some(joined)
                }
            };
            self.env.join(ok);
        }
        self.choices = outer;
        result
    }

    /// The failed state after the last command, which is this one if nothing says otherwise.
    pub(super) fn take_failed(&mut self) -> ShellEnv {
        self.failed.take().unwrap_or_else(|| self.env.clone())
    }

    /// Goes on after a command, whether it failed or not.
    pub(super) fn settle(&mut self) {
        if let Some(failed) = self.failed.take() {
            self.charge(self.env.size());
            self.env.join(failed);
        }
    }

    /// Notes that the last command can fail and leave this state.
    pub(super) fn may_fail(&mut self, failed: ShellEnv) {
        self.failed = Some(failed);
    }

    /// Changes the state after the last command, whether it failed or not.
    pub(super) fn with_failed(&mut self, change: impl Fn(&mut ShellEnv)) {
        change(&mut self.env);
        if let Some(failed) = &mut self.failed {
            change(failed);
        }
    }

    /// Gives variables the values they had before.
    pub(super) fn restore(&mut self, variables: Vec<(String, Option<Vec<Word>>)>) {
        for (name, values) in variables.into_iter().rev() {
            self.with_failed(|env| env.restore(&name, values.clone()));
        }
    }

    /// Leaves a loop or a function, if there is one.
    pub(super) fn leave(&mut self, name: &str) {
        let before = self.env.clone();
        self.jump();
        let is_certain = if name == "return" {
            !self.calls.is_empty()
        } else {
            self.repeated > 0 && self.calls.is_empty()
        };
        if !is_certain {
            self.env = before;
        }
    }

    /// Leaves a loop or a function; the state counts again at its end.
    fn jump(&mut self) {
        let here = self.env.clone();
        match &mut self.jumps {
            Some(jumps) => jumps.join(here),
            None => self.jumps = Some(here),
        }
        self.env.ended = true;
    }

    /// Runs a loop or a function, and joins the states that left it.
    pub(super) fn catch_jumps<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.jumps.take();
        let result = run(self);
        if let Some(jumps) = std::mem::replace(&mut self.jumps, outer) {
            if let Some(failed) = &mut self.failed {
                failed.join(jumps.clone());
            }
            self.env.join(jumps);
        }
        result
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
        for (index, item) in list.iter().enumerate() {
            if self.spent {
                break;
            }
            if self.script.segments.len() >= MAX_SEGMENTS {
                self.doubt(DoubtKind::TooMuch, "");
                break;
            }
            let is_last = list.get(index + 1).is_none_or(|next| next.after == Joint::Always);
            streams.push(self.item(item, is_last));
        }
        self.depth -= 1;
        merge(streams)
    }

    /// Walks an item of a list: where it is skipped, the state before it leads on.
    fn item(&mut self, item: &ListItem, is_last: bool) -> PipeData {
        let skipped = match item.after {
            Joint::Always => {
                self.settle();
                None
            }
            Joint::And => Some(self.take_failed()),
            Joint::Or => {
                let failed = self.take_failed();
                Some(std::mem::replace(&mut self.env, failed))
            }
        };
        let is_guarded = usize::from(!is_last || item.negated);
        self.guarded += is_guarded;
        let stream = self.pipeline(item);
        self.guarded -= is_guarded;
        if item.negated && self.failed.is_some() {
            let failed = self.take_failed();
            self.failed = Some(std::mem::replace(&mut self.env, failed));
        }
        if is_last && !item.negated && self.guarded == 0 && !item.background {
            // What failed may be what would have set the option.
            if self.failed.as_ref().unwrap_or(&self.env).exits_on_failure {
                self.failed = Some(ShellEnv::ended());
            }
        }
        match skipped {
            None => {}
            Some(skipped) if item.after == Joint::And => {
                let mut failed = self.take_failed();
                failed.join(skipped);
                self.failed = Some(failed);
            }
            Some(skipped) => {
                let failed = self.take_failed();
                self.failed = Some(failed);
                self.env.join(skipped);
            }
        }
        stream
    }

    /// Walks a pipeline. What it may have read of a shared input is unknown to the next one.
    fn pipeline(&mut self, item: &ListItem) -> PipeData {
        let stream = self.stages(item);
        self.stdin.file = None;
        if self.stdin.text.take().is_some() && self.stdin.programs.is_empty() {
            self.stdin.programs.push(FILE_CONTENT.to_owned());
        }
        if let Some(trapped) = &mut self.trapped {
            trapped.join(self.env.clone());
        }
        stream
    }

    fn stages(&mut self, item: &ListItem) -> PipeData {
        if let [only] = item.pipeline.as_slice() {
            let stdin = self.stdin.clone();
            if item.background {
                return self.joined(|walk| walk.in_subshell(|walk| walk.node(only, stdin)));
            }
            return self.node(only, stdin);
        }
        self.joined(|walk| walk.several_stages(item))
    }

    /// Walks what a sign such as `|` or `&` joins to something else.
    fn joined<T>(&mut self, follow: impl FnOnce(&mut Self) -> T) -> T {
        self.joined += 1;
        let result = follow(self);
        self.joined -= 1;
        result
    }

    fn several_stages(&mut self, item: &ListItem) -> PipeData {
        let mut stream = self.stdin.clone();
        for (index, node) in item.pipeline.iter().enumerate() {
            if self.env.last_in_shell && index + 1 == item.pipeline.len() {
                // Without job control, which is how scripts run.
                let outer = self.env.clone();
                stream = self.node(node, stream);
                self.settle();
                self.env.join(outer);
            } else {
                stream = self.in_subshell(|walk| walk.node(node, stream));
            }
        }
        stream
    }

    /// Runs `follow` in a subshell: only the files it writes stay.
    pub(super) fn in_subshell<T>(&mut self, follow: impl FnOnce(&mut Self) -> T) -> T {
        self.charge(8);
        let saved = self.env.clone();
        let (failed, jumps) = (self.failed.take(), self.jumps.take());
        let traps = std::mem::take(&mut self.traps);
        let signal_traps = (std::mem::take(&mut self.signal_traps), self.trapped.take());
        let result = follow(self);
        self.settle();
        self.run_traps();
        self.traps = traps;
        (self.signal_traps, self.trapped) = signal_traps;
        self.env.leave_for(saved);
        (self.failed, self.jumps) = (failed, jumps);
        result
    }

    /// Walks the functions that the script defines and does not call: a later command may.
    pub(super) fn walk_uncalled(&mut self) {
        while let Some((name, body, env)) = self.uncalled.pop() {
            self.env = env;
            self.env.positional = None;
            self.calls.push(name);
            self.locals.push(Vec::new());
            self.catch_jumps(|walk| walk.node(&body, PipeData::default()));
            self.locals.pop();
            self.calls.pop();
            self.failed = None;
        }
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

    pub(super) fn node(&mut self, node: &SyntaxNode, stdin: PipeData) -> PipeData {
        self.failed = None;
        self.all_readings(|walk| walk.reading(node, stdin.clone()))
    }

    /// Walks one reading of a command.
    fn reading(&mut self, node: &SyntaxNode, mut stdin: PipeData) -> PipeData {
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
                let before = self.env.clone();
                let mut opened = None;
                if !redirects.is_empty() {
                    let stdin = stdin.clone();
                    opened = Some(self.emit(Segment { redirects, stdin, ..Segment::default() }, source));
                }
                let outer = std::mem::replace(&mut self.stdin, stdin);
                let stream = self.compound(compound, source);
                self.stdin = outer;
                match opened {
                    Some(segment) => {
                        self.may_not_open(&segment, before);
                        self.write_output(&segment, stream)
                    }
                    None => stream,
                }
            }
            CommandNode::Function { name, body } => {
                self.define(name, body, source);
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
                    *stdin = PipeData { text: Some(redirect.target.clone()), ..PipeData::default() };
                }
                RedirectOperator::Read | RedirectOperator::ReadWrite => {
                    if crate::paths::is_stream(&self.env.path(&redirect.target))
                        && redirect.target.known().is_some()
                    {
                        *stdin = PipeData::default();
                        continue;
                    }
                    let mut programs: Vec<String> = redirect.target.output_of().map(str::to_owned).collect();
                    let written = self.env.file(&redirect.target).flatten();
                    let text = written
                        .or_else(|| (!programs.is_empty()).then(|| self.process_text.take()).flatten());
                    if programs.is_empty() {
                        programs.push(FILE_CONTENT.to_owned());
                    }
                    *stdin = PipeData { text, programs, file: self.whole_file(&redirect.target) };
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
            CompoundKind::Test => {
                self.read_words(&compound.words);
                PipeData::default()
            }
            CompoundKind::If => self.branches(&compound.lists),
            CompoundKind::Case { falls_through, complete } => {
                self.read_words(&compound.words);
                self.case(&compound.lists, *falls_through, *complete)
            }
            CompoundKind::Loop | CompoundKind::Until => {
                self.read_words(&compound.words);
                if spawns_for_ever(&compound.lists) {
                    self.doubt(DoubtKind::EndlessSpawn, source);
                }
                self.repeat(&compound.kind, &compound.lists, None)
            }
        }
    }

    fn lists(&mut self, lists: &[List]) -> PipeData {
        merge(lists.iter().map(|list| self.list(list)).collect())
    }

    /// Walks a list whose failure does not end the script.
    fn condition(&mut self, list: &List) -> PipeData {
        self.guarded += 1;
        let stream = self.list(list);
        self.guarded -= 1;
        stream
    }

    fn branches(&mut self, lists: &[List]) -> PipeData {
        let mut streams = Vec::new();
        let mut after: Vec<ShellEnv> = Vec::new();
        for pair in lists.chunks(2) {
            if let [condition, body] = pair {
                streams.push(self.condition(condition));
                let failed = self.take_failed();
                streams.push(self.list(body));
                self.settle();
                after.push(std::mem::replace(&mut self.env, failed));
            } else {
                streams.push(self.lists(pair));
                self.settle();
            }
        }
        self.join_all(after);
        merge(streams)
    }

    fn join_all(&mut self, others: Vec<ShellEnv>) {
        for other in others {
            self.charge(8);
            self.env.join(other);
        }
    }

    fn case(&mut self, lists: &[List], falls_through: bool, complete: bool) -> PipeData {
        let before = self.env.clone();
        let mut after = if complete { Vec::new() } else { vec![before.clone()] };
        let mut streams = Vec::new();
        for list in lists {
            let previous = std::mem::replace(&mut self.env, before.clone());
            if falls_through {
                self.env.join(previous.clone());
            }
            streams.push(self.list(list));
            self.settle();
            after.push(self.env.clone());
        }
        self.env.ended |= !after.is_empty();
        self.join_all(after);
        merge(streams)
    }

    /// Walks a loop until another round would change nothing. Each round of a `for` sets its
    /// variable to this item.
    fn repeat(&mut self, kind: &CompoundKind, lists: &[List], variable: Option<(&str, &Word)>) -> PipeData {
        self.repeated += 1;
        if let Some((name, item)) = variable {
            self.env.set(name, item.clone());
        }
        let stream = self.catch_jumps(|walk| {
            let mut stream = PipeData::default();
            let mut done = None;
            for round in 0..3 {
                let before = walk.env.clone();
                walk.rereads += usize::from(round > 0);
                if let Some((name, item)) = variable {
                    walk.env.set(name, item.clone());
                    stream = walk.lists(lists);
                } else if let [condition, body] = lists {
                    walk.condition(condition);
                    let failed = walk.take_failed();
                    let (inside, outside) = match kind {
                        CompoundKind::Until => (failed, std::mem::take(&mut walk.env)),
                        _ => (std::mem::take(&mut walk.env), failed),
                    };
                    walk.env = inside;
                    done = Some(outside);
                    stream = walk.list(body);
                }
                walk.settle();
                walk.rereads -= usize::from(round > 0);
                if let Some(jumps) = walk.jumps.clone() {
                    walk.env.join(jumps);
                }
                walk.charge(8 + walk.env.size());
                let ended = walk.env.ended;
                walk.env.join(before.clone());
                if ended || walk.env.same_variables(&before) || walk.spent {
                    break;
                }
                if round > 0 {
                    walk.env.forget_differences(&before);
                }
            }
            // The loop ends after its condition.
            walk.join_all(done.into_iter().collect());
            stream
        });
        self.repeated -= 1;
        stream
    }

    fn for_loop(&mut self, name: &str, compound: &Compound) -> PipeData {
        let (items, is_certain) = self.read_items(&compound.words);
        for item in &items {
            self.evaluates(&item.outline(), name);
        }
        let all_known = is_certain
            && items.len() <= MAX_ITEMS
            && !items.is_empty()
            && items.iter().all(|item| !item.splits);
        if !all_known {
            for item in items.iter().filter(|item| !item.splits).take(MAX_ITEMS) {
                let before = self.env.clone();
                self.env.set(name, item.clone());
                self.repeated += 1;
                self.catch_jumps(|walk| walk.lists(&compound.lists));
                self.repeated -= 1;
                self.settle();
                self.env.join(before);
            }
            let unknown = Word::unknown(Unknown::Variable(name.to_owned()));
            let item = items.iter().find(|item| item.splits).filter(|_| items.len() == 1);
            let item = item.and_then(output::listed_name).unwrap_or(unknown);
            // The body is followed once more for all unknown items.
            return self.repeat(&compound.kind, &compound.lists, Some((name, &item)));
        }
        let mut stream = PipeData::default();
        self.repeated += 1;
        let mut broken = Vec::new();
        for item in items {
            self.env.set(name, item);
            let result = self.catch_jumps(|walk| {
                let result = walk.lists(&compound.lists);
                walk.settle();
                broken.extend(walk.jumps.clone());
                result
            });
            stream = PipeData { text: None, file: None, ..result };
        }
        self.join_all(broken);
        self.repeated -= 1;
        stream
    }

    /// Expands words in every reading.
    fn read_words(&mut self, words: &[RawWord]) -> Vec<Word> {
        self.read_items(words).0
    }

    /// The words of every reading, and whether there is only one reading.
    fn read_items(&mut self, words: &[RawWord]) -> (Vec<Word>, bool) {
        let mut items: Vec<Word> = Vec::new();
        let mut readings = 0;
        self.all_readings(|walk| {
            readings += 1;
            for word in words {
                for item in walk.expand(word) {
                    if readings == 1 || !items.contains(&item) {
                        items.push(item);
                    }
                }
            }
        });
        (items, readings == 1)
    }

    /// Expands a simple command and runs it with the redirections and the input of `segment`.
    fn simple(&mut self, simple: &Simple, mut segment: Segment, source: &str) -> PipeData {
        let declares = simple.words.first().and_then(|word| literal_text(word)).is_some_and(is_declaration);
        for word in &simple.words {
            let is_assignment = |text: &str| {
                let name = text.split(['=', '+']).next().unwrap_or_default();
                text.contains('=') && !name.is_empty() && name.bytes().all(parse::is_name_byte)
            };
            match word.first() {
                // A word with braces is no assignment any more.
                Some(WordPart::Text(text))
                    if declares
                        && is_assignment(text)
                        && self.braces(word).is_none_or(|alternatives| alternatives.len() < 2) =>
                {
                    segment.args.push(self.expand_assignment(word, Tildes::Assignment));
                }
                _ => segment.args.extend(self.expand(word)),
            }
            if segment.args.len() > MAX_WORDS {
                segment.args.truncate(MAX_WORDS);
                self.doubt(DoubtKind::TooMuch, "");
                break;
            }
        }
        // Assignments come last. They stay if no word is left.
        let may_stay = segment.args.iter().all(|word| word.splits);
        let before = (!segment.args.is_empty() && may_stay).then(|| self.env.clone());
        for assign in &simple.assigns {
            self.assign(assign, may_stay, &mut segment);
        }
        if let Some(before) = before.filter(|_| !simple.assigns.is_empty()) {
            self.env.join(before);
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
        let others = self.env.other_cwds.clone();
        segment.via = self.via.clone();
        segment.repeated = self.repeated > 0;
        segment.source = source.to_owned();
        self.charge(16 + 48 * (segment.args.len() + segment.redirects.len()));
        for cwd in others {
            self.record(Segment { cwd, ..segment.clone() });
        }
        self.record(segment.clone());
        segment
    }

    /// Adds a command, unless it was found in an earlier reading.
    fn record(&mut self, segment: Segment) {
        if self.rereads == 0 || !self.script.segments.contains(&segment) {
            self.charge(if self.rereads == 0 { 0 } else { self.script.segments.len() / 8 });
            self.script.segments.push(segment);
        }
    }
}

/// Builtins whose arguments are assignments.
fn is_declaration(name: &str) -> bool {
    matches!(name, "export" | "declare" | "typeset" | "local" | "readonly")
}

/// The output of commands in sequence; its text is only known if there is one.
fn merge(mut streams: Vec<PipeData>) -> PipeData {
    let is_silent = |stream: &PipeData| stream.text.as_ref().and_then(Word::known) == Some("");
    if streams.len() > 1 && !streams.iter().all(is_silent) {
        streams.retain(|stream| !is_silent(stream));
    }
    if streams.len() == 1 {
        return streams.remove(0);
    }
    let mut programs: Vec<String> = streams.into_iter().flat_map(|stream| stream.programs).collect();
    programs.dedup();
    programs.truncate(16);
    PipeData { text: None, programs, file: None }
}
