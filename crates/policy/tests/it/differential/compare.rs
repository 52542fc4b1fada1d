//! Compares what ran with what the gate found in the script.

use hermes_policy::shell::{Segment, Surroundings, Word, WordPiece, understand};
use hermes_types::{ShellContext, ShellKind};

use super::shells::{CWD, Execution, HOME, Run, Shells};

/// The first program that ran although the gate neither found nor doubted it.
pub(super) fn disagreement(
    shells: &Shells,
    shell: ShellKind,
    earlier: Option<&str>,
    script: &str,
) -> Option<String> {
    let read = |text: &str, cwd: &str, session: &ShellContext| {
        understand(text, &Surroundings { cwd, home: HOME, hermes_home: "/home/ada/.hermes", shell: session })
    };
    // A script that asks need not run; it may be a bomb.
    let new = ShellContext { shell, ..ShellContext::new() };
    if !read(earlier.unwrap_or(script), CWD, &new).doubts.is_empty() {
        return None;
    }
    let Run { executions, session, cwd } = shells.run(shell, earlier, script);
    let found = read(script, &cwd, &session);
    if !found.doubts.is_empty() {
        return None;
    }
    let unknown = executions.iter().find(|ran| !found.segments.iter().any(|segment| covers(segment, ran)))?;
    let shown: Vec<String> = found
        .segments
        .iter()
        .map(|segment| format!("  {} in {:?}", segment.show(), segment.cwd.as_deref().unwrap_or("?")))
        .collect();
    Some(format!("{} {:?} in {}\nfound:\n{}", unknown.name, unknown.args, unknown.cwd, shown.join("\n")))
}

fn covers(segment: &Segment, ran: &Execution) -> bool {
    let is_program = segment.name == ran.name.to_lowercase() || segment.name.is_empty();
    // An unknown part of a directory stands for anything.
    let in_directory = segment.cwd.as_deref().is_none_or(|cwd| {
        cwd == ran.cwd
            || cwd.split_once(['\0', '*', '?']).is_some_and(|(start, _)| ran.cwd.starts_with(start))
    });
    is_program && in_directory && words_match(&segment.args, &ran.args)
}

fn words_match(words: &[Word], args: &[String]) -> bool {
    let Some((word, rest)) = words.split_first() else { return args.is_empty() };
    if word.has_unknown() || word.has_glob() {
        return (0..=args.len()).any(|count| words_match(rest, args.get(count..).unwrap_or_default()));
    }
    let text: String = word.pieces().iter().map(piece_text).collect();
    args.split_first().is_some_and(|(arg, args)| *arg == text && words_match(rest, args))
}

fn piece_text(piece: &WordPiece) -> &str {
    match piece {
        WordPiece::Text(text) | WordPiece::Glob(text) => text,
        WordPiece::Unknown(_) => "",
    }
}
