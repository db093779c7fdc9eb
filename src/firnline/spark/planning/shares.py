"""What is to be read of each partition, and its division by offsets. SPARK, without requests.

Offsets are divided only where the user asks for it, with `minPartitions` or `maxRecordsPerPartition`. The
bytes of a part come from splits or an index, as those of a complete partition: two parts may read the bytes
between two such places, and each delivers its own offsets of them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.spark.division import divide
from firnline.spark.options.parse import Options
from firnline.spark.planning.filters import Spans, within
from firnline.spark.planning.plan import Piece, Range, TailTask, Task
from firnline.spark.planning.transactions import AbortedByOffset
from firnline.spark.schema import OpenTxn


class Share(NamedTuple):
    """The part of one partition that is to be read; `ranges` and `tail` are not both empty.

    offsets     the offsets that are wanted; batches without any of them can be left out
    unfinished  transactions without an outcome, by first offset
    tail        offsets that the tier does not have, and that the partition's leader is asked for
    leader_epoch  the leader's when the read was planned
    cleanup_policy  of the topic; empty if nobody was asked
    """

    topic: str
    topic_id: Uuid
    partition: int
    ranges: tuple[Range, ...]
    offsets: Spans
    aborted: AbortedByOffset
    unfinished: tuple[OpenTxn, ...] = ()
    tail: Spans = ()
    leader_epoch: int = -1
    cleanup_policy: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """The first offset of what is read, and the end of it."""
        spans = [*self.tail]
        if self.ranges:
            spans.append((self.ranges[0].start_offset, self.ranges[-1].end_offset))
        return min(start for start, _ in spans), max(end for _, end in spans)

    def tail_tasks(self) -> list[TailTask]:
        """Return the tasks that ask the leader."""
        where = self.topic, self.topic_id, self.partition
        how = self.leader_epoch, self.cleanup_policy
        return [TailTask(*where, start, end, *how) for start, end in self.tail]

    def task(self, pieces: tuple[Piece, ...]) -> Task:
        """Return the task that reads some pieces, with the transactions of their offsets only."""
        start, end = pieces[0].start_offset, pieces[-1].end_offset
        begun = bisect_left(self.unfinished, end, key=attrgetter("first_offset"))
        return Task(
            self.topic,
            self.topic_id,
            self.partition,
            pieces,
            self.aborted.within(start, end),
            self.unfinished[:begun],
        )


def divide_shares(shares: Sequence[Share], options: Options) -> list[Share]:
    """Divide shares by offsets as the official source does, if the user asks for that.

    What counts of a partition is all from the first offset that is read of it to the last.
    """
    if not options.divides_offsets:
        return list(shares)
    spans = [share.span for share in shares]
    divided = divide(
        [end - start for start, end in spans],
        parts_min=options.min_partitions or 1,
        records_max=options.max_records_per_partition,
    )
    return [
        part
        for share, (start, _), sizes in zip(shares, spans, divided, strict=True)
        for part in _parts(share, start, sizes)
    ]


def _parts(share: Share, start_offset: int, sizes: Sequence[int]) -> Iterator[Share]:
    """Cut a share into parts of so many offsets; leaves out parts that have nothing."""
    number, at = 0, start_offset
    for size in sizes:
        end = at + size
        found = []
        # Parts and ranges ascend: a range that ends in this part is in no later one.
        while number < len(share.ranges) and share.ranges[number].start_offset < end:
            one = share.ranges[number]
            inside = within(share.offsets, max(at, one.start_offset), min(end, one.end_offset))
            if inside:
                found.append(Range(one.segment, inside[0][0], inside[-1][1]))
            if one.end_offset > end:
                break
            number += 1
        tail = within(share.tail, at, end)
        if found or tail:
            offsets = within(share.offsets, at, end)
            yield share._replace(ranges=tuple(found), offsets=offsets, tail=tail)
        at = end
