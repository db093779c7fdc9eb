"""`firnline produce TOPIC` where there is no such topic, but one of nearly that name."""

from collections.abc import Iterator

import pytest

from firnline.client.admin import Admin
from firnline.testing.plugin import Broker
from tests.compat.test_client_in_the_box import make, run


@pytest.fixture(scope="module", params=["true", "false"])
def making(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that makes topics by itself, and one that does not."""
    made = Broker(
        tmp_path_factory.mktemp("making") / "data",
        options=("-X", f"auto.create.topics.enable={request.param}"),
    )
    made.start()
    make(made, "orders", 1)
    yield made
    if made.process is not None:
        made.stop()


def topics(broker: Broker) -> set[str]:
    with Admin(broker.bootstrap) as admin:
        return {row.name for row in admin.topics() if not row.is_internal}


def makes(broker: Broker) -> bool:
    return "auto.create.topics.enable=true" in broker.options


def test_a_slip_makes_no_topic(making: Broker) -> None:
    for slip in ("ordres", "Orders", "order"):
        done = run(making, "produce", slip, data=b"a\n", code=1)
        way = (
            f"--create makes {slip} all the same"
            if makes(making)
            else f"`firnline topic create {slip}` makes it"
        )
        assert done.said == f"firnline: there is no topic {slip}: did you mean orders? {way}\n"
    assert topics(making) == {"orders"}


def test_create_makes_it_whatever_it_resembles(making: Broker) -> None:
    done = run(making, "produce", "orderz", "--create", data=b"a\n")
    assert done.said == "firnline: created topic orderz\n"
    done = run(making, "produce", "orderz", "--create", data=b"b\n")
    assert done.said == "", "it is there already"
    assert run(making, "consume", "orderz", "-e").lines == ["a", "b"]
    done = run(making, "produce", "no/name", "--create", code=1)
    assert "no/name" in done.said


def test_a_name_that_is_no_slip_is_made_as_ever(making: Broker) -> None:
    if not makes(making):
        return
    for name in ("payments", "orders-2", "orders.eu"):
        done = run(making, "produce", name, data=b"a\n")
        assert done.said.startswith(f"firnline: the broker made topic {name}"), done.said
