"""The transaction index of a segment: the transactions that a marker in it aborted. STORE.

The layout of its file: `formats/transaction_index`.
"""

from firnline.base.cold_pages import take
from firnline.base.errors import StorageError
from firnline.base.ports import Fs
from firnline.formats import transaction_index
from firnline.formats.transaction_index import ENTRY_BYTES, AbortedTxn
from firnline.log.checkpoint import read_file, write_durably


class TransactionIndex:
    """The aborted transactions whose marker is in one segment. Read on demand: most segments have none."""

    __slots__ = ("_entries", "_fs", "_is_rebuilt", "_written", "path")

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self.path = path
        self._entries: list[AbortedTxn] | None = None
        self._written = 0  # entries that are in the file
        self._is_rebuilt = False  # a rebuild is under way: the file stays as it is until its end

    @property
    def entries(self) -> list[AbortedTxn]:
        """Every entry, in order, up to the first damaged one."""
        if self._entries is None:
            self._entries = self._read()
            self._written = len(self._entries)
        return self._entries

    def is_sane(self, base_offset: int) -> bool:
        """True when the file has only complete entries of version 0, all at or after `base_offset`."""
        if not self._fs.exists(self.path):
            return True
        file = self._fs.open(self.path)
        try:
            size = file.size()
        finally:
            file.close()
        return size == len(self.entries) * ENTRY_BYTES and all(
            entry.last_offset >= base_offset for entry in self.entries
        )

    def _read(self) -> list[AbortedTxn]:
        if not self._fs.exists(self.path):
            return []
        file = self._fs.open(self.path)
        try:
            return transaction_index.decode(take(self._fs, file, 0, file.size()))
        finally:
            file.close()

    def add(self, txn: AbortedTxn) -> None:
        """Add one transaction and append it to the file.

        Its marker is in the log already. So where the disk is full, or no descriptor is left, the entry stays
        in memory, where readers find it, and is written later, at the latest when the segment is closed.
        """
        self.entries.append(txn)
        if self._is_rebuilt:
            return
        try:
            self.write()
        except StorageError as problem:
            if not problem.is_passing:
                raise

    def write(self) -> None:
        """Append the unwritten entries to the file."""
        entries = self.entries
        if self._written == len(entries):
            return
        file = self._fs.open(self.path, create=True)
        try:
            if file.size() > self._written * ENTRY_BYTES:
                file.truncate(self._written * ENTRY_BYTES)  # a torn tail
            file.append(transaction_index.encode(entries[self._written :]))
        finally:
            file.close()
        self._written = len(entries)

    def truncate_to(self, offset: int) -> int:
        """Drop the transactions whose marker is at or after `offset`; return the new size of the file."""
        self._entries = [entry for entry in self.entries if entry.last_offset < offset]
        self._written = min(self._written, len(self._entries))
        return self._written * ENTRY_BYTES

    def begin_rebuild(self) -> None:
        """Drop every entry, because the batches are read again; the file stays until `end_rebuild`.

        So a crash before leaves the old file: one with only part of the entries would look complete.
        """
        self._entries, self._written, self._is_rebuilt = [], 0, True

    def end_rebuild(self) -> None:
        """All batches were read: replace the file durably, if its content differs."""
        self._is_rebuilt = False
        data = transaction_index.encode(self.entries)
        if not data:
            self._fs.remove(self.path)
        elif read_file(self._fs, self.path) != data:
            write_durably(self._fs, self.path, data)
        self._written = len(self.entries)

    def collect(self, start_offset: int, upto_offset: int, into: list[AbortedTxn]) -> bool:
        """Add the transactions with records in [start, upto); True when no later one can have any."""
        for txn in self.entries:
            if txn.last_offset >= start_offset and txn.first_offset < upto_offset:
                into.append(txn)
            if txn.last_stable_offset >= upto_offset:
                return True
        return False
