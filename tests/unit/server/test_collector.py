"""The collector of cycles never looks at an image of the cluster again, and still finds what it is for."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from firnline.metadata.census import Census
from firnline.server.collector import GROWTH_MIN, THRESHOLDS, Collector


class Metadata:
    def __init__(self) -> None:
        self.census = Census()
        self.is_loading = True


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    before = gc.get_threshold()
    gc.unfreeze()
    yield Metadata()
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


def test_what_is_loaded_is_not_looked_at_while_it_is_loaded_and_never_after(
    metadata: Metadata,
) -> None:
    collector = Collector()
    assert not gc.isenabled()
    image = [[number] for number in range(20_000)]
    collector.look(metadata)
    assert not gc.isenabled()
    metadata.census.partitions, metadata.is_loading = 20_000, False
    collector.look(metadata)
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(image)


def test_what_an_image_grew_by_is_taken_out_of_sight_too(metadata: Metadata) -> None:
    collector = Collector()
    metadata.census.partitions, metadata.is_loading = 100_000, False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    more = [[number] for number in range(20_000)]
    metadata.census.partitions += 9_999
    collector.look(metadata)
    assert gc.get_freeze_count() <= frozen, "not for every topic"
    metadata.census.partitions += 1
    collector.look(metadata)
    assert gc.get_freeze_count() >= frozen + len(more)


def test_small_clusters_freeze_once(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    more = [[number] for number in range(1_000)]
    metadata.census.partitions = GROWTH_MIN - 1
    collector.look(metadata)
    assert gc.get_freeze_count() <= frozen
    assert more


def test_garbage_is_still_found_after_a_look(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    knot = weakref.ref(Knot())
    looks = [[number] for number in range(THRESHOLDS[0] * (THRESHOLDS[1] + 2))]
    assert knot() is None, "the usual looks at what is young"
    assert looks
    collector.close()
    assert gc.get_freeze_count() == 0


def test_a_snapshot_that_is_loaded_later_is_not_looked_at_either(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    metadata.is_loading = True
    collector.look(metadata)
    assert not gc.isenabled()
    metadata.is_loading = False
    collector.look(metadata)
    assert gc.isenabled()


def test_consumer_groups_are_taken_out_of_sight_like_partitions(metadata: Metadata) -> None:
    collector = Collector()
    metadata.is_loading = False
    collector.look(metadata)
    frozen = gc.get_freeze_count()
    loaded = [[number] for number in range(20_000)]
    collector.look(metadata, GROWTH_MIN)
    assert gc.get_freeze_count() >= frozen + len(loaded)
