"""Kafka's own scenarios of tiered storage, by their names, on real processes: ours over S3, and Kafka itself.

Each is played on both clusters at once, and both have to observe the same: offsets, records, error codes,
leader epochs, the segments that are in the tier. A test has the name of the class in Kafka's storage module
(`tiered/storage/integration`) whose scenario it is.
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from firnline.base.errors import Code
from tests.compat.tier_scenario import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    Play,
)
from tests.compat.tier_sides import Sides, kafka_broker, two_sides
from tests.compat.tier_transactions import Transactions, read_committed
from tests.peers.nodes import FIRNLINE, KAFKA, Node
from tests.peers.servers import Server

pytestmark = pytest.mark.peer
_DAY_MS = 86_400_000
_COPY_OFF = {
    "remote_log_copy_disable": "true",
    "local_retention_bytes": "-2",
    "local_retention_ms": "-2",
}


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, start_store: Callable[[str], Server]
) -> Iterator[Sides]:
    with two_sides(tmp_path_factory.mktemp("sides"), start_store("s3"), {3: 2}) as both:
        yield both


def test_offload_and_consume_from_leader_test(sides: Sides) -> None:
    """Segments of one batch and of two; a restart; consumers read from the tier and from the disk."""

    def scenario(play: Play) -> None:
        play.create([2])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        with contextlib.closing(Play(play.side, f"{play.topic}-by-two")) as other:
            other.create([2], batches_per_segment=2)
            other.produce("v0", "v1", "v2", "v3", "v4")
            other.expect_remote((0, 1), (2, 3))
            other.expect_local_start(4)
            play.bounce(2)
            other.consume(1, "v1", "v2", "v3", "v4", from_tier=3)
            play.seen += other.seen
        play.consume(1, "v1", "v2", from_tier=1)

    sides.play("offload", scenario)


def test_roll_and_offload_active_segment_test(sides: Sides) -> None:
    """With local.retention.ms=1 the active segment rolls, too, and nothing is left on the disk."""

    def scenario(play: Play) -> None:
        play.create([2], configs={"local.retention.ms": "1"})
        play.produce("v0", "v1", "v2", "v3")
        play.expect_remote((0, 0), (1, 1), (2, 2), (3, 3))
        play.expect_local_start(4)
        play.consume(0, "v0", "v1", "v2", "v3", from_tier=4)

    sides.play("roll", scenario)


@pytest.mark.parametrize("kind", ["size", "time"])
def test_delete_segments_by_retention_test(sides: Sides, kind: str) -> None:
    """DeleteSegmentsByRetentionSizeTest and DeleteSegmentsByRetentionTimeTest: three segments go."""

    def scenario(play: Play) -> None:
        play.create([2], configs={"message.timestamp.after.max.ms": str(2 * _DAY_MS)})
        now = play.begun_ms
        play.produce("v0", "v1", "v2", "v3", timestamps_ms=[now, now, now, now + _DAY_MS])
        play.expect_remote((0, 0), (1, 1), (2, 2))
        play.expect_local_start(3)
        play.configure(**({"retention_bytes": "1"} if kind == "size" else {"retention_ms": "1"}))
        play.expect_remote()
        play.expect_offset(EARLIEST, 3, 0)
        play.consume(0, "v3", from_tier=0)

    sides.play(f"retention-{kind}", scenario)


def test_delete_topic_test(sides: Sides) -> None:
    """With the topic all that it has in the tier is deleted."""

    def scenario(play: Play) -> None:
        play.create([2, 3], [3, 2])
        for partition in (0, 1):
            play.produce("v0", "v1", "v2", partition=partition)
        for partition in (0, 1):
            play.expect_remote((0, 0), (1, 1), partition=partition)
        play.admin.delete_topic(play.topic)
        for partition in (0, 1):
            play.expect_nothing_stored(partition)

    sides.play("deleted", scenario)


def test_delete_segments_due_to_log_start_offset_breach_test(sides: Sides) -> None:
    """DeleteRecords under two leaders and epochs: one segment, then two leave the tier."""

    def scenario(play: Play) -> None:
        play.create([2, 3], batches_per_segment=2)
        play.produce("v0", "v1", "v2", "v3", "v4")
        play.expect_remote((0, 1), (2, 3))
        play.expect_local_start(4)
        play.delete_records(3)
        play.expect_remote((2, 3))
        play.expect_offset(EARLIEST, 3, 0)
        play.consume(3, "v3", "v4", from_tier=1)
        play.lead(3)
        play.produce("v5", "v6", "v7", "v8", "v9")
        play.expect_remote((2, 3), (4, 5), (6, 7))
        play.expect_local_start(8)
        play.delete_records(7)
        play.expect_remote((6, 7))
        play.consume(7, "v7", "v8", "v9", from_tier=1)

    sides.play("log-start", scenario)


def test_disable_remote_log_on_topic_test(sides: Sides) -> None:
    """Copying off and on again; then remote.log.delete.on.disable empties the tier, and the rest is read."""

    def scenario(play: Play) -> None:
        play.create([2, 3])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        play.configure(**_COPY_OFF)
        play.consume(0, "v0", "v1", "v2", from_tier=2)
        play.configure(remote_log_copy_disable="false", local_retention_bytes="1")
        play.produce("v3")
        play.expect_remote((0, 0), (1, 1), (2, 2))
        play.expect_local_start(3)
        play.configure(**_COPY_OFF)
        play.consume(0, "v0", "v1", "v2", "v3", from_tier=3)
        play.delete_records(1)
        play.expect_remote((1, 1), (2, 2))
        play.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
        play.expect_nothing_stored()
        play.consume(3, "v3", from_tier=0)
        play.expect_offset(EARLIEST, 3)

    sides.play("disabled", scenario)


def test_enable_remote_log_on_topic_test(sides: Sides) -> None:
    """A topic with records becomes tiered: what it had and what comes goes to the tier, all is read."""

    def scenario(play: Play) -> None:
        play.create([2, 3], [3, 2], is_tiered=False)
        for partition in (0, 1):
            play.produce("v0", "v1", "v2", partition=partition)
            play.expect_local_start(0, partition)
        play.configure(remote_storage_enable="true")
        for partition in (0, 1):
            play.produce("v3", "v4", partition=partition)
        for partition in (0, 1):
            play.expect_remote((0, 0), (1, 1), (2, 2), (3, 3), partition=partition)
            play.expect_local_start(4, partition)
            values = ("v0", "v1", "v2", "v3", "v4")
            play.consume(0, *values, partition=partition, from_tier=4)

    sides.play("enabled", scenario)


def test_fetch_from_leader_with_corrupted_checkpoint_test(sides: Sides) -> None:
    """Both brokers restart; the one that led has lost its checkpoints and the mark of a clean shutdown."""

    def lose_checkpoints(node: Node) -> None:
        if node.node_id == 2:
            names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
            for name in (*names, ".kafka_cleanshutdown"):
                (node.data / name).unlink()

    def scenario(play: Play) -> None:
        play.create([2, 3])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        play.consume(0, "v0", "v1", "v2", from_tier=2)
        play.bounce(2, 3, while_down=lose_checkpoints)
        play.await_replicas(0, [2, 3])
        play.produce("v3", "v4")
        play.expect_remote((0, 0), (1, 1), (2, 2), (3, 3))
        play.expect_local_start(4)
        play.consume(0, "v0", "v1", "v2", "v3", "v4", from_tier=4)

    sides.play("corrupted", scenario)


def test_partitions_expand_test(sides: Sides) -> None:
    """Partitions that are added to a tiered topic are tiered on their own."""

    def scenario(play: Play) -> None:
        play.create([2, 3])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        play.add_partitions([2, 3], [3, 2])
        play.consume(0, "v0", "v1", "v2", from_tier=2)
        play.await_leader(2, 1)
        play.await_leader(3, 2)
        for partition in (1, 2):
            play.produce("v0", "v1", "v2", partition=partition)
        play.produce("v3", "v4", "v5")
        for partition in (1, 2):
            play.expect_remote((0, 0), (1, 1), partition=partition)
            play.expect_local_start(2, partition)
        play.expect_remote((0, 0), (1, 1), (2, 2), (3, 3), (4, 4))
        play.expect_local_start(5)
        play.consume(0, "v0", "v1", "v2", "v3", "v4", "v5", from_tier=5)
        play.consume(0, "v0", "v1", "v2", partition=1, from_tier=2)
        play.consume(1, "v1", "v2", partition=2, from_tier=1)

    sides.play("expanded", scenario)


@pytest.mark.parametrize("kind", ["expand", "move"])
def test_reassign_replica_test(sides: Sides, kind: str) -> None:
    """ReassignReplicaExpandTest and ReassignReplicaMoveTest: a new replica leads, copies and reads."""

    def scenario(play: Play) -> None:
        play.create([2])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        if kind == "expand":
            play.reassign(2, 3)
            play.lead(3)
        else:
            play.reassign(3)
            play.await_leader(3)
        play.produce("v3")
        play.expect_remote((0, 0), (1, 1), (2, 2))
        play.expect_local_start(3)
        play.consume(0, "v0", "v1", "v2", "v3", from_tier=3)

    sides.play(f"reassign-{kind}", scenario)


def test_reassign_replica_shrink_test(sides: Sides) -> None:
    """Both partitions lose the replica that led; the other one goes on with the tier."""

    def scenario(play: Play) -> None:
        play.create([2, 3], [3, 2])
        for partition in (0, 1):
            play.produce("v0", "v1", "v2", partition=partition)
        for partition in (0, 1):
            play.expect_remote((0, 0), (1, 1), partition=partition)
            play.expect_local_start(2, partition)
        play.reassign(3, partition=0)
        play.reassign(2, partition=1)
        for partition, leader in ((0, 3), (1, 2)):
            play.await_leader(leader, partition)
            play.produce("v3", partition=partition)
        for partition in (0, 1):
            play.expect_remote((0, 0), (1, 1), (2, 2), partition=partition)
            play.expect_local_start(3, partition)
            play.consume(0, "v0", "v1", "v2", "v3", partition=partition, from_tier=3)

    sides.play("shrunk", scenario)


def test_alter_log_dir_test(sides: Sides) -> None:
    """A follower changes its log directory, then leads. Firnline refuses the move; all else is the same."""

    def scenario(play: Play) -> None:
        play.create([2, 3])
        play.produce("v0", "v1", "v2")
        play.expect_remote((0, 0), (1, 1))
        play.expect_local_start(2)
        before, (other,) = play.directory(3)
        moves = play.side.name == KAFKA
        assert play.move_to(other, 3) == (Code.NONE if moves else Code.OPERATION_NOT_ATTEMPTED)
        play.until(
            "the replica is where it is to be",
            lambda: play.directory(3)[0] == (other if moves else before),
        )
        play.lead(3)
        play.produce("v3")
        play.expect_remote((0, 0), (1, 1), (2, 2))
        play.expect_local_start(3)
        play.consume(0, "v0", "v1", "v2", "v3", from_tier=3)

    sides.play("log-dir", scenario)


def test_offload_and_txn_consume_from_leader_test(sides: Sides) -> None:
    """Consumers of committed records read transactions from the tier. Firnline coordinates none: a broker of
    Kafka's writes them, and Firnline's replica takes over, copies and serves them.
    """

    def scenario(play: Play) -> None:
        with contextlib.ExitStack() as stack:
            writer = 3
            if play.side.name == FIRNLINE:
                writer = stack.enter_context(kafka_broker(play.cluster))
            play.create([writer], is_tiered=False)
            producers = Transactions(play)
            for number in range(3):
                producers.produce(7001, f"undone-{number}")
                producers.produce(7002, f"done-{number}")
                producers.produce(7001, f"undone-{number}-2")
                producers.end(7001, is_commit=False)
                play.produce(f"plain-{number}")
                producers.end(7002, is_commit=True)
            play.reassign(2)
            play.await_leader(2)
        end = play.offset(LATEST)[1]
        play.configure(remote_storage_enable="true", local_retention_ms="1")
        play.expect_local_start(end)
        play.produce("tail")
        wanted = [f"{kind}-{number}" for number in range(3) for kind in ("done", "plain")]
        for begin in range(end + 1):
            found = read_committed(play, begin)
            play.see(f"committed from {begin}", found)
            assert begin or [value for _, value in found] == [*wanted, "tail"]

    sides.play("transactions", scenario)


def test_list_offsets_test(sides: Sides) -> None:
    """Every question of ListOffsets on a topic with two epochs, before and after DeleteRecords."""

    def scenario(play: Play) -> None:
        begun = play.begun_ms

        def expect_time(after_ms: int, offset: int, epoch: int) -> None:
            play.expect_offset(begun + after_ms, offset, epoch)

        play.create([2, 3], batches_per_segment=2)
        play.produce("v0", "v1", "v2", timestamps_ms=[begun, begun + 1, begun + 2])
        play.expect_offset(EARLIEST, 0, 0)
        play.expect_remote((0, 1))
        play.expect_local_start(2)
        play.lead(3)
        play.produce("v3", "v4", "v5", timestamps_ms=[begun + 3, begun + 4, begun + 5])
        play.expect_remote((0, 1), (2, 3))
        play.expect_offset(EARLIEST, 0, 0)
        play.expect_offset(EARLIEST_LOCAL, 4)
        play.expect_offset(LATEST_TIERED, 3)
        play.expect_offset(LATEST, 6)
        for after_ms, offset, epoch in ((6, -1, -1), (-1, 0, 0), (0, 0, 0), (1, 1, 0)):
            expect_time(after_ms, offset, epoch)
        for after_ms in (3, 4, 5):
            play.expect_offset(begun + after_ms, after_ms)
        play.delete_records(3)
        play.expect_offset(EARLIEST, 3)
        play.expect_offset(EARLIEST_LOCAL, 4)
        play.delete_records(4)
        play.expect_offset(EARLIEST, 4)
        play.expect_offset(EARLIEST_LOCAL, 4)
        play.see("latest tiered", play.offset(LATEST_TIERED))
        play.expect_offset(LATEST, 6)

    sides.play("offsets", scenario)
