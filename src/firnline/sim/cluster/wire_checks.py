"""The invariants that show in what is asked and answered: promises, epochs, what consumers read. SIM.

Source: reliability (b), rel-R3, R13, R14, R15, R19, rel-C1, C2, C9.
"""

from typing import Any

from firnline.base.effects import Send
from firnline.protocol.messages.k00_produce import ProduceRequest
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.sim.cluster.budget import Atlas
from firnline.sim.cluster.ledger import Key, Ledger
from firnline.sim.cluster.replica_checks import ReplicaChecks, name
from firnline.sim.host import Host, Process
from firnline.sim.net import BROKER_PORT, Call

_ACKS_ALL = -1


class WireChecks:
    """Judges messages between clients, brokers and controllers."""

    def __init__(
        self,
        hosts: dict[int, Host],
        ledger: Ledger,
        replicas: ReplicaChecks,
        atlas: Atlas,
        complain: Any,
    ) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._replicas = replicas
        self._atlas = atlas
        self._complain = complain

    def sent(self, process: Process, to_id: int, effect: Send) -> None:
        """A request leaves."""

    def received(self, process: Process, call: Call) -> None:
        """A request is about to be handled."""
        request = call.request
        if type(request) is ProduceRequest:
            # The batch is stamped in place: what it was is known now.
            call.notes = [
                None if row.records is None else next(headers(row.records), None)
                for topic in request.topic_data
                for row in topic.partition_data
            ]

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """An answer leaves."""
        if call.port == BROKER_PORT and type(call.request) is ProduceRequest:
            self._on_produced(process, call, response)

    def told(self, process: Process, effect: Send, response: Message) -> None:
        """An answer arrives."""

    def stepped(self, process: Process) -> None:
        """The step is over that the last of these was part of."""

    def ended(self, process: Process) -> None:
        """A process is gone."""

    def _on_produced(self, process: Process, call: Call, response: Any) -> None:
        """rel-R13: success at acks=all means an ISR that is large enough. What was promised is written down."""
        request: Any = call.request
        asked = [
            (topic, row) for topic in request.topic_data for row in topic.partition_data
        ]
        rows = [row for topic in response.responses for row in topic.partition_responses]
        for (topic, data), row, header in zip(asked, rows, call.notes, strict=True):
            if row.error_code or header is None:
                continue
            if request.acks != _ACKS_ALL:
                self._ledger.acknowledged_by_one += header.record_count
                continue
            node = process.machine.broker
            found = node.hosted.by_name.get((topic.name, data.index))
            if found is None:
                continue
            self._ledger.acknowledged += header.record_count
            if len(found.isr) < min(found.log.config.min_insync_replicas, 99):
                key = (found.topic_id, data.index)
                text = f"{name(key)}: acknowledged with the ISR {found.isr}"
                self._complain("rel-R13", text, process.node_id)
            next_offset = row.base_offset + header.last_offset_delta + 1
            key = (found.topic_id, data.index)
            self._replicas.promised.append((key, row.base_offset, header.crc, next_offset))

    def read(self, number: int, key: Key, position: int, data: bytes) -> None:
        """rel-C1, rel-C2: what a consumer gets is committed, and what everybody gets."""
        truth = self._ledger.of(key)
        for header in headers(data):
            batch = truth.batch_at(header.base_offset)
            if header.next_offset <= position:
                continue
            if batch is None:
                text = f"{name(key)}: consumer {number} got {header.base_offset}; committed is up to {truth.end_offset}"
                self._complain("rel-C2", text)
            elif batch != data[header.position : header.position + header.size_bytes]:
                text = f"{name(key)}: consumer {number} got another batch at {header.base_offset}"
                self._complain("rel-C1", text)
