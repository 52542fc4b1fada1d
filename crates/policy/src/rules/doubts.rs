//! What cannot be known is asked about, with the reason.

use super::{Harms, Match, Tier};
use crate::shell::{Doubt, DoubtKind};

/// Programs that bring text from other machines.
const FETCHERS: &[&str] = &[
    "curl", "wget", "fetch", "nc", "ncat", "netcat", "aria2c", "http", "https", "httpie", "lynx", "w3m",
    "dig", "host", "nslookup", "ssh", "scp", "ftp", "telnet", "socat", "openssl", "xh", "axel",
];

pub(super) fn rule(doubt: &Doubt) -> Match {
    let (id, tier, reason) = match &doubt.kind {
        DoubtKind::Syntax(_) => {
            ("unreadable", Tier::Ask, "the command is not valid shell, so what it does cannot be known")
        }
        DoubtKind::TooDeep => ("too-deep", Tier::Ask, "the command nests too deep to be followed"),
        DoubtKind::TooMuch => {
            ("too-long", Tier::Ask, "the command is too long or too involved to be followed")
        }
        DoubtKind::Hidden => {
            ("hidden-characters", Tier::Ask, "the command holds characters that are not shown as they are")
        }
        DoubtKind::Program => ("unknown-program", Tier::Ask, "which program runs is only known when it runs"),
        DoubtKind::ForeignLetters => {
            ("lookalike", Tier::Ask, "the program's name holds letters that look like others")
        }
        DoubtKind::Script(programs)
            if programs.iter().any(|program| FETCHERS.contains(&program.as_str())) =>
        {
            ("download-and-run", Tier::Ask, "text from another machine is run as a program")
        }
        DoubtKind::Script(_) => {
            ("unknown-script", Tier::Ask, "a shell or interpreter runs text that is only known when it runs")
        }
        DoubtKind::Code => ("unknown-code", Tier::Ask, "the program text is only known when it runs"),
        DoubtKind::Interactive => {
            ("interactive-shell", Tier::Ask, "a shell or interpreter is opened that takes more commands")
        }
        DoubtKind::MadeHere => (
            "made-and-run",
            Tier::Ask,
            "a file is run that this same command fetched, copied or made runnable",
        ),
        DoubtKind::Temporary => {
            ("run-from-temporary", Tier::Ask, "a program is run from a directory everybody can write to")
        }
        DoubtKind::Danger(what) => ("dangerous-code", Tier::Ask, *what),
        DoubtKind::ForkBomb => (
            "fork-bomb",
            Tier::Floor,
            "a function that starts itself again and again brings the machine down",
        ),
        DoubtKind::EndlessSpawn => {
            ("endless-spawn", Tier::Ask, "a loop without an end starts processes without waiting")
        }
    };
    Match {
        id,
        tier,
        reason,
        segment: doubt.source.clone(),
        source: doubt.source.clone(),
        what: format!("{id}:{}", doubt.source),
        at: None,
        contained: matches!(doubt.kind, DoubtKind::Interactive),
        harms: Harms::Owner,
    }
}
