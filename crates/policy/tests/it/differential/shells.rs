//! Runs scripts in a real bash or dash, shut in a directory in which every program is a stub that
//! records how it was called.
//!
//! The shell has namespaces of its own, no network, no devices and no `/proc`. Its root holds the two
//! shells, their libraries, the stubs, a home and a working directory, and is made new for each run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use hermes_types::{MEANING_VARIABLES, ShellContext, ShellKind};

pub(super) const HOME: &str = "/home/ada";
pub(super) const CWD: &str = "/home/ada/work";

/// Programs that exist. `cat` and `seq` also print, because scripts need text to work on. Those of
/// [`REAL`] also do what they are for.
pub(super) const PROGRAMS: &[&str] = &[
    "rm", "ls", "cp", "mv", "cat", "seq", "git", "make", "tee", "touch", "install", "mkdir", "dirname",
    "basename", "env", "sudo", "xargs", "find", "grep", "sed", "curl", "chmod", "dd", "python3", "node",
    "sleep", "date", "head", "tail", "cmake", "cargo", "npm", "tar", "mktemp", "whoami", "hostname", "id",
    "nohup", "timeout", "docker", "ssh", "kill", "x", "y",
];

const REAL: &[&str] = &["env", "xargs", "find", "timeout", "nohup", "mkdir"];

const STUB: &str = r#"#!/usr/bin/dash
set -f
printf '%s\0' "${0##*/}" "$(pwd -P)" "$@" '#end' >>/log
case ${0##*/} in
cat) while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done ;;
seq) echo 1; echo 2 ;;
ls) for word; do case $word in -*) ;; *) printf '%s\n' "$word" ;; esac; done ;;
env|xargs|find|timeout|nohup|mkdir) exec "/usr/lib/real/${0##*/}" "$@" ;;
sudo)
    while :; do case $1 in -u) shift 2 ;; -*) shift ;; *) break ;; esac; done
    exec "/usr/lib/real/env" "$@" ;;
esac
"#;

/// What stays in the root from one run to the next.
const KEPT: &[&str] = &["usr", "etc", "bin", "lib", "lib64"];

/// The users whose homes a tilde can name.
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";

/// Prints what a later command of the session sees. Options, parameters, `IFS` and variables that are
/// not exported do not stay.
///
/// The directory comes last: without it, the text did not run to its end. It has no `[[`, which bash
/// reads wrongly behind a syntax error.
const DUMP: &str = r#"
set +eauf
set --
shopt -u lastpipe extglob nullglob dotglob
IFS=$' \t\n'
for _n in $(compgen -A function); do printf 'F\0%s\0%s\0' "$_n" "$(declare -f "$_n")"; done >/state
for _n in "${!BASH_ALIASES[@]}"; do printf 'A\0%s\0%s\0' "$_n" "${BASH_ALIASES[$_n]}"; done >>/state
for _n in $(compgen -e); do printf 'E\0%s\0\0' "$_n"; done >>/state
for _n in HOME CDPATH OLDPWD; do
    [ ! -v "$_n" ] || printf 'V\0%s\0%s\0' "$_n" "${!_n}"
done >>/state
for _n in $(compgen -v); do
    case $_n in [a-z]*|[A-Z]) case ${!_n@a} in *x*) ;; *) unset -n "$_n"; unset -v "$_n" ;; esac ;; esac
done
unset _n
trap - EXIT DEBUG ERR RETURN
wait || :
: >/log
printf 'C\0cwd\0%s\0' "$(pwd -P)" >>/state
"#;

/// Variables that every shell sets itself.
const SHELL_OWNED: &[&str] = &["_", "PWD", "SHLVL"];

/// A program that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Execution {
    pub(super) name: String,
    pub(super) cwd: String,
    pub(super) args: Vec<String>,
}

/// What happened in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) executions: Vec<Execution>,
    /// The state of the session and its directory before the last command.
    pub(super) session: ShellContext,
    pub(super) cwd: String,
}

pub(super) struct Shells {
    root: PathBuf,
    /// What a script that changes the programs leaves different.
    built: RefCell<Vec<Option<(u64, SystemTime)>>>,
}

impl Shells {
    /// Builds the directory, or says why scripts cannot run here.
    pub(super) fn new(root: &Path) -> Result<Self, String> {
        let shells = Self { root: root.to_path_buf(), built: RefCell::default() };
        shells.build().map_err(|error| format!("cannot build {}: {error}", root.display()))?;
        let run = shells.run(ShellKind::Bash, None, "x works");
        let works = Execution { name: "x".to_owned(), cwd: CWD.to_owned(), args: vec!["works".to_owned()] };
        if run.executions == [works] { Ok(shells) } else { Err("cannot run bash in namespaces".to_owned()) }
    }

    fn build(&self) -> std::io::Result<()> {
        let programs = self.root.join("usr/bin");
        fs::create_dir_all(&programs)?;
        for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib")] {
            symlink(target, self.root.join(link))?;
        }
        let real = self.root.join("usr/lib/real");
        fs::create_dir_all(&real)?;
        let shells = ["bash", "dash", "echo", "printf", "true", "false"].map(|name| (name, &programs));
        for (name, directory) in shells.into_iter().chain(REAL.iter().map(|name| (*name, &real))) {
            let path = format!("/usr/bin/{name}");
            fs::copy(&path, directory.join(name))?;
            let output = Command::new("ldd").arg(&path).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
                let inside = library.replacen("/lib64", "/lib", 1).replacen("/lib", "/usr/lib", 1);
                let inside = self.root.join(inside.replacen("/usr/usr", "/usr", 1).trim_start_matches('/'));
                fs::create_dir_all(inside.parent().unwrap_or(&self.root))?;
                fs::copy(library, inside)?;
            }
        }
        symlink("dash", programs.join("sh"))?;
        fs::write(programs.join("stub"), STUB)?;
        fs::set_permissions(programs.join("stub"), fs::Permissions::from_mode(0o755))?;
        fs::create_dir_all(self.root.join("etc"))?;
        fs::write(self.root.join("etc/passwd"), PASSWD)?;
        PROGRAMS.iter().try_for_each(|name| symlink("stub", programs.join(name)))?;
        self.built.replace(self.state());
        Ok(())
    }

    /// The size and the time of change of each part of the root that scripts should not change.
    fn state(&self) -> Vec<Option<(u64, SystemTime)>> {
        let parts = [
            "usr", "usr/bin", "usr/bin/stub", "usr/bin/bash", "usr/bin/dash", "usr/lib", "usr/lib/real",
            "etc", "etc/passwd", "bin", "lib", "lib64",
        ];
        let state = |part| fs::symlink_metadata(self.root.join(part)).ok();
        parts.map(|part| state(part).and_then(|data| Some((data.len(), data.modified().ok()?)))).into()
    }

    /// Makes the files that scripts work on.
    fn reset(&self) -> std::io::Result<()> {
        let is_intact = self.state() == *self.built.borrow();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if is_intact && KEPT.iter().any(|kept| entry.file_name() == *kept) {
                continue;
            }
            let removed = if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())
            } else {
                fs::remove_file(entry.path())
            };
            removed?;
        }
        if !is_intact {
            self.build()?;
        }
        let work = self.root.join(CWD.trim_start_matches('/'));
        fs::create_dir_all(work.join("sub/deep"))?;
        fs::create_dir_all(work.join("build"))?;
        fs::create_dir_all(self.root.join("home/ada/Documents"))?;
        fs::create_dir_all(self.root.join("tmp"))?;
        fs::create_dir_all(self.root.join("dev"))?;
        fs::write(work.join("file"), "text\n")?;
        fs::write(self.root.join("dev/null"), "")?;
        fs::write(self.root.join("state"), "")?;
        fs::write(self.root.join("log"), "")
    }

    /// Runs a script, after another command of the same session if there is one.
    pub(super) fn run(&self, shell: ShellKind, earlier: Option<&str>, script: &str) -> Run {
        let failed = |error: std::io::Error| panic!("cannot run a script: {error}");
        self.reset().unwrap_or_else(failed);
        let name = if shell == ShellKind::Bash { "bash" } else { "dash" };
        let text = match earlier {
            None => {
                fs::write(self.root.join("script"), script).unwrap_or_else(failed);
                String::new()
            }
            Some(earlier) => {
                fs::write(self.root.join("one"), earlier).unwrap_or_else(failed);
                fs::write(self.root.join("two"), script).unwrap_or_else(failed);
                format!(". /one\n{DUMP}\n. /two\n")
            }
        };
        if !text.is_empty() {
            fs::write(self.root.join("script"), text).unwrap_or_else(failed);
        }
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", "3", "unshare", "--user", "--map-root-user", "--mount", "--net", "--pid"]);
        command.args(["--ipc", "--fork", "--kill-child", "--root"]).arg(&self.root).args(["--wd", CWD]);
        command.args(["/usr/bin/bash", "-c", "ulimit -f 2000 -v 400000 -c 0; exec \"$@\"", "_"]);
        command.arg(format!("/usr/bin/{name}"));
        command.args((shell == ShellKind::Bash).then_some(["-O", "expand_aliases"]).iter().flatten());
        command.arg("/script");
        command.env_clear().envs([("HOME", HOME), ("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap_or_else(|error| panic!("cannot start unshare: {error}"));
        self.read(shell, earlier.is_some())
    }

    fn read(&self, shell: ShellKind, has_earlier: bool) -> Run {
        let fields = |name: &str| -> Vec<String> {
            let bytes = fs::read(self.root.join(name)).unwrap_or_default();
            bytes.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned()).collect()
        };
        let mut executions = Vec::new();
        for record in fields("log").split(|field| field == "#end") {
            if let [name, cwd, args @ ..] = record {
                executions.push(Execution { name: name.clone(), cwd: cwd.clone(), args: args.to_vec() });
            }
        }
        let mut session = ShellContext { shell, ..ShellContext::new() };
        let mut cwd = CWD.to_owned();
        for record in fields("state").chunks_exact(3) {
            let [kind, name, text] = record else { continue };
            let map: &mut BTreeMap<String, String> = match kind.as_str() {
                "E" if MEANING_VARIABLES.contains(&name.as_str()) || SHELL_OWNED.contains(&name.as_str()) => {
                    continue;
                }
                "E" => {
                    session.exported.insert(name.clone());
                    continue;
                }
                "F" => &mut session.functions,
                "A" => &mut session.aliases,
                "V" => &mut session.variables,
                _ => {
                    cwd.clone_from(text);
                    continue;
                }
            };
            map.insert(name.clone(), text.clone());
        }
        // An earlier command that ends the session leaves nothing to compare.
        if has_earlier && !fields("state").iter().any(|field| field == "cwd") {
            executions.clear();
        }
        Run { executions, session, cwd }
    }
}
