//! The status line: tool calls of a turn in one line.

use hermes_session::TurnEvent;
use hermes_types::CallId;

use super::ToolProgress;

/// Status of a turn's tool calls.
#[derive(Debug, Default)]
pub(super) struct WorkStatus {
    progress: ToolProgress,
    call_count: usize,
    /// Calls made before a restart, which may be made again.
    replayed: Vec<CallId>,
    running: Vec<(CallId, String)>,
    waiting_for: Option<String>,
}

impl WorkStatus {
    pub(super) fn new(progress: ToolProgress, before: Vec<CallId>) -> Self {
        Self { progress, call_count: before.len(), replayed: before, ..Self::default() }
    }

    pub(super) fn on_event(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolStarted { call, tool, preview } => {
                match self.replayed.iter().position(|before| before == call) {
                    Some(known) => drop(self.replayed.swap_remove(known)),
                    None => self.call_count += 1,
                }
                self.waiting_for = None;
                let about = match self.progress {
                    ToolProgress::All if preview != tool => format!("{tool} {}", as_code(preview)),
                    ToolProgress::All | ToolProgress::Names | ToolProgress::Off => tool.clone(),
                };
                self.running.push((call.clone(), about));
            }
            TurnEvent::ToolFinished { call, .. } => self.running.retain(|(other, _)| other != call),
            TurnEvent::Retrying { delay: wait, .. } => {
                self.waiting_for =
                    Some(format!("the model failed; retrying in {}", format_duration(wait.as_secs())));
            }
            TurnEvent::Fallback { to, .. } => self.waiting_for = Some(format!("switched to {}", as_code(to))),
            TurnEvent::Pulling { image, bytes, total } => {
                let percent = u128::from(*bytes) * 100 / u128::from(*total).max(1);
                let percent = if *total > 0 { format!(", {} %", percent.min(100)) } else { String::new() };
                self.waiting_for = Some(format!("pulling image {}{percent}", as_code(image)));
            }
            TurnEvent::Pulled { .. } | TurnEvent::ReplyStarted { .. } | TurnEvent::Text(_) => {
                self.waiting_for = None
            }
            TurnEvent::Reasoning(_) => {}
        }
    }

    /// The current status, or `None` if there is nothing to show.
    pub(super) fn current(&self) -> Option<String> {
        let now = self.waiting_for.clone().or_else(|| Some(format!("now {}", self.running.last()?.1)));
        match (self.progress, self.call_count, now) {
            (ToolProgress::Off, ..) | (_, 0, None) => None,
            (_, 0, Some(now)) => Some(now),
            (_, made, None) => Some(format_steps(made)),
            (_, made, Some(now)) => Some(format!("{}, {now}", format_steps(made))),
        }
    }

    pub(super) fn summary(&self, lasted: u64) -> String {
        format!("worked for {}, {}", format_duration(lasted), format_steps(self.call_count))
    }
}

fn format_steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

pub(crate) fn format_duration(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// Formats a model's text as inline code, so that it is not interpreted as markup.
fn as_code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn calling(id: &str, preview: &str) -> TurnEvent {
        TurnEvent::ToolStarted {
            call: CallId::new(id),
            tool: "terminal".to_owned(),
            preview: preview.to_owned(),
        }
    }

    fn called(id: &str) -> TurnEvent {
        let (call, tool, preview) = (CallId::new(id), "terminal".to_owned(), String::new());
        TurnEvent::ToolFinished { call, tool, succeeded: true, elapsed: Duration::ZERO, preview }
    }

    fn after(progress: ToolProgress, events: &[TurnEvent]) -> Option<String> {
        let mut work = WorkStatus::new(progress, Vec::new());
        events.iter().for_each(|event| work.on_event(event));
        work.current()
    }

    #[test]
    fn the_status_shows_the_current_call() {
        let (one, two) = (calling("1", "ls"), calling("2", "cargo `x` **build** @everyone"));
        let check = |events: &[TurnEvent], expected: Option<&str>| {
            assert_eq!(after(ToolProgress::All, events).as_deref(), expected, "{events:?}");
        };
        check(&[], None);
        check(std::slice::from_ref(&one), Some("1 step, now terminal `ls`"));
        check(&[one.clone(), called("1")], Some("1 step"));
        check(&[one.clone(), two.clone()], Some("2 steps, now terminal `cargo 'x' **build** @everyone`"));
        check(&[one.clone(), two.clone(), called("2")], Some("2 steps, now terminal `ls`"));
        assert_eq!(
            after(ToolProgress::Names, std::slice::from_ref(&one)).as_deref(),
            Some("1 step, now terminal")
        );
        assert_eq!(after(ToolProgress::Off, &[one]), None);
    }

    #[test]
    fn other_waits_are_described() {
        let retry = TurnEvent::Retrying { reason: "raw".to_owned(), delay: Duration::from_secs(5) };
        let said = after(ToolProgress::All, &[calling("1", "ls"), called("1"), retry.clone()]);
        assert_eq!(said.as_deref(), Some("1 step, the model failed; retrying in 5 s"));
        let pull = TurnEvent::Pulling { image: "debian".to_owned(), bytes: 1, total: 4 };
        assert_eq!(after(ToolProgress::All, &[pull]).as_deref(), Some("pulling image `debian`, 25 %"));
        assert_eq!(after(ToolProgress::All, &[retry, TurnEvent::Text("so".to_owned())]), None);
    }

    #[test]
    fn a_call_repeated_after_a_restart_is_one_step() {
        let mut work = WorkStatus::new(ToolProgress::All, vec![CallId::new("1"), CallId::new("2")]);
        work.on_event(&calling("2", "ls"));
        work.on_event(&calling("3", "ls"));
        assert_eq!(work.summary(61), "worked for 1 min, 3 steps");
    }

    #[test]
    fn durations_are_short() {
        for (seconds, words) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (7_260, "2 h 1 min")]
        {
            assert_eq!(format_duration(seconds), words);
        }
    }
}
