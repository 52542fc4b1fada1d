//! Finds lines that contain a watched pattern in output that arrives in pieces.

use std::time::Duration;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::ProcessEvent;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

/// A process reports at most one match in this time; others are counted.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OutputWatcher {
    patterns: Vec<ByteBuf>,
    line: Vec<u8>,
    quiet_until: Option<Instant>,
    unreported: u64,
}

impl OutputWatcher {
    pub(crate) fn new(patterns: Vec<ByteBuf>) -> Self {
        Self { patterns, line: Vec::new(), quiet_until: None, unreported: 0 }
    }

    /// Scans the next piece of output; a line is checked when it is complete.
    pub(crate) fn feed(&mut self, data: &[u8], now: Instant, mut report: impl FnMut(ProcessEvent)) {
        if self.patterns.is_empty() {
            return;
        }
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let free = limit::MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(free));
            if piece.ends_with(b"\n") {
                self.finish_line(now, &mut report);
            }
        }
    }

    /// Checks a complete line, or the last one, which may have no line end.
    pub(crate) fn finish_line(&mut self, now: Instant, mut report: impl FnMut(ProcessEvent)) {
        let mut line = std::mem::take(&mut self.line);
        if !self.patterns.iter().any(|pattern| memchr::memmem::find(&line, pattern).is_some()) {
            return;
        }
        if self.quiet_until.is_some_and(|until| now < until) {
            self.unreported += 1;
            return;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        self.quiet_until = Some(now + REPORT_INTERVAL);
        let unreported = std::mem::take(&mut self.unreported);
        report(ProcessEvent::LineMatched { line: ByteBuf::from(line), unreported });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_across_pieces_and_a_flood_is_counted() {
        let mut watch = OutputWatcher::new(vec![ByteBuf::from("ready")]);
        let start = Instant::now();
        let mut reported = Vec::new();
        watch.feed(b"not yet\nserver rea", start, |event| reported.push(event));
        assert_eq!(reported, []);
        watch.feed(b"dy on 80\nready\nready\n", start, |event| reported.push(event));
        watch.feed(b"ready again", start + REPORT_INTERVAL, |event| reported.push(event));
        watch.finish_line(start + REPORT_INTERVAL, |event| reported.push(event));
        let matched =
            |line: &str, unreported| ProcessEvent::LineMatched { line: ByteBuf::from(line), unreported };
        assert_eq!(reported, [matched("server ready on 80", 0), matched("ready again", 2)]);
    }
}
