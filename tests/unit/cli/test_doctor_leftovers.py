"""`firnline doctor --config`: what a tier that was turned off has left, and who may remove it (T61)."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.log.directory import LOCK
from firnline.runtime.disk import RealFs


class Stopped:
    """The directories and settings of a broker that is stopped."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.cache = self.data / "remote-log-index-cache"
        self.cache.mkdir(parents=True)
        (self.cache / "0_AAAAAAAAAAAAAAAAAAAAAA.index").write_bytes(bytes(16))
        (self.cache / "0_AAAAAAAAAAAAAAAAAAAAAA.timeindex").write_bytes(bytes(12))
        (self.data / "orders-0").mkdir()
        (self.data / "orders-0" / f"{0:020d}.log").write_bytes(b"records")
        self.properties = root / "server.properties"
        self.state("false")

    def state(self, is_on: str) -> None:
        self.properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={self.data}\n"
            "controller.quorum.voters=1@127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
            "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
            f"remote.log.storage.system.enable={is_on}\n"
            + (
                "remote.log.storage.manager.class.name=firnline.tiered.objects.storage.ObjectStorage\n"
                f"rsm.config.uri={self.data.parent}/tier\n"
                if is_on == "true"
                else ""
            )
        )

    def doctor(self, *more: str) -> Result:
        return CliRunner().invoke(cli, ["doctor", "--config", str(self.properties), *more])


@pytest.fixture
def broker(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path)


def test_the_cache_of_a_tier_that_is_off_is_reported_and_kept(broker: Stopped) -> None:
    result = broker.doctor()
    assert result.exit_code == 3, result.output
    assert str(broker.cache) in result.stdout
    assert "indexes of a tier that is off: 28 bytes in 2 files" in result.stdout
    assert "--clean" in result.stdout
    assert len(list(broker.cache.iterdir())) == 2


def test_clean_removes_the_cache_and_nothing_else(broker: Stopped) -> None:
    result = broker.doctor("--clean")
    assert result.exit_code == 0, result.output
    assert "2 files; removed" in result.stderr
    assert not broker.cache.exists()
    assert (broker.data / "orders-0" / f"{0:020d}.log").read_bytes() == b"records"
    assert broker.doctor().exit_code == 0


def test_the_cache_of_a_tier_that_is_on_is_in_use(broker: Stopped) -> None:
    broker.state("true")
    result = broker.doctor("--clean")
    assert result.exit_code == 0, result.output
    assert len(list(broker.cache.iterdir())) == 2


def test_a_running_broker_keeps_its_directory(broker: Stopped) -> None:
    release = RealFs().lock(str(broker.data / LOCK))
    try:
        result = broker.doctor("--clean")
    finally:
        release()
    assert result.exit_code == 3
    assert "not removed: the log directory is in use by another process" in result.stdout
    assert len(list(broker.cache.iterdir())) == 2


def test_a_link_is_not_followed(broker: Stopped, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    broker.cache.rename(elsewhere)
    broker.cache.symlink_to(elsewhere)
    assert broker.doctor("--clean").exit_code == 0
    assert len(list(elsewhere.iterdir())) == 2


def test_clean_without_settings_is_wrong_usage(broker: Stopped) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--clean"])
    assert result.exit_code == 2
    assert "--config" in result.stderr


def test_settings_that_cannot_be_read_are_named(broker: Stopped) -> None:
    broker.properties.write_text("log.segment.bytes=x\n")
    assert "log.segment.bytes=x" in str(broker.doctor().exception)
