"""Whose tier it is: bound at first use, asked at each start and by each leader."""

import json
import threading
from typing import Any

import pytest

from firnline.stores.directory import DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.stores.port import CLUSTER_KEY, RemoteStorageError, StoreRefused
from firnline.stores.registry import enclosing
from firnline.tiered.objects import storage as module
from firnline.tiered.objects.binding import Binding, WrongTier, bind, binding_text, check_bound
from firnline.tiered.objects.storage import CLUSTER_ID, URI, ObjectStorage
from tests.worlds.tier import Cluster, Node

OURS = Binding("ours", is_in_use=False, uri="/tier")
USED = Binding("ours", is_in_use=True, uri="/tier")


def put(store: MemoryStore, key: str, text: str) -> None:
    store.put(key, (text.encode(),), size_bytes=len(text))


def test_the_first_use_binds_and_later_ones_find_it() -> None:
    store = MemoryStore()
    bind(store, OURS)
    assert json.loads(store.objects[CLUSTER_KEY]) == {
        "firnline": "tier",
        "version": 1,
        "clusterId": "ours",
    }
    before = dict(store.objects)
    bind(store, USED)
    check_bound(store, "ours")
    assert store.objects == before


def test_another_clusters_is_refused_by_both_names() -> None:
    store = MemoryStore()
    bind(store, Binding("theirs", is_in_use=False, uri="/tier"))
    with pytest.raises(WrongTier, match=r"another cluster .*/tier.*found=theirs expected=ours"):
        bind(store, OURS)
    with pytest.raises(WrongTier, match="another cluster"):
        check_bound(store, "ours")


def test_an_empty_one_is_refused_by_who_has_used_a_tier() -> None:
    store = MemoryStore()
    with pytest.raises(WrongTier, match="the tier is empty") as said:
        bind(store, USED)
    assert store.objects == {}
    assert binding_text("ours") in str(said.value)
    put(store, CLUSTER_KEY, binding_text("ours"))
    bind(store, USED)


@pytest.mark.parametrize("key", ["data/t/0/x.log", "names/t/1.live", "catalog/t/0/heads/x.jsonl"])
def test_one_that_an_earlier_release_used_is_taken_over(key: str) -> None:
    store = MemoryStore()
    put(store, key, "x")
    bind(store, USED)
    check_bound(store, "ours")


@pytest.mark.parametrize("text", ["", "{}", "[]", "ours", '{"clusterId":"ours","version":"x"}'])
def test_a_damaged_object_is_refused_with_what_it_should_say(text: str) -> None:
    store = MemoryStore()
    put(store, CLUSTER_KEY, text)
    with pytest.raises(WrongTier, match="damaged") as said:
        bind(store, OURS)
    assert binding_text("ours") in str(said.value)


def test_one_of_a_newer_release_is_not_touched() -> None:
    store = MemoryStore()
    put(store, CLUSTER_KEY, '{"firnline":"tier","version":2,"clusterId":"ours"}')
    with pytest.raises(RemoteStorageError, match="newer"):
        bind(store, OURS)


def test_a_store_that_does_not_answer_at_start_is_asked_by_the_first_leader(tmp_path: Any) -> None:
    """An outage of the tier does not keep brokers from starting (T42)."""

    class Down(MemoryStore):
        is_down = True

        def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
            if self.is_down:
                raise RemoteStorageError("no answer")
            return super().get(key, position, size_bytes)

    store = Down()
    storage = ObjectStorage(store)
    storage.configure({CLUSTER_ID: "ours"})
    cluster = Cluster(store=store)
    node = Node(cluster).start()
    node.tier.services.check_owner = storage.check_owner
    node.lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    assert store.objects == {}
    store.is_down = False
    node.pass_time(60_000)
    assert len(node.warnings) == 1
    assert "no answer" in node.warnings[0]
    assert len(node.segments()) == 1
    check_bound(store, "ours")
    opened = ObjectStorage()
    opened.configure({URI: str(tmp_path / "tier"), CLUSTER_ID: "ours"})
    assert isinstance(opened.store, DirectoryStore)
    check_bound(opened.store, "ours")


def test_a_store_that_hangs_at_start_does_not_hold_up_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first answer came after 30 s, the deadline of a request; clients waited for that long."""

    class Hanging(MemoryStore):
        answers = threading.Event()

        def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
            assert self.answers.wait(60)
            return super().get(key, position, size_bytes)

    assert module.START_S <= 5
    monkeypatch.setattr(module, "START_S", 0.1)
    storage = ObjectStorage(Hanging())
    storage.configure({CLUSTER_ID: "ours"})
    assert "has not answered within 0.1 s" in str(storage.problem)
    Hanging.answers.set()
    storage.check_owner()
    check_bound(storage.store, "ours")


def test_a_store_that_lost_its_owner_is_written_to_no_more() -> None:
    """It was emptied, or another file system mounted, under brokers that run."""
    cluster = Cluster()
    bind(cluster.store, Binding("ours", is_in_use=False, uri=""))
    node = Node(cluster).start()
    bound = ObjectStorage(cluster.store)
    bound.configure({CLUSTER_ID: "ours"})
    node.tier.services.check_owner = bound.check_owner
    node.lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    assert len(node.segments()) == 1
    cluster.store.objects.clear()
    cluster.store.show()
    node.lead(1)
    node.produce(1, "b")
    node.pass_time(60_000)
    assert cluster.store.objects == {}
    [line] = node.warnings
    assert "the tier has lost cluster.json" in line
    problem = node.tier.status()[0].problem
    assert problem is not None
    assert "cluster.json" in problem
    bind(cluster.store, Binding("theirs", is_in_use=False, uri=""))
    node.pass_time(60_000)
    assert list(cluster.store.objects) == [CLUSTER_KEY]
    assert "belongs to another cluster" in node.warnings[-1]


# ------------------------------------------------------------------------------------- a tier within a tier


def nested(owner: str | None) -> tuple[MemoryStore, Binding]:
    """Return the store of a prefix, and what binds ours below it."""
    outer = MemoryStore()
    if owner is not None:
        put(outer, CLUSTER_KEY, owner)
    return outer, OURS._replace(uri="s3://b/audit/sub", above=lambda: [("s3://b/audit", outer)])


def test_a_tier_below_that_of_another_cluster_is_refused_before_it_is_bound() -> None:
    """s3://b/audit/sub was accepted beside s3://b/audit of another cluster."""
    _, binding = nested(binding_text("theirs"))
    store = MemoryStore()
    with pytest.raises(WrongTier, match=r"within that of another cluster .*within=s3://b/audit "):
        bind(store, binding)
    assert store.objects == {}


@pytest.mark.parametrize("text", [None, binding_text("ours"), "no JSON", "[]", '{"name":"x"}'])
def test_a_tier_below_anything_else_is_bound(text: str | None) -> None:
    _, binding = nested(text)
    store = MemoryStore()
    bind(store, binding)
    check_bound(store, "ours")


def test_a_prefix_above_that_is_kept_from_us_is_not_checked_and_one_that_fails_is_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outer, binding = nested(None)
    problem: Exception = RemoteStorageError("503")

    def fail(key: str) -> bytes:
        raise problem

    monkeypatch.setattr(outer, "get", fail)
    store = MemoryStore()
    with pytest.raises(RemoteStorageError, match="503"):
        bind(store, binding)
    assert store.objects == {}
    problem = StoreRefused("403")
    bind(store, binding)
    # One that is bound stays so, and is not asked about again.
    problem = RemoteStorageError("503")
    bind(store, binding)


def test_the_prefixes_above_a_uri_are_those_that_could_be_tiers() -> None:
    assert enclosing("s3://b/audit/sub/") == ["s3://b/audit", "s3://b"]
    assert enclosing("az://c/p") == ["az://c"]
    assert enclosing("s3://b") == enclosing("/srv/tier") == enclosing("file:///srv/tier") == []
    assert enclosing("hdfs://h:1/a/b") == ["hdfs://h:1/a"]
    assert enclosing("hdfs://h:1/a") == []
