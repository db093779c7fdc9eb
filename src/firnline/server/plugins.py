"""Load users' own stores and metadata managers by class name. WORLD.

A plug-in is a Python class with the protocols of `tiered/spi.py`. Kafka's Java classes cannot be loaded, and
the error says so. Source: KIP-405 'Configs'; spec 3.19, T53, T57.
"""

import os
import sys
from glob import escape, glob
from importlib import import_module
from typing import Any

from firnline.base.errors import ConfigError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.config.broker import BrokerConfig
from firnline.log.checkpoint import read_cluster_id
from firnline.runtime.disk import RealFs
from firnline.tiered.objects.storage import CLUSTER_ID, IN_USE
from firnline.tiered.spi import RemoteStorage

STORAGE_KEY = "remote.log.storage.manager.class.name"
CLASS_PATH_KEY = "remote.log.storage.manager.class.path"
_JAVA_PACKAGES = ("org.", "com.", "io.", "net.")


def remote_storage(config: BrokerConfig) -> RemoteStorage | None:
    """Return the configured store, or None if tiering is off. Raises ConfigError."""
    if not config.remote_log_storage_system_enable:
        return None
    name = config.remote_log_storage_manager_class_name
    if not name:
        raise ConfigError(f"{STORAGE_KEY} must be set: tiering is on and needs a store")
    _extend_path(config.stated.get(CLASS_PATH_KEY))
    storage: RemoteStorage = _make(STORAGE_KEY, name)
    prefix = config.remote_log_storage_manager_impl_prefix
    settings = {
        **config.with_prefix(prefix),
        "broker.id": str(config.node_id),
        CLUSTER_ID: read_cluster_id(RealFs(), config.metadata_directory),
    }
    if _has_used_a_tier(config):
        settings[IN_USE] = "true"
    storage.configure(settings)
    return storage


def _has_used_a_tier(config: BrokerConfig) -> bool:
    """Whether this node holds remote log metadata."""
    prefix = REMOTE_LOG_METADATA_TOPIC + "-"
    return any(
        os.path.getsize(file)
        for path in config.directories
        for file in glob(f"{escape(path)}/{prefix}*/*.log")
    )


def _extend_path(class_path: str | None) -> None:
    for entry in (class_path or "").split(":"):
        if entry and entry not in sys.path:
            sys.path.append(entry)


def _make(key: str, name: str) -> Any:
    module_name, _, class_name = name.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module_name), class_name)()
    except (ImportError, AttributeError, ValueError) as problem:
        if name.startswith(_JAVA_PACKAGES):
            raise ConfigError(
                f"{key}={name}: a Java class cannot be loaded by a broker in Python; name a Python"
                " class that follows firnline.tiered.spi"
            ) from None
        raise ConfigError(f"{key}={name}: {problem}") from None
