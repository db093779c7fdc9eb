"""Fixtures for tests that need servers of others: Apache Kafka, object stores; and the rule when they run.

FIRNLINE_PEERS=1 runs them: Kafka is fetched when it is not in the cache, and a machine that cannot have it
fails. Otherwise they are left out, and the end of the run says so in a line that begins with `NOT RUN:`. It
says so, too, of the tests of a store whose server cannot be had.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.peers import azurite, hdfs, kafka, s3
from tests.peers.servers import Server

WHY_NOT = "NOT RUN: needs a server of others; set FIRNLINE_PEERS=1 (for most: Java 17 and Maven)"


def peers_are_wanted() -> bool:
    return os.environ.get("FIRNLINE_PEERS") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `peer` unless peers are wanted."""
    if peers_are_wanted():
        return
    for item in items:
        if item.get_closest_marker("peer"):
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason not to run once, with the number of tests it cost."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if reason.startswith("NOT RUN:"):
            counts[reason] = counts.get(reason, 0) + 1
    for reason, count in counts.items():
        terminalreporter.write_line(f"{reason} [{count} tests]")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Kafka's jars; a machine that cannot have them fails the test."""
    return kafka.jars()


@pytest.fixture(scope="session")
def kafka_schemas(kafka_jars: Path) -> Path:
    """The folder of Kafka's message schemas."""
    return kafka.schemas()


@pytest.fixture(scope="session")
def kafka_peer(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kafka.Cluster]:
    """One Kafka node for all tests of a run: use topics of your own."""
    with kafka.start(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


_STORES: dict[str, Callable[[Path], Server]] = {
    "azurite": azurite.start,
    "hdfs": hdfs.start,
    "s3": s3.start,
}


@pytest.fixture(scope="module")
def start_store(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Server]]:
    """Start the server of a store by its name: azurite, hdfs, s3; once for a module."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def start(name: str) -> Server:
            if name not in running:
                try:
                    started = _STORES[name](tmp_path_factory.mktemp(name))
                except kafka.PeerMissing as problem:
                    pytest.skip(f"NOT RUN: {problem}")
                running[name] = stack.enter_context(started)
            return running[name]

        yield start
