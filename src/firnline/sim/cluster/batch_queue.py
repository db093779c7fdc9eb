"""The batches of one partition that a producer has not got acknowledged yet, in order. SIM.

Up to `depth` of them are in flight at once, like the five of Kafka's idempotent producer. A broker knows the
last five batches of a producer, so it recognises a duplicate. A batch may arrive before an earlier one and be
refused as out of order; only the first one may not. Source: KIP-98, KIP-360; spec C13.
"""

from firnline.base.ids import Uuid

NO_PRODUCER = -1


class Batch:
    """Some records.

    is_first     when it was last sent, all earlier ones were acknowledged
    is_followed  a later one was sent after it. A restarted broker may know only that one, because a producer
                 snapshot holds only the last batch, and then refuses this one, as Kafka does
    """

    __slots__ = ("attempts", "count", "data", "is_first", "is_flying", "is_followed", "sequence")

    def __init__(self, data: bytes, *, count: int, sequence: int) -> None:
        self.data = data
        self.count = count
        self.sequence = sequence
        self.attempts = 0
        self.is_flying = False
        self.is_first = False
        self.is_followed = False


class BatchQueue:
    """The state of one partition. `is_waiting`: an id was requested, or something will be sent soon."""

    __slots__ = (
        "acks",
        "batches",
        "depth",
        "is_idempotent",
        "is_waiting",
        "key",
        "producer_id",
        "sequence",
    )

    def __init__(
        self, key: tuple[Uuid, int], *, is_idempotent: bool, acks: int, depth: int = 1
    ) -> None:
        assert is_idempotent or depth == 1, "plain batches have no order of their own"
        self.key = key
        self.is_idempotent = is_idempotent
        self.acks = acks
        self.depth = depth
        self.producer_id = NO_PRODUCER
        self.sequence = 0  # of the next batch
        self.batches: list[Batch] = []  # oldest first
        self.is_waiting = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight and nothing has to be sent."""
        return not self.batches and not self.is_waiting

    @property
    def room(self) -> int:
        """How many more batches may be started: none while an older one must be sent again first."""
        if self.is_waiting or not all(batch.is_flying for batch in self.batches):
            return 0
        return self.depth - len(self.batches)

    def add(self, data: bytes, count: int) -> None:
        """Add a new batch; its base sequence is `sequence`."""
        self.batches.append(Batch(data, count=count, sequence=self.sequence))
        self.sequence += count

    def to_send(self) -> list[Batch]:
        """Return the batches that are not in flight, and mark them as sent now."""
        found = [batch for batch in self.batches if not batch.is_flying]
        for batch in found:
            batch.is_flying = True
            batch.is_first = batch is self.batches[0]
            batch.attempts += batch.is_first  # the others wait for the first
        for batch in self.batches[:-1]:
            batch.is_followed = True
        return found

    def give_up(self) -> None:
        """Give up: nobody knows whether they were appended, so a new producer id is used from here on."""
        self.batches.clear()
        self.producer_id, self.sequence = NO_PRODUCER, 0
