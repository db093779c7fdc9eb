"""A Fetch or ListOffsets of what is not in memory: a thread waits for the disk, the loop does not."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.cold_pages import WINDOW_BYTES, ColdPages, PagesCold, take
from firnline.base.effects import Effect, Submit
from firnline.base.errors import Code, KafkaError
from firnline.base.units import KIB
from firnline.broker.coordination import batches_of
from firnline.broker.fetch import PARTITIONS_PER_SLICE, OneFetch
from firnline.broker.fetch_session import FetchAsk, Wanted
from firnline.broker.list_offsets import MAX_TIMESTAMP
from firnline.formats import names
from firnline.log.log import Log
from firnline.log.segment import Segment
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from tests.worlds.effects import only
from tests.worlds.harness import DATA, START_MS, Connection, Harness, batch

COUNT = 3_000  # batches of the segment: 350 KiB, so that there are some windows of it
PATH = f"{DATA}/t-0/{names.stem(0)}"
READ = "read cold pages"


class Cold(Harness):
    """A node that tells what its loop had to wait for, and what its threads had."""

    def __init__(self) -> None:
        self.thread_reads: list[str] = []
        super().__init__(log_cleaner_enable="false")

    @property
    def loop_reads(self) -> list[str]:
        return self.fs.cold_reads

    def result_of(self, effect: Effect) -> Any:
        before, self.fs.cold_reads = self.fs.cold_reads, []
        try:
            return super().result_of(effect)
        finally:
            if isinstance(effect, Submit):
                self.thread_reads += self.fs.cold_reads
                self.fs.cold_reads = before
            else:
                self.fs.cold_reads = before + self.fs.cold_reads

    def on_reply(self, effect: Any) -> None:
        """The records of an answer are read here, as the sockets of a node do not: `test_cold_pages`."""
        before, self.fs.cold_reads = self.fs.cold_reads, []
        super().on_reply(effect)
        self.fs.cold_reads = before

    def chill(self, path_part: str = PATH) -> None:
        """Nothing of a segment is in memory: neither on the side of the node, nor on that of the system."""
        for segment in log_of(self)._segments.all():
            if segment.is_closed:
                segment.release()
                segment._max_time_ms = -2
        log_of(self)._segments._recent.clear()
        self.fs.chill(path_part)
        self.fs.cold_reads.clear()
        self.thread_reads.clear()

    def reading(self) -> list[Submit]:
        return [each for each in self.work if each.name == READ]


def log_of(harness: Harness) -> Log:
    return harness.node.hosted.by_name["t", 0].log


def value(number: int) -> str:
    return f"{number:040d}"


@pytest.fixture
def node() -> Cold:
    """A node with a closed segment of `COUNT` batches, and another one."""
    harness = Cold()
    harness.create_topic()
    harness.create_topic("other")
    log = log_of(harness)
    for number in range(COUNT):
        data = batch(value(number), time_ms=START_MS + number)
        log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
    log.roll(START_MS)
    harness.produced("tail")
    harness.produced("beside", topic="other")
    return harness


def both(harness: Harness, offset: int, other_offset: int = 0, **more: Any) -> Connection:
    """Fetch two partitions with one request."""
    topics = [
        FetchTopic(topic=topic, partitions=[
            FetchPartition(
                partition=0, fetch_offset=at, partition_max_bytes=1 << 20, current_leader_epoch=-1
            )
        ])
        for topic, at in (("t", offset), ("other", other_offset))
    ]  # fmt: skip
    return harness.send(FetchRequest(topics=topics, **more), 12)


def rows(connection: Connection) -> dict[str, tuple[int, int]]:
    """Error code and size of what was read, by topic."""
    [answer] = connection.answers
    return {
        each.topic: (each.partitions[0].error_code, len(each.partitions[0].records))
        for each in answer.responses
    }


# ------------------------------------------------------------------------------------- the loop


@pytest.mark.parametrize("offset", [0, 1, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("more", [{}, {"max_wait_ms": 500, "min_bytes": 1}], ids=["now", "waits"])
def test_the_loop_waits_for_no_disk_where_a_consumer_reads_an_old_segment(
    node: Cold, offset: int, more: dict[str, int]
) -> None:
    sound = node.values(offset)
    node.chill()
    assert node.values(offset, **more) == sound
    assert node.loop_reads == []
    assert {path.rpartition(".")[2] for path in node.thread_reads} == {"log", "index"}


def test_the_end_of_an_answer_is_looked_for_off_the_loop_too(node: Cold) -> None:
    """Of a large segment it is far from the beginning."""
    size = 200 * KIB
    node.chill()
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(
        partition=0, fetch_offset=10, partition_max_bytes=size, current_leader_epoch=-1
    )])]  # fmt: skip
    found = node.ask(FetchRequest(topics=topics), 12).responses[0].partitions[0]
    assert size - 200 < len(found.records) <= size
    assert node.loop_reads == []
    assert node.thread_reads.count(f"{PATH}.log") == 2


@pytest.mark.parametrize("timestamp", [START_MS + COUNT // 2, -3])
def test_the_loop_waits_for_no_disk_where_a_time_is_looked_up(node: Cold, timestamp: int) -> None:
    sound = node.offset(timestamp)
    node.chill()
    assert node.offset(timestamp) == sound
    assert node.loop_reads == []
    assert f"{PATH}.timeindex" in node.thread_reads


def test_what_is_in_memory_is_read_without_a_thread(node: Cold) -> None:
    node.holds_work = True
    assert len(node.values(COUNT - 10, max_wait_ms=0)) == 11
    assert node.offset(START_MS + 5) == (0, 5)
    assert node.reading() == []


def test_the_aborted_transactions_of_an_old_segment_are_read_off_the_loop(node: Cold) -> None:
    segment = log_of(node)._segments.all()[0]
    file = node.fs.open(segment.txn_index.path, create=True)
    file.append(bytes(34))
    segment.txn_index._entries = None
    node.chill()
    node.values(5, isolation_level=1)
    assert node.loop_reads == []
    assert segment.txn_index.path in node.thread_reads


def test_groups_are_loaded_as_before(node: Cold) -> None:
    """Who loads them cannot be told to ask again."""
    node.chill()
    partition = node.node.hosted.by_name["t", 0]
    assert b"".join(batches_of(partition)).count(b"0" * 30) == COUNT


# ----------------------------------------------------------------------- a disk that takes long


def test_many_who_want_the_same_pages_have_them_read_once(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    readers = [node.fetch(7, max_wait_ms=5_000, min_bytes=1) for _ in range(100)]
    assert len(node.reading()) == 1
    answered = []
    while node.work:
        assert len(node.work) == 1
        before = sum(bool(reader.answers) for reader in readers)
        node.work_once()
        answered.append(sum(bool(reader.answers) for reader in readers) - before)
        node.pass_time(0)
    assert all(reader.answers for reader in readers)
    assert max(answered) <= 20, "they are told in portions"
    assert node.loop_reads == []


def test_a_hanging_disk_keeps_no_fetch_beyond_its_time(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    waiting = node.fetch(7, max_wait_ms=2_000, min_bytes=1)
    node.pass_time(1_999)
    assert waiting.answers == []
    node.pass_time(1)
    assert rows(waiting) == {"t": (0, 0)}
    at_once = node.fetch(7, max_wait_ms=0)
    node.pass_time(500)
    assert rows(at_once) == {"t": (0, 0)}
    assert len(node.reading()) == 1
    [waits] = node.node.hosted.pages._under_way.values()
    assert waits == {}, "nobody is kept for a disk that never answers"


def test_other_partitions_are_answered_while_a_disk_hangs(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    asked = both(node, 7, max_wait_ms=5_000, min_bytes=1)
    found = rows(asked)
    assert found["other"][1] > 0
    assert found["t"] == (0, 0)
    assert len(node.reading()) == 1
    node.holds_work = False
    while node.work:
        node.work_once()
    assert node.values(7)[0] == value(7)
    assert node.loop_reads == []


def test_what_comes_to_another_partition_is_answered_while_a_disk_hangs(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    asked = both(node, 7, 1, max_wait_ms=5_000, min_bytes=1)
    assert asked.answers == []
    node.produced("news", topic="other")
    assert rows(asked)["other"][1] > 0


def test_appends_do_not_answer_a_reader_of_old_records_with_nothing(node: Cold) -> None:
    """He would ask again, for each of them, and no disk is faster by that."""
    node.chill()
    node.holds_work = True
    asked = node.fetch(7, max_wait_ms=5_000, min_bytes=1)
    for _ in range(3):
        node.produced("more")
    assert asked.answers == []
    while node.work:
        node.work_once()
    assert rows(asked)["t"][1] > 0


def asked_by_many(node: Cold, count: int) -> tuple[list[Any], list[Callable[[int], Any]]]:
    """What `count` consumers are told that fetch the same, and what to do when they hang up."""
    answers: list[Any] = []
    gone: list[Callable[[int], Any]] = []
    for _ in range(count):
        wanted = Wanted("t", bytes(16), 0, fetch_offset=7, max_bytes=1 << 20)
        ask = FetchAsk(
            [wanted], max_wait_ms=5_000, min_bytes=1, max_bytes=1 << 20, when_gone=gone.append
        )
        node.run(node.node.fetching.fetch(ask, lambda reported: answers.append(reported) or [], 0))  # type: ignore[func-returns-value]
    return answers, gone


def test_who_hangs_up_before_he_is_answered_receives_nothing(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    answers, gone = asked_by_many(node, 50)
    node.work_once()
    for each in gone:
        node.run(each(0))
    node.pass_time(1_000)
    while node.work:
        node.work_once()
    assert answers == []
    assert node.node.hosted.pages._under_way == {}


def test_pages_that_are_gone_again_are_waited_for_once_and_the_reader_is_answered(
    node: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is too short to keep what was read, nobody goes round for ever."""
    sound = node.values(7)
    node.chill()
    node.holds_work = True
    asked = node.fetch(7, max_wait_ms=500, min_bytes=1)
    rounds = 0
    while node.work:
        submit = node.work.pop(0)
        node.fs.chill(PATH)
        node.run(submit.then(None, node.now_ms))
        rounds += 1
        assert rounds < 20
    [answer] = asked.answers
    assert len(answer.responses[0].partitions[0].records) > 0
    assert len(node.loop_reads) <= rounds + 1
    node.holds_work = False
    assert node.values(7) == sound


def test_who_has_to_look_at_many_places_gets_to_the_end_though_memory_keeps_none(
    node: Cold,
) -> None:
    """Of a replica that had to look at twenty segments some were always gone again: it never caught up."""
    pages, rounds = ColdPages(), 0
    file = node.fs.open(f"{PATH}.log")
    places = range(0, file.size(), WINDOW_BYTES)
    while True:
        node.fs.chill(PATH)
        try:
            with pages:
                for place in places:
                    take(node.fs, file, place, 10)
            break
        except PagesCold as cold:
            submit = only(pages.bring(cold.place, "who", None), Submit)
            submit.then(submit.work(), 0)
        rounds += 1
        assert rounds <= len(places)


def test_what_was_brought_in_long_ago_is_not_waited_for_in_a_step(node: Cold) -> None:
    node.chill()
    node.values(7)
    node.pass_time(20_000)
    node.chill()
    node.values(7)
    assert node.loop_reads == []


# --------------------------------------------------------------------------------- what may fail


@pytest.mark.parametrize("suffix", ["log", "index"])
def test_a_disk_that_fails_is_an_error_for_the_reader_who_is_served_when_it_is_well(
    node: Cold, suffix: str
) -> None:
    sound = node.values(7)
    node.chill()
    node.fs.fail("read", f"{PATH}.{suffix}", "EIO", times=1)
    assert node.fetched(7, max_wait_ms=5_000, min_bytes=1).error_code == Code.KAFKA_STORAGE_ERROR
    assert node.values(7) == sound
    assert node.loop_reads == []


def test_a_lookup_by_time_learns_of_a_disk_that_fails(node: Cold) -> None:
    sound = node.offset(START_MS + 7)
    node.chill()
    node.fs.fail("read", f"{PATH}.timeindex", "EIO", times=1)
    assert node.offset(START_MS + 7) == (Code.KAFKA_STORAGE_ERROR, -1)
    assert node.offset(START_MS + 7) == sound


def test_an_index_that_is_cold_and_damaged_is_built_again(node: Cold) -> None:
    sound = node.values(7)
    node.chill()
    file = node.fs.open(f"{PATH}.index")
    file._inode.data[:8] = b"\xff" * 8
    asked = node.fetch(7, max_wait_ms=5_000, min_bytes=1)
    node.pass_time(1_000)
    assert rows(asked)["t"][1] > 0
    assert node.values(7) == sound


def _deleted(node: Cold) -> None:
    node.holds_work = False
    held, node.work = node.work, []
    node.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
    node.work = held


def _expired(node: Cold) -> None:
    log = log_of(node)
    log.advance_log_start(COUNT)
    node.run([each for each in log.delete_due_segments(node.now_ms) if type(each) is not Submit])


def _cut(node: Cold) -> None:
    log_of(node).truncate_to(3)


def _offline(node: Cold) -> None:
    partition = node.node.hosted.by_name["t", 0]
    partition.go_offline()
    node.run(partition.release_all(node.now_ms))


def _compacted(node: Cold) -> None:
    log = log_of(node)
    old = log._segments.all()[0]
    new = Segment.load(
        log._fs, log.path, 0, rules=old.rules, now_ms=START_MS, size_bytes=old.size_bytes
    )
    log._segments.replace_run([0], new)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (_deleted, {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER}),
        (_expired, {Code.OFFSET_OUT_OF_RANGE}),
        (_cut, {Code.OFFSET_OUT_OF_RANGE}),
        (_offline, {Code.KAFKA_STORAGE_ERROR}),
        (_compacted, {Code.NONE}),
    ],
    ids=lambda each: getattr(each, "__name__", "codes"),
)
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_reader_learns_what_became_of_a_log_that_changed_while_a_thread_read(
    node: Cold, change: Callable[[Cold], None], codes: set[Code], rounds: int
) -> None:
    node.chill()
    node.holds_work = True
    asked = node.fetch(7, max_wait_ms=5_000, min_bytes=1)
    for _ in range(rounds):
        node.work_once()
    assert asked.answers == []
    change(node)
    node.holds_work = False
    while node.work:
        node.work_once()
    [found] = [each.partitions[0] for each in asked.answers[0].responses]
    assert found.error_code in codes
    assert (found.error_code == 0) == (len(found.records) > 0)
    assert node.node.hosted.pages._under_way == {}


def test_a_lookup_learns_that_another_leads_by_the_time_the_disk_has_answered(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    part = ListOffsetsPartition(partition_index=0, timestamp=START_MS + 7, current_leader_epoch=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[part])]
    asked = node.send(ListOffsetsRequest(replica_id=-1, topics=topics), 8)
    assert asked.answers == []
    node.node.hosted.by_name["t", 0].retire()
    node.holds_work = False
    while node.work:
        node.work_once()
        node.pass_time(0)
    [found] = asked.answers[0].topics[0].partitions
    assert found.error_code == Code.NOT_LEADER_OR_FOLLOWER


def test_a_stop_waits_for_no_cold_read(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    node.fetch(7, max_wait_ms=5_000, min_bytes=1)
    [held] = node.reading()
    node.work.clear()
    node.holds_work = False
    node.stop()
    node.run(held.then(held.work(), node.now_ms))  # the thread was at it


def loaded_segment(node: Cold) -> Segment:
    """The segment, with an index that is read again where it is looked into."""
    segment = log_of(node)._segments.all()[0]
    segment.rules = segment.rules._replace(interval_bytes=1)
    for _ in segment.rebuild_steps():
        pass
    segment.release()
    segment.ensure_indexed()
    assert segment.index._below > 0
    return segment


def test_a_block_of_an_index_that_was_loaded_long_ago_is_not_waited_for(node: Cold) -> None:
    segment, pages = loaded_segment(node), node.node.hosted.pages
    node.fs.chill(PATH)
    node.fs.cold_reads.clear()
    with pytest.raises(PagesCold) as found, pages:
        segment.locate(100)
    assert found.value.place.path == segment.index.path
    assert node.loop_reads == []


def test_a_batch_that_a_time_is_looked_for_in_is_read_off_the_loop(node: Cold) -> None:
    """It may be large, and cold behind its header."""
    log = log_of(node)
    data = batch("x" * 600_000, time_ms=START_MS + 10**6)
    log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.roll(START_MS)
    sound = node.offset(START_MS + 10**6)
    assert sound[0] == 0
    node.chill("/t-0/")
    assert node.offset(START_MS + 10**6) == sound
    assert node.loop_reads == []


def test_a_segment_that_nobody_came_back_for_is_closed_again(node: Cold) -> None:
    node.chill()
    node.holds_work = True
    node.fetch(7, max_wait_ms=100, min_bytes=1)
    segment = log_of(node)._segments.all()[0]
    node.work_once()
    assert segment.file is not None
    node.pass_time(200)
    for _ in range(2):
        log_of(node)._segments.release_idle()
    assert segment.file is None


def test_who_builds_an_index_at_once_reads_to_the_end(node: Cold) -> None:
    """As for a log that is hosted no more: nobody goes on half-way."""
    log = log_of(node)
    log.have_indexes_built(None)
    node.chill()
    node.fs.remove(f"{PATH}.index")
    with node.node.hosted.pages:
        assert len(log.read(7, max_bytes=1 << 20, upto_offset=100)) > 0


# ------------------------------------------------------------------------------- large requests

LARGE = PARTITIONS_PER_SLICE + 50


@pytest.fixture
def large() -> Cold:
    """A node with a topic of many partitions, each with a closed segment, some with a larger one."""
    harness = Cold()
    harness.create_topic("many", partitions=LARGE)
    for index in range(LARGE):
        log = harness.node.hosted.by_name["many", index].log
        for number in range(3):
            data = batch(value(number) * (2_000 if index < 5 else 1))
            log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
        log.roll(START_MS)
        log.advance_high_watermark(log.log_end_offset)
    for partition in harness.node.hosted:
        for segment in partition.log._segments.all():
            if segment.is_closed:
                segment.release()
    harness.fs.chill("/many-")
    harness.fs.cold_reads.clear()
    harness.thread_reads.clear()
    return harness


def all_of(harness: Cold, **more: Any) -> Connection:
    partitions = [
        FetchPartition(
            partition=index, fetch_offset=2, partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        for index in range(LARGE)
    ]
    topics = [FetchTopic(topic="many", partitions=partitions)]
    return harness.send(FetchRequest(topics=topics, **more), 12)


def test_a_fetch_of_many_cold_partitions_makes_no_step_wait(large: Cold) -> None:
    found = 0
    for _ in range(3):
        asked = all_of(large, max_wait_ms=1_000, min_bytes=1)
        large.pass_time(1_000)
        [answer] = asked.answers
        found = sum(len(each.records) > 0 for each in answer.responses[0].partitions)
    assert found == LARGE
    assert large.loop_reads == []


def test_no_step_begins_to_read_more_than_a_slice_of_cold_partitions(
    large: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    real = OneFetch._have_read

    def noted(self: OneFetch, *, waits: bool) -> Any:
        begun.append(len(self._cold))
        return real(self, waits=waits)

    monkeypatch.setattr(OneFetch, "_have_read", noted)
    all_of(large, max_wait_ms=1_000, min_bytes=1)
    large.pass_time(1_000)
    assert sum(begun) >= LARGE
    assert max(begun) <= PARTITIONS_PER_SLICE
    read = Counter(path.rpartition(".")[2] for path in set(large.thread_reads))
    assert read == {"index": 5, "log": LARGE}, "what the indexes led to is there for the next Fetch"


def test_a_fetch_of_many_cold_partitions_is_answered_though_the_disk_hangs(large: Cold) -> None:
    large.holds_work = True
    asked = all_of(large, max_wait_ms=1_000, min_bytes=1)
    large.pass_time(999)
    assert asked.answers == []
    assert len(large.reading()) == LARGE
    large.pass_time(1)
    [answer] = asked.answers
    assert all(each.error_code == 0 for each in answer.responses[0].partitions)
    assert not any(large.node.hosted.pages._under_way.values())
    assert not any(partition.fetch_waiters.waiting for partition in large.node.hosted)


@pytest.mark.parametrize("asks", ["records", "time"])
def test_where_too_many_wait_for_a_hung_disk_the_loop_does_not_wait_in_their_place(
    node: Cold, asks: str
) -> None:
    node.chill()
    node.holds_work = True
    if asks == "records":
        connection = node.fetch(7, max_wait_ms=5_000, min_bytes=1)
    else:
        part = ListOffsetsPartition(
            partition_index=0, timestamp=START_MS + 7, current_leader_epoch=-1
        )
        topics = [ListOffsetsTopic(name="t", partitions=[part])]
        connection = node.send(ListOffsetsRequest(replica_id=-1, topics=topics), 8)
    [refused] = node.reading()
    node.work.remove(refused)
    full = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much work waits")
    node.run(refused.then(full, node.now_ms))
    node.pass_time(0)
    assert node.loop_reads == []
    [answer] = connection.answers
    topic = (answer.responses if asks == "records" else answer.topics)[0]
    assert topic.partitions[0].error_code == Code.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("timestamp", [START_MS + COUNT + 39, MAX_TIMESTAMP])
def test_a_time_is_looked_up_in_very_many_old_segments_off_the_loop(
    node: Cold, timestamp: int
) -> None:
    """After a start the greatest time of each is to be read from its index."""
    log = log_of(node)
    for number in range(40):
        data = batch("more", time_ms=START_MS + COUNT + number)
        log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
        log.roll(START_MS)
    log.advance_high_watermark(log.log_end_offset)
    sound = node.offset(timestamp)
    node.chill(f"{DATA}/t-0/")
    assert node.offset(timestamp) == sound
    assert node.loop_reads == []


def test_a_disk_that_answers_is_not_kept_waiting_by_one_that_hangs(node: Cold) -> None:
    """Two directories, and cold segments in both: what the good one has is told as soon as it is read."""
    other = node.node.hosted.by_name["other", 0].log
    for number in range(COUNT):
        data = batch(value(number), time_ms=START_MS + number)
        other.append_as_leader(data, leader_epoch=0, now_ms=START_MS)
    other.advance_high_watermark(other.log_end_offset)
    other.roll(START_MS)
    node.chill()
    node.fs.chill(f"{DATA}/other-0/")
    for segment in other._segments.all():
        if segment.is_closed:
            segment.release()
    node.holds_work = True
    asked = both(node, COUNT // 2, COUNT // 2, max_wait_ms=30_000, min_bytes=1)
    begun_ms = node.now_ms
    while not asked.answers:
        assert node.now_ms < begun_ms + 1_000
        good = [each for each in node.reading() if "/other-0/" in each.work.args[0].path]  # type: ignore[attr-defined]
        if good:
            node.work.remove(good[0])
            node.work.insert(0, good[0])
            node.work_once()
        node.pass_time(5)
    assert rows(asked)["other"][1] > 0
    assert rows(asked)["t"] == (Code.NONE, 0)
    assert node.loop_reads == []


def test_one_page_that_comes_early_does_not_end_a_fetch_of_many_partitions(
    large: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.holds_work = True
    real = large.pass_time

    def between_two_slices(duration_ms: int) -> None:
        monkeypatch.setattr(large, "pass_time", real)
        while not large.work:
            timer = large.due_timer()
            assert timer is not None
            del large.timers[timer.key]
            large.run(timer.then(large.now_ms))
        assert len(large.work) < LARGE, "the first slice alone"
        large.work_once()
        real(duration_ms)

    monkeypatch.setattr(large, "pass_time", between_two_slices)
    asked = all_of(large, max_wait_ms=1_000, min_bytes=1)
    large.pass_time(999)
    assert asked.answers == []
    large.pass_time(1)
    assert len(asked.answers) == 1
