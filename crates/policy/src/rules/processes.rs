//! Stopping processes, services and the machine.

use super::{Rule, RuleContext, Trigger};
use crate::programs::When::Help;

pub(super) const RULES: &[Rule] = &[
    Rule::floor("kill-everything", "ends every process it may, this one included", Trigger::Programs)
        .examples(
            &["kill -9 -1", "kill -1", "kill -KILL -1", "kill -s 9 -- -1"],
            &["kill -1 4242", "kill -9 4242", "kill -l"],
        ),
    Rule::floor("kill-init", "ends the first process of the machine", Trigger::Programs)
        .examples(&["kill 1", "kill -9 1", "kill -s KILL 1"], &["kill -0 1", "kill 11", "kill %1"]),
    Rule::floor("kill-hermes", "ends Hermes itself", Trigger::Programs).examples(
        &[
            "pkill hermes", "killall -9 hermes", "kill $(pgrep hermes)", "kill `pidof hermes`",
            "pkill -f 'hermes gateway'", "kill -9 $PPID",
        ],
        &["pgrep hermes", "pkill -f my-server"],
    ),
    Rule::ask("mass-kill", "ends many processes at once", Trigger::Programs).examples(
        &[
            "pkill -9 node", "killall -9 bash", "killall -s KILL node", "killall -r x", "pkill -KILL -f x",
            "pkill -u ada", "fuser -k /",
        ],
        &["kill %1", "kill 12345", "kill \"$PID\"", "killall -l", "pkill -f my-server", "pgrep node"],
    ),
    Rule::floor("power", "turns the machine off or restarts it", Trigger::Every(writes_power_switch))
        .examples(
            &[
                "shutdown now", "/sbin/reboot", "{ reboot; }", "sudo -u root reboot", "systemctl poweroff",
                "init 0", "telinit 6", "echo b > /proc/sysrq-trigger",
            ],
            &["echo reboot", "shutdown --help", "systemctl status", "make reboot-test", "init"],
        ),
    Rule::ask("services", "stops or changes services of the machine", Trigger::Programs)
        .unless(Help)
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
    Rule::ask(
        "service-scripts",
        "runs the start or stop script of a service",
        Trigger::Every(runs_service_script),
    )
    .examples(&["/etc/init.d/ssh stop"], &["ls /etc/init.d/"]),
    Rule::ask("end-sessions", "ends terminal sessions with everything in them", Trigger::Programs)
        .examples(&["tmux kill-server"], &["tmux ls"]),
    Rule::ask("windows", "deletes or formats on Windows", Trigger::Programs)
        .examples(&["format C:", "del /s /q x"], &["ls"]),
    Rule::ask("attach", "looks into or takes over a running process", Trigger::Programs)
        .examples(&["gdb -p 1", "strace -p 4242", "nsenter -t 1 -m sh"], &["gdb ./app", "strace ls"]),
    Rule::ask("spawn-without-end", "starts processes without an end", Trigger::Programs)
        .examples(&["seq 100 | xargs -P0 -n1 yes"], &["yes | head -1", "yes n | ./configure"]),
];

fn writes_power_switch(context: &RuleContext<'_>) -> bool {
    context.any_write(|path| {
        path == "/proc/sysrq-trigger" || path.starts_with("/sys/power/") || path == "/proc/sys/kernel/sysrq"
    })
}

fn runs_service_script(context: &RuleContext<'_>) -> bool {
    let program = context.segment().program.prefix();
    program.contains("/init.d/") || program.contains("/rc.d/")
}
