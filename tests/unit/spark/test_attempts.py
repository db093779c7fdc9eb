"""How often and how long a driver asks brokers that give no answer."""

import time
from collections.abc import Callable

import pytest

from firnline.client.admin import Admin
from firnline.client.connection import Unreachable
from firnline.spark.brokers.cluster import Brokers, NoAnswer
from firnline.spark.options.parse import parse_options
from tests.unit.cli.hanging import silent

GIVEN = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}


def asked(monkeypatch: pytest.MonkeyPatch, **more: str) -> tuple[int, list[float]]:
    """Return how often brokers that are away were asked, and what was waited in between, in s."""
    times, waits = [0], list[float]()

    def ask(self: Admin, names: object) -> object:
        times[0] += 1
        raise Unreachable("nobody listens")

    monkeypatch.setattr(Admin, "metadata", ask)
    sleep: Callable[[float], None] = waits.append
    monkeypatch.setattr(time, "sleep", sleep)
    settings = parse_options(GIVEN | {k.replace("__", "."): v for k, v in more.items()}).brokers
    assert settings is not None
    with Brokers(settings) as brokers, pytest.raises(NoAnswer, match="readFrom=tier"):
        brokers.topics(["t"])
    return times[0], waits


def test_the_driver_asks_as_often_and_waits_as_long_as_the_options_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch) == (4, [0.01] * 3)
    assert asked(monkeypatch, fetchOffset__numRetries="0") == (1, [])
    more = {"fetchOffset__numRetries": "2", "fetchOffset__retryIntervalMs": "700"}
    assert asked(monkeypatch, **more) == (3, [0.7] * 2)


def test_an_answer_is_waited_for_as_long_as_the_option_says() -> None:
    """A broker that accepts connections and never answers; by default each attempt takes 30 s."""
    with silent() as address:
        given = {
            **GIVEN, "kafka.bootstrap.servers": address,
            "fetchOffset.numRetries": "0", "kafka.request.timeout.ms": "150",
        }  # fmt: skip
        settings = parse_options(given).brokers
        assert settings is not None
        began = time.monotonic()
        with Brokers(settings) as brokers, pytest.raises(NoAnswer, match="attempts=1"):
            brokers.topics(["t"])
        assert 0.15 <= time.monotonic() - began < 20
