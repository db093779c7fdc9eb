"""The settings of one node: all sections together, and the rules between keys. PURE.

The keyword constructor checks nothing. An operator's settings go through `config/load.py`, which parses and
checks each key and then calls `check_rules`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import MIB
from firnline.config.define import ConfigKey, Value, declared_keys, key
from firnline.config.group import GroupKeys
from firnline.config.logs import LogKeys
from firnline.config.network import NetworkKeys, parse_overrides
from firnline.config.providers import Redaction
from firnline.config.quorum import QuorumKeys
from firnline.config.replica import ReplicaKeys
from firnline.config.tiered import BUILT_IN_STORAGE, TierKeys, parse_given_up
from firnline.config.unused import unused_keys


class Endpoint(NamedTuple):
    """One listener: its name and address, to bind or to advertise. An empty host means every interface."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(NetworkKeys, LogKeys, ReplicaKeys, GroupKeys, QuorumKeys, TierKeys):
    """The settings of one node, merged from file, environment and command line."""

    firnline_acks_fsync: str = key(
        "STRING",
        "auto",
        "When an acks=all response waits for the disk: `always`; `auto`, if no other replica has the"
        " record; `never`, as Kafka does.",
        valid="[auto, always, never]",
        importance="HIGH",
        source="rel-P1",
    )
    firnline_log_format: str = key(
        "STRING",
        "text",
        "How the node's own log is written to stderr: `text`, lines with `key=value`, or `json`, one object a"
        " line with ts, level, logger, message and fields (docs/reference/logs.md). --log-format"
        " overrides it.",
        valid="[text, json]",
        importance="LOW",
        source="docs/reference/logs.md",
    )
    firnline_local_retention_check_interval_ms: int = key(
        "LONG",
        0,
        "Time between two checks for local segments that the tier has and that exceed the local limits."
        " Total limits, also of tiered topics, are then applied every log.retention.check.interval.ms. With"
        " 0, that is the interval for all local files, and each tier task applies its own limits.",
        valid="[0,...]",
        importance="LOW",
    )
    firnline_remote_read_ahead_max_bytes: int = key(
        "LONG",
        67108864,
        "Memory for records that are read from the tier before a consumer asks for them, in bytes. Nothing is"
        " read ahead from a directory; with 0, from no store.",
        valid="[0,...]",
        importance="LOW",
        dynamic=True,
    )
    firnline_metrics_host: str = key(
        "STRING",
        "127.0.0.1",
        "Address for /metrics. Whoever reaches it sees the names of topics, and needs no password: bind it to"
        " the network of Prometheus, and to no other.",
        importance="LOW",
    )
    firnline_metrics_port: int = key(
        "INT",
        0,
        "Port for /metrics, Prometheus text with the names of the JMX exporter; 0 for none.",
        valid="[0,...,65535]",
        importance="LOW",
    )
    config_providers: tuple[str, ...] = key(
        "LIST",
        (),
        "Providers of values, by names of your choice: then ${name:path:key} in a value is replaced at the"
        " start. Each has config.providers.NAME.class, and may have config.providers.NAME.param.*.",
        importance="LOW",
        source="KIP-297, KIP-421",
        dynamic=True,
    )
    # What the operator stated, by key: the STATIC_BROKER layer, including the keys of plug-ins.
    stated: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The keys whose value has parts from a provider, with these parts.
    resolved: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of partition logs."""
        return self.log_dirs or self.log_dir

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log."""
        return self.metadata_log_dir or self.directories[0]

    @property
    def client_listeners(self) -> list[Endpoint]:
        """The listeners for clients: all but those of the controller."""
        found = [parse_endpoint(text) for text in self.listeners]
        return [each for each in found if each.listener not in self.controller_listener_names]

    @property
    def broker_listeners(self) -> frozenset[str]:
        """The names of the listeners for other brokers."""
        names = (self.inter_broker_listener_name, self.remote_log_metadata_manager_listener_name)
        found = frozenset(name.upper() for name in names if name)
        return found if self.inter_broker_listener_name else found | {"PLAINTEXT"}

    @property
    def shares_broker_listener(self) -> bool:
        """Whether clients use the listener of the brokers, or may do so."""
        clients = [e for e in self.client_listeners if e.listener not in self.broker_listeners]
        return not clients or self.inter_broker_listener_name is None

    @property
    def has_other_controllers(self) -> bool:
        """Whether the active controller may be on another node."""
        return "controller" not in self.process_roles or len(self.controller_quorum_voters) > 1

    @property
    def controller_listeners(self) -> list[Endpoint]:
        """The listeners for members of the quorum, the one for the quorum's own requests first."""
        found = {each.listener: each for each in map(parse_endpoint, self.listeners)}
        names = [name.upper() for name in self.controller_listener_names]
        return [found[name] for name in names if name in found]

    @property
    def exposed_controllers(self) -> list[Endpoint]:
        """Controller listeners that are bound to all addresses of the machine."""
        own = self.controller_listeners if "controller" in self.process_roles else []
        return [each for each in own if each.host in EVERY_ADDRESS]

    @property
    def advertised(self) -> list[Endpoint]:
        """The addresses for clients."""
        if self.advertised_listeners is None:
            return self.client_listeners
        found = [parse_endpoint(text) for text in self.advertised_listeners]
        return [each for each in found if each.listener not in self.controller_listener_names]

    @property
    def named_controller(self) -> tuple[str, str, int] | None:
        """How the quorum's settings name this controller: key, entry, port. None: they do not."""
        if "controller" not in self.process_roles:
            return None
        key, entries = (
            "controller.quorum.bootstrap.servers",
            self.controller_quorum_bootstrap_servers,
        )
        if self.controller_quorum_voters:
            key, mine = "controller.quorum.voters", f"{self.node_id}@"
            entries = tuple(e for e in self.controller_quorum_voters if e.strip().startswith(mine))
        entry = entries[0].strip() if len(entries) == 1 else ""
        port = entry.rpartition(":")[2]
        return (key, entry, int(port)) if port.isdecimal() else None

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return what was stated under `prefix`, without the prefix: the settings of a plug-in."""
        found = sorted(name for name in self.stated if name.startswith(prefix))
        return {name.removeprefix(prefix): self.stated[name] for name in found}

    def is_shown(self, name: str) -> bool:
        """Whether the stated value of a key may be shown: in a response, or in a list of settings."""
        each = broker_keys().get(name)
        return each is not None and not each.is_sensitive and name not in self.resolved

    @cached_property
    def redact(self) -> Redaction:
        """Replaces secrets of this node in texts for logs and clients.

        Secrets are the values of passwords, what providers returned for sensitive keys, and values of
        plug-ins whose key says that they are secret. A directory or a listener's address is no secret,
        wherever its value comes from: a log without them would help nobody.
        """
        secrets: list[str] = []
        for name, value in self.stated.items():
            each = broker_keys().get(name)
            if each is not None and not each.is_sensitive:
                continue
            secrets += self.resolved.get(name, ())
            if each is not None or _SECRET_KEY.search(name):
                secrets.append(value)
        return Redaction(secrets)

    @property
    def plugin_prefixes(self) -> tuple[str, ...]:
        """Prefixes under which any key is accepted."""
        return (
            self.remote_log_storage_manager_impl_prefix,
            self.remote_log_metadata_manager_impl_prefix,
        )


# The last part of a plug-in's key whose value is secret, also where it stands in the file itself.
_SECRET_KEY = re.compile(
    r"(?:password|passphrase|secret|token|credentials?|connection[._-]?string|jaas\.config"
    r"|(?:access|account|api|encryption|private|secret|signing)[._-]?key)$",
    re.IGNORECASE,
)
# Hosts of a listener that is bound to all addresses of the machine.
EVERY_ADDRESS = ("", "0.0.0.0", "::")
# The minimum of segment.bytes of a topic.
TOPIC_SEGMENT_BYTES_MIN = MIB
# In cordoned.log.dirs: every entry of log.dirs.
ALL_DIRECTORIES = "*"


@cache
def broker_keys() -> Mapping[str, ConfigKey]:
    """Return every broker key, Kafka 4.3.1's and ours, in alphabetical order."""
    both = {**declared_keys(BrokerConfig, "broker"), **unused_keys()}
    return {name: both[name] for name in sorted(both)}


def parse_endpoint(text: str) -> Endpoint:
    """Parse `name://host:port`, with the host bare, in brackets (IPv6) or empty. Raises ConfigError."""
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (listener and separator and colon) or not port.isascii() or not port.isdigit():
        raise ConfigError(f"listeners: {text!r} does not have the form name://host:port")
    if int(port) > 65535:
        raise ConfigError(f"listeners: port {port} of {text!r} is above 65535")
    return Endpoint(listener.upper(), host.strip("[]"), int(port))


def check_rules(config: BrokerConfig, values: Mapping[str, Value]) -> None:
    """Check the rules between keys; `values` are all keys by name. Raises ConfigError."""
    for problem in _problems(config):
        raise ConfigError(problem)
    for name, value in values.items():
        each = broker_keys()[name]
        if each.kind == "promise" and value != each.default:
            raise ConfigError(f"{name} is not supported yet and would have no effect: remove it")


def _problems(config: BrokerConfig) -> Iterator[str]:
    yield from _role_problems(config)
    yield from _listener_problems(config)
    strange = [
        each
        for each in config.cordoned_log_dirs
        if each != ALL_DIRECTORIES and each not in config.directories
    ]
    if strange:
        yield f"cordoned.log.dirs names {strange[0]}, which is not in log.dirs"
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield "group.min.session.timeout.ms must not exceed group.max.session.timeout.ms"
    if config.offsets_topic_compression_codec not in range(5):
        yield "offsets.topic.compression.codec must be 0 to 4"
    if config.offsets_topic_segment_bytes < TOPIC_SEGMENT_BYTES_MIN:
        # Kafka 4.3.1 starts with it, but then no group finds a coordinator (observed).
        yield (
            f"offsets.topic.segment.bytes={config.offsets_topic_segment_bytes}: __consumer_offsets cannot"
            f" be created, because segment.bytes of a topic is at least {TOPIC_SEGMENT_BYTES_MIN}; raise it"
        )
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        yield "log.cleaner.min.compaction.lag.ms must not exceed log.cleaner.max.compaction.lag.ms"
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        yield "broker.heartbeat.interval.ms must be below broker.session.timeout.ms"
    for name, value in _ages(config).items():
        if value is not None and (value == 0 or value < -1):
            yield f"{name}={value}: must be -1, no limit, or above 0"
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield "queued.max.request.bytes must be socket.request.max.bytes or more, or -1"
    overrides = parse_overrides(config.max_connections_per_ip_overrides)
    if config.max_connections_per_ip == 0 and not overrides:
        yield (
            "max.connections.per.ip=0 allows only the hosts in max.connections.per.ip.overrides,"
            " which is empty"
        )
    for text in config.firnline_remote_log_metadata_given_up:
        parse_given_up(text)
    if config.remote_log_storage_system_enable:
        yield from _tier_problems(config)


def _role_problems(config: BrokerConfig) -> Iterator[str]:
    if not config.process_roles:
        yield "process.roles must name broker, controller, or both"
    elif len(set(config.process_roles)) != len(config.process_roles):
        yield "process.roles names the same role twice"
    if not config.directories:
        yield "log.dirs is empty"
    yield from _quorum_problems(config)


def _quorum_problems(config: BrokerConfig) -> Iterator[str]:
    """The checks that Kafka makes too, in our words: voters must be controllers, and controllers voters."""
    voters = config.controller_quorum_voters
    node_ids = [text.partition("@")[0].strip() for text in voters]
    is_controller = "controller" in config.process_roles
    # The file that Kafka ships names one server, the node itself: it means a quorum of one.
    servers = config.controller_quorum_bootstrap_servers
    is_alone = len(servers) <= 1 and len(set(config.process_roles)) == 2
    if not voters and servers and not is_alone:
        yield (
            "controller.quorum.bootstrap.servers without controller.quorum.voters asks for dynamic voters"
            " (kraft.version 1), which this release does not support: name the voters in"
            " controller.quorum.voters, as id@host:port"
        )
    elif not voters and len(set(config.process_roles)) == 1:
        yield "controller.quorum.voters must name the voters, as id@host:port"
    elif voters and is_controller and str(config.node_id) not in node_ids:
        yield (
            f"controller.quorum.voters lacks node.id {config.node_id}: a controller in process.roles"
            " must be a voter"
        )
    elif voters and not is_controller and str(config.node_id) in node_ids:
        yield (
            f"controller.quorum.voters has node.id {config.node_id}, which is not a controller in"
            " process.roles: give this node another id, or add controller"
        )


def _listener_problems(config: BrokerConfig) -> Iterator[str]:
    listeners = [parse_endpoint(text) for text in config.listeners]
    names = [each.listener for each in listeners]
    ports = [each.port for each in listeners if each.port]
    if len(set(names)) != len(names):
        yield "listeners: each listener needs a name of its own"
    if len(set(ports)) != len(ports) and len({(e.host, e.port) for e in listeners}) != len(names):
        yield "listeners: each listener needs an address of its own"
    protocols = dict(
        part.strip().rpartition(":")[::2]
        for part in config.listener_security_protocol_map.split(",")
        if part.strip()
    )
    for name in names:
        # As in Kafka, a controller listener that the map lacks is PLAINTEXT.
        fallback = "PLAINTEXT" if name in config.controller_listener_names else None
        protocol = protocols.get(name, fallback)
        if protocol is None:
            yield f"listeners: {name} is not in listener.security.protocol.map"
        elif protocol != "PLAINTEXT":
            yield f"listeners: {name} asks for {protocol}; only PLAINTEXT is supported yet"
    if not config.controller_listener_names:
        yield "controller.listener.names must name the listener of controllers"
    is_broker, is_controller = (role in config.process_roles for role in ("broker", "controller"))
    if is_broker and not config.client_listeners:
        yield "listeners: all are in controller.listener.names, and none is left for clients"
    if not is_broker and config.client_listeners:
        yield (
            f"listeners: {config.client_listeners[0].listener} is not in controller.listener.names, and"
            " without broker in process.roles there are no other clients"
        )
    if not is_controller and config.controller_listeners:
        yield (
            f"listeners: {config.controller_listeners[0].listener} is in controller.listener.names, and"
            " without controller in process.roles this node has none"
        )
    if is_controller and config.has_other_controllers and not config.controller_listeners:
        yield (
            "listeners: none is in controller.listener.names, so the other voters cannot reach this one"
        )
    for each in config.advertised:
        if each.host in EVERY_ADDRESS[1:]:
            yield "advertised.listeners: clients cannot use the address 0.0.0.0"
        if each.listener not in names:
            yield f"advertised.listeners: {each.listener} is not one of the listeners"


def _ages(config: BrokerConfig) -> dict[str, int | None]:
    return {
        "log.retention.ms": config.log_retention_ms,
        "log.retention.minutes": config.log_retention_minutes,
        "log.retention.hours": config.log_retention_hours,
    }


def _tier_problems(config: BrokerConfig) -> Iterator[str]:
    if not config.remote_log_storage_manager_class_name:
        yield (
            "remote.log.storage.system.enable=true needs remote.log.storage.manager.class.name: where to"
            f" copy segments to. The built-in one is {BUILT_IN_STORAGE}, with rsm.config.uri=URI"
        )
    listener = config.remote_log_metadata_manager_listener_name
    names = [each.listener for each in config.client_listeners]
    if listener is not None and listener.upper() not in names:
        yield (
            f"remote.log.metadata.manager.listener.name={listener} is not one of the listeners for brokers"
            f" and clients: {', '.join(names)}"
        )
