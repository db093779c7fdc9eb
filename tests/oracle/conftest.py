"""One Oracle for all tests of a run; strict Hypothesis settings without a database or deadlines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.oracle.judge import Judge

settings.register_profile(
    "oracle",
    database=None,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)


@pytest.fixture(scope="session")
def judge(kafka_jars: Path) -> Iterator[Judge]:
    """Kafka's classes, waiting for questions."""
    with Judge() as running:
        yield running
