//! Names of files and directories, by what they are for.

/// Directories without which the system does not work; the second level is listed where its loss is
/// as bad.
pub(super) const SYSTEM_DIRECTORIES: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var", "/mnt", "/media", "/usr/bin", "/usr/sbin",
    "/usr/lib", "/usr/lib64", "/usr/share", "/usr/local", "/usr/include", "/usr/libexec", "/var/lib",
    "/var/log", "/var/spool", "/var/www", "/var/db", "/System", "/Library", "/Applications", "/Users",
    "/nix", "/gnu", "/snap", "/cores", "/Volumes",
];

/// Parents of home directories.
pub(super) const HOME_PARENTS: &[&str] = &["home", "Users"];

/// Below system directories, but made for the files of all users.
pub(super) const WRITABLE_SYSTEM: &[&str] =
    &["/var/tmp", "/run/user", "/dev/shm", "/mnt/data", "/var/folders"];

/// Below system directories, but where people and build machines keep their projects.
pub(super) const WORK_TREES: &[&str] = &[
    "/usr/src", "/usr/local/src", "/var/www", "/var/lib/jenkins", "/opt", "/srv", "/mnt", "/media",
    "/Volumes",
];

pub(super) const PLAIN_DEVICES: &[&str] = &[
    "/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty",
    "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/console",
];

/// More names of files that hold keys or passwords, wherever they lie.
pub(super) const CREDENTIAL_NAMES: &[&str] = &[
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ed25519_sk", "id_ecdsa_sk", "identity", ".env",
    ".envrc", ".htpasswd", "credentials.json", "credentials.db", "service-account.json",
    "client_secret.json", "auth.json", "terraform.tfvars", "credentials.tfrc.json", "Cookies",
    "cookies.sqlite", "Login Data", "logins.json", "privkey.pem", "key.pem", "private.pem", "key3.db",
    "key4.db", "wallet.dat", "login.keychain", "login.keychain-db", "secrets.yml", "secrets.yaml",
    "secrets.json", "master.key", "kubeconfig", "ntds.dit", "SAM",
];

/// More trees that hold keys or passwords than [`crate::protected`] lists.
pub(super) const CREDENTIAL_TREES: &[&str] = &[".hermes/pairing"];

pub(super) const SECRET_SUFFIXES: &[&str] =
    &[".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore", ".ppk", ".ovpn"];

/// More names of files that are run at login or by a tool, wherever they lie.
pub(super) const STARTUP_NAMES: &[&str] = &[
    "sitecustomize.py", "usercustomize.py", "crontab", "authorized_keys", "authorized_keys2", "sudoers",
    "ld.so.preload", "rc.local",
];

/// More trees whose files are run.
pub(super) const STARTUP_TREES: &[&str] = &[
    ".local/bin", ".git/hooks", ".git/config", ".cargo/bin", ".ipython", "LaunchDaemons", "spool/cron",
    "cron.d", "cron.daily", "cron.hourly", "cron.weekly", "cron.monthly", "init.d", "profile.d", "sudoers.d",
    "pam.d", "udev/rules.d", "systemd/system", "systemd/user", "bin/activate",
];

/// Names that builds and tools create again.
const REGENERABLE: &[&str] = &[
    "node_modules", "target", "build", "dist", "out", "bin", "obj", "Debug", "Release", ".next", ".nuxt",
    ".output", ".svelte-kit", ".astro", ".turbo", ".parcel-cache", ".vite", ".angular", ".expo", ".cache",
    ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis", ".ipynb_checkpoints",
    "__pycache__", ".venv", "venv", "env", "virtualenv", ".eggs", "htmlcov", "coverage", ".coverage",
    ".nyc_output", "site", "_site", "_build", "_output", "public", ".gradle", ".terraform", ".serverless",
    ".aws-sam", ".dart_tool", ".stack-work", "dist-newstyle", "elm-stuff", ".bundle", "bower_components",
    "jspm_packages", "Pods", "DerivedData", ".build", "cmake-build-debug", "cmake-build-release",
    "CMakeFiles", "CMakeCache.txt", "build-debug", "build-release", "logs", "log", "tmp", "temp", ".tmp",
    ".temp", "cache", "test-results", "playwright-report", "storybook-static", "generated", ".docusaurus",
    "artifacts", "output", "vendor", ".sass-cache", ".eslintcache", ".stylelintcache", ".rpt2_cache",
    ".fleet", "bazel-out", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "poetry.lock",
    "Gemfile.lock", ".DS_Store", "lib-cov", "reports", "report", "wheelhouse", "pip-wheel-metadata",
    ".scannerwork", ".direnv", "zig-cache", "zig-out", ".zig-cache", "nimcache", "_deps", "deps", "ebin",
    "release", "debug", "docs/_build",
];

const REGENERABLE_ENDINGS: &[&str] = &[
    ".pyc", ".pyo", ".o", ".obj", ".class", ".log", ".tmp", ".bak", ".orig", ".rej", ".swp", ".egg-info",
    ".gcda", ".gcno", ".profraw", ".tsbuildinfo", ".cache", "_cache", "-cache", ".dSYM", ".a", ".so", ".map",
    ".rlib", ".rmeta", ".d", ".aux", ".toc", "~", ".retry", ".py[co]", ".py[cod]", ".log.*", ".log.gz",
];

/// Whether the last part of a path is something a tool makes again.
pub(crate) fn is_regenerable(path: &str) -> bool {
    let path = path.strip_suffix("/*").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or_default();
    REGENERABLE.contains(&name)
        || (name.len() > 2 && REGENERABLE_ENDINGS.iter().any(|ending| name.ends_with(ending)))
        || ["build-", "cmake-build-", "build_", ".cache-", "bazel-"]
            .iter()
            .any(|start| name.starts_with(start))
}
