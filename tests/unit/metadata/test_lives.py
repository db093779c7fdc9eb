"""Random lives of a cluster: a snapshot of any moment, and the log up to it, are the same state."""

import random

import pytest

from firnline.base.background import run_to_completion
from firnline.base.ids import OffsetAndEpoch
from firnline.controller.topics import NewTopic
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader, SnapshotLoader, difference
from firnline.metadata.partition_counts import Latencies, PartitionCounts, PartitionIndex
from firnline.metadata.snapshot_file import Snapshot
from firnline.records.build import NewRecord, build_batch
from tests.metadata_stories import LEVELS, Life
from tests.worlds.decoded import image_records
from tests.worlds.quorum import Cluster, SnapshotBytes, snapshot_bytes

SEEDS = range(8)


def logged(life: Life, epoch: int = 5) -> list[bytes]:
    """The batches of a life as they are in a log."""
    batches, offset = [], 0
    for values in life.encoded():
        rows = [NewRecord(None, value, 1) for value in values]
        batches.append(bytes(build_batch(rows, base_offset=offset, leader_epoch=epoch)))
        offset += len(rows)
    return batches


def through_a_snapshot(image: ClusterImage) -> ClusterImage:
    """The image that another node loads from a snapshot of this one."""
    content = Snapshot(0, list(image_records(image)), 0)
    data = snapshot_bytes(content, image.epoch, metadata_version=image.metadata_version)
    loader = SnapshotLoader(OffsetAndEpoch(image.offset + 1, image.epoch), SnapshotBytes(data))
    for _ in loader.steps():
        pass
    return loader.image()


@pytest.mark.parametrize("level", LEVELS)
def test_a_snapshot_and_the_log_up_to_it_are_the_same_state(level: int) -> None:
    """rel-Q9, and Q32: at every place where a snapshot may be taken."""
    places = 0
    for seed in SEEDS:
        batches = logged(Life(seed, level).write(80))
        loader = Loader()
        for batch in batches:
            loader.apply(batch)
            image = loader.image()
            if loader.is_batch_end:
                again = through_a_snapshot(image)
                assert again == image, (level, seed, image.offset)
                places += 1
    assert places > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_after_a_snapshot_goes_on_where_it_ended(seed: int) -> None:
    """Nothing twice, nothing left out, also where a transaction was open or began within a batch."""
    batches = logged(Life(seed).write(120))
    complete = Loader()
    complete.apply(b"".join(batches))
    part = Loader()
    for number, batch in enumerate(batches):
        part.apply(batch)
        rest = Loader(through_a_snapshot(part.image()))
        rest.apply(b"".join(b for b in batches if _last_offset(b) >= rest.next_offset))
        assert rest.image() == complete.image(), (seed, number)


def _last_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")


@pytest.mark.parametrize("seed", SEEDS)
def test_however_the_log_is_cut_into_reads_the_image_is_the_same(seed: int) -> None:
    batches = logged(Life(seed).write(120))
    complete, pieces = Loader(), Loader()
    complete.apply(b"".join(batches))
    dice = random.Random(seed)
    shown = pieces.image()
    while batches:
        count = dice.randint(1, 5)
        pieces.apply(b"".join(batches[:count]))
        del batches[:count]
        for delta in pieces.take_deltas():
            assert delta.before is shown
            reported = difference(delta.before, delta.after)
            assert sorted(delta.brokers) == sorted({*delta.brokers, *reported.brokers})
            assert {t.after.topic_id for t in reported.topics} <= {
                t.after.topic_id for t in delta.topics
            }
            assert {t.topic_id for t in reported.deleted_topics} == {
                t.topic_id for t in delta.deleted_topics
            }
            shown = delta.after
    assert shown == complete.image()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_nodes_with_one_state_write_one_snapshot(seed: int) -> None:
    """Whichever way they came by it, byte for byte."""
    loader = Loader()
    loader.apply(b"".join(logged(Life(seed).write(120))))
    image = loader.image()
    again = through_a_snapshot(image)
    assert list(image_records(again)) == list(image_records(image))


def counted(image: ClusterImage) -> tuple[int, int, int]:
    """Partitions, those without a leader, those that another replica than the first leads."""
    every = [p for topic in image.topics_by_id.values() for p in topic.partitions.values()]
    offline = [p for p in every if p.leader == -1]
    imbalanced = [p for p in every if p.leader != p.replicas[0]]
    return len(every), len(offline), len(imbalanced)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_metrics_say_of_the_cluster_is_true_after_every_change(seed: int) -> None:
    loader, counts = Loader(), PartitionCounts()
    for batch in logged(Life(seed).write(150)):
        loader.apply(batch)
        for delta in loader.take_deltas():
            counts.apply(delta)
            reported = (counts.partitions, counts.offline, counts.imbalanced)
            assert reported == counted(delta.after)
    again = run_to_completion(counts.recount(loader.image()))
    assert reported == (again.partitions, again.offline, again.imbalanced)
    assert again.unclean_elections == counts.unclean_elections > 0


def test_a_time_is_counted_in_the_first_bucket_that_holds_it() -> None:
    latencies = Latencies()
    for took_ms in (0, 1, 2, 60_000, 60_001):
        latencies.add(took_ms)
    assert latencies.counts == [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert (latencies.count, latencies.sum_ms) == (5, 120_004)


def test_a_leader_that_comes_back_as_the_last_of_its_isr_is_counted() -> None:
    """It may have lost its disk, and nobody else has more: the exemption that operators should see."""
    cluster = Cluster().with_brokers(1, 2)
    wanted = [NewTopic("t", assignments={0: (1, 2)}), NewTopic("alone", assignments={0: (1,)})]
    cluster.write(cluster.controller.create_topics(wanted))
    for node_id in (2, 1):
        cluster.heartbeat(node_id, want_fence=True)
    assert cluster.quorum.partition_counts.last_standing_elections == 0
    cluster.heartbeat(1)
    assert cluster.quorum.image.topics_by_name["t"].partitions[0].leader == 1
    assert cluster.quorum.partition_counts.last_standing_elections == 1, (
        "one replica is always the last"
    )


def reported(index: PartitionIndex, image: ClusterImage) -> tuple[object, ...]:
    """What an index says that has to be exact."""
    brokers = {
        n: None
        for t in image.topics_by_id.values()
        for p in t.partitions.values()
        for n in p.replicas
    }
    for node_id in sorted(brokers):
        held = {
            topic.topic_id
            for topic in image.topics_by_id.values()
            if any(node_id in p.replicas for p in topic.partitions.values())
        }
        assert set(index.topics_of(node_id)) == held, node_id
        leads = any(
            p.leader == node_id for t in image.topics_by_id.values() for p in t.partitions.values()
        )
        assert index.leads_any(node_id) is leads
    return index.leaderless, index.imbalanced, index.metric_names


@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_that_follows_an_image_forth_and_back_says_what_a_look_at_it_says(
    seed: int,
) -> None:
    """Topics that come, grow, move and go; and a leader that loses what it wrote last."""
    loader, index = Loader(), PartitionIndex()
    dice = random.Random(seed)
    undone = 0
    for batch in logged(Life(seed).write(400)):
        loader.apply(batch)
        if loader.is_in_transaction:
            continue
        deltas = loader.take_deltas()
        for delta in deltas:
            index.apply(delta)
        if dice.random() < 0.5:
            for delta in reversed(deltas):
                index.revert(delta)
                undone += 1
            if deltas:
                before = deltas[0].before
                assert reported(index, before) == reported(
                    run_to_completion(PartitionIndex.of(before)), before
                )
            for delta in deltas:
                index.apply(delta)
        image = loader.image()
        assert reported(index, image) == reported(
            run_to_completion(PartitionIndex.of(image)), image
        )
    assert undone > 10, seed
