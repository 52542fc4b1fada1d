//! Package managers of languages, and the tools that publish packages.

use super::databases::RESETS_SCHEMA;
use super::interpreters::{BUN, NODE_VALUED};
use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["npm"])
        .valued(&["--prefix", "-C", "-w", "--workspace", "--registry", "--tag", "--otp"])
        .files(&[adds(Computed(global_programs)).when(Flag(&["-g", "--global"]))])
        .runs(&[Text(&["-c", "--call"]), After("exec", &["-c", "--call", "-p", "--package"], 0)])
        .asks(&[
            PUBLISHES,
            SETTINGS,
            Verb(&["set-script"]).triggers("tool-settings"),
            Operand(&["scripts.*"]).triggers("tool-settings"),
            OPEN_CONNECTION,
            RESETS_SCHEMA,
            REMOTE_CODE.on(&["exec", "x", "create", "init", "innit"]),
        ]),
    non_reader(&["yarn"]).runs(&[After("exec", &[], 0), After("dlx", &["-p"], 0)]).asks(&[
        PUBLISHES,
        Verb(&["npm publish"]).triggers("publish"),
        SETTINGS,
        OPEN_CONNECTION,
        RESETS_SCHEMA,
        REMOTE_CODE.on(&["dlx", "create"]),
    ]),
    non_reader(&["pnpm"]).runs(&[After("exec", &[], 0), After("dlx", &[], 0)]).asks(&[
        PUBLISHES,
        SETTINGS,
        OPEN_CONNECTION,
        RESETS_SCHEMA,
        REMOTE_CODE.on(&["dlx", "create"]),
    ]),
    program(&["bun"]).valued(NODE_VALUED).runs(&[Interprets(&BUN)]).asks(&[
        PUBLISHES,
        OPEN_CONNECTION,
        RESETS_SCHEMA,
        REMOTE_CODE.on(&["x", "create"]),
    ]),
    program(&["npx"])
        .valued(&["-p", "--package"])
        .runs(&[Text(&["-c", "--call"]), Behind(0)])
        .asks(&[REMOTE_CODE]),
    program(&["bunx", "pnpx"]).valued(&["-p", "--package"]).runs(&[Behind(0)]).asks(&[REMOTE_CODE]),
    non_reader(&["cargo"])
        .valued(&["--config", "-C", "-Z", "--color", "--manifest-path"])
        .runs(&[Custom(|call, found| {
            if call.verb() == "watch" {
                found.extend(call.values(&["-s", "--shell"]).into_iter().map(Nested::text));
            }
        })])
        .asks(&[
            always("publish").unless(Flag(&["--list", "-l"])).on(&["publish", "yank", "owner", "login"]),
            Value(&["--config"], &["*wrapper*", "*runner*", "*linker*", "*credential*"])
                .triggers("tool-settings"),
            OPEN_CONNECTION,
        ]),
    program(&["rustup"]).runs(&[After("run", &[], 1)]),
    non_reader(&["pip", "pip3"])
        .files(&[
            reads(Values(&["-r", "-c", "--requirement", "--constraint"])),
            adds(Computed(|_| vec![Word::literal("~/.local/bin/file")]))
                .when(All(&[Verb(&["install"]), Flag(&["--user"])])),
        ])
        .asks(&[SETTINGS, OPEN_CONNECTION]),
    non_reader(&["uv"])
        .runs(&[After(
            "run",
            &["--with", "-p", "--python", "--extra", "--group", "--directory", "--project"],
            0,
        )])
        .asks(&[Verb(&["publish"]).triggers("publish"), OPEN_CONNECTION, REMOTE_CODE.on(&["tool run"])]),
    program(&["uvx"]).valued(&["--from", "--with", "-p", "--python"]).runs(&[Behind(0)]).asks(&[REMOTE_CODE]),
    non_reader(&["poetry"])
        .runs(&[After("run", &[], 0)])
        .asks(&[Verb(&["publish"]).triggers("publish"), OPEN_CONNECTION]),
    program(&["pdm", "hatch"]).runs(&[After("run", &[], 0)]).asks(&[Verb(&["publish"]).triggers("publish")]),
    program(&["pipenv", "rye"]).runs(&[After("run", &[], 0)]),
    program(&["pipx"]).runs(&[After("run", &["--spec", "--python"], 0)]).asks(&[REMOTE_CODE.on(&["run"])]),
    program(&["conda"]).runs(&[After("run", CONDA_VALUED, 0)]).asks(&[SETTINGS, OPEN_CONNECTION]),
    program(&["mamba", "micromamba"]).runs(&[After("run", CONDA_VALUED, 0)]),
    program(&["gem"]).asks(&[
        Verb(&["push", "yank", "owner"]).triggers("publish"),
        SETTINGS,
        OPEN_CONNECTION,
    ]),
    program(&["bundle"]).runs(&[After("exec", &[], 0)]).asks(&[SETTINGS]),
    program(&["composer"]).asks(&[SETTINGS, OPEN_CONNECTION]),
    non_reader(&["go"]).files(&[writes(Values(&["-o"]))]).runs(&[Compiles]).asks(&[
        All(&[
            Flag(&["-w"]),
            Operand(&["CC=*", "CXX=*", "GOFLAGS=*", "GOPROXY=*", "GONOSUMDB=*", "GOTOOLCHAIN=*"]),
        ])
        .triggers("tool-settings")
        .on(&["env"]),
        OPEN_CONNECTION,
        Test(runs_floating_module).triggers("remote-code").on(&["run"]),
    ]),
    program(&["flit", "jsr", "lerna"]).asks(&[Verb(&["publish"]).triggers("publish")]),
    program(&["vsce", "ovsx"]).asks(&[Verb(&["publish", "unpublish"]).triggers("publish")]),
    program(&["twine", "stack", "cabal"]).asks(&[Verb(&["upload"]).triggers("publish")]),
    program(&["dart", "flutter"]).asks(&[Operand(&["publish"]).triggers("publish")]),
    program(&["mvn"]).asks(&[Operand(&["deploy*", "release:*"]).triggers("publish")]),
    program(&["gradle"])
        .asks(&[Operand(&["publish*"]).triggers("publish").unless(Operand(&["*MavenLocal*"]))]),
    program(&["nuget"]).asks(&[Verb(&["push", "delete"]).triggers("publish")]),
    program(&["dotnet"]).asks(&[Verb(&["nuget push", "nuget delete"]).triggers("publish"), RESETS_SCHEMA]),
    program(&["mix"]).asks(&[Verb(&["hex.publish"]).triggers("publish"), RESETS_SCHEMA]),
    program(&["pod"]).asks(&[Verb(&["trunk"]).triggers("publish")]),
    program(&["goreleaser"]).asks(&[Any(&[Verb(&["release"]), NoOperands]).triggers("publish")]),
    program(&["semantic-release"]).asks(&[always("publish")]),
];

/// Packages that are downloaded and run.
///
/// A bare name may be a tool of the project (`npx tsc`) or one that is already installed, which the
/// words do not tell. A name with a version is pinned. Both run without a question, as
/// `npm install` does, and on this machine the guard keeps the owner's keys from them. A tag such
/// as `@latest` means new code at every run, and an address means code from anywhere.
/// The programs that `npm install -g --prefix` adds.
fn global_programs(call: &Invocation<'_>) -> Vec<Word> {
    let directories = call.values(&["--prefix"]);
    directories.iter().map(|directory| directory.followed_by(&Word::literal("/bin/file"))).collect()
}

const REMOTE_CODE: Ask = Test(runs_unpinned_package).triggers("remote-code");

/// Options whose value is a package to run.
const PACKAGE_OPTIONS: &[&str] = &["-p", "--package", "--from", "--with", "--spec"];

fn runs_unpinned_package(call: &Invocation<'_>) -> bool {
    let named = call.values(PACKAGE_OPTIONS);
    // Behind `uv tool`.
    let is_verb = |word: &&Word| word.known() == Some("run");
    let first = operands(call.args, PACKAGE_OPTIONS).into_iter().find(|word| !is_verb(word));
    named.iter().chain(first).any(|word| is_unpinned(&word.outline()))
}

fn is_unpinned(package: &str) -> bool {
    let is_address = package.contains("://")
        || ["git+", "git@", "github:", "gitlab:", "bitbucket:", "gist:"]
            .iter()
            .any(|start| package.starts_with(start))
        || package.split(" @ ").nth(1).is_some_and(|rest| rest.contains(':'))
        || [".tgz", ".tar.gz"].iter().any(|end| package.ends_with(end));
    let is_path = package.starts_with(['.', '/', '~']);
    // `owner/repository` is one of GitHub; `@scope/name` is a package.
    let is_repository = !is_path && !package.starts_with('@') && package.contains('/');
    is_address || is_repository || (!is_path && has_floating_tag(package))
}

/// Whether a version is the name of whatever is newest.
fn has_floating_tag(package: &str) -> bool {
    let scope = usize::from(package.starts_with('@'));
    let tag = package.get(scope..).and_then(|name| name.split_once('@')).map(|(_, tag)| tag);
    tag.is_some_and(|tag| {
        !tag.trim_start_matches(['^', '~', '=', 'v']).starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Whether `go run` gets a package of another module in whatever version is newest.
fn runs_floating_module(call: &Invocation<'_>) -> bool {
    let package = operands(call.args, GO_RUN_VALUED).into_iter().next();
    package.is_some_and(|word| has_floating_tag(&word.outline()))
}

const GO_RUN_VALUED: &[&str] =
    &["-exec", "-C", "-tags", "-ldflags", "-gcflags", "-mod", "-modfile", "-p", "-o"];

const CONDA_VALUED: &[&str] = &["-n", "-p", "--name", "--prefix", "--cwd"];

const PUBLISHES: Ask =
    Verb(&["publish", "unpublish", "deprecate", "owner", "access", "dist-tag", "token", "adduser", "login"])
        .triggers("publish")
        .unless(Verb(&["* ls", "* list", "* info"]));

/// Settings that decide what is run, where packages come from, or who is trusted.
const SETTINGS: Ask = All(&[
    Verb(&["config set", "config add", "config edit"]),
    Operand(&[
        "*shell*", "*prefix*", "*ignore-scripts*", "*registry*", "*onload-script*", "*git*",
        "*globalconfig*", "*userconfig*", "*_auth*", "*index-url*", "*trusted-host*", "*yarnpath*",
        "*plugins*", "*token*", "*node-options*", "*editor*", "*viewer*", "*init-module*", "*cafile*",
        "*strict-ssl*",
    ]),
])
.triggers("tool-settings");

const OPEN_CONNECTION: Ask = Test(uses_open_connection).triggers("packages-elsewhere");

fn uses_open_connection(call: &Invocation<'_>) -> bool {
    call.args.iter().map(|word| word.prefix()).any(|word| {
        let address = word.split_once('=').map_or(word, |(_, value)| value);
        word.contains("http://") && !super::network::is_local(address)
    })
}
