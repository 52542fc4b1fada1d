//! Walking the tree: every simple command of every branch becomes a [`Segment`].
//!
//! The walk follows what is easy to follow (literal assignments, `cd`, loops over known words, calls of functions
//! defined in the script, text piped into a shell) and leaves the rest unknown. Nothing is skipped because it might
//! not run.

use std::rc::Rc;

use super::budget::{Budget, MAX_DEPTH, MAX_SEGMENTS, MAX_WORDS, Trouble};
use super::env::Env;
use super::inner::{Inner, Language};
use super::syntax::{self, AssignValue, Command, Compound, Item, Kind, List, Node, Operator, Target};
use super::value::{Piece, Redirect, Stream, Unknown, Word};
use super::{Doubt, DoubtKind, Script, Segment, Surroundings, code, inner, output, parse};

/// How many items of a `for` are followed one by one.
const MAX_ITEMS: usize = 16;

pub(super) struct Walk<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) budget: &'a Budget,
    pub(super) env: Env,
    pub(super) script: Script,
    /// The text of the last process substitution, for the command that reads it.
    pub(super) process_text: Option<Word>,
    depth: usize,
    /// Whether the budget is used up, so that nothing more is followed.
    spent: bool,
    /// How many branches that may not run surround this point.
    conditional: usize,
    /// How many loops surround this point.
    repeated: usize,
    stdin: Stream,
    via: Vec<String>,
    /// The functions that are being followed; none is followed into itself.
    calls: Vec<String>,
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

    fn trouble(&mut self, trouble: Trouble, source: &str) {
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

    fn node(&mut self, node: &Node, mut stdin: Stream) -> Stream {
        let source = node.text.get(node.span.clone()).unwrap_or_default().trim_end();
        let mut redirects = Vec::with_capacity(node.redirects.len());
        for redirect in &node.redirects {
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
    fn emit(
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
        self.charge(16 + 24 * segment.args.len());
        self.script.segments.push(segment.clone());
        segment
    }

    /// One command with its words: judged itself, then whatever it will run in turn.
    pub(super) fn run(
        &mut self,
        argv: Vec<Word>,
        assignments: Vec<(String, Word)>,
        redirects: Vec<Redirect>,
        stdin: Stream,
        source: &str,
    ) -> Stream {
        if self.depth >= MAX_DEPTH || self.script.segments.len() >= MAX_SEGMENTS {
            self.trouble(Trouble::TooDeep, source);
            return Stream::default();
        }
        if self.spent {
            return Stream::default();
        }
        let process_text = self.process_text.take();
        let segment = self.emit(argv, assignments, redirects, stdin, source);
        let runs = !segment.program.pieces().is_empty();
        if runs && program_unknown(&segment) {
            self.doubt(DoubtKind::Program, source);
        } else if !segment.name.is_ascii() {
            self.doubt(DoubtKind::ForeignLetters, source);
        }
        self.depth += 1;
        let mut stream = output::of(&segment);
        if let Some(body) = self.env.functions.get(&segment.name).cloned()
            && !self.calls.contains(&segment.name)
        {
            self.calls.push(segment.name.clone());
            let outer = self.env.positional.replace(segment.args.clone());
            stream = self.node(&body, segment.stdin.clone());
            self.env.positional = outer;
            self.calls.pop();
        }
        if let Some(text) = self.env.aliases.get(&segment.name).cloned()
            && !self.calls.contains(&segment.name)
        {
            self.calls.push(segment.name.clone());
            let mut words = vec![text];
            words.extend(segment.args.iter().cloned());
            self.run_text(&super::args::joined(&words), source);
            self.calls.pop();
        }
        self.remember(&segment);
        for inner in inner::of(&segment) {
            let result = self.inner(inner, &segment, process_text.as_ref());
            if result.text.is_some() || !result.programs.is_empty() {
                stream = result;
            }
        }
        self.depth -= 1;
        self.written(&segment, &stream);
        stream
    }

    /// What a segment runs in turn.
    fn inner(&mut self, inner: Inner, segment: &Segment, process_text: Option<&Word>) -> Stream {
        let via = match inner::STATE_KEEPERS.contains(&segment.name.as_str()) {
            true => None,
            false => Some(segment.name.clone()),
        };
        let pushed = via.is_some();
        self.via.extend(via);
        let stream = match inner {
            Inner::Argv { words, assignments, directory } => {
                let outer = self.env.cwd.clone();
                if let Some(directory) = directory {
                    self.change_directory(&directory);
                }
                let stream = self.run(words, assignments, Vec::new(), segment.stdin.clone(), &segment.source);
                self.env.cwd = outer;
                stream
            }
            Inner::Script(text, positional) => {
                let outer = self.env.positional.clone();
                if !inner::STATE_KEEPERS.contains(&segment.name.as_str()) {
                    self.env.positional = Some(positional);
                }
                let stream = self.run_text(&text, &segment.source);
                self.env.positional = outer;
                stream
            }
            Inner::Code(language, text) => self.run_code(language, &text, &segment.source),
            Inner::Stdin(language) => {
                let text = segment.stdin.text.clone();
                self.run_stream(language, text, &segment.stdin.programs, segment)
            }
            Inner::File(language, path) => self.run_file(language, &path, segment, process_text),
            Inner::Interactive => {
                if !self.in_container() {
                    self.doubt(DoubtKind::Interactive, &segment.source);
                }
                Stream::default()
            }
        };
        if pushed {
            self.via.pop();
        }
        stream
    }

    fn in_container(&self) -> bool {
        self.via.iter().any(|via| inner::CONTAINERS.contains(&via.as_str()))
    }

    /// A shell text that may hold unknown stretches.
    fn run_text(&mut self, text: &Word, source: &str) -> Stream {
        if text.has_unknown() {
            self.doubt(DoubtKind::Script(text.output_of().map(str::to_owned).collect()), source);
        }
        let readable: String = text
            .pieces()
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) | Piece::Glob(text) => text.as_str(),
                Piece::Unknown(_) => "${__unknown__}",
            })
            .collect();
        if self.depth >= MAX_DEPTH {
            self.trouble(Trouble::TooDeep, source);
            return Stream::default();
        }
        self.charge(readable.len() / 4);
        self.depth += 1;
        let stream = self.script_text(&readable);
        self.depth -= 1;
        stream
    }

    /// A program text in another language.
    fn run_code(&mut self, language: Language, text: &Word, source: &str) -> Stream {
        if language == Language::Shell {
            return self.run_text(text, source);
        }
        if text.has_unknown() {
            self.doubt(DoubtKind::Code, source);
        }
        let outline = text.outline();
        self.charge(outline.len() / 4);
        for act in code::acts(language, &outline) {
            match act {
                code::Act::Shell(text) => {
                    self.run_text(&Word::literal(text), source);
                }
                code::Act::Argv(words) => {
                    let argv = words.into_iter().map(Word::literal).collect();
                    self.run(argv, Vec::new(), Vec::new(), Stream::default(), source);
                }
                code::Act::Touch(operator, path) => {
                    let redirect = Redirect { descriptor: None, operator, target: self.path_word(path) };
                    self.emit(Vec::new(), Vec::new(), vec![redirect], Stream::default(), source);
                }
                code::Act::Delete { path, tree } => {
                    let flag = Word::literal(if tree { "-rf" } else { "-f" });
                    let argv = vec![Word::literal("rm"), flag, self.path_word(path)];
                    self.run(argv, Vec::new(), Vec::new(), Stream::default(), source);
                }
                code::Act::Danger(what) => self.doubt(DoubtKind::Danger(what), source),
            }
        }
        Stream { text: None, programs: vec![language.word().to_owned()] }
    }

    /// An interpreter that reads its program from standard input.
    fn run_stream(
        &mut self,
        language: Language,
        text: Option<Word>,
        programs: &[String],
        segment: &Segment,
    ) -> Stream {
        match text {
            Some(text) => self.run_code(language, &text, &segment.source),
            None => {
                if !programs.is_empty() || !self.in_container() {
                    self.doubt(DoubtKind::Script(programs.to_vec()), &segment.source);
                }
                Stream::default()
            }
        }
    }

    /// A file that is run: by its content when the script wrote it, else by its name.
    fn run_file(
        &mut self,
        language: Language,
        path: &Word,
        segment: &Segment,
        process_text: Option<&Word>,
    ) -> Stream {
        let programs: Vec<String> = path.output_of().map(str::to_owned).collect();
        if path.prefix().starts_with("/dev/fd/") && !programs.is_empty() {
            return self.run_stream(language, process_text.cloned(), &programs, segment);
        }
        if matches!(path.known(), Some("/dev/stdin" | "-" | "/dev/fd/0" | "/proc/self/fd/0")) {
            return self.run_stream(language, segment.stdin.text.clone(), &segment.stdin.programs, segment);
        }
        let resolved = self.env.path(path);
        if let Some(descriptor) =
            resolved.strip_prefix("/dev/fd/").or(resolved.strip_prefix("/proc/self/fd/"))
        {
            let text = segment
                .redirects
                .iter()
                .find(|redirect| redirect.descriptor.as_deref() == Some(descriptor))
                .filter(|redirect| matches!(redirect.operator, Operator::HereString | Operator::HereDocument))
                .map(|redirect| redirect.target.clone());
            return self.run_stream(language, text, &["<".to_owned()], segment);
        }
        match self.env.files.get(&resolved).cloned() {
            Some(Some(text)) => {
                let language = inner::language_of(&text, &resolved).unwrap_or(language);
                return self.run_code(language, &text, &segment.source);
            }
            Some(None) => self.doubt(DoubtKind::MadeHere, &segment.source),
            None if path.starts_unknown() => self.doubt(DoubtKind::Program, &segment.source),
            None if crate::paths::is_shared_temporary(&resolved) && !self.in_container() => {
                self.doubt(DoubtKind::Temporary, &segment.source);
            }
            None => {}
        }
        Stream::default()
    }

    fn change_directory(&mut self, target: &Word) {
        let path = self.env.path(target);
        self.env.cwd = (!path.contains(super::value::HOLE) && !target.has_glob()).then_some(path);
    }

    /// What a command changes for those behind it.
    fn remember(&mut self, segment: &Segment) {
        match segment.name.as_str() {
            "cd" | "pushd" => {
                let target = segment.args.iter().find(|word| !word.prefix().starts_with('-'));
                match target {
                    Some(target) => self.change_directory(target),
                    None if segment.args.is_empty() => self.env.cwd = Some(self.around.home.to_owned()),
                    None => self.env.cwd = None,
                }
            }
            "popd" => self.env.cwd = None,
            "declare" | "local" | "typeset" if super::has(&segment.args, &["-n"]) => {
                for word in &segment.args {
                    self.env.forget(word.prefix().split('=').next().unwrap_or_default());
                }
            }
            "alias" => {
                for word in &segment.args {
                    if let (Some((name, _)), Some(text)) = (word.prefix().split_once('='), word.after('=')) {
                        self.env.aliases.insert(name.to_owned(), text);
                    }
                }
            }
            "export" | "declare" | "local" | "readonly" | "typeset" => {
                for word in &segment.args {
                    if let Some((name, _)) = word.prefix().split_once('=')
                        && let Some(value) = word.after('=')
                    {
                        let value = self.tilde_in_value(&value);
                        self.env.set(name, joined(value.pieces().to_vec()), self.conditional == 0);
                    }
                }
            }
            "read" | "mapfile" | "readarray" | "unset" | "getopts" | "let" | "select" => {
                for name in segment.args.iter().filter_map(Word::known) {
                    if !name.starts_with('-') {
                        self.env.forget(name);
                    }
                }
                self.env.forget("REPLY");
            }
            "printf" => {
                if let [flag, name, ..] = segment.args.as_slice()
                    && flag.known() == Some("-v")
                    && let Some(name) = name.known()
                {
                    let value = output::printed(segment.args.get(2..).unwrap_or_default());
                    match value {
                        Some(value) => self.env.set(name, value.pieces().to_vec(), self.conditional == 0),
                        None => self.env.forget(name),
                    }
                }
            }
            "set" if segment.args.first().and_then(Word::known) == Some("--") => {
                self.env.positional = Some(segment.args.iter().skip(1).cloned().collect());
            }
            "shift" => self.env.positional = None,
            _ => {}
        }
        for path in output::files_made(segment) {
            let path = self.env.path(&path);
            self.env.files.entry(path).or_insert(None);
        }
    }

    /// A path given as text, or one that is not known.
    fn path_word(&self, path: Option<String>) -> Word {
        match path {
            Some(path) => self.tilde_in_value(&Word::literal(path)),
            None => Word::unknown(Unknown::Variable("path".to_owned())),
        }
    }

    fn tilde_in_value(&self, value: &Word) -> Word {
        match value.strip_prefix("~/") {
            Some(rest) => {
                let mut pieces = vec![Piece::Text(format!("{}/", self.around.home))];
                pieces.extend(rest.pieces().iter().cloned());
                Word::from_pieces(joined(pieces))
            }
            None => value.clone(),
        }
    }

    /// Remembers the files a command's output went to.
    fn written(&mut self, segment: &Segment, stream: &Stream) {
        let mut targets: Vec<(Word, bool)> = segment
            .redirects
            .iter()
            .filter(|redirect| {
                matches!(redirect.operator, Operator::Write | Operator::Append | Operator::Both)
                    && redirect.descriptor.as_deref().is_none_or(|descriptor| descriptor == "1")
            })
            .map(|redirect| (redirect.target.clone(), redirect.operator == Operator::Append))
            .collect();
        if segment.name == "tee" {
            let append = segment.args.iter().any(|word| word.known() == Some("-a"));
            let files = segment.args.iter().filter(|word| !word.prefix().starts_with('-'));
            targets.extend(files.map(|word| (word.clone(), append)));
        }
        for (target, append) in targets {
            let path = self.env.path(&target);
            if crate::paths::is_stream(&path) {
                continue;
            }
            let text = match (append, self.env.files.get(&path).cloned()) {
                (true, Some(Some(before))) => stream.text.as_ref().map(|text| {
                    let mut pieces = before.pieces().to_vec();
                    pieces.extend(text.pieces().iter().cloned());
                    Word::from_pieces(joined(pieces))
                }),
                (true, Some(None)) => None,
                _ => stream.text.clone(),
            };
            self.env.files.insert(path, text);
        }
    }
}

/// Whether the program that will run cannot be told from its word.
fn program_unknown(segment: &Segment) -> bool {
    let outline = segment.program.outline();
    let name = outline.rsplit('/').next().unwrap_or_default();
    segment.name.is_empty()
        || (segment.program.has_glob() && name.len() > 1)
        || name.contains(super::value::HOLE)
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
        && !body.0.iter().flat_map(|item| &item.pipeline).any(waits)
}
