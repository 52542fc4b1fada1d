//! The unprivileged user that rootless Podman, Apptainer and the second ssh login run as.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::report::User;
use super::run;

const NAME: &str = "hermes-peer";

/// A range of ids that the user may map inside a user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The user, if there is one yet.
pub(crate) fn find() -> Result<Option<User>> {
    let passwd = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let Some(line) = passwd.lines().find(|line| line.split(':').next() == Some(NAME)) else {
        return Ok(None);
    };
    let fields: Vec<&str> = line.split(':').collect();
    let field = |index: usize| fields.get(index).copied().context("short line in /etc/passwd");
    Ok(Some(User {
        name: NAME.to_owned(),
        uid: field(2)?.parse()?,
        gid: field(3)?.parse()?,
        home: PathBuf::from(field(5)?),
    }))
}

/// The user, created if missing, with ranges of subordinate ids.
pub(crate) fn ensure() -> Result<User> {
    let limit = Duration::from_secs(30);
    if find()?.is_none() {
        eprintln!("peers: adding the user {NAME}");
        // The password `*` matches nothing. useradd's own choice, `!`, would mark the account as
        // locked, and sshd refuses locked accounts even with a key.
        let mut useradd = run::command("useradd");
        useradd.args(["--create-home", "--user-group", "--shell", "/bin/bash", "--password", "*", NAME]);
        run::output(&mut useradd, limit)?;
    }
    // Far above the ranges that useradd assigns, for systems where it assigns none.
    for (file, option) in [("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")] {
        if range(file)?.is_none() {
            run::output(run::command("usermod").args([option, "700000000-700065535", NAME]), limit)?;
        }
    }
    find()?.context("useradd did not create the user")
}

/// The user's range in `/etc/subuid` or `/etc/subgid`.
pub(crate) fn range(file: &str) -> Result<Option<Range>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let Some(line) = text.lines().find(|line| line.split(':').next() == Some(NAME)) else {
        return Ok(None);
    };
    let mut numbers = line.split(':').skip(1).map(str::parse);
    let (Some(first), Some(count)) = (numbers.next(), numbers.next()) else { return Ok(None) };
    Ok(Some(Range { first: first?, count: count? }))
}
