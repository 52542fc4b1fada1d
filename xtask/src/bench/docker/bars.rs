//! The measurements and their bars.

use anyhow::{Context, Result};

use super::IMAGE_VAR;
use crate::bench::comparison::table::{Bar, Row};
use crate::bench::comparison::{Bench, Subject};

const ROUNDS: usize = 100;
/// For commands that take most of a second.
const FEW_ROUNDS: usize = 50;

const BASH: (Subject, &[&str]) = (Subject::Ours, &["spawn", "bash", "-c", "true"]);

/// A container of the `docker` command that ends by itself.
const RUN: [&str; 6] = ["spawn", "docker", "run", "--detach", "--rm", "--name"];
const SLEEP: [&str; 2] = ["sleep", "1800"];
const REMOVE: [&str; 4] = ["spawn", "docker", "rm", "--force"];

pub(super) fn no_op(bench: &mut Bench) -> Result<Vec<Row>> {
    let (name, image) = (container(), bench.variable(IMAGE_VAR)?);
    bench.ask(Subject::Ours, &[&RUN[..], &[&name, &image], &SLEEP].concat())?;
    let exec = ["spawn", "docker", "exec", &name, "bash", "-c", "true"];
    let asked = bench.run_in_turns(
        ROUNDS,
        &[BASH, (Subject::Ours, &["no-op", "docker"]), (Subject::Ours, &exec), (Subject::Theirs, &["no-op"])],
    );
    bench.ask(Subject::Ours, &[&REMOVE[..], &[&name]].concat())?;
    let asked = asked?;
    let [bash, ours, exec, theirs] = asked.as_slice() else { return Ok(Vec::new()) };
    Ok(vec![
        Row::at_most_slower("no-op in a container", ours, ("bash", bash), 2.5),
        Row::at_least_faster("no-op in a container", ours, ("docker exec", exec), 20.0),
        Row::at_least_faster("no-op in a container", ours, ("hermes 0.19", theirs), 25.0),
    ])
}

pub(super) fn new_container(bench: &mut Bench) -> Result<Vec<Row>> {
    let (name, image) = (container(), bench.variable(IMAGE_VAR)?);
    let (mut ours, mut ready, mut command, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=FEW_ROUNDS {
        let mut seconds = |who: Subject, words: &[&str]| -> Result<f64> {
            bench.ask(who, words)?["seconds"].as_f64().context("no time")
        };
        let one = seconds(Subject::Ours, &["new-place", "docker"])?;
        let pooled = seconds(Subject::Ours, &["ready-place", "docker"])?;
        let run = seconds(Subject::Ours, &[&RUN[..], &[&name, &image], &SLEEP].concat())?;
        let exec = seconds(Subject::Ours, &["spawn", "docker", "exec", &name, "bash", "-c", "true"]);
        seconds(Subject::Ours, &[&REMOVE[..], &[&name]].concat())?;
        let other = seconds(Subject::Theirs, &["new-place"])?;
        // The first round has cold caches.
        if round > 0 {
            ours.push(one);
            ready.push(pooled);
            command.push(run + exec?);
            theirs.push(other);
        }
    }
    Ok(vec![
        Row::at_most_slower("new container and first command", &ours, ("docker run, exec", &command), 0.9),
        Row::at_least_faster("new container and first command", &ours, ("hermes 0.19", &theirs), 1.3),
        Row::at_least_faster(
            "container from the pool and first command",
            &ready,
            ("hermes 0.19", &theirs),
            10.0,
        ),
    ])
}

pub(super) fn crowd(bench: &mut Bench) -> Result<Vec<Row>> {
    let held = bench.ask(Subject::Ours, &["hold", "docker", "100"])?;
    let kib = held["kib_each"].as_f64().context("no figure")?;
    Ok(vec![Row::figures(
        "100 containers: memory of hermes for each",
        "MiB",
        &[kib / 1024.0],
        Bar::AtMost(1.0),
    )])
}

/// A name that no other run uses.
fn container() -> String {
    format!("bench-{}", std::process::id())
}
