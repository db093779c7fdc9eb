"""Writes versions of a catalog, begins a leader's, and deletes old objects. STORE.

Source: spec T62; decision 0044; docs/formats/catalog.md.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogSegment, PartRef
from firnline.tiered.catalog.guard import Before
from firnline.tiered.catalog.writer import CatalogState, CatalogUpdate, CatalogWriter
from firnline.tiered.objects.catalog_reader import (
    READS_MAX,
    heads_of_partition,
    read_before,
    read_part,
)
from firnline.tiered.objects.layout import (
    head_key,
    heads_folder,
    old_parts_folder,
    parse_written_epoch,
    parts_folder,
)
from firnline.tiered.objects.names import register_name

PartsRead = dict[str, tuple[list[CatalogSegment], list[PartRef]]]


class PredecessorGone(StorageError):
    """The head whose parts were taken over was deleted meanwhile, so that its parts may be, too."""


def write_version(
    store: ObjectStore, writer: CatalogWriter, state: CatalogState, now_ms: int
) -> tuple[CatalogUpdate, Exception | None, frozenset[str]]:
    """Make and put the objects of a version; return the attempt, its error, and the deleted keys.

    It may write the whole history, which may take long: so it runs in a worker.
    """
    read = partial(read_part_once, store, {})
    update = writer.prepare(state, now_ms, read)
    try:
        deleted = apply_update(store, writer, update)
    except Exception as problem:  # noqa: BLE001 - plug-ins raise what they like (F8, F34)
        return update, problem, frozenset()
    return update, None, deleted


def apply_update(
    store: ObjectStore, writer: CatalogWriter, update: CatalogUpdate
) -> frozenset[str]:
    """Put parts, then the head; then delete superseded objects. Returns the keys that are certainly gone.

    Errors of deletions do no harm. Raises PredecessorGone if the head must not count.
    """
    for key, data in update.puts:
        store.put(key, (data,), size_bytes=len(data))
    if update.follows is not None:
        key = head_key(writer.topic_id, writer.partition, update.follows)
        if not _exists(store, key):
            raise PredecessorGone("another leader of the partition is writing its catalog", key=key)
    deleted: set[str] = set()
    with suppress(StorageError):  # what is left is deleted with a later head, or by a later leader
        _delete_old(store, writer.topic_id, writer.partition, update, deleted)
    return frozenset(deleted)


def _delete_old(
    store: ObjectStore, topic_id: Uuid, partition: int, update: CatalogUpdate, deleted: set[str]
) -> None:
    """Delete superseded heads, and then parts; note each key that is gone.

    The order matters. A successor refers to parts of a head that it finds after it has put its own head. So
    either it finds that this leader has deleted the head, or this leader finds the successor's.
    """
    for key in update.old_heads:
        store.delete(key)
        deleted.add(key)
    if not update.old_parts and update.sweep is None:
        return
    epoch = update.name.leader_epoch
    heads = heads_of_partition(store, topic_id, partition)
    if any(name.leader_epoch > epoch for name in heads):
        return
    if update.old_parts:
        store.delete_many(update.old_parts)
        deleted.update(update.old_parts)
    if update.sweep is not None:
        unused = _unused_parts(store, topic_id, partition, update)
        if unused:
            store.delete_many(unused)


def _unused_parts(
    store: ObjectStore, topic_id: Uuid, partition: int, update: CatalogUpdate
) -> list[str]:
    """Return the parts that former leaders, failed attempts and version 1 have left.

    Raises ObjectMissing or CatalogCorrupt if a part of the catalog cannot be read: then nobody knows.
    """
    used = set(update.sweep or ())
    waiting = update.references
    while waiting:
        ref = waiting.pop()
        used.add(ref.key)
        if ref.level > 1:
            waiting += read_part(store, ref)[1]
        elif ref.level:
            used.update(below.key for below in read_part(store, ref)[1])
    unused = []
    for folder in (parts_folder(topic_id, partition), old_parts_folder(topic_id, partition)):
        for info in store.list_prefix(folder):
            epoch = parse_written_epoch(info.key)
            if info.key not in used and epoch is not None and epoch <= update.name.leader_epoch:
                unused.append(info.key)
    return unused


def read_part_once(
    store: ObjectStore, known: PartsRead, ref: PartRef
) -> tuple[list[CatalogSegment], list[PartRef]]:
    """Return the content of a part, from `known` if it was read before.

    Raises ObjectMissing, CatalogCorrupt.
    """
    if ref.key not in known:
        known[ref.key] = read_part(store, ref)
    return known[ref.key]


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.get(key, 0, 1)
    except ObjectMissing:
        return False
    return True


def begin_catalog(
    store: ObjectStore,
    *,
    topic: str,
    topic_id: Uuid,
    partition: int,
    now_ms: int,
    check_owner: Callable[[], None] | None = None,
) -> Before:
    """Register the topic's name, once, and return the present catalog.

    If the store belongs to another cluster, `check_owner` raises WrongTier, and nothing is registered.
    """
    if check_owner is not None:
        check_owner()
    register_name(store, topic=topic, topic_id=topic_id, now_ms=now_ms)
    for attempt in range(READS_MAX):
        keys = [info.key for info in store.list_prefix(heads_folder(topic_id, partition))]
        with suppress(ObjectMissing):  # a former leader still writes: list again
            is_last = attempt + 1 == READS_MAX
            return read_before(store, topic_id, partition, keys, accepts_older=is_last)
    raise AssertionError("the last attempt accepts what there is")
