"""The catalog of a partition that is led: written when it says too little, and no more often."""

from typing import Any

from firnline.base.effects import Effects, Submit
from firnline.base.errors import StorageError
from firnline.tiered.catalog.writer import HEADS_KEPT
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.layout import CATALOG_FOLDER, PARTS_FOLDER, heads_folder
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.remote_log import RemoteLog
from firnline.tiered.settings import TierSettings
from tests.unit.tiered.test_tiered_copy import catalog_spans
from tests.worlds.chance import SeededRng
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node


def test_a_catalog_that_cannot_be_written_is_seen_in_the_status_and_holds_nobody_up() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.pass_time(1000)
    node.held = lambda effect: getattr(effect, "name", "").startswith("write catalog")
    node.produce(0, "a")
    node.pass_time(1000)
    answers: list[object] = []
    catalog = node.tier._tasks[WHERE].catalog
    node.run(catalog.request(lambda error, now_ms: answers.append(error) or [], cluster.now_ms))  # type: ignore[func-returns-value]
    problem = StorageError("no thread for it")
    while node.on_hold:
        held = node.on_hold.pop()
        assert isinstance(held, Submit)
        node.run(held.then(problem, cluster.now_ms))
    assert answers == [problem]
    assert "no thread" in str(node.tier.status()[0].problem)
    node.release()
    node.pass_time(5000)
    assert catalog_spans(cluster) == [(0, 0)]
    assert node.tier.status()[0].problem is None


def test_everybody_who_asked_for_a_catalog_is_notified_that_no_thread_wrote_it() -> None:
    """A flush waits for the answer, and its client with it."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.pass_time(1000)
    node.log.advance_log_start(1)
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("write")
    answers: list[tuple[str, object]] = []
    for who in ("first", "second"):
        then = lambda error, now_ms, who=who: answers.append((who, error)) or []  # noqa: E731
        node.run(node.tier._tasks[WHERE].catalog.request(then, cluster.now_ms))
    [held] = node.on_hold
    assert isinstance(held, Submit)
    problem = StorageError("no thread for it")
    node.run(held.then(problem, cluster.now_ms))
    assert answers == [("first", problem), ("second", problem)]


def test_metadata_that_is_read_again_while_a_catalog_begins_is_waited_for() -> None:
    """What is in it has to be compared with what the store says: without it nothing is written."""
    cluster = Cluster()
    node = Node(cluster).start()
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("begin")
    node.lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    assert len(node.on_hold) == 1
    (partition,) = cluster.metadata or (metadata_partition_of(WHERE, 3),)
    fork, node.feed.fork = node.feed.fork, lambda *_: 0  # type: ignore[method-assign]
    effects = node.poll_metadata(partition)
    node.feed.fork = fork  # type: ignore[method-assign]
    node.release()
    assert "not loaded yet" in str(node.tier.status()[0].problem)
    assert not cluster.store.list_prefix(heads_folder(TOPIC_ID, 0))
    node.run(effects)
    node.pass_time(5000)
    assert node.tier.status()[0].problem is None
    assert catalog_spans(cluster) == [(0, 0)]


def test_a_head_whose_put_was_not_answered_is_removed_like_any_other() -> None:
    """It is in the store, and nothing refers to it: it would lie there as long as we lead the partition."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    put = cluster.store.put

    def put_and_lost(key: str, chunks: Any, *, size_bytes: int) -> None:
        put(key, chunks, size_bytes=size_bytes)
        if key.startswith(heads_folder(TOPIC_ID, 0)):
            raise StorageError("no answer")

    cluster.store.put = put_and_lost  # type: ignore[method-assign]
    node.produce(0, "b")
    node.pass_time(60_000)
    cluster.store.put = put  # type: ignore[method-assign]
    heads = [key for key in cluster.store.objects if key.startswith(heads_folder(TOPIC_ID, 0))]
    assert len(heads) > 2 * HEADS_KEPT
    for text in "cdefgh":
        node.produce(0, text)
        node.pass_time(1000)
    heads = [key for key in cluster.store.objects if key.startswith(heads_folder(TOPIC_ID, 0))]
    assert len(heads) <= HEADS_KEPT + 1


def test_a_catalog_that_says_all_is_not_written_again_with_each_task() -> None:
    """Each put costs money, and there are thousands of partitions."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.pass_time(2000)
    said = set(cluster.store.objects)
    node.pass_time(60_000)
    assert set(cluster.store.objects) == said


def test_who_asks_while_a_head_is_written_is_answered_when_one_says_it() -> None:
    """The head under way may be older than the question; where it is not, it will do."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b", "c")
    node.pass_time(1000)
    node.trace.clear()
    answers: list[tuple[str, int]] = []

    def ask(who: str) -> None:
        def then(error: object, now_ms: int) -> Effects:
            catalog = read_catalog(cluster.store, TOPIC_ID, 0)
            assert error is None
            assert catalog is not None
            answers.append((who, catalog.log_start_offset))
            return []

        node.run(node.tier._tasks[WHERE].catalog.request(then, cluster.now_ms))

    for moves_on, expected in ((False, [("one", 1), ("two", 1)]), (True, [("one", 2), ("two", 3)])):
        node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("write")
        node.log.advance_log_start(node.log.log_start_offset + 1)
        ask("one")
        if moves_on:
            node.log.advance_log_start(node.log.log_start_offset + 1)
        ask("two")
        assert len(node.on_hold) == 1, "one write at a time"
        node.release()
        assert answers == expected
        answers.clear()
    assert node.trace == ["write catalog of t-0"] * 3


def test_catalogs_lie_in_the_store_that_the_segments_are_in() -> None:
    """Nobody names another one to a broker; without any no reader would find a thing."""
    cluster = Cluster()
    node = Node(cluster)
    tier = RemoteLog(
        TierSettings(node_id=1),
        storage=ObjectStorage(cluster.store),
        feed=node.feed,
        fs=node.fs,
        rng=SeededRng(1),
        topic_exists=lambda topic_id: True,
        log_dir=None,
    )
    assert tier.services.catalog is cluster.store


def test_a_predecessor_that_deletes_what_was_taken_over_costs_a_history_and_no_catalog() -> None:
    """Its head is deleted while the first head of its successor is put: that one is written anew."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for number in range(40):
        node.produce(0, str(number))
    node.pass_time(5000)
    spans = catalog_spans(cluster)
    assert len(spans) == 40
    fresh = Node(cluster, fs=node.crash(), config=node.config, rng=node.rng).start()
    fresh.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("write cat")
    fresh.lead(1)
    fresh.pass_time(1000)
    assert fresh.on_hold
    for key in [k for k in cluster.store.objects if k.startswith((CATALOG_FOLDER, PARTS_FOLDER))]:
        cluster.store.delete(key)
    fresh.release()
    assert "another leader of the partition" in str(fresh.tier.status()[0].problem)
    fresh.pass_time(10_000)
    assert fresh.tier.status()[0].problem is None
    assert catalog_spans(cluster)[:40] == spans
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert catalog.leader_epoch == 1


def test_a_failover_reads_no_part_of_a_catalog_that_agrees() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for number in range(80):
        node.produce(0, str(number))
    node.pass_time(10_000)
    before = read_catalog(cluster.store, TOPIC_ID, 0)
    parts = [k for k in cluster.store.objects if k.startswith(PARTS_FOLDER)]
    assert before is not None
    assert parts
    asked: list[str] = []
    get = cluster.store.get

    def noting(key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        asked.append(key)
        return get(key, position, size_bytes)

    cluster.store.get = noting  # type: ignore[method-assign]
    fresh = Node(cluster, fs=node.crash(), config=node.config, rng=node.rng).start().lead(1)
    fresh.pass_time(2000)
    cluster.store.get = get  # type: ignore[method-assign]
    assert [key for key in asked if key.startswith(PARTS_FOLDER)] == []
    assert [k for k in cluster.store.objects if k.startswith(PARTS_FOLDER)] == parts
    after = read_catalog(cluster.store, TOPIC_ID, 0)
    assert after is not None
    assert (after.leader_epoch, after.segments) == (1, before.segments)
    assert all(row.min_timestamp_ms is not None for row in after.segments)
