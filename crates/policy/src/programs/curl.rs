//! Web clients.

use super::network::{carries_output, is_local, names_metadata};
use super::*;
use crate::shell::FILE_CONTENT;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["curl"])
        .fetches()
        .key_options(&["-E", "--cert", "--key", "--cacert", "--netrc-file", "-K", "-b", "-c", "--cookie-jar"])
        .inert()
        .files(&[
            writes(Values(&[
                "-o", "--output", "--output-dir", "-c", "--cookie-jar", "-D", "--dump-header", "--trace",
                "--trace-ascii", "--stderr", "--hsts", "--alt-svc", "--etag-save", "--libcurl",
            ])),
            writes(super::coreutils::FILLS_DIRECTORY)
                .when(Flag(&["-O", "--remote-name", "--remote-name-all"])),
        ])
        .asks(&[
            Test(sends).triggers("send-file"),
            Flag(&["-T", "-K", "--config"]).triggers("send-file").unless(Test(is_to_this_machine)),
            DELETES,
            DELETES_EVERYTHING,
            Test(names_metadata).triggers("metadata"),
        ]),
    reader(&["wget", "aria2c", "axel"])
        .fetches()
        .inert()
        .files(&[writes(Values(&[
            "-O", "--output-document", "-P", "--directory-prefix", "-o", "-a", "-d", "--dir",
            "--output-file", "--append-output", "--save-cookies", "--hsts-file", "--warc-file",
            "--rejected-log",
        ]))])
        .runs(&[Text(&["--use-askpass"])])
        .asks(&[
            Test(sends).triggers("send-file"),
            DELETES,
            DELETES_EVERYTHING,
            Test(names_metadata).triggers("metadata"),
            Any(&[
                Flag(&["--use-askpass"]),
                All(&[Flag(&["-e", "--execute"]), Not(&Value(&["-e", "--execute"], &["robots*"]))]),
            ])
            .triggers("tool-settings"),
        ]),
    program(&["fetch", "lynx", "w3m"]).fetches().asks(CLIENT),
    program(&["http", "https", "xh", "httpie"]).fetches().inert().asks(HTTPIE),
];

const DELETES: Ask = Value(&["-X", "--request", "--method"], &["DELETE"])
    .triggers("delete-remote")
    .unless(Test(is_to_this_machine));

const DELETES_EVERYTHING: Ask = All(&[
    Any(&[Value(&["-X", "--request", "--method"], &["DELETE"]), Verb(&["DELETE"])]),
    Test(names_everything),
])
.triggers("delete-remote");

const CLIENT: &[Ask] = &[
    Test(sends).triggers("send-file"),
    DELETES,
    DELETES_EVERYTHING,
    Test(names_metadata).triggers("metadata"),
];

const HTTPIE: &[Ask] = &[
    Test(sends).triggers("send-file"),
    Any(&[Piped, Arg(&["*=@*"]), Test(uploads_field)]).triggers("send-file").unless(Test(is_to_this_machine)),
    Verb(&["DELETE"]).triggers("delete-remote").unless(Test(is_to_this_machine)),
    DELETES,
    DELETES_EVERYTHING,
    Test(names_metadata).triggers("metadata"),
];

/// Options whose value is the body of a request.
const BODIES: &[&str] = &[
    "-d", "--data", "--data-raw", "--data-binary", "--data-ascii", "--data-urlencode", "--json", "-F",
    "--form", "--form-string", "--post-data", "--body-data", "--post-file", "--body-file",
];

fn is_to_this_machine(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|word| is_local(word.prefix()))
}

fn names_everything(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|word| fits_any(&word.outline(), &["*/_all*"]) || word.outline().ends_with("/*"))
}

/// `name@file`, as HTTPie writes it.
fn uploads_field(call: &Invocation<'_>) -> bool {
    let fields = call.args.iter().filter_map(|word| word.prefix().split_once('@'));
    fields.into_iter().any(|(field, _)| !field.is_empty() && !field.contains(['/', ':']))
}

fn carries_secret(word: &Word) -> bool {
    let parts =
        ["*SECRET*", "*PASSWORD*", "*PASSWD*", "*PRIVATE*", "*CREDENTIAL*", "*AWS_*", "*_KEY*", "*TOKEN*"];
    word.variables().any(|name| fits_any(name, &parts))
}

/// Options whose value may be a file, as `@file`.
const HEADERS: &[&str] = &["-H", "--header", "--proxy-header"];
/// Options whose value may be `name@file`.
const NAMED_FILES: &[&str] = &["--url-query", "--variable", "--expand-data", "--expand-url"];

/// The long options of bodies that a command abbreviates, as curl allows.
fn abbreviated_bodies<'a>(call: &Invocation<'a>) -> Vec<&'a str> {
    let options = call.args.iter().filter_map(Word::known).filter_map(|word| word.split('=').next());
    let is_short_for = |option: &str, body: &str| body.starts_with(option) && body.starts_with("--");
    options
        .filter(|option| option.len() > 3 && BODIES.iter().any(|body| is_short_for(option, body)))
        .collect()
}

/// Whether a request carries a file, the output of another program or a secret away.
fn sends(call: &Invocation<'_>) -> bool {
    let mut bodies = call.values(BODIES);
    bodies.extend(call.values(&abbreviated_bodies(call)));
    let in_address =
        |test: fn(&Word) -> bool| call.args.iter().any(|word| word.prefix().contains("://") && test(word));
    let file = bodies.iter().any(|body| {
        let text = body.outline();
        fits_any(&text, &["@*", "*=@*", "*=<*"])
            || text.contains('@') && call.has(&["--data-urlencode"]) && !text.contains(' ')
    }) || call.values(HEADERS).iter().any(|value| value.prefix().starts_with('@'))
        || call.values(NAMED_FILES).iter().any(|value| value.outline().contains('@'))
        || call.args.iter().any(|word| {
            let option = word.prefix().split('=').next().unwrap_or_default();
            matches!(option, "--post-file" | "--body-file" | "-T" | "--upload-file")
        });
    let secret = bodies.iter().any(carries_secret) || in_address(carries_secret);
    let output = bodies.iter().any(carries_output) || in_address(carries_output);
    let headers = call.values(&[
        "-H", "--header", "-A", "--user-agent", "-b", "--cookie", "-e", "--referer", "-u", "--user",
    ]);
    let printers = ["cat", "base64", "env", "printenv", "xxd", "tar", "gzip", "openssl", "gpg", FILE_CONTENT];
    let header = headers.iter().flat_map(Word::output_of).any(|program| printers.contains(&program));
    if is_to_this_machine(call) && !secret {
        return header && output;
    }
    file || output || secret || header
}
