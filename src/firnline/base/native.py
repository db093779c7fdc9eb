"""The compiled kernel, where there is one and nobody forbade it. PURE.

`native` is the module firnline._native, or None: where no C compiler was at hand when Firnline was
installed, and under FIRNLINE_NATIVE=0. Each function of it has a twin in Python, which is what runs then;
both say the same of the same bytes (decision 0007).
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
