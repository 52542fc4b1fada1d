//! Limits on the jail as a whole: a cgroup of its own in whichever hierarchies can be written.
//!
//! A machine has the one hierarchy of version 2, or one per controller of version 1, or both with the controllers
//! shared out between them. What counts is found by looking: where the controller is mounted, which cgroup we are in,
//! and the nearest cgroup upward in which a new one can be made and given its limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::held::{Held, Hold};
use crate::jail::Limits;
use crate::sys;

/// What the names of our cgroups begin with; the number of the keeper follows, and when it started, since numbers are
/// used again while a cgroup whose keeper was killed stays.
const PREFIX: &str = "hermes-jail-";

/// The processor time of one turn is counted over this many microseconds.
const PERIOD: u64 = 100_000;

/// The cgroups of one jail. They must be empty, and [`Cgroups::remove`]d, in the end.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    made: Vec<PathBuf>,
}

/// One kind of limit, and what it is called in both versions.
struct Controller {
    name: &'static str,
    /// Files and values of version 1, in the order they must be written.
    v1: Vec<(&'static str, String)>,
    /// Files and values of version 2.
    v2: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Cgroups {
    /// Makes cgroups for those limits that need one and says which of them hold.
    pub(crate) fn make(limits: &Limits) -> (Self, Held) {
        let hierarchies = Hierarchies::of_this_process();
        let mut cgroups = Self::default();
        let mut hold = |asked: Option<Controller>| match asked {
            None => Hold::NotAsked,
            Some(controller) => match cgroups.limit(&hierarchies, &controller) {
                Ok(()) => Hold::Held,
                Err(reason) => Hold::NotHeld { reason },
            },
        };
        let memory = hold(limits.memory.map(memory));
        let processes = hold(limits.processes.map(processes));
        let cpu = hold(limits.millicpus.map(cpu));
        let disk = match limits.disk {
            None => Hold::NotAsked,
            Some(_) => Hold::not("directories of the host have no quota for one jail"),
        };
        // Set for every process by `privilege::limit`, which fails the launch if it cannot.
        let open_files = limits.open_files.map_or(Hold::NotAsked, |_| Hold::Held);
        (cgroups, Held { memory, processes, cpu, disk, open_files })
    }

    /// Makes a cgroup with one limit, in the hierarchy that has its controller.
    fn limit(&mut self, hierarchies: &Hierarchies, controller: &Controller) -> Result<(), String> {
        let (own, version) = hierarchies.find(controller)?;
        let files = match version {
            Version::One => &controller.v1,
            Version::Two => &controller.v2,
        };
        let mut reason = format!("no cgroup with the controller `{}` can be written", controller.name);
        let parents: Vec<&Path> = own.ancestors().take_while(|parent| hierarchies.contain(parent)).collect();
        let name = own_name().map_err(|error| error.to_string())?;
        // A process is in one cgroup of a hierarchy, so the second controller of one must take the first one's.
        let taken: Vec<&Path> =
            parents.iter().copied().filter(|parent| self.made.contains(&parent.join(&name))).collect();
        for parent in if taken.is_empty() { parents } else { taken } {
            if version == Version::Two && !offers(parent, controller.name) {
                continue;
            }
            let path = parent.join(&name);
            if !self.made.contains(&path) {
                if let Err(error) = fs::create_dir(&path) {
                    reason = format!("{}: {error}", path.display());
                    continue;
                }
                self.made.push(path.clone());
            }
            return write_all(&path, files).map_err(|error| format!("{}: {error}", path.display()));
        }
        Err(reason)
    }

    /// The files through which a process enters, to be written by that process, which must have one thread.
    ///
    /// Version 1 has one for single threads. Moving a whole process makes the kernel wait for every processor to have
    /// passed a quiet moment, some ten milliseconds; a thread that moves itself does not wait.
    pub(crate) fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |path: &PathBuf| {
            let thread = path.join("tasks");
            let door = if thread.exists() { thread } else { path.join("cgroup.procs") };
            OpenOptions::new().write(true).open(door).map(OwnedFd::from)
        };
        self.made.iter().map(open).collect()
    }

    /// Removes them. They are empty once the jail is gone, but the kernel may take a moment to see it.
    pub(crate) fn remove(&self) {
        for path in &self.made {
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

/// Enters a cgroup by its door.
pub(crate) fn enter(door: OwnedFd) -> io::Result<()> {
    File::from(door).write_all(b"0")
}

/// The process that a cgroup is named after.
struct Keeper {
    pid: i32,
    started: u64,
}

impl Keeper {
    fn is_alive(&self) -> bool {
        sys::started(self.pid).is_ok_and(|started| started == self.started)
    }
}

fn own_name() -> io::Result<String> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    Ok(format!("{PREFIX}{pid}-{}", sys::started(pid)?))
}

/// Whose cgroup this is, if it is one of ours.
fn keeper(name: &str) -> Option<Keeper> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some(Keeper { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

/// Removes the cgroups of jails whose keeper was killed before it could do so. A reaper calls this.
pub fn sweep() {
    let hierarchies = Hierarchies::of_this_process();
    for own in hierarchies.own.iter().map(|(_, own)| own) {
        for parent in own.ancestors().take_while(|parent| hierarchies.contain(parent)) {
            let children = fs::read_dir(parent).into_iter().flatten().flatten();
            for child in children {
                let name = child.file_name();
                if name.to_str().and_then(keeper).is_some_and(|keeper| !keeper.is_alive()) {
                    // A cgroup that is not empty refuses, and is left for the next time.
                    fs::remove_dir(child.path()).ok();
                }
            }
        }
    }
}

fn memory(bytes: u64) -> Controller {
    Controller {
        name: "memory",
        v1: vec![
            ("memory.limit_in_bytes", bytes.to_string()),
            // Where swap is counted at all, none on top.
            ("?memory.memsw.limit_in_bytes", bytes.to_string()),
        ],
        v2: vec![
            ("memory.max", bytes.to_string()),
            ("?memory.swap.max", "0".to_owned()),
            ("?memory.oom.group", "0".to_owned()),
        ],
    }
}

fn processes(count: u32) -> Controller {
    let value = vec![("pids.max", count.to_string())];
    Controller { name: "pids", v1: value.clone(), v2: value }
}

fn cpu(millicpus: u32) -> Controller {
    let quota = (u64::from(millicpus) * PERIOD / 1000).max(1000);
    Controller {
        name: "cpu",
        v1: vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
        v2: vec![("cpu.max", format!("{quota} {PERIOD}"))],
    }
}

/// Writes each value; a `?` before the name marks a file that need not be there.
fn write_all(cgroup: &Path, files: &[(&'static str, String)]) -> io::Result<()> {
    for (name, value) in files {
        let (path, optional) = match name.strip_prefix('?') {
            Some(name) => (cgroup.join(name), true),
            None => (cgroup.join(name), false),
        };
        if optional && !path.exists() {
            continue;
        }
        // Not created: in a directory that is no cgroup this must fail.
        OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())?;
    }
    Ok(())
}

/// Whether children of this cgroup of version 2 have the controller, now or after we asked for it.
fn offers(parent: &Path, controller: &str) -> bool {
    let path = parent.join("cgroup.subtree_control");
    let has =
        || fs::read_to_string(&path).is_ok_and(|text| text.split_whitespace().any(|word| word == controller));
    has() || (fs::write(&path, format!("+{controller}")).is_ok() && has())
}

/// Where this process is in each mounted hierarchy.
struct Hierarchies {
    /// The controllers of the hierarchy (none for version 2) and the directory of our cgroup in it.
    own: Vec<(Vec<String>, PathBuf)>,
    /// Where hierarchies are mounted.
    mounts: Vec<PathBuf>,
}

impl Hierarchies {
    fn of_this_process() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::parse(&mounts, &cgroups)
    }

    fn parse(mountinfo: &str, cgroups: &str) -> Self {
        let mut found = Self { own: Vec::new(), mounts: Vec::new() };
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
            // A mount may show only a part of its hierarchy; what is not below that part cannot be reached.
            let Some(below) = own.and_then(|own| own.strip_prefix(top.trim_end_matches('/'))) else {
                continue;
            };
            let mount = PathBuf::from(mount);
            found.own.push((controllers, mount.join(below.trim_start_matches('/'))));
            found.mounts.push(mount);
        }
        found
    }

    /// Our cgroup in the hierarchy that has the controller, and the version of that hierarchy.
    fn find(&self, controller: &Controller) -> Result<(&Path, Version), String> {
        let v1 = self.own.iter().find(|(names, _)| names.iter().any(|name| name == controller.name));
        let v2 = || self.own.iter().find(|(names, _)| names.is_empty());
        match v1.map(|found| (found, Version::One)).or_else(|| v2().map(|found| (found, Version::Two))) {
            Some(((_, own), version)) => Ok((own, version)),
            None => Err("no cgroup hierarchy is mounted".to_owned()),
        }
    }

    fn contain(&self, path: &Path) -> bool {
        self.mounts.iter().any(|mount| path.starts_with(mount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchies(root: &Path, cgroups: &str) -> Hierarchies {
        let root = root.display();
        let mounts = format!(
            "29 24 0:26 / {root}/unified rw - cgroup2 cgroup2 rw\n30 24 0:27 /pod {root}/memory rw - cgroup cgroup rw,memory\n"
        );
        Hierarchies::parse(&mounts, cgroups)
    }

    #[test]
    fn hierarchies_of_both_versions_are_told_apart() {
        let found = hierarchies(Path::new("/c"), "4:memory:/pod/a\n0::/user/b\n");
        let expected = vec![
            (Vec::new(), PathBuf::from("/c/unified/user/b")),
            (vec!["rw".to_owned(), "memory".to_owned()], PathBuf::from("/c/memory/a")),
        ];
        assert_eq!(found.own, expected);
    }

    #[test]
    fn a_keeper_is_not_taken_for_a_later_process_with_its_number() {
        let own = keeper(&own_name().unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(!Keeper { started: own.started - 1, ..own }.is_alive());
        assert!(keeper("hermes-jail-17").is_none() && keeper("docker-17-4").is_none());
    }

    #[test]
    fn version_two_uses_the_nearest_cgroup_that_offers_the_controller() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("unified/slice");
        fs::create_dir_all(slice.join("scope")).unwrap();
        fs::write(slice.join("cgroup.subtree_control"), "cpu pids\n").unwrap();
        let found = hierarchies(root.path(), "0::/slice/scope\n");
        let mut cgroups = Cgroups::default();
        // An ordinary directory has no `pids.max`, so the value cannot be written: that is an error, not a success.
        let refused = cgroups.limit(&found, &processes(7)).unwrap_err();
        let made = slice.join(own_name().unwrap());
        assert_eq!(refused, format!("{}: No such file or directory (os error 2)", made.display()));
        assert_eq!(cgroups.made, std::slice::from_ref(&made));
        fs::write(made.join("pids.max"), "").unwrap();
        assert_eq!(cgroups.limit(&found, &processes(7)), Ok(()));
        assert_eq!(fs::read_to_string(made.join("pids.max")).unwrap(), "7");
        assert!(cgroups.limit(&found, &memory(1)).is_err(), "nobody offers memory here");
    }
}
