//! The output of simple commands and the files they create, as far as their words show it.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::*;
use crate::file_effects::written_words;
use crate::programs::{self, Invocation};
use hermes_types::ShellKind;

/// The longest decoded text that is followed.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Programs that print nothing but assignments or quoted words, to be evaluated.
const EVALUATED: &[&str] = &["dircolors", "getopt", "ssh-agent"];

/// Stands among the programs of an output for a `getopt` that does not quote.
const UNQUOTED: &str = "getopt-unquoted";

/// Whether the unknown parts of a text are made to be evaluated.
pub(super) fn is_made_for_shells(text: &Word) -> bool {
    text.pieces().iter().all(|piece| match piece {
        WordPiece::Unknown(Unknown::Output(programs)) => {
            matches!(programs.as_slice(), [program] if EVALUATED.contains(&program.as_str()))
        }
        WordPiece::Unknown(_) => false,
        _ => true,
    })
}

/// The standard output of a segment.
pub(super) fn standard_output(segment: &Segment, dialect: ShellKind) -> PipeData {
    let args = segment.args.as_slice();
    if let Some(kind) = git_output(segment) {
        return PipeData { programs: vec![kind.to_owned()], ..PipeData::default() };
    }
    let operands_given = args.iter().any(|word| !word.prefix().starts_with('-'));
    let input = &segment.stdin.text;
    let decoded = |decode: fn(&str) -> Option<String>| {
        input.as_ref().and_then(Word::known).and_then(decode).map(Word::literal)
    };
    let text = match segment.name.as_str() {
        "echo" => Some(echoed(args, dialect)),
        "printf" => printed(args),
        "tee" => input.clone(),
        "cat" | "sort" | "uniq" | "head" | "tail" if !operands_given => input.clone(),
        "cat" if matches!(args, [only] if only.known() == Some("-")) => input.clone(),
        // A new file in a temporary directory, with a random name.
        "mktemp"
            if !has(args, &["-p", "--tmpdir"]) && !args.iter().any(|word| word.prefix().contains('/')) =>
        {
            Some(Word::literal("/tmp/tmp.").followed_by(&unknown_output("mktemp")))
        }
        "mktemp" => temporary_name(args),
        // A listing names at least what was asked for.
        "ls" | "find" if operands_given => {
            let is_option = |word: &&Word| word.prefix().starts_with('-');
            let named = args.iter().take_while(|word| segment.name == "ls" || !is_option(word));
            let named: Vec<Word> = named.filter(|word| !is_option(word)).cloned().collect();
            return PipeData {
                text: Some(Word::joined(&[Word::joined(&named), unknown_output(&segment.name)])),
                programs: vec![segment.name.clone()],
                file: None,
            };
        }
        "pwd" => segment.cwd.clone().map(Word::literal),
        "umask" | "ulimit" | "export" | "set" | "mkdir" | "touch" | "shopt"
            if operands_given && !has(args, &["-p", "-v", "-a", "-S", "--verbose"]) =>
        {
            Some(Word::default())
        }
        "cd" if !args.iter().any(|word| word.known() == Some("-")) => Some(Word::default()),
        "realpath" => resolved_path(segment),
        "readlink" if has(args, &["-f", "-e", "-m", "--canonicalize"]) => resolved_path(segment),
        "dirname" => parent_path(segment),
        "which" => program_path(args),
        "command" | "type" if has(args, &["-v", "-p", "-P"]) => program_path(args),
        "base64" | "openssl" | "gbase64" if has(args, &["-d", "-D", "--decode"]) => decoded(base64),
        "xxd" if has(args, &["-r"]) => decoded(hex),
        "rev" if !operands_given => decoded(|text| {
            let lines: Vec<String> = text.lines().map(|line| line.chars().rev().collect()).collect();
            Some(lines.join("\n"))
        }),
        _ => None,
    };
    let mut programs = segment.stdin.programs.clone();
    if !segment.name.is_empty() && text.is_none() && programs.len() < 16 {
        let is_unquoted = segment.name == "getopt"
            && (!has(args, &["-o", "--options"]) || has(args, &["-u", "--unquoted"]));
        programs.push(if is_unquoted { UNQUOTED.to_owned() } else { segment.name.clone() });
    }
    if text.is_some() && !segment.stdin.is_piped() {
        programs.clear();
    }
    PipeData { text, programs, file: None }
}

/// Stands among the programs of an output for a `git ls-files` that names nothing above.
const TRACKED_FILES: &str = "git ls-files";

/// Stands among them for the number of a commit.
const COMMIT: &str = "git rev-parse";

/// What `git` prints, where that is known better than that it comes from git.
fn git_output(segment: &Segment) -> Option<&'static str> {
    match segment.args.as_slice() {
        _ if segment.name != "git" => None,
        args if prints_hash(args) => Some(COMMIT),
        args if lists_below(args) => Some(TRACKED_FILES),
        _ => None,
    }
}

/// Whether this is the number of a commit, which is a plain word in every language.
pub(super) fn is_commit(unknown: &Unknown) -> bool {
    matches!(unknown, Unknown::Output(programs) if matches!(programs.as_slice(), [only] if only == COMMIT))
}

/// The value of each word of a list of files, if all of them lie below the working directory.
pub(super) fn listed_name(list: &Word) -> Option<Word> {
    let [WordPiece::Unknown(Unknown::Output(programs))] = list.pieces() else { return None };
    let is_below = matches!(programs.as_slice(), [program] if program == TRACKED_FILES);
    is_below.then(|| Word::literal("./").followed_by(list))
}

/// Whether `git ls-files` lists names below the directory where it runs, one in each line.
fn lists_below(args: &[Word]) -> bool {
    let words: Vec<&str> = args.iter().filter_map(Word::known).collect();
    let is_plain = |word: &&str| match word.strip_prefix('-') {
        Some(option) => matches!(option, "c" | "m" | "o" | "-" | "-others" | "-exclude-standard"),
        None => !word.contains("..") && !word.starts_with(['/', ':', '~']),
    };
    words.len() == args.len()
        && matches!(words.as_slice(), ["ls-files", rest @ ..] if rest.iter().all(is_plain))
}

/// Whether `git rev-parse` prints the number of a commit.
fn prints_hash(args: &[Word]) -> bool {
    let words: Vec<&str> = args.iter().filter_map(Word::known).collect();
    words.len() == args.len()
        && match words.as_slice() {
            ["rev-parse", "HEAD"] => true,
            ["rev-parse", option, "HEAD"] => option.starts_with("--short") || *option == "--verify",
            _ => false,
        }
}

fn unknown_output(program: &str) -> Word {
    Word::unknown(Unknown::Output(vec![program.to_owned()]))
}

/// A new name in the directory that the words name.
fn temporary_name(args: &[Word]) -> Option<Word> {
    let template = operands(args, &["-p"]).into_iter().next_back().cloned();
    let mut directories = values(args, &["-p", "--tmpdir"]);
    let template = match directories.pop() {
        Some(directory) => {
            let name = template.unwrap_or_else(|| Word::literal("tmp.XXXXXXXXXX"));
            directory.followed_by(&Word::literal("/")).followed_by(&name)
        }
        None => template?,
    };
    let name = template.known()?;
    let start = name.find("XXX")?;
    name.get(..start).map(|start| Word::literal(start).followed_by(&unknown_output("mktemp")))
}

/// The absolute path of the only operand.
fn resolved_path(segment: &Segment) -> Option<Word> {
    let words = operands(&segment.args, &[]);
    let [path] = words.as_slice() else { return None };
    let path = segment.path(path);
    (!path.contains([UNKNOWN_CHAR, '*', '?', '['])).then(|| Word::literal(path))
}

/// The only operand without its last part.
fn parent_path(segment: &Segment) -> Option<Word> {
    let words = operands(&segment.args, &[]);
    let [path] = words.as_slice() else { return None };
    let path = path.known()?.trim_end_matches('/');
    let (parent, _) = path.rsplit_once('/').unwrap_or((if path.is_empty() { "" } else { "." }, ""));
    Some(Word::literal(if parent.is_empty() { "/" } else { parent }))
}

/// The path of the program that the last word names.
fn program_path(args: &[Word]) -> Option<Word> {
    let name = args.last()?.known()?;
    Some(Word::literal(if name.contains('/') { name.to_owned() } else { format!("/usr/bin/{name}") }))
}

fn echoed(args: &[Word], dialect: ShellKind) -> Word {
    // The `echo` of dash always decodes escapes, and knows no other option than `-n`.
    let (options, decodes) = if dialect == ShellKind::Sh { ("n", true) } else { ("neE", false) };
    let is_flag = |word: &&Word| {
        let flags = word.known().and_then(|text| text.strip_prefix('-')).unwrap_or_default();
        !flags.is_empty() && flags.chars().all(|char| options.contains(char))
    };
    let (flags, words) = args.split_at(args.iter().take_while(is_flag).count());
    let words = Word::joined(words);
    let decodes = decodes || has(flags, &["-e"]);
    let words = if decodes { words.map_text(|text| unescape(text, |_| false)) } else { words };
    words.followed_by(&Word::literal("\n"))
}

/// The output of `printf` for these words, when the format is plain enough.
pub(super) fn printed(args: &[Word]) -> Option<Word> {
    let args = match args.first()?.known() {
        Some("--") => args.get(1..)?,
        Some(option) if option.starts_with('-') => return None,
        _ => args,
    };
    let format = unescape(args.first()?.known()?, |_| false);
    let mut rest = args.get(1..)?.iter();
    let mut pieces: Vec<WordPiece> = Vec::new();
    // The format is used again until no argument is left.
    for _ in 0..64 {
        let before = rest.len();
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            let piece = match if char == '%' { chars.next()? } else { '\0' } {
                '\0' => Word::literal(char),
                '%' => Word::literal('%'),
                's' | 'd' | 'q' => rest.next().cloned().unwrap_or_default(),
                'b' => rest.next().cloned().unwrap_or_default().map_text(|text| unescape(text, |_| false)),
                _ => return None,
            };
            pieces.extend(piece.pieces().iter().cloned());
        }
        if rest.len() == before || rest.len() == 0 {
            return Some(Word::from_pieces(pieces));
        }
    }
    None
}

/// Decodes the escapes of `echo -e`, `printf`, `$'…'` and string literals. A backslash in front of
/// any other character stays unless `is_dropped` says otherwise.
pub(crate) fn unescape(text: &str, is_dropped: impl Fn(u8) -> bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        let Some((escape, tail)) = rest.split_first().filter(|_| *byte == b'\\') else {
            decoded.push(*byte);
            continue;
        };
        let is_octal = matches!(escape, b'0'..=b'7');
        let is_braced = *escape == b'x' && tail.starts_with(b"{");
        rest = if is_octal { rest } else { tail.get(usize::from(is_braced)..).unwrap_or_default() };
        let mut number = |radix, max_digits| {
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            let (digits, tail) = rest.split_at(rest.iter().take(max_digits).take_while(is_digit).count());
            rest = tail.strip_prefix(b"}").filter(|_| is_braced).unwrap_or(tail);
            let digits = digits.iter().filter_map(|byte| char::from(*byte).to_digit(radix));
            digits.fold(0_u32, |number, digit| number.wrapping_mul(radix).wrapping_add(digit))
        };
        let value = match escape {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'v' => 11,
            b'\\' => 92,
            b'x' => number(16, 2),
            b'0' => number(8, 4),
            b'1'..=b'7' => number(8, 3),
            b'u' => number(16, 4),
            b'U' => number(16, 8),
            b'c' if !rest.is_empty() => {
                let control = u32::from(rest.first().copied().unwrap_or_default()) & 0x1f;
                rest = rest.get(1..).unwrap_or_default();
                control
            }
            b'\n' if is_dropped(b'\n') => continue,
            other if is_dropped(*other) => u32::from(*other),
            other => {
                decoded.extend([b'\\', *other]);
                continue;
            }
        };
        match char::from_u32(value) {
            Some(char) if matches!(escape, b'u' | b'U') => decoded.extend(char.to_string().bytes()),
            _ => decoded.push(value.to_le_bytes()[0]),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Accepts what decoders accept: missing padding and left-over bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Decodes base64, or nothing when it is not.
fn base64(text: &str) -> Option<String> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let text = text.replace(|char: char| char.is_ascii_whitespace() || char == '=', "");
    let text = text.replace('-', "+").replace('_', "/");
    let (whole, _) = text.split_at_checked(text.len() - usize::from(text.len() % 4 == 1))?;
    String::from_utf8(BASE64.decode(whole).ok()?).ok()
}

fn hex(text: &str) -> Option<String> {
    let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).take(MAX_TEXT_BYTES).collect();
    let byte = |pair: &[char]| pair.iter().try_fold(0, |sum, digit| Some(sum * 16 + digit.to_digit(16)?));
    let bytes = digits.chunks(2).map(|pair| u8::try_from(byte(pair)?).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

/// Files a segment creates, whose content is not known. A slash ends the name of a directory in which
/// everything may be new.
pub(super) fn created_files(segment: &Segment) -> Vec<Word> {
    let call = Invocation::new(segment);
    let words = call.operands();
    match call.name() {
        "cp" | "mv" | "ln" | "install" => {
            let copies_program = words.iter().any(|word| crate::paths::is_program_directory(word.prefix()));
            let target = words.last().filter(|_| copies_program && words.len() > 1);
            target.map(|word| (*word).clone()).into_iter().collect()
        }
        "dd" => written_words(&call),
        "git" if call.verb() == "clone" => {
            let words = call.behind_verb().operands();
            let directory = match written_words(&call).pop() {
                Some(target) => Some(target),
                None => words.first().and_then(|address| {
                    let name = address.prefix().trim_end_matches('/').rsplit(['/', ':']).next()?;
                    Some(Word::literal(name.trim_end_matches(".git")))
                }),
            };
            directory.map(|name| name.followed_by(&Word::literal("/"))).into_iter().collect()
        }
        "tar" | "bsdtar" | "gtar" | "cpio" | "unzip" | "bsdcpio"
            if segment.stdin.programs.iter().any(|program| programs::find(program).fetches) =>
        {
            let targets = written_words(&call).into_iter().map(|word| match word.known() {
                Some(path) => Word::literal(path.strip_suffix("file").unwrap_or(path)),
                None => word.followed_by(&Word::literal("/")),
            });
            targets.collect()
        }
        name if call.program.fetches => {
            let mut files = written_words(&call);
            let by_remote_name = match name {
                "curl" => call.has(&["-O", "--remote-name", "--remote-name-all"]),
                _ => files.is_empty(),
            };
            if by_remote_name {
                files.extend(call.args.iter().filter_map(last_component));
            }
            files
        }
        _ => Vec::new(),
    }
}

/// The file name a URL would be saved under.
fn last_component(word: &Word) -> Option<Word> {
    let text = word.prefix();
    let (_, path) = text.split_once("://").unwrap_or(("", text));
    let name = path.split(['?', '#']).next()?.rsplit_once('/')?.1;
    (text.contains("://") && !name.is_empty()).then(|| Word::literal(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_as_the_programs_do() {
        assert_eq!(base64("cm0gLXJmIC8=").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("not base64!"), None);
        assert_eq!(hex("726d").as_deref(), Some("rm"));
        assert_eq!(unescape("\\x72m\\040-rf\\n", |_| false), "rm -rf\n");
        let words: Vec<Word> = ["%s%s", "r", "m"].map(Word::literal).to_vec();
        assert_eq!(printed(&words), Some(Word::literal("rm")));
    }
}
