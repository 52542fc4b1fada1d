//! Calls of other languages, by what they do.

use super::super::inner::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
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

pub(super) struct Call {
    pub(super) names: &'static [&'static str],
    pub(super) does: Does,
    /// Whether the language allows it without brackets.
    pub(super) bare: bool,
}

const fn call(names: &'static [&'static str], does: Does) -> Call {
    Call { names, does, bare: false }
}

pub(super) const CALLS: &[Call] = &[
    Call {
        names: &[
            "system", "exec", "qx", "popen", "shell_exec", "passthru", "proc_open", "spawn", "IO.popen",
            "Open3.capture2", "Open3.capture3", "pcntl_exec",
        ],
        does: Does::Run,
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
        Does::Run,
    ),
    call(
        &[
            "os.remove", "os.unlink", "os.rmdir", "fs.unlink", "fs.unlinkSync", "fs.rmdirSync", "unlinkSync",
            "File.delete", "File.unlink", "Dir.rmdir", "fs.promises.unlink", "file.remove",
        ],
        Does::Delete,
    ),
    Call { names: &["unlink", "rmdir"], does: Does::Delete, bare: true },
    call(
        &[
            "shutil.rmtree", "rmtree", "os.removedirs", "remove_tree", "fs.rm", "fs.rmSync", "rmSync",
            "fs.promises.rm", "fs.rmdir", "rimraf", "rimraf.sync", "fs.removeSync", "FileUtils.rm_rf",
            "FileUtils.rm_r", "FileUtils.rm", "FileUtils.remove_dir", "FileUtils.remove_entry",
            "FileUtils.rmtree", "Deno.remove", "Deno.removeSync",
        ],
        Does::DeleteTree,
    ),
    Call {
        names: &["FileUtils.rm_rf", "FileUtils.rm_r", "FileUtils.rm", "remove_tree", "rmtree", "File.delete"],
        does: Does::DeleteTree,
        bare: true,
    },
    call(&[".unlink", ".rmdir"], Does::DeleteSelf),
    call(
        &[
            "fs.writeFile", "fs.writeFileSync", "writeFileSync", "fs.appendFile", "fs.appendFileSync",
            "appendFileSync", "fs.createWriteStream", "fs.promises.writeFile", "File.write", "IO.write",
            "file_put_contents", "os.truncate", "Bun.write", "Deno.writeTextFile", "Deno.writeFile",
            "Deno.writeTextFileSync", "os.chmod", "os.chown", "fs.chmodSync", "fs.chmod", "fs.truncateSync",
            "truncateSync", "File.truncate", "chmodSync", "createWriteStream", "writeFile", "appendFile",
            "os.mknod",
        ],
        Does::Write,
    ),
    call(&[".write_text", ".write_bytes", ".chmod", ".touch"], Does::WriteSelf),
    call(
        &[
            "shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree", "os.link", "os.symlink",
            "fs.copyFileSync", "copyFileSync", "fs.copyFile", "fs.symlinkSync", "FileUtils.cp", "copy",
        ],
        Does::WriteSecond,
    ),
    call(
        &[
            "shutil.move", "os.rename", "os.replace", "fs.renameSync", "renameSync", "fs.rename",
            "FileUtils.mv", "File.rename", "rename",
        ],
        Does::Move,
    ),
    call(
        &["open", "io.open", "File.open", "fopen", "os.open", "fs.openSync", "fs.open", "codecs.open"],
        Does::Open,
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

type Dangers = &'static [(&'static [&'static str], &'static str)];

const HIDES: &str = "runs text as code or hides which call is made";
const NETWORK: &str = "opens a network connection or sends data";
const SIGNALS: &str = "sends signals to other processes";

/// Words that are a danger wherever they stand in a program.
pub(super) fn dangers(language: Language) -> Dangers {
    match language {
        Language::Python => &[
            (
                &[
                    "eval", "exec", "compile", "__import__", "__builtins__", "builtins", "__subclasses__",
                    "__globals__", "__getattribute__", "__loader__", "sys.modules", "importlib", "runpy",
                    "ctypes", "cffi", "marshal", "pickle.loads", "pickle.load", "dill", "code.interact",
                    "getattr", "globals", "vars", "attrgetter", "methodcaller", "pty", "InteractiveConsole",
                    "imp",
                ],
                HIDES,
            ),
            (
                &[
                    "socket", "smtplib", "ftplib", "telnetlib", "paramiko", "fabric", "http.client",
                    "requests.post", "requests.put", "requests.patch", "httpx.post", "httpx.put", "xmlrpc",
                    "asyncio.open_connection", "socketserver", "http.server", "data=", "urllib3", "boto3",
                    "websockets", "websocket",
                ],
                NETWORK,
            ),
            (&["os.kill", "os.killpg", "pthread_kill", ".send_signal", "psutil", "signal.alarm"], SIGNALS),
            (
                &["os.fork", "os.forkpty", "os.setuid", "os.setgid", "os.chroot", "os.mount"],
                "changes or multiplies the process itself",
            ),
            (&["pexpect", "plumbum", "sh.", "invoke"], "starts a program that is not known"),
        ],
        Language::JavaScript => &[
            (
                &[
                    "eval", "Function", "process.binding", "process.mainModule", "constructor", "globalThis",
                    "process.dlopen", "module._load", "vm.", "import(",
                ],
                HIDES,
            ),
            (
                &[
                    "http.request", "https.request", "WebSocket", "sendBeacon", "axios.post", "createServer",
                    ".createConnection", "Bun.serve", "Deno.connect",
                ],
                NETWORK,
            ),
            (&["process.kill", "process.abort"], SIGNALS),
            (
                &["Deno.Command", "Deno.run", "Bun.spawn", "Bun.$", "execa", "shelljs", "process.setuid"],
                "starts a program that is not known",
            ),
        ],
        Language::Perl => &[
            (&["eval", "require", "IPC::Open3", "IPC::Open2", "IPC::Run", "DynaLoader", "syscall"], HIDES),
            (&["socket", "IO::Socket", "Socket", "LWP", "HTTP::Tiny", "Net::"], NETWORK),
            (&["kill"], SIGNALS),
            (&["fork"], "multiplies the process"),
            (
                &["File::Path", "chmod", "chown", "truncate", "symlink", "rename", "-|", "|-"],
                "changes files or pipes to programs",
            ),
        ],
        Language::Ruby => &[
            (
                &[
                    "eval", "instance_eval", "class_eval", "send", "__send__", "public_send", "const_get",
                    "Marshal", "fiddle", "Fiddle", "method(",
                ],
                HIDES,
            ),
            (
                &[
                    "TCPSocket", "Socket", "UDPSocket", "Net::HTTP.post", "Net::FTP", "Net::SMTP",
                    "Net::SSH", "TCPServer",
                ],
                NETWORK,
            ),
            (&["Process.kill"], SIGNALS),
            (
                &["fork", "Process.spawn", "Kernel.system", "Kernel.exec", "Open3", "PTY", "%x"],
                "starts a program that is not known",
            ),
            (
                &[
                    "FileUtils.chmod", "File.chmod", "File.chown", "FileUtils.chown_R", "FileUtils.rm_rf",
                    "Dir.delete",
                ],
                "changes files",
            ),
        ],
        Language::Php => &[
            (
                &[
                    "eval", "assert", "create_function", "call_user_func", "call_user_func_array",
                    "preg_replace_callback", "unserialize", "include", "require", "dl",
                ],
                HIDES,
            ),
            (
                &[
                    "fsockopen", "socket_create", "stream_socket_client", "curl_init", "mail", "ftp_connect",
                    "pfsockopen",
                ],
                NETWORK,
            ),
            (&["posix_kill"], SIGNALS),
            (&["pcntl_fork", "proc_open", "pcntl_exec", "popen"], "starts a program that is not known"),
            (&["chmod", "chown", "symlink", "ini_set"], "changes files"),
        ],
        Language::Compiled => &[
            (
                &[
                    "system", "popen", "execl", "execlp", "execv", "execve", "execvp", "posix_spawn", "fork",
                    "vfork", "Command::new", "exec.Command", "syscall.Exec", "Runtime.getRuntime",
                    "ProcessBuilder", "std.process", "__asm__", "asm!",
                ],
                "starts a program that is not known",
            ),
            (
                &[
                    "unlink", "rmdir", "remove_dir_all", "remove_file", "os.RemoveAll", "os.Remove",
                    "remove_all", "ftruncate",
                ],
                "may delete or overwrite files",
            ),
            (&["kill", "reboot"], SIGNALS),
            (&["socket", "TcpStream", "net.Dial", "new Socket"], NETWORK),
        ],
        _ => &[
            (
                &[
                    "system", "exec", "execute", "shell", "popen", "spawn", "run-program", "shell-command",
                    "call-process", "start-process", "do shell script", "Runtime", "ProcessBuilder",
                    "Invoke-Expression", "iex", "Start-Process", "os.cmd", "System.cmd", "os:cmd", "Process",
                    "load", "loadstring", "dofile", "eval", "parse", "system2", "shellout", "pipe",
                    "Command",
                ],
                "may start a program that is not known",
            ),
            (
                &[
                    "remove", "unlink", "delete-file", "delete-directory", "Remove-Item", "file.remove",
                    "File.rm", "File.rm_rf", "rm", "del", "os.remove", "os.rename", "Clear-Content",
                    "Set-Content", "Out-File", "Stop-Computer", "Restart-Computer", "Format-Volume",
                    "Clear-Disk", "FileUtils", "deleteDir", "delete",
                ],
                "may delete or overwrite files",
            ),
            (
                &["socket", "Socket", "Invoke-WebRequest", "Invoke-RestMethod", "Net.WebClient", "gen_tcp"],
                NETWORK,
            ),
        ],
    }
}
