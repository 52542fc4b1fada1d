//! The syntax tree of a script, before expansion.
//!
//! The tree is flat: an `if`, a loop and a group differ only in their lists, because the gate
//! judges every list of every branch.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// Commands that run in sequence.
#[derive(Debug, Default)]
pub(super) struct List(pub(super) Vec<ListItem>);

/// One pipeline of a list.
#[derive(Debug)]
pub(super) struct ListItem {
    pub(super) pipeline: Vec<SyntaxNode>,
    /// Ended by a single `&`.
    pub(super) background: bool,
    /// Follows `&&` or `||`, so it may not run at all.
    pub(super) conditional: bool,
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
    /// The variable of `for` and `select`.
    pub(super) variable: Option<String>,
    /// Items of `for`, the subject and patterns of `case`, the operands of `[[` and `((`.
    pub(super) words: Vec<RawWord>,
    pub(super) lists: Vec<List>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompoundKind {
    Group,
    Subshell,
    Loop,
    For,
    /// `if`, `case`, `[[` and `((`: each list may or may not run.
    Branches,
}

#[derive(Debug)]
pub(super) struct Assign {
    pub(super) name: String,
    pub(super) append: bool,
    pub(super) index: Vec<WordPart>,
    pub(super) value: AssignValue,
}

#[derive(Debug)]
pub(super) enum AssignValue {
    Scalar(RawWord),
    Array(Vec<RawWord>),
}

#[derive(Debug)]
pub(super) struct RawRedirect {
    /// The number, or the name in `{name}>`, before the operator.
    pub(super) descriptor: Option<String>,
    pub(super) operator: RedirectOperator,
    pub(super) target: RedirectTarget,
}

#[derive(Debug)]
pub(super) enum RedirectTarget {
    Word(RawWord),
    /// The body of a here-document, set when the parser reaches it.
    Body(Rc<OnceCell<RawWord>>),
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
}

impl RedirectOperator {
    /// Whether it writes output to a file.
    pub(crate) fn is_output(self) -> bool {
        matches!(self, Self::Write | Self::Append | Self::Both)
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Read => "<",
            Self::Write => ">",
            Self::Append => ">>",
            Self::ReadWrite => "<>",
            Self::Duplicate => ">&",
            Self::Both => "&>",
            Self::HereString => "<<<",
            Self::HereDocument => "<<",
        }
    }
}

/// A word before expansion.
#[derive(Debug, Default, Clone)]
pub(super) struct RawWord {
    pub(super) parts: Vec<WordPart>,
}

impl RawWord {
    /// The text, if it is literal and in one part.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [WordPart::Text(text) | WordPart::Quoted(text)] => Some(text),
            _ => None,
        }
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
    Arithmetic(Vec<WordPart>),
    /// `<( )` and `>( )`.
    Process(Rc<List>),
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) form: ParameterForm,
    pub(super) index: Vec<WordPart>,
    pub(super) argument: Vec<WordPart>,
    pub(super) quoted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterForm {
    /// `$x`, `${x}`
    Plain,
    /// `${x-word}`, `${x=word}` and their colon forms
    Default,
    /// `${x+word}`
    Alternative,
    /// Any form whose value is not computed here.
    Computed,
}
