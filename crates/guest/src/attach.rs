//! `hermes-guest attach`: connects standard input and output to the socket of a guest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

pub(crate) fn main(socket: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    let to_guest = stream.try_clone()?;
    thread::spawn(move || {
        // The guest must see end of input, whether the copy ended normally or with an error.
        drop(pump(&io::stdin(), &to_guest));
        drop(to_guest.shutdown(Shutdown::Write));
    });
    match pump(&stream, &io::stdout()) {
        // The host closed our standard output.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Copies without buffering: the other side may be waiting for any byte.
fn pump(from: &impl AsFd, to: &impl AsFd) -> io::Result<()> {
    let mut from = File::from(from.as_fd().try_clone_to_owned()?);
    let mut to = File::from(to.as_fd().try_clone_to_owned()?);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            count => to.write_all(buffer.split_at(count?).0)?,
        }
    }
}
