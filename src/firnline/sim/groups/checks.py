"""Invariants of consumer groups: commits stay, and every partition has one owner. SIM.

Commits are ordered as coordinators took them: by the leader epoch of the coordinator's partition, then by
time. Source: reliability (b), rel-C5, rel-C6.
"""

from typing import Any

from firnline.base.ids import OFFSETS_TOPIC
from firnline.metadata.image import NO_LEADER
from firnline.protocol.messages.k08_offset_commit import OffsetCommitRequest
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest
from firnline.protocol.schema import Message
from firnline.replica.partition import Partition
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.ledger import Ledger, PartitionKey
from firnline.sim.groups.member import GROUP, TopicAndPartition, spots_of
from firnline.sim.host import Host, Process
from firnline.sim.net import Call

Order = tuple[int, int]  # leader epoch of the coordinator, and time


class GroupChecks:
    """Checks the responses of coordinators. `acknowledged`: acknowledged commits, counted by partition."""

    def __init__(
        self, hosts: dict[int, Host], ledger: Ledger, dirty: DirtyReplicas, complain: Any
    ) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._dirty = dirty
        self._complain = complain
        self.acknowledged = 0
        self._count = 0
        self._cuts = 0
        self._taken: dict[str, Order] = {}  # by the number of the commit
        self._promised: dict[TopicAndPartition, tuple[Order, str]] = {}
        self._owners: dict[int, dict[TopicAndPartition, str]] = {}  # by generation
        # Leader epoch -> the newest generation whose assignments it gave out
        self._fences: dict[int, int] = {}

    def received(self, process: Process, call: Call) -> None:
        """A commit arrives: note the commits before it, and the earliest possible generation."""
        request: Any = call.request
        if type(request) is OffsetCommitRequest:
            self._forget_what_was_lost()
            epoch = self._epoch(process)
            self._count += 1
            for topic in request.topics:
                for row in topic.partitions:
                    self._taken[f"{row.committed_metadata}"] = (epoch, self._count)
            fence = max((gen for each, gen in self._fences.items() if each <= epoch), default=-1)
            call.notes = (self._cuts, fence)

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """A coordinator acknowledges something, or reports what it acknowledged."""
        request: Any = call.request
        if type(request) is OffsetCommitRequest:
            self._on_committed(process, call, response)
        elif type(request) is SyncGroupRequest:
            self._on_shared(process, request, response)
        elif type(request) is OffsetFetchRequest and self._leads(process):
            self._on_offsets(process, response)

    def check_end(self) -> None:
        """rel-C5 after healing: the coordinator has everything that was acknowledged."""
        key = self._key()
        state = None if key is None else self._dirty.partition(key)
        if state is None or state.leader == NO_LEADER:
            return
        process = self._hosts[state.leader].process
        assert process is not None
        self._forget_what_was_lost()
        found = process.machine.broker.groups.fetch(GROUP, None, require_stable=False)
        if not found.code:
            known = {
                (topic, row.partition): row.commit.metadata
                for topic, rows in found.topics
                for row in rows
                if row.commit is not None
            }
            for spot in self._promised:
                self._check(process, spot, known.get(spot))

    def _on_committed(self, process: Process, call: Call, response: Any) -> None:
        """rel-C6: the generation was not over when the commit was taken."""
        request: Any = call.request
        if call.notes is None or call.notes[0] != self._cuts:
            return
        _, fence = call.notes
        asked = [(topic.name, row) for topic in request.topics for row in topic.partitions]
        rows = [row for topic in response.topics for row in topic.partitions]
        for (name, row), said in zip(asked, rows, strict=True):
            if said.error_code:
                continue
            self.acknowledged += 1
            spot, number = (name, row.partition_index), f"{row.committed_metadata}"
            order = self._taken[number]
            if order >= self._promised.get(spot, ((-1, -1), ""))[0]:
                self._promised[spot] = (order, number)
            generation = request.generation_id_or_member_epoch
            if generation < fence:
                text = f"a commit of generation {generation} was taken after shares of {fence} were given"
                self._complain("rel-C6", text, process.node_id)

    def _on_shared(self, process: Process, request: Any, response: Any) -> None:
        """rel-C6: nobody else owns the partition in this generation."""
        if response.error_code:
            return
        self._forget_what_was_lost()
        generation, epoch = request.generation_id, self._epoch(process)
        self._fences[epoch] = max(self._fences.get(epoch, -1), generation)
        owners = self._owners.setdefault(generation, {})
        for spot in spots_of(response.assignment):
            owner = owners.setdefault(spot, request.member_id)
            if owner != request.member_id:
                text = f"{spot} belongs to {owner} and to {request.member_id} in generation {generation}"
                self._complain("rel-C6", text, process.node_id)

    def _on_offsets(self, process: Process, response: Any) -> None:
        for group in response.groups:
            for topic in group.topics:
                for row in topic.partitions:
                    if not group.error_code and not row.error_code:
                        self._check(process, (topic.name, row.partition_index), row.metadata)

    def _check(self, process: Process, spot: TopicAndPartition, number: str | None) -> None:
        """rel-C5: it is the last acknowledged commit, or one that was taken after it."""
        self._forget_what_was_lost()
        if spot not in self._promised:
            return
        order, promised = self._promised[spot]
        if not number or self._taken[number] < order:
            text = f"{spot}: commit {promised} was promised; the coordinator has {number or 'none'}"
            self._complain("rel-C5", text, process.node_id)

    def _forget_what_was_lost(self) -> None:
        """The last replica standing may have lost what was acknowledged: that is counted as exempt
        elsewhere.
        """
        key = self._key()
        cuts = 0 if key is None else self._ledger.of(key).cuts
        if cuts != self._cuts:
            self._cuts = cuts
            self._promised.clear()
            self._owners.clear()
            self._fences.clear()

    def _key(self) -> PartitionKey | None:
        topic = self._dirty.image.topics_by_name.get(OFFSETS_TOPIC)
        return None if topic is None else (topic.topic_id, 0)

    def _hosted(self, process: Process) -> Partition | None:
        found: Partition | None = process.machine.broker.hosted.by_name.get((OFFSETS_TOPIC, 0))
        return found

    def _epoch(self, process: Process) -> int:
        found = self._hosted(process)
        return -1 if found is None else found.leader_epoch

    def _leads(self, process: Process) -> bool:
        """Whether it is the coordinator in the controllers' image. A deposed one may not know yet."""
        key, found = self._key(), self._hosted(process)
        state = None if key is None else self._dirty.partition(key)
        return (
            found is not None
            and state is not None
            and found.is_leader
            and (state.leader, state.leader_epoch) == (process.node_id, found.leader_epoch)
        )
