"""One partition before -> after, as the smallest record that says so. PURE.

Source: KIP-631, KIP-903; spec I11, I25, I26. Eligible leader replicas (KIP-966) come later: until then
the last member of an ISR stays in it, without leading, when its broker goes.
"""

from collections.abc import Callable, Sequence

from firnline.base.ids import Uuid
from firnline.metadata.features import NO_BUMP_ON_SHRINK_SINCE
from firnline.metadata.image import NO_LEADER, PartitionImage
from firnline.metadata.records import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1


def without_replica(
    topic_id: Uuid,
    number: int,
    before: PartitionImage,
    lost: int,
    *,
    is_active: Callable[[int], bool],
    is_unclean_allowed: bool,
    metadata_version: int,
) -> PartitionChangeRecord | None:
    """Return the change when broker `lost` may no longer lead nor be in sync; None for no change.

    is_active  may that broker lead? Must say no for `lost`.
    """
    assert not is_active(lost)
    isr = tuple(node_id for node_id in before.isr if node_id != lost) or before.isr
    return _change(
        topic_id,
        number,
        before,
        isr,
        is_active=is_active,
        is_unclean_allowed=is_unclean_allowed,
        metadata_version=metadata_version,
    )


def with_leader(
    topic_id: Uuid,
    number: int,
    before: PartitionImage,
    *,
    is_active: Callable[[int], bool],
    is_unclean_allowed: bool,
    metadata_version: int,
) -> PartitionChangeRecord | None:
    """Return the election of a leader for a partition that has none; None while nobody may lead it."""
    assert before.leader == NO_LEADER
    return _change(
        topic_id,
        number,
        before,
        before.isr,
        is_active=is_active,
        is_unclean_allowed=is_unclean_allowed,
        metadata_version=metadata_version,
    )


def _change(
    topic_id: Uuid,
    number: int,
    before: PartitionImage,
    isr: tuple[int, ...],
    *,
    is_active: Callable[[int], bool],
    is_unclean_allowed: bool,
    metadata_version: int,
) -> PartitionChangeRecord | None:
    record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
    leader = elect(before, isr, is_active=is_active)
    if leader == NO_LEADER and is_unclean_allowed:
        leader = next(filter(is_active, before.replicas), NO_LEADER)
        if leader != NO_LEADER:
            # Records may be lost here: the new leader says when it has cleaned up (I26).
            isr = (leader,)
            record.leader_recovery_state = RECOVERING
    if isr != before.isr:
        record.isr = isr
    is_shrink = len(isr) < len(before.isr)
    if leader != before.leader or (is_shrink and metadata_version < NO_BUMP_ON_SHRINK_SINCE):
        record.leader = leader
    changed = record.isr is not None or "leader" in vars(record)
    return record if changed else None


def elect(
    partition: PartitionImage, isr: Sequence[int], *, is_active: Callable[[int], bool]
) -> int:
    """Return who leads cleanly: the present leader if it may, else the first in assignment order."""
    if partition.leader in isr and is_active(partition.leader):
        return partition.leader
    in_order = (node_id for node_id in partition.replicas if node_id in isr)
    return next(filter(is_active, in_order), NO_LEADER)
