"""Invariants of the tier: of the metadata, of the store, and of the logs that rely on both. SIM.

Source: reliability (b), rel-T1, T2, T4 to T8, T10 to T15, T17, T18.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from firnline.base.errors import KafkaError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, uuid_from_text
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.protocol.messages.k21_delete_records import DeleteRecordsRequest
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.replica.partition import Partition
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.ledger import Ledger, PartitionHistory, PartitionKey, name
from firnline.sim.cluster.replica_checks import ReplicaChecks
from firnline.sim.derived.replica_state import Seen, read
from firnline.sim.host import Host, Process
from firnline.sim.net import Call
from firnline.sim.tier.recorded import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    KnownSegment,
    RecordedTier,
    name_of,
)
from firnline.sim.tier.store import SharedStore
from firnline.sim.world import NOWHERE
from firnline.tiered.objects.layout import (
    CATALOG_FOLDER,
    DATA_FOLDER,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTS_FOLDER,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from firnline.tiered.objects.storage import stem_of
from firnline.tiered.spi import RemoteSegment, SegmentState

_EACH_HAS = (OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT, LEADER_EPOCHS, LOG)


class TierChecks:
    """Judges the tier of a run.

    asked_to     up to where DeleteRecords was ever asked for
    deleted_to   up to where it was acknowledged
    """

    def __init__(
        self,
        hosts: dict[int, Host],
        store: SharedStore,
        ledger: Ledger,
        dirty: DirtyReplicas,
        replicas: ReplicaChecks,
        complain: Callable[..., None],
    ) -> None:
        self._hosts = hosts
        self._store = store
        self._ledger = ledger
        self._dirty = dirty
        self._replicas = replicas
        self._complain = complain
        self.recorded = RecordedTier(self.say)
        self.recorded.on_change = self._changed
        store.on_put, store.on_read = self._on_put, self._on_read
        self._histories: list[PartitionHistory] = []
        self.asked_to: dict[PartitionKey, int] = {}
        self.deleted_to: dict[PartitionKey, int] = {}
        self._looked_at: dict[tuple[Process, PartitionKey], None] = {}
        self._forgetful: dict[tuple[Process, PartitionKey], None] = {}
        self._may_be_back: dict[PartitionKey, None] = {}  # records that DeleteRecords deleted

    def say(self, invariant: str, text: str, node_id: int = NOWHERE) -> None:
        """Complain, unless records of the metadata were lost as the budget allows: nobody knows them then."""
        if not self.is_void:
            self._complain(invariant, text, node_id)

    @property
    def is_void(self) -> bool:
        """Whether the last replica standing lost records about the tier: they are exempt."""
        return any(history.cuts for history in self._histories)

    def on_image(self, image: ClusterImage) -> None:
        """Follow the metadata topic as soon as it is there."""
        topic = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None or self._histories:
            return
        for index in topic.partitions:
            history = self._ledger.of((topic.topic_id, index))
            history.on_committed = partial(self.recorded.on_batch, index)
            self._histories.append(history)

    # ------------------------------------------------------------------------- metadata

    def _changed(self, key: PartitionKey, known: KnownSegment, before: SegmentState | None) -> None:
        if known.state == FINISHED:
            self._on_finished(key, known)
        elif before == FINISHED:
            self._check_epochs(key, known)
            if self.is_current(key, known):
                self._on_given_up(key, known)

    def _on_finished(self, key: PartitionKey, known: KnownSegment) -> None:
        """rel-T5: all objects are in the store, and the log is what was committed."""
        segment, history = known.segment, self._ledger.of(key)
        stem = stem_of(segment)
        wanted = _EACH_HAS if segment.txn_index_empty else (*_EACH_HAS, TXN_INDEX)
        missing = [suffix for suffix in wanted if stem + suffix not in self._store.objects]
        if missing:
            self.say("rel-T5", f"{name_of(known)} is finished without {', '.join(missing)}")
            return
        data = self._store.objects[stem + LOG]
        if len(data) != segment.size_bytes:
            text = f"{name_of(known)} has {len(data)} bytes, not {segment.size_bytes}"
            self.say("rel-T5", text)
        newest = max(epoch for epoch, _ in segment.epochs)
        end = segment.end_offset + 1
        known.cuts = history.cuts
        if history.checked_to(newest) < end:
            return  # of a lineage that an unclean election abandoned
        if end > history.end_offset:
            if not history.has_past and not history.cuts:
                text = f"{name_of(known)} ends above what is committed, {history.end_offset}"
                self.say("rel-T3", text)
            return
        problem = history.differs(data, segment.base_offset, end)
        known.current_end = end if problem is None else self._agrees_to(key, known)
        if problem is not None and not history.has_past and not history.cuts:
            self.say("rel-T5", f"{name_of(known)} is not what was committed: {problem}")
        self._check_gap(key, known)

    def _check_gap(self, key: PartitionKey, known: KnownSegment) -> None:
        """rel-T11: what is copied begins where the tier ends, or before.

        A leader that does not know yet that the topic is deleted may still copy.
        """
        if self._dirty.partition(key) is None:
            return
        start = self._ledger.of(key).start_offset
        gap = self.first_gap(key, start, known.segment.base_offset)
        if known.is_current and gap is not None and not self._ledger.of(key).cuts:
            self.say("rel-T11", f"{name_of(known)} leaves a gap at {gap}")

    def _on_given_up(self, key: PartitionKey, known: KnownSegment) -> None:
        """rel-T1: a segment that is deleted has nothing that only the tier has, at or above the log start."""
        leader = self._leader(key)
        if leader is None:
            return
        log_start = max(leader.log.log_start_offset, self._ledger.of(key).start_offset)
        start = max(known.segment.base_offset, log_start)
        end = min(known.segment.end_offset + 1, leader.log.local_log_start_offset)
        gap = self.first_gap(key, start, end)
        if gap is not None:
            text = f"{name_of(known)} is deleted, and nothing else has {gap}; local is {end}"
            self.say("rel-T1", text, leader.leader_id)

    def _leader(self, key: PartitionKey) -> Partition | None:
        """Return the replica that leads now; None without one, or after records were lost."""
        state = self._dirty.partition(key)
        if state is None or state.leader < 0 or self._ledger.of(key).cuts:
            return None
        leader = self._replicas.running(key, state.leader)
        return leader if leader is not None and leader.is_leader else None

    def _check_epochs(self, key: PartitionKey, known: KnownSegment) -> None:
        """rel-T14: a leader that lacks epochs of what the tier has deletes nothing, whatever its lineage.

        Which segments are of another lineage, only all epochs above the log start can say.
        """
        leader = self._leader(key)
        if leader is None or not leader.log.is_tiered:
            return
        log = leader.log
        epochs = log.epochs.entries()
        begin = epochs[0][1] if epochs else log.local_log_start_offset
        start = max(log.log_start_offset, self._ledger.of(key).start_offset)
        lacking = [
            each
            for each in self.recorded.by_partition.get(key, {}).values()
            if (each is known or each.state == FINISHED)
            and each.segment.base_offset < begin
            and each.segment.end_offset >= start
            and self.is_current(key, each)
        ]
        if begin > start and lacking:
            text = f"{name_of(known)} is deleted, and the leader has no epochs below {begin}:"
            self.say("rel-T14", f"{text} it lacks those of {name_of(lacking[0])}", leader.leader_id)

    def is_current(self, key: PartitionKey, known: KnownSegment) -> bool:
        """Whether a finished segment belongs to the committed lineage now.

        After an unclean election that may only show when the new leader has committed something.
        """
        return self.current_end(key, known) > known.segment.end_offset

    def current_end(self, key: PartitionKey, known: KnownSegment) -> int:
        """Up to where a finished segment belongs to the committed lineage now; its base offset for nowhere.

        An unclean election leaves segments of which only the first records are of the lineage.
        """
        history, end = self._ledger.of(key), known.segment.end_offset + 1
        if history.is_skipped(known.segment.base_offset):
            return end
        if not known.is_current or any(at < end for at in history.cut_at[known.cuts :]):
            known.cuts, known.current_end = history.cuts, self._agrees_to(key, known)
        return known.current_end

    def _agrees_to(self, key: PartitionKey, known: KnownSegment) -> int:
        """Compare batch by batch; return the first offset that is not committed as it is in the segment."""
        history, at = self._ledger.of(key), known.segment.base_offset
        data = self._store.objects.get(stem_of(known.segment) + LOG, b"")
        for header in headers(data):
            batch = history.batch_at(header.base_offset)
            if batch != data[header.position : header.position + header.size_bytes]:
                break
            at = header.next_offset
        return at

    def first_gap(self, key: PartitionKey, start: int, end: int) -> int | None:
        """The first offset of [start, end) that no finished segment of the lineage has; None for none."""
        rows = sorted(
            (known.segment.base_offset, self.current_end(key, known))
            for known in self.recorded.by_partition.get(key, {}).values()
            if known.state == FINISHED
        )
        for base_offset, current_end in rows:
            if start >= end or base_offset > start:
                break
            start = max(start, current_end)
        return start if start < end else None

    # ------------------------------------------------------------------------- the store

    def _on_put(self, node_id: int, key: str, data: bytes) -> None:
        """rel-T4: the copy was announced. rel-T12: an object is never written with other bytes."""
        segment_id = _segment_id(key)
        if segment_id is None:
            return
        if segment_id not in self.recorded.by_id:
            self.say("rel-T4", f"{key} is put, and its copy was not announced", node_id)
        before = self._store.objects.get(key)
        if before is not None and before != data:
            self.say("rel-T12", f"{key} is put again, with other bytes", node_id)

    def _on_read(self, node_id: int, segment: RemoteSegment) -> None:
        """rel-T8: only what was finished is read."""
        known = self.recorded.by_id.get(segment.segment_id)
        if known is None or not known.was_finished:
            text = f"segment {segment.segment_id.hex()[:8]} is read, and was never finished"
            self.say("rel-T8", text, node_id)

    # ------------------------------------------------------------------------- DeleteRecords

    def received(self, process: Process, call: Call) -> None:
        """Somebody asks for records to be deleted."""
        request: Any = call.request
        if type(request) is DeleteRecordsRequest:
            for key, row in _rows(process, request.topics):
                self.asked_to[key] = max(self.asked_to.get(key, 0), row.offset)

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """Records are deleted: no reader gets them again (rel-T18)."""
        answer: Any = response
        if type(call.request) is DeleteRecordsRequest:
            for key, row in _rows(process, answer.topics):
                if not row.error_code:
                    self.deleted_to[key] = max(self.deleted_to.get(key, 0), row.low_watermark)

    # ------------------------------------------------------------------------- replicas

    def on_look(
        self, process: Process, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        """A replica has changed; `seen` is what it was."""
        log, history = partition.log, self._ledger.of(key)
        history.is_tiered |= log.is_tiered
        self._note_forgotten(process, key, partition)
        if self._dirty.partition(key) is None:
            return  # the topic is deleted, and everything in the tier, before this broker hears of it
        if not log.is_tiered or history.checked_to(log.epochs.latest_epoch) < log.log_end_offset:
            return
        start, local = log.log_start_offset, log.local_log_start_offset
        leads = partition.is_leader and seen.is_leader
        # The high watermark of a new leader may be behind for a moment.
        if leads and log.highest_remote_offset >= history.end_offset and not history.cuts:
            text = (
                f"{name(key)}: {log.highest_remote_offset} is said to be in the tier; committed is"
            )
            self.say("rel-T10", f"{text} {history.end_offset}", process.node_id)
        if leads and start > seen.log_start:
            self._check_retention(process, key, partition, start)
        if partition.is_leader:
            history.start_offset = max(history.start_offset, start)
        if local > seen.local_start and not history.cuts:
            gap = self.first_gap(key, max(seen.local_start, start, history.start_offset), local)
            if gap is not None:
                text = (
                    f"{name(key)}: local records begin at {local}, and the tier does not have {gap}"
                )
                self.say("rel-T2", text, process.node_id)

    def _note_forgotten(self, process: Process, key: PartitionKey, partition: Partition) -> None:
        """As with Kafka, a log start is in a file some time after it moved.

        A replica that dies before that comes back without it. If it then leads before it has heard of it
        again, because all others are out of the ISR, deleted records are back.
        """
        entries, start = partition.log.epochs.entries(), partition.log.log_start_offset
        start = max(start, entries[0][1]) if entries else start
        spot = (process, key)
        if start >= self.deleted_to.get(key, 0):
            self._forgetful.pop(spot, None)
        elif spot not in self._looked_at:
            self._forgetful[spot] = None
        self._looked_at[spot] = None
        if partition.is_leader and spot in self._forgetful:
            self._may_be_back[key] = None

    def _check_retention(
        self, process: Process, key: PartitionKey, partition: Partition, start: int
    ) -> None:
        """rel-T15: what is left has the bytes of retention.bytes at least, unless somebody deleted more.

        Segments may overlap, by one for each change of the leader, and are counted with all their bytes.
        """
        if start <= max(self.asked_to.get(key, 0), self._ledger.of(key).start_offset):
            return
        log, history = partition.log, self._ledger.of(key)
        kept = [
            known.segment
            for known in self.recorded.by_partition.get(key, {}).values()
            if known.state == FINISHED and known.segment.end_offset >= start
        ]
        begin = max([start, *(segment.end_offset + 1 for segment in kept)])
        # Of two that end where the log starts now, and begin elsewhere, one may have been counted as left.
        just_below = {
            known.segment.base_offset: known.segment
            for known in self.recorded.by_partition.get(key, {}).values()
            if known.state == FINISHED and known.segment.end_offset + 1 == start
        }
        kept += list(just_below.values())[1:]
        local_only = history.bytes_from(begin)
        if history.cuts or local_only is None:
            return
        rest = max(history.end_offset, log.local_log_start_offset)
        left = sum(segment.size_bytes for segment in kept) + local_only
        process.host.fs.is_examined = True
        left += len(read(log, rest, log.log_end_offset))
        process.host.fs.is_examined = False
        least = log.config.retention_bytes
        if least < 0 or left < least:
            text = f"{name(key)}: the log starts at {start}; {left} bytes are left of {least}"
            self.say("rel-T15", text, process.node_id)

    def joined(self, key: PartitionKey, before: PartitionImage, broker_id: int) -> None:
        """rel-T17: who joins an ISR has the leader's epochs below its records, if the tier has them."""
        if before.leader < 0:
            return
        member = self._replicas.running(key, broker_id)
        leader = self._replicas.running(key, before.leader)
        if member is None or leader is None or not leader.is_leader or not leader.log.is_tiered:
            return
        # After a crash a log start may be an older one for a while.
        starts = (leader.log.log_start_offset, member.log.log_start_offset)
        start = max(*starts, self._ledger.of(key).start_offset)
        end = member.log.local_log_start_offset
        ours = _epochs_within(member, start, end)
        theirs = _epochs_within(leader, start, end)
        if ours != theirs and member.log.truncation is None:
            text = f"{name(key)}: {broker_id} joins with the epochs {ours} up to {end}; those of the leader"
            self.say("rel-T17", f"{text} are {theirs}", broker_id)

    # ------------------------------------------------------------------------- the end

    def unsettled(self) -> str | None:
        """Why the tier is not what it will be, or None (rel-T13).

        Segments of an abandoned lineage stay until the log start has passed their epochs, as with Kafka.
        """
        image = self._dirty.image
        if self.is_void:
            return None
        for key, segments in self.recorded.by_partition.items():
            state = self._dirty.partition(key)
            for known in segments.values():
                if known.state == DELETED:
                    continue
                if state is None:
                    return f"{name_of(known)} is left of a topic that is deleted"
                if known.state in (STARTED, DELETING):
                    return f"{name_of(known)} is {known.state.name}"
        return self._orphan(image)

    def _orphan(self, image: ClusterImage) -> str | None:
        for key in self._store.objects:
            segment_id = _segment_id(key)
            if segment_id is not None:
                known = self.recorded.by_id.get(segment_id)
                if (known is None or known.state != FINISHED) and key not in self._store.kept:
                    return f"{key} is left, and its segment is {known and known.state.name}"
            elif key.startswith((CATALOG_FOLDER, PARTS_FOLDER)) and key not in self._store.kept:
                folder = key.split("/")
                where = (uuid_from_text(folder[1]), int(folder[2]))
                # Without any record about the partition no broker knows of it after a restart.
                if where[0] not in image.topics_by_id and where in self.recorded.by_partition:
                    return f"{key} is left of a topic that is deleted"
        return None

    def disagreement(self) -> str | None:
        """Which broker knows something else than the records say (rel-T6)."""
        for key, broker_id, _ in self.replicas_with_tier():
            process = self._hosts[broker_id].process
            assert process is not None
            known, recorded = _states(process.machine.broker, key), self._recorded_of(key)
            if known is None or known == recorded:
                continue
            wrong = next(
                each for each in {**known, **recorded} if known.get(each) != recorded.get(each)
            )
            return (
                f"{name(key)}: segment {wrong.hex()[:8]} is {known.get(wrong)!r} to {broker_id},"
                f" and {recorded.get(wrong)!r} by the records"
            )
        return None

    def _recorded_of(self, key: PartitionKey) -> dict[bytes, SegmentState]:
        known = self.recorded.by_partition.get(key, {})
        return {each: known[each].state for each in known if known[each].state != DELETED}

    def problem_of(self, key: PartitionKey) -> str | None:
        """Return what `tier status` of its leader says is wrong with a partition; None if nothing is."""
        for where, broker_id, found in self.replicas_with_tier():
            if where == key and found.is_leader:
                process = self._hosts[broker_id].process
                assert process is not None
                rows = process.machine.broker.tier.status(key[0])
                return next((row.problem for row in rows if row.partition == key[1]), None)
        return None

    def replicas_with_tier(self) -> Iterator[tuple[PartitionKey, int, Partition]]:
        """The running replicas of tiered partitions, with their brokers."""
        for topic in self._dirty.image.topics_by_name.values():
            for index, state in topic.partitions.items():
                key = (topic.topic_id, index)
                for broker_id in state.replicas:
                    found = self._replicas.running(key, broker_id)
                    if found is not None and found.log.is_tiered:
                        yield key, broker_id, found

    def check_end(self) -> None:
        """rel-T1: the tier has what leaders say. rel-T18: nothing that was deleted is back."""
        for key, broker_id, found in self.replicas_with_tier():
            if found.is_leader:
                self._check_leader(key, found, broker_id)

    def _check_leader(self, key: PartitionKey, found: Partition, broker_id: int) -> None:
        start, local = found.log.log_start_offset, found.log.local_log_start_offset
        gap = self.first_gap(key, start, local)
        if gap is not None:
            text = f"{name(key)}: the log starts at {start}, and nobody has {gap}; local is {local}"
            self.say("rel-T1", text, broker_id)
        history = self._ledger.of(key)
        # A batch is served whole. A replica that begins with the one that the log start lies in forgets at a
        # crash which of its records were deleted.
        batch = history.batch_at(start)
        end = start if batch is None else next(headers(batch)).next_offset
        is_excused = history.cuts or key in self._may_be_back
        if max(start, end - 1) < self.deleted_to.get(key, 0) and not is_excused:
            text = (
                f"{name(key)}: the log starts at {start}; deleted was up to {self.deleted_to[key]}"
            )
            self.say("rel-T18", text, broker_id)


def _states(node: Any, key: PartitionKey) -> dict[bytes, SegmentState] | None:
    """What a broker knows of the segments of a partition; None while it does not know all."""
    segments = node.tier.services.metadata.segments(TopicIdPartition(*key))
    if isinstance(segments, KafkaError):
        return None
    return {each.segment_id: each.state for each in segments}


def _epochs_within(partition: Partition, start: int, end: int) -> list[tuple[int, int]]:
    """The leader epochs with records in [start, end), and where they begin there."""
    found: list[tuple[int, int]] = []
    for epoch, offset in partition.log.epochs.entries():
        if offset >= end:
            break
        if offset <= start:
            found.clear()
        found.append((epoch, max(offset, start)))
    return found if start < end else []


def _rows(process: Process, topics: Any) -> Iterator[tuple[PartitionKey, Any]]:
    """The partitions of a request or response that name their topics, as this broker knows them."""
    hosted = process.machine.broker.hosted.by_name
    for topic in topics:
        for row in topic.partitions:
            found = hosted.get((topic.name, row.partition_index))
            if found is not None:
                yield (found.topic_id, row.partition_index), row


def _segment_id(key: str) -> bytes | None:
    """The segment of an object below data/; None for any other object."""
    if not key.startswith(DATA_FOLDER):
        return None
    return uuid_from_text(key.rpartition("/")[2][21:43])
