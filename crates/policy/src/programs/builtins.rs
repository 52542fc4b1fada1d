//! Commands of the shell itself.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["command"]).runs(&[Custom(|call, found| {
        if !OwnFlag(&["-v", "-V"]).holds(call) {
            nested_behind(call, 0, found);
        }
    })]),
    program(&["builtin", "coproc"]).runs(&[Behind(0)]),
    program(&["exec"]).valued(&["-a"]).runs(&[Behind(0)]),
    non_reader(&["eval"]).runs(&[Custom(|call, found| found.push(Nested::text(Word::joined(call.args))))]),
    program(&["source", "."]).reads_outside().runs(&[Custom(|call, found| {
        found.extend(call.args.first().map(|file| Nested::File(Language::Shell, file.clone())));
    })]),
    non_reader(&["trap"]).runs(&[Custom(|call, found| {
        found.extend(call.args.iter().find(|word| word.prefix() != "--").cloned().map(Nested::text));
    })]),
    non_reader(&["alias"])
        .runs(&[Custom(|call, found| {
            found.extend(call.args.iter().filter_map(|word| word.after('=')).map(Nested::text));
        })])
        .asks(&[Arg(&["sudo=*"]).triggers("redefine-sudo")]),
    non_reader(&["export", "declare"])
        .inert()
        .files(&[writes(Computed(super::git::exported_traces))])
        .runs(&[Custom(variables)])
        .asks(&[DUMPS]),
    non_reader(&["typeset", "readonly", "local"]).inert().runs(&[Custom(variables)]),
    non_reader(&["set"]).inert().asks(&[
        DUMPS,
        Any(&[Flag(&["-k", "-H"]), Value(&["-o"], &["keyword", "histexpand"])]).triggers("shell-hooks"),
    ]),
    program(&["printenv"]).inert().asks(&[DUMPS]),
    program(&["hash"]).asks(&[Flag(&["-p"]).triggers("shell-hooks")]),
    program(&["enable"]).asks(&[Flag(&["-f", "-n", "-d"]).triggers("shell-hooks")]),
    program(&["bind"]).asks(&[Flag(&["-x", "-f"]).triggers("shell-hooks")]),
    program(&["complete"]).inert().asks(&[Flag(&["-C", "-F"]).triggers("shell-hooks")]),
    reader(&["history"]).inert().asks(&[Flag(&["-c", "-d", "-w", "-r", "-a"]).triggers("audit-trail")]),
    reader(&["read"]).inert(),
    program(&["fc"]).asks(&[always("shell-hooks").unless(Flag(&["-l"]))]),
    reader(&["mapfile"]),
    non_reader(&["type", "unset", "cd", "test", "[", ":"]).inert(),
    program(&["help"]).inert(),
    non_reader(&["pushd", "wait", "for", "exit", "return"]),
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
