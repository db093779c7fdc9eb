"""What each broker knows of the tier at each moment, and what it finds and serves by that. SIM.

A broker has applied the records of the metadata topic up to some offset. What it knows of each segment is
what the records up to there say; what it finds for a read is finished by them, and of the lineage that was
asked for; and it serves no record of another lineage. Source: reliability (b), rel-T6, T8, T9.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.slices import FileRecords
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.schema import Message
from firnline.records.batch import HEADER_BYTES, crc_is_right, headers, parse_header
from firnline.replica.partition import Partition
from firnline.sim.cluster.ledger import name
from firnline.sim.host import Process
from firnline.sim.net import BROKER_PORT, Call
from firnline.sim.tier.recorded import DELETED, FINISHED, RecordedTier, name_of
from firnline.tiered.spi import RemoteSegment

Complain = Callable[[str, str, int], None]


class _Found(NamedTuple):
    """The segment that a broker found for an offset of a leader epoch, and what it had applied then."""

    node_id: int
    epoch: int
    offset: int
    segment_id: Uuid
    applied: int


class KnownToBrokers:
    """Compares each broker with the records, after each of its steps."""

    def __init__(self, recorded: RecordedTier, complain: Complain) -> None:
        self._recorded = recorded
        self._complain = complain
        # By process: the last applied offset of each metadata partition when it was last checked.
        self._applied: dict[Process, dict[int, int]] = {}
        self._found: list[_Found] = []  # in this step
        # Where local records began when a Fetch came: it may be answered after they are deleted.
        self._asked: dict[Call, dict[TopicIdPartition, int]] = {}

    def started(self, process: Process, node: Any) -> None:
        """A process begins: be told what its broker finds in the metadata."""
        self._applied[process] = {}
        metadata = node.tier.services.metadata
        lookup = metadata.lookup

        def watched(where: TopicIdPartition, *, epoch: int, offset: int) -> Any:
            found = lookup(where, epoch=epoch, offset=offset)
            if isinstance(found, RemoteSegment):
                _, applied = metadata.applied_offset(where)
                self._found.append(
                    _Found(process.node_id, epoch, offset, found.segment_id, applied)
                )
            return found

        metadata.lookup = watched

    def ended(self, process: Process) -> None:
        """A process is gone, and with it all its requests."""
        self._applied.pop(process, None)
        for call in [call for call in self._asked if call.of.server is process]:
            del self._asked[call]

    def stepped(self, process: Process) -> None:
        """A process took a step; all that is committed by now is in the records."""
        applied = self._applied.get(process)
        if applied is None:
            return
        found, self._found = self._found, []
        for each in found:
            self._check_found(each)
        metadata = process.machine.broker.tier.services.metadata
        for index, partition in self._recorded.metadata.items():
            _, upto = metadata.applied_offset(partition.where)
            before = applied.get(index, -1)
            if upto == before:
                continue
            applied[index] = upto
            # After a loss of records it reads all of them again.
            for known in partition.between(before if upto > before else -1, upto).values():
                segment = known.segment
                where = TopicIdPartition(segment.topic_id, segment.partition)
                here = metadata.get(where, segment.segment_id)
                expected = known.state_at(upto)
                if (DELETED if here is None else here.state) != expected:
                    text = (
                        f"{name_of(known)} is {here and here.state!r} to a broker that knows the records"
                        f" up to {upto}, and {expected!r} by them"
                    )
                    self._complain("rel-T6", text, process.node_id)

    def _check_found(self, found: _Found) -> None:
        """rel-T8: it is finished, as far as this broker knows. rel-T9: it has that offset of that epoch."""
        known, node_id = self._recorded.by_id.get(found.segment_id), found.node_id
        what = f"{found.offset} of epoch {found.epoch}"
        if known is None:
            self._complain("rel-T8", f"an unknown segment is found for {what}", node_id)
            return
        state = known.state_at(found.applied)
        if state != FINISHED:
            text = f"{name_of(known)} is found for {what}, and is {state!r} to this broker"
            self._complain("rel-T8", text, node_id)
        segment = known.segment
        is_inside = segment.base_offset <= found.offset <= segment.end_offset
        has = [epoch for epoch, start in segment.epochs if start <= found.offset]
        if not is_inside or has[-1:] != [found.epoch]:
            text = f"{name_of(known)} with the epochs {segment.epochs} is found for {what}"
            self._complain("rel-T9", text, node_id)

    # ------------------------------------------------------------------------- what is served

    def received(self, process: Process, call: Call) -> None:
        """A Fetch arrives: note where the local records begin."""
        request: Any = call.request
        if type(request) is not FetchRequest or call.port != BROKER_PORT:
            return
        hosted = process.machine.broker.hosted
        self._asked[call] = {
            TopicIdPartition(*key): each.log.local_log_start_offset
            for key, each in hosted.by_id.items()
            if each.is_leader and each.log.is_tiered
        }

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """rel-T9: what a leader serves from the tier has the leader epochs that its log has there."""
        local, answer = self._asked.pop(call, None), response
        if local is None or answer.error_code:  # type: ignore[attr-defined]
            return
        hosted = process.machine.broker.hosted
        for topic in answer.responses:  # type: ignore[attr-defined]
            for row in topic.partitions:
                here = hosted.by_id.get((topic.topic_id, row.partition_index))
                here = here or hosted.by_name.get((topic.topic, row.partition_index))
                if here is not None and here.is_leader and here.log.is_tiered:
                    key = TopicIdPartition(here.topic_id, row.partition_index)
                    local_from = local.get(key, 0)
                    self._check_served(process.node_id, here, row.records, local_from)

    def _check_served(self, node_id: int, here: Partition, data: Any, local_from: int) -> None:
        """`local_from`: where local records began when the Fetch came."""
        log = here.log
        if data is None or isinstance(data, FileRecords):
            return  # of local files
        last = parse_header(data).last_offset if len(data) >= HEADER_BYTES else log.log_end_offset
        if last >= local_from:
            # Of local files only the batch that a read begins with is checked; readers check the others.
            data = _undamaged(data)
        for header in headers(data):
            if not crc_is_right(data, header):
                key = (here.topic_id, here.topic_partition.partition)
                text = f"{name(key)}: the tier serves {header.base_offset} with other bytes"
                self._complain("rel-C2", text, node_id)
            epoch = log.epochs.epoch_at(header.last_offset)
            if epoch not in (None, header.leader_epoch):
                key = (here.topic_id, here.topic_partition.partition)
                text = (
                    f"{name(key)}: the tier serves {header.base_offset} of epoch {header.leader_epoch};"
                    f" it is of epoch {epoch} here"
                )
                self._complain("rel-T9", text, node_id)


def _undamaged(data: Any) -> bytes:
    """The batches before the first damaged one."""
    end = 0
    try:
        for header in headers(data):
            if not crc_is_right(data, header):
                break
            end = header.position + header.size_bytes
    except KafkaError:
        pass
    return bytes(data[:end])
