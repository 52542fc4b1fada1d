//! Reads options out of expanded words.
//!
//! An unclear option counts as the worse one: a cluster such as `-rf` holds both letters, a long
//! option may be shortened as GNU programs allow, and `--name=value` is the same as `--name value`.
use super::*;

/// The index of the first operand, given the options that take a separate value.
pub(crate) fn first_operand(args: &[Word], valued: &[&str]) -> usize {
    operand_indexes(args, valued).next().unwrap_or(args.len())
}

/// All operands, options and their values left out.
pub(crate) fn operands<'a>(args: &'a [Word], valued: &[&str]) -> Vec<&'a Word> {
    operand_indexes(args, valued).filter_map(|index| args.get(index)).collect()
}

fn operand_indexes(args: &[Word], valued: &[&str]) -> impl Iterator<Item = usize> {
    let (mut skip_next, mut only_operands) = (false, false);
    args.iter().enumerate().filter_map(move |(index, word)| {
        let text = word.prefix();
        if std::mem::take(&mut skip_next) {
            return None;
        }
        if only_operands || !text.starts_with('-') || text == "-" {
            return Some(index);
        }
        only_operands = text == "--";
        skip_next = !only_operands && takes_next(text, valued);
        None
    })
}

/// Whether an option word takes the next word as its value.
fn takes_next(text: &str, valued: &[&str]) -> bool {
    if text.starts_with("--") {
        return !text.contains('=') && valued.contains(&text);
    }
    if valued.contains(&text) {
        return true;
    }
    // In a cluster the first letter that takes a value ends it: `-ab value`, `-abvalue`.
    let flags: Vec<char> = text.chars().skip(1).collect();
    let taking = flags.iter().position(|flag| valued.contains(&format!("-{flag}").as_str()));
    taking.is_some_and(|at| at + 1 == flags.len())
}

/// Whether any of these options is given: `-x` also inside a cluster, `--long` also shortened.
pub(crate) fn has(args: &[Word], options: &[&str]) -> bool {
    args.iter()
        .take_while(|word| word.prefix() != "--")
        .any(|word| options.iter().any(|option| is_option(word.prefix(), option)))
}

/// Whether a word is this option.
pub(crate) fn is_option(text: &str, option: &str) -> bool {
    if let (Some(long), Some(given)) = (option.strip_prefix("--"), text.strip_prefix("--")) {
        let given = given.split('=').next().unwrap_or_default();
        return given == long || (given.len() >= 3 && long.starts_with(given));
    }
    match (option.strip_prefix('-'), text.strip_prefix('-')) {
        (Some(flag), Some(given)) if flag.chars().count() == 1 && !given.starts_with('-') => {
            given.chars().take_while(char::is_ascii_alphanumeric).any(|char| flag.starts_with(char))
        }
        (Some(flag), _) if flag.chars().count() == 1 => false,
        _ => text == option,
    }
}

/// The values of an option, in every spelling: `-o v`, `-ov`, `--opt v`, `--opt=v`, `--op=v`.
pub(crate) fn values(args: &[Word], options: &[&str]) -> Vec<Word> {
    let mut found = Vec::new();
    for (index, word) in args.iter().enumerate() {
        let text = word.prefix();
        for option in options {
            if text == *option && word.known().is_some() {
                found.extend(args.get(index + 1).cloned());
            } else if option.starts_with("--") {
                let (given, _) = text.split_once('=').unwrap_or((text, ""));
                if given.len() > 2 && option.starts_with(given) {
                    found.extend(word.after('=').or_else(|| args.get(index + 1).cloned()));
                }
            } else if option.len() == 2 && text.starts_with(option) {
                found.extend(word.strip_prefix(option));
            } else if option.len() == 2 && ends_cluster(word, option) {
                found.extend(args.get(index + 1).cloned());
            }
        }
    }
    found
}

/// Whether a word is a cluster such as `-lc` whose last letter is this option.
fn ends_cluster(word: &Word, option: &str) -> bool {
    let flag = option.strip_prefix('-').unwrap_or_default();
    word.known().and_then(|text| text.strip_prefix('-')).is_some_and(|flags| {
        flags.len() > 1 && flags.ends_with(flag) && flags.chars().all(|char| char.is_ascii_alphabetic())
    })
}
