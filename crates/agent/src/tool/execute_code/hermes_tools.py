"""The tools of the agent as functions. Each returns a dictionary; a failure is in its `error`."""

import _thread
import itertools
import os

_SOCKET = os.environ.get("HERMES_RPC_SOCKET", "")
_TOKEN = os.environ.get("HERMES_RPC_TOKEN", "")
# Calls that can run at once; further ones wait.
_MAX_CONNECTIONS = 48
# Connections that stay open after a call; more would leave none for other processes.
_MAX_IDLE = 8
_MAX_REQUEST = 1048576
_next = itertools.count()


class _Connection:
    """A connection, for one call at a time."""

    def __init__(self, is_temporary):
        self.is_temporary = is_temporary
        self.lock = _thread.allocate_lock()
        self.socket = None
        self.number = 0

    def ask(self, tool, arguments):
        from json import dumps, loads

        self.number += 1
        request = dumps({"id": self.number, "tool": tool, "arguments": arguments}).encode()
        if len(request) > _MAX_REQUEST:
            return {"error": "the arguments are longer than %d bytes" % _MAX_REQUEST}
        try:
            if self.socket is None:
                self.socket = _connect()
                request = _frame(dumps({"token": _TOKEN}).encode()) + _frame(request)
            else:
                request = _frame(request)
            self.socket.sendall(request)
            answer = loads(self.read(int.from_bytes(self.read(4), "big")))
        except BaseException as error:
            # No caller waits for a response that may still arrive.
            self.close()
            if isinstance(error, OSError):
                raise RuntimeError("the agent no longer accepts calls: %s" % error) from None
            raise
        if answer.get("id") != self.number:
            raise RuntimeError("the agent refused the call: %s" % answer.get("error"))
        return answer["answer"]

    def close(self):
        socket, self.socket = self.socket, None
        if socket is not None:
            socket.close()

    def read(self, count):
        data = bytearray(count)
        view, done = memoryview(data), 0
        while done < count:
            got = self.socket.recv_into(view[done:])
            if got == 0:
                raise ConnectionResetError("the connection was closed")
            done += got
        return data


def _frame(text):
    return len(text).to_bytes(4, "big") + text


def _connect():
    import _socket

    if not _SOCKET:
        raise ConnectionError("HERMES_RPC_SOCKET is not set")
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if len(_SOCKET) < 100:
        connection.connect(_SOCKET)
        return connection
    # The path is too long for a socket address.
    directory = os.open(os.path.dirname(_SOCKET), os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect("/proc/self/fd/%d/%s" % (directory, os.path.basename(_SOCKET)))
    finally:
        os.close(directory)
    return connection


def _reset():
    global _connections
    _connections = [_Connection(number >= _MAX_IDLE) for number in range(_MAX_CONNECTIONS)]


_reset()
# Two processes cannot share a connection.
os.register_at_fork(after_in_child=_reset)


def _call(tool, **arguments):
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for connection in _connections:
        if connection.lock.acquire(False):
            break
    else:
        connection = _connections[next(_next) % _MAX_CONNECTIONS]
        connection.lock.acquire()
    try:
        return connection.ask(tool, arguments)
    finally:
        if connection.is_temporary:
            connection.close()
        connection.lock.release()


def json_parse(text):
    """Reads JSON, with raw control characters in strings too."""
    from json import loads

    return loads(text, strict=False)


def shell_quote(text):
    """Makes one word of a shell command."""
    from shlex import quote

    return quote(text)


def retry(fn, max_attempts=3, delay=2):
    """Calls a function until it raises nothing, waiting twice as long each time."""
    from time import sleep

    for attempt in range(max_attempts - 1):
        try:
            return fn()
        except Exception:
            sleep(delay * 2**attempt)
    return fn()
