//! Assignments of variables, arrays and their elements.

use super::expand::Tildes;
use super::syntax::{Assign, RawWord, WordPart};
use super::walk::Walker;
use super::*;

impl Walker<'_> {
    /// Expands an assignment, and applies it if no command follows.
    pub(super) fn assign(&mut self, assign: &Assign, applies: bool, segment: &mut Segment) {
        let index = self.expand_whole(&assign.index);
        let values: Vec<Word> = if assign.is_array {
            assign.values.iter().flat_map(|word| self.expand(word)).collect()
        } else {
            assign.values.iter().map(|word| self.expand_assignment(word, Tildes::Value)).collect()
        };
        let name = assign.name.as_str();
        for value in std::iter::once(&index).chain(&values) {
            self.evaluates(&value.outline(), name);
        }
        if matches!(name, "BASH_ALIASES" | "BASH_CMDS") {
            match index.known().filter(|_| !assign.is_array) {
                Some(alias) => self.add_alias(alias, &Word::joined(&values)),
                None => self.doubt(DoubtKind::Code, name),
            }
        }
        if applies {
            match self.elements(assign, &index, &values) {
                Some(elements) => self.env.set_array(name, elements),
                None if assign.is_array || !assign.index.is_empty() => self.env.forget(name),
                None => {
                    let before = if assign.append { self.env.value(name) } else { Some(Word::default()) };
                    match before {
                        Some(before) => {
                            let value = values.first().cloned().unwrap_or_default();
                            self.env.set(name, before.followed_by(&value));
                        }
                        None => self.env.forget(name),
                    }
                }
            }
        }
        segment.assignments.push((assign.name.clone(), Word::joined(&values)));
    }

    /// The elements of an array after an assignment, if they are known.
    fn elements(&self, assign: &Assign, index: &Word, values: &[Word]) -> Option<Vec<Word>> {
        let name = assign.name.as_str();
        let before = self.env.array(name);
        if assign.is_array {
            let is_indexed =
                |word: &RawWord| matches!(word.first(), Some(WordPart::Text(text)) if text.starts_with('['));
            if !assign.index.is_empty() || assign.values.iter().any(is_indexed) {
                return None;
            }
            let mut elements = if assign.append { before? } else { Vec::new() };
            elements.extend(values.iter().cloned());
            return Some(elements);
        }
        let index: usize = match index.known()? {
            "" if assign.index.is_empty() => 0,
            index => index.parse().ok()?,
        };
        // The first element of something that is no array is a plain variable.
        let mut elements = before.filter(|_| !assign.append)?;
        if elements.iter().take(index + 1).any(|word| word.splits) {
            return None;
        }
        let value = values.first().cloned().unwrap_or_default();
        if index == elements.len() {
            elements.push(value);
            return Some(elements);
        }
        *elements.get_mut(index)? = value;
        Some(elements)
    }
}
