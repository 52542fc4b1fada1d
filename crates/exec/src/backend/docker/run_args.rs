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
use std::fmt;
use std::net::IpAddr;

use hermes_types::{EnvName, Reach, Volume};
use serde::{Deserialize, Serialize};

use super::ContainerLimits;
use value::{Device, Gpus, MountArg, Port, Ulimit, parse_scaled, parse_size};

/// Capabilities that have no effect outside the container's own namespaces.
const HARMLESS_CAPABILITIES: [&str; 19] = [
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "LEASE", "MKNOD",
    "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT", "SYS_NICE",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunArgs {
    pub cap_add: Vec<String>,
    pub cap_drop: Vec<String>,
    pub devices: Vec<Device>,
    pub gpus: Option<Gpus>,
    pub is_privileged: bool,
    pub security: Vec<String>,
    pub network: Option<String>,
    pub ports: Vec<Port>,
    pub pid: Option<String>,
    pub ipc: Option<String>,
    pub uts: Option<String>,
    pub userns: Option<String>,
    pub user: Option<String>,
    pub groups: Vec<String>,
    pub hostname: Option<String>,
    pub hosts: Vec<String>,
    pub dns: Vec<IpAddr>,
    pub labels: BTreeMap<String, String>,
    pub tmpfs: BTreeMap<String, String>,
    pub is_read_only: bool,
    pub runtime: Option<String>,
    pub sysctls: BTreeMap<String, String>,
    pub ulimits: Vec<Ulimit>,
    pub cpuset: Option<String>,
    /// Bytes; -1 is unlimited.
    pub memory_swap: Option<i64>,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunArgError {
    /// The index of the list item.
    pub item: usize,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for RunArgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// An option that gives commands more reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunArgExposure {
    /// The option as `docker run` spells it.
    pub option: String,
    pub reach: Reach,
}

impl RunArgs {
    /// Parses options. A value may follow its option after `=`, after a space or as the next item.
    pub fn parse(items: &[String]) -> Result<Self, RunArgError> {
        let mut extra = Self::default();
        let mut rest = items.iter();
        while let Some(text) = rest.next() {
            let item = items.len() - rest.len() - 1;
            let (name, inline) = split_option(text.trim_start());
            extra.set_option(ArgReader { item, name, inline, rest: &mut rest })?;
        }
        Ok(extra)
    }

    fn set_option(&mut self, mut word: ArgReader<'_, '_>) -> Result<(), RunArgError> {
        const SIZE: &str = "a size such as 512m";
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let named = |text: &str| value::is_name(text).then(|| text.to_owned());
        match word.name {
            "--cap-add" => {
                self.cap_add.push(word.read("a capability such as NET_RAW", value::parse_capability)?)
            }
            "--cap-drop" => {
                self.cap_drop.push(word.read("a capability such as CHOWN", value::parse_capability)?)
            }
            "--device" => {
                self.devices.push(word.read("a path such as /dev/kvm, with :path and :rwm", Device::parse)?);
            }
            "--gpus" => {
                let expected = "all, a number from 1 up or device=IDS";
                self.gpus = Some(word.read(expected, |text| text.parse().ok())?);
            }
            "--privileged" => self.is_privileged = word.flag()?,
            "--read-only" => self.is_read_only = word.flag()?,
            // The guest is the first process and reaps children.
            "--init" => drop(word.flag()?),
            "--security-opt" => {
                let expected = "seccomp=unconfined, apparmor=PROFILE, label=… or no-new-privileges";
                self.security.extend(word.read(expected, parse_security)?);
            }
            "--network" | "--net" => {
                self.network =
                    Some(word.read("none, bridge, host or the name of a network", value::parse_network)?);
            }
            "--publish" | "-p" => {
                self.ports.push(word.read("[[address:]port:]port[/protocol], one port", Port::parse)?);
            }
            "--pid" => {
                self.pid = Some(word.read("host or container:NAME", |text| parse_namespace(text, &["host"]))?)
            }
            "--ipc" => {
                let words = ["host", "none", "private", "shareable"];
                let expected = "host, none, private, shareable or container:NAME";
                self.ipc = Some(word.read(expected, |text| parse_namespace(text, &words))?);
            }
            "--uts" => self.uts = Some(word.read("host", |word| text(word).filter(|word| word == "host"))?),
            "--userns" => {
                let words = ["host", "private", "auto", "keep-id", "nomap"];
                let expected = "host, or private, auto, keep-id or nomap of Podman";
                self.userns = Some(word.read(expected, |text| parse_namespace(text, &words))?);
            }
            "--user" | "-u" => self.user = Some(word.read("a user or user:group", text)?),
            "--group-add" => self.groups.push(word.read("a group", text)?),
            "--hostname" | "-h" => self.hostname = Some(word.read("a name", named)?),
            "--add-host" => self.hosts.push(word.read("name:address", value::parse_host)?),
            "--dns" => self.dns.push(word.read("an address", |text| text.parse().ok())?),
            "--label" | "-l" => {
                let ours = |name: &str| name.starts_with("hermes-");
                let expected = "name=value, where the name does not begin with hermes-";
                let label =
                    word.read(expected, |text| value::parse_pair(text).filter(|(name, _)| !ours(name)))?;
                self.labels.extend([label]);
            }
            "--tmpfs" => {
                self.tmpfs.extend([word.read("path[:options], not below /.hermes", value::parse_tmpfs)?])
            }
            "--volume" | "-v" => {
                self.volumes
                    .push(word.read("source:target[:options], not below /.hermes", value::parse_volume)?);
            }
            "--mount" => {
                let expected = "type=bind,source=…,target=…[,readonly], or type=volume or type=tmpfs";
                match word.read(expected, value::parse_mount)? {
                    MountArg::Volume(volume) => self.volumes.push(volume),
                    MountArg::Tmpfs(path, options) => drop(self.tmpfs.insert(path, options)),
                }
            }
            "--env" | "-e" => self.env.push(word.variable()?),
            "--runtime" => self.runtime = Some(word.read("the name of a runtime", named)?),
            "--sysctl" => self.sysctls.extend([word.read("name=value", value::parse_pair)?]),
            "--ulimit" => self.ulimits.push(word.read("a limit such as nofile=1024:2048", Ulimit::parse)?),
            "--cpuset-cpus" => {
                let ranges = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b",-".contains(&b));
                self.cpuset =
                    Some(word.read("processors such as 0-3,5", |t| text(t).filter(|text| ranges(text)))?);
            }
            "--cpus" => {
                let millis = |text: &str| u32::try_from(parse_scaled(text, 1000)?).ok();
                self.millicpus = Some(word.read("a number such as 1.5", millis)?);
            }
            "--memory" | "-m" => self.memory = Some(word.read(SIZE, parse_size)?),
            "--memory-swap" => {
                let swap =
                    |text: &str| if text == "-1" { Some(-1) } else { i64::try_from(parse_size(text)?).ok() };
                self.memory_swap = Some(word.read("a size such as 2g, or -1", swap)?);
            }
            "--pids-limit" => {
                let number = |text: &str| if text == "-1" { Some(0) } else { text.parse().ok() };
                self.processes = Some(word.read("a number, or -1", number)?);
            }
            "--shm-size" => self.shm = Some(word.read(SIZE, parse_size)?),
            name => return Err(word.refused(refusal_reason(name))),
        }
        Ok(())
    }

    /// Overrides limits with those from the options.
    pub fn apply_limits(&self, limits: &mut ContainerLimits) {
        if let Some(memory) = self.memory {
            limits.memory = (memory > 0).then_some(memory);
        }
        if let Some(millicpus) = self.millicpus {
            limits.millicpus = (millicpus > 0).then_some(millicpus);
        }
        if let Some(processes) = self.processes {
            limits.processes = (processes > 0).then_some(processes);
        }
        limits.shm = self.shm.or(limits.shm);
    }

    /// Options that open up the container. GPUs and published ports do not reach the owner's files
    /// or programs, but are listed.
    pub fn exposures(&self) -> Vec<RunArgExposure> {
        let joins = |mode: &str| mode == "host" || mode.starts_with("container:");
        let of_host = |option: String| RunArgExposure { option, reach: Reach::Host };
        let of_nothing = |option: String| RunArgExposure { option, reach: Reach::Nothing };
        let mut openings = Vec::new();
        if self.is_privileged {
            openings.push(of_host("--privileged".to_owned()));
        }
        match self.network.as_deref() {
            None | Some("none" | "bridge") => {}
            Some(mode) if joins(mode) => openings.push(of_host(format!("--network {mode}"))),
            Some(mode) => openings.push(of_nothing(format!("--network {mode}"))),
        }
        let modes = [("pid", &self.pid), ("ipc", &self.ipc), ("uts", &self.uts), ("userns", &self.userns)];
        for (name, mode) in modes {
            let mode = mode.as_deref().filter(|mode| joins(mode));
            openings.extend(mode.map(|mode| of_host(format!("--{name} {mode}"))));
        }
        openings.extend(self.devices.iter().map(|device| of_host(format!("--device {}", device.source))));
        openings.extend(self.cap_add.iter().map(|right| {
            let option = format!("--cap-add {right}");
            if HARMLESS_CAPABILITIES.contains(&right.as_str()) { of_nothing(option) } else { of_host(option) }
        }));
        let open = self.security.iter().filter(|option| is_unconfined(option));
        openings.extend(open.map(|option| of_host(format!("--security-opt {option}"))));
        openings.extend(self.gpus.iter().map(|gpus| of_nothing(format!("--gpus {gpus}"))));
        openings.extend(self.ports.iter().map(|port| of_nothing(format!("--publish {port}"))));
        openings
    }

    pub fn reaches_host(&self) -> bool {
        self.exposures().iter().any(|opening| opening.reach == Reach::Host)
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

    fn read<T>(&mut self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, RunArgError> {
        let name = self.name;
        let found = match self.value() {
            None => format!("`{name}` alone"),
            Some(value) => match parse(value.trim()) {
                Some(read) => return Ok(read),
                None => format!("`{name} {value}`"),
            },
        };
        Err(RunArgError { item: self.item, expected: format!("`{name}` with {expected}"), found })
    }

    fn flag(&self) -> Result<bool, RunArgError> {
        let name = self.name;
        match self.inline.map(str::trim) {
            None | Some("" | "true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(other) => Err(RunArgError {
                item: self.item,
                expected: format!("`{name}`, with `=true` or `=false` at most"),
                found: format!("`{name}={other}`"),
            }),
        }
    }

    /// A variable with its value; errors do not show the value.
    fn variable(&mut self) -> Result<(EnvName, String), RunArgError> {
        let (item, expected) =
            (self.item, "a variable as NAME=VALUE (docker_forward_env forwards those of yours)".to_owned());
        let Some(value) = self.value() else {
            return Err(RunArgError { item, expected, found: format!("`{}` alone", self.name) });
        };
        let read =
            value.split_once('=').and_then(|(name, value)| Some((name.parse().ok()?, value.to_owned())));
        let found = if value.contains('=') { "another name".to_owned() } else { format!("`{value}` alone") };
        read.ok_or(RunArgError { item, expected, found })
    }

    fn refused(&self, reason: Option<&str>) -> RunArgError {
        let (item, name) = (self.item, self.name);
        match reason {
            Some(reason) => {
                RunArgError { item, expected: format!("no `{name}` ({reason})"), found: "one".to_owned() }
            }
            None => RunArgError {
                item,
                expected: "a supported option of `docker run`".to_owned(),
                found: format!("`{name}`"),
            },
        }
    }
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

/// One of `words`, or the namespace of another container.
fn parse_namespace(text: &str, words: &[&str]) -> Option<String> {
    let known = words.contains(&text) || text.strip_prefix("container:").is_some_and(value::is_name);
    known.then(|| text.to_owned())
}

/// Parses `--security-opt`. `no-new-privileges` is always set, so it needs no entry.
fn parse_security(text: &str) -> Option<Option<String>> {
    let (name, value) = text.split_once(['=', ':']).unwrap_or((text, ""));
    match (name, value) {
        ("no-new-privileges", "" | "true") => Some(None),
        ("seccomp", "unconfined") => Some(Some(format!("{name}={value}"))),
        ("apparmor", profile) if value::is_name(profile) => Some(Some(format!("{name}={value}"))),
        ("label", label) if !label.is_empty() => Some(Some(format!("{name}={value}"))),
        _ => None,
    }
}

fn is_unconfined(security: &str) -> bool {
    // Another SELinux type or user may be an unconfined one.
    security.ends_with("=unconfined")
        || (security.starts_with("label=") && !security.starts_with("label=level:"))
}

#[cfg(test)]
mod tests;
