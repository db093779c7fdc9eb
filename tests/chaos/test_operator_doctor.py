"""`firnline doctor` on a tier that was damaged before: each damage is found, named, and told what mends it.

Replicas that differ are in test_operator_cluster.py, records kept aside in test_operator_directories.py.
"""

from pathlib import Path

import pytest

from firnline.client.admin import Admin
from firnline.testing.plugin import TIERED_TOPIC, Broker
from firnline.tiered.catalog.format import CatalogHead, decode_head, encode_head
from tests.chaos.operators import copy_of, doctor, produce, running
from tests.chaos.workload import PATIENCE_S

TOPIC, RECORDS = "tiered", 80


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("filled")
    with running(Broker(base / "data", tier=base / "tier")) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED_TOPIC)
            produce(broker, TOPIC, 0, RECORDS)
            admin.tier_flush(TOPIC, (), timeout_s=PATIENCE_S)
        code, found = doctor("--bootstrap-server", broker.bootstrap, "--tier", base / "tier")
        assert (code, found["findings"]) == (0, [])
        assert found["looked_at"]["partitions in the tier"] == 1
    return base


@pytest.fixture
def tier(filled: Path, tmp_path: Path) -> Path:
    return copy_of(filled / "tier", tmp_path / "tier")


def newest_head(tier: Path) -> tuple[Path, CatalogHead]:
    path = max(tier.glob("catalog/*/0/heads/*.jsonl"))
    return path, decode_head(path.read_bytes(), str(path.relative_to(tier)))


def write_after(path: Path, head: CatalogHead) -> None:
    """A leader writes another catalog after the newest."""
    name = f"{head.leader_epoch:010d}-{head.sequence + 1:019d}.jsonl"
    path.with_name(name).write_bytes(encode_head(head._replace(sequence=head.sequence + 1)))


def kinds(tier: Path) -> list[str]:
    code, found = doctor("--tier", tier)
    assert code == (3 if found["findings"] else 0)
    assert all(each["where"] == f"{TOPIC}-0" and each["remedy"] for each in found["findings"])
    return [each["kind"] for each in found["findings"]]


def test_a_catalog_that_explains_less_than_the_store_is_found(tier: Path) -> None:
    """As one that was written from lost metadata."""
    path, head = newest_head(tier)
    write_after(path, head._replace(tail=(), parts=()))
    assert kinds(tier) == ["catalog-explains-less"]


def test_a_log_start_above_what_the_tier_holds_is_found(tier: Path) -> None:
    """As one that was raised by a start without the tier."""
    path, head = newest_head(tier)
    assert len(head.tail) > 3
    start = head.tail[3].base_offset
    write_after(path, head._replace(log_start_offset=start, tail=head.tail[3:]))
    assert kinds(tier) == ["log-start-above-tier"]


def test_an_object_that_is_gone_and_a_damaged_catalog_are_found(tier: Path) -> None:
    path, head = newest_head(tier)
    (tier / head.tail[1].key()).unlink()
    assert kinds(tier) == ["object-missing"]
    path.write_bytes(path.read_bytes()[:-20])
    assert kinds(tier) == ["catalog-damaged"]


def test_a_tier_that_is_not_there_and_brokers_that_do_not_answer_are_errors(tmp_path: Path) -> None:
    assert doctor("--tier", tmp_path / "none")[0] == 1
    assert doctor("--bootstrap-server", "127.0.0.1:1")[0] == 1
