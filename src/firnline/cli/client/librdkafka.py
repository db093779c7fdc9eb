"""librdkafka, the C library of Kafka clients: loaded when it is needed, without its log lines. WORLD.

Only `firnline produce` and `firnline consume` import confluent-kafka (decision 0051).
"""

import logging
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from firnline.base.errors import ConfigError, FirnlineError
from firnline.cli.client.librdkafka_names import NAMES
from firnline.cli.client.stopping import LATER_S, StopSignals, in_time
from firnline.cli.terminal.names import did_you_mean
from firnline.client.connection import Unreachable, parse_address
from firnline.client.deadline import Deadline

_BOOTSTRAP = ("bootstrap.servers", "metadata.broker.list")
_UNKNOWN = re.compile(r'^No such configuration property: "([^"]*)"')
# What it appends and prepends to its reasons: threads, states, its own names of nodes.
_NOISE = re.compile(
    r"^(?:\[thrd:[^\]]*\]: )?(?:\S+/(?:bootstrap|\d+|GroupCoordinator): )?|"
    r" \(after \d+ms in state \w+(?:[^()]|\([^()]*\))*\)|: Local: [^:]*$"
)


def load() -> ModuleType:
    """Import confluent_kafka. Raises FirnlineError with the line that installs it."""
    try:
        import confluent_kafka
    except ImportError as problem:
        raise FirnlineError(
            "this command needs librdkafka, which is not there"
            f" ({problem}): pip install confluent-kafka"
        ) from None
    found: ModuleType = confluent_kafka
    return found


class Complaints:
    """What librdkafka says beside the calls that are made of it: kept, and never printed as it is."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.refusal: str | None = None  # what will not pass: a wrong password, a fenced producer
        self.is_cut_off = False  # it has lost all brokers
        self.commit: str | None = None  # why the last commit of offsets failed

    def on_error(self, problem: Any) -> None:
        """The `error_cb` of a client."""
        code = problem.code()
        if code == problem._ALL_BROKERS_DOWN:
            self.is_cut_off = True
            return
        self.last = plain(problem.str())
        if code in (problem._AUTHENTICATION, problem._SSL) or problem.fatal():
            self.refusal = self.last

    def on_commit(self, problem: Any, _: Any) -> None:
        """The `on_commit` of a consumer."""
        if problem is None:
            self.commit = None
        elif problem.code() != problem._NO_OFFSET:
            self.commit = plain(problem.str())


def settings(
    bootstrap: str, overrides: Mapping[str, str], complaints: Complaints
) -> dict[str, Any]:
    """Return the settings that producers and consumers share; `overrides` come from the user."""
    found: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "firnline",
        "enable.metrics.push": False,
        "error_cb": complaints.on_error,
        "reconnect.backoff.max.ms": 1000,
    }
    if "debug" not in overrides:
        silent = logging.Logger("librdkafka")
        silent.addHandler(logging.NullHandler())
        found["logger"] = silent
    return found | dict(overrides)


def bootstrap_of(bootstrap: str, overrides: Mapping[str, str]) -> str:
    """Return the addresses that count: those of -X come before those of the command line."""
    return next((overrides[name] for name in _BOOTSTRAP if name in overrides), bootstrap)


def make(kind: Any, config: dict[str, Any]) -> Any:
    """Make a Producer or a Consumer. Raises ConfigError for a setting that librdkafka refuses."""
    try:
        return kind(config)
    except Exception as problem:  # noqa: BLE001 - KafkaException, ValueError, TypeError: by setting
        inner = problem.args[0] if problem.args else problem
        text = inner.str() if hasattr(inner, "str") else str(inner)
        if unknown := _UNKNOWN.search(text):
            name = unknown[1]
            # An older librdkafka may lack a name of the list: it is not its own nearest.
            hint = did_you_mean(name, [each for each in NAMES if each != name])
            raise ConfigError(f"-X: librdkafka has no setting {name!r}. {hint}".strip()) from None
        raise ConfigError(f"librdkafka refuses its settings: {plain(text)}") from None


def plain(text: str) -> str:
    """Return a reason of librdkafka's without names of its threads and states."""
    return " ".join(_NOISE.sub("", text).split()).removeprefix("Broker: ").removeprefix("Local: ")


def reason_of(problem: BaseException) -> str:
    """Return what a KafkaException says."""
    inner = problem.args[0] if problem.args else problem
    return plain(inner.str() if hasattr(inner, "str") else str(inner))


def reach(bootstrap: str, deadline: Deadline, stop: StopSignals) -> None:
    """Wait until one of the addresses accepts a connection. Raises Unreachable at once if all refuse.

    librdkafka would try for ever, and cannot say that nobody is there.
    """
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise Unreachable("no address given: expected host:port")
    limit = Deadline(deadline.left_s() + LATER_S)
    in_time(lambda: _first_of(addresses, deadline), limit, stop)


def _first_of(addresses: Sequence[tuple[str, int]], deadline: Deadline) -> None:
    outcomes: SimpleQueue[str | None] = SimpleQueue()

    def connect(host: str, port: int) -> None:
        try:
            socket.create_connection((host, port), max(0.001, deadline.left_s())).close()
            outcomes.put(None)
        except (OSError, OverflowError, UnicodeError) as problem:
            outcomes.put(getattr(problem, "strerror", None) or str(problem))

    for address in addresses:
        threading.Thread(target=connect, args=address, daemon=True).start()
    reasons = []
    for _ in addresses:
        try:
            outcome = outcomes.get(timeout=max(0.001, deadline.left_s()))
        except Empty:
            break
        if outcome is None:
            return
        reasons.append(outcome)
    shown = ", ".join(f"{host}:{port}" for host, port in addresses)
    why = ", ".join(dict.fromkeys(reasons)) or "no answer in time"
    raise Unreachable(f"cannot reach a broker at {shown}: {why}")
