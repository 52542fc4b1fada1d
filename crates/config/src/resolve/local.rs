//! The local backend: home directory, initial directory, search path and shell files of commands.

use std::path::{Path, PathBuf};

use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::{HomeMode, Terminal};

/// The files that a local session sources, in this order.
const DEFAULT_INIT_FILES: [&str; 3] = ["~/.profile", "~/.bash_profile", "~/.bashrc"];
/// Added to every search path.
const DEFAULT_SEARCH_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Files that container engines create in containers.
const CONTAINER_MARKER_FILES: [&str; 3] = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];

pub(super) fn owner_home(context: &ConfigContext) -> String {
    context.variable("HOME").unwrap_or("/root").to_owned()
}

/// The directory `home` in the Hermes home, if `terminal.home_mode` chooses it for commands.
pub(super) fn profile_home(context: &ConfigContext, mode: HomeMode) -> Option<PathBuf> {
    let is_container = context.variable("KUBERNETES_SERVICE_HOST").is_some()
        || CONTAINER_MARKER_FILES.iter().any(|file| Path::new(file).exists());
    uses_profile(mode, is_container).then(|| context.home.path().join("home"))
}

fn uses_profile(mode: HomeMode, is_container: bool) -> bool {
    match mode {
        HomeMode::Real => false,
        HomeMode::Auto => is_container,
        HomeMode::Profile => true,
    }
}

/// The directory in which a session starts.
pub(super) fn initial_cwd(chosen: &str, owner_home: &str) -> Result<String, Failure> {
    let path = match (chosen, expand_tilde(chosen, owner_home)) {
        ("." | "auto" | "cwd", _) => current_dir()?,
        (_, path) if path.is_absolute() => path,
        (_, path) => current_dir()?.join(path),
    };
    Ok(path.display().to_string())
}

/// The current directory of this process.
pub fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::failed(format!("cannot use the current directory: {error}"))
            .hint("Change to another directory; this one may have been removed.")
    })
}

/// The owner's search path without duplicates, then the default directories, which services often
/// lack. An empty entry would mean the current directory and is dropped.
pub(super) fn search_path(owner: &str) -> String {
    let mut dirs: Vec<&str> = Vec::new();
    for dir in owner.split(':').chain(DEFAULT_SEARCH_DIRS) {
        if !dir.is_empty() && !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs.join(":")
}

/// The files that bash sources at the start of a session. Relative paths are below the owner's
/// home, so they do not depend on the current directory.
pub(super) fn init_files(terminal: &Terminal, owner_home: &str) -> Vec<String> {
    let defaults =
        DEFAULT_INIT_FILES.iter().filter(|_| terminal.auto_source_bashrc).map(|file| (*file).to_owned());
    let files = match terminal.shell_init_files.as_slice() {
        [] => defaults.collect(),
        chosen => chosen.to_vec(),
    };
    let absolute =
        |file: &String| Path::new(owner_home).join(expand_tilde(file, owner_home)).display().to_string();
    files.iter().map(absolute).collect()
}

/// Expands a leading `~` to the owner's home.
pub(super) fn expand_tilde(text: &str, owner_home: &str) -> PathBuf {
    match text.strip_prefix('~') {
        Some("") => PathBuf::from(owner_home),
        Some(rest) if rest.starts_with('/') => PathBuf::from(format!("{owner_home}{rest}")),
        _ => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_commands_follows_the_mode() {
        let cases = [
            (HomeMode::Real, true, false),
            (HomeMode::Auto, false, false),
            (HomeMode::Auto, true, true),
            (HomeMode::Profile, false, true),
        ];
        for (mode, is_container, expected) in cases {
            assert_eq!(uses_profile(mode, is_container), expected, "{mode:?} {is_container}");
        }
    }

    #[test]
    fn the_search_path_has_no_duplicates_and_no_empty_entries() {
        let defaults = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(search_path(""), defaults);
        assert_eq!(search_path(defaults), defaults);
        assert_eq!(
            search_path(":/o/bin::/bin:/o/bin:"),
            "/o/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin"
        );
    }

    #[test]
    fn only_a_leading_tilde_component_is_expanded() {
        let cases = [("~", "/o"), ("~/a b", "/o/a b"), ("~x/a", "~x/a"), ("/a/~", "/a/~"), ("a", "a")];
        for (text, expected) in cases {
            assert_eq!(expand_tilde(text, "/o"), PathBuf::from(expected), "{text}");
        }
    }
}
