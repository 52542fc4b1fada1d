//! Captures the beginning of a program's standard error.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use hermes_guest::protocol::limit;
use serde_bytes::ByteBuf;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(crate) struct StderrCapture {
    pipe: AsyncFd<OwnedFd>,
    head: RefCell<Vec<u8>>,
    max_bytes: usize,
}

impl StderrCapture {
    pub(super) fn new(pipe: AsyncFd<OwnedFd>, max_bytes: usize) -> Self {
        Self { pipe, head: RefCell::default(), max_bytes: max_bytes.min(limit::MAX_MEMORY_OUTPUT_BYTES) }
    }

    pub(super) async fn read(&self) {
        loop {
            let Ok(mut ready) = self.pipe.readable().await else { return };
            match ready.try_io(|_| self.read_once()) {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(_)) => {}
                Err(_would_block) => {}
            }
        }
    }

    /// Reads what was written before the call. A process that inherited the pipe may keep writing.
    pub(crate) fn drain(&self) {
        let mut waiting = rustix::io::ioctl_fionread(self.pipe.get_ref()).unwrap_or(0);
        while waiting > 0 {
            let Ok(count @ 1..) = self.read_once() else { return };
            waiting = waiting.saturating_sub(count as u64);
        }
    }

    fn read_once(&self) -> io::Result<usize> {
        let mut buffer = [0; 4096];
        let count = rustix::io::read(self.pipe.get_ref(), &mut buffer)?;
        let mut head = self.head.borrow_mut();
        let wanted = count.min(self.max_bytes.saturating_sub(head.len()));
        head.extend_from_slice(buffer.split_at(wanted).0);
        Ok(count)
    }

    pub(super) fn head(&self) -> ByteBuf {
        ByteBuf::from(self.head.borrow().clone())
    }
}
