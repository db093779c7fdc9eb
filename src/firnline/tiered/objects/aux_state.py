"""Fetches leader epochs and producer snapshots of remote segments. STORE. Source: spec T31, T40."""

from typing import NamedTuple

from firnline.base.errors import StorageError
from firnline.formats import leader_epoch_checkpoint
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import decode_snapshot
from firnline.tiered.lineage import segment_epochs
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.layout import LEADER_EPOCHS, PRODUCER_SNAPSHOT
from firnline.tiered.spi import DamagedObject, IndexKind, RemoteSegment, RemoteStorage

OpenTxn = tuple[int, int]  # producer id, first offset


class AuxState(NamedTuple):
    """The auxiliary state with which a new follower starts above the tier (T31)."""

    segment: RemoteSegment
    epochs: Epochs
    producer_snapshot: bytes


def fetch_aux_state(storage: RemoteStorage, segment: RemoteSegment) -> AuxState:
    """Fetch the auxiliary state with which a follower starts above the segment. Raises DamagedObject."""
    lineage = storage.fetch_index(segment, IndexKind.LEADER_EPOCH)
    snapshot = storage.fetch_index(segment, IndexKind.PRODUCER_SNAPSHOT)
    known = decode_fingerprint(segment.custom_metadata)
    if known is not None:
        known.check(f"leader epochs at {segment.base_offset}", LEADER_EPOCHS, lineage)
        known.check(f"producers at {segment.base_offset}", PRODUCER_SNAPSHOT, snapshot)
    try:
        epochs = leader_epoch_checkpoint.decode(lineage)
    except ValueError as problem:
        raise StorageError("not a leader epoch checkpoint", problem=problem) from None
    if segment_epochs(epochs, segment.base_offset, segment.end_offset) != segment.epochs:
        raise DamagedObject(
            "leader epochs in the tier are not the segment's", base_offset=segment.base_offset
        )
    return AuxState(segment, epochs, snapshot)


def fetch_open_transactions(storage: RemoteStorage, segment: RemoteSegment) -> tuple[OpenTxn, ...]:
    """Return the transactions that are open at the segment's end. Raises DamagedObject, StorageError."""
    data = storage.fetch_index(segment, IndexKind.PRODUCER_SNAPSHOT)
    known = decode_fingerprint(segment.custom_metadata)
    if known is not None:  # the snapshot of another segment would be intact, too
        known.check(f"producers at {segment.base_offset}", PRODUCER_SNAPSHOT, data)
    entries = decode_snapshot(data)
    found = [(e.producer_id, e.txn_first_offset) for e in entries if e.txn_first_offset >= 0]
    return tuple(sorted(found, key=lambda txn: txn[1]))
