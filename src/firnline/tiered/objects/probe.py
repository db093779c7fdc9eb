"""Asks a store whether it takes reads, writes and deletions. STORE. Source: decision 0037."""

from collections.abc import Callable, Sequence
from typing import Literal

from firnline.stores.port import CLUSTER_KEY, ObjectMissing, ObjectStore, RemoteStorageError

Operation = Literal["read", "write", "copy", "delete"]

PROBE_KEY = "probe"
_PROBE_DATA = b"This object shows that the store takes writes. It can be deleted.\n"


def probe(
    store: ObjectStore, check_owner: Callable[[], None] | None, operations: Sequence[Operation]
) -> tuple[int, Exception | None]:
    """Try the operations in order; return how many succeeded, and the error of the next one.

    Nothing is put into a store that belongs to another cluster.
    """
    for done, operation in enumerate(operations):
        try:
            if operation == "read":
                _get(store)
            else:
                if check_owner is not None:
                    check_owner()
                store.put(PROBE_KEY, (_PROBE_DATA,), size_bytes=len(_PROBE_DATA))
                _delete(store, must_succeed=operation == "delete")
        except Exception as problem:  # noqa: BLE001 - the client of a store raises what it likes
            return done, problem
    return len(operations), None


def _get(store: ObjectStore) -> None:
    try:
        store.get(CLUSTER_KEY)
    except ObjectMissing:
        return  # it answers


def _delete(store: ObjectStore, *, must_succeed: bool) -> None:
    try:
        store.delete(PROBE_KEY)
    except RemoteStorageError:
        if must_succeed:
            raise
