//! Environment variables that add arguments, code or commands to programs.

use super::{Invocation, fits_any};
use crate::shell::{UNKNOWN_CHAR, Word};

/// Variables whose value some program runs as a command line.
pub(crate) const COMMAND_VARIABLES: &[&str] = &[
    "CC", "CXX", "CPP", "LD", "AR", "PROMPT_COMMAND", "PS0", "BASH_ENV", "ENV", "PAGER", "GIT_PAGER",
    "MANPAGER", "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "LESSOPEN",
    "LESSCLOSE", "BROWSER", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RSYNC_RSH", "CVS_RSH",
    "SUDO_EDITOR", "FZF_DEFAULT_COMMAND", "LESSEDIT", "TEXEDIT", "MAILER", "FCEDIT", "HGEDITOR",
    "SVN_EDITOR", "SVN_SSH", "BAT_PAGER", "SYSTEMD_PAGER", "SYSTEMD_EDITOR", "PSQL_EDITOR", "PSQL_PAGER",
    "GH_EDITOR", "GH_PAGER", "GH_BROWSER", "CARGO_BUILD_RUSTC", "CARGO_BUILD_RUSTC_WRAPPER", "KUBE_EDITOR",
    "WGET_ASKPASS",
];

/// Variables that make other programs load code or settings.
const LOADERS: &[&str] = &[
    "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "BASH_ENV", "ENV", "PERL5OPT",
    "PERL5DB", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "GCONV_PATH", "SHELLOPTS", "BASHOPTS", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "PYTHONBREAKPOINT", "LUA_INIT",
    "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "GTK_MODULES", "NODE_REPL_EXTERNAL_MODULE",
    "RUSTC", "GLIBC_TUNABLES", "EXINIT", "VIMINIT", "VIMRUNTIME", "SSLKEYLOGFILE", "PIP_INDEX_URL",
    "NPM_CONFIG_SCRIPT_SHELL", "npm_config_script_shell", "MAKEFILES", "LD_DEBUG_OUTPUT",
    "LD_PROFILE_OUTPUT", "MALLOC_TRACE", "WGETRC", "SYSTEM_WGETRC", "CURL_HOME", "RIPGREP_CONFIG_PATH",
    "ACKRC", "PSQLRC", "MYSQL_HOME", "SCREENRC", "HGRCPATH", "BAT_CONFIG_PATH", "R_PROFILE",
    "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "PHPRC", "PHP_INI_SCAN_DIR", "MAGICK_CONFIGURE_PATH",
    "GROFF_TYPESETTER", "GROFF_TMAC_PATH", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ELIXIR_ERL_OPTIONS",
    "PERL5SHELL", "PERLIO_DEBUG", "GCC_EXEC_PREFIX", "COMPILER_PATH", "DEPENDENCIES_OUTPUT",
    "SUNPRO_DEPENDENCIES", "GCC_SPECS", "GROFF_COMMAND_PREFIX",
];

/// Variables whose words are read as arguments, and the words that change nothing but speed, memory
/// and what is shown or selected.
const ARGUMENT_VARIABLES: &[(&[&str], &[&str])] = &[
    (
        &["NODE_OPTIONS"],
        &[
            "--max-old-space-size*", "--max_old_space_size*", "--max-semi-space-size*",
            "--max-http-header-size*", "--openssl-*", "--no-*", "--enable-*", "--trace-warnings",
            "--trace-deprecation", "--trace-uncaught", "--throw-deprecation", "--pending-deprecation",
            "--stack-trace-limit*", "--stack-size*", "--dns-result-order*", "--inspect", "--inspect-brk",
            "--unhandled-rejections*", "--conditions*", "--tls-*", "--disable-*", "--preserve-symlinks*",
            "--use-*", "--experimental-vm-modules", "--experimental-strip-types",
            "--experimental-transform-types", "--experimental-json-modules", "--experimental-fetch",
            "--experimental-wasm-modules", "--experimental-modules", "--experimental-specifier-resolution*",
            "--experimental-import-meta-resolve", "--experimental-require-module", "--experimental-sqlite",
            "--experimental-test-*", "--expose-gc", "--expose_gc", "--es-module-*",
        ],
    ),
    (
        &["JAVA_OPTS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "SBT_OPTS", "ANT_OPTS", "JVM_OPTS"],
        &["-Xm*", "-Xss*", "-D*", "-XX:Max*", "-XX:+Use*", "-XX:-Use*", "-XX:Reserved*", "-ea", "-server"],
    ),
    (
        &["TAR_OPTIONS"],
        &[
            "--exclude*", "--no-same-*", "--numeric-owner", "--warning*", "--sort*", "--mtime*", "--owner*",
            "--group*", "--mode*", "--no-xattrs", "--no-acls", "--format*", "-v", "--verbose", "--totals",
        ],
    ),
    (
        &["ZIPOPT", "ZIP", "UNZIP", "UNZIPOPT", "ZIPINFO"],
        &["-0", "-1", "-6", "-9", "-q*", "-r", "-y", "-X", "-v"],
    ),
    (
        &["GZIP", "BZIP", "BZIP2", "XZ_OPT", "XZ_DEFAULTS", "ZSTD_OPTS", "PIGZ"],
        &[
            "-0*", "-1*", "-2*", "-3*", "-4*", "-5*", "-6*", "-7*", "-8*", "-9*", "-n", "-q", "-v", "-e",
            "-T*", "--best", "--fast", "--rsyncable", "--threads*", "--memlimit*", "--extreme",
        ],
    ),
    (
        &["MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS"],
        &[
            "-j*", "-l*", "-k", "-s", "-w", "-B", "-i", "-n", "-r", "-R", "-O*", "--jobs*",
            "--load-average*", "--keep-going", "--silent", "--quiet", "--no-print-directory",
            "--print-directory", "--output-sync*", "--always-make", "--no-builtin-*",
            "--warn-undefined-variables",
        ],
    ),
    (
        &["GREP_OPTIONS"],
        &["--color*", "--colour*", "--exclude*", "--include*", "-n", "-I", "-i", "-H", "--line-*"],
    ),
    (
        &["LESS"],
        &[
            "-R", "-F", "-X", "-S", "-i", "-M", "-N", "-q", "-FRX", "-FRSX", "-RFX", "-iR", "-FX", "-FR",
            "-RX", "--RAW-CONTROL-CHARS", "--quit-if-one-screen", "--no-init", "--use-color", "--mouse",
        ],
    ),
    (&["MANROFFOPT"], &["-c"]),
    (
        &["PYTEST_ADDOPTS"],
        &[
            "-q*", "-v*", "-x", "-s", "-n*", "-k*", "-m*", "-r*", "-l", "--tb*", "--color*", "--maxfail*",
            "--durations*", "--cov=*", "--cov", "--no-cov", "--no-header", "--strict-*", "--lf", "--ff",
            "--timeout*", "--disable-warnings", "--showlocals", "--capture*", "--import-mode*",
        ],
    ),
    (
        &["GOFLAGS"],
        &[
            "-mod=*", "-v", "-x", "-race", "-count*", "-buildvcs*", "-tags*", "-trimpath", "-p=*",
            "-ldflags=-s*",
        ],
    ),
    (&["RUBYOPT"], &["-W*", "-w", "--disable*", "--enable*", "--yjit*", "-rbundler/setup"]),
];

/// Variables that name directories of modules. The project's own are ordinary.
const MODULE_PATHS: &[&str] = &[
    "LD_LIBRARY_PATH", "PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "LUA_PATH", "LUA_CPATH",
];

/// Commands that set variables from their words.
const SETTERS: &[&str] = &["export", "declare", "typeset", "readonly", "local", "env", "set"];

/// Commands that set variables from something else.
const READERS: &[&str] = &["read", "mapfile", "readarray", "printf"];

/// Whether a command sets a variable that makes other programs load or run something.
pub(crate) fn injects(call: &Invocation<'_>) -> bool {
    let mut pairs: Vec<(String, Word)> = call.segment.assignments.clone();
    if SETTERS.contains(&call.name()) {
        pairs.extend(call.args.iter().filter_map(Word::as_assignment));
    }
    let is_read = |word: &Word| {
        let is_argument = |names: &[&str]| names.contains(&word.prefix());
        is_argument(LOADERS) || ARGUMENT_VARIABLES.iter().any(|(names, _)| is_argument(names))
    };
    pairs.iter().any(|(name, value)| adds_code(name, &value.outline()))
        || (READERS.contains(&call.name()) && call.args.iter().take(2).any(is_read))
}

fn adds_code(name: &str, text: &str) -> bool {
    let is_shared = |part: &str| ["/tmp", "/dev/shm", "/var/tmp"].iter().any(|start| part.starts_with(start));
    if text.is_empty() {
        return false;
    }
    if let Some((names, harmless)) = ARGUMENT_VARIABLES.iter().find(|(names, _)| names.contains(&name)) {
        // Words of these may also define variables.
        let signs: &[char] = if names.contains(&"MAKEFLAGS") { &['=', '$', UNKNOWN_CHAR] } else { &[] };
        let is_argument = |word: &str| word.starts_with(['-', '+', UNKNOWN_CHAR]) || word.contains(signs);
        return text.split_whitespace().any(|word| is_argument(word) && !fits_any(word, harmless));
    }
    match name {
        "PATH" => text.split(':').any(|part| matches!(part, "." | "" | "./") || is_shared(part)),
        name if MODULE_PATHS.contains(&name) => text.split(':').any(is_shared),
        name => name.starts_with("BASH_FUNC_") || name.starts_with("LUA_INIT_") || LOADERS.contains(&name),
    }
}
