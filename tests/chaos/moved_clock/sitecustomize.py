"""Put first on PYTHONPATH, this gives a process a wall clock that is CLOCK_MOVED_S seconds off."""

import os
import time

_MOVED_S = int(os.environ["CLOCK_MOVED_S"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _MOVED_S
time.time_ns = lambda: _time_ns() + _MOVED_S * 1_000_000_000
