//! What is left when `hermes exec` is killed, at any moment, and one lifetime has passed: nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use serde_json::{Value, json};

use crate::bench::chance;
use crate::bench::contest::table::{Bar, Row};
use crate::bench::contest::{Bench, word};

const KILLS: u32 = 100;
const LIFETIME: Duration = Duration::from_secs(2);
/// What runs in the background takes this long.
const BACKGROUND: Duration = Duration::from_secs(1);
/// What the machine may take on top, busy as it is.
const PATIENCE: Duration = Duration::from_secs(7);

/// Directories for files that nobody keeps, each empty at first.
const SCRATCH: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
const HOME: &str = "/tmp/home";
const RUN: &str = "/tmp/run";

pub(super) fn row(bench: &mut Bench) -> Result<Vec<Row>> {
    // Mounts, sockets and temporary files of its own, so that whatever appears there is a leftover.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--ipc", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe()?).args(["bench", "leftovers", word(&bench.hermes)?]);
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
    // Whatever loses its parent becomes a child of this process, and is found.
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
    settle(&BTreeSet::new(), |left| !left.iter().any(|one| one.starts_with("process")))?;
    let before = world()?;
    let mut running = 0;
    for number in 0..KILLS {
        let backend = if number % 2 == 0 { "sandbox" } else { "local" };
        let (session, words, span): (_, &[&str], _) = match number % 3 {
            0 => (format!("new {number}"), &["--", "true"], usual),
            1 => (format!("foreground {}", number % 8), &["--", "sleep 60"], 2 * usual),
            _ => (format!("background {}", number % 8), &["--background", "--", "sleep 1"], usual),
        };
        let mut child = exec(hermes, backend, &session, words).spawn()?;
        std::thread::sleep(span.mul_f64(chance()));
        running += u32::from(child.try_wait()?.is_none());
        child.kill()?;
        child.wait()?;
    }
    let there = world()?.difference(&before).filter(|one| one.starts_with("process")).count();
    ensure!(there > 0, "nothing was running after the last kill, so nothing is proved");
    // Directories of places that are gone hold nothing and nobody, and are swept away on occasion.
    let is_swept = |one: &String| one.starts_with(&format!("file {RUN}/"));
    let mut lifetime = settle(&before, |left| left.iter().all(is_swept))?;
    lifetime.retain(|one| !is_swept(one));
    let status = with_home(Command::new(hermes).args(["sandbox", "prune"])).status()?;
    ensure!(status.success(), "hermes sandbox prune ended with {status}");
    let prune = settle(&before, BTreeSet::is_empty)?;
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

/// Waits until this holds of what is there and was not before, and gives what is left in the end.
fn settle(before: &BTreeSet<String>, holds: impl Fn(&BTreeSet<String>) -> bool) -> Result<BTreeSet<String>> {
    let deadline = Instant::now() + LIFETIME + BACKGROUND + PATIENCE;
    loop {
        let left = world()?.difference(before).cloned().collect();
        if holds(&left) || Instant::now() > deadline {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Everything that could be left.
fn world() -> Result<BTreeSet<String>> {
    // Those that have ended and were never ours to wait for.
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

/// Cgroups of jails that are ours, or nobody's.
fn cgroups(directory: &Path, ours: &BTreeMap<u32, String>, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((keeper, _)) = name.strip_prefix("hermes-jail-").and_then(|name| name.split_once('-')) {
            let lives = Path::new("/proc").join(keeper).exists();
            if !lives || keeper.parse().is_ok_and(|keeper| ours.contains_key(&keeper)) {
                found.insert(format!("cgroup {}", entry.path().display()));
            }
        }
        cgroups(&entry.path(), ours, found);
    }
}
