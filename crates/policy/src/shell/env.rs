//! What a script has said so far: variables, functions, the directory, and files it wrote itself.

use std::collections::HashMap;
use std::rc::Rc;

use super::Surroundings;
use super::syntax::Node;
use super::value::{Piece, Unknown, Word};
use crate::paths;

/// The longest variable value that is followed; a longer one is unknown.
const MAX_VALUE: usize = 4096;
/// The most pieces a value may have and still be followed.
const MAX_PIECES: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Env {
    variables: HashMap<String, Vec<Piece>>,
    pub(super) functions: HashMap<String, Rc<Node>>,
    pub(super) aliases: HashMap<String, Word>,
    /// The directory, while it is known.
    pub(super) cwd: Option<String>,
    /// Files the script wrote, with their text where it is known.
    pub(super) files: HashMap<String, Option<Word>>,
    pub(super) positional: Option<Vec<Word>>,
}

impl Env {
    pub(super) fn new(around: &Surroundings<'_>) -> Self {
        let text = |text: &str| vec![Piece::Text(text.to_owned())];
        let variables = [
            ("HOME", around.home),
            ("HERMES_HOME", around.hermes_home),
            ("IFS", " \t\n"),
            ("PWD", around.cwd),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), text(value)))
        .collect();
        Self {
            variables,
            functions: HashMap::new(),
            aliases: HashMap::new(),
            cwd: Some(paths::normalize(around.cwd)),
            files: HashMap::new(),
            positional: None,
        }
    }

    /// How much a copy costs.
    pub(super) fn size(&self) -> usize {
        4 * (self.variables.len() + self.functions.len() + self.files.len() + self.aliases.len())
    }

    /// Goes back to an outer shell. Files stay written.
    pub(super) fn leave_for(&mut self, outer: Self) {
        let files = std::mem::take(&mut self.files);
        *self = outer;
        self.files = files;
    }

    pub(super) fn value(&self, name: &str) -> Option<Vec<Piece>> {
        if let Ok(index) = name.parse::<usize>() {
            let word = self.positional.as_ref()?.get(index.checked_sub(1)?)?;
            return Some(word.pieces().to_vec());
        }
        if matches!(name, "@" | "*") {
            let words = self.positional.as_ref()?;
            let mut pieces = Vec::new();
            for (index, word) in words.iter().enumerate() {
                if index > 0 {
                    pieces.push(Piece::Text(" ".to_owned()));
                }
                pieces.extend(word.pieces().iter().cloned());
            }
            return Some(pieces);
        }
        self.variables.get(name).cloned()
    }

    pub(super) fn set(&mut self, name: &str, value: Vec<Piece>, certain: bool) {
        let length: usize =
            value.iter().map(|piece| if let Piece::Text(text) = piece { text.len() } else { 1 }).sum();
        let unclear = length > MAX_VALUE
            || value.len() > MAX_PIECES
            || (!certain && self.variables.get(name).is_some_and(|before| *before != value));
        let value = if unclear { vec![Piece::Unknown(Unknown::Variable(name.to_owned()))] } else { value };
        self.variables.insert(name.to_owned(), value);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.variables.insert(name.to_owned(), vec![Piece::Unknown(Unknown::Variable(name.to_owned()))]);
    }

    pub(super) fn separators(&self) -> Vec<char> {
        match self.variables.get("IFS").map(Vec::as_slice) {
            Some([Piece::Text(text)]) => text.chars().collect(),
            Some([]) => Vec::new(),
            _ => vec![' ', '\t', '\n'],
        }
    }

    /// The absolute path a word names here, unknown stretches as holes.
    pub(super) fn path(&self, word: &Word) -> String {
        paths::resolve(&word.outline(), self.cwd.as_deref())
    }
}
