"""Load users' own stores and metadata managers by class name. WORLD.

A plug-in is a Python class with the methods of a protocol: `RemoteStorage` of `tiered/spi.py` for a store,
`MetadataManager` for remote log metadata. Kafka's Java classes cannot be loaded, and the error says so. A
class that cannot be made or configured, or that lacks a method, is refused at the start. Source: KIP-405
'Configs'; spec 3.19, T53, T57.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from glob import escape, glob
from importlib import import_module
from typing import Any, Protocol

from firnline.base.errors import ConfigError, FirnlineError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.base.log_lines.process import PLUGIN_FAILED
from firnline.base.log_lines.tier import STORE_NOT_USED_YET
from firnline.config.broker import BrokerConfig
from firnline.config.parse import nearest
from firnline.log.checkpoint import read_cluster_id
from firnline.metadata.image import Endpoint
from firnline.runtime.disk import RealFs
from firnline.runtime.logs.lines import log_line
from firnline.stores.registry import STORE_PREFIX
from firnline.tiered.objects.storage import CLUSTER_ID, IN_USE, URI, ObjectStorage
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage

STORAGE_KEY = "remote.log.storage.manager.class.name"
METADATA_KEY = "remote.log.metadata.manager.class.name"
CLIENT_PREFIX = "remote.log.metadata.common.client."
_BROKER_ID = "broker.id"
# What the node adds to a store's settings.
_OF_NODE = (_BROKER_ID, CLUSTER_ID, IN_USE)
_JAVA_PACKAGES = ("org.", "com.", "io.", "net.")


class MetadataManager(RemoteLogMetadata, Protocol):
    """A user's own store of remote log metadata: made without arguments, then configured, then used."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the settings with the configured prefix, and those of the node. Source: spec T53.

        `broker.id`, `cluster.id` and `log.dir` are those of the node. If the operator names a listener in
        remote.log.metadata.manager.listener.name, its address is
        `remote.log.metadata.common.client.bootstrap.servers`, and its protocol is
        `remote.log.metadata.common.client.security.protocol`; values that the operator stated win. A
        FirnlineError, which should have a remedy, prevents the start of the node.
        """
        ...

    def close(self) -> None:
        """Close what it opened: the node ends."""
        ...


def remote_storage(config: BrokerConfig) -> RemoteStorage | None:
    """Return the configured store, or None if tiering is off. Raises ConfigError."""
    if not config.remote_log_storage_system_enable:
        return None
    name = config.remote_log_storage_manager_class_name
    if not name:
        raise ConfigError(f"{STORAGE_KEY} must be set: tiering is on and needs a store")
    cluster_id = read_cluster_id(RealFs(), config.metadata_directory)
    storage = _storage(config, name, cluster_id)
    if isinstance(storage, ObjectStorage) and storage.problem is not None:
        why = config.redact(str(storage.problem))
        log_line(STORE_NOT_USED_YET(error=why))
    return storage


def own_storage(config: BrokerConfig) -> RemoteStorage | None:
    """Return the configured store if its class is not the built-in one, for a check without a broker.

    It is loaded and configured as by a broker. `cluster.id` is missing if the directory of the node is not
    formatted: a made-up one could bind the store to a cluster that does not exist. Raises ConfigError.
    """
    name = config.remote_log_storage_manager_class_name
    if not name:
        return None
    _extend_path(STORAGE_KEY, config.remote_log_storage_manager_class_path)
    if _find(STORAGE_KEY, name) is ObjectStorage:
        prefix = config.remote_log_storage_manager_impl_prefix
        check_built_in(prefix, config.with_prefix(prefix))
        return None
    try:
        cluster_id = read_cluster_id(RealFs(), config.metadata_directory)
    except FirnlineError:
        cluster_id = None
    return _storage(config, name, cluster_id)


def _storage(config: BrokerConfig, name: str, cluster_id: str | None) -> RemoteStorage:
    """Make and configure the store. Raises ConfigError."""
    class_path = config.remote_log_storage_manager_class_path
    storage: RemoteStorage = _make(config, STORAGE_KEY, name, class_path, RemoteStorage)
    prefix = config.remote_log_storage_manager_impl_prefix
    settings = config.with_prefix(prefix)
    if type(storage) is ObjectStorage:
        check_built_in(prefix, settings)
    settings[_BROKER_ID] = str(config.node_id)
    if cluster_id is not None:
        settings[CLUSTER_ID] = cluster_id
    if _has_used_a_tier(config):
        settings[IN_USE] = "true"
    _configure(config, STORAGE_KEY, name, storage, settings)
    return storage


def check_built_in(prefix: str, settings: Mapping[str, str]) -> None:
    """Refuse settings that the built-in store does not have. Raises ConfigError with the nearest one.

    prefix    of the keys in the operator's file
    settings  what was stated, without the prefix
    """
    known = (URI, *_OF_NODE)
    for name in sorted(settings):
        if name in known or name.startswith(STORE_PREFIX):
            continue
        close = nearest(name.partition(".")[0], (URI, STORE_PREFIX.rstrip(".")))
        guess = "" if close is None else f": is it {prefix}{close}{'' if close == URI else '.*'}?"
        raise ConfigError(
            f"{prefix}{name} is not a setting of the built-in store{guess}",
            remedy=f"it has {prefix}{URI}, and {prefix}{STORE_PREFIX}* for the client library of the store",
        )


def remote_metadata(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> MetadataManager | None:
    """Return the configured metadata manager; None for the built-in one, or if tiering is off.

    endpoints  the addresses for clients. Raises ConfigError.
    """
    if not config.remote_log_storage_system_enable or config.has_metadata_topic:
        return None
    name = config.remote_log_metadata_manager_class_name
    class_path = config.remote_log_metadata_manager_class_path
    manager: MetadataManager = _make(config, METADATA_KEY, name, class_path, MetadataManager)
    listener = (config.remote_log_metadata_manager_listener_name or "").upper()
    settings = {}
    for endpoint in endpoints:
        if endpoint.listener == listener:
            settings[CLIENT_PREFIX + "bootstrap.servers"] = f"{endpoint.host}:{endpoint.port}"
            settings[CLIENT_PREFIX + "security.protocol"] = "PLAINTEXT"
    settings |= config.with_prefix(config.remote_log_metadata_manager_impl_prefix)
    settings[_BROKER_ID] = str(config.node_id)
    settings["log.dir"] = config.directories[0]
    settings[CLUSTER_ID] = read_cluster_id(RealFs(), config.metadata_directory)
    _configure(config, METADATA_KEY, name, manager, settings)
    return manager


def _has_used_a_tier(config: BrokerConfig) -> bool:
    """Whether this node holds remote log metadata."""
    prefix = REMOTE_LOG_METADATA_TOPIC + "-"
    return any(
        os.path.getsize(file)
        for path in config.directories
        for file in glob(f"{escape(path)}/{prefix}*/*.log")
    )


def _extend_path(key: str, class_path: str | None) -> None:
    for entry in (class_path or "").split(":"):
        if not entry:
            continue
        if not os.path.exists(entry):
            key = key.replace("class.name", "class.path")
            raise ConfigError(f"{key}: {entry} does not exist; name folders with Python modules")
        if entry not in sys.path:
            sys.path.append(entry)


def _make(config: BrokerConfig, key: str, name: str, class_path: str | None, protocol: type) -> Any:
    """Make an object of the class, which has all methods of the protocol. Raises ConfigError."""
    _extend_path(key, class_path)
    make = _find(key, name)
    try:
        made = make()
    except Exception as problem:  # noqa: BLE001 - whatever a user's code raises
        raise _failed(config, f"{key}={name}: it cannot be made", problem) from None
    missing = [each for each in _methods(protocol) if not _has(made, each, protocol)]
    if missing:
        raise ConfigError(
            f"{key}={name}: it has no method {', '.join(missing)}; the methods are those of"
            f" {protocol.__module__}.{protocol.__name__}"
        )
    return made


def _find(key: str, name: str) -> Any:
    """Return the class, or another callable, with that name. Raises ConfigError."""
    module_name, _, class_name = name.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module_name), class_name)
    except Exception as problem:  # noqa: BLE001 - whatever a user's module raises
        if name.startswith(_JAVA_PACKAGES):
            raise ConfigError(
                f"{key}={name}: a Java class cannot be loaded by a broker in Python; name a Python"
                " class that follows firnline.tiered.spi"
            ) from None
        why = str(problem) or type(problem).__name__
        if not module_name:
            why = "the name has the form module.Class"
        elif isinstance(problem, ModuleNotFoundError):
            folders = key.replace("class.name", "class.path")
            why += f"; name its folder in {folders}. A Java class cannot be loaded by a broker in Python"
        raise ConfigError(f"{key}={name}: {why}") from None


def _methods(protocol: type) -> list[str]:
    """Return the names of the methods that a protocol declares, in its order."""
    names = [
        name
        for each in reversed(protocol.__mro__)
        if getattr(each, "_is_protocol", False)
        for name, value in vars(each).items()
        if callable(value) and not name.startswith("_")
    ]
    return list(dict.fromkeys(names))


def _has(made: object, name: str, protocol: type) -> bool:
    """Whether the object has the method itself: what a subclass inherits from the protocol does nothing."""
    found = getattr(made, name, None)
    return callable(found) and getattr(type(made), name, None) is not getattr(protocol, name)


def _configure(
    config: BrokerConfig,
    key: str,
    name: str,
    plugin: RemoteStorage | MetadataManager,
    settings: Mapping[str, str],
) -> None:
    try:
        plugin.configure(settings)
    except FirnlineError:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever a user's code raises
        raise _failed(config, f"{key}={name}: it cannot be configured", problem) from None


def _failed(config: BrokerConfig, what: str, problem: Exception) -> ConfigError:
    """Return the error of a plug-in's own exception; its traceback is logged for the plug-in's author."""
    log_line(PLUGIN_FAILED(what=what, error=problem), problem)
    said = config.redact(str(problem))
    return ConfigError(f"{what}: {type(problem).__name__}{': ' if said else ''}{said}")
