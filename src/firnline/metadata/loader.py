"""Batches of the metadata log become the image. PURE. Source: KIP-631, KIP-868; spec Q8, Q13, Q39.

Records between Begin and EndTransaction are seen together or, after an AbortTransaction, never.
"""

from collections.abc import Iterable
from typing import Any

from firnline.base.errors import ConfigError, KafkaError, ProtocolError, StorageError
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Replay, TopicDelta
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, TopicImage
from firnline.protocol.schema import Message
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.control import ControlType, KRaftVersionRecord, decode_key, decode_value
from firnline.records.record import records


def refuse_dynamic_voters(kraft_version: int) -> None:
    """Raise ConfigError for a quorum whose voters are in its log (KIP-853)."""
    if kraft_version > 0:
        raise ConfigError(
            "the metadata quorum of this directory has dynamic voters, which this release does not"
            " run; it runs a quorum of controller.quorum.voters",
            kraft_version=kraft_version,
        )


class Loader:
    """Follows the log from its start, or from a snapshot, batch by batch."""

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self._settled = image  # up to the last point outside of a transaction
        self._replay: Replay | None = None
        self._last = (image.offset, image.epoch)
        self.is_in_transaction = False

    @property
    def next_offset(self) -> int:
        """Offset of the first record not seen yet."""
        return self._last[0] + 1

    def load(self, content: Iterable[Message], *, offset: int, epoch: int) -> None:
        """Start over from the records of a snapshot; `offset` is the last one it contains, inclusive."""
        self._replay = Replay(EMPTY_IMAGE)
        for record in content:
            self._replay.apply(record)
        self._last = (offset, epoch)
        self._settle()

    def apply(self, data: bytes) -> None:
        """Apply the whole batches of `data`. StorageError for records that cannot be read or are damage."""
        for header in headers(data):
            if header.base_offset != self.next_offset:
                raise StorageError(
                    "the metadata log has a gap", at=header.base_offset, expected=self.next_offset
                )
            if not crc_is_right(data, header):
                raise StorageError(
                    "the metadata log is damaged",
                    offset=header.base_offset,
                    remedy="restore the metadata log directory from a copy; without it the cluster is lost",
                )
            try:
                if header.is_control:
                    _look_at_controls(data, header)
                else:
                    self._apply_batch(data, header)
            except (KafkaError, ProtocolError) as problem:
                raise StorageError(
                    "the metadata log holds what this release cannot read",
                    offset=header.base_offset,
                    problem=problem,
                ) from None
            self._last = (header.last_offset, header.leader_epoch)

    def image(self) -> ClusterImage:
        """The image up to the last batch; inside a transaction, up to its begin."""
        if not self.is_in_transaction:
            self._settle()
        return self._settled

    def _apply_batch(self, data: bytes, header: BatchHeader) -> None:
        for row in records(data, header):
            record = r.decode(row.value or b"")
            if isinstance(record, r.BeginTransactionRecord):
                self._settle()
                self.is_in_transaction = True
            elif isinstance(record, r.EndTransactionRecord):
                self.is_in_transaction = False
            elif isinstance(record, r.AbortTransactionRecord):
                self.is_in_transaction = False
                self._replay = None
            else:
                if self._replay is None:
                    self._replay = Replay(self._settled)
                self._replay.apply(record)

    def _settle(self) -> None:
        offset, epoch = self._last
        if self._replay is not None:
            self._settled = self._replay.finish(offset=offset, epoch=epoch).after
            self._replay = None
        else:
            self._settled = self._settled._replace(offset=offset, epoch=epoch)


def _look_at_controls(data: bytes, header: BatchHeader) -> None:
    for row in records(data, header):
        if decode_key(row.key) == ControlType.KRAFT_VERSION:
            value = decode_value(ControlType.KRAFT_VERSION, row.value)
            assert isinstance(value, KRaftVersionRecord)
            refuse_dynamic_voters(value.kraft_version)


def difference(before: ClusterImage, after: ClusterImage) -> ClusterDelta:
    """Return what differs between two images; looks at every topic, so it is for loading only."""
    topics = []
    for topic_id in sorted(after.topics_by_id):
        topic, old = after.topics_by_id[topic_id], before.topics_by_id.get(topic_id)
        if topic is not old:
            topics.append(TopicDelta(old, topic, _changed_partitions(old, topic)))
    deleted = [
        before.topics_by_id[topic_id]
        for topic_id in sorted(before.topics_by_id)
        if topic_id not in after.topics_by_id
    ]
    return ClusterDelta(
        before=before,
        after=after,
        topics=tuple(topics),
        deleted_topics=tuple(deleted),
        brokers=_changed_keys(before.brokers, after.brokers),
        configs=_changed_keys(before.configs, after.configs),
        features=_changed_keys(before.features, after.features),
    )


def _changed_partitions(old: TopicImage | None, new: TopicImage) -> tuple[int, ...]:
    before = old.partitions if old is not None else {}
    return tuple(n for n in sorted(new.partitions) if before.get(n) != new.partitions[n])


def _changed_keys(before: Any, after: Any) -> tuple[Any, ...]:
    keys = sorted({**dict(before), **dict(after)})
    return tuple(key for key in keys if before.get(key) != after.get(key))
