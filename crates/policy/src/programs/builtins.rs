//! Commands of the shell itself.

use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    program(&["command"]).arguments(ArgumentUse::Named).runs(&[Runs::Custom(command)]),
    program(&["builtin", "coproc"]).runs(&[Runs::Behind(0)]),
    program(&["exec"]).valued(&["-a"]).runs(&[Runs::Behind(0)]),
    program(&["eval"]).arguments(ArgumentUse::Named).runs(&[Runs::Custom(eval)]),
    program(&["source", "."]).arguments(ArgumentUse::ReadOutside).runs(&[Runs::Custom(source)]),
    program(&["trap"]).arguments(ArgumentUse::Named).runs(&[Runs::Custom(trap)]),
    program(&["alias"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::Custom(alias)])
        .asks(&[ask("redefine-sudo", Arg(&["sudo=*"]))]),
    program(&["export", "declare"])
        .arguments(ArgumentUse::Named)
        .never_runs_words()
        .runs(&[Runs::Custom(variables)])
        .asks(&[ask("dump-environment", Test(dumps_variables))]),
    program(&["typeset", "readonly", "local"])
        .arguments(ArgumentUse::Named)
        .never_runs_words()
        .runs(&[Runs::Custom(variables)]),
    program(&["set"])
        .arguments(ArgumentUse::Named)
        .never_runs_words()
        .asks(&[ask("dump-environment", Test(dumps_variables))]),
    program(&["printenv"]).never_runs_words().asks(&[ask("dump-environment", Test(dumps_variables))]),
    program(&["hash"]).asks(&[ask("shell-hooks", Flag(&["-p"]))]),
    program(&["enable"]).asks(&[ask("shell-hooks", Flag(&["-f"]))]),
    program(&["bind"]).asks(&[ask("shell-hooks", Flag(&["-x", "-f"]))]),
    program(&["complete"]).never_runs_words().asks(&[ask("shell-hooks", Flag(&["-C", "-F"]))]),
    program(&["history"])
        .arguments(ArgumentUse::Read)
        .never_runs_words()
        .asks(&[ask("audit-trail", Flag(&["-c", "-d", "-w", "-r"]))]),
    program(&["read"]).arguments(ArgumentUse::Read).never_runs_words(),
    program(&["fc", "mapfile"]).arguments(ArgumentUse::Read),
    program(&["type", "unset", "cd", "test", "[", ":"]).arguments(ArgumentUse::Named).never_runs_words(),
    program(&["help"]).never_runs_words(),
    program(&["pushd", "wait", "for", "exit", "return"]).arguments(ArgumentUse::Named),
];

/// Whether all variables are printed into a file.
pub(super) fn dumps_variables(call: &Invocation<'_>) -> bool {
    let whole = match call.args {
        [] => true,
        [only] => matches!(only.known(), Some("-p" | "-x" | "-0")),
        _ => false,
    };
    let writes = |operator| {
        matches!(operator, RedirectOperator::Write | RedirectOperator::Append | RedirectOperator::Both)
    };
    whole && call.segment.redirects.iter().any(|redirect| writes(redirect.operator))
}

fn command(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if !OwnFlag(&["-v", "-V"]).holds(call) {
        nested_behind(call, 0, found);
    }
}

fn eval(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    found.push(Nested::text(joined(call.args)));
}

fn source(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    found.extend(call.args.first().map(|file| Nested::File(Language::Shell, file.clone())));
}

fn trap(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    found.extend(call.args.iter().find(|word| word.prefix() != "--").cloned().map(Nested::text));
}

fn alias(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    found.extend(call.args.iter().filter_map(|word| word.after('=')).map(Nested::text));
}

fn variables(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for word in call.args {
        if let (Some((name, _)), Some(value)) = (word.prefix().split_once('='), word.after('=')) {
            nested_variable(name, &value, found);
        }
    }
}
