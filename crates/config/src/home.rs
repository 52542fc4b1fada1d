//! The directory of the configuration and all state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The home of Hermes: `--home`, `HERMES_HOME`, or `~/.hermes`.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    pub fn find(flag: Option<&Path>, process: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let variable =
            |name: &str| process.get(name).map(String::as_str).filter(|value| !value.trim().is_empty());
        let path = match (flag, variable("HERMES_HOME"), variable("HOME")) {
            (Some(flag), _, _) => flag.to_path_buf(),
            // Service files do not expand `~`.
            (None, Some(home), Some(user_home)) if home.starts_with("~/") => {
                Path::new(user_home).join(home.trim_start_matches("~/"))
            }
            (None, Some(home), _) => PathBuf::from(home),
            (None, None, Some(user_home)) => Path::new(user_home).join(".hermes"),
            (None, None, None) => {
                return Err(Failure::configuration("cannot find the home directory: HOME is not set")
                    .hint("Use --home DIR or set HERMES_HOME."));
            }
        };
        Ok(Self(std::path::absolute(path)?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}
