"""A broker for tests, in a process of its own. WORLD.

Imports only the standard library before a test uses it.
"""

import os
from collections.abc import Mapping, Sequence

from firnline.testing.process import DevProcess, end, next_line

START_S = 30.0
STOP_S = 15.0
_READY = "ready at "


class Broker(DevProcess):
    """One `firnline dev` process. `directory` survives `stop`, so `start` resumes with its data.

    with Broker(settings={"num.partitions": 3}) as broker:
        orders = broker.create_topic("orders")

    The arguments are those of `DevProcess`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        tier: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, tier=tier, settings=settings, options=options)
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """Address for clients, `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    def start(self) -> None:
        """Start the process and wait until it answers; a restart keeps the port.

        Raises RuntimeError with the log if it does not start.
        """
        # A failing test shows the log. The nodes of a cluster write these lines anyway.
        words = ("--port", str(self.port), "--log-level", "info")
        line = next_line(self._launch(*words), START_S)
        if _READY not in line:
            self.kill()
            raise RuntimeError(f"firnline dev did not start: {line!r}\n{self.log_text()}")
        self.port = int(line.partition(_READY)[2].split()[0].rpartition(":")[2])

    def stop(self) -> int:
        """Ask the broker to stop, as SIGTERM does, and return its exit code."""
        process = self._released()
        process.terminate()
        return end(process, STOP_S)

    def kill(self) -> None:
        """Kill the process at once, as a crash does; what was synced is on the disk."""
        process = self._released()
        process.kill()
        end(process, STOP_S)
