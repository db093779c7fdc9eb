"""Elections: pre-votes, votes, winning, losing, and a leader that resigns. PURE.

Theory of operation. A node without a leader waits for its election timeout. Then it is prospective and asks
for pre-votes in its present epoch; nothing is saved, so a node that cannot win disturbs nobody (KIP-996).
With a majority it is a candidate: it enters the next epoch, votes for itself, saves that, syncs its log and
asks for votes. With a majority again it leads. A voter grants a vote only if it gave none in that epoch,
knows no leader of it, and its own log has no more than the candidate's. A candidate that loses waits for a
random back-off. A leader that resigns sends EndQuorumEpoch, and its best follower becomes prospective at
once. A voter that lost records which it once had neither votes nor is a candidate until it has them again.
Guarantee: at most one leader an epoch, and its log has every committed record.

Source: KIP-595, KIP-853 (keys), KIP-996 (pre-votes); spec 1.3, 1.5 Vote/Begin/End, Q15-Q19, Q28, Q46.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.effects import Effects, Peer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, OffsetAndEpoch, Uuid
from firnline.base.log_lines.quorum import VOTER_BACK, VOTER_BARRED
from firnline.protocol.messages.k52_vote import VotePartition, VotePartitionResult
from firnline.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochPartition
from firnline.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochPartition
from firnline.raft import wire
from firnline.raft.election_state import NOBODY
from firnline.raft.quorum_state import QuorumState, refusal
from firnline.raft.role import Role
from firnline.raft.settings import BACKOFF_BASE_MS, BACKOFF_DOUBLINGS_MAX
from firnline.raft.wire import LeaderAndEpoch, ParsedResponse, ResponseCallback

_OfLeader = BeginQuorumEpochPartition | EndQuorumEpochPartition
_PRE_VOTE_SINCE = 2  # version of Vote; to an older peer a pre-vote would be a vote


class Refused(NamedTuple):
    """The error code of a refused request, and the warnings for the operator."""

    code: Code
    warnings: Effects


class Ballot:
    """The votes of one round, by node id. The node's own vote is granted."""

    __slots__ = ("_leaderless_ids", "_voter_ids", "_votes")

    def __init__(self, voter_ids: Sequence[int], own_id: int) -> None:
        self._voter_ids = tuple(voter_ids)
        self._votes: dict[int, bool] = {own_id: True}
        self._leaderless_ids = {own_id}

    @property
    def granting_ids(self) -> tuple[int, ...]:
        return tuple(n for n in self._voter_ids if self._votes.get(n))

    @property
    def is_won(self) -> bool:
        """Has a majority granted?"""
        return len(self.granting_ids) > len(self._voter_ids) // 2

    @property
    def is_lost(self) -> bool:
        """Is a majority impossible now?"""
        refused = sum(1 for n in self._voter_ids if self._votes.get(n) is False)
        return len(self._voter_ids) - refused <= len(self._voter_ids) // 2

    @property
    def has_majority(self) -> bool:
        """Has a majority answered, in whatever way?"""
        return sum(1 for n in self._voter_ids if n in self._votes) > len(self._voter_ids) // 2

    @property
    def is_leaderless(self) -> bool:
        """Has a majority no leader that answers? This node, and who granted or named none."""
        found = sum(1 for n in self._voter_ids if n in self._leaderless_ids)
        return found > len(self._voter_ids) // 2

    def is_open(self, node_id: int) -> bool:
        """Has that voter not answered yet?"""
        return node_id not in self._votes

    def record(self, node_id: int, *, is_granted: bool, names_leader: bool) -> None:
        """Record one vote, and whether its response names a leader."""
        self._votes[node_id] = is_granted
        if is_granted or not names_leader:
            self._leaderless_ids.add(node_id)


class Election:
    """The roles around an election, and the requests about elections.

    give_up_leader(timeout_ms, now_ms)  makes a follower give up its leader after that time
    """

    def __init__(self, quorum: QuorumState, give_up_leader: Callable[[int, int], Effects]) -> None:
        self._quorum = quorum
        self._give_up_leader = give_up_leader
        self._ballot = Ballot((), NOBODY)
        self._was_lost = False
        self._candidacies = 0
        self._acknowledged: dict[int, bool] = {}
        self._successors: tuple[tuple[int, Uuid], ...] = ()
        self._is_barred = False
        self.is_leaving = False

    # ---------------------------------------------------------------------------------------- roles

    def begin_unattached(self, before: Role, now_ms: int) -> Effects:
        """Wait for a leader or the election timeout. A timeout that is running goes on (Q19, X6)."""
        quorum = self._quorum
        if not quorum.may_elect:
            return quorum.timers.cancel("election")
        was_waiting = before in (Role.UNATTACHED, Role.CANDIDATE, Role.RESIGNED) or (
            before is Role.PROSPECTIVE and not self._was_lost
        )
        self._was_lost = False
        if was_waiting and quorum.timers.at_ms("election") is not None:
            return []
        return self._wait(quorum.election_timeout_ms(), now_ms)

    def begin_prospective(self, now_ms: int) -> Effects:
        """Ask for pre-votes in the present epoch (Q46)."""
        return self._begin_round(now_ms)

    def begin_candidate(self, now_ms: int) -> Effects:
        """Ask for votes in the new epoch."""
        self._candidacies += 1
        return self._begin_round(now_ms)

    def begin_resigned(self, successors: Sequence[tuple[int, Uuid]], now_ms: int) -> Effects:
        """Send EndQuorumEpoch; after the election timeout take part again, in the next epoch."""
        quorum = self._quorum
        self._successors = tuple(successors)
        self._acknowledged = {}
        if self.is_leaving or not quorum.is_voter:
            return quorum.timers.cancel("election")
        return self._wait(quorum.election_timeout_ms(), now_ms)

    def check_lost_records(self, now_ms: int) -> Effects:
        """Does this voter lack records that it once had, or no longer? Warn of each change once."""
        quorum = self._quorum
        if not quorum.is_voter or self._is_barred == (quorum.log.forgotten is not None):
            return []
        self._is_barred = not self._is_barred
        if quorum.log.forgotten is not None:
            return [VOTER_BARRED(node=quorum.node_id, **_place(quorum))]
        effects: Effects = [VOTER_BACK(node=quorum.node_id)]
        if quorum.role is Role.UNATTACHED and quorum.timers.at_ms("election") is None:
            effects += self._wait(quorum.election_timeout_ms(), now_ms)
        return effects

    def settle(self) -> None:
        """An election is over: the next one begins with the shortest back-off."""
        self._candidacies = 0

    def _begin_round(self, now_ms: int) -> Effects:
        quorum = self._quorum
        self._was_lost = False
        self._ballot = Ballot(quorum.voters.node_ids, quorum.node_id)
        if self._ballot.is_won:
            return quorum.timers.cancel("election") + self._win(now_ms)
        return self._wait(quorum.election_timeout_ms(), now_ms)

    def _wait(self, timeout_ms: int, now_ms: int) -> Effects:
        return self._quorum.set_timer("election", now_ms + timeout_ms, self._on_timeout)

    def _on_timeout(self, now_ms: int) -> Effects:
        quorum = self._quorum
        if self.is_leaving:
            return []
        if quorum.role is Role.RESIGNED:
            return self._begin_after_resigning(now_ms)
        if quorum.role is Role.PROSPECTIVE:
            has_leader = quorum.leader is not None
            ballot = self._ballot
            quorum.has_lost_leader = ballot.is_leaderless or not ballot.has_majority
            effects = quorum.end_prospective(now_ms)
            return effects if has_leader else effects + quorum.transition_to_prospective(now_ms)
        return quorum.transition_to_prospective(now_ms)

    def _begin_after_resigning(self, now_ms: int) -> Effects:
        quorum = self._quorum
        effects = quorum.leave_epoch(now_ms)
        if quorum.role is Role.RESIGNED:
            return effects + self._wait(quorum.election_timeout_ms(), now_ms)
        return effects + quorum.transition_to_prospective(now_ms) if quorum.may_elect else effects

    def _win(self, now_ms: int) -> Effects:
        if self._quorum.role is Role.PROSPECTIVE:
            return self._quorum.transition_to_candidate(now_ms)
        return self._quorum.transition_to_leader(self._ballot.granting_ids, now_ms)

    # --------------------------------------------------------------------------- sending requests

    def ask_due(self, now_ms: int) -> Effects:
        """Send Vote or EndQuorumEpoch to each voter that has not answered and may be asked."""
        quorum = self._quorum
        effects: Effects = []
        if quorum.role is Role.RESIGNED:
            for peer in quorum.voters.others(quorum.node_id):
                if not self._acknowledged.get(peer.node_id) and self._may_ask(peer, now_ms):
                    effects += self._send_end_quorum_epoch(peer)
        elif quorum.is_truncating:
            return []  # where its log ends is unknown until that is durable
        elif quorum.role is Role.CANDIDATE and not quorum.is_synced:
            # A candidate must still have the log that it names after a power cut: in the same epoch it would
            # get the same votes again, for records that are gone.
            effects = quorum.flush()
        elif quorum.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not self._ballot.is_lost:
            for peer in quorum.voters.others(quorum.node_id):
                if self._ballot.is_open(peer.node_id) and self._may_ask(peer, now_ms):
                    effects += self._ask_for_vote(peer)
        return effects

    def _may_ask(self, peer: Peer, now_ms: int) -> bool:
        return self._quorum.calls.is_ready(peer.node_id, now_ms)

    def _ask_for_vote(self, peer: Peer) -> Effects:
        quorum = self._quorum
        is_pre_vote = quorum.role is Role.PROSPECTIVE
        request = wire.vote_request(
            quorum.cluster_id,
            epoch=quorum.epoch,
            candidate_id=quorum.node_id,
            directory_id=quorum.directory_id,
            voter_id=peer.node_id,
            last=quorum.last,
            is_pre_vote=is_pre_vote,
        )

        def voted(said: ParsedResponse, now_ms: int) -> Effects | KafkaError | None:
            if said.error != Code.NONE:
                return refusal(said)
            assert isinstance(said.part, VotePartitionResult)
            if quorum.role not in (Role.PROSPECTIVE, Role.CANDIDATE):
                return []
            names_leader = said.leader_and_epoch.leader_id != NOBODY
            self._ballot.record(
                peer.node_id, is_granted=said.part.vote_granted, names_leader=names_leader
            )
            return self._count(now_ms)

        if not is_pre_vote:
            return quorum.ask(peer, request, voted)
        return quorum.ask(
            peer,
            request,
            voted,
            version_min=_PRE_VOTE_SINCE,
            # A voter that knows no pre-votes can only be asked for its vote.
            on_unsupported=quorum.transition_to_candidate,
        )

    def _count(self, now_ms: int) -> Effects:
        quorum = self._quorum
        if self._ballot.is_won:
            return self._win(now_ms)
        if not self._ballot.is_lost:
            return []
        if quorum.role is Role.PROSPECTIVE:
            self._was_lost = True
            quorum.has_lost_leader = self._ballot.is_leaderless
            return quorum.end_prospective(now_ms)
        # Q18: do not wait for the whole timeout, but let the losers try again at different times.
        doublings = min(self._candidacies, BACKOFF_DOUBLINGS_MAX)
        backoff_ms = min(
            quorum.settings.election_backoff_max_ms,
            BACKOFF_BASE_MS * quorum.rng.below(2**doublings),
        )
        return self._wait(backoff_ms, now_ms)

    def _send_end_quorum_epoch(self, peer: Peer) -> Effects:
        quorum = self._quorum
        request = wire.end_request(
            quorum.cluster_id,
            epoch=quorum.epoch,
            leader_id=quorum.node_id,
            successors=self._successors,
        )

        def acknowledged(said: ParsedResponse, now_ms: int) -> Effects | KafkaError | None:
            if said.error != Code.NONE:
                return refusal(said)
            self._acknowledged[peer.node_id] = True
            return []

        return quorum.ask(peer, request, acknowledged)

    # --------------------------------------------------------------------------- serving requests

    def on_vote(self, request: wire.VoteRequest, answer: ResponseCallback, now_ms: int) -> Effects:
        """Grant or refuse a vote or pre-vote; a granted vote is saved before the response leaves."""
        quorum = self._quorum
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.VoteResponse(error_code=Code.INVALID_REQUEST))]
        epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
        # A candidate names an epoch without records; one that asks for a pre-vote has not raised its epoch
        # yet.
        is_possible = last_epoch <= epoch if partition.pre_vote else last_epoch < epoch
        if partition.last_offset < 0 or last_epoch < 0 or not is_possible:
            return [answer(wire.vote_response(Code.INVALID_REQUEST, quorum.leader_and_epoch))]
        refused = self._refuse_epoch(epoch, partition.replica_id, now_ms)
        if refused is not None:
            return [
                *refused.warnings,
                answer(wire.vote_response(refused.code, quorum.leader_and_epoch)),
            ]
        effects: Effects = []
        if epoch > quorum.epoch:
            # Before the voter key is checked: a request for the wrong node raises the epoch too (X4).
            effects = quorum.transition_to_unattached(epoch, now_ms)
        if not self._is_meant(request.voter_id, partition.voter_directory_id):
            response = wire.vote_response(Code.INVALID_VOTER_KEY, quorum.leader_and_epoch)
            return [*effects, answer(response)]
        is_granted = self._may_grant(partition)
        if is_granted and not partition.pre_vote and quorum.voted_id == NOBODY:
            effects += self._grant(partition, now_ms)
        response = wire.vote_response(Code.NONE, quorum.answering_leader, is_granted=is_granted)
        return [*effects, answer(response)]

    def _may_grant(self, partition: VotePartition) -> bool:
        """The grant rule of spec 1.3. The candidate need not be a known voter (X5)."""
        quorum = self._quorum
        if quorum.log.forgotten is not None:
            return False
        last = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
        # While the log is truncated its end is unknown, so it cannot be compared.
        is_up_to_date = not quorum.is_truncating and not quorum.has_more_than(last)
        if partition.pre_vote:
            return is_up_to_date and not self._has_live_leader()
        if quorum.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
            return False
        if quorum.voted_id != NOBODY:
            return self._is_same_candidate(partition)
        return is_up_to_date and quorum.leader_id == NOBODY

    def _has_live_leader(self) -> bool:
        """Does this node lead, or fetch with success? Then no election is needed (Q46)."""
        return self._quorum.role is Role.LEADER or self._quorum.has_fetched

    def _is_same_candidate(self, partition: VotePartition) -> bool:
        quorum = self._quorum
        directory_id = quorum.voted_directory_id
        return bool(
            partition.replica_id == quorum.voted_id
            and directory_id in (ZERO_UUID, partition.replica_directory_id)
        )

    def _grant(self, partition: VotePartition, now_ms: int) -> Effects:
        quorum = self._quorum
        assert quorum.leader_id == NOBODY, "an epoch whose leader is known needs no vote (X1)"
        assert quorum.log.forgotten is None, "a node that lost records gives no vote"
        quorum.grant(partition.replica_id, partition.replica_directory_id)
        # The candidate has as good a chance as this node: give it a whole election timeout.
        if quorum.role is Role.PROSPECTIVE:
            return self._begin_round(now_ms)
        if not quorum.is_voter:
            return []
        return self._wait(quorum.election_timeout_ms(), now_ms)

    def on_begin(
        self, request: wire.BeginQuorumEpochRequest, answer: ResponseCallback, now_ms: int
    ) -> Effects:
        """A leader makes itself known. It counts even if it meant another directory (spec 1.5)."""
        quorum = self._quorum
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.BeginQuorumEpochResponse(error_code=Code.INVALID_REQUEST))]
        refused = self._refuse_leader(partition, now_ms)
        if refused is not None:
            return [
                *refused.warnings,
                answer(wire.begin_response(refused.code, quorum.leader_and_epoch)),
            ]
        effects = self._accept_leader(request, partition, now_ms)
        is_meant = self._is_meant(request.voter_id, partition.voter_directory_id)
        code = Code.NONE if is_meant else Code.INVALID_VOTER_KEY
        return [*effects, answer(wire.begin_response(code, quorum.leader_and_epoch))]

    def on_end(
        self, request: wire.EndQuorumEpochRequest, answer: ResponseCallback, now_ms: int
    ) -> Effects:
        """The leader resigns: its best follower becomes prospective at once, the others wait (Q28)."""
        quorum = self._quorum
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.EndQuorumEpochResponse(error_code=Code.INVALID_REQUEST))]
        refused = self._refuse_leader(partition, now_ms)
        if refused is not None:
            return [
                *refused.warnings,
                answer(wire.end_response(refused.code, quorum.leader_and_epoch)),
            ]
        effects = self._accept_leader(request, partition, now_ms)
        if quorum.role is Role.FOLLOWER and quorum.leader_id == partition.leader_id:
            effects += self._give_up_leader(self._successor_timeout_ms(partition), now_ms)
        return [*effects, answer(wire.end_response(Code.NONE, quorum.leader_and_epoch))]

    def _accept_leader(
        self,
        request: wire.BeginQuorumEpochRequest | wire.EndQuorumEpochRequest,
        partition: _OfLeader,
        now_ms: int,
    ) -> Effects:
        quorum = self._quorum
        leader_id = partition.leader_id
        leader = wire.leader_of(request, leader_id, quorum.voters, quorum.settings.listener_name)
        return quorum.maybe_transition(
            LeaderAndEpoch(partition.leader_epoch, leader_id, leader), now_ms
        )

    def _successor_timeout_ms(self, partition: EndQuorumEpochPartition) -> int:
        """How long to wait: longer for each place among the successors, longest for nodes not named. A leader
        that restarted names no successors: then no node waits."""
        quorum = self._quorum
        order = [(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates]
        order = order or [(node_id, ZERO_UUID) for node_id in partition.preferred_successors]
        most_ms = quorum.settings.election_backoff_max_ms if order else 0
        for place, (node_id, directory_id) in enumerate(order):
            if node_id == quorum.node_id and directory_id in (ZERO_UUID, quorum.directory_id):
                if place == 0:
                    return 0
                return min(most_ms, (most_ms >> (len(order) - 1)) << (place - 1))
        return most_ms

    def _refuse_epoch(self, epoch: int, node_id: int, now_ms: int) -> Refused | None:
        if epoch < self._quorum.epoch:
            return Refused(Code.FENCED_LEADER_EPOCH, [])
        if node_id < 0:
            return Refused(Code.INVALID_REQUEST, [])
        warnings = self._quorum.refuse_epoch(epoch, now_ms)
        return None if warnings is None else Refused(Code.INVALID_REQUEST, warnings)

    def _refuse_leader(self, partition: _OfLeader, now_ms: int) -> Refused | None:
        known = LeaderAndEpoch(partition.leader_epoch, partition.leader_id)
        refused = self._refuse_epoch(known.epoch, known.leader_id, now_ms)
        warnings = self._quorum.refuse_leader(known)
        return refused if warnings is None else Refused(Code.INVALID_REQUEST, warnings)

    def _is_meant(self, voter_id: int, directory_id: Uuid) -> bool:
        """Is the request for this replica? Older versions name no replica."""
        quorum = self._quorum
        if voter_id < 0:
            return True
        return voter_id == quorum.node_id and directory_id in (ZERO_UUID, quorum.directory_id)


def _place(quorum: QuorumState) -> dict[str, int]:
    place = quorum.log.forgotten
    assert place is not None
    return place._asdict()
