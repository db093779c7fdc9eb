"""Reads catalogs: of a partition, of all topics, and what a new leader compares with. STORE.

Readers without a broker use this, too. Source: spec T62; docs/formats/catalog.md.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

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
    RowForm,
    decode_head,
    decode_head_as,
    decode_part,
)
from firnline.tiered.catalog.guard import Before, Row
from firnline.tiered.objects.layout import (
    LOG,
    NAMES_FOLDER,
    HeadName,
    TopicName,
    head_key,
    heads_folder,
    names_folder,
    old_parts_folder,
    parse_catalog_partition,
    parse_head,
    parse_name,
    parts_folder,
    segment_stem,
    topic_catalog_folder,
)

T = TypeVar("T")
# How often a reader lists a partition whose head or part is gone: a leader keeps three heads, and writes one
# with each segment.
READS_MAX = 4
# The number of lost segments that are searched in the store, and counted.
NAMED_MAX = 100


def read_catalog(
    store: ObjectStore, topic_id: Uuid, partition: int, head: HeadName | None = None
) -> PartitionCatalog | None:
    """Return the newest version that a listing shows; None if there is none.

    head  the newest one in a listing that the caller has (`list_heads_of_topic`); it is tried first

    Raises ObjectMissing as `with_newest`, and CatalogCorrupt.
    """
    return with_newest(store, topic_id, partition, head, partial(read_version, store))


def newest_head(store: ObjectStore, topic_id: Uuid, partition: int) -> CatalogHead | None:
    """As `read_catalog`, without the parts."""
    return with_newest(store, topic_id, partition, None, partial(read_head, store))


def with_newest(
    store: ObjectStore,
    topic_id: Uuid,
    partition: int,
    head: HeadName | None,
    read: Callable[[Uuid, int, HeadName], T],
) -> T | None:
    """Return what `read` makes of the newest head of a partition; None if a first listing shows none.

    An object that is deleted between the listing and the read implies a newer head: then the partition is
    listed again, a few times. Raises ObjectMissing if that fails, too.

    head  the newest one in a listing that the caller has; it is tried first
    """
    gone: ObjectMissing | None = None
    for attempt in range(READS_MAX):
        if attempt or head is None:
            heads = heads_of_partition(store, topic_id, partition)
            if not heads and not attempt:
                return None
            head = heads[0] if heads else None
        if head is not None:
            try:
                return read(topic_id, partition, head)
            except ObjectMissing as problem:
                gone = problem
    raise ObjectMissing(
        "objects of a catalog are gone, and no listing shows a newer one",
        folder=heads_folder(topic_id, partition),
        **{} if gone is None else gone.facts,
    )


def heads_of_partition(store: ObjectStore, topic_id: Uuid, partition: int) -> list[HeadName]:
    """List the heads of a partition, the newest first."""
    return list_heads(info.key for info in store.list_prefix(heads_folder(topic_id, partition)))


def list_heads(keys: Iterable[str]) -> list[HeadName]:
    """Return the names of the heads among `keys`, the newest first."""
    return sorted((name for name in map(parse_head, keys) if name is not None), reverse=True)


def read_version(
    store: ObjectStore, topic_id: Uuid, partition: int, name: HeadName
) -> PartitionCatalog:
    """Return the version of the head `name`. Raises ObjectMissing, CatalogCorrupt."""
    return read_rows(store, read_head(store, topic_id, partition, name))


def read_head(store: ObjectStore, topic_id: Uuid, partition: int, name: HeadName) -> CatalogHead:
    """Return the head `name`, without its parts. Raises ObjectMissing, CatalogCorrupt."""
    key = head_key(topic_id, partition, name)
    return _named(decode_head(_get(store, key), key), topic_id, partition, name)


def read_head_as(
    form: RowForm[T],
    store: ObjectStore,
    topic_id: Uuid,
    partition: int,
    name: HeadName,
) -> tuple[CatalogHead, list[T]]:
    """As `read_head`, with the rows of its tail in another form; the head itself has none."""
    key = head_key(topic_id, partition, name)
    head, tail = decode_head_as(form, _get(store, key), key)
    return _named(head, topic_id, partition, name), tail


def _named(head: CatalogHead, topic_id: Uuid, partition: int, name: HeadName) -> CatalogHead:
    """Return the head; CatalogCorrupt if it is another one than its name says."""
    if (head.topic_id, head.partition, *head.order) != (topic_id, partition, *name):
        key = head_key(topic_id, partition, name)
        raise CatalogCorrupt("a catalog head is another one than its name says", key=key)
    return head


def read_rows(
    store: ObjectStore, head: CatalogHead, wants: Callable[[PartRef], bool] = lambda ref: True
) -> PartitionCatalog:
    """Return the version of a head, with the rows of its parts. Raises ObjectMissing, CatalogCorrupt.

    wants  whether to read a part and those below it: one that cannot have what is asked for costs no request
    """
    rows = _Parts(store, head, wants).rows()
    removed = {segment_id for segment_id, _ in head.removed}
    segments = sorted(
        (r for r in rows if r.end_offset >= head.log_start_offset and r.segment_id not in removed),
        key=lambda row: (row.base_offset, row.end_offset, row.segment_id),
    )
    return PartitionCatalog(*head[:12], tuple(segments))


def read_part(store: ObjectStore, ref: PartRef) -> tuple[list[CatalogSegment], list[PartRef]]:
    """Return the rows of a part, or its references. Raises ObjectMissing, CatalogCorrupt."""
    return decode_part(store.get(ref.key, 0, ref.size_bytes + 1), ref)


def _get(store: ObjectStore, key: str) -> bytes:
    """Return a head, whose size is unknown."""
    data = store.get(key, 0, OBJECT_BYTES_MAX + 1)
    if len(data) > OBJECT_BYTES_MAX:
        raise CatalogCorrupt("a catalog object is too long", key=key, limit=OBJECT_BYTES_MAX)
    return data


class _Parts:
    """Reads the rows of one version. No object is read twice, whatever the references are."""

    def __init__(
        self, store: ObjectStore, head: CatalogHead, wants: Callable[[PartRef], bool]
    ) -> None:
        self._store = store
        self._head = head
        self._wants = wants
        folder_of = parts_folder if head.version > 1 else old_parts_folder
        self._folder = folder_of(head.topic_id, head.partition)
        self._keys: set[str] = set()
        self._rows = list(head.tail)

    def rows(self) -> list[CatalogSegment]:
        for ref in self._head.parts:
            self._read(ref)
        return self._rows

    def _read(self, ref: PartRef) -> None:
        """Add the rows below `ref`; parts that end below the log start are not read."""
        if ref.end_offset < self._head.log_start_offset or not self._wants(ref):
            return
        key = ref.key
        if key in self._keys or not key.startswith(self._folder):
            raise CatalogCorrupt("a catalog refers to a part twice, or to another's", key=key)
        self._keys.add(key)
        rows, refs = read_part(self._store, ref)
        self._rows += rows
        if len(self._rows) > ROWS_MAX:
            raise CatalogCorrupt("a catalog has too many rows", key=key, limit=ROWS_MAX)
        for below in refs:
            self._read(below)


def list_topics(store: ObjectStore) -> list[CatalogTopic]:
    """Return all topic ids in the tier, with deleted ones marked, by name and age.

    One listing of the name register. Partitions are listed by topic: `list_heads_of_topic`.
    """
    names = [n for n in (parse_name(i.key) for i in store.list_prefix(NAMES_FOLDER)) if n]
    return sorted(_by_id(names).values(), key=lambda t: (t.topic, t.registered_ms, t.topic_id))


def resolve_topic(store: ObjectStore, topic: str) -> CatalogTopic | None:
    """Return the present topic of a name: the newest id that is not deleted, else the newest.

    None if the tier does not have the name. Older topics can be read by id.
    """
    return next(iter(topics_named(store, topic)), None)


def topics_named(store: ObjectStore, topic: str) -> list[CatalogTopic]:
    """Return all topic ids that have a name: those that are not deleted first, the newest first."""
    listed = store.list_prefix(names_folder(topic))
    topics = _by_id([n for n in (parse_name(i.key) for i in listed) if n is not None])
    return sorted(
        topics.values(),
        key=lambda t: (not t.is_deleted, t.registered_ms, t.topic_id),
        reverse=True,
    )


def list_heads_of_topic(store: ObjectStore, topic_id: Uuid) -> dict[int, HeadName]:
    """Return the newest head of each partition of a topic that has a catalog, by partition: one listing.

    A leader keeps at most three heads, so 1,000 partitions are three pages of 1,000 keys. Partitions with a
    catalog of version 1 have their parts in the same listing.
    """
    newest: dict[int, HeadName] = {}
    for info in store.list_prefix(topic_catalog_folder(topic_id)):
        where, name = parse_catalog_partition(info.key), parse_head(info.key)
        if where is not None and name is not None:
            newest[where[1]] = max(name, newest.get(where[1], name))
    return dict(sorted(newest.items()))


def list_partitions(store: ObjectStore, topic_id: Uuid) -> tuple[int, ...]:
    """Return the partitions of a topic that have a catalog, ascending."""
    return tuple(list_heads_of_topic(store, topic_id))


def _by_id(names: Sequence[TopicName]) -> dict[Uuid, CatalogTopic]:
    """Merge entries of the name register. If several leaders registered an id, the earliest time counts."""
    topics: dict[Uuid, CatalogTopic] = {}
    for name in names:
        known = topics.get(name.topic_id)
        topics[name.topic_id] = CatalogTopic(
            topic_id=name.topic_id,
            topic=name.topic,
            registered_ms=min(name.registered_ms, known.registered_ms)
            if known
            else name.registered_ms,
            is_deleted=name.is_deleted or (known is not None and known.is_deleted),
        )
    return topics


def read_before(
    store: ObjectStore,
    topic_id: Uuid,
    partition: int,
    listed: Collection[str],
    *,
    accepts_older: bool,
) -> Before:
    """Return the newest readable version; without its parts if a new leader may take them over.

    It may only if that is the newest head of all: parts of an older one may be deleted, and it may be of a
    leader that was deposed long ago. The first head of a leader counts only while the one that it follows is
    there: else parts of it may be gone, and are read now. Log start 0 and no segments if none can be read.

    accepts_older  False: raise ObjectMissing if the newest head is gone, which implies a newer one
    """
    heads = list_heads(listed)
    for name in heads:
        is_newest = name == heads[0]
        try:
            head = read_head(store, topic_id, partition, name)
            if is_newest and head.version > 1 and _is_certain(store, head):
                return Before(tuple(listed), head, (), head.log_start_offset)
            found = read_rows(store, head)
        except CatalogCorrupt:
            continue
        except ObjectMissing:
            if is_newest and not accepts_older:
                raise
            continue
        return Before(tuple(listed), None, found.segments, found.log_start_offset)
    return Before(tuple(listed), log_start_offset=0 if heads else None)


def _is_certain(store: ObjectStore, head: CatalogHead) -> bool:
    if head.follows is None:
        return True
    try:
        store.get(head_key(head.topic_id, head.partition, head.follows), 0, 1)
    except ObjectMissing:
        return False
    return True


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
