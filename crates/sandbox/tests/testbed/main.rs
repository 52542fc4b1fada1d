//! The program that tests start, with and without a jail.
//!
//! | command | effect |
//! |---|---|
//! | `run FILE` | launches the jail described in the file and exits with the code of its program |
//! | `detach FILE` | launches the jail detached and prints the pid of its first process |
//! | `probe` | prints the result of [`Launcher::probe`] |
//! | `attack NAME ARGUMENT...` | tries a forbidden operation; exits with 0 on success, or with [`REFUSED`] |
//!
//! `run`, `detach` and `probe` exit with [`NO_JAIL`] if no jail could be created.
#![expect(clippy::print_stdout, reason = "tests read what it prints")]

mod attack;
mod raw;

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

use hermes_sandbox::{Jail, JailExit, JailStreams, Launcher};

/// The exit code of a refused attack.
const REFUSED: u8 = 7;

/// The exit code if no jail was created.
const NO_JAIL: u8 = 99;

fn main() -> ExitCode {
    hermes_sandbox::helper_main();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["run", file] => run(file).unwrap_or_else(|error| {
            eprintln!("no jail: {error}");
            ExitCode::from(NO_JAIL)
        }),
        ["detach", file] => detach(file).unwrap_or_else(|error| {
            eprintln!("no jail: {error}");
            ExitCode::from(NO_JAIL)
        }),
        ["probe"] => match Launcher::new("/proc/self/exe").probe() {
            Ok(probe) => {
                println!("{probe:?}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("no jail: {error}");
                ExitCode::from(NO_JAIL)
            }
        },
        ["attack", name, arguments @ ..] => match attack::attempt(name, arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error}");
                ExitCode::from(REFUSED)
            }
        },
        _ => ExitCode::from(2),
    }
}

fn read(file: &str) -> Result<Jail, Box<dyn Error>> {
    Ok(postcard::from_bytes(&std::fs::read(file)?)?)
}

fn run(file: &str) -> Result<ExitCode, Box<dyn Error>> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams = JailStreams {
        stdin: Some(stdin.as_fd()),
        stdout: Some(stdout.as_fd()),
        stderr: Some(stderr.as_fd()),
    };
    let mut running = Launcher::new("/proc/self/exe").launch(&read(file)?, &streams)?;
    Ok(match running.wait()? {
        JailExit::Code(code) => ExitCode::from(u8::try_from(code)?),
        JailExit::Signal(signal) => ExitCode::from(128 + u8::try_from(signal)?),
    })
}

/// Launches a detached jail and prints the pid of its first process.
fn detach(file: &str) -> Result<ExitCode, Box<dyn Error>> {
    let running = Launcher::new("/proc/self/exe").launch(&read(file)?, &JailStreams::default())?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", running.pidfd().as_raw_fd()))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or("no pid")?;
    println!("{}", pid.trim());
    Ok(ExitCode::SUCCESS)
}
