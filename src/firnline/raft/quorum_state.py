"""The quorum state of this node: role, epoch, vote, leader, and what it knows to be committed. PURE.

Theory of operation. A node is unattached, prospective, candidate, leader, follower or resigned (`role.py`).
`Election`, `Leader` and `FollowerState` decide when the role changes; this module makes the change:

  1. A `transition_to_...` method sets role, epoch, leader and vote. It forgets all requests under way, so
     that an answer to an earlier role decides nothing.
  2. The observer (`RaftNode`) ends the old role and begins the new one.
  3. The gate (`calls.py`) saves epoch, leader and vote, and only then lets out messages.

Every response passes `ask`: its epoch and leader are applied first; its content is used only if it is of this
node's epoch. Guarantees: I1 to I3 below. Source: KIP-595; spec 1.3, Q10, Q15, Q21.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, TypeVarTuple

from firnline.base.effects import Effect, Effects, Flush, Peer, Request, Unanswered
from firnline.base.errors import Bug, CannotGoOn, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import ZERO_UUID, OffsetAndEpoch, Uuid
from firnline.base.log_lines.cluster import CONTROLLER_CHANGED
from firnline.base.log_lines.line import LogLine
from firnline.base.log_lines.quorum import (
    EPOCH_HIGH,
    EPOCH_REFUSED,
    EPOCHS_RUN_OUT,
    NO_USABLE_RESPONSE,
    TWO_LEADERS,
)
from firnline.base.ports import Rng
from firnline.raft.calls import Calls, Gate, Timers
from firnline.raft.election_state import (
    EPOCH_FREE_MAX,
    EPOCH_MAX,
    NOBODY,
    ElectionState,
    highest_to_take,
    may_elect_in,
)
from firnline.raft.ports import ElectionStore, RaftListener, ReplicatedLog
from firnline.raft.role import Cause, Role, next_role
from firnline.raft.settings import QuorumSettings
from firnline.raft.voters import VoterSet
from firnline.raft.wire import LeaderAndEpoch, ParsedResponse, QuorumResponse, read_response

_EMPTY = OffsetAndEpoch(0, 0)
_CODES = frozenset(Code)
# The callback of `ask`. It returns None or a KafkaError if it could do nothing with the response.
Arguments = TypeVarTuple("Arguments")
Response = TypeVar("Response", bound=QuorumResponse)
HandleResponse = Callable[[ParsedResponse, int], Effects | KafkaError | None]


class QuorumStateObserver(Protocol):
    """What `QuorumState` calls, on the event loop, when something changed that concerns all roles:
    `RaftNode`."""

    def role_entered(self, before: Role, now_ms: int) -> Effects:
        """The role changed: end what the role `before` had open, and begin the new one."""
        ...

    def log_synced(self, now_ms: int) -> Effects:
        """A sync of the log ended: what it covered now counts for Fetch and the high watermark."""
        ...

    def poll(self, now_ms: int) -> Effects:
        """Send the requests that are due now. The method may be called at any time."""
        ...


class QuorumState:
    """Role, epoch, leader and vote of one replica of the quorum.

    Invariants:
      I1  the epoch never falls, and no message of an epoch leaves before the epoch is saved (rel-Q2, X4).
      I2  at most one vote an epoch; a leader that restarts or resigns does not lead that epoch again (X1).
      I3  `committed` never falls, and the log is never truncated below it (rel-Q7, X8).

    role             see `role.py`, whose table it follows
    epoch            never falls. `epoch`, `leader_id` and `voted_id` are the election state, which is saved
    leader_id        the leader of this epoch; NOBODY: not known. Another one of the same epoch is followed
                     only while this node has not fetched from the first, which may be forged
    leader           its address; None: not known. A voter may correct it
    voted_id, voted_directory_id  the node that got this node's vote in this epoch, and its disk. A vote is
                     forgotten only with its epoch (I2); a leader has none, as `leader_id` says the same
    granting_ids     who voted for this leader; for its LeaderChange record
    high_watermark   for responses; None: not known yet. So begins each leadership (Q20)
    committed        everything below is committed, in whichever epoch this node learned it (I3)
    generation       grows when the log is truncated or replaced: a sync of an earlier one counts for nothing
    has_fetched      a Fetch succeeded from this epoch's leader, so it is no forgery: another one is refused
    has_lost_leader  it does not answer, and a majority of voters knows none either: they do not answer, or
                     have lost it, too. It stays the leader of the epoch, as in Kafka; operators, and voters
                     that ask for a vote, are told of none
    is_truncating    the log is being truncated or replaced, and its end is not yet durable. Until it is, this
                     node asks for no records and no votes, and grants no vote
    is_stopped       the node stops: continuations do nothing more
    _flushing        generation and log end of the sync under way, or None
    _announced       the leader and epoch that the listener was last notified of: each once
    _logged          the leader and epoch that the log named last
    """

    __slots__ = (
        "_announced",
        "_flushing",
        "_logged",
        "_observer",
        "_risen_ms",
        "_warned_in",
        "_warned",
        "bootstrap",
        "calls",
        "cluster_id",
        "committed",
        "directory_id",
        "epoch",
        "gate",
        "generation",
        "granting_ids",
        "has_fetched",
        "has_lost_leader",
        "high_watermark",
        "is_truncating",
        "is_stopped",
        "leader",
        "leader_id",
        "listener",
        "log",
        "node_id",
        "rng",
        "role",
        "settings",
        "timers",
        "voted_directory_id",
        "voted_id",
        "voters",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: Uuid,
        voters: VoterSet,
        log: ReplicatedLog,
        elections: ElectionStore,
        listener: RaftListener,
        rng: Rng,
        settings: QuorumSettings,
        bootstrap: Sequence[Peer],
        observer: QuorumStateObserver,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.voters = voters
        self.log = log
        self.listener = listener
        self.rng = rng
        self.settings = settings
        self.bootstrap = tuple(bootstrap) or voters.others(node_id)
        self.gate = Gate(elections, self._state, self._postpone)
        self.calls = Calls(
            self.gate, timeout_ms=settings.request_timeout_ms, backoff_ms=settings.retry_backoff_ms
        )
        self.timers = Timers(self.gate)
        self._observer = observer
        self._announced = self._logged = (NOBODY, 0)
        self._flushing: tuple[int, int] | None = None
        self._warned: dict[int, KafkaError] = {}
        self._risen_ms: int | None = None  # when another node last raised the epoch
        self._warned_in: dict[LogLine, int] = {}  # warning -> the epoch it was last given in
        self.role = Role.UNATTACHED
        self.epoch = 0
        self.leader_id = NOBODY
        self.leader: Peer | None = None
        self.voted_id = NOBODY
        self.voted_directory_id = ZERO_UUID
        self.granting_ids: tuple[int, ...] = ()
        self.high_watermark: int | None = None
        self.committed = 0
        self.generation = 0
        self.has_fetched = self.has_lost_leader = False
        self.is_truncating = False
        self.is_stopped = False

    # -------------------------------------------------------------------------------------- queries

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def may_elect(self) -> bool:
        """May this node vote, and be a candidate? Not while it lacks records that it once had: its vote might
        elect a leader that lacks them too."""
        return self.is_voter and self.log.forgotten is None

    @property
    def is_cut_off(self) -> bool:
        """Do too few voters respond for an election? Then there is no leader, or not for long."""
        near = [n for n in self.voters.node_ids if n == self.node_id or not self.calls.is_silent(n)]
        return len(near) < self.voters.majority

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The part of the quorum state that every response of this node carries."""
        return LeaderAndEpoch(self.epoch, self.leader_id, self.leader)

    @property
    def last(self) -> OffsetAndEpoch:
        """The end of this node's log: the newer of log and newest complete snapshot (Q17, rel-Q12)."""
        end = OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)
        snapshot = self.log.newest_snapshot_id or _EMPTY
        return max(end, snapshot, key=_by_epoch)

    def has_more_than(self, last: OffsetAndEpoch) -> bool:
        """Does this node have records that a log which ends at `last` lacks?"""
        return _by_epoch(last) < _by_epoch(self.last)

    def election_timeout_ms(self) -> int:
        """Return a random time between one and two election timeouts (Q18)."""
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + (self.rng.below(timeout_ms) if timeout_ms > 0 else 0)

    # ---------------------------------------------------------------------------------- transitions

    def resume(self) -> None:
        """Restore the saved state (Q15).

        A leader comes back resigned: records that it had not synced may be gone, and its epoch must not give
        their offsets to other records (X1).
        """
        # The content of a snapshot is committed, but a snapshot beyond the log end belongs to another log.
        known_offset = max(self.log.start_offset, (self.log.newest_snapshot_id or _EMPTY).offset)
        is_within = known_offset <= self.log.end_offset
        self.committed = known_offset if is_within else self.log.start_offset
        saved = self.gate.load()
        if saved is None or saved.epoch < self.log.last_epoch:
            self.epoch = self.log.last_epoch
            return
        self.epoch, self.leader_id, self.voted_id = saved
        if self.leader_id == self.node_id:
            self.role = Role.RESIGNED
            self.leader = self.voters.peer(self.node_id)
        elif self.voted_id == self.node_id and self.may_elect:
            self.role = Role.CANDIDATE
            self.leader_id = NOBODY
        elif self.leader_id != NOBODY:
            self.leader = self.voters.peer(self.leader_id)
            self.role = Role.UNATTACHED if self.leader is None else Role.FOLLOWER

    def highest_to_take(self, now_ms: int) -> int:
        """The highest epoch that this node accepts from others now (`election_state.py`)."""
        since_ms = None if self._risen_ms is None else now_ms - self._risen_ms
        pause_ms = self.settings.election_timeout_ms
        return highest_to_take(self.epoch, since_risen_ms=since_ms, pause_ms=pause_ms)

    def refuse_epoch(self, epoch: int, now_ms: int) -> Effects | None:
        """Return the warnings about an epoch that this node does not accept; None if it accepts it."""
        if epoch <= self.highest_to_take(now_ms):
            return None
        # Near the last epoch a candidate of this cluster may be early by a moment. The operator was warned
        # when this node reached these epochs.
        return (
            []
            if self.epoch >= EPOCH_FREE_MAX
            else self._warn_once(EPOCH_REFUSED, refused_epoch=epoch)
        )

    def refuse_leader(self, known: LeaderAndEpoch) -> Effects | None:
        """Return the warnings about a second leader of this epoch, which this node does not follow; None if
        there is none.

        A first leader that this node has not fetched from is no better known than the second. It may be
        forged, and a node that kept to it would not follow the real leader.
        """
        epoch, leader_id, _ = known
        if epoch != self.epoch or leader_id in (NOBODY, self.node_id):
            return None
        if self.leader_id in (NOBODY, leader_id):
            return None
        if self.leader_id != self.node_id and not self.has_fetched:
            return None
        return self._warn_once(TWO_LEADERS, leader=self.leader_id, other=leader_id)

    def transition_to_unattached(self, epoch: int, now_ms: int) -> Effects:
        """Another node is in a newer epoch: enter it, without vote or leader."""
        assert epoch > self.epoch, "epochs only grow"
        self._risen_ms = now_ms
        return self._change(Cause.NEWER_EPOCH, now_ms, epoch=epoch)

    def leave_epoch(self, now_ms: int) -> Effects:
        """Enter the next epoch after this node led this one; stay if there is no next one."""
        if not may_elect_in(self.epoch):
            return self._warn_once(EPOCHS_RUN_OUT)
        return self._change(Cause.NEWER_EPOCH, now_ms, epoch=self.epoch + 1)

    def transition_to_follower(
        self, epoch: int, leader_id: int, leader: Peer | None, now_ms: int
    ) -> Effects:
        """Follow `leader_id`, the leader of `epoch`. Without its address this node is unattached.

        If the leader is unknown (-1), this node is unattached too, and may vote in that epoch.
        """
        assert epoch >= self.epoch, "epochs only grow"
        assert leader_id != self.node_id, "no node follows itself"
        before = self.role
        if epoch > self.epoch:
            self._risen_ms = now_ms
            self.role = next_role(self.role, Cause.NEWER_EPOCH)
            self._forget_epoch(epoch)
        if leader is not None:
            self.role = next_role(self.role, Cause.LEADER_FOUND)
        else:
            self.role = Role.UNATTACHED
        self.leader_id, self.leader = leader_id, leader
        return self._changed(before, now_ms)

    def transition_to_prospective(self, now_ms: int) -> Effects:
        """Ask for pre-votes. Nothing changes that must survive a crash (Q46)."""
        assert self.is_voter, "an observer is no candidate"
        return self._change(Cause.TIMEOUT, now_ms)

    def end_prospective(self, now_ms: int) -> Effects:
        """The pre-votes were refused or did not come: follow the known leader again, or become unattached."""
        assert self.role is Role.PROSPECTIVE
        if self.leader is not None:
            return self.transition_to_follower(self.epoch, self.leader_id, self.leader, now_ms)
        return self._change(Cause.TIMEOUT, now_ms)

    def transition_to_candidate(self, now_ms: int) -> Effects:
        """Become a candidate in the next epoch, and vote for this node; wait if there is no next epoch."""
        if not may_elect_in(self.epoch):
            return self._warn_once(EPOCHS_RUN_OUT) + self.end_prospective(now_ms)
        before = self.role
        self.role = next_role(self.role, Cause.PRE_MAJORITY)
        self._forget_epoch(self.epoch + 1)
        self.voted_id, self.voted_directory_id = self.node_id, self.directory_id
        return self._changed(before, now_ms)

    def transition_to_leader(self, granting_ids: tuple[int, ...], now_ms: int) -> Effects:
        """A majority voted for this node. The high watermark is unknown until a record of this epoch is
        committed (Q20)."""
        assert not self.is_truncating, "a node asks for no votes while it truncates"
        assert self.voted_id == self.node_id, "a leader voted for itself in its epoch (X1)"
        before = self.role
        self.role = next_role(self.role, Cause.MAJORITY)
        self.leader_id, self.leader = self.node_id, self.voters.peer(self.node_id)
        self.voted_id, self.voted_directory_id = NOBODY, ZERO_UUID
        self.granting_ids = granting_ids
        self.high_watermark = None
        return self._changed(before, now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Stop leading. This is not saved: a node that saved its leadership comes back resigned anyway
        (Q10)."""
        return self._change(Cause.RESIGNATION, now_ms)

    def grant(self, candidate_id: int, directory_id: Uuid) -> None:
        """Vote for a candidate in this node's epoch."""
        assert self.voted_id in (NOBODY, candidate_id), "one vote an epoch"
        self.voted_id, self.voted_directory_id = candidate_id, directory_id

    def maybe_transition(self, known: LeaderAndEpoch, now_ms: int) -> Effects:
        """Accept epoch and leader from another node (Q21), unless `refuse_leader` refuses the leader."""
        epoch, leader_id, leader = known
        assert self.epoch <= epoch <= EPOCH_MAX, "the caller has refused all others"
        if leader_id == self.node_id:
            return self._recognise_self(epoch, now_ms)
        if epoch > self.epoch:
            return self.transition_to_follower(epoch, leader_id, leader, now_ms)
        refused = self.refuse_leader(known)
        if leader_id == NOBODY or refused is not None:
            return refused or []
        is_new = self.leader is None and (leader is not None or self.leader_id == NOBODY)
        if is_new or self.leader_id not in (NOBODY, leader_id):
            return self.transition_to_follower(epoch, leader_id, leader, now_ms)
        if leader_id == self.leader_id and leader is not None:
            # A voter corrects a wrong address, and so this node finds the leader again.
            self.leader = leader
        return []

    def _recognise_self(self, epoch: int, now_ms: int) -> Effects:
        """Another node says that this node leads an epoch that it does not know: its disk has lost that
        epoch.

        As after a restart it is resigned: it led that epoch, so it may not vote in it.
        """
        if epoch == self.epoch and (self.leader_id != NOBODY or self.voted_id != NOBODY):
            return []
        before = self.role
        if epoch > self.epoch:
            self._risen_ms = now_ms
            self._forget_epoch(epoch)
        self.role = Role.RESIGNED
        self.leader_id, self.leader = self.node_id, self.voters.peer(self.node_id)
        return self._changed(before, now_ms)

    def _change(self, cause: Cause, now_ms: int, *, epoch: int | None = None) -> Effects:
        before = self.role
        self.role = next_role(self.role, cause)
        if epoch is not None:
            self._forget_epoch(epoch)
        return self._changed(before, now_ms)

    def _forget_epoch(self, epoch: int) -> None:
        assert epoch > self.epoch, "a vote is forgotten only with its epoch (I1, Q15)"
        self.epoch = epoch
        self.has_lost_leader = False
        self.leader_id, self.leader = NOBODY, None
        self.voted_id, self.voted_directory_id = NOBODY, ZERO_UUID

    def _changed(self, before: Role, now_ms: int) -> Effects:
        self.has_fetched = False
        self.calls.forget()
        effects = self.warn_of_high_epoch() + self.announce(now_ms)
        return effects + self._observer.role_entered(before, now_ms)

    def warn_of_high_epoch(self) -> Effects:
        """Warn once of an epoch that no cluster reaches by its own elections."""
        return (
            []
            if self.epoch <= EPOCH_FREE_MAX or EPOCH_HIGH in self._warned_in
            else self._warn_once(EPOCH_HIGH, last_epoch=EPOCH_MAX)
        )

    def _warn_once(self, line: LogLine, **fields: int) -> Effects:
        """Return a warning, unless it was given in this epoch already."""
        if self._warned_in.get(line) == self.epoch:
            return []
        self._warned_in[line] = self.epoch
        return [line(epoch=self.epoch, **fields)]

    def _state(self) -> ElectionState:
        """What must survive a crash (I1). The gate saves it after each event that changed it."""
        return ElectionState(self.epoch, self.leader_id, self.voted_id)

    def _postpone(self, by_ms: int) -> Effects:
        """During a save this node sent and received nothing: postpone its timeouts by that time."""
        return self.timers.postpone(by_ms, "election", "fetch")

    @property
    def answering_leader_id(self) -> int:
        """The leader, as operators are told: NOBODY also while it and a majority of voters do not answer."""
        return NOBODY if self.role is Role.RESIGNED or self.has_lost_leader else self.leader_id

    @property
    def answering_leader(self) -> LeaderAndEpoch:
        """As `leader_and_epoch`, without a leader that this node has lost: for who asks for a vote."""
        return LeaderAndEpoch(self.epoch, NOBODY) if self.has_lost_leader else self.leader_and_epoch

    def log_leader(self) -> Effects:
        """Log another leader, or none; each once."""
        leader_id = self.answering_leader_id
        named = (leader_id, self.epoch if leader_id != NOBODY else 0)
        if named == self._logged:
            return []
        was, self._logged = self._logged, named
        return [
            CONTROLLER_CHANGED(
                controller=_node_text(leader_id),
                was=_node_text(was[0]),
                epoch=self.epoch,
                node=self.node_id,
            )
        ]

    def announce(self, now_ms: int) -> Effects:
        """Notify the listener of a new leader, once. `Leader` notifies it when this node leads (X16)."""
        if self.role is Role.PROSPECTIVE:
            return []  # it returns to its leader unless a majority wants an election too
        effects = self.log_leader()
        leader_id = NOBODY if self.role is Role.RESIGNED else self.leader_id
        announced = (leader_id, self.epoch if leader_id != NOBODY else 0)
        if announced == self._announced:
            return effects
        self._announced = announced
        if self.role is Role.LEADER:
            return effects
        return effects + self.notify(self.listener.on_leader_change, leader_id, self.epoch, now_ms)

    # -------------------------------------------------------------------------------------- durability

    @property
    def is_synced(self) -> bool:
        """Is the whole log durable?"""
        return self.log.synced_offset >= self.log.end_offset

    def flush(self) -> Effects:
        """Sync the log as it is now, unless that is under way, and call the observer afterwards.

        A sync does not count for a log that was truncated or replaced meanwhile.
        """
        generation, end_offset = flushing = (self.generation, self.log.end_offset)
        if self._flushing == flushing:
            return []
        self._flushing = flushing

        def flushed(problem: StorageError | None, at_ms: int) -> Effects:
            if problem is not None:
                # rel-P9: after a failed sync nobody knows what the disk has. The node stops.
                raise problem
            return self.gate.take(synced, at_ms)

        def synced(at_ms: int) -> Effects:
            if self.is_stopped:
                return []
            if self._flushing == flushing:
                self._flushing = None
            if generation == self.generation:
                self.log.synced(end_offset)
            return self._observer.log_synced(at_ms) + self._observer.poll(at_ms)

        return [Flush(files=self.log.unsynced(), then=flushed)]

    def truncate_log(self, offset: int, now_ms: int) -> Effects:
        """Truncate the log. This node takes part again when the truncation is durable."""
        assert offset >= self.committed, "a committed record is never truncated"
        self.begin_truncation()
        return self.log.truncate_to(offset, self.on_truncated, now_ms)

    def begin_truncation(self) -> None:
        """The log is about to be truncated or replaced: syncs under way no longer count for it."""
        assert not self.is_truncating, "no request is under way that could lead to another one"
        self.generation += 1
        self.is_truncating = True

    def on_truncated(self, problem: StorageError | None, now_ms: int) -> Effects:
        """The truncation is durable: take part again, in the present role."""
        if problem is not None:
            raise problem
        self.is_truncating = False
        return self.gate.take(self._observer.poll, now_ms)

    def install(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        """The log now begins at the end of a durable snapshot. The listener loads it (Q37)."""
        self.high_watermark = self.committed = snapshot_id.offset
        return self.notify(self.listener.on_snapshot, snapshot_id, now_ms)

    def commit(self, offset: int, now_ms: int) -> Effects:
        """Everything below `offset` is committed; notify the listener if that is new."""
        self.high_watermark = max(offset, self.high_watermark or 0)
        if offset <= self.committed:
            return []
        assert offset <= self.log.end_offset, "a committed record is in the log (rel-Q7)"
        self.committed = offset
        self.log.advance_high_watermark(offset)
        return self.notify(self.listener.on_committed, offset, now_ms)

    def notify(self, callback: Callable[[*Arguments], Effects], *arguments: *Arguments) -> Effects:
        """Call the listener and return its effects. CannotGoOn, StorageError or Bug stop the node.

        A commit often happens while a voter's Fetch is handled, and a request that fails costs only its
        connection. A listener that fails must stop the node: it would go on without committed records.
        """
        try:
            return callback(*arguments)
        except (Bug, StorageError):
            raise
        except ConfigError as problem:
            raise CannotGoOn(problem.why, **problem.facts) from None
        except Exception as problem:
            raise Bug("what the quorum decided cannot be applied", problem=problem) from problem

    # --------------------------------------------------------------------------- requests and responses

    def ask(
        self,
        peer: Peer,
        request: Request[Response],
        handle: HandleResponse,
        *,
        version_min: int = 0,
        on_unsupported: Callable[[int], Effects] | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> Effects:
        """Send a request; apply epoch and leader of the response, then call `handle(response, now_ms)`.

        A peer that sent no usable response is not asked again for the retry back-off.
        `on_unsupported(now_ms)` runs if the peer does not know this version of the request, `on_refused()`
        for an unusable response.
        """

        def then(response: Response | Unanswered, now_ms: int) -> Effects:
            if self.is_stopped:
                return []
            if on_unsupported is not None and _is_unsupported(response):
                return on_unsupported(now_ms) + self._observer.poll(now_ms)
            before, effects = self.leader_and_epoch, list[Effect]()
            outcome: Effects | KafkaError | None = None
            said = self._read(response)
            if isinstance(said, ParsedResponse):
                effects, is_usable = self._apply_response(said, now_ms)
                if is_usable:
                    outcome = handle(said, now_ms)
                elif said.error in (Code.INVALID_REQUEST, Code.INVALID_VOTER_KEY):
                    outcome = refusal(said)
            else:
                outcome = said
            if isinstance(outcome, list):
                self._warned.pop(peer.node_id, None)
                return effects + outcome + self._observer.poll(now_ms)
            if on_refused is not None and not isinstance(response, Unanswered):
                on_refused()
            if self.leader_and_epoch == before:
                # The response brought nothing new: the same request would get the same response.
                self.calls.rest(peer.node_id, now_ms)
            return effects + self._warn(peer, outcome) + self._observer.poll(now_ms)

        return [self.calls.ask(peer, request, then, version_min=version_min)]

    def _read(self, response: QuorumResponse | Unanswered) -> ParsedResponse | KafkaError | None:
        """Parse a response. None if none came, or if the other node is not ready to answer."""
        if isinstance(response, Unanswered):
            return None
        if response.error_code != Code.NONE:
            return _refused_as(response.error_code)
        said = read_response(response, self.voters)
        return said or KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "it answered for another log")

    def _apply_response(self, said: ParsedResponse, now_ms: int) -> tuple[Effects, bool]:
        """Apply epoch and leader of a response (Q21). The flag says whether its own content may be used."""
        error, known, _ = said
        if known.epoch < self.epoch or error == Code.UNKNOWN_LEADER_EPOCH:
            return [], False
        highest = self.highest_to_take(now_ms)
        if known.epoch > highest:
            # E3: one step towards that epoch; the other node will be asked again.
            return self.transition_to_unattached(
                highest, now_ms
            ) if highest > self.epoch else [], False
        refused = self.refuse_leader(known)
        if refused is not None:
            return refused, False
        stale = error in (Code.FENCED_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER)
        if known.epoch > self.epoch or stale:
            return self.maybe_transition(known, now_ms), False
        before = self.leader_and_epoch
        effects = self.maybe_transition(known, now_ms)
        if self.leader_and_epoch != before and error != Code.NONE:
            return effects, False
        if error in (Code.BROKER_NOT_AVAILABLE, Code.INVALID_VOTER_KEY, Code.INVALID_REQUEST):
            return effects, False
        return effects, True

    @property
    def refusals(self) -> Mapping[int, KafkaError]:
        """The last refusal of each peer, by node id, until that peer answers well again."""
        return self._warned

    def _warn(self, peer: Peer, problem: KafkaError | None) -> Effects:
        """Warn of a refusal once, until that peer answers well again."""
        if problem is None or self._warned.get(peer.node_id) == problem:
            return []
        self._warned[peer.node_id] = problem
        where = f"{peer.host}:{peer.port}"
        return [NO_USABLE_RESPONSE(node=peer.node_id, address=where, error=problem)]

    def set_timer(self, name: str, at_ms: int, then: Callable[[int], Effects]) -> Effects:
        """Call `then(now_ms)` at that time, and then `poll`."""

        def fired(now_ms: int) -> Effects:
            return [] if self.is_stopped else then(now_ms) + self._observer.poll(now_ms)

        return self.timers.set(name, at_ms, fired)


def refusal(said: ParsedResponse) -> KafkaError | None:
    """Return the error of a response, for the operator."""
    return None if said.error == Code.NONE else _refused_as(said.error)


def _refused_as(number: int) -> KafkaError | None:
    """Return the error for the operator; None if the other node is starting, or waits for its disk."""
    if number == Code.BROKER_NOT_AVAILABLE:
        return None
    code = Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR
    return KafkaError(code, "it refused", code=number)


def _by_epoch(place: OffsetAndEpoch) -> tuple[int, int]:
    """The order of places in the log: by epoch, then by offset (Q3)."""
    return place.epoch, place.offset


def _is_unsupported(response: object) -> bool:
    if isinstance(response, Unanswered):
        return response.is_unsupported
    return bool(getattr(response, "error_code", 0) == Code.UNSUPPORTED_VERSION)


def _node_text(node_id: int) -> int | str:
    return "none" if node_id == NOBODY else node_id
