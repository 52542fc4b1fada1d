//! Package managers of languages, and the tools that publish packages.

use super::databases::RESETS_SCHEMA;
use super::interpreters::{BUN, NODE_VALUED};
use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    program(&["npm"])
        .valued(&["--prefix", "-C", "-w", "--workspace", "--registry", "--tag", "--otp"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::Text(&["-c", "--call"]), Runs::After("exec", &["-c", "--call", "-p", "--package"], 0)])
        .asks(&[
            PUBLISHES,
            SETTINGS,
            verbs(&["set-script"], "tool-settings"),
            ask("tool-settings", Operand(&["scripts.*"])),
            OPEN_CONNECTION,
            RESETS_SCHEMA,
        ]),
    program(&["yarn"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::After("exec", &[], 0), Runs::After("dlx", &["-p"], 0)])
        .asks(&[PUBLISHES, verbs(&["npm publish"], "publish"), SETTINGS, OPEN_CONNECTION, RESETS_SCHEMA]),
    program(&["pnpm"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::After("exec", &[], 0), Runs::After("dlx", &[], 0)])
        .asks(&[PUBLISHES, SETTINGS, OPEN_CONNECTION, RESETS_SCHEMA]),
    program(&["bun"])
        .valued(NODE_VALUED)
        .runs(&[Runs::Interprets(&BUN)])
        .asks(&[PUBLISHES, OPEN_CONNECTION, RESETS_SCHEMA]),
    program(&["npx"]).valued(&["-p", "--package"]).runs(&[Runs::Text(&["-c", "--call"]), Runs::Behind(0)]),
    program(&["bunx", "pnpx"]).valued(&["-p", "--package"]).runs(&[Runs::Behind(0)]),
    program(&["cargo"])
        .valued(&["--config", "-C", "-Z", "--color", "--manifest-path"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::Custom(cargo_watch)])
        .asks(&[
            on(&["publish", "yank", "owner", "login"], "publish", Not(&Flag(&["--list", "-l"]))),
            ask(
                "tool-settings",
                Value(&["--config"], &["*wrapper*", "*runner*", "*linker*", "*credential*"]),
            ),
            OPEN_CONNECTION,
        ]),
    program(&["rustup"]).runs(&[Runs::After("run", &[], 1)]),
    program(&["pip", "pip3"]).arguments(ArgumentUse::Named).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["uv"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::After(
            "run",
            &["--with", "-p", "--python", "--extra", "--group", "--directory", "--project"],
            0,
        )])
        .asks(&[verbs(&["publish"], "publish"), OPEN_CONNECTION]),
    program(&["uvx"]).valued(&["--from", "--with", "-p", "--python"]).runs(&[Runs::Behind(0)]),
    program(&["poetry"])
        .arguments(ArgumentUse::Named)
        .runs(&[Runs::After("run", &[], 0)])
        .asks(&[verbs(&["publish"], "publish"), OPEN_CONNECTION]),
    program(&["pdm", "hatch"]).runs(&[Runs::After("run", &[], 0)]).asks(&[verbs(&["publish"], "publish")]),
    program(&["pipenv", "rye"]).runs(&[Runs::After("run", &[], 0)]),
    program(&["pipx"]).runs(&[Runs::After("run", &["--spec", "--python"], 0)]),
    program(&["conda"]).runs(&[Runs::After("run", CONDA_VALUED, 0)]).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["mamba", "micromamba"]).runs(&[Runs::After("run", CONDA_VALUED, 0)]),
    program(&["gem"]).asks(&[verbs(&["push", "yank", "owner"], "publish"), SETTINGS, OPEN_CONNECTION]),
    program(&["bundle"]).runs(&[Runs::After("exec", &[], 0)]).asks(&[SETTINGS]),
    program(&["composer"]).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["go"]).arguments(ArgumentUse::Named).runs(&[Runs::Compiles]).asks(&[
        on(
            &["env"],
            "tool-settings",
            All(&[
                Flag(&["-w"]),
                Operand(&["CC=*", "CXX=*", "GOFLAGS=*", "GOPROXY=*", "GONOSUMDB=*", "GOTOOLCHAIN=*"]),
            ]),
        ),
        OPEN_CONNECTION,
    ]),
    program(&["flit", "jsr", "lerna"]).asks(&[verbs(&["publish"], "publish")]),
    program(&["vsce", "ovsx"]).asks(&[verbs(&["publish", "unpublish"], "publish")]),
    program(&["twine", "stack", "cabal"]).asks(&[verbs(&["upload"], "publish")]),
    program(&["dart", "flutter"]).asks(&[ask("publish", Operand(&["publish"]))]),
    program(&["mvn"]).asks(&[ask("publish", Operand(&["deploy*", "release:*"]))]),
    program(&["gradle"])
        .asks(&[ask("publish", All(&[Operand(&["publish*"]), Not(&Operand(&["*MavenLocal*"]))]))]),
    program(&["nuget"]).asks(&[verbs(&["push", "delete"], "publish")]),
    program(&["dotnet"]).asks(&[verbs(&["nuget push", "nuget delete"], "publish"), RESETS_SCHEMA]),
    program(&["mix"]).asks(&[verbs(&["hex.publish"], "publish"), RESETS_SCHEMA]),
    program(&["pod"]).asks(&[verbs(&["trunk"], "publish")]),
    program(&["goreleaser"]).asks(&[ask("publish", Any(&[Verb(&["release"]), NoOperands]))]),
    program(&["semantic-release"]).asks(&[always("publish")]),
];

const CONDA_VALUED: &[&str] = &["-n", "-p", "--name", "--prefix", "--cwd"];

const PUBLISHES: Ask = ask(
    "publish",
    All(&[
        Verb(&[
            "publish", "unpublish", "deprecate", "owner", "access", "dist-tag", "token", "adduser", "login",
        ]),
        Not(&Verb(&["* ls", "* list", "* info"])),
    ]),
);

/// Settings that decide what is run, where packages come from, or who is trusted.
const SETTINGS: Ask = ask(
    "tool-settings",
    All(&[
        Verb(&["config set", "config add", "config edit"]),
        Operand(&[
            "*shell*", "*prefix*", "*ignore-scripts*", "*registry*", "*onload-script*", "*git*",
            "*globalconfig*", "*userconfig*", "*_auth*", "*index-url*", "*trusted-host*", "*yarnpath*",
            "*plugins*", "*token*", "*node-options*", "*editor*", "*viewer*", "*init-module*", "*cafile*",
            "*strict-ssl*",
        ]),
    ]),
);

const OPEN_CONNECTION: Ask = ask("packages-elsewhere", Test(uses_open_connection));

fn uses_open_connection(call: &Invocation<'_>) -> bool {
    call.args.iter().map(|word| word.prefix()).any(|word| {
        let address = word.split_once('=').map_or(word, |(_, value)| value);
        word.contains("http://") && !super::network::is_local(address)
    })
}

fn cargo_watch(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    if call.verb() == "watch" {
        found.extend(call.values(&["-s", "--shell"]).into_iter().map(Nested::text));
    }
}
