//! The machine itself: power, services, accounts, kernel, packages, schedules, clock and devices.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    // Power.
    program(&["shutdown"]).asks(&[always("power").unless(Any(&[Help, Flag(&["-c", "--show"])]))]),
    program(&["reboot", "halt", "poweroff", "kexec", "pm-suspend", "pm-hibernate", "runlevel0"])
        .asks(&[always("power").unless(Help)]),
    program(&["rtcwake"]).asks(&[always("power")]),
    program(&["init", "telinit"]).asks(&[Verb(&["0", "6", "1", "s"]).triggers("power")]),
    program(&["dbus-send", "busctl", "gdbus", "qdbus"])
        .asks(&[Arg(&["*poweroff*", "*reboot*", "*shutdown*"]).triggers("power")]),
    program(&["ipmitool"]).asks(&[Operand(&["power", "chassis"]).triggers("power"), always("devices")]),
    program(&["ipmi-power"]).asks(&[Operand(&["power", "chassis"]).triggers("power")]),
    // Services.
    program(&["systemctl", "loginctl"]).asks(&[
        Test(|call| call.words().any(|word| POWER_STATES.contains(&word.trim_end_matches(".target"))))
            .triggers("power")
            .unless(Operand(&["status", "show", "cat", "list-dependencies", "is-active", "help"])),
        CHANGES_SERVICES,
    ]),
    program(&[
        "service", "rc-service", "rc-update", "launchctl", "initctl", "sv", "supervisorctl", "update-rc.d",
        "chkconfig", "s6-svc", "insserv", "svcadm",
    ])
    .asks(&[CHANGES_SERVICES]),
    program(&["pm2"]).asks(&[Operand(&["kill", "delete", "startup"]).triggers("services")]),
    // Accounts.
    program(&[
        "useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "groupmod", "gpasswd",
        "passwd", "chpasswd", "chsh", "chfn", "vigr", "newusers", "dscl", "pw", "addgroup", "delgroup",
        "dseditgroup",
    ])
    .asks(&[always("accounts").unless(Flag(&["-S", "--status"]))]),
    program(&["chage"]).asks(&[always("accounts").unless(Arg(&["-l", "-S", "--status"]))]),
    // Kernel.
    program(&["sysctl"]).asks(&[
        Any(&[Flag(&["-w", "--write", "-p", "--load", "--system"]), Arg(&["*=*"])]).triggers("kernel")
    ]),
    program(&["kmod"]).asks(&[always("kernel").unless(Verb(&["list", "static-nodes"]))]),
    program(&["modprobe"])
        .asks(&[always("kernel").unless(Flag(&["-n", "--dry-run", "-c", "--show-depends"]))]),
    program(&["ldconfig"]).asks(&[always("kernel").unless(Flag(&["-p", "--print-cache"]))]),
    program(&["bpftool", "auditctl", "nvram", "csrutil", "spctl"])
        .asks(&[always("kernel").unless(Any(&[Operand(&["list", "show", "status"]), Flag(&["-l", "-s"])]))]),
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
    .asks(&[always("packages").unless(Any(&[
        NoOperands,
        Flag(&["-s", "--simulate", "--dry-run", "--just-print"]),
        Verb(&[
            "list", "show", "search", "info", "policy", "depends", "rdepends", "check", "provides",
            "history", "se", "if", "lr", "repolist", "version", "changelog", "download", "source", "find",
            "query", "list-updates", "contents", "indextargets",
        ]),
    ]))]),
    program(&["dpkg"]).asks(&[Flag(&[
        "-i", "-r", "-P", "--install", "--remove", "--purge", "--unpack", "--configure", "--set-selections",
        "--force-all",
    ])
    .triggers("packages")
    .unless(Flag(&[
        "-l", "-L", "-S", "-s", "--list", "--listfiles", "--search", "--print-architecture", "--print-avail",
    ]))]),
    program(&["rpm"])
        .asks(&[always("packages").unless(Flag(&["-q", "--query", "-V", "--verify", "-K", "--eval", "-E"]))]),
    program(&["pacman", "yay", "paru"]).asks(&[Flag(&["-S", "-R", "-U", "--sync", "--remove", "--upgrade"])
        .triggers("packages")
        .unless(Arg(&["-Ss", "-Si", "-Sg", "-Sl"]))]),
    program(&["update-alternatives"])
        .asks(&[Arg(&["--install", "--set", "--remove", "--remove-all", "--config", "--auto"])
            .triggers("packages")]),
    program(&["emerge"]).asks(&[always("packages").unless(Flag(&["-p", "--pretend", "-s", "--search"]))]),
    program(&["nix-env"]).asks(&[always("packages").unless(Flag(&["-q", "--query"]))]),
    program(&["apt-key"]).asks(&[always("packages").unless(Verb(&["list", "finger"]))]),
    program(&["softwareupdate"]).asks(&[always("packages").unless(Flag(&["-l", "--list"]))]),
    program(&["installer", "pkg_add", "add-apt-repository"]).asks(&[always("packages")]),
    // Schedules.
    program(&["crontab"]).asks(&[always("schedule").unless(Flag(&["-l"]))]),
    program(&["at"]).asks(&[always("schedule").unless(Flag(&["-l", "-c", "-V"]))]),
    program(&["batch", "fcron", "anacron", "schtasks"]).asks(&[always("schedule")]),
    // Files by rules.
    program(&["systemd-tmpfiles"])
        .files(&[deletes_tree(UNKNOWN_PATHS).when(Flag(&["--create", "--clean", "--remove", "--purge"]))]),
    program(&["tmpreaper", "tmpwatch", "bleachbit"]).files(&[deletes_tree(UNKNOWN_PATHS)]),
    // Names and clock.
    program(&["hostname"]).asks(&[Any(&[Verb(&["*"]), Flag(&["-F", "-b"])]).triggers("firewall")]),
    program(&["hostnamectl", "localectl", "timedatectl"])
        .asks(&[Verb(&["set*", "hostname *"]).triggers("firewall")]),
    program(&["hwclock"])
        .asks(&[Flag(&["-w", "-s", "--set", "--systohc", "--hctosys"]).triggers("firewall")]),
    non_reader(&["date"])
        .files(&[reads(Values(&["-f", "--file"]))])
        .asks(&[Test(sets_clock).triggers("firewall")]),
    program(&["ntpdate"]).asks(&[always("firewall")]),
    // Logs.
    program(&["journalctl"]).asks(&[Arg(&["--vacuum*", "--rotate*", "--flush*"]).triggers("audit-trail")]),
    program(&["dmesg"]).asks(&[Flag(&["-C", "-c", "--clear", "--read-clear"]).triggers("audit-trail")]),
    program(&["logrotate"]).asks(&[Flag(&["-f", "--force"]).triggers("audit-trail")]),
    // Devices.
    program(&[
        "modem", "wrmsr", "rdmsr", "setpci", "memtool", "i2cset", "usbreset", "rfkill", "xinput", "xdotool",
        "ydotool", "wtype", "wsl", "reg",
    ])
    .asks(&[always("devices")]),
    // Windows.
    program(&["diskpart", "bcdedit", "vssadmin"]).asks(&[always("windows")]),
    program(&["format", "del", "erase", "rd", "cipher", "format.com"])
        .asks(&[Arg(&["/*", "*:", "*:\\*"]).triggers("windows")]),
];

/// Whether `date` sets the clock. What follows `-I`, `-d`, `-f` and `-r` in a word is their value.
fn sets_clock(call: &Invocation<'_>) -> bool {
    call.has(&["--set"])
        || call.args.iter().map(Word::prefix).any(|text| {
            let flags = text.strip_prefix('-').filter(|flags| !flags.starts_with('-')).unwrap_or_default();
            flags.chars().take_while(|flag| !"Idfr".contains(*flag)).any(|flag| flag == 's')
        })
}

/// The paths in a file of rules.
const UNKNOWN_PATHS: Which = Computed(|_| vec![Word::unknown(Unknown::Variable("path".to_owned()))]);

const POWER_STATES: &[&str] = &[
    "reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "hybrid-sleep", "soft-reboot",
    "emergency", "rescue", "exit",
];

const CHANGES_SERVICES: Ask = Operand(&[
    "stop", "restart", "disable", "mask", "kill", "start", "enable", "reload", "try-restart",
    "reload-or-restart", "isolate", "set-property", "edit", "revert", "link", "reenable", "daemon-reexec",
    "set-default", "preset", "unload", "bootout", "remove", "delete", "load", "bootstrap", "down", "off",
    "terminate-session", "kill-session", "terminate-user", "kill-user", "set-environment",
    "import-environment", "unmask", "add-wants", "defaults", "del", "force-reload", "kickstart", "submit",
    "clean", "freeze", "enable-linger",
])
.triggers("services");
