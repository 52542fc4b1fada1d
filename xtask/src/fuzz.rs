//! `cargo xtask fuzz gate`: runs generated scripts in a real bash and dash and compares the programs
//! that ran with those that the gate found.
//!
//! A disagreement is printed as the smallest script that shows it, in the form of an entry of
//! `crates/policy/tests/corpus/differential.txt`.

#[path = "../../crates/policy/tests/it/differential/compare.rs"]
mod compare;
mod constructs;
mod generate;
mod python;
mod python_grammar;
#[expect(clippy::panic, reason = "a failure here fails the test or the run")]
#[path = "../../crates/policy/tests/it/differential/shells.rs"]
mod shells;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hermes_policy::shell::{Doubt, DoubtKind};
use hermes_types::ShellKind;

use compare::{Outcome, compare, entries};
use generate::Generator;
use shells::Shells;

const USAGE: &str =
    "usage: cargo xtask fuzz gate [--seconds N] [--seed N] [--shell bash|sh] [--python] [--replay FILE]";

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let mut args = args.iter().map(String::as_str);
    if args.next() != Some("gate") {
        bail!(USAGE);
    }
    let (mut seconds, mut seed, mut only) = (60_u64, 1_u64, None);
    let mut is_python = false;
    while let Some(option) = args.next() {
        if option == "--python" {
            is_python = true;
            continue;
        }
        let value = args.next().context(USAGE)?;
        match option {
            "--seconds" => seconds = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--shell" => only = Some(if value == "sh" { ShellKind::Sh } else { ShellKind::Bash }),
            "--replay" => return replay(value),
            _ => bail!(USAGE),
        }
    }
    if is_python {
        return python::main(seconds, seed);
    }
    let directory = tempfile::tempdir()?;
    let shells = Shells::new(directory.path()).map_err(anyhow::Error::msg)?;
    let corpora = corpora()?;
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut invalid, mut doubted, mut found) = (0_u64, 0_u64, 0_u64, 0_u64);
    while Instant::now() < end {
        runs += 1;
        let mut generator = Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(runs));
        let shell = only.unwrap_or(if generator.one_in(4) { ShellKind::Sh } else { ShellKind::Bash });
        generator.write_for(shell);
        let (earlier, script) = if shell == ShellKind::Bash && generator.one_in(5) {
            // The gate knows no file of an earlier command.
            (Some(generator.script().replace("f.sh", "g.sh")), generator.script())
        } else if generator.one_in(8) {
            (None, generator.mutation(&corpora))
        } else {
            (None, generator.script())
        };
        match compare(&shells, shell, earlier.as_deref(), &script) {
            Outcome::Agrees => continue,
            Outcome::Doubted(doubt) if doubt.kind == DoubtKind::Syntax && !is_valid(shell, &script) => {
                invalid += 1;
                continue;
            }
            Outcome::Doubted(Doubt { kind, .. }) => {
                doubted += 1;
                *reasons
                    .entry(format!("{kind:?}").chars().take_while(|char| char.is_alphabetic()).collect())
                    .or_default() += 1;
                continue;
            }
            Outcome::Disagrees(_) => {}
        }
        let disagrees = |earlier: Option<&str>, script: &str| match compare(&shells, shell, earlier, script) {
            Outcome::Disagrees(missed) => Some(missed),
            _ => None,
        };
        found += 1;
        let script = minimized(&script, |shorter| disagrees(earlier.as_deref(), shorter).is_some());
        let earlier =
            earlier.map(|earlier| minimized(&earlier, |shorter| disagrees(Some(shorter), &script).is_some()));
        let missed = disagrees(earlier.as_deref(), &script).unwrap_or_default();
        let label = if shell == ShellKind::Sh { "#: sh only" } else { "#: bash" };
        let earlier = earlier.map(|earlier| format!("{earlier}\n#: then\n")).unwrap_or_default();
        println!("{label}\n{earlier}{script}\n%%\n# ran {missed}\n");
    }
    println!("doubts: {reasons:?}");
    let compared = runs - invalid - doubted;
    println!(
        "{runs} scripts: {compared} compared, {doubted} doubted, {invalid} invalid, {found} disagreements"
    );
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares the entries of a file in the form of `differential.txt`, and prints each result.
fn replay(path: &str) -> Result<ExitCode> {
    let directory = tempfile::tempdir()?;
    let shells = Shells::new(directory.path()).map_err(anyhow::Error::msg)?;
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    let mut status = ExitCode::SUCCESS;
    for (shell, earlier, script) in entries(&text) {
        let outcome = compare(&shells, shell, earlier.as_deref(), &script);
        let result = match outcome {
            Outcome::Agrees => "agrees".to_owned(),
            Outcome::Doubted(doubt) => format!("doubted: {:?} {:?}", doubt.kind, doubt.source),
            Outcome::Disagrees(missed) => {
                status = ExitCode::FAILURE;
                format!("ran {missed}")
            }
        };
        println!("{}{script}\n%%\n# {result}\n", earlier.map(|it| it + "\n#: then\n").unwrap_or_default());
    }
    Ok(status)
}

/// Whether a shell accepts the script, which does not run.
fn is_valid(shell: ShellKind, script: &str) -> bool {
    let name = if shell == ShellKind::Bash { "bash" } else { "dash" };
    let status = Command::new(name).args(["-n", "-c", script]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The commands of the policy corpora.
fn corpora() -> Result<Vec<String>> {
    let mut commands = Vec::new();
    for name in ["ordinary.txt", "ordinary-more.txt", "near-misses.txt", "dangerous.txt"] {
        let path = crate::root().join("crates/policy/tests/corpus").join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        commands.extend(text.split("\n%%\n").map(|entry| match entry.split_once('\n') {
            Some((label, command)) if label.starts_with("#: ") => command.to_owned(),
            _ => entry.to_owned(),
        }));
    }
    Ok(commands)
}

/// The time for making a script smaller.
const MAX_MINIMIZING: Duration = Duration::from_secs(10);

/// Removes as much of a script as possible while it still disagrees.
fn minimized(script: &str, still_disagrees: impl Fn(&str) -> bool) -> String {
    let mut best = script.to_owned();
    let end = Instant::now() + MAX_MINIMIZING;
    let mut size = best.chars().count() / 2;
    while size > 0 {
        let mut start = 0;
        while start < best.chars().count() && Instant::now() < end {
            let rest = best.chars().skip(start + size);
            let shorter: String = best.chars().take(start).chain(rest).collect();
            if still_disagrees(&shorter) {
                best = shorter;
            } else {
                start += size;
            }
        }
        size /= 2;
    }
    best
}
