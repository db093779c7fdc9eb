"""Finds the aborted transactions of a read from the tier: in its segment, later ones, local files. PURE.

An aborted transaction is in the transaction index of the segment with its marker, which may be a thousand
segments above its records. The producer snapshot of a segment has the transactions that are open at its end.
If none of them began below the end of the read, no later segment matters. Otherwise the segment with the
marker is the first one whose snapshot does not have the transaction, and binary search finds it. So a read
needs a few indexes and snapshots, however long a transaction is. Source: KIP-98; spec T40, X35.
"""

from collections.abc import Callable, Sequence
from functools import partial

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import FirnlineError, KafkaError
from firnline.base.ids import Uuid
from firnline.formats.transaction_index import AbortedTxn
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.lineage import shared_end
from firnline.tiered.objects.aux_state import OpenTxn, fetch_open_transactions
from firnline.tiered.reads.index_cache import CONSUMERS, IndexCache
from firnline.tiered.reads.indexes import SegmentIndexes
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import RemoteSegment, as_error

AbortedTransactionsCallback = Callable[[Sequence[AbortedTxn] | FirnlineError, int], Effects]
OpenTransactionsCallback = Callable[[tuple[OpenTxn, ...] | FirnlineError, int], Effects]
# Segments whose open transactions are cached, and cached indexes that one step examines.
REMEMBERED = 4096
STEP_SEGMENTS = 32


class OpenTransactions:
    """Loads the transactions that are open at the end of a segment; caches the latest results."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[Uuid, tuple[OpenTxn, ...]] = {}
        self._loading: dict[Uuid, list[OpenTransactionsCallback]] = {}

    def load(
        self,
        segment: RemoteSegment,
        then: OpenTransactionsCallback,
        now_ms: int,
    ) -> Effects:
        """Call back with the open transactions at the end of a segment, oldest first, or with an error."""
        found = self._known.get(segment.segment_id)
        if found is not None:
            return then(found, now_ms)
        waiting = self._loading.get(segment.segment_id)
        if waiting is not None:
            waiting.append(then)
            return []
        self._loading[segment.segment_id] = [then]
        return self._services.circuits.submit(
            "read",
            now_ms,
            name=f"producers of {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="index",
            work=partial(fetch_open_transactions, self._services.storage, segment),
            then=partial(self._came, segment.segment_id),
            owner=CONSUMERS,
            run_timeout_ms=store_timeout_ms(),
        )

    def _came(
        self, segment_id: Uuid, result: tuple[OpenTxn, ...] | Exception, now_ms: int
    ) -> Effects:
        waiting = self._loading.pop(segment_id)
        if isinstance(result, Exception):
            error = as_error(result)
            return [effect for then in waiting for effect in then(error, now_ms)]
        self._known[segment_id] = result
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return [effect for then in waiting for effect in then(result, now_ms)]


class AbortedSearch:
    """Finds the aborted transactions with records in [start, upto), and calls back once."""

    def __init__(
        self,
        services: Services,
        indexes: IndexCache,
        open_transactions: OpenTransactions,
        hosted: Hosted,
        start_offset: int,
        upto_offset: int,
        then: AbortedTransactionsCallback,
        *,
        serial: int,
    ) -> None:
        self._services = services
        self._indexes = indexes
        self._open_transactions = open_transactions
        self._hosted = hosted
        self._start, self._upto = start_offset, upto_offset
        self._at = start_offset
        self._then = then
        self._serial = serial
        self._found: dict[OpenTxn, AbortedTxn] = {}
        self._last: RemoteSegment | None = None
        # The transactions whose ends are searched; the present one ends between these offsets.
        self._waiting: list[OpenTxn] = []
        self._low = self._high = self._stride = 0
        self._closing: RemoteSegment | None = None
        self._steps = 0
        self._is_local = False

    # ------------------------------------------------------------------------- the segments read from

    def next(self, now_ms: int) -> Effects:
        """Search the segments of the read, then later ones."""
        while self._at < min(self._upto, self._local_start):
            segment = self._segment_at(self._at)
            if isinstance(segment, KafkaError):
                return self._then(segment, now_ms)
            after = self._at if segment is None else self._end_of(segment, self._at)
            if segment is None or after <= self._at:
                return self._look_locally(now_ms)
            self._at, self._last = after, segment
            if not segment.txn_index_empty:
                return self._indexes.load(segment, self._index_came, now_ms)
        if self._at < self._upto or self._last is None:
            return self._look_locally(now_ms)
        return self._open_transactions.load(self._last, self._open_loaded, now_ms)

    def _index_came(self, result: SegmentIndexes | FirnlineError, now_ms: int) -> Effects:
        if isinstance(result, FirnlineError):
            return self._then(result, now_ms)
        return self._finish(now_ms) if self._collect(result.aborted) else self.next(now_ms)

    def _open_loaded(self, result: tuple[OpenTxn, ...] | FirnlineError, now_ms: int) -> Effects:
        """The open transactions are loaded: only those that began below the end of the read matter."""
        if isinstance(result, FirnlineError):
            return self._look_through(now_ms)
        self._waiting = [txn for txn in result if txn[1] < self._upto]
        return self._next_waiting(now_ms)

    # ---------------------------------------------------------------------------- the one with the end

    def _next_waiting(self, now_ms: int) -> Effects:
        """Search the end of the next open transaction; without one the search is over."""
        while self._waiting and self._waiting[0] in self._found:
            self._waiting.pop(0)
        if not self._waiting:
            return self._look_locally(now_ms) if self._is_local else self._finish(now_ms)
        if self._at >= self._local_start:
            return self._look_locally(now_ms)
        assert self._last is not None
        self._low, self._high = self._at, self._local_start
        self._stride = max(self._last.end_offset + 1 - self._last.base_offset, 1)
        self._closing = None
        return self._probe(self._low, now_ms)

    def _probe(self, offset: int, now_ms: int) -> Effects:
        """Load whether the transaction is open at the end of the segment with `offset`."""
        if self._low >= self._local_start:
            self._is_local = True
            self._waiting.pop(0)
            return self._next_waiting(now_ms)
        segment = self._segment_at(offset)
        if isinstance(segment, KafkaError):
            return self._then(segment, now_ms)
        if segment is None or self._end_of(segment, offset) <= offset:
            return self._look_through(now_ms)
        self._steps += 1
        probed = partial(self._probed, segment, offset)
        load = partial(self._open_transactions.load, segment, probed)
        if self._steps % STEP_SEGMENTS == 0:
            return [SetTimer(key=("tier", "aborted", self._serial), at_ms=now_ms, then=load)]
        return load(now_ms)

    def _probed(
        self,
        segment: RemoteSegment,
        offset: int,
        result: tuple[OpenTxn, ...] | FirnlineError,
        now_ms: int,
    ) -> Effects:
        if isinstance(result, FirnlineError):
            return self._look_through(now_ms)
        if self._waiting[0] in result:
            self._low = self._end_of(segment, offset)
        else:
            self._closing, self._high = segment, max(segment.base_offset, self._low)
        if self._closing is not None and self._low >= self._high:
            return self._closed_in(self._closing, now_ms)
        if self._closing is not None:
            return self._probe((self._low + self._high) // 2, now_ms)
        self._stride *= 2
        return self._probe(min(self._low + self._stride // 2, self._local_start - 1), now_ms)

    def _closed_in(self, segment: RemoteSegment, now_ms: int) -> Effects:
        """The segment has the marker. If it is a commit, the index does not have the transaction."""
        self._waiting.pop(0)
        if segment.txn_index_empty:
            return self._next_waiting(now_ms)
        return self._indexes.load(segment, self._closing_came, now_ms)

    def _closing_came(self, result: SegmentIndexes | FirnlineError, now_ms: int) -> Effects:
        if isinstance(result, FirnlineError):
            return self._then(result, now_ms)
        self._collect(result.aborted)
        return self._next_waiting(now_ms)

    # --------------------------------------------------------------------- where no snapshot can be read

    def _look_through(self, now_ms: int) -> Effects:
        """Search the index of every later segment: a damaged snapshot only takes more time."""
        waiting: list[bool] = []  # a cached index continues the loop here

        def came(result: SegmentIndexes | FirnlineError, at_ms: int) -> Effects:
            if waiting:
                waiting[0] = True
                self._result: SegmentIndexes | FirnlineError = result
                return []
            return self._looked(result, at_ms)

        for _ in range(STEP_SEGMENTS):
            segment = self._segment_at(self._at) if self._at < self._local_start else None
            if isinstance(segment, KafkaError):
                return self._then(segment, now_ms)
            after = self._at if segment is None else self._end_of(segment, self._at)
            if segment is None or after <= self._at:
                return self._look_locally(now_ms)
            self._at = after
            if segment.txn_index_empty:
                continue
            waiting[:] = [False]
            effects = self._indexes.load(segment, came, now_ms)
            has_come = waiting.pop()
            if not has_come:
                return effects
            if isinstance(self._result, FirnlineError):
                return self._then(self._result, now_ms)
            if self._collect(self._result.aborted):
                return self._finish(now_ms)
        key = ("tier", "aborted", self._serial)
        return [SetTimer(key=key, at_ms=now_ms, then=self._look_through)]

    def _looked(self, result: SegmentIndexes | FirnlineError, now_ms: int) -> Effects:
        if isinstance(result, FirnlineError):
            return self._then(result, now_ms)
        return self._finish(now_ms) if self._collect(result.aborted) else self._look_through(now_ms)

    # ------------------------------------------------------------------------------------------ parts

    @property
    def _local_start(self) -> int:
        return self._hosted.log.local_log_start_offset

    def _segment_at(self, offset: int) -> RemoteSegment | KafkaError | None:
        epoch = self._hosted.log.epochs.epoch_at(offset)
        if epoch is None:
            return None
        return self._services.metadata.lookup(self._hosted.where, epoch=epoch, offset=offset)

    def _end_of(self, segment: RemoteSegment, offset: int) -> int:
        return shared_end(segment, self._hosted.log.epochs.entries(), offset)

    def _collect(self, aborted: Sequence[AbortedTxn]) -> bool:
        """Note overlapping transactions; True if no later entry can overlap."""
        for txn in aborted:
            if txn.last_offset >= self._start and txn.first_offset < self._upto:
                self._note(txn)
            if txn.last_stable_offset >= self._upto:
                return True
        return False

    def _note(self, txn: AbortedTxn) -> None:
        self._found.setdefault((txn.producer_id, txn.first_offset), txn)

    def _look_locally(self, now_ms: int) -> Effects:
        for txn in self._hosted.log.aborted_transactions(self._start, self._upto):
            self._note(txn)
        return self._finish(now_ms)

    def _finish(self, now_ms: int) -> Effects:
        return self._then(list(self._found.values()), now_ms)
