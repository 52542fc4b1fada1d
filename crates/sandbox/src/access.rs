//! The second layer: Landlock says once more, by file and not by mount, what may be written.
//!
//! It also holds where a read-only mount does not: named pipes, devices, files reached through a descriptor of another
//! mount, and (where the kernel knows how) sockets and signals beyond the jail.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest rules we know how to use; a kernel that knows fewer enforces those it knows.
const NEWEST: ABI = ABI::V9;

/// Allows reading everywhere, writing only below `writable` and to the devices in `/dev`.
pub(crate) fn restrict(writable: &[PathBuf]) -> io::Result<()> {
    let status = ruleset(writable).map_err(|error| io::Error::other(error.to_string()))?;
    match status {
        RulesetStatus::NotEnforced => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

fn ruleset(writable: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let devices = AccessFs::from_read(NEWEST) | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    rules = allow(rules, Path::new("/"), AccessFs::from_read(NEWEST))?;
    rules = allow(rules, Path::new("/dev"), devices)?;
    for path in writable {
        rules = allow(rules, path, all)?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(beneath) => rules.add_rule(PathBeneath::new(beneath, access)),
        // A path that cannot be opened is not allowed; whoever needs it sees the refusal.
        Err(_) => Ok(rules),
    }
}
