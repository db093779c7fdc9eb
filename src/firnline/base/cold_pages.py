"""Reads that keep nobody waiting for a disk. PURE.

Whoever reads in a step of the loop, and can ask again, does it inside of `with cold_pages:`. Where the page
cache has not all that is read there, `PagesCold` says so: a thread reads it, and whoever asked asks again.
What was brought in so is then read without another look for some seconds: where memory is short it may be
gone by then, and who has to look at many places would never be answered. Outside of it, and in other
threads, a read waits as it always did.
Source: docs/decisions/0029.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, Pool, SetTimer, Submit
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ports import Buffer, File, Fs
from firnline.base.units import KIB, MIB

# What a thread reads at least, and at a time: as much as the kernel reads ahead, of an index most of it.
WINDOW_BYTES = 128 * KIB
INDEX_WINDOW_BYTES = MIB
_CHUNK_BYTES = 4 * KIB
_POOL: Pool = "pages"
# How long who was told that they are there has to read them, and of how many that is kept in mind.
_KEPT_MS = 10_000
_KEPT_MAX = 1_000
# Of those who wait for the same pages: each reads again, which takes some 20 us or more.
_TOLD_AT_ONCE = 20
Then = Callable[[int], Effects]
Key = tuple[str, int, int]


class Place(NamedTuple):
    """Bytes of a file that a thread is to read."""

    fs: Fs
    path: str
    position: int
    size_bytes: int

    @property
    def key(self) -> Key:
        return self.path, self.position, self.size_bytes


# What is read piece by piece: None after some, or what has to be brought into memory before it goes on.
ColdSteps = Iterator[Place | None]


class PagesCold(StorageError):
    """Nothing is wrong: what is at `place` has to be read from the disk first."""

    def __init__(self, place: Place) -> None:
        super().__init__("not in memory", path=place.path, position=place.position)
        self.place = place

    @property
    def is_passing(self) -> bool:
        """True: it will be read."""
        return True


class _Brought(NamedTuple):
    """Pages that were read a moment ago, or could not be."""

    problem: StorageError | None
    until_ms: int


class ColdPages:
    """What is read from the disks of a node for those who cannot wait in a step."""

    __slots__ = ("_begin", "_brought", "_chunk", "_file", "_serial", "_token", "_under_way")

    def __init__(self) -> None:
        self._under_way: dict[Key, dict[object, Then]] = {}  # who waits for them
        self._brought: dict[Key, _Brought] = {}  # oldest first
        self._token: Token[ColdPages | None] | None = None
        self._serial = 0
        # What was read last of one file: the next look is nearly always at what is there, too.
        self._file: File | None = None
        self._begin = 0
        self._chunk: Buffer = b""

    def __enter__(self) -> None:
        self._token = _asked.set(self)

    def __exit__(self, *_: object) -> None:
        self._file, self._chunk = None, b""
        assert self._token is not None
        _asked.reset(self._token)

    def bring(self, place: Place, who: object, then: Then | None) -> Effects:
        """Have a thread read it, once for all who want it, and call `then(now_ms)`, unless `who` has left."""
        waiting = self._under_way.get(place.key)
        is_new = waiting is None
        if waiting is None:
            waiting = self._under_way[place.key] = {}
        if then is not None:
            waiting[who] = then
        came = partial(self._came, place.key)
        if not is_new:
            return []
        name, work = "read cold pages", partial(_read, place)
        return [Submit(name=name, pool=_POOL, path=place.path, work=work, then=came)]

    def leave(self, key: Key, who: object) -> None:
        """It does not wait any more: a disk may take for ever."""
        self._under_way.get(key, {}).pop(who, None)

    def _note(self, key: Key, result: object, now_ms: int) -> None:
        """They were read, or cannot be, or too many wait for theirs: whoever reads them next is told."""
        if isinstance(result, KafkaError):
            # So many wait for a disk that hangs: nobody may read from it in a step.
            result = StorageError("too many wait for the disks", path=key[0], error="EAGAIN")
        elif isinstance(result, Exception) and not isinstance(result, StorageError):
            raise result
        problem = result if isinstance(result, StorageError) else None
        self._brought.pop(key, None)
        self._brought[key] = _Brought(problem, now_ms + _KEPT_MS)
        if len(self._brought) > _KEPT_MAX:
            del self._brought[next(iter(self._brought))]

    def forget(self, now_ms: int) -> None:
        """Nobody has come for some: what is not in memory then is read by a thread again."""
        for key, brought in list(self._brought.items()):
            if brought.until_ms > now_ms:
                break
            del self._brought[key]

    def _came(self, key: Key, result: object, now_ms: int) -> Effects:
        self._note(key, result, now_ms)
        return self._tell(deque(self._under_way.pop(key).values()), now_ms)

    def _tell(self, waiting: deque[Then], now_ms: int) -> Effects:
        effects: Effects = []
        for _ in range(min(len(waiting), _TOLD_AT_ONCE)):
            effects += waiting.popleft()(now_ms)
        if waiting:
            self._serial += 1
            rest = partial(self._tell, waiting)
            effects.append(SetTimer(key=("pages", self._serial), at_ms=now_ms, then=rest))
        return effects

    def take(self, fs: Fs, file: File, position: int, size_bytes: int, window_bytes: int) -> Buffer:
        """See `take`."""
        at = position - self._begin
        if file is self._file and at >= 0 and at + size_bytes <= len(self._chunk):
            return self._chunk[at : at + size_bytes]
        size = size_bytes if size_bytes > _CHUNK_BYTES else _CHUNK_BYTES
        found = file.read_ready(position, size)
        if found is None:
            begin = position // window_bytes * window_bytes
            end = max(begin + window_bytes, position + size)
            found = self._missing(Place(fs, file.path, begin, end - begin), file, position, size)
        self._file, self._begin, self._chunk = file, position, found
        return found if size == size_bytes else found[:size_bytes]

    def _missing(self, place: Place, file: File, position: int, size_bytes: int) -> bytes:
        """Read what is not in memory if it has just been brought there; else PagesCold."""
        brought = self._brought.get(place.key)
        if brought is None:
            raise PagesCold(place)
        if brought.problem is not None:
            del self._brought[place.key]
            raise brought.problem.with_traceback(None)
        return file.read(position, size_bytes)


_asked: ContextVar[ColdPages | None] = ContextVar("cold_pages", default=None)


def take(
    fs: Fs, file: File, position: int, size_bytes: int, window_bytes: int = WINDOW_BYTES
) -> Buffer:
    """As `file.read`; inside of a ColdPages it raises PagesCold where that would wait for the disk."""
    pages = _asked.get()
    if pages is None:
        return file.read(position, size_bytes)
    return pages.take(fs, file, position, size_bytes, window_bytes)


@contextmanager
def waiting() -> Iterator[None]:
    """Read as outside of any ColdPages: who does this cannot be asked again half-way."""
    token = _asked.set(None)
    try:
        yield
    finally:
        _asked.reset(token)


def _read(place: Place) -> None:
    """Called on a thread. By its path: as many files are open as threads are at it."""
    try:
        file = place.fs.open_to_read(place.path)
    except StorageError:
        return  # it has gone, or there is no descriptor: whoever asks again finds out
    try:
        end = min(place.position + place.size_bytes, file.size())
        for position in range(place.position, end, MIB):
            file.read(position, min(MIB, end - position))
    finally:
        file.close()
