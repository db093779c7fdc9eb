"""Put first on PYTHONPATH, this makes a process that syncs nothing: what the judge of power cuts must see."""

import os


def _nothing(_fd: int) -> None:
    pass


os.fsync = os.fdatasync = _nothing
