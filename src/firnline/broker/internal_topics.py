"""Creates internal topics when the node first needs them. PURE.

Only one creation of a topic is under way. Callers that need the topic meanwhile wait for that one: a second
creation would only fail.
Source: spec C2 (the offsets topic), T17 (the tier's metadata topic).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC
from firnline.base.log_lines.broker import INTERNAL_TOPIC_NOT_CREATED
from firnline.broker.controller_port import ControllerPort, CreateTopics
from firnline.broker.hosting import Hosting
from firnline.config.broker import BrokerConfig
from firnline.controller.topics import NewTopic

if TYPE_CHECKING:
    from firnline.tiered.settings import TierSettings

TopicCreatedCallback = Callable[[KafkaError | None, int], Effects]
# How long the callback of new topics waits until their partitions are open.
OPENING_WAIT_MS = 1_000

# Create a topic; `then(error or None, now_ms)` runs once it is committed and hosted.
Create = Callable[[str, TopicCreatedCallback, int], Effects]


class InternalTopics:
    """Creates each topic of `names` once, on demand."""

    __slots__ = ("_create", "_exists", "_last_warning", "_names", "_waiting")

    def __init__(
        self, *, names: Sequence[str], exists: Callable[[str], bool], create: Create
    ) -> None:
        self._names = tuple(names)
        self._exists = exists
        self._create = create
        self._waiting: dict[str, list[TopicCreatedCallback]] = {}
        self._last_warning: dict[str, str] = {}

    def ensure(self, name: str, then: TopicCreatedCallback, now_ms: int) -> Effects:
        """Call `then(None, now_ms)` once the topic exists, or `then(error, now_ms)`."""
        if self._exists(name):
            return then(None, now_ms)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(then)
            return []
        if name not in self._names:
            return then(_NOT_OURS, now_ms)
        self._waiting[name] = [then]
        return self._create(name, lambda error, now: self._created(name, error, now), now_ms)

    def _created(self, name: str, error: KafkaError | None, now_ms: int) -> Effects:
        if error is not None and error.code == Code.TOPIC_ALREADY_EXISTS:
            error = None
        effects = self._warn(name, error)
        for then in self._waiting.pop(name):
            effects += then(error, now_ms)
        return effects

    def _warn(self, name: str, error: KafkaError | None) -> Effects:
        """Warn once per error. Clients only see COORDINATOR_NOT_AVAILABLE, so the log must say why."""
        if error is None:
            self._last_warning.pop(name, None)
        elif not error.is_retriable and self._last_warning.get(name) != str(error):
            self._last_warning[name] = str(error)
            return [
                INTERNAL_TOPIC_NOT_CREATED(topic=name, error=error),
            ]
        return []


def create_topics(
    port: ControllerPort,
    hosting: Hosting,
    wanted: Sequence[NewTopic],
    then: Callable[[list[KafkaError | None] | KafkaError, int], Effects],
    now_ms: int,
) -> Effects:
    """Create topics, then call `then` with None or an error for each, or with one error for all.

    It is called when their partitions on this broker are open, or a second after the commit at the latest.
    """

    def created(outcome: list[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        return hosting.when_settled(partial(then, outcome), at_ms, at_most_ms=OPENING_WAIT_MS)

    return port.ask(CreateTopics(topics=wanted), created, now_ms)


def offsets_topic(config: BrokerConfig) -> NewTopic:
    """`__consumer_offsets`, with the settings that Kafka gives it."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def tier_topic(settings: "TierSettings") -> NewTopic:
    """`__remote_log_metadata`, with the settings that Kafka gives it."""
    return NewTopic(
        REMOTE_LOG_METADATA_TOPIC,
        settings.metadata_partitions,
        settings.metadata_replication_factor,
        configs=settings.metadata_topic_configs(),
    )


_NOT_OURS = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "this broker does not create that topic")
