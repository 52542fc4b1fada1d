//! `patch`.

use hermes_agent::Tool;
use serde_json::json;

use crate::bed::Session;
use crate::ground::Ground;

fn edit(path: &str, old: &str, new: &str) -> serde_json::Value {
    json!({"mode": "replace", "path": path, "old_string": old, "new_string": new})
}

fn patch(lines: &[&str]) -> serde_json::Value {
    json!({"mode": "patch", "patch": format!("*** Begin Patch\n{}\n*** End Patch", lines.join("\n"))})
}

async fn cat(s: &Session, path: &str) -> String {
    s.shell(&format!("cat {path}")).await
}

pub(crate) async fn a_text_is_replaced_and_the_change_is_shown(ground: &Ground) {
    let s = ground.hands().await;
    s.shell("printf 'fn main() {\\n    one();\\n    two();\\n}\\n' > a.rs; chmod 755 a.rs").await;
    let told = s.told(Tool::Patch, edit("a.rs", "one();", "three();")).await;
    let diff = "--- a/a.rs\n+++ b/a.rs\n@@ -1,4 +1,4 @@\n fn main() {\n-    one();\n+    three();\n     two();\n }\n";
    assert_eq!(
        (&told["success"], &told["diff"], &told["replacements"]),
        (&json!(true), &json!(diff), &json!(1))
    );
    assert_eq!(told.get("strategy"), None);
    // With the indentation wrong it is still found, and put right.
    let told = s.told(Tool::Patch, edit("a.rs", "three();\ntwo();", "four();\nif x {\n    five();\n}")).await;
    assert_eq!(told["strategy"], "line_trimmed");
    assert_eq!(cat(&s, "a.rs").await, "fn main() {\n    four();\n    if x {\n        five();\n    }\n}");
    assert_eq!(s.shell("stat -c %a a.rs").await, "755");
    s.shell("printf 'x\\ny\\nx\\n' > twice").await;
    let why = s.error(Tool::Patch, edit("twice", "x", "z")).await;
    assert!(why.contains("2 times") && why.contains("line 3: x"), "{why}");
    let mut all = edit("twice", "x", "z");
    all["replace_all"] = json!(true);
    assert_eq!(s.told(Tool::Patch, all).await["replacements"], 2);
    assert_eq!(cat(&s, "twice").await, "z\ny\nz");
    let why = s.error(Tool::Patch, edit("twice", "nothing like it", "q")).await;
    assert!(why.contains("not in the file"), "{why}");
    assert!(s.error(Tool::Patch, edit("missing", "a", "b")).await.contains("there is no missing"));
    assert!(s.error(Tool::Patch, json!({"mode": "replace", "path": "a.rs"})).await.contains("old_string"));
    s.told(Tool::Patch, edit("twice", "z\ny\nz\n", "")).await;
    assert_eq!(s.shell("wc -c < twice").await, "0");
}

pub(crate) async fn bytes_that_are_no_text_stay(ground: &Ground) {
    let s = ground.hands().await;
    s.shell("printf 'caf\\351 one\\n  two\\n\\007\\033]0;t\\007\\n' > latin").await;
    s.told(Tool::Patch, edit("latin", "one", "1")).await;
    let told = s.told(Tool::Patch, edit("latin", "two \n", "2\n")).await;
    assert_eq!(told["strategy"], "line_trimmed");
    s.told(Tool::Patch, patch(&["*** Update File: latin", "-  2", "+  three"])).await;
    let bytes = s.shell("od -An -c latin | tr -d ' \\n'").await;
    assert_eq!(bytes, r"caf3511\nthree\n\a033]0;t\a\n");
    s.shell("printf 'a\\0b' > binary").await;
    assert!(s.error(Tool::Patch, edit("binary", "a", "b")).await.contains("not a text file"));
}

pub(crate) async fn a_patch_changes_all_of_its_files_or_none(ground: &Ground) {
    let s = ground.hands().await;
    s.shell("printf '1\\n2\\n3\\n' > a; echo old > b; echo gone > c; printf 'm\\n' > d; ln -s a link").await;
    let lines = [
        "*** Add File: new/deep.txt", "+hello", "*** Update File: a", " 1", "-2", "+two",
        "*** Delete File: c", "*** Move File: d -> moved/e", "***Update File: b", "-old", "+new",
    ];
    let told = s.told(Tool::Patch, patch(&lines)).await;
    let count = |name: &str| told[name].as_array().unwrap().len();
    assert_eq!(
        (count("files_modified"), count("files_created"), count("files_deleted")),
        (2, 2, 2),
        "{told}"
    );
    assert_eq!(
        s.shell("cat new/deep.txt a moved/e b; ls").await,
        "hello\n1\ntwo\n3\nm\nnew\na\nb\nlink\nmoved\nnew"
    );
    // One that fails is told with all others that do, and nothing is written.
    let lines = [
        "*** Update File: a", "-1", "+x", "*** Update File: b", "-not there", "+y", "*** Add File: a", "+z",
        "*** Delete File: zzz",
    ];
    let why = s.error(Tool::Patch, patch(&lines)).await;
    assert!(
        ["nothing was written", "b: change 1", "a is there already", "there is no zzz"]
            .iter()
            .all(|part| why.contains(part)),
        "{why}"
    );
    assert_eq!(cat(&s, "a b").await, "1\ntwo\n3\nnew");
    let why = s.error(Tool::Patch, patch(&["*** Update File: a", "-1", "+x", "*** Delete File: a"])).await;
    assert!(why.contains("twice"), "{why}");
    s.told(Tool::Patch, patch(&["*** Delete File: link"])).await;
    assert_eq!(s.shell("ls").await, "a\nb\nmoved\nnew");
    assert!(s.error(Tool::Patch, json!({"mode": "patch", "patch": "hello"})).await.contains("line 1"));
    assert!(s.error(Tool::Patch, json!({"mode": "patch"})).await.contains("needs `patch`"));
}

pub(crate) async fn a_file_that_changed_meanwhile_is_not_overwritten(ground: &Ground) {
    let s = ground.hands().await;
    // Every line of both writers is there in the end, whatever the order: none is lost to a write of older content.
    s.shell("printf 'start\\n' > f").await;
    let append = |who: &'static str| {
        let s = &s;
        async move {
            let mut done = 0;
            while done < 20 {
                let change = edit("f", "start  \n", &format!("start\n{who} {done}\n"));
                if s.call(Tool::Patch, change).await.succeeded {
                    done += 1;
                }
            }
        }
    };
    tokio::join!(append("a"), append("b"));
    assert_eq!(s.shell("wc -l < f; sort -u f | wc -l").await, "41\n41");
}
