"""Directories that are new, that fail and that are cordoned: what broker and controller tell each other."""

from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.errors import Code, StorageError
from firnline.base.ids import UNASSIGNED_DIRECTORY, TopicPartition
from firnline.base.waits import At
from firnline.broker.node import BrokerNode
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import write_partition_metadata
from firnline.log.recovery import at_once
from firnline.metadata.image import PartitionImage
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from firnline.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from firnline.replica import directories
from firnline.sim.disk import CrashableFs
from tests.unit.broker.test_replication import (
    BROKERS,
    ROLES,
    SESSION_MS,
    all_equal,
    isr,
    leader,
    living,
    produce,
    started,
)
from tests.worlds.cluster import Rig
from tests.worlds.harness import METADATA_VERSION, batch

BOTH = "/one,/two"


def state(rig: Rig, topic: str = "t", index: int = 0) -> PartitionImage:
    found = rig[living(rig)[0]].broker.image.partition(topic, index)
    assert found is not None
    return found


def directory(rig: Rig, node_id: int) -> bytes:
    found = state(rig)
    return found.directories[found.replicas.index(node_id)]


def wiped(rig: Rig, node_id: int) -> None:
    """Kill it, take its disk away, and let it come back on a new one."""
    rig[node_id].kill()
    rig.until(lambda: node_id not in isr(rig) or isr(rig) == (node_id,))
    rig[node_id].format()
    rig[node_id].start()
    rig.until(lambda: rig[node_id].is_running)


def prefer(rig: Rig) -> Any:
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5_000)
    return rig.ask(living(rig)[0], request, 2)


def test_a_new_partition_of_a_broker_with_one_directory_needs_no_word_of_it() -> None:
    rig = started()
    rig.pass_time(2_000)
    assert not [m for _, _, m in rig.sent if isinstance(m, AssignReplicasToDirsRequest)]
    assert all(directory(rig, n) == rig[n].directory_id for n in BROKERS)


def test_a_broker_on_a_new_disk_follows_joins_and_leads_again() -> None:
    """Its replica would be in a directory that is nowhere: the controller would never let it lead."""
    rig = started()
    for number in range(3):
        assert produce(rig, f"v{number}").error_code == 0
    first = state(rig).replicas[0]
    wiped(rig, first)
    rig.until(lambda: directory(rig, first) == rig[first].directory_id)
    rig.until(lambda: isr(rig) == BROKERS)
    assert leader(rig) != first
    prefer(rig)
    rig.until(lambda: leader(rig) == first)
    assert produce(rig, "after").error_code == 0
    rig.until(lambda: all_equal(rig))


def test_a_controller_that_does_not_answer_is_notified_of_the_new_disk_later() -> None:
    rig = started()
    first = state(rig).replicas[0]
    send, asked = rig.send, []

    def refused(asker: Any, effect: Any) -> None:
        if isinstance(effect.request, AssignReplicasToDirsRequest) and len(asked) < 3:
            asked.append(rig.now_ms)
            effect = effect.__class__(**{**_fields(effect), "peer": effect.peer._replace(port=1)})
        send(asker, effect)

    rig.send = refused  # type: ignore[method-assign]
    wiped(rig, first)
    rig.until(lambda: directory(rig, first) == rig[first].directory_id)
    assert len(asked) == 3


def _fields(effect: Any) -> dict[str, Any]:
    names = ("peer", "request", "timeout_ms", "then", "channel", "version_min", "version_max")
    return {name: getattr(effect, name) for name in names}


def two_directories(*, metadata_version: int = METADATA_VERSION, **settings: str) -> Rig:
    rig = Rig(ROLES, metadata_version=metadata_version, log_dirs=BOTH, **settings).start()
    made = rig.create_topic(4, "t", replicas=3, partitions=2)
    assert made.error_code == 0, made
    rig.until(lambda: all(("t", 1) in rig[n].broker.partitions for n in BROKERS))
    return rig


def index_in(rig: Rig, node_id: int, path: str) -> int:
    """The partition of t whose replica of that broker is in that directory."""
    parts = rig[node_id].broker.partitions
    return next(i for i in (0, 1) if parts[TopicPartition("t", i)].log.path.startswith(path))


def leads_in(rig: Rig, node_id: int, path: str) -> bool:
    return state(rig, index=index_in(rig, node_id, path)).leader == node_id


def id_of(node: BrokerNode, path: str) -> bytes:
    return next(d.directory_id for d in node.storage.directories if d.path == path)


def settled(rig: Rig) -> bool:
    """Does metadata say of every replica where it is?"""
    return all(
        state(rig, index=i).directories[state(rig, index=i).replicas.index(n)]
        == id_of(
            rig[n].broker, "/" + rig[n].broker.partitions["t", i].log.path.split("/")[1]
        )
        for n in BROKERS
        for i in (0, 1)
    )  # fmt: skip


def test_where_a_broker_of_several_directories_put_a_replica_is_written_down() -> None:
    rig = two_directories()
    assert rig.until(lambda: settled(rig)) < 2_000
    messages = [m for _, _, m in rig.sent if isinstance(m, AssignReplicasToDirsRequest)]
    assert len(messages) == len(BROKERS), "both partitions go in one request"


def fail(rig: Rig, node_id: int, index: int) -> None:
    """Let the disk under a replica fail at its next append."""
    rig[node_id].fs.fail("append", replica_of(rig, node_id, index).log.path, "EIO", times=9)


def replica_of(rig: Rig, node_id: int, index: int) -> Any:
    return rig[node_id].broker.partitions["t", index]


def write(rig: Rig, node_id: int, index: int) -> int:
    """Produce to a broker, and let its continuations run; the error code."""
    part = PartitionProduceData(index=index, records=batch("v"))
    data = TopicProduceData(name="t", partition_data=[part])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data])
    return int(rig.ask(node_id, request, 9).responses[0].partition_responses[0].error_code)


def test_another_broker_leads_at_once_what_was_in_a_directory_that_failed() -> None:
    """The broker lives on and beats: nobody but itself can say that it leads nothing there."""
    rig = two_directories()
    rig.until(lambda: settled(rig))
    lost = next(n for n in BROKERS if leads_in(rig, n, "/two"))
    index = index_in(rig, lost, "/two")
    failed = id_of(rig[lost].broker, "/two")
    fail(rig, lost, index)
    assert write(rig, lost, index) == Code.KAFKA_STORAGE_ERROR
    took_ms = rig.until(lambda: state(rig, index=index).leader != lost)
    assert took_ms < 1_000, "not by the end of its session"
    after = state(rig, index=index)
    assert after.leader in BROKERS
    assert lost not in after.isr
    rig.until(lambda: failed not in rig[lost].broker.image.brokers[lost].log_dirs)
    assert not rig[lost].broker.image.brokers[lost].fenced
    other = index_in(rig, lost, "/one")
    assert lost in state(rig, index=other).isr, "the other directory works"
    rig.pass_time(4 * SESSION_MS)
    assert lost not in state(rig, index=index).isr
    assert not rig[lost].broker.image.brokers[lost].fenced


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_another_broker_leads_what_was_in_a_directory_that_is_not_there_any_more(
    is_mount_point: bool,
) -> None:
    """Unmounted or moved away, which open files hide: the broker acknowledged on, and all was well."""
    rig = two_directories()
    rig.until(lambda: settled(rig))
    lost = next(n for n in BROKERS if leads_in(rig, n, "/two"))
    index = index_in(rig, lost, "/two")
    rig[lost].fs.rename("/two", "/away")
    if is_mount_point:
        rig[lost].fs.make_dir("/two")
    assert write(rig, lost, index) == Code.NONE
    interval_ms = rig[lost].broker.config.replica_high_watermark_checkpoint_interval_ms
    assert rig.until(lambda: state(rig, index=index).leader != lost) <= 2 * interval_ms + 1_000
    assert rig[lost].broker.storage.offline.keys() == {"/two"}
    assert "stop this node, mount the disk" in str(rig[lost].broker.storage.offline["/two"])
    other = index_in(rig, lost, "/one")
    assert lost in state(rig, index=other).isr, "the other directory is there"


def test_a_failure_while_a_heartbeat_is_under_way_is_said_in_the_next_one_at_once() -> None:
    rig = two_directories(broker_heartbeat_interval_ms="8000")
    rig.until(lambda: settled(rig))
    lost = next(n for n in BROKERS if leads_in(rig, n, "/two"))
    index = index_in(rig, lost, "/two")
    sent = len(rig.sent)
    rig.until(lambda: any(_is_heartbeat(m) and n == lost for n, _, m in rig.sent[sent:]), 20_000)
    node = rig[lost].broker
    rig[lost].run(node.parts.failures.partition_failed(replica_of(rig, lost, index), rig.now_ms))
    assert rig.until(lambda: state(rig, index=index).leader != lost) < 1_000


def _is_heartbeat(message: Any) -> bool:
    return isinstance(message, BrokerHeartbeatRequest)


def test_a_broker_that_cannot_report_a_failed_directory_stops_in_the_end() -> None:
    """Then its session ends, and others lead what it can serve no more."""
    rig = two_directories(log_dir_failure_timeout_ms="7000")
    rig.until(lambda: settled(rig))
    lost = BROKERS[0]
    index = index_in(rig, lost, "/two")
    fail(rig, lost, index)
    rig.cut.add((lost, 1))
    partition = replica_of(rig, lost, index)
    begin_ms = rig.now_ms
    rig[lost].run(rig[lost].broker.parts.failures.partition_failed(partition, rig.now_ms))
    with pytest.raises(StorageError, match="could not report"):
        rig.pass_time(20_000)
    assert rig.now_ms - begin_ms == 7_000


def test_others_lead_what_a_broker_that_comes_back_cannot_open() -> None:
    """Its disk failed while it was down, or does so under the first look: that is told, too (rel-P9)."""
    rig = two_directories()
    rig.until(lambda: settled(rig))
    lost = next(n for n in BROKERS if leads_in(rig, n, "/two"))
    index = index_in(rig, lost, "/two")
    failed, name = id_of(rig[lost].broker, "/two"), f"/two/t-{index}/"
    rig[lost].kill()
    rig[lost].fs.fail("open", name, "EIO", times=99)
    rig[lost].start()
    rig.until(lambda: rig[lost].is_running)
    rig.until(lambda: failed not in rig[lost].broker.image.brokers[lost].log_dirs)
    rig.until(lambda: state(rig, index=index).leader not in (lost, -1))
    other = index_in(rig, lost, "/one")
    rig.until(lambda: lost in state(rig, index=other).isr)
    rig.pass_time(2_000)
    found = state(rig, index=index)
    place = found.directories[found.replicas.index(lost)]
    assert place == failed, "called lost, the next start would not know where its records may be"


def test_the_directory_of_the_metadata_log_takes_the_node_with_it() -> None:
    rig = two_directories()
    lost = BROKERS[0]
    partition = replica_of(rig, lost, index_in(rig, lost, "/one"))
    rig[lost].run(rig[lost].broker.parts.failures.partition_failed(partition, rig.now_ms))
    with pytest.raises(StorageError, match="out of use"):
        rig.pass_time(1)


@pytest.mark.parametrize("level", [16, 30])
def test_a_node_that_cannot_say_which_directory_failed_stops_and_others_lead(level: int) -> None:
    """Below 3.7-IV2 nobody else knows of directories: it would lead on what it cannot serve.

    Nor are those known of a node that registered before metadata.version was raised.
    """
    rig = two_directories(metadata_version=16)
    lost = BROKERS[0]
    if level > 16:
        row = FeatureUpdateKey(feature="metadata.version", max_version_level=level)
        assert rig.ask(lost, UpdateFeaturesRequest(feature_updates=[row]), 1).error_code == 0
        rig.until(lambda: rig[lost].broker.image.metadata_version == level)
    partition = replica_of(rig, lost, index_in(rig, lost, "/two"))
    rig[lost].run(rig[lost].broker.parts.failures.partition_failed(partition, rig.now_ms))
    with pytest.raises(StorageError, match="out of use"):
        rig.pass_time(1)


def test_a_new_log_goes_where_metadata_has_the_replica() -> None:
    rig = two_directories()
    storage = rig[BROKERS[0]].broker.storage
    config = replica_of(rig, BROKERS[0], 0).log.config
    for number in range(5, 9):
        wanted = id_of(rig[BROKERS[0]].broker, "/two")
        name = TopicPartition("u", number)
        log = at_once(storage.open_steps(name, b"x" * 16, config, rig.now_ms, directory_id=wanted))
        assert log.path.startswith("/two/")


def with_failed_directory() -> tuple[Rig, int, Any]:
    """A cluster; a broker whose second directory failed; a replica in there."""
    rig = two_directories()
    rig.until(lambda: settled(rig))
    lost = BROKERS[0]
    partition = replica_of(rig, lost, index_in(rig, lost, "/two"))
    failure = rig[lost].broker.storage.on_failure(rig[lost].broker.hosted, partition, rig.now_ms)
    rig[lost].run(failure)
    return rig, lost, partition


def test_no_empty_replica_takes_the_place_of_one_in_a_failed_directory() -> None:
    rig, lost, partition = with_failed_directory()
    storage, log = rig[lost].broker.storage, partition.log
    name = TopicPartition("t", 7)
    failed = id_of(rig[lost].broker, "/two")
    with pytest.raises(StorageError, match="directory of this replica failed"):
        at_once(storage.open_steps(name, b"x" * 16, log.config, rig.now_ms, directory_id=failed))
    again = at_once(storage.open_steps(name, b"x" * 16, log.config, rig.now_ms))
    assert again.path.startswith("/one")


def test_no_empty_replica_takes_its_place_where_metadata_says_nothing_of_directories() -> None:
    """Below 3.7-IV2, or at once after a raise: it is known from the start what was in the directory."""
    rig, lost, partition = with_failed_directory()
    storage = rig[lost].broker.storage
    name, topic_id, config = partition.topic_partition, partition.topic_id, partition.log.config
    with pytest.raises(StorageError, match="directory of this replica failed"):
        at_once(storage.open_steps(name, topic_id, config, rig.now_ms))
    storage.drop(partition.log, rig.now_ms)
    again = at_once(storage.open_steps(name, b"y" * 16, config, rig.now_ms))
    assert again.path.startswith("/one"), "a topic of that name that was made later is another one"


def with_old_copy(rig: Rig, node_id: int) -> TopicPartition:
    """Kill a broker; an old copy of the replica in its second directory is in the first one then."""
    index = index_in(rig, node_id, "/two")
    partition = replica_of(rig, node_id, index)
    assert write(rig, state(rig, index=index).leader, index) == Code.NONE
    rig.until(lambda: partition.log.log_end_offset == 1)
    rig[node_id].kill()
    old = f"/one/{partition.topic_partition}"
    rig[node_id].fs.make_dir(old)
    write_partition_metadata(rig[node_id].fs, old, partition.topic_id)
    return TopicPartition("t", index)


def test_of_two_copies_of_a_replica_the_one_that_metadata_names_is_served() -> None:
    """A power cut took back the name of a directory that was condemned; the replica was made anew in another.

    The first one that was found was served, and the records that the other one had acknowledged were not.
    """
    rig = two_directories()
    rig.until(lambda: settled(rig))
    node_id = BROKERS[0]
    name = with_old_copy(rig, node_id)
    rig[node_id].start()
    rig.until(lambda: name in rig[node_id].broker.partitions)
    log = rig[node_id].broker.partitions[name].log
    assert log.path == f"/two/{name}"
    assert log.log_end_offset == 1
    rig.until(lambda: not rig[node_id].fs.exists(f"/one/{name}"))
    assert any(each.endswith("-stray") for each in rig[node_id].fs.list_dir("/one"))


def test_of_two_copies_of_a_replica_none_is_served_where_metadata_names_neither() -> None:
    rig = two_directories()
    rig.until(lambda: settled(rig))
    node_id = BROKERS[0]
    partition = replica_of(rig, node_id, index_in(rig, node_id, "/two"))
    name, topic_id, config = partition.topic_partition, partition.topic_id, partition.log.config
    storage = rig[node_id].broker.storage
    rig[node_id].run(storage.drop(partition.log, rig.now_ms))
    for path in BOTH.split(","):
        rig[node_id].fs.make_dir(f"{path}/{name}")
        write_partition_metadata(rig[node_id].fs, f"{path}/{name}", topic_id)
    with pytest.raises(StorageError, match="two log directories have this replica"):
        at_once(storage.open_steps(name, topic_id, config, rig.now_ms, directory_id=b"?" * 16))
    wanted = id_of(rig[node_id].broker, "/two")
    log = at_once(storage.open_steps(name, topic_id, config, rig.now_ms, directory_id=wanted))
    assert log.path.startswith("/two")


def test_an_old_copy_does_not_take_the_place_of_a_replica_whose_directory_failed() -> None:
    rig, lost, partition = with_failed_directory()
    storage = rig[lost].broker.storage
    name, topic_id, config = partition.topic_partition, partition.topic_id, partition.log.config
    failed = id_of(rig[lost].broker, "/two")
    rig[lost].fs.make_dir(f"/one/{name}")
    write_partition_metadata(rig[lost].fs, f"/one/{name}", topic_id)
    with pytest.raises(StorageError, match="directory of this replica failed"):
        at_once(storage.open_steps(name, topic_id, config, rig.now_ms, directory_id=failed))


def test_a_copy_of_which_metadata_was_not_reported_takes_the_place_of_no_failed_one() -> None:
    """A replica that could not be made there left it, and the one that was made instead has the records."""
    rig, lost, partition = with_failed_directory()
    storage = rig[lost].broker.storage
    name, topic_id, config = partition.topic_partition, partition.topic_id, partition.log.config
    rig[lost].fs.make_dir(f"/one/{name}")
    write_partition_metadata(rig[lost].fs, f"/one/{name}", topic_id)
    said = UNASSIGNED_DIRECTORY
    with pytest.raises(StorageError, match="directory of this replica failed"):
        at_once(storage.open_steps(name, topic_id, config, rig.now_ms, directory_id=said))


@pytest.mark.parametrize("with_records", [(), ("/one",), ("/two",), BOTH.split(",")])
def test_of_two_copies_of_which_metadata_was_not_reported_the_one_with_records_is_served(
    with_records: Sequence[str],
) -> None:
    """The other one could not be made, and was never served."""
    rig = two_directories()
    node_id, name, topic_id = BROKERS[0], TopicPartition("u", 0), b"x" * 16
    storage, fs = rig[node_id].broker.storage, rig[node_id].fs
    for path in (f"{each}/{name}" for each in BOTH.split(",")):
        fs.make_dir(path)
        write_partition_metadata(fs, path, topic_id)
        data = batch("v") if any(path.startswith(each) for each in with_records) else b""
        fs.open(f"{path}/{0:020}.log", create=True).append(data)
    config = replica_of(rig, node_id, 0).log.config
    said = UNASSIGNED_DIRECTORY
    steps = storage.open_steps(name, topic_id, config, rig.now_ms, directory_id=said)
    if len(with_records) > 1:
        with pytest.raises(StorageError, match="two log directories have this replica"):
            at_once(steps)
        return
    log = at_once(steps)
    assert log.log_end_offset == len(with_records)
    assert not with_records or log.path.startswith(with_records[0])


def test_a_replica_is_made_elsewhere_only_where_it_never_was_and_the_node_goes_on() -> None:
    rig = two_directories(metadata_log_dir="/one")
    rig.until(lambda: settled(rig))
    broker = rig[BROKERS[0]].broker
    storage, here = broker.storage, replica_of(rig, BROKERS[0], index_in(rig, BROKERS[0], "/two"))
    new, said = TopicPartition("u", 0), StorageError("cannot open", path="/two/u-0", error="EIO")
    assert not storage.is_unmade(new, said), "that directory does not count as failed"
    rig[BROKERS[0]].run(storage.on_failure(broker.hosted, here, rig.now_ms))
    assert storage.is_unmade(new, said)
    assert not storage.is_unmade(here.topic_partition, said), "it was served from there"
    assert not storage.is_unmade(new, StorageError("cannot open", path="/twofold/u-0"))
    storage._is_failure_known = lambda: False
    assert not storage.is_unmade(new, said), "the node stops"


def test_what_is_left_of_a_replica_that_is_elsewhere_is_renamed_to_stray_and_nothing_else() -> None:
    """A directory that does not say whose it is has records, or is the empty one that an operator made."""
    rig = two_directories()
    node_id = BROKERS[0]
    fs = rig[node_id].fs
    name = replica_of(rig, node_id, index_in(rig, node_id, "/one")).topic_partition
    for each in (f"/two/{name}", "/two/u-1"):
        fs.make_dir(each)
    look_for_strays(rig, node_id)
    assert not fs.exists(f"/two/{name}")
    assert fs.exists("/two/u-1")
    fs.make_dir(f"/two/{name}")
    fs.open(f"/two/{name}/{0:020}.log", create=True).append(batch("v"))
    look_for_strays(rig, node_id)
    assert fs.exists(f"/two/{name}")


GONE = bytes([7] * 16)  # a topic that nobody knows


def strays_in(fs: Any, path: str) -> list[str]:
    return [name for name in fs.list_dir(path) if name.endswith("-stray")]


def look_for_strays(rig: Rig, node_id: int, **facts: Any) -> None:
    known = {"is_known": lambda _: True, "is_here": lambda *_: True} | facts
    rig[node_id].run(rig[node_id].broker.storage.rename_strays(**known, now_ms=rig.now_ms))
    rig.pass_time(10)


def test_strays_are_looked_for_in_slices_and_each_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand logs took 30 ms of one step."""
    rig = two_directories()
    node_id = BROKERS[0]
    storage, fs = rig[node_id].broker.storage, rig[node_id].fs
    for number in range(100):
        fs.make_dir(f"/one/gone-{number}")
        write_partition_metadata(fs, f"/one/gone-{number}", GONE)
    slices = list(
        directories.rename_strays(
            fs, storage.directories, lambda *_: False, lambda found: found != GONE, lambda *_: True
        )
    )
    assert max(len(effects) for effects in slices) <= 20
    assert sum(len(effects) for effects in slices) == len(strays_in(fs, "/one")) == 100
    seen = [0]
    real = CrashableFs.names

    def noted(fs: CrashableFs, path: str) -> Any:
        for name in real(fs, path):
            seen[-1] += 1
            yield name

    monkeypatch.setattr(CrashableFs, "names", noted)
    for number in range(1500):
        fs.make_dir(f"/one/other-{number}")
    for _ in directories.rename_strays(
        fs, storage.directories, lambda *_: True, lambda _: False, lambda *_: False
    ):
        seen.append(0)
    assert 400 < max(seen) <= 500


def test_no_stray_is_made_of_what_is_being_opened_or_fails_while_they_are_looked_for() -> None:
    """Its topic is deleted, say, when its log has begun to be recovered."""
    rig = two_directories()
    node_id = BROKERS[0]
    storage, fs = rig[node_id].broker.storage, rig[node_id].fs
    name = TopicPartition("new", 0)
    steps = storage._open_in(storage.directories[0], name, GONE, TopicConfig(), rig.now_ms)
    fs.make_dir(f"/one/{name}")
    write_partition_metadata(fs, f"/one/{name}", GONE)
    fs.open(f"/one/{name}/{0:020}.log.deleted", create=True)
    assert isinstance(next(steps), At)
    next(steps)
    look_for_strays(rig, node_id, is_known=lambda _: False)
    assert fs.exists(f"/one/{name}")
    steps.close()
    partition = replica_of(rig, node_id, index_in(rig, node_id, "/two"))
    fs.make_dir("/two/late-0")
    write_partition_metadata(fs, "/two/late-0", GONE)
    effects = storage.rename_strays(lambda _: False, lambda *_: False, rig.now_ms)
    rig[node_id].run(storage.on_failure(rig[node_id].broker.hosted, partition, rig.now_ms))
    rig[node_id].run(effects)
    rig.pass_time(10)
    assert strays_in(fs, "/one") != [], "it is nobody's now"
    assert strays_in(fs, "/two") == []


def test_strays_are_not_looked_for_in_a_directory_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It failed while the node started, which ended when it could not be listed."""
    rig = two_directories()
    node_id = BROKERS[0]
    storage = rig[node_id].broker.storage
    partition = replica_of(rig, node_id, index_in(rig, node_id, "/two"))
    rig[node_id].run(storage.on_failure(rig[node_id].broker.hosted, partition, rig.now_ms))
    list_dir = rig[node_id].fs.names

    def fails(path: str) -> Any:
        if path.startswith("/two"):
            raise StorageError("cannot list", path=path, error="EIO")
        return list_dir(path)

    monkeypatch.setattr(rig[node_id].fs, "names", fails)
    look_for_strays(rig, node_id)
    storage.offline.clear()  # as before anybody knows
    look_for_strays(rig, node_id)


def cordoned(rig: Rig, node_id: int) -> tuple[bytes, ...] | None:
    return rig[4].broker.image.brokers[node_id].cordoned_log_dirs


def alter(rig: Rig, broker: str, key: str, value: str) -> int:
    row = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[row])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    asked = int(broker) if broker else BROKERS[0]
    return int(rig.ask(asked, request, 1).responses[0].error_code)


def test_a_cordoned_directory_takes_nothing_new_and_keeps_what_it_has() -> None:
    rig = two_directories()
    assert alter(rig, "", "cordoned.log.dirs", "/one") == 0
    rig.until(lambda: all(cordoned(rig, n) == (id_of(rig[n].broker, "/one"),) for n in BROKERS))
    assert rig.create_topic(4, "u", replicas=3, partitions=4).error_code == 0
    rig.until(lambda: all(("u", 3) in rig[n].broker.partitions for n in BROKERS))
    paths = [rig[n].broker.partitions["u", i].log.path for n in BROKERS for i in range(4)]
    assert all(path.startswith("/two/") for path in paths)
    assert state(rig, "t").leader in BROKERS


def test_a_broker_whose_directories_are_all_cordoned_gets_no_replica() -> None:
    rig = two_directories()
    gone = BROKERS[1]
    assert alter(rig, str(gone), "cordoned.log.dirs", "*") == 0
    rig.until(lambda: not rig[4].broker.image.brokers[gone].takes_new_replicas)
    refused = rig.create_topic(4, "u", replicas=3)
    assert refused.error_code == Code.INVALID_REPLICATION_FACTOR
    assert rig.create_topic(4, "u", replicas=2, partitions=6).error_code == 0
    rig.until(lambda: "u" in rig[4].broker.image.topics_by_name)
    found = rig[4].broker.image.topics_by_name["u"].partitions
    assert all(gone not in found[i].replicas for i in range(6))
    assert alter(rig, str(gone), "cordoned.log.dirs", "") == 0
    rig.until(lambda: rig[4].broker.image.brokers[gone].takes_new_replicas)
    assert rig.create_topic(4, "v", replicas=3).error_code == 0


# ------------------------------------------------------------------- what operators see and ask for


def described(rig: Rig, *topics: str) -> dict[str, Any]:
    """What a broker says of its directories, by path; all topics where none is named."""
    rows = [DescribableLogDirTopic(topic=name, partitions=[0, 1]) for name in topics]
    answer = rig.ask(BROKERS[0], DescribeLogDirsRequest(topics=rows or None), 5)
    assert answer.error_code == 0
    return {row.log_dir: row for row in answer.results}


def held(row: Any) -> list[tuple[str, int]]:
    return [(t.name, p.partition_index) for t in row.topics for p in t.partitions]


def test_each_directory_is_reported_with_what_is_in_it_and_the_room_there_is() -> None:
    rig = two_directories()
    index = index_in(rig, BROKERS[0], "/two")
    write(rig, state(rig, index=index).leader, index)
    rig.until(lambda: replica_of(rig, BROKERS[0], index).log.log_end_offset == 1)
    found = described(rig)
    assert held(found["/one"]) == [("t", 1 - index)]
    assert held(found["/two"]) == [("t", index)]
    [part] = found["/two"].topics[0].partitions
    assert part.partition_size == replica_of(rig, BROKERS[0], index).log.size_bytes > 0
    assert (part.offset_lag, part.is_future_key) == (0, False)
    assert 0 < found["/one"].usable_bytes < found["/one"].total_bytes
    assert not found["/one"].is_cordoned


def test_of_a_topic_that_is_not_here_the_directories_are_reported_all_the_same() -> None:
    rig = two_directories()
    assert [held(row) for row in described(rig, "u").values()] == [[], []]
    rows = described(rig, "t").values()
    assert sorted(each for row in rows for each in held(row)) == [("t", 0), ("t", 1)]


def test_a_directory_that_failed_or_is_cordoned_is_reported_so() -> None:
    rig = two_directories()
    lost = BROKERS[0]
    assert alter(rig, str(lost), "cordoned.log.dirs", "/one") == 0
    rig.until(lambda: described(rig)["/one"].is_cordoned)
    partition = replica_of(rig, lost, index_in(rig, lost, "/two"))
    rig[lost].run(rig[lost].broker.parts.failures.partition_failed(partition, rig.now_ms))
    row = described(rig)["/two"]
    assert (row.error_code, row.topics, row.total_bytes) == (Code.KAFKA_STORAGE_ERROR, [], -1)


def move(rig: Rig, topic: str, index: int, path: str) -> int:
    row = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[row])])
    return int(rig.ask(BROKERS[0], request, 2).results[0].partitions[0].error_code)


def test_a_replica_that_is_to_come_goes_where_the_operator_wants_it() -> None:
    rig = two_directories()
    for index in range(4):
        assert move(rig, "u", index, "/two") == Code.REPLICA_NOT_AVAILABLE
    assert rig.create_topic(BROKERS[0], "u", replicas=3, partitions=4).error_code == 0
    parts = rig[BROKERS[0]].broker.partitions
    rig.until(lambda: ("u", 3) in parts)
    assert all(parts[TopicPartition("u", i)].log.path.startswith("/two") for i in range(4))


def test_a_replica_that_is_there_is_not_moved_and_that_is_said() -> None:
    rig = two_directories()
    lost = BROKERS[0]
    index = index_in(rig, lost, "/one")
    assert move(rig, "t", index, "/one") == 0
    assert move(rig, "t", index, "/two") == Code.OPERATION_NOT_ATTEMPTED
    assert move(rig, "t", index, "/three") == Code.LOG_DIR_NOT_FOUND
    partition = replica_of(rig, lost, 1 - index)
    rig[lost].run(rig[lost].broker.parts.failures.partition_failed(partition, rig.now_ms))
    assert move(rig, "t", index, "/two") == Code.KAFKA_STORAGE_ERROR
