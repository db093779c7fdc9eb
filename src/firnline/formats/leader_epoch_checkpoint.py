"""The checkpoint of leader epochs and their start offsets. PURE.

A version 0 checkpoint of `epoch start-offset` lines; both columns ascend. It is the file
`leader-epoch-checkpoint` of a partition's directory, and an object of each remote segment. Source: KIP-101;
Kafka's LeaderEpochCheckpointFile.
"""

from collections.abc import Iterable

from firnline.formats import checkpoint

COLUMNS = ("epoch", "start_offset")
Epochs = tuple[tuple[int, int], ...]  # (epoch, start offset), ascending


def encode(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return the file of `epochs`."""
    return checkpoint.encode(epochs)


def decode(data: bytes) -> Epochs:
    """Return the entries in the order of the file; ValueError for anything else."""
    rows = checkpoint.decode(data, len(COLUMNS))
    return tuple((int(epoch), int(start)) for epoch, start in rows)
