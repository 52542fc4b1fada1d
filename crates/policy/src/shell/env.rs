//! The known state of a script: variables, functions, working directory, and files it wrote.
//!
//! Where branches meet, their states are joined: a variable may then have several values, and the
//! directory may be one of several. The maps are shared until they change, so a copy is cheap.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::syntax::SyntaxNode;
use super::*;
use crate::paths;

/// A longer value counts as unknown.
const MAX_VALUE_BYTES: usize = 4096;
/// A value with more pieces counts as unknown.
const MAX_PIECES: usize = 16;
/// A variable with more values counts as unknown.
const MAX_VALUES: usize = 4;
/// Of more directories, the rest counts as unknown.
const MAX_DIRECTORIES: usize = 4;

#[derive(Debug, Clone, Default)]
pub(super) struct ShellEnv {
    /// The possible values; none for one that is surely unset.
    variables: Rc<HashMap<String, Vec<Word>>>,
    /// The elements of arrays that have no gaps. Of a variable, the first one is in `variables`.
    arrays: Rc<HashMap<String, Vec<Word>>>,
    /// Names that child processes see.
    pub(super) exported: Rc<HashSet<String>>,
    /// Names whose values the shell changes when it assigns them.
    pub(super) opaque: Rc<HashSet<String>>,
    pub(super) functions: Rc<HashMap<String, Vec<Rc<SyntaxNode>>>>,
    /// Functions that may be missing.
    pub(super) unsure_functions: Rc<HashSet<String>>,
    pub(super) aliases: Rc<HashMap<String, Vec<Word>>>,
    /// `None` if unknown. If the script could not change directory, it is one of the others.
    pub(super) cwd: Option<String>,
    pub(super) other_cwds: Vec<Option<String>>,
    /// The directories of `pushd`.
    pub(super) stack: Rc<Vec<Option<String>>>,
    /// Directories that the script made or was in.
    pub(super) made: Rc<HashSet<String>>,
    /// Files that the script wrote, with their text if known.
    pub(super) files: Rc<HashMap<String, Option<Word>>>,
    pub(super) positional: Option<Rc<Vec<Word>>>,
    /// `set -e`, `set -a` and `shopt -s lastpipe`.
    pub(super) exits_on_failure: bool,
    pub(super) exports_all: bool,
    pub(super) last_in_shell: bool,
    /// Variables may change at any time, as with references.
    pub(super) volatile: bool,
    /// The script ended, so this state has no successor.
    pub(super) ended: bool,
}

impl ShellEnv {
    pub(super) fn new(around: &Surroundings<'_>) -> Self {
        let session = around.shell.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let usual = [("HOME", around.home), ("HERMES_HOME", around.hermes_home), ("IFS", " \t\n")];
        let unknown = |name: &String| (name.clone(), vec![Word::unknown(Unknown::Variable(name.clone()))]);
        let variables: HashMap<String, Vec<Word>> = usual
            .into_iter()
            .chain(session)
            .chain([("PWD", around.cwd)])
            .map(|(name, value)| (name.to_owned(), vec![Word::literal(value)]))
            .chain(around.shell.exported.iter().map(unknown))
            .collect();
        let exported = variables.keys().filter(|name| *name != "IFS").cloned().collect();
        let cwd = paths::normalize(around.cwd);
        Self {
            variables: Rc::new(variables),
            exported: Rc::new(exported),
            made: Rc::new(HashSet::from([cwd.clone()])),
            cwd: Some(cwd),
            volatile: around.shell.exported.contains(ShellContext::ANY_NAME),
            ..Self::default()
        }
    }

    /// The state after the end of the script.
    pub(super) fn ended() -> Self {
        Self { ended: true, ..Self::default() }
    }

    /// The cost of changing a copy.
    pub(super) fn size(&self) -> usize {
        4 * (self.variables.len() + self.functions.len() + self.files.len() + self.aliases.len())
    }

    /// Returns to the outer shell. Written files stay.
    pub(super) fn leave_for(&mut self, outer: Self) {
        let (files, made) = (std::mem::take(&mut self.files), std::mem::take(&mut self.made));
        *self = outer;
        (self.files, self.made) = (files, made);
    }

    /// Becomes the state of a new shell, which surely sees only exported variables.
    pub(super) fn enter_new_shell(&mut self) {
        let exported = Rc::clone(&self.exported);
        for (name, values) in Rc::make_mut(&mut self.variables).iter_mut() {
            // One of the owner's may be exported too, and the shell drops a wrong `OLDPWD`.
            if !values.is_empty() && (name == "OLDPWD" || !exported.contains(name)) {
                *values = vec![Word::unknown(Unknown::Variable(name.clone()))];
            }
        }
        self.set_pwd();
        self.set("IFS", Word::literal(" \t\n"));
        (self.opaque, self.arrays) = Default::default();
        (self.exits_on_failure, self.exports_all, self.last_in_shell, self.volatile) =
            (false, false, false, false);
    }

    /// Adds the possibilities of another state at the same point.
    pub(super) fn join(&mut self, other: Self) {
        if other.ended {
            return;
        }
        if self.ended {
            *self = other;
            return;
        }
        if !Rc::ptr_eq(&self.variables, &other.variables) {
            let names: HashSet<&String> = self.variables.keys().chain(other.variables.keys()).collect();
            let joined = names.into_iter().map(|name| {
                let unknown = || vec![Word::unknown(Unknown::Variable(name.clone()))];
                let (mine, theirs) = (self.variables.get(name), other.variables.get(name));
                if mine == theirs {
                    return (name.clone(), mine.cloned().unwrap_or_default());
                }
                let values = |values: Option<&Vec<Word>>| {
                    values.filter(|values| !values.is_empty()).cloned().unwrap_or_else(unknown)
                };
                let mut joined = values(mine);
                for value in values(theirs) {
                    if !joined.contains(&value) {
                        joined.push(value);
                    }
                }
                (name.clone(), if joined.len() > MAX_VALUES { unknown() } else { joined })
            });
            self.variables = Rc::new(joined.collect());
        }
        if !Rc::ptr_eq(&self.arrays, &other.arrays) {
            let arrays = Rc::make_mut(&mut self.arrays);
            arrays.retain(|name, elements| other.arrays.get(name) == Some(elements));
        }
        if !Rc::ptr_eq(&self.functions, &other.functions) {
            let unsure = Rc::make_mut(&mut self.unsure_functions);
            unsure.extend(other.unsure_functions.iter().cloned());
            let (mine, theirs) = (&self.functions, &other.functions);
            unsure.extend(mine.keys().filter(|name| !theirs.contains_key(*name)).cloned());
            unsure.extend(theirs.keys().filter(|name| !mine.contains_key(*name)).cloned());
        }
        join_maps(&mut self.functions, other.functions, Rc::ptr_eq);
        join_maps(&mut self.aliases, other.aliases, |a, b| a == b);
        if !Rc::ptr_eq(&self.opaque, &other.opaque) {
            Rc::make_mut(&mut self.opaque).extend(other.opaque.iter().cloned());
        }
        for (mine, theirs) in [(&mut self.exported, other.exported), (&mut self.made, other.made)] {
            if !Rc::ptr_eq(mine, &theirs) {
                Rc::make_mut(mine).retain(|name| theirs.contains(name));
            }
        }
        if !Rc::ptr_eq(&self.files, &other.files) {
            let files = Rc::make_mut(&mut self.files);
            for (path, text) in other.files.iter() {
                let mine = files.entry(path.clone()).or_insert_with(|| text.clone());
                if mine != text {
                    *mine = None;
                }
            }
        }
        if self.stack != other.stack {
            self.stack = Rc::default();
        }
        if self.positional != other.positional {
            self.positional = None;
        }
        for cwd in std::iter::once(other.cwd).chain(other.other_cwds) {
            self.add_cwd(cwd);
        }
        self.exits_on_failure &= other.exits_on_failure;
        self.exports_all |= other.exports_all;
        self.last_in_shell |= other.last_in_shell;
        self.volatile |= other.volatile;
    }

    /// Adds the state in which a program removed variables from the environment.
    pub(super) fn may_lose_variables(&mut self) {
        let mut cleared = self.clone();
        for name in self.variables.keys().filter(|name| !matches!(name.as_str(), "PWD" | "IFS")) {
            cleared.forget(name);
        }
        self.join(cleared);
    }

    pub(super) fn add_cwd(&mut self, cwd: Option<String>) {
        if cwd != self.cwd && !self.other_cwds.contains(&cwd) {
            let is_full = self.other_cwds.len() >= MAX_DIRECTORIES;
            self.other_cwds.push(if is_full { None } else { cwd });
            self.other_cwds.dedup();
        }
    }

    /// Gives `PWD` one value for each directory where the script may be.
    pub(super) fn set_pwd(&mut self) {
        let unknown = || Word::unknown(Unknown::Variable("PWD".to_owned()));
        let directories = std::iter::once(&self.cwd).chain(&self.other_cwds);
        let mut values: Vec<Word> = directories
            .map(|directory| match directory {
                Some(path) if !path.contains(UNKNOWN_CHAR) => Word::literal(path.clone()),
                _ => unknown(),
            })
            .collect();
        if values.len() > MAX_VALUES {
            values = vec![unknown()];
        }
        self.restore("PWD", Some(values));
    }

    /// Whether a variable has different values in another state.
    pub(super) fn same_variables(&self, other: &Self) -> bool {
        (Rc::ptr_eq(&self.variables, &other.variables) || self.variables == other.variables)
            && self.arrays == other.arrays
            && self.same_names(other)
    }

    /// The variables that differ in another state.
    pub(super) fn changed_variables(&self, other: &Self) -> Vec<String> {
        let names: HashSet<&String> = self
            .variables
            .keys()
            .chain(other.variables.keys())
            .chain(self.arrays.keys())
            .chain(other.arrays.keys())
            .collect();
        let differs = |name: &&&String| {
            self.variables.get(**name) != other.variables.get(**name)
                || self.arrays.get(**name) != other.arrays.get(**name)
        };
        names.iter().filter(differs).map(|name| (*name).clone()).collect()
    }

    /// Whether the directory, the parameters, and the names of commands are those of another state.
    pub(super) fn same_names(&self, other: &Self) -> bool {
        self.cwd == other.cwd
            && self.other_cwds == other.other_cwds
            && self.positional == other.positional
            && self.functions.len() == other.functions.len()
            && self.aliases == other.aliases
    }

    /// Forgets the variables and directories that differ in another state.
    pub(super) fn forget_differences(&mut self, other: &Self) {
        for name in self.changed_variables(other) {
            self.forget(&name);
        }
        if (&self.cwd, &self.other_cwds) != (&other.cwd, &other.other_cwds) {
            self.add_cwd(None);
        }
    }

    /// The possible values of a variable; unknown ones as such, and none if it was never set.
    pub(super) fn values(&self, name: &str) -> Vec<Word> {
        let unknown = || vec![Word::unknown(Unknown::Variable(name.to_owned()))];
        if let Some(positional) = &self.positional {
            if let Ok(index) = name.parse::<usize>()
                && index > 0
            {
                let splits = positional.iter().take(index).any(|word| word.splits);
                return if splits {
                    unknown()
                } else {
                    positional.get(index - 1).cloned().into_iter().collect()
                };
            }
            match name {
                "#" if positional.iter().any(|word| word.splits) => return unknown(),
                "#" => return vec![Word::literal(positional.len().to_string())],
                "@" | "*" => return vec![Word::joined(positional)],
                _ => {}
            }
        }
        match self.variables.get(name) {
            Some(_) if self.volatile || self.opaque.contains(name) => unknown(),
            Some(values) => values.clone(),
            None => Vec::new(),
        }
    }

    /// Whether a variable is surely not set.
    pub(super) fn is_unset(&self, name: &str) -> bool {
        match (&self.positional, name.parse::<usize>()) {
            (Some(positional), Ok(index)) if index > positional.len() => {
                !positional.iter().any(|word| word.splits)
            }
            _ => self.variables.get(name).is_some_and(Vec::is_empty) && !self.volatile,
        }
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.restore(name, Some(Vec::new()));
    }

    /// The value of a variable, if it is certain.
    pub(super) fn value(&self, name: &str) -> Option<Word> {
        let mut values = self.values(name);
        if values.len() > 1 {
            return Some(Word::unknown(Unknown::Variable(name.to_owned())));
        }
        values.pop()
    }

    pub(super) fn set(&mut self, name: &str, value: Word) {
        let unclear = value.outline().len() > MAX_VALUE_BYTES || value.pieces().len() > MAX_PIECES;
        let value = if unclear { Word::unknown(Unknown::Variable(name.to_owned())) } else { value };
        self.restore(name, Some(vec![value]));
        if self.exports_all {
            Rc::make_mut(&mut self.exported).insert(name.to_owned());
        }
    }

    pub(super) fn bound(&self, name: &str) -> Option<Vec<Word>> {
        self.variables.get(name).cloned()
    }

    /// The elements of an array, if they are known.
    pub(super) fn array(&self, name: &str) -> Option<Vec<Word>> {
        if self.volatile || self.opaque.contains(name) {
            return None;
        }
        self.arrays.get(name).cloned()
    }

    pub(super) fn set_array(&mut self, name: &str, elements: Vec<Word>) {
        match elements.first() {
            Some(first) if !first.splits => self.set(name, first.clone()),
            Some(_) => self.forget(name),
            None => self.unset(name),
        }
        Rc::make_mut(&mut self.arrays).insert(name.to_owned(), elements);
    }

    /// Gives a variable the values it had before.
    pub(super) fn restore(&mut self, name: &str, values: Option<Vec<Word>>) {
        if self.arrays.contains_key(name) {
            Rc::make_mut(&mut self.arrays).remove(name);
        }
        if self.variables.get(name) != values.as_ref() {
            let variables = Rc::make_mut(&mut self.variables);
            match values {
                Some(values) => variables.insert(name.to_owned(), values),
                None => variables.remove(name),
            };
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.set(name, Word::unknown(Unknown::Variable(name.to_owned())));
    }

    /// Sets a variable to a part of an input.
    pub(super) fn set_from_input(&mut self, name: &str, input: &PipeData) {
        if input.programs.is_empty() {
            self.forget(name);
        } else {
            self.set(name, Word::unknown(Unknown::Output(input.programs.clone())));
        }
    }

    /// The absolute path of a word, with unknown parts as a placeholder.
    pub(super) fn path(&self, word: &Word) -> String {
        paths::resolve(&word.outline(), self.cwd.as_deref())
    }

    /// The absolute paths of a word in each possible directory.
    pub(super) fn paths(&self, word: &Word) -> Vec<String> {
        let outline = word.outline();
        let mut paths = vec![self.path(word)];
        for cwd in &self.other_cwds {
            let path = paths::resolve(&outline, cwd.as_deref());
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    /// The text of a file that the script wrote, wherever it ran; `Some(None)` if it is not known.
    pub(super) fn file(&self, word: &Word) -> Option<Option<Word>> {
        if self.files.is_empty() {
            return None;
        }
        let in_tree =
            |path: &str| path.match_indices('/').find_map(|(at, _)| self.files.get(path.get(..=at)?));
        let paths = self.paths(word);
        let mut found = paths.iter().filter_map(|path| self.files.get(path).or_else(|| in_tree(path)));
        let first = found.next()?.clone();
        Some(first.filter(|first| found.all(|other| other.as_ref() == Some(first))))
    }
}

fn join_maps<T: Clone>(
    mine: &mut Rc<HashMap<String, Vec<T>>>,
    theirs: Rc<HashMap<String, Vec<T>>>,
    same: impl Fn(&T, &T) -> bool,
) {
    if Rc::ptr_eq(mine, &theirs) {
        return;
    }
    let mine = Rc::make_mut(mine);
    for (name, values) in theirs.iter() {
        let known = mine.entry(name.clone()).or_default();
        for value in values {
            if !known.iter().any(|other| same(other, value)) {
                known.push(value.clone());
            }
        }
    }
}
