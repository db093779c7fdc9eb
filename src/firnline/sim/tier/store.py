"""The object store of a simulated cluster, as each broker reaches it: slow, hung, failing, lying. SIM.

Work on a thread runs in one piece in the simulator, so a call here takes effect at once and adds its time to
the time of the work. What a hung call does later, it does as an event of its own. Source: F1 to F40.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from firnline.base.ports import Buffer
from firnline.sim.host import Host, ProcessEnded
from firnline.sim.world import MS, SECOND, World
from firnline.stores.memory import MemoryStore
from firnline.stores.port import NewObject, ObjectInfo, ObjectStat, RemoteStorageError
from firnline.stores.side_by_side import put_last_alone
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import IndexKind, RemoteSegment

T = TypeVar("T")
# How long a call may hang; what it changes, it may change until then.
HANGS_US = 40 * SECOND
_CALL_US = (200, 8_000)


def _ignore(act: Callable[[], object]) -> None:
    """Do it; nobody waits for the result."""
    act()


def _refuse() -> None:
    raise RemoteStorageError("the simulated store does not allow deletions")


class StoreFaults:
    """What is wrong with the store now, as one broker sees it.

    failing_percent    of calls that fail, half of them after they took effect
    damaged_percent    of reads that return other bytes, or fewer
    is_hanging         each call hangs for a while, and fails
    keeps_percent      of deletions that succeed, and delete nothing
    refuses_deletions  each deletion fails (F21)
    calls_to_live      the process ends in the call with this number; None: it does not
    """

    def __init__(self) -> None:
        self.latency_us = 0
        self.failing_percent = 0
        self.damaged_percent = 0
        self.keeps_percent = 0
        self.refuses_deletions = False
        self.is_hanging = False
        self.is_down = False
        self.calls_to_live: int | None = None


class SharedStore:
    """What all brokers write to and read from; `on_put(node, key, data)` sees each object that is written."""

    def __init__(self) -> None:
        self.content = MemoryStore()
        self.kept: dict[str, None] = {}  # objects of which it said that they are deleted (F20)
        self._undamaged: dict[str, bytes] = {}  # what objects were before a bit of them flipped
        self.on_put: Callable[[int, str, bytes], None] | None = None
        self.on_read: Callable[[int, RemoteSegment], None] | None = None

    def put(self, node_id: int, key: str, data: bytes) -> None:
        if self.on_put is not None:
            self.on_put(node_id, key, data)
        self._undamaged.pop(key, None)
        self.content.put(key, [data], size_bytes=len(data))

    @property
    def objects(self) -> dict[str, bytes]:
        """All objects as they were put, whether or not a bit flipped since."""
        stored = self.content.objects
        undamaged = {key: data for key, data in self._undamaged.items() if key in stored}
        return stored | undamaged if undamaged else stored

    def flip(self, key: str, at: int, bit: int) -> None:
        """Flip one bit of an object for good."""
        data = bytearray(self.content.objects[key])
        self._undamaged[key] = bytes(data)
        data[at] ^= 1 << bit
        self.content.objects[key] = bytes(data)

    def restore(self, key: str) -> None:
        """An operator puts the object back from a copy, unless it was deleted or put again."""
        data = self._undamaged.pop(key, None)
        if data is not None and key in self.content.objects:
            self.content.objects[key] = data


class BrokerStore:
    """The store as one broker reaches it: an `ObjectStore`."""

    calls_at_once = 1
    is_distant = True
    has_uploads = True

    def __init__(self, world: World, host: Host, shared: SharedStore) -> None:
        self._world, self._host, self._shared = world, host, shared
        self._chance = world.chance("store", host.node_id)
        self.faults = StoreFaults()
        self.may_end: Callable[[], bool] = lambda: False

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        data = b"".join(chunks)
        if len(data) != size_bytes:
            raise RemoteStorageError("length differs", key=key, expected=size_bytes, got=len(data))
        self._change(partial(self._shared.put, self._host.node_id, key, data))

    def put_together(self, objects: Sequence[NewObject]) -> None:
        put_last_alone(self, objects)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        data = self._call(partial(self._shared.content.get, key, position, size_bytes))
        if data and self._chance.happens(self.faults.damaged_percent):
            at = self._chance.below(len(data))
            if self._chance.below(2):
                return data[:at]
            return data[:at] + bytes([data[at] ^ 1 << self._chance.below(8)]) + data[at + 1 :]
        return data

    def stat(self, key: str) -> ObjectStat:
        return self._call(partial(self._shared.content.stat, key))

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        yield from self._call(lambda: list(self._shared.content.pages(folder, after)))

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        return self._call(partial(self._shared.content.list_prefix, prefix))

    def delete(self, key: str) -> None:
        self.delete_many((key,))

    def delete_many(self, keys: Sequence[str]) -> None:
        if self.faults.refuses_deletions:
            self._call(_refuse)
        if self._chance.happens(self.faults.keeps_percent):
            self._shared.kept |= dict.fromkeys(keys)
            return
        self._change(partial(self._shared.content.delete_many, keys))

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def _change(self, act: Callable[[], Any]) -> None:
        self._call(act, is_change=True)

    def _call(self, act: Callable[[], T], *, is_change: bool = False) -> T:
        faults, chance, host = self.faults, self._chance, self._host
        host.device_us += chance.spread(*_CALL_US) + faults.latency_us
        self._maybe_end()
        if faults.is_down:
            raise RemoteStorageError("the simulated store refuses connections")
        if faults.is_hanging:
            hangs_us = chance.spread(100 * MS, HANGS_US)
            host.device_us += hangs_us
            if is_change and chance.below(2):
                self._world.after(chance.between(1, hangs_us), partial(_ignore, act))
            raise RemoteStorageError("the simulated store hung up")
        if chance.happens(faults.failing_percent):
            if chance.below(2):
                act()
            raise RemoteStorageError("the simulated store answers 503")
        return act()

    def _maybe_end(self) -> None:
        """Let the process end here, between two calls of one piece of work, if a fault asks for it."""
        faults = self.faults
        if faults.calls_to_live is None:
            return
        faults.calls_to_live -= 1
        if faults.calls_to_live < 0:
            faults.calls_to_live = None
            if self.may_end():
                raise ProcessEnded


class WatchedStorage(ObjectStorage):
    """The built-in storage; each read of a segment's records and indexes is shown to the checkers."""

    def __init__(self, store: BrokerStore, node_id: int, shared: SharedStore) -> None:
        super().__init__(store)
        self._node_id, self._shared = node_id, shared

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> Buffer:
        self._watch(segment)
        return super().fetch_segment(segment, position, size_bytes)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self._watch(segment)
        return super().fetch_index(segment, kind)

    def _watch(self, segment: RemoteSegment) -> None:
        if self._shared.on_read is not None:
            self._shared.on_read(self._node_id, segment)
