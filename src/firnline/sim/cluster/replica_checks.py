"""Invariants of replicas, checked for what changed in every step of a broker. SIM.

Each hosted partition is compared with its state after the previous step; committed records are compared with
the ledger, byte for byte. Source: reliability (b), rel-R2, R4 to R11, R14 to R16, R19.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from firnline.base.errors import RecordsTruncated
from firnline.base.ids import NO_BROKER_EPOCH, NO_EPOCH
from firnline.records.batch import headers
from firnline.replica.partition import Partition
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.compaction_checks import is_compacted
from firnline.sim.cluster.ledger import Ledger, PartitionHistory, PartitionKey, name
from firnline.sim.cluster.wire_checks import Promise, WireChecks
from firnline.sim.derived.producers import ProducerChecks
from firnline.sim.derived.replica_state import Seen, crc_as_sent, isr_size_of, read
from firnline.sim.host import Host, Process
from firnline.sim.world import SECOND, World

# By then the disk of a leader that is alone in the ISR has what others had, unless it was paused.
_SYNCED_US = 1 * SECOND


OnLook = Callable[[Process, PartitionKey, Seen, Partition], None]


class ReplicaChecks:
    """Checks the logs of all brokers. `complain(invariant, text, node)`."""

    def __init__(
        self,
        world: World,
        hosts: dict[int, Host],
        ledger: Ledger,
        dirty: DirtyReplicas,
        wire: WireChecks,
        complain: Any,
    ) -> None:
        self._world = world
        self._wire = wire
        self._hosts = hosts
        self._ledger = ledger
        self._dirty = dirty
        self._complain = complain
        self._seen: dict[int, dict[PartitionKey, Seen]] = {}
        self._producers = ProducerChecks(read, complain)
        # Is shown each replica that has changed, with what it was before.
        self.on_look: OnLook = _nothing

    def ended(self, process: Process) -> None:
        """A process is gone; the next one starts without history."""
        self._seen.pop(process.node_id, None)
        self._wire.promised.clear()

    def failing(self, process: Process) -> None:
        """A step raised: look at what it may have told before it did, watermarks and promises."""
        node, seen = process.machine.broker, self._seen.get(process.node_id, {})
        if node is None:
            return
        self._check_sizes(process, seen)
        for key, partition in node.hosted.by_id.items():
            self._look_last(process, node, key, partition)
        self._check_promises(process)

    def dropped(self, process: Process, partition: Partition) -> None:
        """It leaves this node: look at it while its log can be read.

        One commit can enlarge the ISR and delete the topic. The leader has reported a high watermark in
        between, and at the end of the step nothing of the partition is left here.
        """
        key = (partition.topic_id, partition.topic_partition.partition)
        one = self._seen.get(process.node_id, {}).get(key)
        # Nobody could ask a node that did not lead when the step began.
        if one is not None and one.is_leader and partition.log.truncation is None:
            self._look_last(process, process.machine.broker, key, partition)

    def _look_last(
        self, process: Process, node: Any, key: PartitionKey, partition: Partition
    ) -> None:
        """Check what it may have reported in a step whose end it does not see."""
        one, history = self._seen.get(process.node_id, {}).get(key), self._ledger.of(key)
        if one is None or one.partition is not partition:
            return
        process.host.fs.is_examined = True
        self._note_cuts(one, partition, history)
        if partition.log.high_watermark > one.high_watermark:
            with _unless_out_of_use(node, partition):
                self._on_high_watermark(process, key, one, partition, history)
        process.host.fs.is_examined = False

    def stepped(self, process: Process) -> None:
        """Check every partition that has changed."""
        node = process.machine.broker
        if node is None or not process.is_alive:
            return
        seen = self._seen.get(process.node_id)
        if seen is None:
            seen = self._seen[process.node_id] = {}
        hosted = node.hosted.by_id
        self._check_sizes(process, seen)
        for key, partition in hosted.items():
            log = partition.log
            # A served partition must be complete, whatever became of a truncation.
            is_out_of_use = partition.is_offline or node.storage.is_settling
            if log.truncation is not None or (log.is_half_cut and is_out_of_use):
                # In the middle of a change: it is checked when it is complete, or opened again.
                continue
            state = (
                log.log_end_offset,
                log.high_watermark,
                partition.leader_epoch,
                partition.partition_epoch,
                log.local_log_start_offset,
                log.log_start_offset,
                partition.proposed,
                partition.isr,
                log.compaction.swaps,
            )
            one = seen.get(key)
            if one is None or one.partition is not partition:
                one = seen[key] = Seen(partition)
                if self._ledger.of(key).has_past:
                    # From the checkpoint, which may belong to an abandoned lineage.
                    one.high_watermark = log.high_watermark
                self._on_hosted(process, node, key)
            elif one.state == state:
                continue
            one.state = state
            with _unless_out_of_use(node, partition):
                self._look(process, node, key, one, partition)
                self._producers.changed(process, key, partition)
            process.host.fs.is_examined = False
        if len(seen) > len(hosted):
            for key in [key for key in seen if key not in hosted]:
                del seen[key]
        if self._wire.promised:
            self._check_promises(process)

    # ------------------------------------------------------------------------- one partition

    def _on_hosted(self, process: Process, node: Any, key: PartitionKey) -> None:
        """rel-R4: no partition is hosted by metadata that is older than the broker's own registration."""
        epoch, offset = node.lifecycle.broker_epoch, node.quorum.image.offset
        if not node.lifecycle.is_registered or offset < epoch:
            text = f"hosts {name(key)} by an image of {offset}; it was registered at {epoch}"
            self._complain("rel-R4", text, process.node_id)

    def _look(
        self, process: Process, node: Any, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        log, history = partition.log, self._ledger.of(key)
        process.host.fs.is_examined = True
        history.is_compacted |= is_compacted(log)
        self._note_cuts(seen, partition, history)
        if self._wire.applying is not None and log.log_end_offset != seen.end_offset:
            self._check_answer(process, key, seen, partition)
        if log.log_end_offset < seen.end_offset:
            self._on_truncated(process, key, seen, partition, history)
        if log.local_log_start_offset > seen.local_start:
            checked_to = history.checked_to(log.epochs.latest_epoch)
            seen.verified = max(seen.verified, min(log.local_log_start_offset, checked_to))
        if log.log_end_offset > seen.end_offset:
            self._on_grown(process, key, seen, partition)
        if partition.is_leader and partition.leader_epoch != seen.leader_epoch:
            self._on_leader(process, key, seen, partition, history)
        if partition.partition_epoch < seen.partition_epoch:
            text = f"{name(key)}: partition epoch {seen.partition_epoch}, then {partition.partition_epoch}"
            self._complain("rel-R16", text, process.node_id)
        if log.high_watermark > seen.high_watermark:
            seen.note_commit(partial(self._dirty.largest_isr, key))
            self._on_high_watermark(process, key, seen, partition, history)
        if partition.proposed is not seen.proposed:
            self._on_proposal(process, key, seen, partition)
        if log.compaction.swaps != seen.swaps:
            self._on_compacted(process, key, seen, partition, history)
        process.host.fs.is_examined = False
        self._note_alone(process, key, seen, partition)
        self.on_look(process, key, seen, partition)
        seen.end_offset, seen.local_start = log.log_end_offset, log.local_log_start_offset
        seen.log_start = log.log_start_offset
        seen.high_watermark = max(seen.high_watermark, log.high_watermark)
        seen.leader_epoch, seen.is_leader = partition.leader_epoch, partition.is_leader
        seen.partition_epoch = partition.partition_epoch
        seen.proposed = partition.proposed

    def _on_compacted(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """rel-C10: a round removed nothing that a reader of the complete log must find."""
        seen.swaps = partition.log.compaction.swaps
        start, end = partition.log.local_log_start_offset, min(seen.verified, history.end_offset)
        problem = None if history.has_past else self._lacks(partition, history, start, end)
        if problem is not None:
            text = f"{name(key)} from {start} to {end} after a compaction: {problem}"
            self._complain("rel-C10", text, process.node_id)

    @staticmethod
    def _lacks(partition: Partition, history: PartitionHistory, start: int, end: int) -> str | None:
        data = read(partition.log, start, end)
        retention_ms = partition.log.config.delete_retention_ms
        return history.keyed.differs(data, start, end, retention_ms)

    def _note_cuts(self, seen: Seen, partition: Partition, history: PartitionHistory) -> None:
        if seen.cuts == history.cuts:
            return
        seen.verified = min(seen.verified, *history.cut_at[seen.cuts :])
        if seen.verified <= seen.local_start:
            seen.verified = 0  # nothing it has is left of the lineage
        seen.cuts = history.cuts
        # It may know of the loss by now, until it follows the leader that does not.
        seen.high_watermark = partition.log.high_watermark

    def _note_alone(
        self, process: Process, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        """Schedule two checks soon after a leader is alone: a thread of its disk works while it is paused."""
        if not partition.is_leader or partition.maximal_isr != (process.node_id,):
            seen.alone_us = None
        elif seen.alone_us is None:
            seen.alone_us = self._world.now_us
            self._world.after(_SYNCED_US, self._check_alone, process, key, seen, seen.alone_us)

    def _check_alone(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        alone_us: int,
        *,
        is_second: bool = False,
    ) -> None:
        """rel-P4: a leader that is alone syncs what others had; no other check would notice."""
        node_id = process.node_id
        if self._seen.get(node_id, {}).get(key) is not seen or seen.alone_us != alone_us:
            return
        state = self._dirty.partition(key)
        if state is None or (state.isr, state.leader_epoch) != ((node_id,), seen.leader_epoch):
            return  # deleted, or another node leads, of which it has not heard
        if process.is_paused or process.host.has_bad_disk:
            return
        acked_end, end = self._ledger.of(key).acked_end, self._dirty.durable_end(node_id, key)
        if end >= acked_end:
            return
        if not is_second:
            again = partial(self._check_alone, is_second=True)
            self._world.after(_SYNCED_US, again, process, key, seen, alone_us)
            return
        text = f"{name(key)}: {acked_end} was acknowledged; on its disk is {end}"
        self._complain("rel-P4", text, node_id)

    def _check_answer(
        self, process: Process, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        """rel-R19: a response changes a log only if the log is as it was when the request was sent."""
        asked = (self._wire.applying or {}).get(key)
        if asked != (seen.leader_epoch, seen.end_offset):
            text = (
                f"{name(key)}: an answer to {asked} (epoch, offset) changed a log that ended at"
                f" {seen.end_offset} in epoch {seen.leader_epoch}"
            )
            self._complain("rel-R19", text, process.node_id)

    def _on_proposal(
        self, process: Process, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        """rel-R7: only a response or newer metadata ends a proposal. rel-R8: who may be proposed."""
        node_id, proposed = process.node_id, partition.proposed
        is_same = (partition.leader_epoch, partition.partition_epoch) == (
            seen.leader_epoch,
            seen.partition_epoch,
        )
        # A request to a controller in the same process does not appear on the wire.
        has_controller = process.machine.controller is not None
        if has_controller and proposed is not None:
            self._wire.note_proposed(key, partition.partition_epoch, proposed.new_isr)
        is_given_up = seen.proposed is not None and not has_controller
        if is_given_up and is_same and not self._wire.was_refused(node_id, key):
            text = f"{name(key)}: {seen.proposed} was given up, and nobody had refused it"
            self._complain("rel-R7", text, node_id)
        if proposed is None or self._is_of_the_past(key, partition):
            return
        log = partition.log
        begin = max(log.high_watermark, dict(log.epochs.entries()).get(partition.leader_epoch, 0))
        for member, broker_epoch in proposed.new_isr:
            if member in partition.isr:
                continue
            follower, there = partition.followers.get(member), self.running(key, member)
            known = self._dirty.image.brokers.get(member)
            if known is None or broker_epoch not in (NO_BROKER_EPOCH, known.epoch):
                there = None  # of an old incarnation, as the controller knows (rel-R1)
            claimed = -1 if follower is None else follower.end_offset
            has = claimed if there is None else there.log.log_end_offset
            fetched_us = self._wire.fetched_us.get((node_id, member), -1)
            # A Fetch that states this epoch belongs to it, even if it came before the leader knew the epoch.
            ahead = self._wire.ahead.get((node_id, member), {}).get(key)
            has_fetched = fetched_us >= seen.began_us or ahead == partition.leader_epoch
            if min(claimed, has) < begin or not has_fetched:
                text = (
                    f"{name(key)}: {member} was proposed; it fetched from {claimed} and has {has} of"
                    f" {begin}"
                )
                self._complain("rel-R8", text, node_id)

    def _on_truncated(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """rel-R10: no node truncates what it knew to be committed. rel-R2: nor what was acknowledged."""
        end, node_id = partition.log.log_end_offset, process.node_id
        # Nothing below its first local record was compared; a tiered log may begin anew below that, too.
        local_start = partition.log.local_log_start_offset
        begin = max(seen.local_start, local_start) if partition.log.is_tiered else local_start
        if end < seen.verified and seen.verified > begin:
            text = f"{name(key)}: truncated to {end}; up to {seen.verified} was committed there"
            self._complain("rel-R10", text, node_id)
        seen.verified = min(seen.verified, end)
        # What is left of the newest epoch.
        seen.last_epoch = min(seen.last_epoch, partition.log.epochs.latest_epoch)
        seen.end_offset = end
        seen.high_watermark = min(seen.high_watermark, end)

    def _on_grown(
        self, process: Process, key: PartitionKey, seen: Seen, partition: Partition
    ) -> None:
        """rel-R15: a leader appends in its own epoch. rel-R11: epochs do not fall along a log."""
        log = partition.log
        start = max(seen.end_offset, log.local_log_start_offset)
        if start > seen.end_offset:
            seen.last_epoch = NO_EPOCH  # the log began anew, above everything it had
        for header in headers(read(log, start, log.log_end_offset)):
            if header.base_offset < start:
                continue
            epoch = header.leader_epoch
            if epoch < seen.last_epoch:
                text = f"{name(key)}: epoch {epoch} at {header.base_offset} after {seen.last_epoch}"
                self._complain("rel-R11", text, process.node_id)
            if epoch > partition.leader_epoch or (
                partition.is_leader and seen.is_leader and epoch != partition.leader_epoch
            ):
                text = (
                    f"{name(key)}: {header.base_offset} was appended in epoch {epoch}; the epoch is"
                    f" {partition.leader_epoch}, leader {partition.leader_id}"
                )
                self._complain("rel-R15", text, process.node_id)
            seen.last_epoch = epoch
            if log.epochs.epoch_at(header.base_offset) != epoch:
                text = (
                    f"{name(key)}: {header.base_offset} is of epoch {epoch}, in the epoch cache of"
                    f" {log.epochs.epoch_at(header.base_offset)}: {log.epochs.entries()}"
                )
                self._complain("rel-R11", text, process.node_id)

    def _on_leader(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """rel-R5: a new leader has everything that was committed in earlier epochs, or is exempt.

        Later epochs do not count: a broker that was cut off may learn of its epoch when it is over.
        """
        log = partition.log
        seen.began_us = self._world.now_us
        if self._is_of_the_past(key, partition):
            return
        if history.is_taken_over(partition.leader_epoch):
            self._take_over(process, key, seen, partition, history)
            return
        start, end = log.local_log_start_offset, log.log_end_offset
        committed = history.end_before_epoch(partition.leader_epoch)
        problem: str | None = None
        if end < committed:
            problem = f"its log ends at {end}; {committed} is committed"
        elif max(start, seen.verified) < committed:
            problem = self._differs(seen, partition, history, committed)
        if problem is None:
            return
        if self._is_exempt(process, key, partition):
            self._stand_last(process, key, seen, partition, history)
            return
        text = f"leads {name(key)} in epoch {partition.leader_epoch} without what was: {problem}"
        self._complain("rel-R5", text, process.node_id)

    def _is_exempt(self, process: Process, key: PartitionKey, partition: Partition) -> bool:
        """The last replica standing: it is the only member of the ISR, and lost data since it joined."""
        return self._dirty.is_dirty(process.node_id, key) and partition.isr == (process.node_id,)

    def _is_of_the_past(self, key: PartitionKey, partition: Partition) -> bool:
        """Whether it leads an epoch that an unclean election abandoned, without knowing it."""
        return self._ledger.of(key).checked_to(partition.leader_epoch) < sys.maxsize

    def _stand_last(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """The last replica standing leads with what it has; rel-P4 says what that is at least."""
        owed = self._dirty.owes(process.node_id, key)
        found = self._lose(process, key, seen, partition, history)
        if found is None:
            return
        border, lost = found
        history.give_up(partition.leader_epoch, border)
        history.skip(self._begin(partition.log), partition.log.log_start_offset)
        if border < owed or (lost and len(partition.replicas) == 1):
            text = f"{name(key)}: {lost} records that were acknowledged are not on its disk"
            self._complain("rel-P4", text, process.node_id)
        text = f"exempt: the last replica of {name(key)} goes on from {border}, {lost} acknowledged lost"
        self._world.note(process.node_id, text)

    def _take_over(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """A leader from outside the ISR: the lineage is what it has, from here on."""
        found = self._lose(process, key, seen, partition, history)
        if found is None:
            return
        border, lost = found
        begin = self._begin(partition.log)
        # If its log begins above everything that it shares, it says nothing about what is below: others may
        # truncate it.
        history.take_over(partition.leader_epoch, border if begin < border else 0)
        seen.cuts = history.cuts
        history.skip(begin, partition.log.log_start_offset)
        self._dirty.owes_nothing(key)
        # What it knew as committed from others is now committed by its own authority.
        seen.high_watermark = min(seen.high_watermark, border)
        text = f"exempt: unclean, {name(key)} goes on from {border}, {lost} acknowledged lost"
        self._world.note(process.node_id, text)

    def _lose(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> tuple[int, int] | None:
        """Truncate the lineage where this log diverges; return where, and how many records are lost."""
        border = self._shared_end(partition.log, history)
        if history.position(border) is None:
            self._complain(
                "rel-R5", f"{name(key)}: {border} is within a committed batch", process.node_id
            )
            return None
        lost = history.lose(border) if border < history.end_offset else 0
        self._ledger.exempt += lost
        seen.cuts, seen.verified = history.cuts, min(seen.verified, border)
        return border, lost

    def _shared_end(self, log: Any, history: PartitionHistory) -> int:
        """The end of the committed batches that a log has, or has the compacted rest of."""
        border = history.border_before(history.agrees_to(log.epochs.epoch_at, self._begin(log)))
        for header in headers(read(log, log.local_log_start_offset, log.log_end_offset)):
            batch = history.batch_at(header.base_offset)
            if batch is None or (header.base_offset != border and not history.is_compacted):
                break
            ours = self._batch(log, header)
            if ours != batch and not (
                history.is_compacted and history.keyed.is_left_of(ours, batch)
            ):
                break
            border = header.next_offset
        return border

    def _begin(self, log: Any) -> int:
        """The start of its first batch: the log start may lie inside it."""
        first = next(headers(read(log, log.local_log_start_offset, log.log_end_offset)), None)
        begin: int = log.local_log_start_offset if first is None else first.base_offset
        return begin

    def _batch(self, log: Any, header: Any) -> bytes:
        data = read(log, header.base_offset, header.next_offset)
        return data[: header.size_bytes]

    def _differs(
        self, seen: Seen, partition: Partition, history: PartitionHistory, end: int
    ) -> str | None:
        start = max(seen.verified, partition.log.local_log_start_offset)
        if history.is_compacted:
            return self._lacks(partition, history, start, end)
        problems = (
            self._differs_in(partition, history, *each) for each in history.known(start, end)
        )
        return next((problem for problem in problems if problem is not None), None)

    def _differs_in(
        self, partition: Partition, history: PartitionHistory, start: int, end: int
    ) -> str | None:
        if history.position(start) is None:
            # The log start may lie inside a batch.
            start = history.border_before(start)
        data = read(partition.log, start, end)
        first = next(headers(data), None)
        if first is not None and first.base_offset != start:
            return f"its first batch is at {first.base_offset}, not {start}"
        return history.differs(data, start, end)

    def _on_high_watermark(
        self,
        process: Process,
        key: PartitionKey,
        seen: Seen,
        partition: Partition,
        history: PartitionHistory,
    ) -> None:
        """rel-R9: what is committed is the same everywhere. rel-R6 for the first node that calls it
        committed.
        """
        log = partition.log
        high = log.high_watermark
        # One commit may answer a leader's proposal and depose it.
        leads = partition.is_leader or seen.is_leader
        leader_epoch = partition.leader_epoch if partition.is_leader else seen.leader_epoch
        is_past = leads and history.checked_to(leader_epoch) < sys.maxsize
        # Until it has a batch of the present lineage, a follower may have an abandoned one.
        epoch = leader_epoch if leads else log.epochs.latest_epoch
        high = min(high, history.checked_to(epoch))
        if leads and not is_past:
            self._check_isr(process, key, partition, high)
        start = max(seen.verified, log.local_log_start_offset)
        if start < high:
            problem = self._differs(seen, partition, history, min(high, history.end_offset))
            if problem is None and high > history.end_offset:
                if not leads and partition.is_offline:
                    return  # it led, and that was in a directory that failed: nobody was served
                if not leads:
                    problem = f"a follower knows more than any leader said, {history.end_offset}"
                else:
                    problem = self._extend(log, history, high, leader_epoch)
            if problem is not None:
                self._complain("rel-R9", f"{name(key)} up to {high}: {problem}", process.node_id)
            if history.problem is not None:
                self._complain("rel-R12", f"{name(key)}: {history.problem}", process.node_id)
                history.problem = None
            seen.verified = high
        if seen.verified >= history.end_offset:
            self._dirty.has_caught_up(process.node_id, key)

    def _extend(
        self, log: Any, history: PartitionHistory, high: int, leader_epoch: int
    ) -> str | None:
        # The log start may lie inside the next batch.
        data = read(log, max(history.end_offset, log.local_log_start_offset), high)
        return history.extend(data, high, leader_epoch)

    def _check_isr(
        self, process: Process, key: PartitionKey, partition: Partition, high: int
    ) -> None:
        """rel-R6, rel-R7: every member of the ISR, and of any ISR that the controller may soon have, has
        it.
        """
        if not partition.is_leader:
            for member in partition.isr:
                self.check_member(key, member, high, "rel-R6")
            return
        members = dict.fromkeys(partition.isr)
        if partition.proposed is not None:
            members.update(dict.fromkeys(broker_id for broker_id, _ in partition.proposed.new_isr))
        decided = self._dirty.partition(key)
        if decided is not None and decided.leader_epoch == partition.leader_epoch:
            members.update(dict.fromkeys(decided.isr))
        for member in members:
            if member == process.node_id:
                continue
            follower = partition.followers.get(member)
            claimed = -1 if follower is None else follower.end_offset
            if claimed < high:
                text = (
                    f"{name(key)}: {high} is committed; {member}, of the ISR {tuple(members)},"
                    f" fetched from {claimed}"
                )
                self._complain("rel-R6", text, process.node_id)
            elif not self._is_out(key, partition, member):
                self.check_member(key, member, high, "rel-R6")

    def _is_out(self, key: PartitionKey, partition: Partition, member: int) -> bool:
        """Whether the controller removed a dirty member, of which this leader has not heard.

        Nobody elects it, and the leader still counts what it lost since: it had fetched it. No proposal of
        this leader brings it back, because it has an older partition epoch.
        """
        decided = self._dirty.partition(key)
        return (
            decided is not None
            and decided.partition_epoch > partition.partition_epoch
            and member not in decided.isr
            and self._dirty.is_dirty(member, key)
        )

    def check_member(self, key: PartitionKey, member: int, end: int, invariant: str) -> None:
        """rel-R2: a running and registered member of the ISR has it."""
        found = self.running(key, member)
        if found is not None and found.log.log_end_offset < end:
            may_lack = self._dirty.is_dirty(member, key) or self._ledger.of(key).is_open
            if may_lack and self._dirty.is_alone(member, key):
                return
            text = f"{name(key)}: {member} is in the ISR and has up to {found.log.log_end_offset} of {end}"
            self._complain(invariant, text, member)

    def running(self, key: PartitionKey, node_id: int) -> Partition | None:
        """The partition on a running broker whose incarnation is in the newest metadata."""
        host = self._hosts[node_id]
        process = host.process
        if process is None or not process.is_ready:
            return None
        node = process.machine.broker
        if node is None or not node.lifecycle.is_registered:
            return None
        known = self._dirty.image.brokers.get(node_id)
        if known is None or known.epoch != node.broker_epoch:
            return None
        found: Partition | None = node.hosted.by_id.get(key)
        return found

    # ------------------------------------------------------------------------- promises

    def _check_sizes(self, process: Process, seen: dict[PartitionKey, Seen]) -> None:
        """rel-R13: the ISR is large enough, after this step or when the batch was committed."""
        for promise in self._wire.promised:
            largest_isr = partial(self._dirty.largest_isr, promise.key)
            if isr_size_of(promise, seen.get(promise.key), largest_isr) < promise.least:
                text = (
                    f"{name(promise.key)}: acknowledged at {promise.base_offset} with an ISR of"
                    f" {promise.isr_size}; {promise.least} are asked for"
                )
                self._complain("rel-R13", text, process.node_id)

    def _check_promises(self, process: Process) -> None:
        """rel-R14: what is acknowledged with acks=all is committed, exactly as sent."""
        promised, self._wire.promised = self._wire.promised, []
        for promise in promised:
            history = self._ledger.of(promise.key)
            if not self._is_left_behind(promise, history):
                self._check_promise(promise, process.node_id)
                history.acked_end = max(history.acked_end, promise.next_offset)

    def _is_left_behind(self, promise: Promise, history: PartitionHistory) -> bool:
        """Whether an exempt loss had abandoned it before it was acknowledged. Then it is lost too, and
        counted.
        """
        at, epoch = promise.base_offset, promise.leader_epoch
        is_lost = history.checked_to(epoch) <= at or history.is_given_up(epoch, at)
        if is_lost:
            history.lost += promise.next_offset - promise.base_offset
            self._ledger.exempt += promise.next_offset - promise.base_offset
        return is_lost

    def _check_promise(self, promise: Promise, node_id: int) -> None:
        key, base_offset, crc = promise.key, promise.base_offset, promise.crc
        history = self._ledger.of(key)
        batch = history.batch_at(base_offset)
        if batch is None:
            text = f"{name(key)}: {base_offset} was acknowledged; up to {history.end_offset} is committed"
            self._complain("rel-R14", text, node_id)
        elif crc_as_sent(batch) != crc:
            text = f"{name(key)}: another batch was acknowledged at {base_offset}"
            self._complain("rel-R12", text, node_id)


def _nothing(_process: Process, _key: PartitionKey, _seen: Seen, _partition: Partition) -> None:
    """Nobody looks."""


@contextlib.contextmanager
def _unless_out_of_use(node: Any, partition: Partition) -> Iterator[None]:
    """Ignore errors of a failed directory, or of logs that a stopping node has closed: nobody is served."""
    try:
        yield
    except RecordsTruncated:
        if not (partition.is_offline or node.storage.is_settling):
            raise
