"""Lines about elections, ISR changes and reassignments. PURE."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects
from firnline.base.log_lines import cluster as lines
from firnline.base.log_lines.line import Fields, LogLine
from firnline.broker.change_log.bundles import Bundles
from firnline.broker.change_log.reasons import (
    FELL_BEHIND,
    LEADER_LEAVES,
    addition_reason,
    leader_reason,
    removal_reason,
)
from firnline.metadata.delta import ClusterDelta, TopicDelta
from firnline.metadata.image import NO_LEADER, PartitionImage

# How a follower of a partition that this node leads fell behind; None if it did not, or is not known.
LagOf = Callable[[str, int, int, int], str | None]
NONE = "none"


class _Change(NamedTuple):
    """The change of one partition."""

    delta: ClusterDelta
    topic: str
    number: int
    before: PartitionImage
    after: PartitionImage
    now_ms: int

    def fields(self, **more: object) -> Fields:
        after = self.after
        return {
            "topic": self.topic,
            "partition": self.number,
            **more,
            "leader_epoch": after.leader_epoch,
            "partition_epoch": after.partition_epoch,
            "metadata_offset": self.delta.after.offset,
        }


class PartitionLines:
    """Makes the lines of one node.

    node_id        of the node, which tells the changes of its own replicas
    lag_of         (topic, partition, broker, now_ms) -> how a follower of this node's fell behind
    is_registered  whether the broker of that id in the metadata is this process
    """

    def __init__(
        self,
        node_id: int,
        bundles: Bundles,
        lag_of: LagOf,
        is_registered: Callable[[], bool],
    ) -> None:
        self._node_id = node_id
        self._bundles = bundles
        self._lag_of = lag_of
        self._is_registered = is_registered

    def of_topic(
        self, delta: ClusterDelta, topic: TopicDelta, now_ms: int, *, of_all: bool
    ) -> Iterator[Effects]:
        """Yield the lines of each changed partition of a topic: of all, or of those with a replica here."""
        if topic.before is None:
            return
        known = topic.before.partitions
        for number in topic.partitions:
            before, after = known.get(number), topic.after.partitions[number]
            if before is None:
                continue
            is_here = self._node_id in before.replicas or self._node_id in after.replicas
            if of_all or is_here:
                change = _Change(delta, topic.after.name, number, before, after, now_ms)
                yield self._election(change) + self._isr(change) + self._reassignment(change)

    def _add(
        self,
        change: _Change,
        line: LogLine,
        total: LogLine,
        shared: dict[str, object],
        fields: Callable[[], Fields],
    ) -> Effects:
        return self._bundles.add(
            line,
            fields,
            total=total,
            shared=shared,
            name=f"{change.topic}-{change.number}",
            metadata_offset=change.delta.after.offset,
            now_ms=change.now_ms,
        )

    def _election(self, change: _Change) -> Effects:
        before, after = change.before, change.after
        if before.leader == after.leader:
            return []
        was = NONE if before.leader == NO_LEADER else before.leader
        reason = leader_reason(before, after, change.delta.after)
        shared: dict[str, object] = {"was": was, "reason": reason}
        if after.leader == NO_LEADER:
            is_ours = before.leader == self._node_id
            if is_ours and (reason == LEADER_LEAVES or not self._is_registered()):
                return []  # this node stops or starts, and its operator knows
            fields = partial(change.fields, was=was, reason=reason, isr=after.isr)
            total = lines.PARTITIONS_OFFLINE
            return self._add(change, lines.PARTITION_OFFLINE, total, shared, fields)
        if reason == "unclean":
            fields = partial(change.fields, leader=after.leader, was=was, old_isr=before.isr)
            total = lines.UNCLEAN_ELECTIONS
            return self._add(change, lines.UNCLEAN_ELECTION, total, {"was": was}, fields)
        fields = partial(change.fields, leader=after.leader, was=was, reason=reason, isr=after.isr)
        return self._add(change, lines.LEADER_ELECTED, lines.LEADERS_ELECTED, shared, fields)

    def _isr(self, change: _Change) -> Effects:
        before, after = change.before, change.after
        effects: Effects = []
        for broker_id in before.isr:
            if broker_id not in after.isr:
                reason = removal_reason(before, after, broker_id, change.delta.after)
                lag = None
                if reason is None:
                    lag = self._lag_of(change.topic, change.number, broker_id, change.now_ms)
                shared: dict[str, object] = {"removed": broker_id, "reason": reason or FELL_BEHIND}
                said = lag or reason or FELL_BEHIND
                fields = partial(change.fields, isr=after.isr, removed=broker_id, reason=said)
                effects += self._add(change, lines.ISR_SHRUNK, lines.ISRS_SHRUNK, shared, fields)
        for broker_id in after.isr:
            if broker_id not in before.isr:
                images = change.delta.before, change.delta.after
                why = addition_reason(before, broker_id, *images)
                shared = {"added": broker_id, "reason": why}
                fields = partial(change.fields, isr=after.isr, added=broker_id, reason=why)
                effects += self._add(change, lines.ISR_GROWN, lines.ISRS_GROWN, shared, fields)
        return effects

    def _reassignment(self, change: _Change) -> Effects:
        before, after = change.before, change.after
        moved = bool(before.adding_replicas or before.removing_replicas)
        moves = bool(after.adding_replicas or after.removing_replicas)
        if moves and not moved:
            adding, removing = after.adding_replicas, after.removing_replicas
            fields = partial(
                change.fields,
                replicas=after.replicas,
                adding=adding or NONE,
                removing=removing or NONE,
            )
            total = lines.REASSIGNMENTS_BEGAN
            return self._add(change, lines.REASSIGNMENT_BEGAN, total, {}, fields)
        if before.replicas != after.replicas and not moves:
            fields = partial(change.fields, replicas=after.replicas, was=before.replicas)
            total = lines.REASSIGNMENTS_ENDED
            return self._add(change, lines.REASSIGNMENT_ENDED, total, {}, fields)
        return []
