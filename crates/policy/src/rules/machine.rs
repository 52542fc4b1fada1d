//! Changing the machine: processes, services, users, kernel, packages, schedules.
//!
//! Where only some directories of the owner can be reached, these harm nothing of the owner's.

use super::contained::OWN_PROCESSES;
use super::{Rule, ask, floor};
use crate::programs::When::Help;

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
    ask("inject", "preloads code into other programs")
        .on_every(|context| crate::programs::injects(&context.invocation)),
    ask("shell-hooks", "makes the shell run something other than what is typed"),
    ask("unsafe-mode", "lets a document run programs or write files").unless(Help),
    ask("audit-trail", "removes history or logs"),
    ask("devices", "controls hardware or the host system").unless(Help),
    ask("tool-settings", "changes settings that make tools run something"),
];
