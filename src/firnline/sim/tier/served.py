"""What a broker serves from local files does not depend on the tier, whatever the store does. SIM.

Source: reliability (b), rel-T16.
"""

from collections.abc import Callable, Iterator
from typing import Any

from firnline.base.errors import Code
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.schema import Message
from firnline.replica.partition import Partition
from firnline.sim.cluster.ledger import PartitionKey, name
from firnline.sim.host import Process
from firnline.sim.net import BROKER_PORT, Call

# What a client gets for a failed read of the tier. For local records a leader has no other cause for it.
_OF_THE_TIER = (
    Code.KAFKA_STORAGE_ERROR,
    Code.OFFSET_OUT_OF_RANGE,
    Code.REPLICA_NOT_AVAILABLE,
    Code.UNKNOWN_SERVER_ERROR,
)


class ServedLocally:
    """Looks at each Fetch of records that are in local files.

    served   partitions that were answered from local files while their tier could have answered, too
    """

    def __init__(self, complain: Callable[[str, str, int], None]) -> None:
        self._complain = complain
        self._asked: dict[Call, dict[PartitionKey, tuple[int, int]]] = {}
        self.served = 0

    def received(self, process: Process, call: Call) -> None:
        """A Fetch arrives: note the offsets that are local on a leader, with its epoch."""
        request: Any = call.request
        if type(request) is not FetchRequest or call.port != BROKER_PORT:
            return
        local = {
            (here.topic_id, row.partition): (row.fetch_offset, here.leader_epoch)
            for here, row in _partitions(process, request.topics, "partition")
            if _is_local(here, row.fetch_offset)
        }
        if local:
            self._asked[call] = local

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """rel-T16: what was local all the time is served, or refused for a cause that is not the tier."""
        local, answer = self._asked.pop(call, None), response
        if local is None or process.host.has_bad_disk:
            return  # its own directory may be the cause
        for here, row in _partitions(process, answer.responses, "partition_index"):  # type: ignore[attr-defined]
            key = (here.topic_id, row.partition_index)
            offset, leader_epoch = local.get(key, (-1, -1))
            if leader_epoch != here.leader_epoch or not _is_local(here, offset):
                continue
            self.served += 1
            if row.error_code in _OF_THE_TIER:
                text = (
                    f"{name(key)}: {offset} is local, and answered with {Code(row.error_code).name}"
                )
                self._complain("rel-T16", text, process.node_id)

    def ended(self, process: Process) -> None:
        """A process is gone, and with it all its requests."""
        for call in [call for call in self._asked if call.of.server is process]:
            del self._asked[call]


def _partitions(process: Process, topics: Any, index: str) -> Iterator[tuple[Partition, Any]]:
    """Each row of a request or response with its partition on that broker, if it has it."""
    hosted = process.machine.broker.hosted
    for topic in topics:
        for row in topic.partitions:
            number = getattr(row, index)
            here = hosted.by_id.get((topic.topic_id, number))
            here = here or hosted.by_name.get((topic.topic, number))
            if here is not None:
                yield here, row


def _is_local(here: Partition, offset: int) -> bool:
    log = here.log
    if not (here.is_leader and log.is_tiered and here.refusal is None):
        return False
    return max(log.local_log_start_offset, log.log_start_offset) <= offset <= log.high_watermark
