//! The directory that holds everything hermes keeps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind};

/// The home of this hermes: `--home`, `HERMES_HOME`, or `~/.hermes`.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    pub fn find(flag: Option<&Path>, process: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let filled =
            |name: &str| process.get(name).map(String::as_str).filter(|value| !value.trim().is_empty());
        let chosen = match (flag, filled("HERMES_HOME"), filled("HOME")) {
            (Some(flag), _, _) => flag.to_path_buf(),
            (None, Some(home), user_home) => expand(home, user_home),
            (None, None, Some(user_home)) => Path::new(user_home).join(".hermes"),
            (None, None, None) => {
                return Err(Failure::new(
                    FailureKind::Configuration,
                    "cannot find the home directory: HOME is not set",
                )
                .hint("Use --home DIR or set HERMES_HOME."));
            }
        };
        Ok(Self(std::path::absolute(chosen)?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// A `~` that no shell has expanded, as in a service file.
fn expand(text: &str, user_home: Option<&str>) -> PathBuf {
    match (text.strip_prefix("~/"), user_home) {
        (Some(rest), Some(user_home)) => Path::new(user_home).join(rest),
        _ => PathBuf::from(text),
    }
}
