//! Follows a command into functions, aliases, wrapped commands, scripts, program texts and files.

use std::rc::Rc;

use hermes_types::{FileAccess, ShellKind};

use super::budget::{MAX_DEPTH, MAX_SEGMENTS};
use super::env::ShellEnv;
use super::interpreters::{CodeEffect, code_effects};
use super::nested::{self, Nested, nested_commands};
use super::syntax::CommandNode;
use super::walk::Walker;
use super::*;
use crate::programs::{self, Invocation, Language};

/// The current directory and the others that are possible.
type Directories = (Option<String>, Vec<Option<String>>);

/// Variables with their values.
type Variables = Vec<(String, Option<Vec<Word>>)>;

/// The texts of one alias that are followed.
const MAX_ALIAS_TEXTS: usize = 16;

const SENDS_FILES: &str = "sends files from outside the working directory to another machine";

impl Walker<'_> {
    /// Records one command, then follows everything it runs in turn.
    pub(super) fn run(&mut self, segment: Segment, source: &str) -> PipeData {
        if self.depth >= MAX_DEPTH || self.script.segments.len() >= MAX_SEGMENTS {
            self.doubt(DoubtKind::TooDeep, source);
            return PipeData::default();
        }
        if self.spent {
            return PipeData::default();
        }
        let process_text = self.process_text.take();
        let segment = self.emit(segment, source);
        let runs = !segment.program.pieces().is_empty();
        if runs && program_unknown(&segment) {
            self.doubt(DoubtKind::Program, source);
        } else if !segment.name.is_ascii() {
            self.doubt(DoubtKind::Lookalike, source);
        }
        self.depth += 1;
        let mut stream = output::standard_output(&segment, self.dialect);
        if stream.text.is_none() && segment.args.iter().any(|word| self.is_owners(word)) {
            stream.programs.push(FILE_CONTENT.to_owned());
        }
        if segment.name == "pwd" && !self.env.other_cwds.is_empty() {
            stream.text = None;
        }
        if let ("cat", [file]) = (segment.name.as_str(), segment.args.as_slice()) {
            stream.file = self.whole_file(file);
        }
        // Variables set in front of a command are those of the command only.
        let (mut saved, mut exported) = (Vec::new(), Vec::new());
        for (name, value) in segment.assignments.iter().filter(|_| runs) {
            saved.push((name.clone(), self.env.bound(name)));
            self.env.set(name, value.clone());
            if Rc::make_mut(&mut self.env.exported).insert(name.clone()) {
                exported.push(name.clone());
            }
        }
        let name = segment.program.known().unwrap_or_default().to_owned();
        if runs
            && !BUILTINS.contains(&name.as_str())
            && !name.contains('/')
            && !programs::find(&name).names.is_empty()
            && self.finds_project_first(&name)
        {
            self.doubt(DoubtKind::Program, source);
        }
        // A file without a directory is looked for in `PATH`.
        if let ("source" | ".", Some(file)) = (name.as_str(), segment.args.first())
            && let Some(file) = file.known()
            && !file.contains('/')
            && self.finds_project_first(file)
        {
            self.doubt(DoubtKind::Program, source);
        }
        let before = self.env.clone();
        let unopened = (!segment.redirects.is_empty()).then(|| before.clone());
        let is_replaced = self.call(&name, &segment, &mut stream);
        if is_replaced && bindings::CHANGES_STATE.contains(&name.as_str()) {
            // `command` and new shells run the builtin of that name.
            self.settle();
            let called = std::mem::replace(&mut self.env, before);
            self.apply_bindings(&name, &segment);
            self.settle();
            self.env.join(called);
        } else if !is_replaced {
            self.apply_bindings(&name, &segment);
        }
        if let Some(before) = unopened {
            self.may_not_open(&segment, before);
        }
        let all = nested_commands(&segment);
        // Such a program may run its command several times, or never.
        let may_repeat = matches!(segment.name.as_str(), "xargs" | "find" | "parallel" | "fd" | "fdfind")
            && (all.len() != 1 || segment.stdin.text.is_none());
        for nested in all {
            let mut result = self.run_nested(nested, &segment, process_text.as_ref());
            if may_repeat && result.text.take().is_some() {
                result.programs.push(segment.name.clone());
            }
            if result.text.is_some() || !result.programs.is_empty() {
                stream = result;
            }
        }
        self.depth -= 1;
        if !saved.is_empty() {
            let changed = self.env.clone();
            self.restore(saved);
            self.with_failed(|env| Rc::make_mut(&mut env.exported).retain(|name| !exported.contains(name)));
            if self.dialect == ShellKind::Sh && bindings::CHANGES_STATE.contains(&name.as_str()) {
                self.env.join(changed);
            }
        }
        self.write_output(&segment, stream)
    }

    /// Whether a name may mean a program of the project: `PATH` has one of its directories in front of
    /// those of the system, or anywhere for the subcommands of git. Virtual environments are ordinary.
    fn finds_project_first(&self, name: &str) -> bool {
        let Some(path) = self.env.value("PATH").map(|path| path.outline()) else { return false };
        // The directories that were there before are those of the system.
        let is_known = |directory: &&str| !directory.starts_with(UNKNOWN_CHAR);
        let is_system = |directory: &&str| crate::paths::is_program_directory(&format!("{directory}/"));
        let is_common = |directory: &str| {
            ["venv/bin", "/env/bin", "node_modules/.bin"].iter().any(|end| directory.ends_with(end))
        };
        let cwd = crate::paths::normalize(self.around.cwd);
        let is_project = |directory: &str| {
            let path = crate::paths::resolve(directory, self.env.cwd.as_deref());
            (path == cwd || crate::paths::is_below(&path, &cwd)) && !is_common(directory)
        };
        let directories = path.split(':');
        let first: Vec<&str> = match name {
            "git" => directories.filter(is_known).collect(),
            _ => directories.take_while(|directory| is_known(directory) && !is_system(directory)).collect(),
        };
        !self.in_container() && self.env.functions.get(name).is_none() && first.into_iter().any(is_project)
    }

    /// Takes over a function or an alias of the session, when its name is first used.
    pub(super) fn load_from_session(&mut self, name: &str) {
        let session = self.around.shell;
        if let Some(text) = session.aliases.get(name) {
            self.add_alias(name, &Word::literal(text));
        }
        let is_unsure = self.env.unsure_functions.contains(name);
        let is_open = is_unsure || !self.env.functions.contains_key(name);
        let Some(text) = session.functions.get(name).filter(|_| is_open) else {
            return;
        };
        match parse::parse(text, self.budget, self.depth) {
            Ok(list) => {
                for node in list.into_iter().flat_map(|item| item.pipeline) {
                    if let CommandNode::Function { name: defined, body } = node.command
                        && defined == name
                    {
                        Rc::make_mut(&mut self.env.functions).entry(defined).or_default().push(body);
                        Rc::make_mut(&mut self.env.unsure_functions).remove(name);
                    }
                }
            }
            Err(trouble) => self.doubt(trouble, text),
        }
    }

    /// Doubts the programs of a session that searches a directory of every user first, or that
    /// runs a file in every new shell.
    pub(super) fn check_session(&mut self) {
        let variables = &self.around.shell.variables;
        let is_system = |directory: &str| crate::paths::is_program_directory(&format!("{directory}/"));
        let is_shared = |directory: &str| {
            let directory = crate::paths::normalize(&format!("{directory}/"));
            crate::paths::is_shared_temporary(&format!("{directory}/")) && !self.is_in_work(&directory)
        };
        let path = variables.get("PATH").map_or("", String::as_str);
        if path.split(':').take_while(|directory| !is_system(directory)).any(is_shared) {
            self.doubt(DoubtKind::Temporary, "PATH");
        }
        if variables.get("BASH_ENV").is_some_and(|file| !file.is_empty()) {
            self.doubt(DoubtKind::Script(Vec::new()), "BASH_ENV");
        }
    }

    /// Follows a function or an alias. Returns whether there is one.
    fn call(&mut self, name: &str, segment: &Segment, stream: &mut PipeData) -> bool {
        self.load_from_session(name);
        let bodies = self.env.functions.get(name).cloned().unwrap_or_default();
        let depth = self.calls.iter().filter(|call| *call == name).count();
        let mut is_called = !bodies.is_empty();
        if !bodies.is_empty() && depth >= 2 {
            // It may go on calling itself.
            if let Some((_, entry)) = self.entries.iter().rfind(|(called, _)| called == name) {
                self.env.forget_differences(entry);
            }
        } else if !bodies.is_empty() {
            self.calls.push(name.to_owned());
            // A function that calls itself may do so with any arguments.
            let args = (depth == 0).then(|| Rc::new(segment.args.clone()));
            let outer = std::mem::replace(&mut self.env.positional, args);
            let is_unsure = self.env.unsure_functions.contains(name);
            match self.entries.iter().rfind(|(called, _)| called == name) {
                Some((_, entry)) if depth > 0 => self.env.forget_differences(entry),
                _ => self.entries.push((name.to_owned(), self.env.clone())),
            }
            let before = self.env.clone();
            let mut after = if is_unsure { before.clone() } else { ShellEnv::ended() };
            for body in &bodies {
                self.uncalled.retain(|(_, uncalled, _)| !Rc::ptr_eq(uncalled, body));
                self.settle();
                after.join(std::mem::replace(&mut self.env, before.clone()));
                self.locals.push(Vec::new());
                *stream = self.catch_jumps(|walk| walk.node(body, segment.stdin.clone()));
                let locals = self.locals.pop().unwrap_or_default();
                self.restore(locals);
            }
            if bodies.len() > 1 || is_unsure {
                self.settle();
                self.env.join(after);
            }
            self.with_failed(|env| env.positional.clone_from(&outer));
            self.calls.pop();
            if depth == 0 {
                self.entries.pop();
            }
            is_called = !is_unsure;
        }
        let texts = self.env.aliases.get(name).cloned().unwrap_or_default();
        let mark = format!("alias {name}");
        if !texts.is_empty() && !self.calls.contains(&mark) {
            self.calls.push(mark);
            for text in texts {
                if self.joined > 0 && text.outline().contains([';', '&', '|', '\n']) {
                    // Its last command alone is joined to what is around it.
                    self.doubt(DoubtKind::Code, &segment.source);
                }
                // The words are text again, but no part of them is a sign.
                let quoted = |word: &Word| match word.known() {
                    Some("") => Word::literal("''"),
                    _ => word.map_text(hermes_types::shell_quote),
                };
                let next = segment.args.first().and_then(Word::known).unwrap_or_default();
                self.load_from_session(next);
                // Behind a blank at the end of an alias, the next word may be one too.
                let is_open = text.outline().ends_with([' ', '\t']);
                let nexts = if is_open { self.alias_texts(next) } else { Vec::new() };
                let firsts = segment.args.first().map(quoted).into_iter().chain(nexts).collect::<Vec<_>>();
                for first in firsts.into_iter().map(Some).chain(segment.args.is_empty().then_some(None)) {
                    let rest = segment.args.iter().skip(1).map(quoted);
                    let args: Vec<Word> = std::iter::once(text.clone()).chain(first).chain(rest).collect();
                    let before = self.env.clone();
                    self.settle();
                    self.run_text(&Word::joined(&args), &segment.source);
                    self.settle();
                    self.env.join(before);
                }
            }
            self.calls.pop();
        }
        is_called
    }

    /// The texts that a name means as an alias, and those that their first words mean in turn.
    fn alias_texts(&self, name: &str) -> Vec<Word> {
        let mut texts = self.env.aliases.get(name).cloned().unwrap_or_default();
        let mut at = 0;
        while at < texts.len() && texts.len() < MAX_ALIAS_TEXTS {
            let text = texts.get(at).and_then(Word::known).unwrap_or_default().to_owned();
            let (first, rest) = text.split_at(text.find([' ', '\t']).unwrap_or(text.len()));
            for other in self.env.aliases.get(first).into_iter().flatten() {
                let text = other.followed_by(&Word::literal(rest));
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            at += 1;
        }
        texts
    }

    /// Follows one nested command.
    fn run_nested(&mut self, nested: Nested, segment: &Segment, process_text: Option<&Word>) -> PipeData {
        let outer_via = self.via.len();
        if nested::SAME_SHELL.contains(&segment.name.as_str()) {
            return self.run_inside(nested, segment, process_text);
        }
        self.via.push(segment.name.clone());
        let dialect = match segment.name.as_str() {
            "sh" | "dash" | "ash" => ShellKind::Sh,
            "exec" | "trap" | "alias" | "" => self.dialect,
            _ => ShellKind::Bash,
        };
        let outer = std::mem::replace(&mut self.dialect, dialect);
        let clears = ["-i", "-u", "--ignore-environment", "--unset"];
        let stream = self.in_subshell(|walk| {
            let is_cleared = |word: &Word| {
                word.known() == Some("-") || clears.iter().any(|option| word.prefix().starts_with(option))
            };
            if segment.name == "env" && segment.args.iter().any(is_cleared) {
                walk.env.may_lose_variables();
            }
            if programs::find(&segment.name).runs.iter().any(|runs| matches!(runs, programs::Runs::Shell)) {
                walk.env.enter_new_shell();
                let options = segment.args.iter().take_while(|word| word.prefix().starts_with('-'));
                walk.env.exits_on_failure = has(&options.cloned().collect::<Vec<_>>(), &["-e"]);
                walk.run_startup_file(segment);
            }
            walk.run_inside(nested, segment, process_text)
        });
        self.dialect = outer;
        self.via.truncate(outer_via);
        stream
    }

    /// The file that a new bash runs first.
    fn run_startup_file(&mut self, segment: &Segment) {
        for file in self.env.values("BASH_ENV") {
            if self.dialect == ShellKind::Bash && file.known() != Some("") {
                if file.prefix().contains(['$', '`']) {
                    self.doubt(DoubtKind::Code, &segment.source);
                }
                self.run_file(Language::Shell, &file, segment, None);
            }
        }
    }

    fn run_inside(&mut self, nested: Nested, segment: &Segment, process_text: Option<&Word>) -> PipeData {
        let same_shell = nested::SAME_SHELL.contains(&segment.name.as_str());
        match nested {
            Nested::Argv { words, assignments, directory } => {
                if let Some(directory) = directory {
                    self.change_directory(&directory);
                }
                let mut stdin = segment.stdin.clone();
                if segment.name == "xargs" && stdin.is_piped() {
                    // It reads its input itself.
                    stdin = PipeData { programs: vec![segment.name.clone()], ..PipeData::default() };
                }
                let command = Segment { args: words, assignments, stdin, ..Segment::default() };
                self.run(command, &segment.source)
            }
            Nested::Script(text, positional) => {
                if !same_shell {
                    self.env.positional = Some(Rc::new(positional));
                }
                self.run_text(&text, &segment.source)
            }
            Nested::Code(language, text) => {
                self.check_sender(language, &text, segment);
                self.run_code(language, &text, &segment.source)
            }
            Nested::Stdin(language) => {
                if let Some(text) = &segment.stdin.text {
                    self.check_sender(language, text, segment);
                }
                self.env.positional = parameters(segment, None);
                self.run_stream(language, &segment.stdin, segment)
            }
            Nested::File(language, path) => {
                let given = parameters(segment, Some(&path));
                let keeps = same_shell
                    && (self.dialect == ShellKind::Sh
                        || given.as_ref().is_some_and(|given| given.is_empty()));
                if keeps {
                    return self.run_file(language, &path, segment, process_text);
                }
                let outer = std::mem::replace(&mut self.env.positional, given.clone());
                let stream = self.run_file(language, &path, segment, process_text);
                if same_shell {
                    self.with_failed(|env| {
                        if env.positional == given {
                            env.positional.clone_from(&outer);
                        }
                    });
                }
                stream
            }
            Nested::Source(path) => self.run_source(&path, segment),
            Nested::TooMuch => {
                self.doubt(DoubtKind::TooMuch, &segment.source);
                PipeData::default()
            }
            Nested::Interactive => {
                if !self.in_container() {
                    self.doubt(DoubtKind::Interactive, &segment.source);
                }
                PipeData::default()
            }
        }
    }

    fn in_container(&self) -> bool {
        self.via.iter().any(|via| programs::find(via).contains)
    }

    /// Whether a path lies in the working directory, where that is itself in a temporary directory.
    fn is_in_work(&self, path: &str) -> bool {
        crate::paths::is_shared_temporary(self.around.cwd) && crate::paths::is_below(path, self.around.cwd)
    }

    /// A source file that is compiled: only one the script wrote can be looked at.
    fn run_source(&mut self, path: &Word, segment: &Segment) -> PipeData {
        let text = match path.known() {
            Some("-") => segment.stdin.text.clone(),
            _ => self.env.file(path).flatten(),
        };
        match text {
            Some(text) => self.run_code(Language::Compiled, &text, &segment.source),
            None => PipeData::default(),
        }
    }

    /// A shell text that may hold unknown stretches.
    pub(super) fn run_text(&mut self, text: &Word, source: &str) -> PipeData {
        if text.has_unknown() && output::is_made_for_shells(text) {
            if text.prefix().is_empty() {
                return PipeData::default();
            }
        } else if text.has_unknown() {
            self.doubt(DoubtKind::Script(text.output_of().map(str::to_owned).collect()), source);
        }
        let readable = text.render(|_| "${__unknown__}".to_owned());
        if self.depth >= MAX_DEPTH {
            self.doubt(DoubtKind::TooDeep, source);
            return PipeData::default();
        }
        self.charge(64 + readable.len() * 2);
        self.depth += 1;
        let stream = self.script_text(&readable);
        self.depth -= 1;
        stream
    }

    /// A file that is touched without a command.
    pub(super) fn emit_file_access(&mut self, access: FileAccess, path: &str) {
        let target = Some(path.to_owned());
        match access {
            FileAccess::Read => self.touch(RedirectOperator::Read, target, path),
            FileAccess::Write => self.touch(RedirectOperator::Write, target, path),
            FileAccess::Delete => self.delete(target, "-f", path),
        }
    }

    fn touch(&mut self, operator: RedirectOperator, path: Option<String>, source: &str) {
        let redirect = Redirect { descriptor: None, operator, target: self.path_word(path) };
        self.emit(Segment { redirects: vec![redirect], ..Segment::default() }, source);
    }

    fn delete(&mut self, path: Option<String>, flag: &str, source: &str) {
        let args = vec![Word::literal("rm"), Word::literal(flag), self.path_word(path)];
        self.emit(Segment { args, ..Segment::default() }, source);
    }

    /// A program text in another language.
    pub(super) fn run_code(&mut self, language: Language, text: &Word, source: &str) -> PipeData {
        if language == Language::Shell {
            return self.run_text(text, source);
        }
        let is_open =
            |piece: &WordPiece| matches!(piece, WordPiece::Unknown(unknown) if !output::is_commit(unknown));
        if text.pieces().iter().any(is_open) {
            self.doubt(DoubtKind::Code, source);
        }
        let outline = text.outline();
        self.charge(outline.len() / 4);
        let effects = code_effects(language, &outline);
        let reads_owner = effects.iter().any(|effect| match effect {
            CodeEffect::Touch(_, Some(path)) | CodeEffect::Mention(path) => {
                self.is_owners(&Word::literal(path))
            }
            _ => false,
        });
        let before = self.enter_all(&effects);
        for effect in effects {
            match effect {
                CodeEffect::Send { reads_home } if reads_home || reads_owner => {
                    self.doubt(DoubtKind::Danger(SENDS_FILES), source);
                }
                CodeEffect::Send { .. } => {}
                CodeEffect::Shell(text) => {
                    let outer = std::mem::replace(&mut self.dialect, ShellKind::Sh);
                    self.in_subshell(|walk| walk.run_text(&Word::literal(text), source));
                    self.dialect = outer;
                }
                CodeEffect::Argv(words) => {
                    let args = words.into_iter().map(Word::literal).collect();
                    self.run(Segment { args, ..Segment::default() }, source);
                }
                CodeEffect::Touch(operator, path) => self.touch(operator, path, source),
                CodeEffect::Delete { path, tree } => {
                    self.delete(path, if tree { "-rf" } else { "-f" }, source);
                }
                CodeEffect::Mention(path) => self.touch(RedirectOperator::Mention, Some(path), source),
                CodeEffect::Enter(_) => {}
                CodeEffect::Danger(what) => self.doubt(DoubtKind::Danger(what), source),
            }
        }
        if let Some((directories, variables)) = before {
            (self.env.cwd, self.env.other_cwds) = directories;
            self.restore(variables);
        }
        PipeData::default()
    }

    /// Goes to every directory that a program text may go to, since the order of its calls is not
    /// known. Returns the directories and variables before.
    fn enter_all(&mut self, effects: &[CodeEffect]) -> Option<(Directories, Variables)> {
        let mut targets = effects
            .iter()
            .filter_map(|effect| match effect {
                CodeEffect::Enter(path) => Some(path.clone()),
                _ => None,
            })
            .peekable();
        targets.peek()?;
        let directories = (self.env.cwd.clone(), self.env.other_cwds.clone());
        let variables = ["PWD", "OLDPWD"].map(|name| (name.to_owned(), self.env.bound(name)));
        for target in targets {
            let possible = std::iter::once(self.env.cwd.clone()).chain(self.env.other_cwds.clone());
            let possible: Vec<_> = possible.collect();
            self.change_directory(&self.path_word(target));
            possible.into_iter().for_each(|directory| self.env.add_cwd(directory));
        }
        Some((directories, variables.into()))
    }

    /// Whether a path is one of the owner's, outside the working directory.
    fn is_owners(&self, path: &Word) -> bool {
        let path = self.env.path(&self.tilde_in_value(path));
        let cwd = crate::paths::normalize(self.around.cwd);
        (path == self.around.home || crate::paths::is_below(&path, self.around.home))
            && path != cwd
            && !crate::paths::is_below(&path, &cwd)
    }

    /// Asks about a program text that sends something, if files of the owner are its input.
    fn check_sender(&mut self, language: Language, text: &Word, segment: &Segment) {
        let is_input_unknown = segment.stdin.text.is_none()
            && match &segment.stdin.file {
                Some(file) => self.is_owners(file),
                None => !segment.stdin.programs.is_empty(),
            };
        let gets_files = is_input_unknown || segment.args.iter().any(|word| self.is_owners(word));
        let sends = |effect: &CodeEffect| matches!(effect, CodeEffect::Send { .. });
        if gets_files
            && language != Language::Shell
            && code_effects(language, &text.outline()).iter().any(sends)
        {
            self.doubt(DoubtKind::Danger(SENDS_FILES), &segment.source);
        }
    }

    /// An interpreter that reads its program from standard input.
    fn run_stream(&mut self, language: Language, input: &PipeData, segment: &Segment) -> PipeData {
        if let Some(text) = &input.text {
            return self.run_code(language, text, &segment.source);
        }
        // `python3 < app.py` runs what `python3 app.py` does.
        let is_script = |file: &&Word| {
            let language_of_file = nested::language_of(&Word::default(), &file.outline());
            language != Language::Shell && language_of_file == Some(language)
        };
        if let Some(file) = input.file.as_ref().filter(is_script) {
            return self.run_file(language, file, segment, None);
        }
        if !input.programs.is_empty() || !self.in_container() {
            self.doubt(DoubtKind::Script(input.programs.clone()), &segment.source);
        }
        PipeData::default()
    }

    /// Records a script as the command that its first line makes of it, with options such as `-i`.
    fn emit_interpreter(&mut self, text: &Word, path: &Word, segment: &Segment) {
        let Some(mut args) = interpreter_line(text).filter(|words| words.len() > 1) else { return };
        args.push(path.clone());
        args.extend(parameters(segment, Some(path)).iter().flat_map(|words| words.iter().cloned()));
        self.emit(Segment { args, ..Segment::default() }, &segment.source);
    }

    /// Runs the texts that the shell runs when it exits, at a signal or at an error.
    pub(super) fn run_traps(&mut self) {
        self.rereads += 1;
        if let Some(trapped) = self.trapped.take() {
            let env = std::mem::replace(&mut self.env, trapped);
            self.run_each(self.signal_traps.clone());
            self.env = env;
        }
        // An `exit` in such a text does not run it again.
        let traps = std::mem::take(&mut self.traps);
        self.run_each(traps.clone());
        self.traps = traps;
        self.rereads -= 1;
    }

    /// Runs texts of which any may be the one that runs.
    fn run_each(&mut self, texts: Vec<Word>) {
        let before = self.env.clone();
        for text in texts {
            let after = std::mem::replace(&mut self.env, before.clone());
            self.run_text(&text, "");
            self.settle();
            self.env.join(after);
        }
    }

    /// Whether a compiler of this script, and nothing else, writes a program, from sources that other
    /// users cannot have written.
    fn is_compiled_here(&mut self, path: &str) -> bool {
        self.charge(8 * self.script.segments.len());
        let writes = |segment: &&Segment| {
            let written = crate::file_effects::written_words(&Invocation::new(segment));
            written.iter().any(|word| segment.path(word) == path)
        };
        let mut writers = self.script.segments.iter().filter(writes);
        let (Some(compiler), None) = (writers.next(), writers.next()) else { return false };
        let is_source_known = |nested: &Nested| match nested {
            Nested::Source(source) if source.known() == Some("-") => compiler.stdin.text.is_some(),
            Nested::Source(source) => self.env.file(source) != Some(None),
            _ => true,
        };
        let is_of_others = |word: &Word| {
            let read = self.env.path(word);
            read != path && crate::paths::is_shared_temporary(&read)
        };
        if compiler.args.iter().any(is_of_others) {
            return false;
        }
        let nested = nested_commands(compiler);
        nested.iter().any(|nested| matches!(nested, Nested::Source(_))) && nested.iter().all(is_source_known)
    }

    /// Runs the files that the script wrote into a directory. Returns whether there are any.
    fn run_directory(&mut self, language: Language, directory: &str, segment: &Segment) -> bool {
        self.charge(self.env.files.len());
        let is_inside = |path: &&String| crate::paths::is_below(path, directory);
        let files: Vec<String> = self.env.files.keys().filter(is_inside).cloned().collect();
        for file in &files {
            self.run_file(language, &Word::literal(file), segment, None);
        }
        !files.is_empty()
    }

    /// A file that is run: by its content when the script wrote it, else by its name.
    fn run_file(
        &mut self,
        language: Language,
        path: &Word,
        segment: &Segment,
        process_text: Option<&Word>,
    ) -> PipeData {
        let programs: Vec<String> = path.output_of().map(str::to_owned).collect();
        if path.prefix().starts_with("/dev/fd/") && !programs.is_empty() {
            let input = PipeData { text: process_text.cloned(), programs, file: None };
            return self.run_stream(language, &input, segment);
        }
        if matches!(path.known(), Some("/dev/stdin" | "-" | "/dev/fd/0" | "/proc/self/fd/0")) {
            return self.run_stream(language, &segment.stdin, segment);
        }
        if path.prefix().contains("://") {
            self.doubt(DoubtKind::Script(vec!["curl".to_owned()]), &segment.source);
            return PipeData::default();
        }
        let resolved = self.env.path(path);
        if let Some(descriptor) =
            resolved.strip_prefix("/dev/fd/").or(resolved.strip_prefix("/proc/self/fd/"))
        {
            let is_here =
                |operator| matches!(operator, RedirectOperator::HereString | RedirectOperator::HereDocument);
            let mut redirects = segment.redirects.iter();
            let found = redirects.find(|redirect| redirect.descriptor.as_deref() == Some(descriptor));
            let text = found.filter(|found| is_here(found.operator)).map(|found| found.target.clone());
            let input = PipeData { text, programs: vec!["<".to_owned()], file: None };
            return self.run_stream(language, &input, segment);
        }
        match self.env.file(path) {
            Some(Some(text)) => {
                let language = nested::language_of(&text, &resolved).unwrap_or(language);
                self.emit_interpreter(&text, path, segment);
                return self.run_code(language, &text, &segment.source);
            }
            Some(None) => self.doubt(DoubtKind::MadeHere, &segment.source),
            None if matches!(language, Language::Shell | Language::Perl)
                && self.run_directory(language, &resolved, segment) => {}
            None if path.starts_unknown() => self.doubt(DoubtKind::Program, &segment.source),
            None if crate::paths::is_shared_temporary(&resolved)
                && !self.is_in_work(&resolved)
                // `mktemp -d` makes a directory of the user alone.
                && !path.output_of().any(|program| program == "mktemp")
                && !self.is_compiled_here(&resolved)
                && !self.in_container() =>
            {
                self.doubt(DoubtKind::Temporary, &segment.source);
            }
            None => {}
        }
        PipeData::default()
    }
}

/// The interpreter in the first line of a script with the options that stand there.
fn interpreter_line(text: &Word) -> Option<Vec<Word>> {
    let line = text.prefix().strip_prefix("#!")?.lines().next()?;
    let words: Vec<Word> = line.split_whitespace().map(Word::literal).collect();
    let is_env = |word: &Word| word.known().is_some_and(|word| word.ends_with("/env") || word == "-S");
    Some(words.into_iter().skip_while(is_env).collect())
}

/// The words that a new shell sees as `$1` and so on: those behind a script, or behind the options of
/// one that reads its input.
fn parameters(segment: &Segment, script: Option<&Word>) -> Option<Rc<Vec<Word>>> {
    let args = segment.args.as_slice();
    let start = match script {
        Some(script) if segment.program == *script => 0,
        Some(script) => args.iter().position(|word| word == script)? + 1,
        None if args.iter().any(|word| word.prefix().starts_with('+') || word.splits) => return None,
        None => {
            let start = first_operand(args, &["-o", "-O"]);
            start + usize::from(args.get(start).and_then(Word::known) == Some("-"))
        }
    };
    Some(Rc::new(args.get(start..).unwrap_or_default().to_vec()))
}

/// Commands of the shell, which no program on `PATH` replaces.
const BUILTINS: &[&str] = &[
    "cd", "pushd", "popd", "exit", "exec", "return", "break", "continue", "declare", "typeset", "local",
    "export", "readonly", "read", "mapfile", "readarray", "unset", "getopts", "let", "printf", "set",
    "shift", "shopt", "wait", "alias", "unalias", "eval", "source", ".", "trap", ":", "times", "echo",
    "test", "[", "true", "false", "pwd", "type", "command", "builtin", "hash", "ulimit", "umask", "jobs",
    "bg", "fg", "kill", "dirs", "disown", "history", "help", "enable", "complete", "compgen", "bind",
    "caller", "",
];

/// Whether the program is only known when the command runs.
fn program_unknown(segment: &Segment) -> bool {
    let outline = segment.program.outline();
    let name = outline.rsplit('/').next().unwrap_or_default();
    // Which program a file of `/proc` is depends on the process.
    segment.name.is_empty()
        || outline.starts_with("/proc/")
        || (segment.program.has_glob() && name.len() > 1)
        || name.contains(UNKNOWN_CHAR)
}
