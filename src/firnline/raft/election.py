"""Elections: granting votes, asking for them, winning, losing, and leaving office. PURE.

Source: KIP-595, KIP-853 (keys), KIP-996 (pre-votes); spec 1.3, 1.5 Vote/Begin/End, Q15-Q19, Q28, Q46.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.effects import Effects, Peer, Warn
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, OffsetAndEpoch, Uuid
from firnline.protocol.messages.k52_vote import VotePartition, VotePartitionResult
from firnline.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochPartition
from firnline.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochPartition
from firnline.raft import wire
from firnline.raft.election_state import NOBODY
from firnline.raft.role import Role
from firnline.raft.settings import BACKOFF_BASE_MS, BACKOFF_DOUBLINGS_MAX
from firnline.raft.standing import Standing, refusal
from firnline.raft.wire import Answer, Known, Said

_BARRED = (
    "metadata quorum: node {node_id} lost metadata that it had up to offset {offset} of epoch {epoch}: it"
    " neither votes nor stands for election until it has fetched that again"
)
_BACK = "metadata quorum: node {node_id} has fetched what it had lost, and takes part in elections again"
_OfLeader = BeginQuorumEpochPartition | EndQuorumEpochPartition
_PRE_VOTE_SINCE = 2  # version of Vote; to an older peer a pre-vote would be a vote


class Refused(NamedTuple):
    """Why a request changed nothing, and what the operator is to know of it."""

    code: Code
    said: Effects


class Ballot:
    """The voices of one round, by node id. The own one is given."""

    __slots__ = ("_heard", "_voter_ids")

    def __init__(self, voter_ids: Sequence[int], own_id: int) -> None:
        self._voter_ids = tuple(voter_ids)
        self._heard: dict[int, bool] = {own_id: True}

    @property
    def granting_ids(self) -> tuple[int, ...]:
        return tuple(n for n in self._voter_ids if self._heard.get(n))

    @property
    def is_won(self) -> bool:
        """Did a majority grant?"""
        return len(self.granting_ids) > len(self._voter_ids) // 2

    @property
    def is_lost(self) -> bool:
        """Can no majority grant any more?"""
        refused = sum(1 for n in self._voter_ids if self._heard.get(n) is False)
        return len(self._voter_ids) - refused <= len(self._voter_ids) // 2

    def is_open(self, node_id: int) -> bool:
        """Has that voter not been heard?"""
        return node_id not in self._heard

    def hear(self, node_id: int, *, is_granted: bool) -> None:
        """Count one voice."""
        self._heard[node_id] = is_granted


class Election:
    """The roles that wait for, take part in, or come from an election; and the requests about them.

    give_up_leader(timeout_ms, now_ms)  makes a follower give up its leader after that long
    """

    def __init__(self, standing: Standing, give_up_leader: Callable[[int, int], Effects]) -> None:
        self._standing = standing
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
        """Wait for a leader or the election timeout. What was left of it stays (Q19, X6)."""
        standing = self._standing
        if not standing.may_elect:
            return standing.timers.cancel("election")
        was_waiting = before in (Role.UNATTACHED, Role.CANDIDATE, Role.RESIGNED) or (
            before is Role.PROSPECTIVE and not self._was_lost
        )
        self._was_lost = False
        if was_waiting and standing.timers.at_ms("election") is not None:
            return []
        return self._wait(standing.election_timeout_ms(), now_ms)

    def begin_prospective(self, now_ms: int) -> Effects:
        """Ask whether this node could win, the epoch as it is (Q46)."""
        return self._begin_round(now_ms)

    def begin_candidate(self, now_ms: int) -> Effects:
        """Ask for votes in the new epoch."""
        self._candidacies += 1
        return self._begin_round(now_ms)

    def begin_resigned(self, successors: Sequence[tuple[int, Uuid]], now_ms: int) -> Effects:
        """Tell the voters; after the election timeout take part again, in the next epoch."""
        standing = self._standing
        self._successors = tuple(successors)
        self._acknowledged = {}
        if self.is_leaving or not standing.is_voter:
            return standing.timers.cancel("election")
        return self._wait(standing.election_timeout_ms(), now_ms)

    def look_back(self, now_ms: int) -> Effects:
        """Is this voter short of what it promised to have, or no more? Said once, both ways."""
        standing = self._standing
        if not standing.is_voter or self._is_barred == (standing.log.forgotten is not None):
            return []
        self._is_barred = not self._is_barred
        if standing.log.forgotten is not None:
            return [Warn(line=_BARRED.format(node_id=standing.node_id, **_place(standing)))]
        effects: Effects = [Warn(line=_BACK.format(node_id=standing.node_id))]
        if standing.role is Role.UNATTACHED and standing.timers.at_ms("election") is None:
            effects += self._wait(standing.election_timeout_ms(), now_ms)
        return effects

    def settle(self) -> None:
        """An election is over: the next one begins without a history of failures."""
        self._candidacies = 0

    def _begin_round(self, now_ms: int) -> Effects:
        standing = self._standing
        self._was_lost = False
        self._ballot = Ballot(standing.voters.node_ids, standing.node_id)
        if self._ballot.is_won:
            return standing.timers.cancel("election") + self._win(now_ms)
        return self._wait(standing.election_timeout_ms(), now_ms)

    def _wait(self, timeout_ms: int, now_ms: int) -> Effects:
        return self._standing.set_timer("election", now_ms + timeout_ms, self._on_timeout)

    def _on_timeout(self, now_ms: int) -> Effects:
        standing = self._standing
        if self.is_leaving:
            return []
        if standing.role is Role.RESIGNED:
            return self._begin_after_resigning(now_ms)
        if standing.role is Role.PROSPECTIVE:
            has_leader = standing.leader is not None
            effects = standing.lose(now_ms)
            return effects if has_leader else effects + standing.prospect(now_ms)
        return standing.prospect(now_ms)

    def _begin_after_resigning(self, now_ms: int) -> Effects:
        standing = self._standing
        effects = standing.leave_epoch(now_ms)
        if standing.role is Role.RESIGNED:
            return effects + self._wait(standing.election_timeout_ms(), now_ms)
        return effects + standing.prospect(now_ms) if standing.may_elect else effects

    def _win(self, now_ms: int) -> Effects:
        if self._standing.role is Role.PROSPECTIVE:
            return self._standing.stand(now_ms)
        return self._standing.lead(self._ballot.granting_ids, now_ms)

    # ------------------------------------------------------------------------------ asking others

    def ask_due(self, now_ms: int) -> Effects:
        """Ask, or tell, every voter that is still to be asked and may be."""
        standing = self._standing
        effects: Effects = []
        if standing.role is Role.RESIGNED:
            for peer in standing.voters.others(standing.node_id):
                if not self._acknowledged.get(peer.node_id) and self._may_ask(peer, now_ms):
                    effects += self._say_farewell(peer)
        elif standing.is_cutting:
            return []  # how much it has to offer is not known before that is on disk
        elif standing.role is Role.CANDIDATE and not standing.is_synced:
            # What it claims to have it must have after a power cut too: as a candidate of the same epoch
            # it would get the same votes again, for a log that is no longer there.
            effects = standing.flush()
        elif standing.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not self._ballot.is_lost:
            for peer in standing.voters.others(standing.node_id):
                if self._ballot.is_open(peer.node_id) and self._may_ask(peer, now_ms):
                    effects += self._ask_for_vote(peer)
        return effects

    def _may_ask(self, peer: Peer, now_ms: int) -> bool:
        return self._standing.calls.is_ready(peer.node_id, now_ms)

    def _ask_for_vote(self, peer: Peer) -> Effects:
        standing = self._standing
        is_pre_vote = standing.role is Role.PROSPECTIVE
        request = wire.vote_request(
            standing.cluster_id,
            epoch=standing.epoch,
            candidate_id=standing.node_id,
            directory_id=standing.directory_id,
            voter_id=peer.node_id,
            last=standing.last,
            is_pre_vote=is_pre_vote,
        )

        def voted(said: Said, now_ms: int) -> Effects | KafkaError | None:
            if said.error != Code.NONE:
                return refusal(said)
            assert isinstance(said.part, VotePartitionResult)
            return self._count(peer.node_id, is_granted=said.part.vote_granted, now_ms=now_ms)

        if not is_pre_vote:
            return standing.ask(peer, request, voted)
        return standing.ask(
            peer,
            request,
            voted,
            version_min=_PRE_VOTE_SINCE,
            # A voter that knows no pre-votes can only be asked for its vote.
            on_unsupported=standing.stand,
        )

    def _count(self, node_id: int, *, is_granted: bool, now_ms: int) -> Effects:
        standing = self._standing
        if standing.role not in (Role.PROSPECTIVE, Role.CANDIDATE):
            return []
        self._ballot.hear(node_id, is_granted=is_granted)
        if self._ballot.is_won:
            return self._win(now_ms)
        if not self._ballot.is_lost:
            return []
        if standing.role is Role.PROSPECTIVE:
            self._was_lost = True
            return standing.lose(now_ms)
        # Q18: no use in waiting for the timeout; but not all losers at the same moment.
        doublings = min(self._candidacies, BACKOFF_DOUBLINGS_MAX)
        backoff_ms = min(
            standing.settings.election_backoff_max_ms,
            BACKOFF_BASE_MS * standing.rng.below(2**doublings),
        )
        return self._wait(backoff_ms, now_ms)

    def _say_farewell(self, peer: Peer) -> Effects:
        standing = self._standing
        request = wire.end_request(
            standing.cluster_id,
            epoch=standing.epoch,
            leader_id=standing.node_id,
            successors=self._successors,
        )

        def heard(said: Said, now_ms: int) -> Effects | KafkaError | None:
            if said.error != Code.NONE:
                return refusal(said)
            self._acknowledged[peer.node_id] = True
            return []

        return standing.ask(peer, request, heard)

    # ------------------------------------------------------------------------------- being asked

    def on_vote(self, request: wire.VoteRequest, answer: Answer, now_ms: int) -> Effects:
        """Grant or refuse a vote or pre-vote; what is granted is saved before the answer leaves."""
        standing = self._standing
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.VoteResponse(error_code=Code.INVALID_REQUEST))]
        epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
        # A candidate stands in an epoch nobody has written in; one that only asks has not raised it yet.
        is_possible = last_epoch <= epoch if partition.pre_vote else last_epoch < epoch
        if partition.last_offset < 0 or last_epoch < 0 or not is_possible:
            return [answer(wire.vote_response(Code.INVALID_REQUEST, standing.known))]
        refused = self._refuse_epoch(epoch, partition.replica_id, now_ms)
        if refused is not None:
            return [*refused.said, answer(wire.vote_response(refused.code, standing.known))]
        effects: Effects = []
        if epoch > standing.epoch:
            # Before the key is looked at: also whoever asked the wrong node has raised the epoch (X4).
            effects = standing.meet_epoch(epoch, now_ms)
        if not self._is_meant(request.voter_id, partition.voter_directory_id):
            response = wire.vote_response(Code.INVALID_VOTER_KEY, standing.known)
            return [*effects, answer(response)]
        is_granted = self._may_grant(partition)
        if is_granted and not partition.pre_vote and standing.voted_id == NOBODY:
            effects += self._grant(partition, now_ms)
        response = wire.vote_response(Code.NONE, standing.known, is_granted=is_granted)
        return [*effects, answer(response)]

    def _may_grant(self, partition: VotePartition) -> bool:
        """The grant rule of spec 1.3. The candidate need not be a voter this node knows of (X5)."""
        standing = self._standing
        if standing.log.forgotten is not None:
            return False
        last = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
        # What this node has in comparison is not known while its log is cut.
        is_up_to_date = not standing.is_cutting and not standing.has_more_than(last)
        if partition.pre_vote:
            return is_up_to_date and not self._has_live_leader()
        if standing.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
            return False
        if standing.voted_id != NOBODY:
            return self._is_same_candidate(partition)
        return is_up_to_date and standing.leader_id == NOBODY

    def _has_live_leader(self) -> bool:
        """Leading, or fetching with success: then nobody needs an election (Q46)."""
        return self._standing.role is Role.LEADER or self._standing.has_fetched

    def _is_same_candidate(self, partition: VotePartition) -> bool:
        standing = self._standing
        directory_id = standing.voted_directory_id
        return bool(
            partition.replica_id == standing.voted_id
            and directory_id in (ZERO_UUID, partition.replica_directory_id)
        )

    def _grant(self, partition: VotePartition, now_ms: int) -> Effects:
        standing = self._standing
        assert standing.leader_id == NOBODY, "an epoch whose leader is known needs no vote (X1)"
        assert standing.log.forgotten is None, "who lacks what it promised gives no vote"
        standing.grant(partition.replica_id, partition.replica_directory_id)
        # The candidate has as good a chance as this node: it gets the time of a whole election.
        if standing.role is Role.PROSPECTIVE:
            return self._begin_round(now_ms)
        if not standing.is_voter:
            return []
        return self._wait(standing.election_timeout_ms(), now_ms)

    def on_begin(
        self, request: wire.BeginQuorumEpochRequest, answer: Answer, now_ms: int
    ) -> Effects:
        """A leader makes itself known; believed even when it meant another directory (spec 1.5)."""
        standing = self._standing
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.BeginQuorumEpochResponse(error_code=Code.INVALID_REQUEST))]
        refused = self._refuse_leader(partition, now_ms)
        if refused is not None:
            return [*refused.said, answer(wire.begin_response(refused.code, standing.known))]
        effects = self._believe(request, partition, now_ms)
        is_meant = self._is_meant(request.voter_id, partition.voter_directory_id)
        code = Code.NONE if is_meant else Code.INVALID_VOTER_KEY
        return [*effects, answer(wire.begin_response(code, standing.known))]

    def on_end(self, request: wire.EndQuorumEpochRequest, answer: Answer, now_ms: int) -> Effects:
        """The leader leaves: its best follower stands at once, the others give it time (Q28)."""
        standing = self._standing
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.EndQuorumEpochResponse(error_code=Code.INVALID_REQUEST))]
        refused = self._refuse_leader(partition, now_ms)
        if refused is not None:
            return [*refused.said, answer(wire.end_response(refused.code, standing.known))]
        effects = self._believe(request, partition, now_ms)
        if standing.role is Role.FOLLOWER and standing.leader_id == partition.leader_id:
            effects += self._give_up_leader(self._patience_ms(partition), now_ms)
        return [*effects, answer(wire.end_response(Code.NONE, standing.known))]

    def _believe(
        self,
        request: wire.BeginQuorumEpochRequest | wire.EndQuorumEpochRequest,
        partition: _OfLeader,
        now_ms: int,
    ) -> Effects:
        standing = self._standing
        leader_id = partition.leader_id
        leader = wire.leader_of(
            request, leader_id, standing.voters, standing.settings.listener_name
        )
        return standing.adopt(Known(partition.leader_epoch, leader_id, leader), now_ms)

    def _patience_ms(self, partition: EndQuorumEpochPartition) -> int:
        """Strictly growing with the place among the successors; the most for those not named. A leader that
        restarted names nobody: then nobody waits."""
        standing = self._standing
        order = [(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates]
        order = order or [(node_id, ZERO_UUID) for node_id in partition.preferred_successors]
        most_ms = standing.settings.election_backoff_max_ms if order else 0
        for place, (node_id, directory_id) in enumerate(order):
            if node_id == standing.node_id and directory_id in (ZERO_UUID, standing.directory_id):
                if place == 0:
                    return 0
                return min(most_ms, (most_ms >> (len(order) - 1)) << (place - 1))
        return most_ms

    def _refuse_epoch(self, epoch: int, node_id: int, now_ms: int) -> Refused | None:
        if epoch < self._standing.epoch:
            return Refused(Code.FENCED_LEADER_EPOCH, [])
        if node_id < 0:
            return Refused(Code.INVALID_REQUEST, [])
        said = self._standing.refuse_epoch(epoch, now_ms)
        return None if said is None else Refused(Code.INVALID_REQUEST, said)

    def _refuse_leader(self, partition: _OfLeader, now_ms: int) -> Refused | None:
        known = Known(partition.leader_epoch, partition.leader_id)
        refused = self._refuse_epoch(known.epoch, known.leader_id, now_ms)
        said = self._standing.refuse_leader(known)
        return refused if said is None else Refused(Code.INVALID_REQUEST, said)

    def _is_meant(self, voter_id: int, directory_id: Uuid) -> bool:
        """Is the request for this replica? Older versions name none."""
        standing = self._standing
        if voter_id < 0:
            return True
        return voter_id == standing.node_id and directory_id in (ZERO_UUID, standing.directory_id)


def _place(standing: Standing) -> dict[str, int]:
    place = standing.log.forgotten
    assert place is not None
    return place._asdict()
