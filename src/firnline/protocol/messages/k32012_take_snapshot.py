"""TakeSnapshot: write a snapshot of the metadata now. Only ours, never advertised. PURE."""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class TakeSnapshotRequest(
    Message, Request["TakeSnapshotResponse"], key=32012, valid="0", flexible="0+"
):
    pass


class TakeSnapshotResponse(Message, key=32012, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why there is none.")
    error_message = f("string", "0+", "Error message.", nullable="0+", default=None)
    end_offset = f("int64", "0+", "End of the newest snapshot.", default=-1)
    epoch = f("int32", "0+", "Its epoch.", default=-1)
