"""The controller's decisions as text: each script in `controller/` is a story of records and answers."""

import re
from pathlib import Path
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.brokers import Heartbeat
from firnline.controller.configs import Alteration, AlterOp
from firnline.controller.topics import CreatedTopic, NewPartitions, NewTopic
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage, ConfigResource
from firnline.metadata.result import ControllerResult
from firnline.protocol.schema import Message
from tests.datadriven import run_script
from tests.worlds.quorum import Cluster, broker_config, registration

SCRIPTS = sorted((Path(__file__).parent / "controller").glob("*.txt"))
KINDS = {"topic": 2, "broker": 4, "group": 32}
Items = list[list[str]]  # a command's arguments: words, in items parted by |
OPS = {"=": AlterOp.SET, "-": AlterOp.SUBTRACT, "+": AlterOp.APPEND, "!": AlterOp.DELETE}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_controller_decides_as_recorded(script: Path) -> None:
    run_script(script, Story())


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 5


class Story:
    """Runs the commands of one script on one cluster."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.seen: list[str] = []

    def __call__(self, text: str) -> str:
        verb, _, rest = text.partition(" ")
        items = [item.split() for item in rest.split(" | ")] if rest else []
        return "\n".join(getattr(self, f"do_{verb.replace('-', '_')}")(items))

    def _reported(self, result: ControllerResult[Any]) -> list[str]:
        """The records of a decision, then the answer after the commit."""
        lines = [said(record) for record in result.records]
        answer = self.cluster.write(result)
        answers = answer if isinstance(answer, list) else [answer]
        return lines + [f"-> {spelled(each)}" for each in answers]

    def do_start(self, items: Items) -> list[str]:
        settings = dict(word.split("=") for words in items for word in words)
        self.cluster = Cluster(broker_config(**settings)).start()
        return [f"epoch {self.cluster.quorum.epoch}, {self.cluster.quorum.next_offset} records"]

    def do_register(self, items: Items) -> list[str]:
        """Broker id, incarnation; holding-lock."""
        wanted = registration(*(int(word) for word in items[0] if word.isdecimal()))
        return self._reported(
            self.cluster.controller.register_broker(
                wanted,
                self.cluster.loop.now_ms,
                replaces_dead_incarnation="holding-lock" in items[0],
            )
        )

    def do_unregister(self, items: Items) -> list[str]:
        return self._reported(self.cluster.controller.unregister_broker(int(items[0][0])))

    def do_heartbeat(self, items: Items) -> list[str]:
        """Broker id; behind, stale-epoch, fence, shut-down."""
        node_id, *wants = items[0]
        image = self.cluster.quorum.image
        registered = image.brokers.get(int(node_id))
        epoch = registered.epoch if registered else -1
        heartbeat = Heartbeat(
            int(node_id),
            epoch - 1 if "stale-epoch" in wants else epoch,
            epoch - 1 if "behind" in wants else image.offset,
            want_fence="fence" in wants,
            want_shut_down="shut-down" in wants,
        )
        return self._reported(
            self.cluster.controller.heartbeat(heartbeat, self.cluster.loop.now_ms)
        )

    def do_wait(self, items: Items) -> list[str]:
        self.cluster.loop.now_ms += int(items[0][0])
        return [f"now {self.cluster.loop.now_ms}"]

    def do_failover(self, items: Items) -> list[str]:
        """This controller is deposed, and elected again later: nothing of its first reign is left."""
        self.cluster.controller.deactivate()
        self.cluster.controller.activate(self.cluster.loop.now_ms)
        while self.cluster.controller.is_sweeping:
            self.cluster.write(self.cluster.controller.sweep())
        return [f"active at {self.cluster.loop.now_ms}"]

    def do_fence_stale(self, items: Items) -> list[str]:
        return self._reported(self.cluster.controller.fence_stale(self.cluster.loop.now_ms))

    def do_create(self, items: Items) -> list[str]:
        """Topics: name, partitions=, replicas=, assign=0:1,2;1:2,3, key=value."""
        return self._created(items, validate_only=False)

    def do_validate(self, items: Items) -> list[str]:
        """Topics as for create; nothing is made."""
        return self._created(items, validate_only=True)

    def _created(self, items: Items, *, validate_only: bool) -> list[str]:
        topics = [_new_topic(words) for words in items]
        return self._reported(
            self.cluster.controller.create_topics(topics, validate_only=validate_only)
        )

    def do_delete(self, items: Items) -> list[str]:
        refs = [int(w[3:]).to_bytes(16, "big") if w.startswith("id=") else w for w in items[0]]
        return self._reported(self.cluster.controller.delete_topics(refs))

    def do_grow(self, items: Items) -> list[str]:
        """Topics: name, total, replicas of the new partitions as 1,2;2,3."""
        wanted = []
        for name, total, *chosen in items:
            lists = [[int(n) for n in ids.split(",") if n] for c in chosen for ids in c.split(";")]
            wanted.append(NewPartitions(name, int(total), lists or None))
        return self._reported(self.cluster.controller.create_partitions(wanted))

    def do_alter(self, items: Items) -> list[str]:
        """topic|broker|group NAME, then for each key: =key value, +key value, -key value, !key."""
        (kind, name), *keys = items
        changes = [
            Alteration(key[1:], OPS[key[0]], value[0] if value else None) for key, *value in keys
        ]
        wanted = [(ConfigResource(KINDS[kind], name.replace("*", "")), changes)]
        return self._reported(self.cluster.controller.incremental_alter_configs(wanted))

    def do_producer_ids(self, items: Items) -> list[str]:
        broker_id, epoch = map(int, items[0])
        return self._reported(
            self.cluster.controller.allocate_producer_ids(broker_id=broker_id, broker_epoch=epoch)
        )

    def do_topics(self, items: Items) -> list[str]:
        """What the committed image says of every partition."""
        image = self.cluster.quorum.image
        return [
            f"{name}-{number} leader {p.leader}@{p.leader_epoch} replicas {list(p.replicas)}"
            f" isr {list(p.isr)} partition-epoch {p.partition_epoch}"
            + (" recovering" if p.leader_recovery_state else "")
            for name in sorted(image.topics_by_name)
            for number, p in sorted(image.topics_by_name[name].partitions.items())
        ]

    def do_watch(self, items: Items) -> list[str]:
        """From here on the delta of each publication is told by `seen`."""

        def note(delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
            topics = [f"{t.after.name}{list(t.partitions)}" for t in delta.topics]
            gone = [t.name for t in delta.deleted_topics]
            configs = [f"{kind}/{name}" for kind, name in delta.configs]
            self.seen.append(
                f"topics {topics} deleted {gone} brokers {list(delta.brokers)} configs {configs}"
            )
            return []

        self.cluster.reported.publishers.append(note)
        return []

    def do_seen(self, items: Items) -> list[str]:
        reported, self.seen = self.seen, []
        return reported


def _new_topic(words: list[str]) -> NewTopic:
    name = "" if words[0] == "(empty)" else words[0].replace("x*250", "x" * 250)
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    assign = {
        int(number): tuple(int(n) for n in ids.split(",") if n)
        for number, ids in (
            item.split(":") for item in options.pop("assign", "").split(";") if item
        )
    }
    return NewTopic(
        name,
        int(options.pop("partitions", -1)),
        int(options.pop("replicas", -1)),
        assign,
        {key: None if value == "(null)" else value for key, value in options.items()},
    )


def said(record: Message) -> str:
    """One record as a line: its name without Record, then the fields that differ from the default."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", type(record).__name__.removesuffix("Record")).lower()
    words = [name]
    for key in record.fields:
        value = getattr(record, key)
        if value != getattr(type(record), key) and key not in ("features", "end_points"):
            words.append(f"{key}={shown(value)}")
    return " ".join(words)


def shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"#{int.from_bytes(value, 'big')}"
    if isinstance(value, tuple | list):
        return "[" + ",".join(shown(item) for item in value) + "]"
    return str(value)


def spelled(answer: object) -> str:
    if isinstance(answer, KafkaError):
        return str(answer)
    if isinstance(answer, CreatedTopic):
        return (
            f"{answer.name} {shown(answer.topic_id)}: {answer.num_partitions} partitions"
            f" x {answer.replication_factor}"
        )
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        return " ".join(f"{key}={value}" for key, value in answer._asdict().items())
    if isinstance(answer, tuple):
        return " ".join(map(shown, answer))
    return "done" if answer is None else str(answer)
