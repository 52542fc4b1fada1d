//! File operations of the benchmark.

use hermes_exec::files::resolve_lexically;
use hermes_guest::protocol::file::{
    FileEdit, FileRange, FileSearch, Occurrences, ParentDirs, Precondition, SearchMode, WriteOptions,
};
use hermes_policy::Permit;
use hermes_types::{FileAccess, FileUse, Job, Work};
use serde_bytes::ByteBuf;

use crate::opened::Opened;

/// Uses a file as a tool does. The directory of the place has a `tree` to search and a file to
/// patch, in which the first word is replaced by the second.
pub(crate) async fn use_file(opened: &Opened, cwd: &str, action: &str, words: (&str, &str)) {
    let files = opened.sandbox.files().await.unwrap();
    match action {
        "read" => {
            let part = FileRange::Lines { first: 1, count: 500 };
            let reader =
                files.read(permit(opened, cwd, FileAccess::Read, "tree/file7.txt"), part).await.unwrap();
            assert!(reader.read_to_end(1 << 20).await.unwrap().0.starts_with(b"line 0 "));
        }
        "write" => {
            let options = WriteOptions { precondition: Precondition::Anything, parents: ParentDirs::Create };
            let text = "a line of text\n".repeat(500);
            let permit = permit(opened, cwd, FileAccess::Write, "written.txt");
            files.write(permit, &mut text.as_bytes(), options).await.unwrap();
        }
        "patch" => {
            let edit = FileEdit {
                old: ByteBuf::from(words.0),
                new: ByteBuf::from(words.1),
                occurrences: Occurrences::One,
            };
            let permit = permit(opened, cwd, FileAccess::Write, "patched.txt");
            files.patch(permit, vec![edit]).await.unwrap();
        }
        "search" => {
            let target = SearchMode::Lines { pattern: "line 7 of file 5".to_owned(), context: 0 };
            let search = FileSearch { target, globs: Vec::new(), offset: 0, limit: 50 };
            let permit = permit(opened, cwd, FileAccess::Read, "tree");
            assert_eq!(files.search(permit, search).await.unwrap().summary.hits, 11);
        }
        _ => panic!("{action}"),
    }
}

fn permit(opened: &Opened, cwd: &str, access: FileAccess, path: &str) -> Permit {
    let real = resolve_lexically(path, cwd, cwd);
    opened.permit(Job::new(Work::File(FileUse { access, path: path.to_owned(), real }), cwd))
}
