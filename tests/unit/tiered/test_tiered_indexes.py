"""Indexes of remote segments on this node: kept within bounds, and built again where the tier lost them."""

import struct
from dataclasses import replace

import pytest

from firnline.base.effects import Effects
from firnline.tiered.objects.index_files import REBUILD_INTERVAL_BYTES, rebuild_indexes
from firnline.tiered.reads import index_cache
from firnline.tiered.reads.indexes import IndexFiles
from tests.unit.tiered.test_tiered_read import log_key, offsets, tiered
from tests.worlds.tier import TOPIC_ID, TP, Cluster, Node

WORD = struct.Struct(">ii")
TIMES = struct.Struct(">qi")


@pytest.mark.parametrize("harm", ["gone", "cut", "nonsense"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_lost_index_is_built_again_from_the_segment(suffix: str, harm: str) -> None:
    """T58: shipped Kafka answers an unknown server error."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, *(str(n) * 3000 for n in range(9)))
    node.pass_time(1000)
    node.expire_local()
    before = {n: node.read(n, max_bytes=1) for n in range(9)}
    key = log_key(node.segments()[0]).removesuffix(".log") + suffix
    if harm == "gone":
        del cluster.store.objects[key]
    else:
        good = cluster.store.objects[key]
        cluster.store.objects[key] = good[:-1] if harm == "cut" else b"\xff" * len(good) * 2
    node.tier.indexes.remove(node.segments()[0].segment_id)
    assert {n: node.read(n, max_bytes=1) for n in range(9)} == before


def test_many_reads_of_one_segment_load_its_indexes_once() -> None:
    """X40, single flight."""
    node = tiered(Cluster())
    answers: list[object] = []

    def then(result: object, now_ms: int) -> Effects:
        answers.append(result)
        return []

    node.held = lambda effect: True
    for offset in (0, 1, 0, 1):
        node.run(node.tier.read(TP, TOPIC_ID, offset, 0, 1, 0, then, node.cluster.now_ms))
    assert len(node.on_hold) == 1
    node.release()
    assert len(answers) == 4


def test_indexes_in_memory_serve_every_later_read() -> None:
    node = tiered(Cluster())
    for _ in range(4):
        assert offsets(node.read(0, max_bytes=1)) == [0]
    assert [name for name in node.trace if name.startswith("indexes of")] == ["indexes of t-0 at 0"]


def test_indexes_that_were_not_asked_for_longest_leave_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_cache, "MEMORY_BYTES", 1)
    node = tiered(Cluster())
    for offset in (0, 2, 0, 0):
        assert offsets(node.read(offset, max_bytes=1)) == [offset]
    loads = [name for name in node.trace if name.startswith("indexes of")]
    assert [name.rpartition(" ")[2] for name in loads] == ["0", "2", "0"]


def test_indexes_of_a_segment_that_went_while_they_were_loaded_are_not_kept() -> None:
    """Nobody would ever remove them from the disk."""
    node = tiered(Cluster())
    node.held = lambda effect: True
    node.run(node.tier.read(TP, TOPIC_ID, 0, 0, 1, 0, lambda found, now_ms: [], 0))
    node.tier.indexes.remove(node.segments()[0].segment_id)
    node.release()
    assert node.tier.indexes._disk_bytes == 0
    assert node.fs.list_dir("/data/remote-log-index-cache") == []
    for _ in range(2):
        assert offsets(node.read(0, max_bytes=1)) == [0]
    assert node.tier.indexes._disk_bytes > 0


def test_an_index_that_is_built_again_is_as_sparse_as_the_log_makes_it() -> None:
    """An entry for each batch of a segment of a gigabyte would fill the cache."""
    node = Node(Cluster()).start().lead(0)
    node.produce(0, *(str(n) * 100 for n in range(10, 100)))
    node.pass_time(1000)
    (segment,) = node.segments()
    found = rebuild_indexes(node.storage, segment)
    assert 2 <= len(found.offsets) // 8 <= segment.size_bytes // REBUILD_INTERVAL_BYTES
    assert len(found.times) == 12, "all are of one time"


@pytest.mark.parametrize(
    ("offsets", "times", "is_sane"),
    [
        ((), (), True),
        (((3, 100), (5, 200)), ((7, 3), (9, 5)), True),
        (((3, 100), (5, 200)), ((7, 3), (7, 5)), True),
        (((3, 100), (3, 200)), (), False),
        (((3, 100), (5, 100)), (), False),
        (((3, 100), (5, 1000)), (), False),
        (((3, 100),), ((9, 3), (7, 5)), False),
        (((3, 100),), ((7, 5), (9, 3)), False),
    ],
)
def test_indexes_that_nobody_vouches_for_are_believed_where_they_can_be_right(
    offsets: tuple[tuple[int, int], ...], times: tuple[tuple[int, int], ...], is_sane: bool
) -> None:
    """Of segments that an older version copied the tier knows no checksums."""
    words = b"".join(WORD.pack(*each) for each in offsets)
    rows = b"".join(TIMES.pack(*each) for each in times)
    assert IndexFiles(words, rows, b"").is_sane(1000) is is_sane
    assert not IndexFiles(words + b"x", rows, b"").is_sane(1000)
    assert not IndexFiles(words, rows + b"x", b"").is_sane(1000)


def test_indexes_are_kept_on_disk_within_the_limit_and_survive_a_restart() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    node.read(0)
    one = node.tier.indexes._disk_bytes
    assert one > 0
    limit = 2 * one + one // 2
    node = Node(cluster, fs=node.crash(), index_cache_bytes=limit).start().lead(1)
    node.pass_time(1000)
    for offset in (0, 2, 4, 6):
        node.read(offset)
    cache = node.tier.indexes
    assert cache._disk_bytes == 2 * one
    names = node.fs.list_dir("/data/remote-log-index-cache")
    assert len(names) == 2 * 3
    assert all(name.rpartition(".")[2] in ("index", "timeindex", "txnindex") for name in names)
    node.fs.open("/data/remote-log-index-cache/left.tmp", create=True)
    node.fs.remove(f"/data/remote-log-index-cache/{names[0]}")
    fresh = Node(cluster, fs=node.crash(), index_cache_bytes=limit).start().lead(2)
    fresh.pass_time(1000)
    left = fresh.fs.list_dir("/data/remote-log-index-cache")
    assert len(left) == 3, "leftovers and incomplete sets are gone"
    kept = int(left[0].partition("_")[0])
    assert offsets(fresh.read(kept, max_bytes=1)) == [kept]
    assert fresh.storage.calls.count("index") == 0


def test_a_cache_whose_limit_is_lowered_shrinks_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be ten thousand segments, and no client waits for the removal of their files."""
    monkeypatch.setattr(index_cache, "REMOVED_PER_SLICE", 1)
    node = tiered(Cluster())
    for offset in (0, 2, 4, 6):
        node.read(offset)
    folder = "/data/remote-log-index-cache"
    assert len(node.fs.list_dir(folder)) == 4 * 3
    lowered = replace(node.tier.services.settings, index_cache_bytes=1)
    effects = node.tier.apply_settings(lowered, node.now_ms)
    assert len(node.fs.list_dir(folder)) >= 3 * 3
    node.run(effects)
    node.pass_time(10)
    assert node.fs.list_dir(folder) == []
    assert offsets(node.read(4, max_bytes=1)) == [4]


def test_a_damaged_index_on_disk_is_fetched_again() -> None:
    """F18."""
    cluster = Cluster()
    node = tiered(cluster)
    node.read(0)
    fresh_fs = node.crash()
    for name in fresh_fs.list_dir("/data/remote-log-index-cache"):
        fresh_fs.open(f"/data/remote-log-index-cache/{name}").append(b"junk")
    fresh = Node(cluster, fs=fresh_fs).start().lead(1)
    fresh.pass_time(1000)
    assert offsets(fresh.read(1, max_bytes=1)) == [1]
