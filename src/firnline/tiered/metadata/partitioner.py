"""Maps user partitions to partitions of `__remote_log_metadata`. PURE. Source: spec T18."""

from functools import lru_cache

from firnline.base.ids import TopicIdPartition

# Every lookup asks, of the same partitions again and again. A kept answer takes about 200 bytes.
_KEPT = 16_384


@lru_cache(_KEPT)
def metadata_partition_of(where: TopicIdPartition, partition_count: int) -> int:
    """Return the metadata partition of a user partition, as shipped Kafka computes it. Spec T18."""
    low = int.from_bytes(where.topic_id[8:], "big")
    high = int.from_bytes(where.topic_id[:8], "big")
    hashed = 1
    for value in (low ^ low >> 32, high ^ high >> 32, where.partition):
        hashed = (31 * hashed + value) & 0xFFFFFFFF
    return (_murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _murmur2(data: bytes) -> int:
    """MurmurHash2 of four bytes with Kafka's seed, unsigned."""
    assert len(data) == 4
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    word = int.from_bytes(data, "little") * multiplier & mask
    word = (word ^ word >> 24) * multiplier & mask
    hashed = (hashed * multiplier & mask) ^ word
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15
