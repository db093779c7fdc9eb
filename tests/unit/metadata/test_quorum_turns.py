"""What a follower makes of a long change takes its turns, and others have theirs."""

from collections.abc import Iterator
from typing import Any

import pytest
from immutables import Map

from firnline.base.errors import Code, ConfigError
from firnline.metadata import partition_counts
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Replay
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from firnline.metadata.loader import RECORDS_PER_STEP
from firnline.metadata.partition_counts import PartitionCounts, PartitionIndex
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k52_vote import VoteRequest
from firnline.protocol.schema import Message
from firnline.raft import wire
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from tests.unit.metadata.test_quorum import setting, started
from tests.unit.metadata.test_quorum_roles import LOAD, Node, long_log
from tests.worlds.effects import kept
from tests.worlds.quorum import Loop, MemoryLog, RecordingObserver, make_quorum


def test_a_long_change_is_reported_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last records and all that follows from it in the node were one step of 14 ms."""
    node = Node()
    applied = 0
    apply = Replay.apply

    def counted(replay: Replay, record: Message) -> None:
        nonlocal applied
        applied += 1
        apply(replay, record)

    monkeypatch.setattr(Replay, "apply", counted)
    long_log(node, 1, each=RECORDS_PER_STEP // 2)
    node.commit()
    turns = [(applied, len(node.deltas))]
    while LOAD in node.loop.timers:
        applied, received = 0, len(node.deltas)
        node.loop.fire(LOAD)
        turns.append((applied, len(node.deltas) - received))
    assert node.value("t7") == "0"
    assert all(records <= RECORDS_PER_STEP for records, _ in turns)
    assert all(not records for records, reported in turns if reported)


def test_a_node_says_that_it_loads_for_as_long_as_it_does() -> None:
    """Its metrics are not counted anew with each turn of a load, and are once it is over."""
    node = Node()
    long_log(node, 1)
    node.commit()
    assert LOAD in node.loop.timers
    assert node.quorum.is_loading
    while LOAD in node.loop.timers:
        node.loop.fire(LOAD)
    assert not node.quorum.is_loading


# ------------------------------------------------------------------------------------ a sole voter


BATCHES = 6


@pytest.fixture
def long() -> MemoryLog:
    """The log of a sole voter, of several slices."""
    log = MemoryLog()
    quorum, loop = started(log)
    for number in range(BATCHES):
        content = [setting(str(number), f"t{number}-{n}") for n in range(RECORDS_PER_STEP)]
        loop.run(quorum.write(ControllerResult(content, ""), kept([]), 1))
    loop.sync()
    return log


class Starting:
    """A sole voter that starts with a log, and what it publishes."""

    def __init__(self, log: MemoryLog) -> None:
        self.log, self.loop = log, Loop()
        reported = RecordingObserver()
        self.quorum: MetadataQuorum = make_quorum(log, observer=reported)
        self.deltas: list[ClusterDelta] = []
        reported.publishers.append(lambda delta, image, now_ms: self.deltas.append(delta) or [])
        self.loop.run(self.quorum.start(self.loop.now_ms))

    def settle(self) -> int:
        turns = 0
        while LOAD in self.loop.timers:
            self.loop.fire(LOAD)
            turns += 1
        return turns


def test_a_sole_voter_loads_a_long_log_in_slices(
    long: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 partitions were a step of 75 ms. Method: count the records of each turn."""
    applied = 0
    apply = Replay.apply

    def counted(replay: Replay, record: Message) -> None:
        nonlocal applied
        applied += 1
        apply(replay, record)

    monkeypatch.setattr(Replay, "apply", counted)
    batches, saved = list(long.batches), list(long.saved)
    node = Starting(long)
    turns = [applied]
    while LOAD in node.loop.timers:
        assert node.quorum.is_loading
        assert (long.batches, long.saved) == (batches, saved), (
            "it takes no part before it is loaded"
        )
        assert node.deltas == []
        applied = 0
        node.loop.fire(LOAD)
        turns.append(applied)
    assert max(turns) < 2 * RECORDS_PER_STEP
    assert not node.quorum.is_loading
    assert len(turns) > BATCHES
    # Nor is all of it compared in one step at the end.
    monkeypatch.delattr("firnline.metadata.quorum.difference")
    node.loop.sync()
    (delta,) = node.deltas
    assert len(delta.configs) == BATCHES * RECORDS_PER_STEP
    assert delta.after.offset == long.end_offset - 1
    assert node.quorum.is_active


def test_a_short_log_is_loaded_before_the_start_is_over() -> None:
    log = MemoryLog()
    started(log)
    assert LOAD not in Starting(log).loop.timers


def test_a_node_that_has_not_read_its_votes_yet_promises_nothing(long: MemoryLog) -> None:
    """Goal: no epoch and no vote beside those that it saved. Method: everything is asked of it meanwhile."""
    node = Starting(long)
    saved = list(long.saved)
    for kind in wire.RESPONSES:
        answers: list[Any] = []
        request = VoteRequest(cluster_id=None) if kind is VoteRequest else kind()
        node.quorum.raft.on_request(request, answers.append, node.loop.now_ms)  # type: ignore[arg-type]
        assert [each.error_code for each in answers] == [Code.BROKER_NOT_AVAILABLE]
    assert long.saved == saved
    node.settle()
    node.loop.sync()
    assert node.quorum.is_active


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_sole_voter_that_is_stopped_while_it_loads_never_leads(
    long: MemoryLog, *, is_closed: bool
) -> None:
    batches, saved = list(long.batches), list(long.saved)
    node = Starting(long)
    timer = node.loop.timers[LOAD]
    node.loop.run(node.quorum.stop(node.loop.now_ms))
    assert node.quorum.raft.is_stopped
    if is_closed:
        node.quorum.close()
    node.loop.timers[LOAD] = timer  # it may fire all the same
    node.settle()
    node.loop.sync()
    assert (long.batches, long.saved, node.deltas) == (batches, saved, [])
    assert not node.quorum.is_active


def test_features_at_the_end_of_a_long_log_are_refused_before_anything_is_written(
    long: MemoryLog,
) -> None:
    """I33, also where it is found out in a later turn."""
    quorum, loop = started(long)
    while LOAD in loop.timers:
        loop.fire(LOAD)
    loop.sync()
    group = r.FeatureLevelRecord(name="group.version", feature_level=1)
    quorum.raft.propose([r.encode(group, 0)], epoch=quorum.epoch, now_ms=1)
    batches, saved = list(long.batches), list(long.saved)
    node = Starting(long)
    with pytest.raises(ConfigError, match=r"group\.version 1.*downgrade"):
        node.settle()
    assert (long.batches, long.saved) == (batches, saved)


def test_a_transaction_that_was_left_open_at_the_end_of_a_long_log_is_aborted(
    long: MemoryLog,
) -> None:
    quorum, loop = started(long)
    while LOAD in loop.timers:
        loop.fire(LOAD)
    loop.sync()
    values = [r.BeginTransactionRecord(), setting("lost", "t0-0")]
    quorum.raft.propose([r.encode(each, 0) for each in values], epoch=quorum.epoch, now_ms=1)
    node = Starting(long)
    node.settle()
    node.loop.sync()
    assert node.quorum.is_active
    assert node.quorum.image.topic_config_overrides("t0-0")["retention.ms"] == "0"
    assert node.quorum.image.offset == long.end_offset - 1


# ------------------------------------------------------------------------------------ large topics


def image_of(partitions: int) -> ClusterImage:
    """One topic of so many partitions, and one of none."""
    state = PartitionImage((1, 2), (bytes(16),) * 2, (1,), 1, 0, 0)
    topics = [
        TopicImage("large.t", b"l" * 16, Map(dict.fromkeys(range(partitions), state))),
        TopicImage("empty.t", b"e" * 16, Map()),
    ]
    return EMPTY_IMAGE._replace(
        topics_by_id=Map({t.topic_id: t for t in topics}),
        topics_by_name=Map({t.name: t for t in topics}),
    )


def steps_of(steps: Iterator[None]) -> tuple[int, Any]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_the_partitions_of_a_large_topic_are_counted_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One topic may have 10,000, which were 9 ms in one step."""
    monkeypatch.setattr(partition_counts, "_COUNTED_PER_STEP", 10)
    image = image_of(100)
    steps, counted = steps_of(PartitionCounts().recount(image))
    assert steps >= 10
    assert (counted.partitions, counted.imbalanced) == (100, 0)
    steps, index = steps_of(PartitionIndex.of(image))
    assert steps >= 10
    assert list(index.topics_of(2)) == [b"l" * 16]
    assert index.leads_any(1)
    assert not index.leads_any(2)
    assert set(index.metric_names.values()) == {"large.t", "empty.t"}


def test_a_large_change_is_encoded_before_its_turn_and_written_as_it_was_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One topic of 10,000 partitions was 13 ms in the step that writes it. Method: nothing may be left."""
    log = MemoryLog()
    quorum, loop = started(log)
    content = [setting(str(n), f"t{n}") for n in range(1_000)]
    steps, result = steps_of(quorum.prepare(ControllerResult(content, "")))
    assert steps >= 6

    def refuse(*args: object) -> bytes:
        raise AssertionError

    for place in ("raft.leader.encode_values", "metadata.quorum.encode_values"):
        monkeypatch.setattr(f"firnline.{place}", refuse)
    loop.run(quorum.write(result, kept([]), 7))
    rows = [NewRecord(None, r.encode(each, 0), 7) for each in content]
    (header,) = headers(log.batches[-1])
    expected = build_batch(rows, base_offset=header.base_offset, leader_epoch=quorum.epoch)
    assert log.batches[-1] == bytes(expected)
