//! Acting as another user and changing the machine: accounts, kernel, packages, schedules.

use super::{Rule, RuleContext, Trigger};
use crate::programs::When::Help;
use crate::shell::{UNKNOWN_CHAR, Word};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("elevate", "runs with the rights of another user", Trigger::Programs).examples(
        &[
            "sudo id", "sudo -S id", "sudo -kS id", "sudo su", "su -c id", "pkexec id", "doas id",
            "env sudo -S id",
        ],
        &["sudo --version", "echo sudo", "grep sudo f"],
    ),
    Rule::ask("redefine-sudo", "replaces sudo with something else", Trigger::Programs)
        .examples(&["alias sudo='sudo -S'"], &["alias ll='ls -l'"]),
    Rule::ask("accounts", "changes users, groups or passwords", Trigger::Programs)
        .unless(Help)
        .examples(&["useradd -o -u 0 toor", "passwd root", "visudo"], &["id", "passwd --help", "groups"]),
    Rule::ask("kernel", "changes the running kernel or its protections", Trigger::Programs)
        .unless(Help)
        .examples(
            &["insmod ./evil.ko", "sysctl -w a=1", "sysctl kernel.x=1", "setenforce 0"],
            &["sysctl -a", "sysctl kernel.hostname", "lsmod"],
        ),
    Rule::ask("firewall", "changes the firewall, the network or the host name", Trigger::Programs)
        .unless(Help)
        .examples(
            &[
                "iptables -F", "nft flush ruleset", "ip link set eth0 down",
                "timedatectl set-time 2000-01-01", "ufw disable",
            ],
            &["ip addr", "ip route show", "iptables -L", "hostname", "date +%F", "ip -br a"],
        ),
    Rule::ask("packages", "installs or removes software of the whole machine", Trigger::Programs)
        .unless(Help)
        .examples(
            &[
                "apt-get install nginx", "dpkg -i evil.deb", "apt remove python3", "pacman -Syu",
                "snap install x",
            ],
            &["dpkg -l", "apt list --installed", "apt-cache search x", "rpm -qa", "pacman -Q"],
        ),
    Rule::ask("schedule", "arranges for commands to run later", Trigger::Programs).unless(Help).examples(
        &["crontab -r", "echo '* * * * * x' | crontab -", "at now + 1 minute < x", "systemd-run --user x"],
        &["crontab -l", "atq"],
    ),
    Rule::ask("mount", "changes which file systems are seen where", Trigger::Programs)
        .unless(Help)
        .examples(&["chroot /mnt sh", "unshare -r sh"], &["lsns"]),
    Rule::ask("inject", "loads foreign code into programs that run later", Trigger::Every(injects)).examples(
        &[
            "export LD_PRELOAD=/tmp/x.so",
            "env LD_PRELOAD=x git status",
            "PERL5OPT=-Mx perl y",
            "NODE_OPTIONS='--require /tmp/x.js' node a.js",
            "PATH=.:$PATH ls",
            "export BASH_ENV=/tmp/x.sh",
        ],
        &[
            "export PATH=$HOME/bin:$PATH",
            "NODE_OPTIONS=--max-old-space-size=4096 npm run build",
            "LD_LIBRARY_PATH=./lib ./app",
            "PYTHONPATH=. pytest",
        ],
    ),
    Rule::ask("shell-hooks", "makes the shell run something other than what is typed", Trigger::Programs)
        .examples(
            &["hash -p /bin/rm ls", "enable -f ./x.so x", "bind -x '\"a\": ls'"],
            &["hash -r", "enable", "bind -p"],
        ),
    Rule::ask("audit-trail", "hides what was done", Trigger::Programs).examples(
        &["history -c", "journalctl --vacuum-time=1s", "dmesg -C"],
        &["history | tail", "journalctl -u x", "dmesg | tail"],
    ),
    Rule::ask("devices", "controls hardware or the host system", Trigger::Programs)
        .unless(Help)
        .examples(&["wrmsr 0x1a0 1", "xdotool type x"], &["lspci", "lsusb"]),
    Rule::ask("tool-settings", "changes settings that make tools run something", Trigger::Programs).examples(
        &[
            "git config --global core.editor 'sh -c x'",
            "git config core.hooksPath /tmp/h",
            "git config alias.x '!ls'",
            "npm config set script-shell ./x.sh",
            "git config --global credential.helper store",
        ],
        &[
            "git config user.name Ada", "git config --get core.editor", "git config --list",
            "npm config get registry",
        ],
    ),
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
    let mut pairs: Vec<(String, Word)> = context.segment().assignments.clone();
    if matches!(context.name(), "export" | "declare" | "typeset" | "readonly" | "local" | "env" | "set") {
        for word in &context.segment().args {
            if let (Some((name, _)), Some(value)) = (word.prefix().split_once('='), word.after('=')) {
                pairs.push((name.to_owned(), value));
            }
        }
    }
    pairs.iter().any(|(name, value)| {
        let text = value.outline();
        if text.is_empty() {
            return false;
        }
        if name.starts_with("BASH_FUNC_") {
            return true;
        }
        match name.as_str() {
            "NODE_OPTIONS" => {
                ["--require", "-r ", "--import", "--loader", "--experimental-loader", "--eval"]
                    .iter()
                    .any(|option| text.contains(option))
                    || text.starts_with(UNKNOWN_CHAR)
            }
            "PATH" => text.split(':').any(|part| {
                matches!(part, "." | "" | "./")
                    || part.starts_with("/tmp")
                    || part.starts_with("/dev/shm")
                    || part.starts_with("/var/tmp")
            }),
            "LD_LIBRARY_PATH" | "PYTHONPATH" | "NODE_PATH" | "PERL5LIB" | "RUBYLIB" | "CLASSPATH" => text
                .split(':')
                .any(|part| ["/tmp", "/dev/shm", "/var/tmp"].iter().any(|start| part.starts_with(start))),
            _ => LOADERS.contains(&name.as_str()),
        }
    })
}
