"""Duties of the active controller by the clock: leaders go home, and partitions without one are looked at."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.controller import sweeps
from firnline.controller.brokers import Heartbeat
from firnline.controller.configs import Alteration, AlterOp
from firnline.controller.controller import Controller
from firnline.metadata import records as r
from firnline.metadata.image import ConfigResource, PartitionImage, ResourceType
from firnline.metadata.result import ControllerResult
from tests.worlds.cluster import Rig

TOPIC_ID = b"\x42" * 16
SILENCE = {"broker.session.timeout.ms": "600000"}


def stage(**settings: str) -> Rig:
    """One controller, brokers that only the log knows, and time: what changes is changed by rounds."""
    given: dict[str, Any] = {"metadata.max.idle.interval.ms": "0"} | settings
    rig = Rig({1: "controller"}, **{key.replace(".", "_"): v for key, v in given.items()}).start()
    rig.until(lambda: rig.active() == 1)
    registrations = [
        r.RegisterBrokerRecord(
            broker_id=node_id, incarnation_id=bytes([node_id]) * 16, broker_epoch=1, fenced=False
        )
        for node_id in (4, 5)
    ]
    put(rig, *registrations, r.TopicRecord(name="t", topic_id=TOPIC_ID))
    return rig


def put(rig: Rig, *records: Any) -> None:
    decide(rig, ControllerResult(list(records), None))


def decide(rig: Rig, result: ControllerResult[Any]) -> Any:
    answers: list[Any] = []

    def then(outcome: Any, now_ms: int) -> Effects:
        answers.append(outcome)
        return []

    rig[1].run(rig[1].controller.quorum.write(result, then, rig.now_ms))
    rig.until(lambda: bool(answers))
    return answers[0]


def place(rig: Rig, *, isr: tuple[int, ...], leader: int, number: int = 0) -> None:
    record = r.PartitionRecord(
        partition_id=number,
        topic_id=TOPIC_ID,
        replicas=(4, 5),
        isr=isr,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=(bytes(16), bytes(16)),
    )
    put(rig, record)


def partition(rig: Rig) -> PartitionImage:
    return rig[1].controller.image.topics_by_name["t"].partitions[0]


def alter(rig: Rig, resource: ConfigResource, value: str) -> None:
    change = [Alteration("unclean.leader.election.enable", AlterOp.SET, value)]
    controller: Controller = rig[1].controller.controller
    assert decide(rig, controller.incremental_alter_configs([(resource, change)])) == [None]


def fence(rig: Rig, node_id: int) -> None:
    put(rig, r.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=1, fenced=1))


def test_leaders_go_home_once_in_an_interval() -> None:
    rig = stage(**SILENCE, **{"leader.imbalance.check.interval.seconds": "100"})
    place(rig, isr=(5, 4), leader=5)
    rig.pass_time(50_000)
    assert partition(rig).leader == 5
    rig.pass_time(51_000)
    assert partition(rig).leader == 4
    put(rig, r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=5))
    rig.pass_time(100_000)
    assert partition(rig).leader == 4, "the first round is not the last"


def test_leaders_stay_where_nobody_wants_them_to_go_home() -> None:
    rig = stage(
        **SILENCE,
        **{
            "leader.imbalance.check.interval.seconds": "1",
            "auto.leader.rebalance.enable": "false",
        },
    )
    place(rig, isr=(5, 4), leader=5)
    rig.pass_time(10_000)
    assert partition(rig).leader == 5


@pytest.mark.parametrize(
    "resource",
    [ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "")],
    ids=["topic", "cluster"],
)
def test_allowing_an_unclean_election_is_enough_to_have_it(resource: ConfigResource) -> None:
    """I27: the operator who gives up records wants the partition back now, not in five minutes."""
    rig = stage(**SILENCE)
    fence(rig, 4)
    place(rig, isr=(4,), leader=-1)
    rig.pass_time(5_000)
    assert partition(rig).leader == -1
    alter(rig, resource, "true")
    rig.pass_time(100)
    assert (partition(rig).leader, partition(rig).isr) == (5, (5,))


def test_unclean_elections_are_tried_again_by_the_clock() -> None:
    rig = stage(
        **SILENCE,
        **{
            "unclean.leader.election.interval.ms": "20000",
            "unclean.leader.election.enable": "true",
        },
    )
    fence(rig, 4)
    place(rig, isr=(4,), leader=-1)
    rig.pass_time(25_000)
    assert partition(rig).leader == 5


def test_an_unclean_election_is_reported_and_counted_also_while_the_last_one_is_not_over() -> None:
    """rel-R5: records were given up; an operator has to see which partition, and how often."""
    rig = stage(**SILENCE, **{"unclean.leader.election.interval.ms": "20000"})
    fence(rig, 4)
    place(rig, isr=(4,), leader=-1)
    assert not any("unclean election" in line for line in rig[1].logged)
    alter(rig, ConfigResource(ResourceType.TOPIC, "t"), "true")
    rig.pass_time(100)
    counts = rig[1].controller.quorum.partition_counts
    assert (partition(rig).leader_epoch, counts.unclean_elections) == (1, 1)
    (line,) = [line for line in rig[1].logged if "unclean election" in line]
    start = "firnline.controller warning unclean election topic=t partition=0 leader=5 was=none old_isr=4"
    assert line.startswith(f"{start} leader_epoch=1 ")
    change = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1)
    put(rig, change)
    fence(rig, 5)
    put(rig, r.BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=1, fenced=-1))
    rig.pass_time(25_000)
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (4, 1)
    assert counts.unclean_elections == 2
    assert sum("unclean election" in line for line in rig[1].logged) == 2


def test_a_last_replica_that_leads_again_is_reported_once_for_all_its_partitions() -> None:
    """rel-R5: if its disk lost anything while it was away, nobody else has it, or will say so."""
    rig = stage(**SILENCE)
    for number in range(7):
        place(rig, isr=(4,), leader=-1, number=number)
    put(rig, r.BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=1, fenced=1))
    assert not any("last replica" in line for line in rig[1].warnings)
    leads = [
        r.PartitionChangeRecord(partition_id=number, topic_id=TOPIC_ID, leader=4)
        for number in range(7)
    ]
    put(rig, *leads)
    assert [line for line in rig[1].warnings if "last replica" in line] == [
        'last replica standing broker=4 partitions="t-0, t-1, t-2, t-3, t-4 and 2 more"'
    ]


def test_a_controller_that_is_not_active_has_no_rounds() -> None:
    rig = stage(**SILENCE)
    keys = {("controller", "balancing"), ("controller", "unclean-elections")}
    assert keys <= rig[1].timers.keys()
    rig[1].run(rig[1].controller.became_inactive(rig.now_ms))
    assert not keys & rig[1].timers.keys()


def test_a_sweep_goes_on_by_itself_and_then_the_next_silent_broker_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", 2)
    rig = stage(**{"broker.session.timeout.ms": "9000"})
    for number in range(7):
        record = r.PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=(4, 5),
            isr=(4, 5),
            leader=4,
            leader_epoch=0,
            partition_epoch=0,
        )
        put(rig, record)
    rig.pass_time(12_000)  # until the first look that finds them silent, and not the next
    image = rig[1].controller.image
    assert all(image.brokers[node_id].fenced for node_id in (4, 5))
    led = {(p.leader, p.isr) for p in image.topics_by_name["t"].partitions.values()}
    assert led == {(-1, (5,))}, "broker 4 went first, and broker 5 was the last of the ISR"


def test_a_new_active_controller_goes_on_with_a_sweep_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = stage(**SILENCE)
    place(rig, isr=(4, 5), leader=4)
    fence(rig, 4)  # the record alone, as of a controller that died after it
    assert partition(rig).leader == 4
    rig[1].run(rig[1].controller.became_inactive(rig.now_ms))
    rig[1].run(rig[1].controller.became_active(rig.now_ms))
    rig.pass_time(1_000)
    assert (partition(rig).leader, partition(rig).isr) == (5, (5,))


@pytest.mark.parametrize("is_found_at_once", [True, False])
def test_a_new_active_controller_finishes_with_a_failed_directory_by_itself(
    monkeypatch: pytest.MonkeyPatch, *, is_found_at_once: bool
) -> None:
    """As soon as it hears of it; the directory is written down already, by the one before."""
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", 2)
    monkeypatch.setattr(sweeps, "CHECKS_PER_PART_MAX", 2)
    monkeypatch.setattr(sweeps, "_CHECKS_PER_STEP", 2)
    rig = stage(**(SILENCE if is_found_at_once else {"broker.session.timeout.ms": "9000"}))
    good, bad = b"G" * 16, b"B" * 16
    put(rig, r.BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=1, log_dirs=(good,)))
    other_id = b"\x43" * 16
    put(rig, r.TopicRecord(name="other", topic_id=other_id))
    for number in range(7):
        place(rig, isr=(4, 5), leader=4, number=number)
        record = r.PartitionRecord(
            partition_id=number, topic_id=other_id, replicas=(4, 5), isr=(4, 5), leader=4,
            leader_epoch=0, partition_epoch=0, directories=(good, good),
        )  # fmt: skip
        put(rig, record)
    failed = TOPIC_ID if is_found_at_once else other_id  # the first and the last to be looked at
    for topic_id in (TOPIC_ID, other_id):
        directories = [bad if topic_id == failed else good, good]
        where = [
            r.PartitionChangeRecord(partition_id=n, topic_id=topic_id, directories=directories)
            for n in range(7)
        ]
        put(rig, *where)
    controller = rig[1].controller
    heartbeat = Heartbeat(4, 1, controller.image.offset, offline_log_dirs=(bad,))
    before = controller.image
    decide(rig, controller.controller.heartbeat(heartbeat, rig.now_ms))
    assert (controller.image is before) is not is_found_at_once
    rig.pass_time(4_000)
    for topic_id, topic in controller.image.topics_by_id.items():
        leaders = {p.leader for p in topic.partitions.values()}
        assert leaders == ({5} if topic_id == failed else {4})
