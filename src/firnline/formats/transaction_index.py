"""The transaction index of a segment, `<base offset>.txnindex`: what was aborted. PURE.

Entries of 34 bytes, big endian: version 0 (int16), producer id, first offset, last offset (that of the ABORT
marker), last stable offset when the marker was written (int64 each), in the order of the last offset. The
markers of all of them are in the segment. The file exists only when something was aborted. A read up to
offset X may stop looking at the first entry whose last stable offset is X or above: later aborts began after
it. Source: KIP-98; Kafka's TransactionIndex and AbortedTxn.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from firnline.base.ports import Buffer

ENTRY = Struct(">hqqqq")  # version, then the fields of AbortedTxn
ENTRY_BYTES = ENTRY.size
VERSION = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction; offsets inclusive, but `last_stable_offset`, which is an end."""

    producer_id: int
    first_offset: int
    last_offset: int = -1
    last_stable_offset: int = -1


def encode(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the file of `entries`."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def decode(data: Buffer) -> list[AbortedTxn]:
    """Return the entries of a file; what follows a damaged one is left out."""
    found: list[AbortedTxn] = []
    before = -1
    for version, *fields in ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]):
        txn = AbortedTxn(*fields)
        if version != VERSION or not 0 <= txn.first_offset <= txn.last_offset:
            break
        if txn.last_offset <= before:
            break
        found.append(txn)
        before = txn.last_offset
    return found


def decode_strict(data: Buffer, base_offset: int, end_offset: int) -> list[AbortedTxn] | None:
    """Return the entries of the index of a segment, whose offsets are from base to end, inclusive.

    None where one is damaged, or has its marker in another segment.
    """
    found = decode(data)
    if len(found) * ENTRY_BYTES != len(data):
        return None
    if found and not base_offset <= found[0].last_offset <= found[-1].last_offset <= end_offset:
        return None
    return found
