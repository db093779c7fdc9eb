"""Compare a controller's partition index with one computed from its image (rel-X3). SIM.

Computing one takes as long as the cluster has partitions, so it is done for one change in 32, and whenever
the image was reverted: that is where an index and its image may diverge.
"""

from typing import Any

from firnline.metadata.image import ClusterImage
from firnline.metadata.partition_counts import PartitionIndex
from firnline.sim.host import Process

_ONE_IN = 32


class IndexChecks:
    """Checks every voter after each of its steps."""

    def __init__(self, complain: Any) -> None:
        self._complain = complain
        self._images: dict[int, ClusterImage] = {}
        self._changes = 0

    def stepped(self, process: Process) -> None:
        """The node took a step."""
        quorum = process.machine.quorum
        before, newest = self._images.get(process.node_id), quorum.newest
        if newest is before or process.node_id not in process.host.options.voter_ids:
            return
        self._images[process.node_id] = newest
        self._changes += 1
        is_back = before is not None and newest.offset < before.offset
        if is_back or self._changes % _ONE_IN == 0:
            self._compare(process.node_id, quorum.index, newest)

    def ended(self, process: Process) -> None:
        """A process is gone, and its index with it."""
        self._images.pop(process.node_id, None)

    def _compare(self, node_id: int, index: PartitionIndex, image: ClusterImage) -> None:
        anew = _anew(image)
        for what in ("leaderless", "imbalanced", "metric_names"):
            if getattr(index, what) != getattr(anew, what):
                text = f"{what} is {getattr(index, what)}; the image says {getattr(anew, what)}"
                self._complain("rel-X3", text, node_id)
        for broker_id in sorted(image.brokers):
            if index.leads_any(broker_id) != anew.leads_any(broker_id):
                self._complain("rel-X3", f"whether {broker_id} leads anything is not so", node_id)
            # It may name more topics: whoever looks for replicas there checks the topic.
            missing = set(anew.topics_of(broker_id)) - set(index.topics_of(broker_id))
            if missing:
                text = f"{len(missing)} topics with replicas on {broker_id} are not in the index"
                self._complain("rel-X3", text, node_id)


def _anew(image: ClusterImage) -> PartitionIndex:
    steps = PartitionIndex.of(image)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: PartitionIndex = done.value
            return found
