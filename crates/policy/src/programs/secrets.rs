//! Password managers, key rings and encryption tools.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["security"])
        .asks(&[Verb(&["find-*", "dump*", "export*", "unlock*", "delete*"]).triggers(STORE)]),
    program(&["pass", "gopass", "rbw"]).asks(&[
        always(STORE).unless(Any(&[NoOperands, Verb(&["ls", "list", "git", "find", "version", "help"])]))
    ]),
    program(&["op"]).runs(&[After("run", &["--env-file"], 0)]).asks(&[Verb(&[
        "read", "item", "document", "signin", "inject",
    ])
    .triggers(STORE)
    .unless(Verb(&["* list"]))]),
    program(&["bw", "lpass"]).asks(&[Verb(&["get", "list", "export", "show", "unlock"]).triggers(STORE)]),
    program(&["secret-tool"]).asks(&[Verb(&["lookup", "search", "clear"]).triggers(STORE)]),
    program(&["keyring"]).asks(&[Verb(&["get", "del"]).triggers(STORE)]),
    program(&["kwallet-query", "dcli", "credhub", "docker-credential-desktop"]).asks(&[always(STORE)]),
    program(&["vault"]).asks(&[
        Verb(&["read", "kv", "login", "token"]).triggers(STORE).unless(Operand(&["list"])),
        super::databases::DELETES_KEYS,
    ]),
    program(&["gpg", "gpg2"])
        .files(&[writes(Values(&["-o", "--output"]))])
        .asks(&[Arg(&["--export-secret*", "--delete*"]).triggers(STORE)]),
    program(&["keyctl"]).asks(&[Verb(&["read", "print", "pipe"]).triggers(STORE)]),
    non_reader(&["ssh-add"]).asks(&[Arg(&["-D"]).triggers(STORE), Flag(&["-s", "-e"]).triggers("inject")]),
    non_reader(&["ssh-keygen"])
        .files(&[writes(Values(&["-f"])).when(Not(&Flag(&["-l", "-y", "-e", "-B", "-F", "-r", "-R"])))])
        .asks(&[Flag(&["-D", "-w"]).triggers("inject")]),
    program(&["doppler"])
        .runs(&[After("run", &["-p", "-c", "--project", "--config"], 0)])
        .asks(&[Verb(&["secrets"]).triggers(STORE)]),
    program(&["infisical", "chezmoi"]).asks(&[Verb(&["secrets"]).triggers(STORE)]),
    program(&["sops", "age", "ansible-vault"]).asks(&[Any(&[
        Flag(&["-d", "--decrypt"]),
        Verb(&["decrypt", "view"]),
    ])
    .triggers(STORE)]),
    program(&["aws-vault"]).runs(&[After("exec", &["-d", "--duration"], 1)]),
];

const STORE: &str = "secret-stores";
