//! `hermes-guest`: the program that runs inside a place.
//!
//! `serve` answers clients on a Unix socket until nobody needs it; `attach` joins its own standard input and
//! output to that socket, for a host that can only start a program in the place; `empty` removes what commands of
//! another user left, for a host that may not.

mod attach;
mod connection;
mod files;
mod guest;
mod process;
mod room;
mod run;
mod serve;
mod session;
mod shell;
mod tunnel;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The allocator of musl returns every buffer to the system at once and takes it back for the next one, which makes
/// live output nearly three times slower.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const USAGE: &str = "usage: hermes-guest serve --socket PATH [--idle SECONDS] [--foreground] [--room PATH]
       hermes-guest attach --socket PATH
       hermes-guest empty DIRECTORY";

const DEFAULT_IDLE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let Some(command) = parse(std::env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match &command {
        Command::Serve(options) => serve::main(options),
        Command::Attach { socket } => attach::main(socket),
        Command::Empty { directory } => hermes_guest::removal::empty(directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hermes-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Serve(serve::Options),
    Attach { socket: PathBuf },
    Empty { directory: PathBuf },
}

fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Command> {
    let verb = words.next()?;
    if verb == "empty" {
        let directory = PathBuf::from(words.next()?);
        return words.next().is_none().then_some(Command::Empty { directory });
    }
    let (mut socket, mut idle, mut stay) = (None, DEFAULT_IDLE, serve::Stay::Detached);
    let mut room = None;
    while let Some(word) = words.next() {
        match word.to_str()? {
            "--socket" => socket = Some(PathBuf::from(words.next()?)),
            "--idle" => idle = Duration::from_secs(words.next()?.to_str()?.parse().ok()?),
            "--room" => room = Some(PathBuf::from(words.next()?)),
            "--foreground" => stay = serve::Stay::Foreground,
            _ => return None,
        }
    }
    let socket = socket?;
    match verb.to_str()? {
        "serve" => Some(Command::Serve(serve::Options { socket, idle, stay, room })),
        "attach" => Some(Command::Attach { socket }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_read_or_refused() {
        let read = |line: &str| parse(line.split_whitespace().map(OsString::from));
        let socket = PathBuf::from("/run/s");
        let options = serve::Options {
            socket: socket.clone(),
            idle: Duration::from_secs(7),
            stay: serve::Stay::Foreground,
            room: Some(PathBuf::from("/run/r")),
        };
        assert_eq!(
            read("serve --idle 7 --socket /run/s --foreground --room /run/r"),
            Some(Command::Serve(options))
        );
        assert_eq!(read("attach --socket /run/s"), Some(Command::Attach { socket }));
        assert_eq!(read("empty /d"), Some(Command::Empty { directory: PathBuf::from("/d") }));
        for wrong in [
            "", "empty", "empty /d /e", "serve", "attach", "serve --socket", "serve --socket /s --idle x",
            "x --socket /s", "serve -v",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
