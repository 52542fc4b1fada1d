//! Programs that show, search, copy, change and delete files.

use super::*;
use crate::paths::is_stream;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    // Programs that name files and neither read nor run them.
    non_reader(&[
        "basename", "df", "dirname", "du", "echo", "exa", "eza", "false", "file", "findmnt", "getfacl",
        "locate", "ls", "lsattr", "lsblk", "lsd", "md5sum", "mktemp", "namei", "printf", "readlink",
        "realpath", "seq", "sha1sum", "sha256sum", "sleep", "stat", "tree", "true", "wc", "which",
    ])
    .inert()
    .files(&[reads(Values(&["-f", "--files-from", "--files0-from"])).when(Not(&Test(is_printer)))]),
    // Programs that read files and nothing else.
    reader(&["base64", "cksum", "cmp", "comm", "cut", "fold", "jq", "rev", "tail"]).inert(),
    reader(&["diff"]).inert().files(&[reads_tree(Operands).when(Flag(&["-r", "--recursive"]))]),
    reader(&[
        "b2sum", "bat", "batcat", "colordiff", "column", "delta", "hexdump", "nl", "od", "open", "paste",
        "sha512sum", "shellcheck", "strings", "tac", "xdg-open",
    ]),
    reader(&["ack", "ag", "egrep", "fgrep", "ggrep", "grep", "rg", "ugrep", "zgrep"])
        .searches()
        .inert()
        .files(&[reads_tree(Computed(searched)).when(Test(searches_hidden))]),
    reader(&["less", "more"])
        .inert()
        .files(&[writes(Computed(typed_files))])
        .runs(&[Escapes(&["+!", "!", ":!"])]),
    // Programs that print, store or send their words.
    program(&[
        "apropos", "base32", "expr", "info", "notify-send", "pbcopy", "say", "tldr", "tr", "whatis",
        "whereis", "wl-copy", "write", "xclip",
    ])
    .inert(),
    reader(&["xxd"])
        .valued(&["-c", "-g", "-l", "-s", "-o", "-n", "-R"])
        .inert()
        .files(&[writes(OperandsFrom(1))]),
    program(&["man"]).inert().runs(&[Text(&["-P", "-H", "--pager", "--html"]), Escapes(&["!"])]),
    reader(&["cat", "head"]).inert().asks(&[FILLS_DISK]),
    program(&["yes"]).asks(&[
        FILLS_DISK,
        Test(|call| call.segment.redirects.is_empty() && call.segment.via.iter().any(|via| via == "xargs"))
            .triggers("spawn-without-end"),
    ]),
    reader(&["sort"]).inert().files(&[writes(Values(&["-o", "--output"]))]).runs(&[Custom(compressor)]),
    program(&["uniq"]).valued(&["-f", "-s", "-w"]).inert().files(&[writes(OperandsFrom(1))]),
    reader(&["yq"]).inert().files(&[EDITS_IN_PLACE]),
    program(&["crudini", "dasel", "toml", "augtool", "xmlstarlet"]).files(&[EDITS_IN_PLACE]),
    non_reader(&["tee", "sponge"]).inert().files(&[
        adds(Operands).when(Flag(&["-a", "--append"])),
        writes(Operands).when(Not(&Flag(&["-a", "--append"]))),
    ]),
    non_reader(&["truncate", "fallocate"])
        .valued(&["-s", "--size", "-r", "-l", "-o", "--length"])
        .files(&[writes(Operands)])
        .asks(&[FILLS_DISK]),
    non_reader(&["touch"]).valued(CREATION_VALUED).inert().files(&[adds(Operands)]),
    non_reader(&["mkdir", "mkfifo"])
        .valued(CREATION_VALUED)
        .inert()
        .files(&[adds(Operands)])
        .asks(&[Test(creates_open_file).triggers("modes")]),
    program(&["mknod"])
        .valued(CREATION_VALUED)
        .files(&[adds(Operands)])
        .asks(&[Operand(&["b", "c", "u"]).triggers("modes")]),
    reader(&["cp", "gcp", "ditto"])
        .valued(COPY_VALUED)
        .files(&[
            reads_tree(Computed(copy_sources)).when(Flag(&["-r", "-R", "-a", "--recursive", "--archive"])),
            adds(Computed(copy_targets)).when(KEEPS_FILES),
            writes(Computed(copy_targets)).when(Not(&KEEPS_FILES)),
        ])
        .asks(&[FILLS_DISK, Ask { when: Flag(&["-l", "-s", "--link", "--symbolic-link"]), ..LINKS_AROUND }]),
    reader(&["install", "ginstall"])
        .valued(&[
            "-t", "-S", "-m", "-o", "-g", "--target-directory", "--suffix", "--mode", "--owner", "--group",
        ])
        .files(&[writes(Computed(copy_targets))])
        .asks(&[Test(creates_open_file).triggers("modes")]),
    program(&["ln", "gln", "link"])
        .valued(COPY_VALUED)
        .files(&[
            adds(Computed(copy_targets)).when(Not(&Flag(&["-f", "--force"]))),
            writes(Computed(copy_targets)).when(Flag(&["-f", "--force"])),
        ])
        .asks(&[LINKS_AROUND]),
    non_reader(&["mv", "gmv"]).valued(COPY_VALUED).files(MOVES),
    reader(&["dd"]).files(&[writes(AfterPrefix("of="))]).asks(&[FILLS_DISK]),
    non_reader(&["rm", "grm", "srm", "wipe", "rimraf"]).files(REMOVES),
    non_reader(&["unlink", "shred", "rmdir"])
        .valued(&["-n", "-s", "--iterations", "--size", "--random-source"])
        .files(&[deletes(Operands)]),
    non_reader(&["chmod", "chown", "chgrp", "gchmod", "gchown"])
        .valued(&["--reference", "--from"])
        .asks(&[judged("modes", changes_modes)]),
    program(&["setcap", "chflags"]).asks(&[always("capabilities")]),
    program(&["chattr", "setfacl", "xattr"])
        .files(&[writes(Computed(|call| call.args.iter().skip(1).cloned().collect()))])
        .asks(&[always("capabilities")]),
    reader(&["tar", "gtar", "bsdtar"]).files(ARCHIVES).runs(&[
        Text(&[
            "--to-command", "-I", "--use-compress-program", "-F", "--info-script", "--new-volume-script",
            "--rsh-command",
        ]),
        Custom(|call, found| {
            let actions = call.values(&["--checkpoint-action"]);
            found.extend(actions.iter().filter_map(|action| action.strip_prefix("exec=")).map(Nested::text));
        }),
    ]),
    reader(&["zip"])
        .valued(&["-x", "-i", "-b", "-P", "-t", "-tt", "-n"])
        .files(&[
            adds(FirstOperand),
            reads_tree(OperandsFrom(1)).when(Flag(&["-r", "--recurse-paths"])),
            deletes_tree(OperandsFrom(1)).when(Any(&[Flag(&["-m"]), Arg(&["--move"])])),
        ])
        .runs(&[Text(&["-TT", "--unzip-command"])]),
    reader(&[
        "gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "lzma", "unlzma", "compress", "uncompress",
        "pigz", "pbzip2", "lzip", "lzop", "zstd", "unzstd", "lz4", "brotli",
    ])
    .files(COMPRESSED),
    reader(&["split"])
        .valued(&["-a", "-b", "-l", "-n", "-C", "-t"])
        .files(&[writes(OperandsFrom(1))])
        .runs(&[Text(&["--filter"])]),
    reader(&["csplit"])
        .inert()
        .valued(&["-b", "-n", "-f"])
        .files(&[writes(Values(&["-f", "--prefix"])), writes(FILLS_DIRECTORY)]),
    reader(&["iconv", "nm", "readelf", "objdump"]).files(&[writes(Values(&["-o", "--output"]))]),
    program(&["strip", "objcopy"]).files(&[writes(Operands)]),
    program(&["rename", "prename", "file-rename", "perl-rename", "mmv", "vidir", "detox"])
        .files(&[deletes(Operands)]),
    reader(&["convert", "magick", "mogrify", "ffmpeg", "sox", "pdftk", "qpdf", "pdfunite", "img2pdf"])
        .files(&[writes(LastOperand)]),
    program(&["dos2unix", "unix2dos", "mac2dos", "fromdos", "todos", "exiftool", "jpegoptim", "optipng"])
        .files(&[writes(Operands)]),
    program(&["unzip"]).valued(&["-d", "-x", "-P"]).files(&[
        writes(Values(&["-d"])),
        writes(FILLS_DIRECTORY).when(Not(&Flag(&["-d", "-l", "-p", "-t", "-v", "-Z", "-n"]))),
    ]),
    program(&["7z", "7za", "unrar", "rar", "bsdcpio"]).files(&[
        writes(Values(&["-o", "-d"])),
        writes(FILLS_DIRECTORY).when(All(&[Verb(&["x", "e"]), Not(&Arg(&["-o*"]))])),
        writes(OperandsFrom(2)).when(Verb(&["x", "e"])),
        reads_tree(OperandsFrom(2)).when(Verb(&["a", "u"])),
    ]),
    program(&["dpkg-deb"]).files(&[
        writes(LastOperand).when(Flag(&["-b", "--build"])),
        writes(Computed(unpacked_package))
            .when(Flag(&["-x", "-X", "-R", "--extract", "--vextract", "--raw-extract"])),
    ]),
    program(&["cpio"]).files(&[
        writes(Values(&["-D", "--directory"])),
        writes(FILLS_DIRECTORY).when(All(&[Flag(&["-i", "-p", "--extract"]), Not(&Flag(&["-t"]))])),
    ]),
    program(&["patch"]).valued(&["-i", "-p", "-d", "-o", "-r"]).files(&[
        writes(Values(&["-d", "--directory"])),
        writes(FirstOperand).when(Not(&Flag(&["-d", "--directory"]))),
    ]),
];

const CREATION_VALUED: &[&str] = &["-m", "-d", "-r", "-t", "--mode", "--date"];
const COPY_VALUED: &[&str] = &["-t", "-S", "--target-directory", "--suffix"];

const LINKS_AROUND: Ask = judged("link-around", links_around);

const FILLS_DISK: Ask = judged("fill-disk", fills_disk);

const EDITS_IN_PLACE: DeclaredFiles =
    writes(PathLike).when(Flag(&["-i", "--inplace", "--in-place", "--set", "-L"]));

const KEEPS_FILES: When = Flag(&["-n", "--no-clobber"]);

const MOVES: &[DeclaredFiles] = &[
    deletes_tree(Computed(copy_sources)),
    adds(Computed(copy_targets)).when(KEEPS_FILES),
    writes(Computed(copy_targets)).when(Not(&KEEPS_FILES)),
];

const REMOVES: &[DeclaredFiles] = &[
    deletes_tree(Operands).when(All(&[Test(removes_trees), Not(&Flag(&["--help", "--version"]))])),
    deletes(Computed(emptied_operands)).when(Test(removes_trees)),
    deletes(Operands).when(Not(&Any(&[Test(removes_trees), Flag(&["--help", "--version"])]))),
];

const ARCHIVES: &[DeclaredFiles] = &[
    writes(Computed(unpacked)).when(All(&[Test(extracts), Not(&KEEPS_OLD_FILES)])),
    adds(Values(&["-C", "--directory", "--one-top-level"])).when(All(&[Test(extracts), KEEPS_OLD_FILES])),
    writes(FILLS_DIRECTORY).when(All(&[
        Test(extracts),
        Not(&Flag(&["-C", "--directory", "-k", "--keep-old-files", "-O", "--to-stdout"])),
    ])),
    writes(Computed(|_| vec![Word::literal("/")])).when(All(&[Test(extracts), Test(keeps_absolute_names)])),
    writes(Values(&["-f", "--file"])).when(Not(&Test(extracts))),
    deletes_tree(Operands).when(Arg(&["--remove-files"])),
    reads_tree(Operands).when(Test(archives)),
    reads_tree(Values(&["-C", "--directory"])).when(Test(archives)),
];

/// What lands in the directory in which a program unpacks or downloads.
pub(super) const FILLS_DIRECTORY: Which = Computed(|_| vec![Word::literal("./file")]);

const KEEPS_OLD_FILES: When = Flag(&["-k", "--keep-old-files", "--skip-old-files"]);

/// What compressors replace by a compressed file.
const COMPRESSED: &[DeclaredFiles] = &[writes(Operands)
    .when(Not(&Flag(&["-c", "--stdout", "--to-stdout", "-k", "--keep", "-l", "--list", "-t", "--test"])))];

fn removes_trees(call: &Invocation<'_>) -> bool {
    call.name() == "rimraf"
        || call.has(&["-r", "-R", "--recursive"])
        || call.segment.via.iter().any(|via| matches!(via.as_str(), "find" | "fd" | "bfs"))
        || call.args.iter().any(|word| word.splits && word.starts_unknown())
}

/// Operands as they are if their unknown stretches turn out to be empty.
fn emptied_operands(call: &Invocation<'_>) -> Vec<Word> {
    let unknown = call.operands().into_iter().filter(|word| word.has_unknown());
    let emptied = unknown.map(|word| word.outline().replace(UNKNOWN_CHAR, ""));
    emptied.filter(|path| path.starts_with('/')).map(Word::literal).collect()
}

/// The sources and the target of a copy.
fn sources_and_target(call: &Invocation<'_>) -> (Vec<Word>, Option<Word>) {
    let mut words: Vec<Word> = call.operands().into_iter().cloned().collect();
    let target = call.values(&["-t", "--target-directory"]).into_iter().next();
    let target = target.or_else(|| (words.len() > 1).then(|| words.pop()).flatten());
    (words, target)
}

fn copy_sources(call: &Invocation<'_>) -> Vec<Word> {
    match sources_and_target(call) {
        (sources, Some(_)) => sources,
        (_, None) => Vec::new(),
    }
}

fn is_known_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(UNKNOWN_CHAR)
}

/// The target of a copy, and where each source lands if it is a directory.
fn copy_targets(call: &Invocation<'_>) -> Vec<Word> {
    let (sources, Some(target)) = sources_and_target(call) else { return Vec::new() };
    let directory = call.segment.path(&target);
    let mut found = vec![target];
    for source in sources {
        let outline = source.outline();
        let name = outline.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
        // A name that is not known is some file of the directory.
        let name = if name.contains(UNKNOWN_CHAR) && is_known_path(&directory) { "*" } else { name };
        found.push(Word::literal(format!("{directory}/{name}")));
    }
    found
}

fn links_around(context: &RuleContext<'_>) -> bool {
    let (sources, _) = sources_and_target(&context.invocation);
    let paths = &context.paths;
    sources.iter().any(|word| {
        let path = context.invocation.segment.path(word);
        paths.is_root(&path)
            || paths.is_home(&path)
            || paths.is_system_directory(&path)
            || paths.is_hermes(&path)
            || paths.is_credential(&path)
            || paths.is_disk(&path)
            || crate::paths::is_account_file(&path)
    }) || links_out(context)
}

/// Whether files that may be changed without a question become another name for files that may not.
fn links_out(context: &RuleContext<'_>) -> bool {
    let (call, paths) = (&context.invocation, &context.paths);
    let (sources, target) = sources_and_target(call);
    let target = target.map_or_else(|| ".".to_owned(), |target| target.outline());
    let path = call.segment.path(&Word::literal(&target));
    let is_linked_here = paths.is_project(&path) || paths.is_cwd(&path) || paths.is_temporary(&path);
    let is_symbolic = call.has(&["-s", "--symbolic", "--symbolic-link"]);
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    // A relative link counts from where it lies, below the target if that is a directory.
    let starts: &[&str] = match (is_symbolic, target.ends_with(['.', '/'])) {
        (true, true) => &[&path],
        (true, false) => &[&path, parent],
        (false, _) => &[call.segment.cwd.as_deref().unwrap_or("/")],
    };
    let is_neighbor = |text: &str| {
        let rest = text.strip_prefix("../").and_then(|rest| rest.split_once('/'));
        rest.is_some_and(|(first, _)| first != ".." && !PERSONAL_DIRECTORIES.contains(&first))
    };
    let leads_out = |word: &Word| {
        let text = word.outline();
        let is_outside = |start: &&str| {
            let path = crate::paths::resolve(&text, Some(start));
            crate::paths::is_below(&path, paths.home)
                && !paths.is_project(&path)
                && !paths.is_cwd(&path)
                && !paths.is_temporary(&path)
                && !path.split('/').any(|part| TOOL_TREES.contains(&part))
        };
        !(is_symbolic && is_neighbor(&text)) && starts.iter().any(is_outside)
    };
    is_linked_here && sources.iter().any(leads_out)
}

/// Directories in a home that hold no work of a repository.
const PERSONAL_DIRECTORIES: &[&str] =
    &["Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos"];

/// Trees of installed packages and programs.
const TOOL_TREES: &[&str] = &[
    "node_modules", "site-packages", ".cargo", ".rustup", ".nvm", ".pyenv", ".rbenv", ".local", ".npm", "go",
    ".m2", ".gradle", "venv", ".venv",
];

/// Something in each directory into which `tar` unpacks.
fn unpacked(call: &Invocation<'_>) -> Vec<Word> {
    let directories = call.values(&["-C", "--directory", "--one-top-level"]);
    directories.iter().map(|word| word.followed_by(&Word::literal("/file"))).collect()
}

/// Something in the directory into which a package is unpacked.
fn unpacked_package(call: &Invocation<'_>) -> Vec<Word> {
    let directory = call.operands().get(1).map(|word| word.followed_by(&Word::literal("/file")));
    directory.into_iter().collect()
}

/// A program of the project with which `sort` compresses its temporary files.
fn compressor(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let programs = call.values(&["--compress-program"]);
    let of_project = programs.into_iter().filter(|word| word.outline().contains(['/', UNKNOWN_CHAR]));
    found.extend(
        of_project
            .map(|_| Nested::Code(Language::Other, Word::unknown(Unknown::Variable("sort".to_owned())))),
    );
}

/// The options of `tar` that may be written without a dash, as in `tar xzf`.
fn bundled_options<'a>(call: &Invocation<'a>) -> &'a str {
    call.args.first().and_then(Word::known).filter(|word| !word.starts_with('-')).unwrap_or_default()
}

fn extracts(call: &Invocation<'_>) -> bool {
    call.has(&["-x", "--extract", "--get"]) || bundled_options(call).contains('x')
}

/// Whether `tar` puts files into an archive.
fn archives(call: &Invocation<'_>) -> bool {
    call.has(&["-c", "--create", "-r", "--append", "-u", "--update"])
        || bundled_options(call).contains(['c', 'r', 'u'])
}

fn is_printer(call: &Invocation<'_>) -> bool {
    matches!(call.name(), "echo" | "printf")
}

/// Whether a search goes through directories, hidden ones among them.
fn searches_hidden(call: &Invocation<'_>) -> bool {
    match call.name() {
        "ack" => true,
        "rg" | "ag" => call.has(&["--hidden", "-.", "-u"]) && !call.has(&["--files"]),
        _ => call.has(&["-r", "-R", "--recursive", "--dereference-recursive"]),
    }
}

/// The directories that are searched.
fn searched(call: &Invocation<'_>) -> Vec<Word> {
    let skip = usize::from(!call.has(&["-e", "--regexp", "-f", "--file"]));
    let named: Vec<Word> = operands(call.args, SEARCH_VALUED).into_iter().skip(skip).cloned().collect();
    if named.is_empty() { vec![Word::literal(".")] } else { named }
}

const SEARCH_VALUED: &[&str] = &[
    "-A", "-B", "-C", "-m", "-e", "-f", "-d", "-D", "-g", "-t", "-T", "-j", "--include", "--exclude",
    "--exclude-dir", "--glob", "--type", "--max-count", "--context", "--regexp", "--file",
];

/// The files that commands typed into a pager open or write.
fn typed_files(call: &Invocation<'_>) -> Vec<Word> {
    let typed = call.segment.stdin.text.as_ref().map(Word::outline).unwrap_or_default();
    let files = typed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let opens = matches!(words.next(), Some(":e" | "s" | "o" | "O" | ":s" | ":o"));
        words.next().filter(|_| opens).map(Word::literal)
    });
    files.collect()
}

fn keeps_absolute_names(call: &Invocation<'_>) -> bool {
    call.has(&["-P", "--absolute-names"]) || bundled_options(call).contains('P')
}

fn creates_open_file(call: &Invocation<'_>) -> bool {
    call.values(&["-m", "--mode"]).iter().any(|mode| opens_to_all(&mode.outline()))
}

fn changes_modes(context: &RuleContext<'_>) -> bool {
    let (call, paths) = (&context.invocation, &context.paths);
    let words = call.operands();
    let Some((mode, files)) = words.split_first() else { return false };
    let is_guarded = |path: &str| {
        paths.is_system(path) || paths.is_system_directory(path) || paths.is_root(path) || paths.is_home(path)
    };
    if !call.name().ends_with("chmod") {
        let to_root = mode.prefix().split([':', '.']).any(|part| matches!(part, "root" | "0"));
        return to_root || files.iter().any(|word| is_guarded(&call.segment.path(word)));
    }
    let text = mode.outline();
    let keeps_secret = matches!(text.trim_start_matches('0'), "600" | "400" | "700")
        || text.starts_with("go-")
        || text.starts_with("og-");
    opens_to_all(&text)
        || (locks_out(&text) && files.iter().any(|word| !paths.is_project(&call.segment.path(word))))
        || words.iter().any(|word| {
            let path = call.segment.path(word);
            is_guarded(&path) || (paths.is_credential(&path) && !keeps_secret)
        })
}

/// Whether a mode lets every user write, or gives a program the rights of its owner.
fn opens_to_all(text: &str) -> bool {
    if !text.is_empty() && text.chars().all(|char| char.is_digit(8)) {
        let digits = text.trim_start_matches('0');
        let digit = |char: Option<char>| char.and_then(|char| char.to_digit(8)).unwrap_or(0);
        let sets_id = digits.len() > 3 && digit(digits.chars().next()) & 6 != 0;
        return sets_id || digit(digits.chars().last()) & 2 != 0;
    }
    text.split(',').any(|part| {
        let (who, what) = part.split_at(part.find(['+', '=']).unwrap_or(part.len()));
        (who.contains(['o', 'a']) && what.contains('w'))
            || (what.contains('s') && !who.contains('o'))
            || (who.is_empty() && what.contains('w') && what.starts_with('='))
    })
}

/// Whether a mode takes the rights of the owner away.
fn locks_out(text: &str) -> bool {
    if text.chars().all(|char| char.is_digit(8)) {
        return text.trim_start_matches('0').len() < 3;
    }
    text.split(',').any(|part| {
        let (who, what) = part.split_at(part.find(['+', '-', '=']).unwrap_or(part.len()));
        let is_owner = who.is_empty() || who.contains(['u', 'a']);
        is_owner && ((what.starts_with('-') && what.contains(['r', 'w'])) || what == "=")
    })
}

/// A size that no command writes by intention.
const HUGE_BYTES: u64 = 50 << 30;

fn fills_disk(context: &RuleContext<'_>) -> bool {
    let call = &context.invocation;
    let writes = || context.any_write(|path| !is_stream(path));
    let is_endless = |path: &str| matches!(path, "/dev/zero" | "/dev/urandom" | "/dev/random");
    let is_huge =
        |options: &[&str]| call.values(options).iter().any(|bytes| parse_size(bytes.prefix()) >= HUGE_BYTES);
    match call.name() {
        "cat" | "cp" | "gcp" => writes() && context.any_read(is_endless),
        "yes" => writes(),
        "dd" => {
            let value =
                |key: &str| call.args.iter().find_map(|word| word.prefix().strip_prefix(key).map(parse_size));
            let endless =
                call.args.iter().any(|word| word.prefix().strip_prefix("if=").is_some_and(is_endless));
            let total = value("count=").map(|count| count.saturating_mul(value("bs=").unwrap_or(512)));
            endless && writes() && total.is_none_or(|total| total >= HUGE_BYTES)
        }
        "head" => writes() && is_huge(&["-c", "--bytes"]),
        _ => is_huge(&["-l", "--length", "-s", "--size"]),
    }
}

/// A size such as `10M` in bytes.
fn parse_size(text: &str) -> u64 {
    let text = text.trim_start_matches(|char: char| !char.is_ascii_digit());
    let unit = text.trim_start_matches(|char: char| char.is_ascii_digit());
    let number = text.strip_suffix(unit).and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0);
    let unit = unit.chars().next().map(|unit| unit.to_ascii_uppercase());
    let power = unit.and_then(|unit| "KMGTPE".find(unit)).map_or(0, |index| index + 1);
    (0..power).fold(number, |number, _| number.saturating_mul(1024))
}
