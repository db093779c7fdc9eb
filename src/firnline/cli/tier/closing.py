"""When brokers close the active segment of a topic, so that it is copied: what their settings say. WORLD."""

from collections.abc import Collection, Sequence

from firnline.base.errors import FirnlineError
from firnline.cli.tier.why import Closing
from firnline.client.admin import Admin, BrokerTier
from firnline.client.operations.configs import BROKER_RESOURCE, Resource, describe

_IDLE = "firnline.remote.log.roll.idle.ms"


def closing_of(
    admin: Admin, brokers: Sequence[BrokerTier], topics: Collection[str]
) -> dict[str, Closing]:
    """Return the rules of each topic, without those topics of which the settings cannot be had.

    brokers  what they have said about the partitions that they lead
    """
    found: dict[str, Closing] = {}
    try:
        idle_ms = _idle_ms(admin)
        for topic in sorted(topics):
            settings = admin.topic_configs(topic, only_changed=False)
            leaders = [
                idle_ms.get(broker.address, 0)
                for broker in brokers
                if any(row["topic"] == topic for row in broker.partitions)
            ]
            found[topic] = Closing(
                0 if 0 in leaders else max(leaders, default=0),
                int(settings["segment.ms"] or 0),
                int(settings["segment.bytes"] or 0),
            )
    except (FirnlineError, KeyError, ValueError):
        pass  # it is a remark, and no reason to fail
    return found


def _idle_ms(admin: Admin) -> dict[str, int]:
    """Return the time of each broker by its address; 0 where it does not do that."""
    found = {}
    for row in admin.metadata([]).brokers:
        settings = describe(admin, Resource(BROKER_RESOURCE, str(row.node_id)))
        found[f"{row.host}:{row.port}"] = int(
            next((each.value for each in settings if each.key == _IDLE), None) or 0
        )
    return found
