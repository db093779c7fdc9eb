"""Kafka's broker keys that have no effect here, so that DescribeConfigs lists them all. PURE.

A row is `name | type | default | valid | importance`, the last with the marks `internal`, and `dynamic` for
keys that Kafka changes without a restart. Source: Apache Kafka 4.3.1's own definitions.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from firnline.config.define import ConfigKey, Kind, Value

# No effect here: threads of a JVM, buffers of its sockets, its metrics, and features that we do not have.
INERT = """
add.partitions.to.txn.retry.backoff.max.ms | INT | 100 | [0,...] | HIGH
add.partitions.to.txn.retry.backoff.ms | INT | 20 | [1,...] | HIGH
alter.log.dirs.replication.quota.window.num | INT | 11 | [1,...] | LOW
alter.log.dirs.replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW
background.threads | INT | 10 | [1,...] | HIGH dynamic
connection.failed.authentication.delay.ms | INT | 100 | [0,...] | LOW
controlled.shutdown.enable | BOOLEAN | true | | MEDIUM
controller.performance.always.log.threshold.ms | LONG | 2000 | [0,...] | MEDIUM internal
controller.performance.sample.period.ms | LONG | 60000 | [100,...] | MEDIUM internal
controller.quota.window.num | INT | 11 | [1,...] | LOW
controller.quota.window.size.seconds | INT | 1 | [1,...] | LOW
controller.socket.timeout.ms | INT | 30000 | | MEDIUM
delegation.token.expiry.check.interval.ms | LONG | 3600000 | [1,...] | LOW
delegation.token.expiry.time.ms | LONG | 86400000 | [1,...] | MEDIUM
delegation.token.max.lifetime.ms | LONG | 604800000 | [1,...] | MEDIUM
delete.records.purgatory.purge.interval.requests | INT | 1 | | MEDIUM
early.start.listeners | LIST | null | | HIGH
fetch.purgatory.purge.interval.requests | INT | 1000 | | MEDIUM
group.consumer.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM dynamic
group.consumer.assignors | LIST | [uniform, range] | | MEDIUM
group.consumer.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.consumer.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM
group.consumer.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM
group.consumer.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM
group.consumer.max.size | INT | 2147483647 | [1,...] | MEDIUM
group.consumer.migration.policy | STRING | \
bidirectional | (case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL] | MEDIUM
group.consumer.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM
group.consumer.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.consumer.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
group.consumer.regex.refresh.interval.ms | INT | 600000 | [10000,...] | MEDIUM internal
group.consumer.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
group.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM
group.coordinator.background.threads | INT | 2 | [1,...] | HIGH
group.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM dynamic
group.coordinator.rebalance.protocols | LIST | \
[classic, consumer, streams] | [consumer, classic, share, streams] | MEDIUM
group.coordinator.threads | INT | 4 | [1,...] | HIGH
group.share.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM dynamic
group.share.assignors | LIST | [simple] | | MEDIUM
group.share.delivery.count.limit | INT | 5 | [2,...,10] | MEDIUM
group.share.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.share.initialize.retry.interval.ms | INT | 30000 | [1,...] | LOW internal
group.share.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM
group.share.max.delivery.count.limit | INT | 10 | [5,...,25] | MEDIUM
group.share.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM
group.share.max.partition.max.record.locks | INT | 4000 | [2000,...,10000] | MEDIUM
group.share.max.record.lock.duration.ms | INT | 60000 | [30000,...,3600000] | MEDIUM
group.share.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM
group.share.max.share.sessions | INT | 2000 | [1,...] | MEDIUM
group.share.max.size | INT | 200 | [1,...,1000] | MEDIUM
group.share.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM
group.share.min.delivery.count.limit | INT | 2 | [2,...,5] | MEDIUM
group.share.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.share.min.partition.max.record.locks | INT | 100 | [100,...,2000] | MEDIUM
group.share.min.record.lock.duration.ms | INT | 15000 | [1000,...,30000] | MEDIUM
group.share.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
group.share.partition.max.record.locks | INT | 2000 | [100,...,10000] | MEDIUM
group.share.persister.class.name | STRING | \
org.apache.kafka.server.share.persister.DefaultStatePersister | | MEDIUM internal
group.share.record.lock.duration.ms | INT | 30000 | [1000,...,3600000] | MEDIUM
group.share.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
group.streams.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM dynamic
group.streams.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.streams.initial.rebalance.delay.ms | INT | 3000 | [0,...] | MEDIUM
group.streams.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM
group.streams.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM
group.streams.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM
group.streams.max.size | INT | 2147483647 | [1,...] | MEDIUM
group.streams.max.standby.replicas | INT | 2 | [0,...] | MEDIUM
group.streams.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM
group.streams.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
group.streams.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
group.streams.num.standby.replicas | INT | 0 | [0,...] | MEDIUM
group.streams.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
kafka.metrics.polling.interval.secs | INT | 10 | [1,...] | LOW
kafka.metrics.reporters | LIST | [] | | LOW
log.cleaner.io.buffer.size | INT | 524288 | [0,...] | MEDIUM dynamic
log.preallocate | BOOLEAN | false | | MEDIUM dynamic
metric.reporters | LIST | [org.apache.kafka.common.metrics.JmxReporter] | | LOW dynamic
metrics.num.samples | INT | 2 | [1,...] | LOW
metrics.recording.level | STRING | INFO | | LOW
metrics.sample.window.ms | LONG | 30000 | [1,...] | LOW
num.io.threads | INT | 8 | [1,...] | HIGH dynamic
num.network.threads | INT | 3 | [1,...] | HIGH dynamic
num.recovery.threads.per.data.dir | INT | 2 | [1,...] | HIGH dynamic
num.replica.alter.log.dirs.threads | INT | null | | HIGH
num.replica.fetchers | INT | 1 | [1,...] | HIGH dynamic
producer.purgatory.purge.interval.requests | INT | 1000 | | MEDIUM
queued.max.requests | INT | 500 | [1,...] | HIGH
quota.window.num | INT | 11 | [1,...] | LOW
quota.window.size.seconds | INT | 1 | [1,...] | LOW
remote.log.index.file.cache.ttl.ms | LONG | 900000 | [-1,...] | LOW internal
remote.log.manager.thread.pool.size | INT | 2 | [1,...] | MEDIUM
replica.socket.receive.buffer.bytes | INT | 65536 | | HIGH
replica.socket.timeout.ms | INT | 30000 | | HIGH
replication.quota.window.num | INT | 11 | [1,...] | LOW
replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW
request.timeout.ms | INT | 30000 | | HIGH
sasl.client.callback.handler.class | CLASS | null | | MEDIUM
sasl.enabled.mechanisms | LIST | [GSSAPI] | | MEDIUM dynamic
sasl.jaas.config | PASSWORD | null | | MEDIUM dynamic
sasl.kerberos.kinit.cmd | STRING | /usr/bin/kinit | | MEDIUM dynamic
sasl.kerberos.min.time.before.relogin | LONG | 60000 | | MEDIUM dynamic
sasl.kerberos.principal.to.local.rules | LIST | [DEFAULT] | | MEDIUM dynamic
sasl.kerberos.service.name | STRING | null | | MEDIUM dynamic
sasl.kerberos.ticket.renew.jitter | DOUBLE | 0.05 | | MEDIUM dynamic
sasl.kerberos.ticket.renew.window.factor | DOUBLE | 0.8 | | MEDIUM dynamic
sasl.login.callback.handler.class | CLASS | null | | MEDIUM
sasl.login.class | CLASS | null | | MEDIUM
sasl.login.connect.timeout.ms | INT | null | | LOW
sasl.login.read.timeout.ms | INT | null | | LOW
sasl.login.refresh.buffer.seconds | SHORT | 300 | | MEDIUM dynamic
sasl.login.refresh.min.period.seconds | SHORT | 60 | | MEDIUM dynamic
sasl.login.refresh.window.factor | DOUBLE | 0.8 | | MEDIUM dynamic
sasl.login.refresh.window.jitter | DOUBLE | 0.05 | | MEDIUM dynamic
sasl.login.retry.backoff.max.ms | LONG | 10000 | | LOW
sasl.login.retry.backoff.ms | LONG | 100 | | LOW
sasl.mechanism.controller.protocol | STRING | GSSAPI | | HIGH
sasl.mechanism.inter.broker.protocol | STRING | GSSAPI | | MEDIUM dynamic
sasl.oauthbearer.assertion.algorithm | STRING | RS256 | (case insensitive) [ES256, RS256] | MEDIUM
sasl.oauthbearer.assertion.claim.aud | STRING | null | | MEDIUM
sasl.oauthbearer.assertion.claim.exp.seconds | INT | 300 | [0,...,86400] | LOW
sasl.oauthbearer.assertion.claim.iss | STRING | null | | MEDIUM
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | false | | MEDIUM
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | 60 | [0,...,3600] | LOW
sasl.oauthbearer.assertion.claim.sub | STRING | null | | MEDIUM
sasl.oauthbearer.assertion.file | STRING | null | | MEDIUM
sasl.oauthbearer.assertion.private.key.file | STRING | null | | MEDIUM
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | null | | MEDIUM
sasl.oauthbearer.assertion.template.file | STRING | null | | MEDIUM
sasl.oauthbearer.client.credentials.client.id | STRING | null | | MEDIUM
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | null | | MEDIUM
sasl.oauthbearer.clock.skew.seconds | INT | 30 | | LOW
sasl.oauthbearer.expected.audience | LIST | [] | | HIGH
sasl.oauthbearer.expected.issuer | STRING | null | | HIGH
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG | 3600000 | | LOW
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG | 10000 | | LOW
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG | 100 | | LOW
sasl.oauthbearer.jwks.endpoint.url | STRING | null | | MEDIUM
sasl.oauthbearer.jwt.retriever.class | CLASS | \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | | MEDIUM
sasl.oauthbearer.jwt.validator.class | CLASS | \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | | MEDIUM
sasl.oauthbearer.scope | STRING | null | | MEDIUM
sasl.oauthbearer.scope.claim.name | STRING | scope | | LOW
sasl.oauthbearer.sub.claim.name | STRING | sub | | LOW
sasl.oauthbearer.token.endpoint.url | STRING | null | | MEDIUM
sasl.server.callback.handler.class | CLASS | null | | MEDIUM
sasl.server.max.receive.size | INT | 524288 | | MEDIUM
server.max.startup.time.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM internal
share.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM
share.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM dynamic
share.coordinator.cold.partition.snapshot.interval.ms | INT | 300000 | [1,...] | LOW internal
share.coordinator.load.buffer.size | INT | 5242880 | [1,...] | HIGH
share.coordinator.snapshot.update.records.per.snapshot | INT | 500 | [0,...,500] | MEDIUM
share.coordinator.state.topic.compression.codec | INT | 0 | | HIGH
share.coordinator.state.topic.min.isr | SHORT | 2 | [1,...] | HIGH
share.coordinator.state.topic.num.partitions | INT | 50 | [1,...] | HIGH
share.coordinator.state.topic.prune.interval.ms | INT | 300000 | [1,...] | LOW internal
share.coordinator.state.topic.replication.factor | SHORT | 3 | [1,...] | HIGH
share.coordinator.state.topic.segment.bytes | INT | 104857600 | [1,...] | HIGH
share.coordinator.threads | INT | 1 | [1,...] | MEDIUM
share.coordinator.write.timeout.ms | INT | 5000 | [1,...] | HIGH
share.fetch.purgatory.purge.interval.requests | INT | 1000 | | MEDIUM
socket.connection.setup.timeout.max.ms | LONG | 30000 | | MEDIUM
socket.connection.setup.timeout.ms | LONG | 10000 | | MEDIUM
ssl.allow.dn.changes | BOOLEAN | false | | LOW
ssl.allow.san.changes | BOOLEAN | false | | LOW
ssl.cipher.suites | LIST | [] | | MEDIUM dynamic
ssl.enabled.protocols | LIST | [TLSv1.2, TLSv1.3] | | MEDIUM dynamic
ssl.endpoint.identification.algorithm | STRING | https | | LOW dynamic
ssl.engine.factory.class | CLASS | null | | LOW dynamic
ssl.key.password | PASSWORD | null | | MEDIUM dynamic
ssl.keymanager.algorithm | STRING | SunX509 | | MEDIUM dynamic
ssl.keystore.certificate.chain | PASSWORD | null | | MEDIUM dynamic
ssl.keystore.key | PASSWORD | null | | MEDIUM dynamic
ssl.keystore.location | STRING | null | | MEDIUM dynamic
ssl.keystore.password | PASSWORD | null | | MEDIUM dynamic
ssl.keystore.type | STRING | JKS | | MEDIUM dynamic
ssl.principal.mapping.rules | STRING | DEFAULT | | LOW
ssl.protocol | STRING | TLSv1.3 | | MEDIUM dynamic
ssl.provider | STRING | null | | MEDIUM dynamic
ssl.secure.random.implementation | STRING | null | | LOW dynamic
ssl.trustmanager.algorithm | STRING | PKIX | | MEDIUM dynamic
ssl.truststore.certificates | PASSWORD | null | | MEDIUM dynamic
ssl.truststore.location | STRING | null | | MEDIUM dynamic
ssl.truststore.password | PASSWORD | null | | MEDIUM dynamic
ssl.truststore.type | STRING | JKS | | MEDIUM dynamic
telemetry.max.bytes | INT | 1048576 | [1,...] | LOW
transaction.abort.timed.out.transaction.cleanup.interval.ms | INT | 10000 | [1,...] | LOW
transaction.max.timeout.ms | INT | 900000 | [1,...] | HIGH
transaction.partition.verification.enable | BOOLEAN | true | | LOW dynamic
transaction.remove.expired.transaction.cleanup.interval.ms | INT | 3600000 | [1,...] | LOW
transaction.state.log.load.buffer.size | INT | 5242880 | [1,...] | HIGH
transaction.state.log.min.isr | INT | 2 | [1,...] | HIGH
transaction.state.log.num.partitions | INT | 50 | [1,...] | HIGH
transaction.state.log.replication.factor | SHORT | 3 | [1,...] | HIGH
transaction.state.log.segment.bytes | INT | 104857600 | [1,...] | HIGH
transactional.id.expiration.ms | INT | 604800000 | [1,...] | HIGH
"""

# Settings that no file has: tools set them while replicas move. They have no effect here.
RUNTIME = """
follower.replication.throttled.rate | LONG | 9223372036854775807 | [0,...] | MEDIUM dynamic
leader.replication.throttled.rate | LONG | 9223372036854775807 | [0,...] | MEDIUM dynamic
replica.alter.log.dirs.io.max.bytes.per.second | LONG | 9223372036854775807 | [0,...] | MEDIUM dynamic
"""

# A user would rely on these, so a value other than the default is refused.
PROMISE = """
alter.config.policy.class.name | CLASS | null | | LOW
authorizer.class.name | STRING | | non-null string | LOW
client.quota.callback.class | CLASS | null | | LOW
connections.max.reauth.ms | LONG | 0 | | MEDIUM
controller.quorum.auto.join.enable | BOOLEAN | false | | LOW
create.topic.policy.class.name | CLASS | null | | LOW
delegation.token.secret.key | PASSWORD | null | | MEDIUM
max.connection.creation.rate | INT | 2147483647 | [0,...] | MEDIUM dynamic
principal.builder.class | CLASS | \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | | MEDIUM dynamic
security.inter.broker.protocol | STRING | \
PLAINTEXT | [PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL] | MEDIUM
security.providers | STRING | null | | LOW
ssl.client.auth | STRING | none | [required, requested, none] | MEDIUM dynamic
transaction.two.phase.commit.enable | BOOLEAN | false | | LOW
unstable.api.versions.enable | BOOLEAN | false | | HIGH internal
unstable.feature.versions.enable | BOOLEAN | false | | HIGH internal
"""


@cache
def unused_keys() -> Mapping[str, ConfigKey]:
    """Return the keys of both tables by name."""
    found = [*_rows(INERT, "inert"), *_rows(PROMISE, "promise")]
    return {each.name: each for each in found}


@cache
def runtime_keys() -> Mapping[str, ConfigKey]:
    """Return by name the keys that are only set at run time; they are listed only where they are set."""
    return {each.name: each for each in _rows(RUNTIME, "inert")}


def _rows(table: str, kind: Kind) -> Iterator[ConfigKey]:
    for row in table.strip().splitlines():
        # Any: the four words are Literals of define.py; tests/unit/config compares them with Kafka's.
        name, type_, default, valid, marks = (cell.strip() for cell in row.split("|"))
        importance, *others = marks.split()
        facts: dict[str, Any] = {"type": type_, "importance": importance}
        yield ConfigKey(
            name=name,
            default=_default(type_, default),
            valid=valid,
            scope="broker",
            kind=kind,
            is_internal="internal" in others,
            is_dynamic="dynamic" in others,
            **facts,
        )


def _default(type_: str, text: str) -> Value:
    if text == "null":
        return None
    if type_ == "BOOLEAN":
        return text == "true"
    if type_ in ("SHORT", "INT", "LONG"):
        return int(text)
    if type_ == "DOUBLE":
        return float(text)
    if type_ == "LIST":
        return tuple(part.strip() for part in text.strip("[]").split(",") if part.strip())
    return text
