"""Faults of the store: for all brokers, or for one that cannot reach it. SIM. Source: F1 to F40."""

from functools import partial
from typing import Any

from firnline.sim.cluster.draw import broker_ids
from firnline.sim.cluster_faults.directories import DirectoryFaults
from firnline.sim.faults import Fault
from firnline.sim.tier.store import BrokerStore, SharedStore, StoreFaults
from firnline.sim.world import MS, SECOND, Chance


class TierFaults(DirectoryFaults):
    """`DirectoryFaults`, and a store that fails."""

    stores: dict[int, BrokerStore]
    shared_store: SharedStore

    def _store_slow(self, fault: Fault, chance: Chance) -> None:
        latency_us = chance.spread(20 * MS, 2 * SECOND)
        self._change(fault, chance, f"takes {latency_us // MS} ms more", latency_us=latency_us)

    def _store_errors(self, fault: Fault, chance: Chance) -> None:
        percent = chance.pick((5, 30, 80))
        self._change(fault, chance, f"fails in {percent} % of calls", failing_percent=percent)

    def _store_hangs(self, fault: Fault, chance: Chance) -> None:
        self._change(fault, chance, "hangs", is_hanging=True)

    def _store_down(self, fault: Fault, chance: Chance) -> None:
        self._change(fault, chance, "refuses connections", is_down=True)

    def _store_damage(self, fault: Fault, chance: Chance) -> None:
        percent = chance.pick((5, 30))
        self._change(fault, chance, f"damages {percent} % of reads", damaged_percent=percent)

    def _store_rot(self, fault: Fault, chance: Chance) -> None:
        """Flip a bit of an object at rest; an operator restores it, when all is healed at the latest."""
        stored = self.shared_store.content.objects
        undamaged = self.shared_store.objects
        keys = [key for key, data in stored.items() if data and undamaged[key] is data]
        if not keys:
            return
        key = chance.pick(keys)
        at, bit = chance.below(len(stored[key])), chance.below(8)
        self._note(fault, f"byte {at} of {key} in the store flips")
        self.shared_store.flip(key, at, bit)
        self._last(chance.spread(2 * SECOND, 30 * SECOND), partial(self.shared_store.restore, key))

    def _store_keeps(self, fault: Fault, chance: Chance) -> None:
        percent = chance.pick((20, 100))
        text = f"keeps the objects of {percent} % of deletions"
        self._change(fault, chance, text, keeps_percent=percent)

    def _store_long(self, fault: Fault, chance: Chance) -> None:
        """A copy takes seconds, and ends before its time is over."""
        latency_us = chance.between(150 * MS, 600 * MS)
        self._change(fault, chance, f"takes {latency_us // MS} ms more", latency_us=latency_us)

    def _store_hangs_one(self, fault: Fault, chance: Chance) -> None:
        self._change(
            fault, chance, "hangs", chosen=[chance.pick(list(self.stores))], is_hanging=True
        )

    def _store_restart(self, fault: Fault, chance: Chance) -> None:
        """Refuse deletions of a broker, then kill it; its store is down for a while after its start."""
        node_id = chance.pick(list(self.stores))
        before_us = chance.between(2 * SECOND, 6 * SECOND)
        down_us = chance.between(1 * SECOND, 6 * SECOND)
        text = f"refuses deletions for {before_us // MS} ms, and is down for {down_us // MS} ms"
        self._note(fault, f"the store of {node_id} {text}; between, it dies")
        self.stores[node_id].faults.refuses_deletions = True
        self._last(before_us + down_us, partial(self._undo, [node_id], ("refuses_deletions",)))
        self._world.after(before_us, self._die, node_id, down_us)

    def _die(self, node_id: int, store_down_us: int) -> None:
        host = self._hosts[node_id]
        if self._is_over or host.process is None or not self.dirty.may_stop(node_id):
            return
        host.kill()
        self._keep_down(host, 20 * MS)
        self.stores[node_id].faults.is_down = True
        self._last(store_down_us, partial(self._undo, [node_id], ("is_down",)))

    def _store_refuses(self, fault: Fault, chance: Chance) -> None:
        self._change(fault, chance, "refuses deletions", refuses_deletions=True)

    def _store_kill(self, fault: Fault, chance: Chance) -> None:
        """Kill a broker between two calls of the same piece of work."""
        node_id = chance.pick(broker_ids(self._options))
        calls = chance.spread(1, 40)
        self._note(fault, f"{node_id} dies in a call of the store, after {calls}")
        self.stores[node_id].faults.calls_to_live = calls

    def _change(
        self,
        fault: Fault,
        chance: Chance,
        text: str,
        chosen: list[int] | None = None,
        **values: Any,
    ) -> None:
        """Set these faults of all brokers, or of one, for a while."""
        if chosen is None:
            chosen = list(self.stores)
            if chance.below(3) == 0:
                chosen = [chance.pick(chosen)]
        duration_us = chance.spread(200 * MS, 25 * SECOND)
        whose = "" if len(chosen) > 1 else f" of {chosen[0]}"
        self._note(fault, f"the store{whose} {text} for {duration_us // MS} ms")
        for node_id in chosen:
            faults = self.stores[node_id].faults
            for name, value in values.items():
                setattr(faults, name, value)
        self._last(duration_us, partial(self._undo, chosen, tuple(values)))

    def _undo(self, chosen: list[int], names: tuple[str, ...]) -> None:
        sound = StoreFaults()
        for node_id in chosen:
            for name in names:
                setattr(self.stores[node_id].faults, name, getattr(sound, name))

    def heal(self) -> None:
        super().heal()
        for store in self.stores.values():
            store.faults.calls_to_live = None
