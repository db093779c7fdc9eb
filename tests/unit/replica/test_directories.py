"""Where our replicas are, on its way to the controller: in batches, one at a time, until it knows."""

from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import DirectoryAssignment
from firnline.replica.directories import BATCH_MAX, Answers, DirectoryAssignments
from tests.worlds.effects import World
from tests.worlds.list_log import partition

HERE, THERE, FAILED = b"h" * 16, b"t" * 16, b"f" * 16
LOST = bytes(15) + b"\x02"


class Desk(World):
    """A controller that answers when the test says so, and metadata that says what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[int, bytes | None] = {}
        self.actual: bytes | None = HERE
        self.asked: list[tuple[list[DirectoryAssignment], Any]] = []
        self.assignments = DirectoryAssignments(
            said=lambda topic_id, number: self.said.get(number, THERE),
            actual=lambda partition: self.actual,
            is_failed=lambda directory: directory == FAILED,
            assign=self._assign,
        )

    def _assign(self, wanted: Any, then: Any, now_ms: int) -> Effects:
        self.asked.append((list(wanted), then))
        return []

    def look(self, *numbers: int) -> None:
        for number in numbers:
            self.run(self.assignments.look(partition(index=number), 0))

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            key = (partition(index=number).topic_id, number)
            self.run(self.assignments.lose(key, 0))

    def answer(self, answers: Answers | None = None) -> None:
        wanted, then = self.asked.pop(0)
        self.run(then([None] * len(wanted) if answers is None else answers, 0))

    def fire_all(self) -> int:
        """Let the timers fire; return how late the last of them was."""
        due = list(self.timers.values())
        for timer in due:
            self.fire(timer.key)
        return max((timer.at_ms for timer in due), default=0)

    @property
    def numbers(self) -> list[list[int]]:
        return [[each.partition for each in wanted] for wanted, _ in self.asked]


def test_what_metadata_has_right_is_not_reported() -> None:
    desk = Desk()
    desk.said = {0: HERE, 1: None}
    desk.look(0, 1)
    assert not desk.timers


def test_what_comes_together_goes_in_one_request() -> None:
    desk = Desk()
    desk.look(0, 1, 2)
    desk.fire_all()
    assert desk.numbers == [[0, 1, 2]]
    assert desk.asked[0][0][0].directory == HERE
    desk.answer()
    assert not desk.timers
    assert len(desk.assignments) == 0


def test_what_comes_while_a_request_is_under_way_goes_with_the_next_one() -> None:
    desk = Desk()
    desk.look(0)
    desk.fire_all()
    desk.look(1, 2)
    assert not desk.timers
    desk.answer()
    desk.fire_all()
    assert desk.numbers == [[1, 2]]


def test_no_request_is_longer_than_a_controller_takes() -> None:
    desk = Desk()
    desk.look(*range(BATCH_MAX + 3))
    desk.fire_all()
    assert len(desk.asked[0][0]) == BATCH_MAX
    desk.answer()
    desk.fire_all()
    assert len(desk.asked[0][0]) == 3


def test_a_request_that_was_lost_is_sent_again_later_each_time_and_for_ever() -> None:
    desk = Desk()
    desk.look(0)
    pauses = []
    for _ in range(12):
        pauses.append(desk.fire_all())
        desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, *[10_000] * 5]
    desk.fire_all()
    desk.answer()
    assert len(desk.assignments) == 0
    desk.look(1)
    assert desk.fire_all() == 100, "an answer ends the long pauses"


def test_one_that_was_refused_is_reported_again_and_the_others_are_not() -> None:
    desk = Desk()
    desk.look(0, 1)
    desk.fire_all()
    desk.answer([None, KafkaError(Code.UNKNOWN_TOPIC_ID)])
    desk.fire_all()
    assert desk.numbers == [[1]]


def test_what_metadata_says_meanwhile_is_not_reported_any_more() -> None:
    desk = Desk()
    desk.look(0, 1, 2)
    desk.said = {0: HERE, 2: None}
    desk.fire_all()
    assert desk.numbers == [[1]]


def test_one_that_is_gone_is_not_reported() -> None:
    desk = Desk()
    desk.look(0)
    desk.said = {0: None}
    desk.fire_all()
    assert not desk.asked


def test_one_that_cannot_be_served_is_reported_as_lost_until_metadata_says_so() -> None:
    """The controller would have it lead, and nobody else."""
    desk = Desk()
    desk.lose(0, 1)
    desk.fire_all()
    assert [each.directory for each in desk.asked[0][0]] == [LOST, LOST]
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    desk.said = {1: LOST}
    desk.fire_all()
    assert desk.numbers == [[0]]
    desk.answer()
    desk.said = {0: LOST, 1: LOST, 2: None}
    desk.lose(0, 1, 2)
    assert not desk.timers


def test_one_whose_directory_failed_before_the_controller_knew_of_it_is_reported_as_lost() -> None:
    """The heartbeat tells of that directory, and metadata has the replica in none."""
    desk = Desk()
    desk.actual = None
    desk.look(0)
    desk.fire_all()
    assert desk.asked[0][0][0].directory == LOST


def test_one_that_metadata_has_in_a_directory_that_failed_is_not_reported_as_lost() -> None:
    """The heartbeat does; and the next start would not know where its records may be."""
    desk = Desk()
    desk.actual = None
    desk.said = {0: FAILED, 1: FAILED}
    desk.look(0)
    desk.lose(1)
    assert not desk.timers
    desk.lose(2)
    desk.said[2] = FAILED
    desk.fire_all()
    assert not desk.asked, "it failed just after it was asked to open that log"


def test_one_that_is_served_after_all_is_reported_where_it_is() -> None:
    desk = Desk()
    desk.lose(0)
    desk.look(0)
    desk.fire_all()
    assert desk.asked[0][0][0].directory == HERE
    desk.lose(1)
    desk.answer()
    desk.fire_all()
    desk.look(1)
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    desk.fire_all()
    assert [each.directory for each in desk.asked[0][0]] == [HERE]


def repairing(desk: Desk, *numbers: int) -> list[int]:
    """Find again what metadata has as lost; return when whoever waits for that was told."""
    notified: list[int] = []
    desk.said = dict.fromkeys(numbers, LOST)
    desk.look(*numbers)
    desk.run(desk.assignments.when_repaired(lambda now_ms: notified.append(now_ms) or [], 0))  # type: ignore[func-returns-value]
    return notified


def test_whoever_has_again_what_was_lost_waits_until_the_controller_knows() -> None:
    """Counted in before that it would lead nothing of it: Kafka's controller elects at no assignment."""
    desk = Desk()
    notified = repairing(desk, 0, 1)
    desk.fire(("replica", "assign directories"))
    desk.answer([None, KafkaError(Code.NETWORK_EXCEPTION)])
    assert notified == []
    desk.fire(("replica", "assign directories"))
    assert notified == []
    desk.answer()
    assert notified == [0]
    assert not desk.timers


def test_who_asks_while_the_controller_is_notified_waits_too() -> None:
    desk = Desk()
    desk.said = {0: LOST}
    desk.look(0)
    desk.fire_all()
    notified: list[int] = []
    desk.run(desk.assignments.when_repaired(lambda now_ms: notified.append(now_ms) or [], 0))  # type: ignore[func-returns-value]
    assert notified == []
    desk.answer()
    assert notified == [0]


def test_metadata_that_knows_by_itself_ends_the_waiting() -> None:
    desk = Desk()
    notified = repairing(desk, 0)
    desk.said = {0: HERE}
    desk.fire(("replica", "assign directories"))
    assert notified == [100]


def test_a_controller_that_never_knows_is_not_waited_for_for_ever() -> None:
    desk = Desk()
    notified = repairing(desk, 0)
    desk.fire(("replica", "mended"))
    assert notified == [10_000]
    desk.fire_all()
    desk.answer()
    assert notified == [10_000]


def test_nobody_waits_for_other_news() -> None:
    desk = Desk()
    desk.look(0)
    desk.lose(1)
    assert repairing(desk) == [0]
    desk.said = {}
    desk.fire_all()
    desk.said = {1: LOST}  # it knows before it answers
    notified: list[int] = []
    desk.run(desk.assignments.when_repaired(lambda now_ms: notified.append(now_ms) or [], 0))  # type: ignore[func-returns-value]
    assert notified == [0]


def test_after_the_end_nothing_is_reported() -> None:
    desk = Desk()
    desk.look(0)
    desk.fire_all()
    desk.look(1)
    desk.run(desk.assignments.stop())
    desk.answer(KafkaError(Code.NETWORK_EXCEPTION))
    desk.look(2)
    assert not desk.timers
