//! The work of a turn, in one line.

use hermes_agent::TurnEvent;
use hermes_types::CallId;

use super::Progress;

/// What was heard of the work.
#[derive(Debug)]
pub(super) struct Work {
    progress: Progress,
    /// How many calls were made.
    made: usize,
    /// Those that were made before a restart, and may be made again.
    before: Vec<CallId>,
    /// Those that are at work.
    at_work: Vec<(CallId, String)>,
    /// What else is waited for.
    waits: Option<String>,
}

impl Default for Work {
    fn default() -> Self {
        Self::new(Progress::Off, Vec::new())
    }
}

impl Work {
    pub(super) fn new(progress: Progress, before: Vec<CallId>) -> Self {
        Self { progress, made: before.len(), before, at_work: Vec::new(), waits: None }
    }

    pub(super) fn hear(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolStarted { call, tool, preview } => {
                match self.before.iter().position(|before| before == call) {
                    Some(known) => drop(self.before.swap_remove(known)),
                    None => self.made += 1,
                }
                self.waits = None;
                let about = match self.progress {
                    Progress::All if preview != tool => format!("{tool} {}", harmless(preview)),
                    Progress::All | Progress::Names | Progress::Off => tool.clone(),
                };
                self.at_work.push((call.clone(), about));
            }
            TurnEvent::ToolFinished { call, .. } => self.at_work.retain(|(other, _)| other != call),
            TurnEvent::Retrying { delay: wait, .. } => {
                self.waits =
                    Some(format!("the model failed and is asked again in {}", lasting(wait.as_secs())));
            }
            TurnEvent::Fallback { to, .. } => self.waits = Some(format!("now asking {}", harmless(to))),
            TurnEvent::Pulling { image, bytes, total } => {
                let percent = u128::from(*bytes) * 100 / u128::from(*total).max(1);
                let percent = if *total > 0 { format!(", {} %", percent.min(100)) } else { String::new() };
                self.waits = Some(format!("fetching the image {}{percent}", harmless(image)));
            }
            TurnEvent::Pulled { .. } | TurnEvent::ReplyStarted { .. } | TurnEvent::Text(_) => {
                self.waits = None
            }
            TurnEvent::Reasoning(_) => {}
        }
    }

    /// What is being done; nothing if there is nothing to tell.
    pub(super) fn under_way(&self) -> Option<String> {
        let now = self.waits.clone().or_else(|| Some(format!("now {}", self.at_work.last()?.1)));
        match (self.progress, self.made, now) {
            (Progress::Off, ..) | (_, 0, None) => None,
            (_, 0, Some(now)) => Some(now),
            (_, made, None) => Some(steps(made)),
            (_, made, Some(now)) => Some(format!("{}, {now}", steps(made))),
        }
    }

    /// What was done in so many seconds.
    pub(super) fn done(&self, lasted: u64) -> String {
        format!("worked for {}, {}", lasting(lasted), steps(self.made))
    }
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// A time in words.
pub(super) fn lasting(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// Words of a model as code, which no platform reads as anything else.
fn harmless(text: &str) -> String {
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

    fn after(progress: Progress, events: &[TurnEvent]) -> Option<String> {
        let mut work = Work::new(progress, Vec::new());
        events.iter().for_each(|event| work.hear(event));
        work.under_way()
    }

    #[test]
    fn the_line_says_what_is_done_now() {
        let (one, two) = (calling("1", "ls"), calling("2", "cargo `x` **build** @everyone"));
        let check = |events: &[TurnEvent], expected: Option<&str>| {
            assert_eq!(after(Progress::All, events).as_deref(), expected, "{events:?}");
        };
        check(&[], None);
        check(std::slice::from_ref(&one), Some("1 step, now terminal `ls`"));
        check(&[one.clone(), called("1")], Some("1 step"));
        check(&[one.clone(), two.clone()], Some("2 steps, now terminal `cargo 'x' **build** @everyone`"));
        check(&[one.clone(), two.clone(), called("2")], Some("2 steps, now terminal `ls`"));
        assert_eq!(
            after(Progress::Names, std::slice::from_ref(&one)).as_deref(),
            Some("1 step, now terminal")
        );
        assert_eq!(after(Progress::Off, &[one]), None);
    }

    #[test]
    fn what_else_is_waited_for_is_said_in_words() {
        let retry = TurnEvent::Retrying { reason: "raw".to_owned(), delay: Duration::from_secs(5) };
        let said = after(Progress::All, &[calling("1", "ls"), called("1"), retry.clone()]);
        assert_eq!(said.as_deref(), Some("1 step, the model failed and is asked again in 5 s"));
        let pull = TurnEvent::Pulling { image: "debian".to_owned(), bytes: 1, total: 4 };
        assert_eq!(after(Progress::All, &[pull]).as_deref(), Some("fetching the image `debian`, 25 %"));
        assert_eq!(after(Progress::All, &[retry, TurnEvent::Text("so".to_owned())]), None);
    }

    #[test]
    fn a_call_that_is_made_again_after_a_restart_is_one_step() {
        let mut work = Work::new(Progress::All, vec![CallId::new("1"), CallId::new("2")]);
        work.hear(&calling("2", "ls"));
        work.hear(&calling("3", "ls"));
        assert_eq!(work.done(61), "worked for 1 min, 3 steps");
    }

    #[test]
    fn times_are_short() {
        for (seconds, words) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (7_260, "2 h 1 min")]
        {
            assert_eq!(lasting(seconds), words);
        }
    }
}
