//! How far a pull is, on stderr: one line that is drawn again and again on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use hermes_exec::backend::docker::pull::{LayerStep, PullProgress};
use rustix::termios::tcgetwinsize;

/// How often the line is drawn.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of the bar.
const BAR: usize = 24;
/// The width of a terminal that does not say.
const COLUMNS: usize = 80;
/// Back to the beginning of the line, which is made empty.
const ERASE: &str = "\r\u{1b}[K";

/// What is said where there is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// That it begins.
    Once,
    /// Also each layer.
    Steps,
}

/// A pull that somebody may be watching.
pub(crate) struct Watched {
    image: String,
    plain: Plain,
    is_terminal: bool,
    /// When the line was drawn last.
    drawn: Option<Instant>,
    /// How many layers have been told.
    told: usize,
}

impl Watched {
    pub(crate) fn new(image: &str, plain: Plain) -> Self {
        let image_name = image.to_owned();
        let watched =
            Self { image: image_name, plain, is_terminal: io::stderr().is_terminal(), drawn: None, told: 0 };
        if watched.is_terminal {
            watched.say(&clipped(&format!("pulling {image}")));
        } else {
            watched.say(&format!("pulling {image}\n"));
        }
        watched
    }

    pub(crate) fn show(&mut self, progress: &PullProgress) {
        if self.is_terminal {
            if self.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE) {
                self.drawn = Some(Instant::now());
                self.say(&format!("{ERASE}{}", clipped(&line(&self.image, progress))));
            }
        } else if self.plain == Plain::Steps && progress.downloaded_layers() > self.told {
            self.told = progress.downloaded_layers();
            self.say(&format!("{}\n", counts(progress)));
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn finish(self) {
        if self.is_terminal {
            self.say(ERASE);
        }
    }

    fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        // There is no third place to report that stderr is gone.
        drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
    }
}

/// A number of bytes as people say it.
pub(crate) fn size(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

fn line(image: &str, progress: &PullProgress) -> String {
    let (bytes, total) = (progress.downloaded_bytes(), progress.total_bytes().max(1));
    let full = usize::try_from(u128::from(bytes) * BAR as u128 / u128::from(total)).unwrap_or(BAR).min(BAR);
    let unpacking = progress.layers.iter().any(|layer| layer.step == LayerStep::Extracting);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
    let what = if unpacking { ", unpacking" } else { "" };
    format!("[{bar}] {}{what}  {image}", counts(progress))
}

fn counts(progress: &PullProgress) -> String {
    let (bytes, total) = (size(progress.downloaded_bytes()), size(progress.total_bytes()));
    format!("{} of {} layers, {bytes} of {total}", progress.downloaded_layers(), progress.layers.len())
}

/// As much of a line as does not wrap.
fn clipped(line: &str) -> String {
    let columns = tcgetwinsize(io::stderr()).map_or(COLUMNS, |window| usize::from(window.ws_col));
    line.chars().take(columns.max(2) - 1).collect()
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::pull::PullLayer;

    use super::*;

    #[test]
    fn a_line_tells_layers_bytes_and_what_is_done() {
        let layer = |step, bytes, total| PullLayer { id: "1".to_owned(), step, bytes, total };
        let mut progress = PullProgress { layers: vec![layer(LayerStep::Waiting, 0, None)] };
        assert_eq!(line("i", &progress), "[........................] 0 of 1 layers, 0.0 MB of 0.0 MB  i");
        progress.layers = vec![
            layer(LayerStep::Downloading, 3_100_000, Some(10_000_000)),
            layer(LayerStep::Extracting, 2_000_000, Some(2_000_000)),
        ];
        assert_eq!(
            line("i", &progress),
            "[##########..............] 1 of 2 layers, 5.1 MB of 12.0 MB, unpacking  i"
        );
        // More than was announced does not make the bar longer.
        progress.layers = vec![layer(LayerStep::Done, u64::from(u32::MAX), Some(1))];
        assert!(line("i", &progress).starts_with(&format!("[{}] ", "#".repeat(BAR))));
    }
}
