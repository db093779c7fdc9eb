"""Why a partition changed, as the metadata before and after the change shows. PURE."""

from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from firnline.metadata.partition_counts import is_unclean

CAUGHT_UP = "caught up"
FELL_BEHIND = "fell behind"
LEADER_LEAVES = "controlled shutdown of the leader"


def leader_reason(before: PartitionImage, after: PartitionImage, image: ClusterImage) -> str:
    """Return why `after` has another leader than `before`; `image` is the one after the change."""
    if is_unclean(before, after):
        return "unclean"
    if before.leader == NO_LEADER:
        return "a member of the ISR is back"
    return _left(before, after, before.leader, image, is_leader=True) or (
        "preferred leader" if after.replicas[:1] == (after.leader,) else "as requested or by order"
    )


def removal_reason(
    before: PartitionImage, after: PartitionImage, broker_id: int, image: ClusterImage
) -> str | None:
    """Return why a replica left the ISR; None: its leader says that it fell behind."""
    return _left(before, after, broker_id, image, is_leader=False)


def _left(
    before: PartitionImage,
    after: PartitionImage,
    broker_id: int,
    image: ClusterImage,
    *,
    is_leader: bool,
) -> str | None:
    broker = image.brokers.get(broker_id)
    if broker_id not in after.replicas:
        return "reassignment"
    if broker is None:
        return "the leader was unregistered" if is_leader else "broker unregistered"
    if broker.in_controlled_shutdown:
        return LEADER_LEAVES if is_leader else "controlled shutdown"
    if broker.fenced:
        return "the leader was fenced" if is_leader else "broker fenced"
    place = after.replicas.index(broker_id)
    if place < len(after.directories) and not broker.has_online(after.directories[place]):
        return "log directory of the leader failed" if is_leader else "log directory failed"
    return None


def addition_reason(
    before: PartitionImage, broker_id: int, before_image: ClusterImage, image: ClusterImage
) -> str:
    """Return why a replica joined the ISR."""
    if broker_id in before.adding_replicas or broker_id not in before.replicas:
        return "reassignment"
    old, new = before_image.brokers.get(broker_id), image.brokers.get(broker_id)
    if old is not None and new is not None and old.epoch != new.epoch:
        return f"{CAUGHT_UP} after its broker started again"
    return CAUGHT_UP
