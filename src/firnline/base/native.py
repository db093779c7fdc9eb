"""The compiled extension module, if it is installed and enabled. PURE.

`native` is the module firnline._native. It is None where Firnline was installed without a C compiler, and
under FIRNLINE_NATIVE=0. Each of its functions has a reference implementation in Python, which runs instead
and returns the same for the same bytes (decision 0007).
"""

import os
from types import ModuleType

native: ModuleType | None
try:
    from firnline import _native as native
except ImportError:
    native = None
if os.environ.get("FIRNLINE_NATIVE") == "0":
    native = None
