"""A leader takes from the catalog what its own files have lost: leader epochs, and the log start. PURE.

`leader-epoch-checkpoint` has no checksum and may be lost, and a crash may take `log-start-offset-checkpoint`
back by a minute. Records that only the tier has are then of no known lineage, and nobody may read, copy or
delete them (rel-T14). The catalog has a checksum, and says both as the leader knew it that wrote it:

- the log start that was decided: up to the first epoch that is known here, nothing below it is served;
- the earlier epochs. They are ours if the catalog has our first epoch at the same offset, because logs with
  the same epoch at an offset are the same up to there. Or if our first epoch is the present one, which began
  where both logs end.

In any other case the catalog may be of another lineage, and an operator has to act. Decision 0042.
"""

from collections.abc import Callable
from functools import partial

from firnline.base.effects import Effects
from firnline.base.log_lines.tier import TAKEN_FROM_CATALOG
from firnline.tiered.catalog.format import CatalogHead
from firnline.tiered.coroutines import Run, Steps
from firnline.tiered.hosted import Hosted, LineageLost, Services
from firnline.tiered.lineage import epoch_at
from firnline.tiered.objects.catalog_reader import newest_head
from firnline.tiered.settings import store_timeout_ms


class LineageRepair:
    """The repair of one led partition. Copies and deletions ask for it before they begin."""

    def __init__(self, services: Services, hosted: Hosted) -> None:
        self._services = services
        self._hosted = hosted
        # While this node leads and has no leader epochs, it writes no newer one than was read.
        self._has_read = False

    def run(self, run: Run) -> Steps[LineageLost | None]:
        """Repair what is lost, if anything is. Return what is still lost: then nothing may be done."""
        services, hosted = self._services, self._hosted
        problem = hosted.lineage_problem(services.metadata)
        if problem is None or services.catalog is None or self._has_read:
            return problem
        found = yield from run.call(self._read)
        if isinstance(found, Exception):
            return problem  # the next run tries again: a former leader may still write
        self._has_read = True
        if found is not None and hosted.leads and hosted.lineage_problem(services.metadata):
            run.emit(self._take(found))
        return hosted.lineage_problem(services.metadata)

    def _read(
        self, then: Callable[[CatalogHead | Exception | None, int], Effects], now_ms: int
    ) -> Effects:
        services, hosted = self._services, self._hosted
        store, where = services.catalog, hosted.where
        assert store is not None
        return services.circuits.submit(
            "read",
            now_ms,
            name=f"read catalog of {hosted.topic}-{where.partition}",
            pool="copy",
            work=partial(newest_head, store, where.topic_id, where.partition),
            then=then,
            run_timeout_ms=store_timeout_ms(),
        )

    def _take(self, head: CatalogHead) -> Effects:
        hosted, log = self._hosted, self._hosted.log
        taken: Effects = []
        where = log.topic_partition._asdict()
        begin = hosted.lineage_start
        start = min(head.log_start_offset, begin)
        if start > log.log_start_offset:
            was = log.log_start_offset
            taken.append(TAKEN_FROM_CATALOG(**where, log_start_offset=start, was_offset=was))
            log.advance_log_start(start)
        if start < begin and self._is_of_our_lineage(head, begin):
            log.epochs.complete(tuple(entry for entry in head.epochs if entry[1] < begin))
            log.epochs.truncate_from_start(log.log_start_offset)
            taken.append(TAKEN_FROM_CATALOG(**where, epochs_below_offset=begin))
        return taken

    def _is_of_our_lineage(self, head: CatalogHead, begin: int) -> bool:
        """Whether the epochs of the catalog are those of this log below `begin`, where ours begin."""
        if not head.epochs or head.epochs[0][1] > self._hosted.log.log_start_offset:
            return False
        ours = self._hosted.log.epochs.epoch_at(begin)
        if head.log_end_offset > begin:
            return epoch_at(head.epochs, begin) == ours
        is_present = ours is None or ours == self._hosted.leader_epoch
        return head.log_end_offset == begin and is_present
