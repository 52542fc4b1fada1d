//! Doubts: parts of a command that cannot be known, each asked about with its reason.

use super::{Match, Tier};
use crate::programs::find;
use crate::shell::{Doubt, DoubtKind};

/// The doubts about parts of a script that were not read.
pub(super) const UNREAD: &[&str] = &["unreadable", "too-deep", "too-long"];

/// The match that stands for a doubt.
pub(super) fn doubt_match(doubt: &Doubt) -> Match {
    let (id, reason) = match &doubt.kind {
        DoubtKind::Syntax => {
            ("unreadable", "the command is not valid shell, so what it does cannot be known")
        }
        DoubtKind::TooDeep => ("too-deep", "the command is nested too deeply to follow"),
        DoubtKind::TooMuch => ("too-long", "the command is too long or too complex to follow"),
        DoubtKind::Hidden => ("hidden-characters", "the command contains invisible characters"),
        DoubtKind::Program => ("unknown-program", "which program runs is only known when it runs"),
        DoubtKind::Lookalike => {
            ("lookalike", "the program's name contains letters that look like other letters")
        }
        DoubtKind::Script(programs) if programs.iter().any(|program| find(program).fetches) => {
            ("download-and-run", "text from another machine is run as a program")
        }
        DoubtKind::Script(_) => {
            ("unknown-script", "a shell or interpreter runs text that is only known when it runs")
        }
        DoubtKind::Code => ("unknown-code", "the program text is only known when it runs"),
        DoubtKind::Interactive => ("interactive-shell", "an interactive shell or interpreter is opened"),
        DoubtKind::MadeHere => ("made-and-run", "a file is run that this command downloaded or copied"),
        DoubtKind::Temporary => {
            ("run-from-temporary", "a program is run from a directory that every user can write to")
        }
        DoubtKind::Danger(what) => ("dangerous-code", *what),
        DoubtKind::ForkBomb => {
            ("fork-bomb", "a function that starts itself again and again stops the machine")
        }
        DoubtKind::EndlessSpawn => ("endless-spawn", "an endless loop starts processes without waiting"),
    };
    let tier = if doubt.kind == DoubtKind::ForkBomb { Tier::Floor } else { Tier::Ask };
    Match::new(id, tier, reason, doubt.source.clone(), &doubt.source)
}
