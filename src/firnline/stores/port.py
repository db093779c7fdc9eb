"""The port to an object store. PURE.

Its methods block, and are called only from worker threads. Source: spec 3.9; ecosystem 1.2.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from firnline.base.errors import StorageError
from firnline.base.ports import Buffer

# The object that names the cluster to which the objects of a tier belong (docs/formats/tier.md).
CLUSTER_KEY = "cluster.json"


class ObjectMissing(StorageError):
    """There is no object with that key. Distinct from a store that does not answer (spec 3.9)."""


class RemoteStorageError(StorageError):
    """The store refused, failed or could not be reached; a retry may succeed."""


class ObjectInfo(NamedTuple):
    """One listed object."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """A flat name space of immutable byte strings: a directory, S3, GCS, Azure, HDFS.

    Keys have '/' between folders. Atomic preconditions are not required, and `list_prefix` may be behind
    `put` and `delete`: no decision of a broker depends on either (ecosystem 1.2). Errors: ObjectMissing,
    RemoteStorageError. Must be usable from several threads at once.
    """

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """Store the concatenation of `chunks`, visible only when complete and durable.

        `size_bytes` is their total size; otherwise RemoteStorageError, and nothing is visible. A repeated put
        of the same bytes with the same key is allowed.
        """
        ...

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """Return `size_bytes` from `position` on, fewer only at the end of the object; None: all the rest."""
        ...

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """Return every object below the folder `prefix` (which ends with '/'), sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object; succeeds if there is none."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
