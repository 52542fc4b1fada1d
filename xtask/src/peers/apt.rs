//! Debian packages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::dirs::{self, Dirs};
use super::run;

/// A program that a peer needs and the package that provides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

/// Programs that every cell needs.
pub(crate) const CELL: &[Need] = &[
    Need { program: "tini", package: "tini" },
    Need { program: "unshare", package: "util-linux" },
    Need { program: "mount", package: "mount" },
    Need { program: "ip", package: "iproute2" },
    Need { program: "useradd", package: "passwd" },
];

/// Programs that tests run inside environments or next to them.
pub(crate) const PROGRAMS: &[Need] = &[
    Need { program: "mkfs.btrfs", package: "btrfs-progs" },
    Need { program: "curl", package: "curl" },
    Need { program: "docker-registry", package: "docker-registry" },
    Need { program: "git", package: "git" },
    Need { program: "make", package: "make" },
    Need { program: "npm", package: "npm" },
    Need { program: "openssl", package: "openssl" },
    Need { program: "pip3", package: "python3-pip" },
    Need { program: "pytest", package: "python3-pytest" },
    Need { program: "python3", package: "python3" },
    Need { program: "script", package: "bsdutils" },
    Need { program: "vim", package: "vim" },
    Need { program: "wget", package: "wget" },
];

/// Returns the programs that are missing. The origin of a program does not matter: a machine with
/// Docker's own packages needs none of Debian's.
pub(crate) fn unmet(needs: &[&[Need]]) -> Vec<Need> {
    let there = |need: &Need| run::PATH.split(':').any(|dir| Path::new(dir).join(need.program).exists());
    needs.iter().flat_map(|list| list.iter()).copied().filter(|need| !there(need)).collect()
}

/// The command that installs the packages.
pub(crate) fn install_command(needs: &[Need]) -> String {
    format!("apt-get install -y --no-install-recommends {}", packages(needs).join(" "))
}

/// Installs packages without starting their services. The package lists are fetched only if they
/// are too old or too empty to install from.
pub(crate) fn install(dirs: &Dirs, needs: &[Need]) -> Result<()> {
    let packages = packages(needs);
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("peers: installing {}", packages.join(" "));
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages.iter().copied());
    if apt_get(dirs, &arguments).is_ok() {
        return Ok(());
    }
    eprintln!("peers: fetching the package lists");
    // One unreachable source fails the update, although packages of the other sources can be
    // installed, so only the second attempt decides. First, finish what a killed dpkg left
    // incomplete.
    if let Err(error) = apt_get(dirs, &["update", "-q"]) {
        eprintln!("peers: apt-get update: {error:#}");
    }
    configure_pending(dirs)?;
    apt_get(dirs, &arguments)?;
    let still = unmet(&[needs]);
    if let Some(need) = still.first() {
        bail!("package {} does not provide {}", need.package, need.program);
    }
    Ok(())
}

fn packages(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn configure_pending(dirs: &Dirs) -> Result<()> {
    guarded(dirs, "dpkg", &["--configure", "-a"])
}

fn apt_get(dirs: &Dirs, arguments: &[&str]) -> Result<()> {
    let mut all = vec!["-o", "DPkg::Lock::Timeout=300"];
    all.extend(arguments);
    guarded(dirs, "apt-get", &all)
}

const POLICY: &str = "/usr/sbin/policy-rc.d";
const NO_SERVICES: &str = "#!/bin/sh\n# Made by `cargo xtask peers`, which removes it again.\nexit 101\n";

/// Runs apt or dpkg while Debian's policy hook forbids starting services.
///
/// An existing hook is hidden by a mount in a mount namespace, not replaced. The child gets its own
/// session, so Ctrl-C does not interrupt dpkg; dpkg finishes, and the next run waits for its lock.
fn guarded(dirs: &Dirs, program: &str, arguments: &[&str]) -> Result<()> {
    let ours = dirs.state("policy-rc.d");
    dirs::write(&ours, NO_SERVICES, 0o755)?;
    if !Path::new(POLICY).exists() {
        fs::write(POLICY, NO_SERVICES).context(POLICY)?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = run::command("setsid");
    command
        .args(["--wait", "unshare", "--mount", "--propagation", "slave", "sh", "-eu", "-c"])
        .args([r#"mount --bind "$1" "$2"; shift 2; exec "$@""#, "guarded"])
        .arg(&ours)
        .args([POLICY, program])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    let outcome = run::logged(run::online(&mut command), Duration::from_secs(900), &dirs.log("apt"));
    remove_policy()?;
    outcome.with_context(|| program.to_owned())
}

/// Removes our policy hook, also one left by a killed run. Other hooks stay.
pub(crate) fn remove_policy() -> Result<()> {
    match fs::read_to_string(POLICY) {
        Ok(text) if text == NO_SERVICES => dirs::remove(Path::new(POLICY)),
        _ => Ok(()),
    }
}
