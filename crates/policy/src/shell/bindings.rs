//! Changes that a command makes for later ones: the directory, variables, aliases and files.

use std::rc::Rc;

use super::endless::calls_itself_in_parallel;
use super::env::ShellEnv;
use super::output;
use super::syntax::SyntaxNode;
use super::walk::Walker;
use super::*;
use hermes_types::ShellKind;

/// Builtins that change the state of the shell.
pub(super) const CHANGES_STATE: &[&str] = &[
    "cd", "pushd", "popd", "exit", "exec", "return", "break", "continue", "declare", "typeset", "local",
    "export", "readonly", "read", "mapfile", "readarray", "unset", "getopts", "let", "printf", "set",
    "shift", "shopt", "wait", "alias", "unalias", "eval", "source", ".", "trap", ":", "times",
];

/// The options of `set` by their letters, and by their names behind `-o`.
const BASH_OPTIONS: &str = "abefhkmnoptuvxBCEHPT";
const SH_OPTIONS: &str = "abefmnouvxC";
const OPTION_NAMES: &[&str] = &[
    "allexport", "braceexpand", "emacs", "errexit", "errtrace", "functrace", "hashall", "histexpand",
    "history", "ignoreeof", "interactive-comments", "keyword", "monitor", "noclobber", "noexec", "noglob",
    "nolog", "notify", "nounset", "onecmd", "physical", "pipefail", "posix", "privileged", "verbose", "vi",
    "xtrace",
];

impl Walker<'_> {
    /// Moves to a directory, from each one where the script may be.
    pub(super) fn change_directory(&mut self, target: &Word) {
        let paths = self.env.paths(target);
        let known = |path: &String| path.starts_with('/').then(|| path.clone());
        let mut directories = paths.iter().map(known);
        self.set_directory(directories.next().flatten());
        for directory in directories {
            self.env.add_cwd(directory);
        }
        self.env.set_pwd();
    }

    fn set_directory(&mut self, directory: Option<String>) {
        for (name, path) in [("OLDPWD", self.env.cwd.clone()), ("PWD", directory.clone())] {
            match path {
                Some(path) if !path.contains(UNKNOWN_CHAR) => self.env.set(name, Word::literal(path)),
                _ => self.env.forget(name),
            }
        }
        if !self.env.other_cwds.is_empty() {
            self.env.forget("OLDPWD");
            self.env.other_cwds.clear();
        }
        if let Some(path) = &directory {
            Rc::make_mut(&mut self.env.made).insert(path.clone());
        }
        self.env.cwd = directory;
    }

    /// `cd` and `pushd`. If the directory may be missing, the old one remains possible.
    fn cd(&mut self, segment: &Segment) {
        let before = self.env.clone();
        let options = segment.args.iter().take_while(|word| {
            word.prefix().starts_with(['-', '+']) && !matches!(word.known(), Some("-" | "--"))
        });
        let skipped = options.clone().count();
        let has_known_options = options.clone().all(|word| {
            word.known().is_some_and(|text| {
                text.trim_start_matches('-').chars().all(|char| matches!(char, 'L' | 'P' | 'e' | '@'))
            })
        });
        let mut operands = segment.args.iter().skip(skipped).filter(|word| word.known() != Some("--"));
        let home = Word::literal("~");
        let target = operands.next().unwrap_or(&home);
        let target = match target.known() {
            Some("~") if segment.args.is_empty() => self.env.value("HOME"),
            Some("-") => self.env.value("OLDPWD"),
            Some("") => Some(Word::literal(".")),
            _ => Some(target.clone()),
        };
        let target = target.unwrap_or_else(|| Word::unknown(Unknown::Variable("OLDPWD".to_owned())));
        let search_path = self.env.value("CDPATH").filter(|path| path.known() != Some(""));
        let search_path = search_path.filter(|_| !target.prefix().starts_with(['/', '.']));
        let is_certain = has_known_options
            && search_path.is_none()
            && operands.next().is_none()
            && !target.has_unknown()
            && !target.has_glob()
            && self.env.other_cwds.is_empty()
            && self.is_there(&self.env.path(&target));
        self.change_directory(&target);
        let starts = search_path.iter().flat_map(|path| path.known().unwrap_or("\0").split(':'));
        let found: Vec<Option<String>> = starts
            .map(|start| crate::paths::resolve(&target.outline(), Some(start)))
            .map(|path| (!path.contains(UNKNOWN_CHAR)).then_some(path))
            .collect();
        for directory in found {
            self.env.add_cwd(directory);
        }
        self.env.set_pwd();
        if segment.name == "pushd" {
            let old = before.cwd.clone();
            Rc::make_mut(&mut self.env.stack).push(old);
        }
        if !is_certain {
            self.may_fail(before);
        }
    }

    /// Whether a directory surely exists: one that the script made or was in, or one above.
    fn is_there(&self, path: &str) -> bool {
        let is_above = |below: &str| below == path || crate::paths::is_below(below, path);
        path == "/tmp"
            || is_above(self.around.home)
            || self.env.cwd.as_deref().is_some_and(is_above)
            || self.env.made.iter().any(|made| is_above(made))
    }

    /// Makes a variable local to the current function.
    fn declare_local(&mut self, name: &str) {
        let before = self.env.bound(name);
        if let Some(frame) = self.locals.last_mut()
            && !frame.iter().any(|(known, _)| known == name)
        {
            frame.push((name.to_owned(), before));
        }
    }

    /// Defines a function. Where its name is an alias, the shell expands that first.
    pub(super) fn define(&mut self, name: &str, body: &Rc<SyntaxNode>, source: &str) {
        if calls_itself_in_parallel(name, body, false) {
            self.doubt(DoubtKind::ForkBomb, source);
        }
        self.load_from_session(name);
        let functions = Rc::make_mut(&mut self.env.functions);
        functions.insert(name.to_owned(), vec![Rc::clone(body)]);
        if self.env.unsure_functions.contains(name) {
            Rc::make_mut(&mut self.env.unsure_functions).remove(name);
        }
        for text in self.env.aliases.get(name).into_iter().flatten() {
            let other = text.outline().trim().to_owned();
            if other != name {
                Rc::make_mut(&mut self.env.functions).entry(other.clone()).or_default().push(Rc::clone(body));
                Rc::make_mut(&mut self.env.unsure_functions).extend([name.to_owned(), other]);
            }
        }
        self.uncalled.push((name.to_owned(), Rc::clone(body), self.env.clone()));
    }

    pub(super) fn add_alias(&mut self, name: &str, text: &Word) {
        let aliases = Rc::make_mut(&mut self.env.aliases);
        let texts = aliases.entry(name.to_owned()).or_default();
        if !texts.contains(text) {
            texts.push(text.clone());
        }
    }

    /// `declare`, `export` and their like.
    fn declare(&mut self, name: &str, segment: &Segment) {
        let is_global = has(&segment.args, &["-g"]);
        let is_local = name == "local" || (matches!(name, "declare" | "typeset") && !is_global);
        self.env.volatile |= has(&segment.args, &["-n"]) && name != "export";
        let is_opaque = has(&segment.args, &["-i", "-l", "-u", "-c", "-a", "-A"]) && name != "export";
        let exports = name == "export" || has(&segment.args, &["-x"]);
        for word in segment.args.iter().filter(|word| !word.prefix().starts_with(['-', '+'])) {
            let text = word.prefix();
            let variable = text.split(['=', '+', '[']).next().unwrap_or_default().to_owned();
            if variable.is_empty() {
                // The name itself is unknown.
                self.env.volatile |= word.has_unknown();
                continue;
            }
            if is_local {
                self.declare_local(&variable);
            }
            if is_opaque {
                Rc::make_mut(&mut self.env.opaque).insert(variable.clone());
            }
            match word.as_assignment() {
                Some((assigned, value)) if assigned == variable => {
                    self.env.set(&variable, value);
                }
                Some(_) => self.env.forget(&variable),
                None if is_local && name != "export" => self.env.forget(&variable),
                None => {}
            }
            if exports {
                Rc::make_mut(&mut self.env.exported).insert(variable);
            }
        }
    }

    /// `set`: options and positional parameters.
    fn set_options(&mut self, args: &[Word]) {
        let mut rest = args;
        while let Some((word, tail)) = rest.split_first() {
            let text = word.prefix();
            if !text.starts_with(['-', '+']) {
                break;
            }
            rest = tail;
            if matches!(text, "--" | "-") {
                if text == "--" || !tail.is_empty() {
                    self.env.positional = Some(Rc::new(tail.to_vec()));
                }
                return;
            }
            let flags = if self.dialect == ShellKind::Bash { BASH_OPTIONS } else { SH_OPTIONS };
            let is_known = |word: &Word| word.known().is_some_and(|name| OPTION_NAMES.contains(&name));
            let long_names = tail.iter().take(text.matches('o').count());
            if !text.chars().skip(1).all(|flag| flags.contains(flag)) || !long_names.clone().all(is_known) {
                // It fails, and changes nothing.
                self.env.exits_on_failure = false;
                self.env.positional = None;
                return;
            }
            let on = text.starts_with('-');
            let mut names: Vec<&str> = Vec::new();
            for _ in text.matches('o') {
                let Some((name, tail)) = rest.split_first() else { break };
                names.push(name.known().unwrap_or("?"));
                rest = tail;
            }
            if text.contains('e') || names.contains(&"errexit") {
                self.env.exits_on_failure = on;
            }
            if text.contains('a') || names.contains(&"allexport") {
                self.env.exports_all = on;
            }
            // An unknown option may end it.
            self.env.exits_on_failure &= !names.contains(&"?");
        }
        if !rest.is_empty() {
            self.env.positional = Some(Rc::new(rest.to_vec()));
        }
    }

    /// `trap`: the variables that a text sets at a signal or an error are unknown from here on.
    fn trap(&mut self, args: &[Word]) {
        let mut operands = args.iter().filter(|word| word.prefix() != "--");
        let Some(text) = operands.next() else { return };
        self.traps.push(text.clone());
        if operands.all(|signal| matches!(signal.known(), Some("EXIT" | "0"))) {
            return;
        }
        self.signal_traps.push(text.clone());
        let before = self.env.clone();
        self.run_text(text, "");
        self.settle();
        let after = std::mem::replace(&mut self.env, before);
        if !after.ended && !after.same_names(&self.env) {
            self.doubt(DoubtKind::Code, "trap");
        }
        let changed = self.env.changed_variables(&after);
        Rc::make_mut(&mut self.env.opaque).extend(changed);
        self.trapped.get_or_insert_with(|| self.env.clone());
    }

    /// Applies the changes a command makes for later ones.
    pub(super) fn apply_bindings(&mut self, name: &str, segment: &Segment) {
        let args = segment.args.as_slice();
        match name {
            "cd" | "pushd" if !args.is_empty() || name == "cd" => self.cd(segment),
            "pushd" => self.set_directory(None),
            "popd" => {
                let before = self.env.clone();
                let top = Rc::make_mut(&mut self.env.stack).pop();
                self.set_directory(top.flatten().filter(|_| args.is_empty()));
                self.may_fail(before);
            }
            "mkdir" => {
                let paths: Vec<String> =
                    operands(args, &["-m"]).into_iter().map(|word| self.env.path(word)).collect();
                Rc::make_mut(&mut self.env.made).extend(paths);
            }
            "rm" | "rmdir" | "mv" if self.env.made.len() > 1 => self.env.made = Rc::default(),
            "exit" => {
                self.run_traps();
                self.env.ended = true;
            }
            "exec" if !args.is_empty() => self.env.ended = true,
            "return" | "break" | "continue" => self.leave(name),
            "alias" => {
                for (alias, text) in args.iter().filter_map(Word::as_assignment) {
                    self.add_alias(&alias, &text);
                }
            }
            "hash" => {
                for path in values(args, &["-p"]) {
                    for name in operands(args, &["-p"]) {
                        self.add_alias(&name.show(), &path);
                    }
                }
            }
            "trap" => self.trap(args),
            "local" if self.locals.is_empty() => {
                // Outside a function, it fails.
                let before = self.env.clone();
                self.declare(name, segment);
                self.env.join(before);
            }
            "export" | "declare" | "local" | "readonly" | "typeset" => self.declare(name, segment),
            "read" | "mapfile" | "readarray" | "unset" | "getopts" | "let" | "wait" => {
                if name == "unset" {
                    let functions = args.iter().filter_map(Word::known).map(str::to_owned);
                    Rc::make_mut(&mut self.env.unsure_functions).extend(functions);
                }
                let is_plain = args.iter().all(|word| {
                    let is_name = |text: &str| text.bytes().all(super::parse::is_name_byte);
                    word.known().is_some_and(|text| is_name(text) || text == "-v")
                });
                for word in args {
                    // `read -aname` and `a[1]` name variables too.
                    let text = word.prefix();
                    let text = text.strip_prefix('-').map_or(text, |rest| rest.get(1..).unwrap_or_default());
                    let variable = text.split(|char: char| !char.is_alphanumeric() && char != '_').next();
                    if let Some(variable) = variable.filter(|name| !name.is_empty()) {
                        match variable {
                            "IFS" if name == "unset" => self.env.set("IFS", Word::literal(" \t\n")),
                            variable if name == "unset" && is_plain => self.env.unset(variable),
                            variable if matches!(name, "read" | "mapfile" | "readarray") => {
                                self.env.set_from_input(variable, &segment.stdin);
                            }
                            variable => self.env.forget(variable),
                        }
                    }
                    self.env.volatile |= word.has_unknown() && name != "wait";
                    if name == "let" {
                        self.arithmetic(&word.outline());
                    }
                }
                for variable in ["REPLY", "MAPFILE", "OPTARG"] {
                    if self.env.bound(variable).is_some() || segment.stdin.is_piped() {
                        self.env.set_from_input(variable, &segment.stdin);
                    }
                }
            }
            "printf" => self.print_variable(args),
            "set" => self.set_options(args),
            "shift" => {
                let count = args.first().map_or(Some(1), |word| word.known()?.parse::<usize>().ok());
                let words = self.env.positional.take();
                self.env.positional = words.zip(count).and_then(|(words, count)| {
                    if words.iter().take(count).any(|word| word.splits) {
                        return None;
                    }
                    // Too large a number shifts nothing.
                    let skipped = if count > words.len() { 0 } else { count };
                    Some(Rc::new(words.iter().skip(skipped).cloned().collect()))
                });
            }
            "shopt" if args.iter().any(|word| word.known().is_none_or(|name| name == "lastpipe")) => {
                self.env.last_in_shell = true;
            }
            _ => {}
        }
        self.run_callbacks(name, args, &segment.stdin);
        for path in output::created_files(segment) {
            let is_tree = path.outline().ends_with('/');
            let path = self.env.path(&path) + if is_tree { "/" } else { "" };
            if !self.env.files.contains_key(&path) {
                Rc::make_mut(&mut self.env.files).insert(path, None);
            }
        }
    }

    /// Follows what builtins evaluate: indexes of arrays, callbacks and word lists.
    fn run_callbacks(&mut self, name: &str, args: &[Word], input: &PipeData) {
        let evaluating = [
            "test", "[", "unset", "printf", "read", "mapfile", "readarray", "let", "declare", "typeset",
            "local", "export", "readonly", "wait", "getopts",
        ];
        if evaluating.contains(&name) {
            for word in args {
                self.evaluates(&word.outline(), name);
            }
        }
        if let Some(text) = input.text.as_ref().filter(|_| matches!(name, "read" | "mapfile" | "readarray")) {
            self.evaluates(&text.outline(), name);
        }
        let mut texts = Vec::new();
        if matches!(name, "mapfile" | "readarray" | "compgen") {
            texts = values(args, &["-C"]);
        }
        if name == "compgen" {
            texts.extend(values(args, &["-W"]).iter().map(|words| Word::literal(": ").followed_by(words)));
        }
        for text in texts {
            // `mapfile` passes the index and the line.
            let text = text.followed_by(&Word::literal(" $__index__ \"$__line__\""));
            self.in_subshell(|walk| walk.run_text(&text, name));
        }
    }

    /// `printf -v name`, in one word or two.
    fn print_variable(&mut self, args: &[Word]) {
        let (name, rest) = match args {
            [flag, name, rest @ ..] if flag.known() == Some("-v") => (name.clone(), rest),
            [flag, rest @ ..] => match flag.strip_prefix("-v") {
                Some(name) => (name, rest),
                None => return,
            },
            [] => return,
        };
        match (name.known(), output::printed(rest)) {
            (Some(name), Some(value)) if !name.contains('[') => self.env.set(name, value),
            (Some(name), _) => self.env.forget(name.split('[').next().unwrap_or_default()),
            (None, _) => self.env.volatile = true,
        }
    }

    /// A path given as text, or one that is not known.
    pub(super) fn path_word(&self, path: Option<String>) -> Word {
        match path {
            Some(path) => self.tilde_in_value(&Word::literal(path)),
            None => Word::unknown(Unknown::Variable("path".to_owned())),
        }
    }

    pub(super) fn tilde_in_value(&self, value: &Word) -> Word {
        match value.strip_prefix("~/") {
            Some(rest) => {
                let home = self.env.value("HOME").unwrap_or_default();
                home.followed_by(&Word::literal("/")).followed_by(&rest)
            }
            None => value.clone(),
        }
    }

    /// The path of a file that is read as a whole, if it is known which one it is.
    pub(super) fn whole_file(&self, word: &Word) -> Option<Word> {
        let path = self.env.path(word);
        let is_known = self.env.other_cwds.is_empty() && !word.has_glob() && path.starts_with('/');
        (is_known && !path.contains(UNKNOWN_CHAR)).then(|| Word::literal(path))
    }

    /// Keeps the state before a command with redirections, any of which may fail.
    pub(super) fn may_not_open(&mut self, segment: &Segment, before: ShellEnv) {
        let may_fail = segment.redirects.iter().any(|redirect| match redirect.operator {
            RedirectOperator::HereDocument | RedirectOperator::HereString => false,
            RedirectOperator::Duplicate => !matches!(redirect.target.known(), Some("1" | "2")),
            _ => {
                // A descriptor may be closed.
                let path = self.env.path(&redirect.target);
                !crate::paths::is_stream(&path) || path.starts_with("/dev/fd/")
            }
        });
        if may_fail {
            let mut failed = self.take_failed();
            failed.join(before);
            self.may_fail(failed);
        }
    }

    /// Writes the output of a command to where its redirections lead. Returns what is left.
    pub(super) fn write_output(&mut self, segment: &Segment, stream: PipeData) -> PipeData {
        self.record_written_files(segment, &stream);
        let is_output = |redirect: &&Redirect| {
            let of_stdout = redirect.descriptor.as_deref().is_none_or(|descriptor| descriptor == "1");
            let writes = redirect.operator.is_output() || redirect.operator == RedirectOperator::Duplicate;
            of_stdout && writes
        };
        let Some(last) = segment.redirects.iter().rev().find(is_output) else { return stream };
        let path = self.env.path(&last.target);
        let is_lost = path == "/dev/null" || !crate::paths::is_stream(&path);
        if last.operator == RedirectOperator::Duplicate || !is_lost {
            return PipeData { text: None, file: None, ..stream };
        }
        PipeData { text: Some(Word::default()), ..PipeData::default() }
    }

    /// Remembers the files a command's output went to.
    fn record_written_files(&mut self, segment: &Segment, stream: &PipeData) {
        let mut targets: Vec<(Word, bool)> = segment
            .redirects
            .iter()
            .filter(|redirect| {
                redirect.operator.is_output()
                    && redirect.descriptor.as_deref().is_none_or(|descriptor| descriptor == "1")
            })
            .map(|redirect| (redirect.target.clone(), redirect.operator == RedirectOperator::Append))
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
                (true, Some(Some(before))) => stream.text.as_ref().map(|text| before.followed_by(text)),
                (true, Some(None)) => None,
                _ => stream.text.clone(),
            };
            Rc::make_mut(&mut self.env.files).insert(path, text);
        }
    }
}
