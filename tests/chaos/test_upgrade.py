"""metadata.version is raised under load, in processes of their own, and followers begin to say who they are.

I32: at 3.5-IV0 brokers fetch from one another with version 14, which has no broker epoch; from 3.5-IV1 on
with version 15, which has. Proxies before all nodes see what travels.
"""

import contextlib
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.messages.k56_alter_partition import AlterPartitionRequest
from firnline.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.chaos.controllers import tracebacks
from tests.chaos.replicas import APART, PARTITIONS, REPLICAS, TOPIC, await_in_sync
from tests.chaos.workload import PATIENCE_S, SILENT, Reader, Workload, read_all, violations
from tests.peers.nodes import QUICK, Cluster, FirnlineNode, eventually
from tests.peers.proxy import Proxy
from tests.wire.line import Line

BEFORE, SINCE = "3.5-IV0", 10


def test_an_upgrade_under_load_gives_followers_their_epochs_and_costs_no_isr(
    tmp_path: Path,
) -> None:
    # Nobody is to be fenced by a machine that is slow.
    settings = {**QUICK, "broker.session.timeout.ms": 60_000}
    cluster = Cluster(tmp_path, APART[2:], settings)
    with contextlib.ExitStack() as stack:
        proxies = {n: stack.enter_context(Proxy(node.address)) for n, node in cluster.nodes.items()}
        cluster.advertised_ports |= {n: proxy.port for n, proxy in proxies.items()}
        for node in cluster.nodes.values():
            assert isinstance(node, FirnlineNode)
            node.format_at = BEFORE
        stack.enter_context(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_in_sync(admin)
        reader = stack.enter_context(Reader(cluster.bootstrap, TOPIC, PARTITIONS))
        work = stack.enter_context(Workload(cluster.bootstrap, TOPIC, PARTITIONS, rest_s=0.05))
        work.await_acks(500)
        assert set(fetches(proxies)) == {(n.node_id, 14, -1) for n in cluster.brokers}
        row = FeatureUpdateKey(feature="metadata.version", max_version_level=SINCE, upgrade_type=1)
        with Line(cluster.brokers[0].address) as line:
            answer = line.ask(UpdateFeaturesRequest(feature_updates=[row], timeout_ms=60_000), 1)
        assert answer.error_code == 0, answer
        wanted = {(n, 15, epoch) for n, epoch in epochs(proxies).items()}
        assert len(wanted) == REPLICAS
        eventually("epochs travel", lambda: wanted <= set(fetches(proxies)), within_s=PATIENCE_S)
        work.await_acks(500)
        work.finish()
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
        reader.await_all(found)
        assert violations(work.acked(), found, work.sent) + reader.differences(found) == []
        assert set(fetches(proxies)) == wanted | {(n, 14, -1) for n in epochs(proxies)}
        asked = [p for proxy in proxies.values() for p in proxy.seen]
        assert [p for p in asked if isinstance(p.request, AlterPartitionRequest)] == []
        assert tracebacks(cluster) == []
        cluster.kill()


def fetches(proxies: dict[int, Proxy]) -> list[tuple[int, int, int]]:
    """(follower, version, broker epoch) of the Fetches of followers, from the first record on."""
    found = []
    for n in sorted(proxies)[1:]:  # those of the controller are of the metadata
        for passing in list(proxies[n].seen):
            request = passing.request
            if isinstance(request, FetchRequest):
                state = request.replica_state
                follower = max(request.replica_id, state.replica_id)
                if follower >= 0:
                    found.append((follower, passing.version, state.replica_epoch))
    return found


def epochs(proxies: dict[int, Proxy]) -> dict[int, int]:
    """Broker epochs, as heartbeats say them."""
    heartbeats = [p.request for p in list(proxies[1].seen)]
    return {
        b.broker_id: b.broker_epoch for b in heartbeats if isinstance(b, BrokerHeartbeatRequest)
    }
