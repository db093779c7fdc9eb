"""Uploads that killed brokers left in the store are aborted by the brokers that run."""

import pytest

from firnline.base.units import HOUR_MS
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError, StoreRefused
from firnline.tiered.circuits import FAILURES_TO_OPEN
from firnline.tiered.objects.layout import segment_stem
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.objects.unfinished import abort_unfinished
from firnline.tiered.spi import SegmentState
from tests.worlds.tier import Cluster, Node

DAY_MS = 24 * HOUR_MS
TIMER = ("tier", "uploads")


class Store(MemoryStore):
    """Has left-overs, or fails; and keeps with which age it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.ages_s: list[float] = []
        self.problem: Exception | None = None
        self.left = 0
        # Of which keys uploads were aborted, and how many objects there were by then.
        self.aborted: list[tuple[str, int]] = []

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        if prefix:
            self.aborted.append((prefix.rpartition("/")[2], len(self.objects)))
        else:
            self.ages_s.append(older_than_s)
        if self.problem is not None:
            raise self.problem
        aborted, self.left = self.left, 0
        return aborted


def notes(node: Node) -> list[str]:
    return [line for line in node.notes if "uploads" in line]


def started() -> tuple[Store, Node]:
    store = Store()
    cluster = Cluster(store=store)
    node = Node(cluster, task_interval_ms=HOUR_MS, remover_interval_ms=HOUR_MS)
    return store, node.start()


def test_a_node_aborts_old_uploads_soon_after_its_start_and_every_day() -> None:
    store, node = started()
    store.left = 3
    assert store.ages_s == [], "a start does not wait for it"
    started_ms = node.now_ms
    node.fire(TIMER)
    assert node.now_ms - started_ms == HOUR_MS
    assert store.ages_s == [24 * 3600], "an upload that is in progress is never so old"
    assert notes(node) == ["unfinished uploads were aborted count=3 unfinished_h=24"]
    for day in range(2, 12):
        node.fire(TIMER)
        assert len(store.ages_s) == day
    assert node.now_ms - started_ms == HOUR_MS + 10 * DAY_MS
    assert len(notes(node)) == 1, "nothing was left, so there is nothing to log"


def test_credentials_that_may_not_list_uploads_are_logged_once_and_stop_no_deletions() -> None:
    store, node = started()
    store.problem = StoreRefused("AccessDenied")
    for _ in range(1 + FAILURES_TO_OPEN):
        node.fire(TIMER)
    assert [line for line in node.warnings if "AccessDenied" in line] == [
        "unfinished uploads cannot be aborted error=AccessDenied"
    ]
    assert all(each is None for each in node.tier.services.circuits.open_ms(0).values())
    store.problem = None
    node.fire(TIMER)
    store.problem = StoreRefused("AccessDenied")
    node.fire(TIMER)
    assert len(node.warnings) == 2, "it had succeeded in between"


def test_a_store_that_fails_is_asked_again_the_next_day() -> None:
    store, node = started()
    store.problem = RemoteStorageError("503")
    node.fire(TIMER)
    store.problem, store.left = None, 1
    node.fire(TIMER)
    assert notes(node) == ["unfinished uploads were aborted count=1 unfinished_h=24"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_upload_of_a_copy_that_a_killed_broker_left_goes_with_its_objects(
    is_refused: bool,
) -> None:
    """It would cost money for a day, or end late: before its objects are deleted, it is aborted."""
    store = Store()
    node = Node(Cluster(store=store)).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    (copied,) = node.segments()
    left = copied._replace(segment_id=b"l" * 16, state=SegmentState.COPY_STARTED)
    before = len(store.objects)
    store.problem = StoreRefused("AccessDenied") if is_refused else None
    storage = ObjectStorage(store)
    storage.delete_segments([left])
    stem = segment_stem(left.topic_id, 0, base_offset=0, segment_id=left.segment_id)
    assert store.aborted == [(stem.rpartition("/")[2], before)]
    storage.delete_segment(left._replace(state=SegmentState.DELETE_STARTED, is_abandoned=True))
    assert len(store.aborted) == 2
    storage.delete_segment(copied)
    assert len(store.aborted) == 2, "a copy that was finished has no upload"
    assert len(store.objects) < before


def test_uploads_below_the_prefix_that_are_not_of_the_tier_are_left_alone() -> None:
    """A tier of another cluster below ours: its uploads of two days may still be wanted."""

    class Uploads(MemoryStore):
        has_uploads = True
        asked = list[str]()

        def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
            self.asked.append(prefix)
            return 2

    store = Uploads()
    assert abort_unfinished(store) == 8
    assert store.asked == ["data/", "catalog/", "parts/", "names/"]
