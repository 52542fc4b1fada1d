//! Programs that run a command for each file or line they find.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["find", "bfs"])
        .files(&[
            reads(Computed(looked_for)),
            deletes_tree(Computed(deleted)).when(All(&[Arg(&["-delete"]), Not(&Test(deletes_empty))])),
            deletes(Computed(emptied)).when(All(&[Arg(&["-delete"]), Test(deletes_empty)])),
            writes(Values(&["-fprint", "-fprint0", "-fprintf", "-fls"])),
        ])
        .runs(&[Custom(find)]),
    non_reader(&["fd", "fdfind"]).runs(&[Custom(find)]),
    reader(&["xargs"])
        .valued(&[
            "-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E", "--max-args", "--max-procs", "--delimiter",
            "--arg-file", "--replace", "--max-lines",
        ])
        .runs(&[Custom(xargs)]),
    program(&["parallel"])
        .valued(&[
            "-j", "--jobs", "-N", "-n", "-I", "-d", "--delimiter", "-a", "--arg-file", "--results",
            "--timeout", "--joblog", "-S", "--sshlogin", "--colsep", "-C",
        ])
        .runs(&[Custom(parallel)]),
];

/// The number of items that are followed; more are a doubt.
const MAX_ITEMS: usize = 64;

/// The items that are followed.
fn followed<T>(items: Vec<T>, found: &mut Vec<Nested>) -> impl Iterator<Item = T> + use<T> {
    found.extend((items.len() > MAX_ITEMS).then_some(Nested::TooMuch));
    items.into_iter().take(MAX_ITEMS)
}

/// The number of words in front of the tests of a `find`.
fn starts_count(call: &Invocation<'_>) -> usize {
    let is_option = |word: &&Word| matches!(word.known(), Some("-L" | "-P" | "-H" | "-O1" | "-O2" | "-O3"));
    let options = call.args.iter().take_while(is_option).count();
    let is_start = |word: &&Word| !word.prefix().starts_with(['-', '(', '!']);
    options + call.args.iter().skip(options).take_while(is_start).count()
}

/// The directories a `find` starts in.
fn starts(call: &Invocation<'_>) -> Vec<Word> {
    let starts: Vec<Word> = call
        .args
        .iter()
        .take(starts_count(call))
        .skip_while(|word| matches!(word.known(), Some("-L" | "-P" | "-H" | "-O1" | "-O2" | "-O3")))
        .cloned()
        .collect();
    if starts.is_empty() { vec![Word::literal(".")] } else { starts }
}

/// The name a `find` looks for.
fn wanted_name<'a>(call: &Invocation<'a>) -> Option<&'a Word> {
    let at = call.args.iter().position(|word| matches!(word.known(), Some("-name" | "-iname")))?;
    call.args.get(at + 1)
}

/// The directories that are searched, and the names that are wanted.
fn looked_for(call: &Invocation<'_>) -> Vec<Word> {
    let mut words = starts(call);
    for (at, pair) in call.args.windows(2).enumerate() {
        let [test, value] = pair else { continue };
        let is_test = fits_any(test.prefix(), &["-name", "-iname", "-*path", "-*wholename", "-lname"]);
        let before = at.checked_sub(1).and_then(|at| call.args.get(at)).and_then(Word::known);
        let is_left_out = matches!(before, Some("-not" | "!"))
            || call.args.get(at + 2).and_then(Word::known) == Some("-prune");
        if is_test && !is_left_out {
            words.push(value.clone());
        }
    }
    words
}

/// The names to which `-delete` is limited, or none if it may delete anything.
fn deleted_names(call: &Invocation<'_>) -> Vec<Word> {
    let tests = call.args.get(starts_count(call)..).unwrap_or_default();
    let is_name = |word: Option<&Word>| matches!(word.and_then(Word::known), Some("-name" | "-iname"));
    let (mut names, mut alternatives) = (Vec::new(), 1);
    for (at, word) in tests.iter().enumerate() {
        let is_negated = at > 0 && matches!(tests.get(at - 1).and_then(Word::known), Some("!" | "-not"));
        match word.known() {
            Some(",") => return Vec::new(),
            Some("-o" | "-or") => alternatives += 1,
            _ if word.splits => return Vec::new(),
            _ if is_name(Some(word)) && !is_negated => names.extend(tests.get(at + 1).cloned()),
            _ => {}
        }
    }
    let is_limited = |name: &Word| name.outline().chars().any(char::is_alphanumeric);
    if names.len() < alternatives || !names.iter().all(is_limited) { Vec::new() } else { names }
}

/// Whether only links and what is empty is deleted.
fn deletes_empty(call: &Invocation<'_>) -> bool {
    let words: Vec<&str> = call.args.iter().map(Word::prefix).collect();
    let is_kept = |word: &&str| matches!(*word, "!" | "-not" | "-o" | "-or" | ",");
    !words.iter().any(is_kept)
        && (words.contains(&"-empty")
            || words.windows(2).any(|pair| matches!(pair, ["-type" | "-xtype", "l"])))
}

fn deleted(call: &Invocation<'_>) -> Vec<Word> {
    let names = deleted_names(call);
    let below = |start: &Word| {
        let start = start.outline();
        let path = |name: &Word| Word::literal(format!("{start}/**/{}", name.outline()));
        names.iter().map(path).collect::<Vec<_>>()
    };
    if names.is_empty() { starts(call) } else { starts(call).iter().flat_map(below).collect() }
}

/// A file in each directory in which only links and empty files are deleted.
fn emptied(call: &Invocation<'_>) -> Vec<Word> {
    starts(call).iter().map(|start| start.followed_by(&Word::literal("/empty"))).collect()
}

/// A word that stands for the paths below a directory that `find` passes to a command.
fn found_path(start: &Word, name: Option<&Word>) -> Word {
    let slash = Word::literal("/");
    let below = match name {
        Some(name) => Word::unknown(Unknown::Input).followed_by(&slash).followed_by(name),
        None => Word::from_pieces([WordPiece::Glob("**".to_owned())]),
    };
    start.followed_by(&slash).followed_by(&below)
}

fn find(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let starts = starts(call);
    let name = wanted_name(call);
    let mut rest = call.args;
    while let Some((word, tail)) = rest.split_first() {
        rest = tail;
        let option = word.prefix();
        // fd appends the path; find puts it where `{}` stands.
        let appends = matches!(option, "-x" | "-X" | "--exec" | "--exec-batch");
        if !appends && !matches!(option, "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let end = tail.iter().position(|word| matches!(word.known(), Some(";" | "+"))).unwrap_or(tail.len());
        let (command, behind) = tail.split_at(end);
        rest = behind;
        for start in followed(starts.clone(), found) {
            let path = found_path(&start, name);
            let mut words: Vec<Word> = command
                .iter()
                .map(|word| if word.prefix().contains("{}") { path.clone() } else { word.clone() })
                .collect();
            words.extend(appends.then_some(path));
            found.extend(Nested::argv(&words));
        }
    }
}

/// The words or lines of a known input, or one unknown word.
fn input(call: &Invocation<'_>, split: fn(&str) -> Vec<&str>, found: &mut Vec<Nested>) -> Vec<Word> {
    match call.segment.stdin.text.as_ref().and_then(Word::known) {
        Some(text) => followed(split(text), found).map(Word::literal).collect(),
        None => vec![Word::unknown(Unknown::Input)],
    }
}

fn xargs(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let rest = call.words_from_verb();
    if rest.is_empty() {
        return;
    }
    let start = call.args.len().saturating_sub(rest.len());
    let own = call.args.get(..start).unwrap_or_default();
    let options = XargsOptions::new(own);
    let input = call.segment.stdin.text.as_ref().and_then(Word::known).filter(|_| !options.reads_file);
    let Some(items) = input.and_then(|text| options.items(text)) else {
        let items = [Word::unknown(Unknown::Input)];
        found.extend(Nested::argv(&options.words(rest, &items)));
        return;
    };
    let items: Vec<Word> = followed(items, found).map(Word::literal).collect();
    let size = if options.marker.is_some() { 1 } else { options.max_items.unwrap_or(items.len()) };
    if items.is_empty() && options.marker.is_none() {
        found.extend(Nested::argv(rest));
    }
    for chunk in items.chunks(size.max(1)) {
        found.extend(Nested::argv(&options.words(rest, chunk)));
    }
}

/// How an `xargs` reads its input and passes it on.
#[derive(Default)]
struct XargsOptions {
    /// What stands for a line of the input.
    marker: Option<String>,
    delimiter: Option<char>,
    /// The number of items of one command.
    max_items: Option<usize>,
    reads_file: bool,
    /// Whether an option is not understood.
    is_unclear: bool,
}

impl XargsOptions {
    fn new(own: &[Word]) -> Self {
        let value = |options: &[&str]| crate::shell::values(own, options).pop();
        let known = |word: Word| word.known().map(str::to_owned);
        let is_understood = |word: &Word| {
            let text = word.prefix();
            let long =
                ["--null", "--no-run-if-empty", "--verbose", "--max-procs", "--max-args", "--delimiter"];
            match text.strip_prefix("--") {
                Some(_) => long.contains(&text.split('=').next().unwrap_or_default()),
                None => !text.starts_with('-') || !text.contains(['E', 'e', 'l', 'L', 's', 'x']),
            }
        };
        let mut options = Self {
            marker: value(&["-I", "--replace"]).and_then(known),
            reads_file: has(own, &["-a", "--arg-file"]),
            is_unclear: own.iter().any(|word| word.has_unknown() || !is_understood(word)),
            ..Self::default()
        };
        if options.marker.is_none() && has(own, &["-i", "-I", "--replace"]) {
            options.marker = Some("{}".to_owned());
        }
        if has(own, &["-0", "--null"]) {
            options.delimiter = Some(UNKNOWN_CHAR);
        }
        if let Some(delimiter) = value(&["-d", "--delimiter"]) {
            let decoded = delimiter.known().map(|text| crate::shell::unescape(text, |_| false));
            let mut chars = decoded.as_deref().unwrap_or_default().chars();
            options.delimiter = chars.next();
            options.is_unclear |= options.delimiter.is_none() || chars.next().is_some();
        }
        if let Some(count) = value(&["-n", "--max-args"]) {
            options.max_items = count.known().and_then(|count| count.parse().ok());
            options.is_unclear |= options.max_items.is_none();
        }
        // Of `-I` and a larger `-n`, the last one counts.
        options.is_unclear |= options.marker.is_some() && options.max_items.is_some_and(|count| count > 1);
        options
    }

    /// The items of a text, if they are sure.
    fn items(&self, text: &str) -> Option<Vec<String>> {
        if self.is_unclear {
            return None;
        }
        match self.delimiter {
            Some(delimiter) => {
                let mut items: Vec<String> = text.split(delimiter).map(str::to_owned).collect();
                items.pop_if(|last| last.is_empty());
                Some(items)
            }
            None => quoted_items(text, self.marker.is_some()),
        }
    }

    /// The words of the command for these items.
    fn words(&self, rest: &[Word], items: &[Word]) -> Vec<Word> {
        let Some(marker) = self.marker.as_deref().filter(|marker| !marker.is_empty()) else {
            return rest.iter().chain(items).cloned().collect();
        };
        rest.iter()
            .map(|word| match word.known() {
                Some(text) if text.contains(marker) => filled(text, marker, items),
                _ => word.clone(),
            })
            .collect()
    }
}

/// The items that `xargs` reads by default: quotes and backslashes protect blanks. With a marker, each
/// line is an item.
fn quoted_items(text: &str, by_line: bool) -> Option<Vec<String>> {
    let mut items = Vec::new();
    let mut item: Option<String> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\n' => items.extend(item.take()),
            ' ' | '\t' if !by_line => items.extend(item.take()),
            ' ' | '\t' if item.is_none() => {}
            '\'' | '"' => {
                let rest = chars.as_str();
                let (inside, behind) = rest.split_once(char).filter(|(inside, _)| !inside.contains('\n'))?;
                item.get_or_insert_default().push_str(inside);
                chars = behind.chars();
            }
            '\\' => item.get_or_insert_default().push(chars.next()?),
            UNKNOWN_CHAR => return None,
            char => item.get_or_insert_default().push(char),
        }
    }
    items.extend(item);
    Some(items)
}

/// A word in which a marker stands for the input.
fn filled(text: &str, marker: &str, input: &[Word]) -> Word {
    let value = if let [only] = input { only.clone() } else { Word::unknown(Unknown::Input) };
    let pieces = text.split(marker).enumerate().flat_map(|(index, part)| {
        let value = value.pieces().iter().filter(move |_| index > 0).cloned();
        value.chain((!part.is_empty()).then(|| WordPiece::Text(part.to_owned())))
    });
    Word::from_pieces(pieces.collect::<Vec<_>>())
}

fn parallel(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let rest = call.words_from_verb();
    let mark = rest.iter().position(|word| word.prefix().starts_with(":::"));
    let (command, items) = rest.split_at(mark.unwrap_or(rest.len()));
    let mut items: Vec<Word> =
        items.iter().filter(|word| !word.prefix().starts_with(":::")).cloned().collect();
    if command.is_empty() {
        found.extend(items.into_iter().map(Nested::text));
        if mark.is_none() {
            found.push(Nested::Stdin(Language::Shell));
        }
        return;
    }
    if mark.is_none() {
        items = input(call, |text| text.lines().collect(), found);
    }
    let has_marker = command.iter().any(|word| word.prefix().contains("{}"));
    for item in followed(items, found) {
        let mut words: Vec<Word> = command
            .iter()
            .map(|word| match word.known() {
                Some("{}") => item.clone(),
                Some(text) if text.contains("{}") => filled(text, "{}", std::slice::from_ref(&item)),
                _ => word.clone(),
            })
            .collect();
        if !has_marker {
            words.push(item);
        }
        // A command of one word is a whole command line.
        match command {
            [only] if only.prefix().contains(' ') => found.push(Nested::text(Word::joined(&words))),
            _ => found.extend(Nested::argv(&words)),
        }
    }
}
