"""Waits for the store that fit into a run of minutes. SIM.

In production a store has a minute for a call, and an abandoned copy is deleted after an hour. All of these
waits are a twelfth here, or less. A hung call may last longer than it takes until others call its copy
abandoned, and no longer than until they delete it again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from firnline.broker.tier import adapter
from firnline.config.broker import BrokerConfig
from firnline.sim.tier.store import HANGS_US
from firnline.tiered import circuits, settings
from firnline.tiered.settings import TierSettings

DANGLING_MS, LATE_PUT_MS = 20_000, HANGS_US // 1000 + 10_000
_CALL_MS = 5_000
_tier_settings = settings.tier_settings


def _short(config: BrokerConfig) -> TierSettings:
    return replace(_tier_settings(config), dangling_after_ms=DANGLING_MS, late_put_ms=LATE_PUT_MS)


_SHORT: tuple[tuple[Any, str, Any], ...] = (
    (settings, "STORE_TIMEOUT_MS", _CALL_MS),
    (settings, "tier_settings", _short),
    (adapter, "tier_settings", _short),
    (circuits, "STORE_TIMEOUT_MS", _CALL_MS),
    (circuits, "SLOW_MS", _CALL_MS // 5),
    (circuits, "PROBE_TIMEOUT_MS", _CALL_MS // 5),
    (circuits, "TRIAL_MS", 2 * _CALL_MS),
    (circuits, "COPY_WAIT_MAX_MS", 10 * _CALL_MS),
)


@contextmanager
def short_waits(is_tiered: bool) -> Iterator[None]:
    """Shorten the waits for the store while a cluster with a tier runs."""
    chosen = _SHORT if is_tiered else ()
    before = [(module, name, getattr(module, name)) for module, name, _ in chosen]
    for module, name, value in chosen:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
