"""TakeSnapshot: write a snapshot of the metadata now, due or not. Ours alone, never advertised. PURE."""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class TakeSnapshotRequest(
    Message, Request["TakeSnapshotResponse"], key=32012, valid="0", flexible="0+"
):
    pass


class TakeSnapshotResponse(Message, key=32012, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "Time the client is asked to wait for its quota.")
    error_code = f("int16", "0+", "0, or why there is none.")
    error_message = f("string", "0+", "The same in words.", nullable="0+", default=None)
    end_offset = f("int64", "0+", "End of the snapshot that is there now.", default=-1)
    epoch = f("int32", "0+", "Its epoch.", default=-1)
