//! Deleting, overwriting and reading files.

use super::contained::VISIBLE_FILES;
use super::{Rule, RuleContext, ask, floor};
use crate::file_effects::possible_outputs;
use crate::paths::{is_regenerable, is_stream};
use crate::programs::When::Help;
use crate::shell::{UNKNOWN_CHAR, Unknown, Word, WordPiece};

pub(super) const RULES: &[Rule] = &[
    floor("delete-root", "deletes everything on this machine").on_files(|context| {
        context.any_delete(|path, tree| (tree && context.paths.is_root(path)) || path == "/")
    }),
    floor("delete-system-directory", "deletes a directory that the system needs").on_files(|context| {
        let paths = &context.paths;
        context.any_delete(|path, _| paths.is_system_directory(path) && !paths.is_root(path))
    }),
    floor("delete-home", "deletes a home directory")
        .on_files(|context| context.any_delete(|path, tree| tree && context.paths.is_home(path))),
    floor("delete-owner-directory", "deletes a whole directory of yours that is mounted here")
        .on_files(|context| context.any_delete(|path, tree| tree && context.paths.is_owned_root(path))),
    floor("raw-disk", "writes straight to a disk or to the machine's memory")
        .on_files(|context| context.any_change(|path, _| context.paths.is_disk(path))),
    floor("format", "formats or wipes a disk"),
    ask("disk-tools", "changes partitions, volumes or disks").unless(Help),
    ask("delete-outside", "deletes files outside the working directory")
        .on_files(|context| {
            context.any_delete(|path, tree| outside(context, path, tree) && !is_moved_here(context, path))
        })
        .inside(),
    ask("overwrite-outside", "overwrites files outside the working directory").on_files(|context| {
        context.any_overwrite(|path| overwrites(context, path) || reopens(context, path))
            || may_overwrite(context)
    }),
    ask("delete-work", "deletes the whole working directory or its history")
        .on_files(|context| {
            context.any_delete(|path, tree| {
                let is_scratch = context.paths.is_temporary(path) && !context.paths.is_project(path);
                let history = !is_scratch
                    && path.split('/').any(|part| matches!(part, ".git" | ".hg" | ".svn" | ".jj"));
                (history && (tree || path.ends_with("/.git")))
                    || (tree && context.paths.is_cwd(path))
                    || context.paths.is_above_work(path)
            })
        })
        .contained(VISIBLE_FILES),
    ask("delete-unknown", "deletes something that is only known when the command runs")
        .on_files(|context| context.any_delete(|path, tree| unknown_delete(context, path, tree))),
    ask("write-system", "writes into a directory that belongs to the system").on_files(|context| {
        let paths = &context.paths;
        let is_top = |path: &str| {
            let name = path.strip_prefix('/');
            name.is_some_and(|name| !name.contains(['/', UNKNOWN_CHAR]) && name != "tmp")
        };
        context.any_write(|path| {
            (paths.is_system(path) || paths.is_kernel_setting(path) || is_top(path))
                && !paths.is_disk(path)
                && !is_stream(path)
        })
    }),
    ask("write-startup", "writes a file that is run at login, by a tool or on a schedule").on_files(
        |context| {
            context.any_change(|path, _| startup(context, path))
                || context.any_write(is_argument)
                || context.any_possible_change(|path| startup(context, path))
        },
    ),
    ask("write-secrets", "overwrites settings and secrets of a project").on_files(|context| {
        context.any_write(|path| context.paths.is_project_secret(path) && !context.paths.is_in_tmp(path))
    }),
    ask("write-credentials", "changes files that hold keys or passwords").on_files(|context| {
        context.any_change(|path, _| context.paths.is_credential(path) && !context.paths.is_project(path))
    }),
    ask("write-unknown", "writes to a file that is only known when the command runs")
        .on_files(|context| context.any_write(wholly_unknown)),
    ask("link-around", "gives a protected file or directory, or one outside the project, another name"),
    ask("read-credentials", "reads files that hold keys, tokens or passwords").on_files(|context| {
        (context.any_read(|path| context.paths.is_credential(path)) || context.reads_credentials_below())
            && !context.invocation.asks_for_help()
    }),
    ask("read-disk", "reads a disk or memory directly, bypassing the file system").on_files(|context| {
        let shows_facts = [
            "mount", "umount", "blkid", "smartctl", "hdparm", "lsof", "udevadm", "e2label", "fdisk",
            "parted", "dumpe2fs", "tune2fs",
        ];
        context.any_read(|path| context.paths.is_disk(path)) && !shows_facts.contains(&context.name())
    }),
    ask("modes", "lets every user write to files, or takes files outside the project from their owner")
        .unless(Help),
    ask("capabilities", "changes protections of files").unless(Help),
    ask("fill-disk", "writes without an end until the disk is full"),
];

fn outside(context: &RuleContext<'_>, path: &str, tree: bool) -> bool {
    let paths = &context.paths;
    if is_stream(path) || paths.is_project(path) || path.starts_with(UNKNOWN_CHAR) {
        return false;
    }
    let is_known = !path.contains(UNKNOWN_CHAR);
    if paths.is_temporary(path) && is_known && path.split('/').filter(|part| !part.is_empty()).count() > 1 {
        return path.contains("..");
    }
    if is_temporary_name(context, path) {
        return false;
    }
    // Below the home directory, only caches are deleted without a question.
    let inside_home = crate::paths::is_below(path, paths.home);
    let is_plain = !paths.is_startup(path) && !paths.is_credential(path);
    if inside_home && is_regenerable(path) && is_plain && is_known {
        let here = crate::paths::normalize(paths.cwd);
        return path.rsplit_once('/').is_none_or(|(parent, _)| parent != here);
    }
    if inside_home && !tree && paths.cwd == paths.home && !paths.is_startup(path) {
        return false;
    }
    true
}

/// Whether a file is lost that another one replaces. Directories are mounted to be written.
fn overwrites(context: &RuleContext<'_>, path: &str) -> bool {
    let paths = &context.paths;
    !paths.is_system(path) && !paths.is_cwd(path) && !paths.is_in_owned(path) && outside(context, path, false)
}

/// Whether a program may write a file of the owner that it gets: one without a declaration gets it in
/// any way, or another one as the value of an option that does not plainly name an input.
fn may_overwrite(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let is_owners =
        |path: String| crate::paths::is_below(&path, context.paths.home) && overwrites(context, &path);
    let is_declared = !call.program.names.is_empty();
    let is_operand = |word: &&Word| is_owners(call.segment.path(word));
    (!is_declared && call.operands().iter().any(is_operand))
        || possible_outputs(call, context.paths.home).into_iter().any(is_owners)
}

/// Whether a path is that of an open descriptor, and the script opens a file of the owner without
/// replacing its content. Opening the descriptor by its path may do that.
fn reopens(context: &RuleContext<'_>, path: &str) -> bool {
    let descriptor = match path {
        "/dev/stdin" => "0",
        "/dev/stdout" => "1",
        "/dev/stderr" => "2",
        path if path.starts_with("/proc/") => path.split_once("/fd/").map_or("", |(_, number)| number),
        path => path.strip_prefix("/dev/fd/").unwrap_or_default(),
    };
    descriptor.starts_with(|char: char| char.is_ascii_digit())
        && context.opened.iter().any(|opened| overwrites(context, opened))
}

/// Whether a path of the owner is moved into the project.
fn is_moved_here(context: &RuleContext<'_>, path: &str) -> bool {
    let paths = &context.paths;
    let is_plain = !paths.is_startup(path) && !paths.is_credential(path) && !paths.is_home(path);
    context.name() == "mv"
        && crate::paths::is_below(path, paths.home)
        && !path.contains(['*', '?'])
        && is_plain
        && !paths.is_above_work(path)
        && !context.any_write(|target| !paths.is_project(target))
}

/// Whether a path is named by a word that comes from `mktemp`, or lies below `/tmp` whatever the
/// number in its name is.
fn is_temporary_name(context: &RuleContext<'_>, path: &str) -> bool {
    let segment = context.segment();
    let is_number = |piece: &WordPiece| match piece {
        WordPiece::Text(_) | WordPiece::Unknown(Unknown::Number) => true,
        WordPiece::Unknown(Unknown::Variable(name)) => NUMBERS.contains(&name.as_str()),
        _ => false,
    };
    let is_numbered = |word: &Word| {
        context.paths.is_in_tmp(path) && !path.contains("..") && word.pieces().iter().all(is_number)
    };
    let targets = segment.redirects.iter().map(|redirect| &redirect.target);
    let names_it = |word: &&Word| {
        let named = segment.path(word);
        named == path || crate::paths::is_below(path, &named)
    };
    segment.args.iter().chain(targets).filter(names_it).any(|word| {
        word.output_of().any(|program| program == "mktemp") || (word.has_unknown() && is_numbered(word))
    })
}

/// Variables of the shell that hold a number.
const NUMBERS: &[&str] = &["$", "!", "RANDOM", "BASHPID", "PPID", "UID", "EUID", "SECONDS", "SRANDOM"];

fn unknown_delete(context: &RuleContext<'_>, path: &str, tree: bool) -> bool {
    let is_below_known = path.contains("/**/") && !path.contains(UNKNOWN_CHAR);
    if !(path.contains(UNKNOWN_CHAR) || is_below_known) || context.name() == "mv" {
        return false;
    }
    if is_below_known && context.paths.is_in_tmp(path) {
        return false;
    }
    if is_temporary_name(context, path) {
        return false;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    let in_known_directory = context.paths.is_project(path) || context.paths.is_temporary(path);
    let names_it = last.chars().any(char::is_alphanumeric);
    let many = last.contains(['*', '?', UNKNOWN_CHAR]) || path.contains("/*");
    if in_known_directory && names_it && (is_regenerable(path) || !tree || !many) {
        return false;
    }
    !is_regenerable(path) || path.starts_with('/')
}

fn startup(context: &RuleContext<'_>, path: &str) -> bool {
    let hooks =
        path.contains("/.git/hooks/") || path.ends_with("/.git/hooks") || path.ends_with("/.git/config");
    hooks
        || (context.paths.is_startup(path)
            && !context.paths.is_project(path)
            && !context.paths.is_in_tmp(path)
            && !path.contains("/venv/")
            && !path.contains("/.venv/"))
}

/// Whether a pattern that matches the name of a file would give a program an option, or Perl a command.
fn is_argument(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    (name.starts_with('-') && name.len() > 3) || name.contains('|')
}

/// Nothing about the path is known, or only a part that could be anywhere.
fn wholly_unknown(path: &str) -> bool {
    if path.starts_with(UNKNOWN_CHAR) && path.split('/').any(|part| part == "..") {
        return true;
    }
    let known: String =
        path.chars().filter(|char| *char != UNKNOWN_CHAR && *char != '/' && *char != '.').collect();
    path.starts_with(UNKNOWN_CHAR) && known.is_empty() && path != "/"
}
