"""Faults of several steps, each the way to one race that single faults hardly ever come to. SIM.

What they cut and slow is drawn, so that the race is met from different sides, and mostly missed.
"""

from firnline.sim.cluster.budget import ClusterFaults
from firnline.sim.faults import Fault
from firnline.sim.world import MS, SECOND, Chance

Links = list[tuple[int, int]]


class RaceFaults(ClusterFaults):
    """`ClusterFaults`, and the races."""

    def _late_answer(self, fault: Fault, chance: Chance) -> None:
        """An answer waits in its socket while who gave it is deposed, truncates, and is filled again.

        The follower that asked has what the others never had, and hears of the next leader last (KAFKA-18723).
        """
        # Who comes first among the replicas leads next.
        found = [
            (state.leader, *(each for each in state.replicas if each != state.leader))
            for _, _, state in self._partitions()
            if len(state.isr) == len(state.replicas) == 3 and state.leader >= 0
        ]
        found = [each for each in found if self.atlas.may_stop(each[0])]
        if not found:
            return
        leader, heir, follower = chance.pick(found)
        assert self._options.cluster is not None
        session_us = self._options.cluster.session_timeout_ms * MS
        voters = self._options.voter_ids
        deaf_us = chance.between(session_us // 2, session_us)
        again_us = session_us + chance.between(200 * MS, 2 * SECOND)
        read_us = again_us + chance.between(500 * MS, 4 * SECOND)
        heard_us = read_us + chance.between(100 * MS, 2 * SECOND)
        self._note(
            fault,
            f"{heir} does not hear {leader} for {again_us // MS} ms, nor do controllers; {follower} does"
            f" until {deaf_us // MS} ms, gets the rest at {read_us // MS} ms, and hears of it last",
        )
        self._cut_links([(leader, heir)], again_us)
        self._cut_links([(leader, voter) for voter in voters], again_us)
        self._later(deaf_us, [(leader, follower)], read_us)
        self._later(deaf_us, [(voter, follower) for voter in voters], heard_us)

    def _later(self, begin_us: int, links: Links, end_us: int) -> None:
        """Cut links between two moments from now on."""

        def begin() -> None:
            if not self._is_over:
                self._cut_links(links, end_us - begin_us)

        self._world.after(begin_us, begin)
