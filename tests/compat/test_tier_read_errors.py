"""What a consumer is told when a record that only the tier has cannot be read: one code for each cause (T59).

Each row of the table in docs/formats/tier.md, on the wire, with real brokers and a real S3 server. `ask`
asserts that each answer comes within `remote.fetch.max.wait.ms` and two seconds. OFFSET_OUT_OF_RANGE makes
consumers skip records, so it is the answer only if the record has expired.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from firnline.base.errors import Code
from firnline.tiered.objects.layout import LOG, OFFSET_INDEX, TIME_INDEX
from tests.compat.cold_topic import (
    KEEPER,
    LATEST_S,
    LEADER,
    PATIENCE_S,
    PENDING_MAX,
    PER_SEGMENT,
    READERS,
    WAIT_S,
    ColdTopic,
    Segment,
    cold_topic,
    reads_from_the_beginning,
    write,
)
from tests.compat.tier_scenario import LATEST, Play
from tests.peers.nodes import eventually
from tests.peers.servers import Server
from tests.peers.store_proxy import Fault

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, start_store: Callable[[str], Server]
) -> Iterator[ColdTopic]:
    with cold_topic(tmp_path_factory.mktemp("cold"), start_store("s3")) as topic:
        yield topic


@pytest.fixture
def topic(shared: ColdTopic) -> Iterator[ColdTopic]:
    """The topic; afterwards the store works again, and the broker has noticed."""
    yield shared
    for fault in FAULTS:
        shared.proxy.remove(fault)
    shared.proxy.start()
    shared.await_records(shared.whole)


FAULTS = ("fault", "all")


def expect(answer_code: int, code: Code) -> None:
    assert Code(answer_code) == code


# --------------------------------------------------------------------------- the store fails


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=503), id="503"),
        pytest.param(Fault(status=500), id="500"),
        pytest.param(Fault(status=403, code="AccessDenied"), id="the credentials are refused"),
        pytest.param(Fault(resets="before"), id="the connection breaks"),
        pytest.param(Fault(cut_bytes=20), id="the connection breaks in the middle of the records"),
    ],
)
def test_a_store_that_answers_with_an_error_is_a_storage_error(
    topic: ColdTopic, fault: Fault
) -> None:
    segment = topic.take()
    fault.key = f"{segment.stem}{LOG}"
    topic.proxy.add("fault", fault)
    answer = topic.ask(segment.base)
    if (
        answer.code == Code.NONE and not answer.offsets
    ):  # a busy machine: the Fetch did not wait for so long
        answer = topic.ask(segment.base)
    assert fault.met, "nothing was tried"
    expect(answer.code, Code.KAFKA_STORAGE_ERROR)
    topic.proxy.remove("fault")
    topic.await_records(segment)


def test_a_store_that_refuses_connections_is_a_storage_error(topic: ColdTopic) -> None:
    segment = topic.take()
    topic.proxy.stop()
    expect(topic.ask(segment.base).code, Code.KAFKA_STORAGE_ERROR)
    topic.proxy.start()
    topic.await_records(segment)


def test_a_store_that_has_failed_several_times_is_not_asked_and_the_answer_comes_at_once(
    topic: ColdTopic,
) -> None:
    segment = topic.take()
    fault = topic.proxy.add("fault", Fault(key=segment.stem, status=503))
    topic.proxy.add("all", Fault(status=503))

    def is_known() -> bool:
        expect(topic.ask(segment.base).code, Code.KAFKA_STORAGE_ERROR)
        return "read" in topic.failing_operations()

    eventually("the broker knows that the store fails", is_known, within_s=PATIENCE_S)
    before, took_s = fault.met, []
    for _ in range(3):
        answer = topic.ask(segment.base)
        expect(answer.code, Code.KAFKA_STORAGE_ERROR)
        took_s.append(answer.took_s)
    assert min(took_s) < WAIT_S / 2, "none is answered at once"
    assert fault.met == before
    topic.proxy.remove("fault")
    topic.proxy.remove("all")
    topic.await_records(segment)


# --------------------------------------------------------------------------- the store is slow


@pytest.mark.parametrize("suffix", [LOG, OFFSET_INDEX])
def test_a_store_that_hangs_is_one_answer_without_records_and_then_a_storage_error(
    topic: ColdTopic, suffix: str
) -> None:
    """The first answer is as Kafka's, which has what there is after that wait; Kafka's later ones, too."""
    segment = topic.take()
    fault = topic.proxy.add("fault", Fault(key=f"{segment.stem}{suffix}", hangs=True))
    began = time.monotonic()
    answer = topic.ask(segment.base)
    assert (answer.code, answer.offsets) == (0, ())
    assert answer.took_s >= WAIT_S
    expect(topic.ask(segment.base).code, Code.KAFKA_STORAGE_ERROR)
    assert time.monotonic() - began <= LATEST_S + WAIT_S
    for _ in range(2):
        expect(topic.ask(segment.base).code, Code.KAFKA_STORAGE_ERROR)
    assert fault.met == 1, "a Fetch that is repeated joins the read that hangs"
    topic.proxy.remove("fault")
    topic.await_records(segment)


def test_a_read_that_takes_longer_than_any_may_is_a_storage_error_and_too_many_are_retried_later(
    topic: ColdTopic,
) -> None:
    """On node 2, whose store has two seconds for a read, and which has one thread for reads."""
    _, segment = topic.segments(topic.slow)
    topic.await_index(topic.slow, KEEPER, segment)
    topic.proxy.add("fault", Fault(key=f"{segment.stem}{LOG}", hangs=True))
    codes: list[int] = []

    def refuses() -> bool:
        answer = topic.ask(segment.base + 1, play=topic.slow, node=KEEPER)
        assert not answer.offsets
        if answer.code not in codes[-1:]:
            codes.append(answer.code)
        return answer.code == Code.OFFSET_NOT_AVAILABLE

    eventually("too many threads hang", refuses, within_s=PATIENCE_S)
    late = Code.KAFKA_STORAGE_ERROR
    # The second read may begin with an answer without records, or be a storage error from its start on: that
    # depends on whether a Fetch waits in the moment in which the first one ends.
    assert codes in (
        [0, late, Code.OFFSET_NOT_AVAILABLE],
        [0, late, 0, late, Code.OFFSET_NOT_AVAILABLE],
    )
    topic.proxy.remove("fault")
    eventually(
        "the threads are back",
        lambda: topic.ask(segment.base + 1, play=topic.slow, node=KEEPER).offsets,
        within_s=PATIENCE_S,
    )


def test_more_reads_than_may_wait_are_refused_for_now(topic: ColdTopic) -> None:
    segments = [topic.take() for _ in range(READERS + PENDING_MAX + 1)]
    for segment in segments:
        topic.await_index(topic.play, LEADER, segment)
    fault = topic.proxy.add("fault", Fault(method="GET", key=LOG, hangs=True))
    for segment in segments[:READERS]:
        assert topic.ask(segment.base + 1).code == 0
    eventually("each hangs in a thread", lambda: fault.met == READERS, within_s=PATIENCE_S)
    waiting = topic.ask_at_once(*(each.base + 1 for each in segments[READERS:]))
    assert sorted(answer.code for answer in waiting) == [0, Code.OFFSET_NOT_AVAILABLE]
    assert fault.met == READERS
    topic.proxy.remove("fault")
    for segment in segments:
        topic.await_records(segment)


def test_a_fetch_over_the_quota_of_the_tier_is_no_error_and_no_records(topic: ColdTopic) -> None:
    """T38."""
    segment = topic.take()
    topic.limit_reads(bytes_per_second=1)
    eventually(
        "the quota is used up", lambda: not topic.ask(segment.base).offsets, within_s=PATIENCE_S
    )
    answer = topic.ask(segment.base)
    assert (answer.code, answer.offsets) == (0, ())
    topic.limit_reads(bytes_per_second=None)
    topic.await_records(segment)


# --------------------------------------------------------------------------- objects


def test_an_object_that_is_missing_is_an_unknown_error(topic: ColdTopic) -> None:
    segment = topic.take()
    data = topic.store.get(segment.key)
    topic.store.delete_many([segment.key])
    expect(topic.ask(segment.base).code, Code.UNKNOWN_SERVER_ERROR)
    topic.put(segment.key, data)
    topic.await_records(segment)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda data, other: data[:-1] + bytes([data[-1] ^ 1]), id="a flipped bit"),
        pytest.param(lambda data, other: data[:-1], id="cut off"),
        pytest.param(lambda data, other: other, id="the bytes of another segment"),
        pytest.param(lambda data, other: bytes(len(data)), id="zeros"),
        pytest.param(lambda data, other: b"", id="empty"),
    ],
)
def test_an_object_that_is_damaged_is_a_corrupt_message(
    topic: ColdTopic, harm: Callable[[bytes, bytes], bytes]
) -> None:
    segment = topic.take()
    data, other = topic.store.get(segment.key), topic.store.get(topic.whole.key)
    topic.put(segment.key, harm(data, other))
    expect(topic.ask(segment.end - 1).code, Code.CORRUPT_MESSAGE)
    topic.put(segment.key, data)
    topic.await_records(segment)


def test_bytes_that_were_damaged_on_the_way_are_fetched_once_more(topic: ColdTopic) -> None:
    segment = topic.take()
    fault = topic.proxy.add("fault", Fault(key=f"{segment.stem}{LOG}", flips=True, count=1))
    answer = topic.ask(segment.end - 1)
    assert (answer.code, answer.offsets) == (0, (segment.end - 1,))
    assert fault.met == 1


@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("suffix", [OFFSET_INDEX, TIME_INDEX])
def test_an_index_that_is_missing_or_damaged_is_no_error(
    topic: ColdTopic, suffix: str, harm: str
) -> None:
    """T58: it is built from the log."""
    segment = topic.take()
    key = segment.key.removesuffix(LOG) + suffix
    if harm == "missing":
        topic.store.delete_many([key])
    else:
        topic.put(key, b"x" * len(topic.store.get(key)))
    answer = topic.ask(segment.base + 1)
    assert answer.code == 0
    assert answer.offsets[0] == segment.base + 1


# --------------------------------------------------------------------------- offsets and epochs


def test_an_offset_that_is_not_in_the_log_is_out_of_range(topic: ColdTopic) -> None:
    end = topic.play.offset(LATEST)[1]
    for offset in (-1, end + 1):
        expect(topic.ask(offset).code, Code.OFFSET_OUT_OF_RANGE)


def test_an_offset_that_expired_is_out_of_range_even_if_it_was_being_read(
    topic: ColdTopic,
) -> None:
    """The store has no such object any more; that is not what the consumer is told."""
    with contextlib.closing(Play(topic.play.side, "expiring")) as play:
        play.create([LEADER], batches_per_segment=PER_SEGMENT)
        write(play, 3)
        play.expect_local_start(3 * PER_SEGMENT)
        first, second, third = topic.segments(play)
        play.delete_records(first.end)
        expect(topic.ask(first.base, play=play).code, Code.OFFSET_OUT_OF_RANGE)
        topic.set_wait(10 * WAIT_S)
        fault = topic.proxy.add("fault", Fault(key=f"{second.stem}{LOG}", holds=True, method="GET"))
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(topic.ask, second.base, play=play, within_s=10 * WAIT_S + 1)
            eventually("the read has begun", lambda: fault.met, within_s=PATIENCE_S)
            with contextlib.closing(Play(topic.play.side, "expiring")) as other:
                other.delete_records(second.end)
                other.until(
                    "its objects are deleted",
                    lambda: other.stored() == [third.base],
                )
            topic.proxy.remove("fault")
            expect(reading.result().code, Code.OFFSET_OUT_OF_RANGE)
        topic.set_wait(WAIT_S)
        assert topic.ask(third.base, play=play).offsets[0] == third.base


def test_an_epoch_that_is_over_or_unknown_is_refused_before_the_tier_is_read(
    topic: ColdTopic,
) -> None:
    segment = topic.take()
    fault = topic.proxy.add("fault", Fault(key=segment.stem))
    now = topic.play.epoch()
    assert now > 0
    expect(topic.ask(segment.base, current_epoch=now - 1).code, Code.FENCED_LEADER_EPOCH)
    expect(topic.ask(segment.base, current_epoch=now + 1).code, Code.UNKNOWN_LEADER_EPOCH)
    assert not fault.met
    assert topic.ask(segment.base, current_epoch=now).offsets


# --------------------------------------------------------------------------- the tier's metadata


def test_while_the_metadata_is_not_loaded_the_replica_is_not_available(topic: ColdTopic) -> None:
    segment = topic.take()
    topic.play.stop(KEEPER)
    topic.restart_leader()
    topic.await_leader()
    for _ in range(3):
        expect(topic.ask(segment.base).code, Code.REPLICA_NOT_AVAILABLE)
    topic.play.start(KEEPER)
    topic.await_records(segment)


def test_metadata_that_forked_is_read_again_and_what_it_lost_is_a_storage_error(
    topic: ColdTopic,
) -> None:
    """An old disk is put back below the broker that has all of the metadata."""
    known = topic.take()
    with topic.lost_metadata() as lost:
        topic.line.keep_back("again", reads_from_the_beginning)
        topic.play.start(KEEPER)
        topic.line.await_kept("again")
        for segment in (lost, known):
            expect(topic.ask(segment.base).code, Code.REPLICA_NOT_AVAILABLE)
        topic.line.let_go("again")
        assert_lost(topic, lost)
        topic.await_records(known)


def test_metadata_that_is_lost_when_the_leader_starts_is_a_storage_error(topic: ColdTopic) -> None:
    known = topic.take()
    with topic.lost_metadata() as lost:
        topic.restart_leader()
        topic.await_leader()
        topic.play.start(KEEPER)
        assert_lost(topic, lost)
        topic.await_records(known)


def assert_lost(topic: ColdTopic, lost: Segment) -> None:
    """The segment is a storage error, from the moment when the metadata is read; never is it out of range."""
    codes: list[int] = []

    def is_noticed() -> bool:
        codes.extend(topic.ask(lost.base).code for _ in range(20))
        return topic.knows_of_loss()

    eventually("the loss is noticed", is_noticed, within_s=PATIENCE_S)
    expect(topic.ask(lost.base).code, Code.KAFKA_STORAGE_ERROR)
    # The lost records may be the only ones of this time.
    expect(topic.play.offset(topic.play.begun_ms + 1)[0], Code.KAFKA_STORAGE_ERROR)
    assert set(codes) <= {Code.REPLICA_NOT_AVAILABLE, Code.KAFKA_STORAGE_ERROR}
