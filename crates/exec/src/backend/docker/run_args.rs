//! Options of `docker run` from `terminal.docker_extra_args`.
//!
//! Each option is parsed into the request field that it sets, or refused. Nothing is passed on as
//! text, so the reach of a container is known before it is created.
//!
//! Clap does not replace this parser: a value may follow its option after a space in the same list
//! item, an error names the item and the expected form, and almost every value needs its own check.

mod apply;
pub mod value;

use std::collections::BTreeMap;

use bollard::models::HostConfig;
use hermes_types::{EnvName, Reach, Volume};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ContainerLimits;
use value::{
    Gpus, MountArg, Port, parse_address, parse_capability, parse_device, parse_host, parse_ipc_mode,
    parse_label, parse_limit, parse_millicpus, parse_mount, parse_name, parse_network, parse_pair,
    parse_pid_mode, parse_process_limit, parse_processors, parse_security, parse_swap, parse_text,
    parse_tmpfs, parse_ulimit, parse_userns_mode, parse_uts_mode, parse_volume,
};

/// Capabilities that have no effect outside the container's own namespaces.
const HARMLESS_CAPABILITIES: [&str; 19] = [
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "LEASE", "MKNOD",
    "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT", "SYS_NICE",
];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunArgs {
    /// Options that are fields of the request as they are. No field of it is a map, whose order
    /// would change the identity of the place.
    pub host: HostConfig,
    pub cap_add: Vec<String>,
    pub cap_drop: Vec<String>,
    pub gpus: Option<Gpus>,
    pub security: Vec<String>,
    pub network: Option<String>,
    pub ports: Vec<Port>,
    pub user: Option<String>,
    pub hostname: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub tmpfs: BTreeMap<String, String>,
    pub sysctls: BTreeMap<String, String>,
    /// Bytes; 0 is unlimited. This field and those below override other settings and are not part
    /// of the request.
    #[serde(skip)]
    pub memory: Option<u64>,
    /// Thousandths of a processor; 0 is unlimited.
    #[serde(skip)]
    pub millicpus: Option<u32>,
    /// 0 is unlimited.
    #[serde(skip)]
    pub processes: Option<u32>,
    #[serde(skip)]
    pub shm: Option<u64>,
    /// From `--volume` and `--mount`.
    #[serde(skip)]
    pub volumes: Vec<Volume>,
    /// From `--env`. Set for the session only, since any engine user can read the container's
    /// settings.
    #[serde(skip)]
    pub env: Vec<(EnvName, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {expected}, found {found}")]
pub struct RunArgError {
    /// The index of the list item.
    pub item: usize,
    pub expected: String,
    pub found: String,
}

impl RunArgs {
    /// Parses options. A value may follow its option after `=`, after a space or as the next item.
    pub fn parse(items: &[String]) -> Result<Self, RunArgError> {
        let mut parsed = Self::default();
        let mut rest = items.iter();
        while let Some(text) = rest.next() {
            let item = items.len() - rest.len() - 1;
            let (name, inline) = split_option(text.trim_start());
            parsed.set_option(ArgReader { item, name, inline, rest: &mut rest })?;
        }
        Ok(parsed)
    }

    fn set_option(&mut self, mut arg: ArgReader<'_, '_>) -> Result<(), RunArgError> {
        let host = &mut self.host;
        match arg.name {
            "--cap-add" => self.cap_add.push(arg.read(parse_capability)?),
            "--cap-drop" => self.cap_drop.push(arg.read(parse_capability)?),
            "--device" => push(&mut host.devices, arg.read(parse_device)?),
            "--gpus" => self.gpus = Some(arg.read(str::parse)?),
            "--privileged" => host.privileged = arg.flag()?.then_some(true),
            "--read-only" => host.readonly_rootfs = arg.flag()?.then_some(true),
            // The guest is the first process and reaps children.
            "--init" => drop(arg.flag()?),
            "--security-opt" => self.security.extend(arg.read(parse_security)?),
            "--network" | "--net" => self.network = Some(arg.read(parse_network)?),
            "--publish" | "-p" => self.ports.push(arg.read(Port::parse)?),
            "--pid" => host.pid_mode = Some(arg.read(parse_pid_mode)?),
            "--ipc" => host.ipc_mode = Some(arg.read(parse_ipc_mode)?),
            "--uts" => host.uts_mode = Some(arg.read(parse_uts_mode)?),
            "--userns" => host.userns_mode = Some(arg.read(parse_userns_mode)?),
            "--user" | "-u" => self.user = Some(arg.read(|text| parse_text(text, "a user or user:group"))?),
            "--group-add" => push(&mut host.group_add, arg.read(|text| parse_text(text, "a group"))?),
            "--hostname" | "-h" => self.hostname = Some(arg.read(|text| parse_name(text, "a name"))?),
            "--add-host" => push(&mut host.extra_hosts, arg.read(parse_host)?),
            "--dns" => push(&mut host.dns, arg.read(parse_address)?),
            "--label" | "-l" => self.labels.extend([arg.read(parse_label)?]),
            "--tmpfs" => self.tmpfs.extend([arg.read(parse_tmpfs)?]),
            "--volume" | "-v" => self.volumes.push(arg.read(parse_volume)?),
            "--mount" => match arg.read(parse_mount)? {
                MountArg::Volume(volume) => self.volumes.push(volume),
                MountArg::Tmpfs(path, options) => self.tmpfs.extend([(path, options)]),
            },
            "--env" | "-e" => self.env.push(arg.variable()?),
            "--runtime" => host.runtime = Some(arg.read(|text| parse_name(text, "the name of a runtime"))?),
            "--sysctl" => self.sysctls.extend([arg.read(|text| parse_pair(text).ok_or("name=value"))?]),
            "--ulimit" => push(&mut host.ulimits, arg.read(parse_ulimit)?),
            "--cpuset-cpus" => host.cpuset_cpus = Some(arg.read(parse_processors)?),
            "--cpus" => self.millicpus = Some(arg.read(parse_millicpus)?),
            "--memory" | "-m" => self.memory = Some(arg.read(parse_limit)?),
            "--memory-swap" => host.memory_swap = Some(arg.read(parse_swap)?),
            "--pids-limit" => self.processes = Some(arg.read(parse_process_limit)?),
            "--shm-size" => self.shm = Some(arg.read(parse_limit)?),
            _ => return Err(arg.refused()),
        }
        Ok(())
    }

    /// Overrides limits with those from the options.
    pub fn apply_limits(&self, limits: &mut ContainerLimits) {
        limits.memory = self.memory.or(limits.memory).filter(|memory| *memory > 0);
        limits.millicpus = self.millicpus.or(limits.millicpus).filter(|millicpus| *millicpus > 0);
        limits.processes = self.processes.or(limits.processes).filter(|processes| *processes > 0);
        limits.shm = self.shm.or(limits.shm);
    }

    /// Options that open up the container, as `docker run` spells them, and the reach they give.
    /// GPUs and published ports do not reach the owner's files or programs, but are listed.
    pub fn exposures(&self) -> Vec<(String, Reach)> {
        let joins = |mode: &str| mode == "host" || mode.starts_with("container:");
        let reach = |is_host: bool| if is_host { Reach::Host } else { Reach::Nothing };
        let mut exposures = Vec::new();
        let mut add = |option: String, reach: Reach| exposures.push((option, reach));
        let HostConfig { privileged, pid_mode, ipc_mode, uts_mode, userns_mode, devices, .. } = &self.host;
        if *privileged == Some(true) {
            add("--privileged".to_owned(), Reach::Host);
        }
        if let Some(mode) = self.network.as_deref().filter(|mode| !["none", "bridge"].contains(mode)) {
            add(format!("--network {mode}"), reach(joins(mode)));
        }
        for (name, mode) in [("pid", pid_mode), ("ipc", ipc_mode), ("uts", uts_mode), ("userns", userns_mode)]
        {
            if let Some(mode) = mode.as_deref().filter(|mode| joins(mode)) {
                add(format!("--{name} {mode}"), Reach::Host);
            }
        }
        for device in devices.iter().flatten() {
            add(format!("--device {}", device.path_on_host.as_deref().unwrap_or_default()), Reach::Host);
        }
        for capability in &self.cap_add {
            let is_harmless = HARMLESS_CAPABILITIES.contains(&capability.as_str());
            add(format!("--cap-add {capability}"), reach(!is_harmless));
        }
        for option in self.security.iter().filter(|option| is_unconfined(option)) {
            add(format!("--security-opt {option}"), Reach::Host);
        }
        self.gpus.iter().for_each(|gpus| add(format!("--gpus {gpus}"), Reach::Nothing));
        self.ports.iter().for_each(|port| add(format!("--publish {port}"), Reach::Nothing));
        exposures
    }

    pub fn reaches_host(&self) -> bool {
        self.exposures().iter().any(|(_, reach)| *reach == Reach::Host)
    }
}

/// One option while it is parsed.
struct ArgReader<'a, 'b> {
    item: usize,
    name: &'a str,
    inline: Option<&'a str>,
    rest: &'b mut std::slice::Iter<'a, String>,
}

impl<'a> ArgReader<'a, '_> {
    fn value(&mut self) -> Option<&'a str> {
        self.inline.or_else(|| self.rest.next().map(String::as_str))
    }

    fn error(&self, expected: String, found: String) -> RunArgError {
        RunArgError { item: self.item, expected, found }
    }

    /// Parses the value. No parser accepts an empty one, so a missing value is an error too.
    fn read<T>(&mut self, parse: impl FnOnce(&str) -> Result<T, &'static str>) -> Result<T, RunArgError> {
        let (name, value) = (self.name, self.value());
        parse(value.unwrap_or_default().trim()).map_err(|expected| {
            let found = value.map_or(format!("`{name}` alone"), |value| format!("`{name} {value}`"));
            self.error(format!("`{name}` with {expected}"), found)
        })
    }

    fn flag(&self) -> Result<bool, RunArgError> {
        let name = self.name;
        match self.inline.unwrap_or_default().trim() {
            "" | "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            other => Err(self
                .error(format!("`{name}`, with `=true` or `=false` at most"), format!("`{name}={other}`"))),
        }
    }

    /// A variable with its value; errors do not show the value.
    fn variable(&mut self) -> Result<(EnvName, String), RunArgError> {
        let text = self.value().unwrap_or(self.name);
        let found = match text.split_once('=') {
            Some((name, value)) => match name.parse() {
                Ok(name) => return Ok((name, value.to_owned())),
                Err(_invalid) => "another name".to_owned(),
            },
            None => format!("`{text}` alone"),
        };
        let expected = "a variable as NAME=VALUE (docker_forward_env forwards those of yours)";
        Err(self.error(expected.to_owned(), found))
    }

    fn refused(&self) -> RunArgError {
        let name = self.name;
        match refusal_reason(name) {
            Some(reason) => self.error(format!("no `{name}` ({reason})"), "one".to_owned()),
            None => self.error("a supported option of `docker run`".to_owned(), format!("`{name}`")),
        }
    }
}

fn push<T>(list: &mut Option<Vec<T>>, item: T) {
    list.get_or_insert_default().push(item);
}

/// Splits an item into the option and the value in the same item.
fn split_option(text: &str) -> (&str, Option<&str>) {
    if let Some((name, value)) = text.split_once(|sign: char| sign == '=' || sign.is_whitespace()) {
        return (name, Some(value));
    }
    // As in `-p8080:80`.
    let short = ["-e", "-h", "-l", "-m", "-p", "-u", "-v"].iter().find_map(|short| {
        let value = text.strip_prefix(short).filter(|value| !value.is_empty())?;
        Some((*short, Some(value)))
    });
    short.unwrap_or((text, None))
}

/// The reason why Hermes controls an option itself.
fn refusal_reason(name: &str) -> Option<&'static str> {
    Some(match name {
        "--name" => "Hermes names the container",
        "--entrypoint" => "the container starts the guest",
        "--rm" => "a stopped container is always removed",
        "--restart" => "a stopped container is recreated when it is needed",
        "--detach" | "-d" => "a container always runs detached",
        "--interactive" | "-i" | "--tty" | "-t" | "-it" | "-ti" | "-dit" | "-itd" => {
            "use `hermes shell` for a terminal"
        }
        "--workdir" | "-w" => "use terminal.cwd",
        "--env-file" => "use docker_env or docker_forward_env",
        "--storage-opt" => "use terminal.container_disk",
        "--pull" | "--platform" => "the local image is used",
        _ => return None,
    })
}

fn is_unconfined(security: &str) -> bool {
    // Another SELinux type or user may be an unconfined one.
    security.ends_with("=unconfined")
        || (security.starts_with("label=") && !security.starts_with("label=level:"))
}

#[cfg(test)]
mod tests;
