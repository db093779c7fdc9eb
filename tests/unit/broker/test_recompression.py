"""A topic's compression.type: what comes in another codec is compressed again, and nobody else waits."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.units import KIB
from firnline.broker.produce import Recompression
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, ZSTD
from firnline.replica.partition import Partition
from tests.worlds.decoded import all_records
from tests.worlds.harness import Connection, Harness

SMALL, LARGE = b"v" * 100, bytes(range(256)) * 400
VERSION = 9


@pytest.fixture
def node() -> Harness:
    made = Harness()
    made.create_topic(compression_type="zstd", partitions=3)
    made.create_topic("plain")
    made.holds_work = True
    return made


def of(value: bytes = LARGE, codec: int = NONE, **producer: int) -> bytearray:
    return build_batch([NewRecord(b"k", value, 1_700_000_000_000)], codec=codec, **producer)  # type: ignore[arg-type]


def request(*batches: bytearray, topic: str = "t", acks: int = 1) -> ProduceRequest:
    parts = [PartitionProduceData(index=n, records=data) for n, data in enumerate(batches)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )


def send(node: Harness, *batches: bytearray, acks: int = 1) -> Connection:
    return node.send(request(*batches, acks=acks), VERSION)


def said(connection: Connection) -> list[tuple[int, int]]:
    parts = connection.answers[0].responses[0].partition_responses
    return [(part.error_code, part.base_offset) for part in parts]


def work(node: Harness) -> int:
    """Let threads end, and what waits for them go on; return how often there was something to do."""
    done = 0
    while node.work:
        done += 1
        node.work_once()
        node.pass_time(0)
    return done


def partition_of(node: Harness, index: int = 0, topic: str = "t") -> Partition:
    return node.node.hosted.by_name[topic, index]


def stored(node: Harness, index: int = 0, topic: str = "t") -> list[tuple[int, int, bytes | None]]:
    """(offset, codec, value) of what is stored."""
    log = partition_of(node, index, topic).log
    data = log.read_batches(0, max_bytes=1 << 24)
    codecs = [header.codec for header in headers(data) for _ in range(header.record_count)]
    rows = all_records(data)
    return [(row.offset, codec, row.value) for row, codec in zip(rows, codecs, strict=True)]


def test_a_small_batch_is_compressed_at_once_and_a_large_one_by_a_thread(node: Harness) -> None:
    assert said(send(node, of(SMALL))) == [(0, 0)]
    assert said(send(node, of(SMALL, GZIP))) == [(0, 1)]
    assert not node.work
    waits = send(node, of())
    assert not waits.answers
    assert [submit.pool for submit in node.work] == ["codec"]
    work(node)
    assert said(waits) == [(0, 2)]
    assert stored(node) == [(0, ZSTD, SMALL), (1, ZSTD, SMALL), (2, ZSTD, LARGE)]


def test_what_has_the_codec_of_its_topic_is_stored_as_it_was_sent(node: Harness) -> None:
    sent = of(codec=ZSTD)
    assert said(send(node, sent)) == [(0, 0)]
    plain = of()
    assert said(node.send(request(plain, topic="plain"), VERSION)) == [(0, 0)]
    assert not node.work
    assert partition_of(node).log.read_batches(0, max_bytes=1 << 24)[61:] == sent[61:]
    assert stored(node, 0, "plain") == [(0, NONE, LARGE)]


def test_the_short_way_leaves_alone_what_is_to_be_compressed_again(node: Harness) -> None:
    send(node, of(SMALL))
    for codec, is_taken in ((ZSTD, True), (NONE, False), (GZIP, False)):
        frame = request(of(SMALL, codec)).write(VERSION)
        header = bytes([0, 0, 0, VERSION, 0, 0, 0, 1, 0, 0, 0])
        complete = bytearray((len(header) + len(frame)).to_bytes(4, "big") + header + frame)
        answer = node.dispatcher.at_once(
            Connection(), memoryview(complete), len(complete), node.now_ms
        )
        assert (answer is not None) == is_taken, codec


def test_a_small_bomb_is_opened_by_a_thread(node: Harness) -> None:
    bomb = of(bytes(1 << 20), GZIP)
    assert len(bomb) < 2_000
    waits = send(node, bomb)
    assert not waits.answers
    assert len(node.work) == 1
    work(node)
    assert said(waits) == [(0, 0)]


def test_a_level_that_takes_long_is_for_threads_whatever_the_size() -> None:
    node = Harness()
    node.create_topic(compression_type="zstd", compression_zstd_level="22")
    node.holds_work = True
    assert not send(node, of(SMALL)).answers
    assert len(node.work) == 1


def test_who_waits_for_a_thread_makes_nobody_else_wait(node: Harness) -> None:
    waits = send(node, of())
    assert said(send(node, of(SMALL))) == [(0, 0)]
    assert said(node.send(request(of(), topic="plain"), VERSION)) == [(0, 0)]
    work(node)
    assert said(waits) == [(0, 1)]


def test_its_connection_takes_up_no_other_request_until_it_is_done(node: Harness) -> None:
    """So the batches of a producer keep their order; and its bytes count as long as they are held."""
    connection = Connection()
    frame = bytearray(request(of()).write(VERSION))
    header = bytes([0, 0, 0, VERSION, 0, 0, 0, 1, 0, 0, 0])
    node.run(node.dispatcher.on_frame(connection, memoryview(header + frame), node.now_ms))  # type: ignore[arg-type]
    context = node.dispatcher.sliced_request
    assert context is not None
    ended: list[int] = []
    context.on_end = lambda: ended.append(len(connection.answers))
    node.pass_time(0)
    assert not ended
    work(node)
    assert len(ended) == len(connection.answers) == 1


def test_a_leader_that_resigned_meanwhile_appends_nothing(node: Harness) -> None:
    waits = send(node, of())
    partition = partition_of(node)
    partition.retire()
    work(node)
    assert said(waits) == [(Code.NOT_LEADER_OR_FOLLOWER, -1)]
    assert partition.log.log_end_offset == 0


def test_a_topic_that_was_deleted_meanwhile_is_no_trouble(node: Harness) -> None:
    waits = send(node, of())
    node.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 3)
    work(node)
    [(code, _)] = said(waits)
    assert code in (Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION)


def test_who_wants_no_answer_and_hangs_up_is_served_all_the_same(node: Harness) -> None:
    waits = send(node, of(), acks=0)
    waits.closed = True
    work(node)
    assert stored(node) == [(0, ZSTD, LARGE)]


def test_acks_all_waits_for_the_thread_and_then_for_the_disk(node: Harness) -> None:
    node.holds_flushes = True
    waits = send(node, of(), acks=-1)
    assert not node.flushes
    work(node)
    assert not waits.answers
    node.flush()
    assert said(waits) == [(0, 0)]


def test_acks_nobody_defined_cost_no_work(node: Harness) -> None:
    assert said(send(node, of(), acks=5)) == [(Code.INVALID_REQUIRED_ACKS, -1)]
    assert not node.work


def test_one_bad_batch_of_several_costs_the_others_nothing(node: Harness) -> None:
    harmed = of(codec=LZ4)
    harmed[-5] ^= 1
    waits = send(node, of(), harmed, of(codec=ZSTD))
    assert len(node.work) == 1
    work(node)
    assert said(waits) == [(0, 0), (Code.CORRUPT_MESSAGE, -1), (0, 0)]
    assert [stored(node, index)[0][1:] for index in (0, 2)] == [(ZSTD, LARGE)] * 2


def test_a_request_in_slices_is_compressed_slice_by_slice(node: Harness) -> None:
    """And none of its batches is a view of the receive buffer meanwhile, which the harness takes back."""
    noise = bytes(range(256)) * 3_000
    waits = send(node, of(noise), of(noise), of(noise))
    assert work(node) > 1
    assert said(waits) == [(0, 0)] * 3
    assert all(stored(node, index) == [(0, ZSTD, noise)] for index in range(3))


def test_a_small_request_that_becomes_a_large_one_is_appended_a_mebibyte_at_a_time(
    node: Harness,
) -> None:
    """30 KB of zeros became 27 MB, which one step of the loop wrote; a hundred such, a hundred MB."""
    node.holds_work = False
    node.create_topic("open", compression_type="uncompressed", partitions=30)
    node.holds_work = True
    batches = [of(bytes(900 * KIB), GZIP) for _ in range(30)]
    assert sum(map(len, batches)) < 40_000
    waits = node.send(request(*batches, topic="open"), VERSION)
    before, most = 0, 0
    while node.work:
        node.work_once()
        node.pass_time(0)
        ends = [partition_of(node, n, "open").log.log_end_offset for n in range(30)]
        most, before = max(most, sum(ends) - before), sum(ends)
    assert said(waits) == [(0, 0)] * 30
    assert most <= 2


def test_many_batches_of_one_request_let_others_go_first(node: Harness) -> None:
    node.holds_work = False
    node.create_topic("wide", compression_type="gzip", partitions=40)
    node.holds_work = True
    many = node.send(request(*[of() for _ in range(40)], topic="wide"), VERSION)
    [long] = node.work
    assert long.owner == Connection.peer_host, "addresses take turns"
    one = send(node, of())
    node.work.remove(long)
    node.run(long.then(long.work(), node.now_ms))
    node.pass_time(0)
    assert sum(partition_of(node, n, "wide").log.log_end_offset for n in range(40)) == 8
    assert [submit.owner for submit in node.work] == [Connection.peer_host] * 2
    work(node)
    assert said(one) == [(0, 0)]
    assert said(many) == [(0, 0)] * 40


def test_what_comes_after_batches_that_are_compressed_keeps_its_place(node: Harness) -> None:
    """Some are refused, some have the topic's codec, and more have not than a thread does at a time."""
    harmed = of(codec=LZ4)
    harmed[-5] ^= 1
    kinds = [of(b"%d" % n * 3_000, NONE if n % 3 else ZSTD) for n in range(40)]
    kinds[7] = kinds[20] = harmed
    part = [PartitionProduceData(index=0, records=data) for data in kinds]
    topics = [TopicProduceData(name="t", partition_data=part)]
    asked = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
    waits = node.send(asked, VERSION)
    work(node)
    kept = [n for n in range(40) if n not in (7, 20)]
    assert [code for code, _ in said(waits)] == [
        Code.CORRUPT_MESSAGE if n in (7, 20) else 0 for n in range(40)
    ]
    assert stored(node) == [(place, ZSTD, b"%d" % n * 3_000) for place, n in enumerate(kept)]


def test_too_many_that_wait_shall_send_it_again(node: Harness) -> None:
    waits = send(node, of())
    submit = node.work.pop()
    node.run(submit.then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED), node.now_ms))
    node.pass_time(0)
    assert said(waits) == [(Code.REQUEST_TIMED_OUT, -1)]


def test_a_bug_in_a_thread_is_reported_and_costs_one_connection(node: Harness) -> None:
    send(node, of())
    submit = node.work.pop()
    node.run(submit.then(ZeroDivisionError(), node.now_ms))
    with pytest.raises(ZeroDivisionError):  # the harness raises what the runtime counts
        node.pass_time(0)


def test_sequences_are_asked_when_the_batch_is_appended(node: Harness) -> None:
    """The same batch on a second connection, as after a time-out: it is stored once."""
    ids: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first, again = send(node, of(**ids)), send(node, of(**ids))
    work(node)
    assert said(first) == said(again) == [(0, 0)]
    assert stored(node) == [(0, ZSTD, LARGE)]


def test_what_is_refused_anyway_is_not_opened(node: Harness) -> None:
    partition = partition_of(node)
    transactional = build_batch([NewRecord(b"k", LARGE)], is_transactional=True)
    assert not Recompression([(partition, transactional), (partition, None)], 0)
    assert not Recompression([(partition, bytearray(10))], 0)
    assert Recompression([(partition, of())], 0)
    partition.retire()
    assert not Recompression([(partition, of())], 0)


def test_commits_of_groups_stay_as_the_coordinator_writes_them() -> None:
    node = Harness(compression_type="gzip")
    node.create_topic()
    send(node, of(SMALL))
    assert stored(node)[0][1] == GZIP
    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    log = partition_of(node, 0, "__consumer_offsets").log
    assert log.config.compression_type == "producer"
