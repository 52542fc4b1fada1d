//! Values of `docker run` options. The error of a parser is the expected form.

use std::fmt;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use bollard::models::{DeviceMapping, ResourcesUlimits};
use hermes_types::{Volume, VolumeSource};
use serde::{Deserialize, Serialize};

use crate::backend::docker::request::HERMES_DIR;

/// All Linux capabilities.
const CAPABILITIES: [&str; 41] = [
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN",
    "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE",
    "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE",
    "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN",
    "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM",
];

const ULIMITS: [&str; 15] = [
    "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss",
    "rtprio", "rttime", "sigpending", "stack",
];

type Parsed<T> = Result<T, &'static str>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gpus {
    All,
    Count(u32),
    Devices(Vec<String>),
}

impl FromStr for Gpus {
    type Err = &'static str;

    fn from_str(text: &str) -> Parsed<Self> {
        let wrong = "all, a number from 1 up or device=IDS";
        let text = text.trim().trim_matches(['"', '\'']);
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(ids) = text.strip_prefix("device=") {
            let ids: Vec<String> = ids.split(',').map(|id| id.trim().to_owned()).collect();
            return if ids.iter().any(String::is_empty) { Err(wrong) } else { Ok(Self::Devices(ids)) };
        }
        text.parse().ok().filter(|count| *count > 0).map(Self::Count).ok_or(wrong)
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "all"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Devices(ids) => write!(f, "device={}", ids.join(",")),
        }
    }
}

pub(super) fn parse_device(text: &str) -> Parsed<DeviceMapping> {
    let expected = "a path such as /dev/kvm, with :path and :rwm";
    let parts: Vec<&str> = text.split(':').collect();
    let is_rights = |word: &str| !word.is_empty() && word.chars().all(|right| "rwm".contains(right));
    let (source, target, rights) = match *parts.as_slice() {
        [source] => (source, source, "rwm"),
        [source, rights] if is_rights(rights) => (source, source, rights),
        [source, target] => (source, target, "rwm"),
        [source, target, rights] if is_rights(rights) => (source, target, rights),
        _ => return Err(expected),
    };
    if !source.starts_with('/') || !target.starts_with('/') {
        return Err(expected);
    }
    Ok(DeviceMapping {
        path_on_host: Some(source.to_owned()),
        path_in_container: Some(target.to_owned()),
        cgroup_permissions: Some(rights.to_owned()),
    })
}

pub(super) fn parse_ulimit(text: &str) -> Parsed<ResourcesUlimits> {
    let expected = "a limit such as nofile=1024:2048";
    let (name, numbers) = text.split_once('=').filter(|(name, _)| ULIMITS.contains(name)).ok_or(expected)?;
    let (soft, hard) = numbers.split_once(':').unwrap_or((numbers, numbers));
    let number = |text: &str| text.parse().ok().filter(|number| *number >= -1).ok_or(expected);
    Ok(ResourcesUlimits { name: Some(name.to_owned()), soft: Some(number(soft)?), hard: Some(number(hard)?) })
}

pub(super) fn parse_address(text: &str) -> Parsed<String> {
    text.parse().map(|address: IpAddr| address.to_string()).map_err(|_invalid| "an address")
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The host address; `None` means all.
    pub address: Option<IpAddr>,
    /// The host port; `None` means any.
    pub outside: Option<u16>,
    /// The container port with its protocol, such as `80/tcp`.
    pub inside: String,
}

impl Port {
    pub(super) fn parse(text: &str) -> Parsed<Self> {
        Self::from_text(text).ok_or("[[address:]port:]port[/protocol], one port")
    }

    fn from_text(text: &str) -> Option<Self> {
        let (rest, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (rest, inside) = rest.rsplit_once(':').map_or(("", rest), |(rest, inside)| (rest, inside));
        let (address, outside) = rest.rsplit_once(':').map_or(("", rest), |(address, port)| (address, port));
        let address = address.trim_start_matches('[').trim_end_matches(']');
        Some(Self {
            address: if address.is_empty() { None } else { Some(address.parse().ok()?) },
            outside: if outside.is_empty() { None } else { Some(number(outside)?) },
            inside: format!("{}/{protocol}", number(inside)?),
        })
        .filter(|_| ["tcp", "udp", "sctp"].contains(&protocol))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            Some(IpAddr::V4(address)) => write!(f, "{address}:")?,
            None => {}
        }
        match (self.outside, self.address) {
            (Some(port), _) => write!(f, "{port}:")?,
            (None, Some(_)) => write!(f, ":")?,
            (None, None) => {}
        }
        write!(f, "{}", self.inside)
    }
}

/// Parses bytes such as `512m`, `1.5g`, `64k` or `1048576`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let number = text.trim_end_matches(|end: char| end.is_ascii_alphabetic());
    let unit = match text.strip_prefix(number)? {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    parse_scaled(number, unit)
}

pub fn format_size(bytes: u64) -> String {
    let units = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
    let fits = |(shift, _): &(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    units
        .into_iter()
        .find(fits)
        .map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Parses a decimal number in units of `1/unit`, rounded up.
pub(super) fn parse_scaled(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let all = (number(whole)?.checked_mul(parts)? + number(fraction)?).checked_mul(u128::from(unit))?;
    u64::try_from(all.div_ceil(parts)).ok()
}

/// A limit in bytes; 0 is unlimited.
pub(super) fn parse_limit(text: &str) -> Parsed<u64> {
    parse_size(text).ok_or("a size such as 512m")
}

pub(super) fn parse_swap(text: &str) -> Parsed<i64> {
    let swap = if text == "-1" { Some(-1) } else { parse_size(text).and_then(|size| size.try_into().ok()) };
    swap.ok_or("a size such as 2g, or -1")
}

/// Processors in thousandths.
pub(super) fn parse_millicpus(text: &str) -> Parsed<u32> {
    let millis = parse_scaled(text, 1000).and_then(|millis| millis.try_into().ok());
    millis.ok_or("a number such as 1.5")
}

/// A number of processes; 0 is unlimited.
pub(super) fn parse_process_limit(text: &str) -> Parsed<u32> {
    if text == "-1" { Ok(0) } else { text.parse().map_err(|_invalid| "a number, or -1") }
}

pub(super) fn parse_processors(text: &str) -> Parsed<String> {
    let is_ranges = text.bytes().all(|byte| byte.is_ascii_digit() || b",-".contains(&byte));
    if is_ranges && !text.is_empty() { Ok(text.to_owned()) } else { Err("processors such as 0-3,5") }
}

/// A capability in upper case without `CAP_`.
pub(super) fn parse_capability(text: &str) -> Parsed<String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    let is_known = name == "ALL" || CAPABILITIES.contains(&name);
    is_known.then(|| name.to_owned()).ok_or("a capability such as NET_RAW")
}

pub(super) fn parse_text(text: &str, expected: &'static str) -> Parsed<String> {
    if text.is_empty() { Err(expected) } else { Ok(text.to_owned()) }
}

pub(super) fn parse_name(text: &str, expected: &'static str) -> Parsed<String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(expected) }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

pub(super) fn parse_network(text: &str) -> Parsed<String> {
    let name = text.strip_prefix("container:").unwrap_or(text);
    parse_name(name, "none, bridge, host or the name of a network").map(|_name| text.to_owned())
}

pub(super) fn parse_uts_mode(text: &str) -> Parsed<String> {
    if text == "host" { Ok(text.to_owned()) } else { Err("host") }
}

pub(super) fn parse_pid_mode(text: &str) -> Parsed<String> {
    parse_namespace(text, &["host"], "host or container:NAME")
}

pub(super) fn parse_ipc_mode(text: &str) -> Parsed<String> {
    let words = ["host", "none", "private", "shareable"];
    parse_namespace(text, &words, "host, none, private, shareable or container:NAME")
}

pub(super) fn parse_userns_mode(text: &str) -> Parsed<String> {
    let words = ["host", "private", "auto", "keep-id", "nomap"];
    parse_namespace(text, &words, "host, or private, auto, keep-id or nomap of Podman")
}

/// One of `words`, or the namespace of another container.
fn parse_namespace(text: &str, words: &[&str], expected: &'static str) -> Parsed<String> {
    let is_known = words.contains(&text) || text.strip_prefix("container:").is_some_and(is_name);
    if is_known { Ok(text.to_owned()) } else { Err(expected) }
}

/// Parses `--security-opt`. `no-new-privileges` is always set, so it needs no entry.
pub(super) fn parse_security(text: &str) -> Parsed<Option<String>> {
    let (name, value) = text.split_once(['=', ':']).unwrap_or((text, ""));
    let is_supported = match name {
        "no-new-privileges" if ["", "true"].contains(&value) => return Ok(None),
        "seccomp" => value == "unconfined",
        "apparmor" => is_name(value),
        "label" => !value.is_empty(),
        _ => false,
    };
    let option = is_supported.then(|| Some(format!("{name}={value}")));
    option.ok_or("seccomp=unconfined, apparmor=PROFILE, label=… or no-new-privileges")
}

/// `name:address`, or the newer form `name=address`.
pub(super) fn parse_host(text: &str) -> Parsed<String> {
    let expected = "name:address";
    let (name, address) = text.split_once('=').or_else(|| text.split_once(':')).ok_or(expected)?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let is_known = address == "host-gateway" || address.parse::<IpAddr>().is_ok();
    if is_known && is_name(name) { Ok(format!("{name}:{address}")) } else { Err(expected) }
}

/// `name=value`; a name alone has an empty value.
pub(super) fn parse_pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

pub(super) fn parse_label(text: &str) -> Parsed<(String, String)> {
    let label = parse_pair(text).filter(|(name, _)| !name.starts_with("hermes-"));
    label.ok_or("name=value, where the name does not begin with hermes-")
}

/// `source:target[:options]`.
pub(super) fn parse_volume(text: &str) -> Parsed<Volume> {
    let volume = Volume::parse(text).ok().filter(|volume| !Path::new(&volume.target).starts_with(HERMES_DIR));
    volume.ok_or("source:target[:options], not below /.hermes")
}

/// `path[:options]`.
pub(super) fn parse_tmpfs(text: &str) -> Parsed<(String, String)> {
    let (path, options) = text.split_once(':').unwrap_or((text, ""));
    // Normalized as the engine does it, so that two spellings of one path are one mount.
    let path: PathBuf = Path::new(path).components().collect();
    let is_plain = path.is_absolute()
        && path.parent().is_some()
        && !path.components().any(|part| part == Component::ParentDir)
        && !path.starts_with(HERMES_DIR);
    if !is_plain {
        return Err("path[:options], not below /.hermes");
    }
    Ok((path.to_string_lossy().into_owned(), options.to_owned()))
}

pub(super) enum MountArg {
    Volume(Volume),
    Tmpfs(String, String),
}

pub(super) fn parse_mount(text: &str) -> Parsed<MountArg> {
    mount_from_text(text).ok_or("type=bind,source=…,target=…[,readonly], or type=volume or type=tmpfs")
}

fn mount_from_text(text: &str) -> Option<MountArg> {
    let (mut kind, mut source, mut target) = ("volume", "", "");
    let (mut options, mut memory) = (Vec::new(), Vec::new());
    for field in text.split(',') {
        match field.split_once('=').unwrap_or((field, "true")) {
            ("type", value) => kind = value,
            ("source" | "src", value) => source = value,
            ("target" | "dst" | "destination", value) => target = value,
            ("readonly" | "ro", "true" | "1") => options.push("ro"),
            ("readonly" | "ro", "false" | "0") => {}
            ("bind-propagation", value) => options.push(value),
            ("tmpfs-size", value) => memory.push(format!("size={}", parse_size(value)?)),
            ("tmpfs-mode", value) => memory.push(format!("mode={value}")),
            _ => return None,
        }
    }
    // A colon would split the field in the volume syntax.
    if source.contains(':') || target.contains(':') {
        return None;
    }
    match kind {
        "tmpfs" if source.is_empty() && options.is_empty() => {
            parse_tmpfs(target).ok().map(|(path, _)| MountArg::Tmpfs(path, memory.join(",")))
        }
        "bind" | "volume" if memory.is_empty() => {
            let volume = parse_volume(&format!("{source}:{target}:{}", options.join(","))).ok()?;
            let is_path = matches!(volume.source, VolumeSource::Path(_));
            ((kind == "bind") == is_path).then_some(MountArg::Volume(volume))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_in_docker_syntax() {
        let cases = [
            ("0", 0),
            ("1048576", 1 << 20),
            ("64k", 64 << 10),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("1.5g", 3 << 29),
            (".5GiB", 1 << 29),
            ("2t", 2 << 40),
            ("10b", 10),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes), "{text}");
        }
        assert_eq!(format_size(512 << 20), "512m");
        for wrong in ["", "m", ".", "-1", "+1", "1 2", "1mm", "1x", "1.2.3", "999999999999999t", "1e3"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
        assert_eq!((parse_scaled("1.5", 1000), parse_scaled(".0001", 1000)), (Some(1500), Some(1)));
    }

    #[test]
    fn a_port_round_trips() {
        for text in
            ["80/tcp", "8080:80/tcp", "127.0.0.1:8080:53/udp", "127.0.0.1::80/tcp", "[::1]:8080:80/tcp"]
        {
            assert_eq!(Port::parse(text).map(|port| port.to_string()).as_deref(), Ok(text), "{text}");
        }
        assert_eq!(Port::parse("80").map(|port| port.inside).as_deref(), Ok("80/tcp"));
        for wrong in ["", "0", "a", "80-90", "80/icmp", "x:80:80", "1:2:3:4", "70000", "80:80/"] {
            assert!(Port::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gpus_round_trip() {
        for text in ["all", "2", "device=0,GPU-3a"] {
            assert_eq!(text.parse::<Gpus>().map(|gpus| gpus.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("\"device=0,1\"".parse(), Ok(Gpus::Devices(vec!["0".to_owned(), "1".to_owned()])));
        for wrong in ["", "0", "-1", "some", "device=", "device=0,"] {
            assert!(wrong.parse::<Gpus>().is_err(), "{wrong}");
        }
    }
}
