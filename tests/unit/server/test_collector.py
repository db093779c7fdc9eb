"""The collector of cycles never looks at an image of the cluster again, and still finds what it is for."""

import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from firnline.metadata.partition_counts import PartitionCounts
from firnline.server.collector import (
    GROWTH_MIN,
    LONG_S,
    LOOK_S,
    OLD_AFTER,
    PUT_OFF_MAX,
    THRESHOLDS,
    Collector,
)
from tests.worlds.harness import Harness

# Of what is frozen already some may be freed meanwhile, by a thread of another test.
MOST = 0.9


class Metadata:
    def __init__(self) -> None:
        self.partition_counts = PartitionCounts()
        self.is_loading = True


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    before = gc.get_threshold()
    was_frozen = gc.get_freeze_count() > 0  # what pytest collected
    gc.unfreeze()
    callbacks = list(gc.callbacks)
    yield Metadata()
    gc.callbacks[:] = callbacks
    gc.set_threshold(*before)
    gc.unfreeze()
    if was_frozen:
        gc.freeze()
    gc.enable()


def test_what_is_loaded_is_not_looked_at_while_it_is_loaded_and_never_after(
    metadata: Metadata,
) -> None:
    collector = Collector()
    assert not gc.isenabled()
    image = [[number] for number in range(20_000)]
    collector.look(metadata)
    assert not gc.isenabled()
    metadata.partition_counts.partitions, metadata.is_loading = 20_000, False
    collector.look(metadata)
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(image)


def test_what_an_image_grew_by_is_taken_out_of_sight_too(metadata: Metadata) -> None:
    collector = Collector()
    metadata.partition_counts.partitions, metadata.is_loading = 100_000, False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    more = [[number] for number in range(20_000)]
    metadata.partition_counts.partitions += 9_999
    collector.look(metadata)
    assert gc.get_freeze_count() <= frozen, "not for every topic"
    metadata.partition_counts.partitions += 1
    collector.look(metadata)
    assert gc.get_freeze_count() >= frozen + MOST * len(more)


def test_small_clusters_freeze_once(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    more = [[number] for number in range(1_000)]
    metadata.partition_counts.partitions = GROWTH_MIN - 1
    collector.look(metadata)
    assert gc.get_freeze_count() <= frozen
    assert more


def test_garbage_is_still_found_after_a_look(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    knot = weakref.ref(Knot())
    collections = [[number] for number in range(THRESHOLDS[0] * (THRESHOLDS[1] + 2))]
    assert knot() is None, "the usual looks at what is young"
    assert collections
    collector.close()
    assert gc.get_freeze_count() == 0


def test_a_snapshot_that_is_loaded_later_is_not_looked_at_either(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    metadata.is_loading = True
    collector.look(metadata)
    assert not gc.isenabled()
    frozen = gc.get_freeze_count()
    snapshot = [[number] for number in range(100_000)]
    metadata.is_loading = False
    collector.look(metadata)
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + MOST * len(snapshot)


def test_a_few_records_that_a_follower_is_behind_freeze_nothing(metadata: Metadata) -> None:
    """A broker is behind now and then, for a moment: what is garbage then would stay for ever."""
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    for _ in range(10):
        frozen = gc.get_freeze_count()
        metadata.is_loading = True
        collector.look(metadata)
        knot = weakref.ref(Knot())
        metadata.is_loading = False
        collector.look(metadata)
        assert gc.isenabled()
        assert gc.get_freeze_count() <= frozen
        gc.collect()
        assert knot() is None
    collector.close()


def test_what_grows_and_is_not_the_image_is_gone_over_at_length_once(metadata: Metadata) -> None:
    """Connections, sessions, waiters: the next look at all of it is spared what the last one found alive."""
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    grown = [[number] for number in range(300_000)]
    gc.collect()
    assert gc.get_freeze_count() >= frozen + MOST * len(grown)
    began_s = time.thread_time()
    gc.collect()
    assert time.thread_time() - began_s < LONG_S
    collector.close()


def test_small_collections_freeze_nothing(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    gc.freeze()
    frozen = gc.get_freeze_count()
    for _ in range(5):
        gc.collect()
    assert gc.get_freeze_count() <= frozen
    collector.close()


def test_the_active_controller_is_not_loading_for_ever() -> None:
    """In a single node, which always is one, the collector was never on."""
    harness = Harness()
    assert harness.node.quorum.is_active
    assert not harness.node.quorum.is_loading
    for number in range(20):
        harness.create_topic(f"t-{number}")
        assert not harness.node.quorum.is_loading


def test_collections_over_a_busy_short_minute_are_many_and_none_holds_up_the_loop(
    metadata: Metadata,
) -> None:
    """A node under load, with 300,000 objects that live: how often it runs, and the CPU of each time."""
    took_s: dict[int, list[float]] = {0: [], 1: [], 2: []}
    began_s = 0.0

    def note(phase: str, facts: dict[str, int]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.thread_time()
        else:
            took_s[facts["generation"]].append(time.thread_time() - began_s)

    collector = Collector()
    image = [[number] for number in range(300_000)]
    harness = Harness()
    harness.create_topic()
    gc.callbacks.append(note)
    try:
        for _ in range(60 // int(LOOK_S)):
            collector.look(harness.node.quorum)
            kept = [[number] for number in range(5_000)]
            knot = weakref.ref(Knot())
            assert harness.produced(*map(str, range(50)), acks=1).error_code == 0
            collector.look(harness.node.quorum)
            assert knot() is None
    finally:
        gc.callbacks.remove(note)
        collector.close()
    assert image
    assert kept
    assert len(took_s[0]) >= 20, "by what is allocated"
    assert len(took_s[1]) >= 30, "and by the clock"
    longest_s = max(map(max, filter(None, took_s.values())))
    assert longest_s < 0.008


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Generations that were looked at on request; as if many young objects had become old."""
    found: list[int] = []
    monkeypatch.setattr(gc, "collect", found.append)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, OLD_AFTER))
    return found


def test_old_objects_are_looked_at_when_many_came(
    metadata: Metadata, collections: list[int]
) -> None:
    collector = Collector()
    metadata.is_loading = False
    for _ in range(3):
        collector.look(metadata)
    assert collections == [2, 2], "the first one freezes"


def test_no_look_goes_over_the_rows_of_a_large_request(
    metadata: Metadata, collections: list[int]
) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    for _ in range(3):
        collector.look(metadata, is_busy=True)
    collector.look(metadata)
    assert collections == [1, 1, 1, 2]


def test_a_flood_of_large_requests_does_not_keep_garbage_for_ever(
    metadata: Metadata, collections: list[int]
) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    for _ in range(PUT_OFF_MAX + 2):
        collector.look(metadata, is_busy=True)
    assert collections == [1] * PUT_OFF_MAX + [2, 1]


def test_what_is_allocated_never_leads_to_a_look_at_all_there_is(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    assert gc.get_threshold()[2] > 1_000_000
    collector.close()


def test_consumer_groups_are_taken_out_of_sight_like_partitions(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    loaded = [[number] for number in range(20_000)]
    collector.look(metadata, GROWTH_MIN)
    assert gc.get_freeze_count() >= frozen + MOST * len(loaded)
