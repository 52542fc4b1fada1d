//! The tools `read_file`, `write_file` and `search_files`.

use std::fs;

use hermes_agent::Tool;
use hermes_types::Secret;
use serde_json::{Value, json};

use crate::env::{TestEnv, TestSession};
use crate::fixture::Fixture;

async fn read(s: &TestSession, path: &str) -> Value {
    s.succeed(Tool::ReadFile, json!({"path": path})).await
}

async fn write(s: &TestSession, path: &str, content: &str) -> Value {
    s.succeed(Tool::WriteFile, json!({"path": path, "content": content})).await
}

pub(crate) async fn lines_are_counted_and_returned_unchanged(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf 'a\\nb' > no-end; printf 'a\\nb\\n' > end; : > empty; seq 1 1200 > long; printf '\\357\\273\\277a\\r\\nb\\r\\n' > dos").await;
    // A last line counts with and without a line end.
    for path in ["no-end", "end"] {
        let result = read(&s, path).await;
        assert_eq!((&result["content"], &result["total_lines"]), (&json!("1|a\n2|b"), &json!(2)), "{path}");
    }
    let first = s.succeed(Tool::ReadFile, json!({"path": "no-end", "limit": 1})).await;
    assert_eq!((&first["truncated"], &first["total_lines"]), (&json!(true), &json!(2)));
    let result = read(&s, "empty").await;
    assert_eq!((&result["content"], &result["hint"]), (&json!(""), &json!("the file is empty")));
    let result = read(&s, "long").await;
    assert!(result["content"].as_str().unwrap().ends_with("\n500|500"));
    assert_eq!(result["hint"], "lines 1 to 500 of 1200; continue with offset=501");
    let result = s.succeed(Tool::ReadFile, json!({"path": "long", "offset": 1199, "limit": 9999})).await;
    assert_eq!(result["content"], "1199|1199\n1200|1200");
    let result = s.succeed(Tool::ReadFile, json!({"path": "long", "offset": 5000})).await;
    assert_eq!((&result["content"], &result["hint"]), (&json!(""), &json!("the file has only 1200 lines")));
    let result = read(&s, "dos").await;
    assert_eq!((&result["content"], &result["line_endings"]), (&json!("1|a\n2|b"), &json!("crlf")));
}

pub(crate) async fn a_missing_file_is_reported_with_similar_names(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("mkdir src; touch src/config.rs src/confit.rs src/other.txt").await;
    let result = s.call(Tool::ReadFile, json!({"path": "src/confg.rs"})).await;
    let similar: Vec<&str> = result.content["similar_files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(similar.len() == 2 && similar[0].ends_with("/src/config.rs"), "{similar:?}");
    assert!(s.error(Tool::ReadFile, json!({"path": "nowhere/x"})).await.contains("and no directory"));
    assert!(s.error(Tool::ReadFile, json!({"path": "src"})).await.contains("search_files"));
    assert!(s.error(Tool::ReadFile, json!({"path": ""})).await.contains("empty"));
    assert!(s.error(Tool::ReadFile, json!({"path": "a\u{0}b"})).await.contains("zero byte"));
    assert!(s.error(Tool::ReadFile, json!({"path": "/dev/zero"})).await.contains("not a regular file"));
}

pub(crate) async fn binary_data_is_rejected_with_advice(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("head -c 3000 /dev/zero > zeros; printf 'caf\\351\\n' > latin").await;
    let result = s.call(Tool::ReadFile, json!({"path": "zeros"})).await;
    assert_eq!(result.content["is_binary"], true);
    assert!(result.content["error"].as_str().unwrap().contains("xxd"));
    let result = read(&s, "latin").await;
    assert_eq!(result["content"], "1|caf\u{fffd}");
    assert!(result["note"].as_str().unwrap().contains("not UTF-8"));
}

pub(crate) async fn a_read_that_is_too_large_says_how_to_page(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.read_chars = 1000;
    let s = env.session().await;
    s.shell("for i in $(seq 1 100); do echo 'forty characters of text on every line xx'; done > f; head -c 30000000 /dev/zero | tr '\\0' x > line").await;
    let result = s.error(Tool::ReadFile, json!({"path": "f"})).await;
    let limit: u64 = result.split("limit=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let page = s.succeed(Tool::ReadFile, json!({"path": "f", "limit": limit})).await;
    assert!(page["content"].as_str().unwrap().len() > 900);
    assert!(s.error(Tool::ReadFile, json!({"path": "line"})).await.contains("head -c"));
}

pub(crate) async fn a_file_is_written_with_its_directories_and_keeps_its_mode(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("umask 022").await;
    let result = write(&s, "a/b/ä c.txt", "one\ntwo").await;
    assert_eq!(
        (&result["bytes_written"], &result["dirs_created"], &result["created"]),
        (&json!(7), &json!(true), &json!(true))
    );
    assert!(result["resolved_path"].as_str().unwrap().ends_with("/a/b/ä c.txt"));
    assert_eq!(result["files_modified"], json!([result["resolved_path"]]));
    assert_eq!(s.shell("cat 'a/b/ä c.txt'; echo; stat -c %a 'a/b/ä c.txt'").await, "one\ntwo\n644");
    s.shell("chmod 755 a/b/*; cd a").await;
    let again = write(&s, "b/ä c.txt", "x").await;
    assert_eq!((&again["dirs_created"], &again["created"]), (&json!(false), &json!(false)));
    assert_eq!(s.shell("stat -c %a 'b/ä c.txt'").await, "755");
    assert_eq!(write(&s, "d.json", "{\"a\": }").await["lint"]["status"], "error");
    assert_eq!(write(&s, "d.yaml", "a: 1\n").await["lint"]["status"], "ok");
    let long = "0123456789".repeat(300_000);
    assert_eq!(write(&s, "long", &long).await["bytes_written"], 3_000_000);
    assert_eq!(s.shell("wc -c < long").await, "3000000");
    assert!(s.error(Tool::WriteFile, json!({"path": "b", "content": ""})).await.contains("directory"));
    assert!(s.error(Tool::WriteFile, json!({"path": "x"})).await.contains("content"));
}

pub(crate) async fn a_changed_file_keeps_its_line_ends_and_byte_order_mark(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf '\\357\\273\\277a\\r\\nb\\r\\n' > dos").await;
    write(&s, "dos", "x\ny\n").await;
    assert_eq!(s.shell("od -An -c dos | tr -d ' \\n'").await, "357273277x\\r\\ny\\r\\n");
    s.succeed(
        Tool::Patch,
        json!({"mode": "replace", "path": "dos", "old_string": "x\ny", "new_string": "1\n2\n3"}),
    )
    .await;
    assert_eq!(s.shell("od -An -c dos | tr -d ' \\n'").await, "3572732771\\r\\n2\\r\\n3\\r\\n");
    s.shell("printf 'a\\n\\033]0;t\\007b\\r\\nc\\n' > mixed").await;
    s.succeed(Tool::Patch, json!({"mode": "replace", "path": "mixed", "old_string": "a", "new_string": "A"}))
        .await;
    assert_eq!(s.shell("od -An -c mixed | tr -d ' \\n'").await, "A\\n033]0;t\\ab\\r\\nc\\n");
}

pub(crate) async fn writing_through_a_link_keeps_the_link(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("mkdir d; echo old > d/real; ln -s d/real link; ln -s d other").await;
    let result = write(&s, "link", "new\n").await;
    assert!(result["resolved_path"].as_str().unwrap().ends_with("/d/real"), "{result}");
    write(&s, "other/second", "x").await;
    assert_eq!(s.shell("readlink link; cat d/real; cat d/second").await, "d/real\nnew\nx");
    assert_eq!(read(&s, "link").await["content"], "1|new");
}

pub(crate) async fn the_home_is_the_same_for_every_tool(fixture: &Fixture) {
    let s = fixture.session().await;
    let result = write(&s, "~/note", "text").await;
    let home = s.shell("cat ~/note; echo; echo $HOME").await;
    assert_eq!(
        home,
        format!("text\n{}", result["resolved_path"].as_str().unwrap().trim_end_matches("/note"))
    );
    assert_eq!(read(&s, "~/note").await["content"], "1|text");
    // A file of this machine exists only in the local environment.
    fs::write(fixture.folder.join("book.ipynb"), "{\"cells\": []}").unwrap();
    let book = fixture.folder.join("book.ipynb").display().to_string();
    let result = s.call(Tool::ReadFile, json!({"path": book})).await;
    assert_eq!(result.succeeded, fixture.kind == crate::env::BackendKind::Local, "{}", result.content);
}

pub(crate) async fn a_redacted_secret_is_not_overwritten(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.secrets = vec![Secret::new("hunter2-hunter2")];
    let s = env.session().await;
    s.shell("printf 'user=ada\\npass=hunter2-hunter2\\n' > f").await;
    let seen = read(&s, "f").await["content"].as_str().unwrap().to_owned();
    assert_eq!(seen, "1|user=ada\n2|pass=[redacted]");
    let copied = json!({"path": "f", "content": "user=bob\npass=[redacted]\n"});
    assert!(s.error(Tool::WriteFile, copied).await.contains("secret"));
    let copied =
        json!({"mode": "replace", "path": "f", "old_string": "pass=", "new_string": "pass=[redacted]"});
    assert!(s.error(Tool::Patch, copied).await.contains("secret"));
    let result = s
        .succeed(
            Tool::Patch,
            json!({"mode": "replace", "path": "f", "old_string": "ada", "new_string": "bob"}),
        )
        .await;
    assert!(!result.to_string().contains("hunter2"), "{result}");
    let found = s.succeed(Tool::SearchFiles, json!({"pattern": "pass"})).await;
    assert_eq!(found["matches"][0]["content"], "pass=[redacted]");
    // Commands still see the secret.
    assert_eq!(s.shell("grep -c '^pass=hunter2-hunter2$' f").await, "1");
}

pub(crate) async fn repeated_reads_and_failed_edits_get_a_hint_and_are_not_refused(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("echo a > f").await;
    assert_eq!(read(&s, "f").await.get("loop_note"), None);
    for _ in 0..4 {
        let again = read(&s, "f").await;
        assert_eq!(again["content"], "1|a");
        assert!(again["loop_note"].as_str().unwrap().contains("not changed"));
    }
    s.shell("echo b > f").await;
    assert_eq!(read(&s, "f").await.get("loop_note"), None);
    s.shell("echo c > f").await;
    assert!(write(&s, "f", "d").await["_warning"].as_str().unwrap().contains("another process had changed"));
    assert_eq!(write(&s, "f", "e").await.get("_warning"), None);
    let edit = json!({"mode": "replace", "path": "f", "old_string": "nothing", "new_string": "x"});
    for _ in 0..2 {
        assert_eq!(s.call(Tool::Patch, edit.clone()).await.content.get("hint"), None);
    }
    let hint = s.call(Tool::Patch, edit).await.content["hint"].clone();
    assert!(hint.as_str().unwrap().contains("several times"), "{hint}");
}

pub(crate) async fn a_search_finds_all_matches_and_counts_them(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("mkdir -p src/deep .git; for i in $(seq 1 500); do echo needle $i; done > src/many; printf 'alpha\\nbeta\\ngamma\\n' > src/deep/a.rs; echo alpha > b.txt; echo secret > .hidden; printf 'x\\0alpha' > bin; printf 'ignored\\n' > .gitignore; echo alpha > ignored").await;
    let many = s.succeed(Tool::SearchFiles, json!({"pattern": "needle"})).await;
    assert_eq!((&many["total_count"], &many["truncated"]), (&json!(500), &json!(true)));
    assert_eq!(many["matches"].as_array().unwrap().len(), 50);
    assert_eq!(many["hint"], "50 of 500; continue with offset=50");
    let last = s.succeed(Tool::SearchFiles, json!({"pattern": "needle", "offset": 499})).await;
    assert_eq!(last["matches"], json!([{"path": "src/many", "line": 500, "content": "needle 500"}]));
    assert_eq!(last["truncated"], false);
    let either = s
        .succeed(Tool::SearchFiles, json!({"pattern": "alpha|gamma", "context": 1, "file_glob": "*.rs"}))
        .await;
    let lines: Vec<_> =
        either["matches"].as_array().unwrap().iter().map(|line| (&line["line"], &line["context"])).collect();
    let (no, yes) = (&Value::Null, &json!(true));
    assert_eq!(lines, [(&json!(1), no), (&json!(2), yes), (&json!(3), no)], "{either}");
    let files = s.succeed(Tool::SearchFiles, json!({"pattern": "alpha", "output_mode": "files_only"})).await;
    let mut names: Vec<&str> =
        files["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["b.txt", "src/deep/a.rs"]);
    let counts =
        s.succeed(Tool::SearchFiles, json!({"pattern": "needle|alpha", "output_mode": "count"})).await;
    assert_eq!(counts["counts"], json!({"b.txt": 1, "src/deep/a.rs": 1, "src/many": 500}));
    let by_name = s.succeed(Tool::SearchFiles, json!({"pattern": "*.rs", "target": "files"})).await;
    assert_eq!((&by_name["files"], &by_name["total_count"]), (&json!(["src/deep/a.rs"]), &json!(1)));
    let found =
        s.succeed(Tool::SearchFiles, json!({"pattern": "many", "target": "find", "path": "src"})).await;
    assert_eq!(found["files"], json!(["src/many"]));
    let one = s
        .succeed(Tool::SearchFiles, json!({"pattern": "beta", "target": "grep", "path": "src/deep/a.rs"}))
        .await;
    assert_eq!(one["matches"], json!([{"path": "src/deep/a.rs", "line": 2, "content": "beta"}]));
    let none = s.succeed(Tool::SearchFiles, json!({"pattern": "nothing at all"})).await;
    assert_eq!((&none["total_count"], &none["matches"]), (&json!(0), &json!([])));
    assert!(
        s.error(Tool::SearchFiles, json!({"pattern": "(", "path": "src"})).await.contains("invalid pattern")
    );
    assert!(
        s.error(Tool::SearchFiles, json!({"pattern": "x", "path": "sr"})).await.contains("there is no sr")
    );
}

pub(crate) async fn a_pattern_is_never_parsed_as_an_option(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf '%s\\n' '-needle' '--pre=touch ran' > f").await;
    for pattern in ["-needle", "--pre=touch ran"] {
        let result = s.succeed(Tool::SearchFiles, json!({"pattern": pattern})).await;
        assert_eq!(result["matches"][0]["content"], pattern);
    }
    assert_eq!(s.shell("ls").await, "f");
}
