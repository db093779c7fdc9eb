"""A whole node on a disk in memory, asked through the wire."""

from typing import Any

import pytest

from firnline.base.effects import Append
from firnline.base.errors import Bug, Code, ConfigError, StorageError
from firnline.base.ids import TopicPartition
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.sim.disk import CrashableFs
from tests.unit.broker.harness import (
    START_MS,
    Connection,
    Harness,
    SeededRng,
    batch,
    format_disk,
)


def test_a_node_starts_and_is_counted_in() -> None:
    harness = Harness()
    assert harness.node.is_ready
    assert harness.running_ms is not None
    assert harness.node.broker_epoch > 0
    assert not harness.node.image.brokers[1].fenced


def test_a_directory_that_was_not_formatted_is_refused() -> None:
    with pytest.raises(ConfigError, match="format"):
        Harness(CrashableFs())


def test_a_directory_of_another_node_is_refused_and_not_locked() -> None:
    fs = Harness().stop()
    for _ in range(2):
        with pytest.raises(StorageError, match="another node"):
            Harness(fs, node_id="2", controller_quorum_voters="2@localhost:9093")
    assert Harness(fs).node.is_ready


def test_two_nodes_on_one_directory_are_refused() -> None:
    harness = Harness()
    with pytest.raises(StorageError, match="in use"):
        Harness(harness.fs)


# ------------------------------------------------------------------------------- produce and fetch


def test_what_is_produced_is_fetched() -> None:
    harness = Harness()
    harness.create_topic()
    assert harness.produced("a", "b").base_offset == 0
    assert harness.produced("c", acks=1).base_offset == 2
    assert harness.values() == ["a", "b", "c"]
    assert harness.values(2) == ["c"]
    assert harness.fetched(3).high_watermark == 3


def test_acks_zero_is_kept_and_not_answered() -> None:
    harness = Harness()
    harness.create_topic()
    assert harness.produce("a", acks=0).answers == [None]
    assert harness.values() == ["a"]


def test_a_consumer_that_waits_is_answered_by_a_producer() -> None:
    harness = Harness()
    harness.create_topic()
    waiting = harness.fetch(min_bytes=1, max_wait_ms=500)
    assert waiting.answers == []
    harness.produced("a")
    assert len(waiting.answers) == 1
    assert len(waiting.answers[0].responses[0].partitions[0].records) > 0
    late = harness.fetch(1, min_bytes=1, max_wait_ms=500)
    harness.pass_time(500)
    assert len(late.answers[0].responses[0].partitions[0].records) == 0


def test_damaged_bytes_are_refused_and_nothing_is_kept() -> None:
    harness = Harness()
    harness.create_topic()
    data = batch("a")
    data[-1] ^= 1
    assert harness.produced(data=data).error_code == Code.CORRUPT_MESSAGE
    assert harness.values() == []


@pytest.mark.parametrize("topic", ["__cluster_metadata", "nothing", "../etc/x"])
def test_what_is_no_topic_takes_no_bytes(topic: str) -> None:
    harness = Harness()
    before = harness.node.quorum.next_offset
    assert harness.produced("a", topic=topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.node.quorum.next_offset == before


def test_a_consumer_does_not_read_the_metadata_log_as_a_topic() -> None:
    found = Harness().fetched(topic="__cluster_metadata")
    assert found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_repeated_batch_of_an_idempotent_producer_is_kept_once() -> None:
    harness = Harness()
    harness.create_topic()
    producer = harness.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert producer.error_code == 0

    def sequence(first: int) -> bytearray:
        return batch("a", producer_id=producer.producer_id, producer_epoch=0, base_sequence=first)

    assert [harness.produced(data=sequence(n)).base_offset for n in (0, 1, 0, 1)] == [0, 1, 0, 1]
    assert harness.produced(data=sequence(3)).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert harness.values() == ["a", "a"]


def test_two_producers_never_get_one_id() -> None:
    harness = Harness()
    ids = [harness.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id]
    fs = harness.stop()
    harness = Harness(fs)
    ids.append(harness.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id)
    assert len(dict.fromkeys(ids)) == 2


# -------------------------------------------------------------------------- offsets and their ends


def test_offsets_are_listed_by_end_and_by_time() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b")
    harness.produced(data=batch("c", time_ms=START_MS + 100))
    assert harness.offset(-2) == (0, 0)
    assert harness.offset(-1) == (0, 3)
    assert harness.offset(-3) == (0, 2)
    assert harness.offset(START_MS + 1) == (0, 2)
    assert harness.offset(START_MS + 101) == (0, -1)
    assert harness.offset(-5) == (0, -1)


def delete_before(harness: Harness, offset: int, topic: str = "t") -> tuple[int, int]:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])])
    found = harness.ask(request, 2).topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_deleted_records_stay_deleted_over_a_restart() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b", "c")
    assert delete_before(harness, 2) == (0, 2)
    assert delete_before(harness, 9) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert harness.fetched(1).error_code == Code.OFFSET_OUT_OF_RANGE
    assert harness.offset(-2) == (0, 2)
    harness = Harness(harness.stop())
    assert harness.offset(-2) == (0, 2)
    assert harness.fetched(1).error_code == Code.OFFSET_OUT_OF_RANGE


# ------------------------------------------------------------------------------------------ groups


def test_the_offsets_topic_is_made_when_the_first_client_asks() -> None:
    harness = Harness()
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    [found] = harness.ask(request, 4).coordinators
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
    topic = harness.node.image.topic("__consumer_offsets")
    assert topic is not None
    assert len(topic.partitions) == 4
    refused = harness.produced("a", topic="__consumer_offsets")
    assert refused.error_code == Code.INVALID_TOPIC_EXCEPTION


def test_an_append_to_a_partition_that_is_not_here_is_told_so() -> None:
    harness = Harness()
    told: list[object] = []
    effect = Append(
        topic_partition=TopicPartition("__consumer_offsets", 0),
        batch=batch("a"),
        then=lambda outcome, now: told.append(outcome) or [],  # type: ignore[func-returns-value]
    )
    harness.run([effect])
    assert [outcome.code for outcome in told] == [Code.UNKNOWN_TOPIC_OR_PARTITION]  # type: ignore[attr-defined]


def test_an_effect_nobody_knows_is_our_bug() -> None:
    with pytest.raises(Bug):
        Harness().run([object()])


# ------------------------------------------------------------------------------------------ topics


def delete_topic(harness: Harness, name: str = "t") -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    assert harness.ask(request, 6).responses[0].error_code == 0


def test_a_deleted_topic_is_gone_and_its_files_follow() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    waiting = harness.fetch(1, min_bytes=1, max_wait_ms=60_000)
    delete_topic(harness)
    moved = waiting.answers[0].responses[0].partitions[0]
    assert moved.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.produced("a").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert "t-0" not in harness.fs.list_dir("/data")
    harness.pass_time(60_000)
    assert [n for n in harness.fs.list_dir("/data") if n.startswith("t-0")] == []


def test_a_topic_made_again_begins_empty() -> None:
    harness = Harness()
    first = harness.create_topic()
    harness.produced("a", "b")
    delete_topic(harness)
    second = harness.create_topic()
    assert first != second
    assert harness.values() == []
    assert harness.produced("c").base_offset == 0
    harness = Harness(harness.stop())
    assert harness.values() == ["c"]


def test_a_deletion_that_the_power_cut_off_is_finished_at_the_next_start() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    partition_dir = "/data/t-0"
    harness.holds_flushes = True
    connection = Connection()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    harness.send(request, 6, connection)
    assert harness.fs.exists(partition_dir)
    for flush in harness.flushes:
        for file in flush.files:
            file.sync()  # the decision is on disk, and the power goes before anybody acts on it
    harness = Harness(harness.cut_power(keep="none"))
    assert not harness.fs.exists(partition_dir)
    assert harness.produced("a").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


# ----------------------------------------------------------------------------------- periodic jobs


def test_what_nobody_waited_for_is_synced_after_a_while() -> None:
    harness = Harness(firnline_acks_fsync="never")
    harness.create_topic()
    harness.produced("a")
    harness.pass_time(60_000)
    harness = Harness(harness.cut_power(keep="none"))
    assert harness.values() == ["a"]


def test_a_topic_with_flush_ms_is_synced_when_it_is_over() -> None:
    harness = Harness(firnline_acks_fsync="never")
    harness.create_topic(flush_ms="3000")
    harness.pass_time(10_000)
    harness.produced("a")
    harness.pass_time(4_000)
    harness = Harness(harness.cut_power(keep="none"))
    assert harness.values() == ["a"]


def test_deleted_records_stay_deleted_over_a_power_cut() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b", "c")
    assert delete_before(harness, 2) == (0, 2)
    assert Harness(harness.cut_power()).offset(-2) == (0, 2)


def refused(harness: Harness, **more: Any) -> int:
    """The error code of one batch built with `more`."""
    return int(harness.produced(data=batch("a", **more)).error_code)


def test_what_only_the_broker_may_write_is_refused() -> None:
    harness = Harness()
    harness.create_topic()
    ids: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert refused(harness, is_control=True, **ids) == Code.INVALID_RECORD
    assert refused(harness, is_transactional=True, **ids) == Code.INVALID_TXN_STATE
    two = harness.produced(data=batch("a") + batch("b"))
    assert two.error_code == Code.INVALID_RECORD
    assert harness.values() == []


def test_old_segments_leave_the_log_and_then_the_disk() -> None:
    harness = Harness()
    harness.create_topic(retention_ms="1000", segment_bytes="1048576", file_delete_delay_ms="1000")
    for _ in range(3):
        harness.produced(data=batch("x" * 600_000))
    assert harness.offset(-2) == (0, 0)
    harness.pass_time(300_000)
    assert harness.offset(-2)[1] > 0
    assert harness.offset(-1) == (0, 3)
    harness.pass_time(2_000)
    assert [n for n in harness.fs.list_dir("/data/t-0") if n.endswith(".deleted")] == []


def test_checkpoints_are_written_while_the_node_runs() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b")
    harness.pass_time(5_000)
    file = harness.fs.open("/data/replication-offset-checkpoint")
    assert b"t 0 2" in file.read(0, file.size())


# ------------------------------------------------------------------------------------ failing disks


def test_a_full_disk_refuses_appends_and_still_serves_reads() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    harness.fs.fail("append", "t-0", "ENOSPC")
    assert harness.produced("b").error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.values() == ["a"]
    assert harness.produced("c").base_offset == 1


def test_a_failed_sync_is_no_success_and_stops_a_node_with_one_directory() -> None:
    harness = Harness()
    harness.create_topic()
    harness.fs.fail("sync", "t-0", "EIO")
    harness.holds_flushes = True
    connection = harness.produce("a")
    harness.holds_flushes = False
    harness.flush()
    with pytest.raises(StorageError, match="out of use"):
        harness.pass_time(0)
    part = connection.answers[0].responses[0].partition_responses[0]
    assert part.error_code == Code.KAFKA_STORAGE_ERROR


def test_one_failed_directory_of_two_takes_down_its_partitions_alone() -> None:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one,/two", metadata_log_dir="/one")
    harness.create_topic(partitions=2)
    paths = [p.log.path for p in harness.node.hosted]
    assert sorted(path.split("/")[1] for path in paths) == ["one", "two"]
    lost = next(p for p in harness.node.hosted if p.log.path.startswith("/two"))
    kept = next(p for p in harness.node.hosted if p.log.path.startswith("/one"))
    harness.fs.fail("append", lost.log.path, "EIO")
    index = lost.topic_partition.partition
    assert harness.produced("a", index=index).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.fetched(index=index).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.produced("a", index=kept.topic_partition.partition).error_code == 0


# --------------------------------------------------------------------------------------- restarting


def test_a_node_that_stopped_in_order_has_all_and_nothing_to_recover() -> None:
    harness = Harness(firnline_acks_fsync="never")
    harness.create_topic()
    harness.produced("a", "b", acks=1)
    epoch = harness.node.broker_epoch
    fs = harness.stop()
    assert fs.exists("/data/.kafka_cleanshutdown")
    harness = Harness(fs)
    assert not fs.exists("/data/.kafka_cleanshutdown")
    assert harness.node.storage.directories[0].was_clean
    assert harness.node.storage.directories[0].last_broker_epoch == epoch
    assert harness.node.broker_epoch > epoch
    assert harness.values() == ["a", "b"]
    assert harness.produced("c").base_offset == 2


def test_a_new_incarnation_leads_in_a_new_epoch() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    before = harness.node.partitions["t", 0].leader_epoch
    harness = Harness(harness.cut_power())
    after = harness.node.partitions["t", 0]
    assert after.leader_epoch > before
    assert after.log.epochs.entries() == ((before, 0), (after.leader_epoch, 1))


def test_nothing_is_led_before_the_registration_of_this_incarnation() -> None:
    harness = Harness()
    harness.create_topic()
    fs = harness.cut_power()
    late = _Held(fs)
    assert late.node.image.topic("t") is None or not late.node.partitions
    late.let_go()
    assert late.node.partitions["t", 0].is_leader


class _Held(Harness):
    """A node whose disk syncs nothing until `let_go`."""

    def run(self, effects: list[object]) -> None:
        if "_free" not in self.__dict__:
            self.holds_flushes = True
        super().run(effects)

    def let_go(self) -> None:
        self._free = True
        self.holds_flushes = False
        while self.flushes:
            self.flush()
