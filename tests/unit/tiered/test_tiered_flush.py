"""A request to copy now: it is answered when the tier has all, with what fails, or at its timeout."""

from typing import Any

from firnline.base.effects import Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from tests.unit.tiered.test_tiered_copy import catalog_spans
from tests.worlds.tier import TOPIC_ID, Cluster, Node


def test_flush_rolls_copies_and_answers_when_the_catalog_says_so() -> None:
    """At once, and not with the next of the tasks, which may run once in a minute."""
    cluster = Cluster()
    node = Node(cluster, task_interval_ms=30_000).start().lead(0)
    node.pass_time(1000)
    node.produce(0, "a", "b", roll=False)
    answers: list[tuple[dict[int, object], list[tuple[int, int]]]] = []

    def then(outcomes, now_ms):  # type: ignore[no-untyped-def]
        answers.append((dict(outcomes), catalog_spans(cluster)))
        return []

    node.run(node.tier.flush(TOPIC_ID, then, cluster.now_ms))
    node.pass_time(1000)
    assert answers == [({0: None}, [(0, 1)])]


def test_a_flush_that_fails_says_why() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=100)
    node.produce(0, "a", roll=False)
    answers = []

    def then(outcomes, now_ms):  # type: ignore[no-untyped-def]
        answers.append(outcomes)
        return []

    node.run(node.tier.flush(TOPIC_ID, then, cluster.now_ms))
    node.pass_time(5000)
    assert len(answers) == 1
    assert "503" in str(answers[0][0])


def test_a_flush_does_not_wait_for_ever_for_an_open_transaction() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    answers = []

    def then(outcomes, now_ms):  # type: ignore[no-untyped-def]
        answers.append(outcomes)
        return []

    node.run(node.tier.flush(TOPIC_ID, then, cluster.now_ms))
    node.pass_time(120_000)
    assert len(answers) == 1
    assert isinstance(answers[0][0], KafkaError)


def timed_out(node: Node, timeout_ms: int) -> str:
    """Flush, and return why the partition was not copied, which is known at the timeout and not before."""
    answers: list[Any] = []

    def then(outcomes: Any, now_ms: int) -> Any:
        answers.append(outcomes)
        return []

    began_ms = node.cluster.now_ms
    node.run(node.tier.flush(TOPIC_ID, then, began_ms, timeout_ms=timeout_ms))
    node.pass_time(timeout_ms - 100)
    assert answers == []
    node.pass_time(200)
    [outcomes] = answers
    problem = outcomes[0]
    assert isinstance(problem, KafkaError)
    assert problem.code == Code.REQUEST_TIMED_OUT
    return problem.why


def test_a_flush_is_answered_at_its_timeout_though_the_store_hangs() -> None:
    """It was answered when the call of the store ended, after half a minute."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.pass_time(1000)
    node.produce(2, "c", "d", roll=False)
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("copy ")
    why = timed_out(node, 3000)
    assert why.startswith("offsets 2 to 3 were not copied within 3 s: a copy is in progress")
    # What comes later is nobody's, and the next flush is answered.
    node.held = lambda effect: False
    node.release()
    node.pass_time(1000)
    assert catalog_spans(cluster)[-1] == (2, 3)
    answers: list[Any] = []
    node.run(node.tier.flush(TOPIC_ID, lambda found, now_ms: answers.append(found) or [], 0))  # type: ignore[arg-type, func-returns-value]
    node.pass_time(1000)
    assert answers == [{0: None}]


def test_a_flush_says_that_a_transaction_keeps_it_waiting() -> None:
    node = Node(Cluster()).start().lead(0)
    node.produce(0, "open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert "from offset 0 on, a transaction is open" in timed_out(node, 3000)


def test_a_flush_is_answered_soon_after_the_transaction_ended() -> None:
    """And not with the next of the tasks, which may run once in a minute."""
    cluster = Cluster()
    node = Node(cluster, task_interval_ms=30_000).start().lead(0)
    node.produce(0, "open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    answers: list[dict[int, object]] = []
    node.run(
        node.tier.flush(TOPIC_ID, lambda found, now_ms: answers.append(found) or [], cluster.now_ms)  # type: ignore[arg-type]
    )  # type: ignore[func-returns-value]
    node.pass_time(1000)
    assert answers == []
    marker = NewRecord(encode_key(ControlType.COMMIT), bytes(6), cluster.now_ms)
    kinds: Any = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    node.log.append_as_leader(
        build_batch([marker], is_control=True, **kinds),
        leader_epoch=0, now_ms=cluster.now_ms, origin="coordinator",
    )  # fmt: skip
    node.log.advance_high_watermark(node.log.log_end_offset)
    node.pass_time(1000)
    assert answers == [{0: None}]
