//! Fixtures for verdicts.

use hermes_policy::{Gate, GateReport, Moment};
use hermes_types::{
    Attendance, BackendName, Egress, EntryPoint, Job, Origin, Person, Place, PlaceId, Reach, SessionKey,
    Timestamp,
};

pub(crate) const CWD: &str = "/home/ada/work";

pub(crate) fn moment() -> Moment {
    Moment { now: Timestamp::from_seconds(1_000), seed: [7; 16] }
}

pub(crate) fn person() -> Person {
    Person::new("cli:ada")
}

/// A person at a terminal, and an environment with this reach.
pub(crate) fn origin(reach: Reach) -> Origin {
    let egress = if reach == Reach::Nothing { Egress::NONE } else { Egress::ALL };
    origin_with_egress(reach, egress)
}

pub(crate) fn origin_with_egress(reach: Reach, egress: Egress) -> Origin {
    let backend = if reach == Reach::Host { BackendName::Local } else { BackendName::Docker };
    Origin {
        person: person(),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new("s1"),
        attendance: Attendance::Attended(vec![person()]),
        place: Place {
            id: PlaceId::new("place-1"),
            backend,
            reach,
            egress,
            home: "/home/ada".to_owned(),
            hermes_home: "/home/ada/.hermes".to_owned(),
        },
    }
}

pub(crate) fn report(command: &str) -> GateReport {
    report_with(command, Reach::Host)
}

pub(crate) fn report_with(command: &str, reach: Reach) -> GateReport {
    Gate::default().report(&Job::shell(command, CWD), &origin(reach), moment())
}

/// Allow, ask, deny, as a number that grows with strictness.
pub(crate) fn strictness(verdict: &str) -> u8 {
    match verdict {
        "allow" => 0,
        "ask" => 1,
        _ => 2,
    }
}
