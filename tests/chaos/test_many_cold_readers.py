"""F17: very many readers of what only the tier has: bounded memory, and readers of the tail are not slowed.

A real broker, a real S3 server, 50 ms a request. What bounds the memory: `remote.log.reader.threads` threads
read records, each one range, from which it cuts batches; a read that waits for a thread holds nothing; what
came too late is kept up to KEPT_BYTES; the rest is in responses, or reserved for them, and
`firnline.answers.max.bytes` limits both. `firnline.remote.read.ahead.max.bytes` limits what is read ahead.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import pytest

from firnline.base.units import KIB, MIB
from firnline.client.connection import Connection
from firnline.client.wire import encode_request
from firnline.tiered.objects.batches import SLACK_BYTES
from firnline.tiered.reads.shared_reads import KEPT_BYTES
from tests.chaos.cold_readers import (
    AHEAD_BYTES,
    ANSWERS_BYTES,
    FETCH_BYTES,
    PENDING_MAX,
    READERS,
    SEGMENT_BYTES,
    Cold,
    ColdReaders,
    ask,
    cold_broker,
    fetch,
    value_of,
)
from tests.chaos.workload import PATIENCE_S
from tests.peers.nodes import eventually
from tests.peers.servers import Server

pytestmark = pytest.mark.peer
FEW, MANY = 10, 100
ROUNDS, TAIL_READS = 3, 50
# What the allocator keeps of what it had, and connections, requests and tasks of a hundred clients.
BESIDES_BYTES = 32 * MIB
# The median, compared with no reader of old records; the slowest tenth, compared with few of them: with any
# the processors of a small machine are all busy, and what is slowest follows that. The slowest of all is left
# out: other tests run beside this one, and let any process wait for its turn.
SLOWER_MOST, SLOWEST_MOST = 5, 10
STORE_MS = 50
# Whatever the ratio, this is no wait for the store: one request takes STORE_MS, and a read that waited as the
# old ones do would stand behind PENDING_MAX others, for PENDING_MAX / READERS requests. A
# quarter of the first was too little beside other tests.
BUSY_MS = STORE_MS
QUEUED_MS = STORE_MS * PENDING_MAX / READERS
WHO_DO_NOT_READ = 80


@pytest.fixture(scope="module")
def cold(
    tmp_path_factory: pytest.TempPathFactory, start_store: Callable[[str], Server]
) -> Iterator[Cold]:
    with cold_broker(
        tmp_path_factory.mktemp("cold"), start_store("s3"), latency_ms=STORE_MS
    ) as found:
        yield found


def most_bytes(fetch_bytes: int) -> int:
    """Return how much more memory than before any number of readers may cost, by the settings."""
    of_threads = READERS * 2 * (fetch_bytes + SLACK_BYTES)
    return KEPT_BYTES + AHEAD_BYTES + of_threads + ANSWERS_BYTES + fetch_bytes + BESIDES_BYTES


def slowest(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 9 // 10]


def test_a_hundred_readers_of_old_records_cost_bounded_memory_and_do_not_slow_the_tail(
    cold: Cold, capsys: pytest.CaptureFixture[str]
) -> None:
    times: dict[int, list[list[float]]] = {0: [], FEW: [], MANY: []}
    grown: dict[int, list[int]] = {FEW: [], MANY: []}
    codes: dict[str, int] = {}
    with Connection(*cold.address, timeout_s=PATIENCE_S) as tail:
        cold.tail(tail)
        base_bytes = cold.memory_bytes()
        for _ in range(ROUNDS):
            times[0].append(tail_times(cold, tail))
            for count in (FEW, MANY):
                cold.forget_most()
                with ColdReaders(cold.broker, count, cold.records) as readers:
                    times[count].append(tail_times(cold, tail))
                outcome = readers.outcome
                assert outcome.wrong == []
                assert min(outcome.reads) > 0
                grown[count].append(cold.memory_bytes(most=True) - base_bytes)
                for name, of_it in outcome.codes.items():
                    codes[name] = codes.get(name, 0) + of_it
    medians = {count: median(map(median, each)) for count, each in times.items()}
    tenths = {count: median(map(slowest, each)) for count, each in times.items()}
    with capsys.disabled():
        print(f"\ntail, ms: median {rounded(medians)}, p90 {rounded(tenths)}; answers: {codes}")
        may_be = most_bytes(FETCH_BYTES) // MIB
        print(f"memory, MiB more than {base_bytes // MIB}: {in_mib(grown)}, may be {may_be}")
    assert max(grown[MANY]) < most_bytes(FETCH_BYTES)
    assert codes["OFFSET_NOT_AVAILABLE"] > 0, "no more reads waited than may"
    assert codes.get("KAFKA_STORAGE_ERROR", 0) < codes["NONE"], "most reads take too long"
    assert medians[MANY] < max(SLOWER_MOST * medians[0], BUSY_MS)
    assert tenths[MANY] < max(SLOWEST_MOST * tenths[FEW], QUEUED_MS / 2)


def tail_times(cold: Cold, tail: Connection) -> list[float]:
    """Read the last record again and again; return how long each took."""
    times = []
    for _ in range(TAIL_READS):
        times.append(cold.tail(tail))
        time.sleep(0.01)
    return times


def rounded(values: dict[int, float]) -> dict[int, float]:
    return {count: round(value, 1) for count, value in values.items()}


def in_mib(values: dict[int, list[int]]) -> dict[int, list[int]]:
    return {count: [size // MIB for size in sizes] for count, sizes in values.items()}


def test_readers_of_old_records_that_do_not_take_them_hold_a_bound(
    cold: Cold, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each asks for a whole segment. At the bound they are closed, and others get what they ask for."""
    cold.proxy.latency_ms = 0
    silent: list[socket.socket] = []
    with Connection(*cold.address, timeout_s=PATIENCE_S) as other:
        cold.tail(other)
        base_bytes = cold.memory_bytes()
        cold.forget_most()
        for number in range(WHO_DO_NOT_READ):
            silent.append(who_does_not_read(cold, cold.records * number // WHO_DO_NOT_READ))
            cold.tail(other)
        grown = cold.memory_bytes(most=True) - base_bytes
        with capsys.disabled():
            print(
                f"\nmemory of {WHO_DO_NOT_READ} that do not read: {grown // MIB} MiB, may be"
                f" {most_bytes(SEGMENT_BYTES) // MIB}"
            )
        assert grown < most_bytes(SEGMENT_BYTES)

        def is_served() -> bool:
            code, found = ask(other, fetch(1))
            assert code == 0
            return [(r.offset, bytes(r.value)) for r in found[:1]] == [(1, value_of(1))]

        eventually("a reader that reads is served", is_served, within_s=PATIENCE_S)
    said = "it does not read its response"
    eventually("it says why", lambda: said in cold.broker.log_text())
    for each in silent:
        each.close()


def who_does_not_read(cold: Cold, offset: int) -> socket.socket:
    """Ask for many old records; return the connection when the answer has begun, or would be the next."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    found.connect(cold.address)
    request = fetch(offset, SEGMENT_BYTES)
    request.max_wait_ms = 100
    found.settimeout(PATIENCE_S)
    found.sendall(encode_request(request, version=12, correlation_id=1, client_id="silent"))
    found.recv(1, socket.MSG_PEEK)
    return found
