"""Which incarnation of a broker is the one: the living, also before it is counted in. spec I2; rel-R18."""

import random

import pytest
from immutables import Map

from firnline.base.background import run_to_completion
from firnline.base.errors import Code, KafkaError
from firnline.controller.brokers import Heartbeat
from firnline.metadata.image import EMPTY_IMAGE, PartitionImage, TopicImage
from firnline.metadata.partition_counts import PartitionIndex
from tests.worlds.quorum import Cluster, broker_config, registration

SESSION_MS = 9_000
OLD, NEW = 2, 3


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 was killed, and its session is over."""
    made = Cluster(broker_config()).with_brokers(1)
    made.loop.now_ms += SESSION_MS
    made.write(made.controller.fence_stale(made.loop.now_ms))
    assert made.quorum.image.brokers[1].fenced
    return made


def is_duplicate(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code is Code.DUPLICATE_BROKER_REGISTRATION


def test_the_late_request_of_a_dead_incarnation_does_not_take_the_place_of_the_living(
    cluster: Cluster,
) -> None:
    """Its heartbeats would be refused from then on, and nothing would ever end that."""
    epoch = cluster.register(1, NEW)
    assert is_duplicate(cluster.register(1, OLD))
    cluster.loop.now_ms += SESSION_MS - 1
    cluster.heartbeat(1, want_fence=True)
    cluster.loop.now_ms += SESSION_MS - 1
    assert is_duplicate(cluster.register(1, OLD)), "it opens its logs, and is heard from"
    assert cluster.quorum.image.brokers[1].epoch == epoch
    assert not cluster.heartbeat(1).is_fenced


@pytest.mark.parametrize("was_registered", [False, True])
def test_a_copy_from_before_the_living_one_came_is_refused_also_when_that_is_not_received(
    cluster: Cluster, was_registered: bool
) -> None:
    """Seed 40000396: held up for half a minute, while what the living one says was held up, too."""
    if was_registered:
        cluster.register(1, OLD)
        cluster.loop.now_ms += SESSION_MS
    else:
        cluster.register(1, 4)
        assert is_duplicate(cluster.register(1, OLD))
        cluster.loop.now_ms += SESSION_MS
    epoch = cluster.register(1, NEW)
    cluster.loop.now_ms += SESSION_MS
    assert is_duplicate(cluster.register(1, OLD))
    assert cluster.quorum.image.brokers[1].epoch == epoch
    assert not isinstance(cluster.heartbeat(1), KafkaError)
    cluster.loop.now_ms += SESSION_MS
    assert isinstance(cluster.register(1, 5), int), "one that starts now is taken"


def test_the_incarnations_that_are_remembered_are_few(cluster: Cluster) -> None:
    cluster.register(1, NEW)
    for incarnation in range(10, 1_000):
        assert is_duplicate(cluster.register(1, incarnation))
    asked = cluster.controller._brokers._incarnations[1]
    assert len(asked) == 16
    cluster.loop.now_ms += SESSION_MS
    assert isinstance(cluster.register(1, 999), int), "it asks still"


def test_late_copies_of_the_last_sixteen_incarnations_are_refused(cluster: Cluster) -> None:
    """A broker that starts again and again: each time it asks while the one before counts as alive."""
    for incarnation in range(10, 27):
        cluster.register(1, incarnation)
        cluster.loop.now_ms += SESSION_MS
        assert isinstance(cluster.register(1, incarnation), int)
    cluster.loop.now_ms += SESSION_MS
    for earlier in range(10, 26):
        assert is_duplicate(cluster.register(1, earlier))


def test_incarnations_that_left_in_order_are_not_remembered_without_number(
    cluster: Cluster,
) -> None:
    """A broker that is started again every night: each takes the place of the one before at once."""
    for incarnation in range(10, 60):
        epoch = cluster.register(1, incarnation)
        assert isinstance(epoch, int)
        cluster.heartbeat(1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    asked = cluster.controller._brokers._incarnations[1]
    assert len(asked) <= 16


def test_an_incarnation_that_died_before_it_was_counted_in_holds_nobody_up_for_long(
    cluster: Cluster,
) -> None:
    cluster.register(1, OLD)
    cluster.loop.now_ms += SESSION_MS
    assert isinstance(cluster.register(1, NEW), int)


def test_the_next_incarnation_need_not_wait_for_one_that_left(cluster: Cluster) -> None:
    cluster.register(1, OLD)
    cluster.heartbeat(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert isinstance(cluster.register(1, NEW), int)


@pytest.mark.parametrize("is_counted_in", [True, False])
def test_nor_for_one_that_left_when_another_controller_decided(
    cluster: Cluster, is_counted_in: bool
) -> None:
    """That it left is written down, also where there was nothing to hand over, and nothing to take back."""
    cluster.register(1, OLD)
    if is_counted_in:
        cluster.heartbeat(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    broker = cluster.quorum.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, True)
    offset = cluster.quorum.next_offset
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down, "it did not hear the answer"
    assert cluster.quorum.next_offset == offset, "that it leaves is written down once"
    cluster.controller.activate(cluster.loop.now_ms)
    assert isinstance(cluster.register(1, NEW), int)
    assert not cluster.quorum.image.brokers[1].in_controlled_shutdown
    assert not cluster.heartbeat(1).is_fenced


def test_the_living_keeps_its_place_over_a_change_of_the_controller_fenced_as_it_is(
    cluster: Cluster,
) -> None:
    """I7: every broker has a whole session under a new controller, which does not know who was heard from."""
    epoch = cluster.register(1, NEW)
    cluster.controller.activate(cluster.loop.now_ms)
    cluster.loop.now_ms += SESSION_MS - 1
    assert is_duplicate(cluster.register(1, OLD)), "its request was held up on its way"
    assert cluster.quorum.image.brokers[1].epoch == epoch
    assert not cluster.heartbeat(1).is_fenced


def test_one_that_died_fenced_is_waited_for_one_session_of_a_new_controller(
    cluster: Cluster,
) -> None:
    cluster.controller.activate(cluster.loop.now_ms)
    assert is_duplicate(cluster.register(1, NEW))
    cluster.loop.now_ms += SESSION_MS
    assert isinstance(cluster.register(1, NEW), int)


def test_a_broker_whose_two_disks_have_one_id_is_refused(cluster: Cluster) -> None:
    """A disk was copied: nobody could say which of them has a replica."""
    wanted = registration(2)
    wanted = wanted._replace(log_dirs=wanted.log_dirs * 2)
    answer = cluster.write(
        cluster.controller.register_broker(
            wanted, cluster.loop.now_ms, replaces_dead_incarnation=False
        )
    )
    assert isinstance(answer, KafkaError)
    assert answer.code is Code.INVALID_REGISTRATION
    assert "occurs twice" in answer.why
    assert 2 not in cluster.quorum.image.brokers


def test_an_index_is_in_the_same_order_in_every_process() -> None:
    """What a controller decides by it is written in that order, and a map of ids has that of their hashes."""
    ids = [random.Random(n).randbytes(16) for n in range(50)]
    partition = PartitionImage(
        replicas=(1,), directories=(bytes(16),), isr=(1,), leader=1, leader_epoch=0,
        partition_epoch=0,
    )  # fmt: skip
    topics = {each: TopicImage(each.hex(), each, Map({0: partition})) for each in ids}
    index = run_to_completion(PartitionIndex.of(EMPTY_IMAGE._replace(topics_by_id=Map(topics))))
    assert list(index.topics_of(1)) == sorted(ids)


def test_a_broker_that_waits_for_our_answer_is_not_silent(cluster: Cluster) -> None:
    """Its beat stands behind a write that our disk takes long over; it says nothing before it is answered."""
    cluster.register(1, NEW)
    cluster.heartbeat(1)
    controller, now_ms = cluster.controller, cluster.loop.now_ms
    brokers = controller._brokers
    image, end = cluster.quorum.newest, cluster.quorum.next_offset
    heartbeat = Heartbeat(1, image.brokers[1].epoch, image.offset)
    brokers.heartbeat(image, end + 1, heartbeat, now_ms)  # a write before it is under way
    for _ in range(5):
        now_ms += SESSION_MS - 1
        assert brokers.fence_stale(image, end, now_ms).response is None
    now_ms += SESSION_MS - 1
    assert brokers.fence_stale(image, end + 1, now_ms).response is None, "it was answered just now"
    now_ms += SESSION_MS
    assert brokers.fence_stale(image, end + 1, now_ms).response == 1


def test_a_broker_that_waited_for_an_answer_of_an_earlier_reign_is_not_alive_for_that(
    cluster: Cluster,
) -> None:
    """What it waited for was lost with the reign, and will never be committed."""
    cluster.register(1, NEW)
    cluster.heartbeat(1)
    controller, now_ms = cluster.controller, cluster.loop.now_ms
    image, end = cluster.quorum.newest, cluster.quorum.next_offset
    heartbeat = Heartbeat(1, image.brokers[1].epoch, image.offset)
    controller._brokers.heartbeat(image, end + 9, heartbeat, now_ms)
    controller.deactivate()
    controller.activate(now_ms)
    assert controller._brokers.fence_stale(image, end, now_ms + SESSION_MS).response == 1
