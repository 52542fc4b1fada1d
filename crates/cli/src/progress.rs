//! The progress of an image pull on stderr: one updated line on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{LayerStep, PullProgress};

use crate::screen::{ERASE_LINE, truncate, write_stderr};
use crate::terminal;

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 24;

/// The output without a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullOutput {
    /// One line at the start.
    Start,
    /// Also one line per layer.
    Layers,
}

pub(crate) struct PullView {
    image: String,
    plain: PullOutput,
    is_terminal: bool,
    last_draw: Option<Instant>,
    layers_printed: usize,
}

impl PullView {
    pub(crate) fn new(image: &str, plain: PullOutput) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let line = format!("pulling {image}");
        write_stderr(&if is_terminal { fit_terminal(&line) } else { format!("{line}\n") });
        Self { image: image.to_owned(), plain, is_terminal, last_draw: None, layers_printed: 0 }
    }

    pub(crate) fn show(&mut self, progress: &PullProgress) {
        if self.is_terminal {
            if self.last_draw.is_none_or(|drawn| drawn.elapsed() >= REDRAW_INTERVAL) {
                self.last_draw = Some(Instant::now());
                write_stderr(&format!("{ERASE_LINE}{}", fit_terminal(&progress_line(&self.image, progress))));
            }
        } else if self.plain == PullOutput::Layers && progress.downloaded_layers() > self.layers_printed {
            self.layers_printed = progress.downloaded_layers();
            write_stderr(&format!("{}\n", progress_counts(progress)));
        }
    }

    /// Clears the line.
    pub(crate) fn finish(self) {
        if self.is_terminal {
            write_stderr(ERASE_LINE);
        }
    }
}

pub(crate) fn format_megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

fn progress_line(image: &str, progress: &PullProgress) -> String {
    let (bytes, total) = (progress.downloaded_bytes(), progress.total_bytes().max(1));
    let full = usize::try_from(u128::from(bytes) * BAR_WIDTH as u128 / u128::from(total))
        .unwrap_or(BAR_WIDTH)
        .min(BAR_WIDTH);
    let unpacking = progress.layers.iter().any(|layer| layer.step == LayerStep::Extracting);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_WIDTH - full));
    let step = if unpacking { ", unpacking" } else { "" };
    format!("[{bar}] {}{step}  {image}", progress_counts(progress))
}

fn progress_counts(progress: &PullProgress) -> String {
    let (bytes, total) =
        (format_megabytes(progress.downloaded_bytes()), format_megabytes(progress.total_bytes()));
    format!("{} of {} layers, {bytes} of {total}", progress.downloaded_layers(), progress.layers.len())
}

/// Truncates a line so that it does not wrap.
fn fit_terminal(line: &str) -> String {
    truncate(line, terminal::columns().max(2) - 1)
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::PullLayer;

    use super::*;

    #[test]
    fn the_line_shows_layers_bytes_and_the_step() {
        let layer = |step, bytes, total| PullLayer { id: "1".to_owned(), step, bytes, total };
        let mut progress = PullProgress { layers: vec![layer(LayerStep::Waiting, 0, None)] };
        assert_eq!(
            progress_line("i", &progress),
            "[........................] 0 of 1 layers, 0.0 MB of 0.0 MB  i"
        );
        progress.layers = vec![
            layer(LayerStep::Downloading, 3_100_000, Some(10_000_000)),
            layer(LayerStep::Extracting, 2_000_000, Some(2_000_000)),
        ];
        assert_eq!(
            progress_line("i", &progress),
            "[##########..............] 1 of 2 layers, 5.1 MB of 12.0 MB, unpacking  i"
        );
        // More bytes than announced do not make the bar longer.
        progress.layers = vec![layer(LayerStep::Done, u64::from(u32::MAX), Some(1))];
        assert!(progress_line("i", &progress).starts_with(&format!("[{}] ", "#".repeat(BAR_WIDTH))));
    }
}
