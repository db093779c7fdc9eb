"""MetadataSnapshots: the snapshots of one node. Only ours, never advertised. PURE.

Offsets are exclusive ends, as in the names of the files. Times are ms since 1970 on the clock of the node.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class MetadataSnapshotsRequest(
    Message, Request["MetadataSnapshotsResponse"], key=32011, valid="0", flexible="0+"
):
    pass


class MetadataSnapshot(Struct):
    end_offset = f("int64", "0+", "The end of its records, exclusive.")
    epoch = f("int32", "0+", "Epoch of the last of them.")
    size_bytes = f("int64", "0+", "Size of its file.", default=-1)
    last_contained_ms = f("int64", "0+", "Append time of the last record in it.", default=-1)


class MetadataSnapshotsResponse(Message, key=32011, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    node_id = f("int32", "0+", "Who answers.")
    now_ms = f("int64", "0+", "The node's clock.")
    log_start_offset = f("int64", "0+", "First offset of the node's metadata log.")
    log_end_offset = f("int64", "0+", "Offset after its last record.")
    log_bytes = f("int64", "0+", "Size of its segments.")
    bytes_until_next = f("int64", "0+", "Bytes of log until the next snapshot.")
    is_taking = f("bool", "0+", "Whether a snapshot is being written.")
    fetching_offset = f(
        "int64", "0+", "End of the snapshot that is being fetched; -1 for none.", default=-1
    )
    generated = f("int64", "0+", "Taken since the start.")
    failed = f("int64", "0+", "Snapshots that failed since the start.")
    snapshots = f([MetadataSnapshot], "0+", "Oldest first.")
    damaged = f([MetadataSnapshot], "0+", "Damaged snapshots that were taken out of use.")
    forgotten_offset = f("int64", "0+", "The lost end of its log; -1: nothing is lost.", default=-1)
