"""Faults of docs/formats/tier-faults.md that no other file tries: on one node, in simulated time."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.ids import uuid_text
from firnline.base.units import HOUR_MS, MINUTE_MS
from firnline.log.recovery import open_log
from firnline.sim.disk import CrashableFs
from firnline.tiered.objects.catalog_reader import resolve_topic
from firnline.tiered.reads import index_cache
from firnline.tiered.reads.reader import RemoteLogReadResult
from firnline.tiered.settings import TierSettings
from tests.unit.tiered.test_tiered_circuit import EVERYTHING, REQUESTS_MAX, DownStore, copied, led
from tests.unit.tiered.test_tiered_read import offsets, tiered
from tests.worlds.tier import TOPIC_ID, TP, Cluster, Crash, Node, topic_config

AGAIN = bytes(15) + b"\x55"
CACHE = "/data/remote-log-index-cache"


def test_ten_minutes_of_503_cost_few_requests_and_the_lag_shows_what_waits() -> None:
    """F3. Each minute a segment becomes due; what is produced is never refused."""
    store = DownStore()
    node = led(Cluster(store=store))
    store.requests.clear()
    store.down = EVERYTHING
    lags: list[int] = []
    for minute in range(10):
        node.produce(0, f"minute {minute}")
        node.pass_time(MINUTE_MS)
        (gauges,) = node.tier.gauges(node.now_ms)
        lags.append(gauges.copy_lag_segments)
    assert lags == list(range(1, 11))
    assert store.works() <= REQUESTS_MAX
    assert store.probes() <= 10 * MINUTE_MS / 24_000 + 8, "one each 30 s, but for the first ones"
    store.down = ()
    node.pass_time(2 * MINUTE_MS)
    assert copied(node)
    (gauges,) = node.tier.gauges(node.now_ms)
    assert gauges.copy_lag_segments == 0


def test_a_crash_at_any_step_of_a_local_deletion_is_made_up_for_at_the_next_start() -> None:
    """F12. Files of a segment go one by one: what is left of one is no segment; the tier has its records."""
    steps = 0
    while True:
        steps += 1
        node = Node(Cluster()).start().lead(0)
        for pair in ("ab", "cd", "ef"):
            node.produce(0, *pair)
        node.pass_time(1000)
        wanted = node.read_all()
        _crash_at(node.fs, steps)
        try:
            node.expire_local()
            node.pass_time(1000)
            break
        except Crash:
            pass
        fresh = Node(node.cluster, 1, fs=node.crash(), rng=node.rng)
        fresh.log.advance_high_watermark(fresh.log.log_end_offset)
        fresh.start().lead(1)
        fresh.pass_time(1000)
        assert fresh.read_all() == wanted, steps
        fresh.expire_local()
        fresh.pass_time(1000)
        assert fresh.read_all() == wanted, steps
        left = {name.partition(".")[0] for name in fresh.fs.list_dir("/data/t-0") if "0000" in name}
        assert left == {f"{6:020d}"}, "no file of a deleted segment stays"
    assert steps > 9, "three segments of several files each"


def _crash_at(fs: CrashableFs, step: int) -> None:
    """Let the process die before its `step`-th change of a name, counted from now."""
    count = 0

    def counted(change: Callable[..., None]) -> Callable[..., None]:
        def begin(*paths: str) -> None:
            nonlocal count
            count += 1
            if count == step:
                raise Crash(paths[0])
            change(*paths)

        return begin

    fs.rename, fs.remove = counted(fs.rename), counted(fs.remove)  # type: ignore[method-assign]


def test_without_the_metadata_no_local_segment_goes_and_the_disk_that_fills_is_named() -> None:
    """F13. Not to know what the tier has is no reason to believe that it has it."""
    node = Node(Cluster(), config=topic_config(local_retention_bytes=1)).start().lead(0)
    node.append_faults = ["refused"] * 100_000
    for text in "abcd":
        node.produce(0, text)
    before = node.log.size_bytes
    for _ in range(3):
        node.expire_local()
        node.pass_time(TierSettings().local_audit_interval_ms)
    assert (node.log.local_log_start_offset, node.log.size_bytes) == (0, before)
    (line,) = [each for each in node.warnings if "beyond local.retention" in each]
    assert f"bytes={before}" in line
    assert node.tier.local_audit.overdue_bytes["not copied"] == before
    node.append_faults.clear()
    for _ in range(3):
        node.pass_time(TierSettings().local_audit_interval_ms)
        node.expire_local()
    assert node.log.local_log_start_offset == 3
    assert node.tier.problem is None


# ------------------------------------------------------------------------------------- the index cache


@pytest.mark.parametrize("file", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("operation", ["open", "append", "rename"])
def test_a_full_disk_keeps_no_index_and_costs_no_read(
    operation: Any, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F18. The cache is disposable; a part of a set must neither be taken for all of it nor stay for ever."""
    monkeypatch.setattr(index_cache, "MEMORY_BYTES", 1)
    node = Node(Cluster()).start().lead(0)
    for number in range(4):  # with entries in each of the three indexes
        of_txn = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        node.produce(0, "x" * 5000, roll=False, is_transactional=True, **of_txn)
        node.produce(0, "y" * 5000, roll=False)
        node.end_transaction(0, 7, is_commit=False)
    node.pass_time(1000)
    node.expire_local()
    node.fs.fail(operation, f"{file}.tmp", "ENOSPC", times=1000)
    for offset in (0, 1, 3, 4, 6, 9, 0):
        assert offsets(node.read(offset, max_bytes=1)) == [offset]
    assert node.fs.list_dir(CACHE) == [], "nothing of what did not fit is left"
    assert node.tier.indexes._disk_bytes == 0
    node.fs.forgive()
    for offset in (3, 6, 9, 0):  # the indexes of the last are in memory
        assert offsets(node.read(offset, max_bytes=1)) == [offset]
    assert len(node.fs.list_dir(CACHE)) == 4 * 3


def test_a_cached_index_that_the_disk_does_not_give_back_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F18."""
    monkeypatch.setattr(index_cache, "MEMORY_BYTES", 1)
    node = tiered(Cluster())
    for offset in (0, 2):
        node.read(offset, max_bytes=1)
    node.storage.calls.clear()
    node.fs.fail("read", CACHE, "EIO", times=1000)
    assert offsets(node.read(1, max_bytes=1)) == [1]
    assert node.storage.calls.count("index") == 2


# ------------------------------------------------------------------------------ the deletion of a topic


def test_a_topic_that_is_made_again_while_the_store_is_down_is_not_mixed_with_the_old_one() -> None:
    """F23. The old objects go when the store is back; the new topic of that name is copied and stays."""
    store = DownStore()
    cluster = Cluster(store=store)
    node = tiered(cluster)
    old = keys_of(cluster, TOPIC_ID)
    assert len(old) == 20
    store.down = EVERYTHING
    del cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    cluster.topics[AGAIN] = "t"
    config = topic_config()
    node.log = open_log(
        *(node.fs, "/data/t-0.again", TP),
        topic_id=AGAIN,
        config=config,
        now_ms=node.now_ms,
        was_clean=True,
    )
    node.lead(0)
    node.produce(0, "new", "newer")
    node.pass_time(3 * HOUR_MS)
    assert keys_of(cluster, TOPIC_ID) == old
    assert keys_of(cluster, AGAIN) == []
    assert node.tier.remover.backlog == 1
    store.down = ()
    node.pass_time(30 * MINUTE_MS)
    assert keys_of(cluster, TOPIC_ID) == []
    assert len(keys_of(cluster, AGAIN)) == 5
    assert node.tier.remover.backlog == 0
    found = resolve_topic(cluster.store, "t")
    assert found is not None
    assert (found.topic_id, found.is_deleted) == (AGAIN, False)
    node.expire_local()
    answers: list[Any] = []

    def then(result: Any, _now_ms: int) -> Effects:
        answers.append(result)
        return []

    node.run(node.tier.read(TP, AGAIN, 0, 0, 1 << 20, 0, then, node.now_ms))
    (read,) = answers
    assert isinstance(read, RemoteLogReadResult)
    assert offsets(read) == [0, 1]


def keys_of(cluster: Cluster, topic_id: bytes) -> list[str]:
    """The objects of the topic's segments."""
    folder = f"data/{uuid_text(topic_id)}/"
    return sorted(key for key in cluster.store.objects if key.startswith(folder))
