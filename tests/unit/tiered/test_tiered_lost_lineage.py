"""The file of the leader epochs is damaged or gone: nothing in the tier is deleted because of it. rel-T14.

Once the tier has everything, no local batch tells its epochs any more.
"""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import Code, StorageError
from firnline.base.ids import TopicIdPartition
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.stores.port import ObjectInfo, RemoteStorageError
from firnline.tiered.catalog.format import decode_head, encode_head
from firnline.tiered.objects.layout import parse_head
from tests.worlds.tier import (
    WHERE,
    Cluster,
    Node,
    topic_config,
    with_ten_of_which_six_may_stay,
)

FILE = "/data/t-0/leader-epoch-checkpoint"


def _damaged(node: Node) -> None:
    node.damage(FILE, lambda data: b"\x00" * len(data))


def _removed(node: Node) -> None:
    node.fs.remove(FILE)


def led_in_four_epochs(cluster: Cluster) -> Node:
    """All of it is in the tier alone."""
    node = Node(cluster).start()
    for epoch in range(4):
        node.lead(epoch)
        node.produce(epoch, f"a{epoch}", f"b{epoch}")
    node.pass_time(3000)
    node.expire_local()
    assert node.log.local_log_start_offset == 8
    return node


def damage_catalogs(cluster: Cluster) -> None:
    heads = [key for key in cluster.store.objects if parse_head(key) is not None]
    assert heads
    for key in heads:
        cluster.store.objects[key] = b"{}"


def fails(_prefix: str) -> list[ObjectInfo]:
    raise RemoteStorageError("503")


def restarted(node: Node, epoch: int = 4) -> Node:
    again = Node(node.cluster, 1, fs=node.crash(), rng=node.rng)
    again.log.advance_high_watermark(again.log.log_end_offset)
    return again.start().lead(epoch)


@pytest.mark.parametrize("lose", [_damaged, _removed])
def test_a_lost_file_of_leader_epochs_deletes_nothing_in_the_tier(
    lose: Callable[[Node], None],
) -> None:
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    before = dict(cluster.store.objects)
    lose(node)
    damage_catalogs(cluster)
    again = restarted(node)
    again.produce(4, "new")
    again.pass_time(300_000)
    assert len(again.segments()) == 4
    assert {key: cluster.store.objects.get(key) for key in before if key.startswith("data/")} == {
        key: data for key, data in before.items() if key.startswith("data/")
    }
    assert again.log.log_start_offset == 0
    answer = again.read(0)
    assert answer.code == Code.KAFKA_STORAGE_ERROR, "a consumer must not skip what the tier has"
    (row,) = again.tier.status()
    assert "leader epochs of this replica begin above records that only the tier has" in str(row)
    assert any("leader-epoch-checkpoint" in line for line in again.warnings)


@pytest.mark.parametrize("lose", [_damaged, _removed])
def test_lost_leader_epochs_are_taken_from_the_catalog(lose: Callable[[Node], None]) -> None:
    """Without another replica nobody else has them, and an operator would have to bring a backup."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    lose(node)
    again = restarted(node)
    assert again.log.epochs.entries() == ((4, 8),)
    again.produce(4, "new")
    again.pass_time(300_000)
    assert again.log.epochs.entries() == ((0, 0), (1, 2), (2, 4), (3, 6), (4, 8))
    for offset in range(8):
        assert again.read(offset).records, offset
    assert [s.base_offset for s in again.segments()] == [0, 2, 4, 6, 8]
    (row,) = again.tier.status()
    assert row.problem is None
    assert any(
        "taken from the catalog in the tier" in n and "epochs_below_offset=" in n
        for n in again.notes
    )
    again.log.sync_now()
    assert restarted(again, epoch=5).log.epochs.entries()[:4] == ((0, 0), (1, 2), (2, 4), (3, 6))


def test_a_log_start_that_a_crash_took_back_is_taken_from_the_catalog() -> None:
    """Segments below it could not be deleted yet: leader epochs looked lost, and consumers waited."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    node.storage.fail("delete", StorageError("503"), times=10_000)
    node.log.advance_log_start(8)
    node.pass_time(60_000)
    node.log.epochs.replace_file(node.log.epochs.entries())
    assert len(node.segments()) == 4
    again = restarted(node)
    assert (again.log.log_start_offset, again.log.epochs.entries()) == (0, ((4, 8),))
    again.produce(4, "new")
    again.pass_time(60_000)
    assert again.log.log_start_offset == 8
    assert [s.base_offset for s in again.segments()] == [8]
    (row,) = again.tier.status()
    assert row.problem is None


@pytest.mark.parametrize(
    ("log_end_offset", "epochs"),
    [
        (10, ((0, 0), (1, 2), (2, 4), (3, 6))),  # more than this log had, in another epoch
        (7, ((0, 0), (1, 2), (2, 4), (3, 6))),  # what came between is not known
        (8, ((1, 2), (2, 4), (3, 6))),  # it does not reach down to the log start
    ],
)
def test_leader_epochs_of_a_catalog_that_may_be_of_another_lineage_are_not_taken(
    log_end_offset: int, epochs: Epochs
) -> None:
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    _removed(node)
    key = max(key for key in cluster.store.objects if parse_head(key) is not None)
    head = decode_head(cluster.store.objects[key], key)
    assert (head.log_end_offset, head.epochs) == (8, ((0, 0), (1, 2), (2, 4), (3, 6)))
    changed = head._replace(log_end_offset=log_end_offset, epochs=epochs)
    cluster.store.objects[key] = encode_head(changed)
    again = restarted(node)
    again.produce(4, "new")
    again.pass_time(300_000)
    assert again.log.epochs.entries()[0] == (4, 8)
    assert again.read(0).code == Code.KAFKA_STORAGE_ERROR
    assert len(again.segments()) == 4


def test_an_older_first_epoch_may_have_begun_below_what_is_local() -> None:
    """Made again from local batches, it begins where they do. An earlier catalog does not know it at all."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    key = max(key for key in cluster.store.objects if parse_head(key) is not None)
    before = cluster.store.objects[key]
    node.lead(4)
    node.produce(4, "x", "y")
    _removed(node)
    again = restarted(node, epoch=5)
    assert again.log.epochs.entries()[0] == (4, 8)
    for newer in [k for k in cluster.store.objects if parse_head(k) is not None and k > key]:
        del cluster.store.objects[newer]
    cluster.store.objects[key] = before
    again.pass_time(300_000)
    assert again.log.epochs.entries()[0] == (4, 8)
    assert again.read(0).code == Code.KAFKA_STORAGE_ERROR


def test_lost_leader_epochs_are_taken_once_the_store_answers() -> None:
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    _removed(node)
    again = restarted(node)
    listing, cluster.store.list_prefix = cluster.store.list_prefix, fails  # type: ignore[method-assign]
    again.pass_time(60_000)
    assert again.read(0).code == Code.KAFKA_STORAGE_ERROR
    cluster.store.list_prefix = listing  # type: ignore[method-assign]
    again.pass_time(300_000)
    assert again.read(0).records


def test_a_log_start_that_a_crash_took_back_is_found_in_the_leader_epochs() -> None:
    """It is written before the file of the log start offsets, which comes each minute."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    node.log.advance_log_start(7)
    node.pass_time(60_000)
    node.log.epochs.replace_file(node.log.epochs.entries())
    assert [s.base_offset for s in node.segments()] == [6]
    again = restarted(node)
    assert again.log.log_start_offset == 0
    again.pass_time(60_000)
    assert again.log.log_start_offset == 7
    assert [s.base_offset for s in again.segments()] == [6]
    assert again.tier._tasks[WHERE].expiry_failures == 0


@pytest.mark.parametrize("begin", [6, 7])
def test_a_log_start_that_only_a_file_has_deletes_nothing_until_it_is_decided_again(
    begin: int,
) -> None:
    """DeleteRecords, and a crash before the catalog had it. No leader epochs are lost: they begin below the
    local log. But a wrong digit in their file would look the same."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    node.log.advance_log_start(begin)
    node.log.epochs.replace_file(node.log.epochs.entries())
    again = restarted(node)
    assert again.log.log_start_offset == 0
    again.pass_time(60_000)
    assert again.log.log_start_offset == begin
    assert [s.base_offset for s in again.segments()] == [0, 2, 4, 6]
    (row,) = again.tier.status()
    assert "only files of this replica say that they go" in str(row)
    assert again.read(begin).records, "what is not deleted is served"
    again.log.advance_log_start(begin)  # DeleteRecords once more, as the line says
    again.pass_time(60_000)
    assert [s.base_offset for s in again.segments()] == [6]
    (row,) = again.tier.status()
    assert row.problem is None


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (b"0 0", b"0 5"),  # the log seems to begin above
        (b"2 4", b"2 6"),
        (b"1 2", b"1 3"),
    ],
)
def test_a_wrong_digit_among_the_leader_epochs_deletes_nothing_in_the_tier(
    line: bytes, wrong: bytes
) -> None:
    """The file has no checksum, as with Kafka, and what it says now is in order."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    node.damage(FILE, lambda data: data.replace(line, wrong))
    _nothing_goes(node, restarted(node))


@pytest.mark.parametrize("wrong", [b"1 0", b"3 0"])
def test_a_wrong_first_epoch_deletes_nothing_in_the_tier(wrong: bytes) -> None:
    """Everything before seems to be of a lineage that an unclean election ended."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b", "c")
    node.lead(4)
    node.produce(4, "d")
    node.pass_time(3000)
    node.expire_local()
    assert node.log.local_log_start_offset == 4
    node.damage(FILE, lambda data: data.replace(b"0 0", wrong))
    _nothing_goes(node, restarted(node, epoch=5))


def test_a_wrong_digit_in_the_file_of_log_start_offsets_deletes_nothing_in_the_tier() -> None:
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    again = Node(cluster, 1, fs=node.crash(), rng=node.rng)
    again.log.advance_log_start(6)  # as what is read at its start
    again.log.advance_high_watermark(again.log.log_end_offset)
    _nothing_goes(node, again.start().lead(4))


def test_a_log_start_in_a_file_decides_nothing_where_no_catalog_can_be_read() -> None:
    """Damage of the catalogs does not make the file more trustworthy."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    damage_catalogs(cluster)
    again = Node(cluster, 1, fs=node.crash(), rng=node.rng)
    again.log.advance_log_start(6)
    again.log.advance_high_watermark(again.log.log_end_offset)
    _nothing_goes(node, again.start().lead(4))


def _nothing_goes(node: Node, again: Node) -> None:
    store = node.cluster.store
    before = {key: data for key, data in store.objects.items() if key.startswith("data/")}
    again.produce(again.log.epochs.latest_epoch, "new")
    again.pass_time(300_000)
    assert {key: store.objects.get(key) for key in before} == before
    # And not at the start after that either, whatever was written meanwhile.
    once_more = restarted(again, epoch=again.log.epochs.latest_epoch + 1)
    once_more.pass_time(300_000)
    assert {key: store.objects.get(key) for key in before} == before


def test_retention_deletes_what_a_file_seems_to_have_deleted() -> None:
    """What stays although only files say that it goes does not stay for ever: limits hold for it, too."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    again = Node(cluster, 1, fs=node.crash(), rng=node.rng)
    again.log.advance_log_start(6)
    again.log.advance_high_watermark(again.log.log_end_offset)
    again.log.config = topic_config(retention_ms=100_000)
    again.start().lead(4)
    again.pass_time(60_000)
    assert [s.base_offset for s in again.segments()] == [0, 2, 4, 6]
    again.pass_time(600_000)
    assert again.segments() == []


def test_a_log_start_that_a_crash_took_back_above_local_files_is_no_lost_lineage() -> None:
    """Epochs that are made again begin where the local files do, and not above."""
    cluster = Cluster()
    node = Node(cluster).start()
    for epoch in range(4):
        node.lead(epoch)
        node.produce(epoch, f"a{epoch}", f"b{epoch}")
    node.pass_time(3000)
    node.log.advance_log_start(6)
    node.log.epochs.replace_file(node.log.epochs.entries())
    again = restarted(node)
    assert (again.log.log_start_offset, again.log.first_base_offset) == (0, 0)
    again.pass_time(60_000)
    assert again.log.log_start_offset == 6
    assert not [line for line in again.warnings if "begin above records" in line]


def test_a_crash_takes_no_log_start_back_below_records_that_nobody_has() -> None:
    """F33: the store was down, and local files expired that the tier never had.

    Otherwise consumers go back to an earliest offset that is out of range, again and again.
    """
    node = with_ten_of_which_six_may_stay(Cluster())
    node.pass_time(1000)
    assert node.log.log_start_offset == 4
    node.expire_local()
    assert node.log.first_base_offset == 0, "nothing on disk says yet that the log begins above"
    node.log.sync_now()
    node.expire_local()
    assert node.log.first_base_offset == 4
    again = restarted(node)
    again.storage.fail("copy", StorageError("503"), times=10_000)
    again.pass_time(60_000)
    assert again.log.log_start_offset == 4


def test_a_lost_lineage_is_found_by_a_look_at_few_segments_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each Fetch of what only the tier has asks for it, on the loop."""
    cluster = Cluster()
    node = led_in_four_epochs(cluster)
    _removed(node)
    damage_catalogs(cluster)
    again = restarted(node)
    again.pass_time(1000)
    looks: list[int] = []
    finished = again.tier.services.metadata.finished

    def counted(where: TopicIdPartition, reaching: int = 0) -> Any:
        looks.append(reaching)
        return finished(where, reaching)

    monkeypatch.setattr(again.tier.services.metadata, "finished", counted)
    for _ in range(20):
        assert again.read(0).code == Code.KAFKA_STORAGE_ERROR
    assert looks == []
    hosted = again.tier._tasks[WHERE].hosted
    hosted._remote_below = None
    monkeypatch.setattr("firnline.tiered.hosted.OVERLAPPING_MOST", 1)
    assert again.read(0).code == Code.KAFKA_STORAGE_ERROR, "the first of them is enough"
    assert looks == [0]
