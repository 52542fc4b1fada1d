//! Which engine makes the containers, and what to do when none can.

use std::fs;
use std::path::{Path, PathBuf};

use hermes_exec::backend::docker::discover::{DiscoveredEngine, EngineHints};
use hermes_exec::backend::docker::engine_error::{AddressProblem, EngineError};

use super::local;
use crate::ConfigContext;
use crate::failure::{Failure, Kind};
use crate::keys::Config;

const START: &str = "start it: `sudo systemctl start docker`, or for Podman `systemctl --user start podman.socket` \
                     or `podman system service --time 0`";
const NAME_IT: &str = "if it listens elsewhere, say where: DOCKER_HOST=unix:///path/of/socket";

/// Where the engine listens, and how that is known.
pub fn find(context: &ConfigContext, config: &Config) -> Result<DiscoveredEngine, EngineError> {
    let variable = |name: &str| context.variable(name).map(str::to_owned);
    let home = PathBuf::from(local::owner_home(context));
    let own_sockets = || format!("/run/user/{}", rustix::process::getuid().as_raw());
    let clues = EngineHints {
        docker_host: variable("DOCKER_HOST"),
        docker_context: variable("DOCKER_CONTEXT"),
        docker_tls_verify: variable("DOCKER_TLS_VERIFY"),
        container_host: variable("CONTAINER_HOST"),
        binary: config.terminal.docker_binary.clone().filter(|word| !word.trim().is_empty()),
        docker_config: variable("DOCKER_CONFIG").map_or_else(|| home.join(".docker"), PathBuf::from),
        runtime_dir: variable("XDG_RUNTIME_DIR").unwrap_or_else(own_sockets).into(),
        home_dir: home,
    };
    clues.discover()
}

/// What is wrong with the engine, and what to do about it.
pub fn told(fault: &EngineError) -> Failure {
    let kind = match fault {
        EngineError::Address { .. } | EngineError::Binary { .. } | EngineError::Context { .. } => {
            Kind::Configuration
        }
        _ => Kind::Unavailable,
    };
    let message = format!("the docker backend cannot be used: {fault}");
    Failure { kind, message, hints: hints(fault) }
}

/// What to do about it.
pub fn hints(fault: &EngineError) -> Vec<String> {
    let hints: &[&str] = match fault {
        EngineError::NotFound { .. } => {
            &[START, "there is none yet: `sudo apt install podman`, or what your system has instead", NAME_IT]
        }
        EngineError::Address { problem, .. } => return vec![other_address(*problem).to_owned()],
        EngineError::Binary { .. } => {
            &["say `podman` or `docker`, or leave terminal.docker_binary out to use what is there"]
        }
        EngineError::Context { .. } => {
            &["`docker context ls` says which there are, and `docker context use default` chooses none"]
        }
        EngineError::SocketMissing { .. } => &[START, NAME_IT],
        EngineError::PermissionDenied { group, .. } => return admission(*group),
        EngineError::ConnectionRefused { .. } => &[START],
        EngineError::TimedOut { .. } => &[
            "see what it does: `journalctl -u docker` or `journalctl --user -u podman`; restart it if it hangs",
        ],
        EngineError::NotAnEngine { .. } => &[NAME_IT],
        EngineError::TooOld { .. } => &["update it: Docker 20.10 and Podman 4, or later ones, will do"],
        EngineError::WrongArchitecture { .. } => {
            &["use an engine on a machine with the same processor, or a hermes that was built for that one"]
        }
        EngineError::UsersRemapped { .. } => &[
            "leave terminal.docker_run_as_host_user out, or let the container have the users of this machine \
             with `--userns=host` in terminal.docker_extra_args",
        ],
        EngineError::Mount { path, .. } if path.exists() => {
            &["the engine runs as another user, in a file system of its own or on another machine; \
             choose a path that it sees and may enter"]
        }
        EngineError::Mount { .. } => &["make it, or take it out of terminal.docker_volumes"],
        EngineError::Failed { .. } => &[],
    };
    hints.iter().map(|hint| (*hint).to_owned()).collect()
}

fn other_address(problem: AddressProblem) -> &'static str {
    match problem {
        AddressProblem::Ssh => {
            "forward its socket: `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST`, \
             then DOCKER_HOST=unix:///tmp/engine.sock"
        }
        AddressProblem::Tls => {
            "forward its socket through ssh: `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST`, \
             then DOCKER_HOST=unix:///tmp/engine.sock and no DOCKER_TLS_VERIFY"
        }
        AddressProblem::Pipe => "in WSL use the socket there: DOCKER_HOST=unix:///var/run/docker.sock",
        AddressProblem::Descriptor => {
            "name the socket it listens on: DOCKER_HOST=unix:///var/run/docker.sock"
        }
        AddressProblem::Unknown => "unix:///path/of/socket and tcp://host:port are known",
    }
}

/// How to be let in, or to do without.
fn admission(group: Option<u32>) -> Vec<String> {
    let groups = fs::read_to_string(Path::new("/etc/group")).unwrap_or_default();
    let name = group.filter(|group| *group != 0).and_then(|group| {
        let mut rows = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        rows.find_map(|row| match row.as_slice() {
            [name, _, id, ..] if id.parse() == Ok(group) => Some((*name).to_owned()),
            _ => None,
        })
    });
    let first = match name {
        Some(name) => format!(
            "it belongs to the group {name}: `sudo usermod -aG {name} $USER`, then log in again; \
             who is in that group is as good as root"
        ),
        None => "it is for root alone".to_owned(),
    };
    let without = "or use an engine without root: `systemctl --user start podman.socket`, or rootless Docker \
         with `dockerd-rootless-setuptool.sh install`";
    vec![first, without.to_owned()]
}
