"""Tiering is turned off and on again; and listings that show nothing of what the store has."""

from firnline.base.errors import Code, KafkaError
from firnline.cli.doctor import _look_at_tier, _Report
from firnline.stores.memory import MemoryStore
from firnline.tiered.objects.layout import DATA_FOLDER
from firnline.tiered.spi import SegmentState
from tests.worlds.tier import TOPIC_ID, Cluster, Node, topic_config

OFF = {"remote_storage_enable": False, "remote_log_delete_on_disable": True}


def produce(node: Node, epoch: int, texts: str) -> None:
    """Write a segment of each letter."""
    for text in texts:
        node.produce(epoch, text)


def readable(node: Node) -> list[int]:
    return sorted(node.read_all())


def test_a_topic_that_is_tiered_again_has_no_gap_that_nobody_can_read() -> None:
    """F39: turned off with deletion it begins at its first local record; all from there on comes back."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    produce(node, 0, "abc")
    node.pass_time(5_000)
    node.expire_local()
    produce(node, 0, "d")
    start = node.log.local_log_start_offset
    assert start > 0
    assert readable(node)[0] == 0
    node.log.config = topic_config(**OFF, local_retention_bytes=-2)
    node.pass_time(30_000)
    assert node.log.log_start_offset == node.log.local_log_start_offset == start
    assert [key for key in cluster.store.objects if key.startswith(DATA_FOLDER)] == []
    node.log.config = topic_config()
    produce(node, 0, "ef")
    node.pass_time(30_000)
    node.expire_local()
    assert node.log.log_start_offset == start
    assert node.log.local_log_start_offset > start
    assert readable(node) == list(range(start, node.log.log_end_offset))
    served = [(s.base_offset, s.end_offset) for s in node.segments()]
    assert served == [(n, n) for n in range(start, node.log.log_end_offset)]


def test_nothing_depends_on_a_listing_that_shows_new_objects_late() -> None:
    """F19: the store lists nothing; records are copied, served, taken over and deleted all the same."""
    store = MemoryStore(is_late=True)
    cluster = Cluster(store=store)
    node = Node(cluster).start().lead(0)
    produce(node, 0, "abc")
    successor = Node(cluster, 2).start()
    successor.follow(node)
    node.pass_time(5_000)
    node.expire_local()
    assert node.log.local_log_start_offset > 0
    assert readable(node) == [0, 1, 2]
    node.role(is_leader=False, epoch=1)
    successor.lead(1)
    produce(successor, 1, "de")
    successor.pass_time(10_000)
    successor.expire_local()
    assert successor.log.local_log_start_offset > 2
    assert readable(successor) == [0, 1, 2, 3, 4]
    assert store.list_prefix(DATA_FOLDER) == []
    successor.log.config = topic_config(retention_ms=1)
    successor.pass_time(60_000)
    successor.expire_local()
    successor.pass_time(60_000)
    assert [key for key in store.objects if key.startswith(DATA_FOLDER)] == []
    assert TOPIC_ID in cluster.topics


class Pretending(MemoryStore):
    """A store that says yes to a deletion, and keeps the object."""

    def delete(self, key: str) -> None:
        if not key.startswith(DATA_FOLDER):
            super().delete(key)


def test_nobody_reads_what_was_deleted_from_a_store_that_keeps_it() -> None:
    """F20: the deletion is finished in the metadata; `firnline doctor` finds the objects later."""
    store = Pretending()
    cluster = Cluster(store=store)
    node = Node(cluster).start().lead(0)
    produce(node, 0, "abc")
    successor = Node(cluster, 2).start()
    successor.follow(node)
    node.pass_time(5_000)
    node.expire_local()
    node.log.config = topic_config(retention_ms=1, local_retention_ms=1)
    produce(node, 0, "d")
    node.pass_time(60_000)
    kept = [key for key in store.objects if key.startswith(DATA_FOLDER) and key.endswith(".log")]
    assert len(kept) >= 3, "the store has not deleted them"
    start = node.log.log_start_offset
    assert start >= 3
    assert node.segments() == []
    assert {s for s in cluster.known().values() if s == SegmentState.COPY_FINISHED} == set()
    answer = node.read(0)
    assert isinstance(answer, KafkaError)
    assert answer.code == Code.OFFSET_OUT_OF_RANGE
    report = _Report()
    _look_at_tier(store, (), {}, report)
    assert [found.kind for found in report.findings] == ["log-start-above-tier"]
    successor.lead(1)
    successor.pass_time(10_000)
    assert successor.segments() == []
    for key in [key for key in store.objects if key.startswith(DATA_FOLDER)]:
        MemoryStore.delete(store, key)  # as the operator does
