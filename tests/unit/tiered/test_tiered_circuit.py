"""A store that is down for hours: requests and records follow what is due, not the time that passes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.base.ports import Buffer
from firnline.base.units import HOUR_MS, MINUTE_MS
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.stores.memory import MemoryStore
from firnline.stores.port import CLUSTER_KEY, ObjectMissing, RemoteStorageError, StoreRefused
from firnline.tiered.circuits import (
    FAILURES_TO_OPEN,
    OPERATIONS,
    StoreCircuits,
)
from firnline.tiered.hosted import Services
from firnline.tiered.objects.binding import binding_text
from firnline.tiered.objects.probe import PROBE_KEY, Operation
from firnline.tiered.objects.storage import CLUSTER_ID, ObjectStorage
from firnline.tiered.reads.reader import RemoteLogReadResult
from firnline.tiered.spi import DamagedObject, DeleteState, SegmentState
from tests.unit.tiered.test_tiered_read import tiered
from tests.worlds.effects import only
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node, topic_config

EVERYTHING = ("get", "put", "delete")
# In an outage, for all partitions: those of the operations that fail before the circuits are open.
RECORDS_MAX = 8
REQUESTS_MAX = 20


class DownStore(MemoryStore):
    """A store whose requests fail while they are `down`, and puts above `room_bytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.down: tuple[str, ...] = ()
        self.room_bytes = 1 << 40
        self.requests: Counter[str] = Counter()
        self.is_owned = True

    def _request(self, what: str, key: str) -> None:
        self.requests[f"probe {what}" if key in (PROBE_KEY, CLUSTER_KEY) else what] += 1
        if what in self.down:
            raise RemoteStorageError("503", key=key)

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        self._request("put", key)
        if size_bytes > self.room_bytes:
            raise RemoteStorageError("the store is full", key=key)
        super().put(key, chunks, size_bytes=size_bytes)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        self._request("get", key)
        return super().get(key, position, size_bytes)

    def delete(self, key: str) -> None:
        self._request("delete", key)
        super().delete(key)

    def works(self) -> int:
        """The number of requests that are not probes."""
        return sum(count for what, count in self.requests.items() if "probe" not in what)

    def probes(self) -> int:
        return self.requests.total() - self.works()


@pytest.fixture
def store() -> DownStore:
    return DownStore()


@pytest.fixture
def cluster(store: DownStore) -> Cluster:
    return Cluster(store=store)


def led(cluster: Cluster, **settings: Any) -> Node:
    """A node that has copied a segment, so its catalog is begun; with the waits of a default node."""
    node = Node(cluster, retry_backoff_ms=500, task_interval_ms=30_000, **settings).start().lead(0)
    node.produce(0, "a", "b")
    node.pass_time(31_000)
    assert set(cluster.known().values()) == {SegmentState.COPY_FINISHED}
    return node


def records(cluster: Cluster) -> int:
    return sum(cluster.ends.values())


def copied(node: Node) -> bool:
    return node.log.highest_remote_offset == node.log.log_end_offset - 1


def is_open(node: Node) -> dict[Operation, bool]:
    found = node.tier.services.circuits.open_ms(node.now_ms)
    return {each: found[each] is not None for each in OPERATIONS}


def opened(node: Node, store: DownStore, *down: str) -> Node:
    """Let a due segment open the circuits."""
    store.down = down or EVERYTHING
    node.produce(0, "c", "d")
    node.pass_time(2 * MINUTE_MS)
    assert is_open(node)["write"]
    return node


def outages(node: Node) -> list[str]:
    """Warnings, without those of local files, which nobody deletes in this world."""
    return [line for line in node.warnings if "beyond local.retention" not in line]


def due(name: str, effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.name.startswith(name)


# ------------------------------------------------------------------------------------------ outages


@pytest.mark.parametrize("is_expiring", [False, True])
def test_an_outage_of_three_hours_costs_what_one_of_one_hour_costs(
    cluster: Cluster, store: DownStore, is_expiring: bool
) -> None:
    limits = {"retention_ms": HOUR_MS // 2} if is_expiring else {}
    node = led(cluster, config=topic_config(**limits))
    before = records(cluster)
    store.requests.clear()
    store.down = EVERYTHING
    node.produce(0, "c", "d")
    node.trace.clear()
    node.pass_time(HOUR_MS)
    after_an_hour = records(cluster), store.works(), node.trace.count("check t-0 at 2")
    assert after_an_hour[0] - before <= RECORDS_MAX
    assert after_an_hour[1] <= REQUESTS_MAX
    assert after_an_hour[2] <= FAILURES_TO_OPEN, "the local segment is not read again and again"
    assert len(outages(node)) == 1
    probes = store.probes()
    node.pass_time(2 * HOUR_MS)
    assert after_an_hour == (
        records(cluster),
        store.works(),
        node.trace.count("check t-0 at 2"),
    )
    assert store.probes() - probes <= 2 * HOUR_MS / 24_000, "one each 30 s, with jitter"
    assert node.log.log_start_offset == (4 if is_expiring else 0), "F33: the limits are applied"

    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    states = list(cluster.known().values())
    assert states == ([] if is_expiring else [SegmentState.COPY_FINISHED] * 2)
    assert is_open(node) == dict.fromkeys(OPERATIONS, False)
    assert len(outages(node)) == 1
    assert [note for note in node.notes if "answers again" in note]
    assert PROBE_KEY not in store.objects
    assert node.tier.status()[0].problem is None


class Many(Node):
    """A node that leads many partitions of the topic."""

    def __init__(self, cluster: Cluster, count: int, **settings: Any) -> None:
        super().__init__(cluster, **settings)
        self.logs: list[Log] = [self._made(number) for number in range(count)]

    def _made(self, number: int) -> Log:
        if not number:
            return self.log
        return open_log(
            self.fs,
            f"/data/t-{number}",
            TopicPartition("t", number),
            topic_id=TOPIC_ID,
            config=self.config,
            now_ms=self.now_ms,
            was_clean=False,
        )

    def each(self) -> Iterator[Log]:
        for log in self.logs:
            self.log = log
            yield log

    def lead_all(self) -> None:
        for _ in self.each():
            self.lead(0)

    def produce_all(self, text: str) -> None:
        for _ in self.each():
            self.produce(0, text)

    def waiting(self) -> int:
        return sum(row.copy_lag_segments for row in self.tier.status())


@pytest.mark.parametrize("is_plugin", [False, True])
def test_hundreds_of_partitions_with_a_backlog_are_copied_after_an_outage(
    cluster: Cluster, store: DownStore, is_plugin: bool
) -> None:
    """The waits are long so that a simulated outage is short; a backoff of seconds changes no count."""
    count = 300
    waits = {
        "task_interval_ms": HOUR_MS // 2,
        "retry_backoff_ms": HOUR_MS // 4,
        "retry_backoff_max_ms": HOUR_MS // 2,
        "remover_interval_ms": HOUR_MS,
    }
    node = Many(cluster, count, is_plugin=is_plugin, retry_jitter=0.0, **waits)
    node.start()
    node.lead_all()
    node.produce_all("a")
    node.pass_time(HOUR_MS // 2)
    assert node.waiting() == 0
    before = records(cluster)
    store.requests.clear()
    store.down = EVERYTHING
    for text in "bcd":
        node.produce_all(text)
    node.pass_time(HOUR_MS)
    due_segments = 3 * count
    first = records(cluster), store.works()
    assert first[0] - before <= RECORDS_MAX
    assert first[1] <= REQUESTS_MAX
    node.pass_time(2 * HOUR_MS)
    if is_plugin:  # one copy at a time is the probe
        assert records(cluster) - first[0] <= 3 * 24
    else:
        assert (records(cluster), store.works()) == first
    assert node.waiting() == due_segments
    assert all(row.problem for row in node.tier.status())
    assert len(outages(node)) == (2 if is_plugin else 1), "one for each operation that fails"

    store.down = ()
    node.pass_time(HOUR_MS)
    assert node.waiting() == 0
    assert Counter(cluster.known().values()) == {SegmentState.COPY_FINISHED: 4 * count}


def test_a_short_fault_costs_nothing_but_its_own_retries(
    cluster: Cluster, store: DownStore
) -> None:
    """Fewer failures in a row than open a circuit."""
    node = led(cluster)
    for number in range(3):
        node.storage.fail("copy", RemoteStorageError("503"), times=FAILURES_TO_OPEN - 1)
        node.produce(0, str(number))
        node.pass_time(MINUTE_MS)
        assert copied(node)
    assert store.probes() == 0
    assert outages(node) == []


# ----------------------------------------------------------------------- what fails, and what goes on


def test_a_store_that_takes_nothing_is_still_read(cluster: Cluster, store: DownStore) -> None:
    node = led(cluster)
    node.expire_local()
    opened(node, store, "put")
    assert not is_open(node)["read"]
    assert isinstance(node.read(0), RemoteLogReadResult)
    before = records(cluster)
    node.pass_time(HOUR_MS)
    assert records(cluster) == before
    assert isinstance(node.read(0), RemoteLogReadResult)


def test_a_full_store_that_takes_small_objects_gets_fewer_and_fewer_copies(
    cluster: Cluster, store: DownStore
) -> None:
    """And what expires is deleted meanwhile, which makes room."""
    node = led(cluster, config=topic_config(retention_ms=90 * MINUTE_MS))
    node.pass_time(20 * MINUTE_MS)
    store.room_bytes = 1000
    node.produce(0, "x" * 1000)
    node.pass_time(HOUR_MS)
    first = node.trace.count("copy t-0 at 2")
    assert first <= 20
    assert is_open(node) == {"read": False, "write": False, "copy": True, "delete": False}
    assert len(outages(node)) == 1
    assert "copy" in outages(node)[0]
    node.pass_time(15 * MINUTE_MS)
    assert node.trace.count("copy t-0 at 2") - first <= 2
    assert SegmentState.COPY_FINISHED not in cluster.known().values()
    assert node.log.log_start_offset == 2
    store.room_bytes = 1 << 20
    node.pass_time(13 * MINUTE_MS)
    assert copied(node)
    assert [*cluster.known().values()] == [SegmentState.COPY_FINISHED]
    assert len(outages(node)) == 1
    assert not is_open(node)["copy"]


def test_a_store_that_takes_little_more_than_a_probe_gets_few_copies(
    cluster: Cluster, store: DownStore
) -> None:
    """Not even a catalog fits. Each probe of writes succeeds, and none makes the copies begin anew."""
    node = led(cluster)
    store.room_bytes = 70
    node.produce(0, "x" * 100)
    node.pass_time(HOUR_MS)
    assert node.trace.count("copy t-0 at 2") <= 20
    store.room_bytes = 1 << 20
    node.pass_time(13 * MINUTE_MS)
    assert copied(node)


def test_a_store_whose_reads_fail_gets_no_copies(cluster: Cluster, store: DownStore) -> None:
    node = led(cluster)
    node.expire_local()
    node.tier.indexes.remove(node.segments()[0].segment_id)
    store.down = ("get",)
    for _ in range(FAILURES_TO_OPEN):
        assert node.read(0) == KafkaError(Code.KAFKA_STORAGE_ERROR, "the tier cannot be read now")
    assert is_open(node)["read"]
    before, works = records(cluster), store.works()
    node.trace.clear()
    node.produce(0, "c")
    node.pass_time(HOUR_MS)
    assert not [name for name in node.trace if "probe" not in name], (
        "no local file is checked either"
    )
    node.read(0)
    assert (records(cluster), store.works()) == (before, works)
    store.down = ()
    node.pass_time(MINUTE_MS)
    assert copied(node)
    assert isinstance(node.read(0), RemoteLogReadResult)


def test_a_read_of_a_store_that_is_down_fails_at_once(cluster: Cluster, store: DownStore) -> None:
    """A consumer does not wait for retries that cannot succeed."""
    node = tiered(cluster)
    node.tier.indexes.remove(node.segments()[0].segment_id)
    store.down = EVERYTHING
    node.read(0)
    assert is_open(node)["read"]
    began_ms = node.now_ms
    answers: list[Any] = []

    def then(result: Any, now_ms: int) -> Effects:
        answers.append(result)
        return []

    node.run(node.tier.read(TP, TOPIC_ID, 0, 0, 100, 0, then, node.now_ms))
    [answer] = answers
    assert node.now_ms == began_ms
    assert isinstance(answer, KafkaError)
    assert answer.is_retriable


@pytest.mark.parametrize("error", [ObjectMissing("gone"), DamagedObject("other bytes")])
def test_a_store_that_answers_has_not_failed(cluster: Cluster, error: Exception) -> None:
    node = tiered(cluster)
    node.storage.fail("fetch", error, times=100)
    for _ in range(10):
        assert isinstance(node.read(0), KafkaError)
    node.storage.fail("copy", error, times=6)
    node.produce(0, "x")
    node.pass_time(20_000)
    assert not any(is_open(node).values())
    assert "probe the store of the tier" not in node.trace


def test_deletions_that_are_refused_do_not_stop_copies(cluster: Cluster, store: DownStore) -> None:
    """F21, as with a lock on objects."""
    node = led(cluster, config=topic_config(retention_ms=5 * MINUTE_MS))
    store.down = ("delete",)
    node.pass_time(10 * MINUTE_MS)
    assert is_open(node) == {"read": False, "write": False, "copy": False, "delete": True}
    node.produce(0, "c")
    node.pass_time(MINUTE_MS)
    assert copied(node)
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert cluster.known() == {}


def test_one_object_that_is_refused_for_ever_is_tried_less_and_less_often(cluster: Cluster) -> None:
    """Probes of deletions succeed all the time: the store was not down, so no wait begins again."""
    node = led(cluster, config=topic_config(retention_ms=5 * MINUTE_MS))
    node.storage.fail("delete", RemoteStorageError("under a legal hold"), times=10_000)
    node.pass_time(HOUR_MS)
    first = node.storage.calls.count("delete")
    assert first > FAILURES_TO_OPEN, "the circuit has been open"
    node.pass_time(HOUR_MS)
    least_wait_ms = int(node.tier.services.settings.retry_backoff_max_ms * 0.8)
    assert node.storage.calls.count("delete") - first <= HOUR_MS / least_wait_ms
    node.storage.faults.clear()
    node.pass_time(MINUTE_MS)
    assert cluster.known() == {}


# ---------------------------------------------------------------------------------- a store that hangs


def test_a_store_that_hangs_gets_one_probe_at_a_time(cluster: Cluster, store: DownStore) -> None:
    node = led(cluster)
    before = records(cluster)
    node.held = lambda effect: isinstance(effect, Submit) and effect.run_timeout_ms > 0
    node.produce(0, "c", "d")
    node.pass_time(HOUR_MS)
    assert is_open(node)["read"]
    assert records(cluster) - before <= RECORDS_MAX
    assert len(node.on_hold) <= 1
    hung = node.trace.count("probe the store of the tier")
    assert hung == 0, "none has ended"
    first = records(cluster)
    for _ in range(120):
        node.pass_time(MINUTE_MS)
        assert len(node.on_hold) <= 1, "one probe at a time, and nothing else"
        assert all(due("probe", effect) for effect in node.on_hold)
    assert records(cluster) == first
    node.release()
    node.pass_time(2 * MINUTE_MS)
    assert copied(node)


# --------------------------------------------------------------------------------- roles, and the end


def test_a_leadership_that_moves_while_the_store_is_down(
    cluster: Cluster, store: DownStore
) -> None:
    node = opened(led(cluster), store)
    before = records(cluster)
    for epoch in range(1, 20):
        node.role(is_leader=epoch % 2 == 0, epoch=epoch)
        node.pass_time(MINUTE_MS)
    node.lead(20)
    node.pass_time(HOUR_MS)
    assert records(cluster) == before
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert copied(node)
    assert set(cluster.known().values()) == {SegmentState.COPY_FINISHED}


def test_a_node_that_stops_sends_no_more_probes(cluster: Cluster, store: DownStore) -> None:
    node = opened(led(cluster), store)
    node.tier.close()
    store.requests.clear()
    node.pass_time(HOUR_MS)
    assert not store.requests


class Starting(Node):
    """A node whose store is the built-in one, which its start configures."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, task_interval_ms=30_000)
        self.built_in = ObjectStorage(cluster.store)
        self.built_in.configure({CLUSTER_ID: "mine", "uri": "memory"})
        services = self.tier.services
        services.storage = self.built_in
        services.check_owner = self.built_in.check_owner
        services.circuits = StoreCircuits(
            cluster.store, self.built_in.check_owner, services.backoff_ms
        )


def test_a_node_that_starts_while_its_store_is_down_asks_it_nothing(
    cluster: Cluster, store: DownStore
) -> None:
    store.down = EVERYTHING
    node = Starting(cluster).start()
    assert is_open(node)["read"]
    store.requests.clear()
    node.lead(0).produce(0, "a")
    node.pass_time(HOUR_MS)
    assert (records(cluster), store.works()) == (0, 0)
    assert 0 < store.probes() <= HOUR_MS / 24_000 + 10
    store.down = ()
    node.pass_time(2 * MINUTE_MS)
    assert copied(node)


def test_no_probe_is_put_into_the_store_of_another_cluster(
    cluster: Cluster, store: DownStore
) -> None:
    store.down = EVERYTHING
    node = Starting(cluster).start()
    node.tier.services.circuits.open("write", RemoteStorageError("503"), node.now_ms)
    store.objects[CLUSTER_KEY] = binding_text("theirs").encode()
    store.down = ()
    node.lead(0).produce(0, "a")
    node.pass_time(HOUR_MS)
    assert list(store.objects) == [CLUSTER_KEY]
    assert store.requests["probe put"] == 0
    assert any("another cluster" in line for line in outages(node))


# ------------------------------------------------------------------------------ expiration and removal


def test_expiration_writes_nothing_while_the_store_is_down(
    cluster: Cluster, store: DownStore
) -> None:
    """The log start rises, so nobody reads what expired; it is deleted afterwards."""
    node = led(cluster, config=topic_config(retention_ms=HOUR_MS))
    opened(node, store)
    before, works = records(cluster), store.works()
    node.pass_time(3 * HOUR_MS)
    assert (records(cluster), store.works()) == (before, works)
    assert node.log.log_start_offset == 4
    assert "fails" in str(node.tier.status()[0].problem)
    store.down = ()
    node.pass_time(15 * MINUTE_MS)
    assert cluster.known() == {}
    assert not [key for key in store.objects if key.startswith("data/")]


def test_a_deletion_of_many_segments_ends_at_the_first_refusal(
    cluster: Cluster, store: DownStore
) -> None:
    node = led(cluster)
    for number in range(50):
        node.produce(0, str(number))
    node.pass_time(MINUTE_MS)
    store.down = ("delete",)
    node.config = topic_config(retention_ms=1)
    node.log.config = node.config
    node.pass_time(MINUTE_MS)
    assert node.tier.services.counters.delete_errors <= 2 * FAILURES_TO_OPEN
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert cluster.known() == {}


def test_the_remover_waits_while_the_store_is_down(cluster: Cluster, store: DownStore) -> None:
    node = opened(led(cluster), store)
    del cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    before, works = records(cluster), store.works()
    node.pass_time(3 * HOUR_MS)
    assert (records(cluster), store.works()) == (before, works)
    assert node.tier.services.metadata.delete_state(WHERE) == DeleteState.MARKED
    assert "fails" in str(node.tier.problem)
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert store.objects == {}
    assert node.tier.problem is None


def test_a_removal_that_became_due_while_the_store_is_down_waits_as_others_do(
    cluster: Cluster, store: DownStore
) -> None:
    """Goal: nothing that is due at once and refused at once. Each look would be followed by the next."""
    node = led(cluster, delete_delay_ms=MINUTE_MS, remover_interval_ms=HOUR_MS)
    del cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(MINUTE_MS // 2)
    assert node.tier.remover._waiting, "it waits for who may still read it"
    circuits = node.tier.services.circuits
    store.down = EVERYTHING
    node.run(circuits.open("delete", RemoteStorageError("503"), node.now_ms))
    looks = 0

    def counted(operation: Operation, now_ms: int) -> Any:
        nonlocal looks
        looks += 1
        assert looks < 1_000, "the remover does nothing else any more"
        return refusal(operation, now_ms)

    refusal, circuits.refusal = circuits.refusal, counted
    node.pass_time(HOUR_MS)
    assert 0 < looks < 2 * 60 * 3, "twice a minute, with the longest wait"
    assert "fails" in str(node.tier.problem)
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert (store.objects, node.tier.problem) == ({}, None)


def test_what_waited_for_the_store_goes_on_as_soon_as_it_answers(
    cluster: Cluster, store: DownStore
) -> None:
    """Each partition has a wait of its own, which has grown to half a minute."""
    node = opened(led(cluster), store)
    node.pass_time(3 * HOUR_MS)
    store.down = ()
    while node.tier.services.circuits.is_any_open:
        node.pass_time(10)
    node.pass_time(10)
    assert copied(node)


# --------------------------------------------------------------------------------------- plug-ins


def test_a_plugin_that_cannot_be_probed_gets_one_operation_at_a_time(
    cluster: Cluster, store: DownStore
) -> None:
    node = led(cluster, is_plugin=True)
    node.storage.fail("copy", ConnectionError("reset"), times=10_000)
    node.produce(0, "c")
    node.pass_time(HOUR_MS)
    first = node.storage.calls.count("copy")
    assert first <= 20
    assert len(outages(node)) == 1
    node.pass_time(HOUR_MS)
    assert node.storage.calls.count("copy") - first <= 8, "at least about ten minutes between two"
    assert not is_open(node)["read"], "operations are independent"
    node.storage.faults.clear()
    node.pass_time(15 * MINUTE_MS)
    assert copied(node)
    assert len(outages(node)) == 1
    assert len([note for note in node.notes if "answers again" in note]) == 1


def test_a_segment_that_was_checked_while_the_store_went_down_is_not_announced(
    cluster: Cluster, store: DownStore
) -> None:
    node = led(cluster)
    node.held = partial(due, "check ")
    node.produce(0, "c")
    node.pass_time(MINUTE_MS)
    before = records(cluster)
    store.down = EVERYTHING
    node.run(node.tier.services.circuits.open("write", StoreRefused("403"), node.now_ms))
    node.release()
    node.pass_time(MINUTE_MS)
    assert records(cluster) == before
    store.down = ()
    node.pass_time(MINUTE_MS)
    assert copied(node)


def test_a_copy_that_fails_while_the_store_is_down_is_not_undone(
    cluster: Cluster, store: DownStore
) -> None:
    """A circuit opens while the copy runs. Afterwards the copy is deleted, once."""
    node = led(cluster)
    node.held = partial(due, "copy ")
    node.produce(0, "c")
    node.pass_time(31_000)
    copy = only(node.on_hold, Submit)
    before = records(cluster)
    store.down = EVERYTHING
    node.run(node.tier.services.circuits.open("write", StoreRefused("403"), node.now_ms))
    node.release()
    node.pass_time(HOUR_MS)
    assert records(cluster) == before
    assert SegmentState.COPY_STARTED in cluster.known().values()
    assert copy not in node.on_hold
    store.down = ()
    node.pass_time(10 * MINUTE_MS)
    assert copied(node)
    assert set(cluster.known().values()) == {SegmentState.COPY_FINISHED}


def test_a_result_that_has_an_error_counts(cluster: Cluster, store: DownStore) -> None:
    """The attempt to write a catalog is returned with its error."""
    node = led(cluster)
    services: Services = node.tier.services
    store.down = ("put",)
    node.tier._tasks[WHERE].hosted.metadata_version += 1
    for _ in range(FAILURES_TO_OPEN):
        assert not is_open(node)["write"]
        node.run(node.tier._tasks[WHERE].catalog.request(lambda error, now_ms: [], node.now_ms))
    assert services.circuits.refusal("write", node.now_ms) is not None
