"""A running server for tests that ask ours and Apache Kafka the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firnline.testing.plugin import Broker
from tests.peers import kafka
from tests.wire.line import Target

# Parameters of a fixture that is made for each of them.
KINDS = [pytest.param("kafka", marks=pytest.mark.peer), "firnline"]


@contextmanager
def one_server(kind: str, base: Path) -> Iterator[Target]:
    """A server of that kind with its files below `base`; ours has to end well."""
    if kind == "kafka":
        with kafka.start(base) as cluster:
            log = base / "node-1" / "kafka.log"
            yield Target("kafka", cluster.bootstrap, cluster.pids[0], log)
        return
    broker = Broker(base / "data")
    broker.start()
    try:
        yield Target("firnline", broker.bootstrap, broker.pid, base / "data.log")
        assert broker.stop() == 0
    finally:
        if broker.process is not None:
            broker.kill()
