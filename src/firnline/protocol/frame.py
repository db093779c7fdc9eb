"""Split a byte stream into length-prefixed frames; memory grows with the bytes received. PURE.

Bytes are received into a buffer that the whole node shares. A frame that is complete there is returned as a
view. Only an incomplete rest is moved to its own buffer, which comes from a pool and grows as bytes arrive,
never by what a length claims (reliability d 1-9). A view is valid until the next call, so whoever keeps bytes
copies them. The exception is a frame of more than a mebibyte: its buffer is not reused, so its handler may
keep it without a copy.
"""

import struct

from firnline.base.errors import ProtocolError
from firnline.base.limits import FRAME_BYTES_MIN, FRAME_GROWTH_BYTES_MAX
from firnline.base.units import KIB, MIB

read_size = struct.Struct(">i").unpack_from
SIZE_BYTES = 4
POOLED_BYTES = MIB
_POOLED_MAX = 16
# The beginning of a frame waits in a small buffer, which is doubled as bytes come: ten thousand connections
# that announce large frames and send nothing must not use ten thousand large buffers.
_SMALL_BYTES = 4 * KIB
_POOLED_FROM_BYTES = 64 * KIB


class BufferPool:
    """Large receive buffers that are reused: fresh pages cost more than the bytes copied into them.

    is_scarce  memory is short: buffers are no larger than needed
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self.is_scarce = False

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes."""
        if self._free:
            return self._free.pop()
        return bytearray(size if self.is_scarce else max(size, POOLED_BYTES))

    def give(self, buffer: bytearray) -> None:
        if len(buffer) == POOLED_BYTES and len(self._free) < _POOLED_MAX:
            self._free.append(buffer)


class FrameSplitter:
    """The receiving half of one connection.

    `next_frame` yields complete frames of what `feed` was given, and keeps the rest. While a frame is
    incomplete, `target` is where its next bytes may be received directly.
    """

    __slots__ = ("_filled", "_frame_bytes_max", "_frame_end", "_pool", "buffer")

    def __init__(self, pool: BufferPool, *, frame_bytes_max: int) -> None:
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        # One incomplete frame with its size prefix; None between frames.
        self.buffer: bytearray | None = None
        self._filled = 0
        self._frame_end = 0  # 0 while the size prefix itself is incomplete

    def first_frame_end(self, data: memoryview) -> int:
        """Return the end of the first frame of `data`; 0 if it is incomplete.

        Only between frames. Raises ProtocolError for an impossible size or one above the limit.
        """
        if len(data) < SIZE_BYTES:
            return 0
        (size,) = read_size(data)
        if size < FRAME_BYTES_MIN or size > self._frame_bytes_max:
            raise ProtocolError("bad frame size", size=size, limit=self._frame_bytes_max)
        end = SIZE_BYTES + size
        return end if end <= len(data) else 0

    def keep(self, rest: memoryview) -> None:
        """Move the beginning of an incomplete frame to its own buffer."""
        assert self.buffer is None
        if not rest:
            return
        self._filled = len(rest)
        self.buffer = self._room_for(self._filled)
        self.buffer[: self._filled] = rest
        self._learn_size()

    @property
    def held_bytes(self) -> int:
        """Memory of an incomplete frame, or of one that was returned and is still being handled."""
        return 0 if self.buffer is None else len(self.buffer)

    @property
    def is_kept(self) -> bool:
        """Whether the buffer is too large to be reused: the frame in it stays valid."""
        return self.buffer is not None and len(self.buffer) > POOLED_BYTES

    @property
    def growth_bytes(self) -> int:
        """How much memory `target` would add, approximately."""
        if self.buffer is None:
            return 0
        held, end = len(self.buffer), self._frame_end or SIZE_BYTES
        if self._filled < held or end <= held:
            return 0
        return min(end - held, held, FRAME_GROWTH_BYTES_MAX)

    def target(self) -> memoryview:
        """Return where the next bytes of the incomplete frame go; never past the frame's end."""
        assert self.buffer is not None
        end = self._frame_end or SIZE_BYTES
        growth = self.growth_bytes
        if growth:
            self._grow(growth)
        return memoryview(self.buffer)[self._filled : min(end, len(self.buffer))]

    def received(self, size: int) -> memoryview | None:
        """Note bytes received into `target`; return the frame with its size prefix once it is complete."""
        assert self.buffer is not None
        self._filled += size
        if not self._frame_end and self._filled >= SIZE_BYTES:
            self._learn_size()
        if not self._frame_end or self._filled < self._frame_end:
            return None
        return memoryview(self.buffer)[: self._frame_end]

    def release(self) -> None:
        """Return the buffer to the pool once its frame was handled, or when the connection ends."""
        if self.buffer is not None:
            self._pool.give(self.buffer)
        self.buffer, self._filled, self._frame_end = None, 0, 0

    def _room_for(self, size: int) -> bytearray:
        """Return a buffer for `size` bytes and more to come: large ones from the pool, small ones new."""
        if size < _POOLED_FROM_BYTES:
            return bytearray(max(size, _SMALL_BYTES))
        buffer = self._pool.take(size)
        if size > len(buffer):
            buffer.extend(bytes(size - len(buffer)))
        return buffer

    def _grow(self, growth: int) -> None:
        full = self.buffer
        assert full is not None
        size = len(full) + growth
        if len(full) < _POOLED_FROM_BYTES:
            self.buffer = self._room_for(size)
            self.buffer[: len(full)] = full
        else:
            full.extend(bytes(growth))

    def _learn_size(self) -> None:
        assert self.buffer is not None
        if self._filled < SIZE_BYTES:
            return
        (size,) = read_size(self.buffer)
        if size < FRAME_BYTES_MIN or size > self._frame_bytes_max:
            raise ProtocolError("bad frame size", size=size, limit=self._frame_bytes_max)
        self._frame_end = SIZE_BYTES + size
