"""One server of ours for the tests of a module, one of Kafka's for all; each test must do it no harm.

With FIRNLINE_PEERS=1 every test runs a second time against Apache Kafka: what it answers is what we
expect of ourselves, and where we differ on purpose the test says so.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.testing.plugin import Broker
from tests.peers import kafka
from tests.wire.line import FRAME_LIMIT_BYTES, METADATA, MIB, Line, Target, framed, header

HAS_NATIVE = find_spec("firnline._native") is not None
# 10,000 groups that came and went leave 15 MiB behind, 28 on a busy machine: pages that small objects share.
RSS_SLACK_BYTES = 36 * MIB
SETTINGS = {"socket.request.max.bytes": FRAME_LIMIT_BYTES, "connections.max.idle.ms": 600_000}


@pytest.fixture(scope="session")
def kafka_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Apache Kafka, for the tests of all modules: nobody measures what its memory keeps."""
    base = tmp_path_factory.mktemp("kafka")
    with kafka.start(base, settings=SETTINGS) as cluster:
        log = base / "node-1" / "kafka.log"
        yield Target("kafka", cluster.bootstrap, cluster.pids[0], log)


@pytest.fixture(
    scope="module",
    params=["firnline", "python alone", pytest.param("kafka", marks=pytest.mark.peer)],
)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A running server with a frame limit of 32 MiB; ours also without its compiled code."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_target")
        return
    base = tmp_path_factory.mktemp("wire")
    options = [part for key, value in SETTINGS.items() for part in ("-X", f"{key}={value}")]
    broker = Broker(base / "data", options=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRNLINE_NATIVE", "0" if request.param == "python alone" else "1")
        broker.start()
    try:
        made = Target("firnline", broker.bootstrap, broker.pid, base / "data.log")
        made.parses_bodies = request.param == "firnline" and HAS_NATIVE
        yield made
        assert broker.stop() == 0
    finally:
        if broker.process is not None:
            broker.kill()


@pytest.fixture(scope="module")
def baseline_bytes(target: Target) -> int:
    """The server's memory after the largest frame and 100,000 objects: what the allocator keeps of them."""
    if target.is_firnline:
        target.topic("baseline")
        target.topic_names()
        target.send(framed(header(METADATA, 1) + bytes(FRAME_LIMIT_BYTES - 64)))
        many = [CreatableTopic(name=f"warm-{n}", num_partitions=0) for n in range(100_000)]
        target.ask(CreateTopicsRequest(topics=many, timeout_ms=1000), 7)
    return target.rss_bytes()


@pytest.fixture(autouse=True)
def unharmed(target: Target, baseline_bytes: int) -> Iterator[Line]:
    """Whatever a test sends: the server lives, serves others, gives memory back, prints no traceback."""
    with target.line() as witness:
        witness.ask(ApiVersionsRequest(), 0)
        yield witness
        assert witness.ask(ApiVersionsRequest(), 0).error_code == 0
    assert target.process.is_running()
    if target.is_firnline:
        deadline = time.monotonic() + 10
        while target.rss_bytes() > baseline_bytes + RSS_SLACK_BYTES and time.monotonic() < deadline:
            time.sleep(0.05)
        grown = target.rss_bytes() - baseline_bytes
        assert grown < RSS_SLACK_BYTES, f"{grown / MIB:.1f} MiB above the baseline"
        text = target.log.read_text()
        assert "Traceback" not in text, text[-3000:]
        assert "\x1b" not in text
