//! Measures the gate: typical commands, and 64 KiB of the slowest known texts.
//!
//! `cargo run --release -p hermes-policy --example judge_speed [-- COMMAND]`; a command is measured
//! alone, long enough for a profiler.

#![expect(clippy::print_stdout, reason = "an example prints what it measures")]

use std::time::{Duration, Instant};

use hermes_policy::{Gate, Moment};
use hermes_types::{
    Attendance, BackendName, Egress, EntryPoint, Job, Origin, Person, Place, PlaceId, Reach, SessionKey,
    Timestamp,
};

const TYPICAL: &[&str] = &[
    "ls -la",
    "cargo test --workspace 2>&1 | tail -20",
    "cd src && grep -rn 'fn main' . | head -5",
    "git add -A && git commit -m 'fix: handle empty input' && git push",
    "for f in *.json; do jq . \"$f\" > \"out/$f\"; done",
    "docker run --rm -v $PWD:/app -w /app node:20 npm test",
    "python3 -c 'import json,sys; print(json.load(sys.stdin)[\"a\"])'",
    "sudo -u root bash -c 'rm -rf /srv/x'",
];

const UNITS: &[&str] = &[
    "(", "{ ", "$(", "\"$(", "`", "${x:-", "$((", "[[ ( ", "if x; then ", "case a in b) ", "f() { ",
    "for a in b; do ", "<(", "a=(", "{a,", "a;", "a|", "a ", "/etc/x ", "a=$a$a;", "x() { x|x& };", "eval '",
    "<<E ", "$x", "*", "'", "\\", "bash -c \"", "$(echo ", "!", "{1..64}", "{1..64} ", "@(", "a&",
    "export A=$A;", "echo a >b;", "alias a=b;", "(a)", "x=1 ", "\n", "$[", "~", "${", "sudo ", "env ",
    "xargs ", "nohup ", "rm ", "cat ~/.s*/id_* ", "a=b;", "x(){ y; };", "rm -rf /;", "python -c '", "é",
    "\u{0}", "sed -i s/a/b/ /etc/x;", "x=/;rm -rf $x;", "f(){ f;g; };g(){ f;f; };",
    "find . -exec sh -c 'a' \\; ;", "echo a|sh;", "cat <<A\nb\nA\n", "find . -exec ", "if/sudo ", "<?in",
    "*{a,b}<{1..64}", "awk ?x=$x$y;",
];

fn main() {
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
    let gate = Gate::default();
    let judge = |text: &str| {
        let moment = Moment { now: Timestamp::from_seconds(0), seed: [0; 16] };
        let job = Job::shell(text, "/home/ada/work");
        let start = Instant::now();
        let verdict = gate.judge(job, &origin, moment);
        let took = start.elapsed();
        drop(verdict);
        took
    };
    // The best of ten batches excludes the load of other processes.
    let typical = |command: &str, batch: u32| {
        let mean = |_| (0..batch).map(|_| judge(command)).sum::<Duration>() / batch;
        (0..10).map(mean).min().unwrap_or_default()
    };
    if let Some(command) = std::env::args().nth(1) {
        println!("{:>12?}  {command}", typical(&command, 3000));
        return;
    }
    for command in TYPICAL {
        println!("{:>12?}  {command}", typical(command, 100));
    }
    let mut slowest = (Duration::ZERO, "");
    for unit in UNITS {
        for size in [4 * 1024, 64 * 1024] {
            let text = unit.repeat(size / unit.len());
            // The best of five runs excludes the load of other processes.
            let took = (0..5).map(|_| judge(&text)).min().unwrap_or_default();
            if took > Duration::from_millis(10) {
                println!("{took:>12?}  {size} bytes of {unit:?}");
            }
            if took > slowest.0 {
                slowest = (took, unit);
            }
        }
    }
    println!("{:>12?}  the slowest 64 KiB, of {:?}", slowest.0, slowest.1);
}
