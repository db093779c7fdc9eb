"""A consumer of a store that hangs is told so by the second Fetch that waits for the same read (T59)."""

from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import Code, KafkaError
from firnline.tiered.reads.late_reads import MARGIN_MS, REPEATED_MS, LateReads
from firnline.tiered.reads.reader import RemoteLogReadResult
from tests.unit.tiered.test_tiered_hangs import Fetch, gets, is_data
from tests.unit.tiered.test_tiered_read import tiered
from tests.worlds.tier import Cluster, Node

WAIT_MS = 500


def hung(wait_ms: int = WAIT_MS, held: Any = is_data) -> Node:
    """A node whose reads of the store have no answer."""
    node = tiered(Cluster(), fetch_max_wait_ms=wait_ms)
    node.read(0)
    node.storage.calls.clear()
    node.held = held
    return node


def waited(node: Node, wait_ms: int = WAIT_MS, offset: int = 0) -> Any:
    """What a Fetch is answered that waits so long: a code or records; None: nothing."""
    fetch = Fetch(node, offset)
    node.pass_time(wait_ms)
    fetch.give_up()
    if not fetch.answers:
        return None
    [answer] = fetch.answers
    return answer.code if isinstance(answer, KafkaError) else bytes(answer.records)


def is_index(effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.pool == "index"


@pytest.mark.parametrize("held", [is_data, is_index])
def test_a_consumer_gets_one_empty_answer_and_then_errors_and_there_is_one_get(held: Any) -> None:
    node = hung(held=held)
    if held is is_index:
        node.tier.indexes.remove(node.segments()[0].segment_id)
    began_ms = node.now_ms
    assert waited(node) is None
    assert waited(node) == Code.KAFKA_STORAGE_ERROR
    assert node.now_ms - began_ms <= WAIT_MS + 1_000
    for _ in range(18):
        node.pass_time(100)  # as clients do after an error
        assert waited(node) == Code.KAFKA_STORAGE_ERROR
    assert len(node.on_hold) == 1, "twenty Fetches, one GET"
    assert node.tier.services.counters.fetch_errors == 19
    node.release()
    assert waited(node)


def test_a_get_that_is_slower_than_the_wait_brings_the_consumer_on() -> None:
    node = hung()
    assert waited(node) is None
    assert waited(node) == Code.KAFKA_STORAGE_ERROR
    third = Fetch(node)
    node.pass_time(WAIT_MS // 2)
    node.complete(node.on_hold.pop())
    assert third.records
    assert gets(node) == 1
    node.held = is_data
    assert waited(node, offset=2) is None, "of the next read the first answer may be empty again"


def test_another_consumer_that_comes_in_the_middle_may_have_one_empty_answer_too() -> None:
    node = hung()
    first = Fetch(node)
    node.pass_time(WAIT_MS // 2)
    second = Fetch(node)
    node.pass_time(WAIT_MS // 2)
    first.give_up()
    node.pass_time(WAIT_MS // 2 - 1)
    second.give_up()
    assert (first.answers, second.answers) == ([], [])
    assert waited(node) == Code.KAFKA_STORAGE_ERROR


def test_with_a_long_wait_the_error_comes_a_second_after_the_first_answer() -> None:
    """Not after another wait."""
    wait_ms = 5_000
    node = hung(wait_ms)
    began_ms = node.now_ms
    assert waited(node, wait_ms) is None
    fetch = Fetch(node)
    node.pass_time(MARGIN_MS - 1)
    assert fetch.answers == []
    node.pass_time(1)
    assert [answer.code for answer in fetch.answers] == [Code.KAFKA_STORAGE_ERROR]
    assert node.now_ms - began_ms == wait_ms + 1_000
    fetch.give_up()
    assert len(fetch.answers) == 1
    again = Fetch(node)
    node.pass_time(wait_ms - 1)
    assert again.answers == [], "later ones wait: clients must not spin"
    again.give_up()
    assert [answer.code for answer in again.answers] == [Code.KAFKA_STORAGE_ERROR]


def test_a_read_that_ends_in_time_leaves_no_timer() -> None:
    node = hung(5_000)
    assert waited(node, 5_000) is None
    fetch = Fetch(node)
    timers = [key for key in node.timers if key[:2] == ("tier", "late read")]
    assert len(timers) == 1
    node.complete(node.on_hold.pop())
    assert isinstance(fetch.answers[0], RemoteLogReadResult)
    assert not [key for key in node.timers if key[:2] == ("tier", "late read")]
    fetch = Fetch(node)
    assert fetch.records


def test_a_fetch_long_after_the_last_one_is_no_repetition() -> None:
    node = hung()
    assert waited(node) is None
    node.pass_time(REPEATED_MS + 1)
    assert waited(node) is None
    assert waited(node) == Code.KAFKA_STORAGE_ERROR


def test_what_nobody_waits_for_any_more_is_forgotten() -> None:
    late = LateReads()
    for number in range(100):
        late.begin(number, 0)
        late.left(number, number)
    late.begin("stays", 0)
    late.begin("another", REPEATED_MS + 50)
    assert 50 <= len(late._waits) <= 52
    late.begin("more", 2 * REPEATED_MS)
    assert [*late._waits] == ["stays", "another", "more"], "whoever waits is remembered"


def test_a_wait_that_is_over_is_not_gone_on_with_while_another_one_lasts() -> None:
    late = LateReads()
    late.begin("lasts", 0)
    late.begin("ends", 0)
    late.left("ends", 10)
    late.begin("ends", 10 + REPEATED_MS)
    assert late.error_at_ms("ends", WAIT_MS) == 2 * WAIT_MS, "a repetition"
    late.left("ends", 10 + REPEATED_MS)
    now_ms = 11 + 2 * REPEATED_MS
    late.begin("ends", now_ms)
    assert late.error_at_ms("ends", WAIT_MS) == now_ms + 2 * WAIT_MS
