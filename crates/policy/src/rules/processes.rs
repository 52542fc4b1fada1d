//! Stopping processes, services and the machine.

use super::{On, Rule, View};
use crate::shell::Word;

const KILLERS: &[&str] = &["kill", "pkill", "killall", "skill", "xkill", "fuser", "killall5", "pgrep"];

pub(super) const RULES: &[Rule] = &[
    Rule::floor(
        "kill-everything",
        "ends every process it may, this one included",
        On::Programs(&["kill", "killall5", "skill"]),
        |view| {
            view.name() == "killall5"
                || kill_targets(view).iter().any(|target| target == "-1")
                || (view.name() == "kill" && lone_minus_one(view))
        },
    )
    .examples(
        &["kill -9 -1", "kill -1", "kill -KILL -1", "kill -s 9 -- -1"],
        &["kill -1 4242", "kill -9 4242", "kill -l"],
    ),
    Rule::floor("kill-init", "ends the first process of the machine", On::Programs(&["kill"]), |view| {
        kill_targets(view).iter().any(|target| target == "1") && !signals_nothing(view)
    })
    .examples(&["kill 1", "kill -9 1", "kill -s KILL 1"], &["kill -0 1", "kill 11", "kill %1"]),
    Rule::floor("kill-hermes", "ends Hermes itself", On::Programs(KILLERS), kills_hermes).examples(
        &[
            "pkill hermes", "killall -9 hermes", "kill $(pgrep hermes)", "kill `pidof hermes`",
            "pkill -f 'hermes gateway'", "kill -9 $PPID",
        ],
        &["pgrep hermes", "pkill -f my-server"],
    ),
    Rule::ask("mass-kill", "ends many processes at once", On::Programs(KILLERS), mass_kill).examples(
        &[
            "pkill -9 node", "killall -9 bash", "killall -s KILL node", "killall -r x", "pkill -KILL -f x",
            "pkill -u ada", "fuser -k /",
        ],
        &["kill %1", "kill 12345", "kill \"$PID\"", "killall -l", "pkill -f my-server", "pgrep node"],
    ),
    Rule::floor("power", "turns the machine off or restarts it", On::Every, power).examples(
        &[
            "shutdown now", "/sbin/reboot", "{ reboot; }", "sudo -u root reboot", "systemctl poweroff",
            "init 0", "telinit 6", "echo b > /proc/sysrq-trigger",
        ],
        &["echo reboot", "shutdown --help", "systemctl status", "make reboot-test", "init"],
    ),
    Rule::ask(
        "services",
        "stops or changes services of the machine",
        On::Programs(&[
            "systemctl", "service", "rc-service", "rc-update", "launchctl", "initctl", "sv", "supervisorctl",
            "update-rc.d", "chkconfig", "s6-svc", "loginctl", "insserv", "pm2", "svcadm",
        ]),
        services,
    )
    .examples(
        &[
            "systemctl stop sshd", "service nginx restart", "systemctl kill docker",
            "systemctl enable evil.timer",
        ],
        &[
            "systemctl status sshd", "systemctl list-units", "service --status-all",
            "systemctl --user status x",
        ],
    ),
    Rule::ask("service-scripts", "runs the start or stop script of a service", On::Every, |view| {
        view.segment.program.prefix().contains("/init.d/") || view.segment.program.prefix().contains("/rc.d/")
    })
    .examples(&["/etc/init.d/ssh stop"], &["ls /etc/init.d/"]),
    Rule::ask(
        "end-sessions",
        "ends terminal sessions with everything in them",
        On::Programs(&["tmux", "zellij"]),
        |view| {
            view.words().iter().any(|word| {
                matches!(*word, "kill-server" | "kill-session" | "kill-all-sessions" | "delete-all-sessions")
            })
        },
    )
    .examples(&["tmux kill-server"], &["tmux ls"]),
    Rule::ask(
        "windows",
        "deletes or formats on Windows",
        On::Programs(&[
            "format", "del", "erase", "rd", "diskpart", "bcdedit", "vssadmin", "cipher", "format.com",
        ]),
        |view| {
            matches!(view.name(), "diskpart" | "bcdedit" | "vssadmin")
                || view.args().iter().any(|word| {
                    word.prefix().starts_with('/')
                        || word.prefix().ends_with(':')
                        || word.prefix().contains(":\\")
                })
        },
    )
    .examples(&["format C:", "del /s /q x"], &["ls"]),
    Rule::ask(
        "attach",
        "looks into or takes over a running process",
        On::Programs(&[
            "gdb", "lldb", "strace", "ltrace", "gcore", "reptyr", "nsenter", "dtrace", "bpftrace", "perf",
            "jmap",
        ]),
        |view| {
            matches!(view.name(), "gcore" | "reptyr" | "nsenter" | "bpftrace" | "dtrace" | "jmap")
                || view.has(&["-p", "--pid"]) && view.name() != "perf"
        },
    )
    .examples(&["gdb -p 1", "strace -p 4242", "nsenter -t 1 -m sh"], &["gdb ./app", "strace ls"]),
    Rule::ask("spawn-without-end", "starts processes without an end", On::Every, |view| {
        view.name() == "yes"
            && view.segment.redirects.is_empty()
            && view.segment.via.iter().any(|via| via == "xargs")
    })
    .examples(&["seq 100 | xargs -P0 -n1 yes"], &["yes | head -1", "yes n | ./configure"]),
];

/// The processes a `kill` names, its signal left out.
fn kill_targets(view: &View<'_>) -> Vec<String> {
    let mut targets = Vec::new();
    let mut args = view.args().iter().peekable();
    let mut options = true;
    let mut first = true;
    while let Some(word) = args.next() {
        let text = word.prefix();
        if options && text == "--" {
            options = false;
            continue;
        }
        if options && first && matches!(text, "-s" | "-n" | "--signal") {
            args.next();
            first = true;
            continue;
        }
        let is_signal = options
            && first
            && text.len() > 1
            && text.starts_with('-')
            && !(text == "-1" && args.peek().is_none());
        first = false;
        if is_signal {
            continue;
        }
        targets.push(text.to_owned());
    }
    targets
}

/// `kill -1` and nothing else.
fn lone_minus_one(view: &View<'_>) -> bool {
    matches!(view.args(), [only] if only.known() == Some("-1"))
}

fn signals_nothing(view: &View<'_>) -> bool {
    view.args().first().is_some_and(|word| matches!(word.known(), Some("-0" | "-l" | "-L")))
}

fn kills_hermes(view: &View<'_>) -> bool {
    if view.name() == "pgrep" || signals_nothing(view) {
        return false;
    }
    let named = |text: &str| {
        let text = text.to_lowercase();
        text.contains("hermes")
            || text.contains("cli.py")
            || (text.contains("gateway") && matches!(view.name(), "pkill" | "killall"))
    };
    // The parent of a command is the guest that runs it.
    let parent = view.args().iter().any(|word| word.variables().any(|name| name == "PPID"));
    let by_name = view.args().iter().any(|word| named(word.prefix()));
    let by_search = view.segment.source.to_lowercase().contains("hermes")
        && view.name() == "kill"
        && view.args().iter().any(|word| word.has_unknown());
    parent || by_name || by_search
}

fn mass_kill(view: &View<'_>) -> bool {
    let args = view.args();
    let texts: Vec<&str> = args.iter().map(Word::prefix).collect();
    let hard = |text: &&str| {
        let text = text.trim_start_matches('-').trim_start_matches("SIG");
        matches!(text, "9" | "KILL" | "kill" | "SIGKILL")
            || text.ends_with("signal=9")
            || text.ends_with("signal=KILL")
    };
    match view.name() {
        "kill" => {
            let found = args.iter().any(|word| {
                word.output_of().any(|program| {
                    matches!(program, "pgrep" | "pidof" | "ps" | "lsof" | "awk" | "fuser" | "cat" | "grep")
                })
            });
            // Ending what listens on one port is an everyday thing.
            let by_port = args.iter().any(|word| word.output_of().any(|program| program == "lsof"))
                || view.segment.stdin.programs.iter().any(|program| program == "lsof");
            let input = view.segment.via.iter().any(|via| via == "xargs" || via == "parallel");
            let group = kill_targets(view).iter().any(|target| target == "0")
                || args.iter().any(|word| word.prefix() == "-" && word.has_unknown());
            let each = view.segment.repeated && args.iter().any(Word::has_unknown);
            each || group || (found && !by_port) || (input && !by_port && !signals_nothing(view))
        }
        "pkill" => {
            texts.iter().any(hard)
                || view.has(&["-u", "-U", "-P", "-g", "-t", "-v", "--inverse", "--euid"])
                || texts.iter().any(|text| matches!(*text, "." | ".*" | ""))
        }
        "killall" => texts.iter().any(hard) || view.has(&["-r", "-u", "--regexp", "--user", "-g"]),
        "fuser" => view.has(&["-k", "--kill"]),
        "skill" | "xkill" => true,
        _ => false,
    }
}

fn power(view: &View<'_>) -> bool {
    if view.any_write(|path| {
        path == "/proc/sysrq-trigger" || path.starts_with("/sys/power/") || path == "/proc/sys/kernel/sysrq"
    }) {
        return true;
    }
    let words = view.words();
    match view.name() {
        "shutdown" | "reboot" | "halt" | "poweroff" | "kexec" | "pm-suspend" | "pm-hibernate"
        | "runlevel0" => !(view.asks_for_help() || view.name() == "shutdown" && view.has(&["-c", "--show"])),
        "init" | "telinit" => matches!(words.first().copied(), Some("0" | "6" | "1" | "s" | "S")),
        "systemctl" | "loginctl" => {
            words.iter().any(|word| {
                let word = word.strip_suffix(".target").unwrap_or(word);
                matches!(
                    word,
                    "reboot"
                        | "poweroff"
                        | "halt"
                        | "kexec"
                        | "suspend"
                        | "hibernate"
                        | "hybrid-sleep"
                        | "soft-reboot"
                        | "emergency"
                        | "rescue"
                        | "exit"
                )
            }) && !words.iter().any(|word| {
                matches!(*word, "status" | "show" | "cat" | "list-dependencies" | "is-active" | "help")
            })
        }
        "dbus-send" | "busctl" | "gdbus" | "qdbus" => view.args().iter().any(|word| {
            let text = word.outline().to_lowercase();
            text.contains("poweroff") || text.contains("reboot") || text.contains("shutdown")
        }),
        "osascript" => view
            .args()
            .iter()
            .any(|word| word.outline().contains("shut down") || word.outline().contains("restart")),
        "ipmitool" | "ipmi-power" => words.contains(&"power") || words.contains(&"chassis"),
        "virsh" => words.iter().any(|word| matches!(*word, "destroy" | "shutdown" | "undefine")),
        "rtcwake" => true,
        _ => false,
    }
}

fn services(view: &View<'_>) -> bool {
    let words = view.words();
    let changes = [
        "stop", "restart", "disable", "mask", "kill", "start", "enable", "reload", "try-restart",
        "reload-or-restart", "isolate", "set-property", "edit", "revert", "link", "reenable",
        "daemon-reexec", "set-default", "preset", "unload", "bootout", "remove", "delete", "load",
        "bootstrap", "down", "off", "terminate-session", "kill-session", "terminate-user", "kill-user",
        "set-environment", "import-environment", "unmask", "add-wants", "defaults", "del", "force-reload",
        "kickstart", "submit", "clean", "freeze", "enable-linger",
    ];
    if view.name() == "pm2" {
        return words.iter().any(|word| matches!(*word, "kill" | "delete" | "startup"));
    }
    words.iter().any(|word| changes.contains(word)) && !view.asks_for_help()
}
