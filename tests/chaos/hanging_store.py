"""A plug-in for the tier that hangs or panics where a file says so. WORLD.

`orders`, the setting `rsm.config.orders`, names a directory: a file `hang-CALL` in it makes that call hang as
long as the file is there, `panic-CALL` makes it raise a BaseException, as native code does.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from firnline.base.ports import Buffer
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import IndexKind, RemoteSegment, SegmentData


class PanicException(BaseException):
    """As pyo3's: it is no Exception."""


class HangingStorage(ObjectStorage):
    """An ObjectStorage whose calls wait for the test."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self._orders = Path(settings["orders"])
        super().configure({key: value for key, value in settings.items() if key != "orders"})

    def check_owner(self) -> None:
        self._obey("owner")
        super().check_owner()

    def _obey(self, call: str) -> None:
        if (self._orders / f"panic-{call}").exists():
            (self._orders / f"panicked-{call}").touch()
            raise PanicException(f"called `unwrap` in {call}")
        if (self._orders / f"hang-{call}").exists():
            (self._orders / f"hung-{call}").touch()
        while (self._orders / f"hang-{call}").exists():
            time.sleep(0.05)

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        self._obey("copy")
        return super().copy_segment(segment, data)

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> Buffer:
        self._obey("fetch")
        return super().fetch_segment(segment, position, size_bytes)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self._obey("index")
        return super().fetch_index(segment, kind)

    def delete_segments(self, segments: Sequence[RemoteSegment]) -> None:
        self._obey("delete")
        super().delete_segments(segments)

    def close(self) -> None:
        self._obey("close")
        super().close()
