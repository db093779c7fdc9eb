"""One run of syncs serves many; what fails in it fails for whom it is."""

from typing import Any

from firnline.base.effects import Flush
from firnline.base.errors import StorageError
from firnline.runtime.workers import problem_of


class Named:
    def __init__(self, path: str) -> None:
        self.path = path


def flush(*paths: str) -> Flush:
    files: Any = [Named(path) for path in paths]
    return Flush(files=files, then=lambda error, now_ms: [])


def test_a_topic_that_is_deleted_under_a_sync_costs_its_neighbours_nothing() -> None:
    """Its directory is gone when the run comes to it; others in the run have not failed, nor has the disk."""
    gone = StorageError("no such directory", path="/data/t-0")
    problems = {"/data/t-0": gone}
    assert problem_of(flush("/data/t-0/0.log", "/data/t-0"), problems) is gone
    assert problem_of(flush("/data/u-0/0.log", "/data/u-0"), problems) is None
    assert problem_of(flush("/data/u-0/0.log"), {}) is None
