"""Asks the brokers for leases: until they end, no record of a topic is removed by retention. SPARK.

A lease is an item of a topic's setting (`config.topic`). It counts for a reader once the leader of each
partition has it, so that is waited for.
"""

import time
from collections.abc import Collection, Iterator

from firnline.base.errors import Code, ConfigError, KafkaError
from firnline.base.units import HOUR_MS
from firnline.client.admin import TOPIC_RESOURCE
from firnline.client.connection import Connection
from firnline.client.wire import refuse
from firnline.config.topic import LEASE_MAX_MS, LEASES, Lease, parse_lease
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.spark.brokers.cluster import Brokers, Key, LiveTopic, NoAnswer

# The clocks of readers and brokers may differ: others' leases are removed so long after their end.
_ENDED_MS = HOUR_MS
# For the leaders to hear of a lease; a partition may be without a leader for some time.
_WAIT_S, _LOOK_AGAIN_S = 30.0, 0.05


def lease_end_ms(lease_s: float) -> int:
    """Return when a lease of so many seconds from now ends. ConfigError if it is no possible duration."""
    if not 0 < lease_s * 1000 <= LEASE_MAX_MS:
        raise ConfigError(
            "a lease runs for more than 0 and at most 7 days", lease_s=lease_s,
        )  # fmt: skip
    return int((time.time() + lease_s) * 1000)


def take(brokers: Brokers, topics: Collection[LiveTopic], lease: Lease) -> None:
    """Take a lease on topics, and wait until the leaders of all partitions have it.

    Raises ConfigError if the brokers give none, NoAnswer if a leader does not have it in time.
    """
    for topic in topics:
        for ended in _ended(brokers, topic.name):
            _remove(brokers, topic.name, ended)
        try:
            brokers.alter_topic(topic.name, appends={LEASES: str(lease)})
        except KafkaError as refused:
            if refused.code != Code.INVALID_CONFIG:
                raise
            raise ConfigError(
                "the brokers give no lease", topic=topic.name, problem=refused
            ) from None
    keys = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    give_up_s = time.monotonic() + _WAIT_S
    while True:
        try:
            brokers.ask_leaders(keys, lambda leader, its: _leased(leader, its, lease))
        except NoAnswer:
            if time.monotonic() > give_up_s:
                raise
        else:
            return


def release(brokers: Brokers, names: Collection[str], lease: Lease) -> None:
    """Give a lease back. Topics that do not exist any more, and brokers that give none, are ignored."""
    for name in names:
        _remove(brokers, name, lease)


def _remove(brokers: Brokers, name: str, lease: Lease) -> None:
    try:
        brokers.alter_topic(name, removals={LEASES: str(lease)})
    except KafkaError as refused:
        if refused.code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_CONFIG):
            raise


def _ended(brokers: Brokers, name: str) -> list[Lease]:
    """Return leases of anybody that ended long ago: nobody else removes them."""
    settings = brokers.topic_settings({name}, {LEASES}).get(name, {})
    leases = (parse_lease(text.strip()) for text in settings.get(LEASES, "").split(","))
    limit_ms = int(time.time() * 1000) - _ENDED_MS
    return [each for each in leases if each is not None and each.until_ms < limit_ms]


def _leased(leader: Connection, keys: list[Key], lease: Lease) -> Iterator[tuple[Key, int, None]]:
    """Say of each partition whether its leader has the lease; if not, with an error that passes."""
    names = sorted({topic for topic, _ in keys})
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[LEASES]
            )
            for name in names
        ]
    )
    has: dict[str, bool] = {}
    for result in leader.ask(request).results:
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            continue  # deleted meanwhile: the plan says so
        refuse(result.error_code, result.error_message, f"topic {result.resource_name}")
        value = next((each.value for each in result.configs if each.name == LEASES), None) or ""
        has[result.resource_name] = str(lease) in [item.strip() for item in value.split(",")]
    if not all(has.values()):
        time.sleep(_LOOK_AGAIN_S)
    for key in keys:
        yield key, Code.NONE if has.get(key[0], True) else Code.REPLICA_NOT_AVAILABLE, None
