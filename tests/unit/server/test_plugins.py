"""What a user's own store is told at the start, and that it is written down where its author looks."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.config.render import page
from firnline.metadata.format import format_storage
from firnline.runtime.disk import RealFs
from firnline.runtime.rng import SystemRng
from firnline.server.plugins import remote_storage
from firnline.tiered.spi import RemoteStorage
from tests.worlds.quorum import broker_config

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAg"


class Store:
    """A plug-in that keeps what it is told."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)


def reported(directory: Path) -> dict[str, str]:
    config = broker_config(
        log_dirs=str(directory),
        remote_log_storage_system_enable="true",
        remote_log_storage_manager_class_name=f"{__name__}.Store",
        **{"rsm.config.bucket": "b", "rsm.config.cluster.id": "a guess"},
    )
    if not (directory / "meta.properties").exists():
        rng = SystemRng()
        format_storage(RealFs(), config, cluster_id=CLUSTER, rng=rng, now_ms=1_700_000_000_000)
    found: Any = remote_storage(config)
    return dict(found.settings)


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
