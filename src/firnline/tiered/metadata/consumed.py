"""What has been applied of one partition of `__remote_log_metadata`. PURE."""

from firnline.base.ids import NO_EPOCH, REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition
from firnline.records.batch import BatchHeader, crc_is_right
from firnline.records.unreadable import UnreadableRecords
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.spi import Published

_MEANING = (
    "Its content is unknown. Tiered partitions with records in this partition are still read, but nothing of"
    " them is copied or deleted until it can be read or is given up (firnline.remote.log.metadata.given.up)"
)


class Consumed:
    """One consumed metadata partition.

    unreadable         the records that could not be read
    damage             the error of the next batch, if this replica of it is damaged
    next_offset        of the next record to apply; `epoch` is that of the record before it
    waiting            publishes whose records are not applied yet: (offset, callback), by offset
    loading            the partitions whose metadata is not all applied yet; it is at `loaded_at_offset`
    has_forgotten      retention deleted records before they were applied here
    ends_at_offset     where the partition ends, if that is below what was applied, else None
    """

    __slots__ = (
        *("caches", "damage", "ends_at_offset", "epoch", "has_forgotten", "next_offset", "topics"),
        *("loaded_at_offset", "loading", "unreadable", "waiting"),
    )

    def __init__(self, partition: int) -> None:
        self.unreadable = UnreadableRecords(
            TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition), _MEANING
        )
        self.damage: str | None = None
        self.next_offset = 0
        self.epoch = NO_EPOCH
        self.caches: dict[TopicIdPartition, MetadataCache] = {}
        self.topics: dict[TopicIdPartition, str] = {}
        self.waiting: list[tuple[int, Published]] = []
        self.loading: dict[TopicIdPartition, None] = {}
        self.loaded_at_offset = 0
        self.has_forgotten = False
        self.ends_at_offset: int | None = None

    @property
    def is_incomplete(self) -> bool:
        """Are records missing without which nothing can be decided?"""
        return self.has_forgotten or self.ends_at_offset is not None


def why_not_next(data: bytes, header: BatchHeader, next_offset: int) -> str | None:
    """Return why the batch is damaged, or None: it has to continue what was read.

    Its CRC does not cover its base offset: with another one its records, or those of later batches, would
    count as read already. The topic is never compacted, so no offsets are missing.
    """
    if not crc_is_right(data, header):
        return f"the batch at offset {header.base_offset} has another CRC than it says"
    if not header.base_offset <= next_offset <= header.last_offset:
        return f"the batch that says to begin at offset {header.base_offset} is not the next one"
    return None
