"""The port to an object store. PURE.

Its methods block, and are called only from worker threads. Source: spec 3.9; ecosystem 1.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from firnline.base.errors import StorageError
from firnline.base.ports import Buffer, File

# The object that names the cluster to which the objects of a tier belong (docs/formats/tier.md).
CLUSTER_KEY = "cluster.json"
# `firnline dev` keeps its data beside a tier in a directory, under that name and this.
DEV_DATA_SUFFIX = "-data"


class ObjectMissing(StorageError):
    """There is no object with that key. Distinct from a store that does not answer (spec 3.9)."""


class RemoteStorageError(StorageError):
    """The store refused, failed or could not be reached; a retry may succeed."""


class StoreRefused(RemoteStorageError):
    """The store answered, and refused: credentials, rights, a bucket that is not there, a clock that is off.

    The operator has to act; a retry succeeds only after that.
    """


class ObjectStat(NamedTuple):
    """What a store knows about an object without reading it.

    modified_ms  when the store took it, by the store's clock, in ms since 1970
    checksum     what the store calls it (S3: ETag); None if it has none. Only for comparing with itself.
    """

    size_bytes: int
    modified_ms: int
    checksum: str | None


class ObjectInfo(NamedTuple):
    """One listed object."""

    key: str
    size_bytes: int


class NewObject(NamedTuple):
    """An object to put; see `ObjectStore.put`. `chunks` are read once, or not at all.

    open_file  opens a local file with the same bytes, for a store that lets the kernel copy them. The store
               does not look at those bytes: the caller has to, afterwards. None: there is no such file
    """

    key: str
    chunks: Iterable[Buffer]
    size_bytes: int
    open_file: Callable[[], File] | None = None


# How many objects a page of a listing has at most, and how many one request deletes: S3's limit for both.
PAGE_OBJECTS = 1000


class ObjectStore(Protocol):
    """A flat name space of immutable byte strings: a directory, S3, Google Cloud, Azure, HDFS.

    Keys have '/' between folders, and no key is another one with '/' and more behind it, because some stores
    refuse that. Atomic preconditions are not required, and listings may be behind `put` and `delete`: no
    decision of a broker depends on either (ecosystem 1.2). Each request has a deadline, which the store's
    settings name. Errors: ObjectMissing, RemoteStorageError. Must be usable from several threads at once.

    calls_at_once  how many calls for one segment to make at the same time; 1 where latency does not matter
    is_distant     whether a call takes so long that the tier reads ahead of consumers
    has_uploads    whether what a put that never ended has left belongs to a key (an upload to S3)
    """

    calls_at_once: int
    is_distant: bool
    has_uploads: bool

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """Store the concatenation of `chunks`, visible only when complete and durable.

        `size_bytes` is their total size; otherwise RemoteStorageError, and nothing is visible. A repeated put
        of the same bytes with the same key is allowed.
        """
        ...

    def put_together(self, objects: Sequence[NewObject]) -> None:
        """Store objects of one folder, each as `put` does; the last is visible once all others are durable.

        After a failure some of them may be visible, but not the last.
        """
        ...

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """Return `size_bytes` from `position` on, fewer only at the end of the object; None: all the rest."""
        ...

    def stat(self, key: str) -> ObjectStat:
        """Return length and age of the object, without reading it."""
        ...

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        """Yield the objects below `folder` (which ends with '/') in pages of at most PAGE_OBJECTS, by key.

        after  begin behind this key; it need not exist
        """
        ...

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """Return every object below the folder `prefix` (which ends with '/'), sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object; succeeds if there is none."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete objects in as few requests as the store allows; succeeds for those that do not exist.

        If some cannot be deleted it tries the others all the same, and raises then.
        """
        ...

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        """Remove what puts that never ended have left, if nothing was added for so long; return how many.

        prefix  only of keys that begin with it; a store that does not know the keys removes nothing then
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...


@runtime_checkable
class Views(Protocol):
    """What an ObjectStore may have besides: it gives the bytes where its client library has them."""

    def view(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Return what `get` does, without a copy. The bytes stay as long as what is returned."""
        ...


def view(store: ObjectStore, key: str, position: int, size_bytes: int) -> Buffer:
    """Return a range of an object, without a copy if the store can.

    A copy of some MiB holds the interpreter lock for milliseconds, and the event loop waits for it.
    """
    if isinstance(store, Views):
        return store.view(key, position, size_bytes)
    return store.get(key, position, size_bytes)


def in_pages(found: Sequence[ObjectInfo], after: str) -> Iterator[list[ObjectInfo]]:
    """Yield the pages of a listing that is in memory and sorted; see `ObjectStore.pages`."""
    rest = [info for info in found if info.key > after]
    for start in range(0, len(rest), PAGE_OBJECTS):
        yield rest[start : start + PAGE_OBJECTS]


def delete_each(delete: Callable[[str], None], keys: Sequence[str]) -> None:
    """Delete keys one by one; raise the first failure after the last of them."""
    failure: RemoteStorageError | None = None
    for key in keys:
        try:
            delete(key)
        except RemoteStorageError as problem:
            failure = failure or problem
    if failure is not None:
        raise failure
