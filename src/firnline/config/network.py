"""Listeners, sockets and requests. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

import ipaddress
from dataclasses import dataclass

from firnline.base.errors import ConfigError
from firnline.base.units import INT32_MAX
from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class NetworkKeys:
    """What a node listens on, what it tells clients, and what one request may cost."""

    advertised_listeners: tuple[str, ...] | None = key(
        "LIST",
        None,
        "Addresses that clients are told; the listeners where not said.",
        importance="HIGH",
    )
    connections_max_idle_ms: int = key(
        "LONG", 600000, "A connection without a request for so long is closed."
    )
    firnline_answers_max_bytes: int = key(
        "LONG",
        536870912,
        "Bytes that all answers may hold while they are made and until clients have read them, without"
        " records that stay in files. One answer that needs more closes its connection.",
        valid="[1048576,...]",
    )
    fetch_max_bytes: int = key(
        "INT",
        57671680,
        "Largest answer to one fetch, whatever the client allows; one whole batch is sent anyway.",
        valid="[1024,...]",
        source="KIP-541",
    )
    listener_security_protocol_map: str = key(
        "STRING",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Protocol of each listener name. Only PLAINTEXT is served.",
        importance="LOW",
        dynamic=True,
    )
    listeners: tuple[str, ...] = key(
        "LIST",
        ("PLAINTEXT://:9092",),
        "Where the node listens: name://host:port, by comma. An empty host is every interface.",
        importance="HIGH",
        dynamic=True,
    )
    max_connections: int = key(
        "INT",
        2147483647,
        "Connections to all listeners for clients and brokers, and again to those of controllers. Where there"
        " are as many, the least active one of the address that has most is closed for the next. Not stated,"
        " it is 10000.",
        valid="[0,...]",
        source="KIP-402",
        dynamic=True,
    )
    max_connections_per_ip: int = key(
        "INT",
        2147483647,
        "Connections of one address; one more is closed at once. 0 for those alone that have an override.",
        valid="[0,...]",
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = key(
        "STRING",
        "",
        "Addresses or host names with limits of their own: host:count, by comma. Names are looked up when the"
        " node starts; at run time addresses alone are taken.",
        dynamic=True,
    )
    max_incremental_fetch_session_cache_slots: int = key(
        "INT", 1000, "Fetch sessions that are remembered.", valid="[0,...]", source="KIP-227"
    )
    max_request_partition_size_limit: int = key(
        "INT",
        2000,
        "Partitions in one answer to DescribeTopicPartitions.",
        valid="[1,...]",
        source="KIP-966",
        kind="inert",
    )
    queued_max_request_bytes: int = key(
        "LONG",
        -1,
        "Memory for requests that are not whole, or wait behind others. At it large ones come in one after"
        " the other, and who sends slowly then is closed. 0 and below: 512 MiB, or socket.request.max.bytes"
        " if that is more.",
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
        "SO_RCVBUF of client connections; -1 leaves it to the system.",
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
        "SO_SNDBUF of client connections; -1 leaves it to the system.",
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
                f"max.connections.per.ip.overrides: {part!r} is not of the form host:count,"
                " with a count from 0 to 2147483647"
            )
        # As an address of a connection is written: 2001:DB8::0:1 is 2001:db8::1.
        found[str(ipaddress.ip_address(host)) if is_address(host) else host] = int(count)
    return found


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name that has to be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
