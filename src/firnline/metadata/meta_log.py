"""`__cluster_metadata-0` on disk, as the quorum's `ReplicatedLog`. STORE.

The directory holds an ordinary partition log, `quorum-state`, and the snapshots. Invariants tie them
together: I1 to I3 of `MetaLog`. A stop at any moment may break them, so the start repairs in this order: it
checks every snapshot; it opens the log; it sets damaged snapshots aside; a snapshot ahead of the log replaces
the log, because the node stopped between rename and truncation (Q44); it raises the log start to where the
log began before the stop; it removes what was unfinished. If records are lost that this voter had promised to
have, `forgotten` says so, and the voter takes part in no election until it has them again.

Source: KIP-595, KIP-630; spec Q5, Q6, Q10, Q12, Q37, Q40-Q44.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from firnline.base.effects import Effects, Flush, SetTimer
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition
from firnline.base.ports import File, Fs
from firnline.base.units import INT32_MAX, MIB
from firnline.base.waits import off_loop
from firnline.config.broker import BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log.checkpoint import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    read_file,
    write_durably,
    write_partition_metadata,
)
from firnline.log.directory import LogDirectory
from firnline.log.epochs import LeaderEpochs
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.metadata.loader import refuse_dynamic_voters
from firnline.metadata.snapshot_damage import (
    Examined,
    damaged_ids,
    examine,
    mark_forgotten,
    once_reached,
    remove_damaged,
    remove_marks,
    rename_damaged,
)
from firnline.metadata.snapshot_file import BOOTSTRAP, read_snapshot, snapshot_name, stored_names
from firnline.metadata.snapshot_store import OpenSnapshot, PartFile, SnapshotStore
from firnline.protocol.schema import Message
from firnline.raft.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)
from firnline.raft.fetch_rules import end_offset_for, last_epoch
from firnline.raft.ports import SaveCallback, SnapshotPart
from firnline.records.batch import headers

QUORUM_STATE = "quorum-state"
_READ_BYTES = MIB
_RETIRE_AGAIN_MS = 100
_PARTITION = TopicPartition(METADATA_TOPIC, 0)
_REMEDY = (
    "restore the directory from a copy; where other voters have the whole log, empty it and start this"
    " node again"
)


def open_meta_log(
    fs: Fs,
    config: BrokerConfig,
    *,
    now_ms: int,
    directory: LogDirectory | None = None,
    has_peers: bool = False,
) -> "MetaLog":
    """Open `__cluster_metadata-0` in the metadata log directory; create it if it is missing.

    `directory` is the open log directory. Its clean-shutdown marker and its recovery points say what needs no
    recovery, and this log's recovery point is kept there from now on. Without it the whole log is recovered.
    `has_peers`: other nodes may have what is damaged here.

    StorageError if the log is damaged below its recovery point, if its beginning is lost (Q43), or if its
    first snapshot is damaged and nothing replaces it; ConfigError for dynamic voters.
    """
    log_dir = config.metadata_directory
    recovery_point = 0 if directory is None else directory.recovery_point(_PARTITION)
    path = f"{log_dir}/{_PARTITION}"
    examined = Examined({}, {})
    if fs.exists(path):
        examined = examine(fs, path)
        refuse_lost_beginning(fs, path, examined, has_peers=has_peers)
        _refuse_bootstrap_voters(fs, path)
    # `open_log` drops epochs without a batch, so the start of the lineage is read before.
    began_at = _began_at(fs, path)
    log = open_log(
        fs,
        path,
        _PARTITION,
        topic_id=METADATA_TOPIC_ID,
        config=_log_config(config),
        now_ms=now_ms,
        # A marker without our entry is Kafka's: Kafka closes this log after it wrote the marker.
        was_clean=directory is not None and directory.was_clean and recovery_point > 0,
        recovery_point=recovery_point,
        before_truncation=None if directory is None else directory.write_recovery_points,
    )
    if directory is not None:
        directory.include(log)
    if not fs.exists(f"{path}/{PARTITION_METADATA}"):
        # In this order: a process that was killed in between may have left a name that is not durable.
        fs.sync_dir(log_dir)
        write_partition_metadata(fs, path, METADATA_TOPIC_ID)
    delete_delay_ms = config.internal_metadata_delete_delay_millis
    keep = _nothing if directory is None else directory.write_recovery_points
    return MetaLog(
        fs,
        log,
        log_dir,
        began_at=began_at,
        examined=examined,
        has_peers=has_peers,
        delete_delay_ms=delete_delay_ms,
        keep_recovery_point=keep,
    )


def _log_config(config: BrokerConfig) -> TopicConfig:
    return TopicConfig(
        cleanup_policy=(),
        max_message_bytes=config.internal_metadata_max_batch_size_in_bytes,
        file_delete_delay_ms=config.internal_metadata_delete_delay_millis,
        retention_ms=-1,
        segment_bytes=config.internal_metadata_log_segment_bytes
        or config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
    )


def _nothing() -> None:
    pass


def _began_at(fs: Fs, path: str) -> int:
    """Return where the lineage on disk begins; 0 if there is none."""
    entries = LeaderEpochs(fs, f"{path}/{LEADER_EPOCHS}").entries()
    return entries[0][1] if entries else 0


class QuorumStateFile:
    """The file `quorum-state`: epoch, leader and vote."""

    def __init__(self, fs: Fs, directory: str, voter_ids: tuple[int, ...]) -> None:
        self._fs = fs
        self._directory = directory
        self._path = f"{directory}/{QUORUM_STATE}"
        self._voter_ids = voter_ids

    def load(self) -> ElectionState | None:
        """Return the saved state; None before the first election of this directory."""
        data = read_file(self._fs, self._path)
        if data is None:
            return None
        # A process that was killed, or whose disk failed, may have renamed the file and not synced the name
        # (rel-P2).
        self._fs.sync_dir(self._directory)
        return decode_election_state(data, path=self._path)

    def save(
        self, state: ElectionState, then: Callable[[Exception | None, int], Effects], now_ms: int
    ) -> Effects:
        """Replace the file, off the event loop; the state is durable when `then` is called."""
        data = encode_election_state(state, self._voter_ids)
        work = partial(write_durably, self._fs, self._path, data)
        return off_loop(QUORUM_STATE, work, pool="votes").begin(then, now_ms)


class MetaLog:
    """Adapts `log.Log` and the snapshots beside it to the ports of `raft` and `metadata/quorum`.

    `log_dir` is the directory that holds `__cluster_metadata-0` and `bootstrap.checkpoint`.

    Invariants:
      I1  the log start is 0, or the end of a complete snapshot in this directory (Q42, rel-Q8).
      I2  no snapshot ends before the log start, and none is ahead of the log end (Q43, Q44).
      I3  `forgotten` is set from the start that finds the damage until the log is complete again, over all
          restarts in between.
    """

    def __init__(
        self,
        fs: Fs,
        log: Log,
        log_dir: str,
        *,
        began_at: int,
        examined: Examined,
        has_peers: bool,
        delete_delay_ms: int,
        keep_recovery_point: Callable[[], None],
    ) -> None:
        """Repair what a stop at any moment leaves; StorageError for log and snapshots of different
        histories."""
        self._keep_recovery_point = keep_recovery_point
        self._fs = fs
        self._log = log
        self._log_dir = log_dir
        self._is_retiring = False
        self._retired: list[tuple[OffsetAndEpoch, str]] = []
        self.damaged = dict(examined.damaged)
        # A log without its beginning, and without a snapshot for it, is kept but not used: the other voters
        # may need it for repair, until a leader shows that they do not.
        self._lost_beginning = log.log_start_offset > max(
            (one.offset for one in examined.sound), default=0
        )
        self._forgotten = self._rename_damaged(examined.sound, has_peers=has_peers)
        self._snapshots = SnapshotStore(
            fs, log.path, examined.sound.values(), delete_delay_ms=delete_delay_ms
        )
        if not self._lost_beginning:
            self._catch_up_with_snapshot()
            self._find_start(began_at)
        self._snapshots.repair(log.log_start_offset)
        self._clear_forgotten()
        if self._forgotten is None:
            remove_damaged(fs, log.path, before_offset=self.start_offset)
        self.damaged_ids: Sequence[OffsetAndEpoch] = damaged_ids(fs, log.path)

    def _rename_damaged(
        self, sound: Iterable[OffsetAndEpoch], *, has_peers: bool
    ) -> OffsetAndEpoch | None:
        """Set damaged snapshots aside. Return the furthest place that this log once reached, as file names
        say."""
        log, path = self._log, self._log.path
        named = once_reached(self._fs, path)
        lost = [*self.damaged, *(() if named is None else (named,))]
        end = OffsetAndEpoch(log.log_end_offset, max(log.epochs.latest_epoch, 0))
        if self._lost_beginning:
            mark_forgotten(self._fs, path, end)
            lost.append(end)
        furthest: OffsetAndEpoch | None = max(lost, default=None, key=_by_epoch)
        if furthest is None:
            return None
        has = max((end, *sound), key=_by_epoch)
        if not has_peers and _by_epoch(furthest) > _by_epoch(has):
            _refuse_damage(path, self.damaged or {furthest: None})
        if self.damaged:
            rename_damaged(self._fs, path, self.damaged)
        return furthest

    def _clear_forgotten(self) -> None:
        """Clear `forgotten` when the log has reached that place again."""
        if self._forgotten is None or self._lost_beginning:
            return
        if (self.last_epoch, self.end_offset) >= _by_epoch(self._forgotten):
            self._forgotten = None
            remove_marks(self._fs, self.path)

    @property
    def forgotten(self) -> OffsetAndEpoch | None:
        """A place that this log once reached durably and has lost since; None if it has all its records."""
        return self._forgotten

    def _catch_up_with_snapshot(self) -> None:
        """Q44: a snapshot ahead of the log replaces it; the node stopped before it did so."""
        newest = self._snapshots.newest_id
        if newest is None:
            return
        log_epoch = max(self._log.epochs.latest_epoch, 0)
        if newest.epoch < log_epoch and newest.offset > self._log.log_end_offset:
            raise StorageError(
                "the metadata log and its newest snapshot are not of one history",
                path=f"{self._log.path}/{snapshot_name(newest)}",
                log_end_offset=self._log.log_end_offset,
                log_epoch=log_epoch,
                remedy=_REMEDY,
            )
        if (newest.epoch, newest.offset) > (log_epoch, self._log.log_end_offset):
            self._log.truncate_fully(newest.offset)

    def _find_start(self, began_at: int) -> None:
        """Raise the log start to where the log began before the stop, as the lineage on disk says."""
        log = self._log
        ends = [snapshot_id.offset for snapshot_id in self._snapshots.ids()]
        if began_at in ends and began_at <= log.log_end_offset:
            if log.advance_log_start(began_at) and _began_at(self._fs, log.path) != began_at:
                log.epochs.write()  # recovery counted the batches below as part of the log
        elif later := [end for end in ends if end >= max(began_at, log.log_start_offset, 1)]:
            # The snapshot at the old start is damaged, or recovery does not know that the log began later.
            if began_at > 0 or log.log_start_offset > 0:
                log.advance_log_start(min(later))
        elif began_at > 0:
            # The snapshot at the new start is damaged, and what was below it is still here.
            self._find_lineage()
            below = [end for end in ends if end >= log.log_start_offset > 0]
            if below:
                log.advance_log_start(min(below))

    def _find_lineage(self) -> None:
        """The whole log is used again from its first record: read the epochs from its batches."""
        log, offset = self._log, self._log.log_start_offset
        entries: list[tuple[int, int]] = []
        while offset < log.log_end_offset:
            for header in headers(log.read_batches(offset, max_bytes=_READ_BYTES)):
                if not entries or entries[-1][0] != header.leader_epoch:
                    entries.append((header.leader_epoch, header.base_offset))
                offset = header.next_offset
        log.epochs.take_over(tuple(entries), log.log_end_offset)

    # -- the log -----------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset of the log, inclusive."""
        return 0 if self._lost_beginning else self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return 0 if self._lost_beginning else self._log.log_end_offset

    @property
    def synced_offset(self) -> int:
        """Everything below is durable."""
        return 0 if self._lost_beginning else self._log.recovery_point

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this log knows."""
        return 0 if self._lost_beginning else self._log.high_watermark

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot at the log start; 0 for neither (Q4)."""
        return last_epoch(self._epochs(), self.end_offset, self.newest_snapshot_id)

    def _epochs(self) -> Sequence[tuple[int, int]]:
        return () if self._lost_beginning else self._log.epochs.entries()

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch that is at most `epoch`, and its end offset, exclusive (spec 1.7, 4)."""
        return end_offset_for(
            epoch,
            epochs=self._epochs(),
            end_offset=self.end_offset,
            newest_snapshot_id=self.newest_snapshot_id,
            earliest_snapshot_id=self.earliest_snapshot_id,
        )

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Append one batch of the leader on this node; return its base offset."""
        assert self._forgotten is None, "a voter that lost records does not lead"
        outcome = self._log.append_as_leader(
            batch, leader_epoch=epoch, now_ms=now_ms, origin="coordinator"
        )
        if isinstance(outcome, KafkaError):
            raise StorageError("the metadata log refused a batch of ours", problem=outcome)
        return outcome.base_offset

    def append_fetched(self, data: bytes, *, now_ms: int) -> KafkaError | None:
        """Append complete batches of a leader unchanged; an incomplete one at the end is left out.

        CORRUPT_MESSAGE, and nothing is written, for damage, a gap, an epoch that falls back, or no batch.
        """
        if not data:
            return None
        problem = self._check_fetched(data)
        if problem is not None:
            return problem
        assert not self._lost_beginning, "the rest of the log is removed first"
        # `raft/follower` has checked that no batch is of a later epoch than the leader's.
        outcome = self._log.append_as_follower(data, leader_epoch=INT32_MAX, now_ms=now_ms)
        return _corrupt(outcome) if isinstance(outcome, KafkaError) else None

    def _check_fetched(self, data: bytes) -> KafkaError | None:
        """Do the headers continue the log? The log itself checks the CRCs before it writes."""
        expected, epoch = self.end_offset, self.last_epoch
        try:
            for header in headers(data):
                if header.base_offset != expected:
                    return KafkaError(
                        Code.CORRUPT_MESSAGE,
                        "the leader sent batches that leave a gap",
                        base_offset=header.base_offset,
                        log_end_offset=expected,
                    )
                if header.leader_epoch < epoch:
                    return KafkaError(
                        Code.CORRUPT_MESSAGE,
                        "the leader sent batches whose epoch falls back",
                        base_offset=header.base_offset,
                        epoch=header.leader_epoch,
                    )
                expected, epoch = header.next_offset, header.leader_epoch
        except KafkaError as damage:
            return _corrupt(damage)
        return None

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Return complete batches from the one with `start_offset` on; at least one; none at the end."""
        return (
            b""
            if self._lost_beginning
            else self._log.read_batches(start_offset, max_bytes=max_bytes)
        )

    @property
    def lost_beginning(self) -> bool:
        """Is the beginning of the log lost, so that no record counts?"""
        return self._lost_beginning

    def truncate_to(self, offset: int, then: SaveCallback, now_ms: int) -> Effects:
        """Remove everything from `offset` on, off the event loop; then call `then(problem or None,
        now_ms)`."""
        assert offset >= self.start_offset, "the content of a snapshot is committed"
        if self._lost_beginning:
            assert offset == 0, "a log without its beginning is removed as a whole"
            anew = self._log.beginning_at(0, now_ms=now_ms)
            return anew.run(then, now_ms, when_begun=self._began_anew)
        truncation = self._log.truncation_to(offset)
        return then(None, now_ms) if truncation is None else truncation.run(then, now_ms)

    def _began_anew(self, now_ms: int) -> Effects:
        self._lost_beginning = False
        return []

    def unsynced(self) -> Sequence[File]:
        """The files that a sync must cover."""
        return self._log.dirty_files()

    def synced(self, end_offset: int) -> None:
        """Note that everything below `end_offset` is durable."""
        self._log.flushed(end_offset)
        if self._forgotten is not None and self.synced_offset >= self.end_offset:
            self._clear_forgotten()

    def advance_high_watermark(self, offset: int) -> None:
        """Note that everything below `offset` is committed."""
        self._log.advance_high_watermark(offset)

    @property
    def size_bytes(self) -> int:
        """The bytes of the log's segments, without snapshots.

        Segments before the log start do not count: retention by size would remove every snapshot because of
        them.
        """
        log = self._log
        return log.bytes_from(log.log_start_offset)

    # -- snapshots ---------------------------------------------------------------------------------

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot except 0-0; None for none."""
        return self._snapshots.newest_id

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest complete snapshot except 0-0; None for none."""
        return self._snapshots.earliest_id

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> OpenSnapshot | None:
        """Open a snapshot for reading; None if it does not exist, or is 0-0."""
        return self._snapshots.open(snapshot_id)

    def snapshot_sizes(self) -> Sequence[tuple[OffsetAndEpoch, int, int]]:
        """Id, size and last contained log time in ms of each snapshot, oldest first."""
        return self._snapshots.facts()

    def start_part(self, snapshot_id: OffsetAndEpoch) -> PartFile:
        """Begin to write a snapshot, a leader's or our own."""
        return self._snapshots.start_part(snapshot_id)

    def give_name(self, part: SnapshotPart) -> File:
        """Rename a complete and synced part of our own; return what the caller must sync next."""
        assert isinstance(part, PartFile)
        return self._snapshots.give_name(part)

    def register(self, part: SnapshotPart) -> None:
        """Our own snapshot has its durable name: serve it, and clean up to it, from now on.

        It is removed if a newer snapshot of the leader has raised the log start beyond it.
        """
        if part.snapshot_id.offset < self.start_offset:
            self.withdraw(part)
        else:
            assert isinstance(part, PartFile)
            self._snapshots.register(part)
            # This voter acknowledged what is synced: after a crash, damage in it is no torn tail (rel-P5).
            self._keep_recovery_point()

    def withdraw(self, part: SnapshotPart) -> None:
        """Remove a part that was renamed, unless a registered snapshot has that name."""
        if part.snapshot_id not in self._snapshots.ids():
            self._snapshots.forget(part.snapshot_id)

    def install(
        self, part: SnapshotPart, begun: Callable[[int], Effects], then: SaveCallback, now_ms: int
    ) -> Effects:
        """Replace the log with a complete and synced part of a leader, off the event loop (Q37).

        The next start repairs a stop at any moment in between: it finds either no snapshot of that name, or
        one that is ahead of the log (Q44, X13).
        """
        assert isinstance(part, PartFile)
        log, snapshots = self._log, self._snapshots

        def named(problem: StorageError | None, at_ms: int) -> Effects:
            if problem is not None:
                return then(problem, at_ms)
            anew = log.beginning_at(part.snapshot_id.offset, now_ms=at_ms)
            return anew.run(installed, at_ms, when_begun=replaced)

        def replaced(at_ms: int) -> Effects:
            self._lost_beginning = False
            snapshots.register(part)
            # The next start uses the new snapshot, whatever is left of the log and of older ones.
            return snapshots.retire_before(self.start_offset, now_ms=at_ms) + begun(at_ms)

        def installed(problem: StorageError | None, at_ms: int) -> Effects:
            if problem is None:
                self._clear_forgotten()
            return then(problem, at_ms)

        return [Flush(files=[snapshots.give_name(part)], then=named)]

    def retire_snapshots(self, new_start_offset: int, *, now_ms: int) -> Effects:
        """Raise the log start to the end of a snapshot, and remove everything before it (Q40-Q42)."""
        ends = [snapshot_id.offset for snapshot_id in self._snapshots.ids()]
        assert new_start_offset in ends, "a log starts where a snapshot ends (X15)"
        if not self._log.advance_log_start(new_start_offset):
            return []
        self._retired += self._snapshots.take_before(new_start_offset)
        if self._is_retiring:
            return []  # the retirement under way goes on to this start
        self._is_retiring = True
        return self._retire(now_ms)

    def _retire(self, now_ms: int) -> Effects:
        """Remove everything before the log start when that start is durable.

        So the next start begins here too, or finds everything that was here (rel-Q14). The sync covers the
        rest of the log as well, off the event loop.
        """
        log = self._log
        if log.epochs.is_start_kept:
            self._is_retiring = False
            retired, self._retired = self._retired, []
            effects = self._snapshots.mark_deleted(retired, self.start_offset, now_ms=now_ms)
            return effects + log.delete_due_segments(now_ms)
        log.epochs.keep_start()
        files, end_offset = log.dirty_files(), log.log_end_offset
        if not files:  # the log is being truncated, or begins anew
            key = ("retire-snapshots", log.path)
            return [SetTimer(key=key, at_ms=now_ms + _RETIRE_AGAIN_MS, then=self._retire)]

        def synced(problem: StorageError | None, at_ms: int) -> Effects:
            if problem is not None:
                raise problem
            self.synced(end_offset)
            return self._retire(at_ms)

        return [Flush(files=files, then=synced)]

    # -- start and end -----------------------------------------------------------------------------

    def bootstrap_records(self) -> Sequence[Message]:
        """The records that `storage format` wrote to `bootstrap.checkpoint`."""
        path = f"{self._log_dir}/{BOOTSTRAP}"
        if not self._fs.exists(path):
            raise ConfigError(
                f"{self._log_dir} has neither metadata nor {BOOTSTRAP}: format it first, with"
                " `firnline storage format`"
            )
        return read_snapshot(self._fs, path).records

    def close(self) -> None:
        """Sync and close the log, so that the next start has nothing to recover."""
        self._log.close()

    @property
    def path(self) -> str:
        """The directory of the log and its snapshots."""
        return self._log.path

    @property
    def log(self) -> Log:
        """The partition log below, for the checkpoints and retention of the log directory."""
        return self._log


def refuse_lost_beginning(fs: Fs, path: str, examined: Examined, *, has_peers: bool) -> None:
    """Q43: refuse a log whose beginning no snapshot holds, before anything is changed (X13).

    If the reason is damage and there are other nodes, the beginning is fetched from them.
    """
    found = [names.parse_segment_file(name) for name in fs.list_dir(path)]
    bases = [pair[0] for pair in found if pair is not None and pair[1] == names.LOG]
    start_offset = min(bases, default=0)
    newest = max((one.offset for one in examined.sound), default=0)
    if newest >= start_offset:
        return
    damaged = [*examined.damaged, *damaged_ids(fs, path)]
    if max((one.offset for one in damaged), default=0) < start_offset:
        raise StorageError(
            "the metadata log starts after 0 and no snapshot holds what was before",
            path=path,
            start_offset=start_offset,
            newest_snapshot_offset=newest,
            remedy=_REMEDY,
        )
    if not has_peers:
        _refuse_damage(path, examined.damaged or dict.fromkeys(damaged))


def _refuse_damage(path: str, damaged: Mapping[OffsetAndEpoch, KafkaError | None]) -> NoReturn:
    """No file here has what a damaged snapshot held, and there is no other node to fetch it from."""
    newest = max(damaged, key=_by_epoch)
    raise StorageError(
        "a snapshot of the metadata is damaged, and neither an older one nor the log replaces it",
        path=f"{path}/{snapshot_name(newest)}",
        problem=damaged[newest],
        remedy=_REMEDY,
    )


def _by_epoch(place: OffsetAndEpoch) -> tuple[int, int]:
    """The order of places in the log: by epoch, then by offset (Q3)."""
    return place.epoch, place.offset


def _refuse_bootstrap_voters(fs: Fs, path: str) -> None:
    """Refuse a quorum whose voters `kafka-storage format` wrote to the snapshot 0-0 (Q12, KIP-853)."""
    name = stored_names(fs, path).get(OffsetAndEpoch(0, 0))
    if name is not None:
        refuse_dynamic_voters(read_snapshot(fs, f"{path}/{name}").kraft_version)


def _corrupt(problem: KafkaError) -> KafkaError:
    return KafkaError(Code.CORRUPT_MESSAGE, problem.why, **problem.facts)
