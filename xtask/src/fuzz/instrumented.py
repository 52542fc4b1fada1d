"""Runs Python programs and reports what they do outside the process.

Reads one program per line (JSON text) and answers each with one line, a list of events. It runs as
the only process of a root directory of its own, so programs may do what they like.
"""

import json
import os
import resource
import shutil
import signal
import sys

HOME = "/home/ada"
CWD = HOME + "/work"
FILES = ["a.txt", "b.txt", "f.py", "sub/c.txt", "sub/deep/d.txt", "../Documents/x.txt", "../.bashrc"]


def reset():
    os.chdir("/")
    for name in os.listdir(HOME):
        path = os.path.join(HOME, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    for name in FILES:
        path = os.path.normpath(os.path.join(CWD, name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write("text\n")
    os.chdir(CWD)


def watch(pipe):
    """Writes each effect of this process to a pipe."""
    busy = False
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def place(path):
        return os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))

    def words(args):
        return [os.fsdecode(word) for word in args] if isinstance(args, (list, tuple)) else [os.fsdecode(args)]

    def effects(event, args):
        if event == "open" and not isinstance(args[0], int) and args[2] & writing:
            yield ["write", place(args[0])]
        elif event in ("os.remove", "os.rmdir") and args[1] == -1:
            yield ["delete", place(args[0])]
        elif event == "shutil.rmtree":
            yield ["delete", place(args[0])]
        elif event == "os.rename":
            yield ["delete", place(args[0])]
            yield ["write", place(args[1])]
        elif event in ("os.link", "os.symlink"):
            yield ["write", place(args[1])]
        elif event in ("os.truncate", "os.chmod", "os.chown") and not isinstance(args[0], int):
            yield ["write", place(args[0])]
        elif event == "sqlite3.connect" and args[0] != ":memory:":
            yield ["write", place(args[0])]
        elif event == "subprocess.Popen":
            yield ["run", *words(args[1])]
        elif event == "os.system":
            yield ["run", "/bin/sh", "-c", os.fsdecode(args[0])]
        elif event in ("os.exec", "os.posix_spawn"):
            yield ["run", *words(args[1])]
        elif event == "os.spawn":
            yield ["run", *words(args[2])]
        elif event in ("os.kill", "os.killpg", "signal.pthread_kill"):
            yield ["signal"]
        elif event in ("socket.connect", "socket.sendto", "socket.bind", "socket.getaddrinfo"):
            yield ["network", str(args)]

    def hook(event, args):
        nonlocal busy
        if busy:
            return
        busy = True
        try:
            for effect in effects(event, args):
                os.write(pipe, (json.dumps(effect) + "\n").encode())
        finally:
            busy = False

    sys.addaudithook(hook)


def run(program):
    reset()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reader)
        signal.alarm(2)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        try:
            code = compile(program, "/program.py", "exec")
            watch(writer)
            exec(code, {"__name__": "__main__", "__file__": CWD + "/program.py"})
        finally:
            os._exit(0)
    os.close(writer)
    events = []
    with os.fdopen(reader, "rb") as lines:
        while len(events) < 200:
            line = lines.readline()
            if not line.endswith(b"\n"):
                break
            events.append(json.loads(line))
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)
    return events


sys.dont_write_bytecode = True
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
