//! Doubts: parts of a command that cannot be known, each asked about with its reason.

use super::{Harms, Match, Tier};
use crate::programs::find;
use crate::shell::{Doubt, DoubtKind};

/// The match that stands for a doubt.
pub(super) fn doubt_match(doubt: &Doubt) -> Match {
    let (id, tier, reason) = match &doubt.kind {
        DoubtKind::Syntax(_) => {
            ("unreadable", Tier::Ask, "the command is not valid shell, so what it does cannot be known")
        }
        DoubtKind::TooDeep => ("too-deep", Tier::Ask, "the command is nested too deeply to follow"),
        DoubtKind::TooMuch => ("too-long", Tier::Ask, "the command is too long or too complex to follow"),
        DoubtKind::Hidden => ("hidden-characters", Tier::Ask, "the command contains invisible characters"),
        DoubtKind::Program => ("unknown-program", Tier::Ask, "which program runs is only known when it runs"),
        DoubtKind::Lookalike => {
            ("lookalike", Tier::Ask, "the program's name contains letters that look like other letters")
        }
        DoubtKind::Script(programs) if programs.iter().any(|program| find(program).fetches) => {
            ("download-and-run", Tier::Ask, "text from another machine is run as a program")
        }
        DoubtKind::Script(_) => {
            ("unknown-script", Tier::Ask, "a shell or interpreter runs text that is only known when it runs")
        }
        DoubtKind::Code => ("unknown-code", Tier::Ask, "the program text is only known when it runs"),
        DoubtKind::Interactive => {
            ("interactive-shell", Tier::Ask, "an interactive shell or interpreter is opened")
        }
        DoubtKind::MadeHere => (
            "made-and-run",
            Tier::Ask,
            "a file is run that this command downloaded, copied or made executable",
        ),
        DoubtKind::Temporary => (
            "run-from-temporary",
            Tier::Ask,
            "a program is run from a directory that every user can write to",
        ),
        DoubtKind::Danger(what) => ("dangerous-code", Tier::Ask, *what),
        DoubtKind::ForkBomb => {
            ("fork-bomb", Tier::Floor, "a function that starts itself again and again stops the machine")
        }
        DoubtKind::EndlessSpawn => {
            ("endless-spawn", Tier::Ask, "an endless loop starts processes without waiting")
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
        harms: Harms::Owner,
    }
}
