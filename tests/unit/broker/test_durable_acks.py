"""Who was told that a record is kept finds it after a power cut. Design 'Durable acks'; rel-P4."""

from typing import Any

import pytest

from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.replica.partition import Partition
from tests.worlds.harness import Harness

SEEDS = range(12)


def lost(rule: str, acks: int, seed: int) -> int:
    """Produce while the disk syncs now and then, cut the power, and count lost acknowledged records."""
    harness = Harness(seed=seed, firnline_acks_fsync=rule)
    harness.create_topic()
    harness.holds_flushes = True
    sent: list[tuple[str, Any]] = []
    for number in range(20):
        value = f"{number}:" + "x" * 300
        sent.append((value, harness.produce(value, acks=acks)))
        if harness.rng.below(4) == 0:
            harness.flush()
    acked = [value for value, connection in sent if _is_acked(connection)]
    assert acked, "nothing was acknowledged, so nothing was tried"
    restarted = Harness(harness.cut_power(seed))
    kept = dict.fromkeys(restarted.values())
    # A prefix, whatever survives: no record without those before it.
    assert list(kept) == [value for value, _ in sent][: len(kept)]
    return sum(value not in kept for value in acked)


def _is_acked(connection: Any) -> bool:
    if not connection.answers:
        return False
    [response] = connection.answers
    return bool(response.responses[0].partition_responses[0].error_code == 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rule", "acks"), [("auto", -1), ("always", -1), ("always", 1)])
def test_no_acknowledged_record_is_lost_with_the_power(rule: str, acks: int, seed: int) -> None:
    assert lost(rule, acks, seed) == 0


@pytest.mark.parametrize(("rule", "acks"), [("never", -1), ("auto", 1)])
def test_where_nobody_waits_for_the_disk_the_power_takes_some(rule: str, acks: int) -> None:
    """What the page about durability says may be lost is lost here, so the tests above can see it."""
    assert sum(lost(rule, acks, seed) for seed in SEEDS) > 0


def test_the_test_sees_an_answer_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait for the flush acknowledged records are lost: the guard is what keeps them."""
    monkeypatch.setattr(Partition, "needs_flush", lambda self, acks: False)
    assert sum(lost("auto", -1, seed) for seed in SEEDS) > 0


def test_a_topic_that_is_deleted_under_a_producer_takes_no_directory_with_it() -> None:
    """Goal: the names of a deleted log are gone when the sync comes to them; that is no failed disk. Method:
    delete the topic between an append and the flush that its answer waits for; others are written on."""
    harness = Harness(firnline_acks_fsync="auto")
    topic_id = harness.create_topic()
    harness.create_topic("other")
    harness.holds_flushes = True
    connection = harness.produce("late", acks=-1)
    [late], harness.flushes, harness.holds_flushes = harness.flushes, [], False
    topics = [DeleteTopicState(topic_id=topic_id)]
    harness.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1_000), 6)
    harness.flushes = [late]
    harness.flush()
    [response] = connection.answers
    assert response.responses[0].partition_responses[0].error_code != 0
    assert harness.produced("kept", topic="other").error_code == 0
