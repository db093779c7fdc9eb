"""The current limits on connections, from the settings. WORLD."""

import socket
from collections.abc import Callable

from firnline.base.errors import ConfigError
from firnline.base.log_lines.process import LIMITS_STAY
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.config.network import is_address, parse_overrides
from firnline.metadata.image import ClusterImage, ResourceType
from firnline.runtime.bounds.connections import Limits
from firnline.runtime.logs.lines import log_line

# Used where max.connections is not stated; in Kafka that means no limit.
CONNECTIONS_MAX = 10_000
_TOTAL = "max.connections"


class ConnectionLimits:
    """Returns the limits. Host names in the file are resolved once; ConfigError for one without an
    address.
    """

    def __init__(self, config: BrokerConfig, image: Callable[[], ClusterImage]) -> None:
        self._config = config
        self._image = image
        self._addresses = {
            host: _addresses(host)
            for host in parse_overrides(config.max_connections_per_ip_overrides)
            if not is_address(host)
        }
        self._said_of: ClusterImage | None = None
        self._limits = self._resolved(config, is_stated=_TOTAL in config.stated)

    def __call__(self) -> Limits:
        image = self._image()
        if image is not self._said_of:
            self._said_of = image
            try:
                self._limits = self._look(image)
            except ConfigError as problem:  # a controller of another release accepted it
                log_line(LIMITS_STAY(error=problem))
        return self._limits

    def _look(self, image: ClusterImage) -> Limits:
        names = ("", str(self._config.node_id))
        cluster, node = (image.config(ResourceType.BROKER, name) for name in names)
        config = broker_config(self._config, cluster, node) if cluster or node else self._config
        is_stated = any(_TOTAL in layer for layer in (cluster, node, self._config.stated))
        return self._resolved(config, is_stated=is_stated)

    def _resolved(self, config: BrokerConfig, *, is_stated: bool) -> Limits:
        overrides: dict[str, int] = {}
        for host, count in parse_overrides(config.max_connections_per_ip_overrides).items():
            for address in self._addresses.get(host, (host,)):
                overrides[address] = count
        total = config.max_connections if is_stated else CONNECTIONS_MAX
        return Limits(total, config.max_connections_per_ip, overrides)


def _addresses(host: str) -> list[str]:
    """Resolve a name; only at the start, when no client waits."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise ConfigError(
            f"max.connections.per.ip.overrides names {host}, which has no address: {problem.strerror}"
        ) from None
    return sorted({str(row[4][0]) for row in found})
