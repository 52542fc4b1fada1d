//! Raw connections, tunnels, name lookups, mail, scanners, and the settings of the network.

use super::*;
use crate::address::{self, AddressKind};

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["nc", "netcat", "nc.traditional", "ncat"])
        .fetches()
        .runs(&[Text(&["-e", "-c", "--exec", "--sh-exec"])])
        .asks(NETCAT),
    program(&["telnet"]).fetches().asks(&[always("copy-out").unless(NAMES_THIS_MACHINE), METADATA]),
    program(&["socat"]).fetches().runs(&[Escapes(&["EXEC:", "SYSTEM:", "exec:", "system:"])]).asks(&[
        always("copy-out").unless(NAMES_THIS_MACHINE),
        Arg(&["*LISTEN*", "EXEC*", "SYSTEM*", "*EXEC:*"]).triggers("inbound-access"),
        METADATA,
    ]),
    program(&["openssl"])
        .fetches()
        .files(&[writes(Values(&["-out", "-keyout"]))])
        .asks(&[All(&[Verb(&["s_client"]), PipedUnknown]).triggers("copy-out"), METADATA]),
    program(&[
        "ngrok", "cloudflared", "bore", "localtunnel", "lt", "frpc", "chisel", "gost", "sshd", "telnetd",
        "x11vnc", "vncserver", "ttyd", "gotty", "tmate", "serveo", "pagekite", "zrok", "inlets", "dropbear",
        "teamviewer", "anydesk", "iodine", "dnscat",
    ])
    .asks(&[always("inbound-access")]),
    reader(&["code"]).asks(&[Verb(&["tunnel"]).triggers("inbound-access")]),
    program(&["tailscale"]).asks(&[
        Verb(&["funnel", "serve", "up", "ssh", "file"]).triggers("inbound-access"),
        Operand(&["up", "down", "set", "logout", "serve", "funnel"]).triggers("firewall"),
    ]),
    program(&["ping"]).asks(&[STEALS_BY_NAME, METADATA]),
    program(&["dig", "nslookup", "host", "drill", "traceroute"])
        .fetches()
        .asks(&[STEALS_BY_NAME, Flag(&["-f"]).triggers("steal-by-name")]),
    program(&["ssh-keyscan"]).fetches().asks(&[STEALS_BY_NAME, Flag(&["-f"]).triggers("steal-by-name")]),
    program(&["getent"]).asks(&[STEALS_BY_NAME, Operand(&["*shadow*"]).triggers("secret-stores")]),
    program(&["ftp", "lftp"]).fetches().runs(&[Escapes(&["!"])]).asks(&[always("copy-out")]),
    program(&[
        "tftp", "smbclient", "azcopy", "croc", "wormhole", "magic-wormhole", "transfer", "gist",
        "pastebinit", "termbin", "kdeconnect-cli",
    ])
    .asks(&[always("copy-out")]),
    program(&["mail", "mutt", "mailx", "sendmail", "msmtp", "swaks", "ssmtp", "telegram-send", "slack"])
        .inert()
        .asks(&[Any(&[Piped, Verb(&["*"])]).triggers("copy-out")]),
    program(&["logger"]).inert().asks(&[Flag(&["-n", "--server"]).triggers("copy-out")]),
    program(&["tcpdump"]).runs(&[Text(&["-z"])]).asks(&[always("scan")]),
    program(&[
        "nmap", "masscan", "zmap", "hydra", "medusa", "john", "hashcat", "sqlmap", "nikto", "msfconsole",
        "msfvenom", "tshark", "ettercap", "responder", "aircrack-ng", "arpspoof", "bettercap",
        "crackmapexec", "mitmproxy",
    ])
    .asks(&[always("scan")]),
    program(&["iptables", "ip6tables", "ebtables", "arptables"])
        .asks(&[always("firewall").unless(Flag(&["-L", "-S", "--list", "--list-rules"]))]),
    program(&["nft"]).asks(&[always("firewall").unless(Any(&[NoOperands, Verb(&["list"])]))]),
    program(&["ufw"])
        .asks(&[always("firewall").unless(Any(&[NoOperands, Verb(&["status", "version", "show", "app"])]))]),
    program(&["ipset"]).asks(&[always("firewall").unless(Any(&[NoOperands, Verb(&["list", "test"])]))]),
    program(&["firewall-cmd"]).asks(&[always("firewall").unless(Test(only_lists_firewall))]),
    program(&["pfctl"]).asks(&[always("firewall").unless(Flag(&["-s"]))]),
    program(&["ip"])
        .asks(&[Operand(&["set", "add", "del", "delete", "flush", "change", "replace", "append", "exec"])
            .triggers("firewall")]),
    program(&["ifconfig"]).asks(&[Verb(&["* *"]).triggers("firewall")]),
    program(&["route"]).asks(&[Operand(&["add", "del", "delete", "flush", "change"]).triggers("firewall")]),
    program(&["nmcli"]).asks(&[Operand(&[
        "up", "down", "delete", "add", "modify", "off", "on", "disconnect", "connect", "edit",
    ])
    .triggers("firewall")]),
    program(&["resolvectl"]).asks(&[All(&[
        Operand(&["dns", "domain", "revert", "flush-caches"]),
        Verb(&["* *"]),
    ])
    .triggers("firewall")]),
    program(&["tc"]).asks(&[Operand(&["add", "del", "change", "replace"]).triggers("firewall")]),
    program(&["wg"]).asks(&[Operand(&["set", "setconf", "addconf", "syncconf"]).triggers("firewall")]),
    program(&["networksetup", "scutil", "systemsetup"])
        .asks(&[Arg(&["-set*", "--set*"]).triggers("firewall")]),
    program(&["wg-quick", "openvpn", "brctl", "iwconfig", "iptables-restore"]).asks(&[always("firewall")]),
];

const NAMES_THIS_MACHINE: When = Operand(&["localhost", "127.0.0.1", "::1"]);

const METADATA: Ask = Test(names_metadata).triggers("metadata");

const STEALS_BY_NAME: Ask = Test(looks_up_output).triggers("steal-by-name");

const NETCAT: &[Ask] = &[
    All(&[Piped, Not(&Flag(&["-z"])), Not(&NAMES_THIS_MACHINE)]).triggers("copy-out"),
    Flag(&["-l", "--listen", "-e", "-c", "--exec", "--sh-exec"])
        .triggers("inbound-access")
        .unless(Flag(&["-z"])),
    METADATA,
];

/// Programs whose output is no secret.
const HARMLESS_OUTPUT: &[&str] = &[
    "date", "uuidgen", "pwd", "echo", "printf", "uname", "seq", "nproc", "mktemp", "basename", "dirname",
    "git", "hostname", "arch", "dpkg", "lsb_release", "rustc", "node", "python3", "python", "tr", "cut",
    "sed", "jq", "head", "tail", "shuf", "curl", "wget", "grep", "awk", "sort", "go", "npm", "openssl",
    "urlencode", "wc", "sha256sum", "expr", "yq", "rustup", "cargo", "getconf", "id",
];

/// Whether a word holds the output of a program that may print a secret.
pub(super) fn carries_output(word: &Word) -> bool {
    word.output_of().any(|program| !HARMLESS_OUTPUT.contains(&program))
}

fn looks_up_output(call: &Invocation<'_>) -> bool {
    call.args
        .iter()
        .any(|word| carries_output(word) || (word.output_of().next().is_some() && word.pieces().len() > 1))
}

fn only_lists_firewall(call: &Invocation<'_>) -> bool {
    let shows = ["--list*", "--get*", "--state*", "--zone*", "--query*"];
    call.args.iter().all(|word| fits_any(word.prefix(), &shows))
}

/// Whether a word is an address on this machine.
pub(crate) fn is_local(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"].iter().any(|host| rest.starts_with(host))
        && !rest.contains('@')
}

pub(super) fn names_metadata(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|word| is_metadata(&word.outline()))
}

/// Whether a text names the address at which a cloud serves the keys of a machine, in any accepted
/// spelling.
pub(crate) fn is_metadata(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let port = authority.rsplit_once(':').filter(|(host, port)| {
        (host.ends_with(']') || !host.contains(':')) && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    let host = port.map_or(authority, |(host, _)| host);
    fits_any(host, &["*169.254.169.254*", "*169-254-169-254*"])
        || matches!(address::parse_host(host).kind(), Some(AddressKind::Metadata | AddressKind::LinkLocal))
}
