"""Writes a partition's catalog: a bounded head for each change, and history in parts that never change. PURE.

`CatalogWriter` belongs to one leader epoch of one partition. It decides which objects to put and, some heads
later, which to delete; `apply_update` does so in a worker thread. Leaders share no objects: a leader refers
only to parts that it wrote itself, and deletes only objects of its own epoch or lower ones. So a former
leader cannot delete anything of its successor. Source: spec T62.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.base.units import MIB
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered.catalog.format import (
    CatalogHead,
    CatalogSegment,
    PartRef,
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
# A superseded object stays until there are this many newer heads, for readers with a stale listing.
HEADS_KEPT = 4


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


class _Tree(NamedTuple):
    """Rows in the head, references by level, and rows in parts whose segments are deleted."""

    tail: tuple[CatalogSegment, ...] = ()
    levels: tuple[tuple[PartRef, ...], ...] = ()
    removed: tuple[tuple[Uuid, int], ...] = ()  # with their end offsets


class CatalogUpdate(NamedTuple):
    """One attempt to write a version: puts in order, the head last; then deletes, best effort."""

    name: HeadName
    puts: tuple[tuple[str, bytes], ...]
    deletes: tuple[str, ...]
    tree: _Tree
    segments: dict[Uuid, RemoteSegment] | Changed
    children: dict[str, tuple[PartRef, ...]]
    superseded: tuple[str, ...]


class CatalogWriter:
    """The catalog of one partition in one leader epoch. One thread at a time uses it: a worker prepares.

    `listed` are the keys in the partition's catalog folder at the start of the epoch. They are only hints for
    cleaning up, and for the sequence, which also follows the clock.
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
        heads = [name for name in map(parse_head, listed) if name is not None]
        same = [name.sequence for name in heads if name.leader_epoch == leader_epoch]
        self._last_sequence = max(same, default=-1)
        self._tree = _Tree()
        self.known: dict[Uuid, RemoteSegment] = {}  # the rows of the tree
        self._children: dict[str, tuple[PartRef, ...]] = {}
        self._heads_written = 0
        # (number of heads at the time it was superseded, key), oldest first
        self._garbage = [(0, key) for key in listed if self._is_ours_to_delete(key)]

    def _is_ours_to_delete(self, key: str) -> bool:
        epoch = parse_written_epoch(key)
        return epoch is not None and epoch <= self.leader_epoch

    def prepare(self, state: CatalogState, now_ms: int) -> CatalogUpdate:
        """Return the objects of a version with `state`. Every attempt has names of its own."""
        self._last_sequence = max(self._last_sequence + 1, now_ms)
        name = HeadName(self.leader_epoch, self._last_sequence)
        plan = _Plan(self.topic_id, self.partition, name, dict(self._children))
        tree, superseded = self._next_tree(state, plan)
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
        )
        key = head_key(self.topic_id, self.partition, name)
        due = self._heads_written + 1 - HEADS_KEPT
        return CatalogUpdate(
            name=name,
            puts=(*plan.puts, (key, encode_head(head))),
            deletes=tuple(k for number, k in self._garbage if number <= due),
            tree=tree,
            segments=state.segments,
            children=plan.children,
            superseded=superseded,
        )

    def committed(self, update: CatalogUpdate) -> None:
        """The head is in the store; later updates build on it."""
        self._tree = update.tree
        if isinstance(update.segments, Changed):
            update.segments.bring_up_to_date(self.known)
        else:
            self.known = update.segments
        deleted = frozenset(update.deletes)
        self._heads_written += 1
        number = self._heads_written
        self._garbage = [entry for entry in self._garbage if entry[1] not in deleted]
        self._garbage += [(number, key) for key in update.superseded]
        self._garbage.append((number, update.puts[-1][0]))
        gone = frozenset(update.superseded)
        self._children = {k: c for k, c in update.children.items() if k not in gone}

    def failed(self, update: CatalogUpdate) -> None:
        """The attempt failed, or its outcome is unknown; its objects are deleted later."""
        number = self._heads_written
        self._garbage += [(number, key) for key, _ in update.puts]

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

    def _next_tree(self, state: CatalogState, plan: "_Plan") -> tuple[_Tree, tuple[str, ...]]:
        """Add new rows to the tree; remove rows below the log start, and deleted ones."""
        old, start = self._tree, state.log_start_offset
        gone, fresh = self._difference(state.segments)
        gone_ids = {segment.segment_id for segment in gone}
        in_tail = {row.segment_id for row in old.tail}
        in_parts_gone = list(old.removed)
        in_parts_gone += [(s.segment_id, s.end_offset) for s in gone if s.segment_id not in in_tail]
        # the log start offset hides rows that end below it
        removed = tuple(dict.fromkeys(entry for entry in in_parts_gone if entry[1] >= start))
        if len(removed) > REMOVED_MAX:
            old = _Tree()
            removed = ()
            rows = [s for i, s in self.known.items() if i not in gone_ids] + fresh
            fresh = sorted(rows, key=lambda s: (s.base_offset, s.segment_id))
        kept = [row for row in old.tail if row.segment_id not in gone_ids]
        tail = [*kept, *(_row_of(segment) for segment in fresh)]
        levels = [[ref for ref in level if ref.end_offset >= start] for level in old.levels]
        tree = _Tree(*plan.fold(tail, levels), removed)
        return tree, self._superseded(self._tree, tree, plan)

    @staticmethod
    def _superseded(before: _Tree, after: _Tree, plan: "_Plan") -> tuple[str, ...]:
        """Return the keys of parts without references."""
        used = _reachable(after, plan.children)
        return tuple(key for key in _reachable(before, plan.children) if key not in used)


def _reachable(tree: _Tree, children: Mapping[str, tuple[PartRef, ...]]) -> dict[str, None]:
    """Return the keys of all parts below the head, in order."""
    keys: dict[str, None] = {}
    waiting = [ref.key for level in tree.levels for ref in level]
    while waiting:
        key = waiting.pop()
        keys[key] = None
        waiting.extend(ref.key for ref in children.get(key, ()))
    return keys


class _Plan:
    """The parts of one update, numbered within it."""

    def __init__(
        self,
        topic_id: Uuid,
        partition: int,
        name: HeadName,
        children: dict[str, tuple[PartRef, ...]],
    ) -> None:
        self.topic_id, self.partition, self.name = topic_id, partition, name
        self.children = children
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
                part = self._part(refs, level + 1)
                self.children[part.key] = tuple(refs)
                self._append(levels, level + 1, part)
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


def _row_of(segment: RemoteSegment) -> CatalogSegment:
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
    )
