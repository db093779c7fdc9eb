"""ClusterStatus: what the image says of brokers and partitions, and what a leader knows of its followers."""

from firnline.base.errors import Code
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest
from tests.worlds.cluster import Rig

NODES = {1: "broker,controller", 2: "broker", 3: "broker"}


def test_every_broker_reports_all_and_a_leader_its_followers() -> None:
    rig = Rig(NODES).start()
    assert rig.create_topic(1, "t", partitions=3, replicas=2).error_code == 0
    rig.pass_time(2_000)
    for asked in NODES:
        answer = rig.ask(asked, ClusterStatusRequest(topics=["t", "nope"]), 0)
        image = rig[asked].broker.image
        assert [row.broker_epoch for row in answer.brokers] == [
            image.brokers[n].epoch for n in sorted(NODES)
        ]
        topic, nope = answer.topics
        assert nope.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert [part.partition for part in topic.partitions] == [0, 1, 2]
        for part in topic.partitions:
            decided = image.partition("t", part.partition)
            assert decided is not None
            assert (part.leader_id, part.leader_epoch, part.partition_epoch) == (
                decided.leader, decided.leader_epoch, decided.partition_epoch,
            )  # fmt: skip
            if decided.leader != asked:
                assert part.log_end_offset == -1
                assert not part.followers
                continue
            assert (part.log_start_offset, part.high_watermark, part.log_end_offset) == (0, 0, 0)
            assert part.min_insync_replicas == 1
            (follower,) = part.followers
            assert follower.broker_id in decided.replicas
            assert follower.log_end_offset == 0
            assert follower.broker_epoch == image.brokers[follower.broker_id].epoch
            assert 0 <= follower.behind_ms < 2_000


def test_only_what_is_led_and_all_topics_on_demand() -> None:
    rig = Rig(NODES).start()
    for name in ("b", "a"):
        rig.create_topic(1, name, partitions=3)
    rig.pass_time(1_000)
    led = []
    for asked in NODES:
        answer = rig.ask(asked, ClusterStatusRequest(topics=None, only_led=True), 0)
        assert [topic.name for topic in answer.topics] == ["a", "b"]
        led += [(t.name, part.partition) for t in answer.topics for part in t.partitions]
        assert all(part.leader_id == asked for t in answer.topics for part in t.partitions)
    assert sorted(led) == [(name, index) for name in "ab" for index in range(3)]
    assert not rig.ask(1, ClusterStatusRequest(topics=[]), 0).topics


def test_a_broker_on_its_way_out_is_distinguished_from_one_that_is_fenced() -> None:
    rig = Rig(NODES).start()
    rig.create_topic(1, "t", partitions=3, replicas=3)
    rig.pass_time(1_000)
    rig[3].kill()
    rig.cut = {(1, 2), (2, 1)}
    rig[2].run(rig[2].broker.shutdown(rig.now_ms))
    rig.cut = set()
    rig.until(lambda: rig[1].broker.image.brokers[2].in_controlled_shutdown)
    rows = {row.broker_id: row for row in rig.ask(1, ClusterStatusRequest(topics=[]), 0).brokers}
    assert rows[2].in_controlled_shutdown
    rig.until(lambda: rig[1].broker.image.brokers[3].fenced)
    rows = {row.broker_id: row for row in rig.ask(1, ClusterStatusRequest(topics=[]), 0).brokers}
    assert rows[3].is_fenced
