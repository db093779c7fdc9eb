"""After every test of the tier the store is listed: what no metadata speaks of, nobody would ever delete."""

from collections.abc import Iterator

import pytest

from tests.worlds.tier import CLUSTERS


@pytest.fixture(autouse=True)
def no_orphans(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where objects are left that the metadata does not know; not where a test `loses_metadata`."""
    CLUSTERS.clear()
    yield
    if request.node.get_closest_marker("loses_metadata") is None:
        assert [cluster.orphans() for cluster in CLUSTERS] == [[] for _ in CLUSTERS]
