//! The two small languages of text editing: sed and awk.

use super::super::syntax::RedirectOperator;
use super::CodeEffect;

/// The number of calls of one kind in a program that are examined.
const MAX_CALLS: usize = 64;

/// The effects of a sed script beyond editing its input.
pub(super) fn sed(script: &str) -> Vec<CodeEffect> {
    let chars: Vec<char> = script.chars().collect();
    let mut effects = Vec::new();
    let mut at = 0;
    while let Some(char) = chars.get(at).copied() {
        at += 1;
        match char {
            // Addresses and separators.
            '0'..='9' | ',' | '$' | '!' | '{' | '}' | ';' | '~' | '+' => {}
            char if char.is_whitespace() => {}
            '/' => at = behind(&chars, at, '/'),
            '\\' => {
                if let Some(mark) = chars.get(at) {
                    at = behind(&chars, at + 1, *mark);
                }
            }
            '#' => at = line_end(&chars, at),
            's' | 'y' => {
                let Some(mark) = chars.get(at).copied() else { break };
                at = behind(&chars, behind(&chars, at + 1, mark), mark);
                if char == 's' {
                    at = flags(&chars, at, &mut effects);
                }
            }
            'e' => {
                let end = line_end(&chars, at);
                let command: String = chars.get(at..end).unwrap_or_default().iter().collect();
                effects.push(match command.trim() {
                    "" => CodeEffect::Danger("runs its input as commands"),
                    command => CodeEffect::Shell(command.to_owned()),
                });
                at = end;
            }
            'w' | 'W' => at = file(&chars, at, RedirectOperator::Write, &mut effects),
            'r' | 'R' => at = file(&chars, at, RedirectOperator::Read, &mut effects),
            'a' | 'i' | 'c' => at = line_end(&chars, at),
            ':' | 'b' | 't' | 'T' => {
                while chars.get(at).is_some_and(|char| !matches!(char, ';' | '\n' | '}')) {
                    at += 1;
                }
            }
            _ => {}
        }
    }
    effects
}

/// The index behind the next unescaped mark.
fn behind(chars: &[char], mut at: usize, mark: char) -> usize {
    let mut in_class = false;
    while let Some(char) = chars.get(at) {
        at += 1;
        match char {
            '\\' => at += 1,
            '[' if !in_class && mark != '[' => {
                in_class = chars.get(at..).is_some_and(|rest| rest.iter().take(80).any(|char| *char == ']'))
            }
            ']' if in_class => in_class = false,
            char if *char == mark && !in_class => return at,
            _ => {}
        }
    }
    at
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars
        .get(at..)
        .unwrap_or_default()
        .iter()
        .position(|char| *char == '\n')
        .map_or(chars.len(), |length| at + length)
}

fn file(chars: &[char], at: usize, operator: RedirectOperator, effects: &mut Vec<CodeEffect>) -> usize {
    let end = line_end(chars, at);
    let name: String = chars.get(at..end).unwrap_or_default().iter().collect();
    effects.push(CodeEffect::Touch(operator, Some(name.trim().to_owned())));
    end
}

fn flags(chars: &[char], mut at: usize, effects: &mut Vec<CodeEffect>) -> usize {
    while let Some(char) = chars.get(at) {
        match char {
            'e' => effects.push(CodeEffect::Danger("runs the result of a substitution")),
            'w' => return file(chars, at + 1, RedirectOperator::Write, effects),
            'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => {}
            _ => return at,
        }
        at += 1;
    }
    at
}

/// The effects of an awk program beyond printing.
pub(super) fn awk(program: &str) -> Vec<CodeEffect> {
    let chars: Vec<char> = program.chars().collect();
    let mut effects = Vec::new();
    let mut code = String::new();
    let mut strings: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(char) = chars.get(at).copied() {
        at += 1;
        if char != '"' {
            code.push(char);
            continue;
        }
        let end = behind_string(&chars, at);
        let text: String = chars.get(at..end.saturating_sub(1)).unwrap_or_default().iter().collect();
        strings.push(text.replace("\\\"", "\"").replace("\\\\", "\\"));
        code.push(super::MARK);
        at = end;
    }
    if code.matches("system").count().max(code.matches('|').count()).max(code.matches('>').count())
        > MAX_CALLS
    {
        effects.push(CodeEffect::Danger("does too much to be followed"));
    }
    let string_before = |code: &str| code.matches(super::MARK).count();
    for (start, _) in code.match_indices("system").take(MAX_CALLS) {
        let (before, rest) = code.split_at(start + "system".len());
        let argument = rest.trim_start().strip_prefix('(').map(str::trim_start);
        let literal = argument.is_some_and(|argument| {
            argument.strip_prefix(super::MARK).is_some_and(|rest| rest.trim_start().starts_with(')'))
        });
        effects.push(match strings.get(string_before(before)) {
            Some(text) if literal => CodeEffect::Shell(text.clone()),
            _ if argument.is_some() => CodeEffect::Danger("starts a program that is not known"),
            _ => continue,
        });
    }
    for (start, _) in code.match_indices('|').take(MAX_CALLS) {
        let (before, rest) = code.split_at(start);
        let rest = rest.trim_start_matches(['|', '&']).trim_start();
        if code.get(start + 1..).is_some_and(|rest| rest.starts_with('|')) || before.ends_with('|') {
            continue;
        }
        let reads = rest.starts_with("getline");
        let index = string_before(before);
        let text = if reads {
            index.checked_sub(1).and_then(|index| strings.get(index))
        } else {
            strings.get(index)
        };
        let literal =
            if reads { before.trim_end().ends_with(super::MARK) } else { rest.starts_with(super::MARK) };
        effects.push(match text {
            Some(text) if literal => CodeEffect::Shell(text.clone()),
            _ => CodeEffect::Danger("starts a program that is not known"),
        });
    }
    for statement in code
        .split_inclusive(['{', '}', ';', '\n'])
        .filter(|statement| statement.contains('>'))
        .take(MAX_CALLS)
    {
        let Some(at) = statement.find("print") else { continue };
        let Some(output) = outer_arrow(statement.get(at..).unwrap_or_default()) else { continue };
        // Find which literal it is by counting the marks in front of the statement's end.
        let offset = statement.as_ptr() as usize - code.as_ptr() as usize;
        let upto = offset + at + output;
        let target = code.get(upto..).unwrap_or_default().trim_start_matches('>').trim_start();
        let literal = target.starts_with(super::MARK);
        let path =
            literal.then(|| strings.get(string_before(code.get(..upto).unwrap_or_default()))).flatten();
        effects.push(CodeEffect::Touch(RedirectOperator::Write, path.cloned()));
    }
    for text in &strings {
        if text.starts_with("/inet") {
            effects.push(CodeEffect::Danger("opens a network connection or sends data"));
        }
        if text.starts_with('/') && text.len() < 256 && !text.contains(' ') {
            effects.push(CodeEffect::Touch(RedirectOperator::Read, Some(text.clone())));
        }
    }
    effects
}

/// The index of a `>` outside brackets in a print statement.
fn outer_arrow(statement: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, char) in statement.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            '>' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

fn behind_string(chars: &[char], mut at: usize) -> usize {
    while let Some(char) = chars.get(at) {
        at += 1;
        match char {
            '\\' => at += 1,
            '"' => return at,
            _ => {}
        }
    }
    at + 1
}
