//! Package managers of languages, and the tools that publish packages.

use super::databases::RESETS_SCHEMA;
use super::interpreters::{BUN, NODE_VALUED};
use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["npm"])
        .valued(&["--prefix", "-C", "-w", "--workspace", "--registry", "--tag", "--otp"])
        .names_files()
        .runs(&[Text(&["-c", "--call"]), After("exec", &["-c", "--call", "-p", "--package"], 0)])
        .asks(&[
            PUBLISHES,
            SETTINGS,
            verbs(&["set-script"], "tool-settings"),
            ask("tool-settings", Operand(&["scripts.*"])),
            OPEN_CONNECTION,
            RESETS_SCHEMA,
        ]),
    program(&["yarn"]).names_files().runs(&[After("exec", &[], 0), After("dlx", &["-p"], 0)]).asks(&[
        PUBLISHES,
        verbs(&["npm publish"], "publish"),
        SETTINGS,
        OPEN_CONNECTION,
        RESETS_SCHEMA,
    ]),
    program(&["pnpm"])
        .names_files()
        .runs(&[After("exec", &[], 0), After("dlx", &[], 0)])
        .asks(&[PUBLISHES, SETTINGS, OPEN_CONNECTION, RESETS_SCHEMA]),
    program(&["bun"])
        .valued(NODE_VALUED)
        .runs(&[Interprets(&BUN)])
        .asks(&[PUBLISHES, OPEN_CONNECTION, RESETS_SCHEMA]),
    program(&["npx"]).valued(&["-p", "--package"]).runs(&[Text(&["-c", "--call"]), Behind(0)]),
    program(&["bunx", "pnpx"]).valued(&["-p", "--package"]).runs(&[Behind(0)]),
    program(&["cargo"])
        .valued(&["--config", "-C", "-Z", "--color", "--manifest-path"])
        .names_files()
        .runs(&[Custom(|call, found| {
            if call.verb() == "watch" {
                found.extend(call.values(&["-s", "--shell"]).into_iter().map(Nested::text));
            }
        })])
        .asks(&[
            on(&["publish", "yank", "owner", "login"], "publish", Not(&Flag(&["--list", "-l"]))),
            ask(
                "tool-settings",
                Value(&["--config"], &["*wrapper*", "*runner*", "*linker*", "*credential*"]),
            ),
            OPEN_CONNECTION,
        ]),
    program(&["rustup"]).runs(&[After("run", &[], 1)]),
    program(&["pip", "pip3"]).names_files().asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["uv"])
        .names_files()
        .runs(&[After(
            "run",
            &["--with", "-p", "--python", "--extra", "--group", "--directory", "--project"],
            0,
        )])
        .asks(&[verbs(&["publish"], "publish"), OPEN_CONNECTION]),
    program(&["uvx"]).valued(&["--from", "--with", "-p", "--python"]).runs(&[Behind(0)]),
    program(&["poetry"])
        .names_files()
        .runs(&[After("run", &[], 0)])
        .asks(&[verbs(&["publish"], "publish"), OPEN_CONNECTION]),
    program(&["pdm", "hatch"]).runs(&[After("run", &[], 0)]).asks(&[verbs(&["publish"], "publish")]),
    program(&["pipenv", "rye"]).runs(&[After("run", &[], 0)]),
    program(&["pipx"]).runs(&[After("run", &["--spec", "--python"], 0)]),
    program(&["conda"]).runs(&[After("run", CONDA_VALUED, 0)]).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["mamba", "micromamba"]).runs(&[After("run", CONDA_VALUED, 0)]),
    program(&["gem"]).asks(&[verbs(&["push", "yank", "owner"], "publish"), SETTINGS, OPEN_CONNECTION]),
    program(&["bundle"]).runs(&[After("exec", &[], 0)]).asks(&[SETTINGS]),
    program(&["composer"]).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["go"]).names_files().runs(&[Compiles]).asks(&[
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
