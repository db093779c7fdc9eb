"""Compare a log's producer state with a replay of its batches (rel-X4). SIM.

A replay takes as long as the log, so it is done for one change in 64. A log may know producers whose batches
were deleted, and forgets none: `producer.id.expiration.ms` is as long as it can be.
"""

from typing import Any

from firnline.records.batch import NO_PRODUCER_ID, headers
from firnline.replica.partition import Partition
from firnline.sim.cluster.ledger import PartitionKey, name
from firnline.sim.host import Process

_ONE_IN = 64


class ProducerChecks:
    """Checks partitions that changed. `read(log, start, end)` returns complete batches."""

    def __init__(self, read: Any, complain: Any) -> None:
        self._read = read
        self._complain = complain
        self._changes = 0

    def changed(self, process: Process, key: PartitionKey, partition: Partition) -> None:
        """The replica has changed."""
        self._changes += 1
        log = partition.log
        if self._changes % _ONE_IN or log.truncation is not None or partition.is_offline:
            return
        last: dict[int, tuple[int, int, int]] = {}
        process.host.fs.is_examined = True
        data = self._read(log, log.local_log_start_offset, log.log_end_offset)
        process.host.fs.is_examined = False
        for header in headers(data):
            if header.producer_id != NO_PRODUCER_ID and not header.is_control:
                found = (header.producer_epoch, header.last_sequence, header.last_offset)
                last[header.producer_id] = found
        for producer_id, expected in last.items():
            known = log.producers.get(producer_id)
            mark = known.batches[-1] if known is not None and known.batches else None
            shown = mark and known and (known.producer_epoch, mark.last_sequence, mark.last_offset)
            if shown != expected:
                text = (
                    f"{name(key)}: producer {producer_id} is at (epoch, sequence, offset) {shown};"
                    f" its batches say {expected}"
                )
                self._complain("rel-X4", text, process.node_id)
