//! The measurements and their bars.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::wrapped;
use crate::bench::comparison::table::{Bar, Row};
use crate::bench::comparison::{Bench, Subject, path_text};

const ROUNDS: usize = 300;
/// For commands that take a second or more.
const FEW_ROUNDS: usize = 20;

/// 200 MB of output.
const FLOOD: &str = r"head -c 200000000 /dev/zero | tr '\0' x";

const BASH: (Subject, &[&str]) = (Subject::Ours, &["spawn", "bash", "-c", "true"]);

const BACKENDS: [&str; 2] = ["local", "sandbox"];

pub(super) fn no_op(bench: &mut Bench) -> Result<Vec<Row>> {
    let asked = bench.run_in_turns(
        ROUNDS,
        &[
            BASH,
            (Subject::Ours, &["no-op", "local"]),
            (Subject::Ours, &["no-op", "unguarded"]),
            (Subject::Ours, &["no-op", "sandbox"]),
            (Subject::Ours, &["no-op", "local with state"]),
            (Subject::Ours, &["no-op", "sandbox with state"]),
            (Subject::Theirs, &["no-op"]),
        ],
    )?;
    let [bash, local, unguarded, sandbox, local_state, sandbox_state, theirs] = asked.as_slice() else {
        return Ok(Vec::new());
    };
    let (bash, theirs) = (("bash", bash.as_slice()), ("hermes 0.19", theirs.as_slice()));
    Ok(vec![
        Row::at_most_slower("no-op, local", local, bash, 2.0),
        Row::at_most_slower("no-op, local", local, ("no guard", unguarded.as_slice()), 1.1),
        Row::at_most_slower("no-op, sandbox", sandbox, bash, 2.0),
        Row::at_most_slower("no-op with state, local", local_state, bash, 4.0),
        Row::at_most_slower("no-op with state, sandbox", sandbox_state, bash, 4.0),
        Row::at_least_faster("no-op, local", local, theirs, 3.0),
        Row::at_least_faster("no-op, sandbox", sandbox, theirs, 3.0),
    ])
}

pub(super) fn new_place(bench: &mut Bench) -> Result<Vec<Row>> {
    let workspace = bench.folder.workspace("bubblewrapped")?;
    let plain = wrapped::plain(path_text(&workspace)?);
    let masked: Vec<String> = serde_json::from_value(bench.ask(Subject::Ours, &["masked"])?)?;
    let alike = wrapped::alike(path_text(&workspace)?, &masked);
    let alike: Vec<&str> = alike.iter().map(String::as_str).collect();
    let asked = bench.run_in_turns(
        ROUNDS,
        &[BASH, (Subject::Ours, &["new-place", "sandbox"]), (Subject::Ours, &alike), (Subject::Ours, &plain)],
    )?;
    let [bash, ours, alike, plain] = asked.as_slice() else { return Ok(Vec::new()) };
    eprintln!("{}", wrapped::NOTE);
    Ok(vec![
        Row::at_most_slower("new sandbox and first command", ours, ("bash", bash), 10.0),
        Row::at_least_faster("new sandbox and first command", ours, ("bwrap, alike", alike), 1.0),
        Row::for_information("new sandbox and first command", ours, ("bwrap, plain", plain)),
    ])
}

pub(super) fn whole(bench: &mut Bench) -> Result<Vec<Row>> {
    let hermes = bench.hermes.clone();
    let exec = ["spawn", path_text(&hermes)?, "exec", "--session", "s", "--backend"];
    let whole = BACKENDS.map(|backend| [&exec[..], &[backend, "--", "true"]].concat());
    let [local, sandbox] = &whole;
    let asked = bench.run_in_turns(ROUNDS, &[BASH, (Subject::Ours, local), (Subject::Ours, sandbox)])?;
    let [bash, local, sandbox] = asked.as_slice() else { return Ok(Vec::new()) };
    Ok(vec![
        Row::at_most_slower("whole `hermes exec`, local", local, ("bash", bash), 15.0),
        Row::at_most_slower("whole `hermes exec`, sandbox", sandbox, ("bash", bash), 15.0),
    ])
}

pub(super) fn output(bench: &mut Bench) -> Result<Vec<Row>> {
    let plain = format!("{FLOOD} | cat >/dev/null");
    let plain = ["spawn", "bash", "-c", &plain];
    let mut rows = Vec::new();
    for backend in BACKENDS {
        for attention in ["live", "summary"] {
            let flood = ["flood", backend, attention, FLOOD];
            let (mut ours, mut bash, mut guest, mut host) = (vec![], vec![], vec![], vec![]);
            for _ in 0..FEW_ROUNDS {
                bash.push(bench.ask(Subject::Ours, &plain)?["seconds"].as_f64().context("no time")?);
                let answer = bench.ask(Subject::Ours, &flood)?;
                ensure!(answer["total"] == 200_000_000, "received {} bytes", answer["total"]);
                let figure = |name: &str| answer[name].as_f64().context("no figure");
                ours.push(figure("seconds")?);
                guest.push(figure("guest_kib")? / 1024.0);
                host.push(figure("host_kib")? / 1024.0);
            }
            let name = format!("200 MB {attention}, {backend}");
            rows.push(Row::at_least_faster(&name, &ours, ("bash | cat", &bash), 1.0 / 3.0));
            // Memory is judged by the maximum, not by the median.
            for (what, figures) in [("guest", guest), ("host", host)] {
                let most = figures.iter().copied().fold(0.0, f64::max);
                rows.push(Row::figures(
                    &format!("{name}: {what} grows by"),
                    "MiB",
                    &[most],
                    Bar::AtMost(32.0),
                ));
            }
        }
    }
    Ok(rows)
}

pub(super) fn crowd(bench: &mut Bench) -> Result<Vec<Row>> {
    const COUNT: f64 = 1000.0;
    const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
    let made = bench.ask(Subject::Ours, &["crowd", &COUNT.to_string()])?;
    let figure = |name: &str| made[name].as_f64().context("no figure");
    let (seconds, kib) = (figure("seconds")?, figure("kib_each")?);
    let began = Instant::now();
    let hermes = bench.hermes.clone();
    bench.ask(Subject::Ours, &["spawn", path_text(&hermes)?, "sandbox", "prune"])?;
    while bench.ask(Subject::Ours, &["crowd-left"])?["left"] != 0 && began.elapsed() < 4 * REMOVAL_TIMEOUT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let gone = began.elapsed().as_secs_f64();
    Ok(vec![
        Row::figures("1000 idle environments: memory of each", "MiB", &[kib / 1024.0], Bar::AtMost(1.5)),
        Row::figures(
            "1000 idle environments: created per second",
            "",
            &[COUNT / seconds],
            Bar::AtLeast(50.0),
        ),
        Row::figures(
            "1000 idle environments: removed after",
            "s",
            &[gone],
            Bar::AtMost(REMOVAL_TIMEOUT.as_secs_f64()),
        ),
    ])
}

pub(super) fn tree(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for backend in BACKENDS {
        let mut late = Vec::new();
        // On a busy machine a tree may not have grown before its deadline; then it proves nothing.
        for _ in 0..5 * FEW_ROUNDS {
            let answer = bench.ask(Subject::Ours, &["tree", backend])?;
            ensure!(answer["left"] == 0, "{} processes of a tree are still alive", answer["left"]);
            if answer["grown"] == 200 {
                late.push(answer["seconds"].as_f64().context("no time")? * 1000.0);
            }
            if late.len() == FEW_ROUNDS {
                break;
            }
        }
        let name = format!("200 processes: dead after the deadline, {backend}");
        rows.push(Row::figures(&name, "ms", &late, Bar::AtMost(100.0)));
    }
    Ok(rows)
}

pub(super) fn files(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for action in ["read", "write", "patch", "search"] {
        let question = ["file", action];
        let asked =
            bench.run_in_turns(ROUNDS, &[(Subject::Ours, &question), (Subject::Theirs, &question)])?;
        if let [ours, theirs] = asked.as_slice() {
            rows.push(Row::at_least_faster(&format!("file: {action}"), ours, ("hermes 0.19", theirs), 20.0));
        }
    }
    Ok(rows)
}
