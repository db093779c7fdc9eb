"""ListOffsets: each wish, the version that may wish it, and the tier."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firnline.base.cold_pages import ColdPages
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.broker.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListingOffsets,
    OffsetAsk,
    OffsetFound,
    Outcome,
)
from firnline.config.topic import TopicConfig
from firnline.replica.delete_records import Deleted, delete_records
from firnline.replica.partition import Partition
from tests.worlds.hosting import Calls
from tests.worlds.list_log import batch, log_of, partition

NOTHING = OffsetFound(-1, -1, -1)
WAIT_MS = 30_000
NEWEST = 11


class Tier:
    """A tier that answers when told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[OffsetFound | KafkaError | None, int], Effects]] = []

    def search(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        timestamp: int,
        then: Callable[[OffsetFound | KafkaError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        self.waiting.append(then)
        return []


class Client:
    """Asks and notes answers."""

    def __init__(self, tier: Tier | None = None) -> None:
        self.world = Calls()
        self.listing = ListingOffsets(
            remote=None if tier is None else tier.search, timeout_ms=WAIT_MS, pages=ColdPages()
        )
        self.answers: list[list[Any]] = []

    def ask(self, *asks: OffsetAsk, version: int = NEWEST, isolation: int = 0) -> None:
        slices = self.listing.list_offsets(
            asks,
            isolation=isolation,
            version=version,
            timeout_ms=None,
            answer=self._answer,
            now_ms=self.world.now_ms,
        )
        with pytest.raises(StopIteration) as done:  # few asks are one slice
            next(slices)
        self.world.run(done.value.value)

    def _answer(self, outcomes: list[Outcome], now_ms: int) -> Effects:
        self.answers.append([o.code if isinstance(o, KafkaError) else o for o in outcomes])
        return []


def low(outcome: Deleted | KafkaError) -> int:
    """The low watermark after a deletion that was done."""
    assert isinstance(outcome, Deleted), outcome
    return outcome.partition.low_watermark


def one(p: Partition, timestamp: int, **more: Any) -> Any:
    client = Client()
    client.ask(OffsetAsk(p, timestamp), **more)
    return client.answers[0][0]


def story() -> Partition:
    """Epoch 0 holds 0-2 at times 100-102, epoch 1 holds 3-5 at times 103-105; 0-3 are in the tier."""
    p = partition(leader_epoch=0)
    p.append(batch(3), acks=1, now_ms=0)
    p.update(leader_id=1, leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1])
    p.append(batch(3), acks=1, now_ms=0)
    log = log_of(p)
    log.config = TopicConfig(remote_storage_enable=True)
    log.times = [(offset, 100 + offset) for offset in range(6)]
    log.local_log_start_offset = 4
    log.highest_remote_offset = 3
    return p


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (EARLIEST, OffsetFound(0, -1, 0)),
        (EARLIEST_LOCAL, OffsetFound(4, -1, 1)),
        (LATEST_TIERED, OffsetFound(3, -1, 1)),
        (EARLIEST_PENDING_UPLOAD, OffsetFound(4, -1, 1)),
        (LATEST, OffsetFound(6, -1, 1)),
        (MAX_TIMESTAMP, OffsetFound(5, 105, 1)),
        (106, NOTHING),
        (105, OffsetFound(5, 105, 1)),
        (99, OffsetFound(0, 100, 0)),
        (103, OffsetFound(3, 103, 1)),
    ],
)
def test_the_story_of_a_tiered_partition(timestamp: int, expected: OffsetFound) -> None:
    assert one(story(), timestamp) == expected


def test_what_was_never_tiered_has_no_tiered_offset() -> None:
    p = partition()
    p.append(batch(3), acks=1, now_ms=0)
    assert one(p, LATEST_TIERED) == NOTHING
    assert one(p, EARLIEST_PENDING_UPLOAD) == NOTHING
    assert one(p, EARLIEST_LOCAL) == OffsetFound(0, -1, 3)


def test_deleted_records_are_no_longer_the_earliest() -> None:
    p = story()
    assert low(delete_records(p, 4)) == 4
    assert one(p, EARLIEST) == OffsetFound(4, -1, 1)
    assert one(p, LATEST_TIERED) == OffsetFound(3, -1, -1)


def test_an_empty_log_has_equal_ends_and_no_times() -> None:
    p = partition()
    assert one(p, EARLIEST) == OffsetFound(0, -1, 3)
    assert one(p, LATEST) == OffsetFound(0, -1, 3)
    assert one(p, MAX_TIMESTAMP) == NOTHING
    assert one(p, 0) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [
        (LATEST, 1),
        (EARLIEST, 1),
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
        (0, 1),
    ],
)
def test_a_wish_is_granted_from_its_version_on(timestamp: int, first_version: int) -> None:
    refused = [
        v
        for v in range(1, NEWEST + 1)
        if one(story(), timestamp, version=v) == Code.UNSUPPORTED_VERSION
    ]
    assert refused == list(range(1, first_version))


def test_a_wish_nobody_defined_is_refused() -> None:
    assert one(story(), -7) == Code.UNSUPPORTED_VERSION


def test_an_uncommitted_record_is_not_found() -> None:
    p = story()
    log_of(p).open_transaction_offset = 5
    assert one(p, LATEST, isolation=1) == OffsetFound(5, -1, 1)
    assert one(p, 105, isolation=1) == NOTHING
    assert one(p, MAX_TIMESTAMP, isolation=1) == NOTHING
    assert one(p, 105) == OffsetFound(5, 105, 1)


def test_epochs_are_fenced_and_errors_stay_with_their_partition() -> None:
    client = Client()
    client.ask(
        OffsetAsk(story(), LATEST, 0),
        OffsetAsk(story(), LATEST, 2),
        OffsetAsk(KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION), LATEST),
        OffsetAsk(story(), LATEST, 1),
    )
    assert client.answers == [
        [
            Code.FENCED_LEADER_EPOCH,
            Code.UNKNOWN_LEADER_EPOCH,
            Code.UNKNOWN_TOPIC_OR_PARTITION,
            OffsetFound(6, -1, 1),
        ]
    ]


# ------------------------------------------------------------------------------------------- tier


def test_a_time_is_looked_up_in_the_tier_first() -> None:
    tier = Tier()
    client = Client(tier)
    client.ask(OffsetAsk(story(), 99), OffsetAsk(partition(), LATEST))
    assert client.answers == []
    client.world.run(tier.waiting.pop()(OffsetFound(0, 100, 0), 0))
    assert client.answers == [[OffsetFound(0, 100, 0), OffsetFound(0, -1, 3)]]
    assert client.world.timers == {}


def test_a_time_that_the_tier_does_not_have_is_looked_up_in_local_files() -> None:
    tier = Tier()
    client = Client(tier)
    client.ask(OffsetAsk(story(), 105))
    client.world.run(tier.waiting.pop()(None, 0))
    assert client.answers == [[OffsetFound(5, 105, 1)]]


def test_a_tier_that_does_not_answer_costs_its_partition_a_time_out() -> None:
    tier = Tier()
    client = Client(tier)
    client.ask(OffsetAsk(story(), 99), OffsetAsk(partition(), LATEST))
    client.world.pass_time(WAIT_MS - 1)
    assert client.answers == []
    client.world.pass_time(1)
    assert client.answers == [[Code.REQUEST_TIMED_OUT, OffsetFound(0, -1, 3)]]
    client.world.run(tier.waiting.pop()(OffsetFound(0, 100, 0), 0))
    assert len(client.answers) == 1
    assert client.listing.remote_expired == 1


def test_a_log_that_is_all_local_does_not_ask_the_tier() -> None:
    tier = Tier()
    client = Client(tier)
    p = story()
    log_of(p).local_log_start_offset = 0
    client.ask(OffsetAsk(p, 99))
    assert client.answers == [[OffsetFound(0, 100, 0)]]


# ---------------------------------------------------------------------------------- DeleteRecords


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (3, 3),
        (-1, 6),
        (0, 0),
        (6, 6),
        (7, Code.OFFSET_OUT_OF_RANGE),
        (-2, Code.OFFSET_OUT_OF_RANGE),
    ],
)
def test_records_are_deleted_up_to_the_watermark_and_no_further(
    before: int, expected: int | Code
) -> None:
    p = partition()
    p.append(batch(6), acks=1, now_ms=0)
    outcome = delete_records(p, before)
    found = outcome.code if isinstance(outcome, KafkaError) else outcome.partition.low_watermark
    assert found == expected


def test_a_log_start_never_goes_back() -> None:
    p = partition()
    p.append(batch(6), acks=1, now_ms=0)
    assert low(delete_records(p, 5)) == 5
    assert low(delete_records(p, 3)) == 5
    p.log.decided_start_offset = 0  # another start: 5 is what a file has
    assert low(delete_records(p, 5)) == 5
    assert p.log.decided_start_offset == 5, "the tier may delete up to there now (decision 0042)"


@pytest.mark.parametrize(
    "topic",
    ["__consumer_offsets", "__transaction_state", "__remote_log_metadata"],
)
def test_nobody_deletes_what_the_cluster_remembers(topic: str) -> None:
    p = partition(topic)
    p.append(batch(6), acks=1, now_ms=0)
    outcome = delete_records(p, 3)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == Code.INVALID_TOPIC_EXCEPTION
    assert log_of(p).log_start_offset == 0


def test_the_metadata_log_is_shortened_by_snapshots_alone() -> None:
    """rel-Q18: whoever deletes its records deletes what no snapshot may hold yet."""
    p = partition("__cluster_metadata")
    p.append(batch(6), acks=1, now_ms=0)
    outcome = delete_records(p, 3)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == Code.POLICY_VIOLATION
    assert log_of(p).log_start_offset == 0


def test_a_compacted_topic_keeps_its_keys() -> None:
    p = partition()
    p.append(batch(6), acks=1, now_ms=0)
    log_of(p).config = TopicConfig(cleanup_policy=("compact",))
    outcome = delete_records(p, 3)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == Code.POLICY_VIOLATION


def test_only_the_leader_deletes() -> None:
    outcome = delete_records(partition(leader_id=2, isr=(2, 1)), 0)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == Code.NOT_LEADER_OR_FOLLOWER


def many_steps(taken: list[int]) -> Any:
    def steps(timestamp_ms: int, **_: bool) -> Iterator[None]:
        for number in range(3):
            taken.append(number)
            yield
        return 5, 105  # type: ignore[return-value]

    return steps


def test_a_long_search_in_local_files_lets_others_go_first() -> None:
    p, taken = story(), list[int]()
    log_of(p).time_steps = many_steps(taken)  # type: ignore[method-assign]
    client = Client()
    slices = client.listing.list_offsets(
        [OffsetAsk(p, 105)],
        isolation=0,
        version=NEWEST,
        timeout_ms=None,
        answer=client._answer,
        now_ms=0,
    )
    assert [next(slices), slices.send(0), slices.send(0)] == [[], [], []]
    assert taken == [0, 1, 2]
    with pytest.raises(StopIteration):
        slices.send(0)
    assert client.answers == [[OffsetFound(5, 105, 1)]]


def test_so_does_one_after_the_tier_has_nothing() -> None:
    tier = Tier()
    client = Client(tier)
    p, taken = story(), list[int]()
    log_of(p).time_steps = many_steps(taken)  # type: ignore[method-assign]
    client.ask(OffsetAsk(p, 105))
    [then] = tier.waiting
    effects = then(None, client.world.now_ms)
    assert taken == [0]
    assert client.answers == []
    client.world.run(effects)
    for _ in range(3):
        client.world.pass_time(1)
    assert taken == [0, 1, 2]
    assert client.answers == [[OffsetFound(5, 105, 1)]]


def test_a_search_that_outlives_its_time_ends() -> None:
    tier = Tier()
    client = Client(tier)
    p, taken = story(), list[int]()
    log_of(p).time_steps = many_steps(taken)  # type: ignore[method-assign]
    client.ask(OffsetAsk(p, 105))
    [effect] = tier.waiting[0](None, client.world.now_ms)
    client.world.pass_time(WAIT_MS)
    assert client.answers == [[Code.REQUEST_TIMED_OUT]]
    assert isinstance(effect, SetTimer)
    assert effect.then(client.world.now_ms) == []
    assert taken == [0]
