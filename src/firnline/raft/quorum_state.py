"""Where this node stands in its quorum: role, epoch, vote, leader, and what it knows to be committed. PURE.

Every change goes through the table of `role.py`, is saved before anything of it leaves the node (`Gate`),
forgets the questions of the earlier role, and is told to the listener. Source: KIP-595; spec 1.3, Q10, Q15,
Q21.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, TypeVarTuple

from firnline.base.effects import Effect, Effects, Flush, Peer, Request, Unanswered, Warn
from firnline.base.errors import Bug, CannotGoOn, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import ZERO_UUID, OffsetAndEpoch, Uuid
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
_REFUSED = (
    "metadata quorum: refused epoch {told}, which leaves no room for elections, in epoch {own}: no cluster"
    " comes to it by itself, but somebody who reaches the controllers' listener may raise it"
)
_HIGH = (
    f"metadata quorum: this node is in epoch {{own}}, and {EPOCH_MAX} is the last one that there can be:"
    " somebody who reaches the controllers' listener raises it; let only controllers and brokers reach it"
)
_LAST = (
    f"metadata quorum: there is no epoch after {EPOCH_MAX}, so no leader can be elected any more: see"
    " 'When epochs run out' in docs/OPERATIONS.md"
)
_TWO_LEADERS = (
    "metadata quorum: in epoch {epoch} node {leader_id} leads, and {other_id} is said to: that is not"
    " believed. Either a voter lost its quorum-state and voted twice, or somebody who reaches the"
    " controllers' listener made it up; compare the metadata logs of the controllers"
)
# What to do with an answer's own news; None or the reason when it led nowhere.
News = TypeVarTuple("News")
Response = TypeVar("Response", bound=QuorumResponse)
GoOn = Callable[[ParsedResponse, int], Effects | KafkaError | None]


class QuorumStateObserver(Protocol):
    """Who goes on where what all roles share has moved: the node. `QuorumState` calls it, on the loop."""

    def role_entered(self, before: Role, now_ms: int) -> Effects:
        """A role was taken up after `before`: leave what that had open, and begin the new one."""
        ...

    def log_synced(self, now_ms: int) -> Effects:
        """A sync of the log ended: what it covered may be promised, and count for the high watermark."""
        ...

    def poll(self, now_ms: int) -> Effects:
        """Something was heard, or is due: send what can be sent now. It may be called at any time."""
        ...


class QuorumState:
    """One node's place in the quorum. `entered` and `poll` are the node's: what a role begins with and goes
    on to do.

    Invariants:
      I1  the epoch never falls, and no answer or request of it leaves before it is saved (rel-Q2, X4).
      I2  at most one vote an epoch; a leader that restarts or resigns leads that epoch no more (X1).
      I3  `committed` never falls, and no log is cut below it (rel-Q7, X8).
    """

    __slots__ = (
        "_announced",
        "_flushing",
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
        self._announced = (NOBODY, 0)
        self._flushing: tuple[int, int] | None = None  # generation and end of the log
        self._warned: dict[int, KafkaError] = {}
        self._risen_ms: int | None = None  # when others last raised the epoch
        self._warned_in: dict[str, int] = {}  # by line: the epoch it was last said in
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
        self.has_fetched = False
        # The log is being cut, or replaced by a snapshot: where it ends the disk does not know yet. Nobody is
        # asked for records or votes, and nobody gets a vote, until it does.
        self.is_truncating = False
        self.is_stopped = False

    # ------------------------------------------------------------------------------------ questions

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def may_elect(self) -> bool:
        """May this node vote, and stand? Not while it lacks what it promised to have: with its vote a leader
        might win that lacks it, too."""
        return self.is_voter and self.log.forgotten is None

    @property
    def is_cut_off(self) -> bool:
        """Are too few voters within reach for an election, as far as this node asked? Then nobody leads,
        or not for long."""
        near = [n for n in self.voters.node_ids if n == self.node_id or not self.calls.is_silent(n)]
        return len(near) < self.voters.majority

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """What an answer of this node tells of the quorum."""
        return LeaderAndEpoch(self.epoch, self.leader_id, self.leader)

    @property
    def last(self) -> OffsetAndEpoch:
        """Where this node's log ends: the newer of log and newest complete snapshot (Q17, rel-Q12)."""
        end = OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)
        snapshot = self.log.newest_snapshot_id or _EMPTY
        return max(end, snapshot, key=_by_epoch)

    def has_more_than(self, last: OffsetAndEpoch) -> bool:
        """Has this node something that a log which ends at `last` lacks?"""
        return _by_epoch(last) < _by_epoch(self.last)

    def election_timeout_ms(self) -> int:
        """Q18: between one and two election timeouts, anew each time."""
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + (self.rng.below(timeout_ms) if timeout_ms > 0 else 0)

    # ---------------------------------------------------------------------------------- transitions

    def resume(self) -> None:
        """Take up what was saved (Q15). A leader comes back resigned: what it had not synced may be gone,
        and its epoch must not give those offsets to other records (X1)."""
        # What a snapshot holds is committed; one beyond the log is not of this log.
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
        """The highest epoch that is taken from others now (`election_state.py`)."""
        since_ms = None if self._risen_ms is None else now_ms - self._risen_ms
        pause_ms = self.settings.election_timeout_ms
        return highest_to_take(self.epoch, since_risen_ms=since_ms, pause_ms=pause_ms)

    def refuse_epoch(self, epoch: int, now_ms: int) -> Effects | None:
        """Return what to say of an epoch that is not taken from others; None where it is."""
        if epoch <= self.highest_to_take(now_ms):
            return None
        # Up there a candidate of this cluster may be too early by a moment; what is wrong was said then.
        return [] if self.epoch >= EPOCH_FREE_MAX else self._warn_once(_REFUSED, told=epoch)

    def refuse_leader(self, known: LeaderAndEpoch) -> Effects | None:
        """Return what to say of a second leader of this epoch, whom nobody is to believe; None for no such.

        A first one that this node has not heard is no better known than the second: it may be made up, and a
        node that kept to it would follow nobody for as long as the real one leads.
        """
        epoch, leader_id, _ = known
        if epoch != self.epoch or leader_id in (NOBODY, self.node_id):
            return None
        if self.leader_id in (NOBODY, leader_id):
            return None
        if self.leader_id != self.node_id and not self.has_fetched:
            return None
        return self._warn_once(
            _TWO_LEADERS, epoch=epoch, leader_id=self.leader_id, other_id=leader_id
        )

    def transition_to_unattached(self, epoch: int, now_ms: int) -> Effects:
        """Somebody is in a newer epoch: be in it too, without vote or leader."""
        assert epoch > self.epoch, "epochs only grow"
        self._risen_ms = now_ms
        return self._change(Cause.NEWER_EPOCH, now_ms, epoch=epoch)

    def leave_epoch(self, now_ms: int) -> Effects:
        """Having led this epoch, go on to the next one; stay, where there is none any more."""
        if not may_elect_in(self.epoch):
            return self._warn_once(_LAST)
        return self._change(Cause.NEWER_EPOCH, now_ms, epoch=self.epoch + 1)

    def transition_to_follower(
        self, epoch: int, leader_id: int, leader: Peer | None, now_ms: int
    ) -> Effects:
        """`leader_id` leads `epoch`: without its address this node is unattached, and votes for nobody.

        Unattached, too, in an epoch of which nobody says who leads it (-1): there it may vote.
        """
        assert epoch >= self.epoch, "epochs only grow"
        assert leader_id != self.node_id, "nobody follows itself"
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
        """Ask for pre-votes. Nothing changed that must survive (Q46)."""
        assert self.is_voter, "an observer stands for nothing"
        return self._change(Cause.TIMEOUT, now_ms)

    def end_prospective(self, now_ms: int) -> Effects:
        """The pre-votes were refused or did not come: back to the leader that is known, or to waiting."""
        assert self.role is Role.PROSPECTIVE
        if self.leader is not None:
            return self.transition_to_follower(self.epoch, self.leader_id, self.leader, now_ms)
        return self._change(Cause.TIMEOUT, now_ms)

    def transition_to_candidate(self, now_ms: int) -> Effects:
        """Be a candidate in a new epoch, with one's own vote; wait on, where there is none any more."""
        if not may_elect_in(self.epoch):
            return self._warn_once(_LAST) + self.end_prospective(now_ms)
        before = self.role
        self.role = next_role(self.role, Cause.PRE_MAJORITY)
        self._forget_epoch(self.epoch + 1)
        self.voted_id, self.voted_directory_id = self.node_id, self.directory_id
        return self._changed(before, now_ms)

    def transition_to_leader(self, granting_ids: tuple[int, ...], now_ms: int) -> Effects:
        """A majority voted for this node. What is committed is unknown until its own epoch says so (Q20)."""
        assert not self.is_truncating, "nobody was asked for a vote meanwhile"
        assert self.voted_id == self.node_id, "who leads an epoch voted for itself in it (X1)"
        before = self.role
        self.role = next_role(self.role, Cause.MAJORITY)
        self.leader_id, self.leader = self.node_id, self.voters.peer(self.node_id)
        self.voted_id, self.voted_directory_id = NOBODY, ZERO_UUID
        self.granting_ids = granting_ids
        self.high_watermark = None
        return self._changed(before, now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Lead no more. Not saved: whoever saved that it led comes back resigned anyway (Q10)."""
        return self._change(Cause.RESIGNATION, now_ms)

    def grant(self, candidate_id: int, directory_id: Uuid) -> None:
        """Vote in the epoch this node is in."""
        assert self.voted_id in (NOBODY, candidate_id), "one vote an epoch"
        self.voted_id, self.voted_directory_id = candidate_id, directory_id

    def maybe_transition(self, known: LeaderAndEpoch, now_ms: int) -> Effects:
        """Believe another node about epoch and leader (Q21), but for what `refuse_leader` refuses."""
        epoch, leader_id, leader = known
        assert self.epoch <= epoch <= EPOCH_MAX, "whoever asks has refused all others"
        if leader_id == self.node_id:
            return self._recognise_self(epoch, now_ms)
        if epoch > self.epoch:
            return self.transition_to_follower(epoch, leader_id, leader, now_ms)
        refused = self.refuse_leader(known)
        if leader_id == NOBODY or refused is not None:
            return refused or []
        is_news = self.leader is None and (leader is not None or self.leader_id == NOBODY)
        if is_news or self.leader_id not in (NOBODY, leader_id):
            return self.transition_to_follower(epoch, leader_id, leader, now_ms)
        if leader_id == self.leader_id and leader is not None:
            # Whoever was told a wrong address hears the right one from a voter, and finds the leader again.
            self.leader = leader
        return []

    def _recognise_self(self, epoch: int, now_ms: int) -> Effects:
        """A peer says this node leads an epoch it knows nothing of: it did, and its disk has forgotten.

        As after a restart it has resigned: it led there, so it may vote for nobody there.
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
        assert epoch > self.epoch, "a vote is forgotten with its epoch alone (I1, Q15)"
        self.epoch = epoch
        self.leader_id, self.leader = NOBODY, None
        self.voted_id, self.voted_directory_id = NOBODY, ZERO_UUID

    def _changed(self, before: Role, now_ms: int) -> Effects:
        self.has_fetched = False
        self.calls.forget()
        effects = self.warn_of_high_epoch() + self.announce(now_ms)
        return effects + self._observer.role_entered(before, now_ms)

    def warn_of_high_epoch(self) -> Effects:
        """Tell the operator, once, of an epoch that no cluster comes to by elections of its own."""
        return (
            []
            if self.epoch <= EPOCH_FREE_MAX or _HIGH in self._warned_in
            else self._warn_once(_HIGH)
        )

    def _warn_once(self, line: str, **facts: int) -> Effects:
        """Say it, unless it was said in this epoch."""
        if self._warned_in.get(line) == self.epoch:
            return []
        self._warned_in[line] = self.epoch
        return [Warn(line=line.format(own=self.epoch, **facts))]

    def _state(self) -> ElectionState:
        """What must survive a crash (I1): the gate saves it after each event that changed it."""
        return ElectionState(self.epoch, self.leader_id, self.voted_id)

    def _postpone(self, by_ms: int) -> Effects:
        """While this node saved, it asked nobody and heard nobody: nobody is late by that."""
        return self.timers.postpone(by_ms, "election", "fetch")

    def announce(self, now_ms: int) -> Effects:
        """Tell the listener who leads, once for each leader; leading itself is told by `Leader` (X16)."""
        if self.role is Role.PROSPECTIVE:
            return []  # it goes back to its leader unless others want another one too
        leader_id = NOBODY if self.role is Role.RESIGNED else self.leader_id
        announced = (leader_id, self.epoch if leader_id != NOBODY else 0)
        if announced == self._announced:
            return []
        self._announced = announced
        if self.role is Role.LEADER:
            return []
        return self.notify(self.listener.on_leader_change, leader_id, self.epoch, now_ms)

    # -------------------------------------------------------------------------------------- durability

    @property
    def is_synced(self) -> bool:
        """Does the log survive a power cut as it is?"""
        return self.log.synced_offset >= self.log.end_offset

    def flush(self) -> Effects:
        """Sync the log as it is now, unless that is under way; the observer is told afterwards.

        What was cut or replaced meanwhile is not what the sync covered, so it does not count then.
        """
        generation, end_offset = flushing = (self.generation, self.log.end_offset)
        if self._flushing == flushing:
            return []
        self._flushing = flushing

        def flushed(problem: StorageError | None, at_ms: int) -> Effects:
            if problem is not None:
                # rel-P9: what the disk refused cannot be believed afterwards. The node stops.
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
        """Truncate the log; this node goes on when that is on disk."""
        assert offset >= self.committed, "what is committed is never cut"
        self.begin_truncation()
        return self.log.truncate_to(offset, self.on_truncated, now_ms)

    def begin_truncation(self) -> None:
        """The log is about to be cut or replaced: syncs that are under way no longer count for it."""
        assert not self.is_truncating, "nothing is asked for meanwhile that could lead to another"
        self.generation += 1
        self.is_truncating = True

    def on_truncated(self, problem: StorageError | None, now_ms: int) -> Effects:
        """What was cut no power cut brings back: take part again, in whatever role this node has by now."""
        if problem is not None:
            raise problem
        self.is_truncating = False
        return self.gate.take(self._observer.poll, now_ms)

    def install(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        """The log begins anew at the end of a snapshot that is on disk; the listener loads it (Q37)."""
        self.high_watermark = self.committed = snapshot_id.offset
        return self.notify(self.listener.on_snapshot, snapshot_id, now_ms)

    def commit(self, offset: int, now_ms: int) -> Effects:
        """Everything below `offset` is committed; tell the listener what it has not heard yet."""
        self.high_watermark = max(offset, self.high_watermark or 0)
        if offset <= self.committed:
            return []
        assert offset <= self.log.end_offset, "what is committed is in the log (rel-Q7)"
        self.committed = offset
        self.log.advance_high_watermark(offset)
        return self.notify(self.listener.on_committed, offset, now_ms)

    def notify(self, on_news: Callable[[*News], Effects], *news: *News) -> Effects:
        """Return what the listener does with the news. CannotGoOn, StorageError or Bug stop the node.

        News often come with a request of somebody else's, a voter's Fetch, and a failed request costs its
        connection alone. Here that would leave a node that goes on without what is committed.
        """
        try:
            return on_news(*news)
        except (Bug, StorageError):
            raise
        except ConfigError as problem:
            raise CannotGoOn(problem.why, **problem.facts) from None
        except Exception as problem:
            raise Bug("what the quorum decided cannot be applied", problem=problem) from problem

    # ------------------------------------------------------------------------------------ conversation

    def ask(
        self,
        peer: Peer,
        request: Request[Response],
        go_on: GoOn,
        *,
        version_min: int = 0,
        on_unsupported: Callable[[int], Effects] | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> Effects:
        """Ask `peer`; what the answer says of the quorum is believed first, then `go_on(said, now_ms)`.

        A peer that did not answer, or whose answer led nowhere, is left alone for a while.
        `on_refused()`: it answered, and there is nothing to go on with.
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
                effects, goes_on = self._apply_response(said, now_ms)
                if goes_on:
                    outcome = go_on(said, now_ms)
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
                # It taught us nothing: asking again at once would only ask the same.
                self.calls.rest(peer.node_id, now_ms)
            return effects + self._warn(peer, outcome) + self._observer.poll(now_ms)

        return [self.calls.ask(peer, request, then, version_min=version_min)]

    def _read(self, response: QuorumResponse | Unanswered) -> ParsedResponse | KafkaError | None:
        """None: no answer came, which says nothing, or that of a node that is not ready to answer."""
        if isinstance(response, Unanswered):
            return None
        if response.error_code != Code.NONE:
            return _refused_as(response.error_code)
        said = read_response(response, self.voters)
        return said or KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "it answered for another log")

    def _apply_response(self, said: ParsedResponse, now_ms: int) -> tuple[Effects, bool]:
        """Q21: what is common to all answers; the flag says whether the answer's own news count."""
        error, known, _ = said
        if known.epoch < self.epoch or error == Code.UNKNOWN_LEADER_EPOCH:
            return [], False
        highest = self.highest_to_take(now_ms)
        if known.epoch > highest:
            # E3: one step towards it; whoever is there will be asked again.
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
        """What peers refused, by node id, as long as they did not answer well since."""
        return self._warned

    def _warn(self, peer: Peer, problem: KafkaError | None) -> Effects:
        """Say it once, until that peer answers well again."""
        if problem is None or self._warned.get(peer.node_id) == problem:
            return []
        self._warned[peer.node_id] = problem
        where = f"{peer.host}:{peer.port}"
        return [Warn(line=f"metadata quorum: node {peer.node_id} at {where} is no use: {problem}")]

    def set_timer(self, name: str, at_ms: int, then: Callable[[int], Effects]) -> Effects:
        """Call `then(now_ms)` at that moment, then go on with what is due."""

        def fired(now_ms: int) -> Effects:
            return [] if self.is_stopped else then(now_ms) + self._observer.poll(now_ms)

        return self.timers.set(name, at_ms, fired)


def refusal(said: ParsedResponse) -> KafkaError | None:
    """The error of an answer, as the reason why it led nowhere."""
    return None if said.error == Code.NONE else _refused_as(said.error)


def _refused_as(number: int) -> KafkaError | None:
    """The error as a reason to tell the operator: none where a node starts, or is busy with its disk."""
    if number == Code.BROKER_NOT_AVAILABLE:
        return None
    code = Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR
    return KafkaError(code, "it refused", code=number)


def _by_epoch(place: OffsetAndEpoch) -> tuple[int, int]:
    """Epoch first, then offset (Q3)."""
    return place.epoch, place.offset


def _is_unsupported(response: object) -> bool:
    if isinstance(response, Unanswered):
        return response.is_unsupported
    return bool(getattr(response, "error_code", 0) == Code.UNSUPPORTED_VERSION)
