"""What `produce` and `consume` make of errors of librdkafka: which pass, and what is said of the rest."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from firnline.base.errors import FirnlineError
from firnline.cli.client.librdkafka import Complaints, plain
from firnline.cli.client.stopping import StopSignals
from firnline.cli.client.topics import _PASSING, Cluster
from firnline.client.connection import NoAnswer
from firnline.client.deadline import Deadline


class Client:
    def poll(self, _: float) -> None:
        pass


def cluster(timeout_s: float = 5.0) -> Cluster:
    return Cluster(
        Client(),
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
