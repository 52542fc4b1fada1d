//! Any bytes are judged, on any reach: no panic, no hang, bounded memory.
//!
//! `cargo +nightly fuzz run judge -- -max_len=65536 -timeout=2 -rss_limit_mb=512`

#![no_main]

use hermes_policy::{Gate, Moment};
use hermes_types::{
    Attendance, BackendName, Egress, EntryPoint, Job, Origin, Person, Place, PlaceId, Reach, SessionKey, Timestamp, Work,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (kind, rest) = data.split_first().unwrap_or((&0, &[]));
    let text = String::from_utf8_lossy(rest).into_owned();
    let work = match kind % 3 {
        0 => Work::Shell(text),
        1 => Work::Python(text),
        _ => Work::Input(text),
    };
    let origin = Origin {
        person: Person::new("cli:ada"),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new("s"),
        attendance: Attendance::Attended(vec![Person::new("cli:ada")]),
        place: Place {
            id: PlaceId::new("p"),
            backend: BackendName::Local,
            reach: Reach::Host,
            egress: Egress::ALL,
            home: "/home/ada".to_owned(),
            hermes_home: "/home/ada/.hermes".to_owned(),
        },
    };
    let moment = Moment { now: Timestamp::from_seconds(0), seed: [0; 16] };
    drop(Gate::default().judge(Job::new(work, "/home/ada/work"), &origin, moment));
});
