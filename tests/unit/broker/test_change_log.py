"""What a node says of the changes of its cluster: line by line, from the records of the metadata."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer
from firnline.base.log_lines.line import LEVEL_NAMES, Log
from firnline.base.log_lines.text import fields_text
from firnline.broker.change_log.bundles import SINGLES_MAX
from firnline.broker.change_log.change_log import AT_ONCE, ChangeLog
from firnline.metadata import records as r
from firnline.metadata.delta import Replay
from firnline.metadata.image import EMPTY_IMAGE, ResourceType
from firnline.metadata.partition_counts import PartitionCounts
from firnline.protocol.schema import Message

ORDERS = bytes(15) + b"\x09"
ORDERS_TEXT = "AAAAAAAAAAAAAAAAAAAACQ"
DISK = bytes(15) + b"\x77"


class Cluster:
    """The metadata of brokers 1 to 3 with topic `orders`, and what one node says of it."""

    def __init__(
        self,
        node_id: int = 1,
        *,
        decides: bool = True,
        is_part: bool = True,
        is_registered: Callable[[], bool] = lambda: True,
    ) -> None:
        self.image, self.offset = EMPTY_IMAGE, 99
        self.lags: dict[int, str] = {}
        self.is_part = is_part
        self.said = ChangeLog(
            node_id,
            is_part=lambda: self.is_part,
            decides=lambda: decides,
            counts=PartitionCounts,
            is_registered=is_registered,
            lag_of=lambda topic, partition, broker_id, now_ms: self.lags.get(broker_id),
        )
        self.effects: Effects = []

    def add(self, *records: Message, now_ms: int = 0) -> list[str]:
        """Commit records; return the lines, without those at debug."""
        replay = Replay(self.image)
        for record in records:
            replay.apply(record)
        self.offset += 1
        delta = replay.finish(offset=self.offset, epoch=1)
        self.image = delta.after
        self.effects = self.said.published(delta, now_ms)
        return lines(self.effects)

    def up(self, isr: Sequence[int] = (1, 2, 3), partitions: int = 1) -> "Cluster":
        """Register the brokers and create the topic."""
        self.add(*[broker(node_id) for node_id in (1, 2, 3)])
        self.add(topic(), *[partition(number, isr) for number in range(partitions)])
        return self


def lines(effects: Effects) -> list[str]:
    found = [each for each in effects if isinstance(each, Log) and not each.is_detail]
    return [
        f"{LEVEL_NAMES[each.level]} {each.line.message}{fields_text(each.known_fields())}"
        for each in found
    ]


def broker(node_id: int, epoch: int = 0, **more: Any) -> Message:
    given = {"fenced": False, "incarnation_id": bytes(16), "log_dirs": [DISK]} | more
    return r.RegisterBrokerRecord(broker_id=node_id, broker_epoch=epoch or node_id, **given)


def topic() -> Message:
    return r.TopicRecord(name="orders", topic_id=ORDERS)


def partition(number: int = 0, isr: Sequence[int] = (1, 2, 3)) -> Message:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=ORDERS,
        replicas=[1, 2, 3],
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DISK] * 3,
    )


def change(number: int = 0, **what: Any) -> Message:
    return r.PartitionChangeRecord(partition_id=number, topic_id=ORDERS, **what)


def registration(node_id: int, **what: Any) -> Message:
    return r.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=node_id, **what)


def test_brokers_come_and_go() -> None:
    cluster = Cluster().up()
    endpoint = r.BrokerEndpoint(name="PLAINTEXT", host="kafka-4", port=9092)
    come = broker(4, 101, fenced=True, end_points=[endpoint], rack="r 1")
    assert cluster.add(come) == [
        "info broker registered broker=4 broker_epoch=101 incarnation=AAAAAAAAAAAAAAAAAAAAAA"
        " listeners=PLAINTEXT://kafka-4:9092 fenced=true metadata_offset=102"
    ]
    assert cluster.add(r.UnfenceBrokerRecord(id=4, epoch=101)) == [
        "info broker unfenced broker=4 broker_epoch=101 metadata_offset=103"
    ]
    assert cluster.add(r.FenceBrokerRecord(id=4, epoch=101)) == [
        "warning broker fenced broker=4 broker_epoch=101"
        ' reason="no heartbeat within its session, or it started again" metadata_offset=104'
    ]
    (again,) = cluster.add(broker(4, 105, fenced=True))
    assert again.startswith("info broker registered broker=4 broker_epoch=105 was_epoch=101 ")
    assert cluster.add(registration(2, in_controlled_shutdown=1)) == [
        "info broker in controlled shutdown broker=2 broker_epoch=2 metadata_offset=106"
    ]
    assert cluster.add(registration(2, fenced=1)) == [
        "info broker stopped broker=2 broker_epoch=2 metadata_offset=107"
    ]
    assert cluster.add(r.UnregisterBrokerRecord(broker_id=4, broker_epoch=105)) == [
        "info broker unregistered broker=4 broker_epoch=105 metadata_offset=108"
    ]
    other = bytes(15) + b"\x78"
    assert cluster.add(registration(3, log_dirs=[other])) == [
        "info log directories changed broker=3 broker_epoch=3 online=AAAAAAAAAAAAAAAAAAAAeA"
        " gone=AAAAAAAAAAAAAAAAAAAAdw metadata_offset=109"
    ]


AT = "metadata_offset=103"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (registration(1, fenced=1), {"leader": 2}, '"the leader was fenced"'),
        (
            registration(1, in_controlled_shutdown=1),
            {"leader": 2},
            '"controlled shutdown of the leader"',
        ),
        (
            r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
            {"leader": 2},
            '"the leader was unregistered"',
        ),
        (
            registration(1, log_dirs=[bytes(15) + b"\x78"]),
            {"leader": 2},
            '"log directory of the leader failed"',
        ),
        (r.NoOpRecord(), {"leader": 2, "replicas": [2, 3], "isr": [2, 3]}, "reassignment"),
        (r.NoOpRecord(), {"leader": 2, "replicas": [2, 1, 3]}, '"preferred leader"'),
        (r.NoOpRecord(), {"leader": 2}, '"as requested or by order"'),
        (change(leader=-1, isr=[2]), {"leader": 2}, '"a member of the ISR is back"'),
    ],
)
def test_a_leader_is_elected_for_a_reason(
    before: Message, after: dict[str, Any], reason: str
) -> None:
    cluster = Cluster().up()
    cluster.add(before)
    found = [line for line in cluster.add(change(**after)) if "leader elected" in line]
    was = "none" if isinstance(before, r.PartitionChangeRecord) else 1
    (line,) = found
    start = f"info leader elected topic=orders partition=0 leader=2 was={was} reason={reason} isr="
    assert line.startswith(start)
    assert line.endswith(AT)


def test_an_unclean_election_and_an_offline_partition_are_warnings() -> None:
    cluster = Cluster().up(isr=[1])
    cluster.add(registration(1, fenced=1))
    assert cluster.add(change(leader=-1)) == [
        "warning partition offline topic=orders partition=0 was=1"
        ' reason="the leader was fenced" isr=1 leader_epoch=1 partition_epoch=1 metadata_offset=103'
    ]
    found = cluster.add(change(leader=2, isr=[2], leader_recovery_state=1))
    assert found[0] == (
        "warning unclean election topic=orders partition=0 leader=2 was=none old_isr=1"
        " leader_epoch=2 partition_epoch=2 metadata_offset=104"
    )


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (registration(3, fenced=1), {"isr": [1, 2]}, '"broker fenced"'),
        (registration(3, in_controlled_shutdown=1), {"isr": [1, 2]}, '"controlled shutdown"'),
        (
            registration(3, log_dirs=[bytes(15) + b"\x78"]),
            {"isr": [1, 2]},
            '"log directory failed"',
        ),
        (r.NoOpRecord(), {"isr": [1, 2], "replicas": [1, 2]}, "reassignment"),
        (r.NoOpRecord(), {"isr": [1, 2]}, '"fell behind"'),
    ],
)
def test_an_isr_shrinks_for_a_reason(before: Message, after: dict[str, Any], reason: str) -> None:
    cluster = Cluster().up()
    cluster.add(before)
    assert cluster.add(change(**after))[0] == (
        f"info ISR shrunk topic=orders partition=0 isr=1,2 removed=3 reason={reason}"
        f" leader_epoch=0 partition_epoch=1 {AT}"
    )


def test_the_leader_knows_how_a_follower_fell_behind() -> None:
    cluster = Cluster().up()
    cluster.lags[3] = "no fetch for 31 s"
    (line,) = cluster.add(change(isr=[1, 2]))
    assert ' removed=3 reason="no fetch for 31 s" ' in line


def test_an_isr_grows_again() -> None:
    cluster = Cluster().up(isr=[1, 2])
    assert cluster.add(change(isr=[1, 2, 3])) == [
        'info ISR grown topic=orders partition=0 isr=1,2,3 added=3 reason="caught up"'
        " leader_epoch=0 partition_epoch=1 metadata_offset=102"
    ]
    assert "reason=reassignment" in cluster.add(change(isr=[1, 2, 3, 4], replicas=[1, 2, 3, 4]))[0]


def test_reassignments_begin_and_end() -> None:
    cluster = Cluster().up()
    began = change(replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[3])
    assert cluster.add(began) == [
        "info reassignment began topic=orders partition=0 replicas=1,2,3,4 adding=4 removing=3"
        " leader_epoch=0 partition_epoch=1 metadata_offset=102"
    ]
    ended = change(replicas=[1, 2, 4], isr=[1, 2, 4], adding_replicas=[], removing_replicas=[])
    assert cluster.add(ended)[-1] == (
        "info reassignment ended topic=orders partition=0 replicas=1,2,4 was=1,2,3,4"
        " leader_epoch=0 partition_epoch=2 metadata_offset=103"
    )


def test_topics_and_their_settings() -> None:
    cluster = Cluster()
    cluster.add(broker(1))
    setting = r.ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="orders", name="retention.ms", value="5"
    )
    assert cluster.add(topic(), partition(), setting) == [
        f"info topic created topic=orders topic_id={ORDERS_TEXT} partitions=1"
        ' replication_factor=3 configs="retention.ms=5" metadata_offset=101'
    ]
    assert cluster.add(partition(1)) == [
        f"info partitions added topic=orders topic_id={ORDERS_TEXT} partitions=2 was=1"
        " metadata_offset=102"
    ]
    changed = r.ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="orders", name="retention.ms", value="6"
    )
    assert cluster.add(changed) == [
        'info config changed resource=topic:orders changes="retention.ms=6 (was 5)"'
        " metadata_offset=103"
    ]
    unset = r.ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="orders", name="retention.ms", value=None
    )
    assert "retention.ms unset (was 6)" in cluster.add(unset)[0]
    assert cluster.add(r.RemoveTopicRecord(topic_id=ORDERS)) == [
        f"info topic deleted topic=orders topic_id={ORDERS_TEXT} partitions=2 metadata_offset=105"
    ]


def test_a_feature_is_raised_and_not_told_twice() -> None:
    cluster = Cluster()
    cluster.add(broker(1))
    said = cluster.add(r.FeatureLevelRecord(name="metadata.version", feature_level=29))
    assert said == [
        "info feature changed feature=metadata.version level=29 was=0 metadata_offset=101"
    ]
    said = cluster.add(r.FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert said == [
        "info feature changed feature=metadata.version level=30 was=29 metadata_offset=102"
    ]
    assert cluster.add(r.FeatureLevelRecord(name="metadata.version", feature_level=30)) == []


def test_a_secret_of_a_broker_is_hidden_and_so_is_what_nobody_knows() -> None:
    cluster = Cluster().up()

    def set_to(name: str, value: str, broker_id: str = "1") -> str:
        record = r.ConfigRecord(
            resource_type=ResourceType.BROKER, resource_name=broker_id, name=name, value=value
        )
        return cluster.add(record)[0]

    assert "ssl.key.password=[hidden]" in set_to("ssl.key.password", "s3cret")
    assert "rsm.config.key=[hidden]" in set_to("rsm.config.key", "s3cret")
    line = set_to("log.cleaner.threads", "2", "")
    assert 'resource="all brokers" changes="log.cleaner.threads=2"' in line


def test_five_thousand_partitions_are_ten_lines_and_a_sum() -> None:
    cluster = Cluster().up(partitions=5_000)
    cluster.add(registration(3, fenced=1), now_ms=5_000)
    said: list[str] = []
    timers: list[SetTimer] = []
    details = 0
    for first in range(0, 5_000, 100):  # as the controller's sweep, slice by slice
        some = [change(number, isr=[1, 2]) for number in range(first, first + 100)]
        said += cluster.add(*some, now_ms=5_000 + first // 100)
        timers += [each for each in cluster.effects if isinstance(each, SetTimer)]
        details += sum(isinstance(each, Log) and each.is_detail for each in cluster.effects)
    assert len(said) == SINGLES_MAX
    assert details == 5_000 - SINGLES_MAX, "at debug each has its line"
    (timer,) = timers
    assert lines(timer.then(timer.at_ms)) == [
        'info more ISRs shrunk count=4990 removed=3 reason="broker fenced"'
        " examples=orders-10,orders-11,orders-12,orders-13,orders-14 metadata_offset=152"
    ]
    assert len(cluster.add(change(0, isr=[1]), now_ms=timer.at_ms)) == 1, "the next second"


def test_one_large_change_is_told_in_slices_and_in_order() -> None:
    """Goal: no client waits for the log. Method: a batch changes 1,000 partitions, the next one one more."""
    cluster = Cluster().up(partitions=1_000)
    assert cluster.add(*[change(number, isr=[1, 2]) for number in range(1_000)]) == []
    due = [each for each in cluster.effects if isinstance(each, SetTimer)]
    assert cluster.add(change(7, isr=[1])) == [], "its turn comes after the others"
    told: list[tuple[object, object]] = []
    while due:
        effects = due.pop(0).then(0)
        of_slice = [each.known_fields() for each in effects if isinstance(each, Log)]
        assert len(of_slice) <= AT_ONCE
        told += [(each["partition"], each["isr"]) for each in of_slice]
        background = [each for each in effects if isinstance(each, SetTimer) and each.at_ms == 0]
        due += background
    assert told == [*((number, (1, 2)) for number in range(1_000)), (7, (1,))]
    assert len(cluster.add(change(8, isr=[1]), now_ms=60_000)) == 1, (
        "small ones are told at once again"
    )


def test_a_broker_says_nothing_of_partitions_that_it_has_no_replica_of() -> None:
    cluster = Cluster(4, decides=False).up()
    assert cluster.add(change(isr=[1, 2])) == []
    assert len(cluster.add(registration(3, fenced=1))) == 1, "but of brokers it does"
    assert len(cluster.add(change(replicas=[1, 2, 4], isr=[1, 4]))) > 0


def test_a_node_does_not_tell_the_past_as_news() -> None:
    """At a start it replays what happened while it was away."""
    cluster = Cluster(2, is_part=False).up()
    assert cluster.add(change(isr=[1, 2])) == []
    cluster.is_part = True
    caught_up, own = cluster.add(broker(2, 103, fenced=True), broker(3, 104))
    assert caught_up == (
        "info metadata caught up brokers=3 fenced=1 topics=1 partitions=0 offline=0"
        " metadata_offset=103"
    )
    assert own.startswith("info broker registered broker=2 broker_epoch=103 was_epoch=2 ")


def test_what_changes_nothing_says_nothing() -> None:
    cluster = Cluster().up()
    assert cluster.add(r.NoOpRecord()) == []
    assert cluster.effects == []


def test_a_node_that_stops_does_not_warn_of_what_it_takes_with_it() -> None:
    """As the only broker of `firnline dev` on Ctrl-C; another node warns."""
    for node_id, count in ((1, 0), (2, 1)):
        cluster = Cluster(node_id).up(isr=[1])
        cluster.add(registration(1, in_controlled_shutdown=1))
        assert len(cluster.add(change(leader=-1))) == count


def test_a_start_does_not_warn_of_the_process_before() -> None:
    """The controller fences it first, which may be in the process that starts."""
    is_registered = [False]
    cluster = Cluster(is_registered=lambda: is_registered[0]).up()
    assert cluster.add(registration(1, fenced=1)) == []
    assert not any("offline" in line for line in cluster.add(change(leader=-1, isr=[1])))
    is_registered[0] = True
    (line,) = cluster.add(broker(1, 103, fenced=True))
    assert line.startswith("info broker registered broker=1 broker_epoch=103 was_epoch=1 ")
    (line,) = cluster.add(r.UnfenceBrokerRecord(id=1, epoch=103))
    (line,) = cluster.add(r.FenceBrokerRecord(id=1, epoch=103))
    assert line.startswith("warning broker fenced broker=1 "), "this process"
