//! The I/O loop of one process: reads its output and its exit status.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{ProcessEvent, TreeStatus};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::shim::TREE_GONE;
use super::{GuestProcess, KILL_POLL_INTERVAL, ProcessExit, tree};

/// A terminal may deliver the last output of a dead program with a delay.
const TERMINAL_DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Reads output. A terminal reports end of file as an error.
async fn read_output(source: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = source.readable().await?;
        match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?)) {
            Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}

/// Runs until the process tree is gone and its output is read. `notify` receives matched lines;
/// `live_shims` lists the shims among the guest's children.
pub(super) async fn run_io_loop(
    process: Rc<GuestProcess>,
    source: Rc<AsyncFd<OwnedFd>>,
    mut status: pipe::Receiver,
    notify: impl Fn(ProcessEvent),
    live_shims: impl Fn() -> HashSet<Pid>,
) {
    let mut buffer = vec![0; limit::CHUNK_BYTES];
    let mut open = true;
    let mut value = [0; 4];
    while process.tree.get() == TreeStatus::Alive {
        tokio::select! {
            biased;
            // Four bytes arrive at once or not at all, so cancellation loses nothing.
            read = status.read_exact(&mut value) => {
                let value = read.ok().map(|_| i32::from_ne_bytes(value));
                if value.is_none() {
                    kill_orphans(&process, &live_shims).await;
                }
                open = open && drain_output(&process, &source, &mut buffer, &notify).await;
                if matches!(value, None | Some(TREE_GONE)) {
                    process.tree.set(TreeStatus::Gone);
                }
                // A killed shim reports no status, but the kernel killed the program with it.
                record_exit(&process, value.filter(|value| *value != TREE_GONE).unwrap_or(libc::SIGKILL));
            }
            read = read_output(&source, &mut buffer), if open && reader_keeps_up(&process) => match read {
                Ok(count @ 1..) => record_output(&process, buffer.split_at(count).0, &notify),
                Ok(0) | Err(_) => open = false,
            },
            () = process.wait_until(reader_keeps_up), if open && !reader_keeps_up(&process) => {}
        }
    }
    process.watcher.borrow_mut().finish_line(Instant::now(), &notify);
    process.stdin.take();
    process.changed.notify_waiters();
}

/// Kills the descendants of a killed shim. They become children of the guest once the shim is dead,
/// which is a moment after its pipe ends.
async fn kill_orphans(process: &GuestProcess, live_shims: &impl Fn() -> HashSet<Pid>) {
    loop {
        let still_there = tree::start_time(process.shim).is_some();
        // Without /proc there is nothing more to try.
        let strays = tree::kill_strays(&live_shims()).unwrap_or(0);
        if strays == 0 && !still_there {
            return;
        }
        tokio::time::sleep(KILL_POLL_INTERVAL).await;
    }
}

fn record_exit(process: &GuestProcess, status: i32) {
    if process.exit.get().is_none() {
        process.exit.set(Some(ProcessExit { status, at: Instant::now() }));
    }
    process.changed.notify_waiters();
}

/// Whether the live reader is close enough to the end of the output.
fn reader_keeps_up(process: &GuestProcess) -> bool {
    let output = process.output.borrow();
    process
        .reader_offset
        .get()
        .is_none_or(|reader| output.total.saturating_sub(reader) < output.max_reader_lag())
}

fn record_output(process: &GuestProcess, data: &[u8], notify: &impl Fn(ProcessEvent)) {
    process.output.borrow_mut().append(data, process.reader_offset.get());
    process.watcher.borrow_mut().feed(data, Instant::now(), notify);
    process.changed.notify_waiters();
}

/// Reads what was written before the call, and not what a leftover child writes later. Returns
/// whether more output may follow.
async fn drain_output(
    process: &GuestProcess,
    source: &AsyncFd<OwnedFd>,
    buffer: &mut [u8],
    notify: &impl Fn(ProcessEvent),
) -> bool {
    let mut available = rustix::io::ioctl_fionread(source.get_ref()).unwrap_or(0);
    let end = process.is_on_terminal.then(|| Instant::now() + TERMINAL_DRAIN_TIMEOUT);
    while end.is_some() || available > 0 {
        let read = read_output(source, buffer);
        let read = match end {
            Some(end) => tokio::time::timeout_at(end, read).await,
            None => Ok(read.await),
        };
        match read {
            Ok(Ok(count @ 1..)) => {
                record_output(process, buffer.split_at(count).0, notify);
                available = available.saturating_sub(count as u64);
            }
            Ok(Ok(0) | Err(_)) => return false,
            Err(_elapsed) => return true,
        }
    }
    true
}
