"""Reports to the controller which log directory holds each replica, and renames stray partitions. PURE.

A replica leads only from a directory that is online: after a directory was formatted again, its replicas lead
once the controller knows the new directory id. A replica that cannot be served is reported as lost: another
broker leads it although this one is alive. `DirectoryAssignments` sends what differs from the metadata image:

1. `_note`: the difference waits. The first one sets a timer, so that more can join the request.
2. `_go`: what the image still lacks is sent, at most BATCH_MAX in one request, one request at a time.
3. `_answered`: what failed waits again, behind a delay that doubles with each failed request.

So a difference is sent until a request succeeds or the image has it. Source: KIP-858.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from firnline.base.background import SlicedTask
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import (
    LOST_DIRECTORY,
    METADATA_TOPIC,
    UNASSIGNED_DIRECTORY,
    PartitionKey,
    TopicPartition,
    Uuid,
)
from firnline.base.log_lines.storage import STRAY_LOG
from firnline.base.ports import Fs
from firnline.base.replicas import DirectoryAssignment
from firnline.formats import names
from firnline.log.checkpoint import owner
from firnline.log.directory import LogDirectory
from firnline.replica.partition import Partition

# As in Kafka: assignments within this time go in one request, which has at most BATCH_MAX.
_GATHER_MS, _RETRY_MAX_MS = 100, 10_000
# How long a starting broker waits until the controller knows that its lost replicas are back.
_REPAIR_WAIT_MS = 10_000
BATCH_MAX = 2_250
# A slice of the search for strays ends at this cost. A name costs 1, a partition that is not open more.
_SLICE_COST, _STRAY_COST = 500, 25
_TIMER, _REPAIRED = ("replica", "assign directories"), ("replica", "mended")
_STRAY = (
    "these records belong to no topic of this cluster",
    "remove the directory if the topic was deleted, otherwise the metadata is older than the logs: put back"
    " the newer copy of it",
)
_ELSEWHERE = (
    "this replica was moved to another broker while this one was down",
    "remove the directory once the topic is whole without it",
)
_OLDER = (
    "this replica is served from another log directory",
    "this copy may be from before that one, or from a disk that failed: remove it once the topic is whole"
    " without it",
)
_Said = tuple[str, str]  # why a log is kept aside, and the advice


Answers = list[KafkaError | None] | KafkaError
AssignDirectoriesCallback = Callable[[Answers, int], Effects]


class Assign(Protocol):
    """Sends assignments to the active controller; `then` gets None or an error for each, or one for all."""

    def __call__(
        self, wanted: Sequence[DirectoryAssignment], then: AssignDirectoriesCallback, now_ms: int
    ) -> Effects: ...


class DirectoryAssignments:
    """The assignments that the controller does not know yet.

    said(topic_id, partition)  the directory in the metadata image; None: no replica to report
    actual(partition)          the directory that holds it; None if that directory failed
    is_failed(directory)       whether it failed in this run: heartbeats report failed directories as a whole
    """

    def __init__(
        self,
        *,
        said: Callable[[Uuid, int], Uuid | None],
        actual: Callable[[Partition], Uuid | None],
        is_failed: Callable[[Uuid], bool],
        assign: Assign,
    ) -> None:
        self._said = said
        self._actual = actual
        self._is_failed = is_failed
        self._assign = assign
        self._waiting: dict[PartitionKey, DirectoryAssignment] = {}
        self._asked: Sequence[DirectoryAssignment] = ()
        self._is_timed = self._is_stopped = False
        self._when_repaired: Callable[[int], Effects] | None = None
        self._failures = 0

    def __len__(self) -> int:
        """The number of assignments that wait; those of the request under way are not counted."""
        return len(self._waiting)

    def look(self, partition: Partition, now_ms: int) -> Effects:
        """Compare a hosted partition with the newest image; report its directory if that differs."""
        directory = self._actual(partition) or LOST_DIRECTORY
        key = (partition.topic_id, partition.topic_partition.partition)
        return self._note(DirectoryAssignment(*key, directory), now_ms)

    def lose(self, key: PartitionKey, now_ms: int) -> Effects:
        """Report a replica of this broker as lost: it cannot be served."""
        return self._note(DirectoryAssignment(*key, LOST_DIRECTORY), now_ms)

    def _note(self, assignment: DirectoryAssignment, now_ms: int) -> Effects:
        if self._is_stopped or not self._is_news(assignment):
            return []
        self._waiting[assignment[:2]] = assignment
        return self._later(now_ms)

    def when_repaired(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Run `then(now_ms)` once the controller knows that all lost replicas are back, or after ten seconds.

        A broker that is unfenced earlier would not lead them: Kafka's controller elects when it unfences a
        broker, and not when it learns of a directory.
        """
        if not self._is_repairing():
            return then(now_ms)
        self._when_repaired = then
        return [SetTimer(key=_REPAIRED, at_ms=now_ms + _REPAIR_WAIT_MS, then=self._on_repaired)]

    def stop(self) -> Effects:
        """Send nothing more."""
        self._is_stopped = True
        return [CancelTimer(key=_TIMER), CancelTimer(key=_REPAIRED)]

    def _is_repairing(self) -> bool:
        return any(
            assignment.directory != LOST_DIRECTORY and self._said(*assignment[:2]) == LOST_DIRECTORY
            for assignment in (*self._asked, *self._waiting.values())
        )

    def _on_repaired(self, now_ms: int) -> Effects:
        then, self._when_repaired = self._when_repaired, None
        return [] if then is None else [CancelTimer(key=_REPAIRED), *then(now_ms)]

    def _is_news(self, assignment: DirectoryAssignment) -> bool:
        said = self._said(assignment.topic_id, assignment.partition)
        if said is None or said == assignment.directory:
            return False
        # If it were recorded as lost, nothing would say any more which directory may have its records.
        return assignment.directory != LOST_DIRECTORY or not self._is_failed(said)

    def _later(self, now_ms: int) -> Effects:
        if self._is_timed or self._asked or not self._waiting:
            return []
        self._is_timed = True
        pause_ms = min(_GATHER_MS << min(self._failures, 16), _RETRY_MAX_MS)
        return [SetTimer(key=_TIMER, at_ms=now_ms + pause_ms, then=self._go)]

    def _go(self, now_ms: int) -> Effects:
        self._is_timed = False
        assert not self._asked, "one request at a time"
        # The image may have it by now, or the topic may be deleted.
        self._waiting = {key: each for key, each in self._waiting.items() if self._is_news(each)}
        sent = list(self._waiting.values())[:BATCH_MAX]
        if self._is_stopped:
            return []
        if not sent:
            return self._on_repaired(now_ms)
        for each in sent:
            del self._waiting[each[:2]]
        self._asked = sent

        def answered(outcome: Answers, at_ms: int) -> Effects:
            return self._answered(sent, outcome, at_ms)

        return self._assign(sent, answered, now_ms)

    def _answered(
        self, sent: Sequence[DirectoryAssignment], outcome: Answers, now_ms: int
    ) -> Effects:
        self._asked = ()
        if self._is_stopped:
            return []
        is_lost = isinstance(outcome, KafkaError)
        self._failures = self._failures + 1 if is_lost else 0
        outcomes = [outcome] * len(sent) if isinstance(outcome, KafkaError) else outcome
        for assignment, problem in zip(sent, outcomes, strict=True):
            if problem is not None:
                self._waiting.setdefault(assignment[:2], assignment)
        effects = self._later(now_ms)
        return effects if self._is_repairing() else effects + self._on_repaired(now_ms)


def where_it_lies(
    fs: Fs,
    directories: Sequence[LogDirectory],
    topic_partition: TopicPartition,
    topic_id: Uuid,
    said: Uuid | None,
) -> list[LogDirectory]:
    """Return the directory that has the replica, or none. Two are a StorageError unless one can be ruled out.

    said  the directory in the metadata image

    A replica was removed here and created again in another directory; then a power cut, or a disk that works
    again, brought the first copy back. The image says which one counts. If it does not know a directory yet,
    one of the two is a failed creation that was never served, and has no records.
    """
    found = [d for d in directories if fs.exists(d.partition_path(topic_partition))]
    if len(found) > 1:
        found = [d for d in found if d.directory_id == said] or [
            d for d in found if d.owner(d.partition_path(topic_partition)) == topic_id
        ]
    if len(found) > 1 and said == UNASSIGNED_DIRECTORY:
        found = [d for d in found if _had_records(fs, d.partition_path(topic_partition))] or found[
            :1
        ]
    if len(found) > 1:
        raise StorageError(
            "two log directories have this replica, and metadata does not say which one counts",
            path=found[0].partition_path(topic_partition),
            other=found[1].partition_path(topic_partition),
            remedy="stop this broker, move the copy away that is the older one, and start it",
        )
    return found


def _had_records(fs: Fs, path: str) -> bool:
    """Whether the log in a directory of a partition ever ended above 0."""
    first = f"{names.stem(0)}{names.LOG}"
    logs = [name for name in fs.list_dir(path) if name.endswith(names.LOG)]
    return any(name != first or fs.open(f"{path}/{name}").size() for name in logs)


def rename_strays(
    fs: Fs,
    directories: Sequence[LogDirectory],
    stays: Callable[[LogDirectory, TopicPartition], bool],
    is_known: Callable[[Uuid], bool],
    is_here: Callable[[Uuid, int], bool],
) -> SlicedTask:
    """Rename stray partitions and warn; nothing is deleted. In slices.

    A stray's topic was deleted, or its replica moved, while this broker was down; or it is a second copy.
    These directories stay: one with records but without a topic id, one that is being opened, one on a failed
    disk, and that of the metadata log, which the quorum opens.
    """
    yield []
    for directory in directories:
        effects: Effects = []
        cost = 0
        try:
            for name in fs.names(directory.path):
                found = names.parse_partition_dir(name)
                cost += 1
                if found is None or found.topic == METADATA_TOPIC or found in directory.logs:
                    pass
                elif not stays(directory, found):
                    cost += _STRAY_COST
                    effects += _rename_to_stray(
                        fs, directories, directory, found, is_known, is_here
                    )
                if cost >= _SLICE_COST:
                    yield effects
                    effects, cost = [], 0
        except StorageError:
            pass  # it failed meanwhile
        yield effects
    return []


def _rename_to_stray(
    fs: Fs,
    directories: Sequence[LogDirectory],
    directory: LogDirectory,
    found: TopicPartition,
    is_known: Callable[[Uuid], bool],
    is_here: Callable[[Uuid, int], bool],
) -> Effects:
    """Rename the directory of a partition if it is a stray, and warn."""
    path = directory.partition_path(found)
    said: _Said | None = None
    try:
        topic_id = owner(fs, path)
        if topic_id is None:
            # Its creation failed here, and it was created in another directory.
            if _is_open(directories, found) and not _had_records(fs, path):
                said = _OLDER
        elif not is_known(topic_id):
            said = _STRAY
        elif not is_here(topic_id, found.partition):
            said = _ELSEWHERE
        elif _is_open(directories, found, topic_id):
            said = _OLDER
        if not said:
            return []
        stray_path = directory.rename_to_stray(found)
    except StorageError:
        return []  # nothing is served from it; the operator finds it under its old name
    return stray_warnings(directory, {stray_path: said})


def _is_open(
    directories: Sequence[LogDirectory],
    topic_partition: TopicPartition,
    topic_id: Uuid | None = None,
) -> bool:
    """Whether one of them serves that partition, of that topic id if one is given."""
    logs = (directory.logs.get(topic_partition) for directory in directories)
    return any(log is not None and topic_id in (None, log.topic_id) for log in logs)


def stray_warnings(directory: LogDirectory, said: Mapping[str, _Said] | None = None) -> Effects:
    """Warn, once, of each stray of a directory: the operator has to look at it."""
    stray_paths, directory.stray_paths = directory.stray_paths, []
    whys = [(said or {}).get(path, _STRAY) for path in stray_paths]
    return [
        STRAY_LOG(path=path, reason=reason, advice=advice)
        for path, (reason, advice) in zip(stray_paths, whys, strict=True)
    ]
