//! Kills `hermes exec` at random moments and counts what is left after one idle lifetime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use serde_json::{Value, json};

use crate::bench::comparison::table::{Bar, Row};
use crate::bench::comparison::{Bench, path_text};
use crate::bench::random_fraction;

const KILLS: u32 = 100;
const LIFETIME: Duration = Duration::from_secs(2);
/// Duration of the background commands.
const BACKGROUND: Duration = Duration::from_secs(1);
/// Extra time for a busy machine.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(7);

/// Directories for temporary files, each empty at first.
const SCRATCH: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
const HOME: &str = "/tmp/home";
const RUN: &str = "/tmp/run";

pub(super) fn row(bench: &mut Bench) -> Result<Vec<Row>> {
    // Private mounts, sockets and temporary files: everything that appears there is a leftover.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--ipc", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe()?).args(["bench", "leftovers", path_text(&bench.hermes)?]);
    let output = command.stderr(Stdio::inherit()).output().context("unshare")?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let found: Value = serde_json::from_slice(&output.stdout)?;
    eprintln!(
        "{} of {KILLS} were still running when killed; {} processes were there after the last",
        found["running"], found["there"]
    );
    let mut rows = Vec::new();
    for (name, figures) in [("after a lifetime", "lifetime"), ("after `hermes sandbox prune`", "prune")] {
        let left = found[figures].as_array().context("no figures")?;
        left.iter().for_each(|one| eprintln!("left {name}: {one}"));
        let count = f64::from(u32::try_from(left.len())?);
        rows.push(Row::figures(&format!("{KILLS} kills: left {name}"), "", &[count], Bar::AtMost(0.0)));
    }
    Ok(rows)
}

/// The part that runs in namespaces of its own.
pub(in crate::bench) fn inside(args: &[String]) -> Result<ExitCode> {
    let hermes = args.first().context("usage: leftovers HERMES")?;
    // Orphaned processes become children of this process and are found.
    set_child_subreaper(Some(getpid()))?;
    for directory in SCRATCH {
        let status = Command::new("mount").args(["-t", "tmpfs", "tmpfs", directory]).status()?;
        ensure!(status.success(), "{directory} cannot be covered");
    }
    [HOME, RUN].into_iter().try_for_each(fs::create_dir_all)?;
    let mut usual = Duration::ZERO;
    for backend in ["local", "sandbox"] {
        let began = Instant::now();
        let status = exec(hermes, backend, "warm", &["--", "true"]).status()?;
        ensure!(status.success(), "hermes exec on {backend} ended with {status}");
        usual = usual.max(began.elapsed());
    }
    wait_for_leftovers(&BTreeSet::new(), |left| !left.iter().any(|one| one.starts_with("process")))?;
    let before = list_resources()?;
    let mut running = 0;
    for number in 0..KILLS {
        let backend = if number % 2 == 0 { "sandbox" } else { "local" };
        let (session, words, span): (_, &[&str], _) = match number % 3 {
            0 => (format!("new {number}"), &["--", "true"], usual),
            1 => (format!("foreground {}", number % 8), &["--", "sleep 60"], 2 * usual),
            _ => (format!("background {}", number % 8), &["--background", "--", "sleep 1"], usual),
        };
        let mut child = exec(hermes, backend, &session, words).spawn()?;
        std::thread::sleep(span.mul_f64(random_fraction()));
        running += u32::from(child.try_wait()?.is_none());
        child.kill()?;
        child.wait()?;
    }
    let there = list_resources()?.difference(&before).filter(|one| one.starts_with("process")).count();
    ensure!(there > 0, "nothing was running after the last kill, so the result proves nothing");
    // Run directories of ended environments are empty and removed by the next hermes.
    let is_swept = |one: &String| one.starts_with(&format!("file {RUN}/"));
    let mut lifetime = wait_for_leftovers(&before, |left| left.iter().all(is_swept))?;
    lifetime.retain(|one| !is_swept(one));
    let status = with_home(Command::new(hermes).args(["sandbox", "prune"])).status()?;
    ensure!(status.success(), "hermes sandbox prune ended with {status}");
    let prune = wait_for_leftovers(&before, BTreeSet::is_empty)?;
    println!("{}", json!({ "lifetime": lifetime, "prune": prune, "running": running, "there": there }));
    Ok(ExitCode::SUCCESS)
}

fn exec(hermes: &str, backend: &str, session: &str, words: &[&str]) -> Command {
    let mut command = Command::new(hermes);
    with_home(command.args(["exec", "--backend", backend, "--session", session]).args(words));
    command
}

fn with_home(command: &mut Command) -> &mut Command {
    command
        .env("HERMES_HOME", HOME)
        .env("XDG_RUNTIME_DIR", RUN)
        .env("TERMINAL_LIFETIME_SECONDS", LIFETIME.as_secs().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Waits until the new resources satisfy `holds`, and returns those that are left.
fn wait_for_leftovers(
    before: &BTreeSet<String>,
    holds: impl Fn(&BTreeSet<String>) -> bool,
) -> Result<BTreeSet<String>> {
    let deadline = Instant::now() + LIFETIME + BACKGROUND + CLEANUP_TIMEOUT;
    loop {
        let left = list_resources()?.difference(before).cloned().collect();
        if holds(&left) || Instant::now() > deadline {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Lists processes, mounts, sockets, files and cgroups.
fn list_resources() -> Result<BTreeSet<String>> {
    // Reap adopted children that have ended.
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    let processes = descendants()?;
    let mut found: BTreeSet<String> =
        processes.iter().map(|(pid, name)| format!("process {pid} {name}")).collect();
    found.extend(fs::read_to_string("/proc/self/mountinfo")?.lines().map(|line| format!("mount {line}")));
    let sockets = fs::read_to_string("/proc/net/unix")?;
    found.extend(sockets.lines().skip(1).map(|line| format!("socket {line}")));
    for directory in SCRATCH {
        files(Path::new(directory), &mut found);
    }
    cgroups(Path::new("/sys/fs/cgroup"), &processes, &mut found);
    Ok(found)
}

/// The processes below this one, with their names.
fn descendants() -> Result<BTreeMap<u32, String>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // 12 (name) S 1 …
        let Some((start, rest)) = stat.rsplit_once(") ") else { continue };
        let Some((pid, name)) = start.split_once(" (") else { continue };
        let parent = rest.split(' ').nth(1).unwrap_or_default();
        parents.insert(pid.parse::<u32>()?, (parent.parse::<u32>()?, name.to_owned()));
    }
    let own = std::process::id();
    let is_below = |mut pid: u32| {
        while let Some((parent, _)) = parents.get(&pid) {
            if *parent == own {
                return true;
            }
            pid = *parent;
        }
        false
    };
    Ok(parents
        .iter()
        .filter(|(pid, _)| is_below(**pid))
        .map(|(pid, (_, name))| (*pid, name.clone()))
        .collect())
}

/// Files below a directory, but not those that are meant to stay.
fn files(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let below_run = path.starts_with(RUN);
        let stays = path == Path::new(HOME).join("sandboxes")
            || (below_run && (name.ends_with(".lock") || name == ".swept" || name == ".admission"));
        if stays {
            continue;
        }
        found.insert(format!("file {}", path.display()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&path, found);
        }
    }
}

/// Cgroups of our jails, and of jails without a process.
fn cgroups(directory: &Path, ours: &BTreeMap<u32, String>, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((supervisor, _)) = name.strip_prefix("hermes-jail-").and_then(|name| name.split_once('-'))
        {
            let lives = Path::new("/proc").join(supervisor).exists();
            if !lives || supervisor.parse().is_ok_and(|supervisor| ours.contains_key(&supervisor)) {
                found.insert(format!("cgroup {}", entry.path().display()));
            }
        }
        cgroups(&entry.path(), ours, found);
    }
}
