//! Looks after one process: reads its output and learns of its end.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Happening, Tree};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::output::Taken;
use super::shim::FAREWELL;
use super::{Exit, Process, ROUND, tree};

/// How long a terminal may take to pass on what a dead program wrote last.
const TERMINAL_LAG: Duration = Duration::from_millis(50);

/// Where the output comes from. A terminal ends with an error instead of an end.
#[derive(Debug)]
pub(super) enum Source {
    Pipe(AsyncFd<OwnedFd>),
    Terminal(Rc<AsyncFd<OwnedFd>>),
}

impl Source {
    fn fd(&self) -> &AsyncFd<OwnedFd> {
        match self {
            Self::Pipe(fd) => fd,
            Self::Terminal(fd) => fd,
        }
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd().readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?)) {
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// How many bytes are there to read right now.
    fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(self.fd().get_ref()).unwrap_or(0)
    }
}

/// Runs until the tree is gone and its output is read. `notice` is told what is worth telling; `shims` knows which
/// children of the guest are shims.
pub(super) async fn tend(
    process: Rc<Process>,
    source: Source,
    mut status: pipe::Receiver,
    notice: impl Fn(Happening),
    shims: impl Fn() -> HashSet<Pid>,
) {
    let mut buffer = vec![0; limit::CHUNK];
    let mut open = true;
    let mut word = [0; 4];
    while process.tree.get() == Tree::Alive {
        tokio::select! {
            biased;
            // Four bytes arrive at once or not at all, so nothing is lost when the other branch is taken.
            read = status.read_exact(&mut word) => {
                let word = read.ok().map(|_| i32::from_ne_bytes(word));
                if word.is_none() {
                    bury(&process, &shims).await;
                }
                open = open && drain(&process, &source, &mut buffer, &notice).await;
                if matches!(word, None | Some(FAREWELL)) {
                    process.tree.set(Tree::Gone);
                }
                // A shim that was killed could not say how the program ended: as itself, by the kernel's hand.
                finish(&process, word.filter(|word| *word != FAREWELL).unwrap_or(libc::SIGKILL));
            }
            read = source.read(&mut buffer), if open && has_room(&process) => match read {
                Ok(count @ 1..) => take(&process, buffer.split_at(count).0, &notice),
                Ok(0) | Err(_) => open = false,
            },
            () = process.until(has_room), if open && !has_room(&process) => {}
        }
    }
    process.watch.borrow_mut().finish(Instant::now(), &notice);
    process.input.replace(super::Feed::None);
    process.changed.notify_waiters();
}

/// The shim was killed. What it looked after becomes ours as soon as it is a corpse, and is killed; but its pipe
/// ended a moment before that.
async fn bury(process: &Process, shims: &impl Fn() -> HashSet<Pid>) {
    loop {
        let still_there = tree::started(process.shim).is_some();
        // What cannot be seen cannot be killed; without /proc there is nothing more to try.
        let strays = tree::kill_strays(&shims()).unwrap_or(0);
        if strays == 0 && !still_there {
            return;
        }
        tokio::time::sleep(ROUND).await;
    }
}

fn finish(process: &Process, status: i32) {
    if process.exit.get().is_none() {
        process.exit.set(Some(Exit { status, at: Instant::now() }));
    }
    process.changed.notify_waiters();
}

/// Whether the reader that must not miss anything is close enough.
fn has_room(process: &Process) -> bool {
    let output = process.output.borrow();
    process.reader.get().is_none_or(|reader| output.total().saturating_sub(reader) < output.slack())
}

fn take(process: &Process, data: &[u8], notice: &impl Fn(Happening)) {
    let taken = process.reader.get().map_or(Taken::Later, Taken::Live);
    process.output.borrow_mut().append(data, taken);
    process.watch.borrow_mut().feed(data, Instant::now(), notice);
    process.changed.notify_waiters();
}

/// Reads what was written before this moment, and not what a child that was left behind writes from now on.
/// Says whether there may be more later.
async fn drain(process: &Process, source: &Source, buffer: &mut [u8], notice: &impl Fn(Happening)) -> bool {
    let mut waiting = source.waiting();
    let end = match source {
        Source::Pipe(_) => None,
        Source::Terminal(_) => Some(Instant::now() + TERMINAL_LAG),
    };
    while end.is_some() || waiting > 0 {
        let read = source.read(buffer);
        let read = match end {
            Some(end) => tokio::time::timeout_at(end, read).await,
            None => Ok(read.await),
        };
        match read {
            Ok(Ok(count @ 1..)) => {
                take(process, buffer.split_at(count).0, notice);
                waiting = waiting.saturating_sub(count as u64);
            }
            Ok(Ok(0) | Err(_)) => return false,
            Err(_elapsed) => return true,
        }
    }
    true
}
