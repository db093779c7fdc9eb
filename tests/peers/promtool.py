"""Prometheus' own evaluation of rules: `promtool test rules`. WORLD.

    python -m tests.peers.promtool fetch        bring the program (once, some seconds)

It is that of the PATH, or that of Debian's package, which is unpacked and not installed.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.peers.kafka import PeerMissing
from tests.peers.servers import cached, main, run_or_missing

_PACKAGE = "prometheus"
# A machine without a network is not waited for.
_LIMITS = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20")


def fetch() -> Path:
    """Return the program; bring it first where it is missing. Raises PeerMissing."""
    found = shutil.which("promtool")
    return Path(found) if found else cached("promtool-debian", _unpack) / "promtool"


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    line = [str(word) for word in (fetch(), *words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)


def _unpack(work: Path) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise PeerMissing("promtool is not on the PATH, and Debian's tools are not here")
    line = ["apt-get", *_LIMITS]
    line += ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
    try:
        run_or_missing([*line, "download", _PACKAGE], _PACKAGE, work)
    except PeerMissing:  # a new machine has no list of packages; it gets none from us
        (work / "lists" / "partial").mkdir(parents=True)
        line += ["-o", f"Dir::State::lists={work / 'lists'}", "-o", f"Dir::Cache={work}"]
        run_or_missing([*line, "update"], "the list of packages", work)
        run_or_missing([*line, "download", _PACKAGE], _PACKAGE, work)
    [package] = work.glob(f"{_PACKAGE}_*.deb")
    run_or_missing(["dpkg", "-x", package, work / "all"], _PACKAGE, work)
    return work / "all" / "usr" / "bin"


if __name__ == "__main__":
    main("promtool", fetch)
