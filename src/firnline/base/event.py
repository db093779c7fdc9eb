"""`@event`: a small dataclass that is frozen for the type checker and cheap at run time. PURE."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

# `make test` sets it, production does not: to create a frozen dataclass takes 3.9 times as long.
_FREEZE = os.environ.get("FIRNLINE_FREEZE") == "1"


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(cls: type[T]) -> type[T]:
    """Make `cls` a keyword-only slotted dataclass. mypy rejects mutation; in tests it also raises."""
    return dataclass(slots=True, kw_only=True, frozen=_FREEZE)(cls)


Handlers = dict[type, Callable[..., object]]
