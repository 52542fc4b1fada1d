//! The machine itself: power, services, accounts, kernel, packages, schedules, clock and devices.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    // Power.
    program(&["shutdown"]).asks(&[ask("power", Not(&Any(&[Help, Flag(&["-c", "--show"])])))]),
    program(&["reboot", "halt", "poweroff", "kexec", "pm-suspend", "pm-hibernate", "runlevel0"])
        .asks(&[ask("power", Not(&Help))]),
    program(&["rtcwake"]).asks(&[always("power")]),
    program(&["init", "telinit"]).asks(&[verbs(&["0", "6", "1", "s"], "power")]),
    program(&["dbus-send", "busctl", "gdbus", "qdbus"])
        .asks(&[ask("power", Arg(&["*poweroff*", "*reboot*", "*shutdown*"]))]),
    program(&["ipmitool"]).asks(&[ask("power", Operand(&["power", "chassis"])), always("devices")]),
    program(&["ipmi-power"]).asks(&[ask("power", Operand(&["power", "chassis"]))]),
    // Services.
    program(&["systemctl", "loginctl"]).asks(&[
        ask(
            "power",
            All(&[
                Test(|call| {
                    call.words().any(|word| POWER_STATES.contains(&word.trim_end_matches(".target")))
                }),
                Not(&Operand(&["status", "show", "cat", "list-dependencies", "is-active", "help"])),
            ]),
        ),
        CHANGES_SERVICES,
    ]),
    program(&[
        "service", "rc-service", "rc-update", "launchctl", "initctl", "sv", "supervisorctl", "update-rc.d",
        "chkconfig", "s6-svc", "insserv", "svcadm",
    ])
    .asks(&[CHANGES_SERVICES]),
    program(&["pm2"]).asks(&[ask("services", Operand(&["kill", "delete", "startup"]))]),
    // Accounts.
    program(&[
        "useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "groupmod", "gpasswd",
        "passwd", "chpasswd", "chsh", "chfn", "vigr", "newusers", "dscl", "pw", "addgroup", "delgroup",
        "dseditgroup",
    ])
    .asks(&[ask("accounts", Not(&Flag(&["-S", "--status"])))]),
    program(&["chage"]).asks(&[ask("accounts", Not(&Arg(&["-l", "-S", "--status"])))]),
    // Kernel.
    program(&["sysctl"])
        .asks(&[ask("kernel", Any(&[Flag(&["-w", "--write", "-p", "--load", "--system"]), Arg(&["*=*"])]))]),
    program(&["kmod"]).asks(&[ask("kernel", Not(&Verb(&["list", "static-nodes"])))]),
    program(&["modprobe"]).asks(&[ask("kernel", Not(&Flag(&["-n", "--dry-run", "-c", "--show-depends"])))]),
    program(&["ldconfig"]).asks(&[ask("kernel", Not(&Flag(&["-p", "--print-cache"])))]),
    program(&["bpftool", "auditctl", "nvram", "csrutil", "spctl"])
        .asks(&[ask("kernel", Not(&Any(&[Operand(&["list", "show", "status"]), Flag(&["-l", "-s"])])))]),
    program(&[
        "insmod", "rmmod", "setenforce", "aa-teardown", "aa-disable", "apparmor_parser", "dkms",
        "update-initramfs", "depmod", "semodule", "setsebool", "kextload", "kextunload",
    ])
    .asks(&[always("kernel")]),
    // Packages of the whole machine.
    program(&[
        "apt", "apt-get", "aptitude", "yum", "dnf", "tdnf", "microdnf", "zypper", "apk", "snap", "flatpak",
        "port", "pkg",
    ])
    .valued(&["-o", "-c", "-t", "--root"])
    .asks(&[ask(
        "packages",
        Not(&Any(&[
            NoOperands,
            Flag(&["-s", "--simulate", "--dry-run", "--just-print"]),
            Verb(&[
                "list", "show", "search", "info", "policy", "depends", "rdepends", "check", "provides",
                "history", "se", "if", "lr", "repolist", "version", "changelog", "download", "source",
                "find", "query", "list-updates", "contents", "indextargets",
            ]),
        ])),
    )]),
    program(&["dpkg"]).asks(&[ask(
        "packages",
        All(&[
            Flag(&[
                "-i", "-r", "-P", "--install", "--remove", "--purge", "--unpack", "--configure",
                "--set-selections", "--force-all",
            ]),
            Not(&Flag(&[
                "-l", "-L", "-S", "-s", "--list", "--listfiles", "--search", "--print-architecture",
                "--print-avail",
            ])),
        ]),
    )]),
    program(&["rpm"])
        .asks(&[ask("packages", Not(&Flag(&["-q", "--query", "-V", "--verify", "-K", "--eval", "-E"])))]),
    program(&["pacman", "yay", "paru"]).asks(&[ask(
        "packages",
        All(&[
            Flag(&["-S", "-R", "-U", "--sync", "--remove", "--upgrade"]),
            Not(&Arg(&["-Ss", "-Si", "-Sg", "-Sl"])),
        ]),
    )]),
    program(&["update-alternatives"]).asks(&[ask(
        "packages",
        Arg(&["--install", "--set", "--remove", "--remove-all", "--config", "--auto"]),
    )]),
    program(&["emerge"]).asks(&[ask("packages", Not(&Flag(&["-p", "--pretend", "-s", "--search"])))]),
    program(&["nix-env"]).asks(&[ask("packages", Not(&Flag(&["-q", "--query"])))]),
    program(&["apt-key"]).asks(&[ask("packages", Not(&Verb(&["list", "finger"])))]),
    program(&["softwareupdate"]).asks(&[ask("packages", Not(&Flag(&["-l", "--list"])))]),
    program(&["installer", "pkg_add", "add-apt-repository"]).asks(&[always("packages")]),
    // Schedules.
    program(&["crontab"]).asks(&[ask("schedule", Not(&Flag(&["-l"])))]),
    program(&["at"]).asks(&[ask("schedule", Not(&Flag(&["-l", "-c", "-V"])))]),
    program(&["batch", "fcron", "anacron", "schtasks"]).asks(&[always("schedule")]),
    // Names and clock.
    program(&["hostname"]).asks(&[ask("firewall", Any(&[Verb(&["*"]), Flag(&["-F", "-b"])]))]),
    program(&["hostnamectl", "localectl", "timedatectl"]).asks(&[verbs(&["set*", "hostname *"], "firewall")]),
    program(&["hwclock"]).asks(&[ask("firewall", Flag(&["-w", "-s", "--set", "--systohc", "--hctosys"]))]),
    program(&["date"]).names_files().asks(&[ask("firewall", Flag(&["-s", "--set"]))]),
    program(&["ntpdate"]).asks(&[always("firewall")]),
    // Logs.
    program(&["journalctl"]).asks(&[ask("audit-trail", Arg(&["--vacuum*", "--rotate*", "--flush*"]))]),
    program(&["dmesg"]).asks(&[ask("audit-trail", Flag(&["-C", "-c", "--clear", "--read-clear"]))]),
    program(&["logrotate"]).asks(&[ask("audit-trail", Flag(&["-f", "--force"]))]),
    // Devices.
    program(&[
        "modem", "wrmsr", "rdmsr", "setpci", "memtool", "i2cset", "usbreset", "rfkill", "xinput", "xdotool",
        "ydotool", "wtype", "wsl", "reg",
    ])
    .asks(&[always("devices")]),
    // Windows.
    program(&["diskpart", "bcdedit", "vssadmin"]).asks(&[always("windows")]),
    program(&["format", "del", "erase", "rd", "cipher", "format.com"])
        .asks(&[ask("windows", Arg(&["/*", "*:", "*:\\*"]))]),
];

const POWER_STATES: &[&str] = &[
    "reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "hybrid-sleep", "soft-reboot",
    "emergency", "rescue", "exit",
];

const CHANGES_SERVICES: Ask = ask(
    "services",
    Operand(&[
        "stop", "restart", "disable", "mask", "kill", "start", "enable", "reload", "try-restart",
        "reload-or-restart", "isolate", "set-property", "edit", "revert", "link", "reenable",
        "daemon-reexec", "set-default", "preset", "unload", "bootout", "remove", "delete", "load",
        "bootstrap", "down", "off", "terminate-session", "kill-session", "terminate-user", "kill-user",
        "set-environment", "import-environment", "unmask", "add-wants", "defaults", "del", "force-reload",
        "kickstart", "submit", "clean", "freeze", "enable-linger",
    ]),
);
