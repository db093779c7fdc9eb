"""`firnline tier explain`: an offset is found where a reader finds it, and what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog
from firnline.tiered.objects.explain import explain
from firnline.tiered.objects.storage import ObjectStorage
from tests.worlds.tier import Cluster, Node

PLAIN = 50
# Offsets of two transactions: records, then the markers of both.
ABORTED, COMMITTED, ABORT, COMMIT, LAST = range(PLAIN, PLAIN + 5)
TXN: dict[str, Any] = {"producer_epoch": 0, "is_transactional": True}


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with two segments: plain records, and two transactions with another plain record."""
    root = tmp_path_factory.mktemp("tier")
    cluster = Cluster()
    store = DirectoryStore(str(root))
    node = Node(cluster)
    node.storage.inner = ObjectStorage(store)
    node.tier.services.catalog = store
    node.start().lead(0)
    for number in range(PLAIN):
        node.produce(0, f"value-{number:03d}" * 50, roll=number == PLAIN - 1)
    for producer_id in (7, 8):
        node.produce(
            0, "of a transaction", base_sequence=0, roll=False, producer_id=producer_id, **TXN
        )
    for producer_id, kind in ((7, ControlType.ABORT), (8, ControlType.COMMIT)):
        marker = NewRecord(encode_key(kind), bytes(6), cluster.now_ms)
        data = build_batch([marker], is_control=True, producer_id=producer_id, **TXN)
        node.log.append_as_leader(data, leader_epoch=0, now_ms=cluster.now_ms, origin="coordinator")
        node.log.advance_high_watermark(node.log.log_end_offset)
    node.produce(0, "last")
    node.pass_time(1000)
    return root


def run(tier: Path, offset: object, *more: str, partition: int = 0) -> Result:
    where = f"t-{partition}@{offset}"
    return CliRunner().invoke(cli, ["tier", "explain", where, "--tier", str(tier), *more])


def found(tier: Path, offset: int, exit_code: int = 0) -> dict[str, Any]:
    result = run(tier, offset, "--format", "json")
    assert result.exit_code == exit_code, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def copied(tier: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(tier, tmp_path / "copy"))


def test_every_offset_is_found_in_the_batch_that_has_it(tier: Path) -> None:
    for offset in range(LAST + 1):
        content = found(tier, offset)
        data = (tier / content["object"]).read_bytes()
        first, _, last = content["bytes"].partition(" to ")
        (header,) = headers(data[int(first) : int(last) + 1])
        assert header.base_offset == offset == header.last_offset
        assert (content["leader_epoch"], content["offset"]) == (0, offset)
    content = found(tier, 3)
    assert content["what"].startswith("a record with no key and a value of 450 bytes, timestamp ")
    assert content["segment_offsets"] == f"0 to {PLAIN - 1}"
    assert "transaction" in content


def test_it_is_found_by_the_index_entry_below_it(tier: Path) -> None:
    content = found(tier, PLAIN - 1)
    assert content["found_by"].startswith("entry ")
    entry = int(content["found_by"].rpartition("position ")[2])
    assert 0 < entry <= int(content["bytes"].split()[0])
    assert found(tier, 0)["found_by"].startswith("the start of the segment: no entry")


def test_the_fate_of_a_transaction_is_that_of_its_marker(tier: Path) -> None:
    assert found(tier, ABORTED)["transaction"] == f"aborted, by the marker at {ABORT}"
    assert found(tier, COMMITTED)["transaction"].startswith(("committed", "not aborted"))
    assert found(tier, 0)["transaction"] == "none"
    assert found(tier, ABORT)["what"] == "a control record: the end of a transaction"
    assert found(tier, COMMIT)["transaction"] == "none"


def test_an_offset_that_the_tier_does_not_have_is_exit_code_3(tier: Path) -> None:
    content = found(tier, LAST + 1, exit_code=3)
    assert content["what"] == f"not in the tier, which ends at {LAST + 1}; brokers may have it"
    assert content["object"] is None


def test_what_is_missing_or_damaged_is_named(tier: Path, tmp_path: Path) -> None:
    broken = copied(tier, tmp_path)
    content = found(tier, 3)
    log, index = broken / content["object"], (broken / content["object"]).with_suffix(".index")
    data = bytearray(log.read_bytes())
    data[int(content["bytes"].split()[-1])] ^= 1
    log.write_bytes(data)
    assert found(broken, 3, exit_code=3)["what"] == "damaged: the CRC of its batch is wrong"
    index.unlink()
    assert found(broken, PLAIN - 1)["found_by"].endswith("is missing")
    log.write_bytes(bytes(len(data)))
    assert "damaged" in found(broken, 3, exit_code=3)["what"]
    log.unlink()
    assert found(broken, 3, exit_code=3)["what"].startswith("its object is missing")


@pytest.mark.parametrize("suffix", [".log", ".index", ".txnindex"])
def test_a_flipped_byte_is_never_shown_as_a_record_and_never_a_traceback(
    tier: Path, tmp_path: Path, suffix: str
) -> None:
    """Every byte of the header of a batch and of small objects, one at a time."""
    broken = copied(tier, tmp_path)
    (log,) = broken.glob(f"data/*/0/{PLAIN:020d}-*.log")
    path = log.with_suffix(suffix)
    whole = path.read_bytes()
    store = DirectoryStore(str(broken))
    (topic,) = list_topics(store)
    catalog = read_catalog(store, topic.topic_id, 0)
    assert catalog is not None
    right = explain(store, catalog, ABORTED)
    assert right.is_record
    for at in range(min(len(whole), 100)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        wrong = explain(store, catalog, ABORTED)
        if wrong.is_record:
            assert (wrong.what, wrong.key) == (right.what, right.key)
            assert wrong.batch is not None
            assert right.batch is not None
            assert wrong.batch.leader_epoch == right.batch.leader_epoch
            is_known = suffix != ".txnindex"
            assert (wrong.transaction == right.transaction) == is_known
        else:
            assert "damaged" in wrong.what


def test_a_batch_of_no_length_ends_the_search(tier: Path, tmp_path: Path) -> None:
    broken = copied(tier, tmp_path)
    (log,) = broken.glob(f"data/*/0/{0:020d}-*.log")
    log.with_suffix(".index").unlink()
    data = bytearray(log.read_bytes())
    data[8:12] = (-12).to_bytes(4, "big", signed=True)
    log.write_bytes(data)
    assert "a batch is too short" in found(broken, PLAIN - 1, exit_code=3)["what"]


def test_a_transaction_whose_index_is_lost_has_no_known_fate(tier: Path, tmp_path: Path) -> None:
    broken = copied(tier, tmp_path)
    (index,) = broken.glob("data/*/0/*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    assert found(broken, ABORTED)["transaction"].endswith("is damaged")
    index.unlink()
    assert found(broken, ABORTED)["transaction"].endswith("is missing")


def test_a_hole_in_the_tier_is_a_loss_and_not_an_end(tier: Path, tmp_path: Path) -> None:
    """The first segment is taken out of the catalog by hand."""
    broken = copied(tier, tmp_path)
    from firnline.tiered.catalog.format import decode_head, encode_head

    for path in broken.glob("catalog/*/0/heads/*"):
        head = decode_head(path.read_bytes(), path.name)
        path.write_bytes(encode_head(head._replace(tail=head.tail[1:])))
    assert found(broken, 3, exit_code=3)["what"].endswith("it is lost")


@pytest.mark.parametrize("text", ["orders", "orders@1", "orders-0", "orders-x@1", "orders-0@-1"])
def test_a_place_that_cannot_be_meant_is_wrong_usage(text: str) -> None:
    result = CliRunner().invoke(cli, ["tier", "explain", text, "--tier", "/nowhere"])
    assert result.exit_code == 2
    assert "TOPIC-PARTITION@OFFSET" in result.stderr


def test_topics_and_partitions_that_the_tier_does_not_have_are_named(tier: Path) -> None:
    assert "has nothing of t-9; it has partitions 0" in str(run(tier, 3, partition=9).exception)
    result = CliRunner().invoke(cli, ["tier", "explain", "other-0@1", "--tier", str(tier)])
    assert f"{tier} has no topic other: it has those with remote.storage.enable=true" in str(
        result.exception
    )
    result = CliRunner().invoke(cli, ["tier", "explain", "other-0@1"])
    assert "name the store: firnline tier explain other-0@1 --tier URI" in str(result.exception)


def test_people_see_only_what_there_is(tier: Path) -> None:
    shown = run(tier, ABORTED).stdout
    assert f"transaction      aborted, by the marker at {ABORT}" in shown
    assert "None" not in shown
    assert "object" not in run(tier, LAST + 1).stdout
