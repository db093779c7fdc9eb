"""One replica of the metadata quorum: elects, leads, follows, and says what is committed. PURE.

This module puts the parts together: `standing` (role, epoch, vote), `election`, `leader`, `follower`. A
sole voter elects itself at start, with no timer and no network (Q16). Source: KIP-595, KIP-630, KIP-996.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.effects import Effect, Effects, Peer, Warn
from firnline.base.errors import Bug, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch, Uuid
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
    """Plain numbers for the metrics of spec 1.14; -1 for an offset or a node that is not known."""

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
    """The quorum as one replica sees it; `node_id` outside the voters is an observer (Q2).

    `bootstrap`: whom to ask while no leader is known; the voters when empty.

    Invariants:
      I1  the epoch never falls, and is saved before anything of it is done.
      I2  `high_watermark` falls only to None, when this node begins to lead (Q20).
      I3  what is told committed is on the disks of a majority of voters.
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

    # --------------------------------------------------------------------------------- what is known

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
        """Node id of the leader; -1 while nobody leads, as far as this node knows."""
        quorum = self._quorum
        return NOBODY if quorum.role is Role.RESIGNED else quorum.leader_id

    @property
    def voted_id(self) -> int:
        """Whom this node voted for in this epoch; -1 for nobody."""
        return self._quorum.voted_id

    @property
    def high_watermark(self) -> int | None:
        """Everything below it is committed; None while that is unknown (Q20)."""
        return self._quorum.high_watermark

    @property
    def epoch_start_offset(self) -> int:
        """Where the log ended when this node last began to lead."""
        return self._leader.epoch_start_offset

    @property
    def fetching_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot of the leader's that is on its way here; None for none."""
        return self._follower.fetching_snapshot

    @property
    def is_stopped(self) -> bool:
        """Nothing more is sent or answered."""
        return self._quorum.is_stopped

    @property
    def is_saving(self) -> bool:
        """Epoch, vote or leader changed, and the disk has not got it yet: nobody is told."""
        return self._quorum.gate.is_saving

    @property
    def is_writing(self) -> bool:
        """The log is being cut or replaced, or a vote saved. The directory is another's only after that."""
        return self._quorum.is_truncating or self.is_saving

    @property
    def is_cut_off(self) -> bool:
        """Whether this node asked for a majority of voters and did not get near it."""
        return self._quorum.is_cut_off

    def leader_peer(self) -> Peer | None:
        """Where the leader listens, when that is known."""
        return None if self.leader_id == NOBODY else self._quorum.leader

    @property
    def refusals(self) -> Mapping[int, KafkaError]:
        """What other nodes refused, by node id, as long as they did not answer well since."""
        return self._quorum.refusals

    def counters(self) -> QuorumCounters:
        """What there is to count, now."""
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

    # ------------------------------------------------------------------------------- what may be asked

    def start(self, now_ms: int) -> Effects:
        """Resume from what was saved (Q15), and take part. StorageError for what cannot be read."""
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
        """Answer a request of the quorum's, now or later; what it changed is saved before that.

        A node that has not taken up what it saved yet promises nothing, and knows no epoch.
        """
        quorum = self._quorum
        if quorum.is_stopped:
            return []
        if quorum.gate.is_full or not self._is_started:
            # Says nothing of the quorum; for a voter it is as good as silence.
            response = wire.RESPONSES[type(request)](error_code=Code.BROKER_NOT_AVAILABLE)
            return [answer(response)]
        has_waited = False

        def handled(at_ms: int) -> Effects:
            try:
                return self._handle(request, answer, at_ms)
            except Exception as problem:
                if not has_waited or isinstance(problem, Bug | ConfigError | StorageError):
                    raise
                # Whoever handed it over has its answer to no avail: a bad request ends no node.
                response = wire.RESPONSES[type(request)](error_code=Code.UNKNOWN_SERVER_ERROR)
                line = f"metadata quorum: a {type(request).__name__} failed: {problem!r}"
                return [Warn(line=line), answer(response)]

        effects = quorum.gate.take(handled, now_ms)
        has_waited = True
        return effects

    def send_when_saved(self, message: Effect) -> Effects:
        """Send a message of another part of this node that names epoch or leader, once that may be told."""
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

        KafkaError NOT_CONTROLLER when this node does not lead `epoch`, RECORD_LIST_TOO_LARGE for
        more bytes than one batch of the metadata log may have. StorageError if the log cannot be written.

        body  the same values as the records of a batch, where there are so many that they were encoded
              before, in slices (`records.build.encode_values`)
        """
        return self._leader.propose(values, epoch=epoch, now_ms=now_ms, body=body)

    def resign(self, now_ms: int) -> Effects:
        """Leave: a leader hands over first, or gives up waiting for that (Q28). Then `is_stopped`.

        It waits at most 5 s, as Apache Kafka's does; not at all where its own vote can elect nobody.
        """
        if self.is_saving:
            return self._leave(now_ms)  # nobody knows of it as a leader
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
        """Forget everything in flight; nothing more is sent."""
        self._quorum.is_stopped = True
        self._quorum.gate.close()
        self._quorum.calls.forget()
        self._follower.end()

    # ------------------------------------------------------------------------------------- inside

    def _leave(self, now_ms: int) -> Effects:
        self.stop()
        return self._quorum.timers.cancel_all()

    def role_entered(self, before: Role, now_ms: int) -> Effects:
        """A role was taken up: leave what the old one had open, begin the new one."""
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
        """Saved is that this node leads: only then a record of its epoch may be anywhere (X1)."""
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
        """Send whatever is due; come back when the first of those who rest may be asked again."""
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
        """`QuorumStateObserver`: what was appended may be promised, and committed, from here on."""
        effects = self._follower.on_synced(now_ms) + self._election.check_lost_records(now_ms)
        if self._quorum.role is Role.LEADER:
            effects += self._leader.update_high_watermark(now_ms)
        return effects

    def _clean(self, now_ms: int) -> Effects:
        """Retire old snapshots: each replica on its own (Q40), or as the leader's log start goes (Q51)."""
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
        """How far the replicas are, or the leader's log is; None while that is unknown."""
        if self._quorum.role is Role.LEADER:
            return Lag(replica_offsets=self._leader.live_offsets(now_ms))
        leader_start_offset = self._follower.leader_start_offset
        return None if leader_start_offset is None else Lag((), leader_start_offset)


def _nothing(now_ms: int) -> Effects:
    return []
