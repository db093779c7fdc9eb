"""Faults of several steps, each leading to a race that single faults hardly ever reach. SIM.

Which links are cut or slowed is drawn, so that the race is approached in different ways, and mostly missed.
"""

from firnline.sim.cluster.budget import ClusterFaults
from firnline.sim.faults import Fault
from firnline.sim.world import MS, SECOND, Chance

Links = list[tuple[int, int]]
# By then a broker has given up on its request to the controller, and has sent it again.
_GIVEN_UP_US = 30 * SECOND


class RaceFaults(ClusterFaults):
    """`ClusterFaults`, and the races."""

    def _late_answer(self, fault: Fault, chance: Chance) -> None:
        """A response waits in its socket while its sender is deposed, truncates, and gets new records.

        The follower that asked has records that the others never had, and hears of the next leader last.
        Source: KAFKA-18723.
        """
        # The first replica in the assignment leads next.
        found = [
            (state.leader, *(each for each in state.replicas if each != state.leader))
            for _, _, state in self._partitions()
            if len(state.isr) == len(state.replicas) == 3 and state.leader >= 0
        ]
        found = [each for each in found if self.dirty.may_stop(each[0])]
        if not found:
            return
        leader, heir, follower = chance.pick(found)
        assert self._options.cluster is not None
        session_us = self._options.cluster.session_timeout_ms * MS
        voters = self._options.voter_ids
        deaf_us = chance.between(session_us // 2, session_us)
        again_us = session_us + chance.between(200 * MS, 2 * SECOND)
        read_us = again_us + chance.between(500 * MS, 4 * SECOND)
        restored_us = read_us + chance.between(100 * MS, 2 * SECOND)
        self._note(
            fault,
            f"{heir} does not hear {leader} for {again_us // MS} ms, nor do controllers; {follower} does"
            f" until {deaf_us // MS} ms, gets the rest at {read_us // MS} ms, and hears of it last",
        )
        self._cut_links([(leader, heir)], again_us)
        self._cut_links([(leader, voter) for voter in voters], again_us)
        self._later(deaf_us, [(leader, follower)], read_us)
        self._later(deaf_us, [(voter, follower) for voter in voters], restored_us)

    def _late_copy(self, fault: Fault, chance: Chance) -> None:
        """A leader's request to the controllers stalls on its way until long after it was sent again.

        Meanwhile a follower is fenced, so that the second copy is refused, and then unfenced.
        """
        found = [
            (state.leader, other)
            for _, _, state in self._partitions()
            for other in state.replicas
            if other != state.leader >= 0
        ]
        found = [each for each in found if self.dirty.may_stop(each[1])]
        if not found:
            return
        leader, other = chance.pick(found)
        voters = [voter for voter in self._options.voter_ids if voter != leader]
        apart_us = chance.between(1_500 * MS, 3 * SECOND)
        # The leader's request when the follower is back in sync stalls; by the second one the follower is
        # fenced.
        stall_us = apart_us - chance.between(0, 500 * MS)
        again_us = apart_us + _GIVEN_UP_US
        fenced_us = again_us - chance.between(2_500 * MS, 6 * SECOND)
        back_us = again_us + chance.between(500 * MS, 4 * SECOND)
        late_us = back_us + chance.between(100 * MS, 4 * SECOND)
        self._note(
            fault,
            f"{other} is apart from {leader} for {apart_us // MS} ms, whose requests to controllers then"
            f" stall until {late_us // MS} ms; they do not hear {other} from {fenced_us // MS} to"
            f" {back_us // MS} ms",
        )
        self._cut_links([(leader, other), (other, leader)], apart_us)
        links = [(leader, voter) for voter in voters]
        self._world.after(stall_us, self._stall, links, late_us - stall_us)
        self._later(fenced_us, [(other, voter) for voter in voters if voter != other], back_us)
        self._later(fenced_us, [(leader, other), (other, leader)], late_us + SECOND)

    def _later(self, begin_us: int, links: Links, end_us: int) -> None:
        """Cut links between two moments from now on."""

        def begin() -> None:
            if not self._is_over:
                self._cut_links(links, end_us - begin_us)

        self._world.after(begin_us, begin)
