"""What clients and followers ask of the topics of one broker, counted. PURE.

The counters of one topic are one object, which all of its partitions on this broker share: a request adds to
plain integers, and looks nothing up. Names and meanings are those of Kafka's BrokerTopicMetrics; where they
differ, docs/reference/metrics.md says how.
"""

from collections.abc import Generator

# Below a millisecond.
_TOPICS_PER_SLICE, _ASKED_PER_SLICE = 250, 5_000


class Traffic:
    """The counters of one topic, since the broker began to host it.

    partitions               how many of its partitions are here
    messages_in, bytes_in    appended by the leader
    bytes_rejected           of batches that were refused as too large
    bytes_out                records sent to consumers
    produces, failed_produces  appends that were asked for; those that failed, for any reason
    fetches, failed_fetches  reads of a partition; those that failed, for any reason
    replicated_in_bytes, replicated_out_bytes  records that followers got from leaders
    failed_appends           appends of leader or follower that the disk refused; failed_append_ms: the last
    """

    COUNTERS = (
        *("messages_in", "bytes_in", "bytes_rejected", "bytes_out", "produces", "failed_produces"),
        *("fetches", "failed_fetches", "replicated_in_bytes", "replicated_out_bytes"),
        "failed_appends",
    )
    __slots__ = (*COUNTERS, "failed_append_ms", "partitions")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_rejected = self.bytes_out = 0
        self.produces = self.failed_produces = self.fetches = self.failed_fetches = 0
        self.replicated_in_bytes = self.replicated_out_bytes = 0
        self.failed_appends = self.partitions = 0
        self.failed_append_ms = -1

    def append_failed(self, now_ms: int) -> None:
        """Count an append that the disk refused."""
        self.failed_appends += 1
        self.failed_append_ms = now_ms

    def add(self, other: "Traffic") -> None:
        """Add the counters of another topic."""
        for name in self.COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed_append_ms = max(self.failed_append_ms, other.failed_append_ms)


class TrafficByTopic:
    """The counters of each topic of which partitions are here, and sums over all that there ever were."""

    __slots__ = ("_gone", "by_topic", "elsewhere")

    def __init__(self) -> None:
        self.by_topic: dict[str, Traffic] = {}
        self._gone = Traffic()  # the sums over topics that are no longer here
        self.elsewhere = Traffic()  # requests for partitions that are not here

    def join(self, topic: str) -> Traffic:
        """A partition of the topic is here: return the counters to use for it."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = Traffic()
        found.partitions += 1
        return found

    def leave(self, topic: str) -> None:
        """A partition of the topic is here no more. After the last one only the sums remember the topic."""
        found = self.by_topic.get(topic)
        if found is None:
            return
        found.partitions -= 1
        if not found.partitions:
            self._gone.add(self.by_topic.pop(topic))

    def total(self) -> Generator[None, None, Traffic]:
        """Return the sums over all topics since the start, in slices. They never fall."""
        found = Traffic()
        found.add(self._gone)
        found.add(self.elsewhere)
        for number, each in enumerate(list(self.by_topic.values()), 1):
            found.add(each)
            if number % _TOPICS_PER_SLICE == 0:
                yield
        return found

    def failing_since(self, since_ms: int) -> Generator[None, None, list[tuple[str, Traffic]]]:
        """Return the topics with an append that the disk refused since then, by name; in slices."""
        found = []
        for number, (topic, each) in enumerate(list(self.by_topic.items()), 1):
            if each.failed_append_ms >= max(since_ms, 0):
                found.append((topic, each))
            if number % _ASKED_PER_SLICE == 0:
                yield
        return sorted(found, key=lambda row: row[0])


# Of a partition that is not hosted: counted, and never looked at.
UNHOSTED = Traffic()
