"""Reading ahead of consumers of a distant store: what is begun, what is kept, and what is never held up."""

from typing import Any

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError, WorkTimedOut
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.stores.port import RemoteStorageError
from firnline.tiered.objects.batches import SLACK_BYTES, Batches, read_batches, read_pieces
from firnline.tiered.reads import read_ahead
from firnline.tiered.reads.indexes import BEGINNING, SearchStart
from firnline.tiered.reads.reader import RemoteLogReadResult
from firnline.tiered.reads.shared_reads import RangeKey
from firnline.tiered.settings import TierSettings
from firnline.tiered.spi import RemoteSegment
from tests.unit.tiered.test_tiered_hangs import Fetch
from tests.unit.tiered.test_tiered_read import log_key
from tests.worlds.effects import only
from tests.worlds.tier import SETTINGS, TOPIC_ID, WHERE, Cluster, Node

SEGMENTS, BATCHES, TEXT_BYTES = 3, 8, 30_000
END = SEGMENTS * BATCHES


# What is read ahead after the first two Fetches of one batch each: twice as much.
FIRST_RANGE = [2, 3, 4, 5]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may be a single batch, and one range at a time is ahead."""
    monkeypatch.setattr(read_ahead, "PIECE_BYTES_MIN", 1)
    monkeypatch.setattr(read_ahead, "RANGES_AHEAD", 1)


def distant(*, is_distant: bool = True, **settings: Any) -> Node:
    """Offsets 0..23 in segments of eight batches of one size, nothing local, and no index in memory."""
    cluster = Cluster()
    cluster.store.is_distant = is_distant
    node = Node(cluster, **settings).start().lead(0)
    for number in range(SEGMENTS):
        texts = [chr(97 + number) * TEXT_BYTES for _ in range(BATCHES)]
        node.produce(0, *texts)
    node.pass_time(1000)
    node.expire_local()
    assert node.log.local_log_start_offset == END
    node.storage.calls.clear()
    return node


def batch_bytes(node: Node) -> int:
    segment = node.segments()[0]
    return segment.size_bytes // BATCHES


def is_ahead(effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.pool == "ahead"


def gets(node: Node) -> int:
    """How many ranges were read, without what a load of indexes compares them with."""
    return sum(name.startswith("read ") for name in node.trace)


def offsets(result: Any) -> list[int]:
    assert isinstance(result, RemoteLogReadResult), result
    return [header.base_offset for header in headers(bytes(result.records))]  # type: ignore[arg-type]


def fetch(node: Node, offset: int, batches: int = 1) -> list[int]:
    """Return the base offsets that a Fetch gets which has room for so many batches."""
    return offsets(node.read(offset, max_bytes=batches * batch_bytes(node)))


def held_offsets(node: Node) -> list[int]:
    return sorted(key.offset for key in node.tier.reader.ahead._pieces)


# ------------------------------------------------------------------------------------ what is begun


def test_the_first_read_costs_what_it_did() -> None:
    node = distant()
    assert fetch(node, 0) == [0]
    assert gets(node) == 1
    assert node.tier.reader.ahead.held_bytes == 0


def test_reads_that_jump_read_nothing_ahead() -> None:
    node = distant()
    for offset in (0, 5, 3, 17, 2):
        assert fetch(node, offset) == [offset]
    assert gets(node) == 5


def test_what_follows_a_sequence_is_there_before_it_is_asked_for() -> None:
    node = distant()
    for offset in (0, 1):
        assert fetch(node, offset) == [offset]
    assert gets(node) == 3, "two Fetches, and one range"
    assert held_offsets(node) == FIRST_RANGE
    node.held = is_ahead  # from now on nothing new arrives
    for offset in FIRST_RANGE:
        assert fetch(node, offset) == [offset]
    assert gets(node) == 3
    counters = node.tier.services.counters
    assert counters.read_ahead_hits == 4
    assert counters.read_ahead_hit_bytes == counters.read_ahead_bytes == 4 * batch_bytes(node)


def test_a_consumer_of_everything_makes_few_requests_and_gets_every_batch_once() -> None:
    node = distant()
    seen: list[int] = []
    while len(seen) < END:
        seen += fetch(node, len(seen))
    assert seen == list(range(END))
    assert gets(node) <= 10, "instead of 24"
    assert fetch(node, 0) == [0]


def test_ranges_grow_with_the_sequence_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    node = distant()
    monkeypatch.setattr(read_ahead, "RANGE_BYTES", 5 * batch_bytes(node))
    node.held = is_ahead
    begun: list[int] = []
    for offset in range(8):
        fetch(node, offset)
        for each in list(node.on_hold):
            assert isinstance(each, Submit)
            begun.append(each.work.keywords["pieces"])  # type: ignore[attr-defined]
            node.on_hold.remove(each)
            node.complete(each)
    assert begun[0] == 4
    assert max(begun) == 5


def test_a_range_is_no_smaller_than_the_fetch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise there would be more requests than without reading ahead."""
    monkeypatch.setattr(read_ahead, "RANGE_BYTES", 1000)
    node = distant()
    node.held = is_ahead
    fetch(node, 0, 2)
    fetch(node, 2, 2)
    node.complete(node.on_hold.pop())
    assert node.tier.services.counters.read_ahead_bytes == 2 * batch_bytes(node)


def test_a_range_that_arrives_begins_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fetch of several partitions may still wait for another one of them."""
    monkeypatch.setattr(read_ahead, "RANGES_AHEAD", 2)
    node = distant()
    for offset in (0, 1):
        fetch(node, offset)
    assert held_offsets(node) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_range_that_arrives_late_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "RANGES_AHEAD", 2)
    node = distant()
    node.held = is_ahead
    for offset in (0, 1):
        fetch(node, offset)
    node.pass_time(read_ahead.SEQUENCE_MS)
    node.release()
    assert held_offsets(node) == FIRST_RANGE


@pytest.mark.parametrize("is_distant", [False, True])
def test_a_read_goes_on_where_the_one_before_ended(is_distant: bool) -> None:
    """The index names a batch by its last offset: it leads to the batch before, which was fetched again."""
    cluster = Cluster()
    cluster.store.is_distant = is_distant
    node = Node(cluster).start().lead(0)
    for _ in range(12):
        batch = build_batch([NewRecord(None, b"x" * 10_000, node.now_ms) for _ in range(3)])
        node.log.append_as_leader(batch, leader_epoch=0, now_ms=node.now_ms, origin="client")
    node.produce(0, "roll")
    node.pass_time(1000)
    node.expire_local()
    asked: list[int] = []
    fetch_segment = node.storage.fetch_segment

    def noted(segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        asked.append(position)
        return fetch_segment(segment, position, size_bytes)

    node.storage.fetch_segment = noted  # type: ignore[method-assign]
    size_bytes = len(batch)
    for number in range(12):
        result = node.read(3 * number, max_bytes=size_bytes)
        assert offsets(result) == [3 * number]
    asked.remove(0)  # a load of indexes looks at the first batch
    begun = [int(name.rpartition(" ")[2]) for name in node.trace if name.startswith("read ")]
    assert asked == [offset // 3 * size_bytes for offset in begun]
    assert begun == sorted(set(begun))


def test_the_start_of_the_next_segment_and_its_indexes_are_there_in_time() -> None:
    node = distant()
    for offset in range(BATCHES):
        fetch(node, offset)
    node.storage.calls.clear()
    node.held = is_ahead
    assert fetch(node, BATCHES) == [BATCHES]
    assert node.storage.calls == []


def test_indexes_of_the_next_segment_are_loaded_before_its_first_range() -> None:
    node = distant()
    node.held = is_ahead
    for offset in (0, 1):
        fetch(node, offset)
    [segment, after] = node.segments()[:2]
    assert [key.segment_id for key in node.tier.reader.ahead._reading] == [segment.segment_id]
    assert after.segment_id in node.tier.indexes._memory


def test_nothing_is_read_ahead_of_local_records_or_below_the_log_start() -> None:
    node = distant()
    for offset in (END - 2, END - 1):
        fetch(node, offset)
    assert gets(node) == 2
    hosted = node.tier._tasks[WHERE].hosted
    node.log.advance_log_start(4)
    assert node.tier.reader.ahead.place(hosted, 3) is None
    assert node.tier.reader.ahead.place(hosted, 4) is not None
    copied = Node(Cluster()).start().lead(0)
    copied.produce(0, "a", "b")
    copied.pass_time(1000)
    assert len(copied.segments()) == 1, "local files have it, too"
    assert copied.tier.reader.ahead.place(copied.tier._tasks[WHERE].hosted, 0) is None


def test_a_directory_and_a_budget_of_nothing_read_nothing_ahead() -> None:
    for node in (distant(is_distant=False), distant(read_ahead_bytes=0)):
        for offset in range(4):
            assert fetch(node, offset) == [offset]
        assert gets(node) == 4
        assert node.tier.reader.ahead._sequences == {}


def test_a_consumer_that_takes_its_time_does_not_wait_for_the_store_anyway() -> None:
    node = distant()
    fetch(node, 0)
    node.pass_time(read_ahead.SEQUENCE_MS)
    fetch(node, 1)
    assert gets(node) == 2
    assert len(node.tier.reader.ahead._sequences) == 1, "old ones are forgotten"


# ----------------------------------------------------------------------------- what is held up: nothing


def test_a_store_that_fails_is_not_read_ahead_of() -> None:
    node = distant()
    fetch(node, 0)
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("probe")
    began = Fetch(node, 1, batch_bytes(node))
    assert began.answers
    node.tier.reader.ahead.forget(WHERE)
    before = gets(node)
    node.run(node.tier.services.circuits.open("read", RemoteStorageError("down"), node.now_ms))
    hosted = node.tier._tasks[WHERE].hosted
    found = Batches(b"x" * 1000, 2, 1000)
    assert node.tier.reader.ahead.answered(hosted, 2, found, 1000, node.now_ms) == []
    assert gets(node) == before
    assert node.tier.services.counters.read_ahead_errors == 0, "it was not even tried"


def test_the_quota_of_reads_counts_it_and_ends_it() -> None:
    node = distant()
    rate = node.tier.services.fetch_rate
    for offset in (0, 1):
        fetch(node, offset)
    assert rate._total == 6 * batch_bytes(node), "two Fetches, and the range read ahead"
    node.tier.reader.ahead.forget(WHERE)
    rate.bytes_per_second = 1
    hosted = node.tier._tasks[WHERE].hosted
    found = Batches(b"x" * 1000, 2, 1000)
    assert node.tier.reader.ahead.answered(hosted, 2, found, 1000, node.now_ms) == []


def test_reads_that_are_waited_for_come_first() -> None:
    """With as many of them as threads nothing is begun for later."""
    node = distant(reader_threads=2)
    fetch(node, 0)
    node.held = lambda effect: isinstance(effect, Submit) and effect.pool == "read"
    waiting = [Fetch(node, 1, batch_bytes(node)), Fetch(node, 9, 1), Fetch(node, 17, 1)]
    node.complete(node.on_hold.pop(0))
    assert offsets(waiting[0].answers[0]) == [1]
    assert node.tier.services.counters.read_ahead_bytes == 0
    assert not node.tier.reader.ahead._reading


def test_it_reads_no_more_ranges_at_a_time_than_there_are_threads() -> None:
    node = distant(reader_threads=2)
    node.held = is_ahead
    for start in (0, 8, 16):
        fetch(node, start)
        fetch(node, start + 1)
    assert [key.offset for key in node.tier.reader.ahead._reading] == [2, 10]


# ------------------------------------------------------------------------------------ one budget


def test_a_full_budget_begins_nothing_and_takes_nothing_from_another_consumer() -> None:
    node = distant(read_ahead_bytes=8 * (TEXT_BYTES + 100) + SLACK_BYTES)
    for offset in (0, 1):
        fetch(node, offset)
    assert held_offsets(node) == FIRST_RANGE
    before = gets(node)
    for offset in (8, 12, 16, 20):  # the smallest range, of one Fetch, does not fit
        assert fetch(node, offset, 4) == list(range(offset, offset + 4))
    assert gets(node) == before + 4
    assert held_offsets(node) == FIRST_RANGE
    assert fetch(node, 2) == [2]
    assert node.tier.services.counters.read_ahead_hits == 1


def test_what_was_asked_for_gives_way() -> None:
    """A budget that has room for one range serves a whole log."""
    budget_bytes = 4 * (TEXT_BYTES + 100) + SLACK_BYTES
    node = distant(read_ahead_bytes=budget_bytes)
    for offset in range(END):
        assert fetch(node, offset) == [offset]
        assert node.tier.reader.ahead.held_bytes <= budget_bytes
    assert node.tier.services.counters.read_ahead_hits >= END // 2


def test_the_budget_holds_while_ranges_are_read() -> None:
    node = distant(read_ahead_bytes=200_000)
    node.held = is_ahead
    for start in (0, 8, 16):
        fetch(node, start)
        fetch(node, start + 1)
    ahead = node.tier.reader.ahead
    assert len(ahead._reading) == 1
    assert 0 < ahead.held_bytes <= 200_000
    node.release()
    assert ahead.held_bytes == sum(len(piece.batches[0]) for piece in ahead._pieces.values())


def test_a_batch_beyond_the_budget_is_not_kept() -> None:
    """Ranges that were planned for small batches may meet a large one."""
    cluster = Cluster()
    cluster.store.is_distant = True
    node = Node(cluster, read_ahead_bytes=60_000).start().lead(0)
    node.produce(0, "a", "b", "c" * 100_000, "d")
    node.pass_time(1000)
    node.expire_local()
    node.trace.clear()
    assert offsets(node.read(0, max_bytes=1)) == [0]
    assert offsets(node.read(1, max_bytes=1)) == [1]
    assert node.tier.reader.ahead.held_bytes <= 60_000
    assert held_offsets(node) == []
    assert gets(node) == 3, "and is not tried again and again"
    assert offsets(node.read(2, max_bytes=1)) == [2]


def test_what_nobody_asks_for_is_dropped_after_a_while() -> None:
    node = distant()
    for offset in (0, 1):
        fetch(node, offset)
    node.pass_time(read_ahead.KEPT_MS - 1)
    assert held_offsets(node) == FIRST_RANGE
    node.pass_time(1)
    assert held_offsets(node) == []
    assert node.tier.reader.ahead.held_bytes == 0
    assert node.tier.reader.ahead._of == {}


def test_a_smaller_budget_acts_at_once() -> None:
    node = distant()
    for offset in (0, 1):
        fetch(node, offset)
    for budget, left in ((batch_bytes(node), [5]), (0, [])):
        settings = TierSettings(node_id=1, **{**SETTINGS, "read_ahead_bytes": budget})
        node.run(node.tier.apply_settings(settings, node.now_ms))
        assert held_offsets(node) == left


# ------------------------------------------------------------------------------ what is true no longer


def ahead_of(node: Node) -> Node:
    for offset in (0, 1):
        fetch(node, offset)
    assert held_offsets(node) == FIRST_RANGE
    return node


def test_the_end_of_a_role_a_replica_or_a_topic_drops_it() -> None:
    def stop(node: Node) -> None:
        node.run(node.tier.on_stop(WHERE, node.now_ms))

    def lose(node: Node) -> None:
        node.role(is_leader=False, epoch=1)

    def delete(node: Node) -> None:
        del node.cluster.topics[TOPIC_ID]
        node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))

    for end in (stop, lose, delete):
        node = ahead_of(distant())
        end(node)
        assert held_offsets(node) == [], end.__name__
        assert node.tier.reader.ahead.held_bytes == 0


def test_a_range_that_arrives_after_its_role_has_ended_is_dropped() -> None:
    def close(node: Node) -> None:
        node.tier.close()

    def lose(node: Node) -> None:
        node.role(is_leader=False, epoch=1)

    for end in (close, lose):
        node = distant()
        node.held = is_ahead
        for offset in (0, 1):
            fetch(node, offset)
        assert len(node.on_hold) == 1
        end(node)
        node.release()
        assert node.tier.reader.ahead._reading == {}
        assert held_offsets(node) == [], end.__name__
        hosted = node.tier._tasks[WHERE].hosted
        if end is close:
            answered = node.tier.reader.ahead.answered(
                hosted, 2, Batches(b"x", 3, 1), 1, node.now_ms
            )
            assert answered == [], "and no other is begun"


def test_a_deleted_segment_is_dropped_and_the_others_stay() -> None:
    node = distant()
    for offset in range(BATCHES - 1):
        fetch(node, offset)
    assert any(offset >= BATCHES for offset in held_offsets(node))
    assert any(offset < BATCHES for offset in held_offsets(node))
    node.log.advance_log_start(BATCHES)
    node.pass_time(5000)
    assert len(node.segments()) == SEGMENTS - 1
    assert held_offsets(node)
    assert all(offset >= BATCHES for offset in held_offsets(node))


# ------------------------------------------------------------------------------------ several consumers


def test_a_second_consumer_gets_what_was_read_for_the_first() -> None:
    node = distant()
    for offset in range(5):
        fetch(node, offset)
    node.held = is_ahead
    before = gets(node)
    for offset in (2, 3, 4):
        assert fetch(node, offset) == [offset]
    assert gets(node) == before


def test_consumers_that_are_as_far_share_a_sequence() -> None:
    node = distant()
    for offset in (0, 1, 2):
        fetch(node, offset)
    fetch(node, 2)
    [sequence] = node.tier.reader.ahead._sequences.values()
    assert sequence.next_offset == 3
    assert sequence.size_bytes == 3 * batch_bytes(node)


def test_fetches_join_the_range_that_is_being_read() -> None:
    node = distant()
    for offset in (0, 1):
        node.held = is_ahead
        fetch(node, offset)
    before = gets(node)
    waiting = [Fetch(node, 2, batch_bytes(node)) for _ in range(20)]
    waiting[0].give_up()
    assert gets(node) == before
    node.release()
    assert waiting[0].answers == []
    for each in waiting[1:]:
        assert offsets(each.answers[0]) == [2]
    assert node.tier.services.counters.read_ahead_hits == 19


def test_a_lower_limit_gets_a_part_and_the_rest_stays() -> None:
    node = distant()
    fetch(node, 0, 2)
    node.held = is_ahead
    fetch(node, 2, 2)
    node.complete(node.on_hold.pop())
    assert held_offsets(node) == [4, 6]
    node.held = is_ahead
    before = gets(node)
    assert fetch(node, 4, 1) == [4]
    assert fetch(node, 5, 1) == [5]
    assert fetch(node, 6, 2) == [6, 7]
    assert gets(node) == before
    ahead = node.tier.reader.ahead
    pieces = sum(len(piece.batches.data) for piece in ahead._pieces.values())
    assert pieces + sum(each.held_bytes for each in ahead._reading.values()) == ahead.held_bytes
    assert pieces == 4 * batch_bytes(node)


def test_a_range_that_a_fetch_reads_already_is_not_read_ahead_too() -> None:
    node = distant()
    fetch(node, 0)
    node.held = lambda effect: isinstance(effect, Submit) and effect.pool == "read"
    slow = Fetch(node, 2, batch_bytes(node))
    other = Fetch(node, 1, batch_bytes(node))
    node.complete(node.on_hold.pop(1))
    assert offsets(other.answers[0]) == [1]
    assert node.tier.services.counters.read_ahead_bytes == 0
    node.release()
    assert offsets(slow.answers[0]) == [2]


# -------------------------------------------------------------------------------------- what fails


def test_a_failure_is_forgotten_and_the_fetch_reads_for_itself() -> None:
    node = distant()
    node.held = is_ahead
    for offset in (0, 1):
        fetch(node, offset)
    waiting = Fetch(node, 2, batch_bytes(node))
    node.storage.fail("fetch", RemoteStorageError("503"))
    node.release()
    assert offsets(waiting.answers[0]) == [2]
    assert node.warnings == []
    assert node.tier.services.counters.read_ahead_errors == 1
    assert node.tier.services.counters.fetch_errors == 0


def test_damage_reaches_nobody_and_is_reported_by_the_fetch() -> None:
    node = distant()
    segment = node.segments()[0]
    data = bytearray(node.cluster.store.objects[log_key(segment)])
    data[4 * batch_bytes(node) + 200] ^= 1
    node.cluster.store.objects[log_key(segment)] = bytes(data)
    for offset in (0, 1):
        assert fetch(node, offset) == [offset]
    assert held_offsets(node) == [2], "what is before the damage is of use"
    for offset in (2, 3):
        assert fetch(node, offset) == [offset]
    assert node.warnings == []
    assert gets(node) == 6, "three Fetches, a range, and two that failed, each once"
    assert node.read(4, max_bytes=1).code == Code.CORRUPT_MESSAGE
    assert len(node.warnings) == 1


def test_indexes_that_cannot_be_loaded_are_left_to_the_fetch() -> None:
    node = distant()
    fetch(node, 0)
    node.tier.indexes._memory.clear()
    node.tier.indexes._on_disk.clear()
    node.held = lambda effect: isinstance(effect, Submit) and effect.pool == "index"
    ahead, hosted = node.tier.reader.ahead, node.tier._tasks[WHERE].hosted
    node.run(ahead.answered(hosted, 1, Batches(b"x" * 1000, 2, 1000), 1000, node.now_ms))
    index = only(node.on_hold, Submit)
    node.on_hold.clear()
    waiting = Fetch(node, 2, 1)
    node.held = lambda effect: False
    node.complete_with(index, RemoteStorageError("503"))
    node.pass_time(1000)
    assert offsets(waiting.answers[0]) == [2]
    assert ahead._reading == {}


def test_a_fetch_that_waits_for_a_store_that_hangs_is_told_so_once() -> None:
    """Another read would hang as long again."""
    node = distant(fetch_max_wait_ms=120_000)
    node.held = is_ahead
    for offset in (0, 1):
        fetch(node, offset)
    waiting = Fetch(node, 2, batch_bytes(node))
    before = gets(node)
    node.complete_with(only(node.on_hold, Submit), WorkTimedOut("it hangs"))
    [answer] = waiting.answers
    assert isinstance(answer, KafkaError)
    assert answer.code == Code.KAFKA_STORAGE_ERROR
    assert gets(node) == before


# ------------------------------------------------------------------------------------------- pieces


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_pieces_are_what_reads_one_after_the_other_return(batches: int) -> None:
    node = distant()
    segment, storage = node.segments()[0], node.storage
    limit = batches * batch_bytes(node)

    def one(offset: int) -> Batches:
        start = SearchStart(offset * batch_bytes(node), offset) if offset else BEGINNING
        return read_batches(
            storage, segment, start=start, offset=offset, upto_offset=BATCHES, max_bytes=limit
        )

    found = read_pieces(
        storage,
        segment,
        start=BEGINNING,
        offset=0,
        upto_offset=BATCHES,
        piece_bytes=limit,
        pieces=9,
    )
    offset = 0
    for piece in found:
        assert piece == one(offset)
        offset = piece.end_offset
    assert offset == BATCHES


def test_pieces_end_where_the_lineage_does() -> None:
    node = distant()
    segment = node.segments()[0]
    start = SearchStart(0, -1)
    found = read_pieces(
        node.storage, segment, start=start, offset=0, upto_offset=3,
        piece_bytes=2 * batch_bytes(node), pieces=4,
    )  # fmt: skip
    assert [each.end_offset for each in found] == [2, 3]
    assert read_pieces(
        node.storage, segment, start=start, offset=5, upto_offset=3, piece_bytes=1, pieces=4
    ) == [Batches(b"", 5, 5 * batch_bytes(node))]


def _ignore(_result: object, _now_ms: int) -> Effects:
    return []


def test_leaving_what_is_not_read_changes_nothing() -> None:
    node = distant()
    fetch(node, 0)
    [key] = [RangeKey(node.segments()[0].segment_id, 1, BATCHES)]
    node.tier.reader.ahead.leave(key, _ignore)
    assert not node.tier.reader.ahead.join(key, _ignore, 1)
