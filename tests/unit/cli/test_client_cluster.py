"""What `produce` and `consume` make of errors of librdkafka: which pass, and what is said of the rest."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from firnline.base.errors import ConfigError, FirnlineError
from firnline.cli.client import librdkafka
from firnline.cli.client.librdkafka import Complaints, make, plain
from firnline.cli.client.stopping import StopSignals
from firnline.cli.client.topics import _PASSING, LATEST, Cluster
from firnline.client.connection import NoAnswer, Unreachable
from firnline.client.deadline import Deadline


class Client:
    def poll(self, _: float) -> None:
        pass


def cluster(timeout_s: float = 5.0, client: Client | None = None) -> Cluster:
    return Cluster(
        client or Client(),
        confluent_kafka,
        "h:1",
        complaints=Complaints(),
        deadline=Deadline(timeout_s),
        timeout_s=timeout_s,
        stop=StopSignals(),
    )


def failing(code: int, *answers: Any) -> Callable[[float], Any]:
    """Fail once for each answer but the last, or always if there is none."""
    left = list(answers)

    def call(_: float) -> Any:
        if answers and len(left) == 1:
            return left[0]
        if left:
            left.pop(0)
        raise KafkaException(KafkaError(code))

    return call


@pytest.mark.parametrize("name", _PASSING)
def test_what_passes_is_asked_again(name: str) -> None:
    """`consume -e` right after a topic of 1,000 partitions was made ended with "Not leader for partition"."""
    assert cluster().ask(failing(getattr(KafkaError, name), None, "answer")) == "answer"


def test_a_pause_on_a_machine_that_stood_still_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: threading.Event().wait(5))
    cluster().pause()


def test_a_future_that_does_not_come_is_no_answer() -> None:
    def call(_: float) -> Any:
        raise TimeoutError

    with pytest.raises(NoAnswer, match="did not answer as a broker within 5 s"):
        cluster().ask(call)


def test_addresses_that_nobody_is_at_are_named_however_late_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that connects learned it a moment after the deadline, and the user read of a bug."""

    def late(addresses: object, deadline: Deadline) -> None:
        while not deadline.is_over:
            deadline.pause(0.1)
        threading.Event().wait(0.2)
        raise Unreachable(f"cannot reach a broker at {addresses}")

    monkeypatch.setattr(librdkafka, "_first_of", late)
    with pytest.raises(Unreachable, match="cannot reach"):
        librdkafka.reach("h:1", Deadline(0.1), StopSignals())


class Listing(Client):
    """Answers for one partition: the first time that another broker leads it, then with offset 7."""

    def __init__(self, code: int) -> None:
        self._problems: list[KafkaError | None] = [KafkaError(code), None]

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        (place,) = asked
        problem = self._problems.pop(0)
        return [SimpleNamespace(topic=place.topic, partition=0, error=problem, offset=7)]


def test_a_partition_whose_leader_has_moved_is_asked_for_again() -> None:
    """librdkafka says it of the partition, and not of the request."""
    assert cluster(client=Listing(KafkaError.NOT_LEADER_FOR_PARTITION)).offsets(
        [("t", 0)], LATEST
    ) == {("t", 0): 7}
    with pytest.raises(FirnlineError, match=r"t \[0\]: .*uthorization"):
        cluster(client=Listing(KafkaError.TOPIC_AUTHORIZATION_FAILED)).offsets([("t", 0)], LATEST)


def test_what_does_not_pass_in_time_is_told_with_the_time() -> None:
    with pytest.raises(FirnlineError, match=r"says: Not leader .*: waited 0\.2 s$"):
        cluster(0.2).ask(failing(KafkaError.NOT_LEADER_FOR_PARTITION))


def test_what_does_not_pass_is_told_at_once() -> None:
    calls = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, None, "answer")
    with pytest.raises(FirnlineError, match="the cluster at h:1 says: Topic authorization failed"):
        cluster().ask(calls)


def test_a_cluster_that_has_answered_is_not_called_silent() -> None:
    """A leader was dead, and the line said of three addresses that none answers as a broker."""
    silent = failing(KafkaError._TIMED_OUT)
    with pytest.raises(NoAnswer, match="did not answer as a broker within 5 s"):
        cluster().ask(silent)
    known = cluster()
    known.ask(lambda _: "metadata")
    with pytest.raises(NoAnswer, match="the cluster at h:1 answers, but not all brokers"):
        known.ask(silent)


def test_a_reason_has_no_rest_of_what_librdkafka_adds() -> None:
    said = (
        "h:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state"
        " CONNECT, 1 identical error(s) suppressed)"
    )
    assert plain(said) == "Connect to ipv4#127.0.0.1:1 failed: Connection refused"


def test_a_name_that_an_older_librdkafka_lacks_is_not_its_own_nearest() -> None:
    def refuse(_: object) -> None:
        raise ValueError('No such configuration property: "max.poll.records"')

    with pytest.raises(ConfigError) as caught:
        make(refuse, {})
    assert "no setting 'max.poll.records'" in str(caught.value)
    assert "Did you mean 'max.poll.records'" not in str(caught.value)
