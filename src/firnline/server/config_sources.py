"""Where the providers of settings read: the environment and the files of this machine. WORLD.

Source: KIP-297, KIP-887; `config/providers.py` decides what may be read.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.config.properties import parse_properties
from firnline.config.providers import resolve


class SystemSources:
    """`config.providers.Sources` of this process."""

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def properties(self, path: str) -> Mapping[str, str]:
        return parse_properties(Path(path).read_text("utf-8"))

    def file(self, path: str) -> str | None:
        found = Path(path)
        found.parent.stat()
        return found.read_text("utf-8") if found.is_file() else None

    def exists(self, path: str) -> bool:
        return os.path.exists(path)


def load_settings(stated: Mapping[str, str]) -> BrokerConfig:
    """Resolve the variables of what was stated, and load it. Raises ConfigError."""
    resolved = resolve(stated, SystemSources())
    return load(resolved.values, resolved.texts)
