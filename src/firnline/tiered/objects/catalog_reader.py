"""Reads catalogs: of a partition, of all topics, and what a new leader compares with. STORE.

Readers without a broker use this, too. Source: spec T62; docs/formats/catalog.md.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from firnline.base.ids import Uuid
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import (
    OBJECT_BYTES_MAX,
    ROWS_MAX,
    CatalogCorrupt,
    CatalogHead,
    CatalogSegment,
    CatalogTopic,
    PartitionCatalog,
    PartRef,
    decode_head,
    decode_part,
)
from firnline.tiered.catalog.guard import Before, Row
from firnline.tiered.objects.layout import (
    CATALOG_FOLDER,
    LOG,
    NAMES_FOLDER,
    HeadName,
    TopicName,
    head_key,
    heads_folder,
    names_folder,
    parse_catalog_partition,
    parse_head,
    parse_name,
    parts_folder,
    segment_stem,
    topic_catalog_folder,
)

# The number of lost segments that are searched in the store, and counted.
NAMED_MAX = 100


def read_catalog(store: ObjectStore, topic_id: Uuid, partition: int) -> PartitionCatalog | None:
    """Return the newest version that a listing shows; None if there is none.

    An object that is deleted between the listing and the read implies a newer head: the listing is repeated
    once. Raises ObjectMissing if that fails, too, and CatalogCorrupt.
    """
    try:
        return _read_newest(store, topic_id, partition)
    except ObjectMissing:
        return _read_newest(store, topic_id, partition)


def _read_newest(store: ObjectStore, topic_id: Uuid, partition: int) -> PartitionCatalog | None:
    listed = store.list_prefix(heads_folder(topic_id, partition))
    names = list_heads([info.key for info in listed])
    return read_version(store, topic_id, partition, names[0]) if names else None


def list_heads(keys: Iterable[str]) -> list[HeadName]:
    """Return the names of the heads among `keys`, the newest first."""
    return sorted((name for name in map(parse_head, keys) if name is not None), reverse=True)


def read_version(
    store: ObjectStore, topic_id: Uuid, partition: int, name: HeadName
) -> PartitionCatalog:
    """Return the version of the head `name`. Raises ObjectMissing, CatalogCorrupt."""
    key = head_key(topic_id, partition, name)
    head = decode_head(_get(store, key), key)
    if (head.topic_id, head.partition, *head.order) != (topic_id, partition, *name):
        raise CatalogCorrupt("a catalog head is another one than its name says", key=key)
    rows = _Parts(store, head).rows()
    removed = frozenset(head.removed)
    segments = sorted(
        (r for r in rows if r.end_offset >= head.log_start_offset and r.segment_id not in removed),
        key=lambda row: (row.base_offset, row.end_offset, row.segment_id),
    )
    return PartitionCatalog(*head[:12], tuple(segments))


def _get(store: ObjectStore, key: str) -> bytes:
    """Return a head, whose size is unknown."""
    data = store.get(key, 0, OBJECT_BYTES_MAX + 1)
    if len(data) > OBJECT_BYTES_MAX:
        raise CatalogCorrupt("a catalog object is too long", key=key, limit=OBJECT_BYTES_MAX)
    return data


class _Parts:
    """Reads the rows of one version. No object is read twice, whatever the references are."""

    def __init__(self, store: ObjectStore, head: CatalogHead) -> None:
        self._store = store
        self._head = head
        self._folder = parts_folder(head.topic_id, head.partition)
        self._keys: set[str] = set()
        self._rows = list(head.tail)

    def rows(self) -> list[CatalogSegment]:
        for ref in self._head.parts:
            self._read(ref)
        return self._rows

    def _read(self, ref: PartRef) -> None:
        """Add the rows below `ref`; parts that end below the log start are not read."""
        if ref.end_offset < self._head.log_start_offset:
            return
        key = ref.key
        if key in self._keys or not key.startswith(self._folder):
            raise CatalogCorrupt("a catalog refers to a part twice, or to another's", key=key)
        self._keys.add(key)
        rows, refs = decode_part(self._store.get(key, 0, ref.size_bytes + 1), ref)
        self._rows += rows
        if len(self._rows) > ROWS_MAX:
            raise CatalogCorrupt("a catalog has too many rows", key=key, limit=ROWS_MAX)
        for below in refs:
            self._read(below)


def list_topics(store: ObjectStore) -> list[CatalogTopic]:
    """Return all topic ids in the tier, with deleted ones marked, by name and age."""
    partitions: dict[Uuid, dict[int, str]] = {}
    for info in store.list_prefix(CATALOG_FOLDER):
        where = parse_catalog_partition(info.key)
        if where is not None:
            partitions.setdefault(where[0], {})[where[1]] = info.key
    names = [n for n in (parse_name(i.key) for i in store.list_prefix(NAMES_FOLDER)) if n]
    topics = _by_id(names)
    for topic_id, found in partitions.items():
        known = topics.get(topic_id)
        if known is None:  # the listing of names is stale: the head has the name, too
            key = found[min(found)]
            head = decode_head(_get(store, key), key)
            if head.topic_id != topic_id:
                raise CatalogCorrupt("a catalog head is another topic's", key=key)
            known = CatalogTopic(topic_id, head.topic, (), head.written_ms, False)
        topics[topic_id] = known._replace(partitions=tuple(sorted(found)))
    return sorted(topics.values(), key=lambda t: (t.topic, t.registered_ms, t.topic_id))


def resolve_topic(store: ObjectStore, topic: str) -> CatalogTopic | None:
    """Return the present topic of a name: the newest id that is not deleted, else the newest.

    None if the tier does not have the name. Older topics can be read by id.
    """
    listed = store.list_prefix(names_folder(topic))
    topics = _by_id([n for n in (parse_name(i.key) for i in listed) if n is not None])
    if not topics:
        return None
    newest = max(topics.values(), key=lambda t: (not t.is_deleted, t.registered_ms, t.topic_id))
    return newest._replace(partitions=list_partitions(store, newest.topic_id))


def list_partitions(store: ObjectStore, topic_id: Uuid) -> tuple[int, ...]:
    """Return the partitions of a topic that have a catalog, ascending."""
    infos = store.list_prefix(topic_catalog_folder(topic_id))
    found = {w[1] for w in (parse_catalog_partition(i.key) for i in infos) if w is not None}
    return tuple(sorted(found))


def _by_id(names: Sequence[TopicName]) -> dict[Uuid, CatalogTopic]:
    """Merge entries of the name register. If several leaders registered an id, the earliest time counts."""
    topics: dict[Uuid, CatalogTopic] = {}
    for name in names:
        known = topics.get(name.topic_id)
        topics[name.topic_id] = CatalogTopic(
            topic_id=name.topic_id,
            topic=name.topic,
            partitions=(),
            registered_ms=min(name.registered_ms, known.registered_ms)
            if known
            else name.registered_ms,
            is_deleted=name.is_deleted or (known is not None and known.is_deleted),
        )
    return topics


def read_before(
    store: ObjectStore, topic_id: Uuid, partition: int, listed: Collection[str]
) -> Before:
    """Return what the newest readable version has; no segments, and log start 0, if none can be read."""
    heads = list_heads(listed)
    for name in heads:
        try:
            found = read_version(store, topic_id, partition, name)
        except (CatalogCorrupt, ObjectMissing):
            continue
        return Before(tuple(listed), found.segments, found.log_start_offset)
    return Before(tuple(listed), log_start_offset=0 if heads else None)


def still_there(
    store: ObjectStore, topic_id: Uuid, partition: int, rows: Collection[Row]
) -> list[Row]:
    """Return those of `rows` whose log object is in the store, at most the first `NAMED_MAX`.

    The check is repeated while there are some, and one is enough for the error.
    """
    there = (row for row in rows if _has_log(store, topic_id, partition, row))
    return list(islice(there, NAMED_MAX))


def _has_log(store: ObjectStore, topic_id: Uuid, partition: int, row: Row) -> bool:
    stem = segment_stem(topic_id, partition, base_offset=row.base_offset, segment_id=row.segment_id)
    try:
        store.get(stem + LOG, 0, 1)
    except ObjectMissing:
        return False
    return True
