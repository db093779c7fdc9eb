"""DeleteRecords: move the log start up, for good. PURE.

The answer is the low watermark: the least log start over live replicas, which with one replica is
ours, at once. Local segments below it go with the next retention run, remote ones with the tier's.
Source: KIP-107, KIP-630; spec T44, Q52.
"""

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from firnline.replica.partition import Partition

TO_HIGH_WATERMARK = -1
# A client that empties the tier's metadata would lose the tier: refused too, unlike Kafka 4.3.1 (T44).
_PROTECTED = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}


def protected_topic(topic: str) -> KafkaError | None:
    """Refuse topics whose records only their owner may delete."""
    if topic == METADATA_TOPIC:
        return _SNAPSHOTS
    return _INTERNAL if topic in _PROTECTED else None


def delete_records(partition: Partition, before_offset: int) -> int | KafkaError:
    """Delete what is below `before_offset` (-1: the high watermark); return the low watermark.

    OFFSET_OUT_OF_RANGE above the high watermark or below zero; POLICY_VIOLATION where the topic's
    cleanup policy does not delete.
    """
    refusal = protected_topic(partition.topic_partition.topic) or partition.refusal
    if refusal is not None:
        return refusal
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        return _POLICY
    offset = log.high_watermark if before_offset == TO_HIGH_WATERMARK else before_offset
    if offset < 0 or offset > log.high_watermark:
        return _OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.advance_log_start(offset)
    return log.log_start_offset


# Its cleanup policy is snapshot: only a snapshot that holds what they say lets records go (Q52, rel-Q18).
_SNAPSHOTS = KafkaError(Code.POLICY_VIOLATION, f"records of {METADATA_TOPIC} go by snapshots alone")
_INTERNAL = KafkaError(Code.INVALID_TOPIC_EXCEPTION, "records of internal topics stay")
_POLICY = KafkaError(Code.POLICY_VIOLATION, "the topic's cleanup policy does not delete")
_OUT_OF_RANGE = KafkaError(Code.OFFSET_OUT_OF_RANGE, "no such offset below the high watermark")
