"""A damaged index of a segment that is not in memory: threads read the segment, the loop builds the index."""

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import Code
from firnline.formats import names
from firnline.log.log import Log
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from tests.unit.broker.test_cold_reads import READ, Cold, value
from tests.worlds.harness import DATA, START_MS, batch

COUNT = 3_000  # batches of each segment: 350 KiB, which are three windows
AGAIN = Code.REPLICA_NOT_AVAILABLE


class Node(Cold):
    """A node with cold segments without an index in some topics. The disk of one may `hang`."""

    def __init__(self, *topics: str) -> None:
        super().__init__()
        for topic in topics:
            self.create_topic(topic)
            log = self.log(topic)
            for number in range(COUNT):
                data = batch(value(number), time_ms=START_MS + number)
                log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
            log.roll(START_MS)
            self.produced("tail", topic=topic)
            self.damage(topic)
        self.fs.cold_reads.clear()

    def log(self, topic: str) -> Log:
        return self.node.hosted.by_name[topic, 0].log

    def damage(self, topic: str) -> None:
        self.fs.remove(f"{DATA}/{topic}-0/{names.stem(0)}{names.INDEX}")
        log = self.log(topic)
        segment = log._segments.all()[0]
        segment.release()
        segment._max_time_ms = -2
        log._segments._recent.clear()
        self.fs.chill(f"{DATA}/{topic}-0/{names.stem(0)}")

    def hang(self, topic: str) -> None:
        """Let the disk of a topic hang, until `release`."""
        self.held = lambda effect: (
            isinstance(effect, Submit) and effect.name == READ and f"/{topic}-" in effect.path
        )

    def code(self, topic: str) -> int:
        return int(self.fetched(500, topic=topic, max_wait_ms=0).error_code)


def test_an_index_of_a_cold_segment_is_built_again_and_the_loop_waits_for_no_disk() -> None:
    """Each slice read what it went over from the disk."""
    node = Node("t")
    assert node.code("t") == AGAIN
    node.pass_time(5_000)
    assert node.loop_reads == []
    log_windows = {path for path in node.thread_reads if path.endswith(names.LOG)}
    assert log_windows == {f"{DATA}/t-0/{names.stem(0)}{names.LOG}"}
    assert node.values(500, topic="t")[:2] == [value(500), value(501)]
    assert any("it was rebuilt" in line for line in node.warnings)
    rebuilds = node.node.hosted.rebuilds
    assert (rebuilds._wanted, rebuilds._begun, rebuilds._cold) == ({}, {}, {})


def test_an_index_whose_disk_hangs_holds_up_no_other_index() -> None:
    node = Node("hung", "good")
    node.hang("hung")
    assert (node.code("hung"), node.code("good")) == (AGAIN, AGAIN)
    node.pass_time(5_000)
    assert (node.code("hung"), node.code("good")) == (AGAIN, Code.NONE)
    assert len(node.on_hold) == 1
    before = len(node.timers)
    node.pass_time(60_000)
    assert len(node.timers) <= before, "nothing turns in vain"
    node.release()
    node.pass_time(5_000)
    assert node.code("hung") == Code.NONE
    assert node.loop_reads == []


@pytest.mark.parametrize("comes_late", [False, True])
def test_a_partition_that_goes_while_its_disk_hangs_is_not_waited_for(comes_late: bool) -> None:
    node = Node("hung", "good")
    node.hang("hung")
    assert node.code("hung") == AGAIN
    node.pass_time(1_000)
    [_] = node.on_hold
    node.ask(DeleteTopicsRequest(topic_names=["hung"], timeout_ms=1000), 1)
    if comes_late:
        node.release()
    node.pass_time(1_000)
    rebuilds = node.node.hosted.rebuilds
    assert (rebuilds._wanted, rebuilds._begun, rebuilds._cold) == ({}, {}, {})
    node.release()
    assert node.code("good") == AGAIN
    node.pass_time(5_000)
    assert node.code("good") == Code.NONE


def test_a_disk_that_cannot_read_the_segment_is_reported() -> None:
    node = Node("t")
    path = f"{DATA}/t-0/{names.stem(0)}{names.LOG}"
    assert node.code("t") == AGAIN
    node.fs.fail("read", path, "EIO")
    node.pass_time(1_000)
    assert any("the rebuild failed" in line for line in node.warnings)
