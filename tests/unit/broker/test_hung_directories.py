"""One of two log directories hangs: what is asked of its disk is never done, and the other one is as ever."""

from typing import Any

from firnline.base.effects import Effect, Flush, Submit
from firnline.base.ids import TopicPartition
from firnline.log.log import Log
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.schema import Message
from firnline.replica.opening import SLICE
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.harness import Harness, batch, format_disk

ONE, TWO = "/one", "/two"


class Apart(Harness):
    """A node with two directories. One may `hang`: its works and syncs wait in `on_hold`."""

    def __init__(self, **settings: Any) -> None:
        fs, rng = CrashableFs(), SeededRng(7)
        for path in (ONE, TWO):
            format_disk(fs, rng, path)
        super().__init__(fs, log_dirs=f"{ONE},{TWO}", **settings)

    def hang(self, path: str) -> None:
        """Let the disk of a directory hang, until `answers`."""

        def is_hung(effect: Effect) -> bool:
            if isinstance(effect, Submit):
                return f"{effect.path}/".startswith(f"{path}/")
            return isinstance(effect, Flush) and any(
                f.path.startswith(f"{path}/") for f in effect.files
            )

        self.held = is_hung

    def answers(self) -> None:
        """The disk does what it was asked for."""
        self.release()
        self.pass_time(0)

    def logs(self, path: str, topic: str) -> list[Log]:
        """Those that are served from a directory."""
        found = [p.log for p in self.node.hosted if p.topic_partition.topic == topic]
        return [log for log in found if log.path.startswith(f"{path}/")]

    def ask(self, request: Message, version: int) -> Any:
        """As ever, but that an answer may wait a second for what the disk holds."""
        connection = self.send(request, version)
        self.pass_time(1_000)
        [answer] = connection.answers
        return answer

    def cordon(self, *paths: str) -> None:
        """An operator has new replicas made elsewhere."""
        self.node.storage._cordoned = lambda: paths


def append(log: Log, harness: Harness) -> None:
    log.append_as_leader(batch("x"), leader_epoch=0, now_ms=harness.now_ms)


def test_topics_are_made_in_one_directory_though_dozens_of_logs_wait_for_another_one() -> None:
    """As many works as the pool had threads hung, and nine logs that took long held up all others."""
    node = Apart()
    node.create_topic("before", partitions=2)
    node.hang(TWO)
    node.create_topic("stuck", partitions=100)
    assert node.logs(TWO, "stuck") == []
    assert SLICE < len(node.on_hold) <= 2 * SLICE + 1, "and no more of it are under way"
    node.cordon(TWO)
    node.create_topic("fine", partitions=50)
    node.pass_time(0)
    assert len(node.logs(ONE, "fine")) == 50
    assert node.produced("v", topic="fine", index=49).error_code == 0
    assert node.values(topic="fine", index=49) == ["v"]
    [there] = node.logs(ONE, "before")
    assert node.produced("v", topic="before", index=there.topic_partition.partition).error_code == 0
    node.answers()
    assert len(node.logs(ONE, "stuck")) + len(node.logs(TWO, "stuck")) == 100


def test_a_topic_that_waits_for_a_directory_that_hangs_can_be_deleted_and_made_again() -> None:
    node = Apart()
    node.hang(TWO)
    node.create_topic("stuck", partitions=100)
    node.ask(DeleteTopicsRequest(topic_names=["stuck"], timeout_ms=1000), 1)
    node.create_topic("stuck", partitions=3)
    node.pass_time(1_000)
    node.answers()
    node.pass_time(10_000)
    assert len(node.logs(ONE, "stuck")) + len(node.logs(TWO, "stuck")) == 3
    for index in range(3):
        assert node.produced("v", topic="stuck", index=index).error_code == 0


def test_a_replica_keeps_the_directory_that_an_operator_chose_while_others_wait_for_that() -> None:
    """Its log is begun, is held as so many wait for that disk, and is begun anew."""
    node = Apart()
    node.hang(TWO)
    node.create_topic("stuck", partitions=100)
    for index in range(10):
        node.node.storage.prefer(TopicPartition("chosen", index), TWO)
    node.create_topic("chosen", partitions=10)
    node.answers()
    assert len(node.logs(TWO, "chosen")) == 10


def test_logs_are_synced_though_those_of_another_directory_never_are() -> None:
    """Sixty-four that hung took the room of all."""
    node = Apart()
    node.create_topic(partitions=400, flush_ms="1")
    for path in (ONE, TWO):
        for log in node.logs(path, "t"):
            append(log, node)
    node.hang(TWO)
    for _ in range(5):
        node.pass_time(1_000)
    assert [
        log.path for log in node.logs(ONE, "t") if log.recovery_point < log.log_end_offset
    ] == []
    assert all(log.recovery_point == 0 for log in node.logs(TWO, "t"))
    for log in node.logs(ONE, "t"):
        append(log, node)
    node.pass_time(5_000)
    assert [
        log.path for log in node.logs(ONE, "t") if log.recovery_point < log.log_end_offset
    ] == []
    names = {each.name for each in node.on_hold if isinstance(each, Submit)}
    assert len([name for name in names if name.startswith("sync ")]) < 100
    node.answers()
    node.pass_time(5_000)
    assert all(log.recovery_point == 1 for log in node.logs(TWO, "t"))


def test_checkpoints_are_written_in_one_directory_though_another_one_hangs() -> None:
    node = Apart(replica_high_watermark_checkpoint_interval_ms="1000")
    node.create_topic(partitions=4)
    node.hang(TWO)
    for index in range(4):
        node.produce("v", index=index, acks=1)
    node.pass_time(3_000)
    said = node.fs.open(f"{ONE}/replication-offset-checkpoint").read(0, 10_000).decode()
    assert all(f"t {log.topic_partition.partition} 1" in said for log in node.logs(ONE, "t"))
