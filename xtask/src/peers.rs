//! The real peers that tests talk to: `cargo xtask peers up|down|status`.
//!
//! Each peer is installed from Debian's packages, started on private paths and ports in a [`cell`]
//! of its own, and counts as up after it answered a request. [`report`] describes it for the tests.

mod apptainer;
mod apt;
mod cell;
mod dirs;
mod docker;
mod engine;
mod http;
mod images;
mod models;
mod podman;
mod report;
mod run;
mod smollm;
mod sshd;
mod user;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use apt::Need;
use cell::Cell;
use dirs::Dirs;
use podman::Podman;
use report::{Access, Condition, Report};

const HELP: &str = "\
Usage: cargo xtask peers up [--require] [NAME...]     install and start
       cargo xtask peers down [--purge] [NAME...]     stop; --purge also removes images and storage
       cargo xtask peers status [--json] [NAME...]    ask each

Names: docker, podman, podman-rootless, sshd, apptainer, models (all, if none is given)
       smollm, a real language model (started only if it is named)

A missing peer is reported; with --require, or CI=true in the environment, it is an error.
State is kept in target/peers, or in the directory named by HERMES_PEERS_DIR.
";

/// A peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    Docker,
    Podman,
    PodmanRootless,
    Sshd,
    Apptainer,
    Models,
    Smollm,
}

const ALL: [Peer; 7] = [
    Peer::Docker,
    Peer::Podman,
    Peer::PodmanRootless,
    Peer::Sshd,
    Peer::Apptainer,
    Peer::Models,
    Peer::Smollm,
];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Docker => docker::NAME,
            Self::Podman => Podman::Root.name(),
            Self::PodmanRootless => Podman::Rootless.name(),
            Self::Sshd => sshd::NAME,
            Self::Apptainer => apptainer::NAME,
            Self::Models => models::NAME,
            Self::Smollm => smollm::NAME,
        }
    }

    fn unmet(self) -> Vec<Need> {
        let own = match self {
            Self::Docker => docker::NEEDS,
            Self::Podman => Podman::Root.needs(),
            Self::PodmanRootless => Podman::Rootless.needs(),
            Self::Sshd => sshd::NEEDS,
            Self::Apptainer => apptainer::NEEDS,
            Self::Models => models::NEEDS,
            Self::Smollm => smollm::NEEDS,
        };
        let images = if self.uses_images() { images::NEEDS } else { &[] };
        apt::unmet(&[apt::CELL, own, images])
    }

    fn uses_images(self) -> bool {
        !matches!(self, Self::Sshd | Self::Models | Self::Smollm)
    }

    /// Whether it starts only if it is named on the command line.
    fn is_optional(self) -> bool {
        self == Self::Smollm
    }

    /// Whether it is a running process, not only installed programs.
    fn runs(self) -> bool {
        self != Self::Models
    }

    fn up(self, dirs: &Dirs) -> Result<()> {
        match self {
            Self::Docker => docker::up(dirs),
            Self::Podman => Podman::Root.up(dirs),
            Self::PodmanRootless => Podman::Rootless.up(dirs),
            Self::Sshd => sshd::up(dirs),
            Self::Apptainer => apptainer::up(dirs),
            Self::Models => models::up(dirs),
            Self::Smollm => smollm::up(dirs),
        }
    }

    fn down(self, dirs: &Dirs) -> Result<()> {
        match self {
            Self::Docker => docker::down(dirs),
            Self::Podman => Podman::Root.down(dirs),
            Self::PodmanRootless => Podman::Rootless.down(dirs),
            Self::Sshd => sshd::down(dirs),
            Self::Apptainer => apptainer::down(dirs),
            Self::Models => models::down(dirs),
            Self::Smollm => smollm::down(dirs),
        }
    }

    fn probe(self, dirs: &Dirs) -> Result<Access> {
        match self {
            Self::Docker => docker::probe(dirs),
            Self::Podman => Podman::Root.probe(dirs),
            Self::PodmanRootless => Podman::Rootless.probe(dirs),
            Self::Sshd => sshd::probe(dirs),
            Self::Apptainer => apptainer::probe(dirs),
            Self::Models => models::probe(dirs),
            Self::Smollm => smollm::probe(dirs),
        }
    }
}

/// The parsed arguments.
struct Request {
    peers: Vec<Peer>,
    option: bool,
}

/// Parses `[OPTION] [NAME...]`. Without a name, `unnamed` applies.
fn parse(args: &[String], option: &str, unnamed: impl Iterator<Item = Peer>) -> Result<Request> {
    let mut request = Request { peers: Vec::new(), option: false };
    for arg in args {
        if arg == option {
            request.option = true;
        } else {
            let peer = ALL.into_iter().find(|peer| peer.name() == arg);
            request.peers.push(peer.with_context(|| format!("no peer or option `{arg}`"))?);
        }
    }
    if request.peers.is_empty() {
        request.peers.extend(unnamed);
    }
    Ok(request)
}

/// Runs `cargo xtask peers ARGS`.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let usage = |error: anyhow::Error| {
        eprintln!("error: {error}\n\n{HELP}");
        Ok(ExitCode::from(2))
    };
    let Some((verb, rest)) = args.split_first() else { return usage(anyhow!("nothing to do")) };
    let (option, task): (_, fn(&Dirs, Request) -> Result<ExitCode>) = match verb.as_str() {
        "up" => ("--require", up),
        "down" => ("--purge", down),
        "status" => ("--json", status),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        other => return usage(anyhow!("unknown task `{other}`")),
    };
    let unnamed = ALL.into_iter().filter(|peer| verb != "up" || !peer.is_optional());
    match parse(rest, option, unnamed) {
        Ok(request) => task(&Dirs::find()?, request),
        Err(error) => usage(error),
    }
}

/// The socket of the running peer `docker`, and an image that it has.
pub(crate) fn docker() -> Result<(PathBuf, String)> {
    match docker::probe(&Dirs::find()?)? {
        Access::Engine { socket, .. } => Ok((socket, images::Image::Bash.reference())),
        other => bail!("{other:?}"),
    }
}

/// A process in the namespaces of the peer `docker`.
pub(crate) fn docker_process() -> Result<i32> {
    let dirs = Dirs::find()?;
    let init = Cell::new(&dirs, docker::NAME).init()?;
    Ok(init.context("the peer `docker` is not running")?.pid)
}

fn up(dirs: &Dirs, request: Request) -> Result<ExitCode> {
    let begin = Instant::now();
    let required = request.option || std::env::var("CI").is_ok_and(|value| value == "true");
    let _lock = lock(dirs)?;
    let outcomes = if is_root() { start(dirs, &request.peers)? } else { refuse(&request.peers) };
    let report = survey(dirs, &outcomes)?;
    save(dirs, &report)?;
    let mut code = ExitCode::SUCCESS;
    for peer in
        report.peers.iter().filter(|peer| request.peers.iter().any(|wanted| wanted.name() == peer.name))
    {
        match &peer.condition {
            Condition::Up { .. } => println!("{}", line(peer)),
            Condition::Down { reason, start } => {
                eprintln!("FAILED PEER {}: {reason}; try again with: {start}", peer.name);
                code = ExitCode::FAILURE;
            }
            Condition::Missing { reason, install } => {
                eprintln!("MISSING PEER {}: {reason}; install it with: {install}", peer.name);
                if required {
                    code = ExitCode::FAILURE;
                }
            }
        }
    }
    for peer in ALL.into_iter().filter(|peer| peer.is_optional() && !request.peers.contains(peer)) {
        let name = peer.name();
        match report.peers.iter().find(|known| known.name == name) {
            Some(known @ report::Peer { condition: Condition::Up { .. }, .. }) => println!("{}", line(known)),
            _ => {
                eprintln!("SKIPPED PEER {name}: optional; start it with: cargo xtask peers up {name}")
            }
        }
    }
    eprintln!("peers: done in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(code)
}

/// Installs, builds and starts. Returns the condition of each peer that did not come up.
fn start(dirs: &Dirs, peers: &[Peer]) -> Result<BTreeMap<Peer, Condition>> {
    apt::remove_policy()?;
    let mut outcomes = install(dirs, peers);
    let peers: Vec<Peer> = peers.iter().copied().filter(|peer| !outcomes.contains_key(peer)).collect();
    user::ensure()?;
    // Leftovers of a killed run.
    dirs::remove(&dirs.state("tmp"))?;
    dirs::make(&dirs.state("tmp"), 0o755)?;
    let (images, root) = thread::scope(|scope| {
        let images = scope.spawn(|| match peers.iter().any(|peer| peer.uses_images()) {
            true => images::ensure(dirs),
            false => Ok(()),
        });
        let root = match peers.contains(&Peer::Apptainer) {
            true => apptainer::ensure_root(dirs),
            false => Ok(()),
        };
        (joined(images.join()), root)
    });
    let ready = |peer: Peer| match (peer, &images, &root) {
        (Peer::Apptainer, _, Err(error)) => Err(anyhow!("{error:#}")),
        (_, Err(error), _) if peer.uses_images() => Err(anyhow!("{error:#}")),
        _ => Ok(()),
    };
    thread::scope(|scope| {
        let tasks: Vec<_> = peers
            .iter()
            .map(|peer| (*peer, scope.spawn(move || ready(*peer).and_then(|()| peer.up(dirs)))))
            .collect();
        for (peer, task) in tasks {
            if let Err(error) = joined(task.join()) {
                outcomes.insert(peer, failed(peer, &error));
            }
        }
    });
    dirs::remove(&dirs.state("tmp"))?;
    Ok(outcomes)
}

/// Installs the packages of all peers and the programs of the tests at once, or each peer's if that
/// fails: one unavailable package must not keep the other peers from starting.
fn install(dirs: &Dirs, peers: &[Peer]) -> BTreeMap<Peer, Condition> {
    let programs = apt::unmet(&[apt::PROGRAMS]);
    let unmet: Vec<Need> = peers.iter().flat_map(|peer| peer.unmet()).chain(programs.clone()).collect();
    let mut outcomes = BTreeMap::new();
    if apt::install(dirs, &unmet).is_ok() {
        return outcomes;
    }
    // A test that needs a missing program fails and names it.
    if let Err(error) = apt::install(dirs, &programs) {
        eprintln!(
            "peers: programs of the tests are missing: {error:#}; try `{}`",
            apt::install_command(&programs)
        );
    }
    for peer in peers {
        let unmet = peer.unmet();
        if let Err(error) = apt::install(dirs, &unmet) {
            let install = apt::install_command(&unmet);
            outcomes.insert(*peer, Condition::Missing { reason: format!("{error:#}"), install });
        }
    }
    outcomes
}

fn refuse(peers: &[Peer]) -> BTreeMap<Peer, Condition> {
    let condition = |peer: Peer| Condition::Missing {
        reason: "only root can install and start it".to_owned(),
        install: format!("sudo cargo xtask peers up {}", peer.name()),
    };
    peers.iter().map(|peer| (*peer, condition(*peer))).collect()
}

fn down(dirs: &Dirs, request: Request) -> Result<ExitCode> {
    let begin = Instant::now();
    let _lock = lock(dirs)?;
    if !is_root() && dirs.run_root().exists() {
        eprintln!("error: the peers run as root; stop them with: sudo cargo xtask peers down");
        return Ok(ExitCode::FAILURE);
    }
    let mut code = ExitCode::SUCCESS;
    if is_root() {
        thread::scope(|scope| {
            let tasks: Vec<_> =
                request.peers.iter().map(|peer| (peer, scope.spawn(|| peer.down(dirs)))).collect();
            for (peer, task) in tasks {
                if let Err(error) = joined(task.join()) {
                    eprintln!("error: {}: {error:#}", peer.name());
                    code = ExitCode::FAILURE;
                }
            }
        });
        apt::remove_policy()?;
        cell::script(
            include_str!("peers/cgroups-down.sh"),
            &[OsStr::new(dirs.id()), OsStr::new("libpod_parent")],
        )?;
    }
    // The directory goes with its last cell.
    if !ALL.iter().any(|peer| dirs.run(&format!("{}.cell", peer.name())).exists()) {
        dirs::remove(dirs.run_root())?;
    }
    if request.option {
        purge(dirs, &request.peers)?;
    }
    save(dirs, &survey(dirs, &BTreeMap::new())?)?;
    eprintln!("peers: done in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(code)
}

/// Removes the cached state. The packages and the user stay.
fn purge(dirs: &Dirs, peers: &[Peer]) -> Result<()> {
    for peer in peers {
        let dir = if *peer == Peer::Sshd { "ssh" } else { peer.name() };
        dirs::remove(&dirs.state(dir))?;
    }
    if ALL.iter().all(|peer| peers.contains(peer)) {
        for dir in ["images", "logs", "shared", "tmp", "policy-rc.d"] {
            dirs::remove(&dirs.state(dir))?;
        }
        dirs.create()?;
    }
    Ok(())
}

fn status(dirs: &Dirs, request: Request) -> Result<ExitCode> {
    let mut report = survey(dirs, &BTreeMap::new())?;
    report.peers.retain(|peer| request.peers.iter().any(|wanted| wanted.name() == peer.name));
    if request.option {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.peers.iter().for_each(|peer| println!("{}", line(peer)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Probes every peer whose outcome is not known yet.
fn survey(dirs: &Dirs, outcomes: &BTreeMap<Peer, Condition>) -> Result<Report> {
    let condition = |peer: Peer| {
        if let Some(condition) = outcomes.get(&peer) {
            return condition.clone();
        }
        let unmet = peer.unmet();
        if let Some(need) = unmet.first() {
            let install = apt::install_command(&unmet);
            return Condition::Missing { reason: format!("no {}", need.program), install };
        }
        let running = match peer.runs() {
            true => {
                Cell::new(dirs, peer.name()).init().and_then(|init| init.context("not running").map(drop))
            }
            false => Ok(()),
        };
        match running.and_then(|()| peer.probe(dirs)) {
            Ok(access) => Condition::Up { access },
            Err(error) => failed(peer, &error),
        }
    };
    let peers = ALL.into_iter();
    Ok(Report {
        schema: report::SCHEMA,
        shared_dir: dirs.state("shared"),
        user: user::find()?,
        images: images::ALL.into_iter().map(|image| image.describe(dirs)).collect(),
        peers: peers
            .map(|peer| report::Peer { name: peer.name().to_owned(), condition: condition(peer) })
            .collect(),
    })
}

fn failed(peer: Peer, error: &anyhow::Error) -> Condition {
    let start = format!("cargo xtask peers up {}", peer.name());
    Condition::Down { reason: format!("{error:#}"), start }
}

fn line(peer: &report::Peer) -> String {
    let name = &peer.name;
    match &peer.condition {
        Condition::Up { access: Access::Engine { socket, version } } => {
            format!("{name}: up, version {version} at {}", socket.display())
        }
        Condition::Up { access: Access::Ssh { host, port, .. } } => format!("{name}: up at {host}:{port}"),
        Condition::Up { access: Access::Apptainer { launch, version, .. } } => {
            format!("{name}: up, version {version} as {}", launch.join(" "))
        }
        Condition::Up { access: Access::Model { url, model } } => format!("{name}: up, {model} at {url}"),
        Condition::Up { access: Access::Models { version, .. } } => {
            format!("{name}: there, versions {version}")
        }
        Condition::Down { reason, start } => format!("{name}: down, {reason}; start it with: {start}"),
        Condition::Missing { reason, install } => {
            format!("{name}: missing, {reason}; install it with: {install}")
        }
    }
}

fn save(dirs: &Dirs, report: &Report) -> Result<()> {
    dirs::write(&dirs.state("peers.json"), &format!("{}\n", serde_json::to_string_pretty(report)?), 0o644)
}

/// Keeps two tasks from working on the same state. The kernel releases the lock when its holder
/// ends.
fn lock(dirs: &Dirs) -> Result<File> {
    dirs.create()?;
    let file = File::create(dirs.state("lock"))?;
    if file.try_lock().is_err() {
        eprintln!("peers: waiting for another `cargo xtask peers`");
        file.lock()?;
    }
    Ok(file)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn joined(outcome: thread::Result<Result<()>>) -> Result<()> {
    outcome.unwrap_or_else(|_| Err(anyhow!("a thread ended early")))
}
