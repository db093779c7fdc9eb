"""Plug-ins as a user would write them: a metadata manager in memory, a store that talks too much.

A broker finds this folder by `remote.log.*.manager.class.path`. The log shows what each was configured with.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import (
    DeleteState,
    IndexKind,
    Look,
    Mark,
    PartitionDelete,
    Published,
    RemoteSegment,
    SegmentData,
    SegmentUpdate,
    Totals,
)

log = logging.getLogger("own_tier")


class OwnMetadata:
    """Remote log metadata of a single broker, in memory: lost when it stops."""

    def __init__(self) -> None:
        self.on_applied: Callable[[TopicIdPartition, int], Effects] | None = None
        self._caches: dict[TopicIdPartition, MetadataCache] = {}
        self._topics: dict[TopicIdPartition, str] = {}
        self._changes = 0

    def configure(self, settings: Mapping[str, str]) -> None:
        log.info("metadata configured with %s", dict(sorted(settings.items())))

    def close(self) -> None:
        log.info("metadata closed after %d changes", self._changes)

    def _cache(self, where: TopicIdPartition) -> MetadataCache:
        return self._caches.setdefault(where, MetadataCache())

    def assign(self, where: TopicIdPartition, now_ms: int) -> Effects:
        assert self.on_applied is not None
        return self.on_applied(where, now_ms)

    def unassign(self, where: TopicIdPartition) -> None:
        pass

    def _applied(self, change: Any, then: Published, now_ms: int) -> Effects:
        assert self.on_applied is not None
        where = TopicIdPartition(change.topic_id, change.partition)
        self._topics[where] = change.topic
        self._changes += 1
        return [*self.on_applied(where, now_ms), *then(None, now_ms)]

    def add(self, segment: RemoteSegment, then: Published, now_ms: int) -> Effects:
        self._cache(segment.topic_id_partition).add(segment)
        return self._applied(segment, then, now_ms)

    def update(self, change: SegmentUpdate, then: Published, now_ms: int) -> Effects:
        self._cache(TopicIdPartition(change.topic_id, change.partition)).update(change)
        return self._applied(change, then, now_ms)

    def put_partition_delete(
        self, change: PartitionDelete, then: Published, now_ms: int
    ) -> Effects:
        self._cache(TopicIdPartition(change.topic_id, change.partition)).apply_delete(change)
        return self._applied(change, then, now_ms)

    def is_ready(self, where: TopicIdPartition) -> bool:
        return True

    def lookup(self, where: TopicIdPartition, *, epoch: int, offset: int) -> RemoteSegment | None:
        return self._cache(where).lookup(epoch, offset)

    def highest_offset(self, where: TopicIdPartition, epoch: int) -> int | None:
        return self._cache(where).highest_offset(epoch)

    def segments(
        self, where: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteSegment]:
        return self._cache(where).segments(epoch)

    def finished(self, where: TopicIdPartition, reaching: int = 0) -> list[RemoteSegment]:
        return self._cache(where).finished(reaching)

    def unfinished(self, where: TopicIdPartition) -> list[RemoteSegment]:
        return self._cache(where).unfinished()

    def look(self, where: TopicIdPartition, since: Mark | None) -> Look:
        return self._cache(where).look(since)

    def totals(self, where: TopicIdPartition) -> Totals:
        return self._cache(where).totals()

    def get(self, where: TopicIdPartition, segment_id: Uuid) -> RemoteSegment | None:
        return self._cache(where).get(segment_id)

    def was_deleted(self, where: TopicIdPartition, segment_id: Uuid) -> bool:
        return self._cache(where).was_deleted(segment_id)

    def has_history(self, where: TopicIdPartition) -> bool:
        return where in self._topics

    def applied_offset(self, where: TopicIdPartition) -> tuple[int, int]:
        return 0, self._changes - 1

    def removes(self, where: TopicIdPartition) -> bool:
        return True

    def segments_to_remove(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        return self._cache(where).segments()

    def deletions(self) -> Sequence[PartitionDelete]:
        found = [cache.delete for cache in self._caches.values() if cache.delete is not None]
        return [each for each in found if each.state != DeleteState.FINISHED]

    def undeleted(self) -> Sequence[tuple[TopicIdPartition, str]]:
        caches = self._caches.items()
        return [(w, self._topics[w]) for w, c in caches if c.delete is None and c.segment_count]

    def delete_state(self, where: TopicIdPartition) -> DeleteState | None:
        return self._cache(where).delete_state


class Talkative(ObjectStorage):
    """A store in a directory that shows its password whenever it can; `fail` makes each copy do so."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        super().configure(settings)
        log.info("store configured with %s", dict(sorted(settings.items())))
        if settings.get("fail") == "configure":
            raise RuntimeError(f"cannot sign in with {settings['password']}")

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        if self._settings.get("fail") == "copy":
            password = self._settings["password"]
            try:
                raise ValueError(password)
            except ValueError:
                log.exception("the store does not like %s", password)
            raise RemoteStorageError("the store refused", password=password)
        return super().copy_segment(segment, data)


class Unmakeable(ObjectStorage):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise ZeroDivisionError("no module of the driver")


class Halfway(OwnMetadata):
    """Lacks two methods."""

    look = None  # type: ignore[assignment]
    close = None  # type: ignore[assignment]


class InMemory:
    """A store that is not built on ours: everything in a dictionary, until the process ends."""

    def __init__(self) -> None:
        self._found: dict[tuple[Uuid, str], bytes] = {}

    def configure(self, settings: Mapping[str, str]) -> None:
        if settings.get("fail") == "configure":
            raise RuntimeError(f"cannot sign in with {settings['password']}")

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        parts = {
            "LOG": data.log,
            "OFFSET": data.offset_index,
            "TIMESTAMP": data.time_index,
            "PRODUCER_SNAPSHOT": data.producer_snapshot,
            "LEADER_EPOCH": data.leader_epochs,
            "TRANSACTION": data.txn_index,
        }
        for name, source in parts.items():
            if source is None:
                continue
            found = b"".join(bytes(chunk) for chunk in source.chunks())
            if len(found) != source.size_bytes:
                raise RemoteStorageError("length differs", part=name)
            self._found[segment.segment_id, name] = found
        return b"here"

    def _part(self, segment: RemoteSegment, name: str) -> bytes:
        found = self._found.get((segment.segment_id, name))
        if found is None:
            raise ObjectMissing("no such part", part=name)
        return found

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        return self._part(segment, "LOG")[position : position + size_bytes]

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        return self._part(segment, kind.name)

    def delete_segment(self, segment: RemoteSegment) -> None:
        for key in [key for key in list(self._found) if key[0] == segment.segment_id]:
            del self._found[key]

    def close(self) -> None:
        log.info("store closed")
