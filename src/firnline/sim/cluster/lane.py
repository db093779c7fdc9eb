"""One partition as a producer writes to it: the batches that nobody acknowledged yet, in order. SIM.

Up to `depth` of them are under way at once, as an idempotent producer of Kafka has up to five: a broker knows
the last five of a producer, so it tells what it took before from what it did not. A batch that was sent
behind another one may come before it and be refused as out of order; only the first may not. Source: KIP-98,
KIP-360; spec C13.
"""

from firnline.base.ids import Uuid

NO_PRODUCER = -1


class Batch:
    """Some records.

    is_first     when it was sent last, all before it were acknowledged
    is_followed  another one was sent behind it: a broker that starts again may know only that one, since a
                 producer's snapshot has but the last batch, and refuse this one, as Kafka does
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


class Lane:
    """The state of one partition. `is_waiting`: an id was asked for, or something is to be sent soon."""

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
        """Is nothing under way, and nothing to be sent?"""
        return not self.batches and not self.is_waiting

    @property
    def room(self) -> int:
        """How many more batches may be begun: none while an older one is to be sent again first."""
        if self.is_waiting or not all(batch.is_flying for batch in self.batches):
            return 0
        return self.depth - len(self.batches)

    def add(self, data: bytes, count: int) -> None:
        """A new batch, to be sent; its base sequence is `sequence`."""
        self.batches.append(Batch(data, count=count, sequence=self.sequence))
        self.sequence += count

    def to_send(self) -> list[Batch]:
        """The batches that are not under way, marked as sent now."""
        found = [batch for batch in self.batches if not batch.is_flying]
        for batch in found:
            batch.is_flying = True
            batch.is_first = batch is self.batches[0]
            batch.attempts += batch.is_first  # the others wait for it
        for batch in self.batches[:-1]:
            batch.is_followed = True
        return found

    def give_up(self) -> None:
        """Whether they were appended nobody knows: what follows is of another producer."""
        self.batches.clear()
        self.producer_id, self.sequence = NO_PRODUCER, 0
