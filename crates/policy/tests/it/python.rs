//! What is found in Python programs, compared with what they really do by
//! `cargo xtask fuzz gate --python`.

use hermes_policy::shell::{Segment, Surroundings, understand, understand_python};

fn around() -> Surroundings<'static> {
    Surroundings::new("/home/ada/work", "/home/ada", "/home/ada/.hermes")
}

#[test]
fn effects_of_programs_are_found() {
    for (program, effect) in [
        ("open(*['a.txt', 'w'])", "> ${path}"),
        ("open(**{'file': 'a.txt', 'mode': 'w'})", "> ${path}"),
        ("open(mode='w', file='a.txt')", "> ${path}"),
        ("from pathlib import Path\nPath('a.txt').rename('b.txt')", "rm -f a.txt"),
        ("from pathlib import Path\nPath('a.txt').replace('b.txt')", "> b.txt"),
        ("from pathlib import Path\n(Path(p)).replace('b.txt')", "rm -f ${path}"),
        ("p, q = 'f.py', 'g.py'\nopen(p, 'w')\np = 'a.txt'", "> ${path}"),
        ("[p, q] = names\np = 'a.txt'\nopen(p, 'w')", "> ${path}"),
        ("p = 'a.txt'\np %= x\nopen(p, 'w')", "> ${path}"),
        ("d[x] = p = 'a.txt'\nopen(p, 'w')", "> a.txt"),
        ("import tarfile\ntarfile.open('a.tgz', 'w:gz')", "> a.tgz"),
        ("import logging\nlogging.basicConfig(level=1, filename='a.log')", "> a.log"),
        ("import logging.handlers as l\nl.RotatingFileHandler('a.log')", "> a.log"),
        ("import venv\nvenv.create('v')", "> v"),
        ("import zipfile\nzipfile.ZipFile(p, 'w').close()", "> ${path}"),
        ("with open(\"a\\\n.txt\", 'w') as file: pass", "> a.txt"),
    ] {
        let script = understand_python(program, &around());
        let found: Vec<String> = script.segments.iter().map(Segment::show).collect();
        assert!(found.iter().any(|found| found == effect), "{program}: {found:?}");
    }
}

#[test]
fn functions_under_other_names_are_doubted() {
    for program in [
        "f = open\nf(p, 'w')",
        "from threading import Thread\nThread(target=open, args=('a.txt', 'w')).start()",
        "from pathlib import Path\nlist(map(Path.touch, names))",
        "import os\nlist(map(os.rename, names, others))",
        "import posix\nposix.remove('a.txt')",
        "import code\ncode.InteractiveInterpreter().runsource(text)",
        "import trace\ntrace.Trace().run(text)",
    ] {
        assert!(!understand_python(program, &around()).doubts.is_empty(), "{program}");
    }
    for program in [
        "text.replace('a', 'b')",
        "from io import open\nopen('a.txt')",
        "import zipfile\nzipfile.ZipFile(p).namelist()",
        "print(open('a.txt').read())",
    ] {
        let script = understand_python(program, &around());
        assert!(script.doubts.is_empty(), "{program}: {:?}", script.doubts);
        assert!(script.segments.iter().all(|segment| !segment.show().starts_with('>')), "{program}");
    }
}

/// The order of calls, branches and loops is not followed.
#[test]
fn relative_paths_are_taken_in_every_directory_of_a_program() {
    let directories = |program: &str| -> Vec<Option<String>> {
        let script = understand_python(program, &around());
        script
            .segments
            .into_iter()
            .filter(|segment| segment.show() == "> a.txt")
            .map(|segment| segment.cwd)
            .collect()
    };
    let both = directories("import os\nif x:\n    os.chdir('/tmp')\nopen('a.txt', 'w')");
    assert_eq!(both, [Some("/home/ada/work".to_owned()), Some("/tmp".to_owned())]);
    let before = directories("import os\nopen('a.txt', 'w')\nos.chdir('/tmp')");
    assert!(before.contains(&Some("/home/ada/work".to_owned())), "{before:?}");
    let anywhere = directories("import os\nfor x in y:\n    os.chdir('..')\n    open('a.txt', 'w')");
    assert!(anywhere.contains(&None), "{anywhere:?}");
    let nested = directories("import os\nos.system('cd sub && ls')\nopen('a.txt', 'w')");
    assert_eq!(nested, [Some("/home/ada/work".to_owned())]);
}

#[test]
fn a_program_does_not_change_the_directory_of_the_shell() {
    let script = understand("python3 -c \"import os; os.chdir('/tmp')\"; rm a; echo $PWD", &around());
    let rm = script.segments.iter().find(|segment| segment.name == "rm").map(|segment| segment.cwd.clone());
    assert_eq!(rm, Some(Some("/home/ada/work".to_owned())));
    let echo = script.segments.iter().find(|segment| segment.name == "echo").map(Segment::show);
    assert_eq!(echo.as_deref(), Some("echo /home/ada/work"));
}
