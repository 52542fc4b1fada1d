//! Programs that run a command for each file or line they find.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["find", "bfs"])
        .files(&[
            reads(Computed(looked_for)),
            deletes_tree(Computed(deleted)).when(Arg(&["-delete"])),
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

/// The directories a `find` starts in.
fn starts(call: &Invocation<'_>) -> Vec<Word> {
    let starts: Vec<Word> = call
        .args
        .iter()
        .skip_while(|word| matches!(word.known(), Some("-L" | "-P" | "-H" | "-O1" | "-O2" | "-O3")))
        .take_while(|word| !word.prefix().starts_with(['-', '(', '!']))
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

fn deleted(call: &Invocation<'_>) -> Vec<Word> {
    let name = wanted_name(call);
    let paths = starts(call).into_iter().map(|start| match name {
        Some(name) => Word::literal(format!("{}/{UNKNOWN_CHAR}/{}", start.outline(), name.outline())),
        None => start,
    });
    paths.collect()
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
    let input = input(call, |text| text.split_whitespace().collect(), found);
    let marker = call.values(&["-I"]).into_iter().next();
    let marker = marker.or_else(|| call.has(&["-i"]).then(|| Word::literal("{}")));
    let words: Vec<Word> = match marker.as_ref().and_then(Word::known) {
        Some(marker) => rest
            .iter()
            .flat_map(|word| match word.known() {
                Some(text) if text == marker => input.clone(),
                Some(text) if text.contains(marker) => vec![filled(text, marker, &input)],
                _ => vec![word.clone()],
            })
            .collect(),
        None => rest.iter().cloned().chain(input).collect(),
    };
    found.extend(Nested::argv(&words));
}

/// A word in which a marker stands for the input.
fn filled(text: &str, marker: &str, input: &[Word]) -> Word {
    let value = if let [only] = input { only.clone() } else { Word::unknown(Unknown::Input) };
    let mut parts = text.split(marker);
    let first = Word::literal(parts.next().unwrap_or_default());
    parts.fold(first, |word, part| word.followed_by(&value).followed_by(&Word::literal(part)))
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
