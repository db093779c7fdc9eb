"""Formatting storage: refusals come before the first byte, and what is formatted is Kafka's."""

import pytest

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import uuid_from_text
from firnline.config.broker import BrokerConfig
from firnline.log.checkpoint import read_cluster_id
from firnline.metadata import records as r
from firnline.metadata.features import (
    METADATA_VERSIONS,
    levels_to_format,
    refuse_unsupported_levels,
)
from firnline.metadata.format import format_storage
from firnline.metadata.snapshot_file import read_snapshot
from firnline.sim.disk import CrashableFs, Operation
from tests.worlds.chance import SeededRng
from tests.worlds.quorum import broker_config

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAg"


def a_node(**settings: str) -> BrokerConfig:
    return broker_config(**({"log_dirs": "/a,/b"} | settings))


def formatted(fs: CrashableFs, config: BrokerConfig | None = None, **options: object) -> object:
    given: dict[str, object] = {"cluster_id": CLUSTER, "rng": SeededRng(1), "now_ms": 5}
    return format_storage(fs, config or a_node(), **(given | options))  # type: ignore[arg-type]


def meta(fs: CrashableFs, path: str) -> dict[str, str]:
    file = fs.open(f"{path}/meta.properties")
    lines = file.read(0, file.size()).decode().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_a_formatted_directory_is_there_after_a_power_cut() -> None:
    """With the parents that had to be made for it."""
    fs = CrashableFs()
    formatted(fs, a_node(log_dirs="/a,/deep/down/b"))
    after = fs.crash(SeededRng(1), keep="none")
    assert [read_cluster_id(after, path) for path in ("/a", "/deep/down/b")] == [CLUSTER] * 2


def test_every_directory_gets_its_identity_and_the_bootstrap_records() -> None:
    fs = CrashableFs()
    formatted(fs)
    ids = []
    for path in ("/a", "/b"):
        assert fs.list_dir(path) == ["bootstrap.checkpoint", "meta.properties"]
        reported = meta(fs, path)
        ids.append(uuid_from_text(reported.pop("directory.id")))
        assert reported == {"version": "1", "cluster.id": CLUSTER, "node.id": "1"}
        # I33: features we do not act on are at 0, which has no record.
        assert list(read_snapshot(fs, f"{path}/bootstrap.checkpoint").records) == [
            r.FeatureLevelRecord(name="metadata.version", feature_level=30)
        ]
    assert ids[0] != ids[1]


def test_a_metadata_directory_of_its_own_is_formatted_with_the_others() -> None:
    fs = CrashableFs()
    config = a_node(metadata_log_dir="/m")
    formatted(fs, config)
    assert [read_cluster_id(fs, path) for path in ("/a", "/b", "/m")] == [CLUSTER] * 3


def test_without_a_cluster_id_one_is_made_and_the_same_for_all() -> None:
    fs = CrashableFs()
    formatted(fs, cluster_id=None)
    made = read_cluster_id(fs, "/a")
    assert read_cluster_id(fs, "/b") == made
    assert len(uuid_from_text(made)) == 16
    # A directory that was added joins the cluster of the others.
    formatted(
        fs, a_node(log_dirs="/a,/b,/c"), cluster_id=None, ignore_formatted=True, rng=SeededRng(2)
    )
    assert meta(fs, "/c")["cluster.id"] == made


def test_a_formatted_directory_is_not_formatted_again() -> None:
    fs = CrashableFs()
    formatted(fs)
    before = meta(fs, "/a")
    with pytest.raises(ConfigError, match="formatted already"):
        formatted(fs, a_node(log_dirs="/a,/c"))
    assert not fs.exists("/c")
    formatted(fs, a_node(log_dirs="/a,/c"), ignore_formatted=True)
    assert meta(fs, "/a") == before
    assert meta(fs, "/c")["cluster.id"] == CLUSTER


@pytest.mark.parametrize(
    ("settings", "cluster_id", "why"),
    [({}, "other", "cluster"), ({"node_id": "2"}, CLUSTER, "node 1")],
)
def test_a_directory_of_another_cluster_or_node_is_not_taken_over(
    settings: dict[str, str], cluster_id: str, why: str
) -> None:
    fs = CrashableFs()
    formatted(fs)
    config = a_node(
        log_dirs="/a,/c", controller_quorum_voters="1@localhost:9093,2@localhost:9094", **settings
    )
    with pytest.raises(ConfigError, match=why):
        formatted(fs, config, cluster_id=cluster_id, ignore_formatted=True)
    assert not fs.exists("/c")


def test_whoever_alone_has_the_metadata_begins_no_empty_cluster_beside_its_logs() -> None:
    """Its disk is not mounted: the topics would be gone, and their logs with them."""
    fs = CrashableFs()
    formatted(fs, a_node(log_dirs="/b"))
    lost = a_node(log_dirs="/b", metadata_log_dir="/m")
    fs.make_dir("/b/t-0")
    with pytest.raises(ConfigError, match=r"/m is to hold the metadata .* /b holds logs \(t-0\)"):
        formatted(fs, lost, ignore_formatted=True)
    assert not fs.exists("/m")
    fs.remove_dir("/b/t-0")
    formatted(fs, lost, ignore_formatted=True)
    assert meta(fs, "/m")["cluster.id"] == CLUSTER


@pytest.mark.parametrize("cluster_id", ["", " x", "a\nb=c", "\x00"])
def test_a_cluster_id_that_would_damage_the_file_is_refused(cluster_id: str) -> None:
    fs = CrashableFs()
    with pytest.raises(ConfigError, match="cluster id"):
        formatted(fs, cluster_id=cluster_id)
    assert not fs.exists("/a")


@pytest.mark.parametrize(
    ("features", "release", "why"),
    [
        (["foo.version=1"], None, "unknown feature 'foo.version'"),
        (["group.version"], None, "NAME=LEVEL"),
        (["group.version=x"], None, "NAME=LEVEL"),
        (["group.version=9"], None, "has no level 9"),
        (["group.version=1"], None, "not acted on"),
        (["transaction.version=2"], None, "not acted on"),
        (["kraft.version=1"], None, "not acted on"),
        (["group.version=0", "group.version=0"], None, "twice"),
        (["metadata.version=6"], None, "7 to 30"),
        (["metadata.version=31"], None, "7 to 30"),
        (["metadata.version=20"], "3.9", "by --feature and by --release-version"),
        ([], "9.9", "unknown metadata.version '9.9'"),
    ],
)
def test_levels_that_cannot_be_run_are_refused_before_anything_is_written(
    features: list[str], release: str | None, why: str
) -> None:
    fs = CrashableFs()
    with pytest.raises(ConfigError, match=why):
        formatted(fs, features=features, release_version=release)
    assert not fs.exists("/a")


def test_levels_are_chosen_as_with_kafkas_tool() -> None:
    """As `kafka-storage.sh format --release-version` answered for 3.3-IV3, 3.9 and 4.0."""
    assert levels_to_format([], None) == {"metadata.version": 30}
    assert levels_to_format(["group.version=0"], "4.0") == {"metadata.version": 25}
    assert levels_to_format([], "3.3-IV3") == {"metadata.version": 7}
    assert levels_to_format([], "3.9") == {"metadata.version": 21}
    assert levels_to_format(["metadata.version=20"], None) == {"metadata.version": 20}
    assert sorted(METADATA_VERSIONS) == list(range(7, 31))


def test_a_finalised_level_out_of_range_is_refused_with_the_command_that_helps() -> None:
    refuse_unsupported_levels({"metadata.version": 30})
    refuse_unsupported_levels({"metadata.version": 7, "kraft.version": 0})
    with pytest.raises(ConfigError) as refused:
        refuse_unsupported_levels({"metadata.version": 31, "share.version": 1, "new.version": 4})
    text = str(refused.value)
    assert "metadata.version 31, new.version 4, share.version 1" in text
    assert "downgrade --feature metadata.version=30 --feature new.version=0" in text
    with pytest.raises(ConfigError, match=r"metadata\.version 6"):
        refuse_unsupported_levels({"metadata.version": 6})


@pytest.mark.parametrize("found", [b"7V-\0\0\0\0", b"", b" "])
def test_a_damaged_cluster_id_is_said_by_path(found: bytes) -> None:
    """`dev` formats at each start: it said that this is no cluster id, and not where it stands."""
    fs = CrashableFs()
    formatted(fs)
    file = fs.open("/b/meta.properties")
    complete = file.read(0, file.size())
    file.truncate(0)
    file.append(complete.replace(CLUSTER.encode(), found))
    with pytest.raises(ConfigError, match=r"/b/meta\.properties names no cluster\.id: write"):
        formatted(fs, a_node(), ignore_formatted=True)


@pytest.mark.parametrize("seed", range(24))
def test_a_crash_while_formatting_leaves_a_directory_formatted_or_not(seed: int) -> None:
    """`meta.properties` comes last: where it is, the bootstrap records are."""
    dice = SeededRng(seed)
    fs = CrashableFs()
    operations: list[Operation] = ["append", "sync", "rename", "sync_dir"]
    operation = operations[seed % 4]
    fs.fail(operation, ("/a/", "/b")[seed % 2], "EIO", skip=dice.below(2))
    try:
        formatted(fs)
    except StorageError:
        fs = fs.crash(dice)
        formatted(fs, ignore_formatted=True, rng=SeededRng(seed + 1))
    for path in ("/a", "/b"):
        assert read_snapshot(fs, f"{path}/bootstrap.checkpoint").records
        assert meta(fs, path)["cluster.id"] == CLUSTER
