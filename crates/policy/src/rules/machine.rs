//! Changing the machine: processes, services, users, kernel, packages, schedules.
//!
//! Where only some directories of the owner can be reached, these harm nothing of the owner's.

use super::contained::OWN_PROCESSES;
use super::{Rule, RuleContext, ask, floor};
use crate::programs::When::Help;
use crate::shell::{UNKNOWN_CHAR, Word};

pub(super) const RULES: &[Rule] = &[
    floor("kill-everything", "kills every process it can, including this one"),
    floor("kill-init", "ends the first process of the machine"),
    floor("kill-hermes", "ends Hermes itself"),
    ask("mass-kill", "ends many processes at once").contained(OWN_PROCESSES),
    floor("power", "shuts down or restarts the machine").on_every(|context| {
        let switches = ["/proc/sysrq-trigger", "/sys/power/", "/proc/sys/kernel/sysrq"];
        context.any_write(|path| switches.iter().any(|switch| path.starts_with(switch)))
    }),
    ask("services", "stops or changes services of the machine").unless(Help),
    ask("service-scripts", "runs the start or stop script of a service").on_every(|context| {
        let program = context.segment().program.prefix();
        program.contains("/init.d/") || program.contains("/rc.d/")
    }),
    ask("end-sessions", "ends terminal sessions with everything in them"),
    ask("windows", "deletes or formats on Windows"),
    ask("attach", "inspects or controls a running process"),
    ask("spawn-without-end", "starts processes endlessly"),
    ask("elevate", "runs as another user"),
    ask("redefine-sudo", "replaces sudo with something else"),
    ask("accounts", "changes users, groups or passwords").unless(Help),
    ask("kernel", "changes the running kernel or its protections").unless(Help),
    ask("firewall", "changes the firewall, the network or the host name").unless(Help),
    ask("packages", "installs or removes software of the whole machine").unless(Help),
    ask("schedule", "schedules commands").unless(Help),
    ask("mount", "mounts or unmounts file systems").unless(Help),
    ask("inject", "preloads code into other programs").on_every(injects),
    ask("shell-hooks", "makes the shell run something other than what is typed"),
    ask("audit-trail", "removes history or logs"),
    ask("devices", "controls hardware or the host system").unless(Help),
    ask("tool-settings", "changes settings that make tools run something"),
];

/// Variables that make other programs load or run something.
const LOADERS: &[&str] = &[
    "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "BASH_ENV", "ENV", "PERL5OPT",
    "PERL5DB", "RUBYOPT", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS", "GCONV_PATH", "SHELLOPTS", "BASHOPTS", "PS4", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS",
    "PYTHONBREAKPOINT", "LUA_INIT", "OPENSSL_CONF", "GTK_MODULES", "NODE_REPL_EXTERNAL_MODULE", "RUSTC",
    "GLIBC_TUNABLES", "EXINIT", "VIMINIT", "SSLKEYLOGFILE", "PIP_INDEX_URL", "NPM_CONFIG_SCRIPT_SHELL",
    "npm_config_script_shell",
];

fn injects(context: &RuleContext<'_>) -> bool {
    let segment = context.segment();
    let mut pairs: Vec<(String, Word)> = segment.assignments.clone();
    if matches!(context.name(), "export" | "declare" | "typeset" | "readonly" | "local" | "env" | "set") {
        pairs.extend(segment.args.iter().filter_map(Word::as_assignment));
    }
    let is_shared = |part: &str| ["/tmp", "/dev/shm", "/var/tmp"].iter().any(|start| part.starts_with(start));
    pairs.iter().filter(|(_, value)| !value.outline().is_empty()).any(|(name, value)| {
        let text = value.outline();
        match name.as_str() {
            "NODE_OPTIONS" => {
                let loads = ["--require", "-r ", "--import", "--loader", "--experimental-loader", "--eval"];
                loads.iter().any(|option| text.contains(option)) || text.starts_with(UNKNOWN_CHAR)
            }
            "PATH" => text.split(':').any(|part| matches!(part, "." | "" | "./") || is_shared(part)),
            "LD_LIBRARY_PATH" | "PYTHONPATH" | "NODE_PATH" | "PERL5LIB" | "RUBYLIB" | "CLASSPATH" => {
                text.split(':').any(is_shared)
            }
            name => name.starts_with("BASH_FUNC_") || LOADERS.contains(&name),
        }
    })
}
