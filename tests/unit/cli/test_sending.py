"""What `firnline produce` counts, with a producer that stands for librdkafka's."""

from typing import Any, NamedTuple

from confluent_kafka import KafkaError

import firnline.cli.client.sending as sending
from firnline.cli.client.produce import trouble_of
from firnline.cli.client.sending import Defaults, Sender
from firnline.cli.records.record import NewRecord


class Library:
    """The part of confluent_kafka that is used."""

    KafkaError = KafkaError
    KafkaException = ValueError


class Producer:
    """Its queue has records, and errors about brokers: one poll serves one of them."""

    def __init__(self) -> None:
        self.queue: list[Any] = []
        self.polls = 0

    def __len__(self) -> int:
        return len(self.queue)

    def produce(self, topic: str, value: Any, key: Any, partition: int, failed: Any) -> None:
        self.queue.append(failed)

    def purge(self) -> None:
        """Nothing is served before the next poll."""

    def poll(self, seconds: float) -> None:
        self.polls += 1
        failed = self.queue.pop(0)
        if failed is not None:
            failed(KafkaError(KafkaError._PURGE_INFLIGHT), self)

    def key(self) -> None:
        """Of the record that failed."""

    def value(self) -> None:
        """Of the record that failed."""


class Part(NamedTuple):
    """A partition as confluent_kafka describes it."""

    leader: int
    isrs: tuple[int, ...]
    replicas: tuple[int, ...] = (1, 2, 3)


def is_there(broker_id: int) -> None:
    """Any broker accepts connections."""


def test_only_the_partition_that_is_written_to_is_looked_at() -> None:
    """Of another one it said that nobody leads it, and the reader looked there."""
    parts = {2: Part(1, (1, 2)), 0: Part(-1, ()), 1: Part(1, (1, 2, 3))}
    assert trouble_of("t", parts, 1, is_there) is None
    assert "partition 2 has 2 of 3 replicas in sync" in str(trouble_of("t", parts, 2, is_there))
    for wanted in (0, -1):
        assert "partition 0" in str(trouble_of("t", parts, wanted, is_there))


def test_a_dead_leader_is_the_trouble_and_not_the_replica_that_is_missing_with_it() -> None:
    """Until its session is over, metadata calls it the leader, and the ISR was thin before."""
    parts = {0: Part(1, (1, 2)), 1: Part(3, (3,)), 2: Part(3, (3, 1))}

    def is_dead(broker_id: int) -> str | None:
        return "cannot reach a broker at h:9: Connection refused" if broker_id == 3 else None

    said = (
        "broker 3, which leads partitions 1, 2, is not there:"
        " cannot reach a broker at h:9: Connection refused"
    )
    assert trouble_of("t", parts, -1, is_dead) == said
    assert str(trouble_of("t", parts, 1, is_dead)).startswith("broker 3, which leads partition 1, ")
    assert "partition 0 has 2 of 3 replicas" in str(trouble_of("t", parts, 0, is_dead))


def sender_of(producer: Producer) -> Sender:
    made = Sender(producer, Library, "t", 1)
    record = NewRecord(None, b"x")
    assert made.send("line", 1, record, Defaults(-1, False, [], 0))
    return made


def test_no_record_is_counted_below_zero() -> None:
    """Its queue has an error about a broker after the record has failed."""
    producer = Producer()
    sender = sender_of(producer)
    producer.poll(0)
    producer.queue.append(None)
    assert (sender.delivered, sender.failed) == (0, 1)


def test_who_gives_up_waits_for_the_reports_behind_errors_about_brokers() -> None:
    producer = Producer()
    producer.queue += [None, None]
    sender = sender_of(producer)
    sender.give_up()
    assert (producer.polls, sender.failed, sender.delivered, sender.queued) == (3, 1, 0, 0)


def test_who_gives_up_does_not_wait_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(sending, "_GIVING_UP_S", 0.05)
    producer = Producer()
    sender = sender_of(producer)
    monkeypatch.setattr(producer, "poll", lambda seconds: None)
    sender.give_up()
    assert (sender.queued, sender.failed) == (1, 0)
