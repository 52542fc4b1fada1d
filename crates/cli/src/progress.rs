//! How far a pull is, on stderr: one line that is drawn again and again on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{LayerStep, PullProgress};
use rustix::termios::tcgetwinsize;

use crate::screen::truncate;

/// How often the line is drawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Characters of the bar.
const BAR_WIDTH: usize = 24;
/// The width of a terminal that reports none.
const DEFAULT_COLUMNS: usize = 80;
/// Back to the beginning of the line, which is made empty.
const ERASE_LINE: &str = "\r\u{1b}[K";

/// What is said where there is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullOutput {
    /// That it begins.
    Start,
    /// Also each layer.
    Layers,
}

/// A pull that somebody may be watching.
pub(crate) struct PullView {
    image: String,
    plain: PullOutput,
    is_terminal: bool,
    /// When the line was drawn last.
    last_draw: Option<Instant>,
    /// How many layers have been told.
    layers_printed: usize,
}

impl PullView {
    pub(crate) fn new(image: &str, plain: PullOutput) -> Self {
        let image_name = image.to_owned();
        let watched = Self {
            image: image_name,
            plain,
            is_terminal: io::stderr().is_terminal(),
            last_draw: None,
            layers_printed: 0,
        };
        if watched.is_terminal {
            watched.write(&fit_terminal(&format!("pulling {image}")));
        } else {
            watched.write(&format!("pulling {image}\n"));
        }
        watched
    }

    pub(crate) fn show(&mut self, progress: &PullProgress) {
        if self.is_terminal {
            if self.last_draw.is_none_or(|drawn| drawn.elapsed() >= REDRAW_INTERVAL) {
                self.last_draw = Some(Instant::now());
                self.write(&format!("{ERASE_LINE}{}", fit_terminal(&progress_line(&self.image, progress))));
            }
        } else if self.plain == PullOutput::Layers && progress.downloaded_layers() > self.layers_printed {
            self.layers_printed = progress.downloaded_layers();
            self.write(&format!("{}\n", progress_counts(progress)));
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn finish(self) {
        if self.is_terminal {
            self.write(ERASE_LINE);
        }
    }

    fn write(&self, text: &str) {
        let mut err = io::stderr().lock();
        // There is no third place to report that stderr is gone.
        drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
    }
}

/// A number of bytes as people say it.
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
    let what = if unpacking { ", unpacking" } else { "" };
    format!("[{bar}] {}{what}  {image}", progress_counts(progress))
}

fn progress_counts(progress: &PullProgress) -> String {
    let (bytes, total) =
        (format_megabytes(progress.downloaded_bytes()), format_megabytes(progress.total_bytes()));
    format!("{} of {} layers, {bytes} of {total}", progress.downloaded_layers(), progress.layers.len())
}

/// Truncates a line so that it does not wrap.
fn fit_terminal(line: &str) -> String {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |window| usize::from(window.ws_col));
    // A pseudo terminal may report no size.
    let columns = if columns == 0 { DEFAULT_COLUMNS } else { columns };
    truncate(line, columns.max(2) - 1)
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::PullLayer;

    use super::*;

    #[test]
    fn a_line_tells_layers_bytes_and_what_is_done() {
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
        // More than was announced does not make the bar longer.
        progress.layers = vec![layer(LayerStep::Done, u64::from(u32::MAX), Some(1))];
        assert!(progress_line("i", &progress).starts_with(&format!("[{}] ", "#".repeat(BAR_WIDTH))));
    }
}
