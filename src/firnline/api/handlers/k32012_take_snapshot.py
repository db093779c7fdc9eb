"""TakeSnapshot: writes a metadata snapshot on this node. Not a Kafka API. PURE. Source: KIP-630."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.protocol.messages.k32012_take_snapshot import (
    TakeSnapshotRequest,
    TakeSnapshotResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: TakeSnapshotRequest, now_ms: int
) -> Effects:
    """Answer when the snapshot is on the disk under its final name, or with the error."""

    @context.makes_replies
    def then(outcome: OffsetAndEpoch | KafkaError, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            response = TakeSnapshotResponse(error_code=outcome.code, error_message=str(outcome))
        else:
            response = TakeSnapshotResponse(end_offset=outcome.offset, epoch=outcome.epoch)
        return [context.reply(response)]

    return node.quorum.snapshotter.take(then, now_ms)
