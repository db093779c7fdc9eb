"""A tier of an earlier release, without owner or fingerprints: taken over, read and expired as before."""

import struct
from typing import Any

from firnline.base.errors import KafkaError
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.sim.disk import CrashableFs
from firnline.tiered.objects.binding import check_bound
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.storage import CLUSTER_ID, IN_USE, ObjectStorage
from tests.worlds.tier import TOPIC_ID, Cluster, Node, topic_config

RETENTION_MS = 600_000
ENTRY = struct.Struct(">ii")  # of an offset index: the last offset of a batch, and its position
PRODUCER = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


def marker(node: Node, epoch: int) -> None:
    row = NewRecord(encode_key(ControlType.ABORT), bytes(6), node.cluster.now_ms)
    node.log.append_as_leader(
        build_batch([row], is_control=True, **PRODUCER),  # type: ignore[arg-type]
        leader_epoch=epoch, now_ms=node.cluster.now_ms, origin="coordinator",
    )  # fmt: skip


def written_by_an_earlier_release(cluster: Cluster) -> Node:
    node = Node(cluster, config=topic_config(retention_ms=RETENTION_MS)).start()
    copy = node.storage.copy_segment

    def without(segment: Any, data: Any) -> None:
        copy(segment, data._replace(fingerprint=None))

    node.storage.copy_segment = without  # type: ignore[method-assign]
    node.lead(0)
    kinds: Any = PRODUCER
    for number in range(3):
        node.produce(0, "begins", roll=number % 2 == 0, base_sequence=number, **kinds)
        marker(node, 0)
        node.produce(0, *"abc")
    node.pass_time(1000)
    node.expire_local()
    assert all(s.custom_metadata is None for s in node.segments())
    return node


def test_a_tier_of_an_earlier_release_is_taken_over_read_and_expired() -> None:
    cluster = Cluster()
    old = written_by_an_earlier_release(cluster)
    said = old.read_all()
    spans = [(s.base_offset, s.end_offset) for s in old.segments()]
    node = Node(cluster, fs=old.crash(), config=old.config, rng=old.rng).start()
    storage = ObjectStorage(cluster.store)
    storage.configure({CLUSTER_ID: "ours", IN_USE: "true"})
    check_bound(cluster.store, "ours")
    node.tier.services.check_owner = storage.check_owner
    node.lead(1)
    node.produce(1, "new")
    node.pass_time(5000)
    node.expire_local()
    assert node.warnings == []
    assert node.tier.status()[0].problem is None
    found = node.read_all()
    assert {offset: found[offset] for offset in said} == said
    for offset in said:
        if offset < node.log.local_log_start_offset:
            seen = node.read(offset, max_bytes=1, isolation=1)
            assert not isinstance(seen, KafkaError)
    aborted = {(t.producer_id, t.first_offset) for t in node.read(0, isolation=1).aborted}
    assert (7, 0) in aborted
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert [(s.base_offset, s.end_offset) for s in catalog.segments][: len(spans)] == spans
    assert [s.fingerprint is None for s in catalog.segments] == [True] * len(spans) + [False]
    node.pass_time(RETENTION_MS + 20_000)
    assert node.log.log_start_offset > spans[-1][1]
    assert [k for k in cluster.store.objects if k.endswith(".log")] == []


def test_an_index_of_an_earlier_release_that_leads_astray_costs_time_and_no_record() -> None:
    """Nothing vouches for it: it is believed where it can be right, until a batch says otherwise."""
    cluster = Cluster()
    node = written_by_an_earlier_release(cluster)
    said = node.read_all()
    for key in [key for key in cluster.store.objects if key.endswith(".index")]:
        entries = ENTRY.iter_unpack(cluster.store.objects[key])
        cluster.store.objects[key] = b"".join(ENTRY.pack(last, at - 1) for last, at in entries)
    fresh = Node(cluster, fs=CrashableFs(), config=node.config)
    fresh.log = node.log
    fresh.start().role(is_leader=True, epoch=0)
    fresh.pass_time(1000)
    for offset in (offset for offset in said if offset < node.log.local_log_start_offset):
        found = fresh.read(offset, max_bytes=1)
        assert not isinstance(found, KafkaError)
        assert bytes(found.records) == said[offset]
