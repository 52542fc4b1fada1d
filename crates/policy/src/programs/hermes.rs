//! Hermes' own command line.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[non_reader(&["hermes", "hermes-agent"]).inert().asks(&[
    Arg(&["--yolo", "--dangerously-skip-permissions"]).triggers("hermes-policy"),
    Verb(&["approvals *"]).triggers("hermes-policy").unless(Verb(&[
        "approvals ls", "approvals list", "approvals test", "approvals grants", "approvals show",
    ])),
    Verb(&["pairing *"])
        .triggers("hermes-policy")
        .unless(Verb(&["pairing ls", "pairing list", "pairing status"])),
    Verb(&["config set", "config unset", "config edit", "config import", "config reset"])
        .triggers("hermes-policy"),
    Verb(&[
        "update", "upgrade", "uninstall", "stop", "restart", "reset", "logout", "setup", "auth", "secrets",
        "cron", "skills", "plugins", "mcp",
    ])
    .triggers("hermes-life")
    .unless(Operand(&["ls", "list", "status"])),
    Verb(&["gateway"]).triggers("hermes-life").unless(Verb(&["gateway status", "gateway logs"])),
    Verb(&["secrets"]).triggers("secret-stores"),
    Verb(&["auth"]).triggers("secret-stores").unless(Verb(&["auth status"])),
])];
