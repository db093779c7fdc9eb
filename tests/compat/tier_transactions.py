"""Transactions in a tiered topic: written by raw requests, read as consumers of committed ones do. WORLD."""

import time
from typing import Any

from firnline.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from tests.compat.tier_scenario import PATIENCE_S, Play

_READ_COMMITTED = 1


class Transactions:
    """Producers of one topic, each by its producer id."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._sequences: dict[int, int] = {}

    def produce(self, producer_id: int, *values: str) -> None:
        """Append a batch of its open transaction for each value."""
        for value in values:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + 1
            batch = build_batch(
                [NewRecord(b"k", value.encode(), self.play.begun_ms)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            self.play.append(bytes(batch), transactional_id=f"of {producer_id}")

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker that ends its transaction, as a coordinator does."""
        topics = [WritableTxnMarkerTopic(name=self.play.topic, partition_indexes=[0])]
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=is_commit,
            topics=topics,
            coordinator_epoch=0,
        )
        answer = self.play.leader().ask(WriteTxnMarkersRequest(markers=[marker]), version=1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0, answer


def read_committed(play: Play, begin: int) -> list[tuple[int, str]]:
    """Read from `begin` to the last stable offset; leave out what the answers say is aborted."""
    found: list[tuple[int, str]] = []
    at, deadline = begin, time.monotonic() + PATIENCE_S
    while True:
        row = play.until("a fetch", lambda: play.fetch_row(at, isolation=_READ_COMMITTED))  # noqa: B023
        assert time.monotonic() < deadline, f"{play.side.name}: nothing at {at}: {row}"
        if row.error_code:
            continue
        for offset, value, end in _committed(row):
            found += [(offset, value)] if offset >= at and value is not None else []
            at = max(at, end)
        if at >= row.last_stable_offset:
            return found


def _committed(row: Any) -> list[tuple[int, str | None, int]]:
    """Return (offset, value, next offset) of each record, without the value where a consumer gets none."""
    aborted = sorted(
        (each.first_offset, each.producer_id) for each in row.aborted_transactions or ()
    )
    data = bytes(row.records or b"")
    found: list[tuple[int, str | None, int]] = []
    undone: set[int] = set()
    for header in headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            undone.add(aborted.pop(0)[1])
        if header.is_control or (header.is_transactional and header.producer_id in undone):
            if header.is_control:
                undone.discard(header.producer_id)
            found.append((header.base_offset, None, header.last_offset + 1))
            continue
        for each in records(data, header):
            found.append((each.offset, bytes(each.value or b"").decode(), each.offset + 1))
    return found
