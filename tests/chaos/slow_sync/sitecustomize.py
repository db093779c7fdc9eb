"""Put first on PYTHONPATH, this gives a process a disk whose every sync takes SYNC_TAKES_S seconds."""

import os
import time
from collections.abc import Callable
from typing import Any

_TAKES_S = float(os.environ["SYNC_TAKES_S"])
_fsync, _fdatasync = os.fsync, os.fdatasync


def _slow(sync: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(fd: Any) -> None:
        time.sleep(_TAKES_S)
        sync(fd)

    return call


os.fsync, os.fdatasync = _slow(_fsync), _slow(_fdatasync)
