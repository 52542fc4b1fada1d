//! The gate's knowledge about Hermes' own command line, compared with the definition of it.

use clap::{Arg, ArgAction, Command, CommandFactory};
use hermes_cli::args::Args;
use hermes_policy::{Gate, GateReport, Moment};
use hermes_types::{
    Attendance, BackendName, Egress, EntryPoint, Job, Origin, Person, Place, PlaceId, Reach, SessionKey,
    Timestamp,
};

/// The commands that run without a question.
const READS: &[&str] = &[
    "status", "doctor", "completions", "help", "config path", "config show", "config get", "config explain",
    "config check", "config schema", "sandbox ls", "sandbox list", "sandbox show", "process ls",
    "process list", "process log", "process wait", "tool ls", "tool list", "approvals ls", "approvals list",
    "approvals grants", "approvals test", "gateway status",
];

/// The commands whose own gate asks.
const WORKS: &[&str] = &["chat", "exec", "shell", "tool call", "process write"];

fn report(command: &str) -> GateReport {
    let person = Person::new("cli:ada");
    let origin = Origin {
        person: person.clone(),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new("s1"),
        attendance: Attendance::Attended(vec![person]),
        place: Place {
            id: PlaceId::new("place-1"),
            backend: BackendName::Local,
            reach: Reach::Host,
            egress: Egress::ALL,
            home: "/home/ada".to_owned(),
            hermes_home: "/home/ada/.hermes".to_owned(),
        },
    };
    let moment = Moment { now: Timestamp::from_seconds(1_000), seed: [7; 16] };
    Gate::default().report(&Job::shell(command, "/home/ada/work"), &origin, moment)
}

/// Every command that is no group of others, by all its names, with its options.
fn commands() -> Vec<(String, Vec<Arg>)> {
    fn collect(command: &Command, path: &str, found: &mut Vec<(String, Vec<Arg>)>) {
        let options = command.get_arguments().filter(|arg| !arg.is_positional()).cloned().collect();
        if path.is_empty() || command.get_subcommands().next().is_none() {
            found.push((path.to_owned(), options));
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            for name in std::iter::once(inner.get_name()).chain(inner.get_all_aliases()) {
                collect(inner, format!("{path} {name}").trim(), found);
            }
        }
    }
    let mut root = Args::command();
    root.build();
    let mut found = Vec::new();
    collect(&root, "", &mut found);
    found
}

/// Every spelling of an option with a separate value or, of a flag, without.
fn spellings(option: &Arg) -> Vec<String> {
    let longs = option.get_long_and_visible_aliases().unwrap_or_default();
    let longs = longs.into_iter().chain(option.get_all_aliases().unwrap_or_default());
    let shorts = option.get_short_and_visible_aliases().unwrap_or_default();
    let shorts = shorts.into_iter().chain(option.get_all_short_aliases().unwrap_or_default());
    // A value that may be missing takes no separate word that could be a command.
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
        && option.get_num_args().is_none_or(|count| count.min_values() > 0);
    let value = if takes_value { " V" } else { "" };
    longs
        .map(|long| format!("--{long}{value}"))
        .chain(shorts.map(|short| format!("-{short}{value}")))
        .collect()
}

#[test]
fn every_command_of_hermes_that_changes_something_is_refused_whatever_options_it_has() {
    let all = commands();
    assert!(all.len() > 40);
    for (path, options) in all.iter().filter(|(path, _)| !path.is_empty()) {
        for option in options.iter().flat_map(spellings) {
            if option.starts_with("--help") || option.starts_with("-h") || option.contains("-V") {
                continue;
            }
            for command in [format!("hermes {option} {path} x y"), format!("hermes {path} {option} x y")] {
                let report = report(&command);
                let agrees = ["--yes", "--live"].contains(&option.as_str());
                let expected = if READS.contains(&path.as_str()) && !agrees {
                    &["allow"][..]
                } else if WORKS.contains(&path.as_str()) && !agrees {
                    &["ask", "allow"][..]
                } else {
                    &["deny"][..]
                };
                assert!(
                    expected.contains(&report.verdict),
                    "{command}: {} {:?}",
                    report.verdict,
                    report.rules
                );
            }
        }
        if !READS.contains(&path.as_str()) && !WORKS.contains(&path.as_str()) {
            for command in [format!("hermes {path}"), format!("hermes --home x -v {path}")] {
                assert_eq!(report(&command).verdict, "deny", "{command}");
            }
        }
    }
}

#[test]
fn the_command_behind_exec_is_found_behind_every_option() {
    for (path, options) in commands().iter().filter(|(path, _)| path == "exec") {
        for option in options.iter().flat_map(spellings).filter(|option| option != "-h" && option != "-V") {
            for command in
                [format!("hermes {path} {option} -- rm -rf /"), format!("hermes {option} {path} 'rm -rf /'")]
            {
                let report = report(&command);
                assert!(
                    report.rules.iter().any(|rule| rule.id == "delete-root" || rule.id == "hermes-policy"),
                    "{command}: {:?}",
                    report.rules
                );
            }
        }
    }
}

#[test]
fn options_in_front_of_a_command_do_not_hide_it() {
    let root = Args::command();
    for option in root.get_arguments().filter(|arg| !arg.is_positional()).flat_map(spellings) {
        for command in ["config set a b", "approvals approve q", "sandbox rm --all"] {
            let command = format!("hermes {option} {command}");
            assert_eq!(report(&command).verdict, "deny", "{command}");
        }
    }
}
