"""Topics that the cluster makes for itself, and topics made because a client asked for metadata. PURE.

Counts and settings of the internal ones are those of Kafka 4.3.1. Source: KIP-98, KIP-405; C12.
"""

from firnline.base.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from firnline.config.broker import BrokerConfig, broker_keys
from firnline.controller.topics import NewTopic


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return how a topic is made that nobody described: by its role, or by the broker's defaults."""
    if name == OFFSETS_TOPIC:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_TOPIC:
        return NewTopic(
            name,
            int(_setting(config, "transaction.state.log.num.partitions")),
            int(_setting(config, "transaction.state.log.replication.factor")),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": _setting(config, "transaction.state.log.min.isr"),
                "segment.bytes": _setting(config, "transaction.state.log.segment.bytes"),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(name)


def _setting(config: BrokerConfig, name: str) -> str:
    """What the file states for a key that is no attribute yet, or Kafka's default."""
    return config.stated.get(name) or str(broker_keys()[name].default)
