"""Keeps the catalog of a led partition current, and compares it with the metadata. PURE. Source: spec T62."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

from firnline.base.effects import Effects, Submit
from firnline.base.errors import FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import Uuid
from firnline.tiered.catalog.format import Details
from firnline.tiered.catalog.guard import (
    Before,
    Compared,
    Row,
    compare,
    lacks_what_went,
    nothing_below,
    problem_of,
    unexplained,
)
from firnline.tiered.catalog.writer import CatalogState, CatalogUpdate, CatalogWriter, Changed
from firnline.tiered.hosted import Hosted, Services, TaskCallback
from firnline.tiered.objects.catalog_changes import (
    PartsRead,
    PredecessorGone,
    begin_catalog,
    read_part_once,
    write_version,
)
from firnline.tiered.objects.catalog_reader import still_there
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import Look, Mark, RemoteSegment, as_error

# Segments that one step compares, and segments that are searched in the store at a time.
COMPARED_IN_STEP = 1000
LOOKED_FOR_MAX = 5000
# Copied segments whose rows wait for a head. Beyond them, while no head can be written, the oldest rows will
# have no splits.
DETAILS_MAX = 256

Written = tuple[CatalogUpdate, Exception | None, frozenset[str]]


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
        self._before: Before | None = None
        # Parts of it that were read, by key: it may be compared more than once.
        self._parts: PartsRead = {}
        # Of copied segments, until a head has their rows.
        self._details: dict[Uuid, Details] = {}
        # Those of them that are not in the store any more.
        self._gone: dict[Uuid, None] = {}
        # A write has timed out, and a thread is still at it: no other begins before that one has ended.
        self._is_hanging = False
        self.is_begun = services.catalog is None
        # Called once, when the metadata is known to have no less than the earlier catalog.
        self.on_compared: Callable[[int], Effects] = _nothing

    def _signature(self) -> object:
        log = self._hosted.log
        return self._hosted.metadata_version, self._hosted.deletes_below, log.epochs.entries()

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

    def note_details(self, segment_id: Uuid, details: Details) -> None:
        """Keep what the catalog says of a segment besides its metadata, until a head has its row."""
        if self._services.catalog is not None:
            self._details[segment_id] = details
            while len(self._details) > DETAILS_MAX:
                del self._details[next(iter(self._details))]

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
            return self._services.circuits.submit(
                "write",
                now_ms,
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
        look = self._services.metadata.look(where, self._mark)
        if isinstance(look, KafkaError):
            return self._answer(look, now_ms)
        if look.everything is not None:
            return self._compare_all(look, now_ms)
        missing = self._missing(look)
        return self._look_for(missing, now_ms) if missing else self._put(look, now_ms)

    def _compare_all(self, look: Look, now_ms: int) -> Effects:
        """Compare the earlier catalog with all present segments; in a worker if that takes long.

        Parts of it are read that differ from the metadata.
        """
        everything, before, store = look.everything, self._before, self._services.catalog
        assert everything is not None
        assert self._writer is not None
        assert store is not None
        where = self._hosted.where
        read = partial(read_part_once, store, self._parts)
        work = partial(
            compare,
            before,
            self._writer.known.values() if before is None else (),
            everything,
            log_start_offset=self._hosted.log.log_start_offset,
            gone=tuple(self._gone),
            read=read,
        )
        name = f"compare catalog of {self._hosted.topic}-{where.partition}"
        then = partial(self._compared, look.mark)
        if before is not None and before.head is not None and before.head.parts:
            return self._services.circuits.submit(
                "read",
                now_ms,
                name=name,
                pool="copy",
                work=work,
                then=then,
                run_timeout_ms=store_timeout_ms(calls=LOOKED_FOR_MAX),
            )
        earlier = self._writer.known if before is None else before.segments
        if len(earlier) + len(everything.segments) <= COMPARED_IN_STEP:
            return self._compared(look.mark, work(), now_ms)
        return [Submit(name=name, pool="copy", work=work, then=then)]

    def _compared(self, mark: Mark, result: Compared | Exception, now_ms: int) -> Effects:
        assert self._writer is not None
        if isinstance(result, Exception):
            return self._answer(as_error(result), now_ms)
        if result.missing:
            return self._look_for(result.missing[:LOOKED_FOR_MAX], now_ms)
        self._mark, self._all_finished = mark, result.finished
        if result.taken is not None:
            self._writer.take(result.taken)
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

    def _look_for(self, missing: list[Row], now_ms: int) -> Effects:
        """Check whether missing segments are in the store."""
        store, where = self._services.catalog, self._hosted.where
        assert store is not None
        return self._services.circuits.submit(
            "read",
            now_ms,
            name=f"look for segments of {self._hosted.topic}-{where.partition}",
            pool="copy",
            work=partial(still_there, store, where.topic_id, where.partition, missing),
            then=partial(self._looked_for, missing),
            run_timeout_ms=store_timeout_ms(calls=len(missing)),
        )

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
        return effects + self._services.circuits.submit(
            "write",
            now_ms,
            name=f"write catalog of {topic}-{where.partition}",
            pool="copy",
            work=partial(write_version, store, self._writer, state, now_ms),
            then=partial(self._applied, self._signature(), look.mark, waiting),
            run_timeout_ms=store_timeout_ms(calls=len(self._writer.known) + len(look.changed)),
            ended=self._ended_late,
            failure_of=itemgetter(1),
        )

    def _ended_late(self, now_ms: int) -> Effects:
        """A write that had timed out has ended. What it has written is unknown: begin anew."""
        self._is_hanging = False
        self._writer = self._mark = self._all_finished = self._written = None
        self._parts = {}
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
        self._before, self._parts = result, {}
        self._hosted.on_earlier_catalog(result.log_start_offset)
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
            log_start_offset=hosted.deletes_below,
            log_end_offset=hosted.log.log_end_offset,
            epochs=hosted.log.epochs.entries(),
            segments=changed if self._all_finished is None else self._all_finished,
            metadata_partition=partition,
            metadata_offset=offset,
            details=dict(self._details),
        )

    def _applied(
        self,
        signature: object,
        mark: Mark,
        waiting: list[TaskCallback],
        result: Written | Exception,
        now_ms: int,
    ) -> Effects:
        assert self._writer is not None
        self._is_writing = False
        self._is_hanging = isinstance(result, WorkTimedOut)
        if isinstance(result, Exception):  # it has not begun, or has not ended
            self._waiting = waiting + self._waiting
            return self._answer(as_error(result), now_ms)
        update, problem, deleted = result
        if problem is not None:
            self._writer.failed(update)
            if isinstance(problem, PredecessorGone):
                self._writer.distrust_parts()
            self._waiting = waiting + self._waiting
            return self._answer(as_error(problem), now_ms)
        self._writer.committed(update, deleted)
        self._before, self._all_finished, self._mark = None, None, mark
        self._parts = {}
        self._gone.clear()
        for segment_id in [each for each in self._details if each in self._writer.known]:
            del self._details[segment_id]
        self._written = signature
        self.is_begun = True
        effects = self._hosted.note_outcome("catalog", None, now_ms)
        effects += [effect for then in waiting for effect in then(None, now_ms)]
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
        effects = self._hosted.note_outcome("catalog", error, now_ms)
        return effects + [effect for then in waiting for effect in then(error, now_ms)]


def _nothing(_now_ms: int) -> Effects:
    """No callback is registered."""
    return []


_OVER = StorageError("this node does not lead the partition any more")

_HANGS = StorageError("the store has not ended an earlier write of the catalog")
