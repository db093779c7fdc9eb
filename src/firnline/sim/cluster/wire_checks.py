"""Invariants of requests and responses: acknowledgements, epochs, what consumers read. SIM.

A message is compared with the state of the node that handles it at that moment, and with the ledger.
Source: reliability (b), rel-R1, R3, R7, R13, R14, R15, R19, rel-C1, C2, C9.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from firnline.api.dispatch import find_api, read_request, start_of
from firnline.base.effects import Send
from firnline.base.errors import Code
from firnline.broker.produce import is_in_its_codec
from firnline.controller.elections import ElectionType
from firnline.protocol.messages.k00_produce import ProduceRequest
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.messages.k02_list_offsets import ListOffsetsRequest
from firnline.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from firnline.protocol.messages.k56_alter_partition import AlterPartitionRequest
from firnline.protocol.messages.k58_envelope import EnvelopeRequest
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED
from firnline.records.batch import headers
from firnline.records.record import records
from firnline.replica.partition import Partition
from firnline.sim.cluster.client import CLIENT_IDS_FROM
from firnline.sim.cluster.ledger import Ledger, PartitionKey, name
from firnline.sim.host import Process
from firnline.sim.net import BROKER_PORT, Call
from firnline.sim.world import World

_ACKS_ALL = -1
_OF_BROKERS = (BrokerHeartbeatRequest, AlterPartitionRequest, AllocateProducerIdsRequest)
_REFUSALS = (Code.INELIGIBLE_REPLICA, Code.OPERATION_NOT_ATTEMPTED)
_CONTROLLER = {row.key: row for row in CONTROLLER_SERVED}
_STALE = "of an older incarnation"
FetchPosition = tuple[int, int]  # (leader epoch, offset) from which a follower fetches


class Promise(NamedTuple):
    """One batch that was acknowledged by a leader of that epoch; `least` is the required ISR size, and
    `isr_size` the actual one in that partition epoch.
    """

    key: PartitionKey
    base_offset: int
    crc: int
    next_offset: int
    leader_epoch: int
    partition_epoch: int
    isr_size: int
    least: int


class WireChecks:
    """Checks messages between clients, brokers and controllers.

    promised   acknowledged in this step
    applying   the request of the Fetch whose response is handled in this step; None for another step
    """

    def __init__(self, world: World, ledger: Ledger, complain: Any) -> None:
        self._world = world
        self._ledger = ledger
        self._complain = complain
        self.promised: list[Promise] = []
        self.applying: dict[PartitionKey, FetchPosition] | None = None
        self.fetched_us: dict[
            tuple[int, int], int
        ] = {}  # (leader, follower) -> time of the last Fetch
        # (leader, follower) -> the leader epochs that it fetched in before the leader knew them.
        self.ahead: dict[tuple[int, int], dict[PartitionKey, int]] = {}
        # (leader, follower) -> the broker epochs stated in its Fetches; all in order of time.
        self.reported_epochs: dict[tuple[int, int], dict[int, None]] = {}
        # Partition and partition epoch -> members and the broker epochs they were proposed with.
        self.proposed: dict[tuple[PartitionKey, int], dict[int, dict[int, None]]] = {}
        # Partitions and partition epochs for which a controller was asked to elect any leader.
        self.asked_unclean: dict[tuple[PartitionKey, int], None] = {}
        self._refused: dict[tuple[int, PartitionKey], int] = {}
        self._sessions: dict[tuple[int, int, int], dict[PartitionKey, FetchPosition]] = {}
        self._asked: dict[int, tuple[int, Send[Any], dict[PartitionKey, FetchPosition]]] = {}

    # ------------------------------------------------------------------------- requests

    def sent(self, process: Process, to_id: int, effect: Send[Any]) -> None:
        """A request leaves."""
        request: Any = effect.request
        is_fetch = type(request) is FetchRequest and effect.peer.port == BROKER_PORT
        if is_fetch and request.replica_state.replica_id >= 0:
            self._on_follower_asks(process, to_id, effect, request)

    def _on_follower_asks(
        self, process: Process, to_id: int, effect: Send[Any], request: Any
    ) -> None:
        """Keep the complete request of the session."""
        session = (process.node_id, process.number, to_id)
        asked = self._sessions.get(session) if request.session_epoch > 0 else None
        asked = dict(asked or {})
        for topic in request.topics:
            for row in topic.partitions:
                place = (row.current_leader_epoch, row.fetch_offset)
                asked[(topic.topic_id, row.partition)] = place
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                asked.pop((topic.topic_id, index), None)
        self._sessions[session] = asked
        # The request is kept until its response, so no other one has its id.
        self._asked[id(effect)] = (process.node_id, effect, asked)

    def received(self, process: Process, call: Call) -> None:
        """A request is about to be handled."""
        request: Any = call.request
        if type(request) is ProduceRequest:
            # The leader stamps the batch in place, so note its header now.
            call.notes = [
                self._note_batch(process, topic, row)
                for topic in request.topic_data
                for row in topic.partition_data
            ]
        elif type(request) is FetchRequest and call.port == BROKER_PORT:
            state = request.replica_state
            # Their place in older versions.
            replica_id = max(state.replica_id, request.replica_id)
            if replica_id >= 0:
                pair = (process.node_id, replica_id)
                self.reported_epochs.setdefault(pair, {})[state.replica_epoch] = None
                self.fetched_us[pair] = self._world.now_us
                self._note_ahead(process, request, self.ahead.setdefault(pair, {}))
            call.notes = self._older_epochs(process, request)
        elif type(request) in _OF_BROKERS:
            known = process.machine.quorum.newest.brokers.get(request.broker_id)
            if known is not None and known.epoch > request.broker_epoch:
                call.notes = _STALE
            if type(request) is AlterPartitionRequest:
                self._on_proposed(request)
        elif type(request) is EnvelopeRequest:
            self._on_forwarded(process, bytes(request.request_data))

    def _note_batch(self, process: Process, topic: Any, row: Any) -> tuple[Any, int]:
        """Return the header of the batch, and the size of the ISR before the append."""
        found = _hosted(process, topic.topic_id, topic.name, row.index)
        header = None if row.records is None else next(headers(row.records), None)
        return header, 0 if found is None else len(found.isr)

    def _older_epochs(self, process: Process, request: Any) -> list[PartitionKey]:
        """Return partitions of which the sender knows an older leader epoch than this broker."""
        found = []
        for topic in request.topics:
            for row in topic.partitions:
                here = _hosted(process, topic.topic_id, topic.topic, row.partition)
                if here is not None and -1 < row.current_leader_epoch < here.leader_epoch:
                    found.append((here.topic_id, row.partition))
        return found

    def _note_ahead(self, process: Process, request: Any, ahead: dict[PartitionKey, int]) -> None:
        """Note partitions of which the sender knows a newer leader epoch than this broker.

        A Fetch of many partitions is handled in slices: this broker may lead in that epoch when it reaches
        one of them.
        """
        for topic in request.topics:
            for row in topic.partitions:
                here = _hosted(process, topic.topic_id, topic.topic, row.partition)
                if here is not None and row.current_leader_epoch > here.leader_epoch:
                    ahead[(here.topic_id, row.partition)] = row.current_leader_epoch

    def _on_forwarded(self, process: Process, data: bytes) -> None:
        """An administrator may ask for an unclean election of a partition as it is now."""
        start = start_of(data)
        if start.key != ElectLeadersRequest.key:
            return
        request: Any = read_request(
            find_api(_CONTROLLER, start.key, start.version), data, start.body
        )
        if request.election_type != ElectionType.UNCLEAN:
            return
        topics = process.machine.quorum.newest.topics_by_name
        for row in request.topic_partitions:
            topic = topics.get(row.topic)
            if topic is None:
                continue
            for index, state in topic.partitions.items():
                if index in row.partitions:
                    self.asked_unclean[((topic.topic_id, index), state.partition_epoch)] = None

    def _on_proposed(self, request: Any) -> None:
        for topic in request.topics:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                members = [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
                self.note_proposed(key, row.partition_epoch, members)

    def note_proposed(
        self, key: PartitionKey, partition_epoch: int, members: Iterable[tuple[int, int]]
    ) -> None:
        """A leader proposes an ISR; `members` with their broker epochs."""
        known = self.proposed.setdefault((key, partition_epoch), {})
        for broker_id, broker_epoch in members:
            known.setdefault(broker_id, {})[broker_epoch] = None

    # ------------------------------------------------------------------------- responses

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """A response leaves."""
        request: Any = call.request
        answer: Any = response
        if type(request) is ProduceRequest:
            self._on_produced(process, call, answer)
        elif type(request) is FetchRequest and call.notes:
            self._check_fenced(process, call, answer)
        elif type(request) is ListOffsetsRequest and call.from_id >= CLIENT_IDS_FROM:
            self._on_listed(process, request, answer)
        elif call.notes is _STALE and not answer.error_code:
            kind = type(request).__name__
            text = f"{kind} of broker {request.broker_id} at the old epoch {request.broker_epoch} was taken"
            self._complain("rel-R3", text, process.node_id)
        if type(request) is AlterPartitionRequest:
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code in _REFUSALS:
                        key = (call.from_id, (topic.topic_id, row.partition_index))
                        self._refused[key] = self._refused.get(key, 0) + 1

    def was_refused(self, node_id: int, key: PartitionKey) -> bool:
        """Whether a controller has refused a proposal of that leader since the last call."""
        return self._refused.pop((node_id, key), 0) > 0

    def on_response(self, process: Process, effect: Send[Any], response: Message) -> None:
        """A response arrives."""
        asked = self._asked.pop(id(effect), None)
        self.applying = None if asked is None else asked[2]

    def stepped(self) -> None:
        """The step is over."""
        self.applying = None

    def ended(self, process: Process) -> None:
        """A process is gone, and with it all its requests."""
        self.applying = None
        for key, (node_id, _, _) in list(self._asked.items()):
            if node_id == process.node_id:
                del self._asked[key]
        for session in [each for each in self._sessions if each[0] == process.node_id]:
            del self._sessions[session]
        for pair in [each for each in self.ahead if each[0] == process.node_id]:
            del self.ahead[pair]

    def _on_produced(self, process: Process, call: Call, response: Any) -> None:
        """rel-R13: success with acks=all means an ISR that is large enough, before and after.

        The ISR after it is checked with the promise: it may have been large enough in the middle of this
        step.
        """
        request: Any = call.request
        asked = [(topic, row) for topic in request.topic_data for row in topic.partition_data]
        rows = [row for topic in response.responses for row in topic.partition_responses]
        for (topic, data), row, (header, isr_before) in zip(asked, rows, call.notes, strict=True):
            if row.error_code or header is None:
                continue
            if request.acks != _ACKS_ALL:
                self._ledger.acknowledged_by_one += header.record_count
                continue
            found = _hosted(process, topic.topic_id, topic.name, data.index)
            if found is None:
                continue  # deleted meanwhile
            self._ledger.acknowledged += header.record_count
            key = (found.topic_id, data.index)
            least = min(found.log.config.min_insync_replicas, len(found.replicas))
            # A batch that is compressed again is appended later than it came, when the ISR may differ.
            is_at_once = is_in_its_codec(found.log, header.attributes)
            if isr_before < least and is_at_once:
                text = (
                    f"{name(key)}: acknowledged at {row.base_offset}, and appended with an ISR of"
                    f" {isr_before}; {least} are asked for"
                )
                self._complain("rel-R13", text, process.node_id)
            next_offset = row.base_offset + header.last_offset_delta + 1
            self.promised.append(
                Promise(
                    key,
                    row.base_offset,
                    header.crc,
                    next_offset,
                    found.leader_epoch,
                    found.partition_epoch,
                    len(found.isr),
                    least,
                )
            )

    def _check_fenced(self, process: Process, call: Call, response: Any) -> None:
        """rel-R15: a request with an older leader epoch gets an error, and no records."""
        if response.error_code:
            return
        for topic in response.responses:
            for row in topic.partitions:
                here = _hosted(process, topic.topic_id, topic.topic, row.partition_index)
                if here is None or row.error_code:
                    continue
                key = (here.topic_id, row.partition_index)
                if key in call.notes:
                    text = f"{name(key)}: answered a Fetch of an older leader epoch"
                    self._complain("rel-R15", text, process.node_id)

    # ------------------------------------------------------------------------- consumers

    def _on_listed(self, process: Process, request: Any, response: Any) -> None:
        """rel-C9: the first record of that timestamp or later, or the start of the log."""
        (topic,), (answered,) = request.topics, response.topics
        (asked,), (row,) = topic.partitions, answered.partitions
        node = process.machine.broker
        here = node.hosted.by_name.get((topic.name, asked.partition_index))
        if row.error_code or here is None or here.refusal is not None:
            return
        key, log = (here.topic_id, asked.partition_index), here.log
        history = self._ledger.of(key)
        if history.checked_to(here.leader_epoch) < log.log_end_offset:
            return  # an unclean election abandoned its lineage, and it does not know yet
        if asked.timestamp >= 0 and history.is_compacted:
            return  # the first record of that timestamp may be gone
        if asked.timestamp >= 0 and history.has_skipped(log.log_start_offset):
            return  # it may be one that only the tier knows
        expected: tuple[int | None, ...]
        if asked.timestamp < 0:
            expected = (log.log_start_offset,)
        else:
            found = self._first_at(key, asked.timestamp, log.log_start_offset)
            # There is nothing yet beyond what this broker may show.
            expected = (-1,) if found is None or found >= log.high_watermark else (found,)
            if log.is_tiered and found is not None and found >= log.epochs.entries()[-1][1]:
                expected = (found, -1)  # it was perhaps not committed when the search began
        if log.is_tiered and asked.timestamp >= 0:
            # A crash may have taken the log start back, or it was raised meanwhile, or by a leader before
            # this one: what the tier has below it may be there, or may be deleted.
            begin = max(log.log_start_offset, log.epochs.entries()[0][1], history.start_offset)
            expected += (self._first_at(key, asked.timestamp, begin),)
            if 0 <= row.offset < begin:
                expected = (self._first_at(key, asked.timestamp, row.offset),)
        if row.offset not in expected:
            text = f"{name(key)}: {asked.timestamp} is at {row.offset}, not {expected[0]}"
            self._complain("rel-C9", text, process.node_id)

    def _first_at(self, key: PartitionKey, timestamp_ms: int, start_offset: int) -> int | None:
        history = self._ledger.of(key)
        for base_offset, latest_ms in history.times:
            batch = history.batch_at(base_offset) if latest_ms >= timestamp_ms else None
            if batch is None:
                continue
            header = next(headers(batch))
            if header.last_offset < start_offset:
                continue
            for row in records(batch, header):
                if row.timestamp_ms >= timestamp_ms and row.offset >= start_offset:
                    return row.offset
        return None

    def read(
        self, number: int, key: PartitionKey, position: int, data: bytes, leader_epoch: int
    ) -> None:
        """rel-C1, rel-C2: what a consumer reads is committed, and the same for all consumers.

        `leader_epoch` is that of the leader that answered.
        """
        history = self._ledger.of(key)
        checked_to = history.checked_to(leader_epoch)
        if history.is_compacted:
            problem = None if history.has_past else history.keyed.is_so(data)
            if problem is not None:
                self._complain("rel-C1", f"{name(key)}: consumer {number} got {problem}")
            return
        for header in headers(data):
            if header.next_offset <= position or header.base_offset >= checked_to:
                continue
            if history.is_skipped(header.base_offset):
                continue
            # The answer was on its way when the last replica lost what that leader had committed.
            if history.is_given_up(leader_epoch, header.base_offset):
                continue
            batch = history.batch_at(header.base_offset)
            what = f"{name(key)}: consumer {number} got"
            if batch is None:
                text = f"{what} {header.base_offset}; up to {history.end_offset} is committed"
                self._complain("rel-C2", text)
            elif batch != data[header.position : header.position + header.size_bytes]:
                self._complain("rel-C1", f"{what} another batch at {header.base_offset}")


def _hosted(process: Process, topic_id: Any, topic: str | None, index: int) -> Partition | None:
    """The partition on the broker of that process, by id or else by name."""
    hosted = process.machine.broker.hosted
    found: Partition | None = hosted.by_id.get((topic_id, index)) or hosted.by_name.get(
        (topic, index)
    )
    return found
