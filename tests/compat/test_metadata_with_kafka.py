"""Metadata moves both ways: Kafka's tools and Kafka itself run on what we wrote, and we on what it wrote."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firnline.base.errors import ConfigError
from firnline.base.ids import OffsetAndEpoch, uuid_from_text
from firnline.cli.main import cli
from firnline.config.broker import BrokerConfig
from firnline.controller.brokers import Heartbeat, Registration
from firnline.controller.configs import Alteration, AlterOp
from firnline.controller.controller import Controller
from firnline.controller.topics import NewPartitions, NewTopic
from firnline.log.checkpoint import read_cluster_id, read_meta_properties
from firnline.metadata import records as r
from firnline.metadata.features import SUPPORTED
from firnline.metadata.format import format_storage
from firnline.metadata.image import ConfigResource, ControllerImage, Endpoint, ResourceType
from firnline.metadata.loader import Loader
from firnline.metadata.meta_log import QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import (
    Snapshot,
    snapshot_batches,
    snapshot_name,
    write_snapshot,
)
from firnline.protocol.schema import Struct
from firnline.raft.voters import parse_voters
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.disk import RealFs
from firnline.runtime.rng import SystemRng
from firnline.spark.tables.record_facts import HIDDEN
from tests.metadata_stories import Life
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports
from tests.worlds.chance import CountingRng
from tests.worlds.decoded import image_records
from tests.worlds.effects import kept
from tests.worlds.quorum import Loop, broker_config, snapshot_bytes

pytestmark = pytest.mark.peer
KINDS = {re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).upper(): kind for kind in r.TYPES.values()}
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAg"
NOT_OURS = ("eligible.leader.replicas", "group", "share", "streams", "transaction")
AT_ZERO = [word for name in NOT_OURS for word in ("--feature", f"{name}.version=0")]


class Ours:
    """A quorum of one of ours on a real disk, in the process of the test."""

    def __init__(self, config: BrokerConfig) -> None:
        self.loop, self.config = Loop(), config
        self.loop.now_ms = 1_700_000_000_000
        fs, voters = RealFs(), parse_voters(config.controller_quorum_voters)
        self.log = open_meta_log(fs, config, now_ms=self.loop.now_ms)
        directory = f"{config.metadata_directory}/__cluster_metadata-0"
        self.quorum = MetadataQuorum(
            node_id=config.node_id,
            voters=voters,
            log=self.log,
            cluster_id=CLUSTER,
            directory_id=bytes(16),
            rng=CountingRng(1_001),
            elections=QuorumStateFile(fs, directory, voters.node_ids),
            idle_interval_ms=500,
        )
        self.controller = Controller(config=config, rng=SystemRng(), metadata=self.quorum)
        self.loop.run(self.quorum.start(self.loop.now_ms))
        self.sync()

    def sync(self) -> None:
        self.loop.sync()

    def write(self, result: ControllerResult[Any]) -> Any:
        answers: list[Any] = []
        self.loop.run(self.quorum.write(result, kept(answers), self.loop.now_ms))
        self.sync()
        return answers[0]

    def heartbeat(self, **wants: Any) -> Any:
        image = self.quorum.image
        heartbeat = Heartbeat(1, image.brokers[1].epoch, image.offset, **wants)
        return self.write(self.controller.heartbeat(heartbeat, self.loop.now_ms))

    def join(self, **options: bool) -> None:
        """Register broker 1 and let it serve."""
        identity = read_meta_properties(RealFs(), self.config.metadata_directory)
        assert identity is not None
        wanted = Registration(
            1,
            SystemRng().uuid(),
            (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
            SUPPORTED,
            "rack-1",
            (uuid_from_text(identity["directory.id"]),),
        )
        registered = self.controller.register_broker(wanted, self.loop.now_ms, **options)
        assert isinstance(self.write(registered), int)
        assert not self.heartbeat().is_fenced

    def live(self) -> None:
        """Every kind of decision there is, written."""
        write, controller = self.write, self.controller
        write(
            controller.register_controller(
                ControllerImage(1, SystemRng().uuid(), (Endpoint("CONTROLLER", "h", 1),), SUPPORTED)
            )
        )
        self.join()
        settings = {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
        topics = [
            NewTopic("moved", 3, 1, configs=settings),
            NewTopic("grown", 1, 1),
            NewTopic("gone", 1, 1),
        ]
        write(controller.create_topics(topics))
        write(controller.create_partitions([NewPartitions("grown", 4)]))
        write(controller.delete_topics(["gone"]))
        changes = [Alteration("segment.ms", AlterOp.SET, "77777")]
        write(controller.incremental_alter_configs([(ConfigResource(2, "grown"), changes)]))
        changes = [Alteration("log.retention.ms", AlterOp.SET, "55555")]
        write(controller.incremental_alter_configs([(ConfigResource(4, ""), changes)]))
        epoch = self.quorum.image.brokers[1].epoch
        write(controller.allocate_producer_ids(broker_id=1, broker_epoch=epoch))
        self.loop.fire(("metadata", "idle"))
        self.loop.fire(("metadata", "idle"))
        self.sync()
        while not self.heartbeat(want_shut_down=True).should_shut_down:
            pass

    def close(self) -> None:
        self.quorum.close()
        self.log.close()


def formatted(directory: Path, **settings: str) -> BrokerConfig:
    config = broker_config(log_dirs=str(directory), **settings)
    format_storage(RealFs(), config, cluster_id=CLUSTER, rng=SystemRng(), now_ms=1_700_000_000_000)
    return config


def dumped(path: Path) -> list[dict[str, Any]]:
    """The records Kafka's DumpLogSegments finds; it complains about nothing."""
    text = kafka.tool("dump", str(path), "--cluster-metadata-decoder")
    for complaint in ("isvalid: false", "Error", "error", "Could not", "corrupt", "Exception"):
        assert complaint not in text, text
    return [json.loads(found) for found in re.findall(r"payload: (\{.*\})", text)]


def assert_dumped_alike(path: Path) -> int:
    """Our dump of a file has the records that Kafka's dump tool finds, field by field; return how many."""
    theirs = dumped(path)
    outcome = CliRunner().invoke(cli, ["dump", str(path), "--format", "json"])
    assert outcome.exit_code == 0, outcome.output
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    ours = [row for row in rows if "type" in row]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        kind = KINDS[other["type"]]
        assert (mine["type"], mine["version"]) == (kind.__name__, other["version"])
        expected = as_ours(other["data"], kind)
        if kind is r.ConfigRecord and expected["resource_type"] == ResourceType.BROKER:
            expected["value"] = mine["value"]["value"]  # what may be a secret is hidden
        assert mine["value"] == expected
    return len(ours)


def as_ours(data: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """Kafka's JSON of a record under our names, with our spelling of bytes, and without secrets."""
    fields: dict[str, Any] = {}
    for name, field in kind.fields.items():
        spelled = field.kafka_name or "".join(part.capitalize() for part in name.split("_"))
        spelled = spelled[0].lower() + spelled[1:]
        if spelled not in data:
            continue
        item, inner = data[spelled], field.kind
        if isinstance(inner, list) and isinstance(inner[0], type) and item is not None:
            fields[name] = [as_ours(each, inner[0]) for each in item]
        elif inner == "bytes":
            fields[name] = HIDDEN  # credentials are the only bytes there are
        else:
            fields[name] = item
    assert len(fields) == len(data), (fields, data)
    return fields


def test_our_dump_shows_what_kafkas_shows_of_every_record_type(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    kinds = set()
    for seed, level in ((1, 30), (2, 30), (3, 17), (4, 8)):
        life = Life(seed, level).write(250)
        loader, offset, batches = Loader(), 0, []
        for values in life.encoded():
            rows = [NewRecord(None, value, 1_700_000_000_000) for value in values]
            batches.append(bytes(build_batch(rows, base_offset=offset, leader_epoch=5)))
            offset += len(rows)
        loader.apply(b"".join(batches))
        log = directory / f"{0:020d}.log"
        log.write_bytes(b"".join(batches))
        assert assert_dumped_alike(log) == offset
        kinds |= {type(record) for batch in life.batches for record in batch}
        image = loader.image()
        content = Snapshot(1_700_000_000_000, list(image_records(image)), 0)
        data = snapshot_bytes(content, 5, metadata_version=level)
        snapshot = directory / snapshot_name(OffsetAndEpoch(image.offset + 1, 5))
        snapshot.write_bytes(data)
        assert assert_dumped_alike(snapshot) == len(content.records)
    assert kinds == set(r.TYPES.values())


def types_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["type"] for row in rows]


def test_kafka_reads_our_log_our_bootstrap_and_our_snapshot(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    ours = Ours(config)
    ours.live()
    image = ours.quorum.image
    ours.close()

    (bootstrap,) = dumped(tmp_path / "bootstrap.checkpoint")
    assert bootstrap["data"] == {"name": "metadata.version", "featureLevel": 30}

    rows = dumped(tmp_path / "__cluster_metadata-0" / "00000000000000000000.log")
    kinds = types_of(rows)
    assert kinds[:3] == [
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "END_TRANSACTION_RECORD",
    ]
    assert set(kinds[3:]) == {
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "CONFIG_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
        "NO_OP_RECORD",
    }
    broker = next(row for row in rows if row["type"] == "REGISTER_BROKER_RECORD")
    assert broker["version"] == 4
    assert broker["data"]["brokerEpoch"] == image.brokers[1].epoch
    assert broker["data"]["endPoints"][0]["host"] == "127.0.0.1"
    made = [row["data"]["name"] for row in rows if row["type"] == "TOPIC_RECORD"]
    assert made == ["moved", "grown", "gone"]

    batches = snapshot_batches(
        image_records(image), epoch=1, metadata_version=30, last_contained_ms=1, now_ms=1
    )
    name = snapshot_name(OffsetAndEpoch(image.offset + 1, 1))
    write_snapshot(RealFs(), str(tmp_path), name, batches)
    rows = dumped(tmp_path / name)
    assert len(rows) == len(list(image_records(image)))
    assert types_of(rows).count("PARTITION_RECORD") == 7


def test_kafkas_storage_tool_knows_our_directory_as_formatted(tmp_path: Path) -> None:
    formatted(tmp_path / "data")
    properties = tmp_path / "server.properties"
    rows = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "log.dirs": str(tmp_path / "data"),
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    reported = kafka.tool("storage", "info", "-c", str(properties))
    assert f"cluster.id={CLUSTER}" in reported.replace(" ", "") or CLUSTER in reported
    assert "problem" not in reported.lower()
    again = kafka.tool(
        "storage", "format", "-t", CLUSTER, "-c", str(properties), "--ignore-formatted"
    )
    assert "already formatted" in again


def test_a_directory_kafka_formatted_is_ours_to_run(tmp_path: Path) -> None:
    """With all features at 0; as Kafka formats by default it is refused with the way out (I33)."""
    properties = tmp_path / "server.properties"
    for name, flags in (("zero", AT_ZERO), ("default", [])):
        data = tmp_path / name
        config = broker_config(log_dirs=str(data))
        rows = {**config.stated, "log.dirs": str(data)}
        properties.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        kafka.tool("storage", "format", "-t", CLUSTER, "-c", str(properties), *flags)
        assert read_cluster_id(RealFs(), str(data)) == CLUSTER
        if name == "zero":
            ours = Ours(config)
            ours.live()
            assert ours.quorum.image.metadata_version == 30
            ours.close()
        else:
            with pytest.raises(ConfigError, match=r"downgrade .*--feature group\.version=0"):
                Ours(config)


def a_peer_on_our_data(base: Path) -> tuple[kafka.Cluster, BrokerConfig]:
    """Write metadata with our own code where Kafka will look for its node 1, then start Kafka."""
    ports = free_ports(2)
    clients, controller = ports
    config = formatted(
        base / "node-1" / "data",
        controller_quorum_voters=f"1@127.0.0.1:{controller}",
        listeners=f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
    )
    ours = Ours(config)
    ours.live()
    ours.close()
    known = {"cluster_id": CLUSTER, "ports": [ports], "pids": []}
    (base / "peer.json").write_text(json.dumps(known))
    # A snapshot after every few records: we are to read those too.
    between = {"metadata.log.max.record.bytes.between.snapshots": 300}
    return kafka.start(base, settings=between), config


def describe_when_led(*at: str) -> str:
    """Return what Kafka's tool says of all topics when each partition has a leader."""

    def look() -> str:
        reported = kafka.tool("topics", "--describe", *at)
        return reported if "Topic: " in reported and "Leader: none" not in reported else ""

    return str(eventually("all partitions are led", look, within_s=90))


def test_a_cluster_moves_to_kafka_and_back(tmp_path: Path) -> None:
    """Goal: neither move loses a topic, a setting or an id.
    Method: our controller makes a cluster; Kafka runs on its directory and changes it; ours runs again."""
    peer, config = a_peer_on_our_data(tmp_path)
    with peer:
        at = ("--bootstrap-server", peer.bootstrap)
        reported = describe_when_led(*at)
        assert re.search(r"Topic: moved\b.*PartitionCount: 3\b", reported)
        assert re.search(r"Topic: grown\b.*PartitionCount: 4\b", reported)
        assert "Topic: gone" not in reported
        shown = kafka.tool("configs", "--describe", "--topic", "moved", *at)
        assert "retention.ms=1000" in shown
        assert "cleanup.policy=compact,delete" in shown
        kafka.tool("topics", "--create", "--topic", "of-kafka", "--partitions", "2", *at)
        kafka.tool("topics", "--delete", "--topic", "grown", *at)
        entity = ("--entity-type", "users", "--entity-name", "u")
        quota = ("--alter", "--add-config", "producer_byte_rate=1000")
        kafka.tool("configs", *at, *entity, *quota)
        scram = ("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
        kafka.tool("configs", *at, *entity, *scram)
        change = ("--alter", "--add-config", "retention.ms=2000")
        kafka.tool("configs", *at, "--topic", "moved", *change)
    snapshots = sorted((tmp_path / "node-1/data/__cluster_metadata-0").glob("*.checkpoint"))
    assert snapshots, "Kafka wrote no snapshot; the test lost its point"
    for written in (*snapshots[-2:], snapshots[0].parent / f"{0:020d}.log"):
        if written.exists():
            assert assert_dumped_alike(written) > 0

    ours = Ours(config)
    image = ours.quorum.image
    assert sorted(image.topics_by_name) == ["moved", "of-kafka"]
    assert {name: len(t.partitions) for name, t in image.topics_by_name.items()} == {
        "moved": 3,
        "of-kafka": 2,
    }
    assert dict(image.topic_config_overrides("moved")) == {
        "retention.ms": "2000",
        "cleanup.policy": "compact,delete",
    }
    assert dict(image.config(4, "")) == {"log.retention.ms": "55555"}
    kept = {type(record) for record in image.kept.values()}
    assert kept == {r.ClientQuotaRecord, r.UserScramCredentialRecord}
    assert image.brokers[1].fenced  # Kafka stopped in order
    assert image.next_producer_id >= 1000
    ours.join(replaces_dead_incarnation=False)
    leaders = [
        partition.leader
        for topic in ours.quorum.image.topics_by_name.values()
        for partition in topic.partitions.values()
    ]
    assert leaders == [1] * 5
    ours.close()
