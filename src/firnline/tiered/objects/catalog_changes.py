"""Writes versions of a catalog, and begins a leader's. STORE. Source: spec T62; docs/formats/catalog.md."""

from collections.abc import Callable, Sequence

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.guard import Before
from firnline.tiered.catalog.writer import CatalogState, CatalogUpdate, CatalogWriter
from firnline.tiered.objects.catalog_reader import read_before
from firnline.tiered.objects.layout import catalog_folder, parts_folder
from firnline.tiered.objects.names import register_name


def write_version(
    store: ObjectStore, writer: CatalogWriter, state: CatalogState, now_ms: int
) -> tuple[CatalogUpdate, Exception | None]:
    """Make and put the objects of a version; return the attempt, and its error.

    A new leader writes the whole history, which may take long: so it runs in a worker.
    """
    update = writer.prepare(state, now_ms)
    try:
        apply_update(store, update)
    except Exception as problem:  # noqa: BLE001 - plug-ins raise what they like (F8, F34)
        return update, problem
    return update, None


def apply_update(store: ObjectStore, update: CatalogUpdate) -> None:
    """Put parts, then the head; then delete superseded objects, where errors do no harm."""
    for key, data in update.puts:
        store.put(key, (data,), size_bytes=len(data))
    delete_quietly(store, update.deletes)


def delete_quietly(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete superseded objects; a later leader finds the remaining ones in its listing."""
    for key in keys:
        try:
            store.delete(key)
        except StorageError:
            return


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
    folders = catalog_folder(topic_id, partition), parts_folder(topic_id, partition)
    keys = [info.key for folder in folders for info in store.list_prefix(folder)]
    return read_before(store, topic_id, partition, keys)
