"""A producer with several batches under way: what it may be refused, and what is a violation. rel-R12."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Send, Unanswered
from firnline.base.errors import Code
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.records.batch import headers
from firnline.sim.cluster.batch_queue import BatchQueue
from firnline.sim.cluster.client import PartitionLeader
from firnline.sim.cluster.draw import draw_cluster
from firnline.sim.cluster.producer import Producer
from firnline.sim.world import Chance
from tests.worlds.effects import World

KEY = (b"t" * 16, 0)


class Wire(World):
    """One producer of one partition; what it sends is answered by the test."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        options = draw_cluster(1)
        assert options.cluster is not None
        shape = options.cluster._replace(in_flight=depth, plain_percent=0, batch_records=50)
        self.producer = Producer(
            0, options._replace(cluster=shape), Chance(1, "producer"), lambda key, epoch: False
        )
        self.producer.places = {KEY: PartitionLeader("t", KEY[0], 0, 1, 0)}
        self.producer.on_places(0)
        self.sent: list[Any] = []
        while len(self.sent) < depth:
            self.run(self.producer._produce(0))

    @property
    def queue(self) -> BatchQueue:
        return self.producer._queues[KEY]

    def on_send(self, effect: Send) -> None:
        if isinstance(effect.request, InitProducerIdRequest):
            self.complete_with(effect, SimpleNamespace(error_code=0, producer_id=7))
        elif "topic_data" in dir(effect.request):
            self.sent.append(effect)

    def sequences(self) -> list[int]:
        """The base sequences of what is under way."""
        return [
            next(headers(bytes(send.request.topic_data[0].partition_data[0].records))).base_sequence
            for send in self.sent
        ]

    def answer(self, place: int, code: Code | None) -> None:
        """Answer the batch that was sent at that place; None: the connection ends."""
        send = self.sent.pop(place)
        answer: Any = Unanswered(why="cut")
        if code is not None:
            row = SimpleNamespace(error_code=code)
            answer = SimpleNamespace(responses=[SimpleNamespace(partition_responses=[row])])
        self.run(send.then(answer, 0))

    def pause(self) -> None:
        """Let the pause of the one partition be over."""
        self.fire(("queue", KEY[0].hex(), KEY[1]))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_as_many_batches_as_were_drawn_are_under_way_and_no_more(depth: int) -> None:
    """A broker knows the last five of a producer, and no more."""
    wire = Wire(depth)
    for _ in range(20):
        wire.run(wire.producer._produce(0))
    assert wire.sequences() == sorted(wire.sequences())
    assert len(wire.queue.batches) == depth


def test_what_was_sent_behind_a_lost_batch_is_sent_again_in_order() -> None:
    wire = Wire(5)
    wanted = wire.sequences()
    wire.answer(0, None)
    for _ in range(4):
        wire.answer(0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    wire.run(wire.producer._produce(0))
    assert wire.sent == [], "nothing new before what is older"
    wire.pause()
    assert wire.sequences() == wanted
    for _ in wanted:
        wire.answer(0, Code.NONE)
    assert (wire.producer.out_of_order, wire.queue.batches) == ([], [])


def test_a_batch_whose_predecessors_were_acknowledged_is_not_out_of_order() -> None:
    wire = Wire(2)
    wire.answer(0, Code.NONE)
    wire.answer(0, None)
    wire.pause()
    wire.answer(0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert len(wire.producer.out_of_order) == 1
    assert wire.queue.batches == []


def test_a_broker_that_started_again_may_know_only_what_was_sent_behind() -> None:
    """A producer's snapshot has its last batch alone, as in Kafka."""
    wire = Wire(2)
    wire.answer(0, None)
    wire.answer(0, Code.NONE)
    wire.pause()
    wire.answer(0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert (wire.producer.out_of_order, wire.queue.batches) == ([], [])


def test_a_refusal_of_before_its_predecessor_was_acknowledged_does_not_count() -> None:
    wire = Wire(2)
    second = wire.sent.pop(1)
    wire.answer(0, Code.NONE)
    wire.sent.append(second)
    wire.answer(0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert wire.producer.out_of_order == []
    wire.pause()
    wire.answer(0, Code.NONE)
    assert wire.producer.is_idle


def test_what_is_answered_after_the_lane_was_given_up_changes_nothing() -> None:
    wire = Wire(2)
    wire.answer(0, Code.UNKNOWN_PRODUCER_ID)
    assert wire.queue.batches == []
    acknowledged = wire.producer.acknowledged
    wire.answer(0, Code.NONE)
    assert wire.producer.acknowledged == acknowledged
