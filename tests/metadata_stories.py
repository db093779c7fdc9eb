"""Random lives of a cluster as metadata records: every type, each one fitting what was written before."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from firnline.metadata import records as r
from firnline.metadata.features import record_version
from firnline.protocol.schema import Message

LEVELS = (7, 8, 11, 12, 14, 15, 17, 22, 23, 29, 30)
SCRAM_SINCE, TRANSACTIONS_SINCE, TOKENS_SINCE = 11, 13, 14
CONTROLLERS_SINCE, DIRECTORIES_SINCE, ELR_SINCE, CORDONED_SINCE = 15, 17, 23, 30


class Life:
    """Writes records. `level` is the metadata.version they must be readable at; ELR is on where it can be."""

    def __init__(self, seed: int, level: int = 30) -> None:
        self.dice = random.Random(seed)
        self.level = level
        self.batches: list[list[Message]] = []
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[bytes, dict[int, list[int]]] = {}
        self.brokers: dict[int, int] = {}
        self.tokens: dict[str, None] = {}
        self.users: dict[tuple[str, int], None] = {}
        self.acls: dict[bytes, None] = {}
        self.configured: dict[str, None] = {}  # topics with settings in this batch or transaction
        self.has_scram = False
        self.is_in_transaction = False
        self.count = 0
        first: list[Message] = [r.FeatureLevelRecord(name="metadata.version", feature_level=level)]
        if level >= ELR_SINCE:
            elr = "eligible.leader.replicas.version"
            first.append(r.FeatureLevelRecord(name=elr, feature_level=1))
        self.batches.append(first)

    def write(self, records: int) -> "Life":
        """Go on for about that many records, in batches of any size."""
        wanted = self.count + records
        while self.count < wanted:
            batch = self._batch(self.dice.choice((1, 1, 2, 3, 8, 20)))
            self.batches.append(batch)
            self.count += len(batch)
        if self.is_in_transaction:
            self._end(self.batches[-1], aborted=False)
        return self

    def encoded(self) -> list[list[bytes]]:
        """The batches as the values of their records."""
        return [
            [r.encode(record, record_version(record, self.level)) for record in batch]
            for batch in self.batches
        ]

    def _batch(self, size: int) -> list[Message]:
        batch: list[Message] = []
        if not self.is_in_transaction:
            self.configured, self.has_scram = {}, False
        while len(batch) < size:
            batch += self.dice.choice(_ACTIONS)(self)
            if batch and isinstance(batch[-1], r.AbortTransactionRecord):
                break  # as a controller writes it; Kafka's loader keeps what is aborted otherwise
        return batch

    # ---------------------------------------------------------------------------- values

    def uuid(self) -> bytes:
        return self.dice.randbytes(16)

    def word(self, *among: str) -> str:
        return self.dice.choice(among)

    def nodes(self, at_most: int = 4) -> list[int]:
        return self.dice.sample(range(1, 8), self.dice.randint(1, at_most))

    def maybe(self, value: Any) -> Any:
        return value if self.dice.random() < 0.5 else None

    def directories(self, count: int) -> list[bytes]:
        return [self.dice.choice((bytes(16), self.uuid())) for _ in range(count)]

    # ---------------------------------------------------------------------------- nodes

    def register_broker(self) -> list[Message]:
        broker_id, epoch = self.dice.randint(1, 7), self.count + 100
        self.brokers[broker_id] = epoch
        record = r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=self.uuid(),
            broker_epoch=epoch,
            end_points=self._endpoints(r.BrokerEndpoint),
            features=self._features(r.BrokerFeature),
            rack=self.maybe(self.word("a", "b", "")),
            fenced=self.dice.random() < 0.5,
            in_controlled_shutdown=self.dice.random() < 0.3,
        )
        if self.level >= 8:
            record.is_migrating_zk_broker = self.dice.random() < 0.2
        if self.level >= DIRECTORIES_SINCE:
            record.log_dirs = self.directories(self.dice.randint(0, 2))
        if self.level >= CORDONED_SINCE:
            record.cordoned_log_dirs = self.maybe(self.directories(self.dice.randint(0, 2)))
        return [record]

    def _endpoints(self, kind: Any) -> list[Any]:
        names = self.dice.sample(("PLAINTEXT", "SSL", "IN", "OUT"), self.dice.randint(0, 3))
        return [
            kind(
                name=name,
                host=self.word("h", "127.0.0.1", "::1"),
                port=self.dice.randint(0, 65535),
                security_protocol=self.dice.randint(0, 3),
            )
            for name in names
        ]

    def _features(self, kind: Any) -> list[Any]:
        names = self.dice.sample(
            ("metadata.version", "group.version", "x"), self.dice.randint(0, 3)
        )
        return [
            kind(name=name, min_supported_version=low, max_supported_version=low + 3)
            for low, name in enumerate(names)
        ]

    def change_broker(self) -> list[Message]:
        if not self.brokers:
            return []
        broker_id = self.dice.choice(list(self.brokers))
        epoch = self.brokers[broker_id]
        kind = self.dice.randrange(5)
        if kind == 0:
            return [r.FenceBrokerRecord(id=broker_id, epoch=epoch)]
        if kind == 1:
            return [r.UnfenceBrokerRecord(id=broker_id, epoch=epoch)]
        if kind == 2 and self.dice.random() < 0.4:
            del self.brokers[broker_id]
            return [r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)]
        change = r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch)
        change.fenced = self.dice.randint(-1, 1)
        change.in_controlled_shutdown = self.dice.randint(0, 1)
        if self.level >= DIRECTORIES_SINCE:
            change.log_dirs = self.directories(self.dice.randint(0, 2))
        if self.level >= CORDONED_SINCE:
            change.cordoned_log_dirs = self.maybe(self.directories(self.dice.randint(0, 2)))
        return [change]

    def register_controller(self) -> list[Message]:
        if self.level < CONTROLLERS_SINCE:
            return []
        record = r.RegisterControllerRecord(
            controller_id=self.dice.randint(1, 3),
            incarnation_id=self.uuid(),
            zk_migration_ready=self.dice.random() < 0.3,
            end_points=self._endpoints(r.ControllerEndpoint),
            features=self._features(r.ControllerFeature),
        )
        return [record]

    # ---------------------------------------------------------------------------- topics

    def create_topic(self) -> list[Message]:
        topic_id, name = self.uuid(), f"t{self.dice.randint(0, 40)}"
        if name in self.topics.values():
            return []
        self.topics[topic_id], self.partitions[topic_id] = name, {}
        made: list[Message] = [r.TopicRecord(name=name, topic_id=topic_id)]
        for number in range(self.dice.randint(0, 4)):
            made.append(self._partition(topic_id, number))
        return made

    def _partition(self, topic_id: bytes, number: int) -> Message:
        replicas = self.nodes()
        self.partitions[topic_id][number] = replicas
        record = r.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            isr=self.dice.sample(replicas, self.dice.randint(1, len(replicas))),
            removing_replicas=self.maybe(self.nodes()) or [],
            adding_replicas=self.maybe(self.nodes()) or [],
            leader=self.dice.choice([*replicas, -1]),
            leader_recovery_state=self.dice.randint(0, 1),
            leader_epoch=self.dice.randint(0, 5),
            partition_epoch=self.dice.randint(0, 5),
        )
        if self.level >= DIRECTORIES_SINCE:
            record.directories = self.maybe(self.directories(len(replicas))) or []
        if self.level >= ELR_SINCE:
            record.eligible_leader_replicas = self.maybe(self.nodes())
            record.last_known_elr = self.maybe(self.nodes())
        return record

    def add_partition(self) -> list[Message]:
        if not self.topics:
            return []
        topic_id = self.dice.choice(list(self.topics))
        return [self._partition(topic_id, len(self.partitions[topic_id]))]

    def change_partition(self) -> list[Message]:
        chosen = [(topic_id, n) for topic_id, all_ in self.partitions.items() for n in all_]
        if not chosen:
            return []
        topic_id, number = self.dice.choice(chosen)
        change = r.PartitionChangeRecord(
            partition_id=number,
            topic_id=topic_id,
            isr=self.maybe(self.nodes()),
            leader=self.dice.choice((-2, -1, *self.partitions[topic_id][number])),
            replicas=self.maybe(self.maybe(self.nodes())),
            removing_replicas=self.maybe(self.maybe([])),
            adding_replicas=self.maybe(self.maybe(self.nodes())),
            leader_recovery_state=self.dice.randint(-1, 1),
        )
        if change.replicas is not None:
            self.partitions[topic_id][number] = change.replicas
        if self.level >= DIRECTORIES_SINCE:
            size = len(self.partitions[topic_id][number])
            change.directories = self.maybe(self.directories(size))
            if change.replicas is not None:
                change.directories = self.directories(size)
        if self.level >= ELR_SINCE:
            change.eligible_leader_replicas = self.maybe(self.maybe(self.nodes()) or [])
            change.last_known_elr = self.maybe(self.maybe(self.nodes()) or [])
        return [change]

    def remove_topic(self) -> list[Message]:
        if not self.topics or self.dice.random() < 0.6:
            return []
        topic_id = self.dice.choice(list(self.topics))
        if self.topics[topic_id] in self.configured:
            return []  # Kafka keeps settings that came in the same batch, which no controller writes
        del self.topics[topic_id], self.partitions[topic_id]
        return [r.RemoveTopicRecord(topic_id=topic_id)]

    def clear_elr(self) -> list[Message]:
        if self.level < ELR_SINCE or not self.topics or self.dice.random() < 0.7:
            return []
        name = self.dice.choice(["", *self.topics.values()])
        return [r.ClearElrRecord(topic_name=name)]

    # ---------------------------------------------------------------------------- settings

    def config(self) -> list[Message]:
        kind, names = self.dice.choice(
            ((2, [*self.topics.values()]), (4, ["", "1", "2"]), (16, ["m"]), (32, ["g"]))
        )
        if not names:
            return []
        resource_name = self.dice.choice(names)
        self.configured[resource_name] = None
        record = r.ConfigRecord(
            resource_type=kind,
            resource_name=resource_name,
            name=self.word("retention.ms", "cleanup.policy", "x"),
            value=self.dice.choice(("1", "2", "", None)),
        )
        return [record]

    def feature(self) -> list[Message]:
        # Levels of features that 4.3.1 knows, 0 among them; the first batch has the others.
        name, highest = self.dice.choice((("group.version", 1), ("transaction.version", 2)))
        return [r.FeatureLevelRecord(name=name, feature_level=self.dice.randint(0, highest))]

    def quota(self) -> list[Message]:
        kinds = self.dice.sample(("user", "client-id"), self.dice.randint(1, 2))
        if self.dice.random() < 0.2:
            kinds = ["ip"]
        entity = [
            r.QuotaEntity(entity_type=kind, entity_name=self.maybe(self.word("a", "b", "")))
            for kind in kinds
        ]
        record = r.ClientQuotaRecord(
            entity=entity,
            quota_key=self.word("producer_byte_rate", "request_percentage"),
            value=float(self.dice.randint(0, 99)),
            remove=self.dice.random() < 0.3,
        )
        return [record]

    def producer_ids(self) -> list[Message]:
        record = r.ProducerIdsRecord(
            broker_id=self.dice.randint(1, 7),
            broker_epoch=self.count,
            next_producer_id=1000 * self.count,
        )
        return [record]

    # ---------------------------------------------------------------------------- security

    def token(self) -> list[Message]:
        if self.level < TOKENS_SINCE:
            return []
        if self.tokens and self.dice.random() < 0.3:
            token_id = self.dice.choice(list(self.tokens))
            del self.tokens[token_id]
            return [r.RemoveDelegationTokenRecord(token_id=token_id)]
        token_id = f"token{self.dice.randint(0, 9)}"
        self.tokens[token_id] = None
        record = r.DelegationTokenRecord(
            owner="User:" + self.word("a", "b"),
            requester="User:" + self.word("a", "b"),
            renewers=self.dice.choice(([], ["User:c"], ["User:c", "Group:d"])),
            issue_timestamp=self.dice.randint(0, 2**41),
            max_timestamp=self.dice.randint(0, 2**41),
            expiration_timestamp=self.dice.randint(0, 2**41),
            token_id=token_id,
        )
        return [record]

    def scram(self) -> list[Message]:
        if self.level < SCRAM_SINCE or self.has_scram:
            return []  # Kafka can lose one of two credentials that change in one batch
        self.has_scram = True
        if self.users and self.dice.random() < 0.3:
            user = self.dice.choice(list(self.users))
            del self.users[user]
            return [r.RemoveUserScramCredentialRecord(name=user[0], mechanism=user[1])]
        user = (self.word("a", "b", "c"), self.dice.randint(1, 2))
        self.users[user] = None
        record = r.UserScramCredentialRecord(
            name=user[0],
            mechanism=user[1],
            salt=self.dice.randbytes(12),
            stored_key=self.dice.randbytes(32),
            server_key=self.dice.randbytes(32),
            iterations=self.dice.randint(4096, 16384),
        )
        return [record]

    def acl(self) -> list[Message]:
        if self.acls and self.dice.random() < 0.3:
            acl_id = self.dice.choice(list(self.acls))
            del self.acls[acl_id]
            return [r.RemoveAccessControlEntryRecord(id=acl_id)]
        acl_id = self.uuid()
        self.acls[acl_id] = None
        record = r.AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.dice.choice((2, 3, 4, 5)),
            resource_name=self.word("t", "*", "kafka-cluster"),
            pattern_type=self.dice.choice((3, 4)),
            principal="User:" + self.word("a", "*"),
            host=self.word("*", "10.0.0.1"),
            operation=self.dice.randint(2, 12),
            permission_type=self.dice.choice((2, 3)),
        )
        return [record]

    # ---------------------------------------------------------------------------- the rest

    def filler(self) -> list[Message]:
        return [self.dice.choice((r.NoOpRecord(), r.ZkMigrationStateRecord(zk_migration_state=3)))]

    def transaction(self) -> list[Message]:
        """Whole ones alone are aborted, so that what follows fits whether or not it is seen."""
        if self.level < TRANSACTIONS_SINCE:
            return []
        made: list[Message] = []
        if self.is_in_transaction:
            self._end(made, aborted=False)
            return made
        if self.dice.random() < 0.3:
            lost: Sequence[Message] = [
                r.ConfigRecord(resource_type=2, resource_name="lost", name="x", value="1"),
                r.TopicRecord(name="lost", topic_id=self.uuid()),
            ]
            made += [r.BeginTransactionRecord(name=self.maybe("for")), *lost]
            self._end(made, aborted=True)
            return made
        self.is_in_transaction = True
        return [r.BeginTransactionRecord()]

    def _end(self, batch: list[Message], *, aborted: bool) -> None:
        self.is_in_transaction = False
        ended = r.AbortTransactionRecord(reason=self.maybe("why"))
        batch.append(ended if aborted else r.EndTransactionRecord())


_ACTIONS: list[Callable[[Life], list[Message]]] = [
    Life.register_broker,
    Life.change_broker,
    Life.change_broker,
    Life.register_controller,
    Life.create_topic,
    Life.add_partition,
    Life.change_partition,
    Life.change_partition,
    Life.change_partition,
    Life.remove_topic,
    Life.clear_elr,
    Life.config,
    Life.config,
    Life.feature,
    Life.quota,
    Life.producer_ids,
    Life.token,
    Life.scram,
    Life.acl,
    Life.filler,
    Life.transaction,
]
