"""The metadata quorum as the node sees it: write records, hear of every committed image. PURE.

A write is applied to the newest image at once, so that the next decision knows it; it is published, and
its writer answered, when it is committed. Publishers run first, so that whoever is answered finds the
node in the state it was told of. Source: KIP-500, KIP-631; spec Q12, Q25, Q39.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Replay
from firnline.metadata.features import (
    TRANSACTIONS_SINCE,
    record_version,
    refuse_unsupported_levels,
)
from firnline.metadata.image import EMPTY_IMAGE, METADATA_VERSION, ClusterImage
from firnline.metadata.loader import Loader, difference, refuse_dynamic_voters
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import Snapshot
from firnline.protocol.schema import Message
from firnline.raft.node import RaftNode
from firnline.raft.ports import ElectionStore, ReplicatedLog
from firnline.raft.role import Role
from firnline.raft.voters import VoterSet

RECORDS_PER_BATCH_MAX = 10_000
_READ_BYTES = 4 * 1024 * 1024
_IDLE_TIMER = ("metadata", "idle")

Publisher = Callable[[ClusterDelta, ClusterImage, int], Effects]
Then = Callable[[Any, int], Effects]


class MetadataLog(ReplicatedLog, Protocol):
    """What the facade needs beyond what the quorum needs."""

    def read_batches(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Whole batches from `start_offset` on, at least one; empty at the end of the log."""
        ...

    def newest_snapshot(self) -> tuple[int, int, Snapshot] | None:
        """End offset (exclusive), epoch and content of the newest snapshot; None for none."""
        ...

    def bootstrap_records(self) -> Sequence[Message]:
        """What `storage format` left for the first leader."""
        ...


class _Pending(NamedTuple):
    """A write on its way to the disk; `delta` None: nothing was written, only answer in order."""

    end_offset: int
    delta: ClusterDelta | None
    then: Callable[[int], Effects] | None


class MetadataQuorum:
    """Owns the quorum's machine and both images: `image` committed, `newest` as of the last write."""

    def __init__(
        self,
        *,
        node_id: int,
        voters: VoterSet,
        log: MetadataLog,
        elections: ElectionStore,
        idle_interval_ms: int,
    ) -> None:
        self.image = EMPTY_IMAGE
        self.newest = EMPTY_IMAGE
        self.publishers: list[Publisher] = []
        self._log = log
        self._raft = RaftNode(
            node_id=node_id, voters=voters, log=log, elections=elections, listener=self
        )
        self._idle_interval_ms = idle_interval_ms
        self._pending: deque[_Pending] = deque()
        self._then_ready: Callable[[int], Effects] = _nothing
        self._loaded = EMPTY_IMAGE
        self._has_open_transaction = False
        self._wrote_since_tick = False
        self._has_published = False

    @property
    def epoch(self) -> int:
        """Epoch of the quorum this node knows."""
        return self._raft.epoch

    @property
    def leader_id(self) -> int:
        """Node id of the active controller; -1 while there is none."""
        return self._raft.leader_id

    @property
    def is_leader(self) -> bool:
        return self._raft.role is Role.LEADER

    @property
    def high_watermark(self) -> int | None:
        return self._raft.high_watermark

    @property
    def next_offset(self) -> int:
        """Offset that the next record written gets."""
        return self._log.end_offset

    def start(self, now_ms: int, then: Callable[[int], Effects] | None = None) -> Effects:
        """Load what the disk has and lead; `then(now_ms)` runs once the cluster's metadata is there.

        Raises ConfigError for features or a quorum this release does not run, before anything is
        written; StorageError for a log that cannot be read.
        """
        self._then_ready = then or _nothing
        loader = Loader()
        snapshot = self._log.newest_snapshot()
        if snapshot is not None:
            end_offset, epoch, content = snapshot
            refuse_dynamic_voters(content.kraft_version)
            loader.load(content.records, offset=end_offset - 1, epoch=epoch)
        elif self._log.start_offset > 0:
            raise StorageError(
                "the metadata log starts after 0 and no snapshot holds what was before (Q43)",
                start_offset=self._log.start_offset,
            )
        while loader.next_offset < self._log.end_offset:
            loader.apply(self._log.read_batches(loader.next_offset, max_bytes=_READ_BYTES))
        # With one voter all that is here becomes committed with the first record of the new epoch.
        self._has_open_transaction = loader.is_in_transaction
        self._loaded = self.newest = loader.image()
        levels = self._loaded.features or _levels(self._log.bootstrap_records())
        refuse_unsupported_levels(levels)
        return self._raft.start(now_ms)

    def write(self, result: ControllerResult[Any], then: Then, now_ms: int) -> Effects:
        """Write a decision; `then(response or KafkaError, now_ms)` runs when it is committed.

        A decision without records is answered after the writes it may have relied on.
        """
        if not self.is_leader:
            why = "this node does not lead the metadata quorum"
            return then(KafkaError(Code.NOT_CONTROLLER, why), now_ms)
        response = result.response

        def answer(at_ms: int) -> Effects:
            return then(response, at_ms)

        if not result.records:
            if not self._pending:
                return then(response, now_ms)
            self._pending.append(_Pending(self._pending[-1].end_offset, None, answer))
            return []
        outcome = self._propose(result, answer, now_ms)
        return then(outcome, now_ms) if isinstance(outcome, KafkaError) else outcome

    def stop(self) -> None:
        """Lead no longer; writes are refused from now on."""
        self._raft.resign()

    # ------------------------------------------------------------------------- from the quorum

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        """Publish what is committed, oldest first, and answer who waited for it."""
        effects: Effects = []
        if not self._has_published:
            self._has_published = True
            effects += self._publish(difference(EMPTY_IMAGE, self._loaded), now_ms)
        while self._pending and self._pending[0].end_offset <= end_offset:
            pending = self._pending.popleft()
            if pending.delta is not None:
                effects += self._publish(pending.delta, now_ms)
            if pending.then is not None:
                effects += pending.then(now_ms)
        return effects

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        """Finish what the last leader left open, begin a new cluster, and keep the log moving."""
        effects: Effects = []
        if self._idle_interval_ms > 0:
            effects.append(self._idle_timer(now_ms))
        if self._has_open_transaction:
            abort = r.AbortTransactionRecord(reason="the controller changed")
            effects += self.write(ControllerResult([abort], None), _ignored, now_ms)
        if METADATA_VERSION in self.newest.features:
            return effects + self._then_ready(now_ms)

        def bootstrapped(outcome: KafkaError | None, at_ms: int) -> Effects:
            if outcome is not None:
                raise outcome
            return self._then_ready(at_ms)

        records = _in_transaction(self._log.bootstrap_records())
        return effects + self.write(ControllerResult(records, None), bootstrapped, now_ms)

    # ------------------------------------------------------------------------- inside

    def _propose(
        self, result: ControllerResult[Any], answer: Callable[[int], Effects], now_ms: int
    ) -> Effects | KafkaError:
        records = result.records
        if result.is_atomic and len(records) > RECORDS_PER_BATCH_MAX:
            return KafkaError(
                Code.POLICY_VIOLATION,
                "the change has too many records for one batch",
                records=len(records),
                limit=RECORDS_PER_BATCH_MAX,
            )
        effects: Effects = []
        for first in range(0, len(records), RECORDS_PER_BATCH_MAX):
            some = records[first : first + RECORDS_PER_BATCH_MAX]
            is_last = first + len(some) == len(records)
            outcome = self._propose_batch(some, answer if is_last else None, now_ms)
            if isinstance(outcome, KafkaError):
                return outcome
            effects += outcome
        return effects

    def _propose_batch(
        self,
        records: Sequence[Message],
        answer: Callable[[int], Effects] | None,
        now_ms: int,
    ) -> Effects | KafkaError:
        # The records of one batch are read by the features in force before it, but for the first
        # batch of a cluster, whose features it brings.
        level = self.newest.metadata_version or _levels(records).get(METADATA_VERSION, 0)
        values = [r.encode(record, record_version(record, level)) for record in records]
        replay = Replay(self.newest)
        for record in records:
            replay.apply(record)
        outcome = self._raft.propose(values, epoch=self._raft.epoch, now_ms=now_ms)
        if isinstance(outcome, KafkaError):
            return outcome
        place, effects = outcome
        delta = replay.finish(offset=place.last_offset, epoch=self._raft.epoch)
        self.newest = delta.after
        self._wrote_since_tick = True
        self._pending.append(_Pending(place.last_offset + 1, delta, answer))
        return effects

    def _publish(self, delta: ClusterDelta, now_ms: int) -> Effects:
        self.image = delta.after
        effects: Effects = []
        for publish in self.publishers:
            effects += publish(delta, delta.after, now_ms)
        return effects

    def _idle_timer(self, now_ms: int) -> SetTimer:
        at_ms = now_ms + self._idle_interval_ms
        return SetTimer(key=_IDLE_TIMER, at_ms=at_ms, then=self._on_idle)

    def _on_idle(self, now_ms: int) -> Effects:
        """Followers tell a quiet leader from a dead one by these records (metadata.max.idle.interval.ms)."""
        if not self.is_leader:
            return []
        effects: Effects = [self._idle_timer(now_ms)]
        if not self._wrote_since_tick:
            effects += self.write(ControllerResult([r.NoOpRecord()], None), _ignored, now_ms)
        self._wrote_since_tick = False
        return effects


def _in_transaction(records: Sequence[Message]) -> list[Message]:
    """All of a new cluster's first records or none, also for a reader of half a log (KIP-868)."""
    if _levels(records)[METADATA_VERSION] < TRANSACTIONS_SINCE:
        return list(records)
    begin = r.BeginTransactionRecord(name="Bootstrap records")
    return [begin, *records, r.EndTransactionRecord()]


def _levels(records: Sequence[Message]) -> dict[str, int]:
    return {x.name: x.feature_level for x in records if isinstance(x, r.FeatureLevelRecord)}


def _nothing(now_ms: int) -> Effects:
    return []


def _ignored(outcome: object, now_ms: int) -> Effects:
    if isinstance(outcome, KafkaError):
        raise outcome
    return []
