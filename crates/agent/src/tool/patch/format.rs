//! The multi-file patch format: `*** Begin Patch`, then files to add, update, delete or move, then
//! `*** End Patch`. The text is parsed once; the gate judges the parsed operations.

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchOperation {
    Add { path: String, content: String },
    Update { path: String, to: Option<String>, hunks: Vec<PatchHunk> },
    Delete { path: String },
}

/// A change within a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// A line before the change.
    pub(super) anchor: Option<String>,
    pub(super) old: Vec<String>,
    pub(super) new: Vec<String>,
}

const MAX_OPERATIONS: usize = 200;

fn failure(reason: impl Into<String>) -> Error {
    Error::File(reason.into())
}

pub(super) fn parse_patch(text: &str) -> Result<Vec<PatchOperation>, Error> {
    let mut operations: Vec<PatchOperation> = Vec::new();
    let mut ended = false;
    for (number, line) in (1..).zip(text.lines()) {
        let at_line = |reason: Error| failure(format!("line {number} of the patch: {reason}"));
        let invalid = |reason: &str| Err(at_line(failure(reason)));
        let header = line.strip_prefix("***").map(str::trim);
        match header {
            Some("End Patch") => ended = true,
            Some("Begin Patch" | "End of File") => {}
            _ if ended && line.trim().is_empty() => {}
            _ if ended => return invalid("there is text after the end of the patch"),
            Some(header) => parse_header(header, &mut operations).map_err(at_line)?,
            None => parse_body_line(operations.last_mut(), line).map_err(at_line)?,
        }
        if operations.len() > MAX_OPERATIONS {
            return Err(failure(format!("more than {MAX_OPERATIONS} files in one patch")));
        }
    }
    if operations.is_empty() {
        return Err(failure(
            "the patch is empty; it begins with `*** Begin Patch` and names files such as `*** Update File: path`",
        ));
    }
    for operation in &operations {
        if let PatchOperation::Update { path, to: None, hunks } = operation
            && hunks.is_empty()
        {
            return Err(failure(format!("{path}: an update without changes")));
        }
    }
    Ok(operations)
}

fn parse_header(header: &str, operations: &mut Vec<PatchOperation>) -> Result<(), Error> {
    let invalid = || failure(format!("`*** {header}` is not a valid header"));
    let (word, rest) = header.split_once(':').ok_or_else(invalid)?;
    let path = rest.trim().to_owned();
    if path.is_empty() || path.contains('\0') {
        return Err(failure(format!("`*** {header}` names no file")));
    }
    let operation = match word.trim().to_ascii_lowercase().as_str() {
        "add file" => PatchOperation::Add { path, content: String::new() },
        "update file" => PatchOperation::Update { path, to: None, hunks: Vec::new() },
        "delete file" => PatchOperation::Delete { path },
        "move to" => match operations.last_mut() {
            Some(PatchOperation::Update { to, hunks, .. }) if hunks.is_empty() => {
                *to = Some(path);
                return Ok(());
            }
            _ => return Err(failure("`Move to` belongs right below `Update File`")),
        },
        "move file" => match path.split_once("->") {
            Some((from, to)) if !from.trim().is_empty() && !to.trim().is_empty() => PatchOperation::Update {
                path: from.trim().to_owned(),
                to: Some(to.trim().to_owned()),
                hunks: Vec::new(),
            },
            _ => return Err(failure("a move is written as `*** Move File: from -> to`")),
        },
        _ => return Err(invalid()),
    };
    operations.push(operation);
    Ok(())
}

/// Parses a line below a header.
fn parse_body_line(operation: Option<&mut PatchOperation>, line: &str) -> Result<(), Error> {
    let reason = match operation {
        Some(PatchOperation::Update { hunks, .. }) => return parse_hunk_line(hunks, line),
        _ if line.trim().is_empty() => return Ok(()),
        None => "only `*** Begin Patch` may come before the first file".to_owned(),
        Some(PatchOperation::Delete { path }) => format!("no lines may follow the deletion of {path}"),
        Some(PatchOperation::Add { content, .. }) => match line.strip_prefix('+') {
            Some(text) => {
                content.push_str(text);
                content.push('\n');
                return Ok(());
            }
            None => "each line of a new file must begin with +".to_owned(),
        },
    };
    Err(failure(reason))
}

fn parse_hunk_line(hunks: &mut Vec<PatchHunk>, line: &str) -> Result<(), Error> {
    if let Some(rest) = line.strip_prefix("@@") {
        let anchor = rest.trim().trim_end_matches("@@").trim();
        // The line numbers of other formats are not needed: the text itself shows the location.
        let is_number = anchor.starts_with('-') && anchor.contains('+');
        let anchor = (!anchor.is_empty() && !is_number).then(|| anchor.to_owned());
        hunks.push(PatchHunk { anchor, ..PatchHunk::default() });
        return Ok(());
    }
    if hunks.is_empty() {
        hunks.push(PatchHunk::default());
    }
    let Some(hunk) = hunks.last_mut() else { return Ok(()) };
    match line.chars().next() {
        Some('+') => hunk.new.extend(line.strip_prefix('+').map(str::to_owned)),
        Some('-') => hunk.old.extend(line.strip_prefix('-').map(str::to_owned)),
        // An empty line is a context line that lost its leading blank.
        Some(' ') | None => {
            let text = line.strip_prefix(' ').unwrap_or(line);
            hunk.old.push(text.to_owned());
            hunk.new.push(text.to_owned());
        }
        Some(_) => return Err(failure("a line of a change must begin with a blank, + or -")),
    }
    Ok(())
}

/// Applies all hunks to a text, from top to bottom.
pub(super) fn apply_hunks(content: &str, hunks: &[PatchHunk]) -> Result<String, Error> {
    let ends = content.ends_with('\n') || content.is_empty();
    let whole = content.strip_suffix('\n').unwrap_or(content);
    let mut lines: Vec<String> =
        whole.split('\n').filter(|_| !content.is_empty()).map(str::to_owned).collect();
    let mut from = 0;
    for (number, hunk) in (1..).zip(hunks) {
        let in_hunk = |reason: Error| failure(format!("change {number}: {reason}"));
        let mut hunk = hunk.clone();
        if let Some(anchor) = &hunk.anchor {
            from = lines
                .iter()
                .skip(from)
                .position(|line| line.trim() == anchor)
                .or_else(|| lines.iter().skip(from).position(|line| line.contains(anchor.as_str())))
                .map(|found| from + found + 1)
                .ok_or_else(|| in_hunk(failure(format!("there is no line `{anchor}`"))))?;
            // Models often repeat the anchor as the first context line.
            if hunk.old.first().is_some_and(|first| first.trim() == anchor.trim()) {
                from -= 1;
            }
        }
        let at = if hunk.old.iter().any(|line| !line.trim().is_empty()) {
            locate_hunk(&lines, &mut hunk, from).map_err(in_hunk)?
        } else {
            hunk.old.clear();
            // Without an anchor and context, the new lines go to the end.
            if hunk.anchor.is_some() { from } else { lines.len() }
        };
        let length = hunk.old.len();
        from = at + hunk.new.len();
        lines.splice(at..at + length, hunk.new);
    }
    let mut text = lines.join("\n");
    if ends && !text.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// Finds the old lines of a hunk: first exactly, then ignoring more and more white space. Context
/// lines are taken over from the file, so that they stay unchanged.
fn locate_hunk(lines: &[String], hunk: &mut PatchHunk, from: usize) -> Result<usize, Error> {
    let comparisons: [fn(&str, &str) -> bool; 3] = [
        |line, old| line == old,
        |line, old| line.trim_end() == old.trim_end(),
        |line, old| line.trim() == old.trim(),
    ];
    // An empty line at the end of a patch is often unintended.
    let mut spare = hunk.old.iter().rev().take_while(|line| line.is_empty()).count().min(hunk.old.len());
    loop {
        for is_same in comparisons {
            let positions: Vec<usize> = lines
                .windows(hunk.old.len())
                .enumerate()
                .skip(from)
                .filter(|(_, window)| window.iter().zip(&hunk.old).all(|(line, old)| is_same(line, old)))
                .map(|(at, _)| at)
                .collect();
            match positions.as_slice() {
                [] => {}
                [at] => return Ok(keep_context_lines(lines, hunk, *at)),
                [at, ..] if hunk.anchor.is_some() => return Ok(keep_context_lines(lines, hunk, *at)),
                several => {
                    let numbers: Vec<String> =
                        several.iter().take(5).map(|at| (at + 1).to_string()).collect();
                    return Err(failure(format!(
                        "its lines occur {} times, at line {}; add an @@ line or more context",
                        several.len(),
                        numbers.join(", ")
                    )));
                }
            }
        }
        if spare == 0 || hunk.new.last().is_some_and(|line| !line.is_empty()) {
            let first = hunk.old.iter().find(|line| !line.trim().is_empty()).map_or("", String::as_str);
            let first = first.trim();
            return Err(failure(format!("its lines are not in the file, beginning with `{first}`")));
        }
        spare -= 1;
        hunk.old.pop();
        hunk.new.pop();
    }
}

/// Replaces the context lines of a hunk by those of the file.
fn keep_context_lines(lines: &[String], hunk: &mut PatchHunk, at: usize) -> usize {
    let mut old = hunk.old.iter().zip(lines.iter().skip(at));
    for new in &mut hunk.new {
        let mut ahead = old.clone();
        if let Some((_, line)) = ahead.find(|(old, _)| *old == new) {
            new.clone_from(line);
            old = ahead;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_patch_is_parsed_with_all_its_operations() {
        let text = "*** Begin Patch\n*** Add File: new.txt\n+one\n+\n+two\n*** Update File: a b.rs\n*** Move to: c.rs\n\
                    @@ fn main\n x\n-y\n+z\n*** Delete File: old\n***Move File: p -> q\n*** End Patch\n";
        let hunk = PatchHunk {
            anchor: Some("fn main".to_owned()),
            old: vec!["x".to_owned(), "y".to_owned()],
            new: vec!["x".to_owned(), "z".to_owned()],
        };
        let update = |path: &str, to: &str, hunks| PatchOperation::Update {
            path: path.to_owned(),
            to: Some(to.to_owned()),
            hunks,
        };
        let expected = vec![
            PatchOperation::Add { path: "new.txt".to_owned(), content: "one\n\ntwo\n".to_owned() },
            update("a b.rs", "c.rs", vec![hunk]),
            PatchOperation::Delete { path: "old".to_owned() },
            update("p", "q", Vec::new()),
        ];
        assert_eq!(parse_patch(text).unwrap(), expected);
    }

    #[test]
    fn an_invalid_patch_is_rejected_with_its_line() {
        let cases = [
            ("", "the patch is empty"),
            ("*** Begin Patch\n*** End Patch", "the patch is empty"),
            ("*** Begin Patch\nhello", "line 2"),
            ("*** Update File: a\nhello", "line 2 of the patch: a line of a change"),
            ("*** Update File: a", "without changes"),
            ("*** Add File: a\nx", "begin with +"),
            ("*** Add File:\n+x", "names no file"),
            ("*** Rename File: a", "not a valid header"),
            ("*** Move File: a", "from -> to"),
            ("*** Delete File: a\n*** Move to: b", "right below"),
            ("*** Delete File: a\n*** End Patch\n*** Delete File: b", "after the end"),
        ];
        for (text, expected) in cases {
            let error = parse_patch(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    fn apply(content: &str, body: &str) -> Result<String, Error> {
        match parse_patch(&format!("*** Update File: a\n{body}")).as_deref() {
            Ok([PatchOperation::Update { hunks, .. }]) => apply_hunks(content, hunks),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hunks_are_applied_where_their_lines_are() {
        let cases = [
            ("a\nb\nc\n", " a\n-b\n+x\n c", "a\nx\nc\n"),
            ("a\nb", "-b\n+x", "a\nx"),
            ("a\n", "+x", "a\nx\n"),
            ("", "+x", "x\n"),
            ("f\na\ng\na\n", "@@ g\n-a\n+x", "f\na\ng\nx\n"),
            ("f\n  a\n", "@@ f\n+  new", "f\n  new\n  a\n"),
            ("    a\n    b\n", " a\n-b\n+    c", "    a\n    c\n"),
            ("a  \nb\n", " a\n-b\n+c\n", "a  \nc\n"),
            ("1\n2\n3\n4\n", "-1\n+x\n@@\n-4\n+y", "x\n2\n3\ny\n"),
            ("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+c", "c\nb\n"),
            ("\u{7}a\n\u{1b}]0;t\u{7}\n", "-\u{7}a\n+b", "b\n\u{1b}]0;t\u{7}\n"),
        ];
        for (content, body, expected) in cases {
            assert_eq!(apply(content, body).unwrap(), expected, "{content:?} {body:?}");
        }
    }

    #[test]
    fn a_hunk_that_matches_nowhere_or_twice_is_rejected() {
        let cases = [
            ("a\n", "-b\n+c", "not in the file"),
            ("a\nb\na\n", "-a\n+c", "occur 2 times, at line 1, 3"),
            ("a\n", "@@ nothing\n-a\n+b", "no line `nothing`"),
            ("b\na\n", "-a\n+x\n@@\n-b\n+y", "change 2"),
        ];
        for (content, body, expected) in cases {
            let error = apply(content, body).unwrap_err().to_string();
            assert!(error.contains(expected), "{content:?} {body:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(
            text in "(\\*\\*\\* (Add|Update|Delete|Move) File: a( -> b)?\n|[-+ @a\n]{0,6}\n|\\*\\*\\* End Patch\n){0,8}", content in "[a \n]{0,20}",
        ) {
            for operation in parse_patch(&text).into_iter().flatten() {
                if let PatchOperation::Update { hunks, .. } = operation {
                    drop(apply_hunks(&content, &hunks));
                }
            }
        }
    }
}
