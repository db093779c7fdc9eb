"""What a test of a whole cluster may rely on, without the cluster."""

import os
from pathlib import Path

import pytest

from firnline.testing.process import has_ended


@pytest.mark.parametrize("problem", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_is_gone(
    monkeypatch: pytest.MonkeyPatch, problem: type[OSError]
) -> None:
    """Its file in /proc is not there, or is open already and cannot be read any more."""

    def gone(path: Path) -> str:
        raise problem

    assert not has_ended(os.getpid())
    monkeypatch.setattr(Path, "read_text", gone)
    assert has_ended(os.getpid())
