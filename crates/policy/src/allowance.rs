//! The protected classes that a job may use.
//!
//! All commands of a job see the same files, so a class that one of them may use is open to all.
//! A job that needs no question therefore gets classes only if the gate has read everything that
//! runs in it; code of the project and scripts count as unread. If unread code runs next to a
//! command that fails without its classes, the rule `mixed-access` asks. Package managers run code
//! of packages, so they get tokens only where they run none, after approval, or by an owner's rule.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use hermes_types::{Allowance, Job, ProtectedClass, Work};

use crate::file_effects::named_paths;
use crate::programs::When::{All, Always, Any, Arg, Flag, Not, Operand, Test, Verb};
use crate::programs::{Invocation, Runs, When, fits_any, is_plain, is_remote};
use crate::protected::{ProtectedPath, protected_paths};
use crate::rules::Match;
use crate::shell::{Script, Segment, Word, pattern_matches};
use ProtectedClass::{
    CloudCredentials, ContainerEngine, DesktopSession, GitConfig, GitCredentials, GpgKeys, OtherCredentials,
    OtherPrograms, PackageTokens, SshAgent, SshKeys, StartupFiles, TerminalSessions,
};

/// The classes that a program uses, and when.
struct ClassUse {
    programs: &'static [&'static str],
    when: When,
    classes: &'static [ProtectedClass],
    /// Whether it fails without them, as far as its words tell.
    needs: When,
}

const fn uses(programs: &'static [&'static str], when: When, classes: &'static [ProtectedClass]) -> ClassUse {
    ClassUse { programs, when, classes, needs: Any(&[]) }
}

const fn needs(
    programs: &'static [&'static str],
    when: When,
    classes: &'static [ProtectedClass],
) -> ClassUse {
    ClassUse { needs: Always, ..uses(programs, when, classes) }
}

const USES: &[ClassUse] = &[
    ClassUse {
        programs: &["git"],
        when: Any(&[
            Verb(&[
                "fetch", "pull", "push", "clone", "ls-remote", "submodule update", "submodule add",
                "submodule sync", "remote update", "remote show", "remote prune", "lfs",
            ]),
            All(&[Verb(&["archive"]), Arg(&["--remote*"])]),
        ]),
        classes: &[SshKeys, SshAgent, GitCredentials, DesktopSession],
        needs: Not(&Any(&[
            Operand(&["https://*", "http://*", "git://*", "file://*", "/*", ".*"]),
            Verb(&["lfs"]),
        ])),
    },
    // A key in the agent can sign; the files of SSH stay closed to the hooks of the project.
    uses(
        &["git"],
        Verb(&[
            "commit", "tag", "merge", "rebase", "pull", "cherry-pick", "revert", "am", "verify-*", "log",
            "show", "push",
        ]),
        &[GpgKeys, SshAgent],
    ),
    uses(
        &["git"],
        Verb(&[
            "config", "init", "clone", "remote", "submodule", "worktree", "branch", "checkout", "switch",
            "push", "pull", "lfs", "maintenance", "sparse-checkout", "bisect", "flow",
        ]),
        &[GitConfig],
    ),
    uses(&["pre-commit", "husky", "lefthook"], Verb(&["install", "uninstall"]), &[GitConfig]),
    needs(&["gh", "glab", "hub"], Always, &[GitCredentials, SshKeys, SshAgent, GitConfig, DesktopSession]),
    needs(
        &["ssh", "scp", "sftp", "autossh", "mosh", "ssh-copy-id", "ssh-add"],
        Not(&Any(&[Flag(&["-F"]), Arg(&["*ProxyCommand*", "*LocalCommand*", "*KnownHostsCommand*"])])),
        &[SshKeys, SshAgent],
    ),
    uses(&["ssh-keygen"], Always, &[SshKeys]),
    needs(
        &["rsync"],
        Test(|call| call.operands().iter().any(|word| is_remote(word.prefix()))),
        &[SshKeys, SshAgent],
    ),
    needs(
        &[
            "docker", "podman", "docker-compose", "podman-compose", "nerdctl", "buildah", "skopeo", "kind",
            "minikube", "k3d", "colima", "crictl", "ctr", "distrobox", "toolbox", "lxc", "incus",
        ],
        Not(&Arg(&["--config", "--config=*", "--help", "--version"])),
        &[ContainerEngine, DesktopSession],
    ),
    needs(&["kind", "minikube", "k3d"], Always, &[CloudCredentials]),
    needs(&["gpg", "gpg2"], Always, &[GpgKeys]),
    needs(
        &[
            "aws", "gcloud", "gsutil", "bq", "az", "kubectl", "oc", "helm", "terraform", "tofu", "doctl",
            "hcloud", "oci", "ibmcloud", "scw", "linode-cli", "flyctl", "fly", "heroku", "s3cmd", "rclone",
            "eksctl", "argocd", "flux", "k9s", "stern", "kubectx", "kubens",
        ],
        Always,
        &[CloudCredentials],
    ),
    uses(&["npm", "pnpm", "yarn"], Any(&[Verb(NPM_QUERIES), Flag(&["--ignore-scripts"])]), &[PackageTokens]),
    uses(&["cargo"], Verb(&["fetch", "search", "info", "update", "metadata"]), &[PackageTokens]),
    uses(
        &["pip", "pip3"],
        Any(&[Verb(&["list", "show", "freeze", "index", "config"]), Arg(&["--only-binary=:all:"])]),
        &[PackageTokens],
    ),
    needs(&["tmux", "screen", "zellij"], Always, &[TerminalSessions]),
    needs(
        &[
            "systemctl", "journalctl", "loginctl", "hostnamectl", "timedatectl", "localectl", "resolvectl",
            "systemd-analyze", "nmcli", "bluetoothctl", "xdg-open", "notify-send", "xclip", "xsel",
            "wl-copy", "wl-paste", "pactl", "wpctl", "xrandr", "xdpyinfo",
        ],
        Always,
        &[DesktopSession],
    ),
];

/// Commands of package managers that run no code of packages.
const NPM_QUERIES: &[&str] = &[
    "view", "info", "show", "ls", "list", "outdated", "audit", "whoami", "search", "ping", "why", "explain",
    "config", "npm whoami", "npm info",
];

/// The classes of an approved command, by the rule that asked.
const BY_RULE: &[(&[&str], &[ProtectedClass])] = &[
    (&["git-loss", "git-helper", "push-elsewhere"], &[GitConfig, GitCredentials, SshKeys, SshAgent]),
    (&["publish", "packages-elsewhere"], &[PackageTokens, GitCredentials, ContainerEngine]),
    (&["cluster", "cloud"], &[CloudCredentials]),
    (&["containers", "container-escape"], &[ContainerEngine]),
    (&["secret-stores"], &[OtherCredentials, DesktopSession, GpgKeys]),
    (&["tool-settings"], &[StartupFiles, GitConfig, PackageTokens]),
    (&["schedule"], &[StartupFiles, DesktopSession]),
    (&["inbound-access", "copy-out", "many-machines"], &[SshKeys, SshAgent]),
    (&["audit-trail"], &[OtherCredentials]),
    (&["end-sessions"], &[TerminalSessions, OtherPrograms]),
    (&["mass-kill"], &[OtherPrograms]),
    // A deleted directory may hold a repository.
    (&["delete-outside", "delete-work", "delete-unknown"], &[GitConfig]),
    (&["services"], &[DesktopSession]),
];

/// Rules about commands that only work without the guard.
const WITHOUT_GUARD: &[&str] = &[
    "elevate", "accounts", "kernel", "firewall", "packages", "mount", "attach", "devices", "disk-tools",
    "read-disk", "write-system", "capabilities", "service-scripts", "hermes-life", "hermes-home",
];

/// The number of paths that are compared with the protected ones.
const MAX_NAMED: usize = 256;

/// The rule about unread code next to a command that needs protected classes.
pub(crate) const MIXED_ACCESS: &str = "mixed-access";

/// The rule about unread code where the guard is configured but not available.
pub(crate) const UNGUARDED_CODE: &str = "unguarded-code";

/// Variables by which a command finds other programs or other settings.
const STEERING_VARIABLES: &[&str] = &[
    "PATH", "HOME", "SHELL", "LD_*", "DYLD_*", "GIT_DIR", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
    "XDG_*_HOME", "XDG_DATA_DIRS", "DOCKER_CONFIG", "KUBECONFIG", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "GNUPGHOME", "GH_CONFIG_DIR", "GLAB_CONFIG_DIR",
    "HELM_*", "TF_CLI_CONFIG_FILE", "TF_PLUGIN*", "BASH_*", "ENV", "NODE_*", "PYTHON*", "PERL*", "RUBY*",
];

/// Tools without a declaration that run no code of the project.
const PLAIN_TOOLS: &[&str] = &[
    "jq", "yq", "tree", "bat", "rg", "ag", "delta", "tokei", "cloc", "ncal", "cal", "neofetch",
    "lsb_release", "systemd-escape", "systemd-path", "systemd-detect-virt", "psql", "mysql", "redis-cli",
    "sqlite3", "pre-commit",
];

/// What the commands of a job use.
#[derive(Debug, Default)]
pub(crate) struct ClassNeeds {
    used: BTreeSet<ProtectedClass>,
    /// The classes of the protected paths that a word names.
    named: BTreeSet<ProtectedClass>,
    /// Whether a command fails without its classes.
    is_needed: bool,
    /// Whether code runs that the gate has not read.
    has_unread_code: bool,
    /// Whether the guard does not apply, so that nothing needs to be opened.
    is_unguarded: bool,
}

impl ClassNeeds {
    /// The needs of a job to which the guard does not apply.
    pub(crate) fn unguarded() -> Self {
        Self { is_unguarded: true, ..Self::default() }
    }

    /// The needs of a job that should run under the guard, which is not available.
    pub(crate) fn lacking_guard(job: &Job, script: &Script, is_allowed: impl Fn(&Segment) -> bool) -> Self {
        let commands = commands_here(job, script, is_allowed);
        Self { has_unread_code: runs_any_unread_code(&commands), ..Self::unguarded() }
    }

    /// The needs of a job. The commands that pass the test run by an owner's rule.
    pub(crate) fn new(job: &Job, script: &Script, home: &str, is_allowed: impl Fn(&Segment) -> bool) -> Self {
        let mut found = Self::default();
        let commands = commands_here(job, script, is_allowed);
        for (call, is_allowed) in &commands {
            for class_use in class_uses(call) {
                found.used.extend(class_use.classes);
                found.is_needed |= class_use.needs.holds(call) && !call.asks_for_help();
            }
            if *is_allowed && PACKAGE_MANAGERS.contains(&call.name()) {
                found.used.insert(PackageTokens);
            }
        }
        if commands.iter().any(|(call, _)| shows_public_files(call, home)) {
            found.used.insert(SshKeys);
        }
        let is_steered = || is_steered(job) || commands.iter().any(|(call, _)| steers(call));
        found.has_unread_code = !found.used.is_empty() && (is_steered() || runs_any_unread_code(&commands));
        found
    }

    /// Whether unread code would run without the guard that the owner wants.
    pub(crate) fn is_unguarded_code(&self) -> bool {
        self.is_unguarded && self.has_unread_code
    }

    /// Adds the protected paths that are named, for an approver to see and to open.
    pub(crate) fn add_named(&mut self, script: &Script, home: &str) {
        let paths: BTreeSet<String> =
            script.segments.iter().flat_map(|segment| named_paths(segment, home)).take(MAX_NAMED).collect();
        let named = paths.iter().flat_map(|path| covering(path, home));
        self.named.extend(named.map(|protected| protected.class));
    }

    /// The classes of a job that nothing asks about.
    pub(crate) fn unasked(&self) -> Allowance {
        Allowance::Classes(self.unasked_classes())
    }

    fn unasked_classes(&self) -> BTreeSet<ProtectedClass> {
        if self.has_unread_code { BTreeSet::new() } else { self.used.clone() }
    }

    /// The classes of a contained job; none if it uses or names more than it gets unasked.
    pub(crate) fn contained(&self, matches: &[Match]) -> Option<Allowance> {
        let unasked = self.unasked_classes();
        let of_matches = matches.iter().flat_map(|found| &found.classes);
        let mut classes = self.used.iter().chain(&self.named).chain(of_matches);
        classes.all(|class| unasked.contains(class)).then_some(Allowance::Classes(unasked))
    }

    /// Whether unread code would get the classes that another command needs.
    pub(crate) fn is_mixed(&self) -> bool {
        self.is_needed && self.has_unread_code
    }

    /// The classes of a job whose matches are approved. A part that could not be read may need
    /// anything, but without an approver it gets nothing.
    pub(crate) fn approved(&self, matches: &[Match], by_person: bool) -> Allowance {
        let mut classes = self.used.clone();
        if by_person && !self.is_unguarded {
            classes.extend(&self.named);
        }
        for found in matches.iter().filter(|_| !self.is_unguarded) {
            let is_unread = found.at.is_none() && found.id != MIXED_ACCESS;
            if WITHOUT_GUARD.contains(&found.id) || (is_unread && by_person) {
                return Allowance::Everything;
            }
            let by_rule = BY_RULE.iter().filter(|(rules, _)| rules.contains(&found.id));
            classes.extend(by_rule.flat_map(|(_, classes)| *classes));
            classes.extend(&found.classes);
        }
        Allowance::Classes(classes)
    }
}

/// The classes of these paths, of everything below them and of the trees that they lie in.
pub(crate) fn classes_of_paths<'a>(
    paths: impl Iterator<Item = &'a str>,
    home: &str,
) -> BTreeSet<ProtectedClass> {
    let mut classes = BTreeSet::new();
    let mut seen = HashSet::new();
    for path in paths.filter(|path| seen.insert(*path)) {
        if path.contains("/.git/") || path.ends_with("/.git") {
            classes.extend([GitConfig, StartupFiles]);
        }
        classes.extend(overlapping(path, home).into_iter().map(|(protected, _)| protected.class));
    }
    classes
}

/// The class of a path that is protected, or that lies below a protected one.
pub fn protected_class(path: &str, home: &str) -> Option<ProtectedClass> {
    covering(path, home).next().map(|protected| protected.class)
}

/// The protected paths that a path is or lies below. No star means a hidden file.
fn covering(path: &str, home: &str) -> impl Iterator<Item = ProtectedPath> {
    let has_star = path.contains("/*");
    let found = overlapping(path, home).into_iter();
    found.filter(move |(_, is_deep)| *is_deep && !has_star).map(|(protected, _)| protected)
}

/// Protected paths with their names, by the first of them.
struct ProtectedNames {
    all: Vec<(ProtectedPath, Vec<&'static str>)>,
    by_first: HashMap<&'static str, Vec<usize>>,
}

static AT_ROOT: LazyLock<ProtectedNames> =
    LazyLock::new(|| ProtectedNames::new(|path| (!path.starts_with("~/")).then_some(path)));
static AT_HOME: LazyLock<ProtectedNames> =
    LazyLock::new(|| ProtectedNames::new(|path| path.strip_prefix("~/")));

impl ProtectedNames {
    fn new(path_of: fn(&'static str) -> Option<&'static str>) -> Self {
        let names = |path: &'static str| path.split('/').filter(|name| !name.is_empty()).collect();
        let all: Vec<(ProtectedPath, Vec<&str>)> = protected_paths()
            .filter_map(|protected| Some((protected, names(path_of(protected.path)?))))
            .collect();
        let mut by_first: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, (_, names)) in all.iter().enumerate() {
            let first = names.first().copied().unwrap_or_default();
            by_first.entry(if first.contains('*') { "*" } else { first }).or_default().push(at);
        }
        Self { all, by_first }
    }

    /// Those that a path with these names is, lies below or lies above, and whether it is at least
    /// as deep. Both may hold patterns.
    fn overlapping(&self, names: &[&str]) -> Vec<(ProtectedPath, bool)> {
        let candidates: Vec<usize> = match names.first() {
            Some(first) if !first.contains(['*', '?', '[']) => {
                [*first, "*"].iter().filter_map(|first| self.by_first.get(first)).flatten().copied().collect()
            }
            _ => (0..self.all.len()).collect(),
        };
        let candidates = candidates.into_iter().filter_map(|at| self.all.get(at));
        candidates
            .filter(|(_, wanted)| wanted.iter().zip(names).all(|(wanted, name)| names_overlap(wanted, name)))
            .map(|(protected, wanted)| (*protected, names.len() >= wanted.len()))
            .collect()
    }
}

/// The protected paths that a path is, lies below or lies above, and whether it is at least as deep.
fn overlapping(path: &str, home: &str) -> Vec<(ProtectedPath, bool)> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let home: Vec<&str> = home.split('/').filter(|name| !name.is_empty()).collect();
    let mut found = AT_ROOT.overlapping(&names);
    if home.iter().zip(&names).all(|(wanted, name)| names_overlap(wanted, name)) {
        let is_below = names.len() >= home.len();
        let at_home = AT_HOME.overlapping(names.get(home.len()..).unwrap_or_default());
        found.extend(at_home.into_iter().map(|(protected, is_deep)| (protected, is_deep && is_below)));
    }
    found
}

/// Whether two names, of which each may be a pattern, can mean the same.
fn names_overlap(wanted: &str, name: &str) -> bool {
    wanted == name
        || (wanted == "UID" && name.bytes().all(|byte| byte.is_ascii_digit()))
        || (wanted.contains('*') && pattern_matches(wanted, name))
        || (name.contains(['*', '?', '[']) && pattern_matches(name, wanted))
}

/// Package managers get tokens when an owner's rule allows them to run.
const PACKAGE_MANAGERS: &[&str] = &[
    "npm", "pnpm", "yarn", "bun", "pip", "pip3", "uv", "poetry", "pdm", "cargo", "bundle", "gem", "composer",
    "mvn", "gradle", "dotnet", "go",
];

/// The commands of a job that do not run elsewhere, and whether an owner's rule allows them.
fn commands_here<'a>(
    job: &Job,
    script: &'a Script,
    is_allowed: impl Fn(&Segment) -> bool,
) -> Vec<(Invocation<'a>, bool)> {
    let is_shell = matches!(job.work, Work::Shell(_));
    let segments = script.segments.iter().filter(|_| is_shell);
    segments
        .filter(|segment| !segment.via.iter().any(|via| runs_elsewhere(via)))
        .map(|segment| (Invocation::new(segment), is_allowed(segment)))
        .collect()
}

/// Whether commands run code that the gate has not read and that the owner did not allow.
fn runs_any_unread_code(commands: &[(Invocation<'_>, bool)]) -> bool {
    commands
        .iter()
        .any(|(call, is_allowed)| !is_allowed && class_uses(call).next().is_none() && runs_unread_code(call))
}

/// Whether a command lists the directory of SSH, or shows files in it that are no secret.
fn shows_public_files(call: &Invocation<'_>, home: &str) -> bool {
    let directory = format!("{home}/.ssh");
    let mut named = named_paths(call.segment, home);
    named.retain(|path| covering(path, home).any(|protected| protected.path == "~/.ssh"));
    let is_public = |path: &String| {
        path.ends_with(".pub")
            || path.ends_with("/known_hosts")
            || (*path == directory && matches!(call.name(), "ls" | "stat"))
    };
    call.program.inert && !named.is_empty() && named.iter().all(is_public)
}

fn class_uses<'a>(call: &'a Invocation<'_>) -> impl Iterator<Item = &'static ClassUse> + 'a {
    USES.iter().filter(|class_use| class_use.programs.contains(&call.name()) && class_use.when.holds(call))
}

/// Whether what a program runs stays in a container or on another machine.
fn runs_elsewhere(via: &str) -> bool {
    crate::programs::find(via).contains || matches!(via, "ssh" | "mosh")
}

/// Whether the session uses programs or settings that a project may bring along. The directories of
/// virtual environments are so common in `PATH` that they do not count.
fn is_steered(job: &Job) -> bool {
    let is_common = |directory: &str| {
        ["venv/bin", "/env/bin", "node_modules/.bin"].iter().any(|end| directory.ends_with(end))
    };
    let is_foreign = |directory: &str| {
        !directory.starts_with('/')
            || crate::paths::is_shared_temporary(&format!("{directory}/"))
            || (crate::paths::is_below(directory, &job.cwd) && !is_common(directory))
    };
    job.shell.variables.iter().any(|(name, value)| match name.as_str() {
        "PATH" => value.split(':').any(is_foreign),
        name => fits_any(name, STEERING_VARIABLES) || fits_any(name, &["GIT_SSH*", "*_ASKPASS", "*_COMMAND"]),
    })
}

/// Whether variables that the command sets decide which programs or settings are used.
fn steers(call: &Invocation<'_>) -> bool {
    let sets = matches!(call.name(), "export" | "declare" | "typeset" | "readonly" | "env");
    let exported = call.args.iter().filter(|_| sets).filter_map(Word::as_assignment);
    let assigned = call.segment.assignments.iter().map(|(name, _)| name.clone());
    assigned.chain(exported.map(|(name, _)| name)).any(|name| fits_any(&name, STEERING_VARIABLES))
}

/// Builtins that change the meaning of the commands behind them.
const STATE_CHANGES: &[&str] = &["export", "declare", "typeset", "local", "set", "shopt", "source", "."];

/// Whether the session or the script sets something that could make a command work elsewhere.
pub(crate) fn is_redirected(job: &Job, script: &Script) -> bool {
    let redirects = |segment: &Segment| {
        let call = Invocation::new(segment);
        STATE_CHANGES.contains(&call.name()) || steers(&call)
    };
    is_steered(job)
        || job.shell.variables.iter().any(|(name, _)| name.starts_with("GIT_"))
        || script.segments.iter().any(redirects)
}

/// Whether a command runs code that the gate has not read.
fn runs_unread_code(call: &Invocation<'_>) -> bool {
    if call.segment.program.pieces().is_empty() || call.asks_for_help() {
        return false;
    }
    let path = call.segment.program.outline();
    if call.name().is_empty() || (path.contains('/') && !crate::paths::is_program_directory(&path)) {
        return true;
    }
    if matches!(call.name(), "ssh" | "scp" | "sftp" | "source" | ".") {
        return true;
    }
    if call.program.runs.iter().any(|runs| matches!(runs, Runs::Shell)) {
        return !call.has(&["-c"]) && call.segment.stdin.text.is_none();
    }
    if matches!(call.name(), "sed" | "gsed" | "awk" | "gawk" | "mawk" | "nawk") {
        return call.has(&["-f", "--file"]);
    }
    !is_plain(call.program) && !PLAIN_TOOLS.contains(&call.name())
}
