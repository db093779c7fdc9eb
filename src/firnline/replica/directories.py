"""In which of our directories replicas are, on its way to the controller until it knows. PURE.

The controller lets nobody lead whose replica is in a directory that is not online: a broker whose directory
was formatted anew leads again only once the new id is written down. A replica that we cannot serve is lost:
others lead it then, although we are alive. What differs from metadata is sent in batches, one request at a
time, and again until it is answered or metadata says the same. What lies there and is served by nobody is
put aside. Source: KIP-858.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from firnline.base.background import Work
from firnline.base.effects import CancelTimer, Effects, SetTimer, Warn
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import (
    LOST_DIRECTORY,
    METADATA_TOPIC,
    UNASSIGNED_DIRECTORY,
    PartitionKey,
    TopicPartition,
    Uuid,
)
from firnline.base.ports import Fs
from firnline.base.replicas import DirectoryAssignment
from firnline.formats import names
from firnline.log.checkpoint import owner
from firnline.log.directory import LogDirectory
from firnline.replica.partition import Partition

# Kafka's own: what comes within this time goes together, and no more than that in one request.
_GATHER_MS, _RETRY_MAX_MS = 100, 10_000
# How long a broker that starts waits for the controller to know that it has again what it had lost.
_MENDED_MS = 10_000
BATCH_MAX = 2_250
# What a slice of the look for strays may cost, in names of a directory, and what one that is not open does.
_SLICE_COST, _STRAY_COST = 500, 25
_TIMER, _MENDED = ("replica", "assign directories"), ("replica", "mended")
_STRAY = (
    "{path}: these records belong to no topic of this cluster, and are kept aside; remove the directory if"
    " the topic was deleted, otherwise the metadata is older than the logs: put back the newer copy of it"
)
_ELSEWHERE = (
    "{path}: this replica was moved to another broker while this one was down, and its records are kept"
    " aside; remove the directory once the topic is whole without it"
)
_OLDER = (
    "{path}: this replica is served from another log directory, and this copy of it is kept aside; it may be"
    " from before that one, or from a disk that failed: remove it once the topic is whole without it"
)


Answers = list[KafkaError | None] | KafkaError
AssignDirectoriesCallback = Callable[[Answers, int], Effects]


class Assign(Protocol):
    """Hands assignments to the active controller; `then` gets None or an error of each, or one for all."""

    def __call__(
        self, wanted: Sequence[DirectoryAssignment], then: AssignDirectoriesCallback, now_ms: int
    ) -> Effects: ...


class DirectoryAssignments:
    """What the controller is still to be told of our directories.

    said(topic_id, partition)  the directory that metadata names; None: nothing that could be mended
    actual(partition)          the one it is in; None when that failed
    is_failed(directory)       whether it is one of ours that failed in this run: heartbeats tell of all in it
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
        self._when_mended: Callable[[int], Effects] | None = None
        self._failures = 0

    def __len__(self) -> int:
        """How many are not known to be written down."""
        return len(self._waiting)

    def look(self, partition: Partition, now_ms: int) -> Effects:
        """Metadata said something of a hosted partition: is it where that says?"""
        directory = self._actual(partition) or LOST_DIRECTORY
        key = (partition.topic_id, partition.topic_partition.partition)
        return self._note(DirectoryAssignment(*key, directory), now_ms)

    def lose(self, key: PartitionKey, now_ms: int) -> Effects:
        """A replica of ours cannot be served; metadata may not say so yet."""
        return self._note(DirectoryAssignment(*key, LOST_DIRECTORY), now_ms)

    def _note(self, assignment: DirectoryAssignment, now_ms: int) -> Effects:
        if self._is_stopped or not self._is_news(assignment):
            return []
        self._waiting[assignment[:2]] = assignment
        return self._later(now_ms)

    def when_mended(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Run `then(now_ms)` once the controller knows of all replicas that were lost and are here again.

        Who is counted in before that leads nothing of these: Kafka's controller elects when it counts a
        broker in, and not when it is told of a directory. It is waited for no longer than ten seconds.
        """
        if not self._is_mending():
            return then(now_ms)
        self._when_mended = then
        return [SetTimer(key=_MENDED, at_ms=now_ms + _MENDED_MS, then=self._tell_mended)]

    def stop(self) -> Effects:
        """Tell nothing more."""
        self._is_stopped = True
        return [CancelTimer(key=_TIMER), CancelTimer(key=_MENDED)]

    def _is_mending(self) -> bool:
        return any(
            assignment.directory != LOST_DIRECTORY and self._said(*assignment[:2]) == LOST_DIRECTORY
            for assignment in (*self._asked, *self._waiting.values())
        )

    def _tell_mended(self, now_ms: int) -> Effects:
        then, self._when_mended = self._when_mended, None
        return [] if then is None else [CancelTimer(key=_MENDED), *then(now_ms)]

    def _is_news(self, assignment: DirectoryAssignment) -> bool:
        said = self._said(assignment.topic_id, assignment.partition)
        if said is None or said == assignment.directory:
            return False
        # Written down as lost, nobody would know any more where its records may be.
        return assignment.directory != LOST_DIRECTORY or not self._is_failed(said)

    def _later(self, now_ms: int) -> Effects:
        if self._is_timed or self._asked or not self._waiting:
            return []
        self._is_timed = True
        pause_ms = min(_GATHER_MS << min(self._failures, 16), _RETRY_MAX_MS)
        return [SetTimer(key=_TIMER, at_ms=now_ms + pause_ms, then=self._go)]

    def _go(self, now_ms: int) -> Effects:
        self._is_timed = False
        # Metadata may say it by now, or nothing at all of a topic that is gone.
        self._waiting = {key: each for key, each in self._waiting.items() if self._is_news(each)}
        sent = list(self._waiting.values())[:BATCH_MAX]
        if self._is_stopped:
            return []
        if not sent:
            return self._tell_mended(now_ms)
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
        return effects if self._is_mending() else effects + self._tell_mended(now_ms)


def where_it_lies(
    fs: Fs,
    directories: Sequence[LogDirectory],
    topic_partition: TopicPartition,
    topic_id: Uuid,
    said: Uuid | None,
) -> list[LogDirectory]:
    """Where a replica lies, of which metadata says `said`: one directory, or none. StorageError for two.

    A second copy comes back with a power cut, or with a disk that had failed, when the replica had been
    removed from there and was made anew in another directory. Metadata knows which one counts. Where it was
    never told, one of them could not be made, and was never served: that one has no records.
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


def put_strays_aside(
    fs: Fs,
    directories: Sequence[LogDirectory],
    stays: Callable[[LogDirectory, TopicPartition], bool],
    is_known: Callable[[Uuid], bool],
    is_here: Callable[[Uuid, int], bool],
) -> Work:
    """Rename what is not served here, and say so; nothing of it is deleted. In slices.

    Its topic is not known, or has this partition on other brokers: it was deleted, or moved, while this one
    was down. Or it is a second copy. A directory with records that does not say whose it is stays. So does
    one that is being opened, or whose disk has failed, and that of the metadata, which the quorum opens.
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
                    effects += _put_aside(fs, directories, directory, found, is_known, is_here)
                if cost >= _SLICE_COST:
                    yield effects
                    effects, cost = [], 0
        except StorageError:
            pass  # it failed meanwhile
        yield effects
    return []


def _put_aside(
    fs: Fs,
    directories: Sequence[LogDirectory],
    directory: LogDirectory,
    found: TopicPartition,
    is_known: Callable[[Uuid], bool],
    is_here: Callable[[Uuid, int], bool],
) -> Effects:
    """Rename the directory of a partition if it is a stray, and tell of it."""
    path, said = directory.partition_path(found), ""
    try:
        topic_id = owner(fs, path)
        if topic_id is None:
            # A replica that could not be made there, and is in another directory.
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
        aside = directory.put_aside(found)
    except StorageError:
        return []  # nothing is served from it; the operator finds it where it lies
    return told_of_strays(directory, {aside: said})


def _is_open(
    directories: Sequence[LogDirectory],
    topic_partition: TopicPartition,
    topic_id: Uuid | None = None,
) -> bool:
    """Is a partition of that name served from one of them, of that topic where one is named?"""
    logs = (directory.logs.get(topic_partition) for directory in directories)
    return any(log is not None and topic_id in (None, log.topic_id) for log in logs)


def told_of_strays(directory: LogDirectory, said: Mapping[str, str] | None = None) -> Effects:
    """Name, once, what was put aside in a directory: the operator is to look at it."""
    aside, directory.put_aside_as = directory.put_aside_as, []
    return [Warn(line=(said or {}).get(path, _STRAY).format(path=path)) for path in aside]
