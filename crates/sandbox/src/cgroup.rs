//! Resource limits of the whole jail, by its own cgroup in every writable hierarchy.
//!
//! A machine has the single hierarchy of version 2, one hierarchy per controller of version 1, or
//! both. This module looks for the mount of the controller, the cgroup of this process, and the
//! nearest parent cgroup in which a child can be created and limited, without leaving the unit of
//! the service manager.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hermes_types::process_start_time;

use crate::jail::JailLimits;
use crate::limit_report::{LimitReport, LimitStatus};

/// The name of a cgroup continues with the pid and start time of its supervisor. Both are needed:
/// pids are reused while the cgroup of a killed supervisor still exists.
const CGROUP_PREFIX: &str = "hermes-jail-";

/// The period over which processor time is limited.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// The cgroups of one jail. Call [`Cgroups::remove`] once they are empty.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    created: Vec<PathBuf>,
}

/// One limit, in the files of both cgroup versions.
struct Controller {
    name: &'static str,
    /// Files and values of version 1, in the order of writing.
    v1: Vec<(&'static str, String)>,
    /// Files and values of version 2.
    v2: Vec<(&'static str, String)>,
}

impl Cgroups {
    /// Creates cgroups for the limits that need one and reports which limits are enforced.
    pub(crate) fn create(limits: &JailLimits) -> (Self, LimitReport) {
        let hierarchies = Hierarchy::detect_all();
        let mut cgroups = Self::default();
        let mut apply = |asked: Option<Controller>| match asked {
            None => LimitStatus::NotRequested,
            Some(controller) => match cgroups.apply_limit(&hierarchies, &controller) {
                Ok(()) => LimitStatus::Enforced,
                Err(error) => LimitStatus::NotEnforced { reason: error.to_string() },
            },
        };
        let memory = apply(limits.memory.map(memory_controller));
        let processes = apply(limits.processes.map(pids_controller));
        let cpu = apply(limits.millicpus.map(cpu_controller));
        (cgroups, LimitReport { memory, processes, cpu })
    }

    /// Applies one limit in the hierarchy that has its controller.
    fn apply_limit(&mut self, hierarchies: &[Hierarchy], controller: &Controller) -> io::Result<()> {
        let v1 =
            hierarchies.iter().find(|found| found.controllers.iter().any(|name| name == controller.name));
        let hierarchy = v1
            .or_else(|| hierarchies.iter().find(|found| found.is_version_2()))
            .ok_or_else(|| io::Error::other("no cgroup hierarchy is mounted"))?;
        let files = if hierarchy.is_version_2() { &controller.v2 } else { &controller.v1 };
        let mut failure = format!("no writable cgroup has the controller `{}`", controller.name);
        let parents: Vec<&Path> = hierarchy.parents().collect();
        let name = own_cgroup_name()?;
        // A process is in one cgroup per hierarchy, so a second controller must use the same
        // cgroup.
        let shared_parents: Vec<&Path> =
            parents.iter().copied().filter(|parent| self.created.contains(&parent.join(&name))).collect();
        for parent in if shared_parents.is_empty() { parents } else { shared_parents } {
            if hierarchy.is_version_2() && !enable_controller(parent, controller.name) {
                continue;
            }
            let path = parent.join(&name);
            if !self.created.contains(&path) {
                if let Err(error) = fs::create_dir(&path) {
                    failure = format!("{}: {error}", path.display());
                    continue;
                }
                self.created.push(path.clone());
            }
            return write_values(&path, files)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())));
        }
        Err(io::Error::other(failure))
    }

    /// The files through which a single-threaded process enters the cgroups, to be written by that
    /// process.
    ///
    /// Version 1 has a file for single threads. Moving a whole process makes the kernel wait about
    /// ten milliseconds for a grace period; a thread that moves itself does not wait.
    pub(crate) fn entry_files(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |path: &PathBuf| {
            let thread = path.join("tasks");
            let entry_file = if thread.exists() { thread } else { path.join("cgroup.procs") };
            OpenOptions::new().write(true).open(entry_file).map(OwnedFd::from)
        };
        self.created.iter().map(open).collect()
    }

    /// Removes the cgroups. They are empty once the jail is gone, but the kernel may notice it with
    /// a delay.
    pub(crate) fn remove(&self) {
        for path in &self.created {
            for _ in 0..200 {
                match fs::remove_dir(path) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Moves the calling process into a cgroup.
pub(crate) fn enter(entry_file: OwnedFd) -> io::Result<()> {
    File::from(entry_file).write_all(b"0")
}

fn own_cgroup_name() -> io::Result<String> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let started = process_start_time(pid).ok_or_else(|| io::Error::other("cannot parse /proc/PID/stat"))?;
    Ok(format!("{CGROUP_PREFIX}{pid}-{started}"))
}

/// Whether the supervisor that a cgroup is named after is gone; `None` if it is not one of ours.
fn is_stale(name: &str) -> Option<bool> {
    let (pid, started) = name.strip_prefix(CGROUP_PREFIX)?.split_once('-')?;
    let started: u64 = started.parse().ok()?;
    Some(process_start_time(pid.parse().ok()?) != Some(started))
}

/// Removes cgroups of jails whose supervisor was killed. The reaper calls this.
pub fn remove_stale_cgroups() {
    let hierarchies = Hierarchy::detect_all();
    for parent in hierarchies.iter().flat_map(Hierarchy::parents) {
        for child in fs::read_dir(parent).into_iter().flatten().flatten() {
            if child.file_name().to_str().and_then(is_stale) == Some(true) {
                // Fails for a cgroup that is not empty yet; the next call retries.
                fs::remove_dir(child.path()).ok();
            }
        }
    }
}

fn memory_controller(bytes: u64) -> Controller {
    Controller {
        name: "memory",
        v1: vec![
            ("memory.limit_in_bytes", bytes.to_string()),
            // No swap in addition to memory, where swap is accounted.
            ("?memory.memsw.limit_in_bytes", bytes.to_string()),
        ],
        v2: vec![
            ("memory.max", bytes.to_string()),
            ("?memory.swap.max", "0".to_owned()),
            ("?memory.oom.group", "0".to_owned()),
        ],
    }
}

fn pids_controller(count: u32) -> Controller {
    let value = vec![("pids.max", count.to_string())];
    Controller { name: "pids", v1: value.clone(), v2: value }
}

fn cpu_controller(millicpus: u32) -> Controller {
    let quota = (u64::from(millicpus) * CPU_PERIOD_MICROS / 1000).max(1000);
    Controller {
        name: "cpu",
        v1: vec![
            ("cpu.cfs_period_us", CPU_PERIOD_MICROS.to_string()),
            ("cpu.cfs_quota_us", quota.to_string()),
        ],
        v2: vec![("cpu.max", format!("{quota} {CPU_PERIOD_MICROS}"))],
    }
}

/// Writes each value; a leading `?` marks an optional file.
fn write_values(cgroup: &Path, files: &[(&'static str, String)]) -> io::Result<()> {
    for (name, value) in files {
        let (path, optional) = match name.strip_prefix('?') {
            Some(name) => (cgroup.join(name), true),
            None => (cgroup.join(name), false),
        };
        if optional && !path.exists() {
            continue;
        }
        // Never creates the file: in a directory that is not a cgroup this must fail.
        OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())?;
    }
    Ok(())
}

/// Whether children of a version 2 cgroup have the controller; enables it if possible.
fn enable_controller(parent: &Path, controller: &str) -> bool {
    let path = parent.join("cgroup.subtree_control");
    let has =
        || fs::read_to_string(&path).is_ok_and(|text| text.split_whitespace().any(|word| word == controller));
    has() || (fs::write(&path, format!("+{controller}")).is_ok() && has())
}

/// A mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Empty for version 2.
    controllers: Vec<String>,
    /// The directory of our cgroup.
    own: PathBuf,
    mount: PathBuf,
}

impl Hierarchy {
    fn detect_all() -> Vec<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::parse_all(&mounts, &cgroups)
    }

    fn parse_all(mountinfo: &str, cgroups: &str) -> Vec<Self> {
        let mut found = Vec::new();
        for line in mountinfo.lines() {
            // 30 24 0:26 /top /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut left = left.split(' ').skip(3);
            let (Some(top), Some(mount)) = (left.next(), left.next()) else { continue };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            let controllers: Vec<String> = match kind {
                Some("cgroup2") => Vec::new(),
                Some("cgroup") => options.split(',').map(str::to_owned).collect(),
                _ => continue,
            };
            let own = cgroups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (names, path) = (parts.next()?, parts.next()?);
                let same = match (names, controllers.is_empty()) {
                    ("", none) => none,
                    (names, false) => names.split(',').all(|name| controllers.iter().any(|c| c == name)),
                    _ => false,
                };
                same.then_some(path)
            });
            // A mount may show only a subtree of its hierarchy; cgroups outside it cannot be
            // reached.
            let Some(below) = own.and_then(|own| own.strip_prefix(top.trim_end_matches('/'))) else {
                continue;
            };
            let mount = PathBuf::from(mount);
            found.push(Self { controllers, own: mount.join(below.trim_start_matches('/')), mount });
        }
        found
    }

    fn is_version_2(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Our cgroup and those above it in the same unit of the service manager, nearest first: above,
    /// the limits of the unit would not hold. A service that has cgroups below was delegated. The
    /// scope of a login has no limits of its own, so the slice of its user counts too.
    fn parents(&self) -> impl Iterator<Item = &Path> {
        let all: Vec<&Path> =
            self.own.ancestors().take_while(|parent| parent.starts_with(&self.mount)).collect();
        let name = |path: &Path| path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let end = all.iter().position(|path| name(path).ends_with(".service")).or_else(|| {
            let is_unit = |name: &str| name.ends_with(".slice") || name.ends_with(".scope");
            all.iter().map(|path| name(path)).position(|name| is_unit(&name) && !name.starts_with("session-"))
        });
        all.into_iter().take(end.map_or(usize::MAX, |end| end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchies(root: &Path, cgroups: &str) -> Vec<Hierarchy> {
        let root = root.display();
        let mounts = format!(
            "29 24 0:26 / {root}/unified rw - cgroup2 cgroup2 rw\n30 24 0:27 /pod {root}/memory rw - cgroup cgroup rw,memory\n"
        );
        Hierarchy::parse_all(&mounts, cgroups)
    }

    #[test]
    fn hierarchies_of_both_versions_are_distinguished() {
        let found = hierarchies(Path::new("/c"), "4:memory:/pod/a\n0::/user/b\n");
        let expected = [
            Hierarchy {
                controllers: Vec::new(),
                own: "/c/unified/user/b".into(),
                mount: "/c/unified".into(),
            },
            Hierarchy {
                controllers: vec!["rw".to_owned(), "memory".to_owned()],
                own: "/c/memory/a".into(),
                mount: "/c/memory".into(),
            },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_jail_does_not_leave_the_unit_that_it_belongs_to() {
        let parents = |own: &str| {
            let found = hierarchies(Path::new(""), &format!("0::{own}\n")).remove(0);
            let below = |path: &Path| path.strip_prefix("/unified").unwrap().display().to_string();
            found.parents().map(below).collect::<Vec<_>>().join(" ")
        };
        let cases = [
            ("/system.slice/hermes.service", "system.slice/hermes.service"),
            (
                "/system.slice/hermes.service/main",
                "system.slice/hermes.service/main system.slice/hermes.service",
            ),
            (
                "/u.slice/user@1.service/app.slice/vte.scope",
                "u.slice/user@1.service/app.slice/vte.scope u.slice/user@1.service/app.slice u.slice/user@1.service",
            ),
            (
                "/u.slice/user-0.slice/session-3.scope",
                "u.slice/user-0.slice/session-3.scope u.slice/user-0.slice",
            ),
            ("/system.slice/run-1.scope", "system.slice/run-1.scope"),
            ("/docker/abc", "docker/abc docker "),
            ("/", ""),
        ];
        for (own, expected) in cases {
            assert_eq!(parents(own), expected, "{own}");
        }
    }

    #[test]
    fn a_reused_pid_is_not_mistaken_for_the_owner() {
        let own = own_cgroup_name().unwrap();
        let (name, started) = own.rsplit_once('-').unwrap();
        let earlier = started.parse::<u64>().unwrap() - 1;
        assert_eq!(is_stale(&own), Some(false));
        assert_eq!(is_stale(&format!("{name}-{earlier}")), Some(true));
        assert_eq!((is_stale("hermes-jail-17"), is_stale("docker-17-4")), (None, None));
    }

    #[test]
    fn version_two_uses_the_nearest_cgroup_that_offers_the_controller() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("unified/pod");
        fs::create_dir_all(slice.join("scope")).unwrap();
        fs::write(slice.join("cgroup.subtree_control"), "cpu pids\n").unwrap();
        let found = hierarchies(root.path(), "0::/pod/scope\n");
        let mut cgroups = Cgroups::default();
        // An ordinary directory has no `pids.max`, so writing the value must fail.
        let refused = cgroups.apply_limit(&found, &pids_controller(7)).unwrap_err().to_string();
        let made = slice.join(own_cgroup_name().unwrap());
        assert_eq!(refused, format!("{}: No such file or directory (os error 2)", made.display()));
        assert_eq!(cgroups.created, std::slice::from_ref(&made));
        fs::write(made.join("pids.max"), "").unwrap();
        cgroups.apply_limit(&found, &pids_controller(7)).unwrap();
        assert_eq!(fs::read_to_string(made.join("pids.max")).unwrap(), "7");
        assert!(
            cgroups.apply_limit(&found, &memory_controller(1)).is_err(),
            "no cgroup has the memory controller"
        );
    }
}
