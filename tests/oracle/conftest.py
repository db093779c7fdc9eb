"""One Oracle for all tests of a run; strict Hypothesis settings without a database or deadlines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.oracle.kafka_oracle import KafkaOracle

settings.register_profile(
    "oracle",
    database=None,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)


@pytest.fixture(scope="session")
def oracle(kafka_jars: Path) -> Iterator[KafkaOracle]:
    """Kafka's classes, waiting for questions."""
    with KafkaOracle() as running:
        yield running
