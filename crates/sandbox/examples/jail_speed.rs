//! Measures the time to launch a jail, compared with alternatives: `cargo run --release --example
//! jail_speed [bwrap]`.
//!
//! Prints medians and 99th percentiles of 300 rounds. The variants take turns, so that a busy
//! moment affects all of them.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement starts programs and prints"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_sandbox::{Jail, JailLimits, JailNetwork, JailStreams, Launcher, Lifetime};
use hermes_types::MountAccess;

const ROUNDS: usize = 300;

type Measurement = Result<Duration, Box<dyn Error>>;
type Variant<'a> = (&'a str, Box<dyn Fn() -> Measurement + 'a>);

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
    let mut jail = Jail::new("/bin/bash", Path::new("/root")).bind(work, MountAccess::ReadWrite);
    jail.arguments = vec!["-c".into(), "true".into()];
    jail
}

/// From the launch to the report that the jail is gone.
fn measure_lifetime(jail: &Jail) -> Measurement {
    let start = Instant::now();
    let mut running = Launcher::new("/proc/self/exe").launch(jail, &JailStreams::default())?;
    running.wait()?;
    Ok(start.elapsed())
}

/// From the launch to the first instruction of the program.
fn measure_start(jail: &Jail) -> Measurement {
    let start = Instant::now();
    let mut running = Launcher::new("/proc/self/exe").launch(jail, &JailStreams::default())?;
    let took = start.elapsed();
    running.kill()?;
    Ok(took)
}

fn spawn(program: &str, arguments: &[&str]) -> Measurement {
    let start = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    if command.status()?.success() { Ok(start.elapsed()) } else { Err(format!("{program} failed").into()) }
}

fn measure(work: &Path, bwrap: &str) -> Result<(), Box<dyn Error>> {
    let whole = jail(work);
    let unmasked = Jail { masked: Vec::new(), ..whole.clone() };
    let with_network = Jail { network: JailNetwork::Full, ..whole.clone() };
    let detached = Jail { lifetime: Lifetime::Detached, ..whole.clone() };
    let limits = JailLimits {
        memory: Some(1 << 30),
        processes: Some(512),
        millicpus: Some(1000),
        ..JailLimits::default()
    };
    let limited = Jail { limits, ..whole.clone() };
    let detached_limited = Jail { lifetime: Lifetime::Detached, ..limited.clone() };
    let text = work.to_string_lossy();
    let bwrap_arguments = [
        "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/",
        "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/home",
        "--bind", &text, &text, "--", "/bin/bash", "-c", "true",
    ];
    let mut variants: Vec<Variant<'_>> = vec![
        ("bash -c true", Box::new(|| spawn("/bin/bash", &["-c", "true"]))),
        ("jail: bash -c true", Box::new(|| measure_lifetime(&whole))),
        ("jail until bash starts", Box::new(|| measure_start(&whole))),
        ("jail without masks", Box::new(|| measure_lifetime(&unmasked))),
        ("jail with the host's network", Box::new(|| measure_lifetime(&with_network))),
        ("jail, detached", Box::new(|| measure_lifetime(&detached))),
        ("jail with cgroup limits", Box::new(|| measure_lifetime(&limited))),
        ("jail, detached, with limits", Box::new(|| measure_lifetime(&detached_limited))),
    ];
    if Path::new(bwrap).exists() {
        variants.push(("bwrap, comparable", Box::new(|| spawn(bwrap, &bwrap_arguments))));
    } else {
        println!("bwrap is not at {bwrap}");
    }
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in variants.iter().zip(&mut times) {
            times.push(run()?);
        }
    }
    let mut probes = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        Launcher::new("/proc/self/exe").probe()?;
        probes.push(start.elapsed());
    }
    variants.push(("probe", Box::new(|| Ok(Duration::ZERO))));
    times.push(probes);
    print(&variants, times);
    Ok(())
}

fn print(variants: &[Variant<'_>], times: Vec<Vec<Duration>>) {
    println!("{:<30} {:>9} {:>9} {:>9} {:>7}", "", "least ms", "median ms", "p99 ms", "ratio");
    let mut base = None;
    for ((name, _), mut times) in variants.iter().zip(times) {
        times.sort_unstable();
        let at =
            |part: usize| times.get(times.len() * part / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let (least, median, slow) = (at(0), at(50), at(99));
        let base = *base.get_or_insert(median);
        println!("{name:<30} {least:>9.2} {median:>9.2} {slow:>9.2} {:>7.1}", median / base);
    }
}
