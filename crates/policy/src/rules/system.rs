//! Becoming somebody else and changing the machine: privileges, accounts, kernel, packages, schedules.

use super::{On, Rule, View};
use crate::shell::{HOLE, Word};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("elevate", "runs with the rights of another user", On::Programs(&["sudo", "doas", "su", "pkexec", "run0", "runuser", "gosu", "su-exec", "sudoedit", "gksudo", "kdesudo", "machinectl", "sg", "newgrp", "setpriv", "chpst"]), |view| {
        let looks = view.asks_for_help() && view.operands(&[]).is_empty() || matches!(view.args(), [only] if matches!(only.known(), Some("-l" | "-v" | "-k" | "-K" | "--list" | "--validate" | "-ll")));
        !looks
    })
    .examples(&["sudo id", "sudo -S id", "sudo -kS id", "sudo su", "su -c id", "pkexec id", "doas id", "env sudo -S id"], &["sudo --version", "echo sudo", "grep sudo f"]),
    Rule::ask("redefine-sudo", "puts something of its own in the place of sudo", On::Every, |view| {
        view.segment.source.contains("sudo") && (view.name() == "alias" && view.args().iter().any(|word| word.prefix().starts_with("sudo=")))
    })
    .examples(&["alias sudo='sudo -S'"], &["alias ll='ls -l'"]),
    Rule::ask("accounts", "changes users, groups or passwords", On::Programs(&["useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "groupmod", "gpasswd", "passwd", "chpasswd", "chsh", "chfn", "visudo", "vipw", "vigr", "chage", "newusers", "dscl", "pw", "addgroup", "delgroup", "dseditgroup"]), |view| !view.asks_for_help() && !view.has(&["-S", "--status"]) && !view.args().iter().any(|word| word.known() == Some("-l") && view.name() == "chage"))
        .examples(&["useradd -o -u 0 toor", "passwd root", "visudo"], &["id", "passwd --help", "groups"]),
    Rule::ask("kernel", "changes the running kernel or its protections", On::Programs(&["insmod", "modprobe", "rmmod", "sysctl", "setenforce", "aa-teardown", "aa-disable", "apparmor_parser", "auditctl", "dkms", "kmod", "bpftool", "ldconfig", "update-initramfs", "depmod", "semodule", "setsebool", "nvram", "csrutil", "spctl", "kextload", "kextunload"]), |view| match view.name() {
        "sysctl" => view.has(&["-w", "--write", "-p", "--load", "--system"]) || view.args().iter().any(|word| word.prefix().contains('=')),
        "kmod" => !matches!(view.verb(&[]), "list" | "static-nodes"),
        "modprobe" => !view.has(&["-n", "--dry-run", "-c", "--show-depends"]),
        "ldconfig" => !view.has(&["-p", "--print-cache"]),
        "bpftool" | "auditctl" | "nvram" | "csrutil" | "spctl" => !view.words().iter().any(|word| matches!(*word, "list" | "show" | "status")) && !view.has(&["-l", "-s"]),
        _ => !view.asks_for_help(),
    })
    .examples(&["insmod ./evil.ko", "sysctl -w a=1", "sysctl kernel.x=1", "setenforce 0"], &["sysctl -a", "sysctl kernel.hostname", "lsmod"]),
    Rule::ask("firewall", "changes the firewall, the network or the host name", On::Programs(&["iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "pfctl", "ipset", "ip", "ifconfig", "route", "nmcli", "hostnamectl", "hostname", "resolvectl", "networksetup", "tc", "wg", "wg-quick", "openvpn", "brctl", "ebtables", "arptables", "iwconfig", "tailscale", "iptables-restore", "timedatectl", "hwclock", "date", "ntpdate", "chronyc", "localectl", "scutil", "systemsetup"]), network_settings)
        .examples(&["iptables -F", "nft flush ruleset", "ip link set eth0 down", "timedatectl set-time 2000-01-01", "ufw disable"], &["ip addr", "ip route show", "iptables -L", "hostname", "date +%F", "ip -br a"]),
    Rule::ask("packages", "installs or removes software of the whole machine", On::Programs(&["apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "rpm", "zypper", "pacman", "apk", "snap", "flatpak", "emerge", "port", "nix-env", "installer", "pkg", "pkg_add", "yay", "paru", "tdnf", "microdnf", "apt-key", "add-apt-repository", "softwareupdate", "update-alternatives"]), packages)
        .examples(&["apt-get install nginx", "dpkg -i evil.deb", "apt remove python3", "pacman -Syu", "snap install x"], &["dpkg -l", "apt list --installed", "apt-cache search x", "rpm -qa", "pacman -Q"]),
    Rule::ask("schedule", "arranges for commands to run later", On::Programs(&["crontab", "at", "batch", "systemd-run", "fcron", "anacron", "schtasks"]), |view| match view.name() {
        "crontab" => !view.has(&["-l"]) && !view.asks_for_help(),
        "at" => !view.has(&["-l", "-c", "-V"]),
        _ => !view.asks_for_help(),
    })
    .examples(&["crontab -r", "echo '* * * * * x' | crontab -", "at now + 1 minute < x", "systemd-run --user x"], &["crontab -l", "atq"]),
    Rule::ask("mount", "changes which file systems are seen where", On::Programs(&["pivot_root", "chroot", "unshare", "bwrap", "fusermount", "sshfs", "overlayfs"]), |view| !view.asks_for_help())
        .examples(&["chroot /mnt sh", "unshare -r sh"], &["lsns"]),
    Rule::ask("inject", "loads foreign code into programs that run later", On::Every, injects).examples(
        &["export LD_PRELOAD=/tmp/x.so", "env LD_PRELOAD=x git status", "PERL5OPT=-Mx perl y", "NODE_OPTIONS='--require /tmp/x.js' node a.js", "PATH=.:$PATH ls", "export BASH_ENV=/tmp/x.sh"],
        &["export PATH=$HOME/bin:$PATH", "NODE_OPTIONS=--max-old-space-size=4096 npm run build", "LD_LIBRARY_PATH=./lib ./app", "PYTHONPATH=. pytest"],
    ),
    Rule::ask("shell-hooks", "makes the shell run something else than what is typed", On::Programs(&["hash", "enable", "bind", "complete"]), |view| match view.name() {
        "hash" => view.has(&["-p"]),
        "enable" => view.has(&["-f"]),
        "bind" => view.has(&["-x", "-f"]),
        _ => view.has(&["-C", "-F"]),
    })
    .examples(&["hash -p /bin/rm ls", "enable -f ./x.so x", "bind -x '\"a\": ls'"], &["hash -r", "enable", "bind -p"]),
    Rule::ask("audit-trail", "hides what was done", On::Programs(&["history", "journalctl", "dmesg", "logrotate", "auditctl", "wevtutil", "last", "fc"]), |view| match view.name() {
        "history" => view.has(&["-c", "-d", "-w", "-r"]),
        "journalctl" => view.args().iter().any(|word| word.prefix().starts_with("--vacuum") || word.prefix().starts_with("--rotate") || word.prefix().starts_with("--flush")),
        "dmesg" => view.has(&["-C", "-c", "--clear", "--read-clear"]),
        "logrotate" => view.has(&["-f", "--force"]),
        _ => false,
    })
    .examples(&["history -c", "journalctl --vacuum-time=1s", "dmesg -C"], &["history | tail", "journalctl -u x", "dmesg | tail"]),
    Rule::ask("devices", "speaks to hardware or to the host beneath", On::Programs(&["modem", "ipmitool", "flashrom", "wrmsr", "rdmsr", "setpci", "memtool", "i2cset", "usbreset", "rfkill", "xinput", "xdotool", "ydotool", "wtype", "wsl", "powershell.exe", "cmd.exe", "reg"]), |view| !view.asks_for_help())
        .examples(&["wrmsr 0x1a0 1", "xdotool type x"], &["lspci", "lsusb"]),
    Rule::ask("tool-settings", "changes settings that make tools run something", On::Programs(&["git", "npm", "yarn", "pnpm", "pip", "pip3", "cargo", "gem", "composer", "conda", "go", "bundle"]), tool_settings).examples(
        &["git config --global core.editor 'sh -c x'", "git config core.hooksPath /tmp/h", "git config alias.x '!ls'", "npm config set script-shell ./x.sh", "git config --global credential.helper store"],
        &["git config user.name Ada", "git config --get core.editor", "git config --list", "npm config get registry"],
    ),
];

fn network_settings(view: &View<'_>) -> bool {
    let words = view.words();
    let changes = |verbs: &[&str]| words.iter().any(|word| verbs.contains(word));
    match view.name() {
        "iptables" | "ip6tables" | "ebtables" | "arptables" => {
            !view.asks_for_help() && !view.has(&["-L", "-S", "--list", "--list-rules"])
        }
        "nft" => !matches!(words.first().copied(), Some("list") | None),
        "ufw" => !matches!(words.first().copied(), Some("status" | "version" | "show" | "app") | None),
        "firewall-cmd" => !view.args().iter().all(|word| {
            word.prefix().starts_with("--list")
                || word.prefix().starts_with("--get")
                || word.prefix().starts_with("--state")
                || word.prefix().starts_with("--zone")
                || word.prefix().starts_with("--query")
        }),
        "pfctl" => !view.has(&["-s"]),
        "ipset" => !matches!(words.first().copied(), Some("list" | "test") | None),
        "ip" => changes(&["set", "add", "del", "delete", "flush", "change", "replace", "append", "exec"]),
        "ifconfig" => words.len() > 1,
        "route" => changes(&["add", "del", "delete", "flush", "change"]),
        "nmcli" => {
            changes(&["up", "down", "delete", "add", "modify", "off", "on", "disconnect", "connect", "edit"])
        }
        "hostname" => !words.is_empty() || view.has(&["-F", "-b"]),
        "hostnamectl" | "localectl" | "timedatectl" => words
            .first()
            .is_some_and(|word| word.starts_with("set") || *word == "hostname" && words.len() > 1),
        "hwclock" => view.has(&["-w", "-s", "--set", "--systohc", "--hctosys"]),
        "date" => view.has(&["-s", "--set"]),
        "resolvectl" => changes(&["dns", "domain", "revert", "flush-caches"]) && words.len() > 1,
        "tc" => changes(&["add", "del", "change", "replace"]),
        "wg" => changes(&["set", "setconf", "addconf", "syncconf"]),
        "networksetup" | "scutil" | "systemsetup" => view
            .args()
            .iter()
            .any(|word| word.prefix().starts_with("-set") || word.prefix().starts_with("--set")),
        "tailscale" => changes(&["up", "down", "set", "logout", "serve", "funnel"]),
        "wg-quick" | "openvpn" | "brctl" | "iwconfig" | "ntpdate" | "iptables-restore" => {
            !view.asks_for_help()
        }
        _ => false,
    }
}

fn packages(view: &View<'_>) -> bool {
    if view.asks_for_help() {
        return false;
    }
    let verb = view.verb(&["-o", "-c", "-t", "--root"]);
    match view.name() {
        "apt" | "apt-get" | "aptitude" | "yum" | "dnf" | "tdnf" | "microdnf" | "zypper" | "apk" | "snap"
        | "flatpak" | "port" | "pkg" => {
            !matches!(
                verb,
                "list"
                    | "show"
                    | "search"
                    | "info"
                    | "policy"
                    | "depends"
                    | "rdepends"
                    | "check"
                    | "provides"
                    | "history"
                    | "se"
                    | "if"
                    | "lr"
                    | "repolist"
                    | "version"
                    | "changelog"
                    | "download"
                    | "source"
                    | "find"
                    | "query"
                    | "list-updates"
                    | ""
                    | "contents"
                    | "indextargets"
            ) && !view.has(&["-s", "--simulate", "--dry-run", "--just-print"])
        }
        "dpkg" => {
            view.has(&[
                "-i", "-r", "-P", "--install", "--remove", "--purge", "--unpack", "--configure",
                "--set-selections", "--force-all",
            ]) && !view.has(&[
                "-l", "-L", "-S", "-s", "--list", "--listfiles", "--search", "--print-architecture",
                "--print-avail",
            ])
        }
        "rpm" => !view.has(&["-q", "--query", "-V", "--verify", "-K", "--eval", "-E"]),
        "pacman" | "yay" | "paru" => {
            view.has(&["-S", "-R", "-U", "--sync", "--remove", "--upgrade"])
                && !view.args().iter().any(|word| matches!(word.prefix(), "-Ss" | "-Si" | "-Sg" | "-Sl"))
        }
        "update-alternatives" => view.args().iter().any(|word| {
            matches!(
                word.prefix(),
                "--install" | "--set" | "--remove" | "--remove-all" | "--config" | "--auto"
            )
        }),
        "emerge" => !view.has(&["-p", "--pretend", "-s", "--search"]),
        "nix-env" => !view.has(&["-q", "--query"]),
        "apt-key" => !matches!(verb, "list" | "finger"),
        "softwareupdate" => !view.has(&["-l", "--list"]),
        _ => true,
    }
}

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

fn injects(view: &View<'_>) -> bool {
    let mut pairs: Vec<(String, Word)> = view.segment.assignments.clone();
    if matches!(view.name(), "export" | "declare" | "typeset" | "readonly" | "local" | "env" | "set") {
        for word in view.args() {
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
                    || text.starts_with(HOLE)
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

fn tool_settings(view: &View<'_>) -> bool {
    let words = view.words();
    match view.name() {
        "git" => {
            let verb = view.verb(crate::shell::GIT_VALUED);
            if verb == "init" && view.args().iter().any(|word| word.prefix().starts_with("--template")) {
                return true;
            }
            if verb != "config" {
                return false;
            }
            let reads = view.has(&[
                "--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin", "--get-urlmatch",
            ]) || matches!(words.get(1).copied(), Some("get" | "list"));
            let key = words
                .iter()
                .skip(1)
                .find(|word| word.contains('.'))
                .map(|word| word.to_lowercase())
                .unwrap_or_default();
            let value =
                words.iter().skip_while(|word| !word.contains('.')).nth(1).copied().unwrap_or_default();
            let harmless = (key.starts_with("user.") && key != "user.signingkey")
                || (key.starts_with("alias.") && !value.starts_with('!'))
                || key.starts_with("color.")
                || key.starts_with("branch.")
                || key.starts_with("push.")
                || key.starts_with("pull.")
                || key.starts_with("init.defaultbranch")
                || key.starts_with("merge.") && !key.ends_with(".driver")
                || key.starts_with("rebase.")
                || key.starts_with("fetch.")
                || key.starts_with("advice.")
                || key.starts_with("commit.gpgsign")
                || key.starts_with("rerere.")
                || key.starts_with("log.")
                || key.starts_with("status.")
                || matches!(
                    key.as_str(),
                    "core.autocrlf"
                        | "core.eol"
                        | "core.filemode"
                        | "core.ignorecase"
                        | "core.quotepath"
                        | "core.whitespace"
                        | "core.longpaths"
                        | "diff.algorithm"
                        | "safe.directory"
                        | "blame.ignorerevsfile"
                        | "commit.template"
                        | "lfs.url"
                );
            let writes = words.len() > 2
                || view.has(&[
                    "--unset", "--unset-all", "--edit", "-e", "--remove-section", "--rename-section",
                    "--add", "--replace-all",
                ]);
            let everywhere = view.has(&["--global", "--system"]);
            !reads && writes && (everywhere || !harmless)
        }
        "npm"
            if matches!(words.first().copied(), Some("set-script"))
                || words.iter().any(|word| word.starts_with("scripts.")) =>
        {
            true
        }
        "cargo" => view.values(&["--config"]).iter().any(|value| {
            ["wrapper", "runner", "linker", "credential"].iter().any(|key| value.prefix().contains(key))
        }),
        "npm" | "yarn" | "pnpm" | "pip" | "pip3" | "conda" | "gem" | "composer" | "bundle" => {
            let sets = words.first().copied() == Some("config")
                && matches!(words.get(1).copied(), Some("set" | "add" | "edit"));
            sets && words.iter().skip(2).any(|word| {
                [
                    "script-shell", "prefix", "ignore-scripts", "registry", "shell", "onload-script", "git",
                    "globalconfig", "userconfig", "_auth", "index-url", "extra-index-url", "trusted-host",
                    "yarnpath", "plugins", "token", "node-options", "editor", "viewer", "init-module",
                    "cafile", "strict-ssl",
                ]
                .iter()
                .any(|key| word.to_lowercase().contains(key))
            })
        }
        "go" => {
            words.first().copied() == Some("env")
                && view.has(&["-w"])
                && words.iter().any(|word| {
                    ["CC=", "CXX=", "GOFLAGS=", "GOPROXY=", "GONOSUMDB=", "GOTOOLCHAIN="]
                        .iter()
                        .any(|key| word.starts_with(key))
                })
        }
        _ => false,
    }
}
