//! Variables, home directory, shell startup files and working directory of commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hermes_policy::secret_env::SECRET_FAMILIES;

use crate::{Home, Run};

/// An owner with a home directory, a hermes home and a working directory.
struct OwnerEnv {
    hermes: Home,
    folder: tempfile::TempDir,
}

impl OwnerEnv {
    fn new(config: &str) -> Self {
        let owner = Self { hermes: Home::with_config(config), folder: tempfile::tempdir().unwrap() };
        for name in ["home", "work", "run"] {
            fs::create_dir(owner.folder.path().join(name)).unwrap();
        }
        owner
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes a file in the owner's home directory.
    fn write_file(&self, name: &str, text: &str) {
        fs::write(self.home().join(name), text).unwrap();
    }

    fn exec(&self, args: &[&str]) -> Command {
        let mut command = self.hermes.command(&[&["exec"], args].concat());
        command.env("HOME", self.home()).env("XDG_RUNTIME_DIR", self.folder.path().join("run"));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("TERMINAL_LIFETIME_SECONDS", "5");
        command.current_dir(self.work());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.exec(args).output().unwrap())
    }

    /// Returns the output of a command that succeeds and prints nothing on stderr.
    fn out(&self, command: &str) -> String {
        let run = self.run(&["--session", "s", "--", command]);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
        run.out
    }
}

/// One variable name for each pattern of secret variables.
fn secret_variable_names() -> Vec<String> {
    SECRET_FAMILIES.iter().flat_map(|family| family.names).map(|name| name.replace('*', "X")).collect()
}

#[test]
fn shell_files_are_sourced_once_in_order() {
    let owner = OwnerEnv::new("");
    owner.write_file(
        ".bashrc",
        "export TRACE=$TRACE:bashrc; alias hi='echo hi'; echo once >> ~/count; echo noise; echo noise >&2",
    );
    owner.write_file(".profile", "export TRACE=profile PATH=$HOME/bin:$PATH");
    owner.write_file(".bash_profile", "TRACE=$TRACE:bash_profile; cd /; exit 7");
    let expected = format!(
        "profile:bash_profile:bashrc\n{}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\n{}\nhi\n",
        owner.home().display(),
        owner.work().display()
    );
    for _ in 0..2 {
        assert_eq!(owner.out("echo $TRACE; echo $PATH; pwd\nhi"), expected);
    }
    assert_eq!(fs::read_to_string(owner.home().join("count")).unwrap(), "once\n");
}

#[test]
fn a_shell_file_can_return_early_without_a_terminal() {
    let owner = OwnerEnv::new("");
    owner.write_file(".profile", "export EARLY=1; . ~/.bashrc");
    owner.write_file(".bashrc", "case $- in *i*) ;; *) return;; esac; export LATE=1");
    assert_eq!(owner.out("echo [$EARLY] [$LATE]"), "[1] []\n");
}

#[test]
fn configured_shell_files_replace_the_default_ones() {
    let owner =
        OwnerEnv::new("terminal: {shell_init_files: ['~/mine', '${HOME}/other', relative, ~/missing]}\n");
    owner.write_file(".bashrc", "export USUAL=1");
    owner.write_file("mine", "export A=1");
    owner.write_file("other", "export B=2");
    owner.write_file("relative", "export C=3");
    assert_eq!(owner.out("echo [$USUAL] $A $B $C"), "[] 1 2 3\n");
}

#[test]
fn no_file_is_sourced_if_disabled_or_in_a_sandbox() {
    let owner = OwnerEnv::new("terminal: {auto_source_bashrc: false}\n");
    owner.write_file(".bashrc", "export USUAL=1");
    assert_eq!(owner.out("echo [$USUAL]"), "[]\n");
    let owner = OwnerEnv::new("terminal: {backend: sandbox, shell_init_files: [/mnt/mine]}\n");
    owner.write_file("mine", "export MINE=1");
    let volumes = serde_json::json!([format!("{}:/mnt:ro", owner.home().display())]).to_string();
    let mut command = owner.exec(&["--session", "s", "--", "echo [$MINE]; . /mnt/mine; echo $MINE"]);
    let run = Run::of(command.env("TERMINAL_DOCKER_VOLUMES", volumes).output().unwrap());
    assert_eq!(run.out, "[]\n1\n", "{run:?}");
}

#[test]
fn a_secret_variable_is_refused_with_a_warning_and_the_command_runs() {
    let names = secret_variable_names();
    let listed = [names.clone(), vec!["FREE".to_owned()]].concat();
    let listed = serde_json::json!({"terminal": {"env_passthrough": listed, "guard": "off"}});
    let owner = OwnerEnv::new(&listed.to_string());
    let canary = |command: &mut Command| {
        command.env("FREE", "free");
        command.envs(names.iter().map(|name| (name, format!("canary-{name}"))));
    };
    let see = "env; cat /proc/$PPID/environ /proc/$(cut -d ' ' -f 4 /proc/$PPID/stat)/environ";
    let mut command = owner.exec(&["--session", "s", "--yes", "--", see]);
    canary(&mut command);
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("\nFREE=free\n") && run.out.matches("HOME=").count() == 3, "{run:?}");
    assert!(!run.out.contains("canary"), "{run:?}");
    let warned =
        |text: &str| names.iter().filter(|name| text.matches(&format!("`{name}` is ")).count() == 1).count();
    assert_eq!(warned(&run.err), names.len(), "{run:?}");
    for command in [&["config", "check"][..], &["doctor"]] {
        let output = owner.hermes.run(command);
        assert_eq!(warned(&format!("{}{}", output.out, output.err)), names.len(), "{output:?}");
    }
    let status = owner.hermes.run(&["status"]);
    assert!(status.out.contains(&format!("{} problems", names.len())), "{status:?}");
}

#[test]
fn secret_variables_of_shell_files_and_the_secrets_file_are_withheld() {
    let owner = OwnerEnv::new("");
    let names = secret_variable_names();
    let exports: String = names.iter().map(|name| format!("export {name}=canary\n")).collect();
    let secrets: String = names.iter().map(|name| format!("{name}=canary\n")).collect();
    owner.write_file(".bashrc", &format!("{exports}export FREE=free\n"));
    owner.hermes.write(".env", secrets);
    let env = owner.out("env");
    assert!(env.contains("FREE=free\n") && !env.contains("canary"), "{env}");
}

#[test]
fn a_secret_variable_can_be_passed_to_one_command() {
    let owner = OwnerEnv::new("");
    let mut command = owner.exec(&["--session", "s", "--env", "GITHUB_TOKEN", "--", "echo $GITHUB_TOKEN"]);
    let run = Run::of(command.env("GITHUB_TOKEN", "mine").output().unwrap());
    assert_eq!((run.out.as_str(), run.err.as_str()), ("mine\n", ""), "{run:?}");
    assert_eq!(owner.out("echo [$GITHUB_TOKEN]"), "[]\n");
}

#[test]
fn a_forcing_variable_name_passes_no_secret() {
    let owner = OwnerEnv::new("");
    let mut command = owner.exec(&["--session", "s", "--", "env"]);
    let run = Run::of(command.env("_HERMES_FORCE_OPENAI_API_KEY", "canary").output().unwrap());
    assert!(run.code == Some(0) && !run.out.contains("canary"), "{run:?}");
}

#[test]
fn every_secret_of_hermes_itself_is_withheld() {
    use hermes_config::define::Visibility;
    let secret = hermes_config::keys::all().filter(|key| key.visibility == Visibility::Secret);
    let open: Vec<_> = secret
        .filter(|key| hermes_policy::secret_env::secret_family(key.variable).is_none())
        .map(|key| key.path)
        .collect();
    assert_eq!(open, [] as [&str; 0]);
}

#[test]
fn commands_get_the_home_that_the_mode_names() {
    let ask = "echo $HOME [$HERMES_REAL_HOME]";
    let real = OwnerEnv::new("terminal: {home_mode: real}\n");
    fs::create_dir(real.hermes.path().join("home")).unwrap();
    assert_eq!(real.out(ask), format!("{} []\n", real.home().display()));
    let profile = OwnerEnv::new("terminal: {home_mode: profile}\n");
    let missing = profile.run(&["--session", "before", "--", ask]);
    assert_eq!(missing.out, format!("{} []\n", profile.home().display()));
    assert!(missing.err.starts_with("warning: terminal.home_mode: "), "{missing:?}");
    let inside = profile.hermes.path().join("home");
    fs::create_dir(&inside).unwrap();
    assert_eq!(profile.out(ask), format!("{} [{}]\n", inside.display(), profile.home().display()));
    // The directory is in the hermes home, but it belongs to commands.
    let written = profile.run(&["--session", "s", "--yes", "--", "echo x > ~/mine; cat ~/mine"]);
    assert_eq!(written.out, "x\n", "{written:?}");
}

#[test]
fn a_sandbox_without_persistence_leaves_nothing() {
    let owner = OwnerEnv::new("terminal: {backend: sandbox, container_persistent: false}\n");
    assert_eq!(owner.out("echo mine > f; echo ours > ~/g"), "");
    assert_eq!(owner.out("cat f ~/g"), "mine\nours\n");
    assert!(!owner.hermes.path().join("sandboxes").exists());
    let found = |dir: &Path| {
        files_below(dir).iter().filter(|path| path.ends_with("f") || path.ends_with("g")).count()
    };
    assert_eq!(found(&owner.hermes.path().join("cache")), 2);
    let once = owner.run(&["--session", "", "--", "echo x > /workspace/f; cat f"]);
    assert_eq!(once.out, "x\n", "{once:?}");
    assert_eq!(found(&owner.hermes.path().join("cache")), 2);
}

/// Lists every file below a directory.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| {
            if entry.file_type().unwrap().is_dir() { files_below(&entry.path()) } else { vec![entry.path()] }
        })
        .collect()
}

#[test]
fn a_session_starts_where_the_configuration_says() {
    let cases = [("~", "home"), ("~/in home", "home/in home"), (".", "work"), ("below", "work/below")];
    for (cwd, expected) in cases {
        let owner = OwnerEnv::new(&format!("terminal: {{cwd: '{cwd}'}}\n"));
        let expected = owner.folder.path().join(expected);
        fs::create_dir_all(&expected).unwrap();
        assert_eq!(owner.out("pwd"), format!("{}\n", expected.display()), "{cwd}");
    }
    for (cwd, expected) in [("/usr/share", "/usr/share"), (".", "/workspace"), ("/home/other", "/workspace")]
    {
        let owner = OwnerEnv::new(&format!("terminal: {{backend: sandbox, cwd: '{cwd}'}}\n"));
        assert_eq!(owner.out("pwd"), format!("{expected}\n"), "{cwd}");
    }
}
