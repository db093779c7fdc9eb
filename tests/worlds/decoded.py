"""What production code reads in slices, read whole: records of batches, records of an image."""

from collections.abc import Iterator

from firnline.base.ports import Buffer
from firnline.metadata.image import ClusterImage
from firnline.metadata.snapshot_records import image_steps
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.records.record import Record, records


def all_records(data: Buffer) -> Iterator[Record]:
    """Decode every record of every whole batch of `data`, control batches left out."""
    for header in headers(data):
        if not header.is_control:
            yield from records(data, header)


def image_records(image: ClusterImage) -> Iterator[Message]:
    """Yield the records that make `image` out of nothing."""
    for step in image_steps(image):
        yield from step
