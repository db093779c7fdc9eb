"""Where the data of `firnline dev` is, which directories it refuses, and when it removes one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.base.ids import ZERO_UUID
from firnline.cli.dev import dev_config
from firnline.cli.dev_data import (
    DevData,
    choose,
    data_directory_of,
    refuse_foreign,
    refuse_lost_half,
    remove,
)
from firnline.tiered.objects.binding import binding_text
from firnline.tiered.objects.layout import TopicName, name_key

_HOLDS = """
import sys, fcntl
lock = open(sys.argv[1], "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def node_in(path: Path, cluster_id: str = "ours") -> Path:
    """A formatted directory."""
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(f"cluster.id={cluster_id}\n")
    return path


def tier_in(path: Path, *topics: str, cluster_id: str = "ours") -> Path:
    """A tier in a directory."""
    for number, topic in enumerate(topics, 1):
        key = path / name_key(
            TopicName(topic, number, bytes([number]) + ZERO_UUID[1:], is_deleted=False)
        )
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_text("")
    path.mkdir(exist_ok=True)
    (path / ".firnline-tier").write_text("")
    (path / "cluster.json").write_text(binding_text(cluster_id))
    assert json.loads(binding_text(cluster_id))["clusterId"] == cluster_id
    return path


def test_the_users_own_directory_then_the_tiers_then_a_temporary_one(tmp_path: Path) -> None:
    named, tier = tmp_path / "named", str(tmp_path / "tier")
    assert choose(named, tier) == DevData(named)
    assert choose(None, tier) == DevData(tmp_path / "tier-data", of_tier=tier)
    temporary = choose(None, None)
    assert temporary.is_temporary
    assert temporary.path.is_dir()
    remove(temporary)
    assert not temporary.path.exists()


def test_each_tier_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for same in ("tier", "tier/", "./x/../tier", f"file://{tmp_path}/tier"):
        assert data_directory_of(same) == tmp_path / "tier-data"
    assert data_directory_of("s3://b/a/") == data_directory_of("s3://b/a")
    others = ["s3://b/a", "s3://b/a-", "s3://b-a", "az://b/a", "s3://b/" + "a" * 300]
    places = {data_directory_of(uri) for uri in others}
    assert len(places) == len(others)
    assert {place.parent for place in places} == {tmp_path / "firnline" / "dev"}
    assert all(len(place.name) < 100 for place in places)
    assert "secret" not in str(data_directory_of("s3://key:secret@b/a"))


def test_a_directory_with_anything_else_in_it_is_refused(tmp_path: Path) -> None:
    refuse_foreign(tmp_path / "new")
    refuse_foreign(tmp_path)
    (tmp_path / "bootstrap.checkpoint").write_text("")  # a kill while it was formatted
    (tmp_path / ".lock").write_text("")
    (tmp_path / "meta.properties.part").write_text("")
    refuse_foreign(tmp_path)
    (tmp_path / "thesis.odt").write_text("")
    with pytest.raises(ConfigError, match=r"other files in it \(thesis\.odt\)"):
        refuse_foreign(tmp_path)
    (tmp_path / "meta.properties").write_text("")
    refuse_foreign(tmp_path)
    (tmp_path / "cluster" / "node-1").mkdir(parents=True)
    refuse_foreign(tmp_path / "cluster")


def test_a_tier_whose_data_directory_is_gone_is_refused_and_its_topics_are_named(
    tmp_path: Path,
) -> None:
    tier = tier_in(tmp_path / "tier", "orders", "payments")
    data = choose(None, str(tier))
    with pytest.raises(
        ConfigError, match=r"earlier run \(cluster ours\), with 2 topics: orders, pay"
    ):
        refuse_lost_half(data)
    node_in(data.path)
    refuse_lost_half(data)
    (data.path / "meta.properties").write_text("cluster.id=another\n")
    with pytest.raises(ConfigError, match="earlier run"):
        refuse_lost_half(data)
    refuse_lost_half(DevData(data.path))  # the user has named it, and the node says what is wrong


@pytest.mark.parametrize("log_dir", [".", "node-2/data"])
def test_data_whose_tier_is_gone_is_refused(tmp_path: Path, log_dir: str) -> None:
    data = choose(None, str(tmp_path / "tier"))
    log = node_in(data.path / log_dir) / "__remote_log_metadata-0" / f"{0:020}.log"
    refuse_lost_half(data)
    log.parent.mkdir()
    log.write_text("")
    with pytest.raises(ConfigError, match=r"its tier .*tier is empty"):
        refuse_lost_half(data)
    tier_in(tmp_path / "tier")
    refuse_lost_half(data)


@pytest.mark.slow
@pytest.mark.parametrize("log_dir", [".", "node-2/data"])
def test_a_temporary_directory_stays_while_another_process_has_it(
    tmp_path: Path, log_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = DevData(tmp_path / "data", is_temporary=True)
    lock = node_in(data.path / log_dir) / ".lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        remove(data)
        assert lock.exists()
        assert f"{data.path} is kept" in capsys.readouterr().err
    remove(data)
    assert not data.path.exists()
    kept = DevData(node_in(tmp_path / "kept"))
    remove(kept)
    assert kept.path.exists()


def test_a_tier_makes_new_topics_tiered_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    config = dev_config(0, str(tmp_path), None, {})
    assert not config.firnline_new_topics_remote_storage_enable
    config = dev_config(0, str(tmp_path), "/tier", {})
    assert config.firnline_new_topics_remote_storage_enable
    assert config.firnline_remote_log_roll_idle_ms == 10_000
    stated = {"firnline.new.topics.remote.storage.enable": "false"}
    config = dev_config(0, str(tmp_path), "/tier", stated)
    assert not config.firnline_new_topics_remote_storage_enable
