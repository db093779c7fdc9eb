"""The invariants rel-Q1 to rel-Q18, checked after every event, and at every message of the quorum. SIM.

Checks are incremental: the state of a node is compared with its previous state, and only what changed is
checked. What is durable is read from the simulated platter. Source: reliability (b).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from firnline.base.effects import Send
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.image import ClusterImage
from firnline.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from firnline.protocol.messages.k52_vote import VoteRequest, VoteResponse
from firnline.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from firnline.protocol.schema import Message
from firnline.raft.role import Role
from firnline.sim.durable import DurableLog, durable_election, walk
from firnline.sim.history import CommittedMetadata, ImageListener
from firnline.sim.host import Host, Process
from firnline.sim.messages import first_partition, request_of
from firnline.sim.net import Call
from firnline.sim.options import Options
from firnline.sim.quorum_node import LOG
from firnline.sim.snapshot_checks import SnapshotChecks
from firnline.sim.world import World

_ALL_BYTES = 1 << 30
# One in so many of the images that a node publishes is compared completely.
_IMAGE_TURN = 32


class Violation(NamedTuple):
    """An invariant that did not hold: which, when, on which node, and how."""

    invariant: str
    at_us: int
    node_id: int
    text: str


class _Seen:
    """The state of one process after its last step."""

    __slots__ = (
        "end_offset",
        "epoch",
        "high_watermark",
        "image",
        "image_count",
        "last_high_watermark",
        "name_changes",
        "newest_snapshot_id",
        "reached",
        "role",
        "start_offset",
        "synced_offset",
        "verified_offset",
    )

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.role: Role | None = None
        self.epoch = -1
        self.high_watermark = -1  # the largest one ...
        # ... and the last one; None while it is not known.
        self.last_high_watermark: int | None = None
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = -1
        self.verified_offset = start_offset
        self.name_changes = -1
        self.newest_snapshot_id: OffsetAndEpoch | None = None
        self.image: ClusterImage | None = None
        self.image_count = 0
        # While it leads: how far each replica has fetched, by its requests and by our responses.
        self.reached: dict[int, int] = {}


class Checkers:
    """Judges all nodes. `violations` is what did not hold; `on_violation` hears of each at once.

    on_image  hears of each committed image of the metadata
    """

    def __init__(
        self,
        world: World,
        options: Options,
        hosts: dict[int, Host],
        on_violation: Callable[[Violation], None],
        on_image: ImageListener,
    ) -> None:
        self.history = CommittedMetadata(on_image)
        self.violations: list[Violation] = []
        self._world = world
        self._options = options
        self._hosts = hosts
        self._on_violation = on_violation
        self._leaders: dict[int, tuple[int, int]] = {}  # epoch -> node, number of the process
        self._votes: dict[tuple[int, int, int], int] = {}  # node, disk, epoch -> candidate
        self._start_of_leaders = 0
        self._published = 0  # the largest high watermark of any leader ...
        self._published_epoch = 0  # ... and in which epoch that was
        self._seen: dict[int, _Seen] = {}
        self._durable = {node_id: DurableLog(LOG) for node_id in options.node_ids}
        self.snapshots = SnapshotChecks(self.history, self.complain)

    def complain(self, invariant: str, text: str, node_id: int = -1) -> None:
        """Record a broken invariant."""
        violation = Violation(invariant, self._world.now_us, node_id, text)
        self.violations.append(violation)
        self._world.note(node_id, f"VIOLATION {invariant}: {text}")
        self._on_violation(violation)

    # ------------------------------------------------------------------------- after a step

    def stepped(self, process: Process) -> None:
        """Check a process after each of its steps, unless it is gone."""
        if not process.is_alive or not process.is_ready:
            return
        machine = process.machine
        node_id, raft, log = process.node_id, machine.raft, machine.log
        seen = self._seen.get(node_id)
        if seen is None:
            seen = self._seen[node_id] = _Seen(log.start_offset, log.end_offset)
        start_offset, end_offset = log.start_offset, log.end_offset
        if end_offset < seen.end_offset:
            self._on_truncated(node_id, seen, raft, end_offset)
        if start_offset != seen.start_offset:
            self._on_started_anew(process, seen, start_offset, end_offset)
        # What is not saved yet, and so not visible to others, may still be lost.
        epoch, role = (seen.epoch, seen.role) if raft.is_saving else (raft.epoch, raft.role)
        if epoch < seen.epoch:
            self.complain("rel-Q2", f"the epoch fell from {seen.epoch} to {epoch}", node_id)
        if role is Role.LEADER and (seen.role is not Role.LEADER or epoch != seen.epoch):
            self._on_leader(process, machine)
        self._follow_high_watermark(process, seen)
        name_changes, newest = process.host.fs.name_changes(LOG), log.newest_snapshot_id
        if (
            name_changes != seen.name_changes
            or start_offset != seen.start_offset
            or newest != seen.newest_snapshot_id
        ):
            self.snapshots.look(process, start_offset)
            seen.name_changes, seen.newest_snapshot_id = name_changes, newest
        synced_offset = log.synced_offset
        if synced_offset != seen.synced_offset:
            seen.synced_offset = synced_offset
            self._on_synced(process, log)
        image = machine.quorum.image
        if image is not seen.image:
            self._on_image(node_id, seen, image, raft)
        seen.role, seen.epoch = role, epoch
        seen.start_offset, seen.end_offset = start_offset, end_offset

    def failing(self, process: Process) -> None:
        """The disk failed in the middle of a step: keep what the process knew to be committed.

        It told nobody what it became in that step, so it may become the same again.
        """
        seen = self._seen.get(process.node_id)
        if seen is not None:
            process.host.fs.is_examined = True
            self._follow_high_watermark(process, seen)
            process.host.fs.is_examined = False

    def _follow_high_watermark(self, process: Process, seen: _Seen) -> None:
        high_watermark = process.machine.raft.high_watermark
        if high_watermark != seen.last_high_watermark:
            seen.last_high_watermark = high_watermark
            if high_watermark is not None:
                self._on_high_watermark(process, process.machine, seen)

    def ended(self, process: Process) -> None:
        """A process is gone; the next one on that machine starts without history."""
        self._seen.pop(process.node_id, None)
        self.snapshots.ended(process)

    def _on_truncated(self, node_id: int, seen: _Seen, raft: Any, end_offset: int) -> None:
        if end_offset < seen.high_watermark:
            text = f"truncated to {end_offset}, below its high watermark {seen.high_watermark}"
            self.complain("rel-Q7", text, node_id)
        if seen.role is Role.LEADER and raft.role is Role.LEADER and raft.epoch == seen.epoch:
            self.complain("rel-Q13", f"a leader truncated its log to {end_offset}", node_id)
        seen.verified_offset = min(seen.verified_offset, end_offset)

    def _on_started_anew(
        self, process: Process, seen: _Seen, start_offset: int, end_offset: int
    ) -> None:
        node_id, raft = process.node_id, process.machine.raft
        if start_offset < seen.start_offset:
            text = f"the log start went back from {seen.start_offset} to {start_offset}"
            self.complain("rel-Q14", text, node_id)
        if start_offset > seen.end_offset and raft.role is Role.LEADER:
            self.complain("rel-Q13", f"a leader loaded the snapshot at {start_offset}", node_id)
        elif self._options.start_offset_lag_ms > 0:
            self._check_lag(process, seen, start_offset, end_offset)
        seen.verified_offset = max(seen.verified_offset, start_offset)

    def _check_lag(self, process: Process, seen: _Seen, start_offset: int, end_offset: int) -> None:
        """rel-Q14, last clause (Q51): the leader waits for the slowest live replica, but not longer than
        the limit.
        """
        if process.machine.raft.role is not Role.LEADER:
            # A log that begins and ends there is a snapshot of the leader's that was just installed.
            if start_offset > self._start_of_leaders and start_offset < end_offset:
                text = (
                    f"the log starts at {start_offset}, no leader's beyond {self._start_of_leaders}"
                )
                self.complain("rel-Q14", text, process.node_id)
            return
        self._start_of_leaders = max(self._start_of_leaders, start_offset)
        behind = [node_id for node_id, at in seen.reached.items() if at < start_offset]
        ages = [
            process.now_ms() - last_contained_ms
            for snapshot_id, _, last_contained_ms in process.machine.log.snapshot_sizes()
            if snapshot_id.offset == start_offset
        ]
        if behind and ages and ages[0] <= self._options.start_offset_lag_ms:
            text = f"the log starts at {start_offset}, {ages[0]} ms old; {behind} are not there yet"
            self.complain("rel-Q14", text, process.node_id)

    def _on_leader(self, process: Process, machine: Any) -> None:
        """rel-Q1: one leader per epoch. rel-Q4: it has everything that was committed."""
        node_id, epoch, log = process.node_id, machine.raft.epoch, machine.log
        claim = (node_id, process.number)
        first = self._leaders.setdefault(epoch, claim)
        self._seen[node_id].reached = {}
        self._start_of_leaders = max(self._start_of_leaders, log.start_offset)
        if first != claim:
            what = "another node" if first[0] != node_id else "itself before a restart"
            self.complain("rel-Q1", f"leads epoch {epoch}, which {what} ({first[0]}) led", node_id)
        if epoch == max(self._leaders):
            self._check_completeness(node_id, log)
        self._check_saved(process, epoch, node_id, "leads")
        if machine.raft.high_watermark is not None and len(self._options.voter_ids) > 1:
            text = f"begins to lead with a high watermark, {machine.raft.high_watermark}"
            self.complain("rel-Q5", text, node_id)

    def _check_completeness(self, node_id: int, log: Any) -> None:
        history = self.history
        if log.end_offset < history.end_offset:
            text = (
                f"leads with a log that ends at {log.end_offset}; {history.end_offset} is committed"
            )
            self.complain("rel-Q4", text, node_id)
            return
        start_offset = log.start_offset
        data = _read(log, start_offset, history.end_offset)
        problem = history.differs(data, start_offset, history.end_offset)
        if problem is not None:
            self.complain("rel-Q4", f"leads without what is committed: {problem}", node_id)

    def _on_high_watermark(self, process: Process, machine: Any, seen: _Seen) -> None:
        raft, log, node_id = machine.raft, machine.log, process.node_id
        high_watermark = raft.high_watermark
        if high_watermark < seen.high_watermark:
            text = f"the high watermark fell from {seen.high_watermark} to {high_watermark}"
            self.complain("rel-Q5", text, node_id)
        if high_watermark > log.end_offset:
            text = f"the high watermark {high_watermark} is beyond the log, {log.end_offset}"
            self.complain("rel-Q5", text, node_id)
            return
        is_new = high_watermark > self.history.end_offset
        self._verify(node_id, log, seen, high_watermark)
        if raft.role is Role.LEADER:
            self._on_published(node_id, raft, high_watermark, is_new)
        seen.high_watermark = high_watermark

    def _verify(self, node_id: int, log: Any, seen: _Seen, high_watermark: int) -> None:
        """rel-Q3: what is committed here is what is committed anywhere."""
        start_offset = max(seen.verified_offset, log.start_offset)
        if start_offset >= high_watermark:
            return
        history = self.history
        data = _read(log, start_offset, high_watermark)
        problem = history.differs(data, start_offset, high_watermark)
        if problem is None and high_watermark > history.end_offset:
            known = history.position(history.end_offset) or 0
            begin = history.position(start_offset)
            if begin is None:
                problem = f"{history.end_offset} to {start_offset} was never seen committed"
            else:
                problem = history.extend(data[known - begin :], high_watermark)
        if problem is not None:
            self.complain("rel-Q3", f"committed up to {high_watermark}: {problem}", node_id)
        seen.verified_offset = high_watermark

    def _on_published(self, node_id: int, raft: Any, high_watermark: int, is_new: bool) -> None:
        """rel-Q5: a new leader's high watermark covers its own epoch, and what others published."""
        if raft.epoch > self._published_epoch and high_watermark < self._published:
            text = f"publishes {high_watermark}; an older leader published {self._published}"
            self.complain("rel-Q5", text, node_id)
        epoch = self.history.epoch_before(high_watermark)
        if epoch is not None and epoch < raft.epoch:
            text = f"leads epoch {raft.epoch} and publishes {high_watermark}, of epoch {epoch}"
            self.complain("rel-Q5", text, node_id)
        if high_watermark > self._published:
            self._published, self._published_epoch = high_watermark, raft.epoch
        if is_new:
            self._check_majority(node_id, high_watermark)

    def _check_majority(self, node_id: int, high_watermark: int) -> None:
        """rel-Q6: a majority has it where no power cut reaches it."""
        ends = [
            self._durable[voter].end_offset(self._hosts[voter].fs)
            for voter in self._options.voter_ids
        ]
        having = sum(end >= high_watermark for end in ends)
        if having <= len(ends) // 2:
            text = f"publishes {high_watermark}; on the disks of the voters is up to {ends}"
            self.complain("rel-Q6", text, node_id)

    def _on_synced(self, process: Process, log: Any) -> None:
        """rel-P1: what counts as synced is on the disk."""
        end = self._durable[process.node_id].end_offset(process.host.fs)
        if end < log.synced_offset:
            text = f"counts on {log.synced_offset} being synced; the disk has {end}"
            self.complain("rel-P1", text, process.node_id)

    def _on_image(self, node_id: int, seen: _Seen, image: ClusterImage, raft: Any) -> None:
        """rel-Q13: what clients see is committed, does not go back, and is what the log says."""
        if seen.image is not None and image.offset < seen.image.offset:
            text = f"the image went back from {seen.image.offset} to {image.offset}"
            self.complain("rel-Q13", text, node_id)
        if image.offset >= self.history.end_offset:
            text = f"shows {image.offset}; committed is what is below {self.history.end_offset}"
            self.complain("rel-Q13", text, node_id)
        seen.image = image
        seen.image_count += 1
        if seen.image_count % _IMAGE_TURN == 0:
            self.check_image(node_id, image)

    def check_image(self, node_id: int, image: ClusterImage) -> None:
        """Compare a published image with the one that the committed records make."""
        expected = self.history.images.get(image.offset)
        if expected is None:
            if image.offset >= 0:
                self.complain("rel-Q13", f"no batch ends at {image.offset}", node_id)
        elif image._replace(epoch=expected.epoch) != expected:
            self.complain("rel-Q13", f"another image at {image.offset} than the log's", node_id)

    # ------------------------------------------------------------------------- at a message

    def sent(self, process: Process, to_id: int, effect: Send[Any]) -> None:
        """Check a request as it leaves."""
        request = request_of(effect)
        look = _AT_REQUEST.get(type(request))
        if look is not None:
            look(self, process, request)

    def received(self, process: Process, call: Call) -> None:
        """Check a request as it is handled, and note how far its replica has fetched."""
        request, from_id = call.request, call.from_id
        each = first_partition(request) if type(request) is FetchRequest else None
        seen = self._seen.get(process.node_id)
        if each is not None and seen is not None and from_id in seen.reached:
            seen.reached[from_id] = max(seen.reached[from_id], each.fetch_offset)

    def _on_fetch_answered(self, process: Process, to_id: int, request: Any, response: Any) -> None:
        """A replica whose fetch position the leader found valid is live (Q51)."""
        each, seen = first_partition(response), self._seen.get(process.node_id)
        if each is None or seen is None or each.error_code:
            return
        if each.snapshot_id.end_offset >= 0:
            self._on_snapshot_served(process, to_id, each)
        elif each.diverging_epoch.epoch < 0:
            offset = first_partition(request).fetch_offset  # type: ignore[union-attr]
            seen.reached[to_id] = max(seen.reached.get(to_id, 0), offset)

    def _on_snapshot_served(self, process: Process, to_id: int, part: Any) -> None:
        """A replica that fetches a snapshot continues at its end, and needs nothing of the log before it."""
        seen = self._seen.get(process.node_id)
        if part is not None and seen is not None and not part.error_code and to_id in seen.reached:
            seen.reached[to_id] = max(seen.reached[to_id], part.snapshot_id.end_offset)

    def on_response(self, process: Process, effect: Send[Any], response: Message) -> None:
        """Nothing to do: the effect of a response is checked after the step."""

    def answered(self, process: Process, call: Call, response: Message) -> None:
        """Check a response as it leaves."""
        to_id, request = call.from_id, call.request
        if type(response) is VoteResponse:
            self._on_vote_answered(process, request, response)
        elif type(response) is FetchResponse:
            if self._options.start_offset_lag_ms > 0:
                self._on_fetch_answered(process, to_id, request, response)
        elif type(response) is FetchSnapshotResponse:
            self._on_snapshot_served(process, to_id, first_partition(response))
            self.snapshots.served(process, to_id, response)

    def _on_vote_asked(self, process: Process, request: Any) -> None:
        each = first_partition(request)
        if each is None or each.pre_vote:
            return
        self._note_vote(process, each.replica_epoch, each.replica_id)
        # As a candidate of this epoch it gets the same votes again after a power cut.
        end = self._durable[process.node_id].end_offset(process.host.fs)
        if end < each.last_offset:
            text = f"asks for votes with a log up to {each.last_offset}; its disk has up to {end}"
            self.complain("rel-P1", text, process.node_id)

    def _on_vote_answered(self, process: Process, request: Any, response: Any) -> None:
        asked, answer = first_partition(request), first_partition(response)
        if asked is None or answer is None:
            return
        saved = durable_election(process.host.fs, LOG)
        if answer.leader_epoch > 0 and (
            saved is None or saved["leaderEpoch"] < answer.leader_epoch
        ):
            text = f"says it is in epoch {answer.leader_epoch}; its disk knows {saved}"
            self.complain("rel-P2", text, process.node_id)
        if not answer.vote_granted:
            return
        log = process.machine.log
        if log.forgotten is not None:
            text = f"granted {asked.replica_id}, and lacks what it had up to {log.forgotten}"
            self.complain("rel-Q4", text, process.node_id)
        own = max(
            (log.last_epoch, log.end_offset),
            *((i.epoch, i.offset) for i in (log.newest_snapshot_id,) if i is not None),
            (0, 0),
        )
        if (asked.last_offset_epoch, asked.last_offset) < own:
            text = (
                f"granted {asked.replica_id}, whose log is {asked.last_offset}"
                f"@{asked.last_offset_epoch}, and has {own[1]}@{own[0]} itself"
            )
            self.complain("rel-Q12", text, process.node_id)
        if not asked.pre_vote:
            self._note_vote(process, asked.replica_epoch, asked.replica_id)

    def _note_vote(self, process: Process, epoch: int, candidate: int) -> None:
        """rel-Q2: one vote per epoch, saved before it is visible (rel-P2)."""
        node_id = process.node_id
        key = (node_id, process.host.disk_number, epoch)
        first = self._votes.setdefault(key, candidate)
        if first != candidate:
            text = f"voted for {first} and for {candidate} in epoch {epoch}"
            self.complain("rel-Q2", text, node_id)
        self._check_saved(process, epoch, candidate, "votes")

    def _check_saved(self, process: Process, epoch: int, candidate: int, what: str) -> None:
        saved = durable_election(process.host.fs, LOG)
        known = -1 if saved is None else saved["leaderEpoch"]
        if saved is None or known < epoch:
            text = f"{what} in epoch {epoch}; its disk knows epoch {known}"
            self.complain("rel-P2", text, process.node_id)
        elif known == epoch and candidate not in (saved["votedId"], saved["leaderId"]):
            text = f"{what} for {candidate} in epoch {epoch}; its disk knows {saved['votedId']}"
            self.complain("rel-P2", text, process.node_id)

    def _on_begin_sent(self, process: Process, request: Any) -> None:
        each = first_partition(request)
        if each is not None:
            self._check_saved(process, each.leader_epoch, each.leader_id, "begins")

    def _on_fetch_sent(self, process: Process, request: Any) -> None:
        machine = process.machine
        node_id, log = process.node_id, machine.log
        each = first_partition(request)
        if each is None:
            return
        self.snapshots.resumed(node_id)
        if machine.raft.role is Role.LEADER:
            self.complain("rel-Q13", "a leader fetches", node_id)
        newest = log.newest_snapshot_id
        if newest is not None and newest.offset > log.end_offset:
            text = f"fetches from {each.fetch_offset} beside the snapshot at {newest.offset}"
            self.complain("rel-Q11", text, node_id)
        is_empty = log.start_offset == log.end_offset and newest is not None
        if is_empty and (each.fetch_offset, each.last_fetched_epoch) != newest:
            text = f"fetches {each.fetch_offset}@{each.last_fetched_epoch} after snapshot {newest}"
            self.complain("rel-Q11", text, node_id)
        if node_id in self._options.voter_ids:
            end = self._durable[node_id].end_offset(process.host.fs)
            if end < each.fetch_offset:
                text = f"fetches from {each.fetch_offset}; its disk has up to {end}"
                self.complain("rel-P1", text, node_id)

    def _on_snapshot_asked(self, process: Process, request: Any) -> None:
        machine = process.machine
        if machine.raft.role is Role.LEADER:
            self.complain("rel-Q13", "a leader fetches a snapshot", process.node_id)


_AT_REQUEST: dict[type[Message], Callable[[Checkers, Process, Any], None]] = {
    VoteRequest: Checkers._on_vote_asked,
    BeginQuorumEpochRequest: Checkers._on_begin_sent,
    FetchRequest: Checkers._on_fetch_sent,
    FetchSnapshotRequest: Checkers._on_snapshot_asked,
}


def _read(log: Any, start_offset: int, end_offset: int) -> bytes:
    """Complete batches from `start_offset` to `end_offset` or beyond."""
    parts: list[bytes] = []
    at = start_offset
    while at < end_offset:
        data: bytes = log.read(at, max_bytes=_ALL_BYTES)
        if not data:
            break
        parts.append(data)
        _, at = walk(data, 0, len(data))
    return parts[0] if len(parts) == 1 else b"".join(parts)
