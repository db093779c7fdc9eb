"""The log directories of a node: placement of partitions, periodic jobs, and failures. PURE.

Retention, syncs of records that no request waited for, and checkpoints run on timers. Syncs run in the disk
pool. Checkpoint files are written there, too, and renamed on the loop, so that an older state never replaces
a newer one. After a failure of one of its files a directory is offline until the next start; without any
directory the node stops. Source: rel-P4 to P9; spec T12-T16; reliability d 83-85; KIP-858.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, NoReturn

from firnline.base.background import Background
from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import SYNC_THREADS, Effects, SetTimer, Submit, with_cause
from firnline.base.errors import Code, KafkaError, SegmentDamaged, StorageError
from firnline.base.ids import TopicPartition, Uuid
from firnline.base.log_lines.storage import LOG_DIRECTORY_FAILED
from firnline.base.open_files import closing
from firnline.base.ports import EnoughFiles, File, Fs, LogFiles
from firnline.base.units import INT64_MAX
from firnline.base.waits import At, Wait
from firnline.config.broker import ALL_DIRECTORIES, BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log.checkpoint import DirectoryGone
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.producer_state import ProducerTable
from firnline.log.truncation import Kept
from firnline.replica.directories import rename_strays, stray_warnings, where_it_lies
from firnline.replica.hosted import HostedPartitions, Permits, Sweep
from firnline.replica.opening import SLICE, sync_in_pool
from firnline.replica.partition import Partition

# The maximum delay of a sync by flush.ms.
_FLUSH_CHECK_MS = 1000
# Closed segments of one log that may wait for a sync; listing the files of each takes 15 us.
_UNSYNCED_MAX = 50
# Logs that are examined in one step, which takes some milliseconds.
_CHECKED = 500
# Logs of a failed directory that are closed in one step, which takes about 1 ms.
_CLOSED = 100
# Logs that are synced at a time while no request waits. Each holds its files open until then: a sixteenth of
# 1,024 descriptors, twice that after a new epoch. It is enough to occupy the threads of the pool.
_SYNCS_MAX = 8 * SYNC_THREADS

_Place = tuple[LogDirectory, Log]
# Yields the directory of the log first.
PlacedSteps = Generator[At | Wait | None, None, Log]
# Takes a partition, a callback for a failure of its files, and the time.
_Work = Callable[[Partition, Callable[[Partition, int], Effects], int], Effects]
_DiskFailed = Callable[[StorageError, int], Effects]


class _Settling(NamedTuple):
    """A log that is being synced for the last time; `report` is called after the success."""

    directory: LogDirectory
    log: Log
    report: Callable[[], None]


class DirectoryReport(NamedTuple):
    """One directory. The bytes of its volume are -1 if they cannot be determined."""

    path: str
    code: Code
    logs: tuple[Log, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class Storage:
    """All entries of `log.dirs` of one node. Their locks are held.

    cordoned()          the present value of cordoned.log.dirs, which is dynamic
    is_failure_known()  whether the controller can learn of a failed directory, and elects other leaders
    files               tells whether a file may be opened for a log that is not open yet
    aging               by which time records and producers age

    Invariant: every hosted partition's log is in the `logs` of exactly one directory.
    """

    def __init__(
        self,
        fs: Fs,
        config: BrokerConfig,
        directories: Sequence[LogDirectory],
        producers: ProducerTable,
        *,
        cordoned: Callable[[], Sequence[str]],
        is_failure_known: Callable[[], bool],
        files: LogFiles | None = None,
        aging: Aging = NOT_DOUBTED,
    ) -> None:
        self._config, self._fs, self.aging = config, fs, aging
        self.directories, self.producers = directories, producers
        self._cordoned, self._is_failure_known = cordoned, is_failure_known
        self._files: LogFiles = EnoughFiles() if files is None else files
        self.offline: dict[str, StorageError] = {}  # by path: why a directory has failed
        self._damaged: dict[str, None] = {}  # directories with a replica that was found damaged
        # The directory that an operator has chosen for a replica that does not exist yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._opening: dict[TopicPartition, LogDirectory] = {}
        room = max(SYNC_THREADS, _SYNCS_MAX // len(self.directories))
        # By the path of a directory: the permits for syncs of its logs.
        self._syncs = {d: Permits(f"storage syncs {d.path}", room) for d in self.directories}
        self._synced_ms: dict[str, int] = {}  # the last sync of logs with flush.ms
        self._is_settling = False  # the last syncs run: no more jobs

    def had_records(self, name: TopicPartition) -> bool | None:
        """Whether a replica on this node had records at the last stop; None: it was never here."""
        had_some = any(name in d.vanished or d.recovery_point(name) for d in self.directories)
        return had_some or (False if any(d.had(name) for d in self.directories) else None)

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        return tuple(directory.directory_id for directory in self.directories)

    def healthy_paths(self) -> list[str]:
        """The paths of the directories that have not failed since the start."""
        return [d.path for d in self.directories if d.path not in self.offline]

    @property
    def failed_directories(self) -> tuple[Uuid, ...]:
        """The ids of the directories that have failed since the start."""
        return tuple(d.directory_id for d in self.directories if d.path in self.offline)

    @property
    def cordoned_directories(self) -> tuple[Uuid, ...]:
        """The ids of the directories that take no new replicas. KIP-1066."""
        named = self._cordoned()
        return tuple(
            d.directory_id for d in self.directories if d.path in named or ALL_DIRECTORIES in named
        )

    def directory_of(self, log: Log) -> Uuid | None:
        """The id of a log's directory; None if that has failed."""
        directory = self._directory_of(log)
        return None if directory.path in self.offline else directory.directory_id

    # ------------------------------------------------------------------------ opening, dropping

    def open_steps(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        may_make: bool = True,
    ) -> PlacedSteps:
        """Open a partition's log in its directory; create a new one in the directory with the fewest.

        Yields the directory before any I/O in it, then after each slice of a recovery. Returns the log, which
        may be served once its `unsynced` files are synced. StorageError if the metadata has the replica in a
        failed directory, or has no directory for it and it was in one that has failed: its records may be
        there, and an empty replica must not replace them.

        directory_id  the replica's directory in the metadata: a new log is created there, if this node has it
        may_make      False if it had records, and no other is in sync: only its own files will do
        """
        healthy = [d for d in self.directories if d.path not in self.offline]
        if not healthy:
            raise StorageError("every log directory failed")
        if not self._files.has_room():  # the remaining descriptors are for open logs
            raise StorageError(
                "no more files can be opened",
                error="EMFILE",
                remedy="raise the limit of open files (ulimit -n, LimitNOFILE), or delete topics",
            )
        present = where_it_lies(self._fs, healthy, topic_partition, topic_id, directory_id)
        failed = [d for d in self.directories if d.path in self.offline]
        had = any(d.had(topic_partition) for d in failed)
        is_named = any(d.directory_id == directory_id for d in present)
        if any(d.directory_id == directory_id for d in failed) or (had and not is_named):
            raise StorageError("the log directory of this replica failed")
        if not present and not may_make:
            raise StorageError(
                "its directory is missing, and no other replica is in sync",
                remedy="stop this broker, put the directory back, repaired, and start it; or create an empty"
                " one of that name: then acknowledged records are lost",
            )
        wanted = self._preferred.get(topic_partition)
        present = present or [d for d in healthy if d.path == wanted]
        present = present or [d for d in healthy if d.directory_id == directory_id]
        if present:
            return (yield from self._open_in(present[0], topic_partition, topic_id, config, now_ms))
        cordoned = self.cordoned_directories
        # A manual assignment may have chosen this broker although all its directories are cordoned.
        free = [d for d in healthy if d.directory_id not in cordoned] or healthy
        chosen = min(free, key=self._count_in)
        return (yield from self._open_in(chosen, topic_partition, topic_id, config, now_ms))

    def _count_in(self, directory: LogDirectory) -> int:
        """The number of partitions in a directory, with those that are being created."""
        made = [tp for tp, where in self._opening.items() if where is directory]
        return directory.partition_count + sum(not directory.had(tp) for tp in made)

    def _open_in(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: int,
    ) -> PlacedSteps:
        """Open a log in a directory. Files that an operator moves away meanwhile are no disk failure."""
        yield At(directory.path)
        self._preferred.pop(topic_partition, None)
        self._opening[topic_partition] = directory
        try:
            return (yield from directory.open_steps(topic_partition, topic_id, config, now_ms))
        except StorageError as problem:
            path = directory.partition_path(topic_partition)
            is_gone = problem.facts.get("error") == "ENOENT" and not self._fs.exists(path)
            if is_gone and self._fs.exists(directory.path):
                raise StorageError(
                    "its directory was moved away while it was opened", path=path, error="EAGAIN"
                ) from problem
            raise
        finally:
            del self._opening[topic_partition]

    def prefer(self, topic_partition: TopicPartition, path: str) -> Code:
        """Choose the directory of a replica that does not exist yet; an existing one does not move.

        Returns the code of Kafka's AlterReplicaLogDirs; OPERATION_NOT_ATTEMPTED where Kafka would move it.
        """
        if all(directory.path != path for directory in self.directories):
            return Code.LOG_DIR_NOT_FOUND
        if path in self.offline:
            return Code.KAFKA_STORAGE_ERROR
        making = self._opening.get(topic_partition)
        holders = [d for d in self.directories if d is making or d.had(topic_partition)]
        if not holders:
            self._preferred[topic_partition] = path
            return Code.REPLICA_NOT_AVAILABLE
        return Code.NONE if holders[0].path == path else Code.OPERATION_NOT_ATTEMPTED

    def describe(self) -> list[DirectoryReport]:
        """Return the logs of each directory, and the size and free bytes of its volume."""
        cordoned = self.cordoned_directories
        reports = []
        for directory in self.directories:
            path = directory.path
            if path in self.offline:
                reports.append(DirectoryReport(path, Code.KAFKA_STORAGE_ERROR))
                continue
            try:
                total_bytes, usable_bytes = self._fs.volume_bytes(path)
            except StorageError:
                total_bytes = usable_bytes = -1
            logs = tuple(directory.logs.values())
            is_cordoned = directory.directory_id in cordoned
            reports.append(
                DirectoryReport(path, Code.NONE, logs, total_bytes, usable_bytes, is_cordoned)
            )
        return reports

    def unsynced(self, log: Log) -> list[File]:
        """Return, once, the files to sync before an opened log is served."""
        return self._directory_of(log).unsynced(log)

    def still_unsynced(self, log: Log, files: Sequence[File]) -> None:
        """Let `close` sync these files of a log that is not served yet."""
        self._directory_of(log).still_unsynced(log, files)

    def let_go(self, log: Log) -> Effects:
        """Stop serving a log that could not be synced; its files stay."""
        directory = self._directory_of(log)
        if log.log_end_offset == 0:  # an empty log may as well be in another directory
            directory.is_gone(log.topic_partition)
        return directory.let_go(log)

    def drop(self, log: Log, now_ms: int) -> Effects:
        """Delete a log. If its directory has failed, the next start deletes it."""
        self._synced_ms.pop(log.path, None)
        directory = self._directory_of(log)
        if directory.path in self.offline:
            directory.is_gone(log.topic_partition)
            return []
        return directory.drop(log, now_ms)

    def drop_unopened(
        self, topic_partition: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> Effects:
        """Delete the files of an unopened partition that this node does not have any more.

        The files of another topic of that name stay. StorageError: nothing was done; retry later.
        """
        effects: Effects = []
        for directory in self.directories:
            path = directory.partition_path(topic_partition)
            if directory.path in self.offline:
                directory.is_gone(topic_partition)
                continue
            if not self._fs.exists(path):
                continue
            owner = directory.owner(path)
            # A directory without topic id and log was being created when the disk failed.
            is_begun = (
                owner is None
                and topic_partition not in self._opening
                and not any(name.endswith(names.LOG) for name in self._fs.list_dir(path))
            )
            if topic_partition not in directory.logs and (owner == topic_id or is_begun):
                effects += directory.mark_deleted(topic_partition, now_ms)
        return effects

    def keep_log_starts(
        self, logs: Sequence[Log], then: Callable[[list[Log], int], Effects], now_ms: int
    ) -> Effects:
        """Write and sync the log start offsets of `logs`, so that deleted records do not come back.

        Calls `then(logs, now_ms)` with the logs of directories where that failed; the others survive a power
        cut then.
        """
        places = {log.path: self._directory_of(log) for log in logs}
        waiting = {directory.path: directory for directory in places.values()}
        failed: dict[str, None] = {}

        def kept(path: str, problem: Exception | None, at_ms: int) -> Effects:
            del waiting[path]
            if problem is not None:
                failed[path] = None
            if waiting:
                return []
            return then([log for log in logs if places[log.path].path in failed], at_ms)

        if not waiting:
            return then([], now_ms)
        effects: Effects = []
        for directory in list(waiting.values()):
            effects += directory.keep_log_starts(partial(kept, directory.path))
        return effects

    @property
    def is_settling(self) -> bool:
        """Whether the last syncs are running: nothing may change any more."""
        return self._is_settling

    def keep_for_compaction(self, log: Log, then: Kept) -> Effects:
        """Write and sync the facts about a log that its recovery needs, before the log is compacted."""
        return self._directory_of(log).keep_for_compaction(log, then)

    def _holds(self, log: Log) -> bool:
        return any(d.logs.get(log.topic_partition) is log for d in self.directories)

    def _directory_of(self, log: Log) -> LogDirectory:
        found = [d for d in self.directories if d.logs.get(log.topic_partition) is log]
        assert len(found) == 1, "a log is in one directory"
        return found[0]

    def rename_strays(
        self, is_known: Callable[[Uuid], bool], is_here: Callable[[Uuid, int], bool], now_ms: int
    ) -> Effects:
        """See `replica/directories`."""
        healthy = [d for d in self.directories if d.path not in self.offline]
        work = rename_strays(self._fs, healthy, self._stays, is_known, is_here)
        return Background("storage: strays").begin(work, now_ms)

    def _stays(self, directory: LogDirectory, found: TopicPartition) -> bool:
        return found in self._opening or self._is_settling or directory.path in self.offline

    # -------------------------------------------------------------------------------- failures

    def on_failure(self, hosted: HostedPartitions, partition: Partition, now_ms: int) -> Effects:
        """A partition's files failed: its directory is offline from here on (rel-P9).

        As in Kafka, the node stops without its last directory, and without that of the metadata log. It also
        stops if the controller does not know its directories: otherwise it would remain the leader of
        partitions that it cannot serve. A sync that fails because its log has been deleted meanwhile is no
        failure.
        """
        if not self._holds(partition.log):
            return []
        cause = {"cause": partition.failed_by} if partition.failed_by else {}
        return self._fail(self._directory_of(partition.log), hosted, now_ms, **cause)

    def leave_out(self, log: Log) -> bool:
        """Serve a damaged log no more; False if the controller cannot be told: then its directory fails."""
        if not (self._is_failure_known() and self._holds(log)):
            return False
        self._damaged[self._directory_of(log).path] = None
        return True

    def on_refusal(self, hosted: HostedPartitions, said: StorageError, now_ms: int) -> Effects:
        """A disk failed while a log was opened or synced; the error has the path (rel-P9)."""
        if said.has_lost_nothing:
            return []  # the error is not from the disk
        found = self._directory_at(said)
        return [] if found is None else self._fail(found, hosted, now_ms, cause=str(said))

    def is_unmade(self, topic_partition: TopicPartition, said: StorageError) -> bool:
        """Whether a new replica could not be created in the directory of `said`, and another may take it.

        It has never been served, so the failed directory has no records of it. False if the node stops with
        that directory.
        """
        failed = self._directory_at(said)
        if failed is None or failed.path not in self.offline or self._stops_with(failed):
            return False
        return not any(directory.had(topic_partition) for directory in self.directories)

    def _directory_at(self, said: StorageError) -> LogDirectory | None:
        """The directory of a disk error; None for an error elsewhere."""
        path = f"{said.facts.get('path', '')}/"
        found = [d for d in self.directories if path.startswith(f"{d.path}/")]
        return max(found, key=lambda d: len(d.path)) if found else None

    def _stops_with(self, failed: LogDirectory) -> bool:
        is_last = len(self.offline) == len(self.directories)
        is_metadata = failed.path == self._config.metadata_directory
        return is_last or is_metadata or not self._is_failure_known()

    def _fail(
        self, directory: LogDirectory, hosted: HostedPartitions, now_ms: int, **cause: str
    ) -> Effects:
        """Take a directory offline. `cause` is the disk's error, unless the operator knows it."""
        if directory.path in self.offline:
            return []
        problem = StorageError(LOG_DIRECTORY_FAILED.message, path=directory.path, **cause)
        self.offline[directory.path] = problem
        effects: Effects = [LOG_DIRECTORY_FAILED(path=directory.path, **cause)]
        for other in hosted:
            if directory.logs.get(other.topic_partition) is other.log:
                other.go_offline()
                effects += other.release_all(now_ms)
        # One task for each directory: another may fail meanwhile.
        closing_logs = Background(f"storage: close {directory.path}")
        effects += closing_logs.begin(_close_logs(directory), now_ms)
        if self._stops_with(directory):
            # Waiting requests are answered first.
            effects.append(
                SetTimer(key=("storage", "failed"), at_ms=now_ms, then=partial(_stop, problem))
            )
        return effects

    # ------------------------------------------------------------------------------------ jobs

    def run_jobs(
        self,
        hosted: HostedPartitions,
        on_failure: Callable[[Partition, int], Effects],
        disk_failed: _DiskFailed,
        now_ms: int,
    ) -> Effects:
        """Start the periodic jobs, in slices of partitions; each sets its own next timer."""
        config = self._config
        local_ms = config.firnline_local_retention_check_interval_ms
        sync_ms = config.log_flush_offset_checkpoint_interval_ms
        expire_ms = config.producer_id_expiration_check_interval_ms
        jobs: tuple[tuple[str, int, _Work], ...] = (
            *((("local retention", local_ms, self._retain_local),) if local_ms else ()),
            ("retention", config.log_retention_check_interval_ms, self._retain),
            ("producers", expire_ms, self._expire_producers),
        )
        syncs = (("sync", sync_ms, self._sync_one), ("flush.ms", _FLUSH_CHECK_MS, self._sync_due))
        effects: Effects = []
        for name, interval_ms, work in jobs:
            sweep = Sweep(name, hosted, partial(self._work, work, on_failure))
            effects.append(_job(name, interval_ms, sweep, now_ms))
        for name, interval_ms, work in syncs:
            do = partial(self._work, work, on_failure)
            rooms = self._syncs.items()
            sweeps = [Sweep(f"{name} {d.path}", hosted, do, room, d.logs) for d, room in rooms]
            effects.append(_job(name, interval_ms, partial(_all, sweeps), now_ms))
        interval_ms = config.replica_high_watermark_checkpoint_interval_ms
        write = partial(self._checkpoint, disk_failed)
        return [*effects, _job("checkpoint", interval_ms, write, now_ms)]

    def _work(
        self,
        work: _Work,
        on_failure: Callable[[Partition, int], Effects],
        partition: Partition,
        now_ms: int,
    ) -> Effects:
        """Run one job for one partition."""
        if partition.is_offline or self._is_settling:
            return []
        try:
            return work(partition, on_failure, now_ms)
        except StorageError as problem:
            if isinstance(problem, SegmentDamaged):
                partition.go_offline(problem)
            # The next round retries a passing error; the disk has warned the operator.
            return [] if problem.is_passing else with_cause(problem, on_failure(partition, now_ms))

    def _retain(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Remove the segments from the log that retention deletes (T12-T16)."""
        return partition.log.delete_due_segments(now_ms, self.aging)

    def _retain_local(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Remove local segments that the tier has; the log start offset stays."""
        log = partition.log
        if not log.is_tiered or log.config.remote_log_copy_disable:
            return []
        return self._retain(partition, on_failure, now_ms)

    def _sync_due(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Sync a log whose flush.ms has passed, and one with many unsynced segments."""
        if partition.log.unsynced_segments >= _UNSYNCED_MAX:
            return self._sync_one(partition, on_failure, now_ms)
        flush_ms = partition.log.config.flush_ms
        if flush_ms == INT64_MAX:
            return []
        path = partition.log.path
        if now_ms - self._synced_ms.get(path, 0) < flush_ms:
            return []
        self._synced_ms[path] = now_ms
        return self._sync_one(partition, on_failure, now_ms)

    def _sync_one(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Sync records that no request waited for, which bounds the scan after a crash (rel-P5)."""
        log = partition.log
        room = self._syncs[self._directory_of(log)]
        if log.path in room:
            return []
        files = list(log.dirty_files())
        if not files:
            return []
        room.take(log.path)
        return [
            Submit(
                name=f"sync {partition.topic_partition}",
                pool="disk",
                path=log.path,
                work=partial(_sync_files, files),
                then=partial(self._synced, room, partition, log.log_end_offset, on_failure),
            )
        ]

    def _synced(
        self,
        room: Permits,
        partition: Partition,
        end_offset: int,
        on_failure: Callable[[Partition, int], Effects],
        result: Exception | None,
        now_ms: int,
    ) -> Effects:
        later_ms = _FLUSH_CHECK_MS if isinstance(result, KafkaError) else 0  # the pool is full
        effects = room.give_back(partition.log.path, now_ms + later_ms)
        if not isinstance(result, Exception):
            try:
                partition.log.flushed(end_offset)
            except StorageError as problem:
                result = None if problem.is_passing else problem
        if not isinstance(result, StorageError) or result.has_lost_nothing or partition.is_offline:
            return effects
        return effects + with_cause(result, on_failure(partition, now_ms))

    def _checkpoint(self, disk_failed: _DiskFailed, now_ms: int) -> Effects:
        """Write recovery points, log starts and high watermarks of each directory (rel-P6)."""
        effects: Effects = []
        for directory in self.directories:
            if isinstance(directory.refused, DirectoryGone):
                effects += disk_failed(directory.refused, now_ms)
            if directory.path not in self.offline and not self._is_settling:
                effects += directory.checkpoint_later(now_ms) + stray_warnings(directory)
        return effects

    def _expire_producers(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Remove the state of producers that have been idle for producer.id.expiration.ms."""
        age_ms = self.aging.time_ms(now_ms)
        partition.log.producers.expire(age_ms, self._config.producer_id_expiration_ms)
        return []

    # ------------------------------------------------------------------------------------- end

    def settle(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Write and sync every log for a clean stop, off the loop; then call `then(now_ms)`.

        This node leads nothing any more. A log without changes since its last clean stop is only examined.
        """
        self._is_settling = True
        for directory in self.directories:
            for log in directory.logs.values():
                if log.truncation is not None and directory.path not in self.offline:
                    return log.after_truncation(partial(self.settle, then), now_ms)
        logs = [
            (directory, log)
            for directory in self.directories
            if directory.path not in self.offline
            for log in directory.logs.values()
        ]
        return self._settle([], iter(logs), then, now_ms)

    def _settle(
        self,
        again: list[_Place],
        rest: Iterator[_Place],
        then: Callable[[int], Effects],
        now_ms: int,
    ) -> Effects:
        """Run one slice: the logs whose syncs are not over, and some more."""
        needs: list[tuple[_Settling, list[File]]] = []
        for checked, (directory, log) in enumerate(chain(again, rest), 1):
            report: Callable[[], None] = partial(log.flushed, log.log_end_offset)
            try:
                files = log.dirty_files()
                if not files:
                    files, report = log.closing_files(), log.closed
            except StorageError as problem:
                self.offline.setdefault(directory.path, problem)
                continue
            if files:
                needs.append((_Settling(directory, log, report), files))
            if checked >= _CHECKED or len(needs) >= SLICE:
                break
        else:
            if not needs:
                return then(now_ms)
        if needs:
            return sync_in_pool("close logs", needs, partial(self._settled, rest, then))
        timer = partial(self._settle, [], rest, then)
        return [SetTimer(key=("storage", "settle"), at_ms=now_ms, then=timer)]

    def _settled(
        self,
        rest: Iterator[_Place],
        then: Callable[[int], Effects],
        results: list[tuple[_Settling, StorageError | None]],
        now_ms: int,
    ) -> Effects:
        again: list[_Place] = []
        for (directory, log, report), problem in results:
            failure = problem
            if failure is None:
                try:
                    report()
                except StorageError as refused:  # the leader epoch checkpoint could not be renamed
                    failure = refused
            if failure is None:
                again.append((directory, log))
            else:
                self.offline.setdefault(directory.path, failure)
        return self._settle(again, rest, then, now_ms)

    def close(self, broker_epoch: int) -> None:
        """Sync and close every log, then write the marker of a clean stop (rel-P7).

        A directory that failed, or has a damaged log, gets no marker: its next start recovers the logs.
        """
        for directory in self.directories:
            try:
                if directory.path not in self._damaged.keys() | self.offline.keys():
                    directory.close(broker_epoch)
                    continue
            except StorageError as problem:
                self.offline[directory.path] = problem
            directory.abandon()


def _all(sweeps: Sequence[Sweep], now_ms: int) -> Effects:
    return [effect for sweep in sweeps for effect in sweep(now_ms)]


def _job(name: str, interval_ms: int, work: Callable[[int], Effects], now_ms: int) -> SetTimer:
    """Return a timer that calls `work` and sets itself again."""

    def run(at_ms: int) -> Effects:
        return [*work(at_ms), _job(name, interval_ms, work, at_ms)]

    return SetTimer(key=("storage", name), at_ms=now_ms + interval_ms, then=run)


def _close_logs(directory: LogDirectory) -> Generator[Effects, int, None]:
    """Close the files of a failed directory, in slices of some logs."""
    yield []
    rest = iter(list(directory.logs.values()))
    while some := list(islice(rest, _CLOSED)):
        # A thread uses the files of a log that is being truncated.
        files = [file for log in some if log.truncation is None for file in log.give_up()]
        yield closing(some[0].path, files)


def _sync_files(files: Sequence[File]) -> None:
    for file in files:
        file.sync()


def _stop(problem: StorageError, now_ms: int) -> NoReturn:
    raise problem
