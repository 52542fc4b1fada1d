"""Measures the Python program for `cargo xtask bench exec`: answers each line of JSON with a duration."""

import json
import os
import sys
import time

# Other output must not be mistaken for an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from tools.environments.local import LocalEnvironment  # noqa: E402
from tools.file_operations import ShellFileOperations  # noqa: E402

here = os.getcwd()
place = LocalEnvironment(cwd=here, timeout=180)
files = ShellFileOperations(place, cwd=here)
words = ["alpha", "omega"]


def no_op():
    assert place.execute("true")["returncode"] == 0


def read():
    assert files.read_file("tree/file7.txt", 1, 500).content.startswith("1|line 0 ")


def write():
    assert not files.write_file("written.txt", "a line of text\n" * 500).error


def patch():
    assert files.patch_replace("patched.txt", words[0], words[1]).success
    words.reverse()


def search():
    assert files.search("line 7 of file 5", path="tree").total_count == 11


actions = {"no-op": no_op, "read": read, "write": write, "patch": patch, "search": search}
for line in sys.stdin:
    action = actions[json.loads(line)[-1]]
    began = time.perf_counter()
    action()
    print(json.dumps({"seconds": time.perf_counter() - began}), file=answers, flush=True)
place.cleanup()
