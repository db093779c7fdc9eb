"""Real nodes with a store that hangs or panics: they stop in time, and go on when it answers again."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.client.admin import Admin, NotAllCopied
from firnline.testing.plugin import Broker
from tests.chaos.test_tier_errors import RECORDS, TOPIC, fill, numbers, write

STOP_S = 5.0
PLUGIN = "tests.chaos.hanging_store:HangingStorage"


class Hanging:
    """A node with that store, and what the store is ordered to do."""

    def __init__(self, directory: Path) -> None:
        self.orders = directory / "orders"
        self.orders.mkdir()
        settings = {
            "remote.log.storage.manager.class.name": PLUGIN,
            "remote.log.storage.manager.class.path": str(Path(__file__).parents[2]),
            "rsm.config.orders": str(self.orders),
        }
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        self.broker = Broker(directory / "data", tier=directory / "tier", options=options)

    def order(self, *orders: str) -> None:
        for order in orders:
            (self.orders / order).touch()

    def countermand(self) -> None:
        for path in self.orders.iterdir():
            path.unlink()

    def await_hung(self, call: str) -> None:
        deadline = time.monotonic() + 30
        while not (self.orders / f"hung-{call}").exists():
            assert time.monotonic() < deadline, f"{call} was not called"
            time.sleep(0.05)

    def stop_in_time(self) -> None:
        began = time.monotonic()
        assert self.broker.stop() == 0
        assert time.monotonic() - began < STOP_S


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Hanging]:
    made = Hanging(tmp_path)
    made.broker.start()
    yield made
    made.countermand()
    if made.broker.process is not None:
        made.broker.stop()


def in_background(node: Hanging) -> None:
    """Read from the tier; what comes of it does not matter."""
    threading.Thread(target=_read, args=(node.broker,), daemon=True).start()


def _read(broker: Broker) -> None:
    try:
        numbers(broker)
    except Exception:  # noqa: BLE001 - the node stops meanwhile
        return


@pytest.mark.parametrize("call", ["fetch", "index"])
def test_a_node_stops_in_time_while_a_read_of_the_store_hangs(node: Hanging, call: str) -> None:
    fill(node.broker)
    node.broker.restart()  # indexes are not in memory any more
    for path in (node.broker.directory / "remote-log-index-cache").iterdir():
        path.unlink()
    node.order(f"hang-{call}")
    in_background(node)
    node.await_hung(call)
    node.stop_in_time()
    node.countermand()
    node.broker.start()
    assert numbers(node.broker) == list(range(RECORDS))


def test_a_node_stops_in_time_while_copies_and_the_end_of_the_store_hang(node: Hanging) -> None:
    node.order("hang-copy", "hang-close", "hang-delete")
    write(node.broker)
    node.await_hung("copy")
    node.stop_in_time()
    node.countermand()
    node.broker.start()
    assert numbers(node.broker) == list(range(RECORDS))


def test_a_node_stops_in_time_where_only_the_end_of_the_store_hangs(node: Hanging) -> None:
    fill(node.broker)
    node.order("hang-close")
    node.stop_in_time()


def test_a_flush_is_answered_in_time_while_copies_hang(node: Hanging) -> None:
    """`tier flush --timeout 3` took 34 s, and then said that the broker did not answer."""
    node.order("hang-copy")
    write(node.broker)
    node.await_hung("copy")
    with Admin(node.broker.bootstrap) as admin:
        began_s = time.monotonic()
        with pytest.raises(NotAllCopied) as caught:
            admin.tier_flush(TOPIC, (), timeout_s=1)
        assert time.monotonic() - began_s < 15
        [row] = caught.value.rows
        assert (row["log_end_offset"], row["highest_remote_offset"]) == (RECORDS, -1)
        assert "a copy is in progress" in row["problem"]
        node.countermand()
        assert admin.tier_flush(TOPIC, (), timeout_s=60)[0]["highest_remote_offset"] == RECORDS - 1


def test_a_node_starts_in_time_while_its_store_hangs(node: Hanging) -> None:
    node.broker.stop()
    node.order("hang-owner")
    began_s = time.monotonic()
    node.broker.start()
    assert time.monotonic() - began_s < 15
    node.await_hung("owner")
    node.countermand()
    fill(node.broker)
    assert numbers(node.broker) == list(range(RECORDS))


def test_a_store_that_panics_costs_no_thread(node: Hanging) -> None:
    """More often than there are threads; then all goes on."""
    fill(node.broker)
    node.broker.restart()
    node.order("panic-fetch")
    for _ in range(3):
        in_background(node)
    deadline = time.monotonic() + 30
    while not (node.orders / "panicked-fetch").exists():
        assert time.monotonic() < deadline, "nothing was read"
        time.sleep(0.05)
    time.sleep(3)
    node.countermand()
    assert numbers(node.broker) == list(range(RECORDS))


def test_a_read_that_is_slower_than_any_fetch_waits_brings_consumers_on(node: Hanging) -> None:
    fill(node.broker)
    node.order("hang-fetch")
    in_background(node)
    node.await_hung("fetch")
    time.sleep(2)
    node.countermand()
    assert numbers(node.broker) == list(range(RECORDS))
