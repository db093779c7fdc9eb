"""A topic on a running broker that grows, while its older segments move to the tier. WORLD."""

import json
from pathlib import Path

from confluent_kafka import Producer

from firnline.client.admin import Admin
from firnline.testing.plugin import Broker

TOPIC = "t"
# A segment closes every few calls of `grow`, is copied soon, and leaves the broker then.
_CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4096",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
    "retention.ms": "-1",
}
_SETTINGS = (
    "firnline.local.retention.check.interval.ms=100",
    "log.retention.check.interval.ms=300",
)


class GrowingTopic:
    """As `GrowingTier`, of a broker that this object starts in the directory, and `close` ends."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self._path = directory / "ends.json"
        options = [word for each in _SETTINGS for word in ("-X", each)]
        (directory / "tier").mkdir(parents=True, exist_ok=True)
        self._broker = Broker(directory / "data", tier=directory / "tier", options=options)
        self._broker.start()
        self.bootstrap = self._broker.bootstrap
        self.ends = ends_of(directory)
        if not self.ends:
            with Admin(self.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=partitions, configs=_CONFIGS)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})

    def grow(self, count: int, partition: int) -> None:
        """Write so many records to a partition; each value has the offset of its record."""
        begin = self.ends.get(partition, 0)
        for offset in range(begin, begin + count):
            self._producer.produce(TOPIC, value=f":{offset}", partition=partition)
        assert self._producer.flush(60) == 0
        self.ends[partition] = begin + count
        self._path.write_text(json.dumps(self.ends))

    def close(self) -> None:
        """End the broker."""
        self._broker.stop()


def ends_of(directory: Path) -> dict[int, int]:
    """Return up to which offset each partition was written, also by an earlier run."""
    path = directory / "ends.json"
    return {int(p): end for p, end in json.loads(path.read_text()).items()} if path.exists() else {}
