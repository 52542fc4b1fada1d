//! Facts about programs that run other programs.

use super::Language;

/// A program that runs the command behind its own options.
pub(super) struct Prefix {
    pub(super) name: &'static str,
    /// Options that take a separate value.
    pub(super) valued: &'static [&'static str],
    /// Operands of its own before the command.
    pub(super) skip: usize,
}

const fn prefix(name: &'static str, valued: &'static [&'static str], skip: usize) -> Prefix {
    Prefix { name, valued, skip }
}

pub(super) const PREFIXES: &[Prefix] = &[
    prefix(
        "sudo",
        &[
            "-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t", "-U", "--user", "--group", "--host",
            "--prompt", "--chdir", "--chroot", "--close-from", "--role", "--type", "--other-user",
            "--command-timeout",
        ],
        0,
    ),
    prefix("doas", &["-u", "-C", "-a"], 0),
    prefix("pkexec", &["--user"], 0),
    prefix(
        "run0",
        &["-u", "-g", "-D", "--user", "--group", "--chdir", "--unit", "--property", "--setenv", "--slice"],
        0,
    ),
    prefix(
        "runuser",
        &["-u", "-g", "-G", "-c", "-s", "--user", "--group", "--command", "--shell", "--session-command"],
        0,
    ),
    prefix("gosu", &[], 1),
    prefix("su-exec", &[], 1),
    prefix("setpriv", &["--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set", "--securebits"], 0),
    prefix("env", &["-u", "-C", "-a", "-S", "--unset", "--chdir", "--argv0", "--split-string"], 0),
    prefix("nohup", &[], 0),
    prefix("nice", &["-n", "--adjustment"], 0),
    prefix("ionice", &["-c", "-n", "-p", "-P", "-u", "--class", "--classdata"], 0),
    prefix("timeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    prefix("gtimeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    prefix("time", &["-f", "-o", "--format", "--output"], 0),
    prefix("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    prefix("setsid", &[], 0),
    prefix("chroot", &["--userspec", "--groups"], 1),
    prefix(
        "unshare",
        &["-R", "-w", "-S", "-G", "--root", "--wd", "--setuid", "--setgid", "--propagation"],
        0,
    ),
    prefix("nsenter", &["-t", "-S", "-G", "--target", "--setuid", "--setgid"], 0),
    prefix("strace", &["-e", "-o", "-p", "-s", "-u", "-E", "-P", "-I", "-O", "-S", "-a", "-b"], 0),
    prefix("ltrace", &["-e", "-o", "-p", "-s", "-u", "-a", "-l", "-n", "-x"], 0),
    prefix("command", &[], 0),
    prefix("builtin", &[], 0),
    prefix("exec", &["-a"], 0),
    prefix("coproc", &[], 0),
    prefix("taskset", &[], 1),
    prefix("chrt", &["-T", "-P", "-D"], 1),
    prefix("numactl", &["-N", "-m", "-C", "-i", "-p"], 0),
    prefix("caffeinate", &["-t", "-w"], 0),
    prefix("setarch", &[], 1),
    prefix("firejail", &[], 0),
    prefix("proxychains", &["-f"], 0),
    prefix("proxychains4", &["-f"], 0),
    prefix("torsocks", &[], 0),
    prefix("torify", &[], 0),
    prefix("dbus-run-session", &["--config-file"], 0),
    prefix("xvfb-run", &["-n", "-s", "-e", "-f", "-w", "--server-args", "--server-num"], 0),
    prefix("rlwrap", &["-f", "-H", "-s"], 0),
    prefix("unbuffer", &[], 0),
    prefix("catchsegv", &[], 0),
    prefix("valgrind", &[], 0),
    prefix("cgexec", &["-g"], 0),
    prefix(
        "systemd-run",
        &[
            "-p", "-u", "-E", "-M", "-H", "--unit", "--property", "--setenv", "--slice", "--on-active",
            "--on-calendar",
        ],
        0,
    ),
    prefix("systemd-inhibit", &["--what", "--who", "--why", "--mode"], 0),
    prefix("fakeroot", &[], 0),
    prefix("busybox", &[], 0),
    prefix("toybox", &[], 0),
    prefix("npx", &["-p", "--package"], 0),
    prefix("bunx", &["-p", "--package"], 0),
    prefix("pnpx", &["-p", "--package"], 0),
    prefix("uvx", &["--from", "--with", "-p", "--python"], 0),
    prefix("dotenv", &["-f", "-e"], 0),
    prefix("chpst", &["-u", "-U", "-b", "-e", "-d", "-o", "-p", "-f", "-c"], 0),
    prefix("tini", &["-p", "-e"], 0),
    prefix("dumb-init", &[], 0),
    prefix("sshpass", &["-p", "-f", "-d", "-P"], 0),
    prefix("ssh-agent", &["-a", "-t"], 0),
    prefix("flock", &["-w", "-E", "--timeout", "--conflict-exit-code"], 1),
    prefix(
        "watchexec",
        &["-w", "-e", "-f", "-i", "-s", "--watch", "--exts", "--filter", "--ignore", "--signal"],
        0,
    ),
    prefix("entr", &[], 0),
    prefix("screen", &["-S", "-c", "-e", "-h", "-p", "-s", "-t", "-T"], 0),
];

/// A program that runs a command behind one of its own words.
pub(super) const SUBCOMMANDS: &[(&str, &str, &[&str], usize)] = &[
    ("uv", "run", &["--with", "-p", "--python", "--extra", "--group", "--directory", "--project"], 0),
    ("poetry", "run", &[], 0),
    ("pipenv", "run", &[], 0),
    ("hatch", "run", &[], 0),
    ("pdm", "run", &[], 0),
    ("rye", "run", &[], 0),
    ("pipx", "run", &["--spec", "--python"], 0),
    ("bundle", "exec", &[], 0),
    ("conda", "run", &["-n", "-p", "--name", "--prefix", "--cwd"], 0),
    ("mamba", "run", &["-n", "-p", "--name", "--prefix", "--cwd"], 0),
    ("micromamba", "run", &["-n", "-p"], 0),
    ("mise", "exec", &[], 0),
    ("asdf", "exec", &[], 0),
    ("direnv", "exec", &[], 1),
    ("rustup", "run", &[], 1),
    ("doppler", "run", &["-p", "-c", "--project", "--config"], 0),
    ("op", "run", &["--env-file"], 0),
    ("aws-vault", "exec", &["-d", "--duration"], 1),
    ("npm", "exec", &["-c", "--call", "-p", "--package"], 0),
    ("pnpm", "exec", &[], 0),
    ("pnpm", "dlx", &[], 0),
    ("yarn", "exec", &[], 0),
    ("yarn", "dlx", &["-p"], 0),
    ("perf", "stat", &["-e", "-o", "-p", "-r"], 0),
    ("perf", "record", &["-e", "-o", "-p", "-F", "-c", "-g"], 0),
    ("git", "bisect", &[], 1),
    ("lxc", "exec", &["--env", "--cwd"], 1),
    ("incus", "exec", &["--env", "--cwd"], 1),
    ("machinectl", "shell", &["-M", "--uid", "-E"], 1),
    ("apptainer", "exec", &["-B", "--bind", "-H", "--home", "--pwd", "--env"], 1),
    ("singularity", "exec", &["-B", "--bind", "-H", "--home", "--pwd", "--env"], 1),
    ("toolbox", "run", &["-c", "--container"], 0),
    ("distrobox", "enter", &["-n", "--name"], 0),
    ("nix", "run", &[], 0),
    ("nix", "shell", &[], 0),
];

/// Options whose value is a command line.
pub(super) const TEXT_OPTIONS: &[(&str, &[&str])] = &[
    ("su", &["-c", "--command", "--session-command"]),
    ("runuser", &["-c", "--command", "--session-command"]),
    ("sg", &["-c"]),
    ("script", &["-c", "--command"]),
    ("flock", &["-c", "--command"]),
    (
        "tar",
        &[
            "--to-command", "-I", "--use-compress-program", "-F", "--info-script", "--new-volume-script",
            "--rsh-command",
        ],
    ),
    ("bsdtar", &["--use-compress-program"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("npx", &["-c", "--call"]),
    ("npm", &["-c", "--call"]),
    ("nodemon", &["-x", "--exec"]),
    ("tcpdump", &["-z"]),
    ("zip", &["-TT", "--unzip-command"]),
    ("man", &["-P", "-H", "--pager", "--html"]),
    ("vagrant", &["-c", "--command"]),
    ("ansible", &["-a", "--args"]),
    ("nix-shell", &["--run", "--command"]),
    ("fzf", &["--preview"]),
    ("xterm", &["-e"]),
    ("konsole", &["-e"]),
    ("scp", &["-S"]),
    ("sftp", &["-S"]),
    ("mosh", &["--ssh", "--server"]),
    ("nc", &["-e", "-c"]),
    ("ncat", &["-e", "-c", "--exec", "--sh-exec"]),
    ("netcat", &["-e", "-c"]),
    ("nc.traditional", &["-e", "-c"]),
    ("borg", &["--rsh"]),
    ("wget", &["--use-askpass"]),
];

/// Variables whose value is run as a command line by somebody.
pub(super) const COMMAND_VARIABLES: &[&str] = &[
    "CC", "CXX", "CPP", "LD", "AR", "PROMPT_COMMAND", "PS0", "BASH_ENV", "ENV", "PAGER", "GIT_PAGER",
    "MANPAGER", "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "LESSOPEN",
    "LESSCLOSE", "BROWSER", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RSYNC_RSH", "CVS_RSH",
    "SUDO_EDITOR", "FZF_DEFAULT_COMMAND", "LESSEDIT", "TEXEDIT", "MAILER",
];

/// Git settings whose value is run; `!` in front is dropped.
pub(super) const GIT_COMMAND_KEYS: &[&str] = &[
    "core.pager", "core.editor", "core.sshcommand", "core.fsmonitor", "core.askpass", "diff.external",
    "sequence.editor", "credential.helper", "gpg.program", "gpg.ssh.program", "core.gitproxy",
    "uploadpack.packobjectshook", "interactive.difffilter", "core.hookspath", "init.templatedir",
];

/// Programs that turn source into something that runs.
pub(super) const COMPILERS: &[&str] = &[
    "gcc", "cc", "clang", "g++", "c++", "clang++", "tcc", "rustc", "go", "javac", "java", "ghc", "runghc",
    "zig", "swiftc", "kotlinc", "nim", "crystal", "dmd", "rust-script", "cargo-script", "scala-cli", "jbang",
    "as", "nasm",
];

pub(super) const SOURCE_ENDINGS: &[&str] = &[
    ".c", ".cc", ".cpp", ".cxx", ".rs", ".go", ".java", ".hs", ".zig", ".swift", ".kt", ".nim", ".cr", ".d",
    ".s", ".asm",
];

/// Shells, by the name they are called.
pub(super) const SHELLS: &[&str] = &[
    "bash", "sh", "dash", "zsh", "ksh", "ksh93", "mksh", "pdksh", "ash", "fish", "rbash", "csh", "tcsh",
    "yash", "hush", "nu", "xonsh", "elvish", "osh",
];

/// How an interpreter takes a program text.
pub(super) struct Interpreter {
    pub(super) names: &'static [&'static str],
    pub(super) language: Language,
    /// Options whose value is program text.
    pub(super) code: &'static [&'static str],
    pub(super) valued: &'static [&'static str],
    /// Whether it reads a program from standard input when no file is named.
    pub(super) reads_input: bool,
}

pub(super) const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy", "ipython", "bpython", "jython", "micropython"],
        language: Language::Python,
        code: &["-c"],
        valued: &["-W", "-X", "--check-hash-based-pycs"],
        reads_input: true,
    },
    Interpreter {
        names: &["perl"],
        language: Language::Perl,
        code: &["-e", "-E"],
        valued: &[],
        reads_input: true,
    },
    Interpreter {
        names: &["ruby", "jruby", "irb"],
        language: Language::Ruby,
        code: &["-e"],
        valued: &["-r", "-I", "-C", "-E"],
        reads_input: true,
    },
    Interpreter {
        names: &["node", "nodejs", "bun", "deno", "ts-node", "tsx", "qjs"],
        language: Language::JavaScript,
        code: &["-e", "--eval", "-p", "--print", "-pe", "-ep"],
        valued: &["-r", "--require", "--import", "--loader", "-C", "--env-file"],
        reads_input: true,
    },
    Interpreter {
        names: &["php"],
        language: Language::Php,
        code: &["-r", "-B", "-R", "-E", "--run"],
        valued: &["-d", "-c", "-S", "-t", "-z"],
        reads_input: true,
    },
    Interpreter {
        names: &[
            "lua", "luajit", "rscript", "r", "julia", "elixir", "groovy", "scala", "racket", "swift",
            "octave", "osascript", "guile", "sbcl", "erl", "expect", "emacs", "ghc", "tclsh", "pwsh",
            "powershell", "jshell", "raku", "crystal", "clojure", "clj", "gforth", "iex", "wish", "kotlin",
            "dotnet-script", "jrunscript",
        ],
        language: Language::Other,
        code: &[
            "-e", "--eval", "-eval", "-c", "-Command", "-command", "-EncodedCommand", "-enc", "--execute",
            "-E", "--expr",
        ],
        valued: &["-l", "-i"],
        reads_input: false,
    },
];
