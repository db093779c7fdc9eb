"""The metadata quorum for the rest of the node: write records, publish each committed image. PURE.

Theory of operation. The active controller applies its records to `newest` at once, so that its next decision
knows them; the records are appended to the log, and the write waits in `_pending`. When they are committed,
`image` becomes that image, the observer is called, and then the writer's callback: so a client that got a
response finds the node in the state of the response. Every other node reads the committed records from its
log, a slice at a time. Roles: when the quorum elects this node, it claims the epoch: it applies the rest of
the log, aborts an open metadata transaction, writes the bootstrap records of a new cluster, and is active.
When it loses the epoch, it renounces it: `newest` goes back to `image`, and pending writers get
NOT_CONTROLLER, because nobody knows whether their records will be committed. Guarantees: I1 to I3 below.

Source: KIP-500, KIP-595, KIP-631; spec Q12, Q25, Q39, X16.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from firnline.base.background import run_to_completion
from firnline.base.effects import CancelTimer, Effect, Effects, Peer, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch, Uuid
from firnline.base.log_lines.quorum import SNAPSHOT_LOADED, SNAPSHOT_USELESS
from firnline.base.ports import Rng
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, QuorumObserver, Replay, Unobserved
from firnline.metadata.features import (
    in_transaction,
    levels_of,
    record_version,
    refuse_unsupported_levels,
    unsupported_levels,
)
from firnline.metadata.image import EMPTY_IMAGE, METADATA_VERSION, ClusterImage
from firnline.metadata.loader import (
    READ_BYTES,
    Loader,
    SnapshotLoader,
    difference,
    difference_steps,
    last_level,
)
from firnline.metadata.partition_counts import Latencies, PartitionCounts, PartitionIndex
from firnline.metadata.result import ControllerResult, Prepared
from firnline.metadata.snapshot_file import snapshot_name
from firnline.metadata.snapshotter import (
    SnapshotLog,
    SnapshotSettings,
    SnapshotState,
    Snapshotter,
)
from firnline.protocol.schema import Message
from firnline.raft.election_state import NOBODY
from firnline.raft.node import RaftNode
from firnline.raft.ports import ElectionStore, ReplicatedLog
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from firnline.raft.voters import VoterSet
from firnline.records.build import encode_values

RECORDS_PER_BATCH_MAX = 10_000
DEFAULT_SETTINGS = QuorumSettings()
DEFAULT_SNAPSHOTTING = SnapshotSettings()
# Records to encode in one step; about a millisecond.
_PREPARED_AT_ONCE = 150
_IDLE_TIMER = ("metadata", "idle")
_LOAD_TIMER = ("metadata", "load")
_LOADED_TIMER = ("metadata", "loaded")
_NOT_ACTIVE = "this node is not the active controller"

R = TypeVar("R")
WriteCallback = Callable[[R | KafkaError, int], Effects]


# A protocol, because tests run the quorum on a log in memory.
class MetadataLog(ReplicatedLog, SnapshotLog, Protocol):
    """What `MetadataQuorum` needs: the quorum's log, a store for snapshots, and the bootstrap records."""

    @property
    def path(self) -> str:
        """The directory of the log and its snapshots, for error messages."""
        ...

    @property
    def damaged_ids(self) -> Sequence[OffsetAndEpoch]:
        """Damaged snapshots that are kept and not used."""
        ...

    def bootstrap_records(self) -> Sequence[Message]:
        """The records that `storage format` wrote for the first leader."""
        ...


class _Pending(NamedTuple):
    """A write that is not committed yet; `delta` None: no records, only a response that keeps its order."""

    end_offset: int
    delta: ClusterDelta | None
    then: WriteCallback[Any] | None
    response: object
    size_bytes: int = 0
    timestamp_ms: int = 0


class MetadataCounters(NamedTuple):
    """Counters and offsets for metrics. Offsets inclusive, -1 for none; times in ms."""

    is_active: bool
    new_active_controllers: int  # how often there was another active controller, this node included
    snapshots_loaded: int
    last_applied_offset: int
    last_committed_offset: int
    last_applied_timestamp_ms: int


class MetadataQuorum:
    """Owns the `RaftNode` and both images: `image` is committed, `newest` includes pending writes.

    observer  is called for each committed image, and when this node becomes active or inactive

    Invariants:
      I1  `image` holds only committed records, and never goes back.
      I2  an active node has applied everything below its epoch's start (X16).
      I3  `newest` is `image` and the pending deltas, in order.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: Uuid,
        voters: VoterSet,
        log: MetadataLog,
        elections: ElectionStore,
        rng: Rng,
        idle_interval_ms: int,
        settings: QuorumSettings = DEFAULT_SETTINGS,
        snapshotting: SnapshotSettings = DEFAULT_SNAPSHOTTING,
        bootstrap: Sequence[Peer] = (),
        observer: QuorumObserver | None = None,
    ) -> None:
        self.image = EMPTY_IMAGE
        self.newest = EMPTY_IMAGE
        self._observer: QuorumObserver = Unobserved() if observer is None else observer
        self.is_active = False
        self._log = log
        self._voters = voters
        self.raft = RaftNode(
            node_id=node_id,
            cluster_id=cluster_id,
            directory_id=directory_id,
            voters=voters,
            log=log,
            elections=elections,
            listener=self,
            rng=rng,
            settings=settings,
            bootstrap=bootstrap,
        )
        self.snapshotter = Snapshotter(log, snapshotting)
        self._idle_interval_ms = idle_interval_ms
        self._pending: deque[_Pending] = deque()
        self._loader = Loader()
        self._work: Generator[None, None, None] | None = None
        self._replacement: ClusterDelta | None = (
            None  # by a snapshot, or by the whole log of a sole voter
        )
        self._counts_of_snapshot = PartitionCounts()
        # Of `newest`, for a node that may become active; brokers have none.
        self.index = PartitionIndex()
        self._has_index = node_id in voters
        self._index_of_snapshot = PartitionIndex()
        self._committed_offset = 0  # exclusive
        # The epoch this node was elected for, and the one in which it writes; None for neither.
        self._claimed_epoch: int | None = None
        self._active_epoch: int | None = None
        self._wrote_since_tick = self._is_snapshot_new = False  # the latter: not published
        # For metrics alone.
        self.partition_counts = PartitionCounts()
        self.load_latencies = Latencies()
        self._load_began_ms = self._records_of_snapshot = 0
        self._loaded_id: OffsetAndEpoch | None = None  # until it is logged
        self._snapshots_loaded = 0
        self._new_active_controllers = 0
        self._last_timestamp_ms = 0

    @property
    def epoch(self) -> int:
        """The quorum's epoch, as far as this node knows."""
        return self.raft.epoch

    @property
    def leader_id(self) -> int:
        """Node id of the active controller; -1 if there is none."""
        return self.raft.leader_id

    @property
    def is_leader(self) -> bool:
        """Does this node lead the quorum? It may write once it `is_active`."""
        return self.raft.role is Role.LEADER

    @property
    def is_loading(self) -> bool:
        """Is there committed metadata that this node has not applied?

        The active controller has applied its own writes; its loader stays where the claim began.
        """
        return self._active_epoch is None and self._is_behind()

    @property
    def high_watermark(self) -> int | None:
        return self.raft.high_watermark

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    def counters(self) -> MetadataCounters:
        """Return the present counters."""
        return MetadataCounters(
            is_active=self.is_active,
            new_active_controllers=self._new_active_controllers,
            snapshots_loaded=self._snapshots_loaded,
            last_applied_offset=self.newest.offset,
            last_committed_offset=self._committed_offset - 1,
            last_applied_timestamp_ms=self._last_timestamp_ms,
        )

    def snapshot_state(self) -> SnapshotState:
        """Return the present state of the snapshots."""
        log = self._log
        return SnapshotState(
            snapshots=log.snapshot_sizes(),
            damaged_ids=log.damaged_ids,
            forgotten=log.forgotten,
            fetching=self.raft.fetching_snapshot,
            log_start_offset=log.start_offset,
            log_end_offset=log.end_offset,
            log_bytes=log.size_bytes,
        )

    def start(self, now_ms: int) -> Effects:
        """Load the committed metadata on the disk, and take part in the quorum.

        A sole voter, whose whole log is committed, loads everything before it takes part; a long log takes
        several turns. Raises ConfigError for features or a quorum that this release does not run,
        StorageError for a log that cannot be read.
        """
        snapshot_id, snapshot = self._log.newest_snapshot_id, None
        if snapshot_id is not None:
            snapshot = self._open_snapshot(snapshot_id, now_ms)
            self._work = self._snapshot_steps(snapshot)
        elif self._log.start_offset > 0:
            raise StorageError(
                "the metadata log starts after 0 and no snapshot holds what was before (Q43)",
                path=self._log.path,
                start_offset=self._log.start_offset,
            )
        elif self._log.end_offset == 0:
            refuse_unsupported_levels(
                levels_of(self._log.bootstrap_records()), path=self._log.path, source="bootstrap"
            )
        if self._voters.is_sole(self.raft.node_id):
            self._work = self._start_steps(snapshot)
            return self._load_first(now_ms)
        effects = self._follow(now_ms)
        return effects + self.raft.start(now_ms)

    def write(self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int) -> Effects:
        """Write a decision; `then(response or KafkaError, now_ms)` runs when it is committed.

        A decision without records is answered after all earlier writes, because it may rely on them.
        NOT_CONTROLLER if this node is not active; also later, if it becomes inactive before the commit: then
        the outcome is unknown, and the client should retry.
        """
        if not self.is_active:
            return then(KafkaError(Code.NOT_CONTROLLER, _NOT_ACTIVE), now_ms)
        return self._write(result, then, now_ms)

    def prepare(self, result: ControllerResult[R]) -> Generator[None, None, ControllerResult[R]]:
        """Encode and apply a large decision in slices, before `write`.

        `write` does it again if the newest image has changed by then.
        """
        return result._replace(prepared=(yield from self._prepared(result.records)))

    def stop(self, now_ms: int) -> Effects:
        """Resign and leave the quorum in order; writes are refused from now on."""
        effects = self.raft.resign(now_ms)
        return effects + self._renounce(now_ms)

    def close(self) -> None:
        """Forget everything in flight; pending writers get no response. The opener of the log closes it."""
        self.raft.stop()
        self.is_active = False
        self._claimed_epoch = self._active_epoch = None
        self._pending.clear()
        self.snapshotter.stop()
        self._abandon_work()

    # ------------------------------------------------------------------- calls of the quorum

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        """The log begins anew at the end of a snapshot, which replaces the image (Q39)."""
        assert self._active_epoch is None, "the active controller never loads a snapshot"
        self._work = self._snapshot_steps(self._open_snapshot(snapshot_id, now_ms))
        return self._follow(now_ms)

    def on_useless_snapshot(
        self, snapshot_id: OffsetAndEpoch, replica_id: int, now_ms: int
    ) -> Effects:
        """A replica fetched this snapshot several times in vain: our disk damages it, or its own does."""
        warning = SNAPSHOT_USELESS(node=replica_id, snapshot=snapshot_name(snapshot_id))
        return [warning, *self.snapshotter.take(lambda outcome, at_ms: [], now_ms)]

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        """Publish what is committed, oldest first, and call the writers."""
        assert end_offset >= self._committed_offset, "the committed offset never falls"
        self._committed_offset = end_offset
        if self._active_epoch is None:
            return self._follow(now_ms)
        effects: Effects = []
        while self._pending and self._pending[0].end_offset <= end_offset:
            pending = self._pending.popleft()
            if pending.delta is not None:
                self._last_timestamp_ms = pending.timestamp_ms
                self.partition_counts.apply(pending.delta)
                effects += self._publish(pending.delta, now_ms)
                effects += self.snapshotter.on_applied(
                    pending.delta,
                    bytes_applied=pending.size_bytes,
                    last_timestamp_ms=pending.timestamp_ms,
                    is_batch_end=True,
                    now_ms=now_ms,
                )
            if pending.then is not None:
                effects += pending.then(pending.response, now_ms)
        return effects

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        """This node leads: it becomes active when it has applied the committed records (X16)."""
        effects = self._renounce(now_ms)
        self._new_active_controllers += 1
        self._claimed_epoch = epoch
        return effects + self._follow(now_ms)

    def on_leader_change(self, leader_id: int, epoch: int, now_ms: int) -> Effects:
        """Another node leads, or none: the outcome of pending writes is unknown."""
        self._new_active_controllers += leader_id != NOBODY
        return self._renounce(now_ms)

    # ------------------------------------------------------------------------- following

    def _open_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> SnapshotLoader:
        self._abandon_work()
        self._load_began_ms = now_ms
        file = self._log.open_snapshot(snapshot_id)
        if file is None:
            raise StorageError(
                "a snapshot of the metadata is gone", path=self._log.path, snapshot=snapshot_id
            )
        self._committed_offset = max(self._committed_offset, snapshot_id.offset)
        return SnapshotLoader(snapshot_id, file)

    def _snapshot_steps(self, snapshot: SnapshotLoader) -> Generator[None, None, None]:
        yield from self._read_snapshot(snapshot)
        yield from self._replace_with(snapshot.image())

    def _start_steps(self, snapshot: SnapshotLoader | None) -> Generator[None, None, None]:
        """Load a sole voter's snapshot and whole log; it is published when the quorum says that it is
        committed."""
        if snapshot is not None:
            yield from self._read_snapshot(snapshot)
        while self._loader.next_offset < self._log.end_offset:
            yield from self._loader.steps(self._read_log())
        image = self._loader.image()
        self._refuse_unsupported_features(image)
        if image is not self.image:
            yield from self._replace_with(image)

    def _read_snapshot(self, snapshot: SnapshotLoader) -> Generator[None, None, None]:
        yield from snapshot.steps()
        self._loaded_id = snapshot.snapshot_id
        self._records_of_snapshot = snapshot.record_count
        self._is_snapshot_new = True
        self._loader = Loader(snapshot.image())
        self._loader.last_timestamp_ms = snapshot.last_contained_ms

    def _replace_with(self, image: ClusterImage) -> Generator[None, None, None]:
        """Compute the delta to an image that does not follow from the present one record by record."""
        self._counts_of_snapshot = yield from self.partition_counts.recount(image)
        if self._has_index:
            self._index_of_snapshot = yield from PartitionIndex.of(image)
        self._replacement = yield from difference_steps(self.image, image)

    def _abandon_work(self) -> None:
        """Drop unfinished work: the loader goes back to the published image."""
        if self._work is not None:
            self._work.close()
        self._work = self._replacement = None
        self._is_snapshot_new = False
        self._loader = Loader(self.image)

    def _load_first(self, now_ms: int) -> Effects:
        """Load the log of a sole voter, a slice in each turn; then take part in the quorum, and lead it."""
        if self.raft.is_stopped:
            return []
        self._step()
        if self._work is not None:
            return [SetTimer(key=_LOAD_TIMER, at_ms=now_ms, then=self._load_first)]
        return self._clock_load(now_ms) + self.raft.start(now_ms)

    def _refuse_unsupported_features(self, image: ClusterImage) -> None:
        """Raise ConfigError for features that this release does not support, naming their record (I33).

        As in Apache Kafka 4.3.1, uncommitted records refuse nothing: a new leader may truncate them.
        """
        wrong = unsupported_levels(image.features)
        if not wrong:
            return
        path, offset = self._log.path, last_level(self._log, wrong, image.offset)
        if offset is not None:
            refuse_unsupported_levels(image.features, path=path, offset=offset)
        snapshot_id = self._log.newest_snapshot_id
        refuse_unsupported_levels(image.features, path=path, snapshot=snapshot_id)

    def _follow(self, now_ms: int) -> Effects:
        """Apply committed records, one slice in each turn of the event loop."""
        if self._active_epoch is not None:
            return []
        effects: Effects = []
        if self._is_behind():
            if self._work is None:
                end_offset = self._committed_offset
                self._work = self._loader.steps(self._read_log(), end_offset=end_offset)
            self._step()
            effects += self._clock_load(now_ms)
            if self._work is None:
                effects += self._publish_applied(now_ms)
            if self._is_behind():
                timer = SetTimer(key=_LOAD_TIMER, at_ms=now_ms, then=self._follow)
                return [*effects, timer]
        if self._claimed_epoch is not None and self._active_epoch is None:
            effects += self._claim(now_ms)
        return effects

    def _clock_load(self, now_ms: int) -> Effects:
        """After a snapshot was loaded, log how long that took. `now_ms` is from before the work, so a timer
        reads the clock after it."""
        loaded_id, self._loaded_id = self._loaded_id, None
        if loaded_id is None:
            return []
        began_ms, count = self._load_began_ms, self._records_of_snapshot

        def loaded(at_ms: int) -> Effects:
            self.load_latencies.add(at_ms - began_ms)
            name = snapshot_name(loaded_id)
            return [SNAPSHOT_LOADED(snapshot=name, records=count, took_ms=at_ms - began_ms)]

        return [SetTimer(key=_LOADED_TIMER, at_ms=now_ms, then=loaded)]

    def _is_behind(self) -> bool:
        return self._work is not None or self._loader.next_offset < self._committed_offset

    def _read_log(self) -> bytes:
        """Read the log where the loader is."""
        at = self._loader.next_offset
        data = self._log.read(at, max_bytes=READ_BYTES)
        if not data:
            raise StorageError(
                "committed metadata is not in the log", path=self._log.path, offset=at
            )
        return data

    def _step(self) -> None:
        """Do one slice of the work. StorageError for damage, with its place and the remedy."""
        assert self._work is not None
        try:
            for _ in self._work:
                return
        except StorageError as problem:
            raise StorageError(problem.why, **{"path": self._log.path, **problem.facts}) from None
        self._work = None

    def _publish_applied(self, now_ms: int) -> Effects:
        """Publish the loader's image; after a snapshot, as one delta."""
        loader, effects = self._loader, list[Effect]()
        changes = loader.take_deltas()  # since the snapshot, if one was loaded
        deltas = list(changes)
        if self._replacement is not None:
            deltas = self._replaced(self._replacement, changes)
        if self._is_snapshot_new:
            self._is_snapshot_new = False
            effects += self.snapshotter.on_loaded(
                record_count=self._records_of_snapshot, now_ms=now_ms
            )
            self._snapshots_loaded += 1
        if self.image is EMPTY_IMAGE and len(deltas) > 1:
            deltas = [difference(EMPTY_IMAGE, deltas[-1].after)]
        for delta in deltas:
            if delta is self._replacement:
                self.partition_counts, self.index = (
                    self._counts_of_snapshot,
                    self._index_of_snapshot,
                )
            else:
                self.partition_counts.apply(delta)
                if self._has_index:
                    self.index.apply(delta)
            effects += self._publish(delta, now_ms)
            effects += self.snapshotter.on_applied(
                delta,
                bytes_applied=loader.bytes_seen,
                last_timestamp_ms=loader.last_timestamp_ms,
                is_batch_end=loader.is_batch_end and delta is deltas[-1],
                now_ms=now_ms,
                changes=changes,
            )
            loader.bytes_seen, changes = 0, []
        self._replacement = None
        self._last_timestamp_ms = loader.last_timestamp_ms
        self.newest = self.image
        return effects

    def _replaced(
        self, replacement: ClusterDelta, changes: Sequence[ClusterDelta]
    ) -> list[ClusterDelta]:
        """Return the deltas to publish: the replacement, and those of `changes` that it does not cover.

        The quorum's own records, such as the first record of an epoch, change only the offset of the image.
        """
        rest = [each for each in changes if each.after.offset > replacement.after.offset]
        if rest and all(each.is_empty for each in rest):
            replacement, rest = replacement._replace(after=rest[-1].after), []
        self._replacement = replacement
        return [replacement, *rest]

    # ----------------------------------------------------------------- active controller

    def _claim(self, now_ms: int) -> Effects:
        """Become active: abort the last leader's open transaction, bootstrap a new cluster, start the idle
        timer."""
        assert self._loader.next_offset >= self._log.end_offset, "all of it is applied (X16)"
        self._active_epoch, self._claimed_epoch = self._claimed_epoch, None
        self.newest = self.image
        effects: Effects = []
        if self._idle_interval_ms > 0:
            effects.append(self._idle_timer(now_ms))
        if self._loader.is_in_transaction:
            abort = r.AbortTransactionRecord(reason="the controller changed")
            effects += self._write(ControllerResult([abort], None), _ignored, now_ms)
        if METADATA_VERSION in self.newest.features:
            return effects + self._activate(now_ms)

        def bootstrapped(outcome: KafkaError | None, at_ms: int) -> Effects:
            return _ignored(outcome, at_ms) if outcome is not None else self._activate(at_ms)

        records = in_transaction(self._log.bootstrap_records())
        return effects + self._write(ControllerResult(records, None), bootstrapped, now_ms)

    def _activate(self, now_ms: int) -> Effects:
        self.is_active = True
        return self._observer.became_active(now_ms)

    def _renounce(self, now_ms: int) -> Effects:
        """Stop being active: go back to the committed image, and answer pending writers with
        NOT_CONTROLLER."""
        self._claimed_epoch = None
        if self._active_epoch is None:
            return []
        was_active, self.is_active, self._active_epoch = self.is_active, False, None
        self.newest = self.image
        self._loader = Loader(self.image)
        in_doubt, self._pending = self._pending, deque()
        for pending in reversed(in_doubt):
            if pending.delta is not None:
                self.index.revert(pending.delta)
        effects: Effects = [CancelTimer(key=_IDLE_TIMER)]
        if was_active:
            effects += self._observer.became_inactive(now_ms)
        error = KafkaError(Code.NOT_CONTROLLER, _NOT_ACTIVE)
        for pending in in_doubt:
            if pending.then is not None:
                effects += pending.then(error, now_ms)
        return effects + self._follow(now_ms)

    def _write(self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int) -> Effects:
        response = result.response
        if not result.records:
            if not self._pending:
                return then(response, now_ms)
            end_offset = self._pending[-1].end_offset
            self._pending.append(_Pending(end_offset, None, then, response))
            return []
        records = result.records
        if result.is_atomic and len(records) > RECORDS_PER_BATCH_MAX:
            refusal = KafkaError(
                Code.POLICY_VIOLATION,
                "the change has too many records for one batch",
                records=len(records),
                limit=RECORDS_PER_BATCH_MAX,
            )
            return then(refusal, now_ms)
        effects: Effects = []
        for first in range(0, len(records), RECORDS_PER_BATCH_MAX):
            some = records[first : first + RECORDS_PER_BATCH_MAX]
            is_last = first + len(some) == len(records)
            prepared = result.prepared if len(some) == len(records) else None
            outcome = self._propose(some, prepared, then if is_last else None, response, now_ms)
            if isinstance(outcome, KafkaError):
                return effects + then(outcome, now_ms)
            effects += outcome
        return effects

    def _propose(
        self,
        records: Sequence[Message],
        prepared: Prepared | None,
        then: WriteCallback[R] | None,
        response: R,
        now_ms: int,
    ) -> Effects | KafkaError:
        assert self._active_epoch is not None
        if prepared is None or prepared.image is not self.newest:
            prepared = run_to_completion(self._prepared(records))
        _, values, body, replay = prepared
        size_before = self._log.size_bytes
        outcome = self.raft.propose(values, epoch=self._active_epoch, now_ms=now_ms, body=body)
        if isinstance(outcome, KafkaError):
            return outcome
        place, effects = outcome
        size_bytes = self._log.size_bytes - size_before
        delta = replay.finish(offset=place.last_offset, epoch=self._active_epoch)
        self.newest = delta.after
        self.index.apply(delta)
        self._wrote_since_tick = True
        self._pending.append(
            _Pending(place.last_offset + 1, delta, then, response, size_bytes, now_ms)
        )
        return effects

    def _prepared(self, records: Sequence[Message]) -> Generator[None, None, Prepared]:
        """Encode records, and apply them to the newest image; yields after some records at a time."""
        # The records of a batch are encoded by the features in force before it. The first batch of a cluster
        # is an exception: it brings its features.
        image = self.newest
        level = image.metadata_version or levels_of(records).get(METADATA_VERSION, 0)
        values: list[bytes] = []
        body = bytearray()
        done = 0
        replay = Replay(image)
        for count, record in enumerate(records):
            if count and count % _PREPARED_AT_ONCE == 0:
                body += encode_values(values[done:], done)
                done = count
                yield
            version = record_version(record, level)
            value = r.encode(record, version)
            values.append(value)
            # An older version leaves fields out, and the other nodes see only what is written.
            replay.apply(record if version == record.valid.last else r.decode(value))
        body += encode_values(values[done:], done)
        return Prepared(image, values, body, replay)

    def _publish(self, delta: ClusterDelta, now_ms: int) -> Effects:
        if delta.features:
            self._refuse_unsupported_features(delta.after)
        self.image = delta.after
        return self._observer.image_published(delta, delta.after, now_ms)

    def _idle_timer(self, now_ms: int) -> SetTimer:
        at_ms = now_ms + self._idle_interval_ms
        return SetTimer(key=_IDLE_TIMER, at_ms=at_ms, then=self._on_idle)

    def _on_idle(self, now_ms: int) -> Effects:
        """Write a NoOpRecord if nothing else was written, so that followers can tell a quiet leader from a
        dead one (metadata.max.idle.interval.ms)."""
        if self._active_epoch is None or not self.is_leader:
            return []
        effects: Effects = [self._idle_timer(now_ms)]
        if not self._wrote_since_tick:
            effects += self._write(ControllerResult([r.NoOpRecord()], None), _ignored, now_ms)
        self._wrote_since_tick = False
        return effects


def _ignored(outcome: object, now_ms: int) -> Effects:
    """NOT_CONTROLLER needs no action, because the next leader writes it again; any other error is a bug."""
    if isinstance(outcome, KafkaError) and outcome.code is not Code.NOT_CONTROLLER:
        raise outcome
    return []
