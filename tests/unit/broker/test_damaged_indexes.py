"""An index that a reader finds damaged is built again: nobody else waits, and nobody gets other records."""

from typing import Any

import pytest

from firnline.base.errors import Code, StorageError
from firnline.broker.coordination import batches_of
from firnline.formats import names
from firnline.log.log import Log
from firnline.log.segment import Segment
from firnline.log.sparse_index import IndexDamaged
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from tests.worlds.harness import DATA, START_MS, Harness, batch

COUNT = 1000  # batches of the damaged segment: five slices
PATH = f"{DATA}/t-0/{names.stem(0)}"
AGAIN = Code.REPLICA_NOT_AVAILABLE


def value(number: int) -> str:
    return f"{number:040d}"


def node(**configs: Any) -> Harness:
    """A node with a segment of `COUNT` batches, closed, and another one."""
    harness = Harness(log_cleaner_enable="false")
    harness.create_topic(index_interval_bytes="100", **configs)
    log = log_of(harness)
    for number in range(COUNT):
        log.append_as_leader(
            batch(value(number), time_ms=START_MS + number), leader_epoch=0, now_ms=START_MS
        )
    log.roll(START_MS)
    harness.produced("tail")
    return harness


def log_of(harness: Harness) -> Log:
    return harness.node.hosted.by_name["t", 0].log


def segment_of(harness: Harness, number: int = 0) -> Segment:
    return log_of(harness)._segments.all()[number]


def index_files(harness: Harness) -> list[bytes]:
    files = [harness.fs.open(PATH + suffix) for suffix in (names.INDEX, names.TIME_INDEX)]
    return [file.read(0, file.size()) for file in files]


def damage(harness: Harness, suffix: str = names.INDEX) -> None:
    """Take an index of the closed segment away, as an operator, a disk or a restore does."""
    harness.fs.remove(PATH + suffix)
    segment = segment_of(harness)
    segment.release()
    segment._max_time_ms = -2


def slice_once(harness: Harness) -> None:
    """Let one slice of the building be done."""
    key = ("indexes", "background")
    if key not in harness.timers:
        key = ("indexes", "look")
    timer = harness.timers.pop(key)
    harness.run(timer.then(timer.at_ms))


def code_of(harness: Harness, offset: int = 500) -> int:
    """What a consumer is told that does not wait."""
    return int(harness.fetched(offset, max_wait_ms=0).error_code)


def test_a_reader_shall_try_again_and_then_has_the_same_records() -> None:
    harness = node()
    sound, files = harness.values(500), index_files(harness)
    assert len(sound) == COUNT - 500 + 1
    damage(harness)
    assert code_of(harness) == AGAIN
    assert harness.values(COUNT) == ["tail"], "the other segments are served"
    harness.pass_time(1000)
    assert harness.values(500) == sound
    assert index_files(harness) == files
    assert [line for line in harness.warnings if PATH in line and "it was rebuilt" in line]


def test_no_step_of_the_loop_checks_more_than_some_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = node()
    damage(harness)
    looked: list[int] = []
    real = Segment.note
    monkeypatch.setattr(Segment, "note", lambda *args: looked.append(1) or real(*args))  # type: ignore[func-returns-value]
    sizes = []
    for ask in [lambda: code_of(harness), *[lambda: slice_once(harness)] * 10]:
        before = len(looked)
        ask()  # type: ignore[no-untyped-call]
        sizes.append(len(looked) - before)
    assert sizes[0] == 0
    assert sum(sizes) == COUNT
    assert max(sizes) <= COUNT // 4
    assert code_of(harness) == 0


def test_a_consumer_that_waits_is_answered_when_the_index_is_built() -> None:
    """And not asked to come again some hundred times a second."""
    harness = node()
    damage(harness)
    waiting = harness.fetch(500, max_wait_ms=5000, min_bytes=1)
    assert waiting.answers == []
    harness.pass_time(1000)
    [answer] = waiting.answers
    [found] = answer.responses[0].partitions
    assert (found.error_code, bool(found.records)) == (0, True)


@pytest.mark.parametrize("timestamp", [START_MS + 500, -3])
@pytest.mark.parametrize("suffix", [names.INDEX, names.TIME_INDEX])
def test_a_lookup_by_time_shall_try_again_and_finds_the_same(timestamp: int, suffix: str) -> None:
    harness = node()
    sound = harness.offset(timestamp)
    damage(harness, suffix)
    if timestamp < 0 and suffix == names.INDEX:
        segment_of(harness)._max_time_ms = START_MS + 10**6  # so that it is looked into
    assert harness.offset(timestamp) == (AGAIN, -1)
    harness.pass_time(1000)
    assert harness.offset(timestamp) == sound


def test_retention_waits_for_a_time_index_and_then_deletes_what_it_would_have() -> None:
    harness = node(retention_ms=str(10**7))
    damage(harness, names.TIME_INDEX)
    log = log_of(harness)
    with pytest.raises(StorageError) as found:
        log.delete_due_segments(START_MS + 2 * 10**7)
    assert found.value.is_passing, "no directory fails of it"
    assert log.log_start_offset == 0
    harness.pass_time(1000)
    log.delete_due_segments(START_MS + 2 * 10**7)
    assert log.log_start_offset >= COUNT


def test_a_tier_waits_for_a_time_index_and_then_learns_what_it_would_have() -> None:
    harness = node()
    local = log_of(harness).closed_segments()[0]
    sound = local.largest_time_ms()
    damage(harness, names.TIME_INDEX)
    for _ in range(2):
        with pytest.raises(IndexDamaged):
            local.largest_time_ms()
    harness.pass_time(1000)
    assert local.largest_time_ms() == sound == START_MS + COUNT - 1
    assert log_of(harness).closed_segments()[0] == local, "and it is the same segment"


def test_a_segment_whose_age_nobody_knows_is_not_compacted_before_its_index_is_built() -> None:
    harness = node(min_compaction_lag_ms="1000")
    log, later_ms = log_of(harness), START_MS + 10**6
    log.advance_high_watermark(log.log_end_offset)
    log.sync_now()
    sound = log.compaction.log_to_clean(later_ms)
    assert sound.upto_offset == COUNT
    damage(harness, names.TIME_INDEX)
    assert log.compaction.log_to_clean(later_ms).upto_offset == 0
    harness.pass_time(1000)
    assert log.compaction.log_to_clean(later_ms) == sound


def loading(harness: Harness) -> list[tuple[bytes, int]]:
    """What a load of groups reads of the log, slice by slice, and how many batches each was that it looked at
    for an index."""
    looked: list[int] = []
    real = Segment.note
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "note", lambda *args: looked.append(1) or real(*args))  # type: ignore[func-returns-value]
        slices = []
        for data in batches_of(harness.node.hosted.by_name["t", 0]):
            slices.append((data, len(looked)))
            looked.clear()
    return slices


def test_groups_are_loaded_from_a_segment_whose_index_is_built_meanwhile() -> None:
    """It was built in the step that began the load."""
    harness = node()
    sound = b"".join(data for data, _ in loading(harness))
    damage(harness)
    slices = loading(harness)
    assert b"".join(data for data, _ in slices) == sound
    assert sum(count for _, count in slices) == COUNT
    assert max(count for _, count in slices) <= COUNT // 4
    checks: list[int] = []
    real = Segment.rebuild_steps
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "rebuild_steps", lambda s: checks.append(1) or real(s))  # type: ignore[func-returns-value]
        harness.pass_time(1000)
    assert not checks, "nobody builds it twice"
    assert harness.node.hosted.rebuilds._wanted == {}


def test_groups_are_loaded_where_compaction_takes_away_the_segment_whose_index_is_built() -> None:
    """They had no coordinator until the next try."""
    harness = node()
    sound = b"".join(data for data, _ in loading(harness))
    damage(harness)
    batches = batches_of(harness.node.hosted.by_name["t", 0])
    assert next(batches) == b""
    old = segment_of(harness)
    new = Segment.load(harness.fs, f"{DATA}/t-0", 0, rules=old.rules, now_ms=START_MS)
    log_of(harness)._segments.replace_run([0], new)
    assert b"".join(batches) == sound


def test_groups_are_not_loaded_from_a_segment_whose_index_cannot_be_built() -> None:
    harness = node()
    damage(harness)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "rebuild_steps", lambda segment: iter(()))
        with pytest.raises(IndexDamaged):
            loading(harness)


def test_what_is_appended_to_a_segment_while_its_index_is_built_is_in_it() -> None:
    harness = node()
    log, active = log_of(harness), segment_of(harness, -1)
    for number in range(COUNT):
        log.append_as_leader(batch(value(number)), leader_epoch=0, now_ms=START_MS)
    harness.node.hosted.by_name["t", 0].log.advance_high_watermark(log.log_end_offset)
    noted, sound = active.index, active.index.entries()
    offset = log.log_end_offset - 1
    sound_values = harness.values(offset)
    active._hints.clear()
    active.index._values[-1] -= 1  # what memory that went bad says
    assert code_of(harness, offset) == AGAIN
    slice_once(harness)
    slice_once(harness)
    for _ in range(50):
        log.append_as_leader(batch("more"), leader_epoch=0, now_ms=START_MS)
    log.advance_high_watermark(log.log_end_offset)
    unindexed_bytes = active._unindexed_bytes
    while ("indexes", "background") in harness.timers:
        slice_once(harness)
    assert active.index is not noted
    assert active.index.entries() == sound + noted.entries()[len(sound) :]
    assert len(active.index) > len(sound)
    assert active._unindexed_bytes == unindexed_bytes
    assert harness.values(offset) == [*sound_values, *["more"] * 50]
    log.append_as_leader(batch("last"), leader_epoch=0, now_ms=START_MS)
    log.advance_high_watermark(log.log_end_offset)
    assert harness.values(offset)[-1] == "last"


def _expired(harness: Harness) -> None:
    log = log_of(harness)
    log.advance_log_start(COUNT)
    harness.run(log.delete_due_segments(harness.now_ms))


def _deleted(harness: Harness) -> None:
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)


def _compacted_away(harness: Harness) -> None:
    """Another segment has its place, and its names."""
    log, old = log_of(harness), segment_of(harness)
    new = Segment.load(
        log._fs, log.path, 0, rules=old.rules, now_ms=START_MS, size_bytes=old.size_bytes
    )
    assert log._segments.replace_run([0], new) == [old]


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("change", [_expired, _deleted, _compacted_away])
def test_no_index_is_made_for_a_segment_that_goes_while_it_is_built(
    change: Any, is_begun: bool
) -> None:
    """Its names may be another one's by then, or nobody's."""
    harness = node()
    damage(harness)
    assert code_of(harness) == AGAIN
    for _ in range(3 if is_begun else 0):
        slice_once(harness)
    assert bool(harness.node.hosted.rebuilds._is_building) == is_begun
    change(harness)
    before = harness.fs.exists(PATH + names.INDEX)
    for _ in range(1 if is_begun else 3):
        slice_once(harness)
    assert not harness.node.hosted.rebuilds._is_building, "and no batch is looked at in vain"
    assert harness.fs.exists(PATH + names.INDEX) == before
    assert not harness.node.hosted.rebuilds._wanted
    assert not [line for line in harness.warnings if PATH in line], "nothing of it has failed"


def test_a_log_that_loses_its_end_while_an_index_is_built_has_no_entry_beyond_it() -> None:
    harness = node()
    log = log_of(harness)
    damage(harness)
    assert code_of(harness) == AGAIN
    for _ in range(6):  # all batches were looked at
        slice_once(harness)
    log.truncate_to(10)
    sound = segment_of(harness).index.entries()
    while ("indexes", "background") in harness.timers:
        slice_once(harness)
    assert segment_of(harness).index.entries() == sound
    assert log.log_end_offset == 10
    assert harness.values(5) == [value(number) for number in range(5, 10)]


def test_a_stop_waits_for_no_index_and_leaves_no_file_open() -> None:
    harness = node()
    damage(harness)
    assert code_of(harness) == AGAIN
    slice_once(harness)
    slice_once(harness)
    again = Harness(harness.stop())
    assert not again.fs.exists(PATH + names.INDEX)
    assert again.fetched(500, max_wait_ms=0).error_code == AGAIN
    again.pass_time(1000)
    assert again.values(500)[0] == value(500)


def test_nobody_waits_for_an_index_that_cannot_be_built() -> None:
    """Who asks hears of it, again and again, and once it can be built is served."""
    harness = node()
    sound = harness.values(500)
    damage(harness)
    file = harness.fs.open(PATH + names.LOG)
    data = file.read(0, file.size())
    file.truncate(0)
    file.append(data[: len(data) // 2] + bytes(8) + data[len(data) // 2 + 8 :])
    assert code_of(harness) == AGAIN
    harness.pass_time(1000)
    assert code_of(harness) == Code.KAFKA_STORAGE_ERROR
    assert harness.fetch(500, max_wait_ms=5000).answers[0].responses[0].partitions[0].error_code
    assert [line for line in harness.warnings if "the rebuild failed" in line]
    assert harness.values(COUNT) == ["tail"]
    file.truncate(0)
    file.append(data)
    harness.pass_time(20_000)
    assert code_of(harness) == AGAIN
    harness.pass_time(1000)
    assert harness.values(500) == sound


def test_logs_that_nobody_waits_for_have_their_indexes_built_at_once() -> None:
    """A group's coordinator, and the quorum, take a read that fails for a disk that did."""
    harness = node()
    sound = harness.values(500)
    damage(harness)
    log = log_of(harness)
    assert log.read_batches(500, max_bytes=1 << 20)
    assert harness.values(500) == sound
