"""Transactions as compaction passes them: which were aborted, which markers have had their day. PURE.

A marker stays while a batch of its transaction is left in the log; after that it goes like a tombstone, when
its delete horizon is over. An aborted transaction stays in the index as long as its marker is needed.
Source: KIP-98, KIP-534.
"""

from collections.abc import Iterable

from firnline.formats.transaction_index import AbortedTxn
from firnline.log.producer_state import ABORT, COMMIT
from firnline.records.batch import BatchHeader


class CleanedTransactions:
    """One pass over a log, or a part of it, from the oldest batch on.

    aborted  every aborted transaction with a record in what is passed
    kept     those whose entry belongs to the segment that is being written; the caller empties it
    """

    __slots__ = ("_aborted", "_committed", "_open", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._open: dict[int, tuple[AbortedTxn, bool]] = {}  # by producer; was a batch of it seen?
        self._committed: dict[int, None] = {}  # producers with a batch that was not aborted
        self.kept: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a batch of data; True when nobody may ever read it."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open.get(header.producer_id)
        if found is None:
            self._committed[header.producer_id] = None
            return False
        self._open[header.producer_id] = found[0], True
        return True

    def is_spent(self, header: BatchHeader, kind: int | None) -> bool:
        """Take note of a control batch; True when no batch of the transaction it ended was left.

        kind  what its record says, None when it has none any more
        """
        self._reach(header.last_offset)
        if kind is None:
            return True
        if kind == ABORT:
            txn, is_seen = self._open.pop(header.producer_id, (None, False))
            if txn is None or not is_seen:
                return True
            self.kept.append(txn)
            return False
        if kind == COMMIT:
            known = header.producer_id in self._committed
            self._committed.pop(header.producer_id, None)
            return not known
        return False

    def _reach(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            txn = self._aborted.pop()
            self._open.setdefault(txn.producer_id, (txn, False))
