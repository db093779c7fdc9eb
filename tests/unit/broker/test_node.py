"""A whole node on a disk in memory, asked through the wire."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Append
from firnline.base.errors import Bug, Code, ConfigError, StorageError
from firnline.base.ids import TopicPartition
from firnline.broker.coordination import Coordination
from firnline.log.recovery import RecoveryReport
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.replica.opening import SLICE, Opening
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.harness import START_MS, Connection, Harness, batch, format_disk
from tests.worlds.list_log import partition

_NOT_LEADER = Code.NOT_LEADER_OR_FOLLOWER


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


def commit(harness: Harness, offset: int, topic: str = "t") -> int:
    """Commit an offset as a consumer without a group; return the error code."""
    harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    return int(harness.ask(request, 8).topics[0].partitions[0].error_code)


def committed(harness: Harness, topic: str = "t") -> int:
    """The committed offset; -1 for none."""
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestGroupTopic(name=topic, partition_indexes=[0])]
    )
    harness.pass_time(0)  # what is loaded is loaded in slices
    found = harness.ask(OffsetFetchRequest(groups=[group]), 8).groups[0]
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def test_a_committed_offset_survives_the_power_and_is_loaded_again() -> None:
    harness = Harness()
    harness.create_topic()
    assert commit(harness, 7) == 0
    assert committed(harness) == 7
    assert committed(Harness(harness.cut_power(keep="none"))) == 7


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    harness = Harness()
    harness.create_topic()
    commit(harness, 7)
    delete_topic(harness)
    harness.create_topic()
    assert committed(harness) == -1


def test_groups_are_left_to_the_next_leader() -> None:
    left: list[int] = []
    groups: Any = SimpleNamespace(unload_partition=lambda index, now_ms: left.append(index) or [])
    ground = Coordination(groups)
    ground.on_not_leading(partition("__consumer_offsets", 3), 0)
    ground.on_not_leading(partition("t", 2), 0)
    assert left == [3]


def test_groups_are_loaded_once_while_nobody_else_leads_them() -> None:
    """A leader that is elected again goes on with what it has; in an epoch between another one wrote."""
    loaded: list[int] = []
    groups: Any = SimpleNamespace(
        load_partition=lambda index, batches, then, now_ms: loaded.append(index) or [],
        unload_partition=lambda index, now_ms: [],
    )
    ground = Coordination(groups)
    mine = partition("__consumer_offsets", 3)
    for epoch, loads in ((5, 1), (6, 1), (7, 1), (9, 2), (10, 2)):
        mine.leader_epoch = epoch
        ground.on_leading(mine, 0)
        assert len(loaded) == loads, epoch
    ground.on_not_leading(mine, 0)
    mine.leader_epoch = 11
    ground.on_leading(mine, 0)
    assert len(loaded) == 3
    ground.failed[3] = StorageError("damaged")
    mine.leader_epoch = 12
    ground.on_leading(mine, 0)
    assert len(loaded) == 4


def test_an_append_to_a_partition_that_is_not_here_learns_so() -> None:
    harness = Harness()
    notified: list[object] = []
    effect = Append(
        topic_partition=TopicPartition("__consumer_offsets", 0),
        batch=batch("a"),
        then=lambda outcome, now: notified.append(outcome) or [],  # type: ignore[func-returns-value]
    )
    harness.run([effect])
    assert [outcome.code for outcome in notified] == [Code.UNKNOWN_TOPIC_OR_PARTITION]  # type: ignore[attr-defined]


def test_an_effect_nobody_knows_is_our_bug() -> None:
    with pytest.raises(Bug):
        Harness().run([object()])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------ topics


def delete_topic(harness: Harness, name: str = "t") -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    assert harness.ask(request, 6).responses[0].error_code == 0


def test_requests_are_answered_while_a_thousand_partitions_are_made() -> None:
    """d 50: what the loop does in one go stays small, and the creator is answered in time."""
    harness = Harness()
    harness.create_topic("small")
    harness.holds_work = True
    wanted = CreatableTopic(name="big", num_partitions=1000, replication_factor=1)
    creating = harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    hosted, most = len(harness.node.hosted), 0
    while harness.work:
        harness.work_once()
        most = max(most, len(harness.node.hosted) - hosted)
        hosted = len(harness.node.hosted)
        assert harness.produced("a", topic="small").error_code == 0
        if hosted > 300 and not creating.answers:
            assert harness.produced("a", topic="big", index=999).error_code == _NOT_LEADER
            harness.pass_time(1000)
            assert creating.answers[0].topics[0].error_code == 0
    assert most <= SLICE
    assert harness.produced("a", topic="big", index=999).error_code == 0


def test_a_new_topic_may_be_used_by_whoever_learnt_of_it() -> None:
    harness = Harness()
    harness.holds_work = True
    wanted = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    creating = harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    assert creating.answers == []
    while harness.work:
        harness.work_once()
        harness.pass_time(0)
    assert len(creating.answers) == 1
    assert harness.produced("a", index=2).error_code == 0


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


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_deleted_records_stay_deleted_over_a_power_cut(keep: Any) -> None:
    """rel-T18: with "none" nothing is left but what was synced before the answer."""
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b", "c")
    assert delete_before(harness, 2) == (0, 2)
    assert Harness(harness.cut_power(keep=keep)).offset(-2) == (0, 2)


def test_a_deletion_is_answered_only_when_it_is_on_disk() -> None:
    """And one that asks for what the first has moved already is no sooner."""
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b", "c")
    harness.holds_flushes = True
    part = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])])
    first, second = harness.send(request, 2), harness.send(request, 2)
    assert (first.answers, second.answers) == ([], [])
    harness.flush()
    assert (len(first.answers), len(second.answers)) == (1, 0)
    harness.flush()
    assert len(second.answers) == 1


def test_a_segment_that_comes_back_after_a_power_cut_brings_no_deleted_record_back() -> None:
    """Retention has renamed it; the names of the directory had not been synced."""
    harness = Harness(log_flush_offset_checkpoint_interval_ms="3600000")
    harness.create_topic(segment_bytes="1048576")
    for _ in range(3):
        harness.produced(data=batch("x" * 600_000))
    assert delete_before(harness, 1) == (0, 1)
    harness.pass_time(300_000)
    assert "00000000000000000000.log" not in harness.fs.list_dir("/data/t-0")
    assert delete_before(harness, 1) == (0, 1)  # writes the checkpoint again, durably
    assert Harness(harness.cut_power(keep="none")).offset(-2) == (0, 1)


def test_a_deletion_that_cannot_be_written_down_is_no_success() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", "b", "c")
    harness.fs.fail("append", "log-start-offset-checkpoint", "ENOSPC")
    assert delete_before(harness, 2) == (Code.KAFKA_STORAGE_ERROR, -1)
    assert delete_before(harness, 2) == (0, 2)
    assert Harness(harness.cut_power(keep="none")).offset(-2) == (0, 2)


def test_the_bound_of_producers_holds_for_all_partitions_together() -> None:
    """firnline.producer.ids.max: a client that makes up ids cannot fill the memory partition by partition."""
    harness = Harness(firnline_producer_ids_max="5")
    for topic in ("t", "u"):
        harness.create_topic(topic)
        for number in range(20):
            data = batch("a", producer_id=number, producer_epoch=0, base_sequence=0)
            assert harness.produced(data=data, topic=topic).error_code == 0
    held = [len(harness.node.partitions[topic, 0].log.producers) for topic in ("t", "u")]
    assert sum(held) == 5
    assert harness.node.storage.producers.forgotten == 40 - 5


def test_an_idle_producer_is_forgotten_when_its_time_is_over_and_not_before() -> None:
    """producer.id.expiration.ms, also across a stop that lasted longer than a day."""
    settings: dict[str, Any] = {
        "producer_id_expiration_ms": "100000000",
        "producer_id_expiration_check_interval_ms": "60000",
    }
    harness = Harness(**settings)
    harness.create_topic()
    data = batch("a", producer_id=1, producer_epoch=0, base_sequence=0)
    assert harness.produced(data=data).base_offset == 0
    harness = Harness(harness.stop(), now_ms=harness.now_ms + 99_900_000, **settings)
    producers = harness.node.partitions["t", 0].log.producers
    assert [producer.producer_id for producer in producers.all()] == [1]
    harness.pass_time(60_000)
    assert len(list(producers.all())) == 1
    harness.pass_time(120_000)
    assert list(producers.all()) == []


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


# ------------------------------------------------------------------------------- several directories


def test_a_log_is_found_in_the_directory_where_it_lies() -> None:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    directories: dict[str, Any] = {"log_dirs": "/one,/two", "metadata_log_dir": "/one"}
    harness = Harness(fs, **directories)
    for name in ("a", "b"):
        harness.create_topic(name)
        harness.produced(name, topic=name)
    delete_topic(harness, "a")
    # Another incarnation: the one that took leave may lead nothing any more.
    assert Harness(harness.stop(), seed=1, **directories).values(topic="b") == ["b"]


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


_METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"


def metadata_report(harness: Harness) -> RecoveryReport:
    """What opening the metadata log had to do."""
    guest = harness.node.storage.directories[0]._guest
    assert guest is not None
    assert isinstance(guest.recovery, RecoveryReport)
    return guest.recovery


def damage(fs: CrashableFs, path: str, position: int) -> int:
    """Flip a bit of a synced file; return the file's size."""
    file = fs.open(path)
    data = bytearray(file.read(0, file.size()))
    data[position] ^= 1
    file.truncate(0)
    file.append(data)
    file.sync()
    return len(data)


def test_the_metadata_log_is_not_scanned_after_a_stop_in_order() -> None:
    fs = Harness().stop()
    file = fs.open("/data/recovery-point-offset-checkpoint")
    assert b"__cluster_metadata 0 " in file.read(0, file.size())
    report = metadata_report(Harness(fs))
    assert (report.was_clean, report.segments_scanned) == (True, 0)


@pytest.mark.parametrize("stops", [True, False])
def test_damage_of_metadata_that_was_on_disk_is_refused_and_not_cut_off(stops: bool) -> None:
    harness = Harness()
    harness.create_topic()
    harness.pass_time(5_000)  # the recovery point is written down
    fs = harness.stop() if stops else harness.cut_power()
    size = damage(fs, f"/data/{_METADATA_LOG}", 200)
    with pytest.raises(StorageError, match="damaged"):
        Harness(fs)
    assert fs.open(f"/data/{_METADATA_LOG}").size() == size


def test_a_metadata_directory_of_its_own_has_a_recovery_point_and_a_marker() -> None:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/data", "/meta"):
        format_disk(fs, rng, path)
    fs = Harness(fs, metadata_log_dir="/meta").stop()
    file = fs.open("/meta/recovery-point-offset-checkpoint")
    assert b"__cluster_metadata 0 " in file.read(0, file.size())
    assert fs.exists("/meta/.kafka_cleanshutdown")
    damage(fs, f"/meta/{_METADATA_LOG}", 200)
    with pytest.raises(StorageError, match="damaged"):
        Harness(fs, metadata_log_dir="/meta")


def test_a_marker_of_kafka_vouches_for_no_metadata() -> None:
    """Kafka writes the marker before it closes the metadata log, and no recovery point of it."""
    fs = Harness().stop()
    file = fs.open("/data/recovery-point-offset-checkpoint")
    file.truncate(0)
    file.append(b"0\n0\n")
    assert metadata_report(Harness(fs)).segments_scanned == 1


def test_a_new_incarnation_leads_in_a_new_epoch() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    before = harness.node.partitions["t", 0].leader_epoch
    harness = Harness(harness.cut_power())
    after = harness.node.partitions["t", 0]
    assert after.leader_epoch > before
    assert after.log.epochs.entries() == ((before, 0), (after.leader_epoch, 1))


def test_nothing_is_hosted_before_the_registration_of_this_incarnation() -> None:
    """The image on disk says that the last incarnation leads; what it lost with the power we lack too."""
    harness = Harness()
    harness.create_topic()
    late = _Slow(harness.cut_power())
    steps = 0
    while late.flushes:
        steps += not late.node.lifecycle.is_registered
        if not late.node.lifecycle.is_registered:
            assert late.node.partitions == {}
        late.flush_one()
    assert steps > 1, "the registration was there from the beginning, so nothing was tried"
    assert late.node.partitions["t", 0].is_leader


class _Slow(Harness):
    """A node whose disk syncs when it is told to, from the start on."""

    holds_flushes = True

    def flush_one(self) -> None:
        self.complete(self.flushes.pop(0))


def test_a_start_that_fails_leaves_the_directory_free() -> None:
    fs = Harness().stop()
    fs.fail("open", "__cluster_metadata-0", "EIO")
    with pytest.raises(StorageError, match="open"):
        Harness(fs)
    assert Harness(fs).node.is_ready


def test_one_bad_directory_of_two_leaves_the_other_free() -> None:
    fs = Harness().stop()
    for _ in range(2):
        with pytest.raises(StorageError, match="not formatted"):
            Harness(fs, log_dirs="/data,/new", metadata_log_dir="/data")
    assert Harness(fs).node.is_ready


def test_a_topic_that_is_deleted_while_its_partition_waits_to_be_opened_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else would remove it: it lay aside for ever, or where it was until the next start."""
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    fs = harness.stop()
    with monkeypatch.context() as slow:
        slow.setattr(Opening, "go", lambda self, now_ms: [])
        harness = Harness(fs)
        assert harness.running_ms is None, "others are opened first"
        delete_topic(harness)
    harness.run(harness.node.parts.hosting._opening.go(harness.now_ms))
    harness.pass_time(10_000)
    assert harness.running_ms is not None
    assert not [name for name in fs.list_dir("/data") if name.startswith("t-0")]
