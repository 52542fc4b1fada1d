//! Calls and words of other languages, by what they do.

use crate::programs::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// Runs its first argument.
    Run,
    Delete,
    DeleteTree,
    /// Deletes the object it is called on.
    DeleteSelf,
    Write,
    /// Writes the object it is called on.
    WriteSelf,
    /// Writes its second argument.
    WriteSecond,
    /// Takes its first argument away and writes its second.
    Move,
    /// Opens a file, for writing if the mode says so.
    Open,
}

pub(super) struct KnownCall {
    pub(super) names: &'static [&'static str],
    pub(super) effect: CallEffect,
    /// Whether the language allows it without brackets.
    pub(super) bare: bool,
}

const fn call(names: &'static [&'static str], effect: CallEffect) -> KnownCall {
    KnownCall { names, effect, bare: false }
}

pub(super) const CALLS: &[KnownCall] = &[
    KnownCall {
        names: &[
            "system", "exec", "qx", "popen", "shell_exec", "passthru", "proc_open", "spawn", "IO.popen",
            "Open3.capture2", "Open3.capture3", "pcntl_exec",
        ],
        effect: CallEffect::Run,
        bare: true,
    },
    call(
        &[
            "os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_call",
            "subprocess.check_output", "subprocess.Popen", "subprocess.getoutput",
            "subprocess.getstatusoutput", "commands.getoutput", "pty.spawn", "Popen", "check_output",
            "check_call", "getoutput", "getstatusoutput", "create_subprocess_shell",
            "create_subprocess_exec", "os.execv", "os.execl", "os.execvp", "os.execlp", "os.execve",
            "os.execle", "os.execvpe", "os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnvp", "os.spawnve",
            "os.posix_spawn", "os.posix_spawnp", "execSync", "spawnSync", "execFile", "execFileSync", "fork",
            "os.execute", "io.popen", "os.startfile",
        ],
        CallEffect::Run,
    ),
    call(
        &[
            "os.remove", "os.unlink", "os.rmdir", "fs.unlink", "fs.unlinkSync", "fs.rmdirSync", "unlinkSync",
            "File.delete", "File.unlink", "Dir.rmdir", "fs.promises.unlink", "file.remove",
        ],
        CallEffect::Delete,
    ),
    KnownCall { names: &["unlink", "rmdir"], effect: CallEffect::Delete, bare: true },
    call(
        &[
            "shutil.rmtree", "rmtree", "os.removedirs", "remove_tree", "fs.rm", "fs.rmSync", "rmSync",
            "fs.promises.rm", "fs.rmdir", "rimraf", "rimraf.sync", "fs.removeSync", "FileUtils.rm_rf",
            "FileUtils.rm_r", "FileUtils.rm", "FileUtils.remove_dir", "FileUtils.remove_entry",
            "FileUtils.rmtree", "Deno.remove", "Deno.removeSync",
        ],
        CallEffect::DeleteTree,
    ),
    KnownCall {
        names: &["FileUtils.rm_rf", "FileUtils.rm_r", "FileUtils.rm", "remove_tree", "rmtree", "File.delete"],
        effect: CallEffect::DeleteTree,
        bare: true,
    },
    call(&[".unlink", ".rmdir"], CallEffect::DeleteSelf),
    call(
        &[
            "fs.writeFile", "fs.writeFileSync", "writeFileSync", "fs.appendFile", "fs.appendFileSync",
            "appendFileSync", "fs.createWriteStream", "fs.promises.writeFile", "File.write", "IO.write",
            "file_put_contents", "os.truncate", "Bun.write", "Deno.writeTextFile", "Deno.writeFile",
            "Deno.writeTextFileSync", "os.chmod", "os.chown", "fs.chmodSync", "fs.chmod", "fs.truncateSync",
            "truncateSync", "File.truncate", "chmodSync", "createWriteStream", "writeFile", "appendFile",
            "os.mknod",
        ],
        CallEffect::Write,
    ),
    call(&[".write_text", ".write_bytes", ".chmod", ".touch"], CallEffect::WriteSelf),
    call(
        &[
            "shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree", "os.link", "os.symlink",
            "fs.copyFileSync", "copyFileSync", "fs.copyFile", "fs.symlinkSync", "FileUtils.cp", "copy",
        ],
        CallEffect::WriteSecond,
    ),
    call(
        &[
            "shutil.move", "os.rename", "os.replace", "fs.renameSync", "renameSync", "fs.rename",
            "FileUtils.mv", "File.rename", "rename",
        ],
        CallEffect::Move,
    ),
    call(
        &["open", "io.open", "File.open", "fopen", "os.open", "fs.openSync", "fs.open", "codecs.open"],
        CallEffect::Open,
    ),
];

/// Names in Python's `os` that look and do not touch.
pub(super) const SAFE_OS: &[&str] = &[
    "path", "getcwd", "listdir", "environ", "getenv", "sep", "linesep", "name", "cpu_count", "getpid",
    "getppid", "uname", "walk", "scandir", "stat", "lstat", "makedirs", "mkdir", "curdir", "pardir",
    "pathsep", "devnull", "get_terminal_size", "access", "R_OK", "F_OK", "W_OK", "X_OK", "getuid", "geteuid",
    "getgid", "getlogin", "times", "urandom", "fspath", "fsencode", "fsdecode", "sched_getaffinity",
    "isatty", "chdir", "getloadavg", "sysconf", "statvfs", "readlink", "PathLike", "close", "read", "fstat",
    "error", "strerror", "extsep", "altsep", "version", "umask", "utime", "sync", "process_cpu_count",
    "O_RDONLY",
];

/// Words that are a danger wherever they stand in a program of one language.
pub(super) struct Danger {
    pub(super) language: Language,
    pub(super) words: &'static [&'static str],
    pub(super) reason: &'static str,
}

const fn danger(language: Language, reason: &'static str, words: &'static [&'static str]) -> Danger {
    Danger { language, words, reason }
}

const HIDES: &str = "runs text as code or hides which call is made";
const NETWORK: &str = "opens a network connection or sends data";
const SIGNALS: &str = "sends signals to other processes";
const STARTS: &str = "starts a program that is not known";

pub(super) const DANGERS: &[Danger] = &[
    danger(
        Language::Python,
        HIDES,
        &[
            "eval", "exec", "compile", "__import__", "__builtins__", "builtins", "__subclasses__",
            "__globals__", "__getattribute__", "__loader__", "sys.modules", "importlib", "runpy", "ctypes",
            "cffi", "marshal", "pickle.loads", "pickle.load", "dill", "code.interact", "getattr", "globals",
            "vars", "attrgetter", "methodcaller", "pty", "InteractiveConsole", "imp",
        ],
    ),
    danger(
        Language::Python,
        NETWORK,
        &[
            "socket", "smtplib", "ftplib", "telnetlib", "paramiko", "fabric", "http.client", "requests.post",
            "requests.put", "requests.patch", "httpx.post", "httpx.put", "xmlrpc", "asyncio.open_connection",
            "socketserver", "http.server", "data=", "urllib3", "boto3", "websockets", "websocket",
        ],
    ),
    danger(
        Language::Python,
        SIGNALS,
        &["os.kill", "os.killpg", "pthread_kill", ".send_signal", "psutil", "signal.alarm"],
    ),
    danger(
        Language::Python,
        "changes or multiplies the process itself",
        &["os.fork", "os.forkpty", "os.setuid", "os.setgid", "os.chroot", "os.mount"],
    ),
    danger(Language::Python, STARTS, &["pexpect", "plumbum", "sh.", "invoke"]),
    danger(
        Language::JavaScript,
        HIDES,
        &[
            "eval", "Function", "process.binding", "process.mainModule", "constructor", "globalThis",
            "process.dlopen", "module._load", "vm.", "import(",
        ],
    ),
    danger(
        Language::JavaScript,
        NETWORK,
        &[
            "http.request", "https.request", "WebSocket", "sendBeacon", "axios.post", "createServer",
            ".createConnection", "Bun.serve", "Deno.connect",
        ],
    ),
    danger(Language::JavaScript, SIGNALS, &["process.kill", "process.abort"]),
    danger(
        Language::JavaScript,
        STARTS,
        &["Deno.Command", "Deno.run", "Bun.spawn", "Bun.$", "execa", "shelljs", "process.setuid"],
    ),
    danger(
        Language::Perl,
        HIDES,
        &["eval", "require", "IPC::Open3", "IPC::Open2", "IPC::Run", "DynaLoader", "syscall"],
    ),
    danger(Language::Perl, NETWORK, &["socket", "IO::Socket", "Socket", "LWP", "HTTP::Tiny", "Net::"]),
    danger(Language::Perl, SIGNALS, &["kill"]),
    danger(Language::Perl, "multiplies the process", &["fork"]),
    danger(
        Language::Perl,
        "changes files or pipes to programs",
        &["File::Path", "chmod", "chown", "truncate", "symlink", "rename", "-|", "|-"],
    ),
    danger(
        Language::Ruby,
        HIDES,
        &[
            "eval", "instance_eval", "class_eval", "send", "__send__", "public_send", "const_get", "Marshal",
            "fiddle", "Fiddle", "method(",
        ],
    ),
    danger(
        Language::Ruby,
        NETWORK,
        &[
            "TCPSocket", "Socket", "UDPSocket", "Net::HTTP.post", "Net::FTP", "Net::SMTP", "Net::SSH",
            "TCPServer",
        ],
    ),
    danger(Language::Ruby, SIGNALS, &["Process.kill"]),
    danger(
        Language::Ruby,
        STARTS,
        &["fork", "Process.spawn", "Kernel.system", "Kernel.exec", "Open3", "PTY", "%x"],
    ),
    danger(
        Language::Ruby,
        "changes files",
        &[
            "FileUtils.chmod", "File.chmod", "File.chown", "FileUtils.chown_R", "FileUtils.rm_rf",
            "Dir.delete",
        ],
    ),
    danger(
        Language::Php,
        HIDES,
        &[
            "eval", "assert", "create_function", "call_user_func", "call_user_func_array",
            "preg_replace_callback", "unserialize", "include", "require", "dl",
        ],
    ),
    danger(
        Language::Php,
        NETWORK,
        &[
            "fsockopen", "socket_create", "stream_socket_client", "curl_init", "mail", "ftp_connect",
            "pfsockopen",
        ],
    ),
    danger(Language::Php, SIGNALS, &["posix_kill"]),
    danger(Language::Php, STARTS, &["pcntl_fork", "proc_open", "pcntl_exec", "popen"]),
    danger(Language::Php, "changes files", &["chmod", "chown", "symlink", "ini_set"]),
    danger(
        Language::Compiled,
        STARTS,
        &[
            "system", "popen", "execl", "execlp", "execv", "execve", "execvp", "posix_spawn", "fork",
            "vfork", "Command::new", "exec.Command", "syscall.Exec", "Runtime.getRuntime", "ProcessBuilder",
            "std.process", "__asm__", "asm!",
        ],
    ),
    danger(
        Language::Compiled,
        "may delete or overwrite files",
        &[
            "unlink", "rmdir", "remove_dir_all", "remove_file", "os.RemoveAll", "os.Remove", "remove_all",
            "ftruncate",
        ],
    ),
    danger(Language::Compiled, SIGNALS, &["kill", "reboot"]),
    danger(Language::Compiled, NETWORK, &["socket", "TcpStream", "net.Dial", "new Socket"]),
    danger(
        Language::Other,
        "may start a program that is not known",
        &[
            "system", "exec", "execute", "shell", "popen", "spawn", "run-program", "shell-command",
            "call-process", "start-process", "do shell script", "Runtime", "ProcessBuilder",
            "Invoke-Expression", "iex", "Start-Process", "os.cmd", "System.cmd", "os:cmd", "Process", "load",
            "loadstring", "dofile", "eval", "parse", "system2", "shellout", "pipe", "Command",
        ],
    ),
    danger(
        Language::Other,
        "may delete or overwrite files",
        &[
            "remove", "unlink", "delete-file", "delete-directory", "Remove-Item", "file.remove", "File.rm",
            "File.rm_rf", "rm", "del", "os.remove", "os.rename", "Clear-Content", "Set-Content", "Out-File",
            "Stop-Computer", "Restart-Computer", "Format-Volume", "Clear-Disk", "FileUtils", "deleteDir",
            "delete",
        ],
    ),
    danger(
        Language::Other,
        NETWORK,
        &["socket", "Socket", "Invoke-WebRequest", "Invoke-RestMethod", "Net.WebClient", "gen_tcp"],
    ),
];
