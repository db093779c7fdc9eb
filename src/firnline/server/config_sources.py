"""Settings of this process, from what was stated and what its providers return. WORLD.

Source: KIP-297, KIP-887; `config/providers.py` decides what may be read.
"""

from collections.abc import Mapping

from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.config.providers import resolve
from firnline.stores.references import SystemSources


def load_settings(stated: Mapping[str, str]) -> BrokerConfig:
    """Resolve the variables of what was stated, and load it. Raises ConfigError."""
    resolved = resolve(stated, SystemSources())
    return load(resolved.values, resolved.texts)
