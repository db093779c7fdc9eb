"""A copy of a proposal that arrives late: who counts until it cannot be taken any more, and what is its end.

The leader is broker 1 of replicas 1, 2 and 3, at leader epoch 3 and partition epoch 7. rel-R7.
"""

from collections.abc import Callable

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_BROKER_EPOCH
from firnline.base.replicas import IsrAnswer, IsrChange, IsrMember
from firnline.metadata import records as r
from firnline.replica.isr import BrokerFact, NoBrokers
from firnline.replica.unanswered_proposals import still_possible
from tests.unit.controller.test_isr_changes import World
from tests.unit.replica.test_alter import Desk, agreed, proposing
from tests.unit.replica.test_isr import Lead

REFUSED = KafkaError(Code.INELIGIBLE_REPLICA)
SILENCE = KafkaError(Code.NETWORK_EXCEPTION)


def lost_and_refused(isr: tuple[int, ...] = (1,), joins: int = 2) -> Lead:
    """Nobody answered the first copy; the second was refused, for broker `joins` is fenced by now."""
    lead = Lead(isr)
    lead.append(5)
    for broker in (*isr[1:], joins):
        lead.fetch(broker, 5)
    assert lead.p.proposed is not None
    lead.p.unanswered(lead.p.proposed)
    lead.brokers.facts[joins] = BrokerFact(100 * joins, False)
    lead.answer(REFUSED)
    return lead


# ------------------------------------------------------------------------------------- who counts


def test_who_may_still_join_counts_though_its_joining_was_refused() -> None:
    lead = lost_and_refused()
    lead.append(1)
    lead.p.look(lead.now_ms)
    assert (lead.p.isr, lead.p.maximal_isr, lead.high_watermark) == ((1,), (1, 2), 5)
    lead.fetch(2, 6)
    assert lead.high_watermark == 6, "it has the record, fenced or not"


def test_a_request_that_was_sent_once_is_taken_back_by_a_refusal() -> None:
    """X21: there is no other copy, and nothing is asked by itself."""
    lead = Lead()
    lead.append(5)
    lead.fetch(2, 5)
    lead.answer(REFUSED)
    assert (lead.p.maximal_isr, lead.p.proposed) == ((1,), None)


def test_a_copy_that_would_only_take_somebody_out_holds_nothing_up() -> None:
    lead = Lead((1, 2))
    lead.append()
    lead.now_ms += 30_001
    lead.p.look(lead.now_ms)
    assert lead.wanted == (1,)
    assert lead.p.proposed is not None
    lead.p.unanswered(lead.p.proposed)
    lead.answer(REFUSED)
    assert (lead.p.maximal_isr, lead.p.unanswered_proposals, lead.p.proposed) == ((1, 2), (), None)


def test_the_same_metadata_again_says_nothing_of_a_late_copy() -> None:
    lead = lost_and_refused()
    lead.answer(REFUSED)
    lead.news((1,), partition_epoch=7)
    assert lead.p.maximal_isr == (1, 2)


def test_time_alone_is_no_end_of_a_late_copy() -> None:
    lead = lost_and_refused()
    lead.append(1)
    for _ in range(10):
        lead.now_ms += 3_600_000
        lead.p.look(lead.now_ms)
        lead.answer(REFUSED)
    assert (lead.p.maximal_isr, lead.high_watermark) == ((1, 2), 5)


def test_another_that_joins_meanwhile_is_not_all_that_counts() -> None:
    lead = lost_and_refused()
    lead.answer(REFUSED)
    lead.append(1)
    lead.fetch(3, 6)
    assert lead.wanted == (1, 3)
    assert lead.p.maximal_isr == (1, 2, 3)
    lead.answer(IsrAnswer(1, 3, (1, 3), 8))
    assert (lead.p.isr, lead.p.maximal_isr, lead.high_watermark) == ((1, 3), (1, 3), 6)


# ------------------------------------------------------------------------------------- its end


def test_a_leader_has_what_is_written_down_again_and_is_on_its_own() -> None:
    lead = lost_and_refused()
    assert lead.wanted == (1,), "at once: whoever waits for acks=all waits for this"
    lead.append(1)
    lead.agree()
    assert (lead.p.maximal_isr, lead.p.unanswered_proposals, lead.high_watermark) == ((1,), (), 6)


@pytest.mark.parametrize("isr", [(1, 3), (3, 1)])
def test_with_two_members_it_is_another_order_which_kafkas_controllers_write_down_too(
    isr: tuple[int, ...],
) -> None:
    lead = lost_and_refused(isr) if isr[0] == 1 else lost_and_refused((3, 1)[::-1])
    lead.p.isr = isr
    lead.answer(REFUSED)
    lead.p.look(lead.now_ms)
    assert lead.wanted == isr[::-1]


def test_a_controller_that_says_that_all_is_as_it_was_has_ended_nothing() -> None:
    """Kafka's, asked for the ISR that is: its partition epoch stays, so the copy may still be taken."""
    lead = lost_and_refused()
    lead.answer(IsrAnswer(1, 3, (1,), 7))
    assert (lead.p.maximal_isr, lead.p.proposed) == ((1, 2), None), "it does not insist at once"
    lead.p.look(lead.now_ms)
    assert lead.wanted == (1,), "the next controller may be another"


def test_the_follower_that_comes_back_is_asked_for_again() -> None:
    lead = lost_and_refused()
    lead.answer(IsrAnswer(1, 3, (1,), 7))
    lead.brokers.facts[2] = BrokerFact(200, True)
    lead.fetch(2, 5)
    assert lead.wanted == (1, 2)
    lead.agree()
    assert (lead.p.isr, lead.p.maximal_isr, lead.p.unanswered_proposals) == ((1, 2), (1, 2), ())


@pytest.mark.parametrize("fact", [BrokerFact(201, True), BrokerFact(201, False), None])
def test_a_new_incarnation_of_the_follower_or_none_at_all_is_the_end_of_it(
    fact: BrokerFact | None,
) -> None:
    lead = lost_and_refused()
    lead.answer(REFUSED)
    lead.append(1)
    if fact is None:
        del lead.brokers.facts[2]
    else:
        lead.brokers.facts[2] = fact
    lead.now_ms += 30_001
    lead.p.look(lead.now_ms)
    assert (lead.p.maximal_isr, lead.p.proposed, lead.high_watermark) == ((1,), None, 6)


# ---------------------------------------------------------------- what the controller thinks of it


def reregisters(world: World, broker_id: int) -> None:
    known = world.cluster.quorum.image.brokers[broker_id]
    world.cluster.write(world.cluster.controller.unregister_broker(broker_id))
    assert broker_id not in world.cluster.quorum.image.brokers
    world.cluster.with_brokers(broker_id)
    assert world.epoch(broker_id) > known.epoch


def changes_state(world: World, **fields: int) -> None:
    record = r.BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=world.epoch(3), **fields)
    world.put(record)


def is_fenced_and_back(world: World) -> None:
    changes_state(world, fenced=1)
    changes_state(world, fenced=-1)


EVENTS: dict[str, tuple[Callable[[World], object], bool]] = {
    "nothing": (lambda world: None, True),
    "the follower is fenced and back": (is_fenced_and_back, True),
    "another follower is registered anew": (lambda world: reregisters(world, 2), False),
    "the follower is registered anew": (lambda world: reregisters(world, 3), False),
    "the leader is registered anew": (lambda world: reregisters(world, 1), False),
    "the partition is written down again": (lambda world: world.ask(1, 2), False),
    "the leader epoch moves on": (lambda world: world.set(leader=1), False),
    "another leads": (lambda world: world.set(leader=2), False),
    "another leads for a while": (
        lambda world: (world.set(leader=2), world.set(leader=1)),
        False,
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_a_leader_believes_a_copy_dead_only_if_no_controller_takes_it(name: str) -> None:
    """Each fact on the list, by the controller's own checks: what it still takes, the leader still fears."""
    event, is_possible = EVENTS[name]
    world = World()
    copy = world.proposal(1, 2, 3)
    epoch = world.epoch(1)
    event(world)
    now = world.partition

    class Facts(NoBrokers):
        own_epoch = world.epoch(1)

        def fact(self, broker_id: int) -> BrokerFact | None:
            known = world.cluster.quorum.image.brokers.get(broker_id)
            return None if known is None else BrokerFact(known.epoch, known.is_active)

    feared = still_possible(
        [copy],
        node_id=1,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        brokers=Facts(),
    )
    answer = world.ask_all(copy, epoch=epoch)
    is_taken = isinstance(answer, list) and isinstance(answer[0], IsrAnswer)
    assert (bool(feared), is_taken) == (is_possible, is_possible)


def test_a_copy_without_the_followers_epoch_is_feared_whoever_it_is_by_now() -> None:
    """The controller checks no epoch then, and takes another incarnation for the one that was meant."""
    copy = IsrChange(b"\1" * 16, 0, 3, 7, (IsrMember(1, 100), IsrMember(2, NO_BROKER_EPOCH)))
    brokers = Lead().brokers
    brokers.facts[2] = BrokerFact(999, True)
    for own_epoch, is_feared in ((100, True), (101, False)):
        brokers.own_epoch = own_epoch
        feared = still_possible(
            [copy], node_id=1, leader_epoch=3, partition_epoch=7, brokers=brokers
        )
        assert bool(feared) == is_feared


# ------------------------------------------------------------------------------- on the way there


def test_a_request_without_an_answer_leaves_a_copy_behind() -> None:
    desk, p = Desk(), proposing()
    desk.propose(p)
    desk.answer(SILENCE)
    desk.fire_all()
    desk.answer([REFUSED])
    assert p.maximal_isr == (1, 2)
    [(wanted, _)] = desk.asked
    assert [change.new_isr for change in wanted] == [((1, -1),)], "what is, at once"
    desk.answer()
    assert (p.maximal_isr, desk.asked, desk.timers) == ((1,), [], {})
    assert desk.alter.counters == (0, 0, 1), "nobody came or went"


@pytest.mark.parametrize("code", [Code.NOT_CONTROLLER, Code.STALE_BROKER_EPOCH])
def test_a_request_that_was_answered_leaves_none(code: Code) -> None:
    """Whoever answered has done with it."""
    desk, p = Desk(), proposing()
    desk.propose(p)
    desk.answer(KafkaError(code))
    desk.fire_all()
    desk.answer([REFUSED])
    assert (p.maximal_isr, desk.asked, desk.timers) == ((1,), [], {})


def test_an_answer_beside_one_that_is_to_be_asked_again_counts() -> None:
    desk, ps = Desk(), [proposing(n) for n in range(3)]
    desk.propose(ps[0])
    for p in ps[1:]:
        desk.propose(p)
    desk.answer()
    changes = desk.asked[0][0]
    desk.answer([KafkaError(Code.NOT_CONTROLLER), agreed(changes[1])])
    assert [p.isr for p in ps] == [(1, 2), (1,), (1, 2)]
