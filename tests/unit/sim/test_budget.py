"""Who may lose power, and that nobody escapes it by not syncing. rel-P4; docs/simulator.md, the budget."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.metadata import records as r
from firnline.metadata.delta import Replay
from firnline.metadata.image import EMPTY_IMAGE
from firnline.records.batch import set_offset_and_epoch
from firnline.replica.partition import Partition
from firnline.replica.sole_replicas import SoleReplicas
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.ledger import Ledger
from firnline.sim.cluster.replica_checks import ReplicaChecks
from firnline.sim.cluster.wire_checks import Promise
from firnline.sim.derived.replica_state import Seen
from firnline.sim.disk import CrashableFs
from firnline.sim.host import Host
from firnline.sim.quorum_node import DATA
from firnline.sim.run import run
from firnline.sim.tier.kinds import CLUSTER
from firnline.sim.world import MS, World
from tests.worlds.list_log import TOPIC_ID, batch, log_of, partition

KEY = (TOPIC_ID, 0)
PATH = f"{DATA}/t-0"
EPOCH = 100


class Ground:
    """Three brokers, and a partition on some of them, of which `acked` records are acknowledged."""

    def __init__(self, replicas: Sequence[int], isr: Sequence[int], acked: int = 5) -> None:
        self.ledger = Ledger()
        self.ledger.of(KEY).acked_end = acked
        self.hosts: dict[int, Any] = {n: self._host() for n in (1, 2, 3)}
        self.dirty = DirtyReplicas(self.hosts, self.ledger)
        self.replicas = replicas
        self.decide(isr)

    def _host(self) -> Any:
        lifecycle = SimpleNamespace(is_registered=True)
        hosted = SimpleNamespace(by_id={})
        broker = SimpleNamespace(hosted=hosted, broker_epoch=EPOCH, lifecycle=lifecycle)
        machine = SimpleNamespace(broker=broker)
        process = SimpleNamespace(is_ready=True, is_paused=False, machine=machine)
        fs = CrashableFs()
        fs.make_dir(PATH)
        return SimpleNamespace(process=process, has_bad_disk=False, fs=fs)

    def decide(self, isr: Sequence[int], leader_epoch: int = 3) -> None:
        """The newest metadata."""
        replay = Replay(EMPTY_IMAGE)
        for node_id in self.hosts:
            replay.apply(
                r.RegisterBrokerRecord(broker_id=node_id, broker_epoch=EPOCH, fenced=False)
            )
        replay.apply(r.TopicRecord(name="t", topic_id=TOPIC_ID))
        replay.apply(
            r.PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=list(self.replicas),
                isr=list(isr),
                leader=isr[0],
                leader_epoch=leader_epoch,
                partition_epoch=1,
                directories=[bytes(16)] * len(self.replicas),
            )
        )
        self.dirty.image = replay.finish(offset=1, epoch=0).after

    def host(self, found: Partition) -> Partition:
        """Broker 1 has the partition, and five records of it in its page cache."""
        self.hosts[1].process.machine.broker.hosted.by_id[KEY] = found
        log_of(found).log_end_offset = 5
        return found

    def synced(self, end: int) -> None:
        """The disk of broker 1 has the log up to there: a segment of one batch, and one of the rest."""
        fs = self.hosts[1].fs
        for base, count in ((0, 1), (1, end - 1)):
            file = fs.open(f"{PATH}/{base:020}.log", create=True)
            file.truncate(0)
            data = batch(count)
            set_offset_and_epoch(data, 0, base, 3)
            file.append(data)
            file.sync()
        fs.sync_dir(PATH)
        fs.sync_dir(DATA)
        fs.sync_dir("/")

    def may_lose(self, *, is_wipe: bool = False) -> bool:
        return self.dirty.may_lose(1, is_wipe=is_wipe)


def test_a_sole_replica_may_lose_power_when_what_was_acknowledged_is_on_its_disk() -> None:
    """It may have taken over a moment ago, and have it in its page cache."""
    ground = Ground(replicas=(1,), isr=(1,))
    ground.host(partition())
    assert not ground.may_lose()
    ground.synced(4)
    assert not ground.may_lose()
    ground.synced(5)
    assert ground.may_lose()
    assert not ground.may_lose(is_wipe=True)


def test_what_a_sole_replica_had_on_its_disk_stays_there_while_it_is_down() -> None:
    ground = Ground(replicas=(1,), isr=(1,))
    ground.hosts[1].process = None
    assert not ground.may_lose()
    ground.synced(5)
    assert ground.may_lose()
    shared = Ground(replicas=(1, 2), isr=(1,))
    shared.hosts[1].process = None
    shared.synced(5)
    assert not shared.may_lose(), "it may have followed somebody since"


def test_the_last_of_an_isr_may_lose_power_when_it_has_synced() -> None:
    ground = Ground(replicas=(1, 2, 3), isr=(1,))
    last = ground.host(partition())
    last.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2, 3), isr=(1,))
    assert not ground.may_lose()
    ground.synced(5)
    assert ground.may_lose()
    last.maximal_isr = (1, 2)
    assert not ground.may_lose(), "the controller may agree to another one any moment"
    last.maximal_isr = (1,)
    ground.decide((1,), leader_epoch=4)
    assert not ground.may_lose(), "it does not know of its epoch yet"
    ground.decide((1, 2))
    assert not ground.may_lose()


def test_the_last_of_an_isr_does_not_lose_power_where_a_bit_of_a_batch_flipped() -> None:
    """Its disk may forget the recovery point then, and recovery takes the batch for one not written whole."""
    ground = Ground(replicas=(1, 2), isr=(1,))
    last = ground.host(partition())
    last.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    ground.synced(5)
    fs = ground.hosts[1].fs
    fs.open(f"{PATH}/{0:020}.index", create=True).append(bytes(8))
    index, log = (fs.files(PATH)[f"{0:020}.{kind}"] for kind in ("index", "log"))
    index.sync()
    index.flip(3, 0)
    assert ground.may_lose(), "recovery makes an index anew"
    log.flip(70, 0)
    assert not ground.may_lose()
    ground.dirty.loses(1)
    assert ground.dirty.owes(1, KEY) == 0
    log.flip(70, 0)
    assert ground.may_lose()


def test_what_was_on_the_disk_is_owed_until_the_replica_has_it_again() -> None:
    ground = Ground(replicas=(1, 2, 3), isr=(1,))
    ground.host(partition())
    ground.synced(5)
    ground.dirty.loses(1)
    assert ground.dirty.owes(1, KEY) == 5
    ground.dirty.has_caught_up(1, KEY)
    assert ground.dirty.owes(1, KEY) == 0
    ground.synced(4)
    ground.dirty.loses(1)
    assert ground.dirty.owes(1, KEY) == 0


def test_a_member_whose_disk_is_about_to_fail_is_nobody_to_count_on() -> None:
    """It stops when that shows, and its partner would be left with what it lost."""
    ground = Ground(replicas=(1, 2), isr=(1, 2))
    ground.dirty.loses(3)
    assert ground.dirty.may_stop(1)
    ground.dirty._dirty[1, KEY] = None
    assert ground.dirty._clean(KEY, _state(ground), without=1) == [2]
    ground.hosts[2].has_bad_disk = True
    assert ground.dirty._clean(KEY, _state(ground), without=1) == []


def _state(ground: Ground) -> Any:
    found = ground.dirty.partition(KEY)
    assert found is not None
    return found


def test_a_process_that_ends_takes_the_failure_that_was_injected_with_it() -> None:
    """Or whatever fails in the next one is excused by it."""
    ended = SimpleNamespace(
        _end=lambda is_power: True, fs=SimpleNamespace(kill=list), has_bad_disk=True
    )
    Host.kill(ended)  # type: ignore[arg-type]
    assert not ended.has_bad_disk


# ------------------------------------------------------------------- what keeps the budget honest


def checks(ground: Ground, world: World) -> tuple[ReplicaChecks, list[str]]:
    found: list[str] = []
    wire: Any = SimpleNamespace(promised=[])
    made = ReplicaChecks(
        world,
        ground.hosts,
        ground.ledger,
        ground.dirty,
        wire,
        lambda invariant, text, node: found.append(invariant),
    )
    return made, found


def test_a_leader_that_is_left_alone_and_does_not_sync_is_a_violation() -> None:
    ground, world = Ground(replicas=(1, 2), isr=(1,)), World(1)
    seen = Seen(partition())
    seen.leader_epoch = 3
    led = ground.host(seen.partition)
    made, found = checks(ground, world)
    made._seen[1] = {KEY: seen}
    process: Any = SimpleNamespace(node_id=1, host=ground.hosts[1], is_paused=False)

    def looked(until_ms: int, isr: tuple[int, ...]) -> list[str]:
        led.maximal_isr = isr
        made._note_alone(process, KEY, seen, led)
        world.run_until(until_ms * MS)
        return found

    assert looked(1_500, (1,)) == looked(1_900, (1,)) == []
    assert looked(9_000, (1, 2)) == [], "it was not alone for so long"
    process.is_paused = True
    assert looked(20_000, (1,)) == looked(21_000, (1, 2)) == []
    process.is_paused = False
    ground.decide((1,), leader_epoch=4)
    assert looked(22_000, (1,)) == looked(23_000, (1, 2)) == [], "others lead, and acknowledge"
    ground.decide((1,), leader_epoch=3)
    assert looked(26_000, (1,)) == ["rel-P4"]
    ground.synced(5)
    assert looked(27_000, (1, 2)) == looked(40_000, (1,)) == ["rel-P4"], "not again"


@pytest.mark.parametrize(
    ("is_dirty", "isr", "partition_epoch", "found"),
    [
        (True, (1,), 0, []),
        (False, (1,), 0, ["rel-R6"]),
        (True, (1, 2), 0, ["rel-R6"]),
        (True, (1,), 1, ["rel-R6"]),  # in a proposal that may be agreed to
    ],
)
def test_a_leader_may_count_on_a_replica_that_lost_its_disk_only_where_it_has_not_learnt_that_it_is_out(
    is_dirty: bool, isr: tuple[int, ...], partition_epoch: int, found: list[str]
) -> None:
    """rel-R6. A Fetch from before came late; by then the controller elects that replica no more."""
    ground = Ground(replicas=(1, 2), isr=isr)
    led = ground.host(partition(isr=(1, 2)))
    led.partition_epoch = partition_epoch
    led.followers[2].end_offset = 5
    ground.hosts[2].process.machine.broker.hosted.by_id[KEY] = partition(leader_id=1)
    if is_dirty:
        ground.dirty._dirty[2, KEY] = None
    made, reported = checks(ground, World(1))
    process: Any = SimpleNamespace(node_id=1, host=ground.hosts[1])
    made._check_isr(process, KEY, led, 5)
    assert reported == found


def test_what_a_replica_owed_after_a_power_cut_and_has_not_is_a_violation() -> None:
    ground = Ground(replicas=(1, 2), isr=(1,))
    led = ground.host(partition())
    ground.synced(5)
    ground.dirty.loses(1)
    log_of(led).log_end_offset = 0
    made, found = checks(ground, World(1))
    process: Any = SimpleNamespace(node_id=1, host=ground.hosts[1])
    made._stand_last(process, KEY, Seen(led), led, ground.ledger.of(KEY))
    assert found == ["rel-P4"]


@pytest.mark.parametrize(("isr_amid", "is_fine"), [(2, True), (1, False)])
def test_an_acknowledgement_needs_an_isr_that_its_leader_had_in_that_step(
    isr_amid: int, is_fine: bool
) -> None:
    """rel-R13: at the end of the step, or at a commit in the midst of it; what others committed is none."""
    ground = Ground(replicas=(1, 2, 3), isr=(1, 2))
    for epoch, size in ((2, 3), (3, isr_amid), (4, 1), (5, 3)):
        state = _state(ground)._replace(partition_epoch=epoch, isr=tuple(range(size)))
        ground.dirty.note_isr(KEY, state)
    made, found = checks(ground, World(1))
    made._wire.promised.append(Promise(KEY, 0, 0, 5, 3, partition_epoch=4, isr_size=1, least=2))
    seen = Seen(partition())
    seen.partition_epoch = 2
    made._check_sizes(SimpleNamespace(node_id=1), {KEY: seen})  # type: ignore[arg-type]
    assert (found == []) is is_fine


def test_a_product_that_never_syncs_what_it_was_left_with_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: by the budget it loses no power, so the run must say so by itself. Method: some seed shows it."""
    for seed in range(510_000, 510_020):
        with monkeypatch.context() as patch:
            patch.setattr(SoleReplicas, "look", lambda self, partition, now_ms: [])
            found = run(seed, seconds=30, form=CLUSTER).first
        if found is not None:
            break
    assert found is not None
    assert found.invariant == "rel-P4"
    assert "on its disk is" in found.text
    assert run(seed, seconds=30, form=CLUSTER).first is None
