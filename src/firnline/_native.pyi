import select
from array import array
from collections.abc import Callable
from typing import Any

from firnline.base.ports import Buffer

def right_body(data: Buffer, count: int, /) -> bool: ...
def turn(
    poller: select.epoll,
    wait_s: float,
    callbacks: dict[int, Callable[[int], object]],
    streams: dict[int, tuple[Callable[[int], Any], Callable[[Any, int], object]]],
    shared: memoryview,
    /,
) -> None: ...
def usual_batch(data: Buffer, /) -> tuple[int, ...] | None: ...
def usual_request(data: memoryview, size: int, /) -> tuple[Any, ...] | None: ...
def walk_batches(
    data: Buffer, epochs: array[int], offsets: bytes, times: bytes, state: array[int], /
) -> None: ...
