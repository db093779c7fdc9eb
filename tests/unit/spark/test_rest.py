"""What a read of the tier alone cannot have is said, once, with the command that copies it."""

import json
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import Code, ConfigError, KafkaError
from firnline.base.ids import uuid_text
from firnline.spark.options.parse import BY_LOAD, parse_options
from firnline.spark.planning import rest
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.rest import dev_data_of, end_on_disk
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectStore
from tests.spark.written_tier import WrittenPartition, batch, plan_scan


def said(
    caplog: pytest.LogCaptureFixture,
    store: ObjectStore,
    uri: object = "/memory",
    filters: Filters = Filters(),  # noqa: B008
    **options: Any,
) -> list[str]:
    """What a plan logs about records that are not in the tier, or about topics."""
    caplog.clear()
    given = {"tier.uri": str(uri), "subscribe": "t", **options}
    if "subscribePattern" in options:
        del given["subscribe"]
    plan_scan(store, parse_options(given), filters)
    return caplog.messages


def partition(
    number: int, *parts: bytes, log_end: int | None = None, **more: object
) -> ObjectStore:
    found = WrittenPartition(MemoryStore(), "t", number)
    if parts:
        found.segment(parts)
    found.publish(log_end=log_end)
    return found.store


def test_a_partition_without_a_segment_is_named_with_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = said(caplog, partition(3))
    assert "no segment is in the tier yet, so no record is read partitions=t-3" in line
    assert "`firnline tier flush t`" in line
    assert said(caplog, partition(3, batch(0, 7))) == []


def test_a_catalog_that_knows_of_more_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    store = partition(0, batch(0, 7), log_end=9)
    (line,) = said(caplog, store)
    assert "the newest records, and they are not read partitions=t-0 at_least=2" in line
    assert "`firnline tier flush t`" in line
    # Who names the end does not want the rest.
    ends: list[dict[str, Any]] = [
        {"endingOffsets": '{"t": {"0": 5}}'},
        {"endingTimestamp": "1700000000000"},
    ]
    for options in ends:
        found = said(caplog, store, startingOffsets='{"t": {"0": 0}}', **options)
        assert [line for line in found if "lacks" in line] == []
    assert said(caplog, store, filters=Filters(offsets=((0, 5),)), pushdown=BY_LOAD) == []


def test_a_topic_is_one_line_however_many_partitions_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    for number in range(30):
        WrittenPartition(store, "t", number).publish()
    (line,) = said(caplog, store)
    assert "t-0, t-1, t-2" in line
    assert "and 20 more" in line


@pytest.mark.parametrize("place", [".", "node-2/data"])
def test_the_files_of_dev_beside_the_tier_say_what_is_not_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    tier, log = tmp_path / "tier", tmp_path / "tier-data" / place / "t-0"
    topic_id = bytes([1]) * 16
    log.mkdir(parents=True)
    (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}\n")
    (log / f"{0:020}.log").write_bytes(b"")
    data = dev_data_of(str(tier))
    assert data == tmp_path / "tier-data"
    assert end_on_disk(data, topic_id, "t", 0) == 0
    assert said(caplog, partition(0), tier) == [], "the log is empty, too"
    (log / f"{0:020}.log").write_bytes(b"records")
    assert len(said(caplog, partition(0), tier)) == 1
    store = partition(0, batch(0, 7))
    (log / f"{7:020}.log").write_bytes(b"")
    assert said(caplog, store, tier) == []
    (log / f"{7:020}.log").write_bytes(b"records")
    (line,) = said(caplog, store, tier)
    assert "partitions=t-0 at_least=1" in line
    (log / "partition.metadata").write_text("version: 0\ntopic_id: of-another-topic\n")
    assert said(caplog, store, tier) == []
    assert dev_data_of("s3://bucket/tier") is dev_data_of(str(tmp_path / "other")) is None


@pytest.mark.parametrize("options", [{"subscribe": "t"}, {"subscribePattern": "t"}])
def test_former_topics_of_a_name_are_told_and_the_newest_is_read(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    store = MemoryStore()
    for number in (1, 2):
        one = WrittenPartition(store, "t", number=number)
        one.segment([batch(0, 7)])
        one.publish()
    (line,) = said(caplog, store, **options)
    newest, former = (uuid_text(bytes([number]) * 16) for number in (2, 1))
    assert "count=2 topic=t" in line
    assert f"topic_id={newest}" in line
    assert f"former={former} " in line


def test_an_error_about_a_topic_that_is_not_there_names_the_setting() -> None:
    for store in (MemoryStore(), partition(0, batch(0, 7))):
        with pytest.raises(ConfigError, match=r"remote\.storage\.enable=true"):
            plan_scan(store, parse_options({"tier.uri": "/memory", "subscribe": "other"}))


class _Cluster:
    """Brokers of a cluster with an id, or that do not say it."""

    def __init__(self, cluster_id: str | None) -> None:
        self._id = cluster_id

    def cluster_id(self) -> str:
        if self._id is None:
            raise KafkaError(Code.CLUSTER_AUTHORIZATION_FAILED)
        return self._id


@pytest.mark.parametrize(
    ("tier_of", "cluster_id", "said"),
    [("a", "a", []), ("a", "b", ["tier_of=a"]), (None, "a", ["tier_of=none"]), ("a", None, [])],
)
def test_a_tier_of_another_cluster_is_told_once(
    tier_of: str | None,
    cluster_id: str | None,
    said: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be asked is no reason to refuse a read."""
    monkeypatch.setattr(rest, "_looked_at", set())
    store = MemoryStore()
    if tier_of is not None:
        data = json.dumps({"clusterId": tier_of}).encode()
        store.put("cluster.json", (data,), size_bytes=len(data))
    for _ in range(3):
        rest.warn_of_foreign(store, "/t", _Cluster(cluster_id))  # type: ignore[arg-type]
    assert len(caplog.messages) == len(said)
    assert all(text in line for text, line in zip(said, caplog.messages, strict=True))


def test_an_option_that_acts_is_not_said_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An assignment of nothing has the effect that nothing is read."""
    store = partition(0, batch(0, 3), log_end=3)
    plan_scan(store, parse_options({"tier.uri": "/memory", "assign": "{}"}))
    note = "assign names no partition, so nothing is read"
    assert caplog.messages == [f'note about the options note="{note}"']
