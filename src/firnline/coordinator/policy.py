"""The settings that coordinators use, and what follows from them. PURE."""

from dataclasses import dataclass

from firnline.base.limits import (
    GROUP_MEMBERS_BYTES_MAX,
    GROUP_PROTOCOLS_MAX,
    PENDING_MEMBERS_BYTES_MAX,
    PENDING_MEMBERS_MAX,
    PENDING_MEMBERS_OF_GROUP_MAX,
)
from firnline.base.units import MINUTE_MS
from firnline.config.broker import BrokerConfig

# A member without an id cannot heartbeat; it is removed after this time. As in Kafka.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * MINUTE_MS
# Tombstones per batch, so that it stays far below max.message.bytes.
TOMBSTONES_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    """Attributes are Kafka's keys without `group.` and `offsets.`, or ours; defaults are 4.3.1's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_rebalance_delay_ms: int = 3_000
    metadata_max_chars: int = 4_096
    retention_ms: int = 10_080 * MINUTE_MS
    retention_check_interval_ms: int = 600_000
    topic_num_partitions: int = 50
    topic_compression_codec: int = 0
    pending_members_max: int = PENDING_MEMBERS_MAX
    pending_bytes_max: int = PENDING_MEMBERS_BYTES_MAX
    pending_of_group_max: int = PENDING_MEMBERS_OF_GROUP_MAX
    protocols_max: int = GROUP_PROTOCOLS_MAX
    members_bytes_max: int = GROUP_MEMBERS_BYTES_MAX
    groups_max: int = 200_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> "GroupPolicy":
        return cls(
            groups_max=config.firnline_groups_max,
            pending_members_max=min(PENDING_MEMBERS_MAX, max(config.firnline_groups_max // 4, 1)),
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            metadata_max_chars=config.offset_metadata_max_bytes,
            retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            topic_num_partitions=config.offsets_topic_num_partitions,
            topic_compression_codec=config.offsets_topic_compression_codec,
        )
