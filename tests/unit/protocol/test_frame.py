"""Frames out of any stream of bytes, and no memory for a length that only claims."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import ProtocolError
from firnline.protocol.frame import POOLED_BYTES, BufferPool, FrameSplitter

LIMIT = 8 * 1024 * 1024


def splitter() -> FrameSplitter:
    return FrameSplitter(BufferPool(), frame_bytes_max=LIMIT)


def receive(frames: FrameSplitter, piece: bytes) -> list[bytes]:
    """What `runtime/net` does with one piece of a stream."""
    complete: list[bytes] = []
    data = memoryview(bytearray(piece))
    while data:
        if frames.buffer is not None:
            target = frames.target()
            size = min(len(target), len(data))
            target[:size] = data[:size]
            target.release()
            data = data[size:]
            frame = frames.received(size)
            if frame is not None:
                complete.append(bytes(frame[4:]))
                frame.release()
                frames.release()
            continue
        end = frames.first_frame_end(data)
        if not end:
            frames.keep(data)
            break
        complete.append(bytes(data[4:end]))
        data = data[end:]
    return complete


@given(
    bodies=st.lists(st.binary(min_size=8, max_size=300), max_size=8),
    cuts=st.lists(st.integers(0, 2500), max_size=12),
)
def test_any_cut_of_the_stream_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(b)) + b for b in bodies)
    edges = sorted({0, len(stream), *(c for c in cuts if c < len(stream))})
    frames = splitter()
    seen = [f for a, b in pairwise(edges) for f in receive(frames, stream[a:b])]
    assert seen == bodies
    assert frames.buffer is None


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, LIMIT + 1, 0, 3, 7])
@pytest.mark.parametrize("cut", [4, 1])
def test_a_size_that_cannot_be_closes_the_connection(size: int, cut: int) -> None:
    """Whether the size arrives at once or byte by byte (reliability d 1-6)."""
    frames = splitter()
    stream = struct.pack(">i", size) + b"x" * 16
    pieces = [stream[at : at + cut] for at in range(0, len(stream), cut)]
    with pytest.raises(ProtocolError):
        [receive(frames, piece) for piece in pieces]


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    frames = FrameSplitter(BufferPool(), frame_bytes_max=16)
    assert receive(frames, struct.pack(">i", 16) + b"y" * 16) == [b"y" * 16]


def test_a_claimed_length_costs_no_memory_until_its_bytes_arrive() -> None:
    frames = FrameSplitter(BufferPool(), frame_bytes_max=2**31 - 1)
    receive(frames, struct.pack(">i", 2**31 - 2) + b"z")
    assert len(frames.target()) <= 4096


def test_ten_thousand_beginnings_of_frames_hold_little() -> None:
    """A lent buffer is a mebibyte; it is for frames of which much has come."""
    pool = BufferPool()
    taken = []
    pool.take = lambda size: taken.append(1) or bytearray(POOLED_BYTES)  # type: ignore[method-assign]
    frames = FrameSplitter(pool, frame_bytes_max=LIMIT)
    receive(frames, struct.pack(">i", LIMIT) + b"z" * 10_000)
    assert not taken
    receive(frames, b"z" * 100_000)
    assert taken


def test_a_frame_larger_than_a_pooled_buffer_grows_as_its_bytes_arrive() -> None:
    body = bytes(range(256)) * (3 * POOLED_BYTES // 256)
    stream = struct.pack(">i", len(body)) + body
    frames = splitter()
    seen = [
        f for at in range(0, len(stream), 70_000) for f in receive(frames, stream[at : at + 70_000])
    ]
    assert seen == [body]


def test_large_buffers_are_used_again() -> None:
    pool = BufferPool()
    first = pool.take(POOLED_BYTES)
    pool.give(first)
    assert pool.take(1) is first


@pytest.mark.parametrize(("size", "is_kept"), [(POOLED_BYTES, False), (POOLED_BYTES + 1, True)])
def test_only_a_buffer_that_is_not_used_again_may_be_kept(size: int, is_kept: bool) -> None:
    """Goal: who keeps a frame never sees another in it. Method: the largest used again, one more."""
    pool = BufferPool()
    frames = FrameSplitter(pool, frame_bytes_max=LIMIT)
    assert not frames.is_kept
    frames.keep(memoryview(struct.pack(">i", size - 4) + bytes(100_000)))
    complete = None
    while complete is None:
        complete = frames.received(len(frames.target()))
    assert len(complete) == size
    assert frames.is_kept is is_kept
    buffer = complete.obj
    frames.release()
    assert (pool.take(1) is buffer) is not is_kept
