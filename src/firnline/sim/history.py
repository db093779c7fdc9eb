"""What was ever committed, byte for byte, and the cluster's image after each batch. SIM.

The first node that calls something committed writes it here; every other node is compared with it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader
from firnline.metadata.records import NoOpRecord, decode
from firnline.records.batch import BatchHeader, headers
from firnline.records.record import records

ImageListener = Callable[[ClusterImage, Sequence[ClusterDelta]], None]


class CommittedLog:
    """The committed batches of one log, from `start_offset` on. `records` counts the data records."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = self.end_offset = start_offset
        self.records = 0
        self._data = bytearray()
        self._ends = [start_offset]  # where each batch ends, exclusive, by offset ...
        self._positions = [0]  # ... and by byte
        self._epochs = [0]
        self._committed_in = [0]  # by epoch of the leader that committed it

    def position(self, offset: int) -> int | None:
        """The position of the batch that begins at `offset`; None if there is none."""
        index = bisect_left(self._ends, offset)
        is_border = index < len(self._ends) and self._ends[index] == offset
        return self._positions[index] if is_border else None

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the batch that ends at `offset`; None if there is none."""
        index = bisect_left(self._ends, offset)
        is_border = index < len(self._ends) and self._ends[index] == offset
        return self._epochs[index] if is_border else None

    def border_before(self, offset: int) -> int:
        """The first offset of the batch that holds `offset`."""
        return self._ends[max(0, bisect_right(self._ends, offset) - 1)]

    def borders_from(self, offset: int) -> list[int]:
        """The first offsets of batches, from the one that holds `offset` on."""
        return self._ends[max(0, bisect_right(self._ends, offset) - 1) : -1]

    def end_before_epoch(self, epoch: int) -> int:
        """The end of what was committed in earlier epochs.

        A batch has the epoch of its append, and may be committed in a much later one: leaders of the epochs
        between have no part in it.
        """
        index = len(self._ends) - 1
        while index and self._committed_in[index] >= epoch:
            index -= 1
        return self._ends[index]

    def agrees_to(self, epoch_at: Callable[[int], int | None], end_offset: int) -> int:
        """The first batch that has another leader epoch than a log has there, at most `end_offset`."""
        for base_offset, epoch in zip(self._ends, self._epochs[1:], strict=False):
            if base_offset >= end_offset:
                break
            if epoch_at(base_offset) not in (None, epoch):
                return base_offset
        return end_offset

    def batch_at(self, offset: int) -> bytes | None:
        """The batch that begins at `offset`; None if there is none."""
        index = bisect_left(self._ends, offset)
        if index + 1 >= len(self._ends) or self._ends[index] != offset:
            return None
        return bytes(self._data[self._positions[index] : self._positions[index + 1]])

    def extend(self, data: bytes, end_offset: int, leader_epoch: int | None = None) -> str | None:
        """Take the batches of `data` in [end of the history, end_offset); return what is wrong, or None.

        leader_epoch  of the committing leader; None for the epoch of each batch
        """
        for header in headers(data):
            if header.base_offset >= end_offset:
                break
            if header.base_offset != self.end_offset:
                return f"a batch at {header.base_offset} where {self.end_offset} is next"
            batch = data[header.position : header.position + header.size_bytes]
            self._data += batch
            self.end_offset = header.next_offset
            self._ends.append(header.next_offset)
            self._positions.append(len(self._data))
            self._epochs.append(header.leader_epoch)
            committed_in = header.leader_epoch if leader_epoch is None else leader_epoch
            self._committed_in.append(committed_in)
            self.on_batch(batch, header)
        return None if self.end_offset == end_offset else f"no batch ends at {end_offset}"

    def on_batch(self, batch: bytes, header: BatchHeader) -> None:
        """A batch was committed for the first time."""
        self.records += header.record_count

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on, a batch border: it is lost, as was reported."""
        index = bisect_left(self._ends, offset)
        assert self._ends[index] == offset, "a cut is between two batches"
        for column in (self._ends, self._positions, self._epochs, self._committed_in):
            del column[index + 1 :]
        del self._data[self._positions[index] :]
        self.end_offset = offset

    def differs(self, data: bytes, start_offset: int, end_offset: int) -> str | None:
        """Compare complete batches of [`start_offset`, `end_offset`) with the history; return the
        difference.
        """
        end_offset = min(end_offset, self.end_offset)
        if start_offset >= end_offset:
            return None
        start, end = self.position(start_offset), self.position(end_offset)
        if start is None or end is None:
            return f"{start_offset if start is None else end_offset} is within a committed batch"
        if data[: end - start] == memoryview(self._data)[start:end]:
            return None
        for header in headers(data):
            at = self.position(header.base_offset)
            size = header.size_bytes
            batch = data[header.position : header.position + size]
            if at is None or batch != self._data[at : at + size]:
                return f"another batch at {header.base_offset} (epoch {header.leader_epoch})"
        return f"nothing of {start_offset} to {end_offset} is there, or not all"


class CommittedMetadata(CommittedLog):
    """The committed metadata. `on_image` is called with each image as soon as any node calls it committed."""

    def __init__(self, on_image: ImageListener) -> None:
        super().__init__()
        self.images: dict[int, ClusterImage] = {}  # by the offset of the last record in it
        self._on_image = on_image
        self._loader = Loader()

    def on_batch(self, batch: bytes, header: BatchHeader) -> None:
        """Apply it to the image."""
        self._loader.apply(batch)
        deltas = self._loader.take_deltas()
        image = self._loader.image()
        self.images[image.offset] = image
        if not header.is_control:
            values = [row.value or b"" for row in records(batch, next(headers(batch)))]
            self.records += sum(not isinstance(decode(value), NoOpRecord) for value in values)
        self._on_image(image, deltas)
