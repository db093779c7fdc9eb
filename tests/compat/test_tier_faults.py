"""A real node on a real S3 server that fails in every way: nothing is lost, and nothing is left behind."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from firnline.client.admin import Admin
from firnline.testing.plugin import Broker
from tests.chaos.test_tier_errors import RECORDS, TOPIC, numbers, write
from tests.peers import s3
from tests.peers.nodes import eventually
from tests.peers.servers import Server, options_of
from tests.peers.store_proxy import Fault, StoreProxy

pytestmark = pytest.mark.peer
PATIENCE_S = 60.0
# So that a test does not wait long after the end of a fault.
SETTINGS = ("-X", "remote.log.manager.task.retry.backoff.max.ms=1000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3.start(tmp_path_factory.mktemp("s3")) as started:
        yield started


class Tiered(NamedTuple):
    """A running node with a tier of its own, behind a proxy."""

    broker: Broker
    proxy: StoreProxy
    server: Server
    prefix: str

    def logs(self) -> list[str]:
        """The base offsets of the segments whose log is in the store."""
        keys = [key for key in s3.objects(self.server) if f"/{self.prefix}/data/" in key]
        return sorted(key.rpartition("/")[2][:20] for key in keys if key.endswith(".log"))

    def status(self) -> dict[str, object]:
        with Admin(self.broker.bootstrap) as admin:
            (row,) = admin.tier_status([TOPIC])[0].partitions
        return row

    def is_logged(self, text: str) -> bool:
        return text in self.broker.log_text()

    def assert_complete(self) -> None:
        """All closed segments come into the tier, each once; consumers read all; no object is left over."""
        eventually(
            "nothing waits", lambda: not self.status()["waiting_segments"], within_s=PATIENCE_S
        )
        first = self.broker.directory / f"{TOPIC}-0" / f"{0:020d}.log"
        eventually(
            "the first segment is remote only", lambda: not first.exists(), within_s=PATIENCE_S
        )
        assert numbers(self.broker) == list(range(RECORDS))
        eventually(
            "the store has the segments that the metadata has, and no others",
            lambda: len(self.logs()) == self.status()["remote_segments"],
            within_s=PATIENCE_S,
        )
        assert len(self.logs()) == len(set(self.logs())) >= 7


@pytest.fixture
def tiered(server: Server, tmp_path: Path) -> Iterator[Tiered]:
    prefix = tmp_path.name
    with StoreProxy(server) as proxy:
        uri = f"{server.uri}/{prefix}"
        options = ["--tier", uri, *options_of(proxy.settings), *SETTINGS, "--log-level", "info"]
        broker = Broker(tmp_path / "data", options=options)
        broker.start()
        try:
            yield Tiered(broker, proxy, server, prefix)
        finally:
            assert broker.stop() == 0


def test_a_burst_of_503_is_no_storm_of_requests_and_is_caught_up_with(tiered: Tiered) -> None:
    """F3. Produce goes on, the lag is visible, and the store gets a few requests a second."""
    tiered.proxy.add("burst", Fault(method="PUT", status=503))
    write(tiered.broker)
    eventually(
        "it is logged", lambda: tiered.is_logged("the store of the tier fails"), within_s=PATIENCE_S
    )
    before, began = tiered.proxy.total(), time.monotonic()
    time.sleep(5)
    a_second = (tiered.proxy.total() - before) / (time.monotonic() - began)
    assert a_second < 10
    status = tiered.status()
    assert int(str(status["waiting_segments"])) >= 7
    assert "503" in str(status["problem"]) or "SlowDown" in str(status["problem"])
    assert tiered.broker.log_text().count("the store of the tier fails") <= 3
    tiered.proxy.remove("burst")
    tiered.assert_complete()
    again = "the store of the tier answers again"
    eventually("that is logged, too", lambda: tiered.is_logged(again))


def test_a_put_that_succeeded_and_looked_failed_is_no_second_segment(tiered: Tiered) -> None:
    """F4. The log of a segment is put, and the answer is lost each time."""
    fault = tiered.proxy.add("lost", Fault(method="PUT", key=".log", resets="after", count=6))
    write(tiered.broker)
    tiered.assert_complete()
    assert fault.met == 6


def test_a_store_that_keeps_other_bytes_gets_the_segment_again(tiered: Tiered) -> None:
    """F7. What is read back after the copy has a flipped bit."""
    fault = tiered.proxy.add("flip", Fault(method="GET", key=".log", flips=True, count=3))
    write(tiered.broker)
    tiered.assert_complete()
    assert fault.met == 3
    assert not tiered.status()["problem"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param("RequestTimeTooSkewed", "set the clock of this machine", id="F36: a clock"),
        pytest.param("ExpiredToken", "refuses the credentials", id="F37: credentials"),
    ],
)
def test_a_store_that_refuses_every_request_says_why_and_loses_nothing(
    tiered: Tiered, code: str, said: str
) -> None:
    """A clock that is off by 20 minutes, or credentials that expired."""
    tiered.proxy.add("refused", Fault(status=403, code=code))
    write(tiered.broker)
    eventually("it is logged", lambda: tiered.is_logged(said), within_s=PATIENCE_S)
    assert tiered.logs() == []
    assert numbers(tiered.broker) == list(range(RECORDS)), "nothing is deleted locally"
    tiered.proxy.remove("refused")
    tiered.assert_complete()


def test_credentials_that_expire_in_the_middle_of_a_copy_cost_no_record(tiered: Tiered) -> None:
    """F37. The small objects of a segment are put, and its log is refused."""
    expired = tiered.proxy.add(
        "expired", Fault(method="PUT", key=".log", status=403, code="ExpiredToken")
    )
    write(tiered.broker)
    eventually("it is met", lambda: expired.met >= 2, within_s=PATIENCE_S)
    eventually(
        "it is logged",
        lambda: tiered.is_logged("refuses the credentials"),
        within_s=PATIENCE_S,
    )
    assert tiered.logs() == []
    assert numbers(tiered.broker) == list(range(RECORDS)), "nothing is deleted locally"
    tiered.proxy.remove("expired")
    tiered.assert_complete()
