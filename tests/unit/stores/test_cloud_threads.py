"""The threads of the cloud stores' library give way to the threads that serve clients."""

import subprocess
import sys

import pytest

pytest.importorskip("obstore", reason="NOT RUN: obstore is not installed")

pytestmark = pytest.mark.slow

# In a process of its own: the library starts its threads once.
PRINT_NICENESS = """
import os
from firnline.stores.registry import open_store

open_store("s3://bucket/tier", {"region": "nowhere"})
for task in os.listdir("/proc/self/task"):
    name = open(f"/proc/self/task/{task}/comm").read().strip()
    print(name, os.getpriority(os.PRIO_PROCESS, int(task)))
"""


def test_the_librarys_threads_are_nicer_than_all_others() -> None:
    """An upload takes all of a core if the store does; a producer's request must not wait behind it."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_NICENESS], capture_output=True, text=True, check=True
    )
    found = [line.split() for line in done.stdout.splitlines()]
    of_library = {int(niceness) for name, niceness in found if name.startswith("tokio")}
    others = {int(niceness) for name, niceness in found if not name.startswith("tokio")}
    assert len(of_library) == len(others) == 1, found
    assert of_library.pop() == min(others.pop() + 10, 19)
