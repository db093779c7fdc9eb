"""Listeners, sockets and requests. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

import ipaddress
from dataclasses import dataclass

from firnline.base.errors import ConfigError
from firnline.base.units import INT32_MAX
from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class NetworkKeys:
    """Listeners, advertised addresses, and limits of requests."""

    advertised_listeners: tuple[str, ...] | None = key(
        "LIST",
        None,
        "Addresses for clients; if not set, the listeners.",
        importance="HIGH",
    )
    connections_max_idle_ms: int = key(
        "LONG", 600000, "A connection that is idle for so long is closed."
    )
    firnline_answers_max_bytes: int = key(
        "LONG",
        536870912,
        "Memory of all responses until clients have read them, in bytes, without"
        " records that stay in files. A single response that needs more closes its connection.",
        valid="[1048576,...]",
    )
    fetch_max_bytes: int = key(
        "INT",
        57671680,
        "Largest Fetch response, whatever the client allows; a first batch is sent even if it is larger.",
        valid="[1024,...]",
        source="KIP-541",
    )
    listener_security_protocol_map: str = key(
        "STRING",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Protocol of each listener name. Only PLAINTEXT is supported.",
        importance="LOW",
        dynamic=True,
    )
    listeners: tuple[str, ...] = key(
        "LIST",
        ("PLAINTEXT://:9092",),
        "Listeners as name://host:port, separated by commas. An empty host is every interface.",
        importance="HIGH",
        dynamic=True,
    )
    max_connections: int = key(
        "INT",
        2147483647,
        "Connections to all listeners for clients and brokers; the same number for controllers. At the limit,"
        " a new connection closes the least active one of the address that has most. If not set,"
        " the limit is 10000.",
        valid="[0,...]",
        source="KIP-402",
        dynamic=True,
    )
    max_connections_per_ip: int = key(
        "INT",
        2147483647,
        "Connections of one address; one more is closed at once. 0: only addresses with an override.",
        valid="[0,...]",
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = key(
        "STRING",
        "",
        "Limits for single hosts: host:count, separated by commas. Host names are resolved when the"
        " node starts; run-time changes may contain only addresses.",
        dynamic=True,
    )
    max_incremental_fetch_session_cache_slots: int = key(
        "INT", 1000, "Fetch sessions that the broker keeps.", valid="[0,...]", source="KIP-227"
    )
    max_request_partition_size_limit: int = key(
        "INT",
        2000,
        "Partitions in one DescribeTopicPartitions response.",
        valid="[1,...]",
        source="KIP-966",
        kind="inert",
    )
    queued_max_request_bytes: int = key(
        "LONG",
        -1,
        "Memory of requests that are incomplete or waiting. At the limit large ones are received one after"
        " the other, and slow senders are disconnected. 0 or less: 512 MiB, or socket.request.max.bytes"
        " if that is larger.",
        source="KIP-72",
    )
    socket_listen_backlog_size: int = key(
        "INT",
        50,
        "Connections that may wait to be accepted.",
        valid="[1,...]",
        source="KIP-764",
        kind="inert",
    )
    socket_receive_buffer_bytes: int = key(
        "INT",
        102400,
        "SO_RCVBUF of client connections; -1: the system's default.",
        importance="HIGH",
        kind="inert",
    )
    socket_request_max_bytes: int = key(
        "INT",
        104857600,
        "Largest request frame; a larger one closes its connection.",
        valid="[1,...]",
        importance="HIGH",
    )
    socket_send_buffer_bytes: int = key(
        "INT",
        102400,
        "SO_SNDBUF of client connections; -1: the system's default.",
        importance="HIGH",
        kind="inert",
    )


def parse_overrides(text: str) -> dict[str, int]:
    """Return the limit of each host in max.connections.per.ip.overrides. Raises ConfigError."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.rpartition(":")
        host = host.strip().strip("[]")
        count = count.strip()
        is_count = count.isascii() and count.isdigit() and int(count) <= INT32_MAX
        if not (host and colon and is_count):
            raise ConfigError(
                f"max.connections.per.ip.overrides: {part!r} does not have the form host:count,"
                " with a count from 0 to 2147483647"
            )
        # In the spelling of a connection's address: 2001:DB8::0:1 becomes 2001:db8::1.
        found[str(ipaddress.ip_address(host)) if is_address(host) else host] = int(count)
    return found


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name that must be resolved."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
