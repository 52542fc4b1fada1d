//! The bash parser: from text to a tree of commands.
//!
//! Recursive descent over bytes, in one pass without tokens. `((` may open an arithmetic command or
//! two subshells and needs backtracking; the budget and the depth limit bound the work, so no input
//! makes the parser hang or overflow the stack.

use std::cell::OnceCell;
use std::rc::Rc;

use super::DoubtKind;
use super::budget::{Budget, MAX_DEPTH};
use super::lex::{Quoting, plain_parameter};
use super::syntax::{
    Assign, CommandNode, Compound, CompoundKind, Joint, List, ListItem, REDIRECT_SIGNS, RawRedirect, RawWord,
    RedirectOperator, Simple, SyntaxNode, WordPart, literal_text,
};

/// Words that end a list in command position.
const CLOSING_WORDS: [&str; 8] = ["then", "do", "done", "fi", "elif", "else", "esac", "}"];

/// A here-document whose body follows later.
struct PendingHereDoc {
    body: Rc<OnceCell<RawWord>>,
    delimiter: String,
    strip_tabs: bool,
    literal: bool,
}

pub(super) struct Parser<'b> {
    pub(super) text: Rc<str>,
    pub(super) at: usize,
    pub(super) budget: &'b Budget,
    pub(super) depth: usize,
    /// Whether the text is that of a quoted `$(…)`, and of the inside of `${…}`.
    pub(super) in_quotes: bool,
    pub(super) in_braces: bool,
    pending: Vec<PendingHereDoc>,
    has_continuations: bool,
}

pub(super) fn parse(text: &str, budget: &Budget, depth: usize) -> Result<List, DoubtKind> {
    let mut parser = Parser::new(text, budget, depth);
    let list = parser.list()?;
    parser.documents()?;
    if parser.peek().is_some() {
        return Err(DoubtKind::Syntax);
    }
    Ok(list)
}

impl<'b> Parser<'b> {
    pub(super) fn new(text: &str, budget: &'b Budget, depth: usize) -> Self {
        let has_continuations = text.contains("\\\n");
        Self {
            text: Rc::from(text),
            at: 0,
            budget,
            depth,
            in_quotes: false,
            in_braces: false,
            pending: Vec::new(),
            has_continuations,
        }
    }

    /// Removes the line continuations from the token at this position, before it is compared with
    /// words and signs. Where nothing is compared, [`Self::word`] and [`Self::blanks`] skip them.
    pub(super) fn join_lines(&mut self) -> Result<(), DoubtKind> {
        let mut end = self.at;
        while self.has_continuations {
            let rest = self.text.get(end..).unwrap_or_default();
            match rest.bytes().next() {
                Some(b'\\') if rest.starts_with("\\\n") => {
                    self.budget.spend(1 + self.text.len() / 64)?;
                    let joined = [self.slice(0, end), rest.get(2..).unwrap_or_default()].concat();
                    self.text = Rc::from(joined);
                }
                None | Some(b' ' | b'\t' | b'\n' | b'\'' | b'"' | b'`' | b'\\') => break,
                Some(b'#') if end > self.at + 1 => break,
                Some(_) => end += 1,
            }
            self.budget.spend(1)?;
        }
        Ok(())
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn starts(&self, text: &str) -> bool {
        self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.starts(text);
        if found {
            self.at += text.len();
        }
        found
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }

    /// Runs `read` one level deeper, or fails if the script nests too deeply.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DoubtKind>,
    ) -> Result<T, DoubtKind> {
        if self.depth >= MAX_DEPTH {
            return Err(DoubtKind::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, line continuations and comments, but no newline.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.at += 2,
                Some(b'#') if self.at_word_start() => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Skips blanks and joins the lines of the token behind them.
    fn token(&mut self) -> Result<(), DoubtKind> {
        self.blanks();
        self.join_lines()
    }

    fn at_word_start(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.as_bytes().get(at));
        before.is_none_or(|byte| b" \t\n;&|()<>".contains(byte))
    }

    /// Skips blanks and newlines, and reads the here-documents that follow a newline.
    pub(super) fn lines(&mut self) -> Result<(), DoubtKind> {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return self.join_lines();
            }
            self.at += 1;
            self.budget.spend(1)?;
            self.documents()?;
        }
    }

    /// The literal word at this position, for comparison with reserved words.
    fn bare_word(&self) -> &str {
        let bytes = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let length = bytes.iter().take(16).position(|byte| b" \t\n;&|<>()".contains(byte));
        let end = length.unwrap_or_else(|| bytes.len().min(16));
        self.text.get(self.at..self.at + end).unwrap_or_default()
    }

    /// Skips a reserved word, if it stands at this position.
    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.bare_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    /// The length of the name at this position.
    fn name_len(&self) -> usize {
        (0..).take_while(|ahead| self.peek_at(*ahead).is_some_and(is_name_byte)).count()
    }

    fn at_closer(&self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => matches!(self.peek_at(1), Some(b';' | b'&')),
            _ => CLOSING_WORDS.contains(&self.bare_word()),
        }
    }

    /// A list up to a closing word or bracket, which is not consumed.
    pub(super) fn list(&mut self) -> Result<List, DoubtKind> {
        let mut items = Vec::new();
        let mut after = Joint::Always;
        loop {
            self.lines()?;
            if self.at_closer() {
                if after != Joint::Always {
                    return Err(DoubtKind::Syntax);
                }
                return Ok(items);
            }
            let mut item = self.pipeline()?;
            self.token()?;
            item.after = std::mem::replace(&mut after, Joint::Always);
            if self.eat("&&") {
                after = Joint::And;
            } else if self.eat("||") {
                after = Joint::Or;
            } else if self.peek() == Some(b';') && !matches!(self.peek_at(1), Some(b';' | b'&')) {
                self.at += 1;
            } else if self.peek() == Some(b'&') {
                self.at += 1;
                self.background(&mut items, &mut item);
            } else if !matches!(self.peek(), None | Some(b'\n' | b')' | b';')) {
                return Err(DoubtKind::Syntax);
            }
            items.push(item);
        }
    }

    /// Puts a command in the background, with those that `&&` and `||` join to it.
    fn background(&self, items: &mut List, item: &mut ListItem) {
        if item.after != Joint::Always {
            let start = items.iter().rposition(|item| item.after == Joint::Always).unwrap_or(0);
            let mut list = items.split_off(start);
            let new =
                ListItem { pipeline: Vec::new(), background: false, after: Joint::Always, negated: false };
            list.push(std::mem::replace(item, new));
            let first = list.iter().flat_map(|item| &item.pipeline).map(|node| node.span.start).min();
            let span = first.unwrap_or(self.at)..self.at - 1;
            let command = compound(CompoundKind::Subshell, Vec::new(), vec![list]);
            item.pipeline =
                vec![SyntaxNode { command, redirects: Vec::new(), text: Rc::clone(&self.text), span }];
        }
        item.background = true;
    }

    fn pipeline(&mut self) -> Result<ListItem, DoubtKind> {
        let mut item =
            ListItem { pipeline: Vec::new(), background: false, after: Joint::Always, negated: false };
        loop {
            self.token()?;
            match self.bare_word() {
                "!" => {
                    self.at += 1;
                    item.negated = !item.negated;
                }
                "time" => {
                    let start = self.at;
                    self.at += 4;
                    self.blanks();
                    while matches!(self.bare_word(), "-p" | "--") {
                        self.at += 2;
                        self.blanks();
                    }
                    if self.peek() == Some(b'-') || self.at_closer() || self.peek() == Some(b'\n') {
                        self.at = start;
                        break;
                    }
                }
                "coproc" => {
                    self.coproc();
                    item.background = true;
                }
                _ => break,
            }
        }
        item.pipeline.push(self.command()?);
        loop {
            self.token()?;
            let with_errors = self.eat("|&");
            if with_errors {
                self.budget.uses_bash_syntax();
            }
            if self.starts("||") || !(with_errors || self.eat("|")) {
                return Ok(item);
            }
            self.lines()?;
            item.pipeline.push(self.command()?);
        }
    }

    /// Skips `coproc` and the optional name before a compound command.
    fn coproc(&mut self) {
        self.budget.uses_bash_syntax();
        self.at += "coproc".len();
        self.blanks();
        let start = self.at;
        self.at += self.name_len();
        self.blanks();
        if !matches!(self.bare_word(), "{" | "if" | "for" | "while" | "until" | "case" | "select" | "[[")
            && self.peek() != Some(b'(')
        {
            self.at = start;
        }
    }

    pub(super) fn command(&mut self) -> Result<SyntaxNode, DoubtKind> {
        self.budget.spend(4)?;
        self.nested(|parser| {
            let start = parser.at;
            let mut redirects = Vec::new();
            let command = match parser.compound()? {
                None => parser.simple(&mut redirects)?,
                Some(command) => {
                    while !matches!(command, CommandNode::Function { .. })
                        && parser.redirect(&mut redirects)?
                    {}
                    command
                }
            };
            Ok(SyntaxNode { command, redirects, text: Rc::clone(&parser.text), span: start..parser.at })
        })
    }

    /// A compound command, if one starts at this position.
    fn compound(&mut self) -> Result<Option<CommandNode>, DoubtKind> {
        if self.starts("((")
            && let Some(parts) = self.attempt_arithmetic(2)?
        {
            self.budget.uses_bash_syntax();
            let parts = vec![WordPart::Arithmetic(parts)];
            return Ok(Some(compound(CompoundKind::Test, vec![parts], Vec::new())));
        }
        if self.eat("(") {
            let list = self.closed_list(")")?;
            return Ok(Some(compound(CompoundKind::Subshell, Vec::new(), vec![list])));
        }
        if matches!(self.bare_word(), "[[" | "function" | "select") {
            self.budget.uses_bash_syntax();
        }
        let command = match self.bare_word() {
            "{" => {
                self.at += 1;
                let list = self.closed_list("}")?;
                compound(CompoundKind::Group, Vec::new(), vec![list])
            }
            "[[" => self.test()?,
            "if" => self.if_clause()?,
            word @ ("while" | "until") => {
                let kind = if word == "while" { CompoundKind::Loop } else { CompoundKind::Until };
                self.at += "while".len();
                let condition = self.list()?;
                let body = self.do_group()?;
                compound(kind, Vec::new(), vec![condition, body])
            }
            "for" => self.for_clause("for")?,
            "select" => self.for_clause("select")?,
            "case" => self.case_clause()?,
            "function" => self.function_clause()?,
            _ => return Ok(None),
        };
        Ok(Some(command))
    }

    /// A list and the bracket after it.
    pub(super) fn closed_list(&mut self, end: &str) -> Result<List, DoubtKind> {
        let list = self.list()?;
        self.expect(end)?;
        Ok(list)
    }

    fn expect(&mut self, text: &str) -> Result<(), DoubtKind> {
        if self.eat(text) { Ok(()) } else { Err(DoubtKind::Syntax) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), DoubtKind> {
        self.lines()?;
        if self.eat_word(word) { Ok(()) } else { Err(DoubtKind::Syntax) }
    }

    /// The body of a loop.
    fn do_group(&mut self) -> Result<List, DoubtKind> {
        self.blanks();
        self.eat(";");
        self.lines()?;
        if self.eat_word("{") {
            return self.closed_list("}");
        }
        self.expect_word("do")?;
        let list = self.list()?;
        self.expect_word("done")?;
        Ok(list)
    }

    fn if_clause(&mut self) -> Result<CommandNode, DoubtKind> {
        self.at += "if".len();
        let mut lists = vec![self.list()?];
        self.expect_word("then")?;
        lists.push(self.list()?);
        loop {
            self.lines()?;
            if self.eat_word("elif") {
                lists.push(self.list()?);
                self.expect_word("then")?;
            } else if !self.eat_word("else") {
                break;
            }
            lists.push(self.list()?);
        }
        self.expect_word("fi")?;
        Ok(compound(CompoundKind::If, Vec::new(), lists))
    }

    fn for_clause(&mut self, word: &str) -> Result<CommandNode, DoubtKind> {
        self.at += word.len();
        self.blanks();
        if self.starts("((") {
            self.budget.uses_bash_syntax();
            let parts = vec![WordPart::Arithmetic(self.attempt_arithmetic(2)?.ok_or(DoubtKind::Syntax)?)];
            let body = self.do_group()?;
            return Ok(compound(CompoundKind::Loop, vec![parts], vec![Vec::new(), body]));
        }
        let length = self.name_len();
        let name = self.slice(self.at, self.at + length).to_owned();
        self.budget.spend(length)?;
        self.at += length;
        self.lines()?;
        let mut words = Vec::new();
        if self.eat_word("in") {
            self.blanks();
            while !matches!(self.peek(), None | Some(b';' | b'\n' | b'&' | b'|' | b')')) {
                words.push(self.some_word()?);
                self.blanks();
            }
        } else {
            // Without `in`, the items are `"$@"`.
            words.push(vec![plain_parameter("@", true)]);
        }
        if word == "select" {
            // At the end of the input, no item is chosen.
            words.push(vec![plain_parameter("REPLY", false)]);
        }
        let body = self.do_group()?;
        Ok(compound(CompoundKind::For(name), words, vec![body]))
    }

    /// A word of at least one byte.
    fn some_word(&mut self) -> Result<RawWord, DoubtKind> {
        let start = self.at;
        let word = self.word()?;
        if self.at == start { Err(DoubtKind::Syntax) } else { Ok(word) }
    }

    fn case_clause(&mut self) -> Result<CommandNode, DoubtKind> {
        self.at += "case".len();
        self.blanks();
        let mut words = vec![self.word()?];
        self.expect_word("in")?;
        let mut lists = Vec::new();
        let (mut falls_through, mut complete) = (false, false);
        loop {
            self.lines()?;
            if self.eat_word("esac") {
                let kind = CompoundKind::Case { falls_through, complete };
                return Ok(compound(kind, words, lists));
            }
            self.eat("(");
            loop {
                self.blanks();
                words.push(self.word()?);
                complete |= words
                    .last()
                    .is_some_and(|word| matches!(word.as_slice(), [WordPart::Text(star)] if star == "*"));
                self.blanks();
                if !self.eat("|") {
                    break;
                }
            }
            self.expect(")")?;
            lists.push(self.list()?);
            if self.eat(";;&") || self.eat(";&") {
                self.budget.uses_bash_syntax();
                falls_through = true;
            } else {
                self.eat(";;");
            }
        }
    }

    /// `[[ … ]]`: only the expansions inside matter, but anything that bash rejects is an error.
    fn test(&mut self) -> Result<CommandNode, DoubtKind> {
        self.at += "[[".len();
        let mut words = Vec::new();
        // A line may only end where no operand is open.
        let (mut after_sign, mut is_regex) = (true, false);
        loop {
            let start = self.at;
            self.lines()?;
            let is_sign = self.starts("&&") || self.starts("||");
            let is_bracket = matches!(self.peek(), Some(b'(' | b')')) && !is_regex;
            let is_end = self.bare_word() == "]]";
            if self.slice(start, self.at).contains('\n') && !(after_sign || is_sign || is_bracket || is_end) {
                return Err(DoubtKind::Syntax);
            }
            after_sign = is_sign || is_bracket;
            if is_end {
                self.at += "]]".len();
                return Ok(compound(CompoundKind::Test, words, Vec::new()));
            } else if std::mem::take(&mut is_regex) {
                words.push(self.regex()?);
            } else if is_sign {
                self.at += 2;
            } else if is_bracket || matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) != Some(b'(')
            {
                self.at += 1;
            } else {
                let word = self.some_word()?;
                is_regex = literal_text(&word) == Some("=~");
                words.push(word);
            }
        }
    }

    /// The word after `=~`, in which brackets and bars are plain.
    fn regex(&mut self) -> Result<RawWord, DoubtKind> {
        let mut parts = Vec::new();
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                None => return Err(DoubtKind::Syntax),
                Some(b' ' | b'\t' | b'\n') if depth == 0 => return Ok(parts),
                Some(b'\n' | b';' | b'&') if depth == 0 => return Err(DoubtKind::Syntax),
                Some(b'(') => depth += 1,
                Some(b')') => depth = depth.checked_sub(1).ok_or(DoubtKind::Syntax)?,
                Some(b'|' | b'<' | b'>' | b' ' | b'\t' | b';' | b'&' | b'\n') => {}
                Some(_) => {
                    self.part(Quoting::Bare, &mut parts, b"()|<>;& \t\n")?;
                    continue;
                }
            }
            self.at += 1;
            self.budget.spend(1)?;
        }
    }

    fn function_clause(&mut self) -> Result<CommandNode, DoubtKind> {
        self.at += "function".len();
        self.blanks();
        let start = self.at;
        self.word()?;
        let name = self.slice(start, self.at).to_owned();
        self.blanks();
        self.function_body(name)
    }

    fn function_body(&mut self, name: String) -> Result<CommandNode, DoubtKind> {
        if self.eat("(") {
            self.blanks();
            self.expect(")")?;
        }
        self.lines()?;
        let body = Rc::new(self.command()?);
        Ok(CommandNode::Function { name, body })
    }

    fn simple(&mut self, redirects: &mut Vec<RawRedirect>) -> Result<CommandNode, DoubtKind> {
        let start = self.at;
        let mut simple = Simple::default();
        loop {
            if self.redirect(redirects)? {
                continue;
            }
            match self.peek() {
                Some(b'(')
                    if simple.words.len() == 1 && simple.assigns.is_empty() && redirects.is_empty() =>
                {
                    let name = self.slice(start, self.at).trim_end().to_owned();
                    return self.function_body(name);
                }
                Some(b'(') => return Err(DoubtKind::Syntax),
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                _ => {}
            }
            if simple.words.is_empty()
                && let Some(assign) = self.assignment()?
            {
                simple.assigns.push(assign);
                continue;
            }
            let word_start = self.at;
            let mut word = self.word()?;
            if self.peek() == Some(b'(') && self.slice(word_start, self.at).ends_with('=') {
                for element in self.array()? {
                    word.push(WordPart::Quoted(" ".to_owned()));
                    word.extend(element);
                }
            }
            simple.words.push(word);
        }
        if simple.words.is_empty() && simple.assigns.is_empty() && redirects.is_empty() {
            return Err(DoubtKind::Syntax);
        }
        Ok(CommandNode::Simple(simple))
    }

    /// `name=`, `name+=` or `name[index]=` before a command.
    fn assignment(&mut self) -> Result<Option<Assign>, DoubtKind> {
        let start = self.at;
        let length = self.name_len();
        if length == 0 || self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Ok(None);
        }
        self.budget.spend(length)?;
        let name = self.slice(start, start + length).to_owned();
        self.at += length;
        let mut index = Vec::new();
        if self.eat("[") {
            self.budget.uses_bash_syntax();
            index = self.nested(|parser| parser.parts_until(b']', Quoting::Bare))?;
        }
        let append = self.eat("+=");
        if append {
            self.budget.uses_bash_syntax();
        }
        if !append && !self.eat("=") {
            self.at = start;
            return Ok(None);
        }
        let is_array = self.peek() == Some(b'(');
        let values = if is_array { self.array()? } else { vec![self.word()?] };
        Ok(Some(Assign { name, append, index, is_array, values }))
    }

    fn array(&mut self) -> Result<Vec<RawWord>, DoubtKind> {
        self.budget.uses_bash_syntax();
        self.expect("(")?;
        let mut words = Vec::new();
        self.lines()?;
        while !self.eat(")") {
            words.push(self.some_word()?);
            self.lines()?;
        }
        Ok(words)
    }

    /// A redirection, if there is one behind the blanks.
    fn redirect(&mut self, into: &mut Vec<RawRedirect>) -> Result<bool, DoubtKind> {
        self.token()?;
        let start = self.at;
        let descriptor = self.descriptor();
        let operator = REDIRECT_SIGNS.iter().copied().find(|(text, _)| self.starts(text));
        let process = matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) == Some(b'(');
        let Some((text, mut operator)) = operator.filter(|_| !process) else {
            self.at = start;
            return Ok(false);
        };
        self.budget.spend(2)?;
        if matches!(text, "<<<" | "&>" | "&>>")
            || descriptor.as_deref().is_some_and(|text| text.starts_with('{'))
        {
            self.budget.uses_bash_syntax();
        }
        self.at += text.len();
        self.blanks();
        let target = if operator == RedirectOperator::HereDocument {
            self.document(text == "<<-")?
        } else {
            let target_start = self.at;
            let word = if operator == RedirectOperator::Duplicate && self.eat("-") {
                vec![WordPart::Text("-".to_owned())]
            } else {
                self.some_word()?
            };
            let target = self.slice(target_start, self.at);
            let to_descriptor = target.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            if operator == RedirectOperator::Duplicate && text == ">&" && !to_descriptor {
                operator = RedirectOperator::Both;
                self.budget.uses_bash_syntax();
            }
            Rc::new(OnceCell::from(word))
        };
        into.push(RawRedirect { descriptor, operator, target });
        Ok(true)
    }

    /// The digits or `{name}` directly before a redirection.
    fn descriptor(&mut self) -> Option<String> {
        let rest = self.text.get(self.at..)?;
        let operator = rest.bytes().take(64).position(|byte| matches!(byte, b'<' | b'>'))?;
        let text = rest.get(..operator)?;
        let name = text.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        let fits = match name {
            Some(name) => name.bytes().all(is_name_byte),
            None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        };
        let descriptor = fits.then(|| text.to_owned())?;
        self.at += operator;
        Some(descriptor)
    }

    /// Reads the delimiter of a here-document and registers its body.
    fn document(&mut self, strip_tabs: bool) -> Result<Rc<OnceCell<RawWord>>, DoubtKind> {
        let word = self.some_word()?;
        let literal = word.iter().any(|part| matches!(part, WordPart::Quoted(_)));
        let texts = word.iter().map(|part| literal_text(std::slice::from_ref(part)));
        let delimiter = texts.collect::<Option<String>>().ok_or(DoubtKind::Syntax)?;
        let body = Rc::new(OnceCell::new());
        self.pending.push(PendingHereDoc { body: Rc::clone(&body), delimiter, strip_tabs, literal });
        Ok(body)
    }

    /// A line of a here-document, joined with the next ones as long as a backslash ends it.
    fn document_line(&mut self, literal: bool) -> Result<String, DoubtKind> {
        let mut joined = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let line = rest.split_inclusive('\n').next().unwrap_or_default();
            self.at += line.len();
            self.budget.spend(1 + line.len() / 8)?;
            let head = line.strip_suffix('\n').unwrap_or_default();
            let backslashes = head.len() - head.trim_end_matches('\\').len();
            if literal || backslashes % 2 == 0 {
                joined.push_str(line);
                return Ok(joined);
            }
            joined.extend(head.get(..head.len() - 1));
        }
    }

    /// Reads the bodies of the here-documents opened on the line that just ended.
    fn documents(&mut self) -> Result<(), DoubtKind> {
        for pending in std::mem::take(&mut self.pending) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let line = self.document_line(pending.literal)?;
                let line = line.as_str();
                let shown = if pending.strip_tabs { line.trim_start_matches('\t') } else { line };
                if shown.strip_suffix('\n').unwrap_or(shown) == pending.delimiter {
                    break;
                }
                body.push_str(shown);
            }
            let parts = if pending.literal {
                vec![WordPart::Quoted(body)]
            } else {
                let mut inner = Parser::new(&body, self.budget, self.depth);
                inner.nested(|parser| parser.parts_to_end(Quoting::Document))?
            };
            // Each body is registered once, so the cell is empty.
            pending.body.get_or_init(|| parts);
        }
        Ok(())
    }
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn compound(kind: CompoundKind, words: Vec<RawWord>, lists: Vec<List>) -> CommandNode {
    CommandNode::Compound(Compound { kind, words, lists })
}
