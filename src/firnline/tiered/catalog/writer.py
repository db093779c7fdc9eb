"""Writes a partition's catalog: a bounded head for each change, and history in parts that never change. PURE.

`CatalogWriter` belongs to one leader epoch of one partition. It decides which objects to put and, some heads
later, which to delete; `apply_update` does so in a worker thread. The first head of a leader refers to the
parts of its predecessor, so that a failover writes no history. Why no part is deleted to which a successor
refers: docs/formats/catalog.md, 'Deleting'. Source: spec T62; decision 0044.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.base.units import MIB
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.stores.port import ObjectMissing
from firnline.tiered.catalog.format import (
    CatalogCorrupt,
    CatalogHead,
    CatalogSegment,
    Details,
    PartRef,
    details_in,
    encode_head,
    encode_part,
    reference,
)
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.layout import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    HeadName,
    head_key,
    parse_head,
    parse_written_epoch,
    part_key,
    parts_folder,
    segment_stem,
)
from firnline.tiered.spi import RemoteSegment

# Rows in a head, and references for each level: both bound the bytes that one new segment puts.
TAIL_ROWS = 32
FAN_OUT = 32
# Rows of one part when the whole history is written, and the bytes after which it ends all the same: a row of
# a segment of 2 GiB has 255 splits. So a part stays far below OBJECT_BYTES_MAX.
BULK_ROWS = 1024
BULK_BYTES = 4 * MIB
# Deleted segments whose rows are still in parts; with more, the whole history is written again.
REMOVED_MAX = 256
# A superseded object stays until there are this many newer heads, for readers with a stale listing. So there
# are as many heads of a partition, and three pages of 1,000 keys list those of 1,000 partitions.
HEADS_KEPT = 3

# Reads the rows of a part, or its references. Raises ObjectMissing and CatalogCorrupt.
ReadPart = Callable[[PartRef], tuple[list[CatalogSegment], list[PartRef]]]


class Changed(NamedTuple):
    """Segments that changed since the newest head: their present state, None for a removed one."""

    segments: Mapping[Uuid, RemoteSegment | None]

    def bring_up_to_date(self, known: dict[Uuid, RemoteSegment]) -> None:
        """Apply the changes to the earlier segments."""
        for segment_id, segment in self.segments.items():
            if segment is None:
                known.pop(segment_id, None)
            else:
                known[segment_id] = segment


class CatalogState(NamedTuple):
    """The content of a catalog version: the leader's view of one partition at one moment."""

    topic: str
    log_start_offset: int
    log_end_offset: int
    epochs: Epochs
    segments: dict[Uuid, RemoteSegment] | Changed  # only finished ones: all, or the changed ones
    metadata_partition: int
    metadata_offset: int
    details: Mapping[Uuid, Details] = {}  # of segments that this leader has copied


class _Tree(NamedTuple):
    """Rows in the head, references by level, and rows in parts whose segments are deleted."""

    tail: tuple[CatalogSegment, ...] = ()
    levels: tuple[tuple[PartRef, ...], ...] = ()
    removed: tuple[tuple[Uuid, int], ...] = ()  # with their end offsets


class Taken(NamedTuple):
    """What a new leader takes over from the newest head of its predecessor.

    follows  that head, if parts are taken over
    tail     its rows whose segments are still there
    levels   its parts, by level
    removed  segments whose rows in these parts do not count any more, with their end offsets
    known    the present segments that have a row in the tail or in a part; the writer keeps this dict
    details  of segments whose rows are written again
    """

    follows: HeadName | None = None
    tail: tuple[CatalogSegment, ...] = ()
    levels: tuple[tuple[PartRef, ...], ...] = ()
    removed: tuple[tuple[Uuid, int], ...] = ()
    known: dict[Uuid, RemoteSegment] | None = None
    details: Mapping[Uuid, Details] = {}


class CatalogUpdate(NamedTuple):
    """One attempt to write a version: puts in order, the head last; then deletes, best effort.

    follows       a head that has to exist after the puts: else parts that it refers to may be deleted
    old_heads     heads to delete, and then `old_parts`: no head that refers to them may exist any more
    sweep         parts to keep besides those of `tree`, if all others of this and lower epochs are to be
                  deleted; None: not with this version
    """

    name: HeadName
    puts: tuple[tuple[str, bytes], ...]
    follows: HeadName | None
    old_heads: tuple[str, ...]
    old_parts: tuple[str, ...]
    sweep: frozenset[str] | None
    tree: _Tree
    segments: dict[Uuid, RemoteSegment] | Changed
    superseded: tuple[str, ...]

    @property
    def references(self) -> list[PartRef]:
        """The parts in the head."""
        return [ref for level in self.tree.levels for ref in level]


class CatalogWriter:
    """The catalog of one partition in one leader epoch. One thread at a time uses it: a worker prepares.

    `listed` are the keys in the partition's folder of heads at the start of the epoch. They are only hints
    for cleaning up, and for the sequence, which also follows the clock.
    """

    def __init__(
        self,
        *,
        topic_id: Uuid,
        partition: int,
        leader_epoch: int,
        broker_id: int,
        listed: Sequence[str] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.broker_id = broker_id
        heads = sorted((name for name in map(parse_head, listed) if name is not None), reverse=True)
        same = [name.sequence for name in heads if name.leader_epoch == leader_epoch]
        self._last_sequence = max(same, default=-1)
        self._tree = _Tree()
        self.known: dict[Uuid, RemoteSegment] = {}  # the rows of the tree
        self._heads_written = 0
        # Head or part -> number of heads at the time it was superseded. Of the heads that were there before,
        # the newest counts as the one before the first, so that there are never more than HEADS_KEPT.
        old = [head_key(topic_id, partition, n) for n in heads if n.leader_epoch <= leader_epoch]
        self._garbage = {key: -age for age, key in enumerate(old)}
        self._has_swept = False
        # Until the first head is in the store: the head whose parts were taken over, and what was read.
        self._follows: HeadName | None = None
        self._taken_details: Mapping[Uuid, Details] = {}
        self._distrusts_parts = False

    def take(self, taken: Taken) -> None:
        """Begin with what the predecessor has written."""
        self._tree = _Tree(taken.tail, taken.levels, taken.removed)
        self.known = {} if taken.known is None else taken.known  # a copy would hold up the loop
        self._follows, self._taken_details = taken.follows, taken.details

    def distrust_parts(self) -> None:
        """Parts that were taken over may be deleted: the next version has none of them."""
        self._distrusts_parts = True

    def _is_ours_to_delete(self, key: str) -> bool:
        """Whether it is a part of this partition, of this leader epoch or a lower one."""
        epoch = parse_written_epoch(key)
        is_part = key.startswith(parts_folder(self.topic_id, self.partition))
        return is_part and epoch is not None and epoch <= self.leader_epoch

    def prepare(self, state: CatalogState, now_ms: int, read: ReadPart) -> CatalogUpdate:
        """Return the objects of a version with `state`. Every attempt has names of its own.

        read  reads parts of the tree, which is rarely needed; errors of the store are passed on
        """
        self._last_sequence = max(self._last_sequence + 1, now_ms)
        name = HeadName(self.leader_epoch, self._last_sequence)
        plan = _Plan(self.topic_id, self.partition, name)
        is_rewritten, tree = self._next_tree(state, plan, read)
        follows = None if is_rewritten else self._follows
        head = CatalogHead(
            topic=state.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            sequence=name.sequence,
            broker_id=self.broker_id,
            written_ms=now_ms,
            metadata_partition=state.metadata_partition,
            metadata_offset=state.metadata_offset,
            log_start_offset=state.log_start_offset,
            log_end_offset=state.log_end_offset,
            epochs=state.epochs,
            parts=tuple(ref for level in tree.levels for ref in level),
            removed=tree.removed,
            tail=tree.tail,
            follows=follows,
        )
        key = head_key(self.topic_id, self.partition, name)
        superseded = self._superseded(tree, plan, read)
        due = [k for k, n in self._garbage.items() if n <= self._heads_written + 1 - HEADS_KEPT]
        return CatalogUpdate(
            name=name,
            puts=(*plan.puts, (key, encode_head(head))),
            follows=follows,
            old_heads=tuple(k for k in due if parse_head(k) is not None),
            old_parts=tuple(k for k in due if parse_head(k) is None),
            sweep=frozenset((*self._garbage, *superseded)) if self._may_sweep() else None,
            tree=tree,
            segments=state.segments,
            superseded=superseded,
        )

    def _may_sweep(self) -> bool:
        """Whether only heads of this leader are left: then no other one refers to parts that they lack."""
        return self._heads_written >= HEADS_KEPT and not self._has_swept

    def committed(self, update: CatalogUpdate, deleted: Collection[str]) -> None:
        """The head is in the store; later updates build on it.

        deleted  those of its superseded objects that are certainly gone
        """
        self._tree = update.tree
        if isinstance(update.segments, Changed):
            update.segments.bring_up_to_date(self.known)
        else:
            self.known = update.segments
        self._heads_written += 1
        number = self._heads_written
        for key in deleted:
            self._garbage.pop(key, None)
        self._garbage |= dict.fromkeys(update.superseded, number)
        self._garbage[update.puts[-1][0]] = number
        # Without its deletes of heads a sweep was not tried.
        self._has_swept |= update.sweep is not None and set(update.old_heads) <= set(deleted)
        self._follows, self._taken_details, self._distrusts_parts = None, {}, False

    def failed(self, update: CatalogUpdate) -> None:
        """The attempt failed, or its outcome is unknown; its objects are deleted later."""
        self._garbage |= dict.fromkeys((key for key, _ in update.puts), self._heads_written)

    def _difference(
        self, segments: dict[Uuid, RemoteSegment] | Changed
    ) -> tuple[list[RemoteSegment], list[RemoteSegment]]:
        """Return the segments removed and added since the newest head, each in the order of writing."""
        if isinstance(segments, Changed):
            changed = segments.segments.items()
            gone = [self.known[i] for i, s in changed if s is None and i in self.known]
            fresh = [s for i, s in changed if s is not None and i not in self.known]
        else:
            gone = [s for i, s in self.known.items() if i not in segments]
            fresh = [s for i, s in segments.items() if i not in self.known]
        gone.sort(key=lambda s: (s.end_offset, s.base_offset, s.segment_id))
        fresh.sort(key=lambda s: (s.base_offset, s.end_offset, s.segment_id))
        return gone, fresh

    def _next_tree(self, state: CatalogState, plan: "_Plan", read: ReadPart) -> tuple[bool, _Tree]:
        """Add new rows to the tree; remove rows below the log start, and deleted ones.

        Returns whether all rows are written again, and the tree.
        """
        old, start = self._tree, state.log_start_offset
        gone, fresh = self._difference(state.segments)
        gone_ids = {segment.segment_id for segment in gone}
        in_tail = {row.segment_id for row in old.tail}
        in_parts_gone = list(old.removed)
        in_parts_gone += [(s.segment_id, s.end_offset) for s in gone if s.segment_id not in in_tail]
        # The log start offset hides rows that end below it. A segment that is back has its row already.
        back = {s.segment_id for s in fresh}.intersection(i for i, _ in in_parts_gone)
        entries = (e for e in in_parts_gone if e[1] >= start and e[0] not in back)
        removed = tuple(dict.fromkeys(entries))
        is_rewritten = len(removed) > REMOVED_MAX or self._distrusts_parts
        details = state.details
        if is_rewritten:
            fresh += [s for i, s in self.known.items() if i not in gone_ids]
            fresh.sort(key=lambda s: (s.base_offset, s.segment_id))
            details = {**_read_details(old, read), **details}
            old, removed, back = _Tree(), (), set()
        fresh = [s for s in fresh if s.end_offset >= start and s.segment_id not in back]
        kept = [row for row in old.tail if row.segment_id not in gone_ids]
        levels = [[ref for ref in level if ref.end_offset >= start] for level in old.levels]
        tail = [*kept, *(_row_of(segment, self._details(details, segment)) for segment in fresh)]
        return is_rewritten, _Tree(*plan.fold(tail, levels), removed)

    def _details(self, details: Mapping[Uuid, Details], segment: RemoteSegment) -> Details:
        known = details.get(segment.segment_id)
        return known or self._taken_details.get(segment.segment_id) or Details()

    def _superseded(self, after: _Tree, plan: "_Plan", read: ReadPart) -> tuple[str, ...]:
        """Return the keys of parts to which nothing refers any more: whole trees below the old head."""
        kept = {ref.key for level in after.levels for ref in level} | plan.wrapped
        dropped = [ref for level in self._tree.levels for ref in level if ref.key not in kept]
        keys = [ref.key for ref, _ in _below(dropped, read, min_level=1)]
        return tuple(filter(self._is_ours_to_delete, keys))


def _below(
    refs: Iterable[PartRef], read: ReadPart, *, min_level: int
) -> list[tuple[PartRef, list[CatalogSegment]]]:
    """Return all parts from `refs` down, with their rows; those below `min_level` are not read.

    What is missing or damaged has no rows and nothing below it.
    """
    found: list[tuple[PartRef, list[CatalogSegment]]] = []
    waiting = list(refs)
    while waiting:
        ref = waiting.pop()
        rows: list[CatalogSegment] = []
        if ref.level >= min_level:
            try:
                rows, below = read(ref)
                waiting += below
            except (ObjectMissing, CatalogCorrupt):
                pass
        found.append((ref, rows))
    return found


def rows_below(refs: Iterable[PartRef], read: ReadPart) -> list[CatalogSegment]:
    """Return the rows of all parts from `refs` down that can be read."""
    return [row for _, rows in _below(refs, read, min_level=0) for row in rows]


def _read_details(tree: _Tree, read: ReadPart) -> dict[Uuid, Details]:
    """Return the details in all rows of a tree."""
    refs = [ref for level in tree.levels for ref in level]
    return {row.segment_id: details_in(row) for row in (*rows_below(refs, read), *tree.tail)}


class _Plan:
    """The parts of one update, numbered within it."""

    def __init__(self, topic_id: Uuid, partition: int, name: HeadName) -> None:
        self.topic_id, self.partition, self.name = topic_id, partition, name
        self.wrapped: set[str] = set()  # parts to which a part of this update refers
        self.puts: list[tuple[str, bytes]] = []

    def fold(
        self, tail: list[CatalogSegment], levels: list[list[PartRef]]
    ) -> tuple[tuple[CatalogSegment, ...], tuple[tuple[PartRef, ...], ...]]:
        """Move full tails and full levels into parts; the rest stays in the head."""
        while len(tail) > TAIL_ROWS:
            size = _bulk_rows(tail) if len(tail) > BULK_ROWS else TAIL_ROWS
            self._append(levels, 0, self._part(tail[:size], 0))
            del tail[:size]
        level = 0
        while level < len(levels):
            while len(levels[level]) > FAN_OUT:
                refs = levels[level][:FAN_OUT]
                self.wrapped.update(ref.key for ref in refs)
                self._append(levels, level + 1, self._part(refs, level + 1))
                del levels[level][:FAN_OUT]
            level += 1
        return tuple(tail), tuple(tuple(refs) for refs in levels)

    @staticmethod
    def _append(levels: list[list[PartRef]], level: int, ref: PartRef) -> None:
        while len(levels) <= level:
            levels.append([])
        levels[level].append(ref)

    def _part(self, rows: Sequence[CatalogSegment] | Sequence[PartRef], level: int) -> PartRef:
        key = part_key(self.topic_id, self.partition, self.name, len(self.puts))
        data = encode_part(self.topic_id, self.partition, rows, level)
        self.puts.append((key, data))
        return reference(key, level, rows, data)


def _bulk_rows(rows: Sequence[CatalogSegment]) -> int:
    """Return how many of the first rows fill a part of a history."""
    sizes = accumulate(_bytes_max(row) for row in islice(rows, BULK_ROWS))
    return max(sum(1 for size in sizes if size <= BULK_BYTES), TAIL_ROWS)


def _bytes_max(row: CatalogSegment) -> int:
    """Return at least the encoded size of a row: its numbers have up to 19 digits."""
    custom = len(row.custom_metadata or b"")
    return 1024 + 64 * len(row.splits) + 34 * len(row.epochs) + 2 * custom


def _row_of(segment: RemoteSegment, details: Details) -> CatalogSegment:
    suffixes = [LOG, OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT, LEADER_EPOCHS]
    if not segment.txn_index_empty:
        suffixes.append(TXN_INDEX)
    known = decode_fingerprint(segment.custom_metadata)
    return CatalogSegment(
        segment_id=segment.segment_id,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        epochs=segment.epochs,
        stem=segment_stem(
            segment.topic_id,
            segment.partition,
            base_offset=segment.base_offset,
            segment_id=segment.segment_id,
        ),
        suffixes=tuple(suffixes),
        custom_metadata=segment.custom_metadata if known is None else None,
        fingerprint=known,
        min_timestamp_ms=details.min_timestamp_ms,
        splits=details.splits,
    )
