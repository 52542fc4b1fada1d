//! Prints a turn while it runs: the answer on stdout, everything else on stderr.
//!
//! On a terminal the running calls are one line at the bottom, which is erased when they finish.
//! Elsewhere nothing is erased.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_agent::TurnEvent;
use hermes_types::CallId;

use crate::screen::{ERASE_LINE, Screen, Tone, one_line, write_stderr};
use crate::terminal;

const MAX_IMAGE_CHARS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewMode {
    pub(crate) output: OutputKind,
    /// The answer is printed while it is generated, with the text before tool calls. Otherwise the
    /// caller prints it, and text before tool calls is printed as a note.
    pub(crate) is_answer_streamed: bool,
    pub(crate) is_reasoning_shown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// A terminal on which lines can be erased.
    Terminal,
    /// A terminal that can only print.
    Dumb,
    /// Not a terminal.
    Pipe,
}

pub(crate) struct TurnView {
    screen: Screen,
    state: Mutex<ViewState>,
}

impl TurnView {
    pub(crate) fn new(screen: Screen, mode: ViewMode) -> Self {
        Self { screen, state: Mutex::new(ViewState::new(screen, mode)) }
    }

    /// A view that shows only questions and erases nothing.
    pub(crate) fn plain(screen: Screen) -> Self {
        let output = OutputKind::Dumb;
        Self::new(screen, ViewMode { output, is_answer_streamed: false, is_reasoning_shown: false })
    }

    pub(crate) fn show_event(&self, event: &TurnEvent) {
        self.update(|state| state.on_event(event));
    }

    /// Prints something that is not part of the answer.
    pub(crate) fn print_note(&self, text: &str) {
        self.update(|state| state.note(text));
    }

    /// Ends what is shown.
    pub(crate) fn finish(&self) {
        self.update(ViewState::finish);
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut ViewState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.width = terminal::columns().max(20);
        change(&mut state);
        for piece in std::mem::take(&mut state.output) {
            match piece {
                // A turn goes on if stdout is closed: its text is stored.
                OutputPiece::Out(text) => drop(self.screen.text(&text)),
                OutputPiece::Err(text) => write_stderr(&text),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionEnd {
    /// A line was typed here.
    AnsweredHere,
    /// The prompt is still on the screen.
    AnsweredElsewhere,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OutputPiece {
    Out(String),
    Err(String),
}

/// The content of the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLine {
    Nothing,
    Answer,
    Reasoning,
    Calls,
    Prompt,
}

pub(crate) struct ViewState {
    screen: Screen,
    mode: ViewMode,
    width: usize,
    last: LastLine,
    /// Running calls and their summaries.
    running: Vec<(CallId, String)>,
    /// The image that is being pulled, and the progress.
    pulling: Option<String>,
    /// Text that may turn out not to be the answer.
    held: String,
    /// Output that was not written yet.
    output: Vec<OutputPiece>,
}

impl ViewState {
    fn new(screen: Screen, mode: ViewMode) -> Self {
        Self {
            screen,
            mode,
            width: terminal::DEFAULT_COLUMNS,
            last: LastLine::Nothing,
            running: Vec::new(),
            pulling: None,
            held: String::new(),
            output: Vec::new(),
        }
    }

    fn on_event(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::ReplyStarted { .. } => {}
            TurnEvent::Text(text) if !self.mode.is_answer_streamed => self.held.push_str(text),
            TurnEvent::Text(text) => self.stream_text(text, LastLine::Answer),
            TurnEvent::Reasoning(_) if !self.mode.is_reasoning_shown => {}
            TurnEvent::Reasoning(text) => self.stream_text(text, LastLine::Reasoning),
            TurnEvent::Retrying { reason, delay } => {
                let reason = one_line(reason, 200);
                self.note(&self.quiet(&format!("{reason}; retrying in {}", format_duration(*delay))));
            }
            TurnEvent::Fallback { from, to } => {
                self.note(&self.quiet(&format!("{from} failed, trying {to}")));
            }
            TurnEvent::Pulling { image, bytes, total } => self.on_pull(image, *bytes, *total),
            TurnEvent::Pulled { image, succeeded, elapsed } => {
                self.pulling = None;
                let result = if *succeeded { "pulled" } else { "could not pull" };
                let image = one_line(image, MAX_IMAGE_CHARS);
                self.note_result(*succeeded, &format!("{result} {image}"), &format_duration(*elapsed));
            }
            TurnEvent::ToolStarted { call, tool, preview } => {
                let is_bare = preview == tool || preview.is_empty();
                let about = if is_bare { tool.clone() } else { format!("{tool}  {preview}") };
                self.running.push((call.clone(), about));
                match std::mem::take(&mut self.held).trim() {
                    "" => self.begin_line(),
                    text => self.note(&self.quiet(&strip_controls(text))),
                }
                self.draw_running();
            }
            TurnEvent::ToolFinished { call, tool, succeeded, elapsed, preview } => {
                let known = self.running.iter().position(|(running, _)| running == call);
                let about = known.map_or_else(|| tool.clone(), |at| self.running.remove(at).1);
                let result = format!("{}  {preview}", format_duration(*elapsed));
                self.note_result(*succeeded, &about, &result);
            }
        }
    }

    /// Shows the progress of a pull: one line, redrawn where lines can be erased.
    fn on_pull(&mut self, image: &str, bytes: u64, total: u64) {
        let mut text = format!("pulling {}", one_line(image, MAX_IMAGE_CHARS));
        if self.pulling.is_none() && self.mode.output != OutputKind::Terminal {
            self.pulling = Some(text.clone());
            return self.note(&self.quiet(&format!("  {text}")));
        }
        if total > 0 {
            let percent = u128::from(bytes) * 100 / u128::from(total);
            text.push_str(&format!(" {} %", percent.min(100)));
        }
        if self.pulling.as_ref() == Some(&text) {
            return;
        }
        self.pulling = Some(text);
        // After other lines, it is drawn when the line is free again.
        if self.last == LastLine::Calls {
            self.begin_line();
        }
        self.draw_running();
    }

    /// Prints more of a streamed text.
    fn stream_text(&mut self, text: &str, kind: LastLine) {
        if self.last != kind {
            self.begin_line();
        }
        let shown = if self.mode.output == OutputKind::Pipe { text.to_owned() } else { strip_controls(text) };
        self.last = if shown.ends_with('\n') || shown.is_empty() { LastLine::Nothing } else { kind };
        match kind {
            LastLine::Reasoning => self.write_err(self.quiet(&shown)),
            _ => self.output.push(OutputPiece::Out(shown)),
        }
    }

    /// Prints how something ended.
    fn note_result(&mut self, succeeded: bool, what: &str, details: &str) {
        let (tone, mark) = if succeeded { (Tone::Good, "✓") } else { (Tone::Bad, "✗") };
        let line = format!("  {} {what}  {}", self.screen.paint(tone, mark), self.quiet(details));
        self.note(line.trim_end());
    }

    fn note(&mut self, text: &str) {
        self.begin_line();
        self.write_err(format!("{text}\n"));
        self.draw_running();
    }

    pub(crate) fn ask(&mut self, text: &str, prompt: &str) {
        self.begin_line();
        self.write_err(format!("{text}\n{prompt} "));
        self.last = LastLine::Prompt;
    }

    pub(crate) fn end_question(&mut self, end: QuestionEnd) {
        if self.last == LastLine::Prompt {
            match end {
                // The echoed newline has ended the line.
                QuestionEnd::AnsweredHere => self.last = LastLine::Nothing,
                QuestionEnd::AnsweredElsewhere => self.begin_line(),
            }
            self.draw_running();
        }
    }

    pub(crate) fn end_echoed_line(&mut self) {
        if self.last == LastLine::Nothing && self.mode.output != OutputKind::Pipe {
            self.write_err("\n".to_owned());
        }
    }

    fn finish(&mut self) {
        self.running.clear();
        self.pulling = None;
        self.held.clear();
        self.begin_line();
    }

    /// Ends or erases the last line.
    fn begin_line(&mut self) {
        match std::mem::replace(&mut self.last, LastLine::Nothing) {
            LastLine::Nothing => {}
            LastLine::Answer => self.output.push(OutputPiece::Out("\n".to_owned())),
            LastLine::Reasoning | LastLine::Prompt => self.write_err("\n".to_owned()),
            LastLine::Calls => self.write_err(ERASE_LINE.to_owned()),
        }
    }

    /// Draws the line of running calls, where it can be erased.
    fn draw_running(&mut self) {
        if self.mode.output != OutputKind::Terminal || self.last != LastLine::Nothing {
            return;
        }
        let line = match (self.running.as_slice(), &self.pulling) {
            ([], None) => return,
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
        self.write_err(self.quiet(&one_line(&line, self.width.saturating_sub(1))));
    }

    fn write_err(&mut self, text: String) {
        self.output.push(OutputPiece::Err(text));
    }

    fn quiet(&self, text: &str) -> String {
        self.screen.paint(Tone::Quiet, text)
    }
}

/// Removes control characters, so that a model's text cannot move the cursor or change colors.
fn strip_controls(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn format_duration(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0..60 => format!("{:.1}s", elapsed.as_secs_f64()),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::screen::OutputFormat;

    fn lines(output: OutputKind, is_answer_streamed: bool) -> ViewState {
        let screen =
            Screen::new(OutputFormat::Text, &BTreeMap::from([("NO_COLOR".to_owned(), "1".to_owned())]));
        ViewState::new(screen, ViewMode { output, is_answer_streamed, is_reasoning_shown: false })
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

    /// The output on stdout and on stderr.
    fn played(lines: &mut ViewState, events: &[TurnEvent]) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        events.iter().for_each(|event| lines.on_event(event));
        for piece in std::mem::take(&mut lines.output) {
            match piece {
                OutputPiece::Out(text) => out.push_str(&text),
                OutputPiece::Err(text) => err.push_str(&text),
            }
        }
        (out, err)
    }

    #[test]
    fn on_a_pipe_each_finished_call_is_one_line() {
        let events = [
            TurnEvent::Text("I look.".to_owned()),
            calling("a"),
            calling("b"),
            called("b", false),
            called("a", true),
            TurnEvent::Text("It ".to_owned()),
            TurnEvent::Text("is\u{1b}[2J so.\n".to_owned()),
        ];
        let shown = played(&mut lines(OutputKind::Pipe, true), &events);
        let out = "I look.\nIt is\u{1b}[2J so.\n";
        let err = "  ✗ terminal  do b  1.2s  done\n  ✓ terminal  do a  1.2s  done\n";
        assert_eq!(shown, (out.to_owned(), err.to_owned()));
    }

    #[test]
    fn on_a_terminal_running_calls_are_a_line_that_is_erased() {
        let events = [calling("a"), calling("b"), called("a", true), called("b", true)];
        let (out, err) = played(&mut lines(OutputKind::Terminal, true), &events);
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
    fn a_pull_is_shown_in_the_line_of_running_calls() {
        let steps = [calling("a"), pulling(0, 0), pulling(1, 3), pulling(1, 3), pulling(9, 3), pulled(true)];
        let (out, err) = played(&mut lines(OutputKind::Terminal, true), &steps);
        assert_eq!(out, "");
        let expected = format!(
            "  … terminal  do a{ERASE_LINE}  … pulling debian:12, for terminal  do a{ERASE_LINE}  … pulling debian:12 33 %, for \
             terminal  do a{ERASE_LINE}  … pulling debian:12 100 %, for terminal  do a{ERASE_LINE}  ✓ pulled debian:12  9.0s\n  \
             … terminal  do a"
        );
        assert_eq!(err, expected);
        // A shell command of the user is not a call.
        let steps = [pulling(0, 0), pulling(1, 2), pulled(false)];
        let (_, err) = played(&mut lines(OutputKind::Terminal, true), &steps);
        let expected = format!(
            "  … pulling debian:12{ERASE_LINE}  … pulling debian:12 50 %{ERASE_LINE}  ✗ could not pull debian:12  9.0s\n"
        );
        assert_eq!(err, expected);
    }

    #[test]
    fn elsewhere_a_pull_is_printed_when_it_starts_and_ends() {
        for output in [OutputKind::Pipe, OutputKind::Dumb] {
            let steps =
                [calling("a"), pulling(0, 0), pulling(1, 2), pulling(2, 2), pulled(true), called("a", true)];
            let (out, err) = played(&mut lines(output, false), &steps);
            let expected =
                "  pulling debian:12\n  ✓ pulled debian:12  9.0s\n  ✓ terminal  do a  1.2s  done\n";
            assert_eq!((out.as_str(), err.as_str()), ("", expected));
        }
    }

    #[test]
    fn text_cannot_move_the_cursor_of_a_terminal() {
        let events = [TurnEvent::Text("a\u{1b}[2J\u{9b}b\tc\r\n".to_owned())];
        let (out, _) = played(&mut lines(OutputKind::Terminal, true), &events);
        assert_eq!(out, "a[2Jb\tc\n");
    }

    #[test]
    fn text_before_calls_is_a_note_when_the_caller_prints_the_answer() {
        let events = [
            TurnEvent::Text("I look.".to_owned()),
            calling("a"),
            called("a", true),
            TurnEvent::Text("The answer.".to_owned()),
        ];
        let (out, err) = played(&mut lines(OutputKind::Pipe, false), &events);
        assert_eq!((out.as_str(), err.as_str()), ("", "I look.\n  ✓ terminal  do a  1.2s  done\n"));
    }

    #[test]
    fn nothing_is_drawn_over_a_question() {
        let mut lines = lines(OutputKind::Terminal, true);
        let mut shown = |change: &dyn Fn(&mut ViewState)| {
            change(&mut lines);
            let text = |piece| match piece {
                OutputPiece::Out(text) | OutputPiece::Err(text) => text,
            };
            std::mem::take(&mut lines.output).into_iter().map(text).collect::<String>()
        };
        assert_eq!(shown(&|lines| lines.on_event(&calling("a"))), "  … terminal  do a");
        let asked = shown(&|lines| lines.ask("rm -rf x", "run it?"));
        assert_eq!(asked, format!("{ERASE_LINE}rm -rf x\nrun it? "));
        let answered = shown(&|lines| lines.end_question(QuestionEnd::AnsweredElsewhere));
        assert_eq!(answered, "\n  … terminal  do a");
        let asked = shown(&|lines| lines.ask("again", "run it?"));
        assert_eq!(asked, format!("{ERASE_LINE}again\nrun it? "));
        let answered = shown(&|lines| lines.end_question(QuestionEnd::AnsweredHere));
        assert_eq!(answered, "  … terminal  do a");
        assert_eq!(shown(&ViewState::finish), ERASE_LINE);
    }

    #[test]
    fn durations_are_short() {
        let cases =
            [(50, "0.1s"), (1_234, "1.2s"), (59_900, "59.9s"), (61_000, "1m01s"), (3_600_000, "60m00s")];
        for (millis, expected) in cases {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        }
    }
}
