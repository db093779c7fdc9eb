"""Proposals on their way to the controller: one request at a time, and none is lost."""

from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrAnswer, IsrChange
from firnline.replica import alter
from firnline.replica.alter import AlterPartitions, Answers
from firnline.replica.isr import BrokerFact, NoBrokers
from firnline.replica.partition import Partition
from tests.worlds.effects import World
from tests.worlds.list_log import partition


class Brokers(NoBrokers):
    def fact(self, broker_id: int) -> BrokerFact | None:
        return BrokerFact(100 * broker_id, True)


def proposing(index: int = 0) -> Partition:
    """A leader that wants broker 2 in its ISR."""
    p = partition(index=index)
    p.brokers = Brokers()
    p.update(leader_id=1, leader_epoch=3, partition_epoch=0, replicas=(1, 2), isr=(1,))
    p.follower_fetched(2, 0, 0, broker_epoch=200)
    assert p.proposed is not None
    return p


def agreed(change: IsrChange) -> IsrAnswer:
    return IsrAnswer(1, 3, tuple(b for b, _ in change.new_isr), change.partition_epoch + 1)


def test_many_proposals_are_sent_and_answered_in_portions() -> None:
    """An answer about a thousand partitions would hold up heartbeats."""
    count = 2 * alter._CHANGES_AT_ONCE + 10
    all_of_them = [proposing(index) for index in range(count)]
    desk = Desk()
    desk.propose(*all_of_them)
    sizes = []
    while desk.asked:
        sizes.append(len(desk.asked[0][0]))
        desk.answer()
    assert max(sizes) == alter._CHANGES_AT_ONCE
    assert sum(sizes) == count
    assert desk.settled == all_of_them


class Desk(World):
    """A controller that answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self.settled: list[Partition] = []
        self.alter = AlterPartitions(self._ask, lambda p, now_ms: self.settled.append(p) or [])  # type: ignore[func-returns-value]

    def _ask(self, wanted: Any, then: Any, now_ms: int) -> Effects:
        self.asked.append((list(wanted), then))
        return []

    def propose(self, *partitions: Partition) -> None:
        for p in partitions:
            self.run(self.alter.propose(p, 0))

    def answer(self, answers: Answers | None = None) -> None:
        wanted, then = self.asked.pop(0)
        self.run(then([agreed(change) for change in wanted] if answers is None else answers, 0))

    def fire_all(self) -> None:
        for key in list(self.timers):
            self.fire(key)


def test_what_comes_while_a_request_is_under_way_goes_with_the_next_one() -> None:
    desk, ps = Desk(), [proposing(n) for n in range(3)]
    desk.propose(*ps)
    assert [len(wanted) for wanted, _ in desk.asked] == [1]
    desk.answer()
    assert [[c.partition for c in wanted] for wanted, _ in desk.asked] == [[1, 2]]
    desk.answer()
    assert [p.isr for p in ps] == [(1, 2)] * 3
    assert desk.asked == []


def test_no_answer_is_asked_for_again_after_a_pause() -> None:
    """rel-R7: nobody knows what became of it."""
    desk, p = Desk(), proposing()
    desk.propose(p)
    change = p.proposed
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    assert (desk.asked, p.proposed) == ([], change)
    desk.fire_all()
    assert [wanted for wanted, _ in desk.asked] == [[change]]


def test_an_error_of_the_entire_request_takes_no_proposal_back() -> None:
    """Race 9: our own epoch is stale; that says nothing of the change, whatever its code is."""
    desk, p = Desk(), proposing()
    desk.propose(p)
    for code in (Code.STALE_BROKER_EPOCH, Code.INELIGIBLE_REPLICA, Code.UNSUPPORTED_VERSION):
        desk.answer(KafkaError(code))
        assert p.maximal_isr == (1, 2)
        desk.fire_all()
    desk.answer()
    assert p.isr == (1, 2)


def test_a_partition_that_was_not_decided_does_not_hold_up_the_others_for_long() -> None:
    desk, one, other = Desk(), proposing(0), proposing(1)
    desk.propose(one)
    desk.answer([KafkaError(Code.NOT_CONTROLLER)])
    desk.propose(other)
    assert desk.asked == [], "the pause is for all: the controller is not there"
    desk.fire_all()
    assert [[c.partition for c in wanted] for wanted, _ in desk.asked] == [[0, 1]]


def test_a_proposal_that_metadata_overtook_is_not_sent_again() -> None:
    desk, p = Desk(), proposing()
    desk.propose(p)
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    p.update(leader_id=1, leader_epoch=3, partition_epoch=5, replicas=(1, 2), isr=(1,))
    desk.fire_all()
    assert desk.asked == []


def test_a_late_answer_to_an_overtaken_proposal_changes_nothing() -> None:
    desk, p = Desk(), proposing()
    desk.propose(p)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=5, replicas=(1, 2), isr=(1,))
    p.follower_fetched(2, 0, 0, broker_epoch=200)
    second = p.proposed
    desk.propose(p)
    desk.answer([KafkaError(Code.INELIGIBLE_REPLICA)])
    assert p.proposed is second, "the refusal was of the first"
    desk.answer()
    assert (p.isr, p.partition_epoch) == ((1, 2), 6)


def test_a_refused_proposal_is_not_asked_again_by_itself() -> None:
    desk, p = Desk(), proposing()
    desk.propose(p)
    desk.answer([KafkaError(Code.INELIGIBLE_REPLICA)])
    assert (desk.asked, desk.timers, p.proposed) == ([], {}, None)


def test_nothing_is_asked_after_the_end() -> None:
    desk, p = Desk(), proposing()
    desk.propose(p)
    desk.alter.stop()
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    assert (desk.asked, desk.timers) == ([], {})


def test_what_came_of_proposals_is_counted() -> None:
    """A refusal of the whole request says nothing of any of them."""
    desk, ps = Desk(), [proposing(n) for n in range(2)]
    desk.propose(*ps)
    desk.answer(KafkaError(Code.STALE_BROKER_EPOCH))
    assert desk.alter.counters == (0, 0, 0)
    desk.fire_all()
    changes = list(desk.asked[0][0])
    refused = KafkaError(Code.INELIGIBLE_REPLICA)
    desk.answer([agreed(changes[0]), *[refused] * (len(changes) - 1)])
    assert desk.alter.counters == (1, 0, len(changes) - 1)
