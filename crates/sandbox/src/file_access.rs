//! Landlock: restricts writes by file, in addition to the mounts.
//!
//! It also covers cases that a read-only mount does not: named pipes, devices, files reached
//! through a descriptor of another mount and, on newer kernels, sockets and signals outside the
//! jail.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest ABI this crate uses; an older kernel enforces the rules it supports.
const NEWEST_ABI: ABI = ABI::V9;

/// Allows reading everywhere, but writing only below `writable` and to devices in `/dev`.
pub(crate) fn restrict_files(writable: &[PathBuf]) -> io::Result<()> {
    let status = apply_ruleset(writable).map_err(|error| io::Error::other(error.to_string()))?;
    match status {
        RulesetStatus::NotEnforced => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

fn apply_ruleset(writable: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(NEWEST_ABI);
    let devices = AccessFs::from_read(NEWEST_ABI) | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST_ABI))?
        .create()?;
    rules = allow_path(rules, Path::new("/"), AccessFs::from_read(NEWEST_ABI))?;
    rules = allow_path(rules, Path::new("/dev"), devices)?;
    for path in writable {
        rules = allow_path(rules, path, all)?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn allow_path(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(beneath) => rules.add_rule(PathBeneath::new(beneath, access)),
        // A path that cannot be opened stays forbidden; a program that needs it sees the error.
        Err(_) => Ok(rules),
    }
}
