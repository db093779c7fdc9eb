"""Levels of loggers at run time: ours are described and changed as those of Apache Kafka 4.3.1 (KIP-412)."""

from collections.abc import Iterator

import pytest

from firnline.base.errors import Code
from firnline.client.admin import Admin
from tests.compat.logger_cases import SET, alter, asked, describe
from tests.compat.one_server import KINDS, one_server
from tests.peers.nodes import eventually
from tests.wire.line import Target

LOGGER = {"kafka": "kafka.log.LogCleaner", "firnline": "firnline.tiered"}
OK, REFUSED, WRONG = int(Code.NONE), int(Code.INVALID_REQUEST), int(Code.INVALID_CONFIG)


@pytest.fixture(scope="module", params=KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A server of one kind."""
    with one_server(request.param, tmp_path_factory.mktemp("loggers")) as found:
        yield found


def _admin(server: Target) -> Admin:
    host, port = server.address
    return Admin(f"{host}:{port}")


def test_levels_are_set_and_refused_as_by_kafka(server: Target) -> None:
    with _admin(server) as admin:
        found = asked(admin, "1", LOGGER[server.name])
    levels = [answer for answer in found if isinstance(answer, tuple) and len(answer) == 2]
    assert levels == [
        (OK, {"LOGGER": "DEBUG"}),
        (OK, {"LOGGER": "WARN"}),
        (OK, {"LOGGER": "TRACE"}),
        (OK, {"LOGGER": "FATAL"}),
        (OK, {"LOGGER": "FATAL"}),  # only validated
        (OK, {"root": "ERROR", "LOGGER": "FATAL"}),
        (OK, {"root": "ERROR", "LOGGER": "ERROR"}),  # deleted: it follows the root
        (OK, {"root": "INFO", "LOGGER": "INFO"}),
        *[(REFUSED, {})] * 4,  # another broker
        (OK, {}),  # a logger that does not exist
    ]
    codes = [answer for answer in found if isinstance(answer, int)]
    wrong_levels, wrong_kinds = [WRONG] * 3, [REFUSED] * 3
    assert codes == [
        *[OK] * 8,
        *wrong_levels,
        *wrong_kinds,
        WRONG,
        WRONG,
        REFUSED,  # the root cannot follow another
        WRONG,
        WRONG,  # all or none
        REFUSED,  # the same logger twice
        OK,
        *[REFUSED] * 4,  # another broker
        REFUSED,  # AlterConfigs
    ]
    assert found[-1] == (False, 6, False, [], 0, "")


def test_a_level_that_a_client_sets_acts_at_once(server: Target) -> None:
    """And it is logged, at warning: debug may fill a disk."""
    if not server.is_firnline:
        pytest.skip("what Kafka logs is not ours to test")
    with _admin(server) as admin:
        assert alter(admin, "1", ("firnline.controller", SET, "DEBUG")) == OK
        assert describe(admin, "1", "firnline.controller") == (OK, {"firnline.controller": "DEBUG"})
    said = "log level changed logger=firnline.controller level=DEBUG is_own=true"
    eventually("it is logged", lambda: said in server.log.read_text())
