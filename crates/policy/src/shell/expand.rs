//! Expansion: from a parsed word to the words that a program receives.
//!
//! The order is that of bash: braces, tildes, parameters and substitutions, splitting, and
//! patterns, which stay patterns because nothing reads the file system.

use super::budget::MAX_BRACE_WORDS;
use super::syntax::{Parameter, ParameterForm, WordPart};
use super::walk::Walker;
use super::*;

const SPECIAL: [char; 11] = ['{', '}', ',', '~', '*', '?', '[', ']', '(', ')', '/'];

/// The unit that brace expansion moves.
#[derive(Debug, Clone)]
enum BraceAtom {
    /// A character that may be special.
    Live(char),
    /// Literal text.
    Text(String),
    /// An expansion; outside quotes, it is split.
    Expansion { pieces: Vec<WordPiece>, quoted: bool },
}

impl Walker<'_> {
    /// The words that a parsed word expands to.
    pub(super) fn expand(&mut self, word: &[WordPart]) -> Vec<Word> {
        if let [WordPart::Text(text)] = word
            && !text.contains(['{', '~', '*', '?', '[', '('])
        {
            return vec![Word::literal(text.clone())];
        }
        let atoms = self.atoms(word);
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

    /// Expands a word without splitting and braces: assignment values, here-strings, redirection
    /// targets.
    pub(super) fn expand_whole(&mut self, word: &[WordPart]) -> Word {
        let atoms = self.atoms(word);
        let (rest, mut pieces) = self.tilde(&atoms).unwrap_or((&atoms, Vec::new()));
        for atom in rest {
            match atom {
                BraceAtom::Live(char) => push_text(&mut pieces, &char.to_string()),
                BraceAtom::Text(text) => push_text(&mut pieces, text),
                BraceAtom::Expansion { pieces: inner, .. } => pieces.extend(inner.iter().cloned()),
            }
        }
        Word::from_pieces(pieces)
    }

    /// Expands a redirection target: patterns are active, but the result is one word.
    pub(super) fn expand_target(&mut self, word: &[WordPart]) -> Word {
        let mut words = self.expand(word);
        if words.len() == 1 {
            return words.remove(0);
        }
        self.expand_whole(word)
    }

    fn atoms(&mut self, parts: &[WordPart]) -> Vec<BraceAtom> {
        let mut atoms = Vec::new();
        for part in parts {
            match part {
                WordPart::Text(text) if text.contains(SPECIAL) => {
                    atoms.extend(text.chars().map(BraceAtom::Live))
                }
                WordPart::Text(text) => atoms.push(BraceAtom::Text(text.clone())),
                WordPart::Quoted(text) => atoms.push(BraceAtom::Text(text.clone())),
                WordPart::Parameter(parameter) => {
                    let pieces = self.parameter(parameter);
                    atoms.push(BraceAtom::Expansion { pieces, quoted: parameter.quoted });
                }
                WordPart::Command { list, quoted } => {
                    let pieces = self.substitution(list);
                    atoms.push(BraceAtom::Expansion { pieces, quoted: *quoted });
                }
                WordPart::Arithmetic(inner) => {
                    self.atoms(inner);
                    atoms.push(unknown_number());
                }
                WordPart::Process(list) => {
                    let stream = self.sublist(list);
                    let programs =
                        if stream.programs.is_empty() { vec!["echo".to_owned()] } else { stream.programs };
                    self.process_text = stream.text.or(self.process_text.take());
                    atoms.push(BraceAtom::Text("/dev/fd/".to_owned()));
                    let pieces = vec![WordPiece::Unknown(Unknown::Output(programs))];
                    atoms.push(BraceAtom::Expansion { pieces, quoted: true });
                }
            }
        }
        atoms
    }

    fn parameter(&mut self, parameter: &Parameter) -> Vec<WordPiece> {
        self.atoms(&parameter.index);
        let argument = self.expand_whole(&parameter.argument);
        let value = self.env.value(&parameter.name);
        self.charge(value.as_ref().map_or(1, |value| value.pieces().len()));
        let value = match parameter.form {
            ParameterForm::Plain => value,
            ParameterForm::Default => Some(value.unwrap_or(argument)),
            ParameterForm::Alternative => Some(argument),
            ParameterForm::Computed => None,
        };
        let unknown = || Word::unknown(Unknown::Variable(parameter.name.clone()));
        value.unwrap_or_else(unknown).pieces().to_vec()
    }

    /// Expands a tilde prefix and returns the atoms after it.
    fn tilde<'a>(&self, atoms: &'a [BraceAtom]) -> Option<(&'a [BraceAtom], Vec<WordPiece>)> {
        if !matches!(atoms.first(), Some(BraceAtom::Live('~'))) {
            return None;
        }
        let mut name = String::new();
        let mut rest = atoms.get(1..)?;
        while let Some((BraceAtom::Live(char), tail)) = rest.split_first() {
            if matches!(char, '/' | ':') {
                break;
            }
            name.push(*char);
            rest = tail;
        }
        if !matches!(rest.first(), None | Some(BraceAtom::Live('/' | ':'))) {
            return None;
        }
        let unknown = |name: &str| Word::unknown(Unknown::Variable(name.to_owned()));
        let home = match name.as_str() {
            "" => self.env.value("HOME")?,
            "+" => self.env.cwd.as_ref().map_or_else(|| unknown("PWD"), Word::literal),
            "root" => Word::literal("/root"),
            user if user.starts_with(['-', '+']) => unknown("OLDPWD"),
            user => Word::literal(format!("/home/{user}")),
        };
        Some((rest, home.pieces().to_vec()))
    }

    /// Splits one alternative into fields.
    fn fields(&self, atoms: Vec<BraceAtom>, words: &mut Vec<Word>) {
        let separators = self.env.separators();
        let tilde = self.tilde(&atoms);
        // Whether the current field exists even if it is empty.
        let mut real = tilde.is_some();
        let mut splits = false;
        let (atoms, mut pieces) = tilde.unwrap_or((&atoms, Vec::new()));
        let mut index = 0;
        while let Some(atom) = atoms.get(index) {
            index += 1;
            match atom {
                // `!(a|b)` and similar patterns may match anything.
                BraceAtom::Live('(') => {
                    if let Some(WordPiece::Text(text) | WordPiece::Glob(text)) = pieces.last_mut() {
                        text.pop();
                    }
                    pieces.push(WordPiece::Glob("*".to_owned()));
                    let mut rest = atoms.iter().skip(index);
                    let end = rest.position(|atom| matches!(atom, BraceAtom::Live(')')));
                    index += end.map_or(0, |end| end + 1);
                }
                BraceAtom::Live('[') => match class_at(atoms, index) {
                    Some((class, end)) => {
                        pieces.push(WordPiece::Glob(class));
                        index = end;
                    }
                    None => push_text(&mut pieces, "["),
                },
                BraceAtom::Live(char) => push_live(&mut pieces, &char.to_string()),
                BraceAtom::Text(text) => {
                    push_text(&mut pieces, text);
                    real = true;
                }
                BraceAtom::Expansion { pieces: inner, quoted: true } => {
                    pieces.extend(inner.iter().cloned());
                    real = true;
                }
                BraceAtom::Expansion { pieces: inner, quoted: false } => {
                    for piece in inner {
                        let WordPiece::Text(text) = piece else {
                            splits |= matches!(piece, WordPiece::Unknown(_));
                            pieces.push(piece.clone());
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

fn unknown_number() -> BraceAtom {
    BraceAtom::Expansion { pieces: vec![WordPiece::Unknown(Unknown::Number)], quoted: true }
}

/// The class such as `[a-z]` whose opening bracket is before `start`, and the index after it.
fn class_at(atoms: &[BraceAtom], start: usize) -> Option<(String, usize)> {
    let mut class = String::from("[");
    for (offset, atom) in atoms.get(start..)?.iter().take(64).enumerate() {
        match atom {
            BraceAtom::Live(']') if offset > 0 => {
                class.push(']');
                return Some((class, start + offset + 1));
            }
            BraceAtom::Live('/') | BraceAtom::Expansion { .. } => return None,
            BraceAtom::Live(char) => class.push(*char),
            BraceAtom::Text(text) => class.push_str(text),
        }
    }
    None
}

/// Adds text from an unquoted expansion, where patterns are active.
fn push_live(pieces: &mut Vec<WordPiece>, text: &str) {
    for char in text.chars() {
        match char {
            '*' | '?' => pieces.push(WordPiece::Glob(char.to_string())),
            other => push_text(pieces, &other.to_string()),
        }
    }
}

fn push_text(pieces: &mut Vec<WordPiece>, text: &str) {
    if !text.is_empty() {
        pieces.push(WordPiece::Text(text.to_owned()));
    }
}

/// All alternatives of a word with braces. Counts the atoms it moved.
fn braces(atoms: Vec<BraceAtom>, moved: &mut usize) -> Vec<Vec<BraceAtom>> {
    if !atoms.iter().any(|atom| matches!(atom, BraceAtom::Live('{'))) {
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
        let too_many = done.len() + todo.len() + members.len() > MAX_BRACE_WORDS;
        if too_many || atoms.len() * members.len() > MAX_BRACE_WORDS * 32 {
            // Too many to list: the rest of the word is unknown.
            let mut cut: Vec<BraceAtom> = atoms.into_iter().take(start).collect();
            cut.push(unknown_number());
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

/// The first brace expression at or after an index: its start, end and members.
fn first_brace(atoms: &[BraceAtom], from: usize) -> Option<(usize, usize, Vec<Vec<BraceAtom>>)> {
    let nesting = |depth: usize, atom: &BraceAtom| match atom {
        BraceAtom::Live('{') => depth + 1,
        BraceAtom::Live('}') => depth.saturating_sub(1),
        _ => depth,
    };
    let opens = (from..atoms.len()).filter(|at| matches!(atoms.get(*at), Some(BraceAtom::Live('{'))));
    // An unclosed brace costs a scan to the end; no ordinary word has more than a few.
    opens.take(8).find_map(|start| {
        let mut depth = 0;
        let length = atoms.get(start..)?.iter().position(|atom| {
            depth = nesting(depth, atom);
            depth == 0
        })?;
        let inside = atoms.get(start + 1..start + length)?;
        let members = inside.split(|atom| {
            depth = nesting(depth, atom);
            depth == 0 && matches!(atom, BraceAtom::Live(','))
        });
        let members: Vec<Vec<BraceAtom>> = members.map(<[BraceAtom]>::to_vec).collect();
        let members = if members.len() > 1 { members } else { sequence(inside)? };
        Some((start, start + length, members))
    })
}

/// `{1..9}` and `{a..e}`.
fn sequence(inside: &[BraceAtom]) -> Option<Vec<Vec<BraceAtom>>> {
    let chars = inside.iter().map(|atom| if let BraceAtom::Live(char) = atom { Some(*char) } else { None });
    let text = chars.collect::<Option<String>>()?;
    let mut parts = text.split("..");
    let (from, to) = (parts.next()?, parts.next()?);
    let step = parts.next().and_then(|step| step.parse::<i64>().ok()).unwrap_or(1).unsigned_abs().max(1);
    let code = |text: &str| text.parse::<char>().ok().map(|char| i64::from(u32::from(char)));
    let (from, to, alphabetic) = match (from.parse::<i64>(), to.parse::<i64>()) {
        (Ok(from), Ok(to)) => (from, to, false),
        _ => (code(from)?, code(to)?, true),
    };
    let (low, high) = (from.min(to), from.max(to));
    let count = high.checked_sub(low)?.unsigned_abs() / step;
    let limit = u64::try_from(MAX_BRACE_WORDS).unwrap_or(u64::MAX);
    (0..=count.min(limit))
        .map(|index| {
            let value = low.checked_add_unsigned(index.checked_mul(step)?)?;
            let text = if alphabetic {
                char::from_u32(u32::try_from(value).ok()?)?.to_string()
            } else {
                value.to_string()
            };
            Some(vec![BraceAtom::Text(text)])
        })
        .collect()
}
