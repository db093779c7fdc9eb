"""A whole node with a tier: old offsets come from the store, and nobody sees the difference."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.stores.memory import MemoryStore
from tests.worlds.harness import START_MS, Harness, batch, values_of

SIZE = 400_000
COUNT = 8


def tiered(store: MemoryStore, **settings: Any) -> Harness:
    """Eight records, two in a segment; all but the last segment in the tier alone."""
    harness = Harness(store=store, **settings)
    harness.create_topic(
        remote_storage_enable="true", segment_bytes="1048576", local_retention_bytes="1"
    )
    for number in range(COUNT):
        data = batch(f"{number}:".ljust(SIZE, "x"), time_ms=START_MS + number)
        assert harness.produced(data=data).error_code == 0
    harness.pass_time(30_000)
    return harness


def numbers(data: Any) -> list[int]:
    return [int(value.partition(":")[0]) for value in values_of(data)]


def test_every_record_is_read_from_one_tier_or_the_other() -> None:
    harness = tiered(MemoryStore())
    assert harness.offset(-4)[1] > 0, "nothing left the local log, so nothing is tried"
    assert harness.offset(-2) == (0, 0)
    seen: list[int] = []
    while len(seen) < COUNT:
        seen += numbers(harness.fetched(len(seen)).records)
    assert seen == list(range(COUNT))


def test_a_segment_is_in_the_tier_without_waiting_for_a_poll() -> None:
    """Each copy writes two records; waiting a second for each would make the tier trail behind."""
    harness = Harness(store=MemoryStore())
    harness.create_topic(remote_storage_enable="true", segment_bytes="1048576")
    harness.pass_time(10_000)
    for number in range(COUNT):
        harness.produced(data=batch(f"{number}:".ljust(SIZE, "x")))
    harness.pass_time(1_000)
    assert harness.offset(-5)[1] >= COUNT - 3


def test_the_marks_of_a_tiered_partition_are_reported() -> None:
    harness = tiered(MemoryStore())
    local_start = harness.offset(-4)[1]
    assert harness.offset(-5) == (0, local_start - 1)
    assert harness.offset(-6) == (0, local_start)
    assert harness.offset(-1) == (0, COUNT)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_time_is_found_in_one_tier_or_the_other(number: int) -> None:
    assert tiered(MemoryStore()).offset(START_MS + number) == (0, number)


def test_several_cold_partitions_and_a_tail_are_answered_together() -> None:
    harness = Harness(store=MemoryStore())
    harness.create_topic(
        partitions=3,
        remote_storage_enable="true",
        segment_bytes="1048576",
        local_retention_bytes="1",
    )
    for index in range(3):
        for number in range(6):
            harness.produced(data=batch(f"{number}:".ljust(SIZE, "x")), index=index)
    harness.pass_time(30_000)
    parts = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=2 * SIZE,
            current_leader_epoch=-1,
        )
        for index, offset in ((0, 0), (1, 5), (2, 1))
    ]
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=parts)], min_bytes=1, max_wait_ms=500
    )
    [topic] = harness.ask(request, 12).responses
    assert [numbers(p.records)[:1] for p in topic.partitions] == [[0], [5], [1]]


def test_an_empty_disk_after_a_power_cut_costs_nothing_that_was_acknowledged() -> None:
    store = MemoryStore()
    harness = tiered(store)
    local_start = harness.offset(-4)[1]
    restarted = Harness(harness.cut_power(keep="none"), store=store, now_ms=harness.now_ms)
    assert restarted.offset(-2) == (0, 0)
    restarted.pass_time(5_000)
    seen: list[int] = []
    while len(seen) < COUNT:
        seen += numbers(restarted.fetched(len(seen)).records)
    assert seen == list(range(COUNT))
    assert restarted.offset(-4)[1] >= local_start - 2


def segments_in(store: MemoryStore) -> list[str]:
    return sorted(key for key in store.objects if key.endswith(".log"))


def test_a_killed_node_copies_nothing_that_it_had_copied() -> None:
    """Goal: what the tier knows is known again before a copy begins, though no checkpoint vouches for it."""
    store = MemoryStore()
    harness = Harness(store=store)
    harness.create_topic(remote_storage_enable="true", segment_bytes="1048576")
    harness.pass_time(10_000)  # the checkpoints of an empty topic
    for number in range(COUNT):
        harness.produced(data=batch(f"{number}:".ljust(SIZE, "x")))
    while len(segments_in(store)) < COUNT // 2 - 1:
        harness.pass_time(100)
    harness.pass_time(10)
    before = segments_in(store)
    restarted = Harness(harness.cut_power(keep="all"), store=store, now_ms=harness.now_ms)
    restarted.pass_time(20_000)
    assert segments_in(store) == before
    for number in range(COUNT):
        restarted.produced(data=batch(f"{number}:".ljust(SIZE, "x")))
    restarted.pass_time(10_000)
    assert len(segments_in(store)) > len(before)


def test_a_store_that_is_down_costs_cold_reads_alone() -> None:
    store = MemoryStore()
    harness = tiered(store)

    def down(*args: Any, **kwargs: Any) -> bytes:
        raise OSError("no route to host")

    store.get = down  # type: ignore[method-assign]
    cold = harness.fetch(0, max_wait_ms=100)
    harness.pass_time(500)
    assert cold.answers[0].responses[0].partitions[0].error_code != 0
    assert numbers(harness.fetched(COUNT - 1).records) == [COUNT - 1]
    assert harness.produced("9:").error_code == 0


def test_what_is_in_the_tier_goes_with_its_topic() -> None:
    store = MemoryStore()
    harness = tiered(store)
    assert [key for key in store.objects if key.endswith(".log")] != []
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    assert harness.ask(request, 6).responses[0].error_code == 0
    harness.pass_time(120_000)
    assert [key for key in store.objects if key.endswith(".log")] == []


def test_a_client_cannot_delete_what_the_tier_remembers() -> None:
    from tests.unit.broker.test_node import delete_before

    harness = tiered(MemoryStore())
    assert delete_before(harness, 0, "__remote_log_metadata") == (Code.INVALID_TOPIC_EXCEPTION, -1)


def test_local_files_go_soon_and_records_when_kafka_would_delete_them() -> None:
    """`firnline dev`: a record with an old timestamp is not gone within a second of its arrival."""
    harness = Harness(
        store=MemoryStore(),
        firnline_local_retention_check_interval_ms="1000",
        log_retention_check_interval_ms="300000",
        remote_log_manager_task_interval_ms="1000",
    )
    shape: dict[str, Any] = {"segment_bytes": "1048576", "retention_ms": "1000"}
    harness.create_topic("plain", **shape)
    harness.create_topic("t", remote_storage_enable="true", local_retention_bytes="1", **shape)
    for number in range(COUNT):
        for topic in ("plain", "t"):
            old = batch(f"{number}:".ljust(SIZE, "x"), time_ms=1)
            assert harness.produced(topic=topic, data=old).error_code == 0
    harness.pass_time(20_000)
    assert harness.offset(-4)[1] > 0, "the tier has them, and the local limit is one byte"
    assert (harness.offset(-2)[1], harness.offset(-2, topic="plain")[1]) == (0, 0)
    harness.pass_time(300_000)
    assert harness.offset(-2)[1] > 0
    assert harness.offset(-2, topic="plain")[1] == COUNT
