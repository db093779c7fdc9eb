"""`firnline doctor` on a tier whose leaders copy and expire while it looks: nothing is wrong there."""

from collections.abc import Callable

from firnline.base.effects import Effect, Submit
from firnline.cli.doctor import _look_at_tier, _Report
from firnline.tiered.objects.layout import DATA_FOLDER, LOG
from firnline.tiered.objects.memory import MemoryStore
from firnline.tiered.spi import ObjectInfo
from tests.tier_world import Cluster, Node, topic_config


class Busy(MemoryStore):
    """Something happens right before the segments are listed for the first time."""

    meanwhile: Callable[[], None] | None = None

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        if prefix.startswith(DATA_FOLDER) and self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return super().list_prefix(prefix)


def kinds(store: MemoryStore) -> list[str]:
    report = _Report()
    _look_at_tier(store, (), {}, report)
    return [found.kind for found in report.findings]


def busy() -> tuple[Busy, Node]:
    store = Busy()
    config = topic_config(retention_ms=-1)
    node = Node(Cluster(store=store), config=config).start().lead(0)
    for text in "abcd":
        node.produce(0, text)
    node.advance(1000)
    assert kinds(store) == []
    return store, node


def test_segments_that_are_copied_and_expired_meanwhile_are_no_damage() -> None:
    store, node = busy()

    def goes_on() -> None:
        node.produce(0, "e")
        node.log.advance_log_start(2)
        node.advance(5000)

    store.meanwhile = goes_on
    assert kinds(store) == []
    assert len(node.segments()) == 3, "nothing went on"


def test_a_copy_that_is_read_back_is_no_damage() -> None:
    store, node = busy()

    def is_publish(effect: Effect) -> bool:
        return not isinstance(effect, Submit) and len(store.list_prefix("data/")) > before

    before = len(store.list_prefix("data/"))
    node.held = is_publish
    node.produce(0, "e")
    node.advance(1000)
    assert node.on_hold, "no copy waits for its COPY_FINISHED"
    assert kinds(store) == []
    node.release()


def test_what_stays_wrong_is_told() -> None:
    store, _ = busy()
    [first, *_] = [key for key in store.objects if key.endswith(LOG)]
    data = store.objects[first]
    store.delete(first)
    assert kinds(store) == ["object-missing"]
    store.put(first, (data,), size_bytes=len(data))
    for base in (7, 9):
        key = first.replace(f"{0:020d}", f"{base:020d}")
        store.put(key, (data,), size_bytes=len(data))
    assert kinds(store) == ["catalog-explains-less"]
