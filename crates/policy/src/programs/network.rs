//! Raw connections, tunnels, name lookups, mail, scanners, and the settings of the network.

use super::*;
use crate::address::{self, AddressKind};

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["nc", "netcat", "nc.traditional", "ncat"])
        .fetches()
        .runs(&[Text(&["-e", "-c", "--exec", "--sh-exec"])])
        .asks(NETCAT),
    program(&["telnet"]).fetches().asks(&[ask("copy-out", Not(&NAMES_THIS_MACHINE)), METADATA]),
    program(&["socat"]).fetches().runs(&[Escapes(&["EXEC:", "SYSTEM:", "exec:", "system:"])]).asks(&[
        ask("copy-out", Not(&NAMES_THIS_MACHINE)),
        ask("inbound-access", Arg(&["*LISTEN*", "EXEC*", "SYSTEM*", "*EXEC:*"])),
        METADATA,
    ]),
    program(&["openssl"])
        .fetches()
        .files(&[writes(Values(&["-out", "-keyout"]))])
        .asks(&[ask("copy-out", All(&[Verb(&["s_client"]), PipedUnknown])), METADATA]),
    program(&[
        "ngrok", "cloudflared", "bore", "localtunnel", "lt", "frpc", "chisel", "gost", "sshd", "telnetd",
        "x11vnc", "vncserver", "ttyd", "gotty", "tmate", "serveo", "pagekite", "zrok", "inlets", "dropbear",
        "teamviewer", "anydesk", "iodine", "dnscat",
    ])
    .asks(&[always("inbound-access")]),
    program(&["code"]).reads_files().asks(&[verbs(&["tunnel"], "inbound-access")]),
    program(&["tailscale"]).asks(&[
        verbs(&["funnel", "serve", "up", "ssh", "file"], "inbound-access"),
        ask("firewall", Operand(&["up", "down", "set", "logout", "serve", "funnel"])),
    ]),
    program(&["ping"]).asks(&[STEALS_BY_NAME, METADATA]),
    program(&["dig", "nslookup", "host", "drill", "traceroute"]).fetches().asks(&[STEALS_BY_NAME]),
    program(&["getent"]).asks(&[STEALS_BY_NAME, ask("secret-stores", Operand(&["*shadow*"]))]),
    program(&["ftp", "lftp"]).fetches().runs(&[Escapes(&["!"])]).asks(&[always("copy-out")]),
    program(&[
        "tftp", "smbclient", "azcopy", "croc", "wormhole", "magic-wormhole", "transfer", "gist",
        "pastebinit", "termbin", "kdeconnect-cli",
    ])
    .asks(&[always("copy-out")]),
    program(&["mail", "mutt", "mailx", "sendmail", "msmtp", "swaks", "ssmtp", "telegram-send", "slack"])
        .inert()
        .asks(&[ask("copy-out", Any(&[Piped, Verb(&["*"])]))]),
    program(&["logger"]).inert().asks(&[ask("copy-out", Flag(&["-n", "--server"]))]),
    program(&["tcpdump"]).runs(&[Text(&["-z"])]).asks(&[always("scan")]),
    program(&[
        "nmap", "masscan", "zmap", "hydra", "medusa", "john", "hashcat", "sqlmap", "nikto", "msfconsole",
        "msfvenom", "tshark", "ettercap", "responder", "aircrack-ng", "arpspoof", "bettercap",
        "crackmapexec", "mitmproxy",
    ])
    .asks(&[always("scan")]),
    program(&["iptables", "ip6tables", "ebtables", "arptables"])
        .asks(&[ask("firewall", Not(&Flag(&["-L", "-S", "--list", "--list-rules"])))]),
    program(&["nft"]).asks(&[changes_unless(&Any(&[NoOperands, Verb(&["list"])]))]),
    program(&["ufw"])
        .asks(&[changes_unless(&Any(&[NoOperands, Verb(&["status", "version", "show", "app"])]))]),
    program(&["ipset"]).asks(&[changes_unless(&Any(&[NoOperands, Verb(&["list", "test"])]))]),
    program(&["firewall-cmd"]).asks(&[changes_unless(&Test(only_lists_firewall))]),
    program(&["pfctl"]).asks(&[changes_unless(&Flag(&["-s"]))]),
    program(&["ip"]).asks(&[ask(
        "firewall",
        Operand(&["set", "add", "del", "delete", "flush", "change", "replace", "append", "exec"]),
    )]),
    program(&["ifconfig"]).asks(&[verbs(&["* *"], "firewall")]),
    program(&["route"]).asks(&[ask("firewall", Operand(&["add", "del", "delete", "flush", "change"]))]),
    program(&["nmcli"]).asks(&[ask(
        "firewall",
        Operand(&["up", "down", "delete", "add", "modify", "off", "on", "disconnect", "connect", "edit"]),
    )]),
    program(&["resolvectl"]).asks(&[ask(
        "firewall",
        All(&[Operand(&["dns", "domain", "revert", "flush-caches"]), Verb(&["* *"])]),
    )]),
    program(&["tc"]).asks(&[ask("firewall", Operand(&["add", "del", "change", "replace"]))]),
    program(&["wg"]).asks(&[ask("firewall", Operand(&["set", "setconf", "addconf", "syncconf"]))]),
    program(&["networksetup", "scutil", "systemsetup"]).asks(&[ask("firewall", Arg(&["-set*", "--set*"]))]),
    program(&["wg-quick", "openvpn", "brctl", "iwconfig", "iptables-restore"]).asks(&[always("firewall")]),
];

const NAMES_THIS_MACHINE: When = Operand(&["localhost", "127.0.0.1", "::1"]);

const METADATA: Ask = ask("metadata", Test(names_metadata));

const STEALS_BY_NAME: Ask = ask("steal-by-name", Test(looks_up_output));

const NETCAT: &[Ask] = &[
    ask("copy-out", All(&[Piped, Not(&Flag(&["-z"])), Not(&NAMES_THIS_MACHINE)])),
    ask(
        "inbound-access",
        All(&[Flag(&["-l", "--listen", "-e", "-c", "--exec", "--sh-exec"]), Not(&Flag(&["-z"]))]),
    ),
    METADATA,
];

/// The firewall is changed, unless a condition says that it is only shown.
const fn changes_unless(shows: &'static When) -> Ask {
    ask("firewall", Not(shows))
}

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
pub(super) fn is_local(text: &str) -> bool {
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
