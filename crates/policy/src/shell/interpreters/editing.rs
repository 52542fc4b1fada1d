//! The two small languages of text editing: sed and awk.

use super::super::syntax::RedirectOperator;
use super::CodeEffect::{self, Danger, Shell, Touch};
use super::Token::{Name, Sign, Text};
use super::Tokens;
use super::UNKNOWN_CHAR;
use super::tables::{CallEffect, NETWORK, STARTS};

/// The effects of a sed script beyond editing its input.
pub(super) fn sed(script: &str) -> Vec<CodeEffect> {
    let mut effects = Vec::new();
    let mut rest = script;
    while let Some(command) = rest.chars().next() {
        rest = behind_char(rest);
        let mark = rest.chars().next();
        match command {
            '/' => rest = behind_mark(rest, '/'),
            '\\' => rest = mark.map_or("", |mark| behind_mark(behind_char(rest), mark)),
            's' | 'y' => {
                let Some(mark) = mark else { break };
                rest = behind_mark(behind_mark(behind_char(rest), mark), mark);
                if command == 's' {
                    let is_flag = |char: char| "egpiImM".contains(char) || char.is_ascii_digit();
                    let tail = rest.trim_start_matches(is_flag);
                    if rest.strip_suffix(tail).is_some_and(|flags| flags.contains('e')) {
                        effects.push(Danger("runs the result of a substitution"));
                    }
                    // A flag `w` takes a file, as the command does.
                    rest = tail;
                }
            }
            'e' | 'w' | 'W' | 'r' | 'R' | 'a' | 'i' | 'c' | '#' => {
                let (argument, tail) = rest.split_once('\n').unwrap_or((rest, ""));
                let argument = argument.trim();
                match command {
                    'e' if argument.is_empty() => effects.push(Danger("runs its input as commands")),
                    'e' => effects.push(Shell(argument.to_owned())),
                    'w' | 'W' => effects.push(Touch(RedirectOperator::Write, Some(argument.to_owned()))),
                    'r' | 'R' => effects.push(Touch(RedirectOperator::Read, Some(argument.to_owned()))),
                    _ => {}
                }
                rest = tail;
            }
            ':' | 'b' | 't' | 'T' => rest = rest.trim_start_matches(|char| !matches!(char, ';' | '\n' | '}')),
            _ => {}
        }
    }
    effects
}

fn behind_char(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

/// The text behind the next unescaped mark outside a character class.
fn behind_mark(text: &str, mark: char) -> &str {
    let mut in_class = false;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '[' if !in_class && mark != '[' => {
                in_class = chars.as_str().chars().take(80).any(|char| char == ']')
            }
            ']' if in_class => in_class = false,
            char if char == mark && !in_class => break,
            _ => {}
        }
    }
    chars.as_str()
}

/// The effects of an awk program beyond printing.
pub(super) fn awk(tokens: &Tokens) -> Vec<CodeEffect> {
    let mut effects = tokens.effects.clone();
    let text_at = |at: usize| {
        let joins = |at: usize, signs| {
            matches!(tokens.all.get(at), Some(Name(_) | Text(_))) || tokens.is_sign(at, signs)
        };
        match tokens.all.get(at) {
            Some(Text(text)) if !joins(at.wrapping_sub(1), ")]") && !joins(at + 1, "($") => {
                Some(text.clone())
            }
            _ => None,
        }
    };
    let run = |text: Option<String>| text.map_or(Danger(STARTS), Shell);
    // The depth of brackets in a print statement.
    let mut printing: Option<usize> = None;
    for (at, token) in tokens.all.iter().enumerate() {
        match token {
            Name(name) if name == "system" => tokens.act(CallEffect::Run, at, &mut effects),
            Name(name) if name.starts_with("print") => printing = Some(0),
            Text(text) if text.starts_with("/inet") => effects.push(Danger(NETWORK)),
            Text(text) if text.starts_with('/') && text.len() < 256 && !text.contains(' ') => {
                effects.push(Touch(RedirectOperator::Read, Some(text.clone())));
            }
            Sign('|') if tokens.is_sign(at + 1, "|") || tokens.is_sign(at.wrapping_sub(1), "|") => {}
            Sign('|') => {
                let next = at + 1 + usize::from(tokens.is_sign(at + 1, "&"));
                let reads = tokens.name(next) == "getline";
                effects.push(run(text_at(if reads { at.wrapping_sub(1) } else { next })));
            }
            Sign('(') => printing = printing.map(|depth| depth + 1),
            Sign(')') => printing = printing.map(|depth| depth.saturating_sub(1)),
            Sign('{' | '}' | ';' | '\n') => printing = None,
            Sign('>') if printing == Some(0) => {
                let next = at + 1 + usize::from(tokens.is_sign(at + 1, ">"));
                let file = text_at(next).or_else(|| numbered_file(tokens, next));
                effects.push(Touch(RedirectOperator::Write, file));
                printing = None;
            }
            _ => {}
        }
    }
    effects
}

/// The file that the variable at an index names: one set right before it, in the same block, to a
/// text with something unknown behind it.
fn numbered_file(tokens: &Tokens, at: usize) -> Option<String> {
    let is_set = |set: &usize| {
        tokens.name(*set) == tokens.name(at) && tokens.is_sign(set + 1, "=") && !tokens.is_sign(set + 2, "=")
    };
    let mut sets = (0..tokens.all.len()).filter(is_set);
    let (set, None) = (sets.next().filter(|set| *set < at)?, sets.next()) else { return None };
    // Behind a condition it may have another value.
    let is_certain = tokens.is_sign(set.wrapping_sub(1), "{;") && !tokens.is_sign(set.wrapping_sub(2), ")");
    let is_left = (set..at).any(|at| tokens.is_sign(at, "}&|?") || tokens.name(at).ends_with("sub"));
    let Some(Text(start)) = tokens.all.get(set + 2).filter(|_| is_certain && !is_left) else { return None };
    let is_name = !start.starts_with(['/', '~']) && start.starts_with(char::is_alphanumeric);
    (is_name && !start.contains("..") && !start.contains('/')).then(|| format!("{start}{UNKNOWN_CHAR}"))
}
