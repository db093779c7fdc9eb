"""One replica of the metadata quorum: it elects, leads, follows, and commits. PURE.

`RaftNode` is the event handler. Every request, response and timer enters through the gate (`calls.py`), one
at a time. The node passes requests to `Election` (Vote, BeginQuorumEpoch, EndQuorumEpoch) or `Leader` (Fetch,
FetchSnapshot, DescribeQuorum), and then polls: `FollowerState` or `Election` sends the requests that are due.
`QuorumState` holds what they share, and calls `role_entered` here on each change of role. All methods return
effects; nothing here does I/O. The `RaftListener` learns of commits, snapshots and leaders.

A sole voter elects itself at start, with no timer and no network (Q16). Source: KIP-595, KIP-630, KIP-996.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.effects import Effect, Effects, Peer
from firnline.base.errors import Bug, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch, Uuid
from firnline.base.log_lines.quorum import QUORUM_REQUEST_FAILED
from firnline.base.ports import Rng
from firnline.raft import wire
from firnline.raft.election import Election
from firnline.raft.election_state import NOBODY
from firnline.raft.follower import FollowerState
from firnline.raft.leader import Leader, Proposed
from firnline.raft.ports import ElectionStore, RaftListener, ReplicatedLog
from firnline.raft.quorum_state import QuorumState
from firnline.raft.role import Role
from firnline.raft.settings import RESIGN_WAIT_MAX_MS, QuorumSettings
from firnline.raft.snapshot_rules import Lag, next_start_offset
from firnline.raft.voters import VoterSet
from firnline.raft.wire import QuorumRequest, ResponseCallback

__all__ = ["Proposed", "QuorumCounters", "RaftNode"]


class QuorumCounters(NamedTuple):
    """The numbers for the metrics of spec 1.14; -1 for an unknown offset or node."""

    role: Role
    leader_id: int
    voted_id: int
    epoch: int
    high_watermark: int
    log_end_offset: int
    log_end_epoch: int
    fetched_records: int
    appended_records: int
    commits: int
    commit_ms_sum: int
    commit_ms_max: int
    elections: int
    election_ms_sum: int
    election_ms_max: int
    voters: int
    observers: int


class RaftNode:
    """One replica of the quorum; one whose `node_id` is no voter is an observer (Q2).

    `bootstrap`: the nodes to ask while no leader is known; the voters if empty.

    Invariants:
      I1  the epoch never falls, and is saved before any message of it leaves.
      I2  `high_watermark` falls only to None, when this node begins to lead (Q20).
      I3  what the listener learns as committed is on the disks of a majority of voters.
    """

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
        settings: QuorumSettings | None = None,
        bootstrap: Sequence[Peer] = (),
    ) -> None:
        self._quorum = quorum = QuorumState(
            node_id=node_id,
            cluster_id=cluster_id,
            directory_id=directory_id,
            voters=voters,
            log=log,
            elections=elections,
            listener=listener,
            rng=rng,
            settings=settings or QuorumSettings(),
            bootstrap=bootstrap,
            observer=self,
        )
        self._leader = Leader(quorum)
        self._follower = FollowerState(quorum)
        self._election = Election(quorum, self._follower.give_up_after)
        self._is_started = False
        self._electing_since_ms: int | None = None
        self._elections = self._election_ms_sum = self._election_ms_max = 0
        self._handlers: dict[
            type[QuorumRequest], Callable[[Any, ResponseCallback, int], Effects]
        ] = {
            wire.VoteRequest: self._election.on_vote,
            wire.BeginQuorumEpochRequest: self._election.on_begin,
            wire.EndQuorumEpochRequest: self._election.on_end,
            wire.FetchRequest: self._leader.on_fetch,
            wire.FetchSnapshotRequest: self._leader.on_fetch_snapshot,
            wire.DescribeQuorumRequest: self._leader.on_describe,
        }

    # -------------------------------------------------------------------------------- quorum state

    @property
    def node_id(self) -> int:
        return self._quorum.node_id

    @property
    def voters(self) -> VoterSet:
        return self._quorum.voters

    @property
    def log(self) -> ReplicatedLog:
        return self._quorum.log

    @property
    def role(self) -> Role:
        return self._quorum.role

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leader_id(self) -> int:
        """Node id of the leader; -1 if this node knows none."""
        quorum = self._quorum
        return NOBODY if quorum.role is Role.RESIGNED else quorum.leader_id

    @property
    def answering_leader_id(self) -> int:
        """As `leader_id`; -1 also while neither the leader nor a majority of voters answers this voter."""
        return self._quorum.answering_leader_id

    @property
    def voted_id(self) -> int:
        """The candidate this node voted for in this epoch; -1 for none."""
        return self._quorum.voted_id

    @property
    def high_watermark(self) -> int | None:
        """Everything below it is committed; None while it is unknown (Q20)."""
        return self._quorum.high_watermark

    @property
    def epoch_start_offset(self) -> int:
        """The log end when this node last began to lead."""
        return self._leader.epoch_start_offset

    @property
    def fetching_snapshot(self) -> OffsetAndEpoch | None:
        """The leader's snapshot that this node is fetching; None for none."""
        return self._follower.fetching_snapshot

    @property
    def is_stopped(self) -> bool:
        """Does this node send and answer nothing any more?"""
        return self._quorum.is_stopped

    @property
    def is_saving(self) -> bool:
        """Is a change of epoch, vote or leader not yet on disk? No message leaves until it is."""
        return self._quorum.gate.is_saving

    @property
    def is_writing(self) -> bool:
        """Is the log being truncated or replaced, or a vote saved? Another process may use the directory only
        after that."""
        return self._quorum.is_truncating or self.is_saving

    @property
    def is_cut_off(self) -> bool:
        """Did this node ask a majority of voters and get too few responses?"""
        return self._quorum.is_cut_off

    def leader_peer(self) -> Peer | None:
        """The address of the leader; None if unknown."""
        return None if self.leader_id == NOBODY else self._quorum.leader

    @property
    def refusals(self) -> Mapping[int, KafkaError]:
        """The last refusal of each other node, by node id, until that node answers well again."""
        return self._quorum.refusals

    def counters(self) -> QuorumCounters:
        """Return the present counters."""
        quorum, commits = self._quorum, self._leader.commit_ms
        high_watermark = quorum.high_watermark
        return QuorumCounters(
            role=quorum.role,
            leader_id=self.leader_id,
            voted_id=quorum.voted_id,
            epoch=quorum.epoch,
            high_watermark=-1 if high_watermark is None else high_watermark,
            log_end_offset=quorum.log.end_offset,
            log_end_epoch=quorum.log.last_epoch,
            fetched_records=self._follower.fetched_records,
            appended_records=self._leader.appended_records,
            commits=commits.count,
            commit_ms_sum=commits.sum_ms,
            commit_ms_max=commits.max_ms,
            elections=self._elections,
            election_ms_sum=self._election_ms_sum,
            election_ms_max=self._election_ms_max,
            voters=len(quorum.voters.voters),
            observers=self._leader.observers if quorum.role is Role.LEADER else 0,
        )

    # -------------------------------------------------------------------------------------- requests

    def start(self, now_ms: int) -> Effects:
        """Restore the saved state (Q15), and take part. StorageError for a state that cannot be read."""
        return self._quorum.gate.take(self._start, now_ms)

    def _start(self, now_ms: int) -> Effects:
        quorum = self._quorum
        self._is_started = True
        quorum.resume()
        effects = self._clean_later(now_ms) + quorum.warn_of_high_epoch()
        if quorum.voters.is_sole(quorum.node_id):
            return effects + quorum.transition_to_prospective(now_ms)
        effects += self._election.check_lost_records(now_ms) + quorum.announce(now_ms)
        return effects + self.role_entered(Role.FOLLOWER, now_ms) + self.poll(now_ms)

    def on_request(self, request: QuorumRequest, answer: ResponseCallback, now_ms: int) -> Effects:
        """Answer a request of the quorum, now or later; what it changed is saved before that.

        A node that has not restored its saved state promises nothing, and knows no epoch.
        """
        quorum = self._quorum
        if quorum.is_stopped:
            return []
        if quorum.gate.is_full or not self._is_started:
            # This says nothing of the quorum; another voter treats it like no answer.
            response = wire.RESPONSES[type(request)](error_code=Code.BROKER_NOT_AVAILABLE)
            return [answer(response)]
        has_waited = False

        def handled(at_ms: int) -> Effects:
            try:
                return self._handle(request, answer, at_ms)
            except Exception as problem:
                if not has_waited or isinstance(problem, Bug | ConfigError | StorageError):
                    raise
                # The caller has returned already, so the exception cannot reach it. A bad request must not
                # stop the node.
                response = wire.RESPONSES[type(request)](error_code=Code.UNKNOWN_SERVER_ERROR)
                failed = QUORUM_REQUEST_FAILED(request=type(request).__name__, error=repr(problem))
                return [failed, answer(response)]

        effects = quorum.gate.take(handled, now_ms)
        has_waited = True
        return effects

    def send_when_saved(self, message: Effect) -> Effects:
        """Send a message that names epoch or leader, when the disk has them."""
        return self._quorum.gate.hold([message])

    def _handle(self, request: QuorumRequest, answer: ResponseCallback, now_ms: int) -> Effects:
        quorum = self._quorum
        if quorum.is_stopped:
            return []
        cluster_id = getattr(request, "cluster_id", None)
        if cluster_id is not None and cluster_id != quorum.cluster_id:
            response = wire.RESPONSES[type(request)](error_code=Code.INCONSISTENT_CLUSTER_ID)
            return [answer(response)]
        effects = self._handlers[type(request)](request, answer, now_ms)
        return effects + self.poll(now_ms)

    def propose(
        self,
        values: Sequence[bytes],
        *,
        epoch: int,
        now_ms: int,
        body: bytes | bytearray | None = None,
    ) -> tuple[Proposed, Effects] | KafkaError:
        """Append record values as one batch, all or nothing (Q29); the effects lead to its commit.

        KafkaError NOT_CONTROLLER if this node does not lead `epoch`, RECORD_LIST_TOO_LARGE for more bytes
        than one batch of the metadata log may have. StorageError if the log cannot be written.

        body  the same values encoded as the records of a batch, if the caller encoded them before, in slices
              (`records.build.encode_values`)
        """
        return self._leader.propose(values, epoch=epoch, now_ms=now_ms, body=body)

    def resign(self, now_ms: int) -> Effects:
        """Leave the quorum; a leader first waits until another node leads (Q28). Then `is_stopped`.

        It waits at most 5 s, as in Apache Kafka; not at all if it is the sole voter.
        """
        if self.is_saving:
            return self._leave(now_ms)  # no other node knows that it leads
        return self._quorum.gate.take(self._resign, now_ms)

    def _resign(self, now_ms: int) -> Effects:
        quorum = self._quorum
        if quorum.is_stopped:
            return []
        self._election.is_leaving = True
        if quorum.role is not Role.LEADER:
            return self._leave(now_ms)
        effects = quorum.resign(now_ms)
        if quorum.voters.is_sole(quorum.node_id):
            return effects + self._leave(now_ms)
        at_ms = now_ms + RESIGN_WAIT_MAX_MS
        return effects + quorum.set_timer("leave", at_ms, self._leave) + self.poll(now_ms)

    def stop(self) -> None:
        """Forget everything in flight; this node sends nothing more."""
        self._quorum.is_stopped = True
        self._quorum.gate.close()
        self._quorum.calls.forget()
        self._follower.end()

    # ------------------------------------------------------------------------------------- inside

    def _leave(self, now_ms: int) -> Effects:
        self.stop()
        return self._quorum.timers.cancel_all()

    def role_entered(self, before: Role, now_ms: int) -> Effects:
        """The role changed: end the old role, begin the new one."""
        quorum = self._quorum
        role = quorum.role
        effects = quorum.timers.cancel("fetch", "begin", "contacts", "retry")
        successors: tuple[tuple[int, Uuid], ...] = ()
        if before is Role.LEADER:
            successors = self._leader.successors()
            effects += self._leader.end(now_ms)
        self._follower.end()
        self._time_election(role, now_ms)
        if role is Role.UNATTACHED:
            effects += self._election.begin_unattached(before, now_ms) + self._follower.begin(
                now_ms
            )
        elif role is Role.FOLLOWER:
            effects += quorum.timers.cancel("election") + self._follower.begin(now_ms)
            if self._election.is_leaving:
                effects += self._leave(now_ms)
        elif role is Role.PROSPECTIVE:
            effects += self._election.begin_prospective(now_ms)
        elif role is Role.CANDIDATE:
            effects += self._election.begin_candidate(now_ms)
        elif role is Role.LEADER:
            effects += quorum.timers.cancel("election")
            quorum.gate.once_saved(self._claim)
        else:
            effects += self._election.begin_resigned(successors, now_ms)
        return effects

    def _claim(self, now_ms: int) -> Effects:
        """The leadership is saved. Only now may a record of this epoch be written (X1)."""
        assert self._quorum.role is Role.LEADER, "nothing happened in between"
        return self._leader.begin(now_ms)

    def _time_election(self, role: Role, now_ms: int) -> None:
        if role in (Role.FOLLOWER, Role.LEADER):
            self._election.settle()
            if self._electing_since_ms is not None:
                took_ms = now_ms - self._electing_since_ms
                self._electing_since_ms = None
                self._elections += 1
                self._election_ms_sum += took_ms
                self._election_ms_max = max(self._election_ms_max, took_ms)
        elif role in (Role.PROSPECTIVE, Role.CANDIDATE) and self._electing_since_ms is None:
            self._electing_since_ms = now_ms

    def poll(self, now_ms: int) -> Effects:
        """Send the requests that are due, and set a timer for the first peer that rests after a failure."""
        quorum = self._quorum
        if quorum.is_stopped or quorum.role is Role.LEADER:
            return []
        if quorum.role in (Role.FOLLOWER, Role.UNATTACHED):
            effects = self._follower.fetch_due(now_ms)
        else:
            effects = self._election.ask_due(now_ms)
        if self._election.is_leaving and quorum.is_cut_off:
            return effects + self._leave(now_ms)
        at_ms = quorum.calls.next_ready_ms(now_ms)
        if at_ms is not None and quorum.timers.at_ms("retry") != at_ms:
            effects += quorum.set_timer("retry", at_ms, _nothing)
        return effects

    def log_synced(self, now_ms: int) -> Effects:
        """`QuorumStateObserver`: what the sync covered may now be promised and committed."""
        effects = self._follower.on_synced(now_ms) + self._election.check_lost_records(now_ms)
        if self._quorum.role is Role.LEADER:
            effects += self._leader.update_high_watermark(now_ms)
        return effects

    def _clean(self, now_ms: int) -> Effects:
        """Retire old snapshots: each replica by itself (Q40), or as the leader's log start moves (Q51)."""
        quorum = self._quorum
        log, settings = quorum.log, quorum.settings
        effects = self._clean_later(now_ms)
        if quorum.is_truncating:
            return effects
        self._leader.live_observers(now_ms)
        lag: Lag | None = None
        if settings.start_offset_lag_time_max_ms > 0:
            lag = self._lag(now_ms)
            if lag is None:
                return effects
        held = self._leader.held_offset(now_ms) if quorum.role is Role.LEADER else None
        while True:
            start = next_start_offset(
                log, settings=settings, now_ms=now_ms, lag=lag, held_offset=held
            )
            if start is None:
                return effects
            effects += log.retire_snapshots(start, now_ms=now_ms)

    def _clean_later(self, now_ms: int) -> Effects:
        at_ms = now_ms + self._quorum.settings.cleaning_interval_ms
        return self._quorum.set_timer("clean", at_ms, self._clean)

    def _lag(self, now_ms: int) -> Lag | None:
        """The fetch offsets of the replicas, or the leader's log start; None while unknown."""
        if self._quorum.role is Role.LEADER:
            return Lag(replica_offsets=self._leader.live_offsets(now_ms))
        leader_start_offset = self._follower.leader_start_offset
        return None if leader_start_offset is None else Lag((), leader_start_offset)


def _nothing(now_ms: int) -> Effects:
    return []
