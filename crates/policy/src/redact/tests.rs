//! Tables first, then properties that hold for any text.

use proptest::prelude::*;

use super::*;

/// Made up for these tests; the punctuation makes every encoding differ from the plain text.
const ODD: &str = "p@ss/w+rd \"é\"=9&<x>";
const TOKEN: &str = "zq81mvTTe0Lr55";

fn redactor(secrets: &[&str]) -> Redactor {
    let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
    Redactor::new(&secrets)
}

/// A token with `n` more characters, put together here so that no scanner takes this file for a
/// leak.
fn fake(prefix: &str, n: usize) -> String {
    format!("{prefix}{}", "a1B2c3D4e5F6g7H8i9J0".chars().cycle().take(n).collect::<String>())
}

/// `base32` of the value with 0 to 5 characters before it.
const BASE32: &[(&str, &str)] = &[
    ("PJYTQMLNOZKFIZJQJRZDKNI=", "[redacted]"),
    ("PB5HCOBRNV3FIVDFGBGHENJV", "PB[redacted]"),
    ("PB4XU4JYGFWXMVCUMUYEY4RVGU======", "PB4X[redacted]"),
    ("PB4XU6TRHAYW25SUKRSTATDSGU2Q====", "PB4XU[redacted]"),
    ("O54HS6T2OE4DC3LWKRKGKMCMOI2TK===", "O54HS6T[redacted]"),
    ("OZ3XQ6L2PJYTQMLNOZKFIZJQJRZDKNI=", "OZ3XQ6L2[redacted]"),
];

#[test]
fn a_known_value_is_removed_in_every_form() {
    let redactor = redactor(&[ODD, TOKEN]);
    for (text, expected) in [
        (format!("key is {ODD}."), "key is [redacted]."),
        (format!("key is {TOKEN}."), "key is [redacted]."),
        (format!("{TOKEN}{TOKEN}"), "[redacted][redacted]"),
        ("hex 7a7138316d76545465304c723535 end".into(), "hex [redacted] end"),
        ("hex 7A7138316D76545465304C723535 end".into(), "hex [redacted] end"),
        (r#"{"v":"p@ss/w+rd \"é\"=9&<x>"}"#.into(), r#"{"v":"[redacted]"}"#),
        (r#"{"v":"p@ss/w+rd \"\u00e9\"=9&<x>"}"#.into(), r#"{"v":"[redacted]"}"#),
        (r#"{"v":"p@ss\/w+rd \"é\"=9&<x>"}"#.into(), r#"{"v":"[redacted]"}"#),
        (r#"{"v":"p@ss/w+rd \"é\"=9\u0026\u003cx\u003e"}"#.into(), r#"{"v":"[redacted]"}"#),
        ("/p%40ss%2Fw%2Brd%20%22%C3%A9%22%3D9%26%3Cx%3E?".into(), "/[redacted]?"),
        ("/p%40ss%2fw%2brd%20%22%c3%a9%22%3d9%26%3cx%3e?".into(), "/[redacted]?"),
        ("/p%40ss/w%2Brd%20%22%C3%A9%22%3D9%26%3Cx%3E?".into(), "/[redacted]?"),
        ("a=p%40ss%2Fw%2Brd+%22%C3%A9%22%3D9%26%3Cx%3E&b".into(), "a=[redacted]&b"),
        ("%7A%71%38%31%6D%76%54%54%65%30%4C%72%35%35".into(), "[redacted]"),
    ] {
        assert_eq!(redactor.redact(&text), expected, "{text}");
    }
}

#[test]
fn a_known_value_is_removed_from_base64_at_every_alignment() {
    let redactor = redactor(&[TOKEN]);
    // `base64` of the value with 0, 1, 2 and 3 characters before it and none, or ` tail`, after it.
    for (text, expected) in [
        ("enE4MW12VFRlMExyNTU=", "[redacted]"),
        ("enE4MW12VFRlMExyNTU", "[redacted]"),
        ("eHpxODFtdlRUZTBMcjU1", "eH[redacted]"),
        ("eHl6cTgxbXZUVGUwTHI1NQ==", "eHl[redacted]"),
        ("eHl6enE4MW12VFRlMExyNTU=", "eHl6[redacted]"),
        ("enE4MW12VFRlMExyNTUgdGFpbA==", "[redacted]gdGFpbA=="),
    ] {
        assert_eq!(redactor.redact(text), expected, "{text}");
    }
    let odd = self::redactor(&["~~~???>>>~~~"]);
    assert_eq!(odd.redact("a fn5+Pz8/Pj4+fn5+ b"), "a [redacted] b");
    assert_eq!(odd.redact("a fn5-Pz8_Pj4-fn5- b"), "a [redacted] b");
}

#[test]
fn a_known_value_is_removed_from_encoded_text_broken_into_lines() {
    let redactor = redactor(&[TOKEN]);
    for encoded in ["eHpxODFtdlRUZTBMcjU1", "7a7138316d76545465304c723535"] {
        let whole = redactor.redact(encoded).into_owned();
        for cut in 3..encoded.len() {
            let (before, after) = encoded.split_at(cut);
            assert_eq!(redactor.redact(&format!("{before}\n{after}")), whole, "cut at {cut}");
        }
    }
}

/// Each line is the output of the command for a file with `log: zq81mvTTe0Lr55 end`.
#[test]
fn a_known_value_is_removed_from_dumps() {
    let redactor = redactor(&[TOKEN]);
    for (command, dump) in [
        (
            "xxd",
            "00000000: 6c6f 673a 207a 7138 316d 7654 5465 304c  log: zq81mvTTe0L\n00000010: 7235 3520 656e 64                        r55 end\n",
        ),
        (
            "hexdump -C",
            "00000000  6c 6f 67 3a 20 7a 71 38  31 6d 76 54 54 65 30 4c  |log: zq81mvTTe0L|\n00000010  72 35 35 20 65 6e 64                              |r55 end|\n00000017\n",
        ),
        (
            "hexdump",
            "0000000 6f6c 3a67 7a20 3871 6d31 5476 6554 4c30\n0000010 3572 2035 6e65 0064                    \n0000017\n",
        ),
        (
            "od",
            "0000000 067554 035147 075040 034161 066461 052166 062524 046060\n0000020 032562 020065 067145 000144\n0000027\n",
        ),
        ("od -An -tx1", " 6c 6f 67 3a 20 7a 71 38 31 6d 76 54 54 65 30 4c\n 72 35 35 20 65 6e 64\n"),
        (
            "od -b",
            "0000000 154 157 147 072 040 172 161 070 061 155 166 124 124 145 060 114\n0000020 162 065 065 040 145 156 144\n0000027\n",
        ),
        (
            "od -c",
            "0000000   l   o   g   :       z   q   8   1   m   v   T   T   e   0   L\n0000020   r   5   5       e   n   d\n0000027\n",
        ),
        (
            "od -tu1",
            "0000000 108 111 103  58  32 122 113  56  49 109 118  84  84 101  48  76\n0000020 114  53  53  32 101 110 100\n0000027\n",
        ),
        (
            "xxd -i",
            "  0x6c, 0x6f, 0x67, 0x3a, 0x20, 0x7a, 0x71, 0x38, 0x31, 0x6d, 0x76, 0x54,\n  0x54, 0x65, 0x30, 0x4c, 0x72, 0x35, 0x35, 0x20, 0x65, 0x6e, 0x64\n",
        ),
    ] {
        let shown = redactor.redact(&format!("$ {command}\n{dump}$ ls\n")).into_owned();
        assert!(
            shown.starts_with(&format!("$ {command}\n[redacted]\n")) && shown.ends_with("$ ls\n"),
            "{shown}"
        );
        let left = shown.replace(command, "");
        assert!(
            !["7a", "7138", "r55", "172", "122", "075040", " z "].iter().any(|part| left.contains(part)),
            "{command}: {shown}"
        );
        // Other content stays.
        let other = redactor.redact("00000000: 6c6f 673a 2061 6263  log: abc\n").into_owned();
        assert!(other.ends_with("log: abc\n"), "{other}");
    }
}

#[test]
fn a_known_value_is_removed_when_it_is_split_or_reversed() {
    let redactor = redactor(&[TOKEN]);
    let split = |width: usize, with: &str| {
        let chars: Vec<char> = TOKEN.chars().collect();
        chars.chunks(width).map(|chunk| chunk.iter().collect::<String>()).collect::<Vec<_>>().join(with)
    };
    for with in ["\n", " ", "\t", "\r\n"] {
        for width in 1..TOKEN.len() {
            let text = format!("is {}.", split(width, with));
            assert_eq!(redactor.redact(&text), "is [redacted].", "{text:?}");
        }
    }
    let reversed: String = TOKEN.chars().rev().collect();
    assert_eq!(redactor.redact(&format!("a {reversed} b")), "a [redacted] b");
    assert_eq!(redactor.redact("x 7a 71 38 31 6d 76 54 54 65 30 4c 72 35 35 y"), "x [redacted] y");
    assert_eq!(redactor.redact("x 7a:71:38:31:6d:76:54:54:65:30:4c:72:35:35 y"), "x [redacted] y");
    for (text, expected) in BASE32 {
        assert_eq!(redactor.redact(text), *expected, "{text}");
    }
}

#[test]
fn short_and_common_values_are_left_alone() {
    let redactor = redactor(&["true", "abcde", "password", "localhost", "aaaaaaaa", "redacted", "", "  \n"]);
    let text = "true abcde password localhost aaaaaaaa redacted [redacted]";
    assert_eq!(redactor.redact(text), text);
}

#[test]
fn the_longest_value_at_the_leftmost_place_wins() {
    let redactor = redactor(&["alpha-1234", "alpha-1234-beta", "1234-beta-gamma"]);
    assert_eq!(redactor.redact("x alpha-1234-beta-gamma alpha-1234."), "x [redacted]-gamma [redacted].");
}

#[test]
fn a_key_file_is_removed_line_by_line_and_without_its_last_newline() {
    let line = fake("MIIE", 60);
    let key = format!("begin\n{line}\nend-of-key\n");
    let redactor = redactor(&[&key]);
    assert_eq!(redactor.redact(&format!("  {line}\r\n")), "  [redacted]\r\n");
    assert_eq!(redactor.redact(key.trim_end()), "[redacted]");
}

#[test]
fn a_value_that_touches_the_placeholder_cannot_be_rebuilt_from_it() {
    for secret in ["]abcdef", "abcdef[", "abcdef[red", "acted]abcdef", "ab[redacted]cdefgh", "[redacted]"] {
        let redactor = redactor(&[secret, "OTHER-VALUE"]);
        let once = redactor.redact(&format!("{secret} OTHER-VALUEabcdef abcdefOTHER-VALUE")).into_owned();
        assert_eq!(redactor.redact(&once), once, "{secret}");
        assert!(!once.contains("OTHER"), "{once}");
    }
}

#[test]
fn vendor_tokens_are_removed() {
    let redactor = redactor(&[]);
    for token in [
        fake("ghp_", 36),
        fake("gho_", 36),
        fake("ghs_", 36),
        fake("github_pat_", 82),
        fake("glpat-", 20),
        fake("xoxb-", 40),
        fake("xapp-1-", 40),
        fake("sk-", 48),
        fake("sk-proj-", 100),
        fake("sk-ant-api03-", 95),
        fake("sk-or-v1-", 64),
        fake("hf_", 34),
        fake("gsk_", 52),
        fake("xai-", 60),
        fake("npm_", 36),
        fake("pypi-AgEIcHlwaS5vcmc", 60),
        fake("sk_live_", 24),
        fake("rk_test_", 24),
        fake("whsec_", 32),
        fake("AIza", 35),
        fake("ya29.", 60),
        fake("GOCSPX-", 28),
        fake("dop_v1_", 64),
        fake("SG.", 66),
        fake("hvs.", 90),
        format!("AKIA{}", "ABCDEFGH12345678"),
        format!("MTA{}.GaBcDe.{}", fake("", 21), fake("", 38)),
        format!("{}.{}.{}", fake("eyJhbGciOi", 20), fake("eyJzdWIiOi", 40), fake("", 43)),
    ] {
        for (before, after) in [
            ("", ""),
            ("token is ", " ok"),
            ("x\n", "\n"),
            ("\\n", "\\n"),
            ("\x1b[1;31m", "\x1b[0m"),
            ("?t%3D", "&u"),
            ("(", ")"),
        ] {
            let text = format!("{before}{token}{after}");
            assert_eq!(redactor.redact(&text), format!("{before}[redacted]{after}"), "{text}");
        }
    }
    let bot = format!("https://api.telegram.org/bot123456789:{}/getMe", fake("AA", 33));
    assert_eq!(redactor.redact(&bot), "https://api.telegram.org/bot123456789:[redacted]/getMe");
    let hook = format!("https://hooks.slack.com/services/{}", fake("T000/B000/", 24));
    assert_eq!(redactor.redact(&hook), "https://hooks.slack.com/services/[redacted]");
}

#[test]
fn a_token_right_behind_another_is_removed_too() {
    let age = format!("AGE-SECRET-KEY-1{}", "QPZRY9X8".repeat(7));
    assert_eq!(redactor(&[]).redact(&format!("{age}{}", fake("sk-", 48))), "[redacted][redacted]");
}

#[test]
fn headers_addresses_and_assignments_lose_their_value_only() {
    let redactor = redactor(&[]);
    let token = fake("", 30);
    for (text, expected) in [
        (format!("Authorization: Bearer {token}"), "Authorization: Bearer [redacted]"),
        ("> authorization: Basic dXNlcjpwYXNz\r\n".into(), "> authorization: Basic [redacted]\r\n"),
        (format!("curl -H 'Authorization: token {token}' u"), "curl -H 'Authorization: token [redacted]' u"),
        (format!(r#"{{"Authorization":"Bot {token}"}}"#), r#"{"Authorization":"Bot [redacted]"}"#),
        (format!("X-Api-Key: {token}\n"), "X-Api-Key: [redacted]\n"),
        (format!("bearer {token}."), "bearer [redacted]"),
        ("postgres://app:s3cr@t!@db:5432/x".into(), "postgres://app:[redacted]@db:5432/x"),
        ("https://me:hunter2@example.com/a?b".into(), "https://me:[redacted]@example.com/a?b"),
        ("redis://:hunter2@cache/0".into(), "redis://:[redacted]@cache/0"),
        ("> Cookie: a=b; session=abc.def\r\n> X: y".into(), "> Cookie: [redacted]\r\n> X: y"),
        ("< set-cookie: id=s3cr3t; Path=/; HttpOnly".into(), "< set-cookie: id=[redacted]; Path=/; HttpOnly"),
        (r#"{"Cookie": "sid=abc"}"#.into(), r#"{"Cookie": "[redacted]"}"#),
        ("curl -H 'Cookie: sid=abc' u".into(), "curl -H 'Cookie: [redacted]' u"),
        ("curl -u me:hunter2 https://x".into(), "curl -u me:[redacted] https://x"),
        ("curl -s -ume:hunter2 https://x".into(), "curl -s -ume:[redacted] https://x"),
        ("curl --user 'me:two words' x".into(), "curl --user 'me:[redacted]' x"),
        ("curl --proxy-user=me:p x".into(), "curl --proxy-user=me:[redacted] x"),
        (format!("https://{token}@example.com/"), "https://[redacted]@example.com/"),
        ("DB_PASSWORD=hunter2".into(), "DB_PASSWORD=[redacted]"),
        ("export DB_PASSWORD='two words'; ls".into(), "export DB_PASSWORD='[redacted]'; ls"),
        ("PGPASSWORD=abcdefgh psql".into(), "PGPASSWORD=[redacted] psql"),
        ("password: hunter2\nuser: bob".into(), "password: [redacted]\nuser: bob"),
        ("password = \"s3cret!\"".into(), "password = \"[redacted]\""),
        (r#"{"password":"correcthorse","n":1}"#.into(), r#"{"password":"[redacted]","n":1}"#),
        (r#"{\"password\":\"correcthorse\"}"#.into(), r#"{\"password\":\"[redacted]\"}"#),
        (format!("api_key={token}&x=1"), "api_key=[redacted]&x=1"),
        (format!("client_secret: '{token}'"), "client_secret: '[redacted]'"),
        (format!("aws_secret_access_key = {token}/x+y"), "aws_secret_access_key = [redacted]"),
        (format!("AccountKey={token}==;End"), "AccountKey=[redacted];End"),
        (
            format!("//registry.example.org/:_authToken={token}"),
            "//registry.example.org/:_authToken=[redacted]",
        ),
        (format!("tool --token {token} --verbose"), "tool --token [redacted] --verbose"),
        (format!("tool --password={token}"), "tool --password=[redacted]"),
        (format!("SECRET_KEY_BASE={token}"), "SECRET_KEY_BASE=[redacted]"),
        (format!("token := \"{token}\""), "token := \"[redacted]\""),
    ] {
        assert_eq!(redactor.redact(&text), expected, "{text}");
    }
}

#[test]
fn private_keys_are_removed_whole_cut_or_on_one_line() {
    let redactor = redactor(&[]);
    let line = fake("MIIE", 60);
    for (label, body) in [
        ("RSA PRIVATE KEY", format!("{line}\n{line}\n")),
        ("OPENSSH PRIVATE KEY", format!("{line}\r\n{line}\r\n")),
        ("ENCRYPTED PRIVATE KEY", format!("  {line}\n  {line}\n  ")),
        ("RSA PRIVATE KEY", format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n{line}\n")),
        ("PGP PRIVATE KEY BLOCK", format!("\n{line}\n=abcd\n")),
        ("PRIVATE KEY", format!("\\n{line}\\n{line}\\n")),
    ] {
        let text = format!("a -----BEGIN {label}-----\n{body}-----END {label}-----\nb");
        assert_eq!(redactor.redact(&text), "a [redacted]\nb", "{text}");
        let cut = format!("a -----BEGIN {label}-----\n{body}");
        assert_eq!(redactor.redact(&cut), "a [redacted]", "{cut}");
    }
    let mentioned = r#"if text.starts_with("-----BEGIN PRIVATE KEY-----") { return Err(Key) }"#;
    assert_eq!(redactor.redact(mentioned), mentioned);
    let public = format!("-----BEGIN CERTIFICATE-----\n{line}\n-----END CERTIFICATE-----\n");
    assert_eq!(redactor.redact(&public), public);
    let endless = format!("-----BEGIN PRIVATE KEY-----\n{}", "word ".repeat(20_000));
    assert!(redactor.redact(&endless).len() > 60_000);
}

#[test]
fn secrets_that_hermes_agent_printed_are_removed() {
    let redactor = redactor(&["sudo-Passw0rd"]);
    let key = fake("", 40);
    for (text, hidden) in [
        ("password=hunter2".to_owned(), "hunter2"),
        (format!("aws_secret_access_key = {key}"), &*key),
        ("Authorization: Basic dXNlcjpwYXNz".into(), "dXNlcjpwYXNz"),
        (format!("x-api-key: {key}"), &key),
        ("mysql://root:hunter2@db/app".into(), "hunter2"),
        (format!("https://example.com/?access_token={key}"), &key),
        (format!("glpat-{key}"), &key),
        (format!("ya29.{key}"), &key),
        ("password: hunter2".into(), "hunter2"),
        (format!("-----BEGIN RSA PRIVATE KEY-----\n{key}"), &key),
        ("c3Vkby1QYXNzdzByZA==".into(), "c3Vkby1QYXNzdzByZA"),
        ("[sudo] sudo-Passw0rd".into(), "sudo-Passw0rd"),
    ] {
        let shown = redactor.redact(&text);
        assert!(shown.contains(PLACEHOLDER) && !shown.contains(hidden), "{text} became {shown}");
    }
}

#[test]
fn ordinary_output_survives() {
    let redactor = redactor(&[]);
    for text in [
        "commit 3f2a1bc9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "checksum = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"",
        "\"integrity\": \"sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==\"",
        "github.com/x/y v1.2.3 h1:9sGLhx7iRIHEiX0oAJ3MRZMUCElJgy7Br1nO+AMN3Tc=",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbImEuanMiXX0=",
        "password: String,",
        "pub fn password(&self) -> &str { &self.password }",
        "password = get_password()",
        "password: Optional[str] = None",
        "let token = self.next_token(position2);",
        "token = tokens.pop()",
        "let token = ParsingToken::BuiltInRule9;",
        "pub frag_token: crate::__u32,",
        "token = Token.Name.Builtin.SchemeFunction",
        "private_key: \"_EllipticCurvePrivateKey\"",
        "echo ${TOKEN:-fallback-value-123} ${SECRET:+replacement-123}",
        "authorization = base64.decodebytes(authorization)",
        "max_tokens: 4096, token_count=17, tokenizer: gpt2",
        "\"token\": \"identifier\", \"type\": \"secret\"",
        "DB_PASSWORD=$POSTGRES_PASSWORD",
        "password: ${{ secrets.NPM_TOKEN }}",
        "TOKEN=<your token here>",
        "export API_KEY=$(cat key.txt)",
        "api_key = os.environ[\"API_KEY\"]",
        "GITHUB_TOKEN=***",
        "Authorization: Bearer $TOKEN",
        "Authorization: required for all endpoints",
        "postgres://user:$PASSWORD@host/db",
        "postgres://user:password@localhost/db",
        "https://example.com/a:b@c git@github.com:acme/widgets.git ssh://git@github.com/a",
        "<div class=\"sk-loading-indicator-wrapper\">",
        "task-1234567890123456789012345 disk-usage",
        "secretName: my-tls-secret",
        "if token == \"abc12345\" && secret != other1234",
        "test redact::tests::token_is_hidden ... ok",
        "error[E0308]: mismatched types --> src/token.rs:12:5",
        "2026-11-15T10:00:00Z INFO auth: token refreshed in 12ms",
        "  --token <TOKEN>      the API token to use [env: API_TOKEN=]",
        "  --password string    password for the registry",
        "Password: ",
        "MTA is the mail transfer agent. NTE.",
        "AKIAFOO and ASIAN markets",
        "SG.something",
    ] {
        assert_eq!(redactor.redact(text), text);
        assert!(matches!(redactor.redact(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn debug_output_shows_no_value() {
    let redactor = redactor(&[TOKEN]);
    assert_eq!(format!("{redactor:?}"), "Redactor { .. }");
}

/// Pieces that rules react to, whole and broken, and anything else.
fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "password", "PASSWORD", "token", "api_key", "Authorization", "Bearer ", "secret", "=", ": ", ":",
        "\"", "'", "\\", "\\n", "\n", " ", "://", "@", "/", ".", ",", "&", "$", "(", "[", "]", "--", "eyJ",
        "AKIA", "sk-", "ghp_", ":AA", "MTA", "123456789", "hunter2", "-----BEGIN ", "PRIVATE KEY-----",
        "-----END ", "-----", "[redacted]", "[redacted", "redacted]", "%20", "\x1b[31m", "00000000: ",
        "7a71 ", "3831 6d76 5454 ", "65304c 72 35", "35", "0x7a, ", "z q 8", "172 161 ", "z q\n8 1 m v\tT",
        "a1B2c3D4e5F6g7H8i9J0k1L2m3N4", "zq81mvTTe0Lr55", "zq81mvTT", "e0Lr55", "enE4MW12VFRlMExyNTU=",
        "enE4MW12", "VFRlMExyNTU", "7a7138316d76545465304c723535", "p@ss/w+rd \"é\"=9&<x>", "é",
    ]);
    prop_oneof![8 => fixed.prop_map(str::to_owned), 1 => "[ -~]{0,12}", 1 => "\\PC{0,4}"]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn redacting_twice_changes_nothing(text in text()) {
        let redactor = redactor(&[ODD, TOKEN]);
        let once = redactor.redact(&text).into_owned();
        prop_assert_eq!(redactor.redact(&once), once.as_str());
    }

    #[test]
    fn no_known_value_survives_in_a_dump(
        value in "[!-Z^-~]{8,40}", before in "[a-z ]{0,40}", width in 1_usize..20, format in 0_usize..5,
    ) {
        prop_assume!(!known::is_common(value.as_bytes()) && !PLACEHOLDER.contains(&value));
        let redactor = redactor(&[&value]);
        let bytes = format!("{before}{value}").into_bytes();
        let dump: String = bytes.chunks(2 * width).enumerate().map(|(line, chunk)| {
            let numbers: Vec<String> = match format {
                0 => chunk.iter().map(|byte| format!("{byte:02x}")).collect(),
                1 => chunk.chunks(2).map(hermes_types::hex).collect(),
                2 => chunk.iter().map(|byte| format!("{byte:03o}")).collect(),
                3 => chunk.iter().map(|byte| format!("{byte}")).collect(),
                _ => chunk.chunks(2).map(|pair| {
                    format!("{:02x}{:02x}", pair.get(1).copied().unwrap_or(0), pair[0])
                }).collect(),
            };
            format!("{:08x}: {}\n", 2 * width * line, numbers.join(" "))
        }).collect();
        let shown = redactor.redact(&dump).into_owned();
        prop_assert!(shown.contains(PLACEHOLDER), "{}", dump);
        prop_assert_eq!(redactor.redact(&shown), shown.as_str());
    }

    #[test]
    fn no_known_value_survives(value in "[!-Z^-~]{6,40}", before in text(), after in text()) {
        prop_assume!(!known::is_common(value.as_bytes()) && !PLACEHOLDER.contains(&value));
        let redactor = redactor(&[&value]);
        let text = format!("{before}{value}{after}");
        let shown = redactor.redact(&text);
        prop_assert!(!shown.contains(&value), "{} in {}", value, shown);
    }
}

#[test]
fn a_disabled_redactor_removes_nothing() {
    let text = "API_KEY=sk-ant-REDACTED";
    assert_ne!(Redactor::new([]).redact(text), text);
    assert_eq!(Redactor::disabled().redact(text), text);
}
