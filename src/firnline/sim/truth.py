"""What was ever committed, byte for byte, and what the cluster was after each batch of it. SIM.

The first node that calls something committed writes it here; everybody after is compared with it.
"""

from bisect import bisect_left

from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader
from firnline.metadata.records import NoOpRecord, decode
from firnline.records.batch import headers
from firnline.records.record import records


class Truth:
    """The committed log from offset 0 on. `records` counts those that say something."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.records = 0
        self.images: dict[int, ClusterImage] = {}  # by the offset of the last record in it
        self._data = bytearray()
        self._ends = [0]  # where each batch ends, exclusive, by offset ...
        self._positions = [0]  # ... and by byte
        self._epochs = [0]
        self._loader = Loader()

    def position(self, offset: int) -> int | None:
        """Where the batch that begins at `offset` stands; None when none does."""
        index = bisect_left(self._ends, offset)
        is_border = index < len(self._ends) and self._ends[index] == offset
        return self._positions[index] if is_border else None

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the batch that ends at `offset`; None when none does."""
        index = bisect_left(self._ends, offset)
        is_border = index < len(self._ends) and self._ends[index] == offset
        return self._epochs[index] if is_border else None

    def extend(self, data: bytes, end_offset: int) -> str | None:
        """Take the batches of `data` that lie in [end of the truth, end_offset); say what is wrong."""
        for header in headers(data):
            if header.base_offset >= end_offset:
                break
            if header.base_offset != self.end_offset:
                return f"a batch at {header.base_offset} where {self.end_offset} is next"
            batch = data[header.position : header.position + header.size_bytes]
            self._loader.apply(batch)
            self._loader.take_deltas()
            image = self._loader.image()
            self.images[image.offset] = image
            self._data += batch
            self.end_offset = header.next_offset
            self._ends.append(header.next_offset)
            self._positions.append(len(self._data))
            self._epochs.append(header.leader_epoch)
            if not header.is_control:
                values = [row.value or b"" for row in records(batch, next(headers(batch)))]
                self.records += sum(not isinstance(decode(value), NoOpRecord) for value in values)
        return None if self.end_offset == end_offset else f"no batch ends at {end_offset}"

    def differs(self, data: bytes, start_offset: int, end_offset: int) -> str | None:
        """Compare whole batches of [`start_offset`, `end_offset`) with the truth; say how they differ."""
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
