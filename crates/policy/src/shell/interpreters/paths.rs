//! Paths that a program text makes from literals: `Path("a") / "b"`, `"src/" + name`.
//!
//! A star stands for one name that is not known, such as an entry of a directory: it has no slash
//! and is not `..`. A path that may lie deeper has [`UNKNOWN_CHAR`] in it.

use super::*;

/// A directory with a random name that only this program uses.
const NEW_DIRECTORY: &str = "/tmp/tmp.program";

/// The name of a file, of which nothing is known.
const UNKNOWN_NAME: &str = "\u{0}";

/// The number of tokens of an expression that is followed.
const MAX_TOKENS: usize = 64;

impl Tokens {
    /// The path that an expression makes.
    pub(super) fn path(&self, tokens: &[Token]) -> Option<String> {
        let (path, rest) = self.path_and_rest(tokens)?;
        rest.is_empty().then_some(path)
    }

    fn path_and_rest<'a>(&self, tokens: &'a [Token]) -> Option<(String, &'a [Token])> {
        if !matches!(self.language, Language::Python | Language::JavaScript) || tokens.len() > MAX_TOKENS {
            return None;
        }
        let (mut path, mut rest) = self.path_start(tokens)?;
        loop {
            (path, rest) = match rest {
                [Sign('/'), tail @ ..] if self.language == Language::Python && !path.is_empty() => {
                    let (part, tail) = self.part(tail)?;
                    (below(&path, &part), tail)
                }
                [Sign('+'), tail @ ..] => {
                    let (part, tail) = self.part(tail).filter(|(part, _)| !part.starts_with('.'))?;
                    (path + &part, tail)
                }
                _ => return Some((path, rest)),
            };
        }
    }

    /// The path at the start of an expression, in front of its operators.
    fn path_start<'a>(&self, tokens: &'a [Token]) -> Option<(String, &'a [Token])> {
        let (path, rest) = match tokens {
            [Sign('('), ..] => {
                let (inside, rest) = bracketed(tokens)?;
                (self.path(inside)?, rest)
            }
            [Text(text), rest @ ..] => (text.clone(), rest),
            [Name(name), Sign('('), ..] => {
                let (inside, rest) = bracketed(tokens.get(1..)?)?;
                (self.made_path(name, inside)?, rest)
            }
            [Name(prefix), Text(text), rest @ ..] if prefix == "f" => (below_start(text)?, rest),
            [Name(name), rest @ ..] => (self.bound(name)?, rest),
            _ => return None,
        };
        match rest {
            [Name(method), Sign('('), ..] if method == ".with_name" => {
                let (inside, rest) = bracketed(rest.get(1..)?)?;
                Some((with_name(&path, &self.parts(inside)?), rest))
            }
            _ => Some((path, rest)),
        }
    }

    /// The path that a call makes of its arguments.
    fn made_path(&self, name: &str, inside: &[Token]) -> Option<String> {
        if let Some(object) = name.strip_suffix(".with_name") {
            return Some(with_name(&self.bound(object)?, &self.parts(inside)?));
        }
        match name.rsplit('.').next().unwrap_or_default() {
            "TemporaryDirectory" | "mkdtemp" if inside.is_empty() => Some(NEW_DIRECTORY.to_owned()),
            "SharedMemory" => Some("/dev/shm/program".to_owned()),
            "Path" | "PosixPath" | "PurePath" | "str" | "fspath" => self.joined_path(inside),
            "join" if matches!(name, "os.path.join" | "path.join") => self.joined_path(inside),
            _ => None,
        }
    }

    /// The path of several arguments.
    fn joined_path(&self, inside: &[Token]) -> Option<String> {
        let mut depth = 0_usize;
        let mut arguments = inside.split(|token| {
            depth = nesting(depth, token);
            depth == 0 && *token == Sign(',')
        });
        let first = self.path(arguments.next()?)?;
        arguments.try_fold(first, |path, argument| Some(below(&path, &self.parts(argument)?)))
    }

    /// Texts that are put together to a part of a path.
    fn parts(&self, tokens: &[Token]) -> Option<String> {
        let (mut text, mut rest) = self.part(tokens)?;
        while let Some((sign, tail)) = rest.split_first() {
            let (part, tail) = self.part(tail).filter(|(part, _)| !part.starts_with('.'))?;
            if *sign != Sign('+') {
                return None;
            }
            text.push_str(&part);
            rest = tail;
        }
        Some(text)
    }

    /// A text that surely leads to nothing above.
    fn part<'a>(&self, tokens: &'a [Token]) -> Option<(String, &'a [Token])> {
        let (token, rest) = tokens.split_first()?;
        let text = match token {
            Text(text) => text.clone(),
            Name(name) => match name.rsplit_once('.') {
                Some((object, "name" | "stem" | "suffix")) if self.language == Language::Python => {
                    self.bound(object).filter(|path| !path.contains("..")).map(|_| "*".to_owned())?
                }
                _ => self.bound(name).map(|text| if text == UNKNOWN_NAME { "*".to_owned() } else { text })?,
            },
            Sign(_) => return None,
        };
        let is_below = !text.starts_with(['/', '~']) && !text.contains("..") && !text.is_empty();
        is_below.then_some((text, rest))
    }

    /// The path of the object whose method stands at an index: `Path("x").unlink`, `p.unlink`.
    pub(super) fn receiver(&self, at: usize) -> Option<String> {
        let (object, _) = self.name(at).rsplit_once('.')?;
        if !object.is_empty() {
            return self.bound(object);
        }
        let mut start = at;
        loop {
            start = self.opening(start.checked_sub(1)?)?;
            let name = self.name(start.wrapping_sub(1));
            let is_keyword = matches!(name, "" | "return" | "in" | "and" | "or" | "not" | "if" | "else");
            start -= usize::from(!is_keyword);
            if is_keyword || !name.starts_with('.') {
                return self.path(self.all.get(start..at)?);
            }
        }
    }

    /// The index of the bracket that the one at an index closes.
    fn opening(&self, close: usize) -> Option<usize> {
        let mut depth = 0_usize;
        (0..=close).rev().find(|at| {
            depth += usize::from(self.is_sign(*at, ")"));
            depth = depth.saturating_sub(usize::from(self.is_sign(*at, "(")));
            depth == 0
        })
    }

    /// What each element of a list of files is called: `Path("src").glob("*.c")`.
    pub(super) fn listed(&self, tokens: &[Token]) -> Option<String> {
        let followed = tokens.get(..MAX_TOKENS).unwrap_or(tokens);
        let (path, rest) = self.listed_and_rest(followed)?;
        let is_end = match rest.first() {
            None => followed.len() == tokens.len(),
            Some(Sign(':' | ')' | ']' | '}' | ',')) => true,
            Some(Name(name)) => matches!(name.as_str(), "if" | "for"),
            Some(_) => false,
        };
        is_end.then_some(path)
    }

    fn listed_and_rest<'a>(&self, tokens: &'a [Token]) -> Option<(String, &'a [Token])> {
        if let [Name(name), Sign('('), ..] = tokens {
            let (inside, rest) = bracketed(tokens.get(1..)?)?;
            let (object, method) = name.rsplit_once('.').unwrap_or(("", name));
            match (name.as_str(), inside) {
                ("sorted" | "list" | "reversed", _) => return Some((self.listed(inside)?, rest)),
                ("glob.glob" | "glob.iglob", [Text(pattern)]) => return Some((deep(pattern), rest)),
                ("os.listdir" | "fs.readdirSync" | "readdirSync", [_]) => {
                    // The name of a file in that directory, which alone is no path to it.
                    return Some((UNKNOWN_NAME.to_owned(), rest));
                }
                _ => {}
            }
            if let Some(path) = self.bound(object).filter(|_| !object.is_empty()) {
                return Some((entries(&path, method, inside)?, rest));
            }
        }
        let (path, rest) = self.path_start(tokens)?;
        let Some(Name(name)) = rest.first() else { return None };
        let (inside, rest) = bracketed(rest.get(1..)?)?;
        Some((entries(&path, name.strip_prefix('.')?, inside)?, rest))
    }
}

/// What the files are called that a method of a directory lists.
fn entries(path: &str, method: &str, inside: &[Token]) -> Option<String> {
    match (method, inside) {
        ("iterdir", []) => Some(below(path, "*")),
        ("glob", [Text(pattern)]) if is_plain(pattern) => Some(below(path, &deep(pattern))),
        ("rglob", [Text(pattern)]) if is_plain(pattern) => {
            Some(below(path, &format!("{UNKNOWN_CHAR}/{}", deep(pattern))))
        }
        _ => None,
    }
}

fn is_plain(pattern: &str) -> bool {
    !pattern.starts_with('/') && !pattern.contains("..")
}

/// A pattern in which two stars stand for any depth.
fn deep(pattern: &str) -> String {
    pattern.replace("**", &UNKNOWN_CHAR.to_string())
}

fn below(path: &str, part: &str) -> String {
    format!("{}/{part}", path.trim_end_matches('/'))
}

fn with_name(path: &str, name: &str) -> String {
    path.rsplit_once('/').map_or_else(|| name.to_owned(), |(parent, _)| format!("{parent}/{name}"))
}

/// The tokens in the bracket at the start, and those behind it.
fn bracketed(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let mut depth = 0_usize;
    let end = tokens.iter().position(|token| {
        depth = nesting(depth, token);
        depth == 0
    })?;
    Some((tokens.get(1..end)?, tokens.get(end + 1..)?))
}
