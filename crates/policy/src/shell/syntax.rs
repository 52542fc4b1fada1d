//! The syntax tree of a script, before expansion.
//!
//! The tree is flat: an `if`, a loop and a group differ only in their lists.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// Commands that run in sequence.
pub(super) type List = Vec<ListItem>;

/// One pipeline of a list.
#[derive(Debug)]
pub(super) struct ListItem {
    pub(super) pipeline: Vec<SyntaxNode>,
    /// Ended by a single `&`.
    pub(super) background: bool,
    pub(super) after: Joint,
    /// Preceded by `!`.
    pub(super) negated: bool,
}

/// The sign in front of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joint {
    /// None, or one after which the pipeline runs in any case.
    Always,
    /// `&&`
    And,
    /// `||`
    Or,
}

/// A command of a pipeline with its position in the source text.
#[derive(Debug)]
pub(super) struct SyntaxNode {
    pub(super) command: CommandNode,
    pub(super) redirects: Vec<RawRedirect>,
    pub(super) text: Rc<str>,
    pub(super) span: Range<usize>,
}

#[derive(Debug)]
pub(super) enum CommandNode {
    Simple(Simple),
    Compound(Compound),
    Function { name: String, body: Rc<SyntaxNode> },
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assigns: Vec<Assign>,
    pub(super) words: Vec<RawWord>,
}

/// A command that contains lists.
#[derive(Debug)]
pub(super) struct Compound {
    pub(super) kind: CompoundKind,
    /// Items of `for`, the subject and patterns of `case`, the operands of `[[` and `((`.
    pub(super) words: Vec<RawWord>,
    pub(super) lists: Vec<List>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CompoundKind {
    Group,
    Subshell,
    /// `while`, and `for` with arithmetic.
    Loop,
    Until,
    /// `for` and `select`, with their variable.
    For(String),
    /// A condition and a list in turn, and the list of `else`.
    If,
    Case {
        /// Whether a list may continue with the next one.
        falls_through: bool,
        /// Whether one of the lists runs in any case.
        complete: bool,
    },
    /// `[[` and `((`
    Test,
}

#[derive(Debug)]
pub(super) struct Assign {
    pub(super) name: String,
    pub(super) append: bool,
    pub(super) index: RawWord,
    pub(super) is_array: bool,
    /// The value, or the elements of an array.
    pub(super) values: Vec<RawWord>,
}

#[derive(Debug)]
pub(super) struct RawRedirect {
    /// The number, or the name in `{name}>`, before the operator.
    pub(super) descriptor: Option<String>,
    pub(super) operator: RedirectOperator,
    /// The body of a here-document is set when the parser reaches it.
    pub(super) target: Rc<OnceCell<RawWord>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectOperator {
    /// `<`
    Read,
    /// `>`, `>|`
    Write,
    /// `>>`
    Append,
    /// `<>`
    ReadWrite,
    /// `<&` and `>&` with a descriptor
    Duplicate,
    /// `&>` and `>&` with a file
    Both,
    /// `<<<`
    HereString,
    /// `<<` and `<<-`
    HereDocument,
    /// No redirection: a program text names the file and may do anything with it.
    Mention,
}

impl RedirectOperator {
    /// Whether it writes output to a file.
    pub(crate) fn is_output(self) -> bool {
        matches!(self, Self::Write | Self::Append | Self::Both)
    }

    /// The last way to write it in [`REDIRECT_SIGNS`].
    pub(crate) fn sign(self) -> &'static str {
        let last = REDIRECT_SIGNS.iter().rfind(|(_, operator)| *operator == self);
        last.map_or("", |(sign, _)| sign)
    }
}

/// A sign stands before those that it begins with.
pub(super) const REDIRECT_SIGNS: &[(&str, RedirectOperator)] = &[
    ("<<<", RedirectOperator::HereString),
    ("<<-", RedirectOperator::HereDocument),
    ("<<", RedirectOperator::HereDocument),
    ("<>", RedirectOperator::ReadWrite),
    ("<&", RedirectOperator::Duplicate),
    (">&", RedirectOperator::Duplicate),
    (">>", RedirectOperator::Append),
    (">|", RedirectOperator::Write),
    ("&>>", RedirectOperator::Both),
    ("&>", RedirectOperator::Both),
    ("<", RedirectOperator::Read),
    (">", RedirectOperator::Write),
];

/// A word before expansion.
pub(super) type RawWord = Vec<WordPart>;

/// The text of a word that is literal and in one part.
pub(super) fn literal_text(word: &[WordPart]) -> Option<&str> {
    match word {
        [WordPart::Text(text) | WordPart::Quoted(text)] => Some(text),
        _ => None,
    }
}

#[derive(Debug, Clone)]
pub(super) enum WordPart {
    /// Unquoted text: braces, tildes and patterns in it are active.
    Text(String),
    /// Literal text.
    Quoted(String),
    Parameter(Rc<Parameter>),
    /// `$( )`, backquotes and `${ ; }`.
    Command {
        list: Rc<List>,
        quoted: bool,
    },
    /// `$(( ))` with the expansions inside.
    Arithmetic(RawWord),
    /// `<( )` and `>( )`.
    Process(Rc<List>),
}

#[derive(Debug, Default)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) form: ParameterForm,
    /// Whether an empty value counts as unset, or the longest match is removed.
    pub(super) strong: bool,
    pub(super) index: RawWord,
    pub(super) argument: RawWord,
    pub(super) quoted: bool,
    /// Whether no brace ends the name.
    pub(super) is_open: bool,
}

impl Parameter {
    /// The sign of a form that expands to several words: `$@`, `$*`, `${x[@]}` and `${x[*]}`.
    pub(super) fn several(&self) -> Option<&str> {
        let sign = if self.index.is_empty() { Some(self.name.as_str()) } else { literal_text(&self.index) };
        sign.filter(|sign| matches!(*sign, "@" | "*"))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ParameterForm {
    /// `$x`, `${x}`
    #[default]
    Plain,
    /// `${x-word}`
    Default,
    /// `${x=word}`
    Assign,
    /// `${x+word}`
    Alternative,
    /// `${x#word}` and `${x##word}`
    WithoutPrefix,
    /// `${x%word}` and `${x%%word}`
    WithoutSuffix,
    /// Any form whose value is not computed here.
    Computed,
}
