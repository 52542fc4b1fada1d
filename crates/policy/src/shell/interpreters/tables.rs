//! Calls and names of other languages, by what they do.

use crate::programs::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// Runs its arguments.
    Run,
    /// Deletes its arguments, or the object it is called on.
    Delete { tree: bool },
    /// Writes the argument with this index.
    Write(usize),
    /// Writes the argument with this index if it is a known path; else it may be anything.
    Save(usize),
    /// Writes the argument of this name, if there is one.
    SaveNamed(&'static str),
    /// Writes the object it is called on.
    WriteSelf,
    /// Goes to the directory in its first argument.
    Enter,
    /// Takes its first argument away and writes its second.
    Move,
    /// Opens a file, for writing if the mode says so.
    Open,
}

/// Calls by their names or the ends of them: `system` is also `os.system`.
pub(super) const CALLS: &[(CallEffect, &[&str])] = &[
    (
        CallEffect::Run,
        &[
            "system", "exec", "qx", "popen", "shell_exec", "passthru", "proc_open", "spawn",
            "Open3.capture2", "Open3.capture3", "pcntl_exec", "subprocess.run", "subprocess.call", "Popen",
            "check_output", "check_call", "getoutput", "getstatusoutput", "create_subprocess_shell",
            "create_subprocess_exec", "os.execv", "os.execl", "os.execvp", "os.execlp", "os.execve",
            "os.execle", "os.execvpe", "os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnvp", "os.spawnve",
            "os.posix_spawn", "os.posix_spawnp", "execSync", "spawnSync", "execFile", "execFileSync", "fork",
            "os.execute", "os.startfile",
        ],
    ),
    (
        CallEffect::Delete { tree: false },
        &["os.remove", "unlink", "rmdir", "unlinkSync", "rmdirSync", "File.delete", "file.remove"],
    ),
    (
        CallEffect::Delete { tree: true },
        &[
            "rmtree", "removedirs", "remove_tree", "fs.rm", "rmSync", "promises.rm", "rimraf", "rimraf.sync",
            "removeSync", "rm_rf", "rm_r", "FileUtils.rm", "remove_dir", "remove_entry", "Deno.remove",
        ],
    ),
    (
        CallEffect::Write(0),
        &[
            "writeFile", "writeFileSync", "appendFile", "appendFileSync", "createWriteStream", "File.write",
            "IO.write", "file_put_contents", "os.truncate", "writeTextFile", "writeTextFileSync", "os.chmod",
            "os.chown", "fs.chmod", "chmodSync", "truncateSync", "File.truncate", "os.mknod",
        ],
    ),
    (
        CallEffect::Save(0),
        &[
            "FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler",
            "mailbox.mbox", "LWPCookieJar", "MozillaCookieJar", "venv.create", "extractall", "to_csv",
            "to_json", "to_parquet", "to_excel", "to_pickle", "to_html", "savefig", "imwrite", "np.save",
            "savetxt", "savez", "imsave", "os.makedirs", "os.mkdir", "mkdirSync", "outputFileSync",
            "writeJsonSync", "sqlite3.connect", "shelve.open", "dbm.open", "FileUtils.touch", "file.copy",
            "sink",
        ],
    ),
    (CallEffect::SaveNamed("filename"), &["basicConfig"]),
    (CallEffect::Save(1), &["urlretrieve", "unpack_archive", "cp.copy", "cpSync"]),
    (CallEffect::Enter, &["os.chdir", "os.fchdir", "process.chdir", "Dir.chdir", "chdir"]),
    (CallEffect::WriteSelf, &["write_text", "write_bytes", "touch"]),
    (
        CallEffect::Write(1),
        &[
            "shutil.copy", "copyfile", "copy2", "copytree", "os.link", "os.symlink", "copyFile",
            "copyFileSync", "symlinkSync", "FileUtils.cp", "FileUtils.copy",
        ],
    ),
    (CallEffect::Move, &["shutil.move", "rename", "os.replace", "renameSync", "FileUtils.mv"]),
    (CallEffect::Open, &["open", "fopen", "openSync", "FileIO", "ZipFile", "TarFile"]),
];

/// `Path.replace`, whose name is also that of a method of texts.
pub(super) const PATH_REPLACE: &(CallEffect, &[&str]) = &(CallEffect::Move, &["replace"]);

/// Members of Python's `os`, `subprocess` and `shutil` that look and do not touch.
pub(super) const SAFE_MEMBERS: &[&str] = &[
    "path", "getcwd", "listdir", "environ", "getenv", "sep", "linesep", "name", "cpu_count", "getpid",
    "getppid", "uname", "walk", "scandir", "stat", "lstat", "makedirs", "mkdir", "curdir", "pardir",
    "pathsep", "devnull", "get_terminal_size", "access", "R_OK", "F_OK", "W_OK", "X_OK", "getuid", "geteuid",
    "getgid", "getlogin", "times", "urandom", "fspath", "fsencode", "fsdecode", "sched_getaffinity",
    "isatty", "getloadavg", "sysconf", "statvfs", "readlink", "PathLike", "close", "read", "fstat", "error",
    "strerror", "extsep", "altsep", "version", "umask", "utime", "sync", "process_cpu_count", "O_RDONLY",
    "O_CREAT", "O_EXCL", "O_WRONLY", "O_RDWR", "O_TRUNC", "O_APPEND", "O_CLOEXEC", "PIPE", "DEVNULL",
    "STDOUT", "CalledProcessError", "CompletedProcess", "SubprocessError", "TimeoutExpired", "which",
    "disk_usage", "Error", "ignore_patterns",
];

/// Names that contain a dangerous one and are harmless.
pub(super) const SAFE_NAMES: &[&str] = &["re.compile", "platform.system"];

/// The names that a program in a language that is not examined may use.
pub(super) const PRINTING: &[&str] = &[
    "print", "println", "puts", "printf", "echo", "cat", "IO.puts", "io.write", "string.format", "_VERSION",
    "R.version.string", "VERSION", "for", "in", "do", "end", "if", "then", "else", "local", "return",
];

/// Letters in front of a Python literal that leave it one.
pub(super) const PREFIXES: &[&str] = &["r", "b", "u", "br", "rb", "R", "B", "U"];

/// Calls that only look at the path in their first argument, or that they are called on.
pub(super) const LOOKERS: &[&str] = &[
    "exists", "isfile", "isdir", "islink", "listdir", "scandir", "walk", "stat", "lstat", "getsize",
    "getmtime", "access", "readlink", "basename", "dirname", "splitext", "read_text", "read_bytes",
    "is_file", "is_dir", "iterdir", "glob", "iglob", "rglob", "readFileSync", "readFile", "existsSync",
    "statSync", "readdirSync", "readdir", "require", "read", "readlines", "exist?", "file?", "directory?",
    "file_get_contents", "file_exists", "read_csv", "read_json", "startswith", "endswith", "print", "which",
    "insert", "append", "disk_usage", "statvfs",
];

/// Calls that make one path from another.
pub(super) const PATH_MAKERS: &[&str] = &[
    "Path", "PosixPath", "PurePath", "expanduser", "abspath", "realpath", "resolve", "absolute", "str",
    "fspath",
];

/// Functions that open the path in their first argument. Other `open`s are methods of a path.
pub(super) const OPENERS: &[&str] = &[
    "open", "fopen", "io.open", "FileIO", "io.FileIO", "bz2.open", "lzma.open", "tarfile.open", "os.open",
    "fs.open", "fs.openSync", "openSync", "codecs.open", "gzip.open", "File.open", "IO.open", "ZipFile",
    "zipfile.ZipFile", "TarFile", "tarfile.TarFile",
];

/// Calls that request an address, the libraries that have more of them, and options that carry no
/// text away.
pub(super) const REQUESTS: &[&str] = &["urlopen", "urlretrieve", "Request", "fetch"];
pub(super) const HTTP_CLIENTS: &[&str] =
    &["requests", "httpx", "aiohttp", "axios", "got", "http", "https", "urllib3"];
pub(super) const REQUEST_OPTIONS: &[&str] = &["timeout", "verify", "stream", "allow_redirects", "context"];

/// Calls that open a server, and the modules that have them.
pub(super) const SERVERS: &[&str] =
    &["createServer", "HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer", "UDPServer"];
pub(super) const SERVER_MODULES: &[&str] = &["http.server", "socketserver"];

/// Addresses that only this machine reaches.
pub(super) const LOOPBACK: &[&str] = &["127.0.0.1", "localhost", "::1"];

pub(super) const TOO_MUCH: &str = "is too complex to analyze";
pub(super) const HIDES: &str = "runs text as code or hides which call is made";
pub(super) const NETWORK: &str = "opens a network connection or sends data";
pub(super) const STARTS: &str = "starts a program that is not known";
pub(super) const FILES: &str = "may delete or overwrite files";
const SIGNALS: &str = "sends signals to other processes, or changes its own";

/// Names that are a danger wherever they stand, in every language or in one.
pub(super) const DANGERS: &[(Option<Language>, &str, &[&str])] = &[
    (
        None,
        HIDES,
        &[
            "eval", "__import__", "__builtins__", "builtins", "__subclasses__", "__globals__",
            "__getattribute__", "__loader__", "sys.modules", "importlib", "runpy", "ctypes", "cffi",
            "marshal", "Marshal", "pickle.loads", "pickle.load", "dill", "code.interact", "getattr",
            "globals", "attrgetter", "methodcaller", "pty", "InteractiveConsole", "InteractiveInterpreter",
            "Function", "process.binding", "process.mainModule", "constructor", "globalThis",
            "process.dlopen", "module._load", "DynaLoader", "syscall", "instance_eval", "class_eval", "send",
            "__send__", "public_send", "const_get", "fiddle", "Fiddle", "create_function", "call_user_func",
            "call_user_func_array", "preg_replace_callback", "unserialize", "asm", "__asm__",
        ],
    ),
    (
        None,
        NETWORK,
        &[
            "socket", "Socket", "smtplib", "ftplib", "telnetlib", "paramiko", "fabric", "http.client",
            "requests.post", "requests.put", "requests.patch", "httpx.post", "httpx.put", "xmlrpc",
            "asyncio.open_connection", "urllib3", "boto3", "websockets", "websocket", "WebSocket",
            "http.request", "https.request", "sendBeacon", "axios.post", "createConnection", "Bun.serve",
            "Deno.connect", "LWP", "Tiny", "Net", "TCPSocket", "UDPSocket", "TCPServer", "fsockopen",
            "pfsockopen", "socket_create", "stream_socket_client", "curl_init", "ftp_connect", "TcpStream",
            "net.Dial",
        ],
    ),
    (
        None,
        SIGNALS,
        &[
            "kill", "killpg", "pthread_kill", "send_signal", "psutil", "signal.alarm", "process.abort",
            "posix_kill", "reboot", "setuid", "setgid", "chroot", "os.mount", "forkpty", "ini_set",
        ],
    ),
    (
        None,
        STARTS,
        &[
            "pexpect", "plumbum", "sh", "invoke", "Deno.Command", "Deno.run", "Bun", "fork", "pcntl_exec",
            "execa", "shelljs", "IPC", "Process.spawn", "Kernel", "Open3", "PTY", "proc_open", "pcntl_fork",
            "posix_spawn", "vfork", "Command", "syscall.Exec", "Runtime", "ProcessBuilder", "std.process",
        ],
    ),
    (
        None,
        FILES,
        &[
            "chmod", "chmodSync", "chown", "chown_R", "symlink", "os.link", "symlink_to", "hardlink_to",
            "linkSync", "Dir.delete", "remove_dir_all", "remove_file", "os.RemoveAll", "os.Remove",
            "remove_all", "ftruncate",
        ],
    ),
    (
        Some(Language::Python),
        HIDES,
        &["exec", "compile", "vars", "imp", "timeit", "cProfile", "profile", "bdb", "Trace"],
    ),
    (Some(Language::Python), FILES, &["fileinput"]),
    (Some(Language::JavaScript), HIDES, &["vm"]),
    (Some(Language::JavaScript), FILES, &["rm", "rmdir", "unlink", "truncate", "cp"]),
    (Some(Language::Perl), HIDES, &["require", "truncate", "copy"]),
    (Some(Language::Ruby), HIDES, &["method", "x"]),
    (
        Some(Language::Php),
        HIDES,
        &["assert", "include", "include_once", "require", "require_once", "dl", "mail", "popen", "copy"],
    ),
    (
        Some(Language::Compiled),
        STARTS,
        &[
            "system", "popen", "execl", "execlp", "execv", "execve", "execvp", "fork", "exec.Command",
            "unlink", "rmdir",
        ],
    ),
];
