//! The standard error of a program, where it is kept apart from the output: its beginning.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use hermes_guest::protocol::limit;
use serde_bytes::ByteBuf;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(super) struct Errors {
    pipe: AsyncFd<OwnedFd>,
    head: RefCell<Vec<u8>>,
    room: usize,
}

impl Errors {
    pub(super) fn new(pipe: AsyncFd<OwnedFd>, room: usize) -> Self {
        Self { pipe, head: RefCell::default(), room: room.min(limit::KEEP) }
    }

    /// Reads to the end.
    pub(super) async fn read(&self) {
        loop {
            let Ok(mut ready) = self.pipe.readable().await else { return };
            match ready.try_io(|_| self.take()) {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(_)) => {}
                Err(_would_block) => {}
            }
        }
    }

    /// Reads what was written before this moment, and not what somebody to whom the pipe was handed on writes
    /// from now on.
    pub(super) fn drain(&self) {
        let mut waiting = rustix::io::ioctl_fionread(self.pipe.get_ref()).unwrap_or(0);
        while waiting > 0 {
            let Ok(count @ 1..) = self.take() else { return };
            waiting = waiting.saturating_sub(count as u64);
        }
    }

    fn take(&self) -> io::Result<usize> {
        let mut buffer = [0; 4096];
        let count = rustix::io::read(self.pipe.get_ref(), &mut buffer)?;
        let mut head = self.head.borrow_mut();
        let wanted = count.min(self.room.saturating_sub(head.len()));
        head.extend_from_slice(buffer.split_at(wanted).0);
        Ok(count)
    }

    pub(super) fn head(&self) -> ByteBuf {
        ByteBuf::from(self.head.borrow().clone())
    }
}
