"""What most tests of a log begin with."""

import pytest

from firnline.log.log import Log
from firnline.sim.disk import CrashableFs
from tests.worlds.log import opened


@pytest.fixture
def log() -> Log:
    return opened(CrashableFs())
