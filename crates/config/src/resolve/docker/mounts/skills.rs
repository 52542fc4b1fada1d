//! The files that skills say they need, in the words at the head of their `SKILL.md`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use hermes_exec::backend::docker::mount_policy::DeclaredFile;

use crate::yaml::{self, Node, NodeKind};

/// What describes a skill.
const SKILL: &str = "SKILL.md";
/// What it has a list of files under.
const KEY: &str = "required_credential_files";
/// What stands before and after its head.
const FENCE: &str = "---";
/// How many bytes of a skill are read; its head is a small part of that.
const MOST_BYTES: u64 = 400_000;
/// How much of all trees is looked through, how deep, and how many files are given.
const MOST_ENTRIES: usize = 100_000;
const DEEPEST: usize = 8;
const MOST_FILES: usize = 256;

/// What the skills in these trees need, in a fixed order. A skill that cannot be read needs nothing.
pub(super) fn declared(trees: &[PathBuf]) -> Vec<DeclaredFile> {
    let mut directories: Vec<(PathBuf, usize)> = trees.iter().map(|tree| (tree.clone(), 0)).collect();
    let (mut skills, mut seen) = (Vec::new(), 0);
    while let Some((directory, depth)) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST_ENTRIES {
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEEPEST {
                directories.push((entry.path(), depth + 1));
            } else if kind.is_file() && entry.file_name() == SKILL {
                skills.push(entry.path());
            }
        }
    }
    skills.sort();
    let all = skills.into_iter().flat_map(|skill| {
        let names = names(&head(&skill).unwrap_or_default());
        names.into_iter().map(move |name| DeclaredFile { skill: skill.clone(), name })
    });
    all.take(MOST_FILES).collect()
}

/// The part of a skill that is for programs.
fn head(skill: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(skill).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // Some editors put a mark before everything.
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next()?.trim_end() != FENCE {
        return None;
    }
    let mut head = String::new();
    for line in lines {
        if line.trim_end() == FENCE {
            return Some(head);
        }
        head.push_str(line);
        head.push('\n');
    }
    None
}

/// The names of the files: each is a text, or has one as its path or name.
fn names(head: &str) -> Vec<String> {
    let Ok(root) = yaml::parse(head) else { return Vec::new() };
    let text = |node: &Node| node.to_json().as_str().map(|text| text.trim().to_owned());
    let name =
        |node: &Node| text(node).or_else(|| ["path", "name"].iter().find_map(|key| text(node.get(key)?)));
    let names: Vec<String> = match root.get(KEY) {
        Some(Node { kind: NodeKind::List(items), .. }) => items.iter().filter_map(name).collect(),
        Some(node) => name(node).into_iter().collect(),
        None => Vec::new(),
    };
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_skills_need_is_read_from_their_heads() {
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
            let skill = folder.path().join("category/one").join(SKILL);
            fs::create_dir_all(skill.parent().unwrap()).unwrap();
            fs::write(&skill, text).unwrap();
            let named =
                expected.iter().map(|name| DeclaredFile { skill: skill.clone(), name: (*name).to_owned() });
            assert_eq!(declared(&[folder.path().to_owned()]), named.collect::<Vec<_>>(), "{text:?}");
        }
    }

    #[test]
    fn skills_without_end_are_read_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let many: Vec<String> = (0..2 * MOST_FILES).map(|number| format!("f{number}")).collect();
        let text = format!("---\nrequired_credential_files: [{}]\n---\n", many.join(", "));
        fs::write(folder.path().join(SKILL), text).unwrap();
        let deep = folder.path().join("d/".repeat(DEEPEST + 1));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join(SKILL), "---\nrequired_credential_files: [deep]\n---\n").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        let found = declared(&[folder.path().to_owned()]);
        assert_eq!(found.len(), MOST_FILES);
        assert!(found.iter().all(|one| one.name != "deep"), "{found:?}");
    }
}
