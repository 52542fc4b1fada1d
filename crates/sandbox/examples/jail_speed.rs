//! How long a jail takes, beside what it is compared with: `cargo run --release --example jail_speed [bwrap]`.
//!
//! Medians and 99th percentiles of 300 rounds, in turns, so that a busy moment hits all alike.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement starts programs and prints"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_sandbox::{Access, Jail, Launcher, Lifetime, Limits, Network, Streams};

const ROUNDS: usize = 300;

type Outcome = Result<Duration, Box<dyn Error>>;
type Way<'a> = (&'a str, Box<dyn Fn() -> Outcome + 'a>);

fn main() -> Result<(), Box<dyn Error>> {
    hermes_sandbox::helper_main();
    let bwrap = std::env::args().nth(1).unwrap_or_else(|| "/usr/bin/bwrap".to_owned());
    let work = std::env::temp_dir().join(format!("jail-speed-{}", std::process::id()));
    std::fs::create_dir(&work)?;
    let measured = measure(&work, &bwrap);
    std::fs::remove_dir(&work)?;
    measured
}

fn jail(work: &Path) -> Jail {
    let mut jail = Jail::new("/bin/bash", Path::new("/root")).bind(work, Access::ReadWrite);
    jail.arguments = vec!["-c".into(), "true".into()];
    jail
}

/// From the wish to the report that nothing is left.
fn whole_life(jail: &Jail) -> Outcome {
    let start = Instant::now();
    let mut running = Launcher::this_program().launch(jail, &Streams::default())?;
    running.wait()?;
    Ok(start.elapsed())
}

/// From the wish to the first instruction of the program.
fn until_start(jail: &Jail) -> Outcome {
    let start = Instant::now();
    let mut running = Launcher::this_program().launch(jail, &Streams::default())?;
    let took = start.elapsed();
    running.kill()?;
    Ok(took)
}

fn spawn(program: &str, arguments: &[&str]) -> Outcome {
    let start = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    if command.status()?.success() { Ok(start.elapsed()) } else { Err(format!("{program} failed").into()) }
}

fn measure(work: &Path, bwrap: &str) -> Result<(), Box<dyn Error>> {
    let whole = jail(work);
    let few_masks = Jail { masked: Vec::new(), ..whole.clone() };
    let with_network = Jail { network: Network::Full, ..whole.clone() };
    let detached = Jail { lifetime: Lifetime::Detached, ..whole.clone() };
    let limits =
        Limits { memory: Some(1 << 30), processes: Some(512), millicpus: Some(1000), ..Limits::default() };
    let limited = Jail { limits, ..whole.clone() };
    let place = Jail { lifetime: Lifetime::Detached, ..limited.clone() };
    let text = work.to_string_lossy();
    let bwrap_arguments = [
        "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/",
        "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/home",
        "--bind", &text, &text, "--", "/bin/bash", "-c", "true",
    ];
    let mut ways: Vec<Way<'_>> = vec![
        ("bash -c true", Box::new(|| spawn("/bin/bash", &["-c", "true"]))),
        ("jail: bash -c true", Box::new(|| whole_life(&whole))),
        ("jail until bash starts", Box::new(|| until_start(&whole))),
        ("jail without masks", Box::new(|| whole_life(&few_masks))),
        ("jail with the host's network", Box::new(|| whole_life(&with_network))),
        ("jail, detached", Box::new(|| whole_life(&detached))),
        ("jail with cgroup limits", Box::new(|| whole_life(&limited))),
        ("jail, detached, with limits", Box::new(|| whole_life(&place))),
    ];
    if Path::new(bwrap).exists() {
        ways.push(("bwrap, comparable", Box::new(|| spawn(bwrap, &bwrap_arguments))));
    } else {
        println!("bwrap is not at {bwrap}");
    }
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            times.push(way()?);
        }
    }
    let mut probes = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        Launcher::this_program().probe()?;
        probes.push(start.elapsed());
    }
    ways.push(("probe", Box::new(|| Ok(Duration::ZERO))));
    times.push(probes);
    print(&ways, times);
    Ok(())
}

fn print(ways: &[Way<'_>], times: Vec<Vec<Duration>>) {
    println!("{:<30} {:>9} {:>9} {:>9} {:>7}", "", "least ms", "median ms", "p99 ms", "ratio");
    let mut base = None;
    for ((name, _), mut times) in ways.iter().zip(times) {
        times.sort_unstable();
        let at =
            |part: usize| times.get(times.len() * part / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let (least, median, slow) = (at(0), at(50), at(99));
        let base = *base.get_or_insert(median);
        println!("{name:<30} {least:>9.2} {median:>9.2} {slow:>9.2} {:>7.1}", median / base);
    }
}
