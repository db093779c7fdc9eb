"""A consumer that reads every partition from its start, and keeps reading at the end. SIM.

It passes what it reads to `on_read`; an offset must always hold the same record (rel-C1). Now and then it
asks for offsets by timestamp (rel-C9). Source: spec C14.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from firnline.base.effects import Effects, SetTimer, Unanswered
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.records.batch import headers
from firnline.records.validate import check_batches
from firnline.sim.cluster.client import Client, PartitionLeader
from firnline.sim.cluster.ledger import PartitionKey
from firnline.sim.cluster.shape import NEVER
from firnline.sim.options import Options
from firnline.sim.world import EPOCH_S, Chance

# Called with (partition, position, bytes, leader epoch of the answering broker).
OnRead = Callable[[PartitionKey, int, bytes, int], None]
# Whether records before a position are known to be lost, so that the consumer may start again.
MayGoBack = Callable[[PartitionKey, int], bool]
_WAIT_MS = 500
_PAUSE_MS = 150
_BYTES = 1_048_576
_LATEST, _EARLIEST = -1, -2
_LOOK_UP_MS = 3_000


class Consumer(Client):
    """`positions` is where it reads next, by partition."""

    knows_internal = True
    is_on = True

    def __init__(
        self, options: Options, chance: Chance, on_read: OnRead, may_go_back: MayGoBack
    ) -> None:
        super().__init__(options, chance)
        self._may_go_back = may_go_back
        self.positions: dict[PartitionKey, int] = {}
        self.records = 0
        # Whether each Fetch states the epoch of the last batch, as Kafka's consumers do.
        self._is_wary = any(topic.unclean != NEVER for topic in self.shape.topics)
        self._is_careful = "rot-log" in options.late_kinds
        self._gappy = [topic.name for topic in self.shape.topics if topic.is_compacted]
        self.damaged = 0  # responses that were refused
        self._epochs: dict[PartitionKey, int] = {}
        self._on_read = on_read
        self._fetching: dict[int, bool] = {}
        self._paused: dict[PartitionKey, int] = {}
        self._version_max = chance.pick((18, 17, 15, 13, 12))
        self._fetch_bytes = chance.pick((_BYTES, 3_000))

    def start(self, now_ms: int) -> Effects:
        return [*super().start(now_ms), self._look_up_later(now_ms)]

    def on_places(self, now_ms: int) -> Effects:
        for key in [key for key in self.positions if key not in self.places]:
            del self.positions[key]
        for key in self.places:
            self.positions.setdefault(key, 0)
        return self._go(now_ms)

    def _go(self, now_ms: int) -> Effects:
        """Send one Fetch to each leader that has none in progress."""
        effects: Effects = []
        leaders = sorted({place.leader_id for place in self.places.values()})
        for leader_id in leaders:
            if leader_id >= 0 and not self._fetching.get(leader_id):
                effects += self._fetch(leader_id, now_ms)
        return effects

    def _fetch(self, leader_id: int, now_ms: int) -> Effects:
        wanted: dict[Uuid, tuple[PartitionLeader, list[FetchPartition]]] = {}
        asked: dict[PartitionKey, tuple[int, int]] = {}
        for key, place in self.places.items():
            if place.leader_id != leader_id or self._paused.get(key, 0) > now_ms:
                continue
            asked[key] = (self.positions[key], place.leader_epoch)
            wanted.setdefault(place.topic_id, (place, []))[1].append(
                FetchPartition(
                    partition=place.partition,
                    current_leader_epoch=place.leader_epoch,
                    fetch_offset=self.positions[key],
                    last_fetched_epoch=self._epochs.get(key, -1),
                    partition_max_bytes=self._fetch_bytes,
                )
            )
        if not wanted:
            return []
        self._fetching[leader_id] = True
        topics = [
            FetchTopic(topic=place.topic, topic_id=topic_id, partitions=rows)
            for topic_id, (place, rows) in wanted.items()
        ]
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_BYTES, topics=topics)
        then = partial(self._came, leader_id, asked)
        return [self.ask(leader_id, request, then, channel="fetch", version_max=self._version_max)]

    def _came(
        self, leader_id: int, asked: dict[PartitionKey, tuple[int, int]], answer: Any, now_ms: int
    ) -> Effects:
        self._fetching[leader_id] = False
        if isinstance(answer, Unanswered) or answer.error_code:
            return [*self.refresh_soon(now_ms), self._again(leader_id, now_ms)]
        effects: Effects = []
        names = {place.topic: place.topic_id for place in self.places.values()}
        for topic in answer.responses:
            for row in topic.partitions:
                topic_id = topic.topic_id if any(topic.topic_id) else names.get(topic.topic)
                if topic_id is None:
                    continue
                key = (topic_id, row.partition_index)
                position, leader_epoch = asked.get(key, (-1, -1))
                if self.positions.get(key) == position:
                    effects += self._take(key, row, leader_epoch, now_ms)
        if effects:
            effects.append(self._again(leader_id, now_ms))
        return [*effects, *self._go(now_ms)]

    def _take(self, key: PartitionKey, row: Any, leader_epoch: int, now_ms: int) -> Effects:
        if row.error_code == Code.OFFSET_OUT_OF_RANGE:
            self._paused[key] = now_ms + _PAUSE_MS
            return self._list(self.places[key], _EARLIEST, partial(self._reset, key))
        if row.error_code:
            self._paused[key] = now_ms + _PAUSE_MS
            return self.refresh_soon(now_ms)
        if row.diverging_epoch.end_offset >= 0:
            # What it read beyond belongs to a lineage that an unclean election abandoned (KIP-320).
            self.positions[key] = min(self.positions[key], row.diverging_epoch.end_offset)
            self._epochs[key] = row.diverging_epoch.epoch
            return []
        data = bytes(row.records or b"")
        if data:
            position = self.positions[key]
            if self._is_careful and not self._is_sound(key, data):
                self.damaged += 1
                self._paused[key] = now_ms + _PAUSE_MS
                return self.refresh_soon(now_ms)
            self._on_read(key, position, data, leader_epoch)
            for header in headers(data):
                self.records += header.record_count
                position = max(position, header.next_offset)
                if self._is_wary:
                    self._epochs[key] = header.leader_epoch
            self.positions[key] = position
        return []

    def _is_sound(self, key: PartitionKey, data: bytes) -> bool:
        """Whether the CRCs match and the batches are consecutive, as our readers check."""
        found = check_batches(data)
        if isinstance(found, KafkaError):
            return False
        position = self.positions[key]
        topic = self.places[key].topic
        is_first, has_gaps = True, topic in self._gappy or topic.startswith("__")
        for header in found:
            is_next = header.base_offset <= position if is_first else header.base_offset == position
            if not (is_next or has_gaps) or header.next_offset <= position:
                return False
            is_first, position = False, header.next_offset
        return True

    def _again(self, leader_id: int, now_ms: int) -> SetTimer:
        return SetTimer(key=("again", leader_id), at_ms=now_ms + _PAUSE_MS, then=self._go)

    # ---- offsets

    def _list(self, place: PartitionLeader, timestamp: int, then: Any) -> Effects:
        row = ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=place.topic, partitions=[row])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=_WAIT_MS)
        return [self.ask(place.leader_id, request, then, channel="offsets", version_max=9)]

    def _reset(self, key: PartitionKey, answer: Any, now_ms: int) -> Effects:
        """The position is gone, or not there yet: continue at the start or the end of the log."""
        if isinstance(answer, Unanswered):
            return self.refresh_soon(now_ms)
        row = answer.topics[0].partitions[0]
        if row.error_code == 0 and key in self.positions:
            position = self.positions[key]
            if row.offset > position or self._may_go_back(key, position):
                self.positions[key] = row.offset
                self._epochs.pop(key, None)
        return []

    def _look_up_later(self, now_ms: int) -> SetTimer:
        return SetTimer(key="look up", at_ms=now_ms + _LOOK_UP_MS, then=self._look_up)

    def _look_up(self, now_ms: int) -> Effects:
        """Ask for the offset of a timestamp."""
        effects: Effects = [self._look_up_later(now_ms)]
        places = [place for place in self.places.values() if place.leader_id >= 0]
        if places:
            when_ms = EPOCH_S * 1000 + self.chance.below(40_000)
            effects += self._list(self.chance.pick(places), when_ms, self._looked_up)
        return effects

    def _looked_up(self, answer: Any, now_ms: int) -> Effects:
        """Nothing to do: the response is checked where it leaves the broker."""
        return []
