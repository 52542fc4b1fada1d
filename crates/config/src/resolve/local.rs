//! What a place on this machine gets of its owner: a home, a directory to start in, the files of the shell.

use std::path::{Path, PathBuf};

use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::keys::{HomeMode, Terminal};

/// The files a shell of the owner reads, in the order in which they are sourced.
const DEFAULT_INIT_FILES: [&str; 3] = ["~/.profile", "~/.bash_profile", "~/.bashrc"];
/// Where programs are on every machine.
const DEFAULT_SEARCH_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// What container engines leave in the containers they make.
const CONTAINER_MARKER_FILES: [&str; 3] = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];

/// The home directory of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandHome {
    /// The owner's own.
    Owner(String),
    /// The one in the hermes home.
    Profile(String),
    /// The owner's own, because the one in the hermes home is not there.
    Missing(String),
}

/// Where hermes itself runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostKind {
    Host,
    Container,
}

/// The owner's home directory.
pub(super) fn owner_home(context: &ConfigContext) -> String {
    context.variable("HOME").unwrap_or("/root").to_owned()
}

/// The home directory of commands, as `terminal.home_mode` wants it.
pub(super) fn command_home(context: &ConfigContext, mode: HomeMode) -> CommandHome {
    let contained = context.variable("KUBERNETES_SERVICE_HOST").is_some()
        || CONTAINER_MARKER_FILES.iter().any(|mark| Path::new(mark).exists());
    let around = if contained { HostKind::Container } else { HostKind::Host };
    choose_home(mode, around, owner_home(context), &context.home.path().join("home"))
}

fn choose_home(mode: HomeMode, around: HostKind, owner: String, profile: &Path) -> CommandHome {
    match (mode, around) {
        (HomeMode::Real, _) | (HomeMode::Auto, HostKind::Host) => CommandHome::Owner(owner),
        (HomeMode::Profile, _) | (HomeMode::Auto, HostKind::Container) if profile.is_dir() => {
            CommandHome::Profile(profile.display().to_string())
        }
        (HomeMode::Auto, HostKind::Container) => CommandHome::Owner(owner),
        (HomeMode::Profile, _) => CommandHome::Missing(owner),
    }
}

impl CommandHome {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Owner(path) | Self::Profile(path) | Self::Missing(path) => path,
        }
    }
}

/// The directory a session starts in.
pub(super) fn initial_cwd(chosen: &str, owner_home: &str) -> Result<String, Failure> {
    let path = match (chosen, expand_tilde(chosen, owner_home)) {
        ("." | "auto" | "cwd", _) => current_dir()?,
        (_, path) if path.is_absolute() => path,
        (_, path) => current_dir()?.join(path),
    };
    Ok(path.display().to_string())
}

/// The directory hermes was started in.
pub fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::new(FailureKind::Failed, format!("cannot use the current directory: {error}"))
            .hint("Change to another directory; this one may have been removed.")
    })
}

/// Where programs are looked for: where the owner looks for them, each place once, then in the usual places, which a
/// service is often not told of. An empty entry would mean whatever directory a command is in.
pub(super) fn search_path(owner: &str) -> String {
    let mut places: Vec<&str> = Vec::new();
    for place in owner.split(':').chain(DEFAULT_SEARCH_DIRS) {
        if !place.is_empty() && !places.contains(&place) {
            places.push(place);
        }
    }
    places.join(":")
}

/// The files that bash sources when a session begins. A relative one is in the owner's home, so that what is sourced
/// does not depend on where hermes was started.
pub(super) fn init_files(terminal: &Terminal, owner_home: &str) -> Vec<String> {
    let usual =
        DEFAULT_INIT_FILES.iter().filter(|_| terminal.auto_source_bashrc).map(|file| (*file).to_owned());
    let files = match terminal.shell_init_files.as_slice() {
        [] => usual.collect(),
        chosen => chosen.to_vec(),
    };
    let whole =
        |file: &String| Path::new(owner_home).join(expand_tilde(file, owner_home)).display().to_string();
    files.iter().map(whole).collect()
}

/// A path whose `~` is the owner's home.
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
        let profile = tempfile::tempdir().unwrap();
        let missing = profile.path().join("missing");
        let there = || CommandHome::Profile(profile.path().display().to_string());
        let owner = || CommandHome::Owner("/o".to_owned());
        let cases = [
            (HomeMode::Real, HostKind::Container, profile.path(), owner()),
            (HomeMode::Auto, HostKind::Host, profile.path(), owner()),
            (HomeMode::Auto, HostKind::Container, profile.path(), there()),
            (HomeMode::Auto, HostKind::Container, &missing, owner()),
            (HomeMode::Profile, HostKind::Host, profile.path(), there()),
            (HomeMode::Profile, HostKind::Host, &missing, CommandHome::Missing("/o".to_owned())),
        ];
        for (mode, around, directory, expected) in cases {
            assert_eq!(
                choose_home(mode, around, "/o".to_owned(), directory),
                expected,
                "{mode:?} {around:?}"
            );
        }
    }

    #[test]
    fn programs_are_looked_for_in_each_place_once_and_never_just_here() {
        let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(search_path(""), usual);
        assert_eq!(search_path(usual), usual);
        assert_eq!(
            search_path(":/o/bin::/bin:/o/bin:"),
            "/o/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin"
        );
    }

    #[test]
    fn only_a_tilde_of_its_own_is_the_home() {
        let cases = [("~", "/o"), ("~/a b", "/o/a b"), ("~x/a", "~x/a"), ("/a/~", "/a/~"), ("a", "a")];
        for (text, expected) in cases {
            assert_eq!(expand_tilde(text, "/o"), PathBuf::from(expected), "{text}");
        }
    }
}
