"""One entry of `log.dirs`: its lock, its identity, its checkpoints, the logs of its partitions. STORE.

Life: `start` (lock, identity, marker of the last stop, checkpoints), `open` and `drop` of logs as the cluster
image says, `checkpoint` now and then, `close`. The clean-shutdown marker is removed, durably, before anything
is appended and written last of all, after every sync (rel-P7). Checkpoints keep the entries of logs that were
not opened yet. Source: spec Q11; rel-P6, P7, P10, P11.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from firnline.base.effects import Effects, Flush, SetTimer, Submit
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import METADATA_TOPIC, NO_BROKER_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.base.log_lines.storage import CHECKPOINT_DELAYED
from firnline.base.open_files import closing
from firnline.base.ports import File, Fs
from firnline.base.revocable import revocable
from firnline.base.waits import Wait
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log import checkpoint
from firnline.log.file_syncs import DirSync
from firnline.log.log import Log
from firnline.log.producer_state import ProducerTable
from firnline.log.recovery import OpenSteps, at_once, making_steps, opening_steps
from firnline.log.truncation import Kept

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
_LATER = ".later"
_KEPT = ".kept"
# Who waited for a checkpoint and goes on in one step: a log that is cut then takes some 0.2 ms.
_CALLBACKS_PER_TURN = 16
_FULL_POOL_MS = 100
# Logs that are looked at for a checkpoint in one go: about 1 ms of the loop.
_NOTED = 500
_METADATA = TopicPartition(METADATA_TOPIC, 0)
_Contents = dict[str, dict[TopicPartition, int]]  # by checkpoint: what it is to say


class LogDirectory:
    """Every log of one directory; the store that a broker opens partitions from.

    Invariant: `logs` holds exactly the logs that were opened and not dropped.
    """

    def __init__(
        self,
        fs: Fs,
        path: str,
        *,
        cluster_id: str,
        node_id: int,
        unique: Callable[[], bytes],
        producers: ProducerTable | None = None,
    ) -> None:
        self._fs = fs
        self.path = path
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.logs: dict[TopicPartition, Log] = {}
        self.directory_id: Uuid = bytes(16)
        self.was_clean, self.last_broker_epoch = False, NO_BROKER_EPOCH  # of the last run
        self._unique = unique
        self._producers = producers
        self._release: Callable[[], None] | None = None
        self._is_checkpointing = False
        self._refusal: StorageError | None = None  # of a name, in the checkpoint under way
        self.refused: StorageError | None = None  # why the last checkpoint was not written
        self._writes: Counter[str] = Counter()  # by checkpoint: how often it was replaced
        self._said: dict[str, dict[TopicPartition, int]] = {}  # by checkpoint: what it says on disk
        self.stray_paths: list[str] = []  # paths, in this run
        self._here: dict[TopicPartition, None] = {}  # what had a directory when that could be read
        self._let_go: dict[TopicPartition, None] = {}  # of it: opened in this run, and not closed
        self._guest: Log | None = None
        self._forgotten: dict[TopicPartition, None] = {}  # dropped, but in checkpoints on disk
        self._unsynced: dict[TopicPartition, list[File]] = {}  # of logs that were not served yet
        self._drops, self._drops_synced = 1, 0
        # By checkpoint that is being kept: who waits for a write that has not begun.
        self._keeping: dict[str, list[Kept]] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._found_high: dict[TopicPartition, int] = {}  # of logs not opened yet
        self.vanished: frozenset[TopicPartition] = frozenset()  # gone, by the checkpoints
        self._first_dirty: dict[TopicPartition, int] = {}  # of logs that may have gaps
        self._has_recovery_points = True

    def start(self) -> Effects:
        """Take the directory into use; return what removes partitions deleted in an earlier run.

        StorageError when it is not formatted, belongs to another cluster or node, or is in use.
        """
        if not self._fs.exists(self.path):  # made here, it would take in what is put back
            raise checkpoint.not_formatted(self.path)
        self._release = self._fs.lock(f"{self.path}/{LOCK}")
        try:
            self.directory_id = checkpoint.identity(
                self._fs, self.path, self.cluster_id, self.node_id, unique=self._unique
            )
        except StorageError:
            self._release()
            raise
        self._read_marker()
        self._here = self._present()
        self._recovery_points = self._read(checkpoint.RECOVERY_POINTS, with_metadata=True)
        self._log_starts = self._read(checkpoint.LOG_STARTS)
        self._found_high = self._read(checkpoint.HIGH_WATERMARKS)
        self._high_watermarks = dict(self._found_high)
        self.vanished = checkpoint.vanished(self._fs, self.path, self.vanished, self._here)
        self._first_dirty = self._read(checkpoint.CLEANER_OFFSETS)
        self._say_gaps_as_found()
        self._has_recovery_points = checkpoint.begin_recovery_points(self._fs, self.path)
        return [
            self._removal(f"{self.path}/{name}")
            for name in self._fs.list_dir(self.path)
            if name.endswith(names.DELETED_DIR)
        ]

    def _say_gaps_as_found(self) -> None:
        """Remember what the checkpoint of the cleaner says on disk, also of partitions that are not here."""
        path = f"{self.path}/{checkpoint.CLEANER_OFFSETS}"
        if not self._fs.exists(path) or checkpoint.has_offsets(self._fs, path):
            self._said[checkpoint.CLEANER_OFFSETS] = checkpoint.read_offsets(self._fs, path)

    def _read_marker(self) -> None:
        """See whether the last run stopped cleanly, and forget it before anything can be appended."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        data = checkpoint.read_file(self._fs, path)
        self.was_clean = data is not None
        if data is None:
            return
        self.last_broker_epoch = checkpoint.parse_clean_shutdown(data)
        self._fs.remove(path)
        self._fs.sync_dir(self.path)

    def _read(self, name: str, *, with_metadata: bool = False) -> dict[TopicPartition, int]:
        """Read a checkpoint without the partitions that are not here any more."""
        present = dict(self._here)
        if with_metadata:
            present[_METADATA] = None
        found = checkpoint.read_offsets(self._fs, f"{self.path}/{name}")
        gone = [tp for tp in found if tp not in present]
        self._forgotten.update(dict.fromkeys(gone))
        if name in (checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS):
            self.vanished |= {tp for tp in gone if found[tp] > 0}
        return {tp: offset for tp, offset in found.items() if tp in present}

    def _present(self) -> dict[TopicPartition, None]:
        parsed = map(names.parse_partition_dir, self._fs.list_dir(self.path))
        return {tp: None for tp in parsed if tp is not None and tp.topic != METADATA_TOPIC}

    def unopened(self) -> list[TopicPartition]:
        """Return the partitions that have a directory here and were not opened: strays, once all are."""
        return [tp for tp in self._present() if tp not in self.logs]

    def had(self, topic_partition: TopicPartition) -> bool:
        """Whether that partition is here, as far as is known: also of a directory that failed."""
        return topic_partition in self._here

    @property
    def partition_count(self) -> int:
        """How many partitions are here, open or not."""
        return len(self._here)

    def is_gone(self, topic_partition: TopicPartition) -> None:
        """It was deleted while nothing here could be, or had no record: the next start finds what is left."""
        self._here.pop(topic_partition, None)

    def recovery_point(self, topic_partition: TopicPartition) -> int:
        """Return what the checkpoint said at the start, 0 for nothing."""
        return self._recovery_points.get(topic_partition, 0)

    def include(self, log: Log) -> None:
        """Note the recovery point of the metadata log too, which the quorum opens and closes."""
        assert log.topic_partition == _METADATA
        self._guest = log
        log.keep_lowered = partial(self._keep_lowered, _METADATA)

    def partition_path(self, topic_partition: TopicPartition) -> str:
        """Return the directory of a partition."""
        return f"{self.path}/{topic_partition}"

    def open(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig, now_ms: int
    ) -> Log:
        """`open_steps`, all at once."""
        return at_once(self.open_steps(topic_partition, topic_id, config, now_ms))

    def open_steps(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig, now_ms: int
    ) -> OpenSteps[Log]:
        """Return the log of a partition, recovered if it has to be, made if it is not there.

        Yields after each slice of a recovery. To be served only when its `unsynced` files are on disk. A
        directory of another topic of the same name is put aside. StorageError when it cannot be served.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            assert log.topic_id == topic_id, "the old log is dropped first"
            return log
        path = self.partition_path(topic_partition)
        found = self.owner(path)
        if found is not None and found != topic_id:
            self.rename_to_stray(topic_partition)
        log_start = self._log_starts.get(topic_partition, 0)
        is_new = found != topic_id and not self._fs.exists(path)
        if is_new:
            if topic_partition in self._forgotten:
                yield Wait(self.checkpoint, self._keep_forgotten)
            yield from making_steps(self._fs, path, topic_id, log_start)
        if found != topic_id:
            file = checkpoint.place_partition_metadata(self._fs, path, topic_id)
            self._unsynced[topic_partition] = [file, DirSync(self._fs, self.path)]
        is_as_left = self.was_clean and topic_partition not in self._let_go
        was_served = is_as_left and topic_partition in self._recovery_points
        noted = self._high_watermarks.get(topic_partition, 0)  # if it was open before
        found_high = self._found_high.get(topic_partition, noted)
        log = yield from opening_steps(
            revocable(self._fs),
            path,
            topic_partition,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
            was_clean=is_as_left or is_new,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start_offset=log_start,
            high_watermark=found_high,
            before_truncation=partial(self._lower, topic_partition),
            producers=self._producers,
            first_dirty_offset=self._first_dirty.get(topic_partition, NO_OFFSET),
            is_recovery_point_known=self._has_recovery_points,
            is_new=is_new or not was_served,
        )
        if log.log_end_offset < found_high:
            yield from self._lower_high_watermark(log)
        self._found_high.pop(topic_partition, None)
        log.keep_lowered = partial(self._keep_lowered, topic_partition)
        self.logs[topic_partition] = log
        self._here[topic_partition] = None
        if found == topic_id and log.log_end_offset == 0 and not was_served:
            # Made before, maybe by a thread that a stop left behind, and never synced; records say it was.
            file = checkpoint.open_partition_metadata(self._fs, path)
            self._unsynced[topic_partition] = [file, DirSync(self._fs, self.path)]
        return log

    def _lower_high_watermark(self, log: Log) -> Iterator[Wait | None]:
        """Before a log is served that a power cut has shortened, the disk says no more than what is left.

        The watermark would hold for the records that take the place of those that are lost: killed before the
        next checkpoint, the node would call them committed. One write serves all that are not open yet.
        """
        name, tp, noted = checkpoint.HIGH_WATERMARKS, log.topic_partition, self._high_watermarks
        noted |= checkpoint.lowest(self._found_high, noted, self._recovery_points)
        noted[tp] = log.high_watermark
        said = self._said.get(name)
        if said is not None and name not in self._keeping and said.get(tp, 0) <= log.log_end_offset:
            return
        try:
            yield Wait(partial(self._write, name), lambda then, now_ms: self._keep(name, then))
        except BaseException:
            log.give_up()
            raise

    def owner(self, path: str) -> Uuid | None:
        """Return the topic id in a partition's directory, or None; StorageError: damage beside records."""
        return checkpoint.owner(self._fs, path)

    def unsynced(self, log: Log) -> list[File]:
        """Return, once, what is synced before a log is served; then the log is `flushed` up to its end."""
        files = self._unsynced.pop(log.topic_partition, [])
        return [*log.dirty_files(), *files] if files else []

    def still_unsynced(self, log: Log, files: Sequence[File]) -> None:
        """They were `unsynced`, and nobody knows of their sync: `close` does it again."""
        self._unsynced[log.topic_partition] = list(files)

    def let_go(self, log: Log) -> Effects:
        """Serve a log no more; its files stay for the next start to look at."""
        self._unsynced.pop(log.topic_partition, None)
        self._let_go[log.topic_partition] = None
        del self.logs[log.topic_partition]
        return closing(log.path, log.give_up())

    def rename_to_stray(self, topic_partition: TopicPartition) -> str:
        """Rename the directory of a partition that is nobody's here, and return its path; it is kept.

        The topic may have been deleted while this node was away; or the metadata is older than the logs,
        for it was lost, or an old copy was put back, and these are the only records that are left.
        """
        path = f"{self.path}/{names.stray_dir(topic_partition, self._unique())}"
        self._fs.rename(self.partition_path(topic_partition), path)
        self._forget(topic_partition)
        self.stray_paths.append(path)
        return path

    def drop(self, log: Log, now_ms: int) -> Effects:
        """Delete a log: rename its directory now, remove it after file.delete.delay.ms."""
        at_ms = now_ms + log.config.file_delete_delay_ms
        return self.let_go(log) + self.mark_deleted(log.topic_partition, at_ms)

    def mark_deleted(self, topic_partition: TopicPartition, at_ms: int) -> Effects:
        """Rename the directory of a partition that is not open now, and remove it at `at_ms`.

        The old name may come back with a power cut: its topic id says then that it is nobody's.
        """
        path = f"{self.path}/{names.deleted_dir(topic_partition, self._unique())}"
        self._fs.rename(self.partition_path(topic_partition), path)
        self._forget(topic_partition)
        self._drops += 1
        removal = self._removal(path)
        key = ("remove-partition", path)
        return [SetTimer(key=key, at_ms=at_ms, then=lambda now: [removal])]

    def _removal(self, path: str) -> Submit[None]:
        fs, number = self._fs, self._drops

        def remove() -> None:
            # Half a directory must not come back under its old name. One sync serves many.
            if self._drops_synced < number:
                drops = self._drops
                fs.sync_dir(self.path)
                self._drops_synced = drops
            fs.remove_dir(path)

        return Submit(
            name=f"remove {path}",
            pool="disk",
            path=path,
            work=remove,
            then=lambda result, now: [],  # what could not be removed is found again at the next start
        )

    def _forget(self, topic_partition: TopicPartition) -> None:
        """Take a partition out of the checkpoints; they are written before its name can come back."""
        for known_here in (self._here, self._let_go, self._found_high):
            known_here.pop(topic_partition, None)
        known = [offsets.pop(topic_partition, None) for offsets in self._offsets().values()]
        if any(offset is not None for offset in known):
            self._forgotten[topic_partition] = None

    # -- checkpoints -------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write all checkpoints, here and now."""
        self._note(self.logs.values())
        for name in self._offsets():
            self._write(name)
        self._forgotten.clear()

    def checkpoint_later(self, now_ms: int) -> Effects:
        """Write all of them off the loop, some logs noted at a time; they take their names on the loop.

        What was written here in the meantime is newer, and stays. What says the same as before is not
        written again.
        """
        if self._is_checkpointing:
            return []
        self._is_checkpointing = True
        return self._note_slice(iter(list(self.logs.values())), Counter(self._writes), now_ms)

    def _note_slice(self, rest: Iterator[Log], writes: Counter[str], now_ms: int) -> Effects:
        some = list(islice(rest, _NOTED))
        if some:
            self._note(log for log in some if self.logs.get(log.topic_partition) is log)
            go_on = partial(self._note_slice, rest, writes)
            return [SetTimer(key=("checkpoint", self.path), at_ms=now_ms, then=go_on)]
        self._note(())
        known = self._offsets()
        contents = {
            name: dict(offsets)
            for name, offsets in known.items()
            if self._said.get(name) != offsets and not self._stays_lost(name)
        }
        fs, path = self._fs, self.path

        def write() -> None:
            checkpoint.assert_mounted(fs, path)
            for name, offsets in contents.items():
                checkpoint.write_offsets(fs, f"{path}/{name}{_LATER}", offsets)

        place = partial(self._place_later, writes, contents)
        if not contents:
            return place(None, now_ms)
        return [Submit(name=f"checkpoint {path}", pool="disk", path=path, work=write, then=place)]

    def _place_later(
        self, writes: Counter[str], contents: _Contents, result: object, now_ms: int
    ) -> Effects:
        """Let what was written off the loop take its names.

        That of the cleaner first, and for good: a gap below a recovery point is no damage only with it.
        """
        name = checkpoint.CLEANER_OFFSETS
        gaps = contents.get(name)
        if gaps is None or isinstance(result, Exception):
            return self._place_rest(writes, contents, result, now_ms)
        if not self._place(name, writes[name], gaps):
            # The one that overtook it may not be on disk yet.
            contents.pop(checkpoint.RECOVERY_POINTS, None)
            return self._place_rest(writes, contents, None, now_ms)
        del self._said[name]  # until it is synced, nobody knows what a power cut leaves

        def kept(problem: Exception | None, now_ms: int) -> Effects:
            if problem is None and self._writes[name] == writes[name] + 1:
                self._said[name] = gaps
            return self._place_rest(writes, contents, problem, now_ms)

        return [Flush(files=[DirSync(self._fs, self.path)], then=kept)]

    def _place_rest(
        self, writes: Counter[str], contents: _Contents, result: object, now_ms: int
    ) -> Effects:
        self._is_checkpointing = False
        if isinstance(result, StorageError):
            self._refusal = result
        for name, offsets in contents.items():
            if name != checkpoint.CLEANER_OFFSETS and not isinstance(result, Exception):
                self._place(name, writes[name], offsets)
        before, self.refused, self._refusal = self.refused, self._refusal, None
        is_news = self.refused is not None and str(self.refused) != str(before)
        return [CHECKPOINT_DELAYED(error=self.refused)] if is_news else []

    def _place(self, name: str, writes: int, offsets: dict[TopicPartition, int]) -> bool:
        """`_take_name`; a disk that refuses is asked again, as it is where the file could not be written."""
        try:
            return self._take_name(name, _LATER, writes, offsets)
        except StorageError as problem:
            self._said.pop(name, None)
            self._refusal = problem
            return False

    def _take_name(
        self, name: str, suffix: str, writes: int, offsets: dict[TopicPartition, int]
    ) -> bool:
        """Let a checkpoint written off the loop replace the old one, unless a newer one has, or is to."""
        if not self._release or self._writes[name] != writes:
            return False
        self._fs.rename(f"{self.path}/{name}{suffix}", f"{self.path}/{name}")
        self._writes[name] += 1
        self._said[name] = offsets
        return True

    def keep_log_starts(self, then: Kept) -> Effects:
        """Write down where logs begin now; `then(problem or None, now_ms)` runs when no power cut undoes it.

        Off the loop. Who asks while a write is under way shares the next one.
        """
        for log in self.logs.values():
            self._note_start(log)
        return self._keep(checkpoint.LOG_STARTS, then)

    def _keep_forgotten(self, then: Kept, now_ms: int) -> Effects:
        """Have no checkpoint on disk speak of a partition that was dropped, off the loop."""
        forgotten, wanted = list(self._forgotten), []
        for name in self._offsets():
            said = self._said.get(name)
            if said is None or name in self._keeping or any(tp in said for tp in forgotten):
                wanted.append(name)
            else:
                self._writes[name] += 1  # what is being written off the loop may speak of it

        def kept(problem: Exception | None, at_ms: int) -> Effects:
            if problem is None:
                for tp in forgotten:
                    self._forgotten.pop(tp, None)
            return then(problem, at_ms)

        return self._keep_all(wanted, kept) if wanted else kept(None, now_ms)

    def _keep_lowered(self, topic_partition: TopicPartition, then: Kept, now_ms: int) -> Effects:
        """As `_lower`, off the loop; where many logs are cut, they share the writes."""
        # That of the quorum is noted with any.
        self._note([self.logs[topic_partition]] if topic_partition != _METADATA else ())
        wanted = self._too_high(topic_partition)
        return self._keep_all(wanted, then) if wanted else then(None, now_ms)

    def _too_high(self, topic_partition: TopicPartition) -> list[str]:
        """The checkpoints that may say more, now or soon, than was noted of a log that is about to be cut."""
        wanted = []
        for name, noted in self._offsets().items():
            if topic_partition == _METADATA and name != checkpoint.RECOVERY_POINTS:
                continue  # its snapshots say the rest
            said, most = self._said.get(name), noted.get(topic_partition, NO_OFFSET)
            if said is None or name in self._keeping or said.get(topic_partition, NO_OFFSET) > most:
                wanted.append(name)
            else:
                self._writes[name] += 1  # what is being written off the loop may say more
        return wanted

    def _keep_all(self, names: Sequence[str], then: Kept) -> Effects:
        """`_keep` several checkpoints, one after the other."""
        if len(names) == 1:
            return self._keep(names[0], then)

        def go_on(problem: Exception | None, now_ms: int) -> Effects:
            if problem is not None:
                return then(problem, now_ms)
            return self._keep_all(names[1:], then)

        return self._keep(names[0], go_on)

    def _keep(self, name: str, then: Kept) -> Effects:
        waiting = self._keeping.get(name)
        if waiting is not None:
            waiting.append(then)
            return []
        return self._begin_keeping(name, [then])

    def _begin_keeping(self, name: str, waiters: list[Kept]) -> Effects:
        """Replace a checkpoint by what is known now, durably and off the loop, then tell `waiters`."""
        self._keeping[name] = []  # for a write that has not begun
        self._writes[name] += 1  # what is being written off the loop says less
        if name == checkpoint.RECOVERY_POINTS and self._has_gaps_to_say():
            go_on = partial(self._gaps_are_kept, waiters)
            return self._keep(checkpoint.CLEANER_OFFSETS, go_on)
        offsets, writes = dict(self._offsets()[name]), self._writes[name]
        fs, path = self._fs, f"{self.path}/{name}{_KEPT}"
        if self._stays_lost(name):
            kept = partial(self._kept, name, waiters)
            return [Flush(files=[DirSync(fs, self.path)], then=kept)]

        def written(result: object, now_ms: int) -> Effects:
            if isinstance(result, KafkaError):  # the pool is full
                at_ms = now_ms + _FULL_POOL_MS
                return [SetTimer(key=(path, "full"), at_ms=at_ms, then=lambda _: [submit])]
            if isinstance(result, Exception):
                return done(result, now_ms)
            try:
                # One that overtook this one was noted later, and says it, too.
                if self._take_name(name, _KEPT, writes, offsets):
                    del self._said[name]  # not before the directory is synced
            except StorageError as problem:
                return done(problem, now_ms)
            return [Flush(files=[DirSync(fs, self.path)], then=done)]

        def done(problem: Exception | None, now_ms: int) -> Effects:
            if problem is None and self._writes[name] == writes + 1:
                self._said[name] = offsets
            elif problem is not None:  # nobody knows what a power cut leaves
                self._said.pop(name, None)
            return self._kept(name, waiters, problem, now_ms)

        work = partial(checkpoint.write_offsets, fs, path, offsets)
        submit = Submit(
            name=f"keep {name} {self.path}", pool="disk", path=path, work=work, then=written
        )
        return [submit]

    def _has_gaps_to_say(self) -> bool:
        """Whether a log may have gaps of which the checkpoint of the cleaner says nothing on disk.

        A recovery point above them must wait for it: recovery looks for gaps above that point alone, and a
        log that does not know of its own gaps hands them to the remote tier as damage.
        """
        said = self._said.get(checkpoint.CLEANER_OFFSETS)
        return said is None or not self._first_dirty.keys() <= said.keys()

    def _stays_lost(self, name: str) -> bool:
        """Whether the recovery points were lost, and a log that may have gaps is not open yet.

        Written without its own, they would have the next start take its gaps for damage, and cut them off.
        """
        is_lost = name == checkpoint.RECOVERY_POINTS and not self._has_recovery_points
        return is_lost and not self._first_dirty.keys() <= self.logs.keys()

    def _gaps_are_kept(
        self, waiters: list[Kept], problem: Exception | None, now_ms: int
    ) -> Effects:
        """Keep the recovery points now, unless another log has taken its first gap meanwhile."""
        if problem is not None:
            return self._kept(checkpoint.RECOVERY_POINTS, waiters, problem, now_ms)
        waiters += self._keeping.pop(checkpoint.RECOVERY_POINTS)
        return self._begin_keeping(checkpoint.RECOVERY_POINTS, waiters)

    def _kept(
        self, name: str, waiters: list[Kept], problem: Exception | None, now_ms: int
    ) -> Effects:
        """A checkpoint is kept, or cannot be: tell who waited, and begin for those who came later."""
        more, key = self._keeping.pop(name), (name, self._writes[name])
        effects = self._begin_keeping(name, more) if more else []
        return self._call_back(key, waiters, problem, now_ms) + effects

    def _call_back(
        self, key: tuple[str, int], rest: list[Kept], problem: Exception | None, now_ms: int
    ) -> Effects:
        effects: Effects = []
        for then in rest[:_CALLBACKS_PER_TURN]:
            effects += then(problem, now_ms)
        if len(rest) > _CALLBACKS_PER_TURN:
            go_on = partial(self._call_back, key, rest[_CALLBACKS_PER_TURN:], problem)
            effects.append(SetTimer(key=("tell", self.path, *key), at_ms=now_ms, then=go_on))
        return effects

    def keep_for_compaction(self, log: Log, then: Kept) -> Effects:
        """Have the disk know that `log` may have gaps, and up to where it needs no recovery.

        Off the loop; `then(problem or None, now_ms)` runs when no power cut undoes it: a start that knew
        neither would take what compaction leaves for a log that lost bytes.
        """
        self._note([log])
        return self._keep_all((checkpoint.CLEANER_OFFSETS, checkpoint.RECOVERY_POINTS), then)

    def _lower(self, topic_partition: TopicPartition) -> None:
        """Before a truncation no file says more than the log that is about to be cut (rel-P13).

        What it says would hold for the log that takes the place of what is cut: a log start above the new
        end would have the next start give all of that up.
        """
        self._note(self.logs.values())
        for name in self._too_high(topic_partition):
            self._write(name)

    def write_recovery_points(self) -> None:
        """Write down what needs no recovery, durably."""
        self._note(self.logs.values())
        self._write(checkpoint.RECOVERY_POINTS)

    def _note(self, logs: Iterable[Log]) -> None:
        """Take over what the checkpoints say of `logs`.

        A high watermark is a hint for the next start, never the truth (rel-P6).
        """
        for log in logs:
            self._recovery_points[log.topic_partition] = log.recovery_start
            cut = log.truncation
            high = log.high_watermark if cut is None else min(log.high_watermark, cut.keeps_below)
            self._high_watermarks[log.topic_partition] = high
            self._note_start(log)
            self._note_first_dirty(log)
        if self._guest is not None:
            self._recovery_points[_METADATA] = self._guest.recovery_start

    def _note_start(self, log: Log) -> None:
        # Also where it is the first segment's base: a power cut can bring back a segment before it, whose
        # removal was not synced yet.
        start = log.log_start_offset if log.truncation is None else log.truncation.log_start_offset
        if start > 0:
            self._log_starts[log.topic_partition] = start
        else:
            self._log_starts.pop(log.topic_partition, None)

    def _note_first_dirty(self, log: Log) -> None:
        if log.compaction.may_have_gaps:
            self._first_dirty[log.topic_partition] = log.compaction.kept_dirty_offset
        else:
            self._first_dirty.pop(log.topic_partition, None)

    def _offsets(self) -> dict[str, dict[TopicPartition, int]]:
        return {
            # Before the recovery points: a gap below one of those is no damage only with an entry here.
            checkpoint.CLEANER_OFFSETS: self._first_dirty,
            checkpoint.RECOVERY_POINTS: self._recovery_points,
            checkpoint.LOG_STARTS: self._log_starts,
            checkpoint.HIGH_WATERMARKS: self._high_watermarks,
        }

    def _write(self, name: str) -> None:
        if name == checkpoint.RECOVERY_POINTS and self._has_gaps_to_say():
            self._write(checkpoint.CLEANER_OFFSETS)
        offsets = dict(self._offsets()[name])
        self._writes[name] += 1
        if self._stays_lost(name):
            return
        self._said.pop(name, None)  # until it is written, nobody knows what a power cut leaves
        checkpoint.write_offsets(self._fs, f"{self.path}/{name}", offsets)
        self._said[name] = offsets

    def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Sync and close every log, write the checkpoints, and last the marker of a clean stop.

        StorageError when anything failed: there is then no marker, and the next start recovers. Neither is
        there one beside a log that is not open and that a crash left, or this run: nobody has recovered it.
        """
        for files in self._unsynced.values():
            for file in files:
                file.sync()
        for log in self.logs.values():
            log.close()
        self.checkpoint()
        if any(not self.was_clean or tp in self._let_go for tp in self.unopened()):
            self.abandon()
            return
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        checkpoint.write_durably(self._fs, f"{self.path}/{CLEAN_SHUTDOWN}", marker.encode())
        self.abandon()

    def abandon(self) -> None:
        """Let go of the lock without a word: the next start recovers what is there."""
        if self._release is not None:
            self._release()
            self._release = None
        for log in self.logs.values():
            log.give_up()
