//! The credential files that skills declare in the front matter of their `SKILL.md`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hermes_exec::backend::docker::mount_policy::DeclaredFile;
use walkdir::{DirEntry, WalkDir};

use crate::yaml::{self, Node, NodeKind};

const SKILL_FILE: &str = "SKILL.md";
const FILES_KEY: &str = "required_credential_files";
/// Starts and ends the front matter.
const FENCE: &str = "---";
const MAX_SKILL_BYTES: u64 = 400_000;
const MAX_ENTRIES: usize = 100_000;
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 256;

/// The files that the skills in these directories declare, sorted. An unreadable skill declares
/// none.
pub(super) fn declared(trees: &[PathBuf]) -> Vec<DeclaredFile> {
    let entries = trees.iter().flat_map(|tree| WalkDir::new(tree).min_depth(1).max_depth(MAX_DEPTH + 1));
    let is_skill = |entry: &DirEntry| entry.file_type().is_file() && entry.file_name() == SKILL_FILE;
    let found = entries.take(MAX_ENTRIES).flatten().filter(is_skill);
    let mut skills: Vec<PathBuf> = found.map(DirEntry::into_path).collect();
    skills.sort();
    let all = skills.into_iter().flat_map(|skill| {
        let names = names(&front_matter(&skill).unwrap_or_default());
        names.into_iter().map(move |name| DeclaredFile { skill: skill.clone(), name })
    });
    all.take(MAX_FILES).collect()
}

fn front_matter(skill: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(skill).ok()?.take(MAX_SKILL_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // Some editors write a byte order mark.
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next()?.trim_end() != FENCE {
        return None;
    }
    let lines: Vec<&str> = lines.collect();
    let end = lines.iter().position(|line| line.trim_end() == FENCE)?;
    Some(lines.get(..end)?.join("\n"))
}

/// The declared files. Each is a text, or a map with a `path` or `name`.
fn names(front_matter: &str) -> Vec<String> {
    let Ok(root) = yaml::parse(front_matter) else { return Vec::new() };
    let text = |node: &Node| node.to_json().as_str().map(|text| text.trim().to_owned());
    let name =
        |node: &Node| text(node).or_else(|| ["path", "name"].iter().find_map(|key| text(node.get(key)?)));
    let names: Vec<String> = match root.get(FILES_KEY) {
        Some(Node { kind: NodeKind::List(items), .. }) => items.iter().filter_map(name).collect(),
        Some(node) => name(node).into_iter().collect(),
        None => Vec::new(),
    };
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn declared_files_are_read_from_the_front_matter() {
        let cases: [(&str, &[&str]); 9] = [
            ("---\nname: x\nrequired_credential_files: [a.json, b/c]\n---\nbody", &["a.json", "b/c"]),
            (
                "---\nrequired_credential_files:\n  - path: a\n    description: d\n  - name: b\n---\n",
                &["a", "b"],
            ),
            ("\u{feff}---\r\nrequired_credential_files: a\r\n---\r\n", &["a"]),
            ("---\nrequired_credential_files: [1, {}, '', {path: [x]}]\n---\n", &[]),
            ("---\nname: x\n---\nrequired_credential_files: [a]\n", &[]),
            ("required_credential_files: [a]\n", &[]),
            ("---\nrequired_credential_files: [a]\n", &[]),
            ("---\nrequired_credential_files: [a\n---\n", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let skill = folder.path().join("category/one").join(SKILL_FILE);
            fs::create_dir_all(skill.parent().unwrap()).unwrap();
            fs::write(&skill, text).unwrap();
            let named =
                expected.iter().map(|name| DeclaredFile { skill: skill.clone(), name: (*name).to_owned() });
            assert_eq!(declared(&[folder.path().to_owned()]), named.collect::<Vec<_>>(), "{text:?}");
        }
    }

    #[test]
    fn the_search_for_skills_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let many: Vec<String> = (0..2 * MAX_FILES).map(|number| format!("f{number}")).collect();
        let text = format!("---\nrequired_credential_files: [{}]\n---\n", many.join(", "));
        fs::write(folder.path().join(SKILL_FILE), text).unwrap();
        let deep = folder.path().join("d/".repeat(MAX_DEPTH + 1));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join(SKILL_FILE), "---\nrequired_credential_files: [deep]\n---\n").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        let found = declared(&[folder.path().to_owned()]);
        assert_eq!(found.len(), MAX_FILES);
        assert!(found.iter().all(|file| file.name != "deep"), "{found:?}");
    }
}
