//! Compares what ran with what the gate found in the script.

use hermes_policy::shell::{Doubt, Segment, Surroundings, Word, WordPiece, understand};
use hermes_types::{ShellContext, ShellKind};

use super::shells::{CWD, Execution, HOME, Run, Shells};

/// The entries of a list: the shell, an earlier command of the session, and the script.
pub(super) fn entries(text: &str) -> Vec<(ShellKind, Option<String>, String)> {
    text.split("\n%%\n")
        .filter_map(|entry| entry.trim_end_matches('\n').split_once('\n'))
        .map(|(label, script)| {
            let shell = if label.contains("sh only") { ShellKind::Sh } else { ShellKind::Bash };
            match script.split_once("\n#: then\n") {
                Some((earlier, script)) => (shell, Some(earlier.to_owned()), script.to_owned()),
                None => (shell, None, script.to_owned()),
            }
        })
        .collect()
}

/// The result of a comparison.
pub(super) enum Outcome {
    Agrees,
    /// The gate asks for this reason, so nothing is compared.
    Doubted(Doubt),
    /// The first program that ran although the gate neither found nor doubted it.
    Disagrees(String),
}

pub(super) fn compare(shells: &Shells, shell: ShellKind, earlier: Option<&str>, script: &str) -> Outcome {
    let read = |text: &str, cwd: &str, session: &ShellContext| {
        understand(text, &Surroundings { cwd, home: HOME, hermes_home: "/home/ada/.hermes", shell: session })
    };
    // A script that asks need not run; it may be a bomb.
    let new = ShellContext { shell, ..ShellContext::new() };
    if let Some(doubt) = read(earlier.unwrap_or(script), CWD, &new).doubts.into_iter().next() {
        return Outcome::Doubted(doubt);
    }
    let Run { executions, session, cwd } = shells.run(shell, earlier, script);
    let found = read(script, &cwd, &session);
    if let Some(doubt) = found.doubts.into_iter().next() {
        return Outcome::Doubted(doubt);
    }
    let is_missed = |ran: &&Execution| !found.segments.iter().any(|segment| covers(segment, ran));
    let Some(missed) = executions.iter().find(is_missed) else { return Outcome::Agrees };
    let shown: Vec<String> = found
        .segments
        .iter()
        .map(|segment| format!("  {} in {:?}", segment.show(), segment.cwd.as_deref().unwrap_or("?")))
        .collect();
    let Execution { name, args, cwd } = missed;
    Outcome::Disagrees(format!("{name} {args:?} in {cwd}\nfound:\n{}", shown.join("\n")))
}

fn covers(segment: &Segment, ran: &Execution) -> bool {
    // An unknown part of a directory stands for anything.
    let runs_below = segment.via.iter().any(|via| via == "find");
    let in_directory = segment.cwd.as_deref().is_none_or(|cwd| {
        cwd == ran.cwd
            || (runs_below && ran.cwd.starts_with(cwd))
            || cwd.split_once(['\0', '*', '?']).is_some_and(|(start, _)| ran.cwd.starts_with(start))
    });
    let has_words = match segment.via.last().map(String::as_str) {
        // It may run its command several times, each with some of the words.
        Some("xargs") if segment.args.iter().any(Word::has_unknown) => {
            let has = |arg: &str| {
                let args = [arg.to_owned()];
                segment.args.iter().any(|word| words_match(std::slice::from_ref(word), &args))
            };
            ran.args.iter().all(|arg| has(arg) || arg.split_whitespace().all(has))
        }
        _ => words_match(&segment.args, &ran.args),
    };
    segment.name == ran.name.to_lowercase() && in_directory && has_words
}

fn words_match(words: &[Word], args: &[String]) -> bool {
    let Some((word, rest)) = words.split_first() else { return args.is_empty() };
    let text: String = word.pieces().iter().map(piece_text).collect();
    if word.has_unknown() || word.has_glob() || text.contains('\0') {
        return (0..=args.len()).any(|count| words_match(rest, args.get(count..).unwrap_or_default()));
    }
    args.split_first().is_some_and(|(arg, args)| *arg == text && words_match(rest, args))
}

fn piece_text(piece: &WordPiece) -> &str {
    match piece {
        WordPiece::Text(text) | WordPiece::Glob(text) => text,
        WordPiece::Unknown(_) => "",
    }
}
