"""Producer ids: never one twice, whoever waits and whatever fails. KIP-98, KIP-360, KIP-730."""

from firnline.base.effects import Effect, Effects, Reply
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ProducerIdBlock
from firnline.coordinator.producer_ids import (
    Allocated,
    NewProducer,
    ProducerIds,
)
from tests.worlds.effects import only


class Blocks:
    """A controller that answers when told."""

    def __init__(self) -> None:
        self.asked: list[Allocated] = []
        self.reported: list[object] = []
        self.ids = ProducerIds(self._allocate)

    def _allocate(self, then: Allocated) -> Effects:
        self.asked.append(then)
        return []

    def ask(self, producer_id: int = -1, producer_epoch: int = -1) -> None:
        def answer(result: NewProducer | KafkaError) -> Effect:
            return Reply(context=None, message=result)

        effects = self.ids.init(
            producer_id=producer_id, producer_epoch=producer_epoch, answer=answer
        )
        self._receive(effects)

    def give(self, block: ProducerIdBlock | KafkaError) -> None:
        (then,) = self.asked
        self.asked.clear()
        self._receive(then(block, 0))

    def _receive(self, effects: Effects) -> None:
        self.reported += [only([each], Reply).message for each in effects]


def test_who_asks_while_a_block_is_on_its_way_waits_for_that_block() -> None:
    blocks = Blocks()
    for _ in range(3):
        blocks.ask()
    assert len(blocks.asked) == 1
    assert blocks.reported == []
    blocks.give(ProducerIdBlock(5000, 1000))
    assert blocks.reported == [NewProducer(5000, 0), NewProducer(5001, 0), NewProducer(5002, 0)]


def test_a_block_is_used_to_its_end_before_the_next_is_asked_for() -> None:
    blocks = Blocks()
    blocks.ask()
    blocks.give(ProducerIdBlock(0, 1000))
    for _ in range(999):
        blocks.ask()
    assert blocks.reported == [NewProducer(n, 0) for n in range(1000)]
    assert blocks.asked == []
    blocks.ask()
    blocks.give(ProducerIdBlock(7000, 1000))
    assert blocks.reported[-1] == NewProducer(7000, 0)


def test_more_waiters_than_ids_take_two_blocks() -> None:
    blocks = Blocks()
    for _ in range(3):
        blocks.ask()
    blocks.give(ProducerIdBlock(0, 2))
    blocks.give(ProducerIdBlock(10, 2))
    assert blocks.reported == [NewProducer(0, 0), NewProducer(1, 0), NewProducer(10, 0)]


def test_without_a_block_all_who_wait_are_to_try_again() -> None:
    blocks = Blocks()
    blocks.ask()
    blocks.ask()
    blocks.give(KafkaError(Code.NOT_CONTROLLER))
    codes = [t.code for t in blocks.reported if isinstance(t, KafkaError)]
    assert codes == [Code.COORDINATOR_LOAD_IN_PROGRESS] * 2
    blocks.ask()
    blocks.give(ProducerIdBlock(3, 1))
    assert blocks.reported[-1] == NewProducer(3, 0)


def test_a_producer_that_had_an_id_gets_a_new_one_never_the_old_with_another_epoch() -> None:
    blocks = Blocks()
    blocks.ask(producer_id=77, producer_epoch=3)
    blocks.give(ProducerIdBlock(1000, 1000))
    assert blocks.reported == [NewProducer(1000, 0)]


def test_an_id_without_an_epoch_is_refused() -> None:
    blocks = Blocks()
    blocks.ask(producer_id=77)
    blocks.ask(producer_epoch=3)
    assert [t.code for t in blocks.reported if isinstance(t, KafkaError)] == [
        Code.INVALID_REQUEST
    ] * 2
