//! Expansion: from a word of the tree to the words a program will receive.
//!
//! The order is that of bash: braces, tildes, parameters and substitutions, splitting, and patterns, which stay
//! patterns because no file system is looked at.

use super::budget::MAX_BRACES;
use super::syntax::{self, Form, Parameter, Part};
use super::value::{Piece, Unknown, Word};
use super::walk::Walk;

/// Characters that may mean more than themselves in an unquoted word.
const SPECIAL: [char; 11] = ['{', '}', ',', '~', '*', '?', '[', ']', '(', ')', '/'];

/// The smallest thing brace expansion moves around.
#[derive(Debug, Clone)]
enum Atom {
    /// A character that may be special.
    Live(char),
    /// A character that stands for itself.
    Plain(char),
    /// Known text that stands for itself.
    Text(String),
    /// An expansion in quotes.
    Quoted(Vec<Piece>),
    /// An expansion outside quotes, which is split.
    Bare(Vec<Piece>),
}

impl Walk<'_> {
    /// All words a word of the tree becomes.
    pub(super) fn expand(&mut self, word: &syntax::Word) -> Vec<Word> {
        if let [Part::Text(text)] = word.parts.as_slice()
            && !text.contains(['{', '~', '*', '?', '[', '('])
        {
            return vec![Word::literal(text.clone())];
        }
        let atoms = self.atoms(&word.parts);
        let mut moved = 0;
        let alternatives = braces(atoms, &mut moved);
        self.charge(moved + alternatives.iter().map(Vec::len).sum::<usize>());
        if self.spent {
            return vec![Word::unknown(Unknown::Number)];
        }
        let mut words = Vec::new();
        for alternative in alternatives {
            self.fields(alternative, &mut words);
        }
        words
    }

    /// A word where no splitting and no braces happen: assignment values, here-strings, redirection targets.
    pub(super) fn expand_whole(&mut self, word: &syntax::Word) -> Word {
        let atoms = self.atoms(&word.parts);
        let mut pieces = Vec::new();
        let mut atoms = atoms.as_slice();
        if let Some((rest, tilde)) = self.tilde(atoms) {
            pieces.extend(tilde);
            atoms = rest;
        }
        for atom in atoms {
            match atom {
                Atom::Live(char) | Atom::Plain(char) => push_char(&mut pieces, *char),
                Atom::Text(text) => push_text(&mut pieces, text),
                Atom::Quoted(inner) | Atom::Bare(inner) => {
                    inner.iter().for_each(|piece| push(&mut pieces, piece))
                }
            }
        }
        Word::from_pieces(pieces)
    }

    /// A redirection target: patterns are live, but the result is one word.
    pub(super) fn expand_target(&mut self, word: &syntax::Word) -> Word {
        let mut words = self.expand(word);
        if words.len() == 1 {
            return words.remove(0);
        }
        self.expand_whole(word)
    }

    fn atoms(&mut self, parts: &[Part]) -> Vec<Atom> {
        let mut atoms = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) if text.contains(SPECIAL) => atoms.extend(text.chars().map(Atom::Live)),
                Part::Text(text) => atoms.push(Atom::Text(text.clone())),
                Part::Quoted(text) => atoms.push(Atom::Text(text.clone())),
                Part::Parameter(parameter) => {
                    let pieces = self.parameter(parameter);
                    atoms.push(if parameter.quoted { Atom::Quoted(pieces) } else { Atom::Bare(pieces) });
                }
                Part::Command { list, quoted } => {
                    let pieces = self.substitution(list);
                    atoms.push(if *quoted { Atom::Quoted(pieces) } else { Atom::Bare(pieces) });
                }
                Part::Arithmetic(inner) => {
                    self.atoms(inner);
                    atoms.push(Atom::Quoted(vec![Piece::Unknown(Unknown::Number)]));
                }
                Part::Process(list) => {
                    let stream = self.sublist(list);
                    let programs =
                        if stream.programs.is_empty() { vec!["echo".to_owned()] } else { stream.programs };
                    self.process_text = stream.text.or(self.process_text.take());
                    atoms.push(Atom::Quoted(vec![
                        Piece::Text("/dev/fd/".to_owned()),
                        Piece::Unknown(Unknown::Output(programs)),
                    ]));
                }
            }
        }
        atoms
    }

    fn parameter(&mut self, parameter: &Parameter) -> Vec<Piece> {
        self.atoms(&parameter.index);
        let argument = self.expand_whole(&syntax::Word { parts: parameter.argument.clone() });
        let value = self.env.value(&parameter.name);
        self.charge(value.as_ref().map_or(1, Vec::len));
        match parameter.form {
            Form::Plain => value,
            Form::Default => Some(value.unwrap_or_else(|| argument.pieces().to_vec())),
            Form::Alternative => Some(argument.pieces().to_vec()),
            Form::Computed => None,
        }
        .unwrap_or_else(|| vec![Piece::Unknown(Unknown::Variable(parameter.name.clone()))])
    }

    /// Expands a tilde prefix; gives the atoms behind it.
    fn tilde<'a>(&self, atoms: &'a [Atom]) -> Option<(&'a [Atom], Vec<Piece>)> {
        if !matches!(atoms.first(), Some(Atom::Live('~'))) {
            return None;
        }
        let mut name = String::new();
        let mut rest = atoms.get(1..)?;
        while let Some((Atom::Live(char), tail)) = rest.split_first() {
            if matches!(char, '/' | ':') {
                break;
            }
            name.push(*char);
            rest = tail;
        }
        if !matches!(rest.first(), None | Some(Atom::Live('/' | ':'))) {
            return None;
        }
        let pieces = match name.as_str() {
            "" => self.env.value("HOME")?,
            "+" => match &self.env.cwd {
                Some(cwd) => vec![Piece::Text(cwd.clone())],
                None => vec![Piece::Unknown(Unknown::Variable("PWD".to_owned()))],
            },
            "root" => vec![Piece::Text("/root".to_owned())],
            user if user.starts_with(['-', '+']) => {
                vec![Piece::Unknown(Unknown::Variable("OLDPWD".to_owned()))]
            }
            user => vec![Piece::Text(format!("/home/{user}"))],
        };
        Some((rest, pieces))
    }

    /// Splits one alternative into fields.
    fn fields(&self, atoms: Vec<Atom>, words: &mut Vec<Word>) {
        let separators = self.env.separators();
        let mut pieces = Vec::new();
        // Whether the current field exists even when it is empty.
        let mut real = false;
        let mut splits = false;
        let mut atoms = atoms.as_slice();
        if let Some((rest, tilde)) = self.tilde(atoms) {
            pieces.extend(tilde);
            atoms = rest;
            real = true;
        }
        let mut index = 0;
        while let Some(atom) = atoms.get(index) {
            index += 1;
            match atom {
                Atom::Live(char @ ('*' | '?')) => push(&mut pieces, &Piece::Glob(char.to_string())),
                // `!(a|b)` and its kin may be anything.
                Atom::Live('(') => {
                    if let Some(Piece::Text(text) | Piece::Glob(text)) = pieces.last_mut() {
                        text.pop();
                    }
                    if matches!(pieces.last(), Some(Piece::Text(text) | Piece::Glob(text)) if text.is_empty())
                    {
                        pieces.pop();
                    }
                    push(&mut pieces, &Piece::Glob("*".to_owned()));
                    let rest = atoms.get(index..).unwrap_or_default();
                    let length =
                        rest.iter().position(|atom| matches!(atom, Atom::Live(')'))).map_or(0, |at| at + 1);
                    index += length;
                }
                Atom::Live('[') => match class_at(atoms, index) {
                    Some((class, end)) => {
                        push(&mut pieces, &Piece::Glob(class));
                        index = end;
                    }
                    None => push_char(&mut pieces, '['),
                },
                Atom::Live(char) | Atom::Plain(char) => push_char(&mut pieces, *char),
                Atom::Text(text) => {
                    push_text(&mut pieces, text);
                    real = true;
                }
                Atom::Quoted(inner) => {
                    inner.iter().for_each(|piece| push(&mut pieces, piece));
                    real = true;
                }
                Atom::Bare(inner) => {
                    for piece in inner {
                        let Piece::Text(text) = piece else {
                            splits |= matches!(piece, Piece::Unknown(_));
                            push(&mut pieces, piece);
                            continue;
                        };
                        let mut fields = text.split(|char: char| separators.contains(&char));
                        if let Some(first) = fields.next() {
                            push_live(&mut pieces, first);
                        }
                        for field in fields {
                            if real || !pieces.is_empty() {
                                words.push(Word::from_pieces(std::mem::take(&mut pieces)).splitting(splits));
                                splits = false;
                                real = false;
                            }
                            push_live(&mut pieces, field);
                        }
                    }
                }
            }
        }
        if real || !pieces.is_empty() {
            words.push(Word::from_pieces(pieces).splitting(splits));
        }
    }
}

/// The class such as `[a-z]` whose opening bracket stands before `start`, and the index behind it.
fn class_at(atoms: &[Atom], start: usize) -> Option<(String, usize)> {
    let mut class = String::from("[");
    for (offset, atom) in atoms.get(start..)?.iter().take(64).enumerate() {
        match atom {
            Atom::Live(']') if offset > 0 => {
                class.push(']');
                return Some((class, start + offset + 1));
            }
            Atom::Live('/') => return None,
            Atom::Live(char) | Atom::Plain(char) => class.push(*char),
            Atom::Text(text) => class.push_str(text),
            Atom::Quoted(_) | Atom::Bare(_) => return None,
        }
    }
    None
}

/// Adds text that came out of an unquoted expansion, where patterns are live.
fn push_live(pieces: &mut Vec<Piece>, text: &str) {
    if !text.contains(['*', '?', '[']) {
        push_text(pieces, text);
        return;
    }
    for char in text.chars() {
        match char {
            '*' | '?' => push(pieces, &Piece::Glob(char.to_string())),
            other => push_char(pieces, other),
        }
    }
}

fn push(pieces: &mut Vec<Piece>, piece: &Piece) {
    match (pieces.last_mut(), piece) {
        (_, Piece::Text(text)) => push_text(pieces, text),
        (Some(Piece::Glob(last)), Piece::Glob(pattern)) => last.push_str(pattern),
        _ => pieces.push(piece.clone()),
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

fn push_char(pieces: &mut Vec<Piece>, char: char) {
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push(char),
        _ => pieces.push(Piece::Text(char.to_string())),
    }
}

/// All alternatives of a word with braces, each without live braces that expand. Counts the atoms it moved.
fn braces(atoms: Vec<Atom>, moved: &mut usize) -> Vec<Vec<Atom>> {
    if !atoms.iter().any(|atom| matches!(atom, Atom::Live('{'))) {
        return vec![atoms];
    }
    let mut done = Vec::new();
    let mut todo = vec![(atoms, 0)];
    while let Some((atoms, from)) = todo.pop() {
        *moved += atoms.len();
        let Some((start, end, members)) = first_brace(&atoms, from) else {
            done.push(atoms);
            continue;
        };
        let too_many = done.len() + todo.len() + members.len() > MAX_BRACES;
        if too_many || atoms.len() * members.len() > MAX_BRACES * 32 {
            // Too many to list: the word is unknown from here on.
            let mut cut: Vec<Atom> = atoms.into_iter().take(start).collect();
            cut.push(Atom::Quoted(vec![Piece::Unknown(Unknown::Number)]));
            done.push(cut);
            continue;
        }
        let head = atoms.get(..start).unwrap_or_default();
        let tail = atoms.get(end + 1..).unwrap_or_default();
        for member in members.into_iter().rev() {
            let mut whole = head.to_vec();
            whole.extend(member);
            whole.extend(tail.iter().cloned());
            todo.push((whole, start));
        }
    }
    done
}

/// The first brace expression at or behind an index: where it starts and ends, and its members.
fn first_brace(atoms: &[Atom], from: usize) -> Option<(usize, usize, Vec<Vec<Atom>>)> {
    let mut start = from;
    // An opening brace that closes nowhere costs a scan to the end; a handful is enough for any honest word.
    for _ in 0..8 {
        start = start + atoms.get(start..)?.iter().position(|atom| matches!(atom, Atom::Live('{')))?;
        let mut depth = 0_usize;
        let mut commas = Vec::new();
        for (offset, atom) in atoms.get(start..)?.iter().enumerate() {
            match atom {
                Atom::Live('{') => depth += 1,
                Atom::Live(',') if depth == 1 => commas.push(start + offset),
                Atom::Live('}') => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                let end = start + offset;
                if let Some(members) = members(atoms, start, end, &commas) {
                    return Some((start, end, members));
                }
                break;
            }
        }
        start += 1;
    }
    None
}

fn members(atoms: &[Atom], start: usize, end: usize, commas: &[usize]) -> Option<Vec<Vec<Atom>>> {
    if commas.is_empty() {
        return sequence(atoms.get(start + 1..end)?);
    }
    let mut members = Vec::new();
    let mut from = start + 1;
    for comma in commas.iter().chain([&end]) {
        members.push(atoms.get(from..*comma)?.to_vec());
        from = comma + 1;
    }
    Some(members)
}

/// `{1..9}` and `{a..e}`.
fn sequence(inside: &[Atom]) -> Option<Vec<Vec<Atom>>> {
    let mut text = String::new();
    for atom in inside {
        match atom {
            Atom::Live(char) => text.push(*char),
            _ => return None,
        }
    }
    let mut parts = text.split("..");
    let (from, to) = (parts.next()?, parts.next()?);
    let step = parts.next().and_then(|step| step.parse::<i64>().ok()).unwrap_or(1).unsigned_abs().max(1);
    let (low, high, letters) = match (from.parse::<i64>(), to.parse::<i64>()) {
        (Ok(from), Ok(to)) => (from.min(to), from.max(to), false),
        _ => {
            let mut chars = (from.chars(), to.chars());
            let (from, to) = (chars.0.next()?, chars.1.next()?);
            if chars.0.next().is_some() || chars.1.next().is_some() {
                return None;
            }
            let (from, to) = (i64::from(u32::from(from)), i64::from(u32::from(to)));
            (from.min(to), from.max(to), true)
        }
    };
    let count = high.checked_sub(low)?.unsigned_abs() / step;
    let limit = u64::try_from(MAX_BRACES).unwrap_or(u64::MAX);
    (0..=count.min(limit))
        .map(|index| {
            let value = low.checked_add_unsigned(index.checked_mul(step)?)?;
            let text = if letters {
                char::from_u32(u32::try_from(value).ok()?)?.to_string()
            } else {
                value.to_string()
            };
            Some(text.chars().map(Atom::Plain).collect())
        })
        .collect()
}
