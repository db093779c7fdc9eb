"""The checkpoint of leader epochs: which began at which offset. PURE.

A version 0 checkpoint of `epoch start-offset` lines; both columns ascend. In a partition's directory it is
`leader-epoch-checkpoint`, in a tier it lies beside each segment. Source: KIP-101; Kafka's
LeaderEpochCheckpointFile.
"""

from collections.abc import Iterable

from firnline.formats import checkpoint

COLUMNS = ("epoch", "start_offset")
Epochs = tuple[tuple[int, int], ...]  # (epoch, start offset), ascending


def encode(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return the file of `epochs`."""
    return checkpoint.encode(epochs)


def decode(data: bytes) -> Epochs:
    """Return the entries as they are in the file, in any order; ValueError for anything else."""
    rows = checkpoint.decode(data, len(COLUMNS))
    return tuple((int(epoch), int(start)) for epoch, start in rows)
