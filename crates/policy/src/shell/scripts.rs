//! Follows a command into functions, aliases, wrapped commands, scripts, program texts and files.

use hermes_types::FileAccess;

use super::budget::{MAX_DEPTH, MAX_SEGMENTS};
use super::interpreters::{CodeEffect, code_effects};
use super::nested::{self, Nested, nested_commands};
use super::walk::Walker;
use super::*;
use crate::programs::{self, Language};

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
        let mut stream = output::standard_output(&segment);
        if !self.calls.contains(&segment.name) {
            self.calls.push(segment.name.clone());
            if let Some(body) = self.env.functions.get(&segment.name).cloned() {
                let outer = self.env.positional.replace(segment.args.clone());
                stream = self.node(&body, segment.stdin.clone());
                self.env.positional = outer;
            }
            if let Some(text) = self.env.aliases.get(&segment.name) {
                let text = Word::joined(&[std::slice::from_ref(text), &segment.args].concat());
                self.run_text(&text, source);
            }
            self.calls.pop();
        }
        self.apply_bindings(&segment);
        for nested in nested_commands(&segment) {
            let result = self.run_nested(nested, &segment, process_text.as_ref());
            if result.text.is_some() || !result.programs.is_empty() {
                stream = result;
            }
        }
        self.depth -= 1;
        self.record_written_files(&segment, &stream);
        stream
    }

    /// Follows one nested command.
    fn run_nested(&mut self, nested: Nested, segment: &Segment, process_text: Option<&Word>) -> PipeData {
        let same_shell = nested::SAME_SHELL.contains(&segment.name.as_str());
        let outer_via = self.via.len();
        if !same_shell {
            self.via.push(segment.name.clone());
        }
        let stream = match nested {
            Nested::Argv { words, assignments, directory } => {
                let outer = self.env.cwd.clone();
                if let Some(directory) = directory {
                    self.change_directory(&directory);
                }
                let stdin = segment.stdin.clone();
                let command = Segment { args: words, assignments, stdin, ..Segment::default() };
                let stream = self.run(command, &segment.source);
                self.env.cwd = outer;
                stream
            }
            Nested::Script(text, positional) => {
                let outer = self.env.positional.clone();
                if !same_shell {
                    self.env.positional = Some(positional);
                }
                let stream = self.run_text(&text, &segment.source);
                self.env.positional = outer;
                stream
            }
            Nested::Code(language, text) => self.run_code(language, &text, &segment.source),
            Nested::Stdin(language) => self.run_stream(language, &segment.stdin, segment),
            Nested::File(language, path) => self.run_file(language, &path, segment, process_text),
            Nested::Source(path) => self.run_source(&path, segment),
            Nested::Interactive => {
                if !self.in_container() {
                    self.doubt(DoubtKind::Interactive, &segment.source);
                }
                PipeData::default()
            }
        };
        self.via.truncate(outer_via);
        stream
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
            _ => self.env.files.get(&self.env.path(path)).cloned().flatten(),
        };
        match text {
            Some(text) => self.run_code(Language::Compiled, &text, &segment.source),
            None => PipeData::default(),
        }
    }

    /// A shell text that may hold unknown stretches.
    fn run_text(&mut self, text: &Word, source: &str) -> PipeData {
        if text.has_unknown() {
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
        if text.has_unknown() {
            self.doubt(DoubtKind::Code, source);
        }
        let outline = text.outline();
        self.charge(outline.len() / 4);
        for effect in code_effects(language, &outline) {
            match effect {
                CodeEffect::Shell(text) => {
                    self.run_text(&Word::literal(text), source);
                }
                CodeEffect::Argv(words) => {
                    let args = words.into_iter().map(Word::literal).collect();
                    self.run(Segment { args, ..Segment::default() }, source);
                }
                CodeEffect::Touch(operator, path) => self.touch(operator, path, source),
                CodeEffect::Delete { path, tree } => {
                    self.delete(path, if tree { "-rf" } else { "-f" }, source);
                }
                CodeEffect::Danger(what) => self.doubt(DoubtKind::Danger(what), source),
            }
        }
        PipeData::default()
    }

    /// An interpreter that reads its program from standard input.
    fn run_stream(&mut self, language: Language, input: &PipeData, segment: &Segment) -> PipeData {
        if let Some(text) = &input.text {
            return self.run_code(language, text, &segment.source);
        }
        if !input.programs.is_empty() || !self.in_container() {
            self.doubt(DoubtKind::Script(input.programs.clone()), &segment.source);
        }
        PipeData::default()
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
            let input = PipeData { text: process_text.cloned(), programs };
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
            return self.run_stream(language, &PipeData { text, programs: vec!["<".to_owned()] }, segment);
        }
        match self.env.files.get(&resolved).cloned() {
            Some(Some(text)) => {
                let language = nested::language_of(&text, &resolved).unwrap_or(language);
                return self.run_code(language, &text, &segment.source);
            }
            Some(None) => self.doubt(DoubtKind::MadeHere, &segment.source),
            None if path.starts_unknown() => self.doubt(DoubtKind::Program, &segment.source),
            None if crate::paths::is_shared_temporary(&resolved)
                && !self.is_in_work(&resolved)
                && !self.in_container() =>
            {
                self.doubt(DoubtKind::Temporary, &segment.source);
            }
            None => {}
        }
        PipeData::default()
    }
}

/// Whether the program is only known when the command runs.
fn program_unknown(segment: &Segment) -> bool {
    let outline = segment.program.outline();
    let name = outline.rsplit('/').next().unwrap_or_default();
    segment.name.is_empty() || (segment.program.has_glob() && name.len() > 1) || name.contains(UNKNOWN_CHAR)
}
