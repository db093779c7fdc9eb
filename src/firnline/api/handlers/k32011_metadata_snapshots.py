"""MetadataSnapshots: the metadata snapshots of this node. Not a Kafka API. PURE. Source: KIP-630."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k32011_metadata_snapshots import (
    MetadataSnapshot,
    MetadataSnapshotsRequest,
    MetadataSnapshotsResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: MetadataSnapshotsRequest, now_ms: int
) -> Effects:
    """Answer with the snapshots of this node only."""
    quorum = node.quorum
    found, counters = quorum.snapshot_state(), quorum.snapshotter.counters
    response = MetadataSnapshotsResponse(
        node_id=quorum.raft.node_id,
        now_ms=now_ms,
        log_start_offset=found.log_start_offset,
        log_end_offset=found.log_end_offset,
        log_bytes=found.log_bytes,
        bytes_until_next=quorum.snapshotter.bytes_until_due,
        is_taking=quorum.snapshotter.is_emitting,
        fetching_offset=-1 if found.fetching is None else found.fetching.offset,
        generated=counters.generated,
        failed=counters.failed,
        snapshots=[
            MetadataSnapshot(
                end_offset=snapshot_id.offset,
                epoch=snapshot_id.epoch,
                size_bytes=size_bytes,
                last_contained_ms=last_contained_ms,
            )
            for snapshot_id, size_bytes, last_contained_ms in found.snapshots
        ],
        damaged=[
            MetadataSnapshot(end_offset=one.offset, epoch=one.epoch) for one in found.damaged_ids
        ],
        forgotten_offset=-1 if found.forgotten is None else found.forgotten.offset,
    )
    return [context.reply(response)]
