"""A record as `firnline consume` prints it, and one as `firnline produce` sends it. PURE."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.errors import FirnlineError

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record that was read. `timestamp_ms` is -1 if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record to send. None for the partition: the partitioner decides. None for the timestamp: now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class InputError(FirnlineError):
    """The input is not in the format that was named. The text says what is wrong, without the place."""
