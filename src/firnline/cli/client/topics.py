"""Looks for topics and their leaders before records are sent or read, and says what is not there. WORLD."""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from firnline.base.errors import FirnlineError
from firnline.cli.client.librdkafka import Complaints, plain, reach, reason_of
from firnline.cli.client.stopping import LATER_S, DeadlineMissed, StopSignals, in_time
from firnline.client.connection import NoAnswer, Unreachable
from firnline.client.deadline import Deadline
from firnline.config.parse import is_slip, nearest
from firnline.formats.topic_names import name_problem

# For so long a broker that makes topics by itself may still say that there is none.
_CREATION_S = 2.0
_PAUSE_S = 0.1
_REACH_S = 1.0
# Times that ListOffsets takes for the ends of a log.
EARLIEST, LATEST = -2, -1
# Names in librdkafka; for some of them it does not say that they can be retried.
_PASSING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
)


class _Passing(FirnlineError):
    """What the cluster says now, and soon not any more."""


class Cluster:
    """What a client of librdkafka knows of the cluster.

    client    an AdminClient or a Consumer
    deadline  when to give up
    """

    def __init__(
        self,
        client: Any,
        library: Any,
        bootstrap: str,
        *,
        complaints: Complaints,
        deadline: Deadline,
        timeout_s: float,
        stop: StopSignals,
    ) -> None:
        self.client = client
        self.library = library
        self.complaints = complaints
        self.deadline = deadline
        self.timeout_s = timeout_s
        self.stop = stop
        self.broker_id = -1  # of any broker, once topics were asked for
        self.brokers: Mapping[int, Any] = {}  # by id, as metadata had them last
        self._bootstrap = bootstrap
        self._has_answered = False

    def ask(self, call: Callable[[float], Any]) -> Any:
        """Make a call that takes a timeout in seconds. Raises FirnlineError if it fails or takes too long.

        Repeats what passes by itself, such as a leader that has moved, or has not opened its log yet. `call`
        must be safe to repeat.
        """
        while True:
            try:
                answer = self._once(call)
            except _Passing as problem:
                if self.deadline.left_s() < _PAUSE_S:
                    raise FirnlineError(f"{problem}: waited {self.timeout_s:g} s") from None
                self.pause()
            else:
                self._has_answered = True
                return answer

    def _once(self, call: Callable[[float], Any]) -> Any:
        problem = None
        try:
            left_s = max(0.05, self.deadline.left_s())
            return in_time(lambda: call(left_s), Deadline(left_s + LATER_S), self.stop)
        except self.library.KafkaException as found:
            problem = found
        except (DeadlineMissed, TimeoutError):
            pass
        self.client.poll(0)  # what librdkafka has to say is said by its callbacks
        if refusal := self.complaints.refusal:
            raise FirnlineError(f"the cluster at {self._bootstrap} refuses: {refusal}")
        if problem is not None and not self._has_timed_out(problem):
            kind = _Passing if self.passes(problem.args[0]) else FirnlineError
            raise kind(f"the cluster at {self._bootstrap} says: {reason_of(problem)}")
        why = f" ({self.complaints.last})" if self.complaints.last else ""
        if self._has_answered:  # so the one that is silent is another broker: a leader
            raise NoAnswer(
                f"the cluster at {self._bootstrap} answers, but not all brokers that are needed did within"
                f" {self.timeout_s:g} s{why}; `firnline cluster status` shows which"
            )
        raise NoAnswer(
            f"{self._bootstrap} accepts connections, but did not answer as a broker within"
            f" {self.timeout_s:g} s{why}"
        )

    def _has_timed_out(self, problem: Any) -> bool:
        kind = self.library.KafkaError
        return problem.args[0].code() in (kind._TIMED_OUT, kind._TRANSPORT, kind._ALL_BROKERS_DOWN)

    def passes(self, problem: Any) -> bool:
        """Whether an error of librdkafka's passes by itself."""
        kind = self.library.KafkaError
        return problem.code() in [getattr(kind, name) for name in _PASSING]

    def topics(self) -> dict[str, Any]:
        """Return the metadata of all topics, by name."""
        answer = self.ask(lambda left_s: self.client.list_topics(timeout=left_s))
        self.broker_id = min(answer.brokers, default=-1)
        self.brokers = answer.brokers
        found: dict[str, Any] = answer.topics
        return found

    def one(self, topic: str) -> Any:
        """Return the metadata of one topic. If an AdminClient asks, brokers may make it."""
        answer = self.ask(lambda left_s: self.client.list_topics(topic, timeout=left_s))
        self.brokers = answer.brokers
        return answer.topics[topic]

    def why_unreachable(self, broker_id: int) -> str | None:
        """Say why a broker accepts no connection within a second; None if it does, or is not known.

        Metadata calls a broker that was killed the leader until its session is over.
        """
        broker = self.brokers.get(broker_id)
        if broker is None:
            return None
        host = f"[{broker.host}]" if ":" in broker.host else broker.host
        address = f"{host}:{broker.port}"
        try:
            reach(address, Deadline(_REACH_S), self.stop)
        except Unreachable as problem:
            return str(problem)
        except DeadlineMissed:
            return f"cannot reach a broker at {address}: no answer in time"
        return None

    def is_missing(self, topic: str) -> bool:
        """Whether the cluster has no such topic."""
        kind, problem = self.library.KafkaError, self.one(topic).error
        codes = (kind.UNKNOWN_TOPIC_OR_PART, kind._UNKNOWN_TOPIC)
        return problem is not None and problem.code() in codes

    def wait_for_leaders(
        self,
        topic: str,
        wanted: Collection[int],
        note: Callable[[str], None],
        *,
        one_is_enough: bool,
    ) -> Any:
        """Return the metadata of a topic once its partitions have leaders.

        wanted         the partitions that need one; empty: all of them
        one_is_enough  any one of them, because each record goes to a partition that has one

        Raises FirnlineError if the topic or a partition is not there, or if there is no leader in time.
        """
        is_noted = False
        while True:
            found = self.one(topic)
            self.refuse(topic, found)
            check_partitions(topic, found, wanted)
            needed = wanted or found.partitions
            without = sorted(number for number in needed if found.partitions[number].leader < 0)
            has_enough = len(without) < len(needed) if one_is_enough else not without
            if needed and has_enough:
                return found
            what = leaderless(topic, without)
            if self.deadline.left_s() < _PAUSE_S:
                raise FirnlineError(f"{what}: waited {self.timeout_s:g} s")
            if not is_noted:
                note(f"{what}: waiting {self.deadline.left_s():.0f} s for one")
                is_noted = True
            self.pause()

    def pause(self) -> None:
        """Wait a moment before the next question."""
        with contextlib.suppress(DeadlineMissed):  # a busy machine: it was a pause all the same
            in_time(lambda: time.sleep(_PAUSE_S), Deadline(_PAUSE_S + LATER_S), self.stop)

    def refuse(self, topic: str, found: Any) -> None:
        """Raise FirnlineError if the metadata of a topic says that it cannot be used."""
        problem, kind = found.error, self.library.KafkaError
        if problem is None or problem.code() == kind.LEADER_NOT_AVAILABLE:
            return
        if problem.code() in (
            kind.UNKNOWN_TOPIC_OR_PART,
            kind._UNKNOWN_TOPIC,
            kind.TOPIC_EXCEPTION,
        ):
            raise FirnlineError(unknown_topic(topic, self.topics()))
        raise FirnlineError(f"topic {topic}: {reason_of(self.library.KafkaException(problem))}")

    def offsets(
        self, keys: Sequence[tuple[str, int]], timestamp_ms: int
    ) -> dict[tuple[str, int], int]:
        """Return the first offset of each partition that is at least so late; -1 if there is none.

        timestamp_ms  or EARLIEST, or LATEST
        """
        kind = self.library.TopicPartition
        asked = [kind(topic, number, timestamp_ms) for topic, number in keys]

        def ask(left_s: float) -> Any:
            found = self.client.offsets_for_times(asked, timeout=left_s)
            for each in found:
                if each.error is not None and self.passes(each.error):
                    raise self.library.KafkaException(each.error)
            return found

        found = self.ask(ask)
        for each in found:
            if each.error is not None:
                raise FirnlineError(
                    f"{shown(each.topic, each.partition)}: {plain(each.error.str())}"
                )
        return {(each.topic, each.partition): each.offset for each in found}

    def create_if_brokers_do(self, topic: str, note: Callable[[str], None]) -> None:
        """Have a topic made that is not there, if that is what brokers do (auto.create.topics.enable).

        Raises FirnlineError, with the nearest name and the command that makes a topic, if they do not, and if
        a topic is there whose name is one slip away: then that one was probably meant.
        """
        known = self.topics()
        if topic in known:
            return
        kind = self.library.KafkaError
        limit = Deadline(min(_CREATION_S, self.deadline.left_s()))
        if self.setting("broker", str(self.broker_id), "auto.create.topics.enable") == "false":
            raise FirnlineError(unknown_topic(topic, known))
        near = nearest_topic(topic, known)
        if near is not None and is_slip(topic, near):
            raise FirnlineError(
                f"there is no topic {topic}: did you mean {near}? --create makes {topic} all the same"
            )
        while (problem := (found := self.one(topic)).error) is not None:
            is_unknown = problem.code() in (kind.UNKNOWN_TOPIC_OR_PART, kind._UNKNOWN_TOPIC)
            if not is_unknown or limit.is_over:
                break
            self.pause()
        self.refuse(topic, found)
        note(f"the broker made topic {topic}" + (f" (did you mean {near}?)" if near else ""))

    def create(self, topic: str, note: Callable[[str], None]) -> None:
        """Make a topic that is not there, with the brokers' defaults. Raises FirnlineError if it cannot."""
        from confluent_kafka.admin import NewTopic

        if topic in self.topics():
            return
        if wrong := name_problem(topic):
            raise FirnlineError(wrong.why)

        def ask(left_s: float) -> None:
            asked = self.client.create_topics([NewTopic(topic, -1, -1)], request_timeout=left_s)
            asked[topic].result(left_s)

        try:
            self.ask(ask)
        except FirnlineError:
            if topic not in self.topics():
                raise
            return  # somebody else made it meanwhile
        limit = Deadline(min(_CREATION_S, self.deadline.left_s()))
        while topic not in self.topics() and not limit.is_over:
            self.pause()
        note(f"created topic {topic}")

    def setting(self, kind: str, name: str, key: str) -> str | None:
        """Return a setting of a topic or a broker; None if it cannot be had. The client is an AdminClient."""
        from confluent_kafka.admin import ConfigResource

        def ask(left_s: float) -> str | None:
            asked = self.client.describe_configs(
                [ConfigResource(kind, name)], request_timeout=left_s
            )
            (future,) = asked.values()
            return str(future.result(left_s)[key].value)

        try:
            left_s = max(0.05, self.deadline.left_s())
            return in_time(lambda: ask(left_s), Deadline(left_s + LATER_S), self.stop)
        except (self.library.KafkaException, DeadlineMissed, TimeoutError, KeyError):
            return None  # forbidden, or not a setting of this broker


def shown(topic: str, partition: int) -> str:
    """Return a partition as kcat prints it: topic [0]."""
    return f"{topic} [{partition}]"


def check_partitions(topic: str, found: Any, wanted: Collection[int]) -> None:
    """Raise FirnlineError if a topic does not have one of the partitions."""
    missing = [number for number in wanted if number not in found.partitions]
    if found.partitions and missing:
        count = len(found.partitions)
        there = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        raise FirnlineError(f"topic {topic} has {there}; there is no {missing[0]}")


def leaderless(topic: str, partitions: Sequence[int]) -> str:
    """Say which partitions have no leader."""
    if not partitions:
        return f"topic {topic} has no leader yet"
    verb = "has" if len(partitions) == 1 else "have"
    return f"{named(partitions)} of topic {topic} {verb} no leader"


def named(partitions: Sequence[int]) -> str:
    """Return the first partitions in words, such as `partitions 0, 2`."""
    shown = ", ".join(map(str, partitions[:5])) + (", ..." if len(partitions) > 5 else "")
    return f"{'partition' if len(partitions) == 1 else 'partitions'} {shown}"


def nearest_topic(topic: str, known: Collection[str]) -> str | None:
    """Return the topic that was probably meant, but none of Kafka's own; None if none is like it."""
    return nearest(topic, [each for each in known if not each.startswith("__")])


def unknown_topic(topic: str, known: Collection[str]) -> str:
    """Say that a topic is not there, with the nearest name and the command that makes it."""
    if wrong := name_problem(topic):
        return wrong.why
    near = nearest_topic(topic, known)
    hint = f"did you mean {near}? " if near else ""
    return f"there is no topic {topic}: {hint}`firnline topic create {topic}` makes it"
