"""A store that hangs: reads are shared, kept, cancelled; copies and catalogs wait for what is under way."""

from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError
from firnline.records.batch import headers
from firnline.stores.port import RemoteStorageError
from firnline.tiered.hosted import Services
from firnline.tiered.objects.batches import Batches
from firnline.tiered.reads import shared_reads
from firnline.tiered.reads.reader import RemoteLogReadResult
from firnline.tiered.reads.shared_reads import KEPT_MS, RangeKey, SharedReads
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import SegmentState
from tests.unit.tiered.test_tiered_read import tiered
from tests.worlds.effects import only
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node

MIB = 1 << 20


class Fetch:
    """A fetch of one range, which waits as long as the test lets it."""

    def __init__(self, node: Node, offset: int = 0, max_bytes: int = MIB) -> None:
        self.node = node
        self.answers: list[Any] = []
        node.run(
            node.tier.read(TP, TOPIC_ID, offset, 0, max_bytes, 0, self.then, node.cluster.now_ms)
        )

    def then(self, result: Any, now_ms: int) -> Effects:
        self.answers.append(result)
        return []

    def give_up(self) -> None:
        self.node.run(self.node.tier.stop_read(self.then, self.node.cluster.now_ms))

    @property
    def records(self) -> bytes:
        [result] = self.answers
        assert isinstance(result, RemoteLogReadResult), result
        assert isinstance(result.records, bytes)
        return result.records


def is_data(effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.pool == "read"


@pytest.fixture
def node() -> Node:
    """Its indexes are in memory, and its reads of data are held back."""
    made = tiered(Cluster())
    made.read(0)
    made.read(2)
    made.storage.calls.clear()
    made.held = is_data
    return made


def gets(node: Node) -> int:
    return node.storage.calls.count("fetch")


def test_twenty_fetches_of_a_slow_range_are_one_get(node: Node) -> None:
    """Ten wait, ten have given up; those who come later join, or find what came too late."""
    fetches = [Fetch(node) for _ in range(10)]
    for fetch in fetches:
        fetch.give_up()
    later = [Fetch(node) for _ in range(5)]
    assert len(node.on_hold) == 1
    node.pass_time(5_000)
    node.complete(node.on_hold.pop())
    after = [Fetch(node) for _ in range(5)]
    assert gets(node) == 1
    assert all(fetch.answers == [] for fetch in fetches)
    assert len({fetch.records for fetch in later + after}) == 1


def test_a_get_that_nobody_waits_for_any_more_still_brings_the_next_fetch_on(node: Node) -> None:
    for _ in range(3):  # each is answered without records, and sent again
        fetch = Fetch(node)
        node.pass_time(500)
        fetch.give_up()
    node.complete(node.on_hold.pop())
    assert Fetch(node).records
    assert gets(node) == 1
    node.pass_time(KEPT_MS)
    node.held = lambda effect: False
    assert Fetch(node).records
    assert gets(node) == 2, "it is kept for a while only"


def test_a_read_that_waits_for_a_thread_is_not_done_for_nobody(node: Node) -> None:
    node.held_work_runs = False
    one, two = Fetch(node), Fetch(node)
    one.give_up()
    assert len(node.on_hold) == 1, "another one wants it"
    two.give_up()
    assert node.on_hold == []
    assert gets(node) == 0
    assert node.tier.reader.shared._waiting == {}
    again = Fetch(node)
    node.release()
    assert again.records


def test_a_fetch_that_has_given_up_begins_no_read_when_its_index_comes(node: Node) -> None:
    node.held = lambda effect: isinstance(effect, Submit) and effect.pool == "index"
    node.tier.indexes.remove(node.segments()[0].segment_id)
    fetch = Fetch(node)
    fetch.give_up()
    node.release()
    assert (gets(node), fetch.answers) == (1, []), "the index was checked, no data was read"
    assert node.tier.reader._reads == {}


def test_an_index_that_is_lost_has_the_time_that_its_segment_takes() -> None:
    """To read the whole segment takes longer than to read an index, which need not wait so long."""
    node = tiered(Cluster())
    for name in [key for key in node.cluster.store.objects if key.endswith(".index")]:
        del node.cluster.store.objects[name]
    seen: list[Submit] = []
    node.held = lambda effect: due("indexes of", effect) and not seen.append(effect)  # type: ignore[func-returns-value, arg-type]
    fetch = Fetch(node)
    node.complete(node.on_hold.pop())
    node.complete(node.on_hold.pop())
    first, second = seen
    segment = node.segments()[0]
    assert first.run_timeout_ms == store_timeout_ms()
    assert second.run_timeout_ms == store_timeout_ms(segment.size_bytes)
    assert fetch.records


def test_open_transactions_are_loaded_once_for_all(node: Node) -> None:
    loads = node.tier.reader.open_transactions
    segment = node.segments()[0]
    found: list[Any] = []

    def then(result: Any, now_ms: int) -> Effects:
        found.append(result)
        return []

    effects = [effect for _ in range(3) for effect in loads.load(segment, then, 0)]
    assert len(effects) == 1
    node.run(effects)
    assert found == [()] * 3
    assert loads.load(segment, then, 0) == []


def test_who_joins_a_read_gets_no_more_than_it_asked_for(node: Node) -> None:
    large = Fetch(node)
    small = Fetch(node, max_bytes=1)
    node.complete(node.on_hold.pop())
    assert len(list(headers(large.records))) > 1
    assert len(list(headers(small.records))) == 1
    assert gets(node) == 1


def test_late_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_reads, "KEPT_BYTES", 100)
    services: Services = tiered(Cluster()).tier.services
    shared = SharedReads(services)
    for number in range(20):
        key = RangeKey(bytes(16), number, 100)
        [submit] = shared.read(
            key, "t", lambda: Batches(b"", 0, 0), 30, lambda result, now_ms: [], 0
        )
        assert isinstance(submit, Submit)
        submit.then(Batches(bytes(30), number, 30), 60_000)
    assert len(shared._kept) == 3
    assert shared._kept_bytes == 90


def test_a_read_that_times_out_is_a_retriable_error_at_once(node: Node) -> None:
    fetch = Fetch(node)
    node.pass_time(store_timeout_ms(MIB) + 1)
    [error] = fetch.answers
    assert isinstance(error, KafkaError)
    assert error.code == Code.KAFKA_STORAGE_ERROR
    assert error.is_retriable


def test_an_outage_is_reported_before_the_fetch_stops_waiting() -> None:
    """Each attempt takes a while. A Fetch that stops waiting has an empty response, and no error."""
    node = tiered(Cluster(), fetch_max_wait_ms=500)
    node.read(0)
    node.storage.fail("fetch", RemoteStorageError("503"), times=100)
    node.held = is_data
    fetch, began_ms, attempts = Fetch(node), node.cluster.now_ms, 0
    while not fetch.answers:
        if node.on_hold:
            attempts += 1
            node.pass_time(110)
            node.release()
            node.held = is_data
        else:
            node.pass_time(10)
    assert fetch.answers[0].code == Code.KAFKA_STORAGE_ERROR
    assert node.cluster.now_ms - began_ms < 500
    assert attempts == 2, "there is time for another one"


def test_a_full_pool_is_a_retriable_error(node: Node) -> None:
    """T36; not an empty answer, which a consumer would see for ever."""
    fetch = Fetch(node)
    full = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much work waits")
    node.complete_with(node.on_hold.pop(), full)
    [error] = fetch.answers
    assert error.code == Code.OFFSET_NOT_AVAILABLE
    assert error.is_retriable


def test_every_job_that_uses_the_store_has_a_limit_and_none_that_writes_the_disk() -> None:
    seen: dict[str, Submit] = {}

    class Watched(Node):
        def on_submit(self, effect: Submit) -> None:
            seen[effect.name.rpartition(" t")[0] or effect.name] = effect
            super().on_submit(effect)

    made = Watched(Cluster()).start().lead(0)
    made.produce(0, "a", "b", "c")
    made.pass_time(3_000)
    made.expire_local()
    made.read(0, isolation=1)
    made.run(
        made.tier.aux_state(WHERE, epoch=0, offset=0, then=lambda f, now_ms: [], now_ms=made.now_ms)
    )
    for name, effect in seen.items():
        is_local = effect.pool == "disk" or name.startswith(("check", "compare"))
        assert bool(effect.run_timeout_ms) is not is_local, name
    assert {effect.pool for effect in seen.values()} >= {"copy", "read", "index", "disk"}


# --------------------------------------------------------------------------------------- the copier


def due(what: str, effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.name.startswith(what)


def one_segment() -> Node:
    made = Node(Cluster()).start().lead(0)
    made.produce(0, "a", "b")
    return made


def test_a_copy_that_hangs_is_tried_again_and_what_it_leaves_is_deleted_when_it_ends() -> None:
    node = one_segment()
    node.held = partial(due, "copy ")
    node.pass_time(1_000)
    hung = only(node.on_hold, Submit)
    segment = next(iter(node.tier.services.copying.of(WHERE)))
    node.pass_time(store_timeout_ms() + 1_000)
    assert node.on_hold
    assert node.on_hold[0] is not hung, "another attempt, with another id"
    assert node.cluster.known()[segment] == SegmentState.COPY_STARTED
    node.release()
    node.pass_time(2_000)
    assert SegmentState.COPY_FINISHED in node.cluster.known().values()
    assert segment in node.tier.services.copying.of(WHERE), "nobody deletes it meanwhile"
    hung.work()  # it puts its objects after all
    assert hung.ended is not None
    node.run(hung.ended(node.now_ms))
    assert segment not in node.cluster.known()
    assert not node.cluster.orphans()
    assert not node.tier.services.copying.of(WHERE)


def test_no_other_catalog_is_written_before_one_that_hangs_has_ended() -> None:
    node = one_segment()
    node.held = partial(due, "write catalog")
    node.pass_time(1_000)
    assert node.on_hold
    node.pass_time(600_000 + 1_000 * 1_000 + 200 * 5_000)
    keeper = node.tier._tasks[WHERE].catalog
    assert keeper._is_hanging
    assert node.on_hold == []
    assert "has not ended" in str(node.tier.status()[0].problem)
    [late] = [e for e in node.trace if e.startswith("begin catalog")]
    node.held = lambda effect: False
    node.run(keeper._ended_late(node.now_ms))
    node.pass_time(60_000)
    assert keeper.is_current
    assert node.tier.status()[0].problem is None
    assert len([e for e in node.trace if e == late]) == 2, (
        "it begins anew: what was written is unknown"
    )


# -------------------------------------------------------------------------------------- the remover


def test_a_deleted_topic_is_not_worked_on_twice_at_a_time() -> None:
    """A marker that is put late must not stay behind all that was deleted."""
    node = tiered(Cluster())
    del node.cluster.topics[TOPIC_ID]
    node.held = partial(due, "mark t deleted")
    node.run(
        node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.cluster.now_ms)
    )
    hung = only(node.on_hold, Submit)
    node.pass_time(store_timeout_ms() + 60_000)
    assert node.on_hold == [], "it timed out, and is not begun again"
    assert node.tier.remover.problem is not None
    hung.work()
    assert hung.ended is not None
    node.held = lambda effect: False
    node.run(hung.ended(node.now_ms))
    node.pass_time(60_000)
    assert node.tier.remover.pending == 0
    assert node.cluster.store.objects == {}
