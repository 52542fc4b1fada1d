//! Hermes' own command line.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] =
    &[program(&["hermes", "hermes-agent"]).names_files().inert().asks(&[
        ask("hermes-policy", Arg(&["--yolo", "--dangerously-skip-permissions"])),
        ask(
            "hermes-policy",
            All(&[
                Verb(&["approvals *"]),
                Not(&Verb(&[
                    "approvals ls", "approvals list", "approvals test", "approvals grants", "approvals show",
                ])),
            ]),
        ),
        ask(
            "hermes-policy",
            All(&[Verb(&["pairing *"]), Not(&Verb(&["pairing ls", "pairing list", "pairing status"]))]),
        ),
        verbs(
            &["config set", "config unset", "config edit", "config import", "config reset"],
            "hermes-policy",
        ),
        ask(
            "hermes-life",
            All(&[
                Verb(&[
                    "update", "upgrade", "uninstall", "stop", "restart", "reset", "logout", "setup", "auth",
                    "secrets", "cron", "skills", "plugins", "mcp",
                ]),
                Not(&Operand(&["ls", "list", "status"])),
            ]),
        ),
        ask("hermes-life", All(&[Verb(&["gateway"]), Not(&Verb(&["gateway status", "gateway logs"]))])),
        verbs(&["secrets"], "secret-stores"),
        ask("secret-stores", All(&[Verb(&["auth"]), Not(&Verb(&["auth status"]))])),
    ])];
