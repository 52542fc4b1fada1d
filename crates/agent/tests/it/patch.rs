//! The `patch` tool.

use hermes_agent::Tool;
use serde_json::json;

use crate::env::TestSession;
use crate::fixture::Fixture;

fn edit(path: &str, old: &str, new: &str) -> serde_json::Value {
    json!({"mode": "replace", "path": path, "old_string": old, "new_string": new})
}

fn patch(lines: &[&str]) -> serde_json::Value {
    json!({"mode": "patch", "patch": format!("*** Begin Patch\n{}\n*** End Patch", lines.join("\n"))})
}

async fn cat(s: &TestSession, path: &str) -> String {
    s.shell(&format!("cat {path}")).await
}

pub(crate) async fn a_text_is_replaced_and_a_diff_is_returned(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf 'fn main() {\\n    one();\\n    two();\\n}\\n' > a.rs; chmod 755 a.rs").await;
    let result = s.succeed(Tool::Patch, edit("a.rs", "one();", "three();")).await;
    let diff = "--- a/a.rs\n+++ b/a.rs\n@@ -1,4 +1,4 @@\n fn main() {\n-    one();\n+    three();\n     two();\n }\n";
    assert_eq!(
        (&result["success"], &result["diff"], &result["replacements"]),
        (&json!(true), &json!(diff), &json!(1))
    );
    assert_eq!(result.get("strategy"), None);
    // A match with other indentation is found and reindented.
    let result =
        s.succeed(Tool::Patch, edit("a.rs", "three();\ntwo();", "four();\nif x {\n    five();\n}")).await;
    assert_eq!(result["strategy"], "line_trimmed");
    assert_eq!(cat(&s, "a.rs").await, "fn main() {\n    four();\n    if x {\n        five();\n    }\n}");
    assert_eq!(s.shell("stat -c %a a.rs").await, "755");
    s.shell("printf 'x\\ny\\nx\\n' > twice").await;
    let error = s.error(Tool::Patch, edit("twice", "x", "z")).await;
    assert!(error.contains("2 times") && error.contains("line 3: x"), "{error}");
    let mut all = edit("twice", "x", "z");
    all["replace_all"] = json!(true);
    assert_eq!(s.succeed(Tool::Patch, all).await["replacements"], 2);
    assert_eq!(cat(&s, "twice").await, "z\ny\nz");
    let error = s.error(Tool::Patch, edit("twice", "nothing like it", "q")).await;
    assert!(error.contains("not in the file"), "{error}");
    assert!(s.error(Tool::Patch, edit("missing", "a", "b")).await.contains("there is no missing"));
    assert!(s.error(Tool::Patch, json!({"mode": "replace", "path": "a.rs"})).await.contains("old_string"));
    s.succeed(Tool::Patch, edit("twice", "z\ny\nz\n", "")).await;
    assert_eq!(s.shell("wc -c < twice").await, "0");
}

pub(crate) async fn invalid_bytes_are_preserved(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf 'caf\\351 one\\n  two\\n\\007\\033]0;t\\007\\n' > latin").await;
    s.succeed(Tool::Patch, edit("latin", "one", "1")).await;
    let result = s.succeed(Tool::Patch, edit("latin", "two \n", "2\n")).await;
    assert_eq!(result["strategy"], "line_trimmed");
    s.succeed(Tool::Patch, patch(&["*** Update File: latin", "-  2", "+  three"])).await;
    let bytes = s.shell("od -An -c latin | tr -d ' \\n'").await;
    assert_eq!(bytes, r"caf3511\nthree\n\a033]0;t\a\n");
    s.shell("printf 'a\\0b' > binary").await;
    assert!(s.error(Tool::Patch, edit("binary", "a", "b")).await.contains("not a text file"));
}

pub(crate) async fn a_patch_changes_all_files_or_none(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("printf '1\\n2\\n3\\n' > a; echo old > b; echo gone > c; printf 'm\\n' > d; ln -s a link").await;
    let lines = [
        "*** Add File: new/deep.txt", "+hello", "*** Update File: a", " 1", "-2", "+two",
        "*** Delete File: c", "*** Move File: d -> moved/e", "***Update File: b", "-old", "+new",
    ];
    let result = s.succeed(Tool::Patch, patch(&lines)).await;
    let count = |name: &str| result[name].as_array().unwrap().len();
    assert_eq!(
        (count("files_modified"), count("files_created"), count("files_deleted")),
        (2, 2, 2),
        "{result}"
    );
    assert_eq!(
        s.shell("cat new/deep.txt a moved/e b; ls").await,
        "hello\n1\ntwo\n3\nm\nnew\na\nb\nlink\nmoved\nnew"
    );
    // All failing operations are reported together, and nothing is written.
    let lines = [
        "*** Update File: a", "-1", "+x", "*** Update File: b", "-not there", "+y", "*** Add File: a", "+z",
        "*** Delete File: zzz",
    ];
    let error = s.error(Tool::Patch, patch(&lines)).await;
    assert!(
        ["nothing was written", "b: change 1", "a exists already", "there is no zzz"]
            .iter()
            .all(|part| error.contains(part)),
        "{error}"
    );
    assert_eq!(cat(&s, "a b").await, "1\ntwo\n3\nnew");
    let error = s.error(Tool::Patch, patch(&["*** Update File: a", "-1", "+x", "*** Delete File: a"])).await;
    assert!(error.contains("twice"), "{error}");
    s.succeed(Tool::Patch, patch(&["*** Delete File: link"])).await;
    assert_eq!(s.shell("ls").await, "a\nb\nmoved\nnew");
    assert!(s.error(Tool::Patch, json!({"mode": "patch", "patch": "hello"})).await.contains("line 1"));
    assert!(s.error(Tool::Patch, json!({"mode": "patch"})).await.contains("needs `patch`"));
}

pub(crate) async fn a_concurrent_change_is_not_overwritten(fixture: &Fixture) {
    let s = fixture.session().await;
    // No line of either writer is lost to a write of older content.
    s.shell("printf 'start\\n' > f").await;
    let append = |writer: &'static str| {
        let s = &s;
        async move {
            let mut count = 0;
            while count < 20 {
                let change = edit("f", "start  \n", &format!("start\n{writer} {count}\n"));
                if s.call(Tool::Patch, change).await.succeeded {
                    count += 1;
                }
            }
        }
    };
    tokio::join!(append("a"), append("b"));
    assert_eq!(s.shell("wc -l < f; sort -u f | wc -l").await, "41\n41");
}
