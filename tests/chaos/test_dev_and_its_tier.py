"""`firnline dev --tier` twice, as a new user runs it: nothing to say, nothing lost. Decision 0052."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from firnline.client.admin import Admin
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import read_catalog, resolve_topic
from tests.peers.nodes import eventually

# Ten seconds and one, in a test.
QUICK = ("firnline.remote.log.roll.idle.ms=300", "remote.log.manager.task.interval.ms=100")
RECORDS = 50


@contextmanager
def running(tier: Path) -> Iterator[str]:
    """`firnline dev --tier` until Ctrl-C; yields the address for clients."""
    command = [sys.executable, "-m", "firnline", "dev", "--port", "0", "--tier", str(tier)]
    for setting in QUICK:
        command += ["-X", setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.endswith(f"(data {tier}-data, tier {tier})\n")
            yield line.split()[4]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


def remote_end(tier: Path, topic: str) -> int:
    """The offset after the last one in the tier."""
    store = DirectoryStore(str(tier), is_writer=False)
    known = resolve_topic(store, topic)
    catalog = None if known is None else read_catalog(store, known.topic_id, 0)
    return 0 if catalog is None else catalog.highest_offset + 1


def has_in_tier(tier: Path, topic: str, records: int) -> bool:
    return remote_end(tier, topic) == records


def write(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


def test_new_topics_are_tiered_soon_and_the_second_run_goes_on_with_them(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    with running(tier) as address:
        with Admin(address) as admin:
            for name, configs in (
                ("orders", {}),
                ("local", {"remote.storage.enable": "false"}),
                ("latest", {"cleanup.policy": "compact"}),
            ):
                admin.create_topic(name, partitions=1, replication_factor=1, configs=configs)
        for name in ("orders", "auto", "local", "latest"):
            write(address, name)
        for name in ("orders", "auto"):
            eventually(name, partial(has_in_tier, tier, name, RECORDS))
    with running(tier) as address:
        write(address, "orders")
        eventually("both runs", partial(has_in_tier, tier, "orders", 2 * RECORDS))
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
        for name, count in (("orders", 2 * RECORDS), ("auto", RECORDS), ("local", RECORDS)):
            ends = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
            assert ends == (0, count)
        consumer.close()
    assert remote_end(tier, "local") == remote_end(tier, "latest") == 0


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").write_text("do not lose")
    for more in ([], ["--nodes", "2"]):
        command = [sys.executable, "-m", "firnline", "dev", "--port", "0", "--dir", str(tmp_path)]
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"firnline: {tmp_path} has other files in it (thesis.odt)")
        assert len(done.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.odt"]
