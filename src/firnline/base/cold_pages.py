"""Reads on the event loop that do not wait for the disk. PURE.

Code that runs on the event loop and can be retried reads inside of `with cold_pages:`.
1. `take` returns the bytes if they are in the page cache; else it raises PagesCold.
2. The caller passes the PageRange of the error to `bring`: a thread reads the pages into the page cache.
3. `bring` calls the caller back, and the caller retries.
For some seconds after step 3, `take` reads that range even if its pages have been evicted meanwhile: else,
where memory is short, a caller that needs many ranges would retry for ever. Outside of the `with` block, and
on other threads, a read may wait for the disk. Source: docs/decisions/0029.
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

# The least that a thread reads: of a log as much as the kernel reads ahead, of an index most of the file.
WINDOW_BYTES = 128 * KIB
INDEX_WINDOW_BYTES = MIB
_CHUNK_BYTES = 4 * KIB
_POOL: Pool = "pages"
# How long, and for how many ranges, the callers may read pages that a thread has read.
_KEPT_MS = 10_000
_KEPT_MAX = 1_000
# How many callbacks for the same pages run in one turn: each retries its read, which takes 20 us or more.
_CALLBACKS_PER_TURN = 20
PagesReadCallback = Callable[[int], Effects]
PageRangeKey = tuple[str, int, int]


class PageRange(NamedTuple):
    """A range of bytes of a file that a thread is to read into the page cache."""

    fs: Fs
    path: str
    position: int
    size_bytes: int

    @property
    def key(self) -> PageRangeKey:
        return self.path, self.position, self.size_bytes


# Steps of a long read: each yields None, or the pages that must be in memory before the next step.
ColdSteps = Iterator[PageRange | None]


class PagesCold(StorageError):
    """The pages of `place` are not in the page cache: a thread has to read them first. Nothing is wrong."""

    def __init__(self, place: PageRange) -> None:
        super().__init__("not in memory", path=place.path, position=place.position)
        self.place = place

    @property
    def is_passing(self) -> bool:
        """True: the pages will be read."""
        return True


class _Brought(NamedTuple):
    """The result of a thread's read: `problem` where it failed. It counts until `until_ms`."""

    problem: StorageError | None
    until_ms: int


class ColdPages:
    """The page ranges of one node that threads read, with the callers that wait for them."""

    __slots__ = ("_begin", "_brought", "_chunk", "_file", "_serial", "_token", "_under_way")

    def __init__(self) -> None:
        self._under_way: dict[
            PageRangeKey, dict[object, PagesReadCallback]
        ] = {}  # callbacks by caller
        self._brought: dict[PageRangeKey, _Brought] = {}  # oldest first
        self._token: Token[ColdPages | None] | None = None
        self._serial = 0
        # The chunk that was read last: the next read is nearly always within it.
        self._file: File | None = None
        self._begin = 0
        self._chunk: Buffer = b""

    def __enter__(self) -> None:
        self._token = _asked.set(self)

    def __exit__(self, *_: object) -> None:
        self._file, self._chunk = None, b""
        assert self._token is not None
        _asked.reset(self._token)

    def bring(self, place: PageRange, who: object, then: PagesReadCallback | None) -> Effects:
        """Have a thread read the range, once for all callers; then call `then(now_ms)`.

        A caller `who` that calls `leave` before is not called back.
        """
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

    def leave(self, key: PageRangeKey, who: object) -> None:
        """Drop the callback of `who`, for instance because the disk took too long."""
        self._under_way.get(key, {}).pop(who, None)

    def _note(self, key: PageRangeKey, result: object, now_ms: int) -> None:
        """Keep the result for the retries: success, an error of the disk, or a full pool."""
        if isinstance(result, KafkaError):
            # The pool is full because a disk hangs: the event loop must not read from it.
            result = StorageError("too many wait for the disks", path=key[0], error="EAGAIN")
        elif isinstance(result, Exception) and not isinstance(result, StorageError):
            raise result
        problem = result if isinstance(result, StorageError) else None
        self._brought.pop(key, None)
        self._brought[key] = _Brought(problem, now_ms + _KEPT_MS)
        if len(self._brought) > _KEPT_MAX:
            del self._brought[next(iter(self._brought))]

    def forget(self, now_ms: int) -> None:
        """Drop results that are too old: pages that were evicted since are read by a thread again."""
        for key, brought in list(self._brought.items()):
            if brought.until_ms > now_ms:
                break
            del self._brought[key]

    def _came(self, key: PageRangeKey, result: object, now_ms: int) -> Effects:
        self._note(key, result, now_ms)
        return self._call_back(deque(self._under_way.pop(key).values()), now_ms)

    def _call_back(self, waiting: deque[PagesReadCallback], now_ms: int) -> Effects:
        effects: Effects = []
        for _ in range(min(len(waiting), _CALLBACKS_PER_TURN)):
            effects += waiting.popleft()(now_ms)
        if waiting:
            self._serial += 1
            rest = partial(self._call_back, waiting)
            effects.append(SetTimer(key=("pages", self._serial), at_ms=now_ms, then=rest))
        return effects

    def take(self, fs: Fs, file: File, position: int, size_bytes: int, window_bytes: int) -> Buffer:
        """See the function `take`."""
        at = position - self._begin
        if file is self._file and at >= 0 and at + size_bytes <= len(self._chunk):
            return self._chunk[at : at + size_bytes]
        size = size_bytes if size_bytes > _CHUNK_BYTES else _CHUNK_BYTES
        found = file.read_ready(position, size)
        if found is None:
            begin = position // window_bytes * window_bytes
            end = max(begin + window_bytes, position + size)
            found = self._missing(
                PageRange(fs, file.path, begin, end - begin), file, position, size
            )
        self._file, self._begin, self._chunk = file, position, found
        return found if size == size_bytes else found[:size_bytes]

    def _missing(self, place: PageRange, file: File, position: int, size_bytes: int) -> bytes:
        """Read pages that are not in memory if a thread has read them a moment ago; else raise PagesCold."""
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
    """Like `file.read`; inside of `with cold_pages:` it raises PagesCold rather than wait for the disk."""
    pages = _asked.get()
    if pages is None:
        return file.read(position, size_bytes)
    return pages.take(fs, file, position, size_bytes, window_bytes)


@contextmanager
def waiting() -> Iterator[None]:
    """Within this block reads may wait for the disk: for code that cannot be retried half-way."""
    token = _asked.set(None)
    try:
        yield
    finally:
        _asked.reset(token)


def _read(place: PageRange) -> None:
    """Read the range; runs on a thread. It opens the path, so no more files are open than threads run."""
    try:
        file = place.fs.open_to_read(place.path)
    except StorageError:
        return  # the file is gone, or there is no descriptor: the retry gets that error
    try:
        end = min(place.position + place.size_bytes, file.size())
        for position in range(place.position, end, MIB):
            file.read(position, min(MIB, end - position))
    finally:
        file.close()
