"""A ListOffsets or a Fetch at a disk that hangs ends, and what the others have is told."""

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.cold_pages import ColdPages, PageRange, PagesCold
from firnline.base.effects import Submit
from firnline.base.errors import Code
from firnline.broker.list_offsets import (
    _SEARCHES_MAX,
    LATEST,
    ListingOffsets,
    OffsetAsk,
    _directory_of,
    _Pending,
)
from firnline.formats import names
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.sim.disk import CrashableFs
from tests.unit.broker.test_list_offsets import WAIT_MS, Client, Tier, story
from tests.worlds.chance import SeededRng
from tests.worlds.harness import START_MS, Connection, Harness, batch, format_disk
from tests.worlds.list_log import log_of

READ = "read cold pages"
GOOD, HUNG = "good", "hung"
COUNT = 3_000


class Node(Harness):
    """A node with a topic in each of two directories, whose segments are cold. One of these hangs."""

    def __init__(self, partitions: int = 1, records: int = COUNT) -> None:
        fs, rng = CrashableFs(), SeededRng(7)
        for topic in (GOOD, HUNG):
            format_disk(fs, rng, f"/{topic}")
        super().__init__(fs, log_dirs=f"/{GOOD},/{HUNG}", log_cleaner_enable="false")
        for topic, other in ((GOOD, HUNG), (HUNG, GOOD)):
            self.node.storage._cordoned = lambda other=other: [f"/{other}"]  # type: ignore[misc]
            self.create_topic(topic, partitions=partitions)
        for partition in self.node.hosted:
            log = partition.log
            for number in range(records):
                data = batch(f"{number:040d}", time_ms=START_MS + number)
                log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
            log.roll(START_MS)
            log.append_as_leader(batch("tail"), leader_epoch=0, now_ms=START_MS)
            log.advance_high_watermark(log.log_end_offset)
            for segment in log._segments.all():
                if segment.is_closed:
                    segment.release()
                    segment._max_time_ms = -2
            log._segments._recent.clear()
            self.fs.chill(f"{log.path}/{names.stem(0)}")
        self.fs.cold_reads.clear()
        self.held = lambda effect: (
            isinstance(effect, Submit)
            and effect.name == READ
            and effect.path.startswith(f"/{HUNG}/")
        )

    def answers(self) -> None:
        """The disk does what it was asked for."""
        self.release()
        self.pass_time(0)

    def look_up(
        self,
        *topics: str,
        partitions: int = 1,
        version: int = 11,
        timestamp: int = START_MS + 7,
        **more: Any,
    ) -> Connection:
        named = [
            ListOffsetsTopic(name=topic, partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for index in range(partitions)
            ])
            for topic in topics
        ]  # fmt: skip
        return self.send(ListOffsetsRequest(replica_id=-1, topics=named, **more), version)

    def waiters(self) -> int:
        return sum(map(len, self.node.hosted.pages._under_way.values()))


def found(connection: Connection) -> dict[str, list[tuple[int, int]]]:
    [answer] = connection.answers
    return {t.name: [(p.error_code, p.offset) for p in t.partitions] for t in answer.topics}


@pytest.mark.parametrize(
    ("version", "stated", "waits_ms"),
    [(11, {"timeout_ms": 2_000}, 2_000), (10, {"timeout_ms": 0}, 30_000), (9, {}, 30_000)],
)
def test_a_lookup_at_a_disk_that_hangs_ends_when_its_client_gives_up(
    version: int, stated: dict[str, int], waits_ms: int
) -> None:
    node = Node()
    asked = node.look_up(HUNG, GOOD, version=version, **stated)
    node.pass_time(waits_ms - 1)
    assert asked.answers == [], "the disk may answer yet"
    node.pass_time(1)
    assert found(asked) == {HUNG: [(Code.REQUEST_TIMED_OUT, -1)], GOOD: [(0, 7)]}
    assert not any(HUNG in path for path in node.fs.cold_reads), "the loop would have waited"
    node.answers()
    assert len(asked.answers) == 1
    again = node.look_up(HUNG)
    assert found(again) == {HUNG: [(0, 7)]}


def test_a_lookup_is_answered_as_soon_as_the_disk_has_answered() -> None:
    node = Node()
    asked = node.look_up(HUNG, GOOD, timeout_ms=2_000)
    node.pass_time(1_000)
    node.answers()
    assert found(asked) == {HUNG: [(0, 7)], GOOD: [(0, 7)]}
    timers = [key for key in node.timers if "list-offsets" in str(key)]
    assert timers == []


def test_nothing_is_kept_of_a_lookup_that_was_answered_while_the_disk_hangs() -> None:
    node = Node()
    for _ in range(50):
        asked = node.look_up(HUNG, timeout_ms=1_000)
        node.pass_time(1_000)
        assert asked.answers
    assert len(node.on_hold) == 1, "one read for all of them"
    assert node.waiters() == 0
    connection = weakref.ref(asked)
    del asked
    node.look_up(GOOD)  # the dispatcher has the last request
    gc.collect()
    assert connection() is None
    assert not [each for each in gc.get_objects() if isinstance(each, _Pending)]


def test_nothing_is_kept_of_a_lookup_whose_client_hung_up() -> None:
    node = Node()
    asked = node.look_up(HUNG, timeout_ms=1_000)
    asked.closed = True
    node.pass_time(1_000)
    assert node.waiters() == 0
    assert asked.answers == []
    del asked
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, _Pending)]


def test_a_lookup_of_many_partitions_waits_once_and_not_for_each_of_those_that_hang() -> None:
    """And few of them wait at a time: the threads are for others, too."""
    count = 5 * _SEARCHES_MAX
    node = Node(partitions=count, records=40)
    asked = node.look_up(HUNG, GOOD, partitions=count, timeout_ms=2_000)
    assert 0 < len(node.on_hold) <= _SEARCHES_MAX
    node.pass_time(2_000)
    assert found(asked) == {
        HUNG: [(Code.REQUEST_TIMED_OUT, -1)] * count,
        GOOD: [(0, 7)] * count,
    }
    assert node.waiters() == 0


def test_those_that_waited_for_others_of_their_directory_have_their_turn() -> None:
    count = 5 * _SEARCHES_MAX
    node = Node(partitions=count, records=40)
    asked = node.look_up(HUNG, partitions=count, timeout_ms=2_000)
    node.answers()
    assert found(asked) == {HUNG: [(0, 7)] * count}


def test_an_end_of_a_log_is_reported_though_its_disk_hangs() -> None:
    """There is nothing to be read for it."""
    node = Node()
    asked = node.look_up(HUNG, timestamp=LATEST)
    assert found(asked) == {HUNG: [(0, COUNT + 1)]}


def test_a_search_of_local_files_after_the_tier_ends_with_the_request() -> None:
    """The tier has not the time; the file that may have it is on a disk that hangs."""
    tier, pages = Tier(), ColdPages()
    client = Client(tier)
    client.listing = ListingOffsets(remote=tier.search, timeout_ms=WAIT_MS, pages=pages)
    p = story()

    def cold(*_: object, **__: object) -> Iterator[None]:
        raise PagesCold(PageRange(CrashableFs(), "/data/t-0/0.log", 0, 1))
        yield

    log_of(p).time_steps = cold  # type: ignore[method-assign, assignment]
    client.ask(OffsetAsk(p, 105))
    [read] = tier.waiting.pop()(None, client.world.now_ms)
    assert isinstance(read, Submit)
    [waiting] = pages._under_way.values()
    assert len(waiting) == 1
    client.world.pass_time(WAIT_MS)
    assert client.answers == [[Code.REQUEST_TIMED_OUT]]
    assert waiting == {}
    assert read.then(None, client.world.now_ms) == []


def test_no_other_answer_waits_for_one_that_waits_for_a_disk() -> None:
    """Of those that are beyond the bound of all answers one goes on: it is not to be this one."""
    node, ways = Node(), []
    connection = Connection()
    connection.response_memory = SimpleNamespace(
        **dict.fromkeys(("must_wait", "must_wait_to_begin"), lambda: False),
        **dict.fromkeys(("grow", "hold", "keeps"), lambda _: None),
        give_way=lambda: ways.append(node.now_ms),
    )
    part = ListOffsetsPartition(partition_index=0, timestamp=START_MS + 7)
    topics = [ListOffsetsTopic(name=HUNG, partitions=[part])]
    node.send(ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=1_000), 11, connection)
    assert connection.answers == []
    assert ways == [node.now_ms]


def test_searches_are_round_robin_by_log_directory() -> None:
    """The directory of a place is that of its partition, and not the partition's own."""
    path = f"/data/one/t-0/{names.stem(0)}{names.LOG}"
    assert _directory_of(PageRange(CrashableFs(), path, 0, 1)) == "/data/one"


# ----------------------------------------------------------------------------------------- Fetch


def both(node: Node, in_session: bool, **more: Any) -> Connection:
    topics = [
        FetchTopic(topic=topic, partitions=[
            FetchPartition(
                partition=0, fetch_offset=at, partition_max_bytes=1 << 20, current_leader_epoch=-1
            )
        ])
        for topic, at in ((HUNG, 7), (GOOD, COUNT + 1))
    ]  # fmt: skip
    session = {} if in_session else {"session_id": 0, "session_epoch": -1}
    return node.send(FetchRequest(topics=topics, **session, **more), 12)


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_at_a_disk_that_hangs_ends_at_its_time_and_leaves_nothing_behind(
    in_session: bool,
) -> None:
    node = Node()
    for _ in range(20):
        asked = both(node, in_session, max_wait_ms=1_000, min_bytes=1)
        node.pass_time(999)
        assert asked.answers == []
        node.pass_time(1)
        assert len(asked.answers) == 1
    assert len(node.on_hold) <= 2, "one read for all of them"
    assert node.waiters() == 0
    assert not any(partition.fetch_waiters.waiting for partition in node.node.hosted)
    connection = weakref.ref(asked)
    del asked
    node.look_up(GOOD)  # the dispatcher has the last request
    gc.collect()
    assert connection() is None
    assert not [key for key in node.timers if key[0] == "fetch"]
    assert not any(HUNG in path for path in node.fs.cold_reads), "the loop would have waited"
