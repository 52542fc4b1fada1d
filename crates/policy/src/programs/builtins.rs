//! Commands of the shell itself.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["command"]).names_files().runs(&[Custom(|call, found| {
        if !OwnFlag(&["-v", "-V"]).holds(call) {
            nested_behind(call, 0, found);
        }
    })]),
    program(&["builtin", "coproc"]).runs(&[Behind(0)]),
    program(&["exec"]).valued(&["-a"]).runs(&[Behind(0)]),
    program(&["eval"])
        .names_files()
        .runs(&[Custom(|call, found| found.push(Nested::text(Word::joined(call.args))))]),
    program(&["source", "."]).reads_outside().runs(&[Custom(|call, found| {
        found.extend(call.args.first().map(|file| Nested::File(Language::Shell, file.clone())));
    })]),
    program(&["trap"]).names_files().runs(&[Custom(|call, found| {
        found.extend(call.args.iter().find(|word| word.prefix() != "--").cloned().map(Nested::text));
    })]),
    program(&["alias"])
        .names_files()
        .runs(&[Custom(|call, found| {
            found.extend(call.args.iter().filter_map(|word| word.after('=')).map(Nested::text));
        })])
        .asks(&[Arg(&["sudo=*"]).triggers("redefine-sudo")]),
    program(&["export", "declare"]).names_files().inert().runs(&[Custom(variables)]).asks(&[DUMPS]),
    program(&["typeset", "readonly", "local"]).names_files().inert().runs(&[Custom(variables)]),
    program(&["set"]).names_files().inert().asks(&[DUMPS]),
    program(&["printenv"]).inert().asks(&[DUMPS]),
    program(&["hash"]).asks(&[Flag(&["-p"]).triggers("shell-hooks")]),
    program(&["enable"]).asks(&[Flag(&["-f"]).triggers("shell-hooks")]),
    program(&["bind"]).asks(&[Flag(&["-x", "-f"]).triggers("shell-hooks")]),
    program(&["complete"]).inert().asks(&[Flag(&["-C", "-F"]).triggers("shell-hooks")]),
    program(&["history"])
        .reads_files()
        .inert()
        .asks(&[Flag(&["-c", "-d", "-w", "-r"]).triggers("audit-trail")]),
    program(&["read"]).reads_files().inert(),
    program(&["fc", "mapfile"]).reads_files(),
    program(&["type", "unset", "cd", "test", "[", ":"]).names_files().inert(),
    program(&["help"]).inert(),
    program(&["pushd", "wait", "for", "exit", "return"]).names_files(),
];

pub(super) const DUMPS: Ask = Test(dumps_variables).triggers("dump-environment");

/// Whether all variables are printed into a file.
fn dumps_variables(call: &Invocation<'_>) -> bool {
    let whole = match call.args {
        [] => true,
        [only] => matches!(only.known(), Some("-p" | "-x" | "-0")),
        _ => false,
    };
    whole && call.segment.redirects.iter().any(|redirect| redirect.operator.is_output())
}

fn variables(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for (name, value) in call.args.iter().filter_map(Word::as_assignment) {
        nested_variable(&name, &value, found);
    }
}
