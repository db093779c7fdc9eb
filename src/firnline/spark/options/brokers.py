"""Whether a read asks brokers, and how it reaches them. PURE.

Source: Spark's guide 'Kafka Specific Configurations'; Kafka's ConsumerConfig.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import INT32_MAX
from firnline.spark.options.kafka import BOOTSTRAP, PREFIX

AUTO, TIER, BROKER = SOURCES = ("auto", "tier", "broker")
READ_FROM = "readFrom"
REQUEST_TIMEOUT = "kafka.request.timeout.ms"
SECURITY = "kafka.security.protocol"
_RETRIES, _INTERVAL, _POLL = (
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"
)  # fmt: skip


class BrokerSettings(NamedTuple):
    """How a read reaches the brokers of a cluster.

    servers            addresses, separated by commas
    timeout_s          how long one answer may take
    attempts, retry_interval_ms
                       how often the driver asks for offsets, and what it waits in between
    poll_timeout_ms    how long a task waits for the next records, whatever the errors are
    """

    servers: str
    timeout_s: float = 30.0
    attempts: int = 4
    retry_interval_ms: int = 10
    poll_timeout_ms: int = 120_000


def parse_brokers(
    options: Mapping[str, str], *, has_tier: bool
) -> tuple[str, BrokerSettings | None]:
    """Return where records are read from, and how the brokers are reached; None: they are not asked.

    options  the user's, with names in lower case

    `auto` is the tier alone if no brokers are named, and the brokers alone if no tier is.
    """
    chosen = options.get(READ_FROM.lower(), AUTO).strip().lower()
    if chosen not in SOURCES:
        raise ConfigError(f"{READ_FROM} must be one of {', '.join(SOURCES)}", given=chosen)
    servers = options.get(BOOTSTRAP, "").strip()
    settings = BrokerSettings(
        servers,
        timeout_s=_integer(options, REQUEST_TIMEOUT, 30_000, least=1) / 1000,
        attempts=1 + _integer(options, _RETRIES, 3),
        retry_interval_ms=_integer(options, _INTERVAL, 10),
        poll_timeout_ms=_integer(options, _POLL, 120_000),
    )
    if BOOTSTRAP in options and not servers and chosen != TIER:
        raise ConfigError(
            f"{BOOTSTRAP} is empty, as a variable that is not set: name brokers, or leave it out"
        )
    if chosen == TIER or (chosen == AUTO and not servers):
        return TIER, None
    if not servers:
        raise ConfigError(f"{READ_FROM}={chosen} asks the brokers: give {BOOTSTRAP}")
    protocol = options.get(SECURITY, "PLAINTEXT").strip()
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"{SECURITY} must be PLAINTEXT: connections with TLS or SASL are not supported yet."
            f" {READ_FROM}={TIER} asks no broker",
            given=protocol,
        )
    return (AUTO if has_tier and chosen == AUTO else BROKER), settings


def _integer(options: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = options.get(name.lower(), str(default)).strip()
    if not re.fullmatch(r"[+-]?\d{1,10}", text) or not least <= int(text) <= INT32_MAX:
        raise ConfigError(f"{name} must be a whole number from {least} to {INT32_MAX}", given=text)
    return int(text)


assert all(name.startswith(PREFIX) for name in (REQUEST_TIMEOUT, SECURITY))
