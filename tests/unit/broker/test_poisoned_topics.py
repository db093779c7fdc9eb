"""A stored record never stops a start: whole nodes, whose own topics hold anything. See decision 0025."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.effects import Appended
from firnline.base.errors import StorageError
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.stores.memory import MemoryStore
from tests.raw_batches import GZIP, raw_batch
from tests.unit.server.test_metrics import scrape, shown
from tests.worlds.harness import Harness

GROUPS, TIER, METADATA = "__consumer_offsets", "__remote_log_metadata", "__cluster_metadata"
GARBAGE = raw_batch(b"this is not gzip", codec=GZIP)
ANY = st.one_of(
    st.builds(raw_batch, st.binary(max_size=40), codec=st.integers(0, 7), count=st.integers(1, 5)),
    st.builds(
        lambda key, value: build_batch([NewRecord(key, value, 1)]),
        st.one_of(st.none(), st.binary(max_size=20)),
        st.one_of(st.none(), st.binary(max_size=60)),
    ),
)


def made() -> tuple[Harness, MemoryStore]:
    store = MemoryStore()
    harness = Harness(store=store)
    harness.create_topic(remote_storage_enable="true")
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.produced("kept")
    return harness, store


def put(harness: Harness, topic: str, batch: bytearray) -> None:
    """Append to every partition of a topic as its leader would, whatever is in the batch."""
    for (name, _), partition in list(harness.node.partitions.items()):
        if name == topic:
            done = partition.log.append_as_leader(
                bytearray(batch),
                leader_epoch=partition.leader_epoch,
                now_ms=harness.now_ms,
                origin="coordinator",
            )
            assert isinstance(done, Appended), done
            partition.log.sync_now()


def again(harness: Harness, store: MemoryStore) -> Harness:
    return Harness(harness.cut_power(keep="all"), store=store, now_ms=harness.now_ms)


@pytest.mark.parametrize("topic", [GROUPS, TIER])
def test_a_start_names_what_nobody_can_read_and_serves_all_else(topic: str) -> None:
    harness, store = made()
    put(harness, topic, GARBAGE)
    fresh = again(harness, store)
    fresh.pass_time(5_000)
    assert fresh.node.is_ready
    assert fresh.values() == ["kept"]
    assert fresh.produced("more").error_code == 0
    partitions = [name for name, _ in fresh.node.partitions if name == topic]
    named = [line for line in fresh.warnings if "cannot be read" in line]
    assert len(named) == len(partitions)
    assert all(f"topic={topic} partition=" in line and " offset=0 " in line for line in named)
    with shown(fresh) as exporter:
        found = scrape(exporter)
    assert found["firnline_unreadable_records", topic] == len(partitions)
    raised = fresh.ask(ClusterStatusRequest(topics=[]), 0).unreadable
    assert [(row.topic, row.records) for row in raised] == [(topic, len(partitions))]


@given(st.sampled_from([GROUPS, TIER]), st.lists(ANY, min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_no_stored_bytes_stop_a_node_or_its_next_start(
    topic: str, batches: list[bytearray]
) -> None:
    harness, store = made()
    for batch in batches:
        put(harness, topic, batch)
        harness.pass_time(1_500)
    assert harness.produced("while it runs").error_code == 0
    fresh = again(harness, store)
    fresh.pass_time(5_000)
    assert fresh.node.is_ready
    assert fresh.values() == ["kept", "while it runs"]
    assert fresh.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators


@given(ANY)
@settings(max_examples=15, deadline=None)
def test_metadata_that_cannot_be_read_stops_its_node_in_words(batch: bytearray) -> None:
    """An image must not fork: who cannot act on a committed record of it goes no further."""
    harness, store = made()
    fs = harness.cut_power(keep="all")
    [path] = [
        f"/data/{METADATA}-0/{name}"
        for name in fs.list_dir(f"/data/{METADATA}-0")
        if name.endswith(".log")
    ]
    file = fs.open(path)
    *_, last = headers(file.read(0, file.size()))
    count = int.from_bytes(batch[57:61], "big")
    data = bytearray(batch)
    data[:8] = last.next_offset.to_bytes(8, "big")
    data[12:16] = last.leader_epoch.to_bytes(4, "big")
    assert count > 0
    file.append(bytes(data))
    file.close()
    with pytest.raises(StorageError, match="what this release cannot act on") as raised:
        Harness(fs, store=store, now_ms=harness.now_ms)
    assert f"offset={last.next_offset}" in str(raised.value)
