//! `hermes-guest`: the program that runs inside an environment.
//!
//! - `serve` answers clients on a Unix socket until the guest is idle for too long.
//! - `attach` connects its standard input and output to that socket, for hosts that can only start
//!   a program in the environment.
//! - `view` creates the namespaces of commands without approval.
//! - `empty` deletes the files that commands of another user left, for hosts without that
//!   permission.

mod attach;
mod connection;
mod files;
mod guest;
mod process;
mod run;
mod serve;
mod session;
mod shell;
mod sys;
mod tunnel;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The allocator of musl returns every buffer to the kernel immediately and requests it again for
/// the next one, which makes live output almost three times slower.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const USAGE: &str = "usage: hermes-guest serve --socket PATH [--idle SECONDS] [--foreground] [--run-dir PATH] [--work-dir PATH]
       hermes-guest attach --socket PATH
       hermes-guest empty DIRECTORY
       hermes-guest view [--check]";

const DEFAULT_IDLE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let Some(command) = parse(std::env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match &command {
        GuestCommand::Serve(options) => serve::main(options),
        GuestCommand::Attach { socket } => attach::main(socket),
        GuestCommand::Empty { directory } => hermes_types::removal::empty_dir(directory),
        GuestCommand::View { is_check: false } => view::build::main(),
        GuestCommand::View { is_check: true } => view::build::check(),
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
enum GuestCommand {
    Serve(serve::ServeOptions),
    Attach {
        socket: PathBuf,
    },
    Empty {
        directory: PathBuf,
    },
    /// `is_check` only tries whether views can be built.
    View {
        is_check: bool,
    },
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<GuestCommand> {
    let verb = args.next()?;
    if verb == "empty" {
        let directory = PathBuf::from(args.next()?);
        return args.next().is_none().then_some(GuestCommand::Empty { directory });
    }
    if verb == "view" {
        let option = args.next();
        let is_check = option.as_deref().is_some_and(|option| option == "--check");
        return (is_check == option.is_some()).then_some(GuestCommand::View { is_check });
    }
    let (mut socket, mut run_dir, mut work_dir) = (None, None, None);
    let (mut idle, mut is_foreground) = (DEFAULT_IDLE, false);
    while let Some(arg) = args.next() {
        match arg.to_str()? {
            "--socket" => socket = Some(PathBuf::from(args.next()?)),
            "--idle" => idle = Duration::from_secs(args.next()?.to_str()?.parse().ok()?),
            "--run-dir" => run_dir = Some(PathBuf::from(args.next()?)),
            "--work-dir" => work_dir = Some(PathBuf::from(args.next()?)),
            "--foreground" => is_foreground = true,
            _ => return None,
        }
    }
    let socket = socket?;
    match verb.to_str()? {
        "serve" => {
            Some(GuestCommand::Serve(serve::ServeOptions { socket, idle, is_foreground, run_dir, work_dir }))
        }
        "attach" => Some(GuestCommand::Attach { socket }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_parsed_or_rejected() {
        let read = |line: &str| parse(line.split_whitespace().map(OsString::from));
        let socket = PathBuf::from("/run/s");
        let options = serve::ServeOptions {
            socket: socket.clone(),
            idle: Duration::from_secs(7),
            is_foreground: true,
            run_dir: Some(PathBuf::from("/run/r")),
            work_dir: Some(PathBuf::from("/w")),
        };
        assert_eq!(
            read("serve --idle 7 --socket /run/s --foreground --run-dir /run/r --work-dir /w"),
            Some(GuestCommand::Serve(options))
        );
        assert_eq!(read("attach --socket /run/s"), Some(GuestCommand::Attach { socket }));
        assert_eq!(read("empty /d"), Some(GuestCommand::Empty { directory: PathBuf::from("/d") }));
        for wrong in [
            "", "empty", "empty /d /e", "serve", "attach", "serve --socket", "serve --socket /s --idle x",
            "x --socket /s", "serve -v",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
