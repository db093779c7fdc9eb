"""The reader of the example finds what the product wrote, and needs nothing of the product."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from firnline.base.ids import uuid_text
from firnline.stores.memory import MemoryStore
from firnline.tiered.catalog.format import CatalogHead
from firnline.tiered.catalog.writer import CatalogWriter
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.names import mark_deleted
from tests.unit.tiered.test_tiered_catalog import OTHER, TOPIC, state, write
from tests.worlds.old_catalog import put_old_catalog
from tests.worlds.tier import TOPIC_ID, Cluster, Node

EXAMPLE = Path(__file__).parents[3] / "examples" / "read_tier.py"
DELETED = bytes(15) + b"\x09"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_tier", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_in(store: MemoryStore, directory: Path) -> None:
    for key, data in store.objects.items():
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def expected(store: MemoryStore, topic_id: bytes, partition: int) -> list[str]:
    catalog = read_catalog(store, topic_id, partition)
    assert catalog is not None
    out = []
    for row in catalog.segments:
        least = "?" if row.min_timestamp_ms is None else row.min_timestamp_ms
        objects = " ".join(row.key(suffix) for suffix in row.suffixes)
        times = f"{least}..{row.max_timestamp_ms}"
        fields = (partition, row.base_offset, row.end_offset, times, row.size_bytes, objects)
        out.append("\t".join(map(str, fields)))
    return out


def test_it_is_short_and_imports_nothing_of_the_product() -> None:
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 150
    imports = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {getattr(n, "module", None) or n.names[0].name for n in imports}
    assert "obstore" in names
    assert not [name for name in names if name.startswith("firnline")]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_it_prints_what_a_broker_copied(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abcdef":
        node.produce(0, text)
    node.pass_time(1000)
    put_in(cluster.store, tmp_path)
    example.main(scheme + str(tmp_path), "t")
    printed = capsys.readouterr().out.splitlines()
    assert printed == expected(cluster.store, TOPIC_ID, 0)
    assert len(printed) == 6
    assert "?" not in printed[0]
    for line in printed:
        *_, size, objects = line.split("\t")
        log = next(key for key in objects.split() if key.endswith(".log"))
        assert (tmp_path / log).stat().st_size == int(size)


def a_tier() -> MemoryStore:
    """A topic of two partitions with parts of two levels, a former one of version 1, and a deleted one."""
    store = MemoryStore()
    for topic_id, now_ms in ((OTHER, 1), (DELETED, 2), (TOPIC, 3)):
        begin_catalog(store, topic="t", topic_id=topic_id, partition=0, now_ms=now_ms)
    mark_deleted(store, topic="t", topic_id=DELETED, now_ms=4)
    by = CatalogWriter(topic_id=TOPIC, partition=0, leader_epoch=5, broker_id=1)
    numbers = list(range(1100))
    write(store, by, state(*numbers))
    left = [n for n in numbers if n >= 40 and n != 700]
    write(store, by, state(*left, log_start=405), now_ms=1)
    other = CatalogWriter(topic_id=TOPIC, partition=10, leader_epoch=5, broker_id=1)
    write(store, other, state(1, 2))
    found = read_catalog(store, TOPIC, 0)
    assert found is not None
    head = CatalogHead(*found[:12], parts=(), removed=(), tail=())._replace(topic_id=OTHER)
    put_old_catalog(store, head, found.segments)
    return store


def test_it_tells_present_topics_from_former_and_deleted_ones(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_in(a_tier(), tmp_path)
    example.main(str(tmp_path))
    states = {
        line.split("\t")[1]: line.split("\t")[2] for line in capsys.readouterr().out.splitlines()
    }
    assert states == {
        uuid_text(TOPIC): "present",
        uuid_text(OTHER): "former",
        uuid_text(DELETED): "deleted",
    }


@pytest.mark.parametrize("topic_id", [TOPIC, OTHER])
def test_it_reads_parts_of_all_levels_and_both_versions(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], topic_id: bytes
) -> None:
    store = a_tier()
    put_in(store, tmp_path)
    lines = expected(store, topic_id, 0)
    if topic_id == TOPIC:
        lines += expected(store, TOPIC, 10)
    example.main(str(tmp_path), "t", uuid_text(topic_id))
    assert capsys.readouterr().out.splitlines() == lines
    assert len(lines) > 1000


def test_it_lists_again_where_a_head_is_gone_and_says_it_if_that_does_not_help(
    example: ModuleType, tmp_path: Path
) -> None:
    store = a_tier()
    put_in(store, tmp_path)
    tier = example.Tier(str(tmp_path))
    folder = f"catalog/{uuid_text(TOPIC)}/"
    newest = example.heads(tier, folder)
    gone = newest[0].replace("0000000000000000001.jsonl", "0000000000000000000.jsonl")
    (tmp_path / gone).unlink()
    assert len(example.partition(tier, uuid_text(TOPIC), 0, gone)) == 1059
    (tmp_path / newest[0]).unlink()
    with pytest.raises(FileNotFoundError, match="no listing shows a newer one"):
        example.partition(tier, uuid_text(TOPIC), 0, gone)


@pytest.mark.slow
def test_it_says_how_it_is_called_and_that_there_is_nothing(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Find and print the history")
    example.main(str(tmp_path))
    assert capsys.readouterr().out == "no topic is in this tier\n"


@pytest.mark.parametrize("place", ["heads", "parts"])
def test_it_refuses_a_flipped_bit(example: ModuleType, tmp_path: Path, place: str) -> None:
    store = a_tier()
    put_in(store, tmp_path)
    where = tmp_path / ("parts" if place == "parts" else "catalog") / uuid_text(TOPIC) / "0"
    path = max(p for p in where.rglob("*.jsonl"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError):
        example.main(str(tmp_path), "t")


def test_it_refuses_a_version_that_it_does_not_know(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(a_tier(), tmp_path)
    monkeypatch.setattr(example, "VERSIONS", (1,))
    with pytest.raises(ValueError, match="of a version that this reader knows"):
        example.main(str(tmp_path), "t")
