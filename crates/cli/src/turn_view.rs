//! What is seen of a turn while it happens: the answer on stdout, everything else on stderr.
//!
//! On a terminal the calls under way are one line at the bottom that goes away when they are done. Elsewhere nothing is
//! ever taken back.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_agent::TurnEvent;
use hermes_types::CallId;

use crate::screen::{Screen, Tone, one_line};
use crate::terminal;

/// Back to the beginning of the line, which is made empty.
const ERASE_LINE: &str = "\r\u{1b}[K";
/// Characters of the name of an image.
const MAX_IMAGE_CHARS: usize = 100;
/// The width of a terminal that does not say.
const DEFAULT_COLUMNS: usize = 80;

/// How things are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewMode {
    /// What it is shown on.
    pub(crate) surface: OutputKind,
    /// When the answer is shown.
    pub(crate) answer: AnswerDisplay,
    /// Whether thoughts are shown.
    pub(crate) thoughts: ReasoningDisplay,
}

/// What things are shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// A terminal: lines can be taken back.
    Terminal,
    /// A terminal that says it can do nothing but print.
    Dumb,
    /// No terminal: everything is as it came.
    Pipe,
}

/// When the answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerDisplay {
    /// As it comes, with what is said on the way to it.
    Streamed,
    /// Not here: whoever had it made has it whole. What is said on the way to it is an aside.
    Withheld,
}

/// Whether thoughts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReasoningDisplay {
    /// They are.
    Shown,
    /// They are not.
    Hidden,
}

/// Where a turn is shown.
#[derive(Debug)]
pub(crate) struct TurnView {
    screen: Screen,
    lines: Mutex<ViewState>,
}

impl TurnView {
    pub(crate) fn new(screen: Screen, manner: ViewMode) -> Self {
        Self { screen, lines: Mutex::new(ViewState::new(screen, manner)) }
    }

    /// One where nothing but questions is seen, and nothing is taken back.
    pub(crate) fn plain(screen: Screen) -> Self {
        let manner = ViewMode {
            surface: OutputKind::Dumb,
            answer: AnswerDisplay::Withheld,
            thoughts: ReasoningDisplay::Hidden,
        };
        Self::new(screen, manner)
    }

    /// Shows what happens.
    pub(crate) fn show_event(&self, event: &TurnEvent) {
        self.write(self.lock_state().on_event(event));
    }

    /// Says something beside the answer.
    pub(crate) fn print_note(&self, text: &str) {
        self.write(self.lock_state().note(text));
    }

    /// Puts a question; what is typed next stands behind it. Until [`Stage::answered`] nothing is drawn over it.
    pub(crate) fn show_question(&self, text: &str, prompt: &str) {
        self.write(self.lock_state().ask(text, prompt));
    }

    /// The question is settled: the person has typed an answer, or it needs none any more.
    pub(crate) fn end_question(&self, typed: QuestionEnd) {
        self.write(self.lock_state().answered(typed));
    }

    /// A key was pressed that the terminal has shown, wherever the cursor was.
    pub(crate) fn end_echoed_line(&self) {
        self.write(self.lock_state().disturbed());
    }

    /// Ends the line that words are on, and forgets what is under way.
    pub(crate) fn finish(&self) {
        self.write(self.lock_state().finish());
    }

    fn lock_state(&self) -> MutexGuard<'_, ViewState> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.width = terminal::size().map_or(DEFAULT_COLUMNS, |size| usize::from(size.columns)).max(20);
        lines
    }

    fn write(&self, pieces: Vec<OutputPiece>) {
        for piece in pieces {
            match piece {
                // A turn goes on when nobody can see it: what was said is kept.
                OutputPiece::Out(text) => drop(self.screen.text(&text)),
                OutputPiece::Err(text) => self.screen.write_stderr(&text),
            }
        }
    }
}

/// How a question was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionEnd {
    /// Somebody typed a line here.
    AnsweredHere,
    /// It was settled elsewhere, and the prompt still stands open.
    AnsweredElsewhere,
}

/// Text and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OutputPiece {
    Out(String),
    Err(String),
}

/// What stands on the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLine {
    Nothing,
    Words,
    Thoughts,
    Calls,
    Prompt,
}

/// The lines themselves.
#[derive(Debug)]
struct ViewState {
    screen: Screen,
    manner: ViewMode,
    width: usize,
    last: LastLine,
    /// Calls under way, and what each is about.
    running: Vec<(CallId, String)>,
    /// The image that is fetched, and how far that is.
    pulling: Option<String>,
    /// What was said and may turn out not to be the answer.
    held: String,
}

impl ViewState {
    fn new(screen: Screen, manner: ViewMode) -> Self {
        let (running, pulling, held) = (Vec::new(), None, String::new());
        Self { screen, manner, width: DEFAULT_COLUMNS, last: LastLine::Nothing, running, pulling, held }
    }

    fn on_event(&mut self, event: &TurnEvent) -> Vec<OutputPiece> {
        match event {
            TurnEvent::ReplyStarted { .. } => Vec::new(),
            TurnEvent::Text(text) if self.manner.answer == AnswerDisplay::Withheld => {
                self.held.push_str(text);
                Vec::new()
            }
            TurnEvent::Text(text) => self.stream_text(text, LastLine::Words),
            TurnEvent::Reasoning(_) if self.manner.thoughts == ReasoningDisplay::Hidden => Vec::new(),
            TurnEvent::Reasoning(text) => self.stream_text(text, LastLine::Thoughts),
            TurnEvent::Retrying { reason: why, delay: wait } => {
                let why = one_line(why, 200);
                self.note(&self.quiet(&format!("{why}; retrying in {}", format_duration(*wait))))
            }
            TurnEvent::Fallback { from, to } => {
                self.note(&self.quiet(&format!("{from} failed, trying {to}")))
            }
            TurnEvent::Pulling { image, bytes, total } => self.on_pull(image, *bytes, *total),
            TurnEvent::Pulled { image, succeeded: worked, elapsed: took } => {
                self.pulling = None;
                let what = if *worked { "pulled" } else { "could not pull" };
                let took = self.quiet(&format_duration(*took));
                self.note(&format!(
                    "  {} {what} {}  {took}",
                    self.result_mark(*worked),
                    one_line(image, MAX_IMAGE_CHARS)
                ))
            }
            TurnEvent::ToolStarted { call, tool, preview } => {
                self.running.push((call.clone(), call_summary(tool, preview)));
                let held = std::mem::take(&mut self.held);
                let mut pieces = match held.trim() {
                    "" => self.begin_line(),
                    said => self.note(&self.quiet(&strip_controls(said))),
                };
                pieces.extend(self.draw_running());
                pieces
            }
            TurnEvent::ToolFinished { call, tool, succeeded: worked, elapsed: took, preview } => {
                let known = self.running.iter().position(|(running, _)| running == call);
                let about = known.map_or_else(|| tool.clone(), |at| self.running.remove(at).1);
                let mark = self.result_mark(*worked);
                let came = self.quiet(&format!("{}  {preview}", format_duration(*took)));
                self.note(&format!("  {mark} {about}  {}", came.trim_end()))
            }
        }
    }

    /// An image is fetched: said once, and drawn where it can be taken back.
    fn on_pull(&mut self, image: &str, bytes: u64, total: u64) -> Vec<OutputPiece> {
        let mut text = format!("pulling {}", one_line(image, MAX_IMAGE_CHARS));
        if self.pulling.is_none() && self.manner.surface != OutputKind::Terminal {
            self.pulling = Some(text.clone());
            return self.note(&self.quiet(&format!("  {text}")));
        }
        if total > 0 {
            let percent = u128::from(bytes) * 100 / u128::from(total);
            text.push_str(&format!(" {} %", percent.min(100)));
        }
        if self.pulling.as_ref() == Some(&text) {
            return Vec::new();
        }
        self.pulling = Some(text);
        let mut pieces = match self.last {
            LastLine::Calls | LastLine::Nothing => self.begin_line(),
            // It is drawn when there is room again.
            LastLine::Words | LastLine::Thoughts | LastLine::Prompt => Vec::new(),
        };
        pieces.extend(self.draw_running());
        pieces
    }

    fn result_mark(&self, worked: bool) -> String {
        match worked {
            true => self.screen.paint(Tone::Good, "✓"),
            false => self.screen.paint(Tone::Bad, "✗"),
        }
    }

    /// More of something that comes in pieces.
    fn stream_text(&mut self, text: &str, kind: LastLine) -> Vec<OutputPiece> {
        let mut pieces = if self.last == kind { Vec::new() } else { self.begin_line() };
        let shown =
            if self.manner.surface == OutputKind::Pipe { text.to_owned() } else { strip_controls(text) };
        self.last = if shown.ends_with('\n') || shown.is_empty() { LastLine::Nothing } else { kind };
        pieces.push(match kind {
            LastLine::Thoughts => OutputPiece::Err(self.quiet(&shown)),
            _ => OutputPiece::Out(shown),
        });
        pieces
    }

    fn note(&mut self, text: &str) -> Vec<OutputPiece> {
        let mut pieces = self.begin_line();
        pieces.push(OutputPiece::Err(format!("{text}\n")));
        pieces.extend(self.draw_running());
        pieces
    }

    fn ask(&mut self, text: &str, prompt: &str) -> Vec<OutputPiece> {
        let mut pieces = self.begin_line();
        pieces.push(OutputPiece::Err(format!("{text}\n{prompt} ")));
        self.last = LastLine::Prompt;
        pieces
    }

    fn answered(&mut self, typed: QuestionEnd) -> Vec<OutputPiece> {
        if self.last != LastLine::Prompt {
            return Vec::new();
        }
        let mut pieces = match typed {
            // The terminal has ended the line when it showed what was typed.
            QuestionEnd::AnsweredHere => {
                self.last = LastLine::Nothing;
                Vec::new()
            }
            QuestionEnd::AnsweredElsewhere => self.begin_line(),
        };
        pieces.extend(self.draw_running());
        pieces
    }

    fn disturbed(&mut self) -> Vec<OutputPiece> {
        match (self.last, self.manner.surface) {
            (LastLine::Nothing, OutputKind::Terminal | OutputKind::Dumb) => {
                vec![OutputPiece::Err("\n".to_owned())]
            }
            _ => Vec::new(),
        }
    }

    fn finish(&mut self) -> Vec<OutputPiece> {
        self.running.clear();
        self.pulling = None;
        self.held.clear();
        self.begin_line()
    }

    /// Makes the last line an empty one.
    fn begin_line(&mut self) -> Vec<OutputPiece> {
        let end = match self.last {
            LastLine::Nothing => None,
            LastLine::Words => Some(OutputPiece::Out("\n".to_owned())),
            LastLine::Thoughts | LastLine::Prompt => Some(OutputPiece::Err("\n".to_owned())),
            LastLine::Calls => Some(OutputPiece::Err(ERASE_LINE.to_owned())),
        };
        self.last = LastLine::Nothing;
        end.into_iter().collect()
    }

    /// Draws the calls under way, where they can be taken back.
    fn draw_running(&mut self) -> Option<OutputPiece> {
        if self.manner.surface != OutputKind::Terminal || self.last != LastLine::Nothing {
            return None;
        }
        let line = match (self.running.as_slice(), &self.pulling) {
            ([], None) => return None,
            ([], Some(pulling)) => format!("  … {pulling}"),
            ([(_, about)], Some(pulling)) => format!("  … {pulling}, for {about}"),
            (several, Some(pulling)) => format!("  … {pulling}, for {} at once", several.len()),
            ([(_, about)], None) => format!("  … {about}"),
            (several, None) => {
                let all: Vec<_> = several.iter().map(|(_, about)| about.as_str()).collect();
                format!("  … {} at once: {}", several.len(), all.join(", "))
            }
        };
        self.last = LastLine::Calls;
        Some(OutputPiece::Err(self.quiet(&one_line(&line, self.width.saturating_sub(1)))))
    }

    fn quiet(&self, text: &str) -> String {
        self.screen.paint(Tone::Quiet, text)
    }
}

fn call_summary(tool: &str, preview: &str) -> String {
    if preview == tool || preview.is_empty() { tool.to_owned() } else { format!("{tool}  {preview}") }
}

/// Words of a model as a terminal can show them: nothing in them moves the cursor or changes a color.
fn strip_controls(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// How long something took.
fn format_duration(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1}s", took.as_secs_f64()),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::screen::OutputFormat;

    fn lines(surface: OutputKind, answer: AnswerDisplay) -> ViewState {
        let screen =
            Screen::new(OutputFormat::Text, &BTreeMap::from([("NO_COLOR".to_owned(), "1".to_owned())]));
        ViewState::new(screen, ViewMode { surface, answer, thoughts: ReasoningDisplay::Hidden })
    }

    fn calling(id: &str) -> TurnEvent {
        TurnEvent::ToolStarted {
            call: CallId::new(id),
            tool: "terminal".to_owned(),
            preview: format!("do {id}"),
        }
    }

    fn called(id: &str, worked: bool) -> TurnEvent {
        let took = Duration::from_millis(1234);
        let (call, tool) = (CallId::new(id), "terminal".to_owned());
        TurnEvent::ToolFinished { call, tool, succeeded: worked, elapsed: took, preview: "done".to_owned() }
    }

    /// What the two streams show, one after the other as it came.
    fn played(lines: &mut ViewState, events: &[TurnEvent]) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        for piece in events.iter().flat_map(|event| lines.on_event(event)) {
            match piece {
                OutputPiece::Out(text) => out.push_str(&text),
                OutputPiece::Err(text) => err.push_str(&text),
            }
        }
        (out, err)
    }

    #[test]
    fn on_a_pipe_each_call_is_one_line_when_it_is_done() {
        let events = [
            TurnEvent::Text("I look.".to_owned()),
            calling("a"),
            calling("b"),
            called("b", false),
            called("a", true),
            TurnEvent::Text("It ".to_owned()),
            TurnEvent::Text("is\u{1b}[2J so.\n".to_owned()),
        ];
        let shown = played(&mut lines(OutputKind::Pipe, AnswerDisplay::Streamed), &events);
        let out = "I look.\nIt is\u{1b}[2J so.\n";
        let err = "  ✗ terminal  do b  1.2s  done\n  ✓ terminal  do a  1.2s  done\n";
        assert_eq!(shown, (out.to_owned(), err.to_owned()));
    }

    #[test]
    fn on_a_terminal_what_is_under_way_is_a_line_that_goes_away() {
        let events = [calling("a"), calling("b"), called("a", true), called("b", true)];
        let (out, err) = played(&mut lines(OutputKind::Terminal, AnswerDisplay::Streamed), &events);
        assert_eq!(out, "");
        let expected = format!(
            "  … terminal  do a{ERASE_LINE}  … 2 at once: terminal  do a, terminal  do b{ERASE_LINE}  ✓ terminal  do a  1.2s  \
             done\n  … terminal  do b{ERASE_LINE}  ✓ terminal  do b  1.2s  done\n"
        );
        assert_eq!(err, expected);
    }

    fn pulling(bytes: u64, total: u64) -> TurnEvent {
        TurnEvent::Pulling { image: "debian:12".to_owned(), bytes, total }
    }

    fn pulled(worked: bool) -> TurnEvent {
        TurnEvent::Pulled {
            image: "debian:12".to_owned(),
            succeeded: worked,
            elapsed: Duration::from_secs(9),
        }
    }

    #[test]
    fn a_pull_is_in_the_line_of_what_is_under_way() {
        let steps = [calling("a"), pulling(0, 0), pulling(1, 3), pulling(1, 3), pulling(9, 3), pulled(true)];
        let (out, err) = played(&mut lines(OutputKind::Terminal, AnswerDisplay::Streamed), &steps);
        assert_eq!(out, "");
        let expected = format!(
            "  … terminal  do a{ERASE_LINE}  … pulling debian:12, for terminal  do a{ERASE_LINE}  … pulling debian:12 33 %, for \
             terminal  do a{ERASE_LINE}  … pulling debian:12 100 %, for terminal  do a{ERASE_LINE}  ✓ pulled debian:12  9.0s\n  \
             … terminal  do a"
        );
        assert_eq!(err, expected);
        // A command of the person's own is no call.
        let steps = [pulling(0, 0), pulling(1, 2), pulled(false)];
        let (_, err) = played(&mut lines(OutputKind::Terminal, AnswerDisplay::Streamed), &steps);
        let expected = format!(
            "  … pulling debian:12{ERASE_LINE}  … pulling debian:12 50 %{ERASE_LINE}  ✗ could not pull debian:12  9.0s\n"
        );
        assert_eq!(err, expected);
    }

    #[test]
    fn where_nothing_is_taken_back_a_pull_is_told_when_it_begins_and_ends() {
        for surface in [OutputKind::Pipe, OutputKind::Dumb] {
            let steps =
                [calling("a"), pulling(0, 0), pulling(1, 2), pulling(2, 2), pulled(true), called("a", true)];
            let (out, err) = played(&mut lines(surface, AnswerDisplay::Withheld), &steps);
            let expected =
                "  pulling debian:12\n  ✓ pulled debian:12  9.0s\n  ✓ terminal  do a  1.2s  done\n";
            assert_eq!((out.as_str(), err.as_str()), ("", expected));
        }
    }

    #[test]
    fn words_cannot_move_the_cursor_of_a_terminal() {
        let events = [TurnEvent::Text("a\u{1b}[2J\u{9b}b\tc\r\n".to_owned())];
        let (out, _) = played(&mut lines(OutputKind::Terminal, AnswerDisplay::Streamed), &events);
        assert_eq!(out, "a[2Jb\tc\n");
    }

    #[test]
    fn what_is_said_on_the_way_is_an_aside_when_only_the_answer_is_wanted() {
        let events = [
            TurnEvent::Text("I look.".to_owned()),
            calling("a"),
            called("a", true),
            TurnEvent::Text("The answer.".to_owned()),
        ];
        let (out, err) = played(&mut lines(OutputKind::Pipe, AnswerDisplay::Withheld), &events);
        assert_eq!((out.as_str(), err.as_str()), ("", "I look.\n  ✓ terminal  do a  1.2s  done\n"));
    }

    #[test]
    fn nothing_is_drawn_over_a_question() {
        let mut lines = lines(OutputKind::Terminal, AnswerDisplay::Streamed);
        let text = |pieces: Vec<OutputPiece>| {
            let text = |piece| match piece {
                OutputPiece::Out(text) | OutputPiece::Err(text) => text,
            };
            pieces.into_iter().map(text).collect::<String>()
        };
        assert_eq!(text(lines.on_event(&calling("a"))), "  … terminal  do a");
        assert_eq!(text(lines.ask("rm -rf x", "run it?")), format!("{ERASE_LINE}rm -rf x\nrun it? "));
        assert_eq!(text(lines.answered(QuestionEnd::AnsweredElsewhere)), "\n  … terminal  do a");
        assert_eq!(text(lines.ask("again", "run it?")), format!("{ERASE_LINE}again\nrun it? "));
        assert_eq!(text(lines.answered(QuestionEnd::AnsweredHere)), "  … terminal  do a");
        assert_eq!(text(lines.finish()), ERASE_LINE);
    }

    #[test]
    fn times_are_short() {
        let cases =
            [(50, "0.1s"), (1_234, "1.2s"), (59_900, "59.9s"), (61_000, "1m01s"), (3_600_000, "60m00s")];
        for (millis, expected) in cases {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        }
    }
}
