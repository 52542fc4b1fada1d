//! Changes that a command makes for later ones: the directory, variables, aliases and files.

use super::output;
use super::walk::Walker;
use super::*;

impl Walker<'_> {
    pub(super) fn change_directory(&mut self, target: &Word) {
        let path = self.env.path(target);
        let known = !path.contains(UNKNOWN_CHAR) && !target.has_glob();
        self.set_directory(known.then_some(path));
    }

    fn set_directory(&mut self, directory: Option<String>) {
        for (name, path) in [("OLDPWD", &self.env.cwd.clone()), ("PWD", &directory)] {
            self.env.set_or_forget(name, path.as_ref().map(Word::literal), true);
        }
        self.env.cwd = directory;
    }

    /// Applies the changes a command makes for later ones.
    pub(super) fn apply_bindings(&mut self, segment: &Segment) {
        match segment.name.as_str() {
            "cd" | "pushd" => {
                let target = segment.args.iter().find(|word| !word.prefix().starts_with('-'));
                match target {
                    // With a search path, a relative name may lead anywhere.
                    Some(target)
                        if !target.prefix().starts_with(['/', '.'])
                            && (self.env.value("CDPATH").is_some()
                                || segment.assignments.iter().any(|(name, _)| name == "CDPATH")) =>
                    {
                        self.set_directory(None);
                    }
                    Some(target) => self.change_directory(target),
                    None if segment.args.is_empty() => self.set_directory(Some(self.around.home.to_owned())),
                    None => self.set_directory(None),
                }
            }
            "popd" => self.set_directory(None),
            "declare" | "local" | "typeset" if super::has(&segment.args, &["-n"]) => {
                for word in &segment.args {
                    self.env.forget(word.prefix().split('=').next().unwrap_or_default());
                }
            }
            "alias" => {
                self.env.aliases.extend(segment.args.iter().filter_map(Word::as_assignment));
            }
            "export" | "declare" | "local" | "readonly" | "typeset" => {
                for (name, value) in segment.args.iter().filter_map(Word::as_assignment) {
                    self.env.set(&name, self.tilde_in_value(&value), self.conditional == 0);
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
                    self.env.set_or_forget(name, value, self.conditional == 0);
                }
            }
            "set" if segment.args.first().and_then(Word::known) == Some("--") => {
                self.env.positional = Some(segment.args.iter().skip(1).cloned().collect());
            }
            "shift" => self.env.positional = None,
            _ => {}
        }
        for path in output::created_files(segment) {
            let path = self.env.path(&path);
            self.env.files.entry(path).or_insert(None);
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
            Some(rest) => Word::literal(format!("{}/", self.around.home)).followed_by(&rest),
            None => value.clone(),
        }
    }

    /// Remembers the files a command's output went to.
    pub(super) fn record_written_files(&mut self, segment: &Segment, stream: &PipeData) {
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
            self.env.files.insert(path, text);
        }
    }
}
