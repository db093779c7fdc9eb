"""KAFKA-14139, row by row: a broker restarts while its leader asks that it be taken into the ISR.

The table is spec 2.9, a row a test, on whole nodes: three controllers, the leader A, the follower B, and C.
All rows begin alike: the ISR is {A}, B has caught up, and A's request {A:eA, B:e1} is on its way. What
differs is what happens to B, and to A, before it arrives. A row says what becomes of the request, that
nothing was written down, and that no log lost anything. Row 10 is the seed's, without the ELR of KIP-966.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.metadata.image import BrokerImage, ClusterImage, PartitionImage
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k56_alter_partition import AlterPartitionRequest
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.schema import Message
from firnline.replica.isr import ReplicaState
from firnline.replica.partition import Partition
from tests.worlds.cluster import Exchange, Parcel, Rig
from tests.worlds.harness import batch

CONTROLLERS = (1, 2, 3)
A, B, C = 4, 5, 6
ROLES = {**dict.fromkeys(CONTROLLERS, "controller"), **dict.fromkeys((A, B, C), "broker")}
SESSION_MS = 4_000
Rule = Callable[[int, int, Message], bool]


class Race:
    """One race up to the place where all rows begin: `request` is A's, kept back by the network."""

    def __init__(self, replicas: tuple[int, ...] = (A,), **settings_of_1: str) -> None:
        self.rules: dict[str, Rule] = {}
        self.rig = Rig(ROLES, broker_session_timeout_ms=str(SESSION_MS))
        self.rig.holds = lambda *parcel: any(rule(*parcel) for rule in self.rules.values())
        self.rig[1].settings |= {k.replace("_", "."): v for k, v in settings_of_1.items()}
        self.rig.start()
        self.create("t", replicas)
        for number in range(3):
            self.produce(f"v{number}")
        self.keep_back("alter", lambda asker, _, m: asker == A and is_alter(m))
        self.move("t", (*replicas, B))
        self.rig.until(lambda: self.led.proposed is not None and self.rig.held)
        self.epochs = {n: self.broker(n).epoch for n in (A, B, C)}
        self.request = self.rig.held[0]
        assert self.proposed(self.request) == {n: self.epochs[n] for n in (*replicas, B)}
        assert (self.partition.isr, self.partition.leader) == (replicas, A)

    # ---- what there is

    @property
    def image(self) -> ClusterImage:
        """Of the controller that decides."""
        active = self.rig.active()
        assert active is not None
        return self.rig[active].controller.image

    @property
    def partition(self) -> PartitionImage:
        found = self.image.partition("t", 0)
        assert found is not None
        return found

    @property
    def led(self) -> Partition:
        """The partition as A has it."""
        return self.replica(A)

    def replica(self, node_id: int) -> Partition:
        return self.rig[node_id].broker.partitions["t", 0]

    def broker(self, node_id: int) -> BrokerImage:
        return self.image.brokers[node_id]

    def known(self, node_id: int) -> BrokerImage:
        """What A's own image says of a broker."""
        return self.rig[A].broker.image.brokers[node_id]

    def proposed(self, parcel: Parcel) -> dict[int, int]:
        """Whom a request names, with the epochs."""
        assert isinstance(parcel.request, AlterPartitionRequest)
        [row] = parcel.request.topics[0].partitions
        return {member.broker_id: member.broker_epoch for member in row.new_isr_with_epochs}

    def contents(self) -> dict[int, bytes]:
        """The log of each replica that runs."""
        return {
            n: (p := self.replica(n)).log.read_batches(p.log.log_start_offset, max_bytes=1 << 24)
            for n in (A, B, C)
            if self.rig[n].node is not None and ("t", 0) in self.rig[n].broker.partitions
        }

    # ---- what happens

    def create(self, name: str, replicas: tuple[int, ...]) -> None:
        row = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[row]
        )
        made = self.rig.ask(C, CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0]
        assert made.error_code == 0, made
        self.rig.until(lambda: (name, 0) in self.rig[replicas[0]].broker.partitions)

    def move(self, name: str, replicas: tuple[int, ...]) -> None:
        row = ReassignablePartition(partition_index=0, replicas=list(replicas))
        topic = ReassignableTopic(name=name, partitions=[row])
        assert (
            self.rig.ask(C, AlterPartitionReassignmentsRequest(topics=[topic]), 0).error_code == 0
        )

    def produce(self, value: str) -> None:
        part = PartitionProduceData(index=0, records=batch(value))
        data = TopicProduceData(name="t", partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        [row] = self.rig.ask(A, request, 9).responses[0].partition_responses
        assert row.error_code == 0, row

    def keep_back(self, name: str, rule: Rule) -> None:
        self.rules[name] = rule

    def let_go(self, name: str) -> None:
        """Keep nothing more back of that kind, and let arrive what lives on."""
        rule = self.rules.pop(name)
        for parcel in self.rig.held:
            if rule(parcel.asker, parcel.target, parcel.request):
                parcel.release()

    def dies(self, node_id: int) -> None:
        self.rig[node_id].kill()

    def is_fenced(self, node_id: int) -> None:
        """Time passes until the controller has fenced who died."""
        self.rig.until(lambda: self.broker(node_id).fenced)

    def returns(self, node_id: int, *, is_wiped: bool = False, is_replaced: bool = False) -> None:
        """Another incarnation registers; it is unfenced if its heartbeats arrive.

        is_wiped     its directory is there, and nothing is in it
        is_replaced  its directory is another one, which it tells the controller
        """
        member = self.rig[node_id]
        if is_wiped or is_replaced:
            member.format(directory_id=None if is_replaced else member.directory_id)
        self.rig[node_id].start()
        self.rig.until(lambda: self.broker(node_id).epoch > self.epochs[node_id])
        if "beats" not in self.rules:
            self.rig.until(lambda: self.rig[node_id].is_running)

    def arrives(self, parcel: Parcel, *, at: int | None = None) -> Exchange:
        """A request that was kept back arrives; what it is answered, whoever hears it."""
        seen = len(self.rig.answered)
        parcel.release(at=at)

        def found() -> list[Exchange]:
            return [e for e in self.rig.answered[seen:] if e.request is parcel.request]

        self.rig.until(found)
        return found()[0]

    def code(self, parcel: Parcel | None = None, *, at: int | None = None) -> Code:
        """Of the one partition in A's request, which changed nothing anywhere."""
        with self.untouched():
            answer = self.arrives(parcel or self.request, at=at).answer
        assert answer.error_code == 0, Code(answer.error_code)
        return Code(answer.topics[0].partitions[0].error_code)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """What the controller wrote down stays, and so does every log."""
        before, held = self.partition, self.contents()
        yield
        assert self.partition == before
        assert self.contents() == held

    def is_taken_back(self) -> None:
        """A counts on itself alone again, asks no more by itself, and commits without B."""
        self.rig.until(lambda: self.led.proposed is None)
        assert (self.led.isr, self.led.maximal_isr) == ((A,), (A,))
        asked = len(self.alters())
        self.rules.pop("alter")
        self.produce("after")
        self.rig.pass_time(2 * SESSION_MS)
        assert len(self.alters()) == asked
        assert self.led.log.high_watermark == self.led.log.log_end_offset

    def alters(self) -> list[Message]:
        """What A has asked of controllers so far."""
        return [m for asker, _, m in self.rig.sent if asker == A and is_alter(m)]

    def joins_as(self, epoch: int) -> None:
        """B joins, and it is with that epoch that A asked for it."""
        self.rig.until(lambda: set(self.partition.isr) == {A, B})
        last = self.alters()[-1]
        assert isinstance(last, AlterPartitionRequest)
        [row] = last.topics[0].partitions
        assert (B, epoch) in [(m.broker_id, m.broker_epoch) for m in row.new_isr_with_epochs]
        assert self.contents()[B] == self.contents()[A]


def is_alter(message: Message) -> bool:
    return isinstance(message, AlterPartitionRequest)


def is_heartbeat_of(node_id: int) -> Rule:
    return lambda asker, _, m: asker == node_id and isinstance(m, BrokerHeartbeatRequest)


def is_metadata_fetch_of(node_id: int) -> Rule:
    return lambda asker, target, m: (
        asker == node_id and target in CONTROLLERS and isinstance(m, FetchRequest)
    )


def is_replica_fetch_of(node_id: int) -> Rule:
    return lambda asker, target, m: asker == node_id and target == A and isinstance(m, FetchRequest)


def state(follower: ReplicaState) -> list[Any]:
    return [getattr(follower, name) for name in ReplicaState.__slots__]


@pytest.fixture
def race() -> Race:
    return Race()


def test_row_1_the_request_comes_first_and_the_fence_takes_b_out_later(race: Race) -> None:
    answer = race.arrives(race.request).answer.topics[0].partitions[0]
    assert (answer.error_code, list(answer.isr)) == (0, [A, B])
    held = race.contents()[A]
    race.dies(B)
    race.is_fenced(B)
    assert (race.partition.isr, race.partition.leader) == ((A,), A)
    assert race.contents()[A] == held


def test_row_2_b_is_dead_and_fenced_when_the_request_comes(race: Race) -> None:
    race.dies(B)
    race.is_fenced(B)
    assert race.code() is Code.INELIGIBLE_REPLICA
    race.is_taken_back()


def test_row_3_b_is_registered_again_and_still_fenced(race: Race) -> None:
    race.dies(B)
    race.is_fenced(B)
    race.keep_back("beats", is_heartbeat_of(B))
    race.returns(B, is_wiped=True)
    assert race.broker(B).fenced
    assert race.code() is Code.INELIGIBLE_REPLICA
    race.is_taken_back()


def test_row_4_b_is_unfenced_with_an_empty_disk_and_a_new_controller_is_asked(race: Race) -> None:
    race.dies(B)
    race.is_fenced(B)
    race.returns(B, is_wiped=True)
    old = race.rig.active()
    assert old is not None
    race.dies(old)
    # A's request dies with the controller it was meant for; A repeats it, as it was, to the next one.
    race.rig.until(lambda: race.rig.held[-1].target not in (old, A))
    again = race.rig.held[-1]
    assert race.proposed(again) == {A: race.epochs[A], B: race.epochs[B]}
    assert not race.broker(B).fenced
    assert race.code(again) is Code.INELIGIBLE_REPLICA
    race.rig.until(lambda: race.led.proposed is not again.request)
    race.dies(A)
    race.is_fenced(A)
    assert race.partition.leader == -1, "B has not got what was acknowledged"


def test_row_4_with_another_disk_the_old_request_is_overtaken_by_the_directory(race: Race) -> None:
    """KIP-858: where its replica is now, B told the controller; A's request is of a time before that."""
    race.dies(B)
    race.is_fenced(B)
    before = race.partition.partition_epoch
    race.returns(B, is_replaced=True)
    race.rig.until(lambda: race.partition.partition_epoch > before)
    assert race.code() is Code.INVALID_UPDATE_VERSION
    assert race.partition.isr == (A,)
    race.rules.clear()
    for parcel in race.rig.held[1:]:
        parcel.release()
    race.joins_as(race.broker(B).epoch)


def test_row_5_b_fetches_before_a_knows_its_new_epoch(race: Race) -> None:
    race.keep_back("metadata of A", is_metadata_fetch_of(A))
    race.rig.until(lambda: [p for p in race.rig.held if isinstance(p.request, FetchRequest)])
    race.dies(B)
    race.is_fenced(B)
    race.returns(B)
    assert race.code() is Code.INELIGIBLE_REPLICA
    asked = len(race.alters())
    follower, new_epoch = race.led.followers[B], race.broker(B).epoch
    with race.untouched():
        race.rig.until(lambda: follower.broker_epoch == new_epoch)
        race.rig.until(lambda: follower.end_offset == race.led.log.log_end_offset)
        race.rig.pass_time(SESSION_MS)
        assert (race.known(B).epoch, race.known(B).fenced) == (race.epochs[B], False)
        assert len(race.alters()) == asked, "the epochs differ: nothing is proposed"
    race.rules.pop("alter")
    race.let_go("metadata of A")
    race.joins_as(new_epoch)


def test_row_6_a_late_fetch_of_the_dead_incarnation_leaves_no_trace(race: Race) -> None:
    race.keep_back("fetch of B", is_replica_fetch_of(B))
    race.rig.until(lambda: [p for p in race.rig.held if is_replica_fetch_of(B)(*parts(p))])
    late = race.rig.held[-1]
    race.dies(B)
    race.is_fenced(B)
    race.returns(B, is_wiped=True)
    new_epoch = race.broker(B).epoch
    race.rig.until(lambda: race.known(B).epoch == new_epoch)
    before, asked = state(race.led.followers[B]), len(race.alters())
    with race.untouched():
        answer = race.arrives(late).answer
    [row] = answer.responses[0].partitions
    assert (answer.error_code, row.error_code) == (0, Code.NOT_LEADER_OR_FOLLOWER)
    assert not row.records
    assert state(race.led.followers[B]) == before
    assert len(race.alters()) == asked
    race.rules.clear()
    race.request.release()  # refused: the new incarnation may join by itself
    race.rig.held.remove(late)
    for parcel in race.rig.held:
        parcel.release()
    race.joins_as(new_epoch)


def parts(parcel: Parcel) -> tuple[int, int, Message]:
    return parcel.asker, parcel.target, parcel.request


def test_row_7_b_has_caught_up_again_and_both_sides_know_its_new_epoch(race: Race) -> None:
    race.dies(B)
    race.is_fenced(B)
    race.returns(B, is_wiped=True)
    assert race.code() is Code.INELIGIBLE_REPLICA
    race.rules.clear()
    held = race.contents()[A]
    race.joins_as(race.broker(B).epoch)
    assert race.contents()[A] == held


def test_row_8_b_is_on_its_way_out(race: Race) -> None:
    race.create("b", (B, A))
    race.rig.until(lambda: ("b", 0) in race.rig[B].broker.partitions)
    race.rig[B].run(race.rig[B].broker.shutdown(race.rig.now_ms))
    race.rig.until(lambda: race.broker(B).in_controlled_shutdown)
    race.keep_back("beats", is_heartbeat_of(B))
    assert not race.broker(B).fenced
    assert race.code() is Code.INELIGIBLE_REPLICA
    race.is_taken_back()


def test_row_9_a_is_registered_again_itself(race: Race) -> None:
    """The whole request is refused, by whom it comes from; A's next incarnation knows nothing of it."""
    race.dies(A)
    race.is_fenced(A)
    race.returns(A)
    with race.untouched():
        answer = race.arrives(race.request).answer
    assert (answer.error_code, list(answer.topics)) == (Code.STALE_BROKER_EPOCH, [])
    assert (race.partition.isr, race.partition.leader) == ((A,), A)


def test_row_10_the_last_member_of_the_isr_stays_in_it_over_an_unclean_restart(race: Race) -> None:
    """The exception that KIP-903 states: B may have all of it, and nobody can tell."""
    leader_epoch, held = race.partition.leader_epoch, race.contents()[A]
    race.dies(A)
    race.is_fenced(A)
    assert (race.partition.isr, race.partition.leader) == ((A,), -1)
    race.returns(A)
    race.rig.until(lambda: race.partition.leader != -1)
    assert (race.partition.isr, race.partition.leader) == ((A,), A)
    assert race.partition.leader_epoch > leader_epoch, "no epoch has two contents"
    assert race.contents()[A] == held


def test_row_11_a_leads_no_more_and_keeps_its_proposal_until_metadata_says_so() -> None:
    race = Race((A, C))
    race.rig.cut |= {(A, number) for number in CONTROLLERS}
    race.is_fenced(A)
    assert race.partition.leader == C
    wanted = race.led.proposed
    assert wanted is not None
    assert race.code() is Code.FENCED_LEADER_EPOCH
    race.rig.pass_time(1_000)
    assert race.led.proposed is wanted, "only metadata tells what became of the partition"
    assert set(race.led.maximal_isr) == {A, B, C}
    race.rules.clear()
    race.rig.cut.clear()
    race.rig.until(lambda: not race.led.is_leader)
    assert race.led.proposed is None
    race.rig.until(lambda: set(race.partition.isr) == {A, B, C})
    assert len(set(race.contents().values())) == 1


def test_row_12_a_controller_that_was_deposed_knows_less_than_the_leader() -> None:
    """It takes itself for the active one, says NOT_CONTROLLER, and the next controller is asked."""
    old, for_ever_ms = 1, "600000"
    race = Race(
        controller_quorum_election_timeout_ms="100",  # it is elected first
        controller_quorum_fetch_timeout_ms=for_ever_ms,  # it does not see that nobody follows it
        broker_session_timeout_ms=for_ever_ms,  # and has nothing to write down meanwhile
        metadata_max_idle_interval_ms="0",
    )
    rig, controllers = race.rig, {n: race.rig[n].controller for n in CONTROLLERS}

    def at(number: int) -> PartitionImage:
        found = controllers[number].image.partition("t", 0)
        assert found is not None
        return found

    assert rig.active() == old
    rig.cut |= {(n, old) for n in ROLES} | {(old, n) for n in CONTROLLERS}
    rig.until(lambda: any(controllers[n].quorum.is_active for n in (2, 3)))
    new = next(n for n in (2, 3) if controllers[n].quorum.is_active)
    # A is fenced and back: what it knows now, the old controller does not.
    rig.cut |= {(A, n) for n in CONTROLLERS}
    rig.until(lambda: at(new).leader == -1)
    rig.cut -= {(A, n) for n in CONTROLLERS if n != old}
    rig.until(lambda: at(new).leader == A and race.led.leader_epoch == at(new).leader_epoch)
    rig.until(lambda: race.led.proposed is not None and is_of(rig.held[-1], race.led))
    wanted, before = race.led.proposed, at(old)
    assert controllers[old].quorum.is_active, "it does not know yet"
    assert at(new).leader_epoch > before.leader_epoch
    answer = race.arrives(rig.held[-1], at=old).answer
    assert answer.error_code == 0
    assert answer.topics[0].partitions[0].error_code == Code.NOT_CONTROLLER
    assert at(old) == before
    rig.pass_time(100)
    assert race.led.proposed is wanted, "what was said to the wrong controller stands"
    race.rules.clear()
    rig.until(lambda: set(at(new).isr) == {A, B})


def is_of(parcel: Parcel, partition: Partition) -> bool:
    """Whether a request is about the leader epoch that the partition has now."""
    request = parcel.request
    if not isinstance(request, AlterPartitionRequest):
        return False
    return bool(request.topics[0].partitions[0].leader_epoch == partition.leader_epoch)


def test_row_13_b_is_dead_and_nobody_knows_yet(race: Race) -> None:
    """B joins, dead as it is; it leaves before another incarnation of it is unfenced, and never leads."""
    race.dies(B)
    race.rig[B].format()
    race.rig[B].start()
    answer = race.arrives(race.request).answer.topics[0].partitions[0]
    assert (answer.error_code, list(answer.isr)) == (0, [A, B])
    assert race.broker(B).epoch == race.epochs[B]
    race.rules.clear()
    race.keep_back("alter", lambda asker, _, m: asker == A and is_alter(m))

    def is_back() -> bool:
        now = race.broker(B)
        assert race.partition.leader == A
        if now.epoch > race.epochs[B]:
            assert B not in race.partition.isr, "this incarnation has not got the records"
        return now.epoch > race.epochs[B] and not now.fenced

    race.rig.until(is_back)
    race.rules.clear()
    for parcel in race.rig.held:
        if is_alter(parcel.request):
            parcel.release()
    race.joins_as(race.broker(B).epoch)


def lost(race: Race) -> None:
    """A's request is on its way for 30 s; B is fenced under its epoch, and A's second copy is refused."""
    race.keep_back("fetches of B", is_replica_fetch_of(B))
    race.keep_back("beats", is_heartbeat_of(B))
    race.is_fenced(B)
    race.rig.until(lambda: len([p for p in race.rig.held if is_alter(p.request)]) == 2)
    again = [p for p in race.rig.held if is_alter(p.request)][-1]
    assert race.proposed(again) == race.proposed(race.request)
    assert race.code(again) is Code.INELIGIBLE_REPLICA


def test_a_copy_that_arrives_after_the_refusal_of_the_next_one_loses_nothing(race: Race) -> None:
    """rel-R7: what A acknowledges by itself is not to depend on B, which the first copy would let lead."""
    lost(race)
    race.rules.pop("alter")
    for parcel in [p for p in race.rig.held if is_alter(p.request)][2:]:
        parcel.release()
    race.produce("alone")
    acknowledged = race.contents()[A]
    race.let_go("beats")
    race.rig.until(lambda: not race.broker(B).fenced)
    assert race.broker(B).epoch == race.epochs[B]
    assert race.code() is Code.INVALID_UPDATE_VERSION
    race.dies(A)
    race.is_fenced(A)
    assert race.partition.leader == -1, "B has not got what was acknowledged"
    assert race.contents().get(A, acknowledged) == acknowledged


def test_nothing_is_acknowledged_alone_while_a_copy_may_still_be_taken(race: Race) -> None:
    """The controllers hear nothing more of A: B counts until it is known to stay outside."""
    lost(race)
    high_watermark = race.led.log.high_watermark
    part = PartitionProduceData(index=0, records=batch("not yet"))
    data = TopicProduceData(name="t", partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
    [row] = race.rig.ask(A, request, 9).responses[0].partition_responses
    assert row.error_code == Code.REQUEST_TIMED_OUT
    assert (race.led.isr, race.led.maximal_isr) == ((A,), (A, B))
    assert race.led.log.high_watermark == high_watermark
    race.let_go("beats")
    race.rig.until(lambda: not race.broker(B).fenced)
    answer = race.arrives(race.request).answer.topics[0].partitions[0]
    assert (answer.error_code, list(answer.isr)) == (0, [A, B]), "the first copy is taken"
    race.rig.until(lambda: race.led.isr == (A, B))
    assert race.led.log.high_watermark == high_watermark
    race.rules.clear()
    for parcel in race.rig.held:
        parcel.release()
    race.rig.until(lambda: race.led.log.high_watermark == race.led.log.log_end_offset)
    assert race.contents()[B] == race.contents()[A]
