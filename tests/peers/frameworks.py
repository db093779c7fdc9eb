"""Python frameworks that speak Kafka, for tests: quixstreams, faust-streaming, FastStream, aiokafka. WORLD.

    python -m tests.peers.frameworks fetch        bring them (once, 180 MB); prints the Python that has them

They agree on their dependencies, and share a virtual environment of their own: nothing of it is a dependency
of ours. It is for the Python that made it. Needs pip and its index; without them `PeerMissing` says so.
"""

import subprocess
import sys
from pathlib import Path

from tests.peers.kafka import PeerMissing
from tests.peers.servers import cached, main, run_or_missing

# All of one moment, with all that they depend on of that moment. `confluent-kafka` is that of quixstreams.
PINNED = (
    "aiokafka==0.14.0",
    "confluent-kafka==2.12.2",
    "faststream[kafka]==0.7.8",
    "faust-streaming==0.15.3",
    "quixstreams==3.28.1",
)
_OF = f"{sys.version_info.major}.{sys.version_info.minor}"
_NAME = f"frameworks-1-python{_OF}"  # the number grows with PINNED


def fetch() -> Path:
    """Return the Python that has the frameworks; bring them where they are missing. Raises PeerMissing."""
    return cached(_NAME, _install) / "bin" / "python"


def _install(work: Path) -> Path:
    made = work / "venv"
    run_or_missing([sys.executable, "-m", "venv", made], "a virtual environment", work)
    python = made / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    run_or_missing([python, "-m", "pip", "install", *options, *PINNED], "the frameworks", work)
    _check(python)
    return made


def _check(python: Path) -> None:
    """Raise PeerMissing if one of them cannot be imported: it is not for this Python."""
    names = ("aiokafka", "faststream.kafka", "faust", "quixstreams")
    for name in names:
        done = subprocess.run(
            [python, "-c", f"import {name}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PeerMissing(f"{name} does not run on Python {_OF}: {done.stderr[-1000:]}")


if __name__ == "__main__":
    main("frameworks", fetch)
