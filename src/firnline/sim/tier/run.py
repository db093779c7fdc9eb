"""A run of a cluster with a tier: `FullCluster`, an object store that fails, and what must hold. SIM.

After healing, the store has what the metadata says and nothing else (rel-T13), and a consumer that begins
anew reads everything from the log start on (rel-T1). Source: reliability (b), rel-T1 to rel-T20.
"""

from collections.abc import Sequence
from functools import partial

from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage
from firnline.sim.cluster.draw import broker_ids
from firnline.sim.cluster.ledger import PartitionKey
from firnline.sim.cluster.run import FullCluster, Users
from firnline.sim.host import Host, Machine, Process
from firnline.sim.tier.checks import TierChecks
from firnline.sim.tier.faults import TierFaults
from firnline.sim.tier.known import KnownToBrokers
from firnline.sim.tier.reader import RestartingConsumer
from firnline.sim.tier.served import ServedLocally
from firnline.sim.tier.store import BrokerStore, SharedStore, WatchedStorage
from firnline.sim.tier.waits import DANGLING_MS, LATE_PUT_MS
from firnline.sim.world import MS, SECOND
from firnline.tiered.spi import RemoteStorage

# Until what was abandoned is found, and deleted for the second time; and two rounds of the tasks.
_SETTLED_US = (DANGLING_MS + LATE_PUT_MS) * MS + 90 * SECOND
_READ_US = 180 * SECOND
_HAND_OVER_US = 60 * SECOND
# Copies may go on meanwhile.
_AGREED_US = 180 * SECOND


class TieredCluster(FullCluster):
    """Brokers with a tier."""

    faults: TierFaults
    faults_kind = TierFaults

    def _make_checks(self) -> None:
        super()._make_checks()
        self.store = SharedStore()
        self.stores = {
            node_id: BrokerStore(self.world, self.hosts[node_id], self.store)
            for node_id in broker_ids(self.options)
        }
        self.tier = TierChecks(
            self.hosts,
            self.store,
            self.ledger,
            self.dirty,
            self.replicas,
            self.checkers.complain,
        )
        self.replicas.on_look = self.tier.on_look
        self.metadata.on_joined = self.tier.joined
        self.known = KnownToBrokers(self.tier.recorded, self.tier.say)
        self.served = ServedLocally(self.tier.say)
        self.watchers += [self.tier, self.known, self.served]

    def _on_image(self, image: ClusterImage, deltas: Sequence[ClusterDelta]) -> None:
        super()._on_image(image, deltas)
        self.tier.on_image(image)

    def _make_workload(self) -> Users:
        users = super()._make_workload()
        for consumer in users.consumers:
            if isinstance(consumer, RestartingConsumer):
                consumer.complain = self.checkers.complain
        return users

    def _make_faults(self, mode: str) -> TierFaults:
        faults = super()._make_faults(mode)
        assert isinstance(faults, TierFaults)
        faults.stores, faults.shared_store = self.stores, self.store
        for node_id, store in self.stores.items():
            store.may_end = partial(self.dirty.may_stop, node_id)
        return faults

    def _storage(self, host: Host) -> RemoteStorage | None:
        store = self.stores.get(host.node_id)
        return None if store is None else WatchedStorage(store, host.node_id, self.store)

    # ---- the environment of the processes

    def make(self, host: Host, process: Process, now_ms: int) -> Machine:
        machine = super().make(host, process, now_ms)
        if machine.broker is not None and host.node_id in self.stores:
            self.known.started(process, machine.broker)
        return machine

    def stepped(self, process: Process) -> None:
        super().stepped(process)
        if process.is_alive and process.is_ready:
            self.known.stepped(process)

    def stopped(self, process: Process, *, is_power: bool) -> None:
        super().stopped(process, is_power=is_power)
        self.known.ended(process)
        self.served.ended(process)

    # ---- the end

    def _put_directories_right(self) -> None:
        """Restart leaders that lost leader epochs, as OPERATIONS.md says: others lead then."""
        super()._put_directories_right()
        if not self.world.stopped:
            self.wait(self._all_know_their_lineage, _HAND_OVER_US)

    def _all_know_their_lineage(self) -> bool:
        is_so = True
        for key, broker_id, found in self.tier.replicas_with_tier():
            if found.is_leader and self.dirty.has_lost_lineage(broker_id, key):
                is_so = False
                if self.dirty.is_spare(broker_id, key):
                    self.world.note(broker_id, "restarts, without leader epochs")
                    self.hosts[broker_id].kill()
                    self.hosts[broker_id].start()
                    break
        return is_so

    def _waits_for_operator(self, key: PartitionKey) -> bool:
        """Whether records of the metadata were lost with the last replica standing, and status says so (F28).

        Then replicas and readers of the partition wait where only the tier has records.
        """
        return self.tier.is_void and self.tier.problem_of(key) is not None

    def check_history(self) -> None:
        """The tier settles, and everything in it is read again from its start."""
        if not self.wait(lambda: self.tier.unsettled() is None, _SETTLED_US):
            if not self.world.stopped:
                text = self.tier.unsettled()
                self.checkers.complain(
                    "rel-T13", f"{_SETTLED_US // SECOND} s after healing: {text}"
                )
            return
        if self.tier.is_void:
            super().check_history()
            return
        if (
            not self.wait(lambda: self.tier.disagreement() is None, _AGREED_US)
            and not self.world.stopped
        ):
            self.checkers.complain("rel-T6", f"{self.tier.disagreement()}")
            return
        self.tier.check_end()
        readers = [each for each in self.workload.consumers if isinstance(each, RestartingConsumer)]
        for reader in readers:
            for key in list(reader.positions):
                reader.read_again(key)
        while (unread := self._unread()) is not None:
            if not self.wait(partial(self._reads_on, unread), _READ_US):
                if not self.world.stopped:
                    self.checkers.complain("rel-T1", f"for {_READ_US // SECOND} s {unread}")
                return
        super().check_history()

    def _reads_on(self, before: str) -> bool:
        return self._unread() != before

    def _unread(self) -> str | None:
        """A partition that a consumer has not read to its end."""
        for consumer in self.workload.consumers:
            for key, position in consumer.positions.items():
                if position != self.ledger.of(key).end_offset:
                    place = consumer.places[key]
                    return f"{place.topic}-{place.partition} is read up to {position}"
        return None
