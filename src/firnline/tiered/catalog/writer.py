"""Writes a partition's catalog: a bounded head for each change, and history in parts that never change. PURE.

`CatalogWriter` belongs to one leader epoch of one partition. It decides which objects to put and, some heads
later, which to delete; `apply_update` does so in a worker thread. Leaders share no objects: a leader refers
only to parts that it wrote itself, and deletes only objects of its own epoch or lower ones. So a former
leader cannot delete anything of its successor. Source: spec T62.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.effects import Effects, Submit, Warn
from firnline.base.errors import FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import Uuid
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog import (
    CatalogHead,
    CatalogSegment,
    PartRef,
    encode_head,
    encode_part,
)
from firnline.tiered.catalog_guard import (
    Before,
    Compared,
    ExplainsLess,
    Row,
    compare,
    lacks_what_went,
    nothing_below,
    problem_of,
    read_before,
    still_there,
    unexplained,
)
from firnline.tiered.hosted import Hosted, Services, TaskCallback
from firnline.tiered.objects.binding import WrongTier
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.layout import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    HeadName,
    catalog_folder,
    head_key,
    parse_head,
    parse_written_epoch,
    part_key,
    segment_stem,
)
from firnline.tiered.objects.names import register_name
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import Look, Mark, RemoteSegment

# Rows in a head, and references for each level: both bound the bytes that one new segment puts.
TAIL_ROWS = 32
FAN_OUT = 32
# Rows of one part when a new leader writes the whole history.
BULK_ROWS = 1024
# Deleted segments whose rows are still in parts; with more, the whole history is written again.
REMOVED_MAX = 256
# A superseded object stays until there are this many newer heads, for readers with a stale listing.
HEADS_KEPT = 4
# Segments that one step compares, and segments that are searched in the store at a time.
COMPARED_IN_STEP = 1000
LOOKED_FOR_MAX = 5000


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
            removed=tuple(segment_id for segment_id, _ in tree.removed),
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
            size = BULK_ROWS if len(tail) > BULK_ROWS else TAIL_ROWS
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
        end_offset = max(row.end_offset for row in rows)
        return PartRef(key, level, len(rows), end_offset, len(data), crc32c(data))


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


class CatalogKeeper:
    """Keeps the catalog of one led partition current: one write at a time, each of the newest state.

    `request` calls back when the store has a head with at least the present state. Without an object store
    there is no catalog, and every request calls back at once.
    """

    def __init__(self, services: Services, hosted: Hosted) -> None:
        self._services = services
        self._hosted = hosted
        self._writer: CatalogWriter | None = None
        self._is_writing = False
        self._waiting: list[TaskCallback] = []
        self._written: object = None
        # The metadata returns the changes since this mark; None: compare everything.
        self._mark: Mark | None = None
        # After a full comparison: the finished segments at the mark, until a head has them.
        self._all_finished: dict[Uuid, RemoteSegment] | None = None
        # The catalog at the start of the leader epoch; None once a head of this leader has at least that.
        self._before: Sequence[Row] | None = None
        # Those of them that are not in the store any more.
        self._gone: dict[Uuid, None] = {}
        # A write has timed out, and a thread is still at it: no other begins before that one has ended.
        self._is_hanging = False
        self._said: str | None = None
        self.is_begun = services.catalog is None
        # Called once, when the metadata is known to have no less than the earlier catalog.
        self.on_compared: Callable[[int], Effects] = _nothing

    def _signature(self) -> object:
        log = self._hosted.log
        return self._hosted.metadata_version, log.log_start_offset, log.epochs.entries()

    @property
    def is_current(self) -> bool:
        """Whether the newest head has the present state."""
        return self._services.catalog is None or self._written == self._signature()

    def request(self, then: TaskCallback, now_ms: int) -> Effects:
        """Write the catalog if it is not current; then call `then(error or None, now_ms)`."""
        if self.is_current and not self._is_writing:
            return then(None, now_ms)
        self._waiting.append(then)
        return [] if self._is_writing else self._write(now_ms)

    def _write(self, now_ms: int) -> Effects:
        store, hosted = self._services.catalog, self._hosted
        assert store is not None
        if hosted.is_over:
            return self._answer(_OVER, now_ms)
        if self._is_hanging:
            return self._answer(_HANGS, now_ms)
        self._is_writing = True
        topic, where = hosted.topic, hosted.where
        if self._writer is None:
            return [
                Submit(
                    name=f"begin catalog of {topic}-{where.partition}",
                    pool="copy",
                    work=partial(
                        begin_catalog,
                        store,
                        topic=topic,
                        topic_id=where.topic_id,
                        partition=where.partition,
                        now_ms=now_ms,
                        check_owner=self._services.check_owner,
                    ),
                    then=self._begun,
                    run_timeout_ms=store_timeout_ms(calls=LOOKED_FOR_MAX),
                    ended=self._ended_late,
                )
            ]
        look = self._services.metadata.look(where, self._mark)
        if isinstance(look, KafkaError):
            return self._answer(look, now_ms)
        if look.everything is not None:
            return self._compare_all(look, now_ms)
        missing = self._missing(look)
        return self._look_for(missing) if missing else self._put(look, now_ms)

    def _compare_all(self, look: Look, now_ms: int) -> Effects:
        """Compare the earlier catalog with all present segments; in a worker if there are many."""
        assert look.everything is not None
        assert self._writer is not None
        before = (self._before or (), self._writer.known.values())
        work = partial(
            compare,
            before,
            look.everything,
            log_start_offset=self._hosted.log.log_start_offset,
            gone=tuple(self._gone),
        )
        if sum(map(len, before)) + len(look.everything.segments) <= COMPARED_IN_STEP:
            return self._compared(look.mark, work(), now_ms)
        name = f"compare catalog of {self._hosted.topic}-{self._hosted.where.partition}"
        return [Submit(name=name, pool="copy", work=work, then=partial(self._compared, look.mark))]

    def _compared(self, mark: Mark, result: Compared | Exception, now_ms: int) -> Effects:
        if isinstance(result, Exception):
            return self._answer(as_error(result), now_ms)
        if result.missing:
            return self._look_for(result.missing[:LOOKED_FOR_MAX])
        self._mark, self._all_finished = mark, result.finished
        return self._write(now_ms)

    def _missing(self, look: Look) -> list[Row]:
        """Return segments that were finished at the mark, and would be missing now without a reason."""
        assert self._writer is not None
        hosted, metadata = self._hosted, self._services.metadata
        known = self._writer.known if self._all_finished is None else self._all_finished
        return unexplained(
            [known[i] for i, segment in look.changed.items() if segment is None and i in known],
            (),
            log_start_offset=hosted.log.log_start_offset,
            is_recorded=lambda found: (
                found in self._gone
                or metadata.get(hosted.where, found) is not None
                or metadata.was_deleted(hosted.where, found)
            ),
        )

    def _look_for(self, missing: list[Row]) -> Effects:
        """Check whether missing segments are in the store."""
        store, where = self._services.catalog, self._hosted.where
        assert store is not None
        return [
            Submit(
                name=f"look for segments of {self._hosted.topic}-{where.partition}",
                pool="copy",
                work=partial(still_there, store, where.topic_id, where.partition, missing),
                then=partial(self._looked_for, missing),
                run_timeout_ms=store_timeout_ms(calls=len(missing)),
            )
        ]

    def explains_all(self) -> bool:
        """Whether decisions may be made: this leader has written a head, and the metadata still has as much.

        Without a catalog, the segment right below the local log has to be in the tier.
        """
        if self._services.catalog is None:
            return not lacks_what_went(self._hosted, self._services.metadata)
        if self.is_begun and self.is_current:
            return True  # no metadata has been applied since
        if not self.is_begun:
            return False
        look = self._services.metadata.look(self._hosted.where, self._mark)
        if isinstance(look, KafkaError) or look.everything is not None:
            return False
        return not self._missing(look)

    def compare(self, then: TaskCallback, now_ms: int) -> Effects:
        """As `request`, even if the catalog seems current: the metadata has lost records."""
        self._written = None
        if self._services.catalog is not None:
            return self.request(then, now_ms)
        hosted = self._hosted
        hosted.unexplained_segments = 1
        return self._refuse(nothing_below(hosted), [then], now_ms)

    def _looked_for(
        self, missing: Sequence[Row], result: list[Row] | Exception, now_ms: int
    ) -> Effects:
        """The check of missing segments has ended.

        If the store has none of them, compare again: the metadata may have lost more meanwhile.
        """
        if isinstance(result, Exception):
            return self._answer(as_error(result), now_ms)
        self._hosted.unexplained_segments = len(result)
        if not result:
            self._gone.update(dict.fromkeys(row.segment_id for row in missing))
            return self._write(now_ms)
        hosted = self._hosted
        return self._answer(
            problem_of(result, topic=hosted.topic, partition=hosted.where.partition), now_ms
        )

    def _put(self, look: Look, now_ms: int) -> Effects:
        store, hosted = self._services.catalog, self._hosted
        assert store is not None
        assert self._writer is not None
        on_compared, self.on_compared = self.on_compared, _nothing
        effects = on_compared(now_ms)
        state = self._state(look)
        hosted.unexplained_segments = 0
        topic, where = hosted.topic, hosted.where
        waiting, self._waiting = self._waiting, []
        return [
            *effects,
            Submit(
                name=f"write catalog of {topic}-{where.partition}",
                pool="copy",
                work=partial(write_version, store, self._writer, state, now_ms),
                then=partial(self._applied, self._signature(), look.mark, waiting),
                run_timeout_ms=store_timeout_ms(calls=len(self._writer.known) + len(look.changed)),
                ended=self._ended_late,
            ),
        ]

    def _ended_late(self, now_ms: int) -> Effects:
        """A write that had timed out has ended. What it has written is unknown: begin anew."""
        self._is_hanging = False
        self._writer = self._mark = self._all_finished = self._written = None
        return []

    def _begun(self, result: Before | Exception, now_ms: int) -> Effects:
        self._is_hanging = isinstance(result, WorkTimedOut)
        if isinstance(result, Exception):
            return self._answer(as_error(result), now_ms)
        self._writer = CatalogWriter(
            topic_id=self._hosted.where.topic_id,
            partition=self._hosted.where.partition,
            leader_epoch=self._hosted.leader_epoch,
            broker_id=self._services.settings.node_id,
            listed=result.listed,
        )
        self._before = result.segments
        return self._write(now_ms)

    def _state(self, look: Look) -> CatalogState:
        hosted = self._hosted
        changed = Changed(look.changed)
        if self._all_finished is not None:
            changed.bring_up_to_date(self._all_finished)
            self._mark = look.mark
        partition, offset = self._services.metadata.applied_offset(hosted.where)
        return CatalogState(
            topic=hosted.topic,
            log_start_offset=hosted.log.log_start_offset,
            log_end_offset=hosted.log.log_end_offset,
            epochs=hosted.log.epochs.entries(),
            segments=changed if self._all_finished is None else self._all_finished,
            metadata_partition=partition,
            metadata_offset=offset,
        )

    def _applied(
        self,
        signature: object,
        mark: Mark,
        waiting: list[TaskCallback],
        result: tuple[CatalogUpdate, Exception | None] | Exception,
        now_ms: int,
    ) -> Effects:
        assert self._writer is not None
        self._is_writing = False
        self._is_hanging = isinstance(result, WorkTimedOut)
        if isinstance(result, Exception):  # it has not begun, or has not ended
            self._waiting = waiting + self._waiting
            return self._answer(as_error(result), now_ms)
        update, problem = result
        if problem is not None:
            self._writer.failed(update)
            self._waiting = waiting + self._waiting
            return self._answer(as_error(problem), now_ms)
        self._writer.committed(update)
        self._before, self._all_finished, self._mark = None, None, mark
        self._gone.clear()
        self._written = signature
        self.is_begun = True
        self._hosted.catalog_problem = self._said = None
        effects = [effect for then in waiting for effect in then(None, now_ms)]
        if self._waiting and not self._is_writing:
            effects += self._again(now_ms)
        return effects

    def _again(self, now_ms: int) -> Effects:
        """Handle requests that came while a head was written; it may be enough for them."""
        if not self.is_current:
            return self._write(now_ms)
        waiting, self._waiting = self._waiting, []
        return [effect for then in waiting for effect in then(None, now_ms)]

    def _answer(self, error: FirnlineError, now_ms: int) -> Effects:
        """Nothing was written: call all waiting requests back with the error."""
        self._is_writing = False
        self._gone.clear()
        waiting, self._waiting = self._waiting, []
        return self._refuse(error, waiting, now_ms)

    def _refuse(
        self, error: FirnlineError, waiting: Sequence[TaskCallback], now_ms: int
    ) -> Effects:
        self._hosted.catalog_problem = str(error)
        effects: Effects = []
        if isinstance(error, ExplainsLess | WrongTier) and self._said != str(error):
            self._said = str(error)
            effects.append(Warn(line=f"{self._hosted.log.topic_partition}: {error}"))
        return effects + [effect for then in waiting for effect in then(error, now_ms)]


def _nothing(_now_ms: int) -> Effects:
    """No callback is registered."""
    return []


_OVER = StorageError("this node does not lead the partition any more")
_HANGS = StorageError("the store has not ended an earlier write of the catalog")


def as_error(problem: Exception) -> FirnlineError:
    """Return an exception of a worker as one of our errors: plug-ins may raise any (F8, F34)."""
    if isinstance(problem, FirnlineError):
        return problem
    return StorageError(f"{type(problem).__name__}: {problem}")


# ------------------------------------------------------------------- in worker threads (they block)


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
    keys = [info.key for info in store.list_prefix(catalog_folder(topic_id, partition))]
    return read_before(store, topic_id, partition, keys)
