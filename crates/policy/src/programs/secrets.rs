//! Password managers, key rings and encryption tools.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["security"]).asks(&[verbs(&["find-*", "dump*", "export*", "unlock*", "delete*"], STORE)]),
    program(&["pass", "gopass", "rbw"]).asks(&[ask(
        STORE,
        Not(&Any(&[NoOperands, Verb(&["ls", "list", "git", "find", "version", "help"])])),
    )]),
    program(&["op"]).runs(&[After("run", &["--env-file"], 0)]).asks(&[ask(
        STORE,
        All(&[Verb(&["read", "item", "document", "signin", "inject"]), Not(&Verb(&["* list"]))]),
    )]),
    program(&["bw", "lpass"]).asks(&[verbs(&["get", "list", "export", "show", "unlock"], STORE)]),
    program(&["secret-tool"]).asks(&[verbs(&["lookup", "search", "clear"], STORE)]),
    program(&["keyring"]).asks(&[verbs(&["get", "del"], STORE)]),
    program(&["kwallet-query", "dcli", "credhub", "docker-credential-desktop"]).asks(&[always(STORE)]),
    program(&["vault"]).asks(&[
        ask(STORE, All(&[Verb(&["read", "kv", "login", "token"]), Not(&Operand(&["list"]))])),
        super::databases::DELETES_KEYS,
    ]),
    program(&["gpg", "gpg2"])
        .files(&[writes(Values(&["-o", "--output"]))])
        .asks(&[ask(STORE, Arg(&["--export-secret*", "--delete*"]))]),
    program(&["keyctl"]).asks(&[verbs(&["read", "print", "pipe"], STORE)]),
    program(&["ssh-add"]).names_files().asks(&[ask(STORE, Arg(&["-D"]))]),
    program(&["ssh-keygen"])
        .names_files()
        .files(&[writes(Values(&["-f"])).when(Not(&Flag(&["-l", "-y", "-e", "-B", "-F", "-r", "-R"])))]),
    program(&["doppler"])
        .runs(&[After("run", &["-p", "-c", "--project", "--config"], 0)])
        .asks(&[verbs(&["secrets"], STORE)]),
    program(&["infisical", "chezmoi"]).asks(&[verbs(&["secrets"], STORE)]),
    program(&["sops", "age", "ansible-vault"])
        .asks(&[ask(STORE, Any(&[Flag(&["-d", "--decrypt"]), Verb(&["decrypt", "view"])]))]),
    program(&["aws-vault"]).runs(&[After("exec", &["-d", "--duration"], 1)]),
];

const STORE: &str = "secret-stores";
