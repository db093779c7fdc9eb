"""Directories are formatted as Kafka formats them, once, and never for another cluster."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from firnline.base.errors import ConfigError
from firnline.base.ids import uuid_from_text
from firnline.cli.dev import dev_config
from firnline.cli.main import cli
from firnline.log.checkpoint import read_meta_properties
from firnline.metadata.records import FeatureLevelRecord
from firnline.metadata.snapshot_file import BOOTSTRAP, read_snapshot
from firnline.runtime.disk import RealFs

CLUSTER = "GAgylB1ZStCq5tdd0k9W0g"


def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=7@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nmetadata.log.dir={tmp_path}/meta\n"
    )
    return path


def run_format(tmp_path: Path, *more: str) -> str:
    arguments = ["storage", "format", "-t", CLUSTER, "-c", str(properties(tmp_path)), *more]
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_directory_gets_its_own_id_and_the_same_cluster(tmp_path: Path) -> None:
    said = run_format(tmp_path)
    assert said.count("with metadata.version 4.3-IV0") == 3
    metas = [read_meta_properties(RealFs(), f"{tmp_path}/{name}") for name in ("meta", "a", "b")]
    ids = set()
    for meta in metas:
        assert meta is not None
        assert (meta["cluster.id"], meta["node.id"], meta["version"]) == (CLUSTER, "7", "1")
        ids.add(uuid_from_text(meta["directory.id"]))
    assert len(ids) == 3


def test_the_bootstrap_records_hold_only_what_this_release_acts_on(tmp_path: Path) -> None:
    run_format(tmp_path)
    snapshot = read_snapshot(RealFs(), f"{tmp_path}/meta/{BOOTSTRAP}")
    assert snapshot.records == [FeatureLevelRecord(name="metadata.version", feature_level=30)]


def test_a_release_version_is_written(tmp_path: Path) -> None:
    assert "4.0-IV3" in run_format(tmp_path, "--release-version", "4.0")
    snapshot = read_snapshot(RealFs(), f"{tmp_path}/a/{BOOTSTRAP}")
    assert snapshot.records[0] == FeatureLevelRecord(name="metadata.version", feature_level=25)


def test_a_feature_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.version 2 is not acted on"):
        run_format(tmp_path, "--feature", "transaction.version=2")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--initial-controllers", "7@h:9093:JEXY6aqzQY-32P5TStzaFg"), "dynamic voters"),
        (("-N",), "--no-initial-controllers prepares for dynamic voters"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b]"), "SCRAM is not supported"),
        (("--standalone",), "exclude each other"),
    ],
)
def test_flags_of_kafkas_tool_that_would_promise_too_much_are_refused(
    tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        run_format(tmp_path, *flags)
    assert not (tmp_path / "a").exists()


def test_the_settings_that_kafka_ships_are_formatted_as_kafka_says(tmp_path: Path) -> None:
    """They name no voters; the tool of Kafka is given --standalone then."""
    path = properties(tmp_path)
    text = path.read_text().replace(
        "quorum.voters=7@127.0.0.1", "quorum.bootstrap.servers=localhost"
    )
    path.write_text(text)
    arguments = ["storage", "format", "--standalone", "-t", CLUSTER, "-c", str(path)]
    said = CliRunner().invoke(cli, arguments).stdout
    assert "state controller.quorum.voters=7@HOST:PORT" in said
    assert read_meta_properties(RealFs(), f"{tmp_path}/meta") is not None


def test_a_second_format_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run_format(tmp_path)
    before = (tmp_path / "a/meta.properties").read_bytes()
    with pytest.raises(ConfigError, match="formatted already"):
        run_format(tmp_path)
    assert run_format(tmp_path, "--ignore-formatted").count("is formatted already") == 3
    assert (tmp_path / "a/meta.properties").read_bytes() == before


def test_ignore_formatted_formats_the_rest(tmp_path: Path) -> None:
    run_format(tmp_path)
    (tmp_path / "b/meta.properties").unlink()
    assert f"formatted {tmp_path}/b with metadata.version 4.3-IV0" in run_format(tmp_path, "-g")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("cluster.id", "other", "belongs to the cluster other"),
        ("node.id", "9", "belongs to node 9"),
    ],
)
def test_a_directory_of_somebody_else_is_left_alone(
    tmp_path: Path, name: str, value: str, says: str
) -> None:
    """Goal: a mounted disk of another node is never taken over. Method: format b for somebody else."""
    foreign = {"cluster.id": CLUSTER, "node.id": "7"} | {name: value}
    (tmp_path / "b").mkdir()
    (tmp_path / "b/meta.properties").write_text("".join(f"{k}={v}\n" for k, v in foreign.items()))
    with pytest.raises(ConfigError, match=says):
        run_format(tmp_path, "--ignore-formatted")
    assert not (tmp_path / "a").exists()


def test_a_random_id_is_16_bytes_and_new_each_time() -> None:
    runs = [CliRunner().invoke(cli, ["storage", "random-uuid"]).stdout.strip() for _ in range(2)]
    assert len(uuid_from_text(runs[0])) == 16
    assert runs[0] != runs[1]


def test_dev_settings_are_a_node_of_its_own(tmp_path: Path) -> None:
    config = dev_config(1234, str(tmp_path), None, {"num.partitions": "5"})
    assert [each.port for each in config.client_listeners] == [1234]
    assert config.directories == (str(tmp_path),)
    assert (config.num_partitions, config.group_initial_rebalance_delay_ms) == (5, 0)
    assert not config.remote_log_storage_system_enable


def test_dev_takes_a_tier_as_a_path_or_a_uri(tmp_path: Path) -> None:
    config = dev_config(1, str(tmp_path), "some/tier", {})
    assert config.remote_log_storage_system_enable
    assert config.with_prefix("rsm.config.")["uri"] == str(Path("some/tier").absolute())
    config = dev_config(1, str(tmp_path), "file:///t", {"rsm.config.uri": "mine"})
    assert config.with_prefix("rsm.config.")["uri"] == "mine"
