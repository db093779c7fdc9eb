"""What a user's own store and metadata manager get at the start, and what is refused there."""

import inspect
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import ConfigError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.config.broker import BrokerConfig
from firnline.config.render import page
from firnline.config.tiered import TOPIC_BASED
from firnline.metadata.format import format_storage
from firnline.metadata.image import Endpoint
from firnline.runtime.disk import RealFs
from firnline.runtime.logs.formats import TextFormatter
from firnline.runtime.rng import SystemRng
from firnline.server.plugins import MetadataManager, remote_metadata, remote_storage
from firnline.stores.directory import DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.stores.port import StoreRefused
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.settings import tier_settings
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage
from tests.worlds.quorum import broker_config

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAg"
FOLDER = str(Path(__file__).parents[2] / "data" / "plugins")
LISTENERS = [Endpoint("PLAINTEXT", "outside", 9092), Endpoint("INSIDE", "inside", 9095)]
SECRET = "hunter2-hunter2"


class Store(ObjectStorage):
    """A plug-in that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())

    def configure(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)


@pytest.fixture(autouse=True)
def _search_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def node(directory: Path, **stated: str) -> BrokerConfig:
    keys = {
        "remote_log_storage_system_enable": "true",
        "remote_log_storage_manager_class_name": f"{__name__}.Store",
    }
    config = broker_config(log_dirs=str(directory), **(keys | stated))
    if not (directory / "meta.properties").exists():
        rng = SystemRng()
        format_storage(RealFs(), config, cluster_id=CLUSTER, rng=rng, now_ms=1_700_000_000_000)
    return config


def reported(directory: Path) -> dict[str, str]:
    stated = {"rsm.config.bucket": "b", "rsm.config.cluster.id": "a guess"}
    found: Any = remote_storage(node(directory, **stated))
    return dict(found.settings)


def refusal(directory: Path, **stated: str) -> str:
    config = node(directory, **stated)
    with pytest.raises(ConfigError) as problem:
        assert remote_storage(config) and remote_metadata(config, LISTENERS)  # noqa: PT018
    assert SECRET not in str(problem.value)
    return str(problem.value)


def own(name: str) -> dict[str, str]:
    return {
        "remote_log_metadata_manager_class_name": f"own_tier.{name}",
        "remote_log_metadata_manager_class_path": f"/:{FOLDER}",
    }


def store(name: str) -> dict[str, str]:
    return {
        "remote_log_storage_manager_class_name": f"own_tier:{name}",
        "remote_log_storage_manager_class_path": FOLDER,
    }


def test_a_store_learns_whose_it_is_and_whether_it_was_used(tmp_path: Path) -> None:
    first = {"bucket": "b", "broker.id": "1", "cluster.id": CLUSTER}
    assert reported(tmp_path) == first
    partition = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").touch()
    assert reported(tmp_path) == first
    (partition / f"{0:020d}.log").write_bytes(b"records")
    assert reported(tmp_path) == first | {"tier.in.use": "true"}


def test_who_writes_a_store_reads_of_everything_that_it_gets(tmp_path: Path) -> None:
    reported(tmp_path)
    partition = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(b"records")
    for name in reported(tmp_path).keys() - {"bucket"}:
        assert f"`{name}`" in page()
        assert f"`{name}`" in (inspect.getdoc(RemoteStorage.configure) or "")


# ------------------------------------------------------------------------- a user's own metadata manager


def test_an_own_metadata_manager_gets_its_settings_and_those_of_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """T53: the node's facts win over the operator's, the operator's over the listener's."""
    prefix = "remote.log.metadata.common.client."
    more = {
        "rlmm.config.url": "db://x",
        "rlmm.config.broker.id": "99",
        f"rlmm.config.{prefix}security.protocol": "SSL",
        "remote.log.metadata.manager.listener.name": "inside",
        "listeners": "PLAINTEXT://:9092,INSIDE://:9095,CONTROLLER://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    config = node(tmp_path, **own("OwnMetadata"), **more)
    with caplog.at_level(logging.INFO):
        found = remote_metadata(config, LISTENERS)
    assert type(found).__name__ == "OwnMetadata"
    (line,) = [r.getMessage() for r in caplog.records if "metadata configured" in r.getMessage()]
    expected = {
        "broker.id": "1",
        "cluster.id": CLUSTER,
        "log.dir": str(tmp_path),
        f"{prefix}bootstrap.servers": "inside:9095",
        f"{prefix}security.protocol": "SSL",
        "url": "db://x",
    }
    assert line == f"metadata configured with {expected}"
    for name in expected.keys() - {"url"}:
        assert f"`{name}`" in page()
        assert f"`{name}`" in (inspect.getdoc(MetadataManager.configure) or "")
    # Its keys are its own: those of the built-in one are not checked.
    assert tier_settings(config).metadata_partitions == 50


def test_without_a_listener_name_no_address_is_guessed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        remote_metadata(node(tmp_path, **own("OwnMetadata")), LISTENERS)
    assert "bootstrap.servers" not in caplog.text


def test_a_prefix_of_ones_own_choice_is_taken_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"remote.log.metadata.manager.impl.prefix": "mine.", "mine.url": "db://x"}
    with caplog.at_level(logging.INFO):
        remote_metadata(node(tmp_path, **own("OwnMetadata"), **more), LISTENERS)
    assert "'url': 'db://x'" in caplog.text


def test_kafkas_name_of_the_built_in_manager_means_ours(tmp_path: Path) -> None:
    assert remote_metadata(node(tmp_path), LISTENERS) is None
    stated = {"remote_log_metadata_manager_class_name": TOPIC_BASED}
    assert remote_metadata(node(tmp_path, **stated), LISTENERS) is None
    off = {"remote_log_storage_system_enable": "false", **own("OwnMetadata")}
    assert remote_metadata(node(tmp_path, **off), LISTENERS) is None


def test_a_listener_that_nobody_has_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"remote\.log\.metadata\.manager\.listener\.name=OUT is not"
    ):
        broker_config(
            remote_log_storage_system_enable="true",
            remote_log_storage_manager_class_name="a.B",
            remote_log_metadata_manager_listener_name="OUT",
        )


# ------------------------------------------------------------- what is wrong is said at the start (T57)

STORAGE = "remote_log_storage_manager_class_name"
METADATA = "remote_log_metadata_manager_class_name"
BUILT_IN = "firnline.tiered.objects.storage.ObjectStorage"


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (
            {METADATA: "com.example.JdbcRemoteLogMetadataManager"},
            "a Java class cannot be loaded by a broker in Python",
        ),
        (
            {STORAGE: "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"},
            "a Java class cannot be loaded by a broker in Python",
        ),
        (
            {METADATA: "de.example.Manager"},
            "No module named 'de'; name its folder in remote.log.metadata.manager.class.path. A Java class",
        ),
        ({METADATA: "Manager"}, "the name has the form module.Class"),
        ({METADATA: "json.Nope"}, "module 'json' has no attribute 'Nope'"),
        (
            {**own("OwnMetadata"), "remote_log_metadata_manager_class_path": "/nope.jar"},
            "remote.log.metadata.manager.class.path: /nope.jar does not exist; name folders",
        ),
        (
            own("Halfway"),
            "class.name=own_tier.Halfway: it has no method look, close; the methods are those of"
            " firnline.server.plugins.MetadataManager",
        ),
        (
            {STORAGE: "json.JSONDecoder"},
            "it has no method configure, copy_segment, fetch_segment, fetch_index, delete_segment, close",
        ),
        (
            {STORAGE: BUILT_IN, "rsm.config.uri": "/nowhere/tier", "rsm.config.urii": "x"},
            "rsm.config.urii is not a setting of the built-in store: is it rsm.config.uri?",
        ),
        (
            {STORAGE: BUILT_IN, "rsm.config.uri": "/nowhere/tier", "rsm.config.sotre.region": "x"},
            "rsm.config.sotre.region is not a setting of the built-in store: is it rsm.config.store.*?",
        ),
        (
            store("Unmakeable"),
            "it cannot be made: ZeroDivisionError: no module of the driver",
        ),
        (
            store("Talkative")
            | {
                "rsm.config.fail": "configure",
                "rsm.config.password": SECRET,
                "rsm.config.uri": "in tmp_path",
            },
            "it cannot be configured: RuntimeError: cannot sign in with [hidden]",
        ),
    ],
)
def test_a_plug_in_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, stated: dict[str, str], says: str
) -> None:
    if stated.get("rsm.config.uri") == "in tmp_path":
        stated = {**stated, "rsm.config.uri": str(tmp_path / "tier")}
    key = METADATA if METADATA in stated else STORAGE
    said = refusal(tmp_path, **stated)
    assert says in said
    assert said.startswith((key.replace("_", ".").removesuffix(".name"), "rsm.config."))


class _Stub(RemoteStorage):
    """Inherits methods that do nothing."""

    def configure(self, settings: Mapping[str, str]) -> None:
        pass


def test_what_is_inherited_from_the_protocol_does_nothing_and_is_no_method(tmp_path: Path) -> None:
    said = refusal(tmp_path, **{STORAGE: f"{__name__}._Stub"})
    assert (
        "it has no method copy_segment, fetch_segment, fetch_index, delete_segment, close" in said
    )


def test_every_method_that_the_tier_calls_is_asked_for() -> None:
    from firnline.server import plugins

    names = plugins._methods(MetadataManager)
    assert {"configure", "close", "assign", "look", "delete_state"} <= set(names)
    assert set(plugins._methods(RemoteLogMetadata)) == set(names) - {"configure", "close"}


def test_tiering_without_a_store_names_the_key_that_is_missing() -> None:
    """T57."""
    with pytest.raises(ConfigError, match=r"needs remote\.log\.storage\.manager\.class\.name"):
        broker_config(remote_log_storage_system_enable="true")


def test_a_store_that_refuses_the_node_at_the_start_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong secret: the node serves its clients, and the operator need not wait for the first copy."""

    def refuse(self: DirectoryStore, key: str, position: int = 0, size: int | None = None) -> bytes:
        raise StoreRefused("the store refuses the credentials")

    monkeypatch.setattr(DirectoryStore, "get", refuse)
    stated = {
        STORAGE: BUILT_IN,
        "rsm.config.uri": str(tmp_path / "tier"),
    }
    with caplog.at_level(logging.WARNING):
        assert remote_storage(node(tmp_path, **stated)) is not None
    [line] = caplog.records
    assert "the store refuses the credentials" in TextFormatter().format(line)
