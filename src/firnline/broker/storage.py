"""The node's log directories: where a partition goes, what runs now and then, what a failure means. PURE.

Retention, the sync of what was only written, and checkpoints run on timers. Syncs of files run in the
disk pool; small checkpoint files are written there too and take their names on the loop, so that no
older state ever replaces a newer one. A directory whose files failed is offline for this run; with the
last one the node stops. Source: rel-P4 to P9; spec T12-T16; reliability d 83-85; KIP-858.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, NoReturn

from firnline.base.background import Background
from firnline.base.effects import SYNC_THREADS, Effects, SetTimer, Submit, Warn, with_cause
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import TopicPartition, Uuid
from firnline.base.open_files import closing
from firnline.base.ports import EnoughFiles, File, Fs, LogFiles
from firnline.base.units import INT64_MAX
from firnline.base.waits import At, Wait
from firnline.config.broker import ALL_DIRECTORIES, BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.producer_state import ProducerTable
from firnline.log.truncation import Kept
from firnline.replica.directories import put_strays_aside, told_of_strays, where_it_lies
from firnline.replica.hosted import HostedPartitions, Permits, Sweep
from firnline.replica.opening import SLICE, sync_in_pool
from firnline.replica.partition import Partition

# How late a sync by flush.ms may be.
_FLUSH_CHECK_MS = 1000
# Closed segments of a log that wait for the next sync: to list the files of each takes some 15 us.
_UNSYNCED_MAX = 50
# How many logs are looked at in one go: some ms of the loop.
_LOOKS = 500
# Logs of a failed directory that are given up in one go: about 1 ms of the loop.
_CLOSED = 100
# Logs that are synced at a time while nobody waits for it. Each holds its files open until then: a sixteenth
# of 1,024 descriptors, and as many again after a new epoch. The threads of the pool have enough to do.
_SYNCS_MAX = 8 * SYNC_THREADS

_Place = tuple[LogDirectory, Log]
# Says first in which directory the log is.
PlacedSteps = Generator[At | Wait | None, None, Log]
# Takes a partition, what to do about a failure of its files, and the time.
_Work = Callable[[Partition, Callable[[Partition, int], Effects], int], Effects]


class _Settling(NamedTuple):
    """A log that is being synced for the last time; `report` tells it of the success."""

    directory: LogDirectory
    log: Log
    report: Callable[[], None]


class DirectoryReport(NamedTuple):
    """One directory, for whoever asks. The volume's bytes are -1 where it cannot be asked."""

    path: str
    code: Code
    logs: tuple[Log, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class Storage:
    """All entries of `log.dirs` of one node, which are in use already.

    cordoned()          what cordoned.log.dirs says at the moment: it may change at run time
    is_failure_known()  whether the controller can be told of a failed directory, and finds other leaders
    files               says whether a file may be opened for a log that is not open yet

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
    ) -> None:
        self._config = config
        self._fs = fs
        self.directories = directories
        self.producers = producers
        self._cordoned = cordoned
        self._is_failure_known = is_failure_known
        self._files: LogFiles = EnoughFiles() if files is None else files
        self._offline: dict[str, StorageError] = {}
        # Where an operator wants replicas that are not here yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._opening: dict[TopicPartition, LogDirectory] = {}
        room = max(SYNC_THREADS, _SYNCS_MAX // len(self.directories))
        # Of logs, by path: what may be under way in each.
        self._syncs = {d: Permits(f"storage syncs {d.path}", room) for d in self.directories}
        self._synced_ms: dict[str, int] = {}  # of logs with flush.ms
        self._is_settling = False  # the last syncs are under way: no more jobs

    def had_records(self, name: TopicPartition) -> bool | None:
        """Whether a replica that lies here had records when its node stopped; None: nothing lies here."""
        holders = [d for d in self.directories if d.had(name)]
        return any(d.recovery_point(name) for d in holders) if holders else None

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        return tuple(directory.directory_id for directory in self.directories)

    def healthy_paths(self) -> list[str]:
        """The paths of those that did not fail in this run."""
        return [d.path for d in self.directories if d.path not in self._offline]

    @property
    def failed_directories(self) -> tuple[Uuid, ...]:
        """The ids of those that failed in this run."""
        return tuple(d.directory_id for d in self.directories if d.path in self._offline)

    @property
    def cordoned_directories(self) -> tuple[Uuid, ...]:
        """The ids of those that take nothing new. KIP-1066."""
        named = self._cordoned()
        return tuple(
            d.directory_id for d in self.directories if d.path in named or ALL_DIRECTORIES in named
        )

    def directory_of(self, log: Log) -> Uuid | None:
        """The id of the directory that a log is in; None when that failed."""
        directory = self._directory_of(log)
        return None if directory.path in self._offline else directory.directory_id

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
        """Open a partition's log where it lies; a new one goes where the fewest are.

        Yields in which directory that is, before anything is done there, then after each slice of a recovery,
        and returns the log, to be served when its `unsynced` files are on disk. StorageError where metadata
        has it in a directory that failed, or names no other one and it was there: its records may be in it,
        and a second, empty replica must not take their place.

        directory_id  where metadata has the replica: a new one goes there, if that is one of ours
        may_make      False for a replica that was lost and that nobody else has: only its files will do
        """
        healthy = [d for d in self.directories if d.path not in self._offline]
        if not healthy:
            raise StorageError("every log directory failed")
        if not self._files.has_room():  # what is left of them is for logs that are open
            raise StorageError(
                "no more files can be opened",
                error="EMFILE",
                remedy="raise the limit of open files (ulimit -n, LimitNOFILE), or delete topics",
            )
        present = where_it_lies(self._fs, healthy, topic_partition, topic_id, directory_id)
        failed = [d for d in self.directories if d.path in self._offline]
        had = any(d.had(topic_partition) for d in failed)
        is_named = any(d.directory_id == directory_id for d in present)
        if any(d.directory_id == directory_id for d in failed) or (had and not is_named):
            raise StorageError("the log directory of this replica failed")
        if not present and not may_make:
            raise StorageError(
                "its directory is not here, and no other replica is in sync",
                remedy="stop this broker, put the directory back, mended, and start it; or make an empty"
                " one of that name: acknowledged records are lost then",
            )
        wanted = self._preferred.get(topic_partition)
        present = present or [d for d in healthy if d.path == wanted]
        present = present or [d for d in healthy if d.directory_id == directory_id]
        if present:
            return (yield from self._open_in(present[0], topic_partition, topic_id, config, now_ms))
        cordoned = self.cordoned_directories
        # Whoever chose this broker by hand may have found all of them cordoned.
        free = [d for d in healthy if d.directory_id not in cordoned] or healthy
        chosen = min(free, key=self._count_in)
        return (yield from self._open_in(chosen, topic_partition, topic_id, config, now_ms))

    def _count_in(self, directory: LogDirectory) -> int:
        """How many partitions are there, or are being made there."""
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
        """Open a log in a directory. Files that an operator moves away meanwhile are no failed disk."""
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
        """Have a replica that is not here yet made in a directory; one that is here stays where it is.

        The code is Kafka's of AlterReplicaLogDirs, but OPERATION_NOT_ATTEMPTED where Kafka would move it.
        """
        if all(directory.path != path for directory in self.directories):
            return Code.LOG_DIR_NOT_FOUND
        if path in self._offline:
            return Code.KAFKA_STORAGE_ERROR
        making = self._opening.get(topic_partition)
        holders = [d for d in self.directories if d is making or d.had(topic_partition)]
        if not holders:
            self._preferred[topic_partition] = path
            return Code.REPLICA_NOT_AVAILABLE
        return Code.NONE if holders[0].path == path else Code.OPERATION_NOT_ATTEMPTED

    def describe(self) -> list[DirectoryReport]:
        """Say of each directory what is in it, and how much room its volume has."""
        cordoned = self.cordoned_directories
        reports = []
        for directory in self.directories:
            path = directory.path
            if path in self._offline:
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
        """Return, once, what has to be synced before a log that was opened is served."""
        return self._directory_of(log).unsynced(log)

    def still_unsynced(self, log: Log, files: Sequence[File]) -> None:
        """Have `close` sync these files of a log that was not served yet."""
        self._directory_of(log).still_unsynced(log, files)

    def let_go(self, log: Log) -> Effects:
        """Serve a log no more that could not be made durable; its files stay."""
        directory = self._directory_of(log)
        if log.log_end_offset == 0:  # an empty one in another directory is as good
            directory.is_gone(log.topic_partition)
        return directory.let_go(log)

    def drop(self, log: Log, now_ms: int) -> Effects:
        """Delete a log; one whose directory failed is left to the next start."""
        self._synced_ms.pop(log.path, None)
        directory = self._directory_of(log)
        if directory.path in self._offline:
            directory.is_gone(log.topic_partition)
            return []
        return directory.drop(log, now_ms)

    def drop_unopened(
        self, topic_partition: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> Effects:
        """Delete what lies here of a partition that could not be opened and is not this node's any more.

        What another topic of that name left stays. StorageError: nothing was done, and may be later.
        """
        effects: Effects = []
        for directory in self.directories:
            path = directory.partition_path(topic_partition)
            if directory.path in self._offline:
                directory.is_gone(topic_partition)
                continue
            if not self._fs.exists(path):
                continue
            owner = directory.owner(path)
            # One that says nothing and has no log was being made when the disk refused.
            is_begun = (
                owner is None
                and topic_partition not in self._opening
                and not any(name.endswith(names.LOG) for name in self._fs.list_dir(path))
            )
            if topic_partition not in directory.logs and (owner == topic_id or is_begun):
                effects += directory.condemn(topic_partition, now_ms)
        return effects

    def keep_log_starts(
        self, logs: Sequence[Log], then: Callable[[list[Log], int], Effects], now_ms: int
    ) -> Effects:
        """Write down where `logs` begin now, so that deleted records do not come back.

        `then(those of a directory where that failed, now_ms)` runs when no power cut undoes the others.
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
        """True when the last syncs are under way: nothing may be changed any more."""
        return self._is_settling

    def keep_for_compaction(self, log: Log, then: Kept) -> Effects:
        """Write down, durably, what recovery has to know of a log before it is compacted."""
        return self._directory_of(log).keep_for_compaction(log, then)

    def _holds(self, log: Log) -> bool:
        return any(d.logs.get(log.topic_partition) is log for d in self.directories)

    def _directory_of(self, log: Log) -> LogDirectory:
        found = [d for d in self.directories if d.logs.get(log.topic_partition) is log]
        assert len(found) == 1, "a log lies in one directory"
        return found[0]

    def put_strays_aside(
        self,
        is_known: Callable[[Uuid], bool],
        is_here: Callable[[Uuid, int], bool],
        now_ms: int,
    ) -> Effects:
        """See `replica/directories`."""
        healthy = [d for d in self.directories if d.path not in self._offline]
        work = put_strays_aside(self._fs, healthy, self._stays, is_known, is_here)
        return Background("storage: strays").begin(work, now_ms)

    def _stays(self, directory: LogDirectory, found: TopicPartition) -> bool:
        return found in self._opening or self._is_settling or directory.path in self._offline

    # -------------------------------------------------------------------------------- failures

    def on_failure(self, hosted: HostedPartitions, partition: Partition, now_ms: int) -> Effects:
        """A partition's files failed: so did its directory (rel-P9).

        With the last one the node stops, and with that of the metadata log, as Kafka does; and with any where
        the controller does not know our directories, or this node would go on leading what it cannot serve. A
        log that was deleted while its sync was under way took its names along: that is no failure.
        """
        if not self._holds(partition.log):
            return []
        cause = {"cause": partition.failed_by} if partition.failed_by else {}
        return self._fail(self._directory_of(partition.log), hosted, now_ms, **cause)

    def on_refusal(self, hosted: HostedPartitions, said: StorageError, now_ms: int) -> Effects:
        """A disk refused while a log was opened or made durable; it says which path that was (rel-P9)."""
        if said.has_lost_nothing:
            return []  # the disk was not asked
        found = self._directory_at(said)
        return [] if found is None else self._fail(found, hosted, now_ms, cause=str(said))

    def is_unmade(self, topic_partition: TopicPartition, said: StorageError) -> bool:
        """Whether a new replica could not be made where `said` says, and may be in another directory.

        It was never served: there is nothing in the directory that failed that another one would lack. Not
        where the node stops with that directory.
        """
        failed = self._directory_at(said)
        if failed is None or failed.path not in self._offline or self._stops_with(failed):
            return False
        return not any(directory.had(topic_partition) for directory in self.directories)

    def _directory_at(self, said: StorageError) -> LogDirectory | None:
        """The directory in which a disk refused; None where that was elsewhere."""
        path = f"{said.facts.get('path', '')}/"
        found = [d for d in self.directories if path.startswith(f"{d.path}/")]
        return max(found, key=lambda d: len(d.path)) if found else None

    def _stops_with(self, failed: LogDirectory) -> bool:
        is_last = len(self._offline) == len(self.directories)
        is_metadata = failed.path == self._config.metadata_directory
        return is_last or is_metadata or not self._is_failure_known()

    def _fail(
        self, directory: LogDirectory, hosted: HostedPartitions, now_ms: int, **cause: str
    ) -> Effects:
        """`cause` is what the disk said, where that is not in the operator's log by now."""
        if directory.path in self._offline:
            return []
        why = "a log directory failed and is out of use"
        problem = StorageError(why, path=directory.path, **cause)
        self._offline[directory.path] = problem
        effects: Effects = [Warn(line=str(problem))]
        for other in hosted:
            if directory.logs.get(other.topic_partition) is other.log:
                other.go_offline()
                effects += other.release_all(now_ms)
        works = Background(f"storage: close {directory.path}")  # another may fail meanwhile
        effects += works.begin(_close_logs(directory), now_ms)
        if self._stops_with(directory):
            # Those who wait are answered first.
            effects.append(
                SetTimer(key=("storage", "failed"), at_ms=now_ms, then=partial(_stop, problem))
            )
        return effects

    # ------------------------------------------------------------------------------------ jobs

    def run_jobs(
        self,
        hosted: HostedPartitions,
        on_failure: Callable[[Partition, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Begin the periodic work; each job sets its own next timer.

        A job goes over the partitions in slices, and requests are answered between them.
        """
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
        return [*effects, _job("checkpoint", interval_ms, self._checkpoint, now_ms)]

    def _work(
        self,
        work: _Work,
        on_failure: Callable[[Partition, int], Effects],
        partition: Partition,
        now_ms: int,
    ) -> Effects:
        """Do one job for one partition."""
        if partition.is_offline or self._is_settling:
            return []
        try:
            return work(partition, on_failure, now_ms)
        except StorageError as problem:
            # What passes is tried again in the next round; the disk has told the operator.
            return [] if problem.is_passing else with_cause(problem, on_failure(partition, now_ms))

    def _retain(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Take segments out of the log that retention gives up (T12-T16)."""
        return partition.log.delete_due_segments(now_ms)

    def _retain_local(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Take segments out of local files that the tier has; where the log begins does not change."""
        log = partition.log
        if not log.is_tiered or log.config.remote_log_copy_disable:
            return []
        return self._retain(partition, on_failure, now_ms)

    def _sync_due(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Sync the log of a topic that has flush.ms, when it is over, and one that rolls fast."""
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
        """Sync what no acks=all asked for: it bounds what a start after a crash must scan (rel-P5)."""
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

    def _checkpoint(self, now_ms: int) -> Effects:
        """Write recovery points, log starts and high watermarks of each directory (rel-P6)."""
        effects: Effects = []
        for directory in self.directories:
            if directory.path not in self._offline and not self._is_settling:
                effects += directory.checkpoint_later(now_ms) + told_of_strays(directory)
        return effects

    def _expire_producers(
        self, partition: Partition, on_failure: Callable[[Partition, int], Effects], now_ms: int
    ) -> Effects:
        """Forget idempotent producers that have been idle for producer.id.expiration.ms."""
        partition.log.producers.expire(now_ms, self._config.producer_id_expiration_ms)
        return []

    # ------------------------------------------------------------------------------------- end

    def settle(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Write and sync, off the loop, what a stop leaves of every log; then run `then(now_ms)`.

        Nothing is led here any more. A log that nobody touched since a clean stop costs a look.
        """
        self._is_settling = True
        for directory in self.directories:
            for log in directory.logs.values():
                if log.truncation is not None and directory.path not in self._offline:
                    return log.when_whole(partial(self.settle, then), now_ms)
        logs = [
            (directory, log)
            for directory in self.directories
            if directory.path not in self._offline
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
        """One slice: the logs that are not done with yet, and some more."""
        needs: list[tuple[_Settling, list[File]]] = []
        for looks, (directory, log) in enumerate(chain(again, rest), 1):
            report: Callable[[], None] = partial(log.flushed, log.log_end_offset)
            try:
                files = log.dirty_files()
                if not files:
                    files, report = log.closing_files(), log.closed
            except StorageError as problem:
                self._offline.setdefault(directory.path, problem)
                continue
            if files:
                needs.append((_Settling(directory, log, report), files))
            if looks >= _LOOKS or len(needs) >= SLICE:
                break
        else:
            if not needs:
                return then(now_ms)
        if needs:
            go_on = partial(self._settled, rest, then)
            return sync_in_pool("close logs", needs, go_on)
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
                except StorageError as refused:  # the lineage could not be put in its place
                    failure = refused
            if failure is None:
                again.append((directory, log))
            else:
                self._offline.setdefault(directory.path, failure)
        return self._settle(again, rest, then, now_ms)

    def close(self, broker_epoch: int) -> None:
        """Sync and close every log, then leave the marker of a clean stop (rel-P7).

        A directory that fails meanwhile, or failed before, gets no marker: its next start recovers.
        """
        for directory in self.directories:
            if directory.path in self._offline:
                directory.abandon()
                continue
            try:
                directory.close(broker_epoch)
            except StorageError as problem:
                self._offline[directory.path] = problem
                directory.abandon()


def _all(sweeps: Sequence[Sweep], now_ms: int) -> Effects:
    return [effect for sweep in sweeps for effect in sweep(now_ms)]


def _job(name: str, interval_ms: int, work: Callable[[int], Effects], now_ms: int) -> SetTimer:
    """A timer that does `work` and sets itself again."""

    def run(at_ms: int) -> Effects:
        return [*work(at_ms), _job(name, interval_ms, work, at_ms)]

    return SetTimer(key=("storage", name), at_ms=now_ms + interval_ms, then=run)


def _close_logs(directory: LogDirectory) -> Generator[Effects, int, None]:
    """Let go of what a directory that failed has open, some logs at a time."""
    yield []
    rest = iter(list(directory.logs.values()))
    while some := list(islice(rest, _CLOSED)):
        # One that is being cut is in the hands of a thread.
        files = [file for log in some if log.truncation is None for file in log.give_up()]
        yield closing(some[0].path, files)


def _sync_files(files: Sequence[File]) -> None:
    for file in files:
        file.sync()


def _stop(problem: StorageError, now_ms: int) -> NoReturn:
    raise problem
