"""`@event`: a small record that is frozen to the type checker and cheap at run time. PURE."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

# Set by `make test`, never in production: a frozen dataclass costs 3.9x a plain one to create.
_FREEZE = os.environ.get("FIRNLINE_FREEZE") == "1"


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(cls: type[T]) -> type[T]:
    """Make `cls` a keyword-only slotted dataclass; mutation is an error to mypy, and in tests."""
    return dataclass(slots=True, kw_only=True, frozen=_FREEZE)(cls)


Handlers = dict[type, Callable[..., object]]
