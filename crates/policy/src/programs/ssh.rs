//! Commands and copies on other machines.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["ssh"])
        .fetches()
        .valued(SSH_VALUED)
        .key_options(&["-i", "-F"])
        .files(&[writes(Values(&["-E"]))])
        .runs(&[Custom(remote_command)])
        .asks(&[
            All(&[PipedUnknown, Operand(&["*"])]).triggers("copy-out"),
            FORWARDS,
            Test(uses_foreign_settings).triggers("inbound-access"),
        ]),
    program(&["autossh"])
        .valued(SSH_VALUED)
        .runs(&[Custom(remote_command)])
        .asks(&[FORWARDS, Test(uses_foreign_settings).triggers("inbound-access")]),
    reader(&["scp"])
        .fetches()
        .valued(COPY_VALUED)
        .key_options(&["-i", "-F"])
        .files(&[writes(LastOperand), reads_tree(Computed(all_but_last)).when(Flag(&["-r"]))])
        .runs(&[Text(&["-S"])])
        .asks(&[COPIES_AWAY]),
    program(&["rcp"]).valued(COPY_VALUED).asks(&[COPIES_AWAY]),
    reader(&["sftp"])
        .fetches()
        .valued(COPY_VALUED)
        .key_options(&["-i", "-F"])
        .files(&[writes(LastOperand)])
        .runs(&[Text(&["-S"]), Escapes(&["!"])])
        .asks(&[always("copy-out")]),
    reader(&["rsync"])
        .fetches()
        .valued(&[
            "-e", "--rsh", "-f", "--filter", "--exclude", "--include", "--exclude-from", "--include-from",
            "--files-from", "--rsync-path", "--bwlimit", "-T", "--partial-dir", "--backup-dir", "--port",
            "--password-file", "--log-file",
        ])
        .key_options(&["-e", "--rsh"])
        .files(&[
            deletes_tree(Computed(|call| call.operands().last().copied().cloned().into_iter().collect()))
                .when(All(&[Arg(&["--del*"]), Not(&Flag(&["-n", "--dry-run"]))])),
            deletes_tree(Computed(all_but_last)).when(Arg(&["--remove-s*"])),
            reads_tree(Computed(all_but_last)).when(Flag(&["-r", "-a", "--recursive", "--archive"])),
            adds(LastOperand).when(KEEPS_FILES),
            writes(LastOperand).when(Not(&KEEPS_FILES)),
        ])
        .runs(&[Text(&["-e", "--rsh", "--rsync-path"])])
        .asks(&[Test(copies_away).triggers("copy-out").unless(Flag(&["-n", "--dry-run"]))]),
    program(&["rsh"]).asks(&[always("copy-out")]),
    program(&["ssh-copy-id"]).asks(&[always("inbound-access")]),
    program(&["mosh"]).runs(&[Text(&["--ssh", "--server"]), AfterMark(&["-e"])]),
    program(&[
        "salt", "salt-call", "pssh", "parallel-ssh", "pdsh", "clush", "fab", "mussh", "dsh", "knife",
        "puppet", "bolt",
    ])
    .asks(&[always("many-machines")]),
];

/// Options with which `rsync` replaces nothing.
const KEEPS_FILES: When = Flag(&["-n", "--dry-run", "--ignore-existing", "--list-only"]);

const SSH_VALUED: &[&str] = &[
    "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R",
    "-S", "-W", "-w", "-B", "-M",
];

const COPY_VALUED: &[&str] = &["-i", "-P", "-o", "-F", "-c", "-l", "-S", "-J", "-D", "-X"];

const COPIES_AWAY: Ask = Any(&[Test(copies_away), Test(copies_to_unknown)]).triggers("copy-out");

const FORWARDS: Ask = Any(&[Test(forwards_ports), Test(listens_everywhere)]).triggers("inbound-access");

/// `host:path` and `user@host:path`, but not `./a:b`.
pub(crate) fn is_remote(text: &str) -> bool {
    match text.split_once(':') {
        Some((host, _)) => (!host.is_empty() && !host.contains('/')) || text.contains("://"),
        None => false,
    }
}

fn copies_away(call: &Invocation<'_>) -> bool {
    call.operands().last().is_some_and(|word| is_remote(word.prefix()))
}

fn all_but_last(call: &Invocation<'_>) -> Vec<Word> {
    call.operands().iter().rev().skip(1).map(|word| (*word).clone()).collect()
}

fn copies_to_unknown(call: &Invocation<'_>) -> bool {
    call.operands().last().is_some_and(|word| word.has_unknown() && word.prefix().is_empty())
}

/// Whether ports of the other side lead here, among the options in front of the host.
fn forwards_ports(call: &Invocation<'_>) -> bool {
    let options = call.args.iter().map(Word::prefix);
    options
        .take_while(|word| word.starts_with('-') || !word.contains('@'))
        .any(|word| matches!(word, "-g" | "-D" | "-w") || word.starts_with("-R"))
}

fn listens_everywhere(call: &Invocation<'_>) -> bool {
    call.values(&["-L"])
        .iter()
        .any(|value| value.prefix().starts_with("0.0.0.0") || value.prefix().starts_with(['*', ':']))
}

/// Whether a file of settings is named that is not the owner's. It may name programs to run.
fn uses_foreign_settings(call: &Invocation<'_>) -> bool {
    let is_own = |file: &Word| {
        let path = call.segment.path(file);
        matches!(file.known(), Some("none"))
            || path == "/dev/null"
            || path.starts_with("/etc/ssh/")
            || path.contains("/.ssh/")
    };
    !call.values(&["-F"]).iter().all(is_own)
}

/// The command behind the host, and the commands that options make ssh run here.
fn remote_command(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for option in call.values(&["-o"]) {
        if fits_any(option.prefix(), &["proxycommand*", "localcommand*", "knownhostscommand*"]) {
            found.extend(option.after('=').map(Nested::text));
        }
    }
    let host = first_operand(call.args, SSH_VALUED);
    let rest = call.args.get(host + 1..).unwrap_or_default();
    let rest = rest.get(first_operand(rest, SSH_VALUED)..).unwrap_or_default();
    if !rest.is_empty() {
        found.push(Nested::text(Word::joined(rest)));
        // The remote shell splits quoted words again; both readings are judged.
        if rest.len() > 1 {
            found.extend(Nested::argv(rest));
        }
    } else if call.segment.stdin.is_piped() && host < call.args.len() {
        found.push(Nested::Stdin(Language::Shell));
    }
}
