"""What a leader tells in the step in which its topic is deleted: nothing of it is left at the end."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.metadata import records as r
from firnline.replica.partition import Partition
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.ledger import Ledger
from firnline.sim.cluster.replica_checks import ReplicaChecks
from firnline.sim.disk import CrashableFs
from firnline.sim.world import World
from tests.worlds.hosting_node import ID, Node, Store, moved, placed, topic
from tests.worlds.list_log import NODE_ID, ListLog, batch, log_of

KEY = (ID, 0)
OTHER = 2
RECORDS = 3


class Ground:
    """Two brokers whose controller has them in the ISR of a partition, and what is judged of them."""

    def __init__(self) -> None:
        self.brokers = {n: _Watched(partial(self._dropped, n)) for n in (NODE_ID, OTHER)}
        self.processes = {n: _process(n, each) for n, each in self.brokers.items()}
        hosts: Any = {
            n: SimpleNamespace(process=each, fs=each.host.fs, has_bad_disk=False)
            for n, each in self.processes.items()
        }
        self.ledger = Ledger()
        self.dirty = DirtyReplicas(hosts, self.ledger)
        self.found: list[str] = []
        wire: Any = SimpleNamespace(promised=[], applying=None, fetched_us={}, ahead={})
        self.checks = ReplicaChecks(
            World(1),
            hosts,
            self.ledger,
            self.dirty,
            wire,
            lambda invariant, text, node=-1: self.found.append(invariant),
        )

    def _dropped(self, node_id: int, partition: Partition) -> None:
        self.checks.dropped(self.processes[node_id], partition)

    def commit(self, *records: Any) -> None:
        """The leader hears of it, and nobody looks yet."""
        self.brokers[NODE_ID].commit(*records)

    def looked(self) -> list[str]:
        """The step is over."""
        self.dirty.image = self.brokers[NODE_ID].image
        self.checks.stepped(self.processes[NODE_ID])
        return self.found


class _Watched(Node):
    """Shows `watch` each partition that it drops, as `broker.wiring.PartitionEvents` does."""

    def __init__(self, watch: Callable[[Partition], None]) -> None:
        super().__init__()
        self._watch = watch

    def partition_dropped(self, partition: Partition, now_ms: int) -> Effects:
        self._watch(partition)
        return super().partition_dropped(partition, now_ms)


class _Store(Store):
    """Of a log that was dropped nothing can be read."""

    def drop(self, log: Any, now_ms: int) -> Any:
        log.batches = []
        return super().drop(log, now_ms)


def _process(node_id: int, node: Node) -> Any:
    node.store = node.hosting._store = _Store()
    broker = SimpleNamespace(
        parts=SimpleNamespace(hosting=node.hosting),
        hosted=node.hosted,
        storage=SimpleNamespace(is_settling=False),
        broker_epoch=0,
        lifecycle=SimpleNamespace(is_registered=True, broker_epoch=0),
        quorum=SimpleNamespace(image=SimpleNamespace(offset=0)),
    )
    host = SimpleNamespace(fs=CrashableFs())
    machine = SimpleNamespace(broker=broker, controller=None)
    return SimpleNamespace(
        node_id=node_id, is_alive=True, is_ready=True, is_paused=False, machine=machine, host=host
    )


@pytest.mark.parametrize(("has_it", "found"), [(True, []), (False, ["rel-R6"])])
def test_what_a_leader_calls_committed_just_before_its_topic_is_deleted_is_checked(
    has_it: bool, found: list[str]
) -> None:
    """Goal: a consumer that waited may have it, so it is committed; of a leader that errs this is said, too.

    Method: one step, in which the ISR is enlarged, and min.insync.replicas reached by it, and the topic goes.
    The mutant is a leader that takes the other replica for one that has everything.
    """
    ground = Ground()
    brokers = [r.RegisterBrokerRecord(broker_id=n, broker_epoch=0, fenced=False) for n in (1, 2)]
    settings = r.ConfigRecord(
        resource_type=2, resource_name="t", name="min.insync.replicas", value="2"
    )
    ground.commit(*brokers, topic(), settings, placed(replicas=(NODE_ID, OTHER)))
    ground.commit(moved(isr=[NODE_ID]))
    led = ground.brokers[NODE_ID].partition()
    log_of(led).append_as_leader(batch(RECORDS), leader_epoch=0, now_ms=0)
    led.log.epochs.assign(0, 0)
    there: Any = SimpleNamespace(log=ListLog())
    there.log.log_end_offset = RECORDS if has_it else 0
    ground.processes[OTHER].machine.broker.hosted = SimpleNamespace(by_id={KEY: there})
    assert ground.looked() == []
    led.followers[OTHER].end_offset = RECORDS
    assert ground.looked() == []
    assert ground.ledger.of(KEY).end_offset == 0

    ground.commit(moved(isr=[NODE_ID, OTHER]))
    ground.commit(r.RemoveTopicRecord(topic_id=ID))
    assert led.log.high_watermark == RECORDS
    assert ground.looked() == found
    assert ground.ledger.of(KEY).end_offset == RECORDS
