"""What holds the loops of three nodes up: 4,000 partitions, three replicas of each, and what operators do.

    python -m bench.slow_steps                  some minutes
    python -m bench.slow_steps --partitions 100 --members 20

`firnline dev --nodes 3`, each a broker and a controller. Clients of librdkafka create, produce with
acks=all, read, rebalance a group, describe, delete, while nodes are killed, stopped and started. After each
phase the counters of `firnline_loop_slow_steps_total` are taken from all nodes: one row for each name, with
how many steps there were above 5 ms, how many of those took 5 ms of CPU (the others waited for it), and the
longest, where this phase had the longest so far. A node that is killed takes the counts of its last moments
with it.
"""

import argparse
import contextlib
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from prometheus_client.parser import text_string_to_metric_families

from bench.measure import free_port, report
from firnline.testing.cluster import Cluster

TOPICS = 4
GROUP = "readers"
VALUE = bytes(1024)
_TIMEOUT_S = 180.0
_PREFIX = "firnline_loop_"
Row = dict[str, Any]


class Count(NamedTuple):
    """Slow steps of one name, on one node."""

    slow: float = 0
    busy: float = 0
    longest_s: float = 0
    longest_cpu_s: float = 0


Counts = dict[str, Count]
_FIELDS = {
    _PREFIX + "slow_steps_total": "slow",
    _PREFIX + "busy_steps_total": "busy",
    _PREFIX + "longest_step_seconds": "longest_s",
    _PREFIX + "longest_step_cpu_seconds": "longest_cpu_s",
}


def scrape(port: int) -> Counts:
    """What a node has counted since its start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: Counts = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            field, name = _FIELDS.get(sample.name), sample.labels.get("step")
            if field is not None and name is not None:
                found[name] = found.get(name, Count())._replace(**{field: sample.value})
    return found


class Watch:
    """The counters of all nodes, phase by phase."""

    def __init__(self, cluster: Cluster, metrics_port: int) -> None:
        self._cluster = cluster
        self._ports = {number: metrics_port + number - 1 for number in cluster.node_ids}
        self._seen: dict[int, Counts] = {number: {} for number in cluster.node_ids}
        self._found: Counts = {}
        self.rows: list[Row] = []

    def look(self) -> None:
        """Add what was counted since the last look."""
        for number, port in self._ports.items():
            if self._cluster.is_running(number):
                now, before = scrape(port), self._seen[number]
                for name, count in now.items():
                    self._add(name, count, before.get(name, Count()))
                self._seen[number] = now

    def begins_anew(self, number: int) -> None:
        """The node's process has ended, or is about to."""
        self._seen[number] = {}

    def phase_ends(self, phase: str, took_s: float) -> None:
        self.look()
        self.rows += [
            {
                "phase": phase,
                "step": name,
                "slow": round(count.slow),
                "busy": round(count.busy),
                "longest ms": _ms(count.longest_s),
                "longest CPU ms": _ms(count.longest_cpu_s),
            }
            for name, count in sorted(
                self._found.items(), key=lambda item: (-item[1].busy, -item[1].slow)
            )
        ] or [{"phase": phase, "step": "none"}]
        self._found = {}
        print(f"{phase}: {took_s:.1f} s", flush=True)

    def _add(self, name: str, now: Count, before: Count) -> None:
        if now.slow == before.slow:
            return
        old = self._found.get(name, Count())
        self._found[name] = Count(
            old.slow + now.slow - before.slow,
            old.busy + now.busy - before.busy,
            max(old.longest_s, now.longest_s if now.longest_s > before.longest_s else 0),
            max(
                old.longest_cpu_s,
                now.longest_cpu_s if now.longest_cpu_s > before.longest_cpu_s else 0,
            ),
        )


def _ms(seconds: float) -> float | str:
    return round(seconds * 1000, 1) if seconds else ""


class Load:
    """A producer in a thread: acks=all, to partitions in turn, until it is told to stop."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "log_level": 2}
        )
        self._targets = [(topic, n) for n in range(partitions) for topic in topics]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = self.refused = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for topic, partition in self._targets:
                if self._is_over.is_set():
                    break
                self._producer.produce(
                    topic, VALUE, partition=partition, on_delivery=self._reported
                )
                self._producer.poll(0)
                time.sleep(0.0005)
        self._producer.flush(60)

    def _reported(self, problem: object, _: object) -> None:
        if problem is None:
            self.acknowledged += 1
        else:
            self.refused += 1


class Members:
    """Consumers of one group, polled in turn by one thread."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        self._bootstrap, self._topics, self._all = bootstrap, list(topics), partitions
        self._members: list[Consumer] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            member = Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": GROUP,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 30_000,
                    "fetch.queue.backoff.ms": 100,
                    "queued.max.messages.kbytes": 1024,
                    "log_level": 2,
                }
            )
            member.subscribe(self._topics)
            self._members.append(member)

    def remove(self, count: int) -> None:
        for _ in range(count):
            self._members.pop().close()

    def settle(self) -> None:
        """Poll until every partition has one owner, then a little longer."""
        settled_at = 0.0
        deadline = time.monotonic() + _TIMEOUT_S
        while not settled_at or time.monotonic() < settled_at + 5:
            for member in self._members:
                member.poll(0)
            owned = sum(len(member.assignment()) for member in self._members)
            if not settled_at and owned == self._all:
                settled_at = time.monotonic()
            if not settled_at and time.monotonic() > deadline:
                print(f"the group owns {owned} of {self._all} partitions")
                return
            time.sleep(0.01)

    def commit(self) -> None:
        for member in self._members:
            with contextlib.suppress(Exception):
                member.commit(asynchronous=True)


def produce_all(bootstrap: str, topics: Sequence[str], partitions: int, rounds: int) -> None:
    with Load(bootstrap, topics, partitions) as load:
        deadline = time.monotonic() + _TIMEOUT_S
        wanted = len(topics) * partitions * rounds
        while load.acknowledged < wanted and time.monotonic() < deadline:
            time.sleep(0.1)
    print(f"acknowledged {load.acknowledged}, refused {load.refused}")


def fetch_all(bootstrap: str, topics: Sequence[str], partitions: int) -> None:
    """One consumer that reads every partition from its start."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "one", "log_level": 2})
    reader.assign([TopicPartition(topic, n, 0) for topic in topics for n in range(partitions)])
    seen: set[tuple[str, int]] = set()
    deadline = time.monotonic() + _TIMEOUT_S
    while len(seen) < len(topics) * partitions and time.monotonic() < deadline:
        for message in reader.consume(1000, 1.0):
            if message.error() is None:
                seen.add((message.topic(), message.partition()))
    print(f"read from {len(seen)} partitions")
    reader.close()


def describe_everything(admin: AdminClient, topics: Sequence[str], partitions: int) -> None:
    admin.list_topics(timeout=60)
    admin.describe_cluster(request_timeout=60).result()
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    for each in admin.describe_configs(resources, request_timeout=60).values():
        each.result()
    admin.list_consumer_groups(request_timeout=60).result()
    admin.describe_consumer_groups([GROUP], request_timeout=60)[GROUP].result()
    wanted = [TopicPartition(topic, n) for topic in topics for n in range(partitions)]
    for spec in (OffsetSpec.latest(), OffsetSpec.for_timestamp(1)):
        for each in admin.list_offsets(dict.fromkeys(wanted, spec), request_timeout=60).values():
            each.result()
    for each in admin.list_consumer_group_offsets([GroupPartitions(GROUP)]).values():
        each.result()


def delete(admin: AdminClient, topics: Sequence[str]) -> None:
    for each in admin.delete_topics(
        list(topics), operation_timeout=60, request_timeout=60
    ).values():
        each.result()
    time.sleep(5)


def until(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if look():
                return
        time.sleep(0.5)
    print(f"{what}: not within {_TIMEOUT_S:.0f} s", flush=True)


class Run:
    """The phases, in order."""

    def __init__(self, cluster: Cluster, watch: Watch, partitions: int, members: int) -> None:
        self._cluster, self._watch = cluster, watch
        self._partitions, self._members = partitions, members
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        self._topics = [f"topic-{number}" for number in range(TOPICS)]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._watch.phase_ends(name, time.monotonic() - began)

    def all(self) -> None:
        with self.phase("three nodes start"):
            time.sleep(2)
        with self.phase(f"create {TOPICS} topics"):
            new = [NewTopic(n, self._partitions, replication_factor=3) for n in self._topics]
            made = self._admin.create_topics(new, operation_timeout=60, request_timeout=60)
            for each in made.values():
                each.result()
            until("replicas are in sync", self._is_complete)
        bootstrap = self._cluster.bootstrap
        with self.phase("produce to all, acks=all"):
            produce_all(bootstrap, self._topics, self._partitions, 3)
        with self.phase("fetch all"):
            fetch_all(bootstrap, self._topics, self._partitions)
        if self._members:
            self._group()
        with self.phase("describe everything"):
            describe_everything(self._admin, self._topics, self._partitions)
        with self.phase("delete two topics"):
            delete(self._admin, self._topics[2:])
            del self._topics[2:]
        self._kill()
        self._restart()
        with self.phase("delete the rest"):
            delete(self._admin, self._topics)

    def _group(self) -> None:
        count = TOPICS * self._partitions
        group = Members(self._cluster.bootstrap, self._topics, count)
        with self.phase(f"a group of {self._members}"):
            group.add(self._members)
            group.settle()
        with self.phase("a tenth leaves: rebalanced"):
            group.commit()
            group.remove(max(1, self._members // 10))
            group.settle()
        with self.phase("a tenth comes back: rebalanced"):
            group.add(max(1, self._members // 10))
            group.settle()
        with self.phase("all members leave"):
            group.commit()
            group.remove(self._members)

    def _kill(self) -> None:
        victim = 2
        with Load(self._cluster.bootstrap, self._topics, self._partitions) as load:
            with self.phase("kill -9 one node under load, ISRs shrink"):
                self._watch.look()
                self._cluster.kill_node(victim)
                self._watch.begins_anew(victim)
                until("ISRs are two", lambda: self._replicas_in_sync() == {2})
                time.sleep(5)
            with self.phase("it comes back, ISRs are whole"):
                self._cluster.start_node(victim)
                until("replicas are in sync", self._is_complete)
        print(f"meanwhile acknowledged {load.acknowledged}, refused {load.refused}")
        with self.phase("preferred leaders"):
            self._elect()

    def _restart(self) -> None:
        victim = 3
        with Load(self._cluster.bootstrap, self._topics, self._partitions):
            with self.phase("controlled shutdown"):
                self._watch.look()
                self._cluster.stop_node(victim)
                self._watch.begins_anew(victim)
                time.sleep(3)
            with self.phase("it starts again, ISRs are whole"):
                self._cluster.start_node(victim)
                until("replicas are in sync", self._is_complete)
        with self.phase("preferred leaders again"):
            self._elect()

    def _elect(self) -> None:
        with contextlib.suppress(Exception):
            self._admin.elect_leaders(ElectionType.PREFERRED, None, request_timeout=60).result()
        time.sleep(3)

    def _replicas_in_sync(self) -> set[int]:
        found = self._admin.list_topics(timeout=30).topics
        return {len(part.isrs) for name in self._topics for part in found[name].partitions.values()}

    def _is_complete(self) -> bool:
        return self._replicas_in_sync() == {3}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000, help="of each topic")
    parser.add_argument("--members", type=int, default=100, help="of the group; 0: no group")
    options = parser.parse_args()
    port = free_port()
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    with tempfile.TemporaryDirectory(prefix="firnline-slow-steps-") as base:
        settings = ("-X", f"firnline.metrics.port={port}")
        cluster = Cluster(Path(base) / "cluster", options=settings)
        cluster.start()
        watch = Watch(cluster, port)
        try:
            Run(cluster, watch, options.partitions, options.members).all()
        except BaseException:
            print(cluster.log_text(), *(cluster.log_text(n)[-3000:] for n in cluster.node_ids))
            raise
        finally:
            report("slow steps of three nodes, by phase", watch.rows)
            cluster.stop()


if __name__ == "__main__":
    main()
