"""`firnline doctor` on a tier whose leaders copy and expire while it looks: nothing is wrong there."""

import contextlib
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from firnline.base.effects import Effect, Submit
from firnline.base.errors import Code, ConfigError
from firnline.base.ids import uuid_text
from firnline.cli import doctor
from firnline.cli.doctor import (
    Starts,
    _look_at_tier,
    _look_at_tier_metadata,
    _Report,
    _tier_status,
)
from firnline.client.admin import Admin
from firnline.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from firnline.protocol.messages.k32001_tier_status import (
    TierStatusPartition,
    TierStatusResponse,
    TierStatusTopic,
)
from firnline.stores.memory import MemoryStore
from firnline.stores.port import CLUSTER_KEY, ObjectInfo, RemoteStorageError
from firnline.tiered.catalog.format import decode_head, encode_head
from firnline.tiered.metadata.log import UNREADABLE
from firnline.tiered.objects.catalog_reader import list_topics
from firnline.tiered.objects.layout import DATA_FOLDER, LOG, HeadName, head_key
from tests.unit.cli.fake_broker import FakeBroker
from tests.worlds.tier import Cluster, Node, topic_config


class Busy(MemoryStore):
    """Something happens right before the segments are listed for the first time."""

    meanwhile: Callable[[], None] | None = None

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        if prefix.startswith(DATA_FOLDER) and self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return super().list_prefix(prefix)


def kinds(store: MemoryStore, starts: Starts | None = None) -> list[str]:
    """What is found; with `starts`, brokers were asked where the only partition begins."""
    report = _Report()
    (topic,) = list_topics(store)
    asked = {} if starts is None else {(uuid_text(topic.topic_id), 0): starts}
    _look_at_tier(store, (), asked, report)
    return [found.kind for found in report.findings]


def forget_the_last(store: MemoryStore) -> int:
    """Write a catalog that lacks the last segment, and return where that begins."""
    (topic,) = list_topics(store)
    name = max(key for key in store.objects if "/heads/" in key)
    head = decode_head(store.objects[name], name)
    *tail, last = head.tail
    shorter = head._replace(sequence=head.sequence + 1, tail=tuple(tail))
    data = encode_head(shorter)
    key = head_key(topic.topic_id, 0, HeadName(shorter.leader_epoch, shorter.sequence))
    store.put(key, (data,), size_bytes=len(data))
    return last.base_offset


def busy() -> tuple[Busy, Node]:
    store = Busy()
    config = topic_config(retention_ms=-1)
    node = Node(Cluster(store=store), config=config).start().lead(0)
    for text in "abcd":
        node.produce(0, text)
    node.pass_time(1000)
    assert kinds(store) == []
    return store, node


def test_segments_that_are_copied_and_expired_meanwhile_are_no_damage() -> None:
    store, node = busy()

    def goes_on() -> None:
        node.produce(0, "e")
        node.log.advance_log_start(2)
        node.pass_time(5000)

    store.meanwhile = goes_on
    assert kinds(store) == []
    assert len(node.segments()) == 3, "nothing went on"


def test_a_copy_that_is_read_back_is_no_damage() -> None:
    store, node = busy()

    def is_publish(effect: Effect) -> bool:
        return not isinstance(effect, Submit) and len(store.list_prefix("data/")) > before

    before = len(store.list_prefix("data/"))
    node.held = is_publish
    node.produce(0, "e")
    node.pass_time(1000)
    assert node.on_hold, "no copy waits for its COPY_FINISHED"
    assert kinds(store) == []
    node.release()


def test_lost_metadata_of_the_last_segment_is_distinguished_from_a_copy_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader has its records no more: it was copied, and nobody copies it again."""
    monkeypatch.setattr(doctor, "_CATALOG_S", 0.2)
    monkeypatch.setattr(doctor, "_LOOK_S", 0.01)
    store, _ = busy()
    base = forget_the_last(store)
    assert kinds(store) == [], "without brokers nobody can know"
    assert kinds(store, Starts(log=0, local=base, reported_s=time.monotonic())) == []
    assert kinds(store, Starts(log=0, local=base + 1, reported_s=time.monotonic())) == [
        "catalog-explains-less"
    ]


def test_a_catalog_that_comes_late_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = busy()
    base = forget_the_last(store)
    late = max(key for key in store.objects if "/heads/" in key)

    monkeypatch.setattr("firnline.cli.doctor.time.sleep", lambda _: store.delete(late))
    assert kinds(store, Starts(log=0, local=base + 1, reported_s=time.monotonic())) == []


def test_a_tier_of_many_such_partitions_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaders said it at one time: a catalog that is late by then is not waited for anew each time."""
    store, _ = busy()
    base = forget_the_last(store)
    waits: list[float] = []
    monkeypatch.setattr("firnline.cli.doctor.time.sleep", waits.append)
    reported_s = time.monotonic() - doctor._CATALOG_S
    assert kinds(store, Starts(log=0, local=base + 1, reported_s=reported_s)) == [
        "catalog-explains-less"
    ]
    assert waits == []


def test_what_stays_wrong_is_reported() -> None:
    store, _ = busy()
    [first, *_] = [key for key in store.objects if key.endswith(LOG)]
    data = store.objects[first]
    store.delete(first)
    assert kinds(store) == ["object-missing"]
    store.put(first, (data,), size_bytes=len(data))
    for base in (7, 9):
        key = first.replace(f"{0:020d}", f"{base:020d}")
        store.put(key, (data,), size_bytes=len(data))
    assert kinds(store) == ["catalog-explains-less"]


def found_at(*answers: TierStatusResponse) -> list[tuple[str, str]]:
    """What is found of the tier's metadata where each of some brokers has one answer."""
    report = _Report()
    brokers = [FakeBroker({32001: lambda _, said=said: said}) for said in answers]
    hosts = [
        MetadataResponseBroker(node_id=number, host="127.0.0.1", port=each.port)
        for number, each in enumerate(brokers)
    ]
    brokers[0].answers[3] = lambda _: MetadataResponse(brokers=hosts, topics=[])
    with contextlib.ExitStack() as stack:
        for each in brokers:
            stack.enter_context(each)
        with Admin(brokers[0].address) as admin:
            _look_at_tier_metadata(_tier_status(admin, {}, report), (), report)
    return [(found.kind, found.where) for found in report.findings]


def test_a_broker_that_cannot_say_hides_nothing_of_what_others_say() -> None:
    """One without a tier, or one that fails, kept the question from all that came after it."""
    part = TierStatusPartition(partition=3, state="failing", problem=f"{UNREADABLE}: because")
    topic = TierStatusTopic(name="t", topic_id=bytes(16), partitions=[part])
    reported = TierStatusResponse(topics=[topic])
    without = TierStatusResponse(error_code=Code.INVALID_CONFIG, error_message="no tier")
    failed = TierStatusResponse(error_code=Code.KAFKA_STORAGE_ERROR)
    unreadable = ("tier-metadata-unreadable", "t-3")
    assert found_at(without) == []
    assert found_at(without, reported) == [unreadable]
    assert found_at(failed, reported, without) == [("not-asked", "broker 0"), unreadable]


# ------------------------------------------------------------------------------------- which store it is

NOWHERE = ("-X", "rsm.config.store.endpoint=http://127.0.0.1:1", "-X", "rsm.config.store.region=x")


def test_a_uri_names_a_store_and_no_path_of_this_machine() -> None:
    """s3://... was looked for among the files: "no such tier directory [path=/home/me/s3:/...]"."""
    more = ("-X", "rsm.config.store.access_key_id=me", "-X", "rsm.config.store.max_retries=0")
    secret = ("-X", "rsm.config.store.secret_access_key=hunter2-hunter2")
    done = CliRunner().invoke(doctor.command, ["--tier", "s3://b/tier", *NOWHERE, *more, *secret])
    assert isinstance(done.exception, RemoteStorageError)
    assert "cannot read from the tier [tier=s3://b/tier key=cluster.json" in str(done.exception)
    assert "hunter2" not in str(done.exception)
    done = CliRunner().invoke(doctor.command, ["--tier", "ftp://b/tier"])
    assert "no store for ftp:// is built in" in str(done.exception)
    assert CliRunner().invoke(doctor.command, [*NOWHERE]).exit_code == 2


def test_a_prefix_without_a_tier_is_not_a_tier_where_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(doctor, "open_store", lambda uri, settings, *, is_writer: store)
    done = CliRunner().invoke(doctor.command, ["--tier", "s3://b/typo"])
    assert isinstance(done.exception, ConfigError)
    assert "there is no tier at s3://b/typo" in str(done.exception)
    store.put(CLUSTER_KEY, (b"{}",), size_bytes=2)
    assert CliRunner().invoke(doctor.command, ["--tier", "s3://b/typo"]).exit_code == 0
    old, _ = busy()
    assert CLUSTER_KEY not in old.objects
    old.delete(next(key for key in old.objects if key.endswith(LOG)))
    monkeypatch.setattr(doctor, "open_store", lambda uri, settings, *, is_writer: old)
    done = CliRunner().invoke(doctor.command, ["--tier", "s3://b/old"])
    assert done.exit_code == 3
    assert "object-missing" in done.output
