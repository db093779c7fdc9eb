"""A partition whose files are damaged where they were synced: others serve it, and it comes back mended."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, TopicPartition
from firnline.formats import names
from firnline.log.checkpoint import MISSING, read_offsets, vanished
from firnline.log.directory import LogDirectory
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from firnline.sim.disk import CrashableFs
from tests.unit.broker.test_directories import directory, index_in, state, two_directories
from tests.unit.broker.test_replication import (
    BROKERS,
    all_equal,
    isr,
    leader,
    produce,
    replica,
    started,
    values,
)
from tests.worlds.chance import SeededRng
from tests.worlds.cluster import CLUSTER_ID, Rig
from tests.worlds.harness import DATA

PATH = f"{DATA}/t-0"
SEGMENT = f"{PATH}/{0:020}.log"


def sync(rig: Rig, node_id: int) -> None:
    """Let the disk have all, and the checkpoint say so."""
    log: Any = replica(rig, node_id).log
    rig.until(lambda: log.recovery_start == log.log_end_offset)
    rig[node_id].broker.storage.directories[0].write_recovery_points()


def flip(rig: Rig, node_id: int, position: int = 70) -> None:
    """Change a byte of the first segment of a broker that is down; twice, and it is as before."""
    file = rig[node_id].fs.open(SEGMENT)
    data = bytearray(file.read(0, file.size()))
    data[position] ^= 1
    file.truncate(0)
    file.append(data)
    file.close()


def damaged(rig: Rig, node_id: int) -> None:
    """Kill a broker, damage what it had synced, and start it."""
    sync(rig, node_id)
    rig[node_id].kill()
    flip(rig, node_id)
    start(rig, node_id)
    rig.until(lambda: directory(rig, node_id) == LOST_DIRECTORY)


def start(rig: Rig, node_id: int) -> None:
    rig[node_id].start()
    rig.until(lambda: rig[node_id].is_running)


def filled(**settings: Any) -> Rig:
    rig = started(log_flush_offset_checkpoint_interval_ms="1000", **settings)
    for number in range(5):
        assert produce(rig, f"v{number}").error_code == 0
    rig.until(lambda: all_equal(rig))
    return rig


def offline(rig: Rig, asked: int) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    [topic] = rig.ask(asked, request, 9).topics
    return list(topic.partitions[0].offline_replicas)


def test_others_lead_what_is_damaged_here_until_its_directory_is_moved_away() -> None:
    rig = filled()
    lost = leader(rig)
    assert lost is not None
    damaged(rig, lost)
    rig.until(lambda: lost not in isr(rig) and state(rig).leader in BROKERS)
    assert not rig[lost].broker.image.brokers[lost].fenced, "its other partitions are sound"
    assert all(offline(rig, n) == [lost] for n in BROKERS)
    [line] = [line for line in rig[lost].warnings if "is not served topic=t partition=0" in line]
    for said in (SEGMENT, "offset=1", "move the partition's directory away"):
        assert said in line
    assert produce(rig, "meanwhile").error_code == 0
    rig[lost].kill()
    rig[lost].fs.rename(PATH, "/away")
    start(rig, lost)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert directory(rig, lost) == rig[lost].directory_id
    assert values(rig) == [*(f"v{number}" for number in range(5)), "meanwhile"]
    assert offline(rig, lost) == []


def test_files_that_are_moved_away_while_the_broker_runs_are_fetched_anew_too() -> None:
    rig = filled()
    lost = leader(rig)
    assert lost is not None
    damaged(rig, lost)
    rig.until(lambda: lost not in isr(rig) and state(rig).leader in BROKERS)
    rig[lost].fs.rename(PATH, "/away")
    other = next(n for n in BROKERS if n not in (lost, leader(rig)))
    rig[other].kill()  # any change of the partition has it looked at again
    rig.until(lambda: lost in isr(rig) and other not in isr(rig))
    start(rig, other)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert len(values(rig)) == 5


def alone(rig: Rig) -> int:
    """The last of the ISR: the others are down."""
    last = leader(rig)
    assert last is not None
    for node_id in BROKERS:
        if node_id != last:
            rig[node_id].kill()
    rig.until(lambda: isr(rig) == (last,), 60_000)
    assert produce(rig, "alone").error_code == 0
    return last


def test_the_last_in_sync_replica_is_waited_for_and_leads_when_it_is_repaired() -> None:
    rig = filled()
    last = alone(rig)
    damaged(rig, last)
    others = [n for n in BROKERS if n != last]
    for node_id in others:
        start(rig, node_id)
    rig.pass_time(20_000)
    assert (state(rig).leader, isr(rig)) == (-1, (last,)), "nobody else has what was acknowledged"
    rig[last].kill()
    flip(rig, last)
    start(rig, last)
    rig.until(lambda: leader(rig) == last)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert values(rig)[-1] == "alone"


def test_a_broker_is_counted_in_when_the_controller_knows_that_nothing_is_lost_any_more() -> None:
    """Kafka's controller elects then, and not when it is told."""
    rig = filled()
    last = alone(rig)
    damaged(rig, last)
    rig[last].kill()
    flip(rig, last)
    rig.until(lambda: rig[1].controller.quorum.image.brokers[last].fenced)
    rig.holds = lambda asker, target, request: isinstance(request, AssignReplicasToDirsRequest)
    rig[last].start()
    rig.until(lambda: rig.held)
    rig.pass_time(3_000)
    assert rig[last].broker.image.brokers[last].fenced
    rig.holds = lambda *_: False
    for parcel in rig.held:
        parcel.release()
    assert rig.until(lambda: leader(rig) == last) < 2_000


def test_the_last_in_sync_replica_does_not_lead_without_its_files() -> None:
    """Whoever moves them away, though he was told not to, has lost nothing yet."""
    rig = filled()
    last = alone(rig)
    damaged(rig, last)
    for is_empty in (False, True):
        rig[last].kill()
        if is_empty:  # the operator means it
            rig[last].fs.make_dir(PATH)
        else:
            rig[last].fs.rename(PATH, "/away")
        start(rig, last)
        if not is_empty:
            rig.pass_time(20_000)
            assert state(rig).leader == -1
            assert any("no other replica is in sync" in line for line in rig[last].warnings)
    rig.until(lambda: leader(rig) == last)
    assert values(rig) == []
    assert produce(rig, "anew").error_code == 0


def test_the_last_in_sync_replica_does_not_lead_without_its_files_though_nobody_noticed_damage() -> (
    None
):
    """Whoever moved a sound directory away at the wrong broker: an empty log led, and the others obeyed."""
    rig = filled()
    last = alone(rig)
    sync(rig, last)
    rig[last].kill()
    rig[last].fs.rename(PATH, "/away")
    for _ in range(2):  # at the second start no checkpoint knows it any more
        start(rig, last)
        rig.pass_time(20_000)
        assert (state(rig).leader, isr(rig)) == (-1, (last,))
        assert any("no other replica is in sync" in line for line in rig[last].warnings)
        rig[last].kill()
    rig[last].fs.rename("/away", PATH)
    for node_id in BROKERS:
        start(rig, node_id)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert values(rig) == [*(f"v{number}" for number in range(5)), "alone"]


def test_a_node_that_starts_alone_still_knows_later_what_was_moved_away() -> None:
    """All nodes were down. Without a controller nothing was opened, and the checkpoints were written anew."""
    rig = filled()
    last = alone(rig)
    sync(rig, last)
    rig[last].kill()
    rig[last].fs.rename(PATH, "/away")
    directory = LogDirectory(
        rig[last].fs, DATA, cluster_id=CLUSTER_ID, node_id=last, unique=SeededRng().uuid
    )
    directory.start()
    directory.checkpoint()
    directory.abandon()
    start(rig, last)
    rig.pass_time(20_000)
    assert (state(rig).leader, isr(rig)) == (-1, (last,))
    rig[last].kill()
    rig[last].fs.rename("/away", PATH)
    for node_id in BROKERS:
        start(rig, node_id)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert read_offsets(rig[last].fs, f"{DATA}/{MISSING}") == {}


@pytest.mark.parametrize("topic", ["t", "t" * 249])
@pytest.mark.parametrize("renamed", [names.deleted_dir, names.stray_dir])
def test_what_was_deleted_or_set_aside_is_not_missing(
    topic: str, renamed: Callable[[TopicPartition, bytes], str]
) -> None:
    """A crash came before the checkpoints were written. The name of a long topic is cut there."""
    fs, gone = CrashableFs(), TopicPartition(topic, 10)
    fs.make_dir(DATA)
    assert vanished(fs, DATA, [gone], {}) == {gone}
    fs.make_dir(f"{DATA}/{renamed(gone, bytes(16))}")
    assert vanished(fs, DATA, [gone], {}) == frozenset()


def test_a_topic_that_is_made_anew_while_its_broker_is_away_is_served_though_the_old_one_had_records() -> (
    None
):
    """Its directory here is that of the former topic: it is set aside, and nothing is missing."""
    rig = filled()
    last = leader(rig)
    assert last is not None
    sync(rig, last)
    rig[last].kill()
    other = next(n for n in BROKERS if n != last)
    rig.ask(other, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 3)
    place = CreatableReplicaAssignment(partition_index=0, broker_ids=[last])
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[place])
    [made] = rig.ask(other, CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7).topics
    assert made.error_code == 0
    rig.until(lambda: rig[other].broker.image.partition("t", 0) is not None)
    rig.until(lambda: state(rig).leader == -1, 60_000)
    assert (isr(rig), state(rig).partition_epoch > 0) == ((last,), True)
    start(rig, last)
    rig.until(lambda: leader(rig) == last)
    assert values(rig) == []
    assert produce(rig, "anew").error_code == 0


def test_a_replica_that_cannot_be_opened_and_was_never_reported_is_reported_as_lost() -> None:
    """Metadata has it in no directory, so the heartbeat that tells of the failed one says nothing of it."""
    rig = two_directories()
    lost = BROKERS[0]
    index = index_in(rig, lost, "/two")
    send = rig.send

    def unreported(asker: Any, effect: Any) -> None:
        if not isinstance(effect.request, AssignReplicasToDirsRequest):
            send(asker, effect)

    rig.until(lambda: LOST_DIRECTORY != directory(rig, lost) != UNASSIGNED_DIRECTORY)
    rig.send = unreported  # type: ignore[method-assign]
    made = rig.create_topic(4, "u", replicas=3, partitions=4)
    assert made.error_code == 0, made
    rig.until(lambda: all(("u", number) in rig[lost].broker.partitions for number in range(4)))
    rig[lost].kill()
    rig.send = send  # type: ignore[method-assign]
    rig[lost].fs.fail("open", "/two/u-", "EIO", times=99)
    start(rig, lost)

    def lost_ones() -> list[int]:
        found = [state(rig, "u", number) for number in range(4)]
        places = [each.directories[each.replicas.index(lost)] for each in found]
        return [number for number, place in enumerate(places) if place == LOST_DIRECTORY]

    rig.until(lambda: lost_ones())
    for number in lost_ones():
        rig.until(lambda number=number: lost not in state(rig, "u", number).isr)  # type: ignore[misc]
        assert state(rig, "u", number).leader in BROKERS
    assert LOST_DIRECTORY not in state(rig, "t", index).directories, (
        "the heartbeat told of that one"
    )


def strays(rig: Rig, node_id: int) -> list[str]:
    return [name for name in rig[node_id].fs.list_dir(DATA) if name.endswith("-stray")]


def test_a_replica_that_was_moved_away_while_its_broker_was_down_is_kept_as_a_stray() -> None:
    """Nothing took it out of use: it filled the disk for ever, and no stop was a clean one any more."""
    rig = filled()
    away = next(n for n in BROKERS if n != leader(rig))
    rig[away].kill()
    rig.until(lambda: away not in isr(rig))
    others = [n for n in BROKERS if n != away]
    wanted = ReassignablePartition(partition_index=0, replicas=others)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[wanted])]
    )
    assert rig.ask(others[0], request, 0).error_code == 0
    rig.until(lambda: sorted(state(rig).replicas) == others)
    start(rig, away)
    [stray_path] = strays(rig, away)
    assert stray_path.startswith("t-0.")
    assert not rig[away].fs.exists(PATH)
    [line] = [line for line in rig[away].warnings if stray_path in line]
    assert "moved" in line
    start_again(rig, away)
    assert strays(rig, away) == [stray_path]
    assert not [line for line in rig[away].warnings if stray_path in line], "it is said once"
    assert all(strays(rig, n) == [] for n in others)


def start_again(rig: Rig, node_id: int) -> None:
    rig[node_id].kill()
    rig[node_id].warnings.clear()
    start(rig, node_id)
