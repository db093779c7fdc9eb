"""Fixtures of the runtime's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.echo import Running


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    big = tmp_path / "big"
    big.write_bytes(bytes(range(256)) * (32 << 12))
    running = Running(big)
    running.thread.start()
    yield running
    running.on_loop(running.loop.stop)
    running.thread.join(20)
    running.runtime.close()
