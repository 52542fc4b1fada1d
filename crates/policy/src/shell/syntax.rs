//! The tree of a script: what the parser found, before anything is expanded.
//!
//! The tree is as flat as judging allows: an `if`, a loop and a group differ only in the lists they hold, because
//! every list of every branch is judged.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// Commands that run one after another.
#[derive(Debug, Default)]
pub(super) struct List(pub(super) Vec<Item>);

/// One pipeline of a list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) pipeline: Vec<Node>,
    /// Ended by a single `&`.
    pub(super) background: bool,
    /// Stands behind `&&` or `||`, so it may not run at all.
    pub(super) conditional: bool,
}

/// One command of a pipeline, with where it stands in the text it was read from.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) command: Command,
    pub(super) redirects: Vec<Redirect>,
    pub(super) text: Rc<str>,
    pub(super) span: Range<usize>,
}

#[derive(Debug)]
pub(super) enum Command {
    Simple(Simple),
    Compound(Compound),
    Function { name: String, body: Rc<Node> },
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assigns: Vec<Assign>,
    pub(super) words: Vec<Word>,
}

/// Any command that holds lists.
#[derive(Debug)]
pub(super) struct Compound {
    pub(super) kind: Kind,
    /// The variable of `for` and `select`.
    pub(super) variable: Option<String>,
    /// Items of `for`, the subject and patterns of `case`, the operands of `[[` and `((`.
    pub(super) words: Vec<Word>,
    pub(super) lists: Vec<List>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Group,
    Subshell,
    If,
    Loop,
    For,
    Case,
    Test,
    Arithmetic,
}

#[derive(Debug)]
pub(super) struct Assign {
    pub(super) name: String,
    pub(super) append: bool,
    pub(super) index: Vec<Part>,
    pub(super) value: AssignValue,
}

#[derive(Debug)]
pub(super) enum AssignValue {
    Scalar(Word),
    Array(Vec<Word>),
}

#[derive(Debug)]
pub(super) struct Redirect {
    /// The number, or the name in `{name}>`, in front of the operator.
    pub(super) descriptor: Option<String>,
    pub(super) operator: Operator,
    pub(super) target: Target,
}

#[derive(Debug)]
pub(super) enum Target {
    Word(Word),
    /// The body of a here-document, filled in when the parser reaches it.
    Body(Rc<OnceCell<Word>>),
}

/// What a redirection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
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

impl Operator {
    /// How it is written.
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

/// One shell word, still unexpanded.
#[derive(Debug, Default, Clone)]
pub(super) struct Word {
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Unquoted text: braces, tildes and patterns in it are live.
    Text(String),
    /// Text that stands for itself.
    Quoted(String),
    Parameter(Rc<Parameter>),
    /// `$( )`, backquotes and `${ ; }`.
    Command {
        list: Rc<List>,
        quoted: bool,
    },
    /// `$(( ))` and what is expanded inside.
    Arithmetic(Vec<Part>),
    /// `<( )` and `>( )`.
    Process(Rc<List>),
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) index: Vec<Part>,
    pub(super) argument: Vec<Part>,
    pub(super) quoted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `$x`, `${x}`
    Plain,
    /// `${x-word}`, `${x=word}` and their colon forms
    Default,
    /// `${x+word}`
    Alternative,
    /// Anything whose value is not computed here.
    Computed,
}
