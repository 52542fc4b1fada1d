//! Finds lines that contain a watched pattern, as output arrives in pieces.

use std::time::Duration;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::Happening;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

/// One process reports a match at most this often; what matches in between is counted.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Watch {
    patterns: Vec<ByteBuf>,
    line: Vec<u8>,
    quiet_until: Option<Instant>,
    unreported: u64,
}

impl Watch {
    pub(crate) fn new(patterns: Vec<ByteBuf>) -> Self {
        Self { patterns, line: Vec::new(), quiet_until: None, unreported: 0 }
    }

    /// Looks at the next piece of output; a line is looked at when it is complete.
    pub(crate) fn feed(&mut self, data: &[u8], now: Instant, mut report: impl FnMut(Happening)) {
        if self.patterns.is_empty() {
            return;
        }
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let room = limit::LINE.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.complete(now, &mut report);
            }
        }
    }

    /// The output has ended; the last line may have no line end.
    pub(crate) fn finish(&mut self, now: Instant, mut report: impl FnMut(Happening)) {
        self.complete(now, &mut report);
    }

    fn complete(&mut self, now: Instant, report: &mut impl FnMut(Happening)) {
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
        self.quiet_until = Some(now + PAUSE);
        let unreported = std::mem::take(&mut self.unreported);
        report(Happening::Matched { line: ByteBuf::from(line), unreported });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_however_it_is_cut_and_a_flood_is_counted() {
        let mut watch = Watch::new(vec![ByteBuf::from("ready")]);
        let start = Instant::now();
        let mut seen = Vec::new();
        watch.feed(b"not yet\nserver rea", start, |what| seen.push(what));
        assert_eq!(seen, []);
        watch.feed(b"dy on 80\nready\nready\n", start, |what| seen.push(what));
        watch.feed(b"ready again", start + PAUSE, |what| seen.push(what));
        watch.finish(start + PAUSE, |what| seen.push(what));
        let matched = |line: &str, unreported| Happening::Matched { line: ByteBuf::from(line), unreported };
        assert_eq!(seen, [matched("server ready on 80", 0), matched("ready again", 2)]);
    }
}
