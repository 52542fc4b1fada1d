"""Measures the Python program for `cargo xtask bench docker`: answers each line of JSON with a duration."""

import json
import logging
import os
import sys
import time

# Other output must not be mistaken for an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# The program warns for each container that it cannot limit the disk.
logging.disable(logging.WARNING)

from tools.environments.docker import DockerEnvironment  # noqa: E402

image = os.environ["TERMINAL_DOCKER_IMAGE"]
state = {}


def container(name):
    """Creates a container with the default configuration."""
    limits = {"cpu": 1, "memory": 5120, "disk": 51200}
    return DockerEnvironment(image, timeout=180, persistent_filesystem=True, task_id=name, **limits)


def end(place):
    place.cleanup(force_remove=True)
    assert place.wait_for_cleanup(60)


def no_op():
    if "place" not in state:
        state["place"] = container(f"bench-{os.getpid()}")
    began = time.perf_counter()
    assert state["place"].execute("true")["returncode"] == 0
    return time.perf_counter() - began


def new_place():
    state["count"] = state.get("count", 0) + 1
    began = time.perf_counter()
    place = container(f"bench-{os.getpid()}-{state['count']}")
    assert place.execute("true")["returncode"] == 0
    taken = time.perf_counter() - began
    end(place)
    return taken


actions = {"no-op": no_op, "new-place": new_place}
for line in sys.stdin:
    print(json.dumps({"seconds": actions[json.loads(line)[0]]()}), file=answers, flush=True)
if "place" in state:
    end(state["place"])
