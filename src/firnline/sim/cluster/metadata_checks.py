"""Invariants of the controllers' decisions about brokers and partitions, checked at every committed batch.
SIM.

Source: reliability (b), rel-R1, R2, R3, R16, R17.
"""

from collections.abc import Callable, Sequence
from typing import Any

from firnline.base.ids import NO_BROKER_EPOCH
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.ledger import Ledger, PartitionKey, name
from firnline.sim.cluster.replica_checks import ReplicaChecks
from firnline.sim.cluster.shape import UNCLEAN_KEY
from firnline.sim.cluster.wire_checks import WireChecks

_RECOVERING = 1


class MetadataChecks:
    """Checks each committed change, as soon as any node calls it committed."""

    def __init__(
        self,
        ledger: Ledger,
        dirty: DirtyReplicas,
        replicas: ReplicaChecks,
        wire: WireChecks,
        complain: Any,
        *,
        may_be_unknown: bool = False,
    ) -> None:
        # Below some metadata.version followers do not state their broker epoch, so whoever fetched may be
        # proposed.
        self._may_be_unknown = may_be_unknown
        self._wire = wire
        self._ledger = ledger
        self._dirty = dirty
        self._replicas = replicas
        self._complain = complain
        self.unclean_elections = 0  # that were committed
        # Is shown each replica that joins an ISR.
        self.on_joined: Callable[[PartitionKey, PartitionImage, int], None] | None = None
        self._epochs: dict[
            int, int
        ] = {}  # the newest of each broker, including brokers that are gone

    def on_image(self, image: ClusterImage, deltas: Sequence[ClusterDelta]) -> None:
        """Check what has changed."""
        self._dirty.image = image
        for delta in deltas:
            for broker_id in delta.brokers:
                self._on_broker(delta, broker_id)
            for topic in delta.topics:
                for index in topic.partitions:
                    before = None if topic.before is None else topic.before.partitions.get(index)
                    key = (topic.after.topic_id, index)
                    after = topic.after.partitions[index]
                    if before is not None and _is_from_outside(before, after):
                        self._on_unclean(delta, topic.after.name, key, before, after)
                    self._on_partition(delta, key, before, after)

    def _on_broker(self, delta: ClusterDelta, broker_id: int) -> None:
        """rel-R3: broker epochs rise strictly."""
        after = delta.after.brokers.get(broker_id)
        before = delta.before.brokers.get(broker_id)
        if after is None or (before is not None and before.epoch == after.epoch):
            return
        known = self._epochs.get(broker_id, -1)
        if after.epoch <= known:
            text = f"broker {broker_id} got epoch {after.epoch} after {known}"
            self._complain("rel-R3", text)
        self._epochs[broker_id] = after.epoch

    def _on_partition(
        self,
        delta: ClusterDelta,
        key: PartitionKey,
        before: PartitionImage | None,
        after: PartitionImage,
    ) -> None:
        """rel-R16, rel-R17; and rel-R1 for replicas that join an ISR."""
        self._dirty.note_isr(key, after)
        if not after.isr or any(each not in after.replicas for each in after.isr):
            text = f"{name(key)}: the ISR is {after.isr} of {after.replicas}"
            self._complain("rel-R17", text)
        if before is None:
            return
        if after.partition_epoch < before.partition_epoch or (
            after.leader_epoch < before.leader_epoch
        ):
            text = f"{name(key)}: {before} became {after}"
            self._complain("rel-R16", text)
        joined = [each for each in after.isr if each not in before.isr]
        if _is_from_outside(before, after):
            joined.clear()  # nobody claims that it is in sync
        for broker_id in joined:
            self._on_joined(delta, key, before, broker_id)
            if self.on_joined is not None:
                self.on_joined(key, before, broker_id)
        end = self._ledger.of(key).acked_end
        for member in after.isr:
            self._replicas.check_member(key, member, end, "rel-R2")

    def _on_unclean(
        self,
        delta: ClusterDelta,
        topic: str,
        key: PartitionKey,
        before: PartitionImage,
        after: PartitionImage,
    ) -> None:
        """rel-R5: the topic's settings allow it, or an administrator asked for it, of the partition as it
        was.
        """
        self.unclean_elections += 1
        is_allowed = delta.before.topic_config_overrides(topic).get(UNCLEAN_KEY) == "true"
        history = self._ledger.of(key)
        if is_allowed or (key, before.partition_epoch) in self._wire.asked_unclean:
            history.elected(after.leader_epoch)
            return
        there = self._replicas.running(key, after.leader)
        end = "nobody knows what" if there is None else there.log.log_end_offset
        text = (
            f"{name(key)}: {after.leader} leads epoch {after.leader_epoch}, from outside the ISR"
            f" {before.isr}, which nobody allowed; it has {end} of {history.acked_end} acknowledged"
        )
        self._complain("rel-R5", text)

    def _on_joined(
        self, delta: ClusterDelta, key: PartitionKey, before: PartitionImage, broker_id: int
    ) -> None:
        """rel-R1: a replica that joins is the incarnation that fetched; it is registered and unfenced."""
        broker = delta.before.brokers.get(broker_id)
        if broker is None or broker.fenced:
            text = f"{name(key)}: {broker_id} joined the ISR, and is {'fenced' if broker else 'unknown'}"
            self._complain("rel-R1", text)
            return
        reported = self._wire.reported_epochs.get((before.leader, broker_id), {})
        proposed = self._wire.proposed.get((key, before.partition_epoch), {}).get(broker_id)
        epochs = (broker.epoch, NO_BROKER_EPOCH) if self._may_be_unknown else (broker.epoch,)
        if not _has_any(reported, epochs) or not (proposed is None or _has_any(proposed, epochs)):
            text = (
                f"{name(key)}: {broker_id} joined the ISR as of epoch {broker.epoch}; its Fetches to"
                f" leader {before.leader} said {list(reported)}, and proposed was {list(proposed or ())}"
            )
            self._complain("rel-R1", text)


def _has_any(reported: dict[int, None], epochs: tuple[int, ...]) -> bool:
    return any(epoch in reported for epoch in epochs)


def _is_from_outside(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether a leader from outside the ISR was elected, which then is the whole ISR. Others join by
    proposal.
    """
    return (
        after.leader >= 0
        and after.leader not in before.isr
        and after.isr == (after.leader,)
        and after.leader_recovery_state == _RECOVERING
    )
