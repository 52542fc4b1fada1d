"""The Python program's side of `cargo xtask bench docker`: answers each line of JSON with the time it took."""

import json
import logging
import os
import sys
import time

# Whatever else is printed must not look like an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# It warns with every container that it cannot limit its disk.
logging.disable(logging.WARNING)

from tools.environments.docker import DockerEnvironment  # noqa: E402

image = os.environ["TERMINAL_DOCKER_IMAGE"]
kept = {}


def container(name):
    """With what its configuration asks for when the owner has said nothing."""
    limits = {"cpu": 1, "memory": 5120, "disk": 51200}
    return DockerEnvironment(image, timeout=180, persistent_filesystem=True, task_id=name, **limits)


def end(place):
    place.cleanup(force_remove=True)
    assert place.wait_for_cleanup(60)


def no_op():
    if "place" not in kept:
        kept["place"] = container(f"bench-{os.getpid()}")
    began = time.perf_counter()
    assert kept["place"].execute("true")["returncode"] == 0
    return time.perf_counter() - began


def new_place():
    kept["count"] = kept.get("count", 0) + 1
    began = time.perf_counter()
    place = container(f"bench-{os.getpid()}-{kept['count']}")
    assert place.execute("true")["returncode"] == 0
    taken = time.perf_counter() - began
    end(place)
    return taken


actions = {"no-op": no_op, "new-place": new_place}
for line in sys.stdin:
    print(json.dumps({"seconds": actions[json.loads(line)[0]]()}), file=answers, flush=True)
if "place" in kept:
    end(kept["place"])
