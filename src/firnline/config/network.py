"""Listeners, sockets and requests. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

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
