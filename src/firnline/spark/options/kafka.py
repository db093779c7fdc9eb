"""The options `kafka.*`: which act, which pass without effect, which are refused. PURE.

The official source hands them to its consumers. This one has none: of the settings that say how to reach
brokers, `options.brokers` knows those that act. Source: Spark's guide 'Kafka Specific Configurations';
Kafka's ConsumerConfig.
"""

from collections.abc import Iterable

from firnline.base.errors import ConfigError
from firnline.config.parse import nearest

PREFIX = "kafka."
ISOLATION_LEVEL = "kafka.isolation.level"
CHECK_CRCS = "kafka.check.crcs"
BOOTSTRAP = "kafka.bootstrap.servers"

# Those that decide which rows are read.
ACTING = (ISOLATION_LEVEL, CHECK_CRCS)
# A slip in one of these changes what is read: without brokers the tail is missing.
_NEAR = (*ACTING, BOOTSTRAP)
# The official source refuses them too.
_REFUSED = {
    "auto.offset.reset": "where to begin is said by startingOffsets or startingTimestamp",
    "key.deserializer": "keys are read as bytes; cast or decode the column",
    "value.deserializer": "values are read as bytes; cast or decode the column",
    "enable.auto.commit": "the source commits no offsets",
    "interceptor.classes": "an interceptor could change what is read",
}
# Above this, a name is taken for one that acts.
_ALIKE = 0.85
# How the settings of a Kafka consumer begin. Each of them passes: it says how to reach brokers, to
# authenticate, to fetch or to belong to a group.
_CONSUMER = (
    "allow.auto.create.", "auto.commit.", "auto.include.", "bootstrap.servers", "client.", "config.",
    "connections.", "default.api.", "enable.metrics.", "exclude.internal.", "fetch.", "group.", "heartbeat.",
    "internal.", "max.", "metadata.", "metric", "partition.assignment.", "receive.", "reconnect.", "request.",
    "retry.", "sasl.", "security.", "send.", "session.", "share.", "socket.", "ssl.",
)  # fmt: skip


def is_known(setting: str) -> bool:
    """Whether a consumer of Kafka has this setting; without the prefix, in lower case."""
    return PREFIX + setting in ACTING or setting in _REFUSED or setting.startswith(_CONSUMER)


def check_kafka_options(names: Iterable[str]) -> list[str]:
    """Return what the user is to be told about options `kafka.*`, given in lower case.

    Raises ConfigError for one that is refused, and for one that resembles an option that acts.
    """
    notes = []
    for name in names:
        setting = name.removeprefix(PREFIX)
        if setting in _REFUSED:
            raise ConfigError(f"option {name} is not supported: {_REFUSED[setting]}")
        if is_known(setting):
            continue
        near = nearest(name, _NEAR, alike=_ALIKE)
        if near:
            raise ConfigError(f"unknown option {name}; did you mean {near}?")
        notes.append(f"option {name} is no setting of a Kafka consumer; it has no effect")
    return notes
