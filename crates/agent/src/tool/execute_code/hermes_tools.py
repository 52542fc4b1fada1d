"""The tools of the agent, as functions. Each answers with a dictionary; what went wrong is in its `error`."""

import _thread
import itertools
import os

_SOCKET = os.environ.get("HERMES_RPC_SOCKET", "")
_TOKEN = os.environ.get("HERMES_RPC_TOKEN", "")
# As many calls as this can be under way at once; further ones wait.
_LINKS = 48
# And so many connections stay open after their call, so that other processes find room.
_KEPT = 8
_LONGEST = 1048576
_turn = itertools.count()


class _Link:
    """A connection, for one call at a time."""

    def __init__(self, fleeting):
        self.fleeting = fleeting
        self.lock = _thread.allocate_lock()
        self.socket = None
        self.number = 0

    def ask(self, tool, arguments):
        from json import dumps, loads

        self.number += 1
        request = dumps({"id": self.number, "tool": tool, "arguments": arguments}).encode()
        if len(request) > _LONGEST:
            return {"error": "the arguments are longer than %d bytes" % _LONGEST}
        try:
            if self.socket is None:
                self.socket = _connect()
                request = _frame(dumps({"token": _TOKEN}).encode()) + _frame(request)
            else:
                request = _frame(request)
            self.socket.sendall(request)
            answer = loads(self.read(int.from_bytes(self.read(4), "big")))
        except BaseException as error:
            # An answer that may still come is for nobody.
            self.close()
            if isinstance(error, OSError):
                raise RuntimeError("the agent does not take calls any more: %s" % error) from None
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
        raise ConnectionError("there is no way to the agent in this environment")
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if len(_SOCKET) < 100:
        link.connect(_SOCKET)
        return link
    # Longer than the path of a socket can be.
    directory = os.open(os.path.dirname(_SOCKET), os.O_RDONLY | os.O_DIRECTORY)
    try:
        link.connect("/proc/self/fd/%d/%s" % (directory, os.path.basename(_SOCKET)))
    finally:
        os.close(directory)
    return link


def _reset():
    global _links
    _links = [_Link(number >= _KEPT) for number in range(_LINKS)]


_reset()
# Two processes cannot share a connection.
os.register_at_fork(after_in_child=_reset)


def _call(tool, **arguments):
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for link in _links:
        if link.lock.acquire(False):
            break
    else:
        link = _links[next(_turn) % _LINKS]
        link.lock.acquire()
    try:
        return link.ask(tool, arguments)
    finally:
        if link.fleeting:
            link.close()
        link.lock.release()


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
