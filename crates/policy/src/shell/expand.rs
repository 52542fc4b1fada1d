//! Expansion: from a parsed word to the words that a program receives.
//!
//! The order is that of bash: braces, tildes, parameters and substitutions, splitting, and
//! patterns, which stay patterns because nothing reads the file system.

use super::braces::Braces;
use super::parse::is_name_byte;
use super::syntax::{Parameter, ParameterForm, RawWord, WordPart};
use super::walk::Walker;
use super::*;
use hermes_types::ShellKind;

/// A longer class counts as text.
const MAX_CLASS: usize = 1024;

const SPECIAL: [char; 10] = ['~', '*', '?', '[', ']', '(', ')', '/', ':', '='];

/// A part of a word whose expansions are known, before it is split.
#[derive(Debug, Clone)]
enum WordAtom {
    /// A character that may be special.
    Live(char),
    /// Literal text.
    Text(String),
    /// An expansion; outside quotes, it is split.
    Expansion { pieces: Vec<WordPiece>, quoted: bool },
    /// The end of a field, between positional parameters.
    Break,
}

/// Where a tilde is expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tildes {
    /// At the start of the word.
    First,
    /// At the start and behind colons.
    Value,
    /// At the start, and behind the first equals sign and the colons after it.
    Assignment,
}

impl Walker<'_> {
    /// The words that a parsed word expands to.
    pub(super) fn expand(&mut self, word: &[WordPart]) -> Vec<Word> {
        if let [WordPart::Text(text)] = word
            && !text.contains(['{', '~', '*', '?', '[', '('])
        {
            return vec![Word::literal(text.clone())];
        }
        if let [WordPart::Quoted(text), WordPart::Parameter(parameter)] = word
            && text.is_empty()
            && parameter.quoted
            && parameter.several() == Some("@")
        {
            // `"$@"` may be no word at all.
            return self.expand(word.get(1..).unwrap_or_default());
        }
        let mut words = Vec::new();
        match self.braces(word) {
            Some(alternatives) => {
                for alternative in &alternatives {
                    self.expand_alternative(alternative, &mut words);
                }
            }
            None => self.expand_alternative(word, &mut words),
        }
        words
    }

    /// The words that a word with braces stands for.
    pub(super) fn braces(&mut self, word: &[WordPart]) -> Option<Vec<RawWord>> {
        let braces = Braces::of(word)?;
        if braces.words.len() > 1 && self.dialect == ShellKind::Sh {
            self.doubt(DoubtKind::Syntax, "");
        }
        if braces.makes_expansion {
            self.doubt(DoubtKind::Code, "");
        }
        self.charge(braces.moved + braces.words.iter().map(Vec::len).sum::<usize>());
        Some(braces.words)
    }

    /// Expands a word without braces.
    fn expand_alternative(&mut self, word: &[WordPart], words: &mut Vec<Word>) {
        if self.spent {
            words.push(Word::unknown(Unknown::Number));
            return;
        }
        let atoms = self.atoms(word);
        self.charge(atoms.len());
        let separators = self.separators();
        self.fields(atoms, separators.as_deref(), words);
    }

    /// The characters that separate words, if they are known.
    fn separators(&mut self) -> Option<Vec<char>> {
        let mut values = self.env.values("IFS");
        let choice = self.choose("IFS", values.len());
        let value = (choice < values.len()).then(|| values.swap_remove(choice));
        value.map_or_else(|| Some(vec![' ', '\t', '\n']), |value| Some(value.known()?.chars().collect()))
    }

    /// Expands a word without splitting and braces: assignment values, here-strings, redirection
    /// targets.
    pub(super) fn expand_whole(&mut self, word: &[WordPart]) -> Word {
        let atoms = self.atoms(word);
        let atoms = self.tildes(atoms, Tildes::First);
        whole(&atoms)
    }

    /// Expands the value of an assignment, or a word that is one.
    pub(super) fn expand_assignment(&mut self, word: &[WordPart], tildes: Tildes) -> Word {
        let atoms = self.atoms(word);
        let atoms = self.tildes(atoms, tildes);
        whole(&atoms)
    }

    /// Expands a redirection target: patterns are active, but the result is one word.
    pub(super) fn expand_target(&mut self, word: &[WordPart]) -> Word {
        let mut words = self.expand(word);
        if words.len() == 1 {
            return words.remove(0);
        }
        self.expand_whole(word)
    }

    fn atoms(&mut self, parts: &[WordPart]) -> Vec<WordAtom> {
        let mut atoms = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            match part {
                WordPart::Text(text) if text.contains(SPECIAL) => {
                    atoms.extend(text.chars().map(WordAtom::Live))
                }
                WordPart::Text(text) => atoms.push(WordAtom::Text(text.clone())),
                WordPart::Quoted(text) => atoms.push(WordAtom::Text(text.clone())),
                WordPart::Parameter(parameter) => match self.several(parameter, parts.len() > 1) {
                    Some(words) => atoms.extend(words),
                    None => atoms.extend(self.parameter(parameter)),
                },
                WordPart::Command { list, quoted } => {
                    let mut pieces = self.substitution(list);
                    // A listing may end with the name that it was asked for.
                    if index + 1 < parts.len()
                        && let [WordPiece::Text(named), WordPiece::Unknown(_)] = pieces.as_slice()
                        && let Some(named) = named.strip_suffix(' ')
                        && self.choose("listing", 2) > 0
                    {
                        pieces = vec![WordPiece::Text(named.to_owned())];
                    }
                    atoms.push(WordAtom::Expansion { pieces, quoted: *quoted });
                }
                WordPart::Arithmetic(inner) => {
                    let inside = self.atoms(inner);
                    self.arithmetic(&whole(&inside).outline());
                    atoms.push(unknown_number());
                }
                WordPart::Process(list) => {
                    let stream = self.sublist(list);
                    let programs =
                        if stream.programs.is_empty() { vec!["echo".to_owned()] } else { stream.programs };
                    self.process_text = stream.text.or(self.process_text.take());
                    atoms.push(WordAtom::Text("/dev/fd/".to_owned()));
                    let pieces = vec![WordPiece::Unknown(Unknown::Output(programs))];
                    atoms.push(WordAtom::Expansion { pieces, quoted: true });
                }
            }
        }
        atoms
    }

    /// The words of `$@`, `$*` or an array, if they are known.
    fn several(&mut self, parameter: &Parameter, is_part: bool) -> Option<Vec<WordAtom>> {
        let sign = parameter.several().filter(|_| parameter.form == ParameterForm::Plain)?;
        let mut words = if parameter.index.is_empty() {
            self.env.positional.as_ref()?.to_vec()
        } else {
            self.env.array(&parameter.name)?
        };
        self.charge(words.len());
        // Where a word may be none, what is written behind the parameter follows the one before it.
        if is_part
            && words.iter().any(|word| word.splits)
            && self.choose(&format!("{}?", parameter.name), 2) > 0
        {
            words.retain(|word| !word.splits);
        }
        let is_joined = parameter.quoted && sign == "*";
        let separators = if is_joined { self.separators()? } else { Vec::new() };
        let mut atoms = Vec::new();
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                let separator = separators.first().map(ToString::to_string).unwrap_or_default();
                atoms.push(if is_joined { WordAtom::Text(separator) } else { WordAtom::Break });
            }
            let quoted = parameter.quoted && !word.splits;
            atoms.push(WordAtom::Expansion { pieces: word.pieces().to_vec(), quoted });
        }
        if is_joined {
            atoms.push(WordAtom::Text(String::new()));
        }
        Some(atoms)
    }

    /// Applies the assignments in an arithmetic expression, and looks at values it evaluates.
    pub(super) fn arithmetic(&mut self, text: &str) {
        let assigns = text.contains('=') || text.contains("++") || text.contains("--");
        self.evaluates(text, "");
        for name in text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_') {
            if self.env.bound(name).is_none() && !assigns
                || !name.starts_with(|char: char| !char.is_ascii_digit())
            {
                continue;
            }
            for value in self.env.values(name) {
                self.evaluates(&value.outline(), name);
            }
            if assigns {
                self.env.forget(name);
            }
        }
    }

    /// Notes a text with an array index in which the shell runs a substitution when it evaluates
    /// the text as a number or a name.
    pub(super) fn evaluates(&mut self, text: &str, source: &str) {
        let mut depth = 0_usize;
        let mut before = ' ';
        for (at, char) in text.char_indices() {
            let opens = depth > 0 || before.is_alphanumeric() || matches!(before, '_' | UNKNOWN_CHAR);
            match char {
                '[' if opens => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                '`' if depth > 0 => return self.doubt(DoubtKind::Code, source),
                '$' if depth > 0 && text.get(at..).is_some_and(|rest| rest.starts_with("$(")) => {
                    return self.doubt(DoubtKind::Code, source);
                }
                _ => {}
            }
            before = char;
        }
    }

    /// The word behind the sign of `${name:-word}`.
    fn argument(&mut self, parameter: &Parameter) -> Vec<WordAtom> {
        let mut atoms = Vec::new();
        for (index, part) in parameter.argument.iter().enumerate() {
            match part {
                WordPart::Text(text) if index == 0 && text.starts_with('~') => {
                    let live = text.chars().map(WordAtom::Live).collect();
                    let word = whole(&self.tildes(live, Tildes::First));
                    atoms.push(WordAtom::Expansion { pieces: word.pieces().to_vec(), quoted: true });
                }
                WordPart::Text(text) => {
                    let pieces = vec![WordPiece::Text(text.clone())];
                    atoms.push(WordAtom::Expansion { pieces, quoted: parameter.quoted });
                }
                part => atoms.extend(self.atoms(std::slice::from_ref(part))),
            }
        }
        atoms
    }

    fn parameter(&mut self, parameter: &Parameter) -> Vec<WordAtom> {
        let name = parameter.name.as_str();
        let index = self.atoms(&parameter.index);
        self.arithmetic(&whole(&index).outline());
        let argument_atoms = self.argument(parameter);
        let argument = whole(&argument_atoms);
        let mut values = self.env.values(name);
        self.charge(1 + values.iter().map(|value| value.pieces().len()).sum::<usize>());
        if self.env.is_unset(name) {
            values = vec![Word::default()];
        }
        let is_open = self.env.volatile || (self.env.positional.is_none() && name.parse::<usize>().is_ok());
        let was_set = is_open || !values.is_empty();
        let choice = self.choose(name, values.len());
        let value = (choice < values.len()).then(|| values.swap_remove(choice));
        let is_unset = |pieces: &[WordPiece]| matches!(pieces, [WordPiece::Unknown(Unknown::Variable(_))]);
        let is_set = match value.as_ref().map(|value| (value.known(), value.pieces())) {
            None => None,
            _ if self.env.is_unset(name) => Some(false),
            Some((Some(""), _)) => Some(!parameter.strong),
            Some((None, pieces)) if is_unset(pieces) => None,
            Some((None, [WordPiece::Unknown(_)])) if parameter.strong => None,
            Some(_) => Some(true),
        };
        let outputs: Vec<String> = value.iter().flat_map(Word::output_of).map(str::to_owned).collect();
        // A part of a value has the origin of the whole.
        let unknown = || match outputs.as_slice() {
            [] => Word::unknown(Unknown::Variable(name.to_owned())),
            outputs => Word::unknown(Unknown::Output(outputs.to_vec())),
        };
        // Each of several words is changed on its own.
        let value = value.map(|value| match parameter.several() {
            Some(_) if parameter.form != ParameterForm::Plain => unknown(),
            _ => value,
        });
        let question = format!("{name}?");
        let word = match parameter.form {
            ParameterForm::Plain if !index.is_empty() => {
                let index = whole(&index).known().and_then(|index| index.parse::<usize>().ok());
                let elements = self.env.array(name).zip(index).map(|(elements, index)| {
                    let is_open = elements.iter().take(index + 1).any(|word| word.splits);
                    if is_open { unknown() } else { elements.get(index).cloned().unwrap_or_default() }
                });
                elements.unwrap_or_else(unknown)
            }
            ParameterForm::Plain => value.unwrap_or_else(unknown),
            // A variable that was never set here has the owner's value, which is harmless.
            ParameterForm::Default | ParameterForm::Assign => {
                let is_set = is_set.unwrap_or_else(|| was_set && self.choose(&question, 2) == 0);
                if !is_set && parameter.form == ParameterForm::Assign {
                    self.env.set(name, argument.clone());
                }
                match parameter.form {
                    _ if is_set => value.unwrap_or_else(unknown),
                    ParameterForm::Assign => argument,
                    _ => return argument_atoms,
                }
            }
            ParameterForm::Alternative => {
                if is_set.unwrap_or_else(|| self.choose(&question, 2) == 0) {
                    return argument_atoms;
                }
                Word::default()
            }
            ParameterForm::WithoutPrefix | ParameterForm::WithoutSuffix => {
                let value = value.unwrap_or_else(unknown);
                trimmed(&value, &argument, parameter)
                    .or_else(|| part_of_name(&value, &argument, parameter))
                    .unwrap_or_else(unknown)
            }
            ParameterForm::Computed => {
                // `${x:from:count}`
                if matches!(parameter.argument.first(), Some(WordPart::Text(text)) if text.starts_with(':')) {
                    self.arithmetic(&argument.outline());
                }
                // `${x@P}` runs the substitutions in the value.
                let runs = |value: &Word| value.outline().contains(['$', '`', UNKNOWN_CHAR]);
                if argument.known() == Some("@P") && value.as_ref().is_none_or(runs) {
                    self.doubt(DoubtKind::Code, name);
                }
                value.and_then(|value| part_of_name(&value, &argument, parameter)).unwrap_or_else(unknown)
            }
        };
        let quoted = parameter.quoted && parameter.several().is_none();
        vec![WordAtom::Expansion { pieces: word.pieces().to_vec(), quoted }]
    }

    /// Expands the tilde prefixes of a word.
    fn tildes(&mut self, atoms: Vec<WordAtom>, tildes: Tildes) -> Vec<WordAtom> {
        if !atoms.iter().any(|atom| matches!(atom, WordAtom::Live('~'))) {
            return atoms;
        }
        let mut expanded = Vec::with_capacity(atoms.len());
        let mut rest = atoms.as_slice();
        let mut in_value = tildes == Tildes::Value;
        let mut may_follow = true;
        while let Some((atom, tail)) = rest.split_first() {
            if may_follow && let Some((tail, pieces)) = self.tilde(rest) {
                expanded.push(WordAtom::Expansion { pieces, quoted: true });
                (rest, may_follow) = (tail, false);
                continue;
            }
            let starts_value =
                tildes == Tildes::Assignment && !in_value && matches!(atom, WordAtom::Live('='));
            in_value |= starts_value;
            may_follow = starts_value || (in_value && matches!(atom, WordAtom::Live(':')));
            expanded.push(atom.clone());
            rest = tail;
        }
        expanded
    }

    /// Expands a tilde prefix and returns the atoms after it.
    fn tilde<'a>(&mut self, atoms: &'a [WordAtom]) -> Option<(&'a [WordAtom], Vec<WordPiece>)> {
        if !matches!(atoms.first(), Some(WordAtom::Live('~'))) {
            return None;
        }
        let mut name = String::new();
        let mut rest = atoms.get(1..)?;
        while let Some((WordAtom::Live(char), tail)) = rest.split_first() {
            if matches!(char, '/' | ':') {
                break;
            }
            name.push(*char);
            rest = tail;
        }
        if !matches!(rest.first(), None | Some(WordAtom::Live('/' | ':'))) {
            return None;
        }
        let unknown = |name: &str| Word::unknown(Unknown::Variable(name.to_owned()));
        let home = match name.as_str() {
            "" => {
                let mut values = self.env.values("HOME");
                let choice = self.choose("HOME", values.len());
                (choice < values.len()).then(|| values.swap_remove(choice))?
            }
            "+" | "-" if self.dialect == ShellKind::Sh => Word::literal(format!("~{name}")),
            "+" => self.env.value("PWD").unwrap_or_else(|| unknown("PWD")),
            "-" => self.env.value("OLDPWD").unwrap_or_else(|| unknown("OLDPWD")),
            "root" => Word::literal("/root"),
            user if user.starts_with(['-', '+']) => unknown("OLDPWD"),
            // The tilde stays if there is no such user.
            user if self.choose(&format!("~{user}"), 2) == 1 => Word::literal(format!("~{user}")),
            user => Word::literal(format!("/home/{user}")),
        };
        Some((rest, home.pieces().to_vec()))
    }

    /// Splits one alternative into fields.
    fn fields(&mut self, atoms: Vec<WordAtom>, separators: Option<&[char]>, words: &mut Vec<Word>) {
        let is_named = |text: String| {
            let name = text.split('[').next().unwrap_or_default();
            !name.is_empty() && name.bytes().all(is_name_byte)
        };
        let before_equals = atoms.iter().map_while(|atom| match atom {
            WordAtom::Live('=') => None,
            WordAtom::Live(char) => Some(*char),
            _ => Some('-'),
        });
        // Such an argument is expanded like an assignment, but an element of an array is not.
        let is_assignment = self.dialect == ShellKind::Bash
            && is_named(before_equals.collect())
            && atoms.iter().any(|atom| matches!(atom, WordAtom::Live('~')))
            && self.choose("=~", 2) == 0;
        let atoms = self.tildes(atoms, if is_assignment { Tildes::Assignment } else { Tildes::First });
        let mut pieces = Vec::new();
        // Whether the current field exists even if it is empty.
        let mut real = false;
        let mut splits = false;
        // Whether a blank ended the last field, so that a separator behind it ends nothing.
        let mut closed = false;
        let mut index = 0;
        while let Some(atom) = atoms.get(index) {
            index += 1;
            match atom {
                // `!(a|b)` and similar patterns may match anything.
                WordAtom::Live('(') => {
                    if let Some(WordPiece::Text(text) | WordPiece::Glob(text)) = pieces.last_mut() {
                        text.pop();
                    }
                    pieces.push(WordPiece::Glob("*".to_owned()));
                    let mut rest = atoms.iter().skip(index);
                    let end = rest.position(|atom| matches!(atom, WordAtom::Live(')')));
                    index += end.map_or(0, |end| end + 1);
                }
                WordAtom::Live('[') => match class_at(&atoms, index) {
                    Some((class, end)) => {
                        pieces.push(WordPiece::Glob(class));
                        index = end;
                    }
                    None => push_text(&mut pieces, "["),
                },
                WordAtom::Live(char) => push_live(&mut pieces, &char.to_string()),
                WordAtom::Text(text) => {
                    push_text(&mut pieces, text);
                    (real, closed) = (true, false);
                }
                WordAtom::Break => {
                    if real || !pieces.is_empty() {
                        words.push(Word::from_pieces(std::mem::take(&mut pieces)).splitting(splits));
                    }
                    (real, splits, closed) = (false, false, false);
                }
                WordAtom::Expansion { pieces: inner, quoted: true } => {
                    pieces.extend(inner.iter().cloned());
                    (real, closed) = (true, false);
                }
                WordAtom::Expansion { pieces: inner, quoted: false } => {
                    for piece in inner {
                        let WordPiece::Text(text) = piece else {
                            splits |= matches!(piece, WordPiece::Unknown(_));
                            pieces.push(piece.clone());
                            continue;
                        };
                        let Some(separators) = separators else {
                            splits = true;
                            push_live(&mut pieces, text);
                            pieces.push(WordPiece::Unknown(Unknown::Variable("IFS".to_owned())));
                            continue;
                        };
                        let mut rest = text.as_str();
                        while let Some(char) = rest.chars().next() {
                            let is_separator = |char: char| separators.contains(&char);
                            if !is_separator(char) {
                                let (field, tail) =
                                    rest.split_at(rest.find(is_separator).unwrap_or(rest.len()));
                                push_live(&mut pieces, field);
                                (rest, closed) = (tail, false);
                                continue;
                            }
                            rest = rest.get(char.len_utf8()..).unwrap_or_default();
                            let is_blank = matches!(char, ' ' | '\t' | '\n');
                            if real || !pieces.is_empty() || !(is_blank || closed) {
                                words.push(Word::from_pieces(std::mem::take(&mut pieces)).splitting(splits));
                                (real, splits, closed) = (false, false, is_blank);
                            } else {
                                closed &= is_blank;
                            }
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

/// One word of these atoms.
fn whole(atoms: &[WordAtom]) -> Word {
    let mut pieces = Vec::new();
    for atom in atoms {
        match atom {
            WordAtom::Live(char) => push_text(&mut pieces, &char.to_string()),
            WordAtom::Text(text) => push_text(&mut pieces, text),
            WordAtom::Expansion { pieces: inner, .. } => pieces.extend(inner.iter().cloned()),
            WordAtom::Break => push_text(&mut pieces, " "),
        }
    }
    Word::from_pieces(pieces)
}

/// `${x#pattern}` and `${x%pattern}`, if the value and the pattern are plain.
fn trimmed(value: &Word, pattern: &Word, parameter: &Parameter) -> Option<Word> {
    let (text, pattern) = (value.known()?, pattern.known()?);
    let is_special =
        |part: &WordPart| !matches!(part, WordPart::Text(text) if !text.contains(['[', '(', '\\']));
    if text.len() > 256
        || (parameter.argument.iter().any(is_special) && pattern.contains(['*', '?', '[', '(']))
    {
        return None;
    }
    let is_prefix = parameter.form == ParameterForm::WithoutPrefix;
    let cuts = (0..=text.len()).filter_map(|at| text.split_at_checked(at));
    let mut fitting =
        cuts.filter(|(head, tail)| pattern_matches(pattern, if is_prefix { head } else { tail }));
    // The first cut leaves the shortest prefix and the longest suffix.
    let cut = if parameter.strong == is_prefix { fitting.next_back() } else { fitting.next() };
    let (head, tail) = cut.unwrap_or(if is_prefix { ("", text) } else { (text, "") });
    Some(Word::literal(if is_prefix { tail } else { head }))
}

/// A part of a name that a pattern such as `*.c` found. It has no slash, so it names something in the
/// same directory.
fn part_of_name(value: &Word, argument: &Word, parameter: &Parameter) -> Option<Word> {
    let outline = value.outline();
    let argument = argument.known()?;
    if !value.has_glob() || value.has_unknown() || argument.contains(['$', '`']) {
        return None;
    }
    let is_suffix =
        parameter.form == ParameterForm::WithoutSuffix && !argument.contains(['*', '?', '[', '\\']);
    if is_suffix && let [head @ .., WordPiece::Text(last)] = value.pieces() {
        let last = last.strip_suffix(argument).filter(|last| !last.contains('/'))?;
        let last = (!last.is_empty()).then(|| WordPiece::Text(last.to_owned()));
        return Some(Word::from_pieces(head.iter().cloned().chain(last)));
    }
    let is_last = parameter.form == ParameterForm::WithoutPrefix && parameter.strong && argument == "*/";
    // `${name/old/new}`: what is put in has no slash.
    let replaces = argument.trim_start_matches('/').split_once('/').is_none_or(|(_, new)| !new.contains('/'));
    let is_name = !outline.contains('/') && replaces;
    (is_last || is_name).then(|| Word::from_pieces([WordPiece::Glob("*".to_owned())]))
}

fn unknown_number() -> WordAtom {
    WordAtom::Expansion { pieces: vec![WordPiece::Unknown(Unknown::Number)], quoted: true }
}

/// The class such as `[a-z]` whose opening bracket is before `start`, and the index after it.
fn class_at(atoms: &[WordAtom], start: usize) -> Option<(String, usize)> {
    let mut class = String::from("[");
    for (offset, atom) in atoms.get(start..)?.iter().take(MAX_CLASS).enumerate() {
        match atom {
            WordAtom::Live(']') if offset > 0 => {
                class.push(']');
                return Some((class, start + offset + 1));
            }
            WordAtom::Live('/') | WordAtom::Expansion { .. } | WordAtom::Break => return None,
            WordAtom::Live(char) => class.push(*char),
            WordAtom::Text(text) => class.push_str(text),
        }
    }
    None
}

/// Adds text from an unquoted expansion, where patterns are active.
fn push_live(pieces: &mut Vec<WordPiece>, text: &str) {
    for char in text.chars() {
        match char {
            '*' | '?' | '[' => pieces.push(WordPiece::Glob(char.to_string())),
            other => push_text(pieces, &other.to_string()),
        }
    }
}

fn push_text(pieces: &mut Vec<WordPiece>, text: &str) {
    if !text.is_empty() {
        pieces.push(WordPiece::Text(text.to_owned()));
    }
}
