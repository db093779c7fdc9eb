"""The compiled kernel, for tests that compare it with its twins."""

from typing import Any

import pytest

try:
    from firnline import _native
except ImportError:
    _native = None  # type: ignore[assignment]

native: Any = _native
needs_native = pytest.mark.skipif(
    _native is None, reason="NOT RUN: firnline._native was not built (no C compiler?)"
)
